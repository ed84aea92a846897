/* SPDX-License-Identifier: Apache-2.0 */
/* Tables: rows wait until the widths of their columns are known. */
#include "table.h"

#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { GAP = 2, CELL_BYTES = 4200, LEAST_CUT = 8 };

void table_begin(struct table *t, struct out *out, const struct table_column *columns, size_t n_columns)
{
	*t = (struct table){.out = out, .columns = columns, .n_columns = n_columns};
	for (size_t i = 0; i < n_columns; i++)
		t->width[i] = strlen(columns[i].title);
}

/* Characters, of which each takes one column: the text is valid UTF-8 without controls. */
static size_t n_characters(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xC0) != 0x80;
	return n;
}

/* The widths that are printed: those of the cells, cut down to the terminal's, the widest text first. */
static void fit_terminal(const struct table *t, size_t width[TABLE_COLUMNS])
{
	struct winsize size;
	size_t total = GAP * (t->n_columns - 1);

	memcpy(width, t->width, t->n_columns * sizeof(*width));
	for (size_t i = 0; i < t->n_columns; i++)
		total += width[i];
	if (!isatty(t->out->fd) || ioctl(t->out->fd, TIOCGWINSZ, &size) || size.ws_col == 0)
		return;
	while (total > size.ws_col) {
		size_t widest = t->n_columns;

		for (size_t i = 0; i < t->n_columns; i++) {
			if (t->columns[i].kind == TABLE_TEXT && width[i] > LEAST_CUT &&
			    (widest == t->n_columns || width[i] > width[widest]))
				widest = i;
		}
		if (widest == t->n_columns)
			return; /* the terminal is narrower than numbers and times */
		width[widest]--;
		total--;
	}
}

static void print_cell(const struct table *t, size_t column, const char *text, size_t width)
{
	size_t n = n_characters(text), shown = n;
	int pad;

	if (t->columns[column].kind == TABLE_TEXT && n > width)
		shown = width - 1;
	pad = (int)(width > n ? width - n : 0);
	if (t->columns[column].kind == TABLE_RIGHT)
		out_printf(t->out, "%*s", pad, "");
	if (shown < n) {
		const char *end = text;

		for (size_t k = 0; k < shown; k++)
			for (end++; ((unsigned char)*end & 0xC0) == 0x80;)
				end++;
		out_write(t->out, text, (size_t)(end - text));
		out_str(t->out, "…");
	} else {
		out_str(t->out, text);
	}
	/* Nothing follows the last column. */
	if (column + 1 < t->n_columns)
		out_printf(t->out, "%*s", GAP + (t->columns[column].kind == TABLE_RIGHT ? 0 : pad), "");
	else
		out_str(t->out, "\n");
}

static void print_waiting(struct table *t)
{
	size_t width[TABLE_COLUMNS];
	const char *text = t->cells;

	if (t->n_cells == 0)
		return;
	fit_terminal(t, width);
	for (size_t i = 0; !t->headed && i < t->n_columns; i++)
		print_cell(t, i, t->columns[i].title, width[i]);
	t->headed = true;
	for (size_t i = 0; i < t->n_cells; i++) {
		print_cell(t, i % t->n_columns, text, width[i % t->n_columns]);
		text += strlen(text) + 1;
	}
	t->n_cells = 0;
	t->used = 0;
}

void table_cell(struct table *t, const char *fmt, ...)
{
	char given[CELL_BYTES], clean[CELL_BYTES];
	size_t n, column = t->n_cells % t->n_columns;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(given, sizeof(given), fmt, ap);
	va_end(ap);
	text_line(clean, sizeof(clean), given);
	n = strlen(clean) + 1;
	if (t->used + n > t->size) {
		size_t size = 2 * (t->size + CELL_BYTES);
		char *cells = realloc(t->cells, size);

		if (cells == NULL) {
			t->out->sys_errno = ENOMEM;
			return;
		}
		t->cells = cells;
		t->size = size;
	}
	memcpy(t->cells + t->used, clean, n);
	t->used += n;
	t->n_cells++;
	n = n_characters(clean);
	if (n > t->width[column])
		t->width[column] = n;
	if (t->n_cells == (size_t)TABLE_ROWS * t->n_columns)
		print_waiting(t);
}

void table_end(struct table *t)
{
	print_waiting(t);
	free(t->cells);
	*t = (struct table){.out = NULL};
}
