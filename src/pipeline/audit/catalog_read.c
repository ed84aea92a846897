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

static void page_fini(struct page *p)
{
	sl__buf_fini(&p->bytes);
}

/* Fill the page with what the call's callback puts into it. */
static int read_catalog_page(sl_catalog *c, struct page *p, struct sl__cat_call *call, struct sl_err *err)
{
	sl__buf_clear(&p->bytes);
	p->rows = 0;
	call->ctx = p;
	return sl__catalog_once(c, CAT_READ, call, err);
}

static int damaged_row(const char *what, const char *name, struct sl_err *err)
{
	return sl_err_set(err, SL_ECORRUPT,
			  "the catalog's row of %s %.100s is damaged; check it with 'sluice audit verify --all'", what,
			  name);
}

static void page_put_text(struct page *p, const char *text)
{
	(void)sl__buf_append(&p->bytes, text, strlen(text) + 1);
}

static int page_end_row(struct page *p, struct sl_err *err)
{
	p->rows++;
	return p->bytes.failed == 0 ? 0 : sl_err_set(err, SL_ENOMEM, "out of memory for rows of the catalog");
}

static const char *page_text(const char **at)
{
	const char *text = *at;
	*at += strlen(text) + 1;
	return text;
}

/* ---- datasets ---- */

static int page_put_dataset(const struct sl__cat_row *row, struct sl_err *err, void *ctx)
{
	struct page *p = ctx;
	struct sl__cat_dataset d;
	sl__cat_read_dataset(row, &d);
	if (d.damaged && !p->lenient)
		return damaged_row("dataset", d.d.name, err);
	char has_holder = d.d.holder != NULL;
	(void)sl__buf_append(&p->bytes, &d.d, sizeof(d.d));
	(void)sl__buf_append(&p->bytes, &has_holder, 1);
	page_put_text(p, d.d.name);
	page_put_text(p, d.d.sequence_column);
	page_put_text(p, d.d.schema);
	page_put_text(p, has_holder ? d.d.holder : "");
	return page_end_row(p, err);
}

int sl_catalog_datasets(sl_catalog *c, const char *name, sl_dataset_fn *fn, void *ctx, struct sl_err *err)
{
	char last[SL_DATASET_NAME_MAX + 1] = "";
	struct page p SL_CLEANUP(page_fini);
	page_init(&p, c);
	int rc;
	do {
		struct sl__cat_call call = {.stmt = name != NULL ? CAT_DATASET_GET : CAT_DATASET_LIST,
					    .values = {CAT_TEXT(name != NULL ? name : last), CAT_INT(PAGE_ROWS)},
					    .n = name != NULL ? 1 : 2,
					    .fn = page_put_dataset};
		if ((rc = read_catalog_page(c, &p, &call, err)) != 0)
			return rc;
		const char *at = p.bytes.data;
		if (name != NULL && (p.rows == 0 || ((const struct sl_dataset *)(const void *)at)->partition_size == 0))
			return sl_err_set(err, SL_ENOENT, "the catalog has no dataset %.100s", name);
		for (uint64_t i = 0; i < p.rows && rc == 0; i++) {
			struct sl_dataset d;
			memcpy(&d, at, sizeof(d));
			at += sizeof(d);
			bool has_holder = *at++ != 0;
			d.name = page_text(&at);
			d.sequence_column = page_text(&at);
			d.schema = page_text(&at);
			d.holder = page_text(&at);
			if (!has_holder)
				d.holder = NULL;
			size_t n = SL_MIN(strlen(d.name), (size_t)SL_DATASET_NAME_MAX);
			memcpy(last, d.name, n); /* the next page begins after it */
			last[n] = '\0';
			rc = fn(&d, ctx);
		}
	} while (rc == 0 && name == NULL && p.rows == PAGE_ROWS);
	return rc;
}

/* ---- partitions ---- */

static int page_put_partition(const struct sl__cat_row *row, struct sl_err *err, void *ctx)
{
	struct page *p = ctx;
	struct sl_catalog_partition part;
	bool readable = sl__cat_read_partition(row, &part);
	if (!readable && !p->lenient)
		return damaged_row("partition", part.path, err);
	/* What is not readable comes out as zeros: it is not what the event says, and that is how it is found. */
	if (!readable)
		memset(part.sha256, 0, sizeof(part.sha256));
	(void)sl__buf_append(&p->bytes, &part, sizeof(part));
	page_put_text(p, part.path);
	page_put_text(p, part.hole_ranges);
	return page_end_row(p, err);
}

int sl__catalog_walk_partitions(sl_catalog *c, const struct sl__partition_walk *w, struct sl_err *err)
{
	struct page p SL_CLEANUP(page_fini);
	page_init(&p, c);
	uint64_t left = w->limit == 0 ? UINT64_MAX : w->limit, want;
	uint64_t start = SL_MIN(w->from, (uint64_t)INT64_MAX), event = 0; /* the next page: at start, after event */
	int rc;
	do {
		want = SL_MIN(left, PAGE_ROWS);
		struct sl__cat_call call = {.stmt = w->with_holes ? CAT_HOLE_LIST : CAT_PARTITION_LIST,
					    .values = {CAT_TEXT(w->dataset), CAT_INT(start),
						       CAT_INT(w->with_holes ? w->since_ms : (int64_t)event),
						       CAT_INT(want)},
					    .n = 4,
					    .fn = page_put_partition};
		if ((rc = read_catalog_page(c, &p, &call, err)) != 0)
			return rc;
		const char *at = p.bytes.data;
		for (uint64_t i = 0; i < p.rows && rc == 0; i++) {
			struct sl_catalog_partition part;
			memcpy(&part, at, sizeof(part));
			at += sizeof(part);
			part.path = page_text(&at);
			part.hole_ranges = page_text(&at);
			start = part.start;
			event = part.event;
			/* Late rows have no holes, so no two with holes have one start. A damaged event is skipped. */
			if (part.start < INT64_MAX && (w->with_holes || part.event > INT64_MAX)) {
				start++;
				event = 0;
			}
			rc = w->fn(&part, w->ctx);
		}
		left -= p.rows;
		/* A value that is not a number comes last, and nothing after it. */
	} while (rc == 0 && p.rows == want && left > 0 && start <= INT64_MAX && event <= INT64_MAX);
	return rc;
}

int sl_catalog_partitions(sl_catalog *c, const char *dataset, uint64_t from, uint64_t limit,
			  sl_catalog_partition_fn *fn, void *ctx, struct sl_err *err)
{
	const struct sl__partition_walk w = {.dataset = dataset, .from = from, .limit = limit, .fn = fn, .ctx = ctx};
	return sl__catalog_walk_partitions(c, &w, err);
}

/* ---- events ---- */

static int page_put_event(const struct sl__cat_row *row, struct sl_err *err, void *ctx)
{
	struct page *p = ctx;
	uint64_t number = (uint64_t)sl__cat_number(row, 0);
	const char *text = sl__cat_text(row, 1), *id = sl__cat_text(row, 2);
	if ((number > INT64_MAX || text == NULL) && !p->lenient)
		return damaged_row("event", id != NULL ? id : "without an id", err);
	(void)sl__buf_append(&p->bytes, &number, sizeof(number));
	page_put_text(p, text != NULL ? text : "");
	page_put_text(p, id != NULL ? id : "");
	return page_end_row(p, err);
}

int sl__catalog_walk_events(sl_catalog *c, const struct sl__event_walk *w, struct sl_err *err)
{
	struct page p SL_CLEANUP(page_fini);
	page_init(&p, c);
	uint64_t after = w->after, left = w->limit == 0 ? UINT64_MAX : w->limit, want;
	int rc;
	do {
		want = SL_MIN(left, PAGE_ROWS);
		struct sl__cat_call call = {
			.stmt = CAT_EVENT_LIST,
			.values = {CAT_TEXT(w->dataset), CAT_INT(SL_MIN(after, (uint64_t)INT64_MAX)), CAT_INT(want)},
			.n = 3,
			.fn = page_put_event};
		if ((rc = read_catalog_page(c, &p, &call, err)) != 0)
			return rc;
		const char *at = p.bytes.data;
		for (uint64_t i = 0; i < p.rows && rc == 0; i++) {
			memcpy(&after, at, sizeof(after));
			at += sizeof(after);
			const char *text = page_text(&at), *id = page_text(&at);
			rc = w->with_id != NULL ? w->with_id(after, text, id, w->ctx)
						: w->fn(after, text, strlen(text), w->ctx);
		}
		left -= p.rows;
	} while (rc == 0 && p.rows == want && left > 0 && after <= INT64_MAX);
	return rc;
}

int sl_catalog_events(sl_catalog *c, const char *dataset, uint64_t after, uint64_t limit, sl_catalog_event_fn *fn,
		      void *ctx, struct sl_err *err)
{
	const struct sl__event_walk w = {.dataset = dataset, .after = after, .limit = limit, .fn = fn, .ctx = ctx};
	return sl__catalog_walk_events(c, &w, err);
}
