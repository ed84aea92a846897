/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a log: defaults, bounds, and what a path says about a stream. */
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "wal/handle.h"

void sl__wal_opts_free(const struct sl_env *env, struct sl_wal_opts *opts)
{
	const char *owned[] = {opts->wal_dir, opts->archive_dir, opts->key_file, opts->dead_letter_dir};
	for (size_t i = 0; i < SL_COUNT(owned); i++)
		sl__free(env, (void *)(uintptr_t)owned[i]);
	memset(opts, 0, sizeof(*opts));
}

static int bad_field(struct sl_err *err, const char *field, const char *must)
{
	return sl_err_set(err, SL_EINVAL, "wal options: %s must be %s", field, must);
}

/* Fill zeros with their defaults and keep to the bounds. */
static int check_numbers(struct sl_wal_opts *o, struct sl_err *err)
{
	int64_t retention_days = o->retention_days, archive_level = o->archive_level, batch_records = o->batch_records;
	const struct {
		const char *field;
		int64_t *value;
		int64_t initial, min, max;
		bool may_be_unlimited;
	} rows[] = {
		{"retention_days", &retention_days, 30, 1, 36500, true},
		{"flush_interval_ms", &o->flush_interval_ms, 100, 1, 86400000, false},
		{"archive_level", &archive_level, 3, 1, 19, false},
		{"segment_bytes", &o->segment_bytes, (int64_t)64 << 20, 4096, (int64_t)1 << 40, false},
		{"max_pending_bytes", &o->max_pending_bytes, (int64_t)1 << 30, 1, INT64_MAX, true},
		{"batch_records", &batch_records, 50, 1, 100000, false},
		{"linger_ms", &o->linger_ms, 0, 0, 10000, false},
		{"batch_bytes", &o->batch_bytes, 256 * 1024, 1, (int64_t)1 << 30, false},
		{"prepare_max_bytes", &o->prepare_max_bytes, (int64_t)4 << 20, 512, (int64_t)1 << 30, false},
	};
	for (size_t i = 0; i < SL_COUNT(rows); i++) {
		int64_t *v = rows[i].value;
		bool off = v == &o->prepare_max_bytes && *v == SL_NONE;
		if (*v == 0)
			*v = rows[i].initial;
		if (off || (rows[i].may_be_unlimited && *v == SL_UNLIMITED))
			continue;
		if (*v < rows[i].min || *v > rows[i].max)
			return sl_err_set(err, SL_EINVAL, "wal options: %s is %lld; it must be %lld to %lld%s",
					  rows[i].field, (long long)*v, (long long)rows[i].min, (long long)rows[i].max,
					  rows[i].may_be_unlimited ? " or SL_UNLIMITED" : "");
	}
	o->retention_days = (int32_t)retention_days;
	o->archive_level = (int32_t)archive_level;
	o->batch_records = (int32_t)batch_records;
	return 0;
}

/* ~/.sluice/<leaf>, in fresh memory. */
static char *home_path(const struct sl_env *env, const char *leaf)
{
	const char *home = secure_getenv("HOME");
	if (home != NULL && home[0] == '/')
		return sl__asprintf(env, "%s/.sluice/%s", home, leaf);
	char buf[4096];
	struct passwd pw, *found = NULL;
	if (getpwuid_r(geteuid(), &pw, buf, sizeof(buf), &found) == 0 && found != NULL)
		return sl__asprintf(env, "%s/.sluice/%s", pw.pw_dir, leaf);
	return NULL;
}

int sl__wal_opts_resolve(struct sl_wal_opts *out, const struct sl_wal_opts *opts, const struct sl_env *env,
			 struct sl_err *err)
{
	struct sl_wal_opts in, o;
	sl__opts_copy(&in, sizeof(in), opts);
	o = in;
	o.env = NULL;
	if ((in.wal_dir != NULL && in.wal_dir[0] == '\0') || (in.archive_dir != NULL && in.archive_dir[0] == '\0'))
		return bad_field(err, in.wal_dir != NULL && in.wal_dir[0] == '\0' ? "wal_dir" : "archive_dir",
				 "a folder, not an empty string");
	const struct {
		const char *name, *path;
	} folders[] = {{"wal options: wal_dir", in.wal_dir},
		       {"wal options: archive_dir", in.archive_dir},
		       {"wal options: dead_letter_dir", in.dead_letter_dir}};
	for (size_t i = 0; i < SL_COUNT(folders); i++) {
		int rc = sl_check_local_path(folders[i].name, folders[i].path, err);
		if (rc != 0)
			return rc;
	}
	int rc = check_numbers(&o, err);
	if (rc != 0)
		return rc;
	if ((unsigned)o.on_full > SL_WAL_FULL_ERROR)
		return bad_field(err, "on_full", "one of SL_WAL_FULL_…");
	if ((unsigned)o.on_corruption > SL_WAL_REFUSE)
		return bad_field(err, "on_corruption", "SL_WAL_SALVAGE, SL_WAL_TRUNCATE or SL_WAL_REFUSE");
	if ((unsigned)o.archive_on_complete > SL_OFF)
		return bad_field(err, "archive_on_complete", "SL_DEFAULT, SL_ON or SL_OFF");
	if ((unsigned)o.discard_settled > SL_OFF)
		return bad_field(err, "discard_settled", "SL_DEFAULT, SL_ON or SL_OFF");
	if ((unsigned)o.background > SL_OFF)
		return bad_field(err, "background", "SL_DEFAULT, SL_ON or SL_OFF");
	if (o.archive_on_complete == SL_DEFAULT)
		o.archive_on_complete = SL_ON;
	if (o.background == SL_DEFAULT)
		o.background = SL_ON;
	rc = sl_retry_resolve(&o.retry_backoff, SL_RETRY_WAL, &o.retry_backoff, err);
	if (rc != 0)
		return rc;
	o.wal_dir = in.wal_dir != NULL ? sl__strdup(env, in.wal_dir) : home_path(env, "wal");
	o.archive_dir = in.archive_dir != NULL ? sl__strdup(env, in.archive_dir) : home_path(env, "archive");
	o.key_file = in.key_file != NULL ? sl__strdup(env, in.key_file) : NULL;
	o.dead_letter_dir = in.dead_letter_dir != NULL ? sl__strdup(env, in.dead_letter_dir) : NULL;
	if (o.wal_dir == NULL || o.archive_dir == NULL || (in.key_file != NULL && o.key_file == NULL) ||
	    (in.dead_letter_dir != NULL && o.dead_letter_dir == NULL)) {
		sl__wal_opts_free(env, &o);
		return sl_err_set(err, SL_ENOMEM, "wal options: out of memory, or no home folder for the log");
	}
	*out = o;
	return 0;
}

int sl__wal_split_path(const struct sl_env *env, const char *path, char **dir, char **id, struct sl_err *err)
{
	const char *name = sl__basename(path);
	size_t id_len;
	uint64_t first;
	if (sl__wal_name(name, &id_len, &first) != WAL_NAME_ACTIVE)
		return sl_err_set(err, SL_EINVAL,
				  "%.150s: a log is named <id>.wal; its id has letters, digits, '-', '_' and '.'",
				  path);
	*dir = sl__dirname(env, path);
	*id = sl__asprintf(env, "%.*s", (int)id_len, name);
	if (*dir != NULL && *id != NULL)
		return 0;
	sl__free(env, *dir);
	sl__free(env, *id);
	return sl_err_set(err, SL_ENOMEM, "%.150s: out of memory", path);
}
