-- A PostgreSQL store of schema version 2, as make-fixture filled it; its times were moved to January 2025.
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA sluice;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE sluice.blocker (
    job_id bigint NOT NULL,
    ord integer NOT NULL,
    chain_id bigint NOT NULL,
    done boolean NOT NULL
);
CREATE TABLE sluice.cron (
    name text NOT NULL COLLATE pg_catalog."C",
    spec text NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    input text NOT NULL,
    priority integer NOT NULL,
    catch_up boolean NOT NULL,
    next_at timestamp with time zone,
    last_at timestamp with time zone,
    last_chain bigint
);
CREATE TABLE sluice.dedup (
    key text NOT NULL COLLATE pg_catalog."C",
    chain_id bigint NOT NULL,
    scope smallint NOT NULL,
    until timestamp with time zone
);
CREATE TABLE sluice.event_mark (
    stream text NOT NULL COLLATE pg_catalog."C",
    incarnation bigint NOT NULL,
    mark bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE sluice.event_offset (
    last bigint NOT NULL
)
WITH (fillfactor='10');
CREATE TABLE sluice.job (
    id bigint NOT NULL,
    chain_id bigint NOT NULL,
    fence bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone NOT NULL,
    scheduled_for timestamp with time zone,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    prev_id bigint,
    next_id bigint,
    last_id bigint,
    priority integer NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    blockers integer,
    blockers_open integer,
    status smallint NOT NULL,
    chain_status smallint,
    solo boolean DEFAULT false NOT NULL,
    watched boolean DEFAULT false NOT NULL,
    outside boolean DEFAULT false NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    input text NOT NULL,
    output text,
    error text,
    progress text,
    key text COLLATE pg_catalog."C",
    traceparent text,
    leased_by text
)
WITH (fillfactor='35', autovacuum_vacuum_scale_factor='0.1', autovacuum_analyze_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
CREATE TABLE sluice.job_attempt (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    attempt integer NOT NULL,
    outcome smallint NOT NULL,
    worker text,
    error text,
    started_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL
);
ALTER TABLE sluice.job_attempt ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sluice.job_attempt_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE sluice.job_events (
    "offset" bigint NOT NULL,
    incarnation bigint NOT NULL,
    sequence bigint NOT NULL,
    crc bigint NOT NULL,
    job_id bigint,
    ts timestamp with time zone NOT NULL,
    attempt integer,
    type integer NOT NULL,
    late boolean NOT NULL,
    stream text NOT NULL COLLATE pg_catalog."C",
    payload bytea NOT NULL,
    partial boolean DEFAULT false NOT NULL
);
CREATE SEQUENCE sluice.job_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE sluice.job_id OWNED BY sluice.job.id;
CREATE TABLE sluice.lease (
    claim uuid NOT NULL,
    until timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    charged boolean NOT NULL,
    worker text NOT NULL,
    types text[] NOT NULL,
    ids bigint[] NOT NULL,
    fences bigint[] NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='50000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
CREATE TABLE sluice.meta (
    name text NOT NULL,
    value text NOT NULL
);
CREATE TABLE sluice.paused (
    type text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE sluice.ready (
    id bigint NOT NULL,
    fence bigint NOT NULL,
    priority integer NOT NULL,
    solo boolean NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='50000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
CREATE TABLE sluice.sched (
    id bigint NOT NULL,
    fence bigint NOT NULL,
    due timestamp with time zone NOT NULL,
    priority integer NOT NULL,
    tried boolean NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='50000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
CREATE TABLE sluice.schema_version (
    version integer NOT NULL,
    applied_at timestamp with time zone NOT NULL
);
CREATE TABLE sluice.tally (
    type text NOT NULL COLLATE pg_catalog."C",
    status smallint NOT NULL,
    n bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='50000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (3, 0, 1, true);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (8, 0, 7, false);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (8, 1, 6, false);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (9, 0, 1, true);
INSERT INTO sluice.cron (name, spec, type, input, priority, catch_up, next_at, last_at, last_chain) VALUES ('nightly', '30 2 * * *', 'done', '{"n":1}', 4, false, '2025-01-15 02:30:00+00', NULL, NULL);
INSERT INTO sluice.cron (name, spec, type, input, priority, catch_up, next_at, last_at, last_chain) VALUES ('often', '* * * * *', 'wait', 'null', 0, false, '2025-01-14 07:48:00+00', NULL, NULL);
INSERT INTO sluice.dedup (key, chain_id, scope, until) VALUES ('once', 1, 1, NULL);
INSERT INTO sluice.dedup (key, chain_id, scope, until) VALUES ('live', 10, 0, NULL);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-95c8a73490c56d03', 4454475, 5);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-f19a59afadfb7a65', 11973823, 4);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-c08dceee283cab4a', 2610564, 6);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-e11f37c6d60385c1', 2175547, 4);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-0ef294dfa031c02d', 11442118, 3);
INSERT INTO sluice.event_offset (last) VALUES (22);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (1, 1, 2, '2025-01-14 07:47:52.780524+00', NULL, '2025-01-14 07:47:52.829+00', '2025-01-14 07:47:52.838198+00', NULL, NULL, NULL, 0, 1, NULL, NULL, 4, NULL, false, false, false, 'done', '{"to":"ä"}', '{"sent":1}', NULL, '1', 'once', NULL, '130bcec5-c62f-4e50-b00b-bdca2e6bd434');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (3, 2, 2, '2025-01-14 07:47:52.939568+00', NULL, '2025-01-14 07:47:52.944+00', '2025-01-14 07:47:52.951471+00', 2, NULL, NULL, 0, 1, 1, 0, 4, NULL, false, false, false, 'then', '2', '"end"', NULL, NULL, NULL, NULL, '9fc48e71-8aa8-4d41-8141-5f7a0c88bca4');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (2, 2, 2, '2025-01-14 07:47:52.881179+00', NULL, '2025-01-14 07:47:52.931+00', '2025-01-14 07:47:52.939568+00', NULL, 3, 3, 0, 1, NULL, NULL, 4, 4, false, false, false, 'chain', '1', NULL, NULL, NULL, NULL, NULL, '9fc48e71-8aa8-4d41-8141-5f7a0c88bca4');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (4, 4, 3, '2025-01-14 07:47:52.996975+00', '2025-01-14 07:47:53.059129+00', '2025-01-14 07:47:53.061+00', '2025-01-14 07:47:53.068807+00', NULL, NULL, NULL, 0, 2, NULL, NULL, 5, NULL, false, false, false, 'bad', '[null, "two"]', NULL, 'exit code 3: no', NULL, 'twice', NULL, '038e6d50-672f-4270-a395-ebc6c06b1a28');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (5, 5, 2, '2025-01-14 07:47:53.098534+00', NULL, NULL, '2025-01-14 07:47:53.138119+00', NULL, NULL, NULL, 0, 0, NULL, NULL, 6, NULL, false, false, false, 'bad', '5', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (6, 6, 1, '2025-01-14 07:47:53.162033+00', NULL, '2025-01-14 07:47:53.206126+00', NULL, NULL, NULL, NULL, 3, 1, NULL, NULL, 2, NULL, false, false, false, 'stuck', '6', NULL, NULL, NULL, NULL, NULL, '5cc6ec8c-7eb0-49be-9493-0604215c0822');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (7, 7, 1, '2025-01-14 07:47:54.303686+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'wait', '7', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (8, 8, 1, '2025-01-14 07:47:54.330507+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 2, 2, 1, NULL, false, false, false, 'wait', '8', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (9, 9, 1, '2025-01-14 07:47:54.353197+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, 0, 2, NULL, false, false, false, 'wait', '9', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (10, 10, 1, '2025-01-14 07:47:54.383759+00', NULL, NULL, NULL, NULL, NULL, NULL, -5, 0, NULL, NULL, 2, NULL, false, false, false, 'wait', '10', NULL, NULL, NULL, 'live', NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (11, 11, 1, '2025-01-14 07:47:54.412624+00', '2100-01-01 00:00:00+00', NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'later', '11', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (12, 12, 1, '2025-01-14 07:47:54.447603+00', '2001-01-01 00:00:00+00', NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'later', '12', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (13, 13, 1, '2025-01-14 07:47:54.47387+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'wait', '13', NULL, NULL, NULL, NULL, '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (14, 14, 1, '2025-01-14 07:47:54.508162+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'rest', '14', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (15, 15, 2, '2025-01-14 07:47:54.557432+00', '2025-01-15 07:47:54.624238+00', '2025-01-14 07:47:54.609+00', NULL, NULL, NULL, NULL, 0, 1, NULL, NULL, 2, NULL, false, false, false, 'bad', '15', NULL, 'exit code 3: no', NULL, NULL, NULL, '5427105e-36a1-4627-87fc-c18453e9b1b3');
INSERT INTO sluice.job_attempt (id, job_id, attempt, outcome, worker, error, started_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (1, 4, 1, 2, '038e6d50-672f-4270-a395-ebc6c06b1a28', 'exit code 3: no', '2025-01-14 07:47:53.04+00', '2025-01-14 07:47:53.049128+00');
INSERT INTO sluice.job_attempt (id, job_id, attempt, outcome, worker, error, started_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (2, 4, 2, 2, '038e6d50-672f-4270-a395-ebc6c06b1a28', 'exit code 3: no', '2025-01-14 07:47:53.061+00', '2025-01-14 07:47:53.068807+00');
INSERT INTO sluice.job_attempt (id, job_id, attempt, outcome, worker, error, started_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (3, 15, 1, 2, '5427105e-36a1-4627-87fc-c18453e9b1b3', 'exit code 3: no', '2025-01-14 07:47:54.609+00', '2025-01-14 07:47:54.624236+00');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (1, 4454475, 1, 1343720585608597316, 1, '2025-01-14 07:47:52.831+00', 1, 1, false, 'worker-95c8a73490c56d03', '\x7b22706964223a32373136347d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (2, 4454475, 2, -5496239382875209200, 1, '2025-01-14 07:47:52.832+00', 1, 2, false, 'worker-95c8a73490c56d03', '\x6f7574', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (3, 4454475, 3, -3461904202547945236, 1, '2025-01-14 07:47:52.832+00', 1, 3, false, 'worker-95c8a73490c56d03', '\x657272', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (4, 4454475, 4, -8177794480344736207, 1, '2025-01-14 07:47:52.832+00', 1, 4, false, 'worker-95c8a73490c56d03', '\x31', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (5, 4454475, 5, 8052018528513091467, 1, '2025-01-14 07:47:52.832+00', 1, 5, false, 'worker-95c8a73490c56d03', '\x7b22636f6465223a307d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (6, 11973823, 1, 1480407173354472641, 2, '2025-01-14 07:47:52.933+00', 1, 1, false, 'worker-f19a59afadfb7a65', '\x7b22706964223a32373138367d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (7, 11973823, 2, -8450950948980179386, 2, '2025-01-14 07:47:52.933+00', 1, 5, false, 'worker-f19a59afadfb7a65', '\x7b22636f6465223a307d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (8, 11973823, 3, -702062822060542242, 3, '2025-01-14 07:47:52.947+00', 1, 1, false, 'worker-f19a59afadfb7a65', '\x7b22706964223a32373138387d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (9, 11973823, 4, -8671748571116912340, 3, '2025-01-14 07:47:52.949+00', 1, 5, false, 'worker-f19a59afadfb7a65', '\x7b22636f6465223a307d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (10, 2610564, 1, -2954175690970171317, 4, '2025-01-14 07:47:53.042+00', 1, 1, false, 'worker-c08dceee283cab4a', '\x7b22706964223a32373231317d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (11, 2610564, 2, -8299079804045694214, 4, '2025-01-14 07:47:53.043+00', 1, 3, false, 'worker-c08dceee283cab4a', '\x6e6f', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (12, 2610564, 3, 1819963908586813512, 4, '2025-01-14 07:47:53.043+00', 1, 5, false, 'worker-c08dceee283cab4a', '\x7b22636f6465223a337d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (13, 2610564, 4, 4728774974303997332, 4, '2025-01-14 07:47:53.061+00', 2, 1, false, 'worker-c08dceee283cab4a', '\x7b22706964223a32373231327d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (14, 2610564, 5, 4178395268447700899, 4, '2025-01-14 07:47:53.062+00', 2, 3, false, 'worker-c08dceee283cab4a', '\x6e6f', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (15, 2610564, 6, 8223273137472318726, 4, '2025-01-14 07:47:53.063+00', 2, 5, false, 'worker-c08dceee283cab4a', '\x7b22636f6465223a337d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (16, 2175547, 1, -1557630967810553292, 6, '2025-01-14 07:47:53.208+00', 1, 1, false, 'worker-e11f37c6d60385c1', '\x7b22706964223a32373234337d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (17, 2175547, 2, -8470382843046392853, 6, '2025-01-14 07:47:53.209+00', 1, 2, false, 'worker-e11f37c6d60385c1', '\x68657265', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (18, 2175547, 3, -6638735015761756089, 6, '2025-01-14 07:47:54.283+00', 1, 6, false, 'worker-e11f37c6d60385c1', '\x74686520776f726b657220646965643b2074686520636f6d6d616e6420776173206b696c6c6564', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (19, 2175547, 4, 3596886079162270998, 6, '2025-01-14 07:47:54.283+00', 1, 5, false, 'worker-e11f37c6d60385c1', '\x7b227369676e616c223a397d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (20, 11442118, 1, -4156543890429292583, 15, '2025-01-14 07:47:54.614+00', 1, 1, false, 'worker-0ef294dfa031c02d', '\x7b22706964223a32373332317d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (21, 11442118, 2, -9056141137982822017, 15, '2025-01-14 07:47:54.615+00', 1, 3, false, 'worker-0ef294dfa031c02d', '\x6e6f', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (22, 11442118, 3, 4990507830879184079, 15, '2025-01-14 07:47:54.615+00', 1, 5, false, 'worker-0ef294dfa031c02d', '\x7b22636f6465223a337d', false);
INSERT INTO sluice.lease (claim, until, claimed_at, charged, worker, types, ids, fences) VALUES ('0c711e98-ec06-8c5c-9c5b-94e1295f90c2', '2025-01-14 07:48:03.206266+00', '2025-01-14 07:47:53.206266+00', true, '5cc6ec8c-7eb0-49be-9493-0604215c0822', '{stuck}', '{6}', '{1}');
INSERT INTO sluice.meta (name, value) VALUES ('target_id', 'a24ecba1aeb04d78aad348d361a1737a');
INSERT INTO sluice.paused (type) VALUES ('rest');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (7, 1, 0, false, 'wait');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (9, 1, 0, false, 'wait');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (10, 1, -5, false, 'wait');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (12, 1, 0, false, 'later');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (13, 1, 0, false, 'wait');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (14, 1, 0, false, 'rest');
INSERT INTO sluice.sched (id, fence, due, priority, tried, type) VALUES (11, 1, '2100-01-01 00:00:00+00', 0, false, 'later');
INSERT INTO sluice.sched (id, fence, due, priority, tried, type) VALUES (15, 2, '2025-01-15 07:47:54.624238+00', 0, true, 'bad');
INSERT INTO sluice.schema_version (version, applied_at) VALUES (1, '2025-01-14 07:47:52.769703+00');
INSERT INTO sluice.schema_version (version, applied_at) VALUES (2, '2025-01-14 07:47:52.774175+00');
INSERT INTO sluice.tally (type, status, n) VALUES ('done', 4, 1);
INSERT INTO sluice.tally (type, status, n) VALUES ('chain', 4, 1);
INSERT INTO sluice.tally (type, status, n) VALUES ('then', 4, 1);
INSERT INTO sluice.tally (type, status, n) VALUES ('bad', 5, 1);
INSERT INTO sluice.tally (type, status, n) VALUES ('bad', 6, 1);
SELECT pg_catalog.setval('sluice.job_attempt_id_seq', 3, true);
SELECT pg_catalog.setval('sluice.job_id', 15, true);
ALTER TABLE ONLY sluice.blocker
    ADD CONSTRAINT blocker_pkey PRIMARY KEY (job_id, ord);
ALTER TABLE ONLY sluice.cron
    ADD CONSTRAINT cron_pkey PRIMARY KEY (name);
ALTER TABLE ONLY sluice.dedup
    ADD CONSTRAINT dedup_pkey PRIMARY KEY (key);
ALTER TABLE ONLY sluice.event_mark
    ADD CONSTRAINT event_mark_pkey PRIMARY KEY (stream, incarnation);
ALTER TABLE ONLY sluice.job_attempt
    ADD CONSTRAINT job_attempt_pkey PRIMARY KEY (id);
ALTER TABLE ONLY sluice.job_events
    ADD CONSTRAINT job_events_pkey PRIMARY KEY ("offset");
ALTER TABLE ONLY sluice.job_events
    ADD CONSTRAINT job_events_stream_incarnation_sequence_key UNIQUE (stream, incarnation, sequence);
ALTER TABLE ONLY sluice.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);
ALTER TABLE ONLY sluice.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (claim);
ALTER TABLE ONLY sluice.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (name);
ALTER TABLE ONLY sluice.paused
    ADD CONSTRAINT paused_pkey PRIMARY KEY (type);
ALTER TABLE ONLY sluice.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);
CREATE INDEX blocker_chain ON sluice.blocker USING btree (chain_id, job_id);
CREATE INDEX blocker_open ON sluice.blocker USING btree (chain_id) WHERE (NOT done);
CREATE INDEX dedup_chain ON sluice.dedup USING btree (chain_id);
CREATE INDEX job_attempt_job ON sluice.job_attempt USING btree (job_id, id);
CREATE INDEX job_chain ON sluice.job USING btree (chain_id, id) WHERE (chain_id <> id);
CREATE INDEX job_events_job ON sluice.job_events USING btree (job_id, "offset") WHERE (job_id IS NOT NULL);
CREATE INDEX job_key ON sluice.job USING btree (key) WHERE (key IS NOT NULL);
CREATE INDEX lease_until ON sluice.lease USING btree (until);
CREATE INDEX ready_order ON sluice.ready USING btree (type, solo, priority, id);
CREATE INDEX sched_order ON sluice.sched USING btree (type, due, id);
