/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests in virtual time whose threads also wait for what has no clock: sockets, locks, other threads. Time may
 * advance only when all that can be done without it is done, however slow the machine is.
 */
#ifndef TESTS_QUIET_H
#define TESTS_QUIET_H

/* Block until every other thread of this process sleeps, and none of them ran between two looks. */
void quiet_await(void);

#endif
