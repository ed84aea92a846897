/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every setting of a server, once. From these rows come the struct, the YAML sections, the environment's names, the
 * flags of `sluice up`, `sluice server` and `sluice worker`, docs/configuration.md and what an error suggests.
 *
 *   X(KIND, section, name, flag, letter, ARG, default, least, most, choices, help)
 *
 * In YAML: `section: {name: value}`. In the environment: SLUICE_SECTION_NAME (SLUICE_STORE for store.url). As a flag:
 * --flag where there is one, and --set section.name=value for all. Names that a specification gave are kept: perf is of
 * 001, coordinator of 002, wal of 003, jobs of 004. A default of NULL is said by the help.
 *
 * KIND: TEXT, PATH (of a local file or folder; a URL is refused), NUMBER, MILLIS (a number of milliseconds, or 250ms,
 * 60s, 5m), BYTES (a number, or 64KiB, 1MiB), FACTOR (1.5; in thousandths), SWITCH (true, false), CHOICE (one of choices), LIST (of texts; in the
 * environment one a line).
 */
#ifndef SLUICE_SERVER_CONFIG_SETTINGS_H
#define SLUICE_SERVER_CONFIG_SETTINGS_H

#include <stdint.h>

#define SRV_YEAR_MS INT64_C(31536000000)
#define SRV_DAY_MS 86400000
#define SRV_KEEP_MS INT64_C(3153600000000) /* 36500 days */

/* Flags of both commands. */
#define SRV_SETTINGS_SHARED(X)                                                                                         \
	X(TEXT, store, url, "store", 's', "URL", NULL, 0, 0, NULL,                                                     \
	  "Store of the jobs: sqlite:FILE or postgres://…; default sqlite:sluice.db in the data folder")               \
	X(PATH, server, data, "data", 'd', "DIR", NULL, 0, 0, NULL,                                                    \
	  "Folder of the embedded store, the log and dead letters; default ~/.sluice")                                 \
	X(TEXT, server, listen, "listen", 'l', "ADDR", "127.0.0.1:7070", 0, 0, NULL,                                   \
	  "Address and port to listen on (0: any free port). An address other than loopback needs TLS and tokens")     \
	X(LIST, server, hosts, "host", 0, "NAME", NULL, 0, 0, NULL,                                                    \
	  "Accept requests that use this name for the server, in addition to its address")                             \
	X(SWITCH, server, behind_proxy, "behind-proxy", 0, NULL, "false", 0, 0, NULL,                                  \
	  "Trust a proxy in front of the server, which adds the client's address to X-Forwarded-For and may "          \
	  "terminate TLS. Tokens are then required on loopback too")                                                   \
	X(PATH, server, tls_cert_file, "tls-cert", 0, "FILE", NULL, 0, 0, NULL,                                        \
	  "Certificate chain in PEM; with tls_key_file, serve HTTPS only")                                             \
	X(PATH, server, tls_key_file, "tls-key", 0, "FILE", NULL, 0, 0, NULL, "Private key of the certificate in PEM") \
	X(PATH, server, tokens_file, "tokens", 0, "FILE", NULL, 0, 0, NULL,                                            \
	  "Access tokens, one per line: name, scopes and hash (see sluice-server(1)); mode 0600")                      \
	X(SWITCH, server, read_only, "read-only", 0, NULL, "false", 0, 0, NULL,                                        \
	  "Refuse every request that changes something, also from the dashboard")                                      \
	X(CHOICE, server, access_log, "access-log", 0, "FORMAT", "off", 0, 0, srv_choices_access_log,                  \
	  "Access log on standard error, one line per request")                                                        \
	X(MILLIS, retention, completed, "retention-completed", 0, "TIME", NULL, 0, SRV_KEEP_MS, NULL,                  \
	  "Delete a chain this long after it completed; 0: never. Default: what another process has set for the "      \
	  "store, else 7d")                                                                                            \
	X(MILLIS, retention, failed, "retention-failed", 0, "TIME", NULL, 0, SRV_KEEP_MS, NULL,                        \
	  "Delete a chain this long after it failed or was cancelled; 0: never. Default: what another process has "    \
	  "set for the store, else 90d")                                                                               \
	X(MILLIS, retention, events, "retention-events", 0, "TIME", NULL, 0, SRV_KEEP_MS, NULL,                        \
	  "Delete events of jobs at this age, also while their job is kept; 0: never. Default: what another process "  \
	  "has set for the store, else 30d")                                                                           \
	X(MILLIS, retention, lines, "retention-lines", 0, "TIME", NULL, 0, SRV_KEEP_MS, NULL,                          \
	  "Delete shipped lines at this age; 0: never. Default: what another process has set for the store, else 30d") \
	X(PATH, export_events, dir, "export", 0, "DIR", NULL, 0, 0, NULL,                                              \
	  "Export the store's events to this folder as Parquet, with a catalog and an audit chain; default: off")

/* Flags of `sluice worker` and `sluice up`. */
#define SRV_SETTINGS_WORKER(X)                                                                                         \
	X(LIST, jobs, types, "type", 't', "NAME=COMMAND", NULL, 0, 0, NULL,                                            \
	  "Serve this type with this command, split into words (quotes keep words together, nothing is expanded). "    \
	  "NAME alone needs command_from_input")                                                                       \
	X(SWITCH, jobs, command_from_input, "command-from-input", 0, NULL, "false", 0, 0, NULL,                        \
	  "Let the input of a job name its command, for each type without one; 'sluice run --detach' enqueues such "   \
	  "jobs, of type run, which 'sluice up' then serves. Warning: anyone who can write to the store can then run " \
	  "commands as this user. Jobs that came over HTTP fail")                                                      \
	X(SWITCH, jobs, shell, "shell", 0, NULL, "false", 0, 0, NULL, "Run each command with /bin/sh -c")              \
	X(LIST, jobs, pass_env, "pass-env", 0, "NAME", NULL, 0, 0, NULL,                                               \
	  "Pass this variable to commands although it is one of Sluice's secrets: PGPASSWORD, the password in "        \
	  "SLUICE_STORE, SLUICE_…TOKEN…")                                                                              \
	X(TEXT, jobs, run_as, "run-as", 0, "USER", NULL, 0, 0, NULL,                                                   \
	  "Run the commands as this user, who cannot read the worker's files, such as the store. Needs root, or "      \
	  "CAP_SETUID, CAP_SETGID and CAP_KILL; default: the worker's own user")                                       \
	X(MILLIS, jobs, lease_ms, "lease", 0, "TIME", "60s", 100, SRV_DAY_MS, NULL,                                    \
	  "Lease of a job; without a renewal for this long, another worker takes the job")                             \
	X(MILLIS, jobs, renew_interval_ms, "renew", 0, "TIME", NULL, 10, SRV_DAY_MS, NULL,                             \
	  "Renew leases at this interval, at most half of lease_ms; default a third of it")                            \
	X(MILLIS, jobs, timeout_ms, "timeout", 0, "TIME", "0", 0, SRV_YEAR_MS, NULL,                                   \
	  "Stop a command that runs longer; 0: never")                                                                 \
	X(NUMBER, jobs, max_attempts, "max-attempts", 0, "N", "0", 0, 1000000, NULL,                                   \
	  "Fail a job after this many charged attempts; 0: never. With 1, a job starts at most once: it fails if its " \
	  "worker stops or dies")                                                                                      \
	X(MILLIS, jobs, initial_delay_ms, "retry-delay", 0, "TIME", "10s", 1, SRV_DAY_MS, NULL,                        \
	  "Delay before the second attempt")                                                                           \
	X(MILLIS, jobs, max_delay_ms, "retry-max-delay", 0, "TIME", NULL, 1, SRV_YEAR_MS, NULL,                        \
	  "Longest delay between attempts; default 300s, or the delay before the second attempt if that is longer")    \
	X(FACTOR, jobs, multiplier, "retry-multiplier", 0, "N", "2", 1000, 100000, NULL,                               \
	  "Multiply the delay by this after each further attempt")                                                     \
	X(MILLIS, jobs, next_job_delay_ms, "next-job-delay", 0, "TIME", "0", 0, SRV_DAY_MS, NULL,                      \
	  "Let a slot rest for this long after each job")                                                              \
	X(MILLIS, jobs, poll_interval_ms, "poll", 0, "TIME", "60s", 10, SRV_DAY_MS, NULL,                              \
	  "Poll for jobs at this interval, even without a notification")                                               \
	X(MILLIS, jobs, kill_grace_ms, "kill-grace", 0, "TIME", "5s", 1, 3600000, NULL,                                \
	  "Time between SIGTERM and SIGKILL for a command that must stop")                                             \
	X(PATH, wal, wal_dir, "wal", 0, "DIR", NULL, 0, 0, NULL,                                                       \
	  "Folder that keeps output until it is in the store; default ~/.sluice/wal, of 'sluice up' wal in its data "  \
	  "folder")                                                                                                    \
	X(PATH, wal, key_file, "wal-key-file", 0, "FILE", NULL, 0, 0, NULL,                                            \
	  "Encrypt the output that is kept on disk, log and spools, with the key in this file: 32 bytes, raw or as "   \
	  "64 "                                                                                                        \
	  "hexadecimal digits, mode 0600; default: not encrypted")                                                     \
	X(CHOICE, wal, on_corruption, "wal-on-corruption", 0, "POLICY", "salvage", 0, 0, srv_choices_damage,           \
	  "Policy for a damaged log: keep every good record, cut the log at the damage, or do not open it")            \
	X(NUMBER, wal, retention_days, "wal-retention-days", 0, "N", "30", 1, 36500, NULL,                             \
	  "Days that archives are kept")                                                                               \
	X(MILLIS, wal, retry_delay_ms, "wal-retry-delay", 0, "TIME", "1s", 1, SRV_DAY_MS, NULL,                        \
	  "Delay before output that could not be sent is sent again")                                                  \
	X(MILLIS, wal, retry_max_delay_ms, "wal-retry-max-delay", 0, "TIME", "60s", 1, SRV_DAY_MS, NULL,               \
	  "Longest delay before it is sent again")                                                                     \
	X(FACTOR, wal, retry_multiplier, "wal-retry-multiplier", 0, "N", "2", 1000, 100000, NULL,                      \
	  "Multiply the delay by this after each further failure")

/* A flag of both; `sluice worker` has another default: 1 slot. */
#define SRV_SETTINGS_UP(X)                                                                                             \
	X(NUMBER, jobs, slots, "slots", 'n', "N", "4", 1, 10000, NULL,                                                 \
	  "Number of jobs run at the same time; default 1 for 'sluice worker'")

/* Settings of one type: types.TYPE.NAME, with `jobs` for what is not set.
 *
 *   X(KIND, member, name, least, most, help)
 */
#define SRV_TYPE_SETTINGS(X)                                                                                           \
	X(TEXT, command, "command", 0, 0, "Serve the type with this command, as --type does; --type wins")             \
	X(MILLIS, lease, "lease", 100, SRV_DAY_MS, "Lease of its jobs")                                                \
	X(MILLIS, renew, "renew", 10, SRV_DAY_MS,                                                                      \
	  "Renew leases at this interval, at most half of the lease; default a third of a lease that is set here")     \
	X(MILLIS, timeout, "timeout", 0, SRV_YEAR_MS, "Stop a command that runs longer; 0: never")                     \
	X(NUMBER, priority, "priority", -INT32_MAX, INT32_MAX,                                                         \
	  "Priority of new jobs that give none, when a server enqueues them or a job of this worker continues with "   \
	  "them; smaller runs first")                                                                                  \
	X(NUMBER, slots, "slots", 1, 10000, "Maximum jobs of the type that run at the same time in this worker")       \
	X(MILLIS, next_job_delay, "next_job_delay", 0, SRV_DAY_MS, "Let a slot rest for this long after such a job")   \
	X(MILLIS, retry_first, "retry.first", 1, SRV_DAY_MS, "Delay before the second attempt")                        \
	X(MILLIS, retry_cap, "retry.cap", 1, SRV_YEAR_MS, "Longest delay between attempts")                            \
	X(FACTOR, retry_multiplier, "retry.multiplier", 1000, 100000,                                                  \
	  "Multiply the delay by this after each further attempt")                                                     \
	X(NUMBER, max_attempts, "retry.max_attempts", 0, 1000000,                                                      \
	  "Fail a job after this many charged attempts; 0: never")

/* No flag of their own. */
#define SRV_SETTINGS_REST(X)                                                                                           \
	X(NUMBER, store, connections, NULL, 0, NULL, "8", 2, 1000, NULL,                                               \
	  "Maximum connections to PostgreSQL; one of them is reserved for urgent calls")                               \
	X(MILLIS, store, connect_timeout_ms, NULL, 0, NULL, "5000", 1, SRV_DAY_MS, NULL,                               \
	  "Fail a connection to PostgreSQL that takes longer")                                                         \
	X(MILLIS, store, statement_timeout_ms, NULL, 0, NULL, "30000", 1, SRV_DAY_MS, NULL,                            \
	  "Fail a statement that takes longer")                                                                        \
	X(NUMBER, server, threads, NULL, 0, NULL, "8", 1, 256, NULL,                                                   \
	  "Number of requests that may wait for the store at the same time")                                           \
	X(BYTES, server, body_max_bytes, NULL, 0, NULL, "16777216", 1024, 1073741824, NULL,                            \
	  "Maximum size of a request's body")                                                                          \
	X(MILLIS, server, header_deadline_ms, NULL, 0, NULL, "10000", 100, 3600000, NULL,                              \
	  "Time allowed for the headers of a request to arrive")                                                       \
	X(MILLIS, server, request_deadline_ms, NULL, 0, NULL, "60000", 100, 3600000, NULL,                             \
	  "Time allowed for the whole request to arrive")                                                              \
	X(NUMBER, server, connections_max, NULL, 0, NULL, "1000", 1, 1000000, NULL, "Maximum open connections")        \
	X(NUMBER, server, connections_per_address, NULL, 0, NULL, "250", 1, 1000000, NULL,                             \
	  "Maximum open connections per client address")                                                               \
	X(NUMBER, server, audit_retention_days, NULL, 0, NULL, "365", 1, 36500, NULL,                                  \
	  "Days that records of the audit trail, a table of the store, are kept")                                      \
	X(MILLIS, server, drain_timeout_ms, NULL, 0, NULL, "30000", 0, SRV_DAY_MS, NULL,                               \
	  "Time allowed for running commands, open requests and the log to finish when the server stops")              \
	X(CHOICE, server, log_level, NULL, 0, NULL, NULL, 0, 0, srv_choices_log_level,                                 \
	  "Print only records of this level or above; reloaded on SIGHUP; default: that of --log-level")               \
	X(PATH, wal, archive_dir, NULL, 0, NULL, NULL, 0, 0, NULL,                                                     \
	  "Folder for the archives of sent logs; default archive in the data folder")                                  \
	X(MILLIS, wal, flush_interval_ms, NULL, 0, NULL, "100", 1, 60000, NULL,                                        \
	  "Longest sleep of the sender while records are pending")                                                     \
	X(MILLIS, wal, linger_ms, NULL, 0, NULL, "2", 0, 60000, NULL,                                                  \
	  "Time a batch that is not full waits for more records before it is sent")                                    \
	X(BYTES, wal, segment_bytes, NULL, 0, NULL, "67108864", 4096, 1099511627776, NULL,                             \
	  "Seal a segment when it exceeds this size")                                                                  \
	X(BYTES, wal, max_pending_bytes, NULL, 0, NULL, "1073741824", 65536, 1099511627776, NULL,                      \
	  "Maximum bytes that wait to be sent; at this limit, commands block")                                         \
	X(SWITCH, wal, archive_on_complete, NULL, 0, NULL, "true", 0, 0, NULL, "Keep a compressed copy of sent logs")  \
	X(NUMBER, coordinator, capacity, NULL, 0, NULL, "10000", 1, 10000000, NULL,                                    \
	  "Maximum batches of events that wait for the store; more are refused with 429")                              \
	X(NUMBER, coordinator, workers, NULL, 0, NULL, "4", 1, 256, NULL,                                              \
	  "Number of writes to the store at the same time")                                                            \
	X(NUMBER, coordinator, batch_size, NULL, 0, NULL, "500", 1, 1000000, NULL, "Maximum items per write")          \
	X(MILLIS, coordinator, flush_interval_ms, NULL, 0, NULL, "250", 0, 60000, NULL,                                \
	  "Under load, start a write when its oldest item has this age; 0: immediately")                               \
	X(NUMBER, coordinator, high_watermark, NULL, 0, NULL, NULL, 1, 10000000, NULL,                                 \
	  "Start backpressure when this many items wait; default 80 % of capacity")                                    \
	X(NUMBER, coordinator, low_watermark, NULL, 0, NULL, NULL, 0, 10000000, NULL,                                  \
	  "End backpressure when only this many items wait; default 50 % of capacity")                                 \
	X(NUMBER, coordinator, max_attempts, NULL, 0, NULL, "5", 1, 1000000, NULL,                                     \
	  "Attempts per batch, including the first; an unavailable store uses none")                                   \
	X(MILLIS, coordinator, initial_backoff_ms, NULL, 0, NULL, "50", 1, SRV_DAY_MS, NULL,                           \
	  "Delay before the second attempt; it doubles with each further one")                                         \
	X(MILLIS, coordinator, max_backoff_ms, NULL, 0, NULL, "2000", 1, SRV_DAY_MS, NULL,                             \
	  "Longest delay between attempts")                                                                            \
	X(NUMBER, coordinator, breaker_failures, NULL, 0, NULL, "5", 1, 1000000, NULL,                                 \
	  "Consecutive failures that open the breaker")                                                                \
	X(MILLIS, coordinator, breaker_open_ms, NULL, 0, NULL, "1000", 1, SRV_DAY_MS, NULL,                            \
	  "First pause before a probe; it doubles up to breaker_open_max_ms")                                          \
	X(MILLIS, coordinator, breaker_open_max_ms, NULL, 0, NULL, "30000", 1, SRV_DAY_MS, NULL,                       \
	  "Longest pause before a probe")                                                                              \
	X(MILLIS, coordinator, give_up_after_ms, NULL, 0, NULL, "0", 0, SRV_YEAR_MS, NULL,                             \
	  "Drop events that the store has not accepted for this long, and answer their sender with 503; 0: wait "      \
	  "forever")                                                                                                   \
	X(TEXT, export_events, dataset, NULL, 0, NULL, "job_events", 0, 0, NULL, "Name of the dataset in the folder")  \
	X(NUMBER, export_events, partition_size, NULL, 0, NULL, "100000", 1, 1000000000, NULL,                         \
	  "Events per partition; a partition that is not full waits. Cannot change once a partition exists")           \
	X(NUMBER, export_events, zstd_level, NULL, 0, NULL, "3", 1, 19, NULL,                                          \
	  "Compression level of the Parquet files")                                                                    \
	X(TEXT, export_events, catalog, NULL, 0, NULL, NULL, 0, 0, NULL,                                               \
	  "Catalog, shared by all servers that export to the folder: sqlite:FILE or postgres://…; default "          \
	  "sqlite:_catalog.db in the folder")                                                                          \
	X(PATH, export_events, sign_key_file, NULL, 0, NULL, NULL, 0, 0, NULL,                                         \
	  "Sign heads with this secret key of 'sluice audit keygen'; default: heads are not signed")                   \
	X(TEXT, export_events, audit_endpoint, NULL, 0, NULL, NULL, 0, 0, NULL,                                        \
	  "HTTP endpoint that also receives each audit event; default: none")                                          \
	X(PATH, export_events, audit_token_file, NULL, 0, NULL, NULL, 0, 0, NULL,                                      \
	  "File with the bearer token for the audit endpoint; default: none")                                          \
	X(PATH, export_events, audit_ca_file, NULL, 0, NULL, NULL, 0, 0, NULL,                                         \
	  "CA certificates (PEM) to trust for the audit endpoint; default: the system's")                              \
	X(NUMBER, export_events, verify_threads, NULL, 0, NULL, "1", 1, 256, NULL,                                     \
	  "Number of files that a verification reads at the same time")                                                \
	X(PATH, backup, repo, NULL, 0, NULL, NULL, 0, 0, NULL,                                                         \
	  "Folder of a 'sluice backup' repository that the dashboard shows and checks; default: none")                 \
	X(PATH, backup, passphrase_file, NULL, 0, NULL, NULL, 0, 0, NULL,                                              \
	  "File with the repository's passphrase, mode 0600. With it, a repository that is not encrypted is refused; " \
	  "default: the file of SLUICE_PASSPHRASE_FILE")                                                               \
	X(MILLIS, backup, refresh_interval_ms, NULL, 0, NULL, "60000", 100, SRV_DAY_MS, NULL,                          \
	  "Read the repository at this interval")                                                                      \
	X(NUMBER, perf, workers, NULL, 0, NULL, "4", 1, 256, NULL, "Number of partitions built at the same time")      \
	X(NUMBER, perf, queue_size, NULL, 0, NULL, "8", 1, 1000000, NULL,                                              \
	  "Number of partitions that may wait in the queue of an export")                                              \
	X(NUMBER, perf, retry_attempts, NULL, 0, NULL, "3", 1, 1000000, NULL, "Attempts per partition")                \
	X(MILLIS, perf, retry_backoff_ms, NULL, 0, NULL, "1000", 1, SRV_DAY_MS, NULL,                                  \
	  "Delay before the second attempt; it doubles with each further one")                                         \
	X(TEXT, export, from, NULL, 0, NULL, NULL, 0, 0, NULL,                                                         \
	  "Source to read: a file, - for standard input, postgres://… or sqlite:FILE")                                 \
	X(TEXT, export, table, NULL, 0, NULL, NULL, 0, 0, NULL, "Table of the database to read")                       \
	X(TEXT, export, query, NULL, 0, NULL, NULL, 0, 0, NULL, "Query to read instead of a table")                    \
	X(CHOICE, export, format, NULL, 0, NULL, NULL, 0, 0, srv_choices_rows,                                         \
	  "Format of the file when its name does not end in .csv or .jsonl")                                           \
	X(TEXT, export, sequence, NULL, 0, NULL, NULL, 0, 0, NULL,                                                     \
	  "Column that numbers the rows without gaps; default: that of the dataset, else the first one")               \
	X(NUMBER, export, partition_size, NULL, 0, NULL, NULL, 1, INT64_C(4294967296), NULL,                           \
	  "Sequence numbers per partition; cannot change for an existing dataset; default 250000")                     \
	X(PATH, export, to, NULL, 0, NULL, NULL, 0, 0, NULL, "Folder of the datasets")                                 \
	X(TEXT, export, dataset, NULL, 0, NULL, NULL, 0, 0, NULL, "Name of the dataset")                               \
	X(PATH, export, schema_file, NULL, 0, NULL, NULL, 0, 0, NULL,                                                  \
	  "File of columns and their types in YAML; default: those of the dataset or the database, else guessed from " \
	  "the first rows")                                                                                            \
	X(TEXT, export, catalog, NULL, 0, NULL, NULL, 0, 0, NULL,                                                      \
	  "Catalog of partitions, audit events and the checkpoint: sqlite:FILE or postgres://…; default "            \
	  "sqlite:_catalog.db in the folder")                                                                          \
	X(NUMBER, export, zstd_level, NULL, 0, NULL, NULL, 1, 19, NULL,                                                \
	  "Compression level of the Parquet files; cannot change for an existing dataset; default 3")                  \
	X(SWITCH, export, follow, NULL, 0, NULL, "false", 0, 0, NULL, "Continue as the source grows, until a signal")  \
	X(CHOICE, export, gaps, NULL, 0, NULL, NULL, 0, 0, srv_choices_gaps,                                           \
	  "Stop at a number that is missing for good, or record it as a hole in the audit event; default: record for " \
	  "a table where open transactions are visible, else stop")                                                    \
	X(CHOICE, export, bad_rows, NULL, 0, NULL, "stop", 0, 0, srv_choices_bad_rows,                                 \
	  "Stop at a row that does not fit its columns, or divert it to the dead letters")                             \
	X(PATH, export, dead_letters, NULL, 0, NULL, NULL, 0, 0, NULL,                                                 \
	  "Folder for diverted rows; default _dead/DATASET in the folder")

#define SRV_SETTINGS(X) SRV_SETTINGS_SHARED(X) SRV_SETTINGS_WORKER(X) SRV_SETTINGS_UP(X) SRV_SETTINGS_REST(X)

#endif
