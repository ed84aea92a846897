/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ingest/follow_piece.h"
#include "base/buf.h"
#include "server/ingest/ingest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_ROWS 512
#define READ_BYTES ((size_t)128 * 1024)
#define ENOUGH 1 /* stops a read */

struct reading {
	uint64_t upto; /* not behind this; 0: no bound */
	struct sl__buf text;
	uint64_t last; /* offset */
	size_t rows;
};

static int on_row(const struct sl_event_row *e, void *ctx)
{
	struct reading *x = ctx;
	if (x->upto != 0 && e->offset > x->upto)
		return ENOUGH;
	json_t *o = srv_event_json(e);
	char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (text == NULL)
		return SL_ENOMEM;
	(void)sl__buf_printf(&x->text, "id: %" PRIu64 "\ndata: ", e->offset);
	(void)sl__buf_str_append(&x->text, text);
	int rc = sl__buf_append(&x->text, "\n\n", 2);
	free(text);
	if (rc != 0)
		return rc;
	x->last = e->offset;
	x->rows++;
	return x->text.len >= READ_BYTES ? ENOUGH : 0;
}

struct srv_piece *srv_piece_read(const struct srv_core *core, uint64_t job_id, uint64_t after, uint64_t upto,
				 bool *more, int *rc)
{
	const sl_store *store = core->store;
	struct reading x = {.upto = upto, .text = {.env = &sl__env_real}};
	struct sl_err err = SL_ERR_INIT;
	struct srv_piece *p = NULL;
	*rc = store->ops->events_read(store->ctx, job_id, after, READ_ROWS, on_row, &x, &err);
	*more = *rc == ENOUGH || x.rows == READ_ROWS;
	*rc = *rc == ENOUGH ? 0 : *rc;
	if (*rc == 0 && x.rows > 0)
		p = malloc(sizeof(*p) + x.text.len);
	if (p != NULL) {
		*p = (struct srv_piece){.refs = 1, .after = after, .upto = x.last, .len = x.text.len};
		memcpy(p->text, x.text.data, x.text.len);
	} else if (*rc == 0 && x.rows > 0) {
		*rc = SL_ENOMEM;
	}
	sl__buf_fini(&x.text);
	return p;
}

void srv_piece_drop(struct srv_piece *p)
{
	if (p != NULL && --p->refs == 0)
		free(p);
}
