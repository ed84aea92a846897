/* SPDX-License-Identifier: Apache-2.0 */
/* sluice jobs retry, cancel, fail, trigger, delete, pause, resume, prune and migrate: what changes jobs. */
#include "commands.h"
#include "jobstore.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef int change_fn(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		      struct sl_err *err);

struct change {
	change_fn *fn;
	const char *done; /* "cancelled" */
};

static int change_ids(struct cli *cli, const struct parsed *args, struct jobstore *store, const uint64_t *ids,
		      size_t n_ids, void *ctx)
{
	const struct change *change = ctx;
	struct sl_err err = SL_ERR_INIT;
	size_t n = 0;

	if (change->fn(store, args, ids, n_ids, &n, &err))
		return jobstore_fail(cli, args, &err);
	if (opt_flag(args, "json"))
		out_printf(&cli->out, "{\"%s\":%zu,\"unchanged\":%zu}\n", change->done, n, n_ids > n ? n_ids - n : 0);
	else if (n <= n_ids)
		out_printf(&cli->out, "%s %zu of %zu\n", change->done, n, n_ids);
	else /* with those that a cascade took along */
		out_printf(&cli->out, "%s %zu\n", change->done, n);
	return EXIT_OK;
}

static int change_run(struct cli *cli, const struct parsed *args, change_fn *fn, const char *done)
{
	return jobstore_with_ids(cli, args, change_ids, &(struct change){fn, done});
}

/* A 'sluice run' served the type of its job itself, and is gone: no worker would run the job. */
static int refuse_run(struct jobstore *store, uint64_t id, struct sl_err *err)
{
	struct sl_chain *chain = NULL;
	int rc = sl_jobs_get_chain(store->client, id, &chain, err);

	if (!rc && jobstore_is_run(chain->at_type) &&
	    (chain->status == SL_JOB_FAILED || chain->status == SL_JOB_CANCELLED))
		rc = sl_err_set(err, SL_EDATA,
				"chain %" PRIu64
				" was a 'sluice run', which has ended, and no worker serves it; run its "
				"command again with 'sluice run' ('sluice jobs show %" PRIu64 "' has it)",
				id, id);
	sl_jobs_free(store->client, chain);
	return rc;
}

static int retry_ids(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		     struct sl_err *err)
{
	int rc = 0;

	(void)args;
	for (size_t i = 0; !rc && i < n_ids; i++)
		rc = refuse_run(store, ids[i], err);
	return rc ? rc : sl_jobs_redrive(store->client, NULL, ids, n_ids, n, err);
}

/* All of them or none. Those that have ended already are left alone. */
static int fail_ids(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		    struct sl_err *err)
{
	sl_tx *tx = NULL;
	int rc = sl_jobs_begin(store->client, &tx, err);

	if (rc)
		return rc;
	for (size_t i = 0; !rc && i < n_ids; i++) {
		rc = sl_jobs_fail(store->client, tx, ids[i], opt_str(args, "error"), err);
		*n += !rc;
		rc = rc == SL_EEXIST ? 0 : rc;
	}
	if (!rc)
		return sl_tx_commit(tx, err);
	sl_tx_rollback(tx);
	return rc;
}

static int cancel_ids(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		      struct sl_err *err)
{
	(void)args;
	return sl_jobs_cancel(store->client, NULL, ids, n_ids, n, err);
}

static int trigger_ids(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		       struct sl_err *err)
{
	(void)args;
	return sl_jobs_trigger(store->client, NULL, ids, n_ids, n, err);
}

static int delete_ids(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		      struct sl_err *err)
{
	return sl_jobs_delete(store->client, NULL, ids, n_ids, opt_flag(args, "cascade"), n, err);
}

static int retry_run(struct cli *cli, const struct parsed *args)
{
	return change_run(cli, args, retry_ids, "redriven");
}

static int cancel_run(struct cli *cli, const struct parsed *args)
{
	return change_run(cli, args, cancel_ids, "cancelled");
}

static int fail_run(struct cli *cli, const struct parsed *args)
{
	return change_run(cli, args, fail_ids, "failed");
}

static int trigger_run(struct cli *cli, const struct parsed *args)
{
	return change_run(cli, args, trigger_ids, "triggered");
}

static int delete_run(struct cli *cli, const struct parsed *args)
{
	return change_run(cli, args, delete_ids, "deleted");
}

static const struct opt plain_opts[] = {
	JOBSTORE_OPT_STORE,
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};
static const struct opt fail_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "error",
	 .letter = 'e',
	 .kind = OPT_STRING,
	 .arg = "TEXT",
	 .help = "What the job shows as its error (default 'failed from outside')"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};
static const struct opt delete_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "cascade", .kind = OPT_FLAG, .help = "Delete the chains that wait for these, too"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_jobs_retry = {
	.name = "jobs retry",
	.operands = "CHAIN…",
	.summary = "run failed or cancelled chains again",
	.opts = plain_opts,
	.description =
		"They continue at the job where they stopped, with their attempts counted anew. Chains in another "
		"state "
		"are left alone. Refused with status 65, and none of them changed: one whose deduplication key another "
		"chain has that has not ended, one that waits for a chain that was deleted, and the job of a "
		"'sluice run' that has ended, since no worker serves it.",
	.example = "sluice jobs retry 42 43",
	.run = retry_run,
};
const struct command cmd_jobs_cancel = {
	.name = "jobs cancel",
	.operands = "CHAIN…",
	.summary = "cancel chains",
	.opts = plain_opts,
	.description =
		"A job that runs is aborted: its worker hears of it at once. Chains that have ended are left alone.",
	.example = "sluice jobs cancel 42",
	.run = cancel_run,
};
const struct command cmd_jobs_fail = {
	.name = "jobs fail",
	.operands = "CHAIN…",
	.summary = "fail chains",
	.opts = fail_opts,
	.description =
		"The job that a chain is at has failed for good with this error. One that runs is aborted: its worker "
		"hears of it at once. Chains that have ended are left alone.",
	.example = "sluice jobs fail 42 --error 'the printer is gone'",
	.run = fail_run,
};
const struct command cmd_jobs_trigger = {
	.name = "jobs trigger",
	.operands = "CHAIN…",
	.summary = "run scheduled chains now",
	.opts = plain_opts,
	.description = "A job that is scheduled for later, or waits for its next attempt, becomes due at once.",
	.example = "sluice jobs trigger 42",
	.run = trigger_run,
};
const struct command cmd_jobs_delete = {
	.name = "jobs delete",
	.operands = "CHAIN…",
	.summary = "delete chains with their jobs and events",
	.opts = delete_opts,
	.description =
		"Refused, and nothing deleted, when other chains wait for one of them, unless --cascade is given.",
	.example = "sluice jobs delete 42 --cascade",
	.run = delete_run,
};

/* ---- pause, resume ---- */

static int pause_types(struct cli *cli, const struct parsed *args, int pause)
{
	struct sl_err err = SL_ERR_INIT;
	struct jobstore store;
	int rc = jobstore_open(cli, args, &store);

	for (int i = 0; !rc && i < args->n_operands; i++) {
		const char *type = args->operands[i];
		int code = pause ? sl_jobs_pause(store.client, type, &err) : sl_jobs_resume(store.client, type, &err);

		if (code)
			rc = jobstore_fail(cli, args, &err);
	}
	jobstore_close(&store);
	return rc;
}

static int pause_run(struct cli *cli, const struct parsed *args)
{
	return pause_types(cli, args, 1);
}

static int resume_run(struct cli *cli, const struct parsed *args)
{
	return pause_types(cli, args, 0);
}

static const struct opt store_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = NULL},
};

const struct command cmd_jobs_pause = {
	.name = "jobs pause",
	.operands = "TYPE…",
	.summary = "stop handing out jobs of a type",
	.opts = store_opts,
	.description = "Running jobs continue; no worker anywhere gets another one until 'sluice jobs resume'.",
	.example = "sluice jobs pause mail",
	.run = pause_run,
};
const struct command cmd_jobs_resume = {
	.name = "jobs resume",
	.operands = "TYPE…",
	.summary = "hand out jobs of a type again",
	.opts = store_opts,
	.description = "Ends what 'sluice jobs pause' began.",
	.example = "sluice jobs resume mail",
	.run = resume_run,
};

/* ---- migrate, prune ---- */

static int migrate_run(struct cli *cli, const struct parsed *args)
{
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &cli->env};
	struct sl_err err = SL_ERR_INIT;
	sl_store store = {0};
	int from = 0, to = 0, rc = EXIT_OK;

	if (sl_store_open(&store, jobstore_url(args), &opts, &err) || store.ops->migrate(store.ctx, &from, &to, &err))
		rc = jobstore_fail(cli, args, &err);
	else if (opt_flag(args, "json"))
		out_printf(&cli->out, "{\"schema_version\":%d}\n", to);
	else
		out_printf(&cli->out, "schema version %d\n", to);
	if (store.ops)
		sl_store_close(&store);
	return rc;
}

const struct command cmd_jobs_migrate = {
	.name = "jobs migrate",
	.operands = "",
	.summary = "bring the store's schema up to date",
	.opts = plain_opts,
	.description = "Every command does this by itself; here it is for deployments that want it as a separate step. "
		       "Doing it twice, or in several places at once, is harmless.",
	.example = "sluice jobs migrate --store postgres:///app",
	.run = migrate_run,
};

static int prune_run(struct cli *cli, const struct parsed *args)
{
	struct sl_err err = SL_ERR_INIT;
	struct jobstore store;
	uint64_t n = 0;
	int rc = jobstore_open_existing(cli, args, &store);

	if (!rc && (sl_jobs_prune(store.client, opt_num(args, "keep"), &n, &err) ||
		    sl_jobs_audit_prune(store.client, opt_num(args, "keep-audit"), NULL, &err)))
		rc = jobstore_fail(cli, args, &err);
	else if (!rc)
		out_printf(&cli->out, opt_flag(args, "json") ? "{\"deleted\":%" PRIu64 "}\n" : "deleted %" PRIu64 "\n",
			   n);
	jobstore_close(&store);
	return rc;
}

static const struct opt prune_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "keep",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "30d",
	 .min = 0,
	 .max = INT64_C(3153600000000),
	 .help = "Keep what has ended within this time"},
	{.name = "keep-audit",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "365d",
	 .min = 0,
	 .max = INT64_C(3153600000000),
	 .help = "Keep the audit trail of this time ('sluice jobs audit')"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_jobs_prune = {
	.name = "jobs prune",
	.operands = "",
	.summary = "delete chains that ended long ago",
	.opts = prune_opts,
	.description =
		"Deletes completed, failed and cancelled chains with their events, a bounded number at a time. Chains "
		"that others still wait for are kept. Events of that age whose job was deleted are removed, too, and "
		"so are the marks of logs that a newer one of the same name has replaced, once their events are gone.",
	.example = "sluice jobs prune --keep 90d",
	.run = prune_run,
};
