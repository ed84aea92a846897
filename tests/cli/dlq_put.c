/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Put one dead letter, for the tests of the command: dlq_put DIR SOURCE POSITION CODE CLASS ATTEMPTS FIRST_MS LAST_MS
 * TARGET ERROR [ENCODING], with the item on standard input. Prints its id.
 */
#include <inttypes.h>
#include <sluice/dead_letter.h>
#include <stdio.h>
#include <stdlib.h>

static size_t read_item(char *to, size_t size)
{
	return fread(to, 1, size, stdin);
}

int main(int argc, char **argv)
{
	static char item[1 << 20];
	struct sl_dlq_letter letter = {SL_DLQ_LETTER_INIT, .item = item};
	struct sl_err err = SL_ERR_INIT;
	sl_dlq *q;
	uint64_t id = 0;
	int rc;

	if (argc != 11 && argc != 12)
		return 64;
	letter.source = argv[2];
	letter.position = strtoull(argv[3], NULL, 10);
	letter.code = atoi(argv[4]);
	letter.error_class = (enum sl_err_class)atoi(argv[5]);
	letter.attempts = (uint32_t)strtoul(argv[6], NULL, 10);
	letter.first_failed_ms = strtoll(argv[7], NULL, 10);
	letter.last_failed_ms = strtoll(argv[8], NULL, 10);
	letter.target = argv[9];
	letter.error = argv[10];
	letter.encoding = argc == 12 ? (enum sl_dlq_encoding)atoi(argv[11]) : SL_DLQ_PLAIN;
	letter.item_len = read_item(item, sizeof(item));
	rc = sl_dlq_open(&q, argv[1], NULL, &err);
	if (!rc) {
		rc = sl_dlq_put(q, &letter, &id, &err);
		sl_dlq_close(q);
	}
	if (rc)
		fprintf(stderr, "%s\n", err.msg);
	else
		printf("%" PRIu64 "\n", id);
	return sl_err_exit_code(rc);
}
