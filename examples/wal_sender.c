/* SPDX-License-Identifier: Apache-2.0 */
/* Deliver a log to a receiver, here a file, in the background and in order, for as long as it takes. */
#include <errno.h>
#include <inttypes.h>
#include <sluice/wal.h>
#include <stdio.h>
#include <unistd.h>

/* The receiver's side: durable up to mark. It must survive together with the mark, which is its last line here. */
struct receiver {
	FILE *file;
	uint64_t mark;
};

static int deliver(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct receiver *to = (struct receiver *)ctx;
	uint64_t mark = to->mark;
	for (size_t i = 0; i < batch->n_records; i++) {
		const struct sl_wal_record *r = &batch->records[i];
		if (r->sequence <= mark)
			continue; /* sent again after a crash: taken once */
		fprintf(to->file, "%" PRIu64 " %.*s\n", r->sequence, (int)r->payload_len, (const char *)r->payload);
		mark = r->sequence;
	}
	if (fflush(to->file) != 0 || fdatasync(fileno(to->file)) != 0)
		return sl_err_set_errno(err, errno, "received.txt"); /* retried, with growing pauses */
	reply->mark = to->mark = mark;                               /* only this acknowledges */
	return 0;
}

int main(void)
{
	const struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = "logs"};
	const struct sl_wal_sender sender = {.version = SL_WAL_SENDER_VERSION, .send = deliver};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct receiver to = {.file = fopen("received.txt", "a+")};
	struct sl_err err = SL_ERR_INIT;
	sl_wal *log = NULL;

	while (to.file != NULL && fscanf(to.file, "%" SCNu64 "%*[^\n]", &to.mark) == 1)
		; /* what was received before a restart */
	if (to.file == NULL || sl_wal_open(&log, "job-7", &opts, &err) != 0 ||
	    sl_wal_sender_start(log, &sender, &to, &err) != 0 || sl_wal_append(log, "started", 7, NULL, &err) != 0 ||
	    sl_wal_append(log, "finished", 8, NULL, &err) != 0 || sl_wal_sender_stop(log, 10000, &err) != 0 ||
	    sl_wal_get_stats(log, &stats, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	printf("%" PRIu64 " sent, %" PRIu64 " pending\n", stats.sent, stats.pending);
	return sl_wal_close(log, &err) != 0 || err.code != 0;
}
