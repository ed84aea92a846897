/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the executable file of a command before any job needs it. The candidates, and what is skipped among them, are
 * those of the start itself (launch.c, become_command of minder.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs/exec/priv.h"

#include "base/child.h"

enum found { FOUND = 0, MISSING, NOT_EXECUTABLE, FOLDER, NOT_THE_USER };

static enum found find_at(const char *path)
{
	struct stat st;
	if (stat(path, &st) != 0)
		return errno == EACCES ? NOT_EXECUTABLE : MISSING;
	if (S_ISDIR(st.st_mode))
		return FOLDER;
	return S_ISREG(st.st_mode) && faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0 ? FOUND : NOT_EXECUTABLE;
}

/* As execvp: a missing file is skipped, and one that cannot be executed is remembered. Allocates nothing: it also runs
 * in a forked child. */
static enum found find_in_path(const char *command, const char *search)
{
	enum found best = MISSING;
	char path[PATH_MAX];
	if (strchr(command, '/') != NULL)
		return find_at(command);
	for (const char *p = search;; p++) {
		int folder = (int)strcspn(p, ":");
		int n = snprintf(path, sizeof(path), "%.*s/%s", folder > 0 ? folder : 1, folder > 0 ? p : ".", command);
		enum found here = n < (int)sizeof(path) ? find_at(path) : MISSING;
		if (here == FOUND)
			return FOUND;
		if (here == NOT_EXECUTABLE)
			best = here;
		p += folder;
		if (*p == '\0')
			return best;
	}
}

/* In a child with the ids of the user, in the folder in which its commands start. */
static int find_as_user(const struct sl__exec_user *user, const char *command, const char *search, enum found *out,
			struct sl_err *err)
{
	char folder[PATH_MAX];
	int status = 0;
	if (getcwd(folder, sizeof(folder)) == NULL)
		(void)strcpy(folder, "/");
	pid_t pid = fork();
	if (pid < 0)
		return sl_err_set_errno(err, errno, "find command %s: fork", command);
	if (pid == 0) {
		if (!sl__exec_user_become(user) || (chdir(folder) != 0 && chdir("/") != 0))
			_exit(NOT_THE_USER);
		_exit((int)find_in_path(command, search));
	}
	/* Where another part of the program has reaped it, the first attempt shows how it goes. */
	*out = FOUND;
	if (sl__child_wait(pid, &status) == 0 && WIFEXITED(status))
		*out = (enum found)WEXITSTATUS(status);
	return 0;
}

int sl_exec_check_command(const char *command, const char *run_as, struct sl_err *err)
{
	const char *search = sl__launch_search(), *who = run_as != NULL ? " as user " : "";
	struct sl__exec_user *user = NULL;
	enum found found = FOUND;
	struct sl_env env;
	int rc = sl__env_init(&env, NULL, err);
	if (rc == 0 && run_as != NULL)
		rc = sl__exec_user_find(&user, &env, run_as, err);
	if (rc == 0 && user != NULL)
		rc = find_as_user(user, command, search, &found, err);
	else if (rc == 0)
		found = find_in_path(command, search);
	sl__exec_user_free(user, &env);
	if (rc != 0)
		return rc;
	if (run_as == NULL)
		run_as = "";
	switch (found) {
	case MISSING:
		if (strchr(command, '/') != NULL)
			return sl_err_set(err, SL_ENOENT, "no file %.150s%s%s; give the path of an executable file",
					  command, who, run_as);
		return sl_err_set(err, SL_ENOENT,
				  "no command %.150s in PATH%s%s; give its path, or add its folder to PATH", command,
				  who, run_as);
	case FOLDER:
		return sl_err_set(err, SL_EACCES, "%.150s is a folder; give the path of an executable file", command);
	case NOT_EXECUTABLE:
		return sl_err_set(err, SL_EACCES, "%.150s cannot be executed%s%s; check its permissions (chmod +x)",
				  command, who, run_as);
	case NOT_THE_USER:
		return sl_err_set(err, SL_ECONFIG, "run_as: cannot change to user \"%s\"", run_as);
	case FOUND:
		break;
	}
	return 0;
}
