/* SPDX-License-Identifier: Apache-2.0 */
/* sluice jobs retry, cancel, fail, trigger, delete, pause, resume, prune and migrate: what changes jobs. */
#include "commands.h"
#include "jobs/store/ops.h"
#include "jobstore.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum change { RETRY, CANCEL, FAIL, TRIGGER, DELETE };

static const char *const change_names[] = {"redriven", "cancelled", "failed", "triggered", "deleted"};

/* A 'sluice run' served the type of its job itself, and has ended: no worker would run the job. */
static int retry_ids(struct jobstore *store, size_t *n, struct sl_err *err)
{
	for (size_t i = 0; i < store->n_ids; i++) {
		uint64_t id = store->ids[i];
		struct sl_chain *chain = NULL;
		int rc = sl_jobs_get_chain(store->client, id, &chain, err);

		if (rc == 0 && jobstore_is_run(chain->at_type) &&
		    (chain->status == SL_JOB_FAILED || chain->status == SL_JOB_CANCELLED))
			rc = sl_err_set(err, SL_EDATA,
					"chain %" PRIu64
					" was a 'sluice run', which has ended, and no worker serves it; start its "
					"command again with 'sluice run' ('sluice jobs show %" PRIu64 "' prints it)",
					id, id);
		sl_chain_release(store->client, chain);
		if (rc != 0)
			return rc;
	}
	return sl_jobs_redrive(store->client, NULL, store->ids, store->n_ids, n, err);
}

/* All of them or none. Those that have ended already are left alone. */
static int fail_ids(struct jobstore *store, const char *error, size_t *n, struct sl_err *err)
{
	sl_tx *tx = NULL;
	int rc = sl_jobs_begin(store->client, &tx, err);

	if (rc != 0)
		return rc;
	/* One transaction for all of them. EEXIST: the chain has ended, which is not an error here. */
	for (size_t i = 0; rc == 0 && i < store->n_ids; i++) {
		rc = sl_jobs_fail(store->client, tx, store->ids[i], error, err);
		*n += rc == 0;
		rc = rc == SL_EEXIST ? 0 : rc;
	}
	if (rc == 0)
		return sl_tx_commit(tx, err);
	sl_tx_rollback(tx);
	return rc;
}

/* What the data of each of these commands names. */
static int change_run(struct cli *cli, const struct parsed *args)
{
	enum change change = *(const enum change *)args->command->data;
	const char *done = change_names[change];
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	size_t n = 0;
	int rc = jobstore_open_ids(cli, args, &store);

	if (rc != 0)
		return rc;
	/* Each of these is one transaction of the library, but fail, which makes its own. */
	switch (change) {
	case RETRY:
		rc = retry_ids(&store, &n, &err);
		break;
	case CANCEL:
		rc = sl_jobs_cancel(store.client, NULL, store.ids, store.n_ids, &n, &err);
		break;
	case FAIL:
		rc = fail_ids(&store, opt_str(args, "error"), &n, &err);
		break;
	case TRIGGER:
		rc = sl_jobs_trigger(store.client, NULL, store.ids, store.n_ids, &n, &err);
		break;
	case DELETE:
		rc = sl_jobs_delete(store.client, NULL, store.ids, store.n_ids, opt_flag(args, "cascade"), &n, &err);
		break;
	}
	if (rc != 0)
		return jobstore_fail(cli, args, &err);
	/* How many were changed; the others were in another state. */
	if (opt_flag(args, "json"))
		out_printf(&cli->out, "{\"%s\":%zu,\"unchanged\":%zu}\n", done, n,
			   store.n_ids > n ? store.n_ids - n : 0);
	else if (n <= store.n_ids)
		out_printf(&cli->out, "%s %zu of %zu\n", done, n, store.n_ids);
	else /* with those that a cascade deleted */
		out_printf(&cli->out, "%s %zu\n", done, n);
	return EXIT_OK;
}

static const struct opt fail_opts[] = {
	JOBSTORE_OPT_STORE,
	OPT_TEXT("error", 'e', "TEXT", "Error that the job shows (default: 'failed from outside')"),
	OPT_JSON("Print JSON"),
	{.name = NULL},
};
static const struct opt delete_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "cascade", .kind = OPT_FLAG, .help = "Delete the chains that wait for these too"},
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_jobs_retry = {
	.name = "jobs retry",
	.operands = "CHAIN…",
	.summary = "retry failed or cancelled chains",
	.opts = jobstore_opts,
	.description = "Each chain continues at the job where it stopped, and its attempts are counted from 0 again. "
		       "Chains in another state are left alone. The request is refused with status 65, and no chain is "
		       "changed, if another unfinished chain has the same deduplication key, if a chain waits for one "
		       "that was deleted, or if it was a 'sluice run' that has ended, since no worker serves it.",
	.example = "sluice jobs retry 42\n"
		   "sluice jobs retry 42 43",
	.data = &(const enum change){RETRY},
	.run = change_run,
};
const struct command cmd_jobs_cancel = {
	.name = "jobs cancel",
	.operands = "CHAIN…",
	.summary = "cancel chains",
	.opts = jobstore_opts,
	.description =
		"Aborts a running job; its worker is notified immediately. Chains that have ended are left alone.",
	.example = "sluice jobs cancel 42\n"
		   "sluice jobs cancel 42 43 44",
	.data = &(const enum change){CANCEL},
	.run = change_run,
};
const struct command cmd_jobs_fail = {
	.name = "jobs fail",
	.operands = "CHAIN…",
	.summary = "fail chains",
	.opts = fail_opts,
	.description = "Marks the current job of each chain as failed for good with this error. Aborts it if it is "
		       "running; its worker is notified immediately. Chains that have ended are left alone.",
	.example = "sluice jobs fail 42\n"
		   "sluice jobs fail 42 --error 'the printer is gone'",
	.data = &(const enum change){FAIL},
	.run = change_run,
};
const struct command cmd_jobs_trigger = {
	.name = "jobs trigger",
	.operands = "CHAIN…",
	.summary = "run scheduled chains now",
	.opts = jobstore_opts,
	.description = "Makes a job that is scheduled for later, or waits for its next attempt, due immediately.",
	.example = "sluice jobs trigger 42\n"
		   "sluice jobs trigger 42 43",
	.data = &(const enum change){TRIGGER},
	.run = change_run,
};
const struct command cmd_jobs_delete = {
	.name = "jobs delete",
	.operands = "CHAIN…",
	.summary = "delete chains with their jobs and events",
	.opts = delete_opts,
	.description =
		"Refused, with nothing deleted, if other chains wait for one of them and --cascade is not given.",
	.example = "sluice jobs delete 42\n"
		   "sluice jobs delete 42 --cascade",
	.data = &(const enum change){DELETE},
	.run = change_run,
};

/* ---- pause, resume ---- */

static int pause_resume_run(struct cli *cli, const struct parsed *args)
{
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc = jobstore_open(cli, args, JOBSTORE_CREATE, &store);

	/* A type may be paused before its first job: the store is made if it is missing. */
	for (int i = 0; rc == 0 && i < args->n_operands; i++) {
		const char *type = args->operands[i];

		if (args->command == &cmd_jobs_pause ? sl_jobs_pause(store.client, type, &err)
						     : sl_jobs_resume(store.client, type, &err))
			rc = jobstore_fail(cli, args, &err);
	}
	return rc;
}

const struct command cmd_jobs_pause = {
	.name = "jobs pause",
	.operands = "TYPE…",
	.summary = "stop handing out jobs of a type",
	.opts = jobstore_opts_store,
	.description = "Running jobs continue; no worker anywhere gets another one until 'sluice jobs resume'.",
	.example = "sluice jobs pause mail\n"
		   "sluice jobs pause mail report",
	.run = pause_resume_run,
};
const struct command cmd_jobs_resume = {
	.name = "jobs resume",
	.operands = "TYPE…",
	.summary = "hand out jobs of a type again",
	.opts = jobstore_opts_store,
	.description = "Ends the pause that 'sluice jobs pause' began.",
	.example = "sluice jobs resume mail\n"
		   "sluice jobs resume mail report",
	.run = pause_resume_run,
};

/* ---- migrate, prune ---- */

static int jobs_migrate_run(struct cli *cli, const struct parsed *args)
{
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &cli->env};
	struct sl_err err = SL_ERR_INIT;
	sl_store store = {0};
	int from = 0, to = 0, rc = EXIT_OK;

	/* Opening does it; the second call reports the version. */
	if (sl_store_open(&store, jobstore_url(args), &opts, &err) || store.ops->migrate(store.ctx, &from, &to, &err))
		rc = jobstore_fail(cli, args, &err);
	else if (opt_flag(args, "json"))
		out_printf(&cli->out, "{\"schema_version\":%d}\n", to);
	else
		out_printf(&cli->out, "schema version %d\n", to);
	if (store.ops != NULL)
		sl_store_close(&store);
	return rc;
}

const struct command cmd_jobs_migrate = {
	.name = "jobs migrate",
	.operands = "",
	.summary = "upgrade the store's schema",
	.opts = jobstore_opts,
	.description = "Every command does this automatically; run it alone for a deployment that wants a separate "
		       "step. It is safe to run it twice, or in several places at the same time.",
	.example = "sluice jobs migrate\n"
		   "sluice jobs migrate --store postgres:///app",
	.run = jobs_migrate_run,
};

static int jobs_prune_run(struct cli *cli, const struct parsed *args)
{
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	uint64_t n = 0;
	int rc = jobstore_open(cli, args, JOBSTORE_EXISTING, &store);

	if (rc != 0)
		return rc;
	/* Chains and their events first, then the audit trail, which has its own retention. */
	if (sl_jobs_prune(store.client, opt_num(args, "keep"), &n, &err) ||
	    sl_jobs_audit_prune(store.client, opt_num(args, "keep-audit"), NULL, &err))
		return jobstore_fail(cli, args, &err);
	out_printf(&cli->out, opt_flag(args, "json") ? "{\"deleted\":%" PRIu64 "}\n" : "deleted %" PRIu64 "\n", n);
	return EXIT_OK;
}

static const struct opt prune_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "keep",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "30d",
	 .min = 0,
	 .max = INT64_C(3153600000000),
	 .help = "Keep chains that ended within this time"},
	{.name = "keep-audit",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "365d",
	 .min = 0,
	 .max = INT64_C(3153600000000),
	 .help = "Keep audit records of this time ('sluice jobs audit')"},
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_jobs_prune = {
	.name = "jobs prune",
	.operands = "",
	.summary = "delete chains that ended long ago",
	.opts = prune_opts,
	.description =
		"Deletes completed, failed and cancelled chains with their events, a bounded number at a time. Chains "
		"that others still wait for are kept. Also removes events of that age whose job was deleted, and the "
		"marks of logs that a newer log of the same name has replaced, once their events are gone.",
	.example = "sluice jobs prune --keep 90d\n"
		   "sluice jobs prune --keep 7d --store postgres:///app",
	.run = jobs_prune_run,
};
