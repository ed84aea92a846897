/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/metrics.h"
#include "fail_mem.h"

struct fixture {
	struct fail_mem mem;
	struct sl_env env;
	sl_metrics *m;
	struct sl__buf text;
};

static int make(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const struct sl_env wanted = {SL_ENV_INIT, .mem = &fail_mem_table, .mem_ctx = f != NULL ? &f->mem : NULL};
	if (f == NULL || sl__env_init(&f->env, &wanted, NULL) != 0 || sl_metrics_new(&f->m, &f->env, NULL) != 0)
		return -1;
	sl__buf_init(&f->text, &f->env);
	*state = f;
	return 0;
}

static int drop(void **state)
{
	struct fixture *f = *state;
	sl__buf_fini(&f->text);
	sl_metrics_free(f->m);
	int held = f->mem.held;
	free(f);
	return held;
}

static int collect(const char *data, size_t n, void *ctx)
{
	return sl__buf_append(ctx, data, n);
}

static const char *render(struct fixture *f)
{
	sl__buf_clear(&f->text);
	assert_int_equal(sl_metrics_render(f->m, collect, &f->text, NULL), 0);
	return sl__buf_str(&f->text);
}

static sl_counter *counter(struct fixture *f, const char *name, const struct sl_metric_label *labels, size_t n)
{
	sl_counter *c = NULL;
	struct sl_err err = SL_ERR_INIT;
	if (sl_metrics_counter(f->m, name, "Some help.", labels, n, &c, &err) != 0)
		fail_msg("%s", err.msg);
	return c;
}

static sl_gauge *gauge(struct fixture *f, const char *name)
{
	sl_gauge *g = NULL;
	assert_int_equal(sl_metrics_gauge(f->m, name, "Some help.", NULL, 0, &g, NULL), 0);
	return g;
}

static void an_empty_registry_renders_nothing(void **state)
{
	assert_string_equal(render(*state), "");
}

static void counters_and_gauges_render_sorted_with_help_and_type_once(void **state)
{
	struct fixture *f = *state;
	const struct sl_metric_label ok[] = {{"result", "ok"}, {"part", "wal"}};
	const struct sl_metric_label bad[] = {{"part", "wal"}, {"result", "error"}};
	sl_counter_add(counter(f, "sluice_sends_total", ok, 2), 3);
	sl_counter_add(counter(f, "sluice_sends_total", bad, 2), 1);
	sl_counter_add(counter(f, "sluice_appends_total", NULL, 0), UINT64_MAX);
	sl_gauge_set(gauge(f, "sluice_queue_items"), -2.5);
	assert_string_equal(render(f), "# HELP sluice_appends_total Some help.\n"
				       "# TYPE sluice_appends_total counter\n"
				       "sluice_appends_total 18446744073709551615\n"
				       "# HELP sluice_queue_items Some help.\n"
				       "# TYPE sluice_queue_items gauge\n"
				       "sluice_queue_items -2.5\n"
				       "# HELP sluice_sends_total Some help.\n"
				       "# TYPE sluice_sends_total counter\n"
				       "sluice_sends_total{part=\"wal\",result=\"error\"} 1\n"
				       "sluice_sends_total{part=\"wal\",result=\"ok\"} 3\n");
}

static void a_histogram_of_counts_renders_cumulative_exact_buckets(void **state)
{
	struct fixture *f = *state;
	sl_histogram *h = NULL;
	const struct sl_metric_label label = {"part", "wal"};
	assert_int_equal(sl_metrics_histogram(f->m, "sluice_batch_records", "Records per batch.", &label, 1,
					      SL_UNIT_COUNT, &h, NULL),
			 0);
	static const uint64_t values[] = {0, 1, 2, 3, 4, 5, 1024, 1025, 65536, 65537, 1000000};
	for (size_t i = 0; i < SL_COUNT(values); i++)
		sl_histogram_observe(h, values[i]);
	assert_string_equal(render(f), "# HELP sluice_batch_records Records per batch.\n"
				       "# TYPE sluice_batch_records histogram\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"1\"} 2\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"2\"} 3\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"4\"} 5\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"8\"} 6\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"16\"} 6\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"32\"} 6\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"64\"} 6\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"128\"} 6\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"256\"} 6\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"512\"} 6\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"1024\"} 7\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"2048\"} 8\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"4096\"} 8\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"8192\"} 8\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"16384\"} 8\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"32768\"} 8\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"65536\"} 9\n"
				       "sluice_batch_records_bucket{part=\"wal\",le=\"+Inf\"} 11\n"
				       "sluice_batch_records_sum{part=\"wal\"} 1133137\n"
				       "sluice_batch_records_count{part=\"wal\"} 11\n");
	assert_int_equal(sl_histogram_count(h), 11);
	assert_int_equal(sl_histogram_sum(h), 1133137);
	assert_int_equal(sl_histogram_quantile(h, 0.5), 5);
}

static void nanoseconds_render_as_exact_seconds(void **state)
{
	struct fixture *f = *state;
	sl_histogram *h = NULL;
	assert_int_equal(sl_metrics_histogram(f->m, "sluice_flush_seconds", "Time of a flush.", NULL, 0,
					      SL_UNIT_NANOSECONDS, &h, NULL),
			 0);
	sl_histogram_observe(h, 1024);
	sl_histogram_observe(h, 1025);
	sl_histogram_observe(h, 73000000);
	sl_histogram_observe(h, 100000000000);
	assert_string_equal(render(f), "# HELP sluice_flush_seconds Time of a flush.\n"
				       "# TYPE sluice_flush_seconds histogram\n"
				       "sluice_flush_seconds_bucket{le=\"0.000001024\"} 1\n"
				       "sluice_flush_seconds_bucket{le=\"0.000004096\"} 2\n"
				       "sluice_flush_seconds_bucket{le=\"0.000016384\"} 2\n"
				       "sluice_flush_seconds_bucket{le=\"0.000065536\"} 2\n"
				       "sluice_flush_seconds_bucket{le=\"0.000262144\"} 2\n"
				       "sluice_flush_seconds_bucket{le=\"0.001048576\"} 2\n"
				       "sluice_flush_seconds_bucket{le=\"0.004194304\"} 2\n"
				       "sluice_flush_seconds_bucket{le=\"0.016777216\"} 2\n"
				       "sluice_flush_seconds_bucket{le=\"0.067108864\"} 2\n"
				       "sluice_flush_seconds_bucket{le=\"0.268435456\"} 3\n"
				       "sluice_flush_seconds_bucket{le=\"1.073741824\"} 3\n"
				       "sluice_flush_seconds_bucket{le=\"4.294967296\"} 3\n"
				       "sluice_flush_seconds_bucket{le=\"17.179869184\"} 3\n"
				       "sluice_flush_seconds_bucket{le=\"68.719476736\"} 3\n"
				       "sluice_flush_seconds_bucket{le=\"+Inf\"} 4\n"
				       "sluice_flush_seconds_sum 100.073002049\n"
				       "sluice_flush_seconds_count 4\n");
	sl_histogram_observe(h, 926997951);
	assert_non_null(strstr(render(f), "_sum 101\n"));
	sl_histogram_observe(h, 1050000000);
	assert_non_null(strstr(render(f), "_sum 102.05\n"));
}

static void bytes_have_buckets_by_powers_of_four(void **state)
{
	struct fixture *f = *state;
	sl_histogram *h = NULL;
	assert_int_equal(sl_metrics_histogram(f->m, "sluice_record_bytes", "Sizes.", NULL, 0, SL_UNIT_BYTES, &h, NULL),
			 0);
	sl_histogram_observe(h, 256);
	assert_non_null(strstr(render(f), "le=\"64\"} 0\nsluice_record_bytes_bucket{le=\"256\"} 1\n"));
	assert_non_null(strstr(render(f), "le=\"1073741824\"} 1\nsluice_record_bytes_bucket{le=\"+Inf\"} 1\n"));
}

static void help_and_label_values_are_escaped(void **state)
{
	struct fixture *f = *state;
	sl_counter *c = NULL;
	const struct sl_metric_label label = {"path", "a\\b\"c\nd ü"};
	assert_int_equal(sl_metrics_counter(f->m, "x_total", "One \"two\"\nthree \\ ü.", &label, 1, &c, NULL), 0);
	assert_string_equal(render(f), "# HELP x_total One \"two\"\\nthree \\\\ ü.\n"
				       "# TYPE x_total counter\n"
				       "x_total{path=\"a\\\\b\\\"c\\nd ü\"} 0\n");
}

static void numbers_of_gauges_read_back_as_they_were_set(void **state)
{
	struct fixture *f = *state;
	sl_gauge *g = gauge(f, "g");
	static const double values[] = {0, 1, -1, 0.1, 1.0 / 3, 1e300, 5e-324, 123456789012345680.0, 2.5e-7};
	for (size_t i = 0; i < SL_COUNT(values); i++) {
		sl_gauge_set(g, values[i]);
		assert_true(strtod(strrchr(render(f), ' '), NULL) == values[i]);
	}
	sl_gauge_set(g, 0.1);
	assert_non_null(strstr(render(f), "\ng 0.1\n"));
	sl_gauge_set(g, (double)NAN);
	assert_non_null(strstr(render(f), "\ng NaN\n"));
	sl_gauge_set(g, -(double)INFINITY);
	assert_non_null(strstr(render(f), "\ng -Inf\n"));
	sl_gauge_set(g, 10);
	sl_gauge_add(g, -2.5);
	assert_true(sl_gauge_value(g) == 7.5);
}

static void a_locale_with_a_comma_does_not_change_a_number(void **state)
{
	struct fixture *f = *state;
	static const char *const rows[][2] = {{"2,5", "2.5"},
					      {"-1\xD9\xAB"
					       "25e-07",
					       "-1.25e-07"},
					      {"12", "12"},
					      {"1.5e+300", "1.5e+300"},
					      {"0,1", "0.1"}};
	for (size_t i = 0; i < SL_COUNT(rows); i++) {
		sl__buf_clear(&f->text);
		sl__metric_plain_number(&f->text, rows[i][0]);
		assert_string_equal(sl__buf_str(&f->text), rows[i][1]);
	}
}

static void the_same_name_and_labels_give_the_same_handle(void **state)
{
	struct fixture *f = *state;
	const struct sl_metric_label ab[] = {{"a", "1"}, {"b", "2"}}, ba[] = {{"b", "2"}, {"a", "1"}};
	const struct sl_metric_label other[] = {{"a", "1"}, {"b", "3"}};
	sl_counter *c = counter(f, "x_total", ab, 2);
	assert_ptr_equal(counter(f, "x_total", ba, 2), c);
	assert_ptr_not_equal(counter(f, "x_total", other, 2), c);
	assert_ptr_not_equal(counter(f, "y_total", ab, 2), c);
}

static void refused(struct fixture *f, int kind, const char *name, const char *help, enum sl_metric_unit unit,
		    const struct sl_metric_label *labels, size_t n)
{
	struct sl_err err = SL_ERR_INIT;
	void *const untouched = &err;
	sl_counter *c = untouched;
	sl_gauge *g = untouched;
	sl_histogram *h = untouched;
	int rc = kind == 'c'   ? sl_metrics_counter(f->m, name, help, labels, n, &c, &err)
		 : kind == 'g' ? sl_metrics_gauge(f->m, name, help, labels, n, &g, &err)
			       : sl_metrics_histogram(f->m, name, help, labels, n, unit, &h, &err);
	if (rc != SL_EINVAL)
		fail_msg("%s was not refused", name != NULL ? name : "NULL");
	assert_int_equal(err.code, SL_EINVAL);
	assert_true(err.msg[0] != '\0');
	assert_true(c == untouched && g == untouched && h == untouched);
}

static void the_same_name_with_another_meaning_is_refused(void **state)
{
	struct fixture *f = *state;
	const struct sl_metric_label label = {"a", "1"}, other = {"b", "1"};
	sl_histogram *h = NULL;
	(void)counter(f, "x_total", &label, 1);
	(void)gauge(f, "items");
	assert_int_equal(sl_metrics_histogram(f->m, "n", "Some help.", NULL, 0, SL_UNIT_COUNT, &h, NULL), 0);
	refused(f, 'c', "x_total", "Other help.", 0, &label, 1);
	refused(f, 'c', "x_total", "Some help.", 0, &other, 1);
	refused(f, 'c', "x_total", "Some help.", 0, NULL, 0);
	refused(f, 'h', "items", "Some help.", SL_UNIT_COUNT, NULL, 0);
	refused(f, 'g', "n", "Some help.", 0, NULL, 0);
}

static void unconventional_names_are_refused(void **state)
{
	struct fixture *f = *state;
	static const char *const gauges[] = {NULL,   "",          "1x",      "a-b",           "a b",      "ü",
					     "a:b",  "x_total",   "x_count", "x_sum",         "x_bucket", "x_ms",
					     "x_ns", "x_percent", "x_mib",   "x_milliseconds"};
	for (size_t i = 0; i < SL_COUNT(gauges); i++)
		refused(f, 'g', gauges[i], "Help.", 0, NULL, 0);
	refused(f, 'c', "appends", "Help.", 0, NULL, 0);
	refused(f, 'c', "busy_ms_total", "Help.", 0, NULL, 0);
	refused(f, 'c', "_total", "Help.", 0, NULL, 0);
	refused(f, 'c', "x_total", "", 0, NULL, 0);
	refused(f, 'c', "x_total", NULL, 0, NULL, 0);
	refused(f, 'c', "x_total", "bad \xFF", 0, NULL, 0);
	refused(f, 'h', "wait", "Help.", SL_UNIT_NANOSECONDS, NULL, 0);
	refused(f, 'h', "wait_bytes", "Help.", SL_UNIT_NANOSECONDS, NULL, 0);
	refused(f, 'h', "size_seconds", "Help.", SL_UNIT_BYTES, NULL, 0);
	refused(f, 'h', "size_bytes", "Help.", SL_UNIT_COUNT, NULL, 0);
	refused(f, 'h', "records", "Help.", (enum sl_metric_unit)0, NULL, 0);
	refused(f, 'h', "records", "Help.", (enum sl_metric_unit)4, NULL, 0);
	assert_string_equal(render(f), "");
}

static void bad_labels_are_refused(void **state)
{
	struct fixture *f = *state;
	char longest[130];
	memset(longest, 'x', sizeof(longest) - 1);
	longest[129] = '\0';
	const struct sl_metric_label bad[] = {{NULL, "v"},   {"", "v"},     {"1a", "v"},       {"a-b", "v"},
					      {"__a", "v"},  {"le", "v"},   {"quantile", "v"}, {"a", NULL},
					      {"a", "\xFF"}, {"a", longest}};
	for (size_t i = 0; i < SL_COUNT(bad); i++)
		refused(f, 'c', "x_total", "Help.", 0, &bad[i], 1);
	const struct sl_metric_label twice[] = {{"a", "1"}, {"b", "1"}, {"a", "2"}};
	refused(f, 'c', "x_total", "Help.", 0, twice, 3);
	refused(f, 'c', "x_total", "Help.", 0, NULL, 1);
	const struct sl_metric_label nine[] = {{"a", "1"}, {"b", "1"}, {"c", "1"}, {"d", "1"}, {"e", "1"},
					       {"f", "1"}, {"g", "1"}, {"h", "1"}, {"i", "1"}};
	refused(f, 'c', "x_total", "Help.", 0, nine, 9);
	(void)counter(f, "x_total", nine, 8);
}

static int add_numbered(struct fixture *f, const char *name, int i, struct sl_err *err)
{
	char id[16];
	sl_counter *c = NULL;
	(void)snprintf(id, sizeof(id), "%d", i);
	const struct sl_metric_label label = {"id", id};
	return sl_metrics_counter(f->m, name, "Some help.", &label, 1, &c, err);
}

static void an_id_used_as_a_label_fails_at_the_bound(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	for (int i = 0; i < SL_METRIC_MAX_SERIES; i++)
		assert_int_equal(add_numbered(f, "x_total", i, NULL), 0);
	assert_int_equal(add_numbered(f, "x_total", SL_METRIC_MAX_SERIES, &err), SL_EFULL);
	assert_non_null(strstr(err.msg, "x_total"));
	assert_int_equal(add_numbered(f, "x_total", 7, NULL), 0); /* known ones stay within reach */
	assert_int_equal(add_numbered(f, "y_total", 0, NULL), 0); /* and other families */

	assert_int_equal(sl_metrics_set_max_series(f->m, 0, NULL), SL_EINVAL);
	assert_int_equal(sl_metrics_set_max_series(f->m, SL_METRIC_MAX_SERIES + 1, NULL), 0);
	assert_int_equal(add_numbered(f, "x_total", SL_METRIC_MAX_SERIES, NULL), 0);
	assert_int_equal(add_numbered(f, "x_total", SL_METRIC_MAX_SERIES + 1, NULL), SL_EFULL);
}

static void metrics_are_optional_everywhere(void **state)
{
	(void)state;
	sl_counter *c = (void *)&state;
	sl_gauge *g = (void *)&state;
	sl_histogram *h = (void *)&state;
	assert_int_equal(sl_metrics_counter(NULL, "x_total", "H.", NULL, 0, &c, NULL), 0);
	assert_int_equal(sl_metrics_gauge(NULL, "x", "H.", NULL, 0, &g, NULL), 0);
	assert_int_equal(sl_metrics_histogram(NULL, "x", "H.", NULL, 0, SL_UNIT_COUNT, &h, NULL), 0);
	assert_true(c == NULL && g == NULL && h == NULL);
	sl_counter_add(c, 1);
	sl_gauge_set(g, 1);
	sl_gauge_add(g, 1);
	sl_histogram_observe(h, 1);
	assert_int_equal(sl_counter_value(c), 0);
	assert_true(sl_gauge_value(g) == 0);
	assert_int_equal(sl_histogram_count(h) + sl_histogram_sum(h) + sl_histogram_quantile(h, 0.5), 0);
	assert_int_equal(sl_gauge_attach(g, NULL, NULL, NULL), 0);
	sl_gauge_detach(g, NULL, NULL);
	assert_int_equal(sl_metrics_render(NULL, NULL, NULL, NULL), 0);
	assert_int_equal(sl_metrics_set_max_series(NULL, 5, NULL), 0);
	sl_metrics_free(NULL);
}

static double read_number(void *ctx)
{
	const double *number = ctx;
	return *number;
}

static void attached_functions_are_read_when_rendering_and_add_up(void **state)
{
	struct fixture *f = *state;
	sl_gauge *g = gauge(f, "items");
	double one = 1, two = 2;
	assert_int_equal(sl_gauge_attach(g, read_number, &one, NULL), 0);
	assert_int_equal(sl_gauge_attach(g, read_number, &two, NULL), 0);
	assert_int_equal(sl_gauge_attach(g, read_number, &one, NULL), SL_EEXIST);
	sl_gauge_set(g, 10);
	assert_non_null(strstr(render(f), "\nitems 13\n"));
	one = 5;
	assert_non_null(strstr(render(f), "\nitems 17\n"));
	sl_gauge_detach(g, read_number, &one);
	sl_gauge_detach(g, read_number, &one); /* gone already */
	assert_non_null(strstr(render(f), "\nitems 12\n"));
	assert_true(sl_gauge_value(g) == 12);
}

static int refuse_text(const char *data, size_t n, void *ctx)
{
	(void)data;
	*(size_t *)ctx = n;
	return SL_EIO;
}

static void a_writer_that_fails_ends_the_rendering_with_its_code(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	size_t n = 0;
	(void)gauge(f, "items");
	assert_int_equal(sl_metrics_render(f->m, refuse_text, &n, &err), SL_EIO);
	assert_int_equal(err.code, SL_EIO);
	assert_int_equal(n, strlen(render(f)));
}

/* Everything that allocates, in one go. */
static int use_all(sl_metrics *m, double *number, struct sl__buf *text)
{
	const struct sl_metric_label label = {"a", "1"};
	sl_counter *c = NULL;
	sl_gauge *g = NULL;
	sl_histogram *h = NULL;
	int rc = sl_metrics_counter(m, "x_total", "Help.", &label, 1, &c, NULL);
	if (rc == 0)
		rc = sl_metrics_gauge(m, "items", "Help.", NULL, 0, &g, NULL);
	if (rc == 0)
		rc = sl_gauge_attach(g, read_number, number, NULL);
	if (rc == 0)
		rc = sl_metrics_histogram(m, "n", "Help.", &label, 1, SL_UNIT_COUNT, &h, NULL);
	if (rc == 0)
		rc = sl_metrics_render(m, collect, text, NULL);
	return rc;
}

static void every_allocation_may_fail_and_the_next_try_succeeds(void **state)
{
	(void)state;
	double number = 1;
	int n = 1;
	for (;; n++) {
		struct fail_mem mem = {.fail_at = n};
		const struct sl_env env = {SL_ENV_INIT, .mem = &fail_mem_table, .mem_ctx = &mem};
		struct sl_env real;
		struct sl__buf text;
		assert_int_equal(sl__env_init(&real, NULL, NULL), 0);
		sl__buf_init(&text, &real);
		sl_metrics *m = NULL;
		int rc = sl_metrics_new(&m, &env, NULL);
		if (rc == 0)
			rc = use_all(m, &number, &text);
		bool injected = mem.calls >= n;
		assert_int_equal(rc, injected ? SL_ENOMEM : 0);
		if (injected && m != NULL) {
			int again = use_all(m, &number, &text);
			assert_true(again == 0 || again == SL_EEXIST); /* the function may be attached already */
		}
		sl_metrics_free(m);
		sl__buf_fini(&text);
		assert_int_equal(mem.held, 0);
		if (!injected)
			break;
	}
	printf("# %d allocations, each failed once\n", n - 1);
	assert_true(n > 10);
}

static void a_forked_child_is_refused_instead_of_waiting_for_a_lost_lock(void **state)
{
	struct fixture *f = *state;
	sl_gauge *g = gauge(f, "items");
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		sl_counter *c = NULL;
		int ok = sl_metrics_counter(f->m, "x_total", "Help.", NULL, 0, &c, NULL) == SL_EFORKED &&
			 sl_metrics_render(f->m, collect, &f->text, NULL) == SL_EFORKED &&
			 sl_metrics_set_max_series(f->m, 5, NULL) == SL_EFORKED &&
			 sl_gauge_attach(g, read_number, f, NULL) == SL_EFORKED;
		sl_gauge_detach(g, read_number, f);
		_exit(ok ? 0 : 1);
	}
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, make, drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_empty_registry_renders_nothing),
		CASE(counters_and_gauges_render_sorted_with_help_and_type_once),
		CASE(a_histogram_of_counts_renders_cumulative_exact_buckets),
		CASE(nanoseconds_render_as_exact_seconds),
		CASE(bytes_have_buckets_by_powers_of_four),
		CASE(help_and_label_values_are_escaped),
		CASE(numbers_of_gauges_read_back_as_they_were_set),
		CASE(a_locale_with_a_comma_does_not_change_a_number),
		CASE(the_same_name_and_labels_give_the_same_handle),
		CASE(the_same_name_with_another_meaning_is_refused),
		CASE(unconventional_names_are_refused),
		CASE(bad_labels_are_refused),
		CASE(an_id_used_as_a_label_fails_at_the_bound),
		CASE(metrics_are_optional_everywhere),
		CASE(attached_functions_are_read_when_rendering_and_add_up),
		CASE(a_writer_that_fails_ends_the_rendering_with_its_code),
		CASE(every_allocation_may_fail_and_the_next_try_succeeds),
		CASE(a_forked_child_is_refused_instead_of_waiting_for_a_lost_lock),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
