/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a YAML file whose problems are all reported, each with its line and column. (libcyaml 1.3 stops at the first
 * problem, and places an unknown name at the line before it.)
 *
 * Thread safety: none. Ownership: nodes live until srv_yaml_read returns.
 */
#ifndef SLUICE_SERVER_CONFIG_YAML_H
#define SLUICE_SERVER_CONFIG_YAML_H

#include "base/base.h"
#include "server/config/config.h"

#include <yaml.h>

struct srv_yaml {
	srv_problem_fn *fn;
	void *ctx;
	int (*take)(const yaml_node_t *root, void *ctx); /* gets the root node; NULL: an empty file */
	void *take_ctx;
	int n_problems;
	yaml_document_t doc; /* while the callback runs */
};

/* Load the file and call take. Syntax errors are reported as problems. Returns what take returns, SL_ENOMEM, or the
 * error of reading the file. */
int srv_yaml_read(struct srv_yaml *y, const char *path, struct sl_err *err);
/* Report a problem; at: NULL for the file as a whole. */
void srv_yaml_problem(struct srv_yaml *y, const yaml_mark_t *at, const char *fmt, ...) SL_PRINTF(3, 4);
/* The same for a word that is not one of n: "unknown WHAT 'colunm'; did you mean 'column'?". */
void srv_yaml_unknown(struct srv_yaml *y, const yaml_node_t *word, const char *what, const char *const *words,
		      size_t n);

static inline const yaml_node_t *srv_yaml_node(struct srv_yaml *y, int index)
{
	return yaml_document_get_node(&y->doc, index);
}
/* The text of a scalar; NULL for a list or a mapping. */
static inline const char *srv_yaml_text(const yaml_node_t *node)
{
	return node != NULL && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

#endif
