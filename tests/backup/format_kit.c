/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/format_kit.h"

struct sl_env kit_env(void)
{
	struct sl_env env;
	if (sl__env_init(&env, NULL, NULL) != 0)
		abort();
	return env;
}

struct bk_keys kit_keys(int which)
{
	struct bk_keys keys;
	memset(&keys, 0, sizeof(keys));
	memset(keys.repository, 0x40 + which, sizeof(keys.repository));
	keys.encrypted = which != 0;
	if (keys.encrypted)
		memset(keys.master, which, sizeof(keys.master));
	if (sl__bk_keys_derive(&keys, NULL) != 0)
		abort();
	return keys;
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return z ^ (z >> 31);
}

void kit_random(uint8_t *out, size_t n, uint64_t seed)
{
	uint64_t at = mix(seed + 1);
	for (size_t i = 0; i < n; i += 8) {
		at += 0x9E3779B97F4A7C15ull;
		uint64_t z = mix(at);
		memcpy(out + i, &z, SL_MIN(n - i, (size_t)8));
	}
}

void kit_text(uint8_t *out, size_t n, uint64_t seed)
{
	static const char *const words[] = {"the ", "sluice ", "opens\n", "block ", "by ", "block ", "and ", "level "};
	uint64_t at = mix(seed + 1);
	for (size_t i = 0; i < n;) {
		at += 0x9E3779B97F4A7C15ull;
		const char *w = words[mix(at) >> 61];
		for (; *w != '\0' && i < n; w++)
			out[i++] = (uint8_t)*w;
	}
}

struct bk_id kit_id(uint64_t number)
{
	struct bk_id id;
	for (uint64_t i = 0; i < 4; i++)
		sl__put64(id.b + 8 * i, mix(number * 4 + i + 0x9E3779B97F4A7C15ull));
	return id;
}
