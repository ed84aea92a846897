/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "server/http/auth.h"

#define HASH_A "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" /* of "a" */
#define HASH_B "sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d" /* of "b" */

struct place {
	char folder[64], tokens[96];
};

static int set_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));
	strcpy(p->folder, "/tmp/http-auth-XXXXXX");
	if (sodium_init() < 0 || mkdtemp(p->folder) == NULL)
		return -1;
	snprintf(p->tokens, sizeof(p->tokens), "%s/tokens", p->folder);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	unlink(p->tokens);
	rmdir(p->folder);
	free(p);
	return 0;
}

static void write_tokens(const struct place *p, const char *text, mode_t mode)
{
	FILE *f = fopen(p->tokens, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(p->tokens, mode), 0);
}

static srv_auth *open_auth(const struct place *p, const char *text)
{
	srv_auth *a = NULL;
	write_tokens(p, text, 0600);
	assert_int_equal(srv_auth_new(&a, p->tokens, NULL), 0);
	return a;
}

static void a_token_is_known_by_its_hash(void **state)
{
	struct srv_identity who;
	srv_auth *a = open_auth(*state, "# who\n\nalice admin " HASH_A "\n\tbob  read\t" HASH_B "\r\n");
	assert_int_equal(srv_auth_tokens(a), 2);
	assert_true(srv_auth_by_token(a, "a", 1, &who));
	assert_string_equal(who.name, "alice");
	assert_int_equal(who.role, SRV_ADMIN);
	assert_true(srv_auth_by_token(a, "b", 1, &who));
	assert_string_equal(who.name, "bob");
	assert_int_equal(who.role, SRV_READ);
	assert_false(srv_auth_by_token(a, "c", 1, &who));
	assert_false(srv_auth_by_token(a, "", 0, &who));
	assert_false(srv_auth_by_token(a, &HASH_A[7], 64, &who)); /* the hash is not the token */
	srv_auth_free(a);
}

static void a_wrong_line_is_named_and_its_text_is_not(void **state)
{
	static const char *const bad[] = {
		"a admin\n",
		"a root " HASH_A "\n",
		"a admin sha256:secret\n",
		"a admin secret\n",
		"a/b admin " HASH_A "\n",
		"a admin " HASH_A " more\n",
		"a admin " HASH_A "00\n",
		"a admin " HASH_A "\na read " HASH_B "\n",
		"a ship:x " HASH_A "\na ship:y " HASH_B "\n",
		"a worker: " HASH_A "\n",
		"a worker:x worker:y " HASH_A "\n",
		"a admin " HASH_A "\nb read " HASH_A "\n",
		"\n\xff admin " HASH_A "\n",
	};
	struct srv_token out[4];
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(srv_tokens_parse(bad[i], strlen(bad[i]), out, 4, &err), SL_ECONFIG);
		assert_non_null(strstr(err.msg, "line "));
		assert_null(strstr(err.msg, "secret"));
		assert_null(strstr(err.msg, "ca978112"));
	}
}

static void a_file_that_others_can_read_is_refused(void **state)
{
	const struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	srv_auth *a = NULL;
	write_tokens(p, "a admin " HASH_A "\n", 0640);
	assert_int_equal(srv_auth_new(&a, p->tokens, &err), SL_ECONFIG);
	assert_non_null(strstr(err.msg, "chmod 600"));
	assert_int_equal(chmod(p->tokens, 0604), 0);
	assert_int_equal(srv_auth_new(&a, p->tokens, NULL), SL_ECONFIG);
}

static void a_missing_or_empty_file_is_refused(void **state)
{
	const struct place *p = *state;
	srv_auth *a = NULL;
	assert_int_equal(srv_auth_new(&a, p->tokens, NULL), SL_ECONFIG);
	write_tokens(p, "# no token\n", 0600);
	assert_int_equal(srv_auth_new(&a, p->tokens, NULL), SL_ECONFIG);
	assert_int_equal(srv_auth_new(&a, p->folder, NULL), SL_ECONFIG);
}

static void a_session_is_its_tokens_until_it_ends(void **state)
{
	struct srv_identity who, again;
	char session[SRV_SESSION_BYTES], other[SRV_SESSION_BYTES];
	srv_auth *a = open_auth(*state, "alice write " HASH_A "\n");
	assert_false(srv_auth_login(a, "x", 1, 1000, session, &who));
	assert_true(srv_auth_login(a, "a", 1, 1000, session, &who));
	assert_true(srv_auth_login(a, "a", 1, 1000, other, &again));
	assert_string_not_equal(session, other);
	assert_string_not_equal(who.csrf, again.csrf);
	assert_true(srv_auth_by_session(a, session, 64, 1001, &again));
	assert_string_equal(again.name, "alice");
	assert_int_equal(again.role, SRV_WRITE);
	assert_string_equal(again.csrf, who.csrf);
	assert_false(srv_auth_by_session(a, session, 63, 1001, &again));
	assert_false(srv_auth_by_session(a, session, 64, 1000 + SRV_SESSION_MS, &again));
	srv_auth_logout(a, session, 64);
	assert_false(srv_auth_by_session(a, session, 64, 1001, &again));
	assert_true(srv_auth_by_session(a, other, 64, 1001, &again));
	srv_auth_free(a);
}

static void a_token_taken_out_of_the_file_ends_its_sessions(void **state)
{
	struct srv_identity who;
	char session[SRV_SESSION_BYTES];
	srv_auth *a = open_auth(*state, "alice write " HASH_A "\n");
	assert_true(srv_auth_login(a, "a", 1, 1000, session, &who));
	write_tokens(*state, "bob write " HASH_B "\n", 0600);
	assert_int_equal(srv_auth_reload(a, NULL), 0);
	assert_false(srv_auth_by_session(a, session, 64, 1001, &who));
	assert_false(srv_auth_by_token(a, "a", 1, &who));
	assert_true(srv_auth_by_token(a, "b", 1, &who));
	srv_auth_free(a);
}

static void a_bad_file_leaves_the_tokens_in_force(void **state)
{
	struct srv_identity who;
	srv_auth *a = open_auth(*state, "alice write " HASH_A "\n");
	write_tokens(*state, "nonsense\n", 0600);
	assert_int_equal(srv_auth_reload(a, NULL), SL_ECONFIG);
	assert_true(srv_auth_by_token(a, "a", 1, &who));
	srv_auth_free(a);
}

static void log_ins_with_one_token_end_sessions_of_that_token_only(void **state)
{
	srv_auth *a = open_auth(*state, "one read " HASH_A "\ntwo admin " HASH_B "\n");
	struct srv_identity who;
	char other[SRV_SESSION_BYTES], first[SRV_SESSION_BYTES], second[SRV_SESSION_BYTES], last[SRV_SESSION_BYTES];
	assert_true(srv_auth_login(a, "b", 1, 999, other, &who));
	assert_true(srv_auth_login(a, "a", 1, 1000, first, &who));
	assert_true(srv_auth_login(a, "a", 1, 1001, second, &who));
	for (int i = 2; i <= SRV_TOKEN_SESSIONS; i++)
		assert_true(srv_auth_login(a, "a", 1, 1000 + i, last, &who));
	assert_false(srv_auth_by_session(a, first, 64, 5000, &who));
	assert_true(srv_auth_by_session(a, second, 64, 5000, &who));
	assert_true(srv_auth_by_session(a, last, 64, 5000, &who));
	for (int i = 0; i < 2 * SRV_MAX_SESSIONS; i++)
		assert_true(srv_auth_login(a, "a", 1, 2000 + i, last, &who));
	assert_true(srv_auth_by_session(a, other, 64, 5000, &who));
	assert_string_equal(who.name, "two");
	srv_auth_free(a);
}

static void a_token_has_scopes(void **state)
{
	struct srv_identity who;
	srv_auth *a = open_auth(*state, "ci read enqueue:build,mail/* " HASH_A "\nbox ship:web-,db " HASH_B "\n");
	assert_true(srv_auth_by_token(a, "a", 1, &who));
	assert_int_equal(who.role, SRV_READ);
	assert_true(srv_scope_has(who.enqueue, "build", false));
	assert_true(srv_scope_has(who.enqueue, "mail/send", false));
	assert_false(srv_scope_has(who.enqueue, "builds", false));
	assert_false(srv_scope_has(who.enqueue, "buil", false));
	assert_false(srv_scope_has(who.enqueue, "mail", false));
	assert_false(srv_scope_has(who.ship, "web-1", true));
	assert_true(srv_auth_by_token(a, "b", 1, &who));
	assert_int_equal(who.role, SRV_PUBLIC);
	assert_true(srv_scope_has(who.ship, "web-1", true));
	assert_true(srv_scope_has(who.ship, "db", true));
	assert_false(srv_scope_has(who.ship, "we", true));
	assert_false(srv_scope_has(who.enqueue, "", false));
	srv_auth_free(a);
	static const char *const wrong[] = {"x enqueue: " HASH_A,
					    "x enqueue:a,,b " HASH_A,
					    "x enqueue:a,b, " HASH_A,
					    "x enqueue:*a " HASH_A,
					    "x " HASH_A,
					    "x read admin " HASH_A,
					    "x ship:a ship:b " HASH_A,
					    "x dance " HASH_A,
					    "x enqueue:a\"b " HASH_A};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct srv_token t[2];
		assert_int_equal(srv_tokens_parse(wrong[i], strlen(wrong[i]), t, 2, NULL), SL_ECONFIG);
	}
}

/* Anybody can ask for a log-in, so neither the trail nor the answers may grow with them. */
static void a_token_that_logs_in_again_and_again_is_recorded_once_a_minute(void **state)
{
	char session[SRV_SESSION_BYTES];
	struct srv_identity who;
	srv_auth *a = open_auth(*state, "x read " HASH_A "\n");
	int recorded = 0;
	for (int64_t now = 1; now <= 120000; now += 100) {
		assert_true(srv_auth_login(a, "a", 1, now, session, &who));
		recorded += who.first_login;
		srv_auth_logout(a, session, SRV_SESSION_BYTES - 1); /* does not begin it anew */
	}
	assert_int_equal(recorded, 2);
	srv_auth_free(a);
}

static void refused_log_ins_have_a_rate(void **state)
{
	srv_auth *a = open_auth(*state, "x read " HASH_A "\n");
	int said = 0;
	for (int i = 0; i < 1000; i++)
		said += srv_auth_may_refuse(a, 5000);
	assert_int_equal(said, 30);
	assert_false(srv_auth_may_refuse(a, 5999));
	assert_true(srv_auth_may_refuse(a, 6000));
	assert_false(srv_auth_may_refuse(a, 6001));
	said = 0;
	for (int i = 0; i < 1000; i++)
		said += srv_auth_may_refuse(a, 1000000);
	assert_int_equal(said, 30); /* it does not save up more */
	srv_auth_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_token_is_known_by_its_hash, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_wrong_line_is_named_and_its_text_is_not, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_that_others_can_read_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_missing_or_empty_file_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_session_is_its_tokens_until_it_ends, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_token_taken_out_of_the_file_ends_its_sessions, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_bad_file_leaves_the_tokens_in_force, set_up, tear_down),
		cmocka_unit_test_setup_teardown(log_ins_with_one_token_end_sessions_of_that_token_only, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_token_that_logs_in_again_and_again_is_recorded_once_a_minute, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(refused_log_ins_have_a_rate, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_token_has_scopes, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
