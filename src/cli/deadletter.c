/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters as text and as JSON. */
#include "deadletter.h"

#include "text.h"

#include <inttypes.h>
#include <sluice/wal_files.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int deadletters_open(struct cli *cli, const char *dir, bool read_only, sl_dlq **q)
{
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .env = &cli->env, .read_only = read_only ? SL_ON : SL_OFF,
				   .max_bytes = SL_UNLIMITED};
	struct sl_err err = SL_ERR_INIT;
	struct stat st;

	/* Checked here, since opening with the rights to write would make the folder. */
	if (stat(dir, &st))
		sl_err_set(&err, SL_ENOENT, "no such folder of dead letters");
	else if (!S_ISDIR(st.st_mode))
		sl_err_set(&err, SL_EDATA, "is a file; give the folder of dead letters");
	if (err.code)
		return cli_fail(cli, &err, dir);
	return sl_dlq_open(q, dir, &opts, &err) ? cli_fail(cli, &err, dir) : 0;
}

int deadletter_view(struct deadletter_view *v, const struct cli *cli, const struct sl_dlq_letter *letter,
		    const char *key_file, struct sl_err *err)
{
	size_t len = 0;
	int rc;

	*v = (struct deadletter_view){.letter = *letter, .opened = letter->encoding == SL_DLQ_PLAIN};
	if (v->opened || key_file == NULL)
		return 0;
	/* Opened into its own memory: the item as stored stays as it is. */
	v->owned = malloc(letter->item_len + 1);
	if (v->owned == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for dead letter %" PRIu64, letter->id);
	rc = sl_wal_open_letter(letter, key_file, &cli->env, v->owned, &len, err);
	if (rc != 0)
		return rc;
	v->opened = true;
	v->letter.item = v->owned;
	v->letter.item_len = len;
	return 0;
}

void deadletter_view_end(struct deadletter_view *v)
{
	free(v->owned);
	v->owned = NULL;
}

void deadletter_json(struct out *out, const struct deadletter_view *view)
{
	const struct sl_dlq_letter *l = &view->letter;
	/* Dead letters of a loaded file are found by their line, those of a log by their sequence. */
	bool has_line = strncmp(l->source, "load:", 5) == 0 && l->position;
	json_t *j = json_pack("{s:I, s:o, s:I, s:o, s:s, s:o, s:s, s:I, s:I, s:I, s:o, s:b, s:b}", "id",
			      (json_int_t)l->id, "source", text_json(l->source), "position", (json_int_t)l->position,
			      "line", has_line ? json_integer((json_int_t)l->position) : json_null(), "class",
			      sl_err_class_name(l->error_class), "error", text_json(l->error), "code",
			      sl_err_name(l->code), "attempts", (json_int_t)l->attempts, "first_failed_ms",
			      (json_int_t)l->first_failed_ms, "last_failed_ms", (json_int_t)l->last_failed_ms, "target",
			      text_json(l->target != NULL ? l->target : ""), "acknowledged", l->acknowledged, "sealed",
			      l->encoding == SL_DLQ_SEALED);
	/* The object without its item, which may be 16 MiB; that follows in pieces. */
	char *text = j != NULL ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	if (text == NULL) {
		out_json(out, NULL); /* counts as a failure of the output */
		return;
	}
	out_write(out, text, strlen(text) - 1); /* without its closing brace: the payload is never copied */
	free(text);
	out_str(out, view->opened ? ",\"payload_b64\":\"" : ",\"payload_b64\":null,\"sealed_b64\":\"");
	out_b64(out, l->item, l->item_len);
	out_str(out, "\"}\n");
}

static void clean(struct out *out, const char *text, size_t max)
{
	char line[4200];

	text_line(line, max < sizeof(line) ? max : sizeof(line), text);
	out_str(out, line);
}

void deadletter_table(struct table *table, struct out *out)
{
	static const struct table_column columns[] = {
		{"ID", TABLE_RIGHT},   {"FAILED", TABLE_LEFT}, {"CLASS", TABLE_LEFT}, {"ATTEMPTS", TABLE_RIGHT},
		{"STATE", TABLE_LEFT}, {"SOURCE", TABLE_TEXT}, {"ERROR", TABLE_TEXT},
	};

	table_begin(table, out, columns, SL_COUNT(columns));
}

void deadletter_row(struct table *table, const struct deadletter_view *view)
{
	const struct sl_dlq_letter *l = &view->letter;
	char when[TEXT_TIME_BYTES];

	table_cell(table, "%" PRIu64, l->id);
	table_cell(table, "%s", text_moment(when, table->out, l->last_failed_ms));
	table_cell(table, "%s", sl_err_class_name(l->error_class));
	table_cell(table, "%" PRIu32, l->attempts);
	table_cell(table, "%s%s%s", l->acknowledged ? "acknowledged" : "",
		   l->acknowledged && l->encoding == SL_DLQ_SEALED ? ", " : "",
		   l->encoding == SL_DLQ_SEALED ? "sealed"
		   : l->acknowledged            ? ""
						: "-");
	if (l->position)
		table_cell(table, "%.256s@%" PRIu64, l->source, l->position);
	else
		table_cell(table, "%.256s", l->source);
	table_cell(table, "%.160s", l->error);
}

static void field(struct out *out, const char *name, const char *text)
{
	out_printf(out, "%-13s ", name);
	clean(out, text, 4200);
	out_str(out, "\n");
}

void deadletter_full(struct out *out, const struct deadletter_view *view)
{
	const struct sl_dlq_letter *l = &view->letter;
	char when[TEXT_TIME_BYTES], size[TEXT_COUNT_BYTES];

	out_printf(out, "%-13s %" PRIu64 "%s\n", "id", l->id, l->acknowledged ? " (acknowledged)" : "");
	field(out, "source", l->source);
	out_printf(out, "%-13s %" PRIu64 "\n", "position", l->position);
	field(out, "error", l->error);
	out_printf(out, "%-13s %s\n", "code", sl_err_name(l->code));
	out_printf(out, "%-13s %s\n", "class", sl_err_class_name(l->error_class));
	out_printf(out, "%-13s %" PRIu32 "\n", "attempts", l->attempts);
	out_printf(out, "%-13s %s\n", "first failed", text_moment(when, out, l->first_failed_ms));
	out_printf(out, "%-13s %s\n", "last failed", text_moment(when, out, l->last_failed_ms));
	field(out, "target", l->target != NULL ? l->target : "");
	out_printf(out, "%-13s %s%s\n", "item", text_count(size, l->item_len, "byte"),
		   !view->opened                  ? ", sealed; open it with the key file of its log (--key-file)"
		   : l->encoding == SL_DLQ_SEALED ? ", sealed in the dead letter"
						  : "");
	/* Sealed bytes say nothing to a person. */
	if (!view->opened)
		return;
	text_quoted(out, l->item, l->item_len, 0);
	out_str(out, "\n");
}
