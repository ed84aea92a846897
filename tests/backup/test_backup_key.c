/* SPDX-License-Identifier: Apache-2.0 */
/* keys/<id>: the master key, wrapped by a passphrase. */
#include "backup/format_kit.h"
#include "base/sha256.h"
#include "support/fault.h"

/* Of the keys kit_keys(1). */
#define KEPT_KEY                                                                                                       \
	"{\"version\":1,\"kdf\":\"argon2id\",\"passes\":3,\"memory_bytes\":48234496,"                                  \
	"\"salt\":\"1970700816ec8cfc288cf28ec0374f0e\","                                                               \
	"\"wrapped\":\"84f220016b6028af4ae02d2c9122163e49656c19754a66b3bf502f44fd16f02bbd0419915dca9a6"                \
	"12adc97e606f6d32264539ca8a7e9a6004682dd79b68dc6241ce1e4b0385a9940\","                                         \
	"\"check\":\"d0bda797154cf15fdb82f89a025510d9c0cf0e48eec965613ac2dc4a9a25151c\"}"

static const char passphrase[] = "correct horse";
#define PASSPHRASE (&(const struct bk_passphrase){passphrase, sizeof(passphrase) - 1})

static char *wrap(const struct bk_keys *keys)
{
	struct sl_env env = kit_env();
	char *json = NULL;
	assert_int_equal(sl__bk_key_wrap(&env, keys, PASSPHRASE, &json, NULL), 0);
	return json;
}

/* With only what is known before: the repository's id. */
static int unwrap(struct bk_keys *out, int which, const char *json, size_t len, const char *phrase)
{
	struct sl_env env = kit_env();
	struct sl_err err = SL_ERR_INIT;
	memset(out, 0, sizeof(*out));
	memcpy(out->repository, kit_keys(which).repository, sizeof(out->repository));
	struct bk_keys before = *out;
	int rc = sl__bk_key_unwrap(&env, out, (struct bk_bytes){json, len},
				   &(struct bk_passphrase){phrase, strlen(phrase)}, &err);
	assert_int_equal(err.code, rc);
	if (rc != 0)
		assert_memory_equal(out, &before, sizeof(before));
	return rc;
}

static void the_passphrase_gives_the_keys_back(SL_UNUSED void **state)
{
	struct bk_keys keys = kit_keys(1), got;
	char *json = wrap(&keys), *again = wrap(&keys);
	assert_string_not_equal(json, again); /* salt and nonce */
	assert_int_equal(unwrap(&got, 1, json, strlen(json), passphrase), 0);
	assert_memory_equal(&got, &keys, sizeof(keys));
	free(json);
	free(again);
}

static void a_key_of_the_first_version_opens_for_ever(SL_UNUSED void **state)
{
	static const char json[] = KEPT_KEY;
	struct bk_keys keys = kit_keys(1), got;
	assert_int_equal(unwrap(&got, 1, json, sizeof(json) - 1, passphrase), 0);
	assert_memory_equal(&got, &keys, sizeof(keys));
}

static void another_passphrase_or_repository_is_refused(SL_UNUSED void **state)
{
	struct bk_keys keys = kit_keys(1), got;
	char *json = wrap(&keys);
	assert_int_equal(unwrap(&got, 1, json, strlen(json), "correct horsf"), SL_EKEY);
	assert_int_equal(unwrap(&got, 1, json, strlen(json), ""), SL_EKEY);
	assert_int_equal(unwrap(&got, 2, json, strlen(json), passphrase), SL_EKEY);
	free(json);
}

static void damage_is_not_taken_for_a_wrong_passphrase(SL_UNUSED void **state)
{
	struct bk_keys keys = kit_keys(1), got;
	char *json = wrap(&keys);
	size_t len = strlen(json);
	for (size_t bit = 0; bit < 8 * len; bit++) {
		json[bit / 8] ^= (char)(1 << bit % 8);
		int rc = unwrap(&got, 1, json, len, passphrase);
		json[bit / 8] ^= (char)(1 << bit % 8);
		assert_int_equal(rc, SL_ECORRUPT);
	}
	for (size_t n = 0; n < len; n++)
		assert_int_equal(unwrap(&got, 1, json, n, passphrase), SL_ECORRUPT);
	free(json);
}

/* The kept key with another number in place of the old one, and the check put right. */
static char *edited(const char *old, const char *replacement)
{
	struct sl_env env = kit_env();
	static const char json[] = KEPT_KEY;
	const char *at = strstr(json, old), *end = strstr(json, ",\"check\"");
	uint8_t sum[SL__SHA256_BYTES];
	char hex[SL__SHA256_HEX];
	assert_non_null(at);
	char *body = sl__asprintf(&env, "%.*s%s%.*s", (int)(at - json), json, replacement,
				  (int)(end - at - (ptrdiff_t)strlen(old)), at + strlen(old));
	assert_int_equal(sl__sha256(body, strlen(body), sum, NULL), 0);
	sl__sha256_hex(sum, hex);
	char *text = sl__asprintf(&env, "%s,\"check\":\"%s\"}", body, hex);
	free(body);
	return text;
}

static void parameters_that_would_stop_the_machine_are_refused(SL_UNUSED void **state)
{
	static const char *const edits[][2] = {
		{"\"passes\":3", "\"passes\":65"},
		{"\"passes\":3", "\"passes\":0"},
		{"\"passes\":3", "\"passes\":-1"},
		{"\"memory_bytes\":48234496", "\"memory_bytes\":1073741825"},
		{"\"memory_bytes\":48234496", "\"memory_bytes\":9223372036854775807"},
		{"\"memory_bytes\":48234496", "\"memory_bytes\":0"},
		{"\"kdf\":\"argon2id\"", "\"kdf\":\"argon2ix\""},
		{"\"salt\"", "\"more\":1,\"salt\""},
	};
	for (size_t i = 0; i < SL_COUNT(edits); i++) {
		struct bk_keys got;
		char *json = edited(edits[i][0], edits[i][1]);
		assert_int_equal(unwrap(&got, 1, json, strlen(json), passphrase), SL_ECORRUPT);
		free(json);
	}
	struct bk_keys got;
	char *json = edited("\"version\":1", "\"version\":2");
	assert_int_equal(unwrap(&got, 1, json, strlen(json), passphrase), SL_EUNSUPPORTED);
	free(json);
	/* The test's own edits are right: less work is another key, and not damage. */
	json = edited("\"passes\":3", "\"passes\":1");
	assert_int_equal(unwrap(&got, 1, json, strlen(json), passphrase), SL_EKEY);
	free(json);
}

static void every_allocation_may_fail(SL_UNUSED void **state)
{
	struct fault f;
	fault_init(&f, NULL);
	struct sl_env base = fault_env(&f, NULL), env;
	struct bk_keys keys = kit_keys(1);
	assert_int_equal(sl__env_init(&env, &base, NULL), 0);
	for (int64_t n = 1;; n++) {
		char *json = NULL;
		struct bk_keys got = kit_keys(1);
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = sl__bk_key_wrap(&env, &keys, PASSPHRASE, &json, NULL);
		assert_true(rc == 0 ? json != NULL : rc == SL_ENOMEM && json == NULL);
		if (rc == 0)
			rc = sl__bk_key_unwrap(&env, &got, (struct bk_bytes){json, strlen(json)}, PASSPHRASE, NULL);
		assert_true(rc == 0 || rc == SL_ENOMEM);
		fault_disarm(&f);
		sl__free(&env, json);
		assert_int_equal(fault_live_allocs(&f), 0);
		if (fault_mem_failed(&f) == 0)
			break;
		assert_int_equal(rc, SL_ENOMEM);
	}
	fault_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_passphrase_gives_the_keys_back),
		cmocka_unit_test(a_key_of_the_first_version_opens_for_ever),
		cmocka_unit_test(another_passphrase_or_repository_is_refused),
		cmocka_unit_test(damage_is_not_taken_for_a_wrong_passphrase),
		cmocka_unit_test(parameters_that_would_stop_the_machine_are_refused),
		cmocka_unit_test(every_allocation_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
