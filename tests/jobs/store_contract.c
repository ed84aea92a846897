/* SPDX-License-Identifier: Apache-2.0 */
/* The runner of the contract suite: all of its tests as one group, each in its own place. */
#include "jobs/contract_kit.h"

#include <stdlib.h>

static int set_up(void **state)
{
	const struct contract_fixture *f = *state;
	kit_set_thread();
	if (f->set_up != NULL && f->set_up(f->ctx) != 0)
		return -1;
	struct kit *k = malloc(sizeof(*k));
	kit_open(k, f);
	*state = k;
	return 0;
}

static int tear_down(void **state)
{
	struct kit *k = *state;
	const struct contract_fixture *f = k->f;
	kit_close(k);
	free(k);
	if (f->tear_down != NULL)
		f->tear_down(f->ctx);
	return 0;
}

enum contract_part store_contract_part(int argc, char **argv)
{
	if (argc == 1)
		return CONTRACT_PLAIN;
	if (strcmp(argv[1], "threads") == 0)
		return CONTRACT_THREADS;
	if (strcmp(argv[1], "all") == 0)
		return CONTRACT_ALL;
	print_message("Bail out! no part %s: give threads, all, or nothing\n", argv[1]);
	exit(64);
}

int store_contract_run(const struct contract_fixture *fixture, enum contract_part part)
{
	struct contract_tests parts[] = {contract_claim_tests(),     contract_settle_tests(), contract_chain_tests(),
					 contract_admin_tests(),     contract_audit_tests(),  contract_list_tests(),
					 contract_counts_tests(),    contract_look_tests(),   contract_event_tests(),
					 contract_retention_tests(), contract_tx_tests(),     contract_threads_tests()};
	const size_t n_parts = sizeof(parts) / sizeof(parts[0]);
	struct CMUnitTest all[256];
	size_t n = 0;
	for (size_t p = 0; p < n_parts; p++) {
		bool threads = p == n_parts - 1;
		if (part != CONTRACT_ALL && threads != (part == CONTRACT_THREADS))
			continue;
		for (size_t i = 0; i < parts[p].n && n < 256; i++) {
			all[n] = parts[p].tests[i];
			all[n].setup_func = set_up;
			all[n].teardown_func = tear_down;
			union {
				const void *in;
				void *out;
			} fixture_state = {.in = fixture};
			all[n++].initial_state = fixture_state.out;
		}
	}
	return _cmocka_run_group_tests(fixture->name, all, n, NULL, NULL);
}
