/* SPDX-License-Identifier: Apache-2.0 */
/* A load that a program ends by sl_load_stop: it says so, and the next run of the same load does the rest. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <sluice/load.h>

static sl_load *running;

static sl_load *open_load(void)
{
	const char *paths[] = {"bars.csv"};
	const struct sl_sink_opts sink = {SL_SINK_OPTS_INIT, .format = SL_ROWS_CSV, .table = "bars"};
	const struct sl_load_opts opts = {SL_LOAD_OPTS_INIT,      .paths = paths, .n_paths = 1,
					  .to = "sqlite:bars.db", .sink = &sink,  .create = SL_ON,
					  .dead_letters = "dead"};
	struct sl_err err = SL_ERR_INIT;
	sl_load *l = NULL;
	int rc = sl_load_open(&l, &opts, &err);
	if (rc != 0)
		fail_msg("%s", err.msg);
	return l;
}

/* Run and close; the result of the run. */
static int run(sl_load *l, struct sl_load_stats *stats)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_load_run(l, &err);
	*stats = (struct sl_load_stats){.struct_size = sizeof(*stats)};
	sl_load_get_stats(l, stats);
	assert_int_equal(sl_load_close(l, &err), 0);
	return rc;
}

static void the_next_run_loads_all_rows(void)
{
	struct sl_load_stats stats;
	assert_int_equal(run(open_load(), &stats), 0);
	assert_int_equal(stats.written, 3);
	assert_int_equal(stats.dead, 0);
}

static void a_load_that_was_stopped_before_it_ran_says_so_and_reads_nothing(void **state)
{
	(void)state;
	struct sl_load_stats stats;
	sl_load *l = open_load();
	sl_load_stop(l);
	assert_int_equal(run(l, &stats), SL_ECANCELLED);
	assert_int_equal(stats.written, 0);
	the_next_run_loads_all_rows();
}

static void stop_running(int signal)
{
	(void)signal;
	sl_load_stop(running);
}

static void a_signal_handler_may_stop_a_load(void **state)
{
	(void)state;
	struct sl_load_stats stats;
	struct sigaction stop = {.sa_handler = stop_running}, before;
	running = open_load();
	assert_int_equal(sigaction(SIGUSR1, &stop, &before), 0);
	assert_int_equal(raise(SIGUSR1), 0);
	assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
	assert_int_equal(run(running, &stats), SL_ECANCELLED);
	the_next_run_loads_all_rows();
}

/* ---- the folder that the tests work in ---- */

static char folder[64];

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/load-stop-XXXXXX");
	if (mkdtemp(folder) == NULL || chdir(folder) != 0)
		return -1;
	FILE *f = fopen("bars.csv", "w");
	return f != NULL && fputs("symbol,price\nA,1.5\nB,2\nC,3\n", f) >= 0 && fclose(f) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	char command[96];
	(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
	return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_load_that_was_stopped_before_it_ran_says_so_and_reads_nothing, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_signal_handler_may_stop_a_load, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
