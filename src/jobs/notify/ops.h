/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notifications: hints that make a worker check immediately instead of at its next poll. They may be lost, doubled or late;
 * nothing but latency depends on them.
 *
 * Thread safety: every slot from any thread at once. publish must not be called with a transaction open on the
 * notifier's own connection; it does not block for long (it may queue, coalesce and drop).
 */
#ifndef SL_JOBS_NOTIFY_OPS_H
#define SL_JOBS_NOTIFY_OPS_H

#include "jobs/store/ops.h"

#define SL_NOTIFY_VERSION 3

struct sl_notify_ops {
	int version; /* SL_NOTIFY_VERSION */
	const char *name;
	void (*close)(void *notify);
	/* Notify all subscribers, in this process and others. Notes of one kind and type may be merged. */
	int (*publish)(void *notify, const struct sl_note *notes, size_t n, struct sl_err *err);
	/* Publish as part of the transaction: sent when it commits. NULL: not supported, publish after the commit. */
	int (*publish_in)(void *notify, sl_store_tx *tx, const struct sl_note *notes, size_t n, struct sl_err *err);
	/* fn is called on a thread of the notifier, no lock held; it must be quick and must not call the notifier. A
	 * note with kind 0 means: notes may have been lost, check everything. */
	int (*subscribe)(void *notify, sl_note_fn *fn, void *ctx, struct sl_err *err);
	/* When it returns, fn is not running with ctx and never will. */
	void (*unsubscribe)(void *notify, sl_note_fn *fn, void *ctx);
	/* 1: notifications have been seen to work (self-probe); 0: rely on polling. */
	int (*healthy)(void *notify);
	/* The notification that a store sends itself with a start: see sl_start_notification. The caller still publishes
	 * the note, with `sent` set, so that this process hears of it. 0: not now, or not for this type. Every
	 * notification costs the server a transaction, so only starts that are a few milliseconds apart get one; the
	 * others are merged by publish. NULL: never. */
	int (*start_notification)(void *notify, const char *type, struct sl_start_notification *out);
};

#endif
