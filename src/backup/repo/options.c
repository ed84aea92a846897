/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "backup/repo/options.h"

#define THREADS_MAX 64
#define PACK_MIN ((int64_t)64 << 10)
#define PACK_MAX ((int64_t)64 << 20)

struct range {
	const char *name;
	int64_t value, low, high;
};

static int check_ranges(const struct sl_backup_opts *o, struct sl_err *err)
{
	const struct range ranges[] = {
		{"threads", o->threads, 1, THREADS_MAX},
		{"zstd_level", o->zstd_level, 0, 19},
		{"pack_bytes", o->pack_bytes, PACK_MIN, PACK_MAX},
		{"max_concurrent_writes", o->max_concurrent_writes, 1, 4096},
		{"max_retry_attempts", o->max_retry_attempts, 1, 1000},
		{"retry_first_ms", o->retry_first_ms, 1, 3600000},
		{"backlog_limit_bytes", o->backlog_limit_bytes, 1, INT64_MAX / 4},
	};
	for (size_t i = 0; i < SL_COUNT(ranges); i++)
		if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
			return sl_err_set(err, SL_EINVAL, "backup: %s: want %lld to %lld", ranges[i].name,
					  (long long)ranges[i].low, (long long)ranges[i].high);
	if ((unsigned)o->encrypt > SL_OFF)
		return sl_err_set(err, SL_EINVAL, "backup: encrypt: not a switch");
	if (o->passphrase == NULL && o->passphrase_len != 0)
		return sl_err_set(err, SL_EINVAL, "backup: passphrase_len without a passphrase");
	return 0;
}

static int32_t processors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (int32_t)n;
}

int sl__bk_fill_options(struct sl_backup_opts *out, const struct sl_backup_opts *in, struct sl_err *err)
{
	struct sl_backup_opts o;
	sl__opts_copy(&o, sizeof(o), in);
	if (o.threads == 0)
		o.threads = processors();
	if (o.pack_bytes == 0)
		o.pack_bytes = 8 << 20;
	if (o.max_concurrent_writes == 0)
		o.max_concurrent_writes = 4;
	if (o.max_retry_attempts == 0)
		o.max_retry_attempts = 5;
	if (o.retry_first_ms == 0)
		o.retry_first_ms = 2000;
	if (o.backlog_limit_bytes == 0)
		o.backlog_limit_bytes = 32 << 20;
	int rc = check_ranges(&o, err);
	if (rc == 0)
		*out = o;
	return rc;
}
