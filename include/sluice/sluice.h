/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All of Sluice in one include. Each header also stands alone; those in adapter/ are for people who bring a store, a
 * notifier, a sink, a driver, I/O or a clock of their own.
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
#include <sluice/catalog.h>
#include <sluice/coordinator.h>
#include <sluice/dead_letter.h>
#include <sluice/err.h>
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
#include <sluice/retry.h>
#include <sluice/ship.h>
#include <sluice/sink.h>
#include <sluice/version.h>
#include <sluice/wal.h>
#include <sluice/writer.h>

#endif
