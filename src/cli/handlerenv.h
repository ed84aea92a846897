/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of the commands of a worker: the worker's own, without what is secret and Sluice's. PGPASSWORD and
 * every SLUICE_… whose name has TOKEN, PASS, SECRET or KEY in it are left out, and SLUICE_STORE loses its password;
 * what is named in pass stays as it is. A command that needs the store can still reach one that asks for no password,
 * or finds it in a password file.
 *
 * Thread safety: none; read once, before threads are started.
 */
#ifndef SLUICE_CLI_HANDLERENV_H
#define SLUICE_CLI_HANDLERENV_H

#include <stddef.h>

/* Keep commands from reading the same secrets in /proc/<worker>: they leave the memory that /proc shows as environ, and
 * the process is no longer dumpable, so that processes of the same user cannot read its memory. getenv still finds
 * them. */
void handlerenv_hide(void);
/* "NAME=value"…, NULL at the end, to be freed with handlerenv_free; NULL without memory. */
char **handlerenv_make(char *const *from, const char *const *pass, size_t n_pass);
void handlerenv_free(char **list);

#endif
