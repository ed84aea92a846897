/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that name &err, and what they must return. cmocka.h comes first. */
#ifndef TESTS_EXPECT_H
#define TESTS_EXPECT_H

#include <string.h>

#include <sluice/err.h>

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		struct sl_err err = SL_ERR_INIT;                                                                       \
		int rc_ = (call);                                                                                      \
		if (rc_ != 0)                                                                                          \
			fail_msg("%s: %s: %s", #call, sl_err_name(rc_), err.msg);                                      \
	} while (0)
/* The call fails with the code and a message that has the text in it. */
#define REFUSED(call, code_, text)                                                                                     \
	do {                                                                                                           \
		struct sl_err err = SL_ERR_INIT;                                                                       \
		int rc_ = (call);                                                                                      \
		if (rc_ != (code_) || err.code != (code_) || strstr(err.msg, text) == NULL)                            \
			fail_msg("%s: %s: %s", #call, sl_err_name(rc_), err.msg);                                      \
	} while (0)

#endif
