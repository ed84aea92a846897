/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appending: 1, 16 and 64 producers, and one thread with 64 tickets in flight, against every database that is there
 * and, for one producer, the bare disk. The tickets run in the same rounds as the 64 producers they are compared with.
 */
#include "bench.h"

struct bound {
	double floor, goal;
};

static const size_t sizes[] = {256, 2048};

static void add_peers(struct group *g, int clients)
{
	for (const struct contender *const *c = bench_peers; *c != NULL; c++)
		group_add(g, *c, clients);
}

static void line_ratio(struct report *r, const struct group *g, const struct entry *ours, const struct entry *peer,
		       const char *row, const char *work, struct bound bound)
{
	struct line l = {.row = row,
			 .record_bytes = g->record_bytes,
			 .unit = "x",
			 .floor = bound.floor,
			 .goal = bound.goal,
			 .rate_unit = "records/s"};
	char rate[24];
	if (ours == NULL || peer == NULL)
		return;
	(void)snprintf(l.work, sizeof(l.work), "%s", work);
	format_rate(l.ours, sizeof(l.ours), entry_rate(ours));
	format_rate(rate, sizeof(rate), entry_rate(peer));
	(void)snprintf(l.against, sizeof(l.against), "%s %s", peer->c->name, rate);
	l.value = entry_ratio(ours, peer);
	l.ours_rate = entry_rate(ours);
	l.peer_rate = entry_rate(peer);
	l.peer = peer->c->name;
	report_line(r, &l);
}

static void line_per_flush(struct report *r, const struct group *g, const struct entry *ours)
{
	struct line l = {.row = "64", .record_bytes = g->record_bytes, .unit = "records", .floor = 40, .goal = 57};
	if (ours == NULL || ours->flushes == 0)
		return;
	(void)snprintf(l.work, sizeof(l.work), "64 producers, records per flush");
	(void)snprintf(l.against, sizeof(l.against), "-");
	l.value = (double)ours->flushed_records / (double)ours->flushes;
	(void)snprintf(l.ours, sizeof(l.ours), "%.1f", l.value);
	report_line(r, &l);
}

static void one_producer(struct report *r, const struct settings *s, size_t bytes)
{
	static struct group g;
	g = (struct group){.record_bytes = bytes};
	group_add(&g, &contender_sluice, 1);
	group_add(&g, &contender_raw_fdatasync, 1);
	group_add(&g, &contender_raw_direct, 1);
	add_peers(&g, 1);
	group_run(&g, s);
	const struct entry *ours = group_find(&g, &contender_sluice);
	line_ratio(r, &g, ours, group_best(&g, false), "1", "1 producer", (struct bound){1.0, 1.4});
	line_ratio(r, &g, ours, group_best(&g, true), "1", "1 producer, raw disk", (struct bound){0.9, 0});
	report_group(r, &g, "1 producer");
}

static void sixteen_producers(struct report *r, const struct settings *s, size_t bytes)
{
	static struct group g;
	g = (struct group){.record_bytes = bytes};
	group_add(&g, &contender_sluice, 16);
	add_peers(&g, 16);
	group_run(&g, s);
	line_ratio(r, &g, group_find(&g, &contender_sluice), group_best(&g, false), "16", "16 producers",
		   (struct bound){1.6, 2.5});
	report_group(r, &g, "16 producers");
}

static void many_producers(struct report *r, const struct settings *s, size_t bytes, unsigned wanted)
{
	static struct group g;
	g = (struct group){.record_bytes = bytes};
	if (wanted & ROW_64)
		group_add(&g, &contender_sluice, 64);
	if (wanted & ROW_TICKETS)
		group_add(&g, &contender_sluice_tickets, 1);
	add_peers(&g, 64);
	group_run(&g, s);
	const struct entry *best = group_best(&g, false), *ours = group_find(&g, &contender_sluice);
	line_ratio(r, &g, ours, best, "64", "64 producers", (struct bound){1.8, 2.7});
	line_per_flush(r, &g, ours);
	line_ratio(r, &g, group_find(&g, &contender_sluice_tickets), best, "tickets", "1 thread, 64 tickets in flight",
		   (struct bound){4, 7});
	report_group(r, &g, "64 producers");
}

void rows_append(struct report *r, const struct settings *s, unsigned wanted)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		if (wanted & ROW_1)
			one_producer(r, s, sizes[i]);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		if (wanted & ROW_16)
			sixteen_producers(r, s, sizes[i]);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		if (wanted & (ROW_64 | ROW_TICKETS))
			many_producers(r, s, sizes[i], wanted);
}
