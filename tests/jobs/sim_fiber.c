/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks for library code that calls the store in the middle of its work, and the store that it sees there. */
#include "jobs/sim_priv.h"

#include <stdlib.h>
#include <ucontext.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define WITH_ASAN 1
#endif

/* AddressSanitizer has to hear of every change of the stack. */
#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#define STACK_BYTES ((size_t)512 * 1024)
#define LEAVES(fake, bottom, size) __sanitizer_start_switch_fiber(fake, bottom, size)
#define ARRIVED(fake, bottom, size) __sanitizer_finish_switch_fiber(fake, bottom, size)
#else
#define STACK_BYTES ((size_t)96 * 1024)
#define LEAVES(fake, bottom, size) ((void)(fake), (void)(bottom), (void)(size))
#define ARRIVED(fake, bottom, size) ((void)(fake), (void)(bottom), (void)(size))
#endif

struct fiber {
	struct sim_fiber pub; /* first: a fiber is one */
	ucontext_t here, back;
	sim_fiber_fn *fn;
	void *arg;
	bool ended;
	struct fiber *next; /* spare */
	char *stack;
	const void *back_stack; /* of the caller that resumed it */
	size_t back_bytes;
};

static struct fiber *whole(struct sim_fiber *f)
{
	return (struct fiber *)(void *)f;
}

static void into(struct fiber *f)
{
	void *fake = NULL;
	LEAVES(&fake, f->stack, STACK_BYTES);
	if (swapcontext(&f->back, &f->here) != 0)
		abort();
	ARRIVED(fake, NULL, NULL);
}

static void out_of(struct fiber *f)
{
	void *fake = NULL;
	LEAVES(&fake, f->back_stack, f->back_bytes);
	if (swapcontext(&f->here, &f->back) != 0)
		abort();
	ARRIVED(fake, &f->back_stack, &f->back_bytes);
}

/* makecontext hands over ints only. */
static void fiber_main(unsigned high, unsigned low)
{
	union {
		uint64_t bits;
		struct fiber *f;
	} me = {.bits = (uint64_t)high << 32 | low};
	ARRIVED(NULL, &me.f->back_stack, &me.f->back_bytes);
	for (;;) {
		me.f->fn(&me.f->pub, me.f->arg);
		me.f->ended = true;
		out_of(me.f);
	}
}

static struct fiber *new_fiber(void)
{
	struct fiber *f = sim_alloc(sizeof(*f));
	union {
		struct fiber *f;
		uint64_t bits;
	} me = {.bits = 0};
	me.f = f;
	f->stack = malloc(STACK_BYTES);
	if (f->stack == NULL || getcontext(&f->here) != 0)
		abort();
	f->here.uc_stack.ss_sp = f->stack;
	f->here.uc_stack.ss_size = STACK_BYTES;
	f->here.uc_link = NULL;
	makecontext(&f->here, (void (*)(void))fiber_main, 2, (unsigned)(me.bits >> 32), (unsigned)me.bits);
	return f;
}

void sim_fiber_resume(struct sim_fiber *pub)
{
	struct fiber *f = whole(pub);
	into(f);
	if (!f->ended)
		return;
	f->next = (struct fiber *)(void *)pub->sim->spare_fibers;
	pub->sim->spare_fibers = pub;
}

void sim_fiber_start(struct sim *sim, const struct sim_worker *w, sim_fiber_fn *fn, void *arg)
{
	struct fiber *f = sim->spare_fibers != NULL ? whole(sim->spare_fibers) : new_fiber();
	if (sim->spare_fibers != NULL)
		sim->spare_fibers = f->next != NULL ? &f->next->pub : NULL;
	f->pub = (struct sim_fiber){.sim = sim, .worker = w->index, .life = w->life, .restores = sim->restores};
	f->fn = fn;
	f->arg = arg;
	f->ended = false;
	sim_fiber_resume(&f->pub);
}

void sim_fiber_wait(struct sim_fiber *pub, struct sim_call *c)
{
	struct fiber *f = whole(pub);
	c->fiber = pub;
	sim_call_send(pub->sim, c);
	out_of(f);
}

void sim_fiber_free_all(struct sim *sim)
{
	while (sim->spare_fibers != NULL) {
		struct fiber *f = whole(sim->spare_fibers);
		sim->spare_fibers = f->next != NULL ? &f->next->pub : NULL;
		free(f->stack);
		free(f);
	}
}

/* ---- the store ---- */

static int gone(struct sl_err *err)
{
	return sl_err_set(err, SL_EUNAVAIL, "the process is gone");
}

static int result_of(const struct sim_call *c, struct sl_err *err)
{
	if (c->rc != 0 && err != NULL)
		*err = c->err;
	return c->rc;
}

static int now_ms(void *store, int64_t *out, struct sl_err *err)
{
	struct sim_fiber *f = store;
	if (f->dead)
		return gone(err);
	struct sim_call *c = sim_call_of(f, SIM_NOW);
	sim_fiber_wait(f, c);
	*out = c->now_ms;
	return result_of(c, err);
}

static int cron_list(void *store, sl_cron_fn *fn, void *ctx, struct sl_err *err)
{
	struct sim_fiber *f = store;
	if (f->dead)
		return gone(err);
	struct sim_call *c = sim_call_of(f, SIM_CRON_LIST);
	sim_fiber_wait(f, c);
	int rc = result_of(c, err);
	for (size_t i = 0; i < c->n_crons && rc == 0; i++) {
		if (f->sim->opts.wrong == SIM_WRONG_CATCH_UP)
			c->crons[i].catch_up = !c->crons[i].catch_up;
		rc = fn(&c->crons[i], ctx);
	}
	return rc;
}

static int cron_fire(void *store, const struct sl_cron *seen, int64_t next_ms, bool *fired, struct sl_started *out,
		     const struct sl_store_scope *scope, struct sl_err *err)
{
	struct sim_fiber *f = store;
	if (f->dead)
		return gone(err);
	struct sim_call *c = sim_call_of(f, SIM_CRON_FIRE);
	c->seen = *seen;
	c->seen.name = sim_call_text(c, seen->name);
	c->seen.spec = sim_call_text(c, seen->spec);
	if (f->sim->opts.wrong == SIM_WRONG_CATCH_UP)
		c->seen.catch_up = !c->seen.catch_up; /* as it is in the store */
	c->next_ms = f->sim->opts.wrong == SIM_WRONG_SPEC ? next_ms + 60000 : next_ms;
	c->turn_ms = f->turn_ms;
	sim_fiber_wait(f, c);
	*fired = c->fired;
	*out = c->started;
	for (size_t i = 0; i < c->n_notes && c->rc == 0; i++)
		scope->note(&c->notes[i], scope->ctx);
	return result_of(c, err);
}

/* Payloads and streams live as long as the run. */
static int events_append(void *store, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
			 size_t n_marks, size_t *n_new, struct sl_err *err)
{
	struct sim_fiber *f = store;
	(void)n_marks;
	if (f->dead)
		return gone(err);
	struct sim_call *c = sim_call_of(f, SIM_APPEND);
	c->log = f->log;
	c->rows = sim_call_bytes(c, events, n * sizeof(*events));
	c->n_rows = n;
	c->mark = marks[0];
	c->skip_to = marks[0].mark;
	c->stopped_before = f->stopped;
	c->restores = f->restores;
	sim_fiber_wait(f, c);
	if (c->rc == 0)
		marks[0] = c->mark;
	if (n_new != NULL)
		*n_new = c->n_new;
	return result_of(c, err);
}

sl_store sim_fiber_store(struct sim_fiber *f)
{
	static const struct sl_store_ops ops = {.version = SL_STORE_VERSION,
						.name = "simulated",
						.now_ms = now_ms,
						.cron_list = cron_list,
						.cron_fire = cron_fire,
						.events_append = events_append};
	return (sl_store){.ops = &ops, .ctx = f};
}
