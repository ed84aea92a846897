/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event files of a dataset: DIR/NAME/_audit/events-<number of the first event, 20 digits>.jsonl, one canonical
 * event a line. No link is followed, neither to the folder nor to a file in it.
 *
 * Thread safety: no state. Ownership: a list owns its names until fini.
 */
#ifndef SL_PIPELINE_AUDIT_EVENT_FILES_H
#define SL_PIPELINE_AUDIT_EVENT_FILES_H

#include "base/buf.h"
#include "pipeline/audit/event.h"

#define SL__EVENT_FILE_NAME_BYTES 40
#define SL__EVENT_FILE_MAX (64u << 20) /* no file of ours is longer */

struct sl__event_files {
	const struct sl_env *env;
	char *folder;    /* DIR/NAME/_audit */
	uint64_t *first; /* ascending */
	size_t n, cap;
	struct sl__buf strange; /* names of other things in the folder, each with its NUL */
	size_t n_strange;
};

void sl__event_file_name(uint64_t first, char out[SL__EVENT_FILE_NAME_BYTES]);
/* A folder that is not there has no files. SL_EACCES: it is a link. */
SL_MUST_CHECK int sl__event_files_list(struct sl__event_files *l, const struct sl_env *env, const char *dir,
				       const char *dataset, struct sl_err *err);
void sl__event_files_fini(struct sl__event_files *l);
/* The path of file i, in fresh memory. NULL: no memory. */
char *sl__event_files_path(const struct sl__event_files *l, size_t i);
/* The contents of file i at the end of b. SL_ETOOBIG; SL_ECORRUPT: not a regular file. */
SL_MUST_CHECK int sl__event_files_load(const struct sl__event_files *l, size_t i, struct sl__buf *b,
				       struct sl_err *err);

#endif
