/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every setting of a server, once. From these rows come the struct, the YAML sections, the environment's names, the
 * flags of `sluice up` and `sluice server`, docs/configuration.md and what an error suggests.
 *
 *   X(KIND, section, name, flag, letter, ARG, default, least, most, choices, help)
 *
 * In YAML: `section: {name: value}`. In the environment: SLUICE_SECTION_NAME (SLUICE_STORE for store.url). As a flag:
 * --flag where there is one, and --set section.name=value for all. Names that a specification gave are kept: perf is of
 * 001, coordinator of 002, wal of 003, jobs of 004. A default of NULL is said by the help.
 *
 * KIND: TEXT, PATH (of a local file or folder; a URL is refused), NUMBER, MILLIS (a number of milliseconds, or 250ms,
 * 60s, 5m), BYTES (a number, or 64KiB, 1MiB), SWITCH (true, false), CHOICE (one of choices), LIST (of texts; in the
 * environment one a line).
 */
#ifndef SLUICE_SERVER_CONFIG_SETTINGS_H
#define SLUICE_SERVER_CONFIG_SETTINGS_H

#include <stdint.h>

#define SRV_YEAR_MS INT64_C(31536000000)
#define SRV_DAY_MS 86400000

/* Flags of both commands. */
#define SRV_SETTINGS_SHARED(X)                                                                                         \
	X(TEXT, store, url, "store", 's', "URL", NULL, 0, 0, NULL,                                                     \
	  "Where the jobs are: sqlite:FILE or postgres://…; default sqlite:sluice.db in the data folder")              \
	X(PATH, server, data, "data", 'd', "DIR", NULL, 0, 0, NULL,                                                    \
	  "The folder of the embedded store, the log and dead letters; default ~/.sluice")                             \
	X(TEXT, server, listen, "listen", 'l', "ADDR", "127.0.0.1:7070", 0, 0, NULL,                                   \
	  "Address and port to listen on; port 0 takes a free one. Other than loopback needs TLS and tokens")          \
	X(LIST, server, hosts, "host", 0, "NAME", NULL, 0, 0, NULL,                                                    \
	  "A name that requests may use for this server, in addition to its address")                                  \
	X(SWITCH, server, behind_proxy, "behind-proxy", 0, NULL, "false", 0, 0, NULL,                                  \
	  "A proxy in front of the server adds the client's address to X-Forwarded-For and may terminate TLS; tokens " \
	  "are then required on loopback too")                                                                         \
	X(PATH, server, tls_cert_file, "tls-cert", 0, "FILE", NULL, 0, 0, NULL,                                        \
	  "Certificate chain in PEM; with tls_key_file: serve HTTPS only")                                             \
	X(PATH, server, tls_key_file, "tls-key", 0, "FILE", NULL, 0, 0, NULL, "Its private key in PEM")                \
	X(PATH, server, tokens_file, "tokens", 0, "FILE", NULL, 0, 0, NULL,                                            \
	  "Access tokens, one per line: name, scopes and hash (see sluice-server(1)); mode 0600")                      \
	X(SWITCH, server, read_only, "read-only", 0, NULL, "false", 0, 0, NULL,                                        \
	  "Refuse every request that would change something, from the dashboard too")                                  \
	X(CHOICE, server, access_log, "access-log", 0, "FORMAT", "off", 0, 0, srv_choices_access_log,                  \
	  "Access log on standard error, one line per request")                                                        \
	X(PATH, export_events, dir, "export", 0, "DIR", NULL, 0, 0, NULL,                                              \
	  "Export the store's events to this folder as Parquet, with a catalog and an audit chain; default: not")

/* Flags of `sluice up` only: its worker. */
#define SRV_SETTINGS_UP(X)                                                                                             \
	X(LIST, jobs, types, "type", 't', "NAME=COMMAND", NULL, 0, 0, NULL,                                            \
	  "Serve this type with this command, split into words (quotes keep words together, nothing is expanded). "    \
	  "NAME alone needs command_from_input")                                                                       \
	X(SWITCH, jobs, command_from_input, "command-from-input", 0, NULL, "false", 0, 0, NULL,                        \
	  "Let the input of a job name its command, for every type without one and for 'sluice run --detach'. "        \
	  "Warning: anyone who can write to the store can then run commands as this user. Jobs that came over HTTP "   \
	  "fail")                                                                                                      \
	X(SWITCH, jobs, shell, "shell", 0, NULL, "false", 0, 0, NULL, "Give the commands to /bin/sh -c instead")       \
	X(LIST, jobs, pass_env, "pass-env", 0, "NAME", NULL, 0, 0, NULL,                                               \
	  "Leave this variable in the environment of commands, although it is a secret of Sluice's: PGPASSWORD, "      \
	  "the password in SLUICE_STORE, SLUICE_…TOKEN…")                                                              \
	X(TEXT, jobs, run_as, "run-as", 0, "USER", NULL, 0, 0, NULL,                                                   \
	  "Run the commands as this user, who cannot reach the server's files, such as the store. Needs root, or "     \
	  "CAP_SETUID, CAP_SETGID and CAP_KILL; default: the server's own user")                                       \
	X(NUMBER, jobs, slots, "slots", 'n', "N", "4", 1, 10000, NULL, "Jobs that run at the same time")

/* No flag of their own. */
#define SRV_SETTINGS_REST(X)                                                                                           \
	X(NUMBER, store, connections, NULL, 0, NULL, "8", 2, 1000, NULL,                                               \
	  "To PostgreSQL at most; one of them is kept for what must not wait")                                         \
	X(MILLIS, store, connect_timeout_ms, NULL, 0, NULL, "5000", 1, SRV_DAY_MS, NULL,                               \
	  "A connection to PostgreSQL that takes longer has failed")                                                   \
	X(MILLIS, store, statement_timeout_ms, NULL, 0, NULL, "30000", 1, SRV_DAY_MS, NULL,                            \
	  "A statement that takes longer has failed")                                                                  \
	X(NUMBER, server, threads, NULL, 0, NULL, "8", 1, 256, NULL,                                                   \
	  "Requests that may wait for the store at the same time")                                                     \
	X(BYTES, server, body_max_bytes, NULL, 0, NULL, "16777216", 1024, 1073741824, NULL,                            \
	  "The largest body of a request")                                                                             \
	X(MILLIS, server, header_deadline_ms, NULL, 0, NULL, "10000", 100, 3600000, NULL,                              \
	  "The headers of a request must be there by then")                                                            \
	X(MILLIS, server, request_deadline_ms, NULL, 0, NULL, "60000", 100, 3600000, NULL,                             \
	  "The whole request must be there by then")                                                                   \
	X(NUMBER, server, connections_max, NULL, 0, NULL, "1000", 1, 1000000, NULL, "Open connections")                \
	X(NUMBER, server, connections_per_address, NULL, 0, NULL, "250", 1, 1000000, NULL,                             \
	  "Open connections per client address")                                                                       \
	X(NUMBER, server, audit_retention_days, NULL, 0, NULL, "365", 1, 36500, NULL,                                  \
	  "How long the audit trail, a table of the store, is kept")                                                   \
	X(MILLIS, server, drain_timeout_ms, NULL, 0, NULL, "30000", 0, SRV_DAY_MS, NULL,                               \
	  "How long running commands, open requests and the log may take to finish when the server stops")             \
	X(CHOICE, server, log_level, NULL, 0, NULL, NULL, 0, 0, srv_choices_log_level,                                 \
	  "The least important records that are printed; read again on SIGHUP; default: that of --log-level")          \
	X(MILLIS, jobs, lease_ms, NULL, 0, NULL, "60000", 100, SRV_DAY_MS, NULL,                                       \
	  "How long a job stays with a worker that is not heard of")                                                   \
	X(MILLIS, jobs, renew_interval_ms, NULL, 0, NULL, NULL, 10, SRV_DAY_MS, NULL,                                  \
	  "How often a lease is renewed; at most half of lease_ms; default a third of it")                             \
	X(MILLIS, jobs, poll_interval_ms, NULL, 0, NULL, "60000", 10, SRV_DAY_MS, NULL,                                \
	  "Poll for jobs at this interval, also without a notification")                                               \
	X(MILLIS, jobs, timeout_ms, NULL, 0, NULL, "0", 0, SRV_YEAR_MS, NULL,                                          \
	  "End a command that runs longer; 0: never")                                                                  \
	X(NUMBER, jobs, max_attempts, NULL, 0, NULL, "0", 0, 1000000, NULL,                                            \
	  "Attempts after which a job has failed; 0: retry without a limit")                                           \
	X(MILLIS, jobs, initial_delay_ms, NULL, 0, NULL, "10000", 1, SRV_DAY_MS, NULL,                                 \
	  "Before the second attempt; doubles with each further one")                                                  \
	X(MILLIS, jobs, max_delay_ms, NULL, 0, NULL, "300000", 1, SRV_YEAR_MS, NULL,                                   \
	  "The longest delay between attempts")                                                                        \
	X(MILLIS, jobs, kill_grace_ms, NULL, 0, NULL, "5000", 1, 3600000, NULL,                                        \
	  "Between SIGTERM and SIGKILL for a command that is to end")                                                  \
	X(PATH, wal, wal_dir, NULL, 0, NULL, NULL, 0, 0, NULL,                                                         \
	  "Where output is kept until it is in the store; default wal in the data folder")                             \
	X(PATH, wal, archive_dir, NULL, 0, NULL, NULL, 0, 0, NULL,                                                     \
	  "Where logs go that are sent; default archive in the data folder")                                           \
	X(NUMBER, wal, retention_days, NULL, 0, NULL, "30", 1, 36500, NULL, "Of archives")                             \
	X(MILLIS, wal, flush_interval_ms, NULL, 0, NULL, "100", 1, 60000, NULL,                                        \
	  "The longest that the sender sleeps while records are pending")                                              \
	X(MILLIS, wal, linger_ms, NULL, 0, NULL, "2", 0, 60000, NULL,                                                  \
	  "So long a batch that could take more waits for it before it is sent")                                       \
	X(BYTES, wal, segment_bytes, NULL, 0, NULL, "67108864", 4096, 1099511627776, NULL,                             \
	  "A segment is sealed past this")                                                                             \
	X(BYTES, wal, max_pending_bytes, NULL, 0, NULL, "1073741824", 65536, 1099511627776, NULL,                      \
	  "Bound of what waits to be sent; commands wait there")                                                       \
	X(SWITCH, wal, archive_on_complete, NULL, 0, NULL, "true", 0, 0, NULL, "Keep a compressed copy of sent logs")  \
	X(NUMBER, coordinator, capacity, NULL, 0, NULL, "10000", 1, 10000000, NULL,                                    \
	  "Batches of events that may wait for the store; more are refused with 429")                                  \
	X(NUMBER, coordinator, workers, NULL, 0, NULL, "4", 1, 256, NULL, "Writes to the store at the same time")      \
	X(NUMBER, coordinator, batch_size, NULL, 0, NULL, "500", 1, 1000000, NULL, "Items of one write")               \
	X(MILLIS, coordinator, flush_interval_ms, NULL, 0, NULL, "250", 0, 60000, NULL,                                \
	  "Under load a write starts when its oldest item has this age; 0: immediately")                               \
	X(NUMBER, coordinator, high_watermark, NULL, 0, NULL, NULL, 1, 10000000, NULL,                                 \
	  "Items that wait when backpressure begins; default 80 % of capacity")                                        \
	X(NUMBER, coordinator, low_watermark, NULL, 0, NULL, NULL, 0, 10000000, NULL,                                  \
	  "Items that wait when it ends; default 50 % of capacity")                                                    \
	X(NUMBER, coordinator, max_attempts, NULL, 0, NULL, "5", 1, 1000000, NULL,                                     \
	  "Attempts per batch, including the first; an unavailable store uses none")                                   \
	X(MILLIS, coordinator, initial_backoff_ms, NULL, 0, NULL, "50", 1, SRV_DAY_MS, NULL,                           \
	  "Before the second attempt; doubles with each further one")                                                  \
	X(MILLIS, coordinator, max_backoff_ms, NULL, 0, NULL, "2000", 1, SRV_DAY_MS, NULL,                             \
	  "The longest pause between attempts")                                                                        \
	X(NUMBER, coordinator, breaker_failures, NULL, 0, NULL, "5", 1, 1000000, NULL,                                 \
	  "Failures in a row that open the breaker")                                                                   \
	X(MILLIS, coordinator, breaker_open_ms, NULL, 0, NULL, "1000", 1, SRV_DAY_MS, NULL,                            \
	  "The first pause before a probe; doubles up to breaker_open_max_ms")                                         \
	X(MILLIS, coordinator, breaker_open_max_ms, NULL, 0, NULL, "30000", 1, SRV_DAY_MS, NULL,                       \
	  "The longest pause before a probe")                                                                          \
	X(MILLIS, coordinator, give_up_after_ms, NULL, 0, NULL, "0", 0, SRV_YEAR_MS, NULL,                             \
	  "Answer 503 to a sender whose events the store has not taken for this long, and drop them; 0: wait forever") \
	X(TEXT, export_events, dataset, NULL, 0, NULL, "job_events", 0, 0, NULL, "The dataset's name in the folder")   \
	X(NUMBER, export_events, partition_size, NULL, 0, NULL, "100000", 1, 1000000000, NULL,                         \
	  "Events of a partition; one that is not full waits. It cannot be changed once there is a partition")         \
	X(NUMBER, export_events, zstd_level, NULL, 0, NULL, "3", 1, 19, NULL, "Compression of its files")              \
	X(TEXT, export_events, catalog, NULL, 0, NULL, NULL, 0, 0, NULL,                                               \
	  "Of servers that share the folder: sqlite:FILE or postgres://…; default sqlite:_catalog.db in it")           \
	X(PATH, export_events, sign_key_file, NULL, 0, NULL, NULL, 0, 0, NULL,                                         \
	  "Sign heads with this secret key of 'sluice audit keygen'; default: heads are not signed")                   \
	X(TEXT, export_events, audit_endpoint, NULL, 0, NULL, NULL, 0, 0, NULL,                                        \
	  "An HTTP address that gets the audit events besides the files; default: none")                               \
	X(PATH, export_events, audit_token_file, NULL, 0, NULL, NULL, 0, 0, NULL,                                      \
	  "Bearer token for it; default: none")                                                                        \
	X(PATH, export_events, audit_ca_file, NULL, 0, NULL, NULL, 0, 0, NULL,                                         \
	  "Certificates in PEM that it is checked against; default: the system's")                                     \
	X(NUMBER, export_events, verify_threads, NULL, 0, NULL, "1", 1, 256, NULL,                                     \
	  "Files that a verification reads at the same time")                                                          \
	X(PATH, backup, repo, NULL, 0, NULL, NULL, 0, 0, NULL,                                                         \
	  "The folder of a repository of 'sluice backup', which the dashboard shows and checks; default: none")        \
	X(PATH, backup, passphrase_file, NULL, 0, NULL, NULL, 0, 0, NULL,                                              \
	  "Its passphrase; mode 0600; default: the file of SLUICE_PASSPHRASE_FILE; a plain one is refused with it")    \
	X(MILLIS, backup, refresh_interval_ms, NULL, 0, NULL, "60000", 100, SRV_DAY_MS, NULL,                          \
	  "How often the repository is read")                                                                          \
	X(NUMBER, perf, workers, NULL, 0, NULL, "4", 1, 256, NULL, "Parallel workers of an export")                    \
	X(NUMBER, perf, queue_size, NULL, 0, NULL, "8", 1, 1000000, NULL, "Partitions that may wait in its queue")     \
	X(NUMBER, perf, retry_attempts, NULL, 0, NULL, "3", 1, 1000000, NULL, "Attempts at a partition")               \
	X(MILLIS, perf, retry_backoff_ms, NULL, 0, NULL, "1000", 1, SRV_DAY_MS, NULL,                                  \
	  "Before the second attempt; doubles with each further one")                                                  \
	X(TEXT, export, from, NULL, 0, NULL, NULL, 0, 0, NULL,                                                         \
	  "What is exported: a file, - for standard input, postgres://…, sqlite:FILE")                                 \
	X(TEXT, export, table, NULL, 0, NULL, NULL, 0, 0, NULL, "The table, of a database")                            \
	X(TEXT, export, query, NULL, 0, NULL, NULL, 0, 0, NULL, "A query instead of a table")                          \
	X(CHOICE, export, format, NULL, 0, NULL, NULL, 0, 0, srv_choices_rows,                                         \
	  "What a file is, when its name does not end in .csv or .jsonl")                                              \
	X(TEXT, export, sequence, NULL, 0, NULL, NULL, 0, 0, NULL,                                                     \
	  "The column that numbers the rows without gaps; default: that of the dataset, else the first one")           \
	X(NUMBER, export, partition_size, NULL, 0, NULL, NULL, 1, INT64_C(4294967296), NULL,                           \
	  "Sequence numbers of a partition, the same for the life of a dataset; default 250000")                       \
	X(PATH, export, to, NULL, 0, NULL, NULL, 0, 0, NULL, "The folder below which the datasets are")                \
	X(TEXT, export, dataset, NULL, 0, NULL, NULL, 0, 0, NULL, "The name of the dataset")                           \
	X(PATH, export, schema_file, NULL, 0, NULL, NULL, 0, 0, NULL,                                                  \
	  "The columns and their types in YAML; default: those of the dataset, else as the database says, else "       \
	  "guessed from the first rows")                                                                               \
	X(TEXT, export, catalog, NULL, 0, NULL, NULL, 0, 0, NULL,                                                      \
	  "Where partitions, audit events and the checkpoint are kept: sqlite:FILE or postgres://…; default "        \
	  "sqlite:_catalog.db in the folder")                                                                          \
	X(NUMBER, export, zstd_level, NULL, 0, NULL, NULL, 1, 19, NULL,                                                \
	  "Of the Parquet files, the same for the life of a dataset; default 3")                                       \
	X(SWITCH, export, follow, NULL, 0, NULL, "false", 0, 0, NULL, "Continue as the source grows")                  \
	X(CHOICE, export, gaps, NULL, 0, NULL, NULL, 0, 0, srv_choices_gaps,                                           \
	  "A number that the source does not have stops the export, or is recorded as a hole in the audit event; "     \
	  "default: record for a table where open transactions are visible, else stop")                                \
	X(CHOICE, export, bad_rows, NULL, 0, NULL, "stop", 0, 0, srv_choices_bad_rows,                                 \
	  "A row that does not fit its columns stops the export, or goes to the dead letters")                         \
	X(PATH, export, dead_letters, NULL, 0, NULL, NULL, 0, 0, NULL,                                                 \
	  "Where such rows go; default _dead/DATASET in the folder")

#define SRV_SETTINGS(X) SRV_SETTINGS_SHARED(X) SRV_SETTINGS_UP(X) SRV_SETTINGS_REST(X)

#endif
