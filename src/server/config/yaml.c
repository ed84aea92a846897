/* SPDX-License-Identifier: Apache-2.0 */
/* One reader of YAML files, for settings and for the columns of an export. See yaml.h. */
#include "server/config/yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void srv_yaml_problem(struct srv_yaml *y, const yaml_mark_t *at, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	y->n_problems++;
	y->fn(at != NULL ? at->line + 1 : 0, at != NULL ? at->column + 1 : 0, text, y->ctx);
}

void srv_yaml_unknown(struct srv_yaml *y, const yaml_node_t *word, const char *what, const char *const *words, size_t n)
{
	const char *text = srv_yaml_text(word), *nearest = srv_nearest(text, words, n);
	if (nearest != NULL)
		srv_yaml_problem(y, &word->start_mark, "unknown %s '%.60s'; did you mean '%s'?", what, text, nearest);
	else
		srv_yaml_problem(y, &word->start_mark, "unknown %s '%.60s'", what, text);
}

int srv_yaml_read(struct srv_yaml *y, const char *path, struct sl_err *err)
{
	yaml_parser_t parser;
	int rc = 0;
	/* A file that cannot be read, such as a folder, fails here, before the parser reports an "input error". */
	FILE *file = fopen(path, "rbe");
	int c = file != NULL ? getc(file) : EOF;
	if (file == NULL || (c == EOF && ferror(file))) {
		rc = sl_err_set_errno(err, errno, "%s %s", file != NULL ? "read" : "open", path);
		if (file != NULL)
			(void)fclose(file);
		return rc;
	}
	(void)ungetc(c, file); /* does nothing at the end of the file */
	if (!yaml_parser_initialize(&parser)) {
		(void)fclose(file);
		return sl__no_memory(err, path);
	}
	yaml_parser_set_input_file(&parser, file);
	if (yaml_parser_load(&parser, &y->doc)) {
		rc = y->take(yaml_document_get_root_node(&y->doc), y->take_ctx);
		yaml_document_delete(&y->doc);
	} else { /* the parser's own words, with the place where it gave up */
		srv_yaml_problem(y, parser.error == YAML_READER_ERROR ? NULL : &parser.problem_mark, "%s%s%s",
				 parser.context != NULL ? parser.context : "", parser.context != NULL ? ": " : "",
				 parser.problem != NULL ? parser.problem : "not YAML");
	}
	yaml_parser_delete(&parser);
	(void)fclose(file);
	return rc;
}
