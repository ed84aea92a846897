/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table for people: a heading, columns as wide as what is in them, and on a terminal no line wider than it is: long
 * texts are cut there, with "…" at the end. In pipes and files nothing is cut. Without a row nothing is printed.
 *
 * Up to TABLE_ROWS rows wait for their widths to be known; after that, columns only get wider. Cells may hold anything:
 * what could move a cursor is escaped.
 *
 * Thread safety: none; the main thread prints. Ownership: table_end frees what the table holds.
 */
#ifndef SLUICE_CLI_TABLE_H
#define SLUICE_CLI_TABLE_H

#include "out.h"

enum { TABLE_ROWS = 1000, TABLE_COLUMNS = 12 };

struct table_column {
	const char *title;
	enum { TABLE_LEFT, TABLE_RIGHT, TABLE_TEXT } kind; /* TEXT: to the left, and may be cut on a terminal */
};

struct table {
	struct out *out;
	const struct table_column *columns;
	size_t n_columns, n_cells; /* cells that wait */
	size_t width[TABLE_COLUMNS];
	bool headed;
	char *cells; /* texts, each with its NUL */
	size_t used, size;
};

/* n_columns: at most TABLE_COLUMNS. Without memory the output fails, as out.h has it. */
void table_begin(struct table *t, struct out *out, const struct table_column *columns, size_t n_columns);
/* The next cell; the last column's ends the row. */
void table_cell(struct table *t, const char *fmt, ...) SL_PRINTF(2, 3);
/* Print what waits. */
void table_end(struct table *t);

#endif
