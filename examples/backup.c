/* SPDX-License-Identifier: Apache-2.0 */
/* Back up a folder into an encrypted repository, twice: the second snapshot stores only what is new. Then restore it.
 */
#include <inttypes.h>
#include <sluice/backup_care.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	int ok = f != NULL && fputs(text, f) >= 0;
	return f != NULL && fclose(f) == 0 && ok ? 0 : -1;
}

static void on_problem(enum sl_backup_problem problem, const char *path, const struct sl_err *err, void *ctx)
{
	(void)ctx;
	fprintf(stderr, "%s: %s: %s\n", sl_backup_problem_name(problem), path, err->msg);
}

/* Durable when it returns 0; on_problem got the files that could not be read. */
static int back_up(sl_backup *b, char id[SL_BACKUP_ID_BYTES], struct sl_err *err)
{
	static const char *const paths[] = {"notes"}, *const excludes[] = {"*.tmp"};
	const struct sl_backup_create_opts opts = {
		SL_BACKUP_CREATE_OPTS_INIT, .paths = paths,  .n_paths = 1,
		.excludes = excludes,       .n_excludes = 1, .on_problem = on_problem};
	struct sl_backup_created made = {.struct_size = sizeof(made)};
	if (sl_backup_create(b, &opts, &made, err) != 0)
		return err->code;
	printf("files: %" PRIu64 ", new ones: %" PRIu64 "\n", made.files, made.files_new);
	memcpy(id, made.id, SL_BACKUP_ID_BYTES);
	return 0;
}

static int print(const struct sl_backup_entry *e, void *ctx)
{
	const char *name = strstr(e->path, "/notes/"); /* after the folders above it */
	(void)ctx;
	return name != NULL && printf("%s, %" PRIu64 " bytes\n", name + 1, e->size) < 0;
}

int main(void)
{
	const struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT, .create = SL_ON};
	const struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .passphrase = "correct horse battery staple",
					    .passphrase_len = 28};
	const struct sl_backup_restore_opts restore = {SL_BACKUP_RESTORE_OPTS_INIT, .to = "restored"};
	const struct sl_backup_check_opts check = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = SL_ON};
	struct sl_backup_checked checked = {.struct_size = sizeof(checked)};
	struct sl_backup_restored restored = {.struct_size = sizeof(restored)};
	struct sl_err err = SL_ERR_INIT;
	sl_driver driver = {0};
	sl_backup *b = NULL;
	char first[SL_BACKUP_ID_BYTES], second[SL_BACKUP_ID_BYTES];

	if (mkdir("notes", 0700) != 0 || write_file("notes/one", "first\n") != 0 || write_file("notes/x.tmp", "") != 0)
		return 1;
	if (sl_driver_local_open(&driver, "repository", &local, &err) == 0 &&
	    sl_backup_init(&driver, &opts, &err) == 0 && sl_backup_open(&b, &driver, &opts, &err) == 0 &&
	    back_up(b, first, &err) == 0 && write_file("notes/two", "second\n") == 0 && back_up(b, second, &err) == 0 &&
	    sl_backup_ls(b, second, NULL, print, NULL, &err) == 0 &&
	    sl_backup_check(b, &check, &checked, &err) == 0 && /* every byte of every block */
	    sl_backup_restore(b, first, &restore, &restored, &err) == 0)
		printf("snapshots that are right: %" PRIu64 ", files of the first one restored: %" PRIu64 "\n",
		       checked.snapshots, restored.files);
	if (err.code != 0)
		fprintf(stderr, "%s\n", err.msg);
	sl_backup_close(b);
	sl_driver_close(&driver);
	return err.code != 0;
}
