/* SPDX-License-Identifier: Apache-2.0 */
/* What every driver of repositories has to pass, as <sluice/adapter/driver.h> says it. A driver's test fills a fixture
 * and runs the group. */
#ifndef TESTS_BACKUP_DRIVER_CONTRACT_H
#define TESTS_BACKUP_DRIVER_CONTRACT_H

#include <sluice/adapter/driver.h>

struct driver_fixture {
	const char *name;
	/* Open a handle. fresh: on an empty place; else on the place of the last fresh one, beside the handles that are
	 * open there. */
	void (*open)(sl_driver *out, int fresh, void *ctx);
	/* After all handles of a test are closed. */
	void (*clean)(void *ctx);
	void *ctx;
};

/* How many tests failed. */
int driver_contract_run(const struct driver_fixture *fixture);

#endif
