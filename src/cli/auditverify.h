/* SPDX-License-Identifier: Apache-2.0 */
/* What the audit commands share. Thread safety: no state. */
#ifndef SLUICE_CLI_AUDITVERIFY_H
#define SLUICE_CLI_AUDITVERIFY_H

#include <stddef.h>
#include <stdint.h>

#define AUDIT_HEX_BYTES 65
/* The first n bytes (at most 32) as hexadecimal digits. */
void audit_hex(char to[AUDIT_HEX_BYTES], const uint8_t *bytes, size_t n);

#endif
