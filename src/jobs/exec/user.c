/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs commands as another user.
 *
 *  U1. The child has all ids and groups of the user, and none of the worker's, before it executes anything.
 *  U2. It has no capability in any set that an exec could bring back. The kernel drops them when a process leaves user
 *      id 0; one that changes from another id, as a worker with ambient capabilities does, would keep them all.
 *  U3. It cannot change back. All of this is verified: a child that fails any step ends.
 *
 * The system calls are made directly. The functions of the C library apply them to all threads, which after a vfork are
 * the parent's.
 */
#include "jobs/exec/user.h"

#include "base/child.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOKUP_BYTES_MAX ((size_t)1 << 20)
#define GROUPS_MAX 65536 /* the kernel's limit */

/* Where ids had 16 bits first, the calls for 32 bits have names of their own. */
#ifdef SYS_setresuid32
#define CALL_SETGROUPS SYS_setgroups32
#define CALL_SETRESGID SYS_setresgid32
#define CALL_SETRESUID SYS_setresuid32
#else
#define CALL_SETGROUPS SYS_setgroups
#define CALL_SETRESGID SYS_setresgid
#define CALL_SETRESUID SYS_setresuid
#endif

/* ---- in the child ---- */

bool sl__exec_user_become(const struct sl__exec_user *u)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
	uid_t uid[3];
	gid_t gid[3];
	if (syscall(CALL_SETGROUPS, u->n_groups, u->groups) != 0 ||
	    syscall(CALL_SETRESGID, u->gid, u->gid, u->gid) != 0 ||
	    syscall(CALL_SETRESUID, u->uid, u->uid, u->uid) != 0)
		return false;
	/* U2. A kernel without ambient capabilities refuses the first call, and has none to clear. */
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, data) != 0 || syscall(SYS_capget, &head, data) != 0)
		return false;
	/* U3. */
	if (getresuid(&uid[0], &uid[1], &uid[2]) != 0 || getresgid(&gid[0], &gid[1], &gid[2]) != 0)
		return false;
	bool good = true;
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		good = good && (data[i].effective | data[i].permitted | data[i].inheritable) == 0;
	for (int i = 0; i < 3; i++)
		good = good && uid[i] == u->uid && gid[i] == u->gid;
	bool back = syscall(CALL_SETRESUID, u->worker_uid, u->worker_uid, u->worker_uid) == 0;
	errno = EPERM;
	return good && !back;
}

/* ---- once ---- */

static int copy_user(struct sl__exec_user *u, const struct sl_env *env, const struct passwd *found, struct sl_err *err)
{
	u->uid = found->pw_uid;
	u->gid = found->pw_gid;
	u->worker_uid = geteuid();
	u->name = sl__strdup(env, found->pw_name);
	u->home = sl__strdup(env, found->pw_dir != NULL && found->pw_dir[0] != '\0' ? found->pw_dir : "/");
	for (int room = 64; room <= GROUPS_MAX; room *= 2) {
		u->n_groups = room;
		sl__free(env, u->groups);
		u->groups = sl__calloc(env, (size_t)room, sizeof(*u->groups));
		if (u->name == NULL || u->home == NULL || u->groups == NULL)
			return sl_err_set(err, SL_ENOMEM, "run_as: out of memory");
		if (getgrouplist(u->name, u->gid, u->groups, &u->n_groups) >= 0)
			return 0;
	}
	return sl_err_set(err, SL_EINVAL, "run_as: user \"%s\" is in more than %d groups", u->name, GROUPS_MAX);
}

static int find_user(struct sl__exec_user *u, const struct sl_env *env, const char *name, struct sl_err *err)
{
	for (size_t n = 4096; n <= LOOKUP_BYTES_MAX; n *= 4) {
		struct passwd entry, *found = NULL;
		char *text = sl__alloc(env, n);
		if (text == NULL)
			return sl_err_set(err, SL_ENOMEM, "run_as: out of memory");
		int why = getpwnam_r(name, &entry, text, n, &found);
		int rc = found != NULL ? copy_user(u, env, found, err) : 0;
		sl__free(env, text);
		if (found != NULL)
			return rc;
		/* What getpwnam_r returns for a name that does not exist differs between systems. */
		if (why == 0 || why == ENOENT || why == ESRCH || why == EBADF || why == EPERM)
			return sl_err_set(err, SL_EINVAL, "run_as: no user \"%s\" on this system", name);
		if (why != ERANGE)
			return sl_err_set_errno(err, why, "run_as: look up user \"%s\"", name);
	}
	return sl_err_set(err, SL_EINVAL, "run_as: the entry of user \"%s\" is longer than 1 MiB", name);
}

static int check_capabilities(const struct sl__exec_user *u, struct sl_err *err)
{
	static const struct {
		unsigned number;
		const char *name;
	} needed[] = {{CAP_SETUID, " CAP_SETUID"}, {CAP_SETGID, " CAP_SETGID"}, {CAP_KILL, " CAP_KILL"}};
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
	char missing[64] = "";
	if (syscall(SYS_capget, &head, data) != 0)
		return sl_err_set_errno(err, errno, "run_as: read the capabilities of this process");
	for (size_t i = 0; i < SL_COUNT(needed); i++)
		if ((data[CAP_TO_INDEX(needed[i].number)].effective & CAP_TO_MASK(needed[i].number)) == 0)
			(void)strncat(missing, needed[i].name, sizeof(missing) - strlen(missing) - 1);
	if (missing[0] == '\0')
		return 0;
	return sl_err_set(err, SL_ECONFIG,
			  "run_as: cannot run commands as user \"%s\" without%s; run as root or grant CAP_SETUID, "
			  "CAP_SETGID and CAP_KILL",
			  u->name, missing);
}

/* What else can forbid it (a seccomp filter, a user namespace that does not have the id) shows only when it is tried.
 */
static int try_in_child(const struct sl__exec_user *u, struct sl_err *err)
{
	int status = 0;
	pid_t pid = fork();
	if (pid < 0)
		return sl_err_set_errno(err, errno, "run_as: fork");
	if (pid == 0)
		_exit(sl__exec_user_become(u) ? 0 : errno > 0 && errno < 256 ? errno : EPERM);
	/* Where another part of the program has reaped it, the first command shows how it went. */
	if (sl__child_wait(pid, &status) != 0 || status == 0)
		return 0;
	const char *why = WIFEXITED(status) ? strerrordesc_np(WEXITSTATUS(status)) : "the child was killed";
	return sl_err_set(err, SL_ECONFIG, "run_as: cannot change to user \"%s\": %s", u->name,
			  why != NULL ? why : "unknown error");
}

int sl__exec_user_find(struct sl__exec_user **out, const struct sl_env *env, const char *name, struct sl_err *err)
{
	if (name[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "run_as: missing user name");
	struct sl__exec_user *u = sl__calloc(env, 1, sizeof(*u));
	if (u == NULL)
		return sl_err_set(err, SL_ENOMEM, "run_as: out of memory");
	/* Commands must be able to run as the user, and be separated from this process by that. */
	int rc = find_user(u, env, name, err);
	if (rc == 0 && u->uid == 0)
		rc = sl_err_set(err, SL_EINVAL, "run_as: user \"%s\" is root; name a user without privileges", u->name);
	else if (rc == 0 && (u->uid == getuid() || u->uid == geteuid()))
		rc = sl_err_set(err, SL_EINVAL,
				"run_as: this process runs as \"%s\" itself, whose commands could read its files; "
				"name another user",
				u->name);
	if (rc == 0)
		rc = check_capabilities(u, err);
	if (rc == 0)
		rc = try_in_child(u, err);
	if (rc != 0) {
		sl__exec_user_free(u, env);
		return rc;
	}
	*out = u;
	return 0;
}

void sl__exec_user_free(struct sl__exec_user *u, const struct sl_env *env)
{
	if (u == NULL)
		return;
	sl__free(env, u->name);
	sl__free(env, u->home);
	sl__free(env, u->groups);
	sl__free(env, u);
}
