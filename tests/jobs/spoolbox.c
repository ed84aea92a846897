/* SPDX-License-Identifier: Apache-2.0 */
#include "spoolbox.h"

void rig_init_on(struct rig *r, struct crashfs *fs)
{
	*r = (struct rig){.fs = fs};
	vclock_init(&r->clock);
	r->clock.auto_advance = 1;
	struct sl_env e = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = r->fs, .clock = &vclock_table,
			   .clock_ctx = &r->clock};
	assert_int_equal(sl__env_init(&r->env, &e, NULL), 0);
}

void rig_init(struct rig *r)
{
	rig_init_on(r, crashfs_new());
	crashfs_mkdir(r->fs, DIR);
	crashfs_mkdir(r->fs, SPOOL_DIR);
}

void rig_fini(struct rig *r)
{
	assert_int_equal(crashfs_open_files(r->fs), 0);
	crashfs_free(r->fs);
	vclock_fini(&r->clock);
}

int rig_open(struct rig *r)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT,
				   .env = &r->env,
				   .wal_dir = DIR,
				   .archive_dir = DIR,
				   .archive_on_complete = SL_OFF,
				   .background = SL_OFF,
				   .prepare_max_bytes = SL_NONE};
	return sl_wal_open(&r->box.log, "w", &opts, &r->box.err);
}

void rig_close(struct rig *r)
{
	(void)sl_wal_close(r->box.log, NULL);
	r->box.log = NULL;
}

/* ---- a spool, written by hand ---- */

void spool_init(struct spool *s)
{
	memset(s, 0, sizeof(*s));
	s->len = SL__SPOOL_START;
	s->header = (struct sl__spool_header){
		.salt = 99, .job_id = JOB, .attempt = 2, .max_line_bytes = 6, .resume.offset = SL__SPOOL_START};
	sl__put64(s->header.claim.bytes, JOB * 77);
	s->header.claim.bytes[15] = 0xC1;
}

void frame(struct spool *s, enum sl__frame_kind kind, const char *text, size_t n)
{
	assert_true(s->len + SL__SPOOL_FRAME + n <= sizeof(s->bytes));
	sl__spool_put_frame(s->bytes + s->len, s->header.salt,
			    &(struct sl__frame){.kind = kind, .ts_ms = TS, .data = (const uint8_t *)text, .len = n});
	memcpy(s->bytes + s->len + SL__SPOOL_FRAME, text, n);
	s->len += SL__SPOOL_FRAME + n;
	s->frames++;
}
void spool_fill(struct spool *s)
{
	spool_init(s);
	FRAME(s, SL__FRAME_STARTED, "\x05\0\0\0");
	FRAME(s, SL__FRAME_STDOUT, "one\ntw");
	FRAME(s, SL__FRAME_STDERR, "E1\nE");
	FRAME(s, SL__FRAME_CONTROL, "{\"progress\":1}\n{\"prog");
	FRAME(s, SL__FRAME_STDOUT, "o\nlonger than six");
	FRAME(s, SL__FRAME_STDERR, "2\n");
	FRAME(s, SL__FRAME_CONTROL, "ress\":2}\n{}\n");
	FRAME(s, SL__FRAME_STDOUT, "\nlast");
	FRAME(s, SL__FRAME_EXITED, "\1\0\0\0\x09\0\0\0");
}

const char *const all_events[N_EVENTS] = {
	"started\n",
	"out 0 one\n",
	"err 0 E1\n",
	"progress 0 1\n",
	"out 4 two\n",
	"out 8+ longer\n",
	"out 14+  than \n",
	"err 3 E2\n",
	"progress 15 2\n",
	"error 30 descriptor 3: an empty object\n",
	"out 20 six\n",
	"out 24+ last\n",
	"error 33 the worker died; the command was killed\n",
	"exited {\"signal\":9}\n",
};

void capture(const struct rig *r, const struct spool *s, size_t n, struct sl__capture *c)
{
	size_t at = SL__SPOOL_START;
	sl__capture_init(c, &r->env, &s->header);
	for (size_t i = 0; i < SL_MIN(n, s->frames); i++) {
		struct sl__frame f = {.kind = (enum sl__frame_kind)s->bytes[at + 4],
				      .offset = at,
				      .ts_ms = TS,
				      .data = s->bytes + at + SL__SPOOL_FRAME,
				      .len = sl__get32(s->bytes + at + 8)};
		assert_int_equal(sl__capture_frame(c, &f, NULL), 0);
		at += SL__SPOOL_FRAME + f.len;
	}
	if (n == SIZE_MAX)
		assert_int_equal(sl__capture_end(c, "the worker died; the command was killed", NULL), 0);
}

uint64_t append_event(struct rig *r, const struct sl_event *event)
{
	void *bytes = NULL;
	size_t len = 0;
	uint64_t sequence = 0;
	assert_int_equal(sl_event_encode(event, NULL, &bytes, &len, NULL), 0);
	assert_int_equal(sl_wal_append(r->box.log, bytes, len, &sequence, NULL), 0);
	sl_event_free(NULL, bytes);
	return sequence;
}

bool lay_out(struct rig *r, struct spool *s, size_t noted, size_t logged, bool note_log)
{
	struct sl__capture c, whole;
	struct sl_event e = {.type = SL_EVENT_LOG, .job_id = JOB + 1, .attempt = 2, .ts_ms = TS};
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	capture(r, s, noted, &c);
	capture(r, s, SIZE_MAX, &whole);
	bool possible = logged >= c.batch.n;
	sl__put64(e.claim.bytes, (JOB + 1) * 77);
	e.claim.bytes[15] = 0xC1;
	if (possible) {
		assert_int_equal(rig_open(r), 0);
		assert_int_equal(sl_wal_get_stats(r->box.log, &st, NULL), 0);
		sl__capture_note(&c, &s->header);
		s->header.incarnation = note_log ? st.incarnation : 0;
		s->header.sequence = append_event(r, &e);
		for (size_t i = 0; i < logged; i++) {
			sl__event_batch_get(&whole.batch, i, &e);
			uint64_t sequence = append_event(r, &e);
			if (i + 1 == c.batch.n)
				s->header.sequence = sequence;
		}
		rig_close(r);
		sl__spool_put_header(s->bytes, &s->header);
		crashfs_put(r->fs, SPOOL, s->bytes, s->len);
	}
	sl__capture_fini(&c);
	sl__capture_fini(&whole);
	return possible;
}
