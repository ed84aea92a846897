/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file, which is mapped and cut by guesses, against a pipe, which is read record by record: over small inputs with
 * everything that misleads a guess, and a resume after every row of them, both must leave the same, with the same code
 * and the same message, run after run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <inttypes.h>
#include <unistd.h>

#include "base/base.h"
#include "base/env.h"
#include "export_place.h"

#define INPUTS 24
#define ROWS 9

static const struct sl_parquet_column columns[] = {
	{.name = "n", .kind = SL_PARQUET_INT64},
	{.name = "name", .kind = SL_PARQUET_STRING, .nullable = true},
	{.name = "amount", .kind = SL_PARQUET_INT64, .nullable = true},
};

static int open_places(void **state)
{
	struct place *two = calloc(2, sizeof(*two));
	place_open(&two[0]);
	place_open(&two[1]);
	*state = two;
	return 0;
}

static int close_places(void **state)
{
	struct place *two = *state;
	place_close(&two[0]);
	place_close(&two[1]);
	free(two);
	return 0;
}

/* ---- inputs ---- */

struct input {
	char text[1 << 13];
	size_t len;
	size_t begins[ROWS + 1]; /* of the rows; after the last */
};

static bool sometimes(struct sl__prng *prng, unsigned in)
{
	return sl__prng_next(prng) % in == 0;
}

static void put(struct input *in, const char *text)
{
	size_t n = strlen(text);
	assert_true(in->len + n < sizeof(in->text));
	memcpy(in->text + in->len, text, n + 1);
	in->len += n;
}

/* A row of this form: @ is its number, # some other. */
static void put_form(struct input *in, const char *form, uint64_t number, uint64_t other)
{
	for (; *form != '\0'; form++) {
		char piece[24] = {*form};
		if (*form == '@' || *form == '#')
			(void)snprintf(piece, sizeof(piece), "%" PRIu64, *form == '@' ? number : other);
		put(in, piece);
	}
}

static void put_row(struct input *in, struct sl__prng *prng, bool csv, uint64_t number)
{
	static const char *const csv_rows[] = {"@,plain,1\n", "@,\"two lines\n#,and more\",2\n",
					       "@,\"one\n\n#,two,3\n\"\"@,x\",3\n", "\"@\",\"a,b\",\r\n", "@,,\n\n"};
	static const char *const json_rows[] = {"{\"n\":@,\"name\":\"plain\",\"amount\":1}\n",
						"{\"name\":\"{\\\"n\\\":#}\",\"n\":@}\n", "{\"n\":\"@\"}\r\n",
						" {\"n\":@}\n  \n", "{\"n\":@,\"amount\":null}\n"};
	const char *form = (csv ? csv_rows : json_rows)[sometimes(prng, 2) ? 0 : sl__prng_next(prng) % 5];
	put_form(in, form, number, sl__prng_next(prng) % 12);
}

/* Numbers that rise, or now and then do not. */
static uint64_t next_number(struct sl__prng *prng, uint64_t number, bool odd)
{
	if (!odd || !sometimes(prng, 6))
		return number + 1;
	return sl__prng_next(prng) % (number + 3);
}

static void make(struct input *in, struct sl__prng *prng, bool csv)
{
	static const char *const bad_rows[] = {"x,bad,1\n", "3,bad,x\n", "7,\"bad\"x,1\n", "{\"n\":\n",
					       "{\"n\":3,\"amount\":\"x\"}\n"};
	bool odd = sometimes(prng, 2);
	uint64_t number = sl__prng_next(prng) % 4;
	in->len = 0;
	put(in, csv ? "n,name,amount\n" : "");
	for (size_t i = 0; i < ROWS; i++) {
		in->begins[i] = in->len;
		if (i > 0 && sometimes(prng, 25))
			put(in, bad_rows[sl__prng_next(prng) % SL_COUNT(bad_rows)]);
		else
			put_row(in, prng, csv, number);
		number = next_number(prng, number, odd);
	}
	in->begins[ROWS] = in->len;
	if (sometimes(prng, 3)) /* torn */
		in->len -= sl__prng_next(prng) % (in->len - in->begins[ROWS - 1]);
	in->begins[ROWS] = in->len;
}

/* ---- runs ---- */

static int run_file(struct place *p, struct sl_export_opts *opts, const char *name, const char *text, size_t n,
		    struct sl_err *err)
{
	struct sl_export_result result;
	place_write(p, name, text, n);
	return place_run(opts, &result, err);
}

/* What fits into a pipe can be written before it is read. The last line of a file may lack its end; that of a pipe is
 * cut off then, so it gets one. */
static int run_pipe(struct sl_export_opts *opts, const char *text, size_t n, struct sl_err *err)
{
	struct sl_export_result result;
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], text, n), n);
	if (n > 0 && text[n - 1] != '\n')
		assert_int_equal(write(fds[1], "\n", 1), 1);
	close(fds[1]);
	opts->from = "-";
	opts->fd = fds[0];
	int rc = place_run(opts, &result, err);
	close(fds[0]);
	return rc;
}

/* A message without the input's name, which it begins with. */
static const char *place_of(const struct sl_err *err)
{
	const char *behind = strstr(err->msg, ": ");
	return behind != NULL ? behind : err->msg;
}

/* What is committed. Files may lie next to it: a worker that was faster than a wrong guess before it. */
static char *committed(const struct place *p)
{
	char *all = place_show(p), *from = strstr(all, "partition 0 ");
	char *out = strdup(from != NULL ? from : "");
	free(all);
	return out;
}

struct case_of {
	struct place *file, *pipe;
	const struct input *in;
	bool csv, divert;
	unsigned number;
	size_t cut; /* rows of the first run */
};

static void both(const struct case_of *c, size_t n, const char *when)
{
	struct sl_err of_file = SL_ERR_INIT, of_pipe = SL_ERR_INIT;
	const char *name = c->csv ? "in.csv" : "in.jsonl";
	(void)snprintf(c->file->input, sizeof(c->file->input), "%s/%s", c->file->dir, name);
	struct sl_export_opts file = place_opts(c->file, 2), pipe = place_opts(c->pipe, 2);
	file.columns = pipe.columns = columns;
	file.n_columns = pipe.n_columns = SL_COUNT(columns);
	file.bad_rows = pipe.bad_rows = c->divert ? SL_EXPORT_BAD_ROWS_DIVERT : SL_EXPORT_BAD_ROWS_STOP;
	pipe.format = c->csv ? SL_EXPORT_CSV : SL_EXPORT_JSON_LINES;
	int is = run_file(c->file, &file, name, c->in->text, n, &of_file);
	int must_be = run_pipe(&pipe, c->in->text, n, &of_pipe);
	char *has = committed(c->file), *wanted = committed(c->pipe);
	if (is != must_be || strcmp(has, wanted) != 0 ||
	    (is != 0 && strcmp(place_of(&of_file), place_of(&of_pipe)) != 0))
		fail_msg("%.*s\ninput %u, %zu rows first, %s, divert %d: %d %s, and of a pipe: %d %s\n%s\nand of a "
			 "pipe:\n%s",
			 (int)n, c->in->text, c->number, c->cut, when, c->divert, is, is != 0 ? of_file.msg : "",
			 must_be, must_be != 0 ? of_pipe.msg : "", has, wanted);
	free(has);
	free(wanted);
}

static void compare(struct place *two, bool csv)
{
	struct sl__prng prng = {.s = 11};
	struct input in;
	for (unsigned i = 0; i < INPUTS; i++) {
		make(&in, &prng, csv);
		bool divert = sometimes(&prng, 3);
		for (size_t cut = 0; cut <= ROWS; cut++) {
			const struct case_of c = {&two[0], &two[1], &in, csv, divert, i, cut};
			place_clear(&two[0]);
			place_clear(&two[1]);
			if (cut > 0)
				both(&c, in.begins[cut], "the first");
			both(&c, in.len, "then all");
			both(&c, in.len, "once more");
		}
	}
}

static void a_file_of_csv_resumes_as_a_pipe_does(void **state)
{
	compare(*state, true);
}

static void a_file_of_json_lines_resumes_as_a_pipe_does(void **state)
{
	compare(*state, false);
}

/* ---- by name ---- */

static void grow(struct place *p, const char *begin, const char *more, int64_t size, int code, uint64_t checkpoint)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_export_result r;
	place_clear(p);
	place_write(p, "in.csv", begin, strlen(begin));
	struct sl_export_opts opts = place_opts(p, size);
	assert_int_equal(place_run(&opts, &r, &err), 0);
	place_append(p, more);
	for (int again = 0; again < 2; again++) {
		int rc = place_run(&opts, &r, &err);
		if (rc != code)
			fail_msg("%d: %s", rc, err.msg);
		assert_int_equal(r.checkpoint, checkpoint);
	}
}

static void rows_after_the_checkpoint_are_found_whatever_the_last_line_looks_like(void **state)
{
	static const char begin[] = "seq,a\n1,x\n2,y\n3,z\n4,r\n5,q\n";
	grow(*state, begin, "6,n\n7,n\n8,\"two lines\n3, and more\"\n", 2, 0, 8);
	grow(*state, begin, "6,n\n7,n\n8,n\n9,n\n1", 2, SL_EDATA, 9);
	grow(*state, begin, "6,n\n7,n\n1,n\n2,n\n", 2, SL_EDUPLICATE, 7);
}

static void a_step_back_below_the_checkpoint_is_reported_every_time(void **state)
{
	struct place *p = *state;
	static const char text[] = "seq,a\n1,x\n2,y\n3,z\n2,q\n4,r\n";
	struct sl_err err = SL_ERR_INIT;
	struct sl_export_result r;
	place_write(p, "in.csv", text, sizeof(text) - 1);
	struct sl_export_opts opts = place_opts(p, 2);
	for (int again = 0; again < 3; again++) {
		assert_int_equal(place_run(&opts, &r, &err), SL_EDUPLICATE);
		assert_non_null(strstr(err.msg, "line 5"));
		assert_int_equal(r.checkpoint, 3);
	}
}

#define IN_PLACES(test) cmocka_unit_test_setup_teardown(test, open_places, close_places)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_PLACES(rows_after_the_checkpoint_are_found_whatever_the_last_line_looks_like),
		IN_PLACES(a_step_back_below_the_checkpoint_is_reported_every_time),
		IN_PLACES(a_file_of_csv_resumes_as_a_pipe_does),
		IN_PLACES(a_file_of_json_lines_resumes_as_a_pipe_does),
	};
	return cmocka_run_group_tests_name("export, resumes", tests, NULL, NULL);
}
