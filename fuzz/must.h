/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold for any input. */
#ifndef FUZZ_MUST_H
#define FUZZ_MUST_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(cond)                                                                                                     \
	do {                                                                                                           \
		if (!(cond)) {                                                                                         \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                                     \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

#endif
