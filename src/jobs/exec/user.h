/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user that commands run as (`run_as` of struct sl_exec_opts): looked up once, and become in every child between
 * vfork and exec.
 *
 * Thread safety: a struct sl__exec_user does not change after it was made; minders have a copy of it from their fork.
 */
#ifndef SL_JOBS_EXEC_USER_H
#define SL_JOBS_EXEC_USER_H

#include <sys/types.h>

#include "base/env.h"

struct sl__exec_user {
	char *name, *home;
	uid_t uid, worker_uid;
	gid_t gid;
	gid_t *groups; /* all of the user's, and no other */
	int n_groups;
};

/* Look up the user, and try in a child whether commands can run as it. On success *out belongs to the caller.
 * SL_EINVAL: no such user, or one that separates nothing (root, or this process's own); SL_ECONFIG: this process may
 * not change to it. */
SL_MUST_CHECK int sl__exec_user_find(struct sl__exec_user **out, const struct sl_env *env, const char *name,
				     struct sl_err *err);
/* NULL is allowed. */
void sl__exec_user_free(struct sl__exec_user *user, const struct sl_env *env);
/* Become the user for good, without any capability. false: errno is set, and the caller must not execute anything.
 * Async-signal-safe, of the calling thread only, and allowed after vfork. */
bool sl__exec_user_become(const struct sl__exec_user *user);

#endif
