/* SPDX-License-Identifier: Apache-2.0 */
/* Keep what could not be delivered, with the reason; read it; redrive it. */
#include <inttypes.h>
#include <sluice/dead_letter.h>
#include <stdio.h>

static int print(const struct sl_dlq_letter *l, void *ctx)
{
	(void)ctx;
	printf("letter %" PRIu64 " from %s: %s (%s, %u attempts)\n", l->id, l->source, l->error,
	       sl_err_class_name(l->error_class), l->attempts);
	return 0;
}

static int deliver(const struct sl_dlq_letter *l, void *ctx)
{
	(void)ctx;
	printf("delivered %.*s\n", (int)l->item_len, (const char *)l->item);
	return 0; /* accepted durably: the letter is acknowledged */
}

int main(void)
{
	const struct sl_dlq_letter letter = {
		SL_DLQ_LETTER_INIT,
		.source = "load:bars.csv",
		.position = 17, /* the line */
		.error = "price is not a number",
		.code = SL_EREFUSED,
		.error_class = SL_CLASS_POISON,
		.attempts = 1,
		.target = "bars",
		.item = "AAPL,12x",
		.item_len = 8,
	};
	struct sl_err err = SL_ERR_INIT;
	uint64_t done = 0, failed = 0;
	sl_dlq *q = NULL;

	if (sl_dlq_open(&q, "dead", NULL, &err) != 0 || sl_dlq_put(q, &letter, NULL, &err) != 0 ||
	    sl_dlq_list(q, false, print, NULL, &err) != 0 ||
	    sl_dlq_redrive(q, deliver, NULL, &done, &failed, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	printf("%" PRIu64 " redriven, %" PRIu64 " left\n", done, failed);
	sl_dlq_close(q);
	return err.code != 0;
}
