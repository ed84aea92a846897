/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All of Sluice in one include. Each header also stands alone; those in adapter/ are for people who bring a sink, a
 * storage driver, I/O or a clock of their own.
 *
 * What all headers have in common:
 *  - Functions return 0 or a negative SL_E… (<sluice/err.h>). Outputs are untouched on failure, unless the function says
 *    otherwise.
 *  - open and close are for what has storage or a connection, new and free for what is in memory, start and stop for
 *    threads. What a function returns for keeping is released by a function that is named for it.
 *  - Parameters come in the order: the handle (of open and new: where it goes), inputs, outputs, err; of callbacks ctx is
 *    the last. A function in the table of a sink or a driver takes that object first, as the functions of a handle do.
 *  - Zero in an option means the default; SL_NONE and SL_UNLIMITED say zero and without a limit where that is meant.
 *  - Structs that may grow begin with their size: options and filters, what is put into a store alone (a schedule, a dead
 *    letter), and results that the caller provides. An …_INIT macro fills it; a shorter struct of an earlier version is
 *    read as if the rest were zero. Structs that only the library provides, to a callback for example, grow at their
 *    end.
 *  - Structs without a size keep their size within a soname: elements of arrays and what is passed in great numbers
 *    (chains, items, records, rows, events, marks, values, columns), errors, retry policies, and groups of options
 *    inside of other options. Where they may yet need more they end with `reserved`, which must be zero.
 *  - Tables of functions begin with their version.
 *  - Units are part of a name: _ms, _bytes. A number of things is n_things.
 *
 * Thread safety: each header says it. In general any thread may use a handle, except that its end is the last call. In a
 * forked child functions of a handle fail with SL_EFORKED. The library's threads block all signals; it installs no
 * handlers, prints nothing, and never exits.
 * Ownership: each header says it. In general what is passed in is copied before a call returns, and what a callback gets
 * lives until it returns.
 */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#include <sluice/adapter/clock.h>
#include <sluice/adapter/driver.h>
#include <sluice/adapter/env.h>
#include <sluice/adapter/io.h>
#include <sluice/adapter/observe.h>
#include <sluice/adapter/sink.h>
#include <sluice/audit.h>
#include <sluice/backup.h>
#include <sluice/backup_care.h>
#include <sluice/catalog.h>
#include <sluice/coordinator.h>
#include <sluice/dead_letter.h>
#include <sluice/err.h>
#include <sluice/event.h>
#include <sluice/events.h>
#include <sluice/exec.h>
#include <sluice/export.h>
#include <sluice/job.h>
#include <sluice/jobs.h>
#include <sluice/load.h>
#include <sluice/log.h>
#include <sluice/metrics.h>
#include <sluice/parquet.h>
#include <sluice/pipeline.h>
#include <sluice/records.h>
#include <sluice/retention.h>
#include <sluice/retry.h>
#include <sluice/ship.h>
#include <sluice/sink.h>
#include <sluice/version.h>
#include <sluice/wal.h>
#include <sluice/wal_files.h>
#include <sluice/worker.h>
#include <sluice/writer.h>

#endif
