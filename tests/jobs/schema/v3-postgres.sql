-- A PostgreSQL store of schema version 3, as make-fixture filled it; its times were moved to January 2025.
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
    type text NOT NULL COLLATE pg_catalog."C",
    tried boolean DEFAULT false NOT NULL
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
CREATE TABLE sluice.stopped (
    status smallint NOT NULL,
    id bigint NOT NULL,
    chain_id bigint NOT NULL
);
CREATE TABLE sluice.tally (
    type text NOT NULL COLLATE pg_catalog."C",
    status smallint NOT NULL,
    n bigint NOT NULL,
    was smallint DEFAULT 0 NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='50000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (3, 0, 1, true);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (8, 0, 7, false);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (8, 1, 6, false);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (9, 0, 1, true);
INSERT INTO sluice.cron (name, spec, type, input, priority, catch_up, next_at, last_at, last_chain) VALUES ('nightly', '30 2 * * *', 'done', '{"n":1}', 4, false, '2025-01-15 02:30:00+00', NULL, NULL);
INSERT INTO sluice.cron (name, spec, type, input, priority, catch_up, next_at, last_at, last_chain) VALUES ('often', '* * * * *', 'wait', 'null', 0, false, '2025-01-14 17:20:00+00', NULL, NULL);
INSERT INTO sluice.dedup (key, chain_id, scope, until) VALUES ('once', 1, 1, NULL);
INSERT INTO sluice.dedup (key, chain_id, scope, until) VALUES ('live', 10, 0, NULL);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-4a3c38f3983056bd', 5109969, 5);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-9a0f2f8ee821dcdf', 11469436, 4);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-f3a7c1b6dc0b1b37', 13722541, 6);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-7e7d5ee8f34b27c4', 1466585, 4);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-5ef3f728119b8a0e', 11973199, 3);
INSERT INTO sluice.event_offset (last) VALUES (22);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (1, 1, 2, '2025-01-14 17:19:27.984317+00', NULL, '2025-01-14 17:19:28.04+00', '2025-01-14 17:19:28.049893+00', NULL, NULL, NULL, 0, 1, NULL, NULL, 4, NULL, false, false, false, 'done', '{"to":"ä"}', '{"sent":1}', NULL, '1', 'once', NULL, '296deb97-4f62-4ad9-9fc7-5cfe0b51cdb8');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (3, 2, 2, '2025-01-14 17:19:28.155956+00', NULL, '2025-01-14 17:19:28.161+00', '2025-01-14 17:19:28.171895+00', 2, NULL, NULL, 0, 1, 1, 0, 4, NULL, false, false, false, 'then', '2', '"end"', NULL, NULL, NULL, NULL, 'a309c899-5cf3-4d55-895a-591a2858ca11');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (2, 2, 2, '2025-01-14 17:19:28.088815+00', NULL, '2025-01-14 17:19:28.141+00', '2025-01-14 17:19:28.155956+00', NULL, 3, 3, 0, 1, NULL, NULL, 4, 4, false, false, false, 'chain', '1', NULL, NULL, NULL, NULL, NULL, 'a309c899-5cf3-4d55-895a-591a2858ca11');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (4, 4, 3, '2025-01-14 17:19:28.219056+00', '2025-01-14 17:19:28.301195+00', '2025-01-14 17:19:28.303+00', '2025-01-14 17:19:28.309942+00', NULL, NULL, NULL, 0, 2, NULL, NULL, 5, NULL, false, false, false, 'bad', '[null, "two"]', NULL, 'exit code 3: no', NULL, 'twice', NULL, '956eed97-0dd9-4ce6-93c9-9c40a39cb629');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (5, 5, 2, '2025-01-14 17:19:28.351587+00', NULL, NULL, '2025-01-14 17:19:28.384111+00', NULL, NULL, NULL, 0, 0, NULL, NULL, 6, NULL, false, false, false, 'bad', '5', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (6, 6, 1, '2025-01-14 17:19:28.419902+00', NULL, '2025-01-14 17:19:28.462589+00', NULL, NULL, NULL, NULL, 3, 1, NULL, NULL, 2, NULL, false, false, false, 'stuck', '6', NULL, NULL, NULL, NULL, NULL, '9ce82f8b-1c6b-4bd4-af49-57d664d09c8b');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (7, 7, 1, '2025-01-14 17:19:29.551843+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'wait', '7', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (8, 8, 1, '2025-01-14 17:19:29.577574+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 2, 2, 1, NULL, false, false, false, 'wait', '8', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (9, 9, 1, '2025-01-14 17:19:29.605299+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, 0, 2, NULL, false, false, false, 'wait', '9', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (10, 10, 1, '2025-01-14 17:19:29.635109+00', NULL, NULL, NULL, NULL, NULL, NULL, -5, 0, NULL, NULL, 2, NULL, false, false, false, 'wait', '10', NULL, NULL, NULL, 'live', NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (11, 11, 1, '2025-01-14 17:19:29.664089+00', '2100-01-01 00:00:00+00', NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'later', '11', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (12, 12, 1, '2025-01-14 17:19:29.696393+00', '2001-01-01 00:00:00+00', NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'later', '12', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (13, 13, 1, '2025-01-14 17:19:29.723482+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'wait', '13', NULL, NULL, NULL, NULL, '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (14, 14, 1, '2025-01-14 17:19:29.744456+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'rest', '14', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (15, 15, 2, '2025-01-14 17:19:29.781871+00', '2025-01-15 17:19:29.839976+00', '2025-01-14 17:19:29.83+00', NULL, NULL, NULL, NULL, 0, 1, NULL, NULL, 2, NULL, false, false, false, 'bad', '15', NULL, 'exit code 3: no', NULL, NULL, NULL, '3b9ee2be-1832-4d8d-b9d6-c4015ff85e9b');
INSERT INTO sluice.job_attempt (id, job_id, attempt, outcome, worker, error, started_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (1, 4, 1, 2, '956eed97-0dd9-4ce6-93c9-9c40a39cb629', 'exit code 3: no', '2025-01-14 17:19:28.279+00', '2025-01-14 17:19:28.291194+00');
INSERT INTO sluice.job_attempt (id, job_id, attempt, outcome, worker, error, started_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (2, 4, 2, 2, '956eed97-0dd9-4ce6-93c9-9c40a39cb629', 'exit code 3: no', '2025-01-14 17:19:28.303+00', '2025-01-14 17:19:28.309942+00');
INSERT INTO sluice.job_attempt (id, job_id, attempt, outcome, worker, error, started_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (3, 15, 1, 2, '3b9ee2be-1832-4d8d-b9d6-c4015ff85e9b', 'exit code 3: no', '2025-01-14 17:19:29.83+00', '2025-01-14 17:19:29.839975+00');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (1, 5109969, 1, -5976202535669198499, 1, '2025-01-14 17:19:28.042+00', 1, 1, false, 'worker-4a3c38f3983056bd', '\x7b22706964223a32363839327d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (2, 5109969, 2, 4626956578612864435, 1, '2025-01-14 17:19:28.043+00', 1, 2, false, 'worker-4a3c38f3983056bd', '\x6f7574', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (3, 5109969, 3, 4358349059671770959, 1, '2025-01-14 17:19:28.043+00', 1, 3, false, 'worker-4a3c38f3983056bd', '\x657272', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (4, 5109969, 4, 4781816324399879738, 1, '2025-01-14 17:19:28.043+00', 1, 4, false, 'worker-4a3c38f3983056bd', '\x31', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (5, 5109969, 5, 4078099050077865527, 1, '2025-01-14 17:19:28.043+00', 1, 5, false, 'worker-4a3c38f3983056bd', '\x7b22636f6465223a307d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (6, 11469436, 1, -2108727192447991144, 2, '2025-01-14 17:19:28.145+00', 1, 1, false, 'worker-9a0f2f8ee821dcdf', '\x7b22706964223a32363931337d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (7, 11469436, 2, 122104270540917206, 2, '2025-01-14 17:19:28.145+00', 1, 5, false, 'worker-9a0f2f8ee821dcdf', '\x7b22636f6465223a307d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (8, 11469436, 3, -1514240161864691472, 3, '2025-01-14 17:19:28.167+00', 1, 1, false, 'worker-9a0f2f8ee821dcdf', '\x7b22706964223a32363931367d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (9, 11469436, 4, -2494932809316479331, 3, '2025-01-14 17:19:28.17+00', 1, 5, false, 'worker-9a0f2f8ee821dcdf', '\x7b22636f6465223a307d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (10, 13722541, 1, -5099009303440116553, 4, '2025-01-14 17:19:28.286+00', 1, 1, false, 'worker-f3a7c1b6dc0b1b37', '\x7b22706964223a32363934347d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (11, 13722541, 2, -7890727542280381566, 4, '2025-01-14 17:19:28.286+00', 1, 3, false, 'worker-f3a7c1b6dc0b1b37', '\x6e6f', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (12, 13722541, 3, -8438688559515482428, 4, '2025-01-14 17:19:28.286+00', 1, 5, false, 'worker-f3a7c1b6dc0b1b37', '\x7b22636f6465223a337d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (13, 13722541, 4, -9194428454006605043, 4, '2025-01-14 17:19:28.308+00', 2, 1, false, 'worker-f3a7c1b6dc0b1b37', '\x7b22706964223a32363934377d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (14, 13722541, 5, 7344434811150917291, 4, '2025-01-14 17:19:28.308+00', 2, 3, false, 'worker-f3a7c1b6dc0b1b37', '\x6e6f', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (15, 13722541, 6, -8359111643692763492, 4, '2025-01-14 17:19:28.308+00', 2, 5, false, 'worker-f3a7c1b6dc0b1b37', '\x7b22636f6465223a337d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (16, 1466585, 1, -1461767191126987642, 6, '2025-01-14 17:19:28.464+00', 1, 1, false, 'worker-7e7d5ee8f34b27c4', '\x7b22706964223a32363939377d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (17, 1466585, 2, -6986586844930154201, 6, '2025-01-14 17:19:28.465+00', 1, 2, false, 'worker-7e7d5ee8f34b27c4', '\x68657265', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (18, 1466585, 3, -7920491940789451601, 6, '2025-01-14 17:19:29.542+00', 1, 6, false, 'worker-7e7d5ee8f34b27c4', '\x74686520776f726b657220646965643b2074686520636f6d6d616e6420776173206b696c6c6564', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (19, 1466585, 4, -1598479991981414177, 6, '2025-01-14 17:19:29.542+00', 1, 5, false, 'worker-7e7d5ee8f34b27c4', '\x7b227369676e616c223a397d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (20, 11973199, 1, 5286533070762775683, 15, '2025-01-14 17:19:29.833+00', 1, 1, false, 'worker-5ef3f728119b8a0e', '\x7b22706964223a32373037397d', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (21, 11973199, 2, -1950526804735197309, 15, '2025-01-14 17:19:29.834+00', 1, 3, false, 'worker-5ef3f728119b8a0e', '\x6e6f', false);
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload, partial) VALUES (22, 11973199, 3, -7271358031205243948, 15, '2025-01-14 17:19:29.834+00', 1, 5, false, 'worker-5ef3f728119b8a0e', '\x7b22636f6465223a337d', false);
INSERT INTO sluice.lease (claim, until, claimed_at, charged, worker, types, ids, fences) VALUES ('cec97373-8fd9-6525-d401-813fee371a56', '2025-01-14 17:19:38.462667+00', '2025-01-14 17:19:28.462666+00', true, '9ce82f8b-1c6b-4bd4-af49-57d664d09c8b', '{stuck}', '{6}', '{1}');
INSERT INTO sluice.meta (name, value) VALUES ('target_id', '5489e53719234b9cbb34b17d82a9e1f0');
INSERT INTO sluice.paused (type) VALUES ('rest');
INSERT INTO sluice.ready (id, fence, priority, solo, type, tried) VALUES (7, 1, 0, false, 'wait', false);
INSERT INTO sluice.ready (id, fence, priority, solo, type, tried) VALUES (9, 1, 0, false, 'wait', false);
INSERT INTO sluice.ready (id, fence, priority, solo, type, tried) VALUES (10, 1, -5, false, 'wait', false);
INSERT INTO sluice.ready (id, fence, priority, solo, type, tried) VALUES (12, 1, 0, false, 'later', false);
INSERT INTO sluice.ready (id, fence, priority, solo, type, tried) VALUES (13, 1, 0, false, 'wait', false);
INSERT INTO sluice.ready (id, fence, priority, solo, type, tried) VALUES (14, 1, 0, false, 'rest', false);
INSERT INTO sluice.sched (id, fence, due, priority, tried, type) VALUES (11, 1, '2100-01-01 00:00:00+00', 0, false, 'later');
INSERT INTO sluice.sched (id, fence, due, priority, tried, type) VALUES (15, 2, '2025-01-15 17:19:29.839976+00', 0, true, 'bad');
INSERT INTO sluice.schema_version (version, applied_at) VALUES (1, '2025-01-14 17:19:27.972677+00');
INSERT INTO sluice.schema_version (version, applied_at) VALUES (2, '2025-01-14 17:19:27.975392+00');
INSERT INTO sluice.schema_version (version, applied_at) VALUES (3, '2025-01-14 17:19:27.979011+00');
INSERT INTO sluice.stopped (status, id, chain_id) VALUES (5, 4, 4);
INSERT INTO sluice.stopped (status, id, chain_id) VALUES (6, 5, 5);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('done', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('done', 4, 1, 2);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('chain', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('chain', 4, 1, 2);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('then', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('then', 4, 1, 2);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('bad', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('bad', 5, 1, 2);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('bad', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('bad', 6, 1, 2);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('stuck', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('wait', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('wait', 1, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('wait', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('wait', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('later', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('later', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('wait', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('rest', 2, 1, 0);
INSERT INTO sluice.tally (type, status, n, was) VALUES ('bad', 2, 1, 0);
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
ALTER TABLE ONLY sluice.stopped
    ADD CONSTRAINT stopped_pkey PRIMARY KEY (status, id);
CREATE INDEX blocker_chain ON sluice.blocker USING btree (chain_id, job_id);
CREATE INDEX blocker_open ON sluice.blocker USING btree (chain_id) WHERE (NOT done);
CREATE INDEX blocker_waits ON sluice.blocker USING btree (job_id) WHERE (NOT done);
CREATE INDEX dedup_chain ON sluice.dedup USING btree (chain_id);
CREATE INDEX job_attempt_job ON sluice.job_attempt USING btree (job_id, id);
CREATE INDEX job_chain ON sluice.job USING btree (chain_id, id) WHERE (chain_id <> id);
CREATE INDEX job_events_job ON sluice.job_events USING btree (job_id, "offset") WHERE (job_id IS NOT NULL);
CREATE INDEX job_key ON sluice.job USING btree (key) WHERE (key IS NOT NULL);
CREATE INDEX lease_until ON sluice.lease USING btree (until);
CREATE INDEX ready_order ON sluice.ready USING btree (type, solo, priority, id);
CREATE INDEX ready_tried ON sluice.ready USING btree (type) WHERE tried;
CREATE INDEX sched_oldest ON sluice.sched USING btree (type, id);
CREATE INDEX sched_order ON sluice.sched USING btree (type, due, id);
CREATE INDEX sched_tried ON sluice.sched USING btree (type) WHERE tried;
CREATE INDEX stopped_chain ON sluice.stopped USING btree (status, chain_id);
