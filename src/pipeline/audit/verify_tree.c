/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files below the dataset's folder: each is named by an event, or was left by a run that did not commit it, or does
 * not belong there. Folders of the dataset that begin with an underscore are not data: readers skip them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "pipeline/audit/verify.h"
#include "pipeline/partition.h"

#define DEPTH_MAX 8

struct names {
	struct sl__buf bytes;
	size_t n;
};

static int note_entry(const char *name, void *ctx)
{
	struct names *names = ctx;
	names->n++;
	return sl__buf_append(&names->bytes, name, strlen(name) + 1) == 0 ? 0 : -ENOMEM;
}

static bool is_named_by_event(const struct sl__verify *v, const char *path)
{
	size_t low = 0, high = v->n;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(v->entries[v->by_path[middle]].path, path);
		if (order == 0)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* Does an event hold one of these sequences? Only the last that begins at or before the end can: no two overlap. (Where
 * two do, that was reported.) */
static bool range_is_held(const struct sl__verify *v, uint64_t start, uint64_t end)
{
	size_t at = sl__verify_at(v, end);
	return at > 0 && v->entries[v->by_start[at - 1]].end >= start;
}

/* A file that was not renamed yet, or of a partition that is not committed: no event holds its sequences. */
static bool is_uncommitted(const struct sl__verify *v, const char *path)
{
	char again[SL__PARTITION_NAME_BYTES];
	uint64_t number, start, end;
	size_t n = v->n - v->n_late;
	const char *name = strrchr(path, '/') + 1, *inner = path + strlen(v->dataset) + 1;
	if (strncmp(name, ".part-", 6) == 0 && strstr(name, ".tmp-") != NULL)
		return true;
	if (sscanf(inner, "partition-%" SCNu64 "/part-%" SCNu64 "-%" SCNu64, &number, &start, &end) != 3 ||
	    v->partition_size == 0 || start > end)
		return false;

	/* Late rows, of which there are few, in a hole of a partition. */
	sl__partition_name(start, end, v->partition_size, true, again);
	if (strcmp(inner, again) == 0) {
		bool held = range_is_held(v, start, end);
		for (size_t i = n; i < v->n && held; i++) {
			const struct sl__verify_entry *e = &v->entries[v->by_start[i]];
			held = e->start > end || e->end < start;
		}
		return held;
	}
	sl__partition_name(start, end, v->partition_size, false, again);
	if (strcmp(inner, again) != 0)
		return false;
	/* The last partition, as a run closed it short without committing it: the run that commits it longer removes
	 * this file right after the commit, or the next run does. */
	const struct sl__verify_entry *last = n > 0 ? &v->entries[v->by_start[n - 1]] : NULL;
	bool short_last = last != NULL && start == last->start && end < last->end;
	return short_last || !range_is_held(v, start, end);
}

static int check_tree(struct sl__verify *v, const char *path, unsigned depth, struct sl_err *err)
{
	struct sl_io_stat st;
	char *full = sl__asprintf(&v->env, "%s/%s", v->dir, path);
	if (full == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a path");
	int rc = SL__IO(&v->env, stat, full, &st);
	if (rc == -ENOENT) {
		rc = 0; /* gone since it was listed */
	} else if (rc != 0) {
		rc = sl__verify_report(v, SL_AUDIT_UNREADABLE, 0, path, "%s", strerror(-rc));
	} else if (S_ISDIR(st.mode) && depth > DEPTH_MAX) {
		rc = sl__verify_report(v, SL_AUDIT_UNKNOWN, 0, path, "folders are nested too deeply");
	} else if (S_ISDIR(st.mode)) {
		struct names names = {.n = 0};
		sl__buf_init(&names.bytes, &v->env);
		rc = SL__IO(&v->env, list, full, note_entry, &names);
		if (rc == -ENOENT && depth > 0)
			rc = 0; /* gone since it was listed */
		else if (rc == -ENOMEM)
			rc = sl_err_set(err, SL_ENOMEM, "out of memory for the names in %.150s", path);
		else if (rc != 0)
			rc = sl__verify_report(v, SL_AUDIT_UNREADABLE, 0, path, "the folder cannot be read: %s",
					       strerror(-rc));
		const char *name = sl__buf_str(&names.bytes);
		for (size_t i = 0; i < names.n && rc == 0; i++, name += strlen(name) + 1) {
			if (depth == 0 && name[0] == '_')
				continue;
			char *inner = sl__asprintf(&v->env, "%s/%s", path, name);
			rc = inner != NULL ? check_tree(v, inner, depth + 1, err)
					   : sl_err_set(err, SL_ENOMEM, "out of memory for a path");
			sl__free(&v->env, inner);
		}
		sl__buf_fini(&names.bytes);
	} else if (is_named_by_event(v, path)) {
		rc = 0; /* what an event names and is not a file is reported with the file */
	} else if (S_ISREG(st.mode) && is_uncommitted(v, path)) {
		rc = sl__verify_report(
			v, SL_AUDIT_NOTE_UNCOMMITTED, 0, path,
			"not committed: an export is running or was interrupted; the next export replaces the file");
	} else {
		rc = sl__verify_report(v, SL_AUDIT_UNKNOWN, 0, path, "%s",
				       S_ISREG(st.mode) ? "no event names this file" : "neither a file nor a folder");
	}
	sl__free(&v->env, full);
	return rc;
}

int sl__verify_tree(struct sl__verify *v, struct sl_err *err)
{
	return v->has_folder ? check_tree(v, v->dataset, 0, err) : 0;
}
