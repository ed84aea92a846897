/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, durations, sizes and times as people write them. Each returns 0, or -1 and leaves *out alone. */
#ifndef SLUICE_CLI_VALUES_H
#define SLUICE_CLI_VALUES_H

#include <stdint.h>

int value_int(const char *text, int64_t *out);
/* "250ms", "60s", "5m", "2h", "7d": milliseconds. A unit is needed, except for 0. */
int value_duration(const char *text, int64_t *out_ms);
/* "4096", "64KiB", "64MiB", "1GiB", "1TiB": bytes. */
int value_size(const char *text, int64_t *out_bytes);
/* "2024-05-01", "2024-05-01T12:00:00Z" or a duration before now_ms: Unix milliseconds. */
int value_time(const char *text, int64_t now_ms, int64_t *out_ms);

/* The shortest way to write a size exactly ("64MiB") or a duration ("5m"); returns to. */
const char *value_write_size(char to[32], int64_t bytes);
const char *value_write_duration(char to[32], int64_t ms);

#endif
