/* SPDX-License-Identifier: Apache-2.0 */
/* One thread, many records in flight: submit without waiting, learn by poll(2) what has become durable. */
#include <poll.h>
#include <sluice/wal.h>
#include <stdio.h>

enum { RECORDS = 1000 };

int main(void)
{
	const struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = "logs"};
	static struct sl_wal_ticket tickets[RECORDS];
	struct sl_err err = SL_ERR_INIT;
	sl_wal *log = NULL;
	int rc = sl_wal_open(&log, "metering", &opts, &err);
	struct pollfd flushed = {.fd = rc == 0 ? sl_wal_fd(log, &err) : -1, .events = POLLIN};

	for (int i = 0; rc == 0 && i < RECORDS; i++)
		rc = sl_wal_submit(log, "tick", 4, &tickets[i], &err);
	int durable = 0;
	while (rc == 0 && durable < RECORDS && poll(&flushed, 1, -1) == 1) {
		sl_wal_fd_clear(log); /* before looking, so that no flush is missed */
		while (durable < RECORDS && (rc = sl_wal_wait(log, &tickets[durable], 0, &err)) == 0)
			durable++; /* in order: acknowledgements come by sequence */
		if (rc == SL_ETIMEDOUT)
			rc = 0; /* not yet; wait for the next flush */
	}
	if (rc != 0)
		fprintf(stderr, "%s\n", err.msg);
	printf("%d durable\n", durable);
	return sl_wal_close(log, &err) != 0 || rc != 0;
}
