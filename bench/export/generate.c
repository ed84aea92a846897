/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inputs of bench/export/run: rows of a ledger, or wide rows of 6 KB, as CSV or JSON lines. The same arguments give
 * the same bytes.
 *
 *	sluice-bench-rows csv|jsonl ledger|wide ROWS > FILE
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCOUNTS 20000
#define WIDE_TEXT 5800

static uint64_t state = 42;

static uint64_t next(void)
{
	uint64_t z = (state += 0x9E3779B97F4A7C15u);
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static void letters(char *to, size_t n, const char *alphabet, uint64_t bits)
{
	uint64_t have = 0, left = 0;
	for (size_t i = 0; i < n; i++, left -= bits, have >>= bits) {
		if (left < bits) {
			have = next();
			left = 64;
		}
		to[i] = alphabet[have & ((1u << bits) - 1)];
	}
	to[n] = '\0';
}

/* Words, so that it compresses as text does. */
static void prose(char *to, size_t n)
{
	static const char *const words[] = {"ledger",  "account", "payment",   "of",  "the",   "sequence",
					    "archive", "and",     "partition", "to",  "trust", "memo",
					    "is",      "native",  "asset",     "path"};
	size_t at = 0;
	while (at < n) {
		char hex[9];
		const char *word = words[next() % 16];
		if (next() % 8 == 0) {
			letters(hex, 8, "0123456789abcdef", 4);
			word = hex;
		}
		size_t k = strlen(word);
		if (at + k + 1 > n)
			k = n - at - 1;
		memcpy(to + at, word, k);
		to[at + k] = ' ';
		at += k + 1;
	}
	to[n] = '\0';
}

int main(int argc, char **argv)
{
	static char accounts[ACCOUNTS][57], text[WIDE_TEXT + 1];
	char hash[65], at[32];
	if (argc != 4)
		return 2;
	bool csv = strcmp(argv[1], "csv") == 0, wide = strcmp(argv[2], "wide") == 0;
	uint64_t rows = strtoull(argv[3], NULL, 10);
	for (size_t i = 0; i < ACCOUNTS; i++)
		letters(accounts[i], 56, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 5);
	if (csv)
		printf("ledger_sequence,tx_hash,account,fee,op_count,successful,closed_at%s\n", wide ? ",memo" : "");
	for (uint64_t i = 1; i <= rows; i++) {
		uint64_t r = next(), second = i / 200 * 5;
		uint64_t account = (r % ACCOUNTS) * ((r >> 20) % ACCOUNTS) / ACCOUNTS; /* few have most */
		uint64_t fee = 100 * (1 + (r >> 40) % 50), ops = 1 + (r >> 50) % 8;
		const char *ok = (r >> 58) % 10 != 0 ? "true" : "false";
		letters(hash, 64, "0123456789abcdef", 4);
		if (wide)
			prose(text, WIDE_TEXT);
		(void)snprintf(at, sizeof(at), "2024-%02d-%02dT%02d:%02d:%02dZ", (int)(1 + second / 86400 / 28 % 12),
			       (int)(1 + second / 86400 % 28), (int)(second / 3600 % 24), (int)(second / 60 % 60),
			       (int)(second % 60));
		if (csv)
			printf("%" PRIu64 ",%s,%s,%" PRIu64 ",%" PRIu64 ",%s,%s%s%s\n", i, hash, accounts[account], fee,
			       ops, ok, at, wide ? "," : "", wide ? text : "");
		else
			printf("{\"ledger_sequence\":%" PRIu64 ",\"tx_hash\":\"%s\",\"account\":\"%s\",\"fee\":%" PRIu64
			       ",\"op_count\":%" PRIu64 ",\"successful\":%s,\"closed_at\":\"%s\"%s%s%s}\n",
			       i, hash, accounts[account], fee, ops, ok, at, wide ? ",\"memo\":\"" : "",
			       wide ? text : "", wide ? "\"" : "");
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
