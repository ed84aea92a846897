/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a spool, recovered: no crash, the file is gone or quarantined afterwards, the log's events are in order,
 * and recovering the same file into the same log again adds nothing.
 *
 * The first byte says how the rest becomes a file: bit 0 lays a right header over it, bit 1 makes checks right wherever
 * the lengths lead, bit 2 takes the header's places from the input (else reading begins with the first frame).
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/exec/spool.h"
#include "must.h"
#include "support/crashfs.h"
#include "support/vclock.h"
#include <sluice/exec.h>

#define SPOOL_DIR "/w/w.spool"
#define SPOOL "/w/w.spool/a.spool"
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fix_header(uint8_t *p, int flags)
{
	struct sl__spool_header h = {.salt = 5,
				     .job_id = 7,
				     .attempt = 1,
				     .max_line_bytes = 1 + p[64] % 64,
				     .resume.offset = SL__SPOOL_START,
				     .flags = p[28] & (flags & 4 ? 15 : 3)};
	h.claim.bytes[3] = 1;
	if (flags & 4) {
		h.resume.offset += sl__get32(p + 72) % 1024;
		for (size_t i = 0; i < SL__STREAMS; i++) {
			h.resume.position[i] = p[80 + 8 * i];
			h.consumed[i] = p[104 + 8 * i];
		}
	}
	sl__spool_put_header(p, &h);
}

static void fix_frames(uint8_t *p, size_t n)
{
	for (size_t at = SL__SPOOL_START; n - at > SL__SPOOL_FRAME;) {
		size_t room = n - at - SL__SPOOL_FRAME;
		enum sl__frame_kind kind = (enum sl__frame_kind)(1 + p[at + 4] % 6);
		size_t len = kind == SL__FRAME_STARTED ? 4 : kind >= SL__FRAME_EXITED ? 8 : 1 + p[at + 8] % 64;
		if (len > room)
			return;
		const struct sl__frame frame = {
			.kind = kind, .ts_ms = 1000, .data = p + at + SL__SPOOL_FRAME, .len = len};
		sl__spool_put_frame(p + at, 5, &frame);
		at += SL__SPOOL_FRAME + len;
	}
}

struct look {
	uint64_t n, next[8];
};

static int on_record(const struct sl_wal_record *record, void *ctx)
{
	struct look *l = ctx;
	struct sl_event e;
	MUST(sl_event_decode(record->payload, record->payload_len, &e, NULL) == 0);
	MUST(e.type >= SL_EVENT_STARTED && e.type <= SL_EVENT_ERROR);
	MUST(e.position >= l->next[e.type]);
	l->next[e.type] = e.position + 1;
	l->n++;
	return 0;
}

static uint64_t recover(sl_wal *log, const struct sl_env *env, struct crashfs *fs, const uint8_t *file, size_t n,
			bool *aside)
{
	uint64_t appended = 0;
	size_t left;
	crashfs_put(fs, SPOOL, file, n);
	MUST(sl_exec_recover(log, SPOOL_DIR, env, &appended, NULL) == 0);
	MUST(crashfs_get(fs, SPOOL, &left) == NULL);
	*aside = crashfs_get(fs, SPOOL ".damaged", &left) != NULL;
	return appended;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vclock clock;
	struct look look = {0};
	bool aside = false;
	if (size < 1)
		return 0;
	size_t n = size - 1 > SL__SPOOL_START ? size - 1 : SL__SPOOL_START;
	uint8_t *file = calloc(1, n);
	MUST(file != NULL);
	memcpy(file, data + 1, size - 1);
	if (data[0] & 1)
		fix_header(file, data[0]);
	if (data[0] & 2)
		fix_frames(file, n);
	struct crashfs *fs = crashfs_new();
	vclock_init(&clock);
	clock.auto_advance = 1;
	crashfs_record(fs, false);
	crashfs_mkdir(fs, "/w");
	crashfs_mkdir(fs, SPOOL_DIR);
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs, .clock = &vclock_table, .clock_ctx = &clock};
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT,    .env = &env,          .wal_dir = "/w",
				   .archive_dir = "/a", .background = SL_OFF, .prepare_max_bytes = SL_NONE};
	sl_wal *log = NULL;
	MUST(sl_wal_open(&log, "w", &opts, NULL) == 0);
	/* A header of a later version is left alone: such a file is not tried. */
	struct sl__spool_header h;
	if (sl__spool_get_header(file, &h) != SL_EUNSUPPORTED) {
		uint64_t first = recover(log, &env, fs, file, size - 1 > 0 || (data[0] & 3) ? n : 0, &aside);
		MUST(sl_wal_iterate(log, 0, on_record, &look, NULL) == 0);
		MUST(look.n == first && (!aside || first == 0));
		if (!aside)
			MUST(recover(log, &env, fs, file, n, &aside) == 0);
	}
	MUST(sl_wal_close(log, NULL) == 0);
	MUST(crashfs_open_files(fs) == 0);
	crashfs_free(fs);
	vclock_fini(&clock);
	free(file);
	return 0;
}
