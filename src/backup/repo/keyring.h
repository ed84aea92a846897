/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects keys/<id>, each the master key wrapped by one passphrase, and their copies (backup/repo/twins.h).
 *
 * A copy counts when the first of it is there and damaged, or when keys/ has nothing at all that can be read: so what a
 * change of the passphrase has removed from keys/ opens nothing any more, also when it was interrupted before the copy.
 */
#ifndef SL_BACKUP_KEYRING_H
#define SL_BACKUP_KEYRING_H

#include "backup/repo/twins.h"

#define BK_KEYS "keys"
#define BK_KEY_COPIES BK_COPIES "/" BK_KEYS

/* Is the JSON a valid key? As unwrap, but without a passphrase, and so without opening it. For bk_twin_fn. */
int sl__bk_is_key(struct sl_backup *b, const char *text, size_t len, struct sl_err *err);

/* Put one more, and its copy. id may be NULL. */
SL_MUST_CHECK int sl__bk_keyring_add(struct sl_backup *b, const struct bk_passphrase *p, char id[BK_NAME_HEX],
				     struct sl_err *err);
/* Fill b->keys by the first that the passphrase opens. SL_EKEY: no key opens; SL_ECORRUPT: no key is valid. */
SL_MUST_CHECK int sl__bk_keyring_open(struct sl_backup *b, const struct bk_passphrase *p, struct sl_err *err);
/* A new passphrase, and no other: when 0 returns, no key that was there before it is in keys/, in copies/ or in
 * damaged/. Keys that others add meanwhile stay. */
SL_MUST_CHECK int sl__bk_keyring_replace(struct sl_backup *b, const struct bk_passphrase *p, struct sl_err *err);
/* Best effort, for an init that was not the first. */
void sl__bk_keyring_remove(struct sl_backup *b, const char *id);

/* Report keys that are damaged or there only once, and repair them. What is damaged in both places is moved to damaged/;
 * a copy of a key that was removed is removed. */
SL_MUST_CHECK int sl__bk_keyring_care(struct sl_backup *b, struct bk_care *care, struct sl_err *err);

#endif
