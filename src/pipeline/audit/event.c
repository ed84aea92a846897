/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event on one line (docs/formats/audit.md). The members of every object are sorted, there are no blanks, integers
 * of 64 bits are strings of decimal digits, hashes are 64 lower-case hexadecimal digits:
 *
 *	{"chain":{"event_hash":H,"prev_event_hash":H},"dataset":S,"id":S,"number":N,
 *	 "partition":{"end":N,"sequence_column":S,"size":N,"start":N},"producer":{"name":S,"version":S},
 *	 "tables":[{"bad_rows":N,"bytes":N,"hole_ranges":S,"holes":N,"name":S,"path":S,"rows":N,"schema_sha256":H,"sha256":H}],
 *	 "type":"partition"|"backfill"|"late","version":1}
 *
 * event_hash is the SHA-256 of the same text without the member event_hash (and its comma).
 *
 *  1. One event has one text: what parses gives the same bytes when it is formatted again.
 *  2. Every byte of the text is covered by the hash, but for the hash itself, which is compared.
 *  3. What an event says is possible: the range lies in one partition, the rows add up, the path stays below the
 *     dataset.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/base64.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "format/json.h"
#include "format/row.h"
#include "pipeline/audit/event.h"
#include "pipeline/holes.h"
#include "pipeline/partition.h"

#define PRODUCER_MAX 100
#define COLUMN_MAX 255

static const char *const types[] = {
	[SL_AUDIT_PARTITION] = "partition", [SL_AUDIT_BACKFILL] = "backfill", [SL_AUDIT_LATE] = "late"};

const char *sl_audit_event_id(const struct sl_audit_event *event, char out[160])
{
	/* Late rows may fill the whole range of a partition that had none. */
	(void)snprintf(out, 160, "%.*s:%" PRIu64 "-%" PRIu64 "%s", SL_DATASET_NAME_MAX, event->dataset, event->start,
		       event->end, event->type == SL_AUDIT_LATE ? ":late" : "");
	return out;
}

/* ---- names and paths ---- */

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

int sl_dataset_check_name(const char *name, struct sl_err *err)
{
	size_t n = name != NULL ? strlen(name) : 0;
	if (n >= 1 && n <= SL_DATASET_NAME_MAX && strchr(LETTERS, name[0]) != NULL && strspn(name, LETTERS "._-") == n)
		return 0;
	return sl_err_set(
		err, SL_EINVAL,
		"dataset: a name begins with a letter or a digit, continues with letters, digits and . _ -, and "
		"has at most %d bytes",
		SL_DATASET_NAME_MAX);
}

bool sl__audit_path_ok(const char *dataset, const char *path)
{
	size_t n = strlen(dataset);
	if (strlen(path) > SL__AUDIT_PATH_MAX || strncmp(path, dataset, n) != 0 || path[n] != '/' ||
	    !sl__utf8_valid(path))
		return false;
	for (const char *p = path; *p != '\0'; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return false;

	/* Each part: not empty, and not hidden from readers (. and _), so neither "." nor "..". */
	const char *part = path + n + 1;
	for (;;) {
		size_t len = strcspn(part, "/");
		if (len == 0 || part[0] == '.' || part[0] == '_')
			return false;
		if (part[len] == '\0')
			return true;
		part += len + 1;
	}
}

/* ---- what can be ---- */

static bool text_ok(const char *s, size_t max)
{
	size_t n = s != NULL ? strlen(s) : 0;
	return n >= 1 && n <= max && sl__utf8_valid(s);
}

static const char *ranges_of(const struct sl_audit_event *e)
{
	return e->hole_ranges != NULL ? e->hole_ranges : "";
}

/* What of the event cannot be; NULL: it can. */
static const char *wrong_event_member(const struct sl_audit_event *e)
{
	static const uint8_t zeros[SL_AUDIT_HASH_BYTES];
	if ((unsigned)e->type >= SL_COUNT(types))
		return "type";
	if (sl_dataset_check_name(e->dataset, NULL) != 0)
		return "dataset";
	if (e->number < 1 || e->number > INT64_MAX)
		return "number";
	if ((e->number == 1) != (memcmp(e->prev_hash, zeros, sizeof(zeros)) == 0))
		return "chain.prev_event_hash";
	if (!text_ok(e->sequence_column, COLUMN_MAX))
		return "partition.sequence_column";
	if (!text_ok(e->producer, PRODUCER_MAX) || !text_ok(e->producer_version, PRODUCER_MAX))
		return "producer";
	if (e->path == NULL || !sl__audit_path_ok(e->dataset, e->path))
		return "tables: path";
	if (e->partition_size < 1 || e->partition_size > SL__SEQUENCE_MAX)
		return "partition.size";
	if (e->start > e->end || e->end > SL__SEQUENCE_MAX)
		return "partition: start and end";
	if (e->end > sl__partition_end(e->start, e->partition_size))
		return "partition: it crosses a boundary";
	uint64_t count = e->end - e->start + 1;
	if (e->rows > count || e->bad_rows > count - e->rows || e->holes != count - e->rows - e->bad_rows)
		return "tables: rows, bad_rows and holes do not add up";
	if (!sl__holes_hashed(ranges_of(e)) &&
	    (strlen(ranges_of(e)) > SL__HOLES_INLINE || !sl__holes_ok(ranges_of(e), e->start, e->end, e->holes)))
		return "tables: hole_ranges";
	if (e->type == SL_AUDIT_LATE && e->holes != 0)
		return "tables: holes among late rows";
	return e->bytes > INT64_MAX ? "tables: bytes" : NULL;
}

/* ---- the members, in the order of the text ---- */

/* An event, and what its text says besides: what is derived from it, and what a scan compares afterwards. */
struct event_text {
	struct sl_audit_event e;
	const char *id, *name, *type;
};

enum member_kind { MEMBER_HASH, MEMBER_TEXT, MEMBER_NUMBER };

/* What stands before the value, up to its colon; the last part of it is the name in messages. */
static const struct member {
	const char *before;
	enum member_kind kind;
	size_t at; /* of the value in struct event_text */
	const char *name;
} members[] = {
	{"{\"chain\":{\"event_hash\":", MEMBER_HASH, offsetof(struct event_text, e.hash), "event_hash"},
	{",\"prev_event_hash\":", MEMBER_HASH, offsetof(struct event_text, e.prev_hash), "prev_event_hash"},
	{"},\"dataset\":", MEMBER_TEXT, offsetof(struct event_text, e.dataset), "dataset"},
	{",\"id\":", MEMBER_TEXT, offsetof(struct event_text, id), "id"},
	{",\"number\":", MEMBER_NUMBER, offsetof(struct event_text, e.number), "number"},
	{",\"partition\":{\"end\":", MEMBER_NUMBER, offsetof(struct event_text, e.end), "end"},
	{",\"sequence_column\":", MEMBER_TEXT, offsetof(struct event_text, e.sequence_column), "sequence_column"},
	{",\"size\":", MEMBER_NUMBER, offsetof(struct event_text, e.partition_size), "size"},
	{",\"start\":", MEMBER_NUMBER, offsetof(struct event_text, e.start), "start"},
	{"},\"producer\":{\"name\":", MEMBER_TEXT, offsetof(struct event_text, e.producer), "producer: name"},
	{",\"version\":", MEMBER_TEXT, offsetof(struct event_text, e.producer_version), "producer: version"},
	{"},\"tables\":[{\"bad_rows\":", MEMBER_NUMBER, offsetof(struct event_text, e.bad_rows), "bad_rows"},
	{",\"bytes\":", MEMBER_NUMBER, offsetof(struct event_text, e.bytes), "bytes"},
	{",\"hole_ranges\":", MEMBER_TEXT, offsetof(struct event_text, e.hole_ranges), "hole_ranges"},
	{",\"holes\":", MEMBER_NUMBER, offsetof(struct event_text, e.holes), "holes"},
	{",\"name\":", MEMBER_TEXT, offsetof(struct event_text, name), "tables: name"},
	{",\"path\":", MEMBER_TEXT, offsetof(struct event_text, e.path), "tables: path"},
	{",\"rows\":", MEMBER_NUMBER, offsetof(struct event_text, e.rows), "rows"},
	{",\"schema_sha256\":", MEMBER_HASH, offsetof(struct event_text, e.schema_sha256), "schema_sha256"},
	{",\"sha256\":", MEMBER_HASH, offsetof(struct event_text, e.sha256), "sha256"},
	{"}],\"type\":", MEMBER_TEXT, offsetof(struct event_text, type), "type"},
};
#define EVENT_END ",\"version\":1}"

/* ---- writing ---- */

static void put_event_member(struct sl__buf *b, const char *before, enum member_kind kind, const void *value)
{
	char hex[SL__SHA256_HEX];
	const char *text;
	uint64_t number;
	(void)sl__buf_str_append(b, before);
	switch (kind) {
	case MEMBER_HASH:
		sl__sha256_hex(value, hex);
		(void)sl__buf_printf(b, "\"%s\"", hex);
		break;
	case MEMBER_TEXT:
		memcpy(&text, value, sizeof(text));
		sl__put_json_string(b, text, strlen(text));
		break;
	case MEMBER_NUMBER:
		memcpy(&number, value, sizeof(number));
		(void)sl__buf_printf(b, "\"%" PRIu64 "\"", number);
		break;
	}
}

static void put_event_text(struct sl__buf *b, const struct sl_audit_event *e, bool with_hash)
{
	char id[160];
	struct event_text t = {.e = *e, .id = sl_audit_event_id(e, id), .name = e->dataset, .type = types[e->type]};
	t.e.hole_ranges = ranges_of(e);
	if (with_hash)
		put_event_member(b, members[0].before, members[0].kind, t.e.hash);
	put_event_member(b, with_hash ? members[1].before : "{\"chain\":{\"prev_event_hash\":", members[1].kind,
			 t.e.prev_hash);
	for (size_t i = 2; i < SL_COUNT(members); i++)
		put_event_member(b, members[i].before, members[i].kind, (const char *)&t + members[i].at);
	(void)sl__buf_str_append(b, EVENT_END);
}

int sl_audit_event_format(struct sl_audit_event *event, char out[SL_AUDIT_EVENT_BYTES], size_t *len, struct sl_err *err)
{
	struct sl_env env;
	const char *wrong = wrong_event_member(event);
	if (wrong != NULL)
		return sl_err_set(err, SL_EINVAL, "audit event: %s", wrong);
	int rc = sl__env_init(&env, NULL, err);
	if (rc != 0)
		return rc;
	struct sl__buf b SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&b, &env);
	/* The hash of the text without it, then the whole text. */
	put_event_text(&b, event, false);
	rc = b.failed != 0 ? sl_err_set(err, SL_ENOMEM, "out of memory for an audit event")
			   : sl__sha256(b.data, b.len, event->hash, err);
	if (rc != 0)
		return rc;
	sl__buf_clear(&b);
	put_event_text(&b, event, true);
	if (b.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "out of memory for an audit event");
	assert(b.len < SL_AUDIT_EVENT_BYTES);
	memcpy(out, b.data, b.len + 1);
	*len = b.len;
	return 0;
}

/* ---- scanning ---- */

/*
 * Canonical text has one form, so it is not parsed but followed: literal, value, literal, … The scanned event is
 * formatted again and compared, so that what the scan accepts too much (an escape that is not needed, a zero before a
 * number) is found as well.
 */

static void scan_fail(struct sl__audit_scan *s, const char *why)
{
	if (s->why == NULL)
		s->why = why;
}

void sl__audit_scan_literal(struct sl__audit_scan *s, const char *literal)
{
	size_t n = strlen(literal);
	if (s->why != NULL)
		return;
	if ((size_t)(s->end - s->at) < n || memcmp(s->at, literal, n) != 0)
		scan_fail(s, literal);
	else
		s->at += n;
}

const char *sl__audit_scan_string(struct sl__audit_scan *s, const char *why)
{
	struct sl__json json = sl__json_of(s->at, (size_t)(s->end - s->at));
	struct sl__json_value v;
	bool has_nul = false;
	if (s->why != NULL)
		return "";
	if (!sl__json_string(&json, &v) || v.len >= (size_t)(s->storage_end - s->storage)) {
		scan_fail(s, why);
		return "";
	}
	char *text = s->storage;
	size_t n = sl__json_unescape(text, v.text, v.len, &has_nul);
	if (has_nul)
		scan_fail(s, why);
	text[n] = '\0';
	s->storage += n + 1;
	s->at = json.at;
	return text;
}

uint64_t sl__audit_scan_u64(struct sl__audit_scan *s, const char *why)
{
	uint64_t v = 0;
	sl__audit_scan_literal(s, "\"");
	const char *from = s->at;
	for (; s->why == NULL && s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s->at - '0'), &v))
			scan_fail(s, why);
	if (s->at == from)
		scan_fail(s, why);
	sl__audit_scan_literal(s, "\"");
	return v;
}

void sl__audit_scan_hex(struct sl__audit_scan *s, uint8_t *out, size_t n, const char *why)
{
	sl__audit_scan_literal(s, "\"");
	if (s->why != NULL)
		return;
	if ((size_t)(s->end - s->at) < 2 * n || !sl__unhex(s->at, 2 * n, out, n))
		scan_fail(s, why);
	else
		s->at += 2 * n;
	sl__audit_scan_literal(s, "\"");
}

/* ---- reading ---- */

static int damaged_event(struct sl_err *err, const char *why)
{
	return sl_err_set(err, SL_ECORRUPT, "audit event: %s", why);
}

int sl_audit_event_parse(const void *text, size_t len, struct sl_audit_event *out, char storage[SL_AUDIT_EVENT_BYTES],
			 struct sl_err *err)
{
	const char *from = text;
	char again[SL_AUDIT_EVENT_BYTES];
	size_t n = 0;
	if (len >= SL_AUDIT_EVENT_BYTES)
		return damaged_event(err, "too long");
	struct sl__audit_scan s = {
		.at = from, .end = from + len, .storage = storage, .storage_end = storage + SL_AUDIT_EVENT_BYTES};
	/* id and name are compared when the text is put together again */
	struct event_text t = {.e.struct_size = sizeof(t.e)};
	for (size_t i = 0; i < SL_COUNT(members); i++) {
		const struct member *m = &members[i];
		void *value = (char *)&t + m->at;
		sl__audit_scan_literal(&s, m->before);
		if (m->kind == MEMBER_HASH) {
			sl__audit_scan_hex(&s, value, SL_AUDIT_HASH_BYTES, m->name);
		} else if (m->kind == MEMBER_TEXT) {
			const char *member = sl__audit_scan_string(&s, m->name);
			memcpy(value, &member, sizeof(member));
		} else {
			uint64_t number = sl__audit_scan_u64(&s, m->name);
			memcpy(value, &number, sizeof(number));
		}
	}
	struct sl_audit_event e = t.e;
	size_t i = 0;
	while (i < SL_COUNT(types) && strcmp(t.type, types[i]) != 0)
		i++;
	if (i < SL_COUNT(types))
		e.type = (enum sl_audit_type)i;
	else
		scan_fail(&s, "type: partition, backfill or late");
	sl__audit_scan_literal(&s, EVENT_END);
	if (s.at != s.end)
		scan_fail(&s, "nothing after the end of the event");
	if (s.why != NULL)
		return sl_err_set(err, SL_ECORRUPT, "audit event: byte %zu: expected %s", (size_t)(s.at - from), s.why);
	const char *wrong = wrong_event_member(&e);
	if (wrong != NULL)
		return sl_err_set(err, SL_ECORRUPT, "audit event: invalid: %s", wrong);
	struct sl_audit_event computed = e;
	int rc = sl_audit_event_format(&computed, again, &n, err);
	if (rc != 0)
		return rc;
	if (memcmp(computed.hash, e.hash, sizeof(e.hash)) != 0)
		return damaged_event(err, "its contents do not match its event_hash");
	if (n != len || memcmp(again, from, n) != 0)
		return damaged_event(err, "not in canonical form");
	*out = e;
	return 0;
}

/* ---- the chain ---- */

int sl__audit_chain_add(struct sl__audit_chain *chain, const struct sl_audit_event *event, struct sl_err *err)
{
	if (event->number != chain->events + 1)
		return sl_err_set(err, SL_ECORRUPT, "event %" PRIu64 " instead of event %" PRIu64, event->number,
				  chain->events + 1);
	if (memcmp(event->prev_hash, chain->head, sizeof(chain->head)) != 0)
		return sl_err_set(err, SL_ECORRUPT, "event %" PRIu64 " does not have the hash of the one before it",
				  event->number);
	chain->events = event->number;
	memcpy(chain->head, event->hash, sizeof(chain->head));
	return 0;
}
