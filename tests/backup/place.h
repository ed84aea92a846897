/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder for a test's repository. */
#ifndef TESTS_BACKUP_PLACE_H
#define TESTS_BACKUP_PLACE_H

struct place {
	char path[64];
};

void place_make(struct place *p);
void place_remove(struct place *p); /* with all that is in it */

#endif
