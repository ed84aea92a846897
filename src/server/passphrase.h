/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A passphrase in a file, for the command and the server: all its bytes, without one final line end.
 *
 * Thread safety: no state. Ownership: the bytes are the caller's, who wipes them with explicit_bzero.
 */
#ifndef SLUICE_SERVER_PASSPHRASE_H
#define SLUICE_SERVER_PASSPHRASE_H

#include <sluice/err.h>

#define SRV_PASSPHRASE_BYTES 4096 /* longer than any passphrase that is typed */

/* SL_EKEY: the file is not there, not a regular file (a link, a pipe), open to others, empty or too long. out is
 * wiped then. */
SL_MUST_CHECK int srv_passphrase_read(const char *path, char out[SRV_PASSPHRASE_BYTES], size_t *len,
				      struct sl_err *err);

#endif
