/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the server alive, and is it of use? A thread looks every second: it asks the store something small and asks every
 * part that registered a check. Ready means that all of it went well a moment ago; a store that hangs makes the last
 * look old, and that is not ready either. The same thread feeds systemd's watchdog, so that a process in which it
 * cannot go round is restarted; a store that is unavailable but answers with an error does not stop the feeding, since a
 * restart would not bring it back.
 *
 *   GET /livez    200 as long as requests are answered
 *   GET /readyz   200 or 503, with the checks as JSON
 *   GET /metrics  Prometheus text
 *
 * Thread safety: checks run on the health thread. Ownership: what checks use must outlive srv_health_stop.
 */
#ifndef SLUICE_SERVER_HEALTH_H
#define SLUICE_SERVER_HEALTH_H

#include "server/core.h"
#include "server/notify_systemd.h"

struct srv_health;

enum srv_verdict {
	SRV_FINE = 0,
	SRV_AILING = 1,    /* shown as not ok, but no request suffers from it: ready all the same */
	SRV_NOT_READY = 2, /* of no use now, but it may get better by itself */
	SRV_STUCK = 3      /* does not move any more: also no longer feed the watchdog */
};
/* why: one line for people when the verdict is not fine. Must not block for long. */
typedef enum srv_verdict srv_check_fn(char *why, size_t size, void *ctx);

int srv_health_new(struct srv_health **out, struct srv_core *core, struct sl_err *err);
/* Before start, or while it runs. At most 8. */
int srv_health_add_check(struct srv_health *health, const char *name, srv_check_fn *fn, void *ctx, struct sl_err *err);
int srv_health_add_routes(srv_http *h, struct srv_health *health, struct sl_err *err);
/* Looks once, then starts the thread. systemd may be NULL; it must outlive the health. */
int srv_health_start(struct srv_health *health, const struct srv_systemd *systemd, struct sl_err *err);
/* Not ready from now on: a balancer sends no more requests. */
void srv_health_drain(struct srv_health *health);
void srv_health_stop(struct srv_health *health);
void srv_health_free(struct srv_health *health);

/* Does the receiver of the log move? ctx of srv_check_ingest. */
struct srv_pulse {
	struct srv_ingest *ingest;
	int64_t stuck_ms; /* items wait, the breaker is closed and nothing ends for so long: stuck */
	uint64_t ended;
	int64_t moved_ms;
};
srv_check_fn srv_check_ingest;

#endif
