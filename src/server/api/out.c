/* SPDX-License-Identifier: Apache-2.0 */
/* How jobs, chains and events are shown. */
#include "base/time.h"
#include "base/utf8.h"
#include "server/api/api.h"

#include <sluice/events.h>

const char *srv_check_state(bool running, const struct sl_err *err, uint64_t faults)
{
	if (running)
		return "running";
	if (err->code != 0)
		return "error";
	return faults > 0 ? "failed" : "passed";
}

/* "": it was left out for its length, and so is the field. */
static void out_data(struct srv_out *o, const char *name, const char *json)
{
	if (json == NULL || *json != '\0')
		SRV_FIELD(o, name, raw, json);
}

void srv_out_job(struct srv_out *o, const struct sl_job *job)
{
	SRV_FIELD(o, "id", id, job->id);
	SRV_FIELD(o, "chain_id", id, job->chain_id);
	SRV_FIELD(o, "type", str, job->type);
	SRV_FIELD(o, "status", str, sl_job_status_name(job->status));
	SRV_FIELD(o, "state", str, sl_job_status_name(job->state));
	SRV_FIELD(o, "attempt", int, job->attempt);
	SRV_FIELD(o, "priority", int, job->priority);
	out_data(o, "input", job->input);
	out_data(o, "output", job->output);
	SRV_FIELD(o, "error", str, job->error);
	out_data(o, "progress", job->progress);
	SRV_FIELD(o, "created_at", time, job->created_ms);
	SRV_FIELD(o, "scheduled_for", time, job->scheduled_ms);
	SRV_FIELD(o, "started_at", time, job->started_ms);
	SRV_FIELD(o, "completed_at", time, job->status == SL_JOB_COMPLETED ? job->ended_ms : 0);
	SRV_FIELD(o, "ended_at", time, job->ended_ms);
	SRV_FIELD(o, "leased_by", str, job->leased_by);
	SRV_FIELD(o, "leased_until", time, job->leased_until_ms);
	SRV_FIELD(o, "prev_id", id, job->prev_id);
	SRV_FIELD(o, "next_id", id, job->next_id);
	SRV_FIELD(o, "key", str, job->key);
	SRV_FIELD(o, "traceparent", str, job->traceparent);
	SRV_FIELD(o, "blockers_open", int, job->blockers_open);
}

void srv_out_chain(struct srv_out *o, const struct sl_chain *chain)
{
	SRV_FIELD(o, "id", id, chain->id);
	SRV_FIELD(o, "last_id", id, chain->last_id);
	SRV_FIELD(o, "type", str, chain->type);
	SRV_FIELD(o, "at_type", str, chain->at_type);
	SRV_FIELD(o, "status", str, sl_job_status_name(chain->status));
	SRV_FIELD(o, "state", str, sl_job_status_name(chain->state));
	out_data(o, "input", chain->input);
	out_data(o, "output", chain->output);
	SRV_FIELD(o, "error", str, chain->error);
	SRV_FIELD(o, "key", str, chain->key);
	SRV_FIELD(o, "created_at", time, chain->created_ms);
	SRV_FIELD(o, "ended_at", time, chain->ended_ms);
}

void srv_out_event(struct srv_out *o, const struct sl_event_row *e)
{
	char ts[SL__TIME_BYTES];
	size_t ts_len = sl__time_text(ts, e->ts_ms);
	const char *payload = e->payload_len > 0 ? e->payload : "";
	srv_out_open(o, '{');
	SRV_FIELD(o, "offset", int, (int64_t)e->offset);
	SRV_FIELD(o, "type", str, sl_event_type_name(e->type));
	srv_out_name(o, "ts");
	srv_out_strn(o, ts, ts_len);
	srv_out_known(o, "attempt", e->attempt != 0, e->attempt);
	SRV_FIELD(o, "late", bool, e->late);
	SRV_FIELD(o, "partial", bool, e->partial);
	SRV_FIELD(o, "stream", str, e->stream);
	bool text = sl__utf8_valid_n(payload, e->payload_len);
	srv_out_name(o, text ? "text" : "data_b64");
	if (text)
		srv_out_strn(o, payload, e->payload_len);
	else
		srv_out_base64(o, payload, e->payload_len);
	srv_out_close(o, '}');
}
