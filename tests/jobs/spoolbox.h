/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log and a spool of it on a filesystem in memory, left as a worker that died at any moment would have left them. The
 * spool is written by hand, so that a test says what is in it.
 */
#ifndef TESTS_JOBS_SPOOLBOX_H
#define TESTS_JOBS_SPOOLBOX_H

#include "execbox.h"

#include "support/crashfs.h"
#include "support/vclock.h"

#define DIR "/w"
#define SPOOL_DIR "/w/w.spool"
#define SPOOL "/w/w.spool/0123456789abcdef.spool"
#define JOB 7
#define TS 1700000000000

struct rig {
	struct crashfs *fs;
	struct vclock clock;
	struct sl_env env;
	struct execbox box; /* only its log, for listings */
};

void rig_init(struct rig *r);
/* On a filesystem that is there already, which the rig owns from now on. */
void rig_init_on(struct rig *r, struct crashfs *fs);
void rig_fini(struct rig *r);
int rig_open(struct rig *r);
void rig_close(struct rig *r);

struct spool {
	uint8_t bytes[4096];
	size_t len;
	size_t frames;
	struct sl__spool_header header;
};

void spool_init(struct spool *s);
void frame(struct spool *s, enum sl__frame_kind kind, const char *text, size_t n);
#define FRAME(s, kind, text) frame(s, kind, text, sizeof(text) - 1)
/* Everything that can meet: lines over several frames of two streams, cut ones, descriptor 3, a last one that is open.
 */
void spool_fill(struct spool *s);
/* What spool_fill gives, as execbox_events shows it. */
#define N_EVENTS 14
extern const char *const all_events[N_EVENTS];

/* What the first n frames give (SIZE_MAX: all, and the end). The caller finishes it. */
void capture(const struct rig *r, const struct spool *s, size_t n, struct sl__capture *c);
/* Into the rig's log, which is open; its sequence. */
uint64_t append_event(struct rig *r, const struct sl_event *event);
/*
 * A worker has died. It had noted the first `noted` frames in the header, and the log has the first `logged` events,
 * which are at least those of these frames; between them lies something of another job. Without `note_log` the header
 * says nothing of the log. false: that cannot be.
 */
bool lay_out(struct rig *r, struct spool *s, size_t noted, size_t logged, bool note_log);

#endif
