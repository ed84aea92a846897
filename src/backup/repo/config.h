/* SPDX-License-Identifier: Apache-2.0 */
/* The object "config": what a repository is. Read before any key is known, so that it is not sealed but checksummed. */
#ifndef SL_BACKUP_CONFIG_H
#define SL_BACKUP_CONFIG_H

#include "backup/repo/format.h"

#define BK_CONFIG "config"
#define BK_CONFIG_MAX 4096u

struct bk_config {
	uint8_t id[BK_NAME_BYTES];
	bool encrypted;
	struct bk_chunk_sizes chunks;
};

SL_MUST_CHECK int sl__bk_config_text(const struct sl_env *env, const struct bk_config *c, char **text,
				     struct sl_err *err); /* sl__free */
/* SL_ECORRUPT; SL_EUNSUPPORTED: of a later version. */
SL_MUST_CHECK int sl__bk_config_parse(struct bk_config *out, const char *text, size_t len, struct sl_err *err);

struct sl_backup;
struct bk_care;
/* The valid one, config or its copy. SL_ENOENT: there is no repository; SL_ECORRUPT, SL_EUNSUPPORTED. */
SL_MUST_CHECK int sl__bk_config_load(struct sl_backup *b, struct bk_config *out, struct sl_err *err);
/* Make a repository: SL_EEXIST when there is one. */
SL_MUST_CHECK int sl__bk_config_put(struct sl_backup *b, const struct bk_config *config, struct sl_err *err);
/* Report what is wrong with it, and repair it (backup/repo/twins.h). */
SL_MUST_CHECK int sl__bk_config_care(struct sl_backup *b, struct bk_care *care, struct sl_err *err);

#endif
