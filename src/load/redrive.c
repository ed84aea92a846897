/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters of loads, one by one through their own coordinator. */
#include "load/redrive.h"

#include <poll.h>
#include <sluice/records.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_MS = 100, GIVE_UP_MS = 10000 };

int sl__load_redrive_init(struct load_redrive *r, const struct load_redrive_opts *opts, struct sl_err *err)
{
	*r = (struct load_redrive){.opts = *opts};
	return sl__env_init(&r->env, opts->env, err);
}

bool sl__load_redrive_takes(const struct sl_dlq_letter *letter)
{
	return strncmp(letter->source, "load:", 5) == 0 || strncmp(letter->source, "export:", 7) == 0;
}

const char *sl__load_redrive_target(const struct load_redrive *r)
{
	return sl_sink_target(&r->sink);
}

/* ---- is it a record? ---- */

struct text {
	char *bytes;
	size_t n, at;
};

static int64_t read_text(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct text *t = ctx;
	size_t now = t->n - t->at < n ? t->n - t->at : n;

	(void)err;
	memcpy(buf, t->bytes + t->at, now);
	t->at += now;
	return (int64_t)now;
}

static int check_single(sl_records *records, struct sl_err *err)
{
	struct sl_record found[2];
	size_t n = 0, more = 0;
	int rc = sl_records_next(records, &found[0], 1, &n, err);
	if (rc != 0)
		return rc;
	if (n == 1 && found[0].bad != NULL)
		return sl_err_set(err, SL_EREFUSED, "%s", found[0].bad);
	rc = sl_records_next(records, &found[1], 1, &more, err);
	if (rc != 0)
		return rc;
	return n == 1 && !more ? 0 : sl_err_set(err, SL_EREFUSED, "the item is not one record");
}

/* Sinks that do not parse records must not get what the reader of the file has refused: read a file of this one record,
 * with a header if the columns are known. */
static int check_record(const struct sl_sink_opts *o, const struct sl_dlq_letter *letter, struct sl_err *err)
{
	struct sl_records_opts opts = {SL_RECORDS_OPTS_INIT, .format = o->format, .delimiter = o->delimiter,
				       .header = o->n_columns ? SL_ON : SL_OFF, .max_record_bytes = 64 << 20};
	sl_records *records = NULL;
	size_t bytes = letter->item_len + 1;
	struct text t = {NULL, 0, 0};
	char delimiter = ',', *at;
	int rc;

	if (o->delimiter != 0)
		delimiter = o->delimiter;
	if (letter->code == SL_ETOOBIG && letter->attempts == 0)
		return sl_err_set(err, SL_EREFUSED, "the item is only the beginning of a record that was too long");
	for (size_t i = 0; i < o->n_columns; i++)
		bytes += strlen(o->columns[i]) * 2 + 3;
	at = t.bytes = malloc(bytes);
	if (at == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for dead letter %llu", (unsigned long long)letter->id);
	for (size_t i = 0; i < o->n_columns; i++) {
		*at++ = '"';
		for (const char *name = o->columns[i]; *name; name++) {
			if (*name == '"')
				*at++ = '"';
			*at++ = *name;
		}
		*at++ = '"';
		*at++ = i + 1 < o->n_columns ? delimiter : '\n';
	}
	memcpy(at, letter->item, letter->item_len);
	t.n = (size_t)(at - t.bytes) + letter->item_len;

	rc = sl_records_new(&records, read_text, &t, &opts, err);
	if (rc == 0)
		rc = check_single(records, err);
	sl_records_free(records);
	free(t.bytes);
	return rc;
}

/* ---- the target ---- */

static void on_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	struct load_redrive *r = ctx;

	(void)item;
	(void)attempts;
	r->why = *err;
	if (err->error_class != SL_CLASS_FATAL) /* a target that is down refused nothing */
		r->why.code = SL_EREFUSED;
}

/* The dead letter stays where it is. */
static void on_returned(const struct sl_item *item, void *ctx)
{
	(void)item;
	(void)ctx;
}

/* A write that has not returned keeps the coordinator, and everything that it uses. */
int sl__load_redrive_close(struct load_redrive *r, struct sl_err *err)
{
	struct sl_err stopped = SL_ERR_INIT;
	int rc;

	if (r->c != NULL) {
		(void)!sl_coordinator_stop(r->c, 0, NULL, &stopped); /* what is left is given back */
		rc = sl_coordinator_free(r->c);
		if (rc != 0)
			return sl_err_set(err, rc, "%s", stopped.msg);
	}
	r->c = NULL;
	sl_sink_close(&r->sink);
	sl__load_target_fini(&r->to);
	free(r->header[0]);
	r->header[0] = NULL;
	return 0;
}

static int open_target(struct load_redrive *r, const char *target, struct sl_err *err)
{
	struct sl_coordinator_opts opts = {
		SL_COORDINATOR_OPTS_INIT,
		.env = &r->env,
		.name = "redrive",
		.capacity = 2,
		.workers = 1,
		.batch_size = 1,
		.flush_interval_ms = SL_NONE,
		.retry.give_up_after_ms = GIVE_UP_MS,
		.unwritten = {.on_dead = on_dead, .dead_ctx = r, .on_returned = on_returned}};
	const char *url = r->opts.url;
	int rc;

	/* The one that is open, or another one instead of it. */
	if (r->c != NULL && strcmp(target, r->target) == 0)
		return 0;
	rc = sl__load_redrive_close(r, err);
	if (rc == 0)
		rc = sl__load_target_read(&r->to, &r->env, target, err);
	if (rc != 0)
		return rc;
	r->to.opts.env = &r->env;
	if (r->to.partial && url == NULL) {
		sl__load_target_fini(&r->to);
		return sl_err_set(err, SL_EINVAL,
				  "the URL of the target had a query or a password, which dead letters do not keep; "
				  "give --to=URL");
	}
	url = url != NULL ? url : r->to.url;
	sl__load_target_fit(&r->to, url);
	rc = sl__load_set_token(&r->to.opts, url, r->opts.token, r->header);
	if (rc != 0)
		return sl_err_set(err, rc, "out of memory for a token");
	rc = sl_sink_open(&r->sink, url, &r->to.opts, err);
	if (rc == 0 && r->sink.ops->check != NULL)
		rc = r->sink.ops->check(r->sink.ctx, err);
	if (rc == 0)
		rc = sl_coordinator_new(&r->c, &r->sink, &opts, err);
	if (rc != 0)
		(void)!sl__load_redrive_close(r, NULL); /* there is no coordinator to wait for */
	else
		memcpy(r->target, target, strlen(target) + 1);
	return rc;
}

int sl__load_redrive_write(struct load_redrive *r, const struct sl_dlq_letter *letter, struct sl_err *err)
{
	struct sl_item item = {.data = letter->item, .len = letter->item_len, .position = letter->position};
	const char *target = letter->target != NULL ? letter->target : "";
	struct pollfd stop = {.fd = r->opts.stop_fd, .events = POLLIN};
	int rc;

	/* Its number is taken in the dataset: as a bad row, which the audit event says. */
	if (strncmp(letter->source, "export:", 7) == 0 && r->opts.url == NULL)
		return sl_err_set(err, SL_EINVAL,
				  "a diverted row of an export needs a target; give --to=URL, such as file:PATH, with "
				  "columns like those of the export");
	if (strlen(target) >= sizeof(r->target))
		return sl_err_set(err, SL_EDATA, "the target's name is too long");
	rc = open_target(r, target, err);
	if (rc == 0)
		rc = check_record(&r->to.opts, letter, err);
	if (rc != 0)
		return rc;

	/* Submit it, and wait until it is written or refused. */
	r->why = (struct sl_err)SL_ERR_INIT;
	rc = sl_coordinator_submit_many(r->c, &item, 1, SL_UNLIMITED, NULL);
	if (rc != 0)
		return sl_err_set(err, rc, "the item was not accepted: %s", sl_err_text(rc));
	while ((rc = sl_coordinator_flush(r->c, POLL_MS)) == SL_ETIMEDOUT && poll(&stop, 1, 0) <= 0) {
	}
	if (rc != 0)
		return sl_err_set(err, SL_ECANCELLED, "interrupted");
	if (r->why.code)
		*err = r->why;
	return r->why.code;
}
