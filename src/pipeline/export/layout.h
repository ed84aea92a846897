/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the fields of a record lie to the columns of the schema, and which of them counts.
 *
 * Thread safety: read by any thread once it is made. Ownership: names are borrowed from the schema or owned.
 */
#ifndef SL_PIPELINE_EXPORT_LAYOUT_H
#define SL_PIPELINE_EXPORT_LAYOUT_H

#include "pipeline/export/schema.h"

struct sl__layout {
	const struct sl_env *env;
	bool csv;
	char delimiter;
	char **names; /* of the fields, in the order of a record (JSON: of the schema) */
	size_t n_names;
	size_t *of_field;       /* of each column of the schema: its field, or SIZE_MAX */
	size_t sequence_field;  /* the field that counts */
	size_t sequence_column; /* its column */
	size_t max_record_bytes;
};

struct sl__layout_opts {
	const struct sl_env *env;
	bool csv;
	char delimiter;
	const char *const *names; /* of the fields of the input; NULL: the schema's, in its order */
	size_t n_names;
	const struct sl__schema *schema;
	const char *sequence;
	size_t max_record_bytes;
};

/* SL_EDATA: a field without a column, a required column without a field; SL_EINVAL: the sequence is not a column of
 * integers. */
SL_MUST_CHECK int sl__layout_init(struct sl__layout *out, const struct sl__layout_opts *opts, struct sl_err *err);
void sl__layout_fini(struct sl__layout *l); /* also of a zeroed one */

/* The number of a record. NULL, or why it cannot be read (a constant string). scratch is cleared. */
const char *sl__layout_sequence(const struct sl__layout *l, const char *text, size_t len, struct sl__buf *scratch,
				uint64_t *out);

#endif
