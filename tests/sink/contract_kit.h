/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the contract suite share. */
#ifndef TESTS_SINK_CONTRACT_KIT_H
#define TESTS_SINK_CONTRACT_KIT_H

#include "sink/contract.h"

/* Opens through the fixture; asserts success. */
sl_sink open_sink(const struct sink_fixture *f, const struct sl_env *env);
int try_attach(const sl_sink *sink, void **lane, struct sl_err *err);
/* cmocka hands states over as void *. */
void *fixture_state(const struct sink_fixture *f);

#endif
