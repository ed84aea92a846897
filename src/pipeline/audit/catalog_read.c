/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: a page of rows is copied out of the database, then the caller sees them, so that no lock or transaction is
 * held while its callback runs. A page is a buffer of packed rows: a struct, then its strings, each with its NUL.
 */
#include "pipeline/audit/catalog.h"

#define PAGE_ROWS 500

struct page {
	struct sl__buf bytes;
	uint64_t rows;
	bool lenient; /* verification names what is damaged; no other caller gets it */
};

static void page_init(struct page *p, const struct sl_catalog *c)
{
	sl__buf_init(&p->bytes, &c->env);
	p->rows = 0;
	p->lenient = c->frozen;
}

static int damaged(const char *what, const char *name, struct sl_err *err)
{
	return sl_err_set(err, SL_ECORRUPT,
			  "the catalog's row of %s %.100s is damaged; 'sluice audit verify --all' says more", what,
			  name);
}

static void page_fini(struct page *p)
{
	sl__buf_fini(&p->bytes);
}

static void page_clear(struct page *p)
{
	sl__buf_clear(&p->bytes);
	p->rows = 0;
}

static void put_text(struct page *p, const char *text)
{
	(void)sl__buf_append(&p->bytes, text, strlen(text) + 1);
}

static int put_end(struct page *p, struct sl_err *err)
{
	p->rows++;
	return p->bytes.failed == 0 ? 0 : sl_err_set(err, SL_ENOMEM, "no memory for rows of the catalog");
}

static const char *take_text(const char **at)
{
	const char *text = *at;
	*at += strlen(text) + 1;
	return text;
}

/* ---- datasets ---- */

static int put_dataset(const struct sl__cat_row *row, void *ctx, struct sl_err *err)
{
	struct page *p = ctx;
	struct sl__cat_dataset d;
	sl__cat_read_dataset(row, &d);
	if (d.damaged && !p->lenient)
		return damaged("dataset", d.d.name, err);
	char has_holder = d.d.holder != NULL;
	(void)sl__buf_append(&p->bytes, &d.d, sizeof(d.d));
	(void)sl__buf_append(&p->bytes, &has_holder, 1);
	put_text(p, d.d.name);
	put_text(p, d.d.sequence_column);
	put_text(p, d.d.schema);
	put_text(p, has_holder ? d.d.holder : "");
	return put_end(p, err);
}

static void take_dataset(const char **at, struct sl_dataset *out)
{
	memcpy(out, *at, sizeof(*out));
	*at += sizeof(*out);
	bool has_holder = *(*at)++ != 0;
	out->name = take_text(at);
	out->sequence_column = take_text(at);
	out->schema = take_text(at);
	const char *holder = take_text(at);
	out->holder = has_holder ? holder : NULL;
}

/* Returns the callback's result; last is the name of the last one. */
static int tell_datasets(const struct page *p, sl_dataset_fn *fn, void *ctx, char last[SL_DATASET_NAME_MAX + 1])
{
	const char *at = p->bytes.data;
	int rc = 0;
	for (uint64_t i = 0; i < p->rows && rc == 0; i++) {
		struct sl_dataset d;
		take_dataset(&at, &d);
		size_t n = SL_MIN(strlen(d.name), (size_t)SL_DATASET_NAME_MAX);
		memcpy(last, d.name, n);
		last[n] = '\0';
		rc = fn(&d, ctx);
	}
	return rc;
}

static int one_dataset(sl_catalog *c, const char *name, sl_dataset_fn *fn, void *ctx, struct sl_err *err)
{
	char last[SL_DATASET_NAME_MAX + 1];
	struct page p SL_CLEANUP(page_fini);
	page_init(&p, c);
	struct sl__cat_call get = {
		.stmt = CAT_DATASET_GET, .values = {CAT_TEXT(name)}, .n = 1, .fn = put_dataset, .ctx = &p};
	int rc = sl__catalog_once(c, CAT_READ, &get, err);
	if (rc != 0)
		return rc;
	if (p.rows == 0 || ((const struct sl_dataset *)(const void *)p.bytes.data)->partition_size == 0)
		return sl_err_set(err, SL_ENOENT, "there is no dataset %.100s in the catalog", name);
	return tell_datasets(&p, fn, ctx, last);
}

int sl_catalog_datasets(sl_catalog *c, const char *name, sl_dataset_fn *fn, void *ctx, struct sl_err *err)
{
	char last[SL_DATASET_NAME_MAX + 1] = "";
	if (name != NULL)
		return one_dataset(c, name, fn, ctx, err);
	struct page p SL_CLEANUP(page_fini);
	page_init(&p, c);
	int rc;
	do {
		struct sl__cat_call list = {.stmt = CAT_DATASET_LIST,
					    .values = {CAT_TEXT(last), CAT_INT(PAGE_ROWS)},
					    .n = 2,
					    .fn = put_dataset,
					    .ctx = &p};
		page_clear(&p);
		rc = sl__catalog_once(c, CAT_READ, &list, err);
		rc = rc != 0 ? rc : tell_datasets(&p, fn, ctx, last);
	} while (rc == 0 && p.rows == PAGE_ROWS);
	return rc;
}

/* ---- partitions ---- */

static int put_partition(const struct sl__cat_row *row, void *ctx, struct sl_err *err)
{
	struct page *p = ctx;
	struct sl_catalog_partition part;
	bool readable = sl__cat_read_partition(row, &part);
	if (!readable && !p->lenient)
		return damaged("partition", part.path, err);
	/* What is not readable comes out as zeros: it is not what the event says, and that is how it is found. */
	if (!readable)
		memset(part.sha256, 0, sizeof(part.sha256));
	(void)sl__buf_append(&p->bytes, &part, sizeof(part));
	put_text(p, part.path);
	put_text(p, part.hole_ranges);
	return put_end(p, err);
}

/* Where the next page of partitions begins: at this start, after this event. */
struct place {
	uint64_t start, event;
};

static int tell_partitions(const struct page *p, sl_catalog_partition_fn *fn, void *ctx, struct place *next)
{
	const char *at = p->bytes.data;
	int rc = 0;
	for (uint64_t i = 0; i < p->rows && rc == 0; i++) {
		struct sl_catalog_partition part;
		memcpy(&part, at, sizeof(part));
		at += sizeof(part);
		part.path = take_text(&at);
		part.hole_ranges = take_text(&at);
		*next = (struct place){.start = part.start, .event = part.event};
		if (part.event > INT64_MAX && part.start < INT64_MAX) /* damaged: continue after it */
			*next = (struct place){.start = part.start + 1};
		rc = fn(&part, ctx);
	}
	return rc;
}

int sl__catalog_holes(sl_catalog *c, const char *dataset, int64_t since_ms, sl_catalog_partition_fn *fn, void *ctx,
		      struct sl_err *err)
{
	struct page p SL_CLEANUP(page_fini);
	page_init(&p, c);
	struct place next = {.start = 0};
	uint64_t from = 0;
	int rc;
	do {
		struct sl__cat_call list = {
			.stmt = CAT_HOLE_LIST,
			.values = {CAT_TEXT(dataset), CAT_INT(from), CAT_INT(since_ms), CAT_INT(PAGE_ROWS)},
			.n = 4,
			.fn = put_partition,
			.ctx = &p};
		page_clear(&p);
		rc = sl__catalog_once(c, CAT_READ, &list, err);
		rc = rc != 0 ? rc : tell_partitions(&p, fn, ctx, &next);
		from = next.start + 1; /* late rows have no holes, so no two have one start */
	} while (rc == 0 && p.rows == PAGE_ROWS);
	return rc;
}

int sl_catalog_partitions(sl_catalog *c, const char *dataset, uint64_t from, uint64_t limit,
			  sl_catalog_partition_fn *fn, void *ctx, struct sl_err *err)
{
	struct page p SL_CLEANUP(page_fini);
	page_init(&p, c);
	uint64_t left = limit == 0 ? UINT64_MAX : limit, want;
	struct place next = {.start = SL_MIN(from, (uint64_t)INT64_MAX)};
	int rc = 0;
	do {
		want = SL_MIN(left, PAGE_ROWS);
		struct sl__cat_call list = {
			.stmt = CAT_PARTITION_LIST,
			.values = {CAT_TEXT(dataset), CAT_INT(next.start), CAT_INT(next.event), CAT_INT(want)},
			.n = 4,
			.fn = put_partition,
			.ctx = &p};
		page_clear(&p);
		rc = sl__catalog_once(c, CAT_READ, &list, err);
		rc = rc != 0 ? rc : tell_partitions(&p, fn, ctx, &next);
		left -= p.rows;
		/* A value that is not a number comes last, and nothing after it. */
	} while (rc == 0 && p.rows == want && left > 0 && next.start <= INT64_MAX && next.event <= INT64_MAX);
	return rc;
}

/* ---- events ---- */

static int put_event(const struct sl__cat_row *row, void *ctx, struct sl_err *err)
{
	struct page *p = ctx;
	uint64_t number = (uint64_t)sl__cat_number(row, 0);
	const char *text = sl__cat_text(row, 1), *id = sl__cat_text(row, 2);
	if ((number > INT64_MAX || text == NULL) && !p->lenient)
		return damaged("event", id != NULL ? id : "without an id", err);
	(void)sl__buf_append(&p->bytes, &number, sizeof(number));
	put_text(p, text != NULL ? text : "");
	put_text(p, id != NULL ? id : "");
	return put_end(p, err);
}

static int tell_events(const struct page *p, sl__cat_event_fn *fn, void *ctx, uint64_t *after)
{
	const char *at = p->bytes.data;
	int rc = 0;
	for (uint64_t i = 0; i < p->rows && rc == 0; i++) {
		memcpy(after, at, sizeof(*after));
		at += sizeof(*after);
		const char *text = take_text(&at);
		rc = fn(*after, text, take_text(&at), ctx);
	}
	return rc;
}

int sl__catalog_events(sl_catalog *c, const char *dataset, uint64_t after, uint64_t limit, sl__cat_event_fn *fn,
		       void *ctx, struct sl_err *err)
{
	struct page p SL_CLEANUP(page_fini);
	page_init(&p, c);
	uint64_t left = limit == 0 ? UINT64_MAX : limit, want;
	int rc = 0;
	do {
		want = SL_MIN(left, PAGE_ROWS);
		struct sl__cat_call list = {
			.stmt = CAT_EVENT_LIST,
			.values = {CAT_TEXT(dataset), CAT_INT(SL_MIN(after, (uint64_t)INT64_MAX)), CAT_INT(want)},
			.n = 3,
			.fn = put_event,
			.ctx = &p};
		page_clear(&p);
		rc = sl__catalog_once(c, CAT_READ, &list, err);
		rc = rc != 0 ? rc : tell_events(&p, fn, ctx, &after);
		left -= p.rows;
	} while (rc == 0 && p.rows == want && left > 0 && after <= INT64_MAX);
	return rc;
}

struct plain_event {
	sl_catalog_event_fn *fn;
	void *ctx;
};

static int tell_plain(uint64_t number, const char *event, const char *id, void *ctx)
{
	const struct plain_event *p = ctx;
	(void)id;
	return p->fn(number, event, strlen(event), p->ctx);
}

int sl_catalog_events(sl_catalog *c, const char *dataset, uint64_t after, uint64_t limit, sl_catalog_event_fn *fn,
		      void *ctx, struct sl_err *err)
{
	struct plain_event p = {.fn = fn, .ctx = ctx};
	return sl__catalog_events(c, dataset, after, limit, tell_plain, &p, err);
}

/* ---- gaps ---- */

struct gaps {
	sl_catalog_gap_fn *fn;
	void *ctx;
	uint64_t next; /* the sequence that no partition so far has; 0: there was none yet */
};

static int look_for_gap(const struct sl_catalog_partition *p, void *ctx)
{
	struct gaps *g = ctx;
	if (p->type == SL_AUDIT_LATE) /* within the one before */
		return 0;
	int rc = g->next != 0 && p->start > g->next ? g->fn(g->next, p->start - 1, g->ctx) : 0;
	g->next = p->end + 1;
	return rc;
}

int sl_catalog_gaps(sl_catalog *c, const char *dataset, sl_catalog_gap_fn *fn, void *ctx, struct sl_err *err)
{
	struct gaps g = {.fn = fn, .ctx = ctx};
	return sl_catalog_partitions(c, dataset, 0, 0, look_for_gap, &g, err);
}
