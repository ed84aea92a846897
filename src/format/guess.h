/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As which kinds of column a value can be read without losing anything of it.
 *
 *	integer    64 bits; no leading zeros (007 is a name), no plus sign
 *	real       a number that a double reproduces digit by digit: up to 15 significant digits always, 16 and 17 when
 *	           they are those that the double prints
 *	numeric    any other number: a double would lose digits of it, or 64 bits do not hold it
 *	boolean    true and false; nothing else, since t, yes and 1 are also names and numbers
 *	date       2024-02-29, a day that there is
 *	timestamp  2024-02-29T15:04[:05[.123456]][Z|+01|+01:00|+0100], T or a blank; a finer fraction would be rounded;
 *	           also a date: its first moment
 *	JSON       an object or an array
 *
 * Thread safety: no state.
 */
#ifndef SL_FORMAT_GUESS_H
#define SL_FORMAT_GUESS_H

#include "base/base.h"
#include <sluice/sink.h>

/* A set of kinds: bit 1 << SL_COLUMN_…; text is not in it, since everything is text. */
#define SL__KIND(kind) (1u << (kind))
#define SL__KINDS_ALL (0xFEu)
#define SL__KINDS_NUMBER (SL__KIND(SL_COLUMN_INTEGER) | SL__KIND(SL_COLUMN_REAL) | SL__KIND(SL_COLUMN_NUMERIC))
#define SL__KINDS_TIME (SL__KIND(SL_COLUMN_TIMESTAMP) | SL__KIND(SL_COLUMN_DATE))

/* Those of `asked` as which the text can be read. */
unsigned sl__guess(const char *text, size_t len, unsigned asked);

/* The kind of a column whose values can all be read as any of these; seen: it had a value. */
enum sl_column_kind sl__guess_column(unsigned kinds, bool seen);

#endif
