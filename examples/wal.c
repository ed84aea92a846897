/* SPDX-License-Identifier: Apache-2.0 */
/* Open a log, append to it durably, read it back. */
#include <inttypes.h>
#include <sluice/wal.h>
#include <stdio.h>

static int print(const struct sl_wal_record *r, void *ctx)
{
	(void)ctx;
	printf("%" PRIu64 " %.*s\n", r->sequence, (int)r->payload_len, (const char *)r->payload);
	return 0;
}

int main(void)
{
	const struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = "logs"};
	struct sl_err err = SL_ERR_INIT;
	sl_wal *log = NULL;

	/* Makes logs/job-7.wal, or recovers it. An append that returned 0 survives kill -9 and power loss. */
	if (sl_wal_open(&log, "job-7", &opts, &err) != 0 || sl_wal_append(log, "started", 7, NULL, &err) != 0 ||
	    sl_wal_append(log, "finished", 8, NULL, &err) != 0 || sl_wal_iterate(log, 0, print, NULL, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	return sl_wal_close(log, &err) != 0 || err.code != 0;
}
