/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command writes to descriptor 3: JSON, one object per line.
 *
 *   {"output":…}             the job's output, should it complete: any JSON, kept byte for byte
 *   {"continue_with":{…}}    type (required), input, priority, delay_ms, at_ms, blockers (an array of chain ids)
 *   {"reschedule_in_ms":N}   run again later
 *   {"fail":"…"}             fail for good
 *   {"progress":…}           any JSON
 *
 * A line may have several members; of output, continue_with, reschedule_in_ms and fail the last one counts. Blank lines
 * are ignored. Everything else is a bad line: it is reported, changes nothing, and the first one is remembered.
 *
 * Thread safety: one thread at a time.
 */
#ifndef SL_JOBS_EXEC_PROTOCOL_H
#define SL_JOBS_EXEC_PROTOCOL_H

#include "base/buf.h"
#include <sluice/job.h>

#define SL__CONTROL_LINE_MAX ((size_t)64 << 20) /* a longer line is a bad one */
#define SL__PROGRESS_MAX ((size_t)1 << 20)      /* bytes of JSON */
#define SL__BLOCKERS_MAX 10000

enum sl__statement {
	SL__SAYS_NOTHING = 0,
	SL__SAYS_OUTPUT = 1,
	SL__SAYS_CONTINUE = 2,
	SL__SAYS_RESCHEDULE = 3,
	SL__SAYS_FAIL = 4
};

struct sl__protocol {
	const struct sl_env *env;
	enum sl__statement last;
	struct sl__buf text;     /* output, input of the next job, or why it failed */
	struct sl__buf type;     /* of the next job */
	struct sl__buf blockers; /* uint64_t each */
	struct sl_new_job next;  /* points into the three above; valid until the next line */
	int64_t reschedule_ms;
	bool bad;
	char why[200]; /* of the first bad line */
};

void sl__protocol_init(struct sl__protocol *p, const struct sl_env *env);
void sl__protocol_fini(struct sl__protocol *p);

/* What one line said that is worth an event. */
struct sl__said {
	const char *progress; /* the last one in the line, not NUL-terminated; NULL: none */
	size_t progress_len;
	char bad[200]; /* why the line is bad; empty: it is not */
};

/* line[len] is NUL; without its newline. SL_ENOMEM is the only failure. */
SL_MUST_CHECK int sl__protocol_line(struct sl__protocol *p, const char *line, size_t len, struct sl__said *said);
/* A line that was too long to be kept. */
void sl__protocol_overlong(struct sl__protocol *p, struct sl__said *said);

#endif
