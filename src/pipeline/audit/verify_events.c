/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event files: every line an event, in canonical form with the right hash; numbers from 1 without a gap; each with
 * the hash of the one before. After a line that is wrong the chain is taken up again at the next one that can be read,
 * so that one changed byte is one finding.
 */
#include <inttypes.h>
#include <stdio.h>

#include "pipeline/audit/event_files.h"
#include "pipeline/audit/verify.h"

struct line {
	char path[SL_DATASET_NAME_MAX + 64]; /* relative to dir */
	uint64_t number;                     /* of the line in its file */
	bool lost;                           /* the line before could not be read: what follows has nothing to fit to */
};

static int check_line(struct sl__verify *v, struct line *at, const char *text, size_t len, struct sl_err *err)
{
	struct sl_audit_event e;
	struct sl_err why = SL_ERR_INIT;
	char storage[SL_AUDIT_EVENT_BYTES];
	at->number++;
	v->file_events++;
	int rc = sl_audit_event_parse(text, len, &e, storage, &why);
	if (rc == SL_ECORRUPT) {
		at->lost = true;
		return sl__verify_report(v, SL_AUDIT_EVENT, 0, at->path, "line %" PRIu64 ": %s", at->number, why.msg);
	}
	if (rc != 0) {
		if (err != NULL)
			*err = why;
		return rc;
	}

	/* The chain: after one event that was damaged in place, the next has the number that is due then. */
	bool lost = at->lost;
	at->lost = false;
	if (sl__audit_chain_add(&v->chain, &e, &why) != 0) {
		bool fits = lost && e.number == v->chain.events + 2;
		v->chain = (struct sl__audit_chain){.events = e.number};
		memcpy(v->chain.head, e.hash, sizeof(v->chain.head));
		if (!fits)
			rc = sl__verify_report(v, SL_AUDIT_LINK, e.number, at->path, "line %" PRIu64 ": %s", at->number,
					       why.msg);
	}
	if (rc == 0)
		rc = sl__verify_common(v, &e, at->path);
	if (rc != 0)
		return rc;
	return sl__verify_add(v, &e, true, err);
}

/* File i of the list, whose contents are read into data. */
static int check_event_file(struct sl__verify *v, const struct sl__event_files *files, size_t i, struct line *at,
			    struct sl_err *err)
{
	char name[SL__EVENT_FILE_NAME_BYTES];
	struct sl_err why = SL_ERR_INIT;
	struct sl__buf data SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&data, &v->env);
	sl__event_file_name(files->first[i], name);
	(void)snprintf(at->path, sizeof(at->path), "%s/" SL__AUDIT_FOLDER "/%s", v->dataset, name);
	at->number = 0;
	int rc = sl__event_files_load(files, i, &data, &why);
	if (rc == SL_ENOMEM)
		return sl_err_set(err, rc, "%s", why.msg);
	if (rc != 0)
		return sl__verify_report(v, SL_AUDIT_UNREADABLE, 0, at->path, "%s", why.msg);
	/* An empty file is one that was just begun. */
	if (data.len > 0 && !at->lost && files->first[i] != v->chain.events + 1)
		rc = sl__verify_report(v, SL_AUDIT_LINK, files->first[i], at->path,
				       "it begins with event %" PRIu64 ", but %" PRIu64 " is expected", files->first[i],
				       v->chain.events + 1);
	const char *line = sl__buf_str(&data), *end = line + data.len;
	while (rc == 0 && line < end) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		if (stop == NULL && i + 1 < files->n)
			return sl__verify_report(v, SL_AUDIT_EVENT, 0, at->path, "the last line has no line feed");
		if (stop == NULL) {
			v->torn = true;
			(void)snprintf(v->torn_file, sizeof(v->torn_file), "%s", name);
			return 0;
		}
		rc = check_line(v, at, line, (size_t)(stop - line), err);
		line = stop + 1;
	}
	return rc;
}

int sl__verify_events(struct sl__verify *v, struct sl_err *err)
{
	char path[SL_DATASET_NAME_MAX + 300];
	struct sl__event_files files;
	struct line at = {.number = 0};
	struct sl_err why = SL_ERR_INIT;
	int rc = v->has_folder ? sl__event_files_list(&files, &v->env, v->dir, v->dataset, &why) : SL_ENOENT;
	if (rc == SL_EACCES)
		return sl__verify_report(v, SL_AUDIT_UNREADABLE, 0, v->dataset, "%s", why.msg);
	if (rc == SL_ENOENT)
		return 0; /* the catalog may know more */
	if (rc != 0)
		return sl_err_set(err, rc, "%s", why.msg);
	for (size_t i = 0; i < files.n && rc == 0; i++)
		rc = check_event_file(v, &files, i, &at, err);
	const char *name = sl__buf_str(&files.strange);
	for (size_t i = 0; i < files.n_strange && rc == 0; i++, name += strlen(name) + 1) {
		(void)snprintf(path, sizeof(path), "%s/" SL__AUDIT_FOLDER "/%s", v->dataset, name);
		rc = sl__verify_report(v, SL_AUDIT_UNKNOWN, 0, path, "not an event file");
	}
	sl__event_files_fini(&files);
	return rc;
}
