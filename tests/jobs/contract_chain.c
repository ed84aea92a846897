/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/contract_kit.h"
struct contract_tests contract_chain_tests(void)
{
	return (struct contract_tests){0};
}
