/* SPDX-License-Identifier: Apache-2.0 */
/* The contract suite on the memory store, in virtual time. */
#include <stddef.h>

#include "jobs/store_contract.h"
#include "support/memstore.h"
#include "support/vclock.h"

struct place {
	struct vclock clock;
	struct memstore *ms;
	int cut;
};

static enum memstore_fault fault(const char *op, void *ctx)
{
	(void)op;
	struct place *p = ctx;
	if (p->cut == 0)
		return MEMSTORE_OK;
	p->cut--;
	return MEMSTORE_FAIL_BEFORE;
}

static int set_up(void *ctx)
{
	struct place *p = ctx;
	vclock_init(&p->clock);
	struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &p->clock};
	p->ms = memstore_new(&env);
	p->cut = 0;
	memstore_set_faults(p->ms, fault, p);
	return 0;
}

static void tear_down(void *ctx)
{
	struct place *p = ctx;
	memstore_free(p->ms);
	vclock_fini(&p->clock);
}

static int open_store(sl_store *out, void *ctx)
{
	struct place *p = ctx;
	*out = memstore_handle(p->ms);
	return 0;
}

static void close_store(sl_store *store, void *ctx)
{
	(void)ctx;
	store->ops->close(store->ctx);
}

static void step_ms(int64_t ms, void *ctx)
{
	((struct place *)ctx)->clock.real_offset_ms += ms;
}

static void advance_ms(int64_t ms, void *ctx)
{
	vclock_advance_ms(&((struct place *)ctx)->clock, ms);
}

static void cut(void *ctx)
{
	((struct place *)ctx)->cut = 2;
}

int main(int argc, char **argv)
{
	struct place place = {0};
	struct contract_fixture f = {.name = "memory",
				     .set_up = set_up,
				     .tear_down = tear_down,
				     .open = open_store,
				     .close = close_store,
				     .advance_ms = advance_ms,
				     .step_ms = step_ms,
				     .cut = cut,
				     .ctx = &place};
	return store_contract_run(&f, store_contract_part(argc, argv));
}
