-- A PostgreSQL store of schema version 1, as make-fixture filled it; its times were moved to January 2025.
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
    payload bytea NOT NULL
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
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (3, 0, 1, true);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (8, 0, 7, false);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (8, 1, 6, false);
INSERT INTO sluice.blocker (job_id, ord, chain_id, done) VALUES (9, 0, 1, true);
INSERT INTO sluice.cron (name, spec, type, input, priority, catch_up, next_at, last_at, last_chain) VALUES ('nightly', '30 2 * * *', 'done', '{"n":1}', 4, false, '2025-01-15 02:30:00+00', NULL, NULL);
INSERT INTO sluice.cron (name, spec, type, input, priority, catch_up, next_at, last_at, last_chain) VALUES ('often', '* * * * *', 'wait', 'null', 0, false, '2025-01-14 04:09:00+00', NULL, NULL);
INSERT INTO sluice.dedup (key, chain_id, scope, until) VALUES ('once', 1, 1, NULL);
INSERT INTO sluice.dedup (key, chain_id, scope, until) VALUES ('live', 10, 0, NULL);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-5811687d2c30f0ce', 7720092, 5);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-715a1a40bfaca9c1', 15650224, 4);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-7a54df7d0dc275a4', 13709465, 6);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-f5fe4a2d10544d91', 4239048, 4);
INSERT INTO sluice.event_mark (stream, incarnation, mark) VALUES ('worker-2d838e21bef40b0c', 8085629, 3);
INSERT INTO sluice.event_offset (last) VALUES (22);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (1, 1, 2, '2025-01-14 04:08:09.098913+00', NULL, '2025-01-14 04:08:09.162+00', '2025-01-14 04:08:09.181168+00', NULL, NULL, NULL, 0, 1, NULL, NULL, 4, NULL, false, false, false, 'done', '{"to":"ä"}', '{"sent":1}', NULL, '1', 'once', NULL, 'd98c26c6-920b-4d18-bb2e-41063005cf97');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (3, 2, 2, '2025-01-14 04:08:09.298021+00', NULL, '2025-01-14 04:08:09.302+00', '2025-01-14 04:08:09.309428+00', 2, NULL, NULL, 0, 1, 1, 0, 4, NULL, false, false, false, 'then', '2', '"end"', NULL, NULL, NULL, NULL, 'dad3d0df-ef8b-408d-a3e9-908bfaba94c1');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (2, 2, 2, '2025-01-14 04:08:09.214276+00', NULL, '2025-01-14 04:08:09.281+00', '2025-01-14 04:08:09.298021+00', NULL, 3, 3, 0, 1, NULL, NULL, 4, 4, false, false, false, 'chain', '1', NULL, NULL, NULL, NULL, NULL, 'dad3d0df-ef8b-408d-a3e9-908bfaba94c1');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (4, 4, 3, '2025-01-14 04:08:09.355214+00', '2025-01-14 04:08:09.433828+00', '2025-01-14 04:08:09.435+00', '2025-01-14 04:08:09.442532+00', NULL, NULL, NULL, 0, 2, NULL, NULL, 5, NULL, false, false, false, 'bad', '[null, "two"]', NULL, 'exit code 3: no', NULL, 'twice', NULL, 'f9af0a6c-c11e-4d02-b6b6-84bd1fff77fa');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (5, 5, 2, '2025-01-14 04:08:09.468445+00', NULL, NULL, '2025-01-14 04:08:09.506876+00', NULL, NULL, NULL, 0, 0, NULL, NULL, 6, NULL, false, false, false, 'bad', '5', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (6, 6, 1, '2025-01-14 04:08:09.52525+00', NULL, '2025-01-14 04:08:09.569429+00', NULL, NULL, NULL, NULL, 3, 1, NULL, NULL, 2, NULL, false, false, false, 'stuck', '6', NULL, NULL, NULL, NULL, NULL, 'e75d96b0-0d65-457b-bf17-1a11ba4c05a8');
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (7, 7, 1, '2025-01-14 04:08:10.67082+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'wait', '7', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (8, 8, 1, '2025-01-14 04:08:10.714054+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 2, 2, 1, NULL, false, false, false, 'wait', '8', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (9, 9, 1, '2025-01-14 04:08:10.748967+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, 0, 2, NULL, false, false, false, 'wait', '9', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (10, 10, 1, '2025-01-14 04:08:10.787707+00', NULL, NULL, NULL, NULL, NULL, NULL, -5, 0, NULL, NULL, 2, NULL, false, false, false, 'wait', '10', NULL, NULL, NULL, 'live', NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (11, 11, 1, '2025-01-14 04:08:10.817117+00', '2100-01-01 00:00:00+00', NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'later', '11', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (12, 12, 1, '2025-01-14 04:08:10.846626+00', '2001-01-01 00:00:00+00', NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'later', '12', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (13, 13, 1, '2025-01-14 04:08:10.88456+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'wait', '13', NULL, NULL, NULL, NULL, '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (14, 14, 1, '2025-01-14 04:08:10.916684+00', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 2, NULL, false, false, false, 'rest', '14', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sluice.job (id, chain_id, fence, created_at, scheduled_for, started_at, ended_at, prev_id, next_id, last_id, priority, attempt, blockers, blockers_open, status, chain_status, solo, watched, outside, type, input, output, error, progress, key, traceparent, leased_by) VALUES (15, 15, 2, '2025-01-14 04:08:10.968507+00', '2025-01-15 04:08:11.11161+00', '2025-01-14 04:08:11.094+00', NULL, NULL, NULL, NULL, 0, 1, NULL, NULL, 2, NULL, false, false, false, 'bad', '15', NULL, 'exit code 3: no', NULL, NULL, NULL, 'ceeaa54d-01cc-45bb-8b7c-ee6c46220444');
INSERT INTO sluice.job_attempt (id, job_id, attempt, outcome, worker, error, started_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (1, 4, 1, 2, 'f9af0a6c-c11e-4d02-b6b6-84bd1fff77fa', 'exit code 3: no', '2025-01-14 04:08:09.41+00', '2025-01-14 04:08:09.423827+00');
INSERT INTO sluice.job_attempt (id, job_id, attempt, outcome, worker, error, started_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (2, 4, 2, 2, 'f9af0a6c-c11e-4d02-b6b6-84bd1fff77fa', 'exit code 3: no', '2025-01-14 04:08:09.435+00', '2025-01-14 04:08:09.442532+00');
INSERT INTO sluice.job_attempt (id, job_id, attempt, outcome, worker, error, started_at, ended_at) OVERRIDING SYSTEM VALUE VALUES (3, 15, 1, 2, 'ceeaa54d-01cc-45bb-8b7c-ee6c46220444', 'exit code 3: no', '2025-01-14 04:08:11.094+00', '2025-01-14 04:08:11.111609+00');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (1, 7720092, 1, -7897929570294903198, 1, '2025-01-14 04:08:09.167+00', 1, 1, false, 'worker-5811687d2c30f0ce', '\x7b22706964223a33303836357d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (2, 7720092, 2, 2914301996936757852, 1, '2025-01-14 04:08:09.167+00', 1, 2, false, 'worker-5811687d2c30f0ce', '\x6f7574');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (3, 7720092, 3, 6069754053890678944, 1, '2025-01-14 04:08:09.167+00', 1, 3, false, 'worker-5811687d2c30f0ce', '\x657272');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (4, 7720092, 4, -7862337746960798124, 1, '2025-01-14 04:08:09.167+00', 1, 4, false, 'worker-5811687d2c30f0ce', '\x31');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (5, 7720092, 5, -1554868533595565552, 1, '2025-01-14 04:08:09.167+00', 1, 5, false, 'worker-5811687d2c30f0ce', '\x7b22636f6465223a307d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (6, 15650224, 1, 5480853271523632995, 2, '2025-01-14 04:08:09.283+00', 1, 1, false, 'worker-715a1a40bfaca9c1', '\x7b22706964223a33303839387d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (7, 15650224, 2, -3519717927127170571, 2, '2025-01-14 04:08:09.284+00', 1, 5, false, 'worker-715a1a40bfaca9c1', '\x7b22636f6465223a307d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (8, 15650224, 3, 111139730100730982, 3, '2025-01-14 04:08:09.305+00', 1, 1, false, 'worker-715a1a40bfaca9c1', '\x7b22706964223a33303930357d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (9, 15650224, 4, -4556231648037144202, 3, '2025-01-14 04:08:09.308+00', 1, 5, false, 'worker-715a1a40bfaca9c1', '\x7b22636f6465223a307d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (10, 13709465, 1, -2441876221120318190, 4, '2025-01-14 04:08:09.416+00', 1, 1, false, 'worker-7a54df7d0dc275a4', '\x7b22706964223a33303933397d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (11, 13709465, 2, -5546937618554972699, 4, '2025-01-14 04:08:09.416+00', 1, 3, false, 'worker-7a54df7d0dc275a4', '\x6e6f');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (12, 13709465, 3, 7700054226967565170, 4, '2025-01-14 04:08:09.416+00', 1, 5, false, 'worker-7a54df7d0dc275a4', '\x7b22636f6465223a337d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (13, 13709465, 4, 5947764200345517278, 4, '2025-01-14 04:08:09.436+00', 2, 1, false, 'worker-7a54df7d0dc275a4', '\x7b22706964223a33303934317d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (14, 13709465, 5, -7412156904994997759, 4, '2025-01-14 04:08:09.437+00', 2, 3, false, 'worker-7a54df7d0dc275a4', '\x6e6f');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (15, 13709465, 6, -7915212212335337827, 4, '2025-01-14 04:08:09.437+00', 2, 5, false, 'worker-7a54df7d0dc275a4', '\x7b22636f6465223a337d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (16, 4239048, 1, -3817866940177524149, 6, '2025-01-14 04:08:09.57+00', 1, 1, false, 'worker-f5fe4a2d10544d91', '\x7b22706964223a33303938347d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (17, 4239048, 2, -1671487267699081897, 6, '2025-01-14 04:08:09.571+00', 1, 2, false, 'worker-f5fe4a2d10544d91', '\x68657265');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (18, 4239048, 3, -6240977160859347393, 6, '2025-01-14 04:08:10.647+00', 1, 6, false, 'worker-f5fe4a2d10544d91', '\x74686520776f726b657220646965643b2074686520636f6d6d616e6420776173206b696c6c6564');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (19, 4239048, 4, 2732183838306138109, 6, '2025-01-14 04:08:10.647+00', 1, 5, false, 'worker-f5fe4a2d10544d91', '\x7b227369676e616c223a397d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (20, 8085629, 1, -6372602228357503364, 15, '2025-01-14 04:08:11.099+00', 1, 1, false, 'worker-2d838e21bef40b0c', '\x7b22706964223a33313235397d');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (21, 8085629, 2, -7667230100744914839, 15, '2025-01-14 04:08:11.1+00', 1, 3, false, 'worker-2d838e21bef40b0c', '\x6e6f');
INSERT INTO sluice.job_events ("offset", incarnation, sequence, crc, job_id, ts, attempt, type, late, stream, payload) VALUES (22, 8085629, 3, 4776277844883586337, 15, '2025-01-14 04:08:11.1+00', 1, 5, false, 'worker-2d838e21bef40b0c', '\x7b22636f6465223a337d');
INSERT INTO sluice.lease (claim, until, claimed_at, charged, worker, types, ids, fences) VALUES ('3078681b-5f1b-a839-e4e2-53e687e667e7', '2025-01-14 04:08:19.56947+00', '2025-01-14 04:08:09.56947+00', true, 'e75d96b0-0d65-457b-bf17-1a11ba4c05a8', '{stuck}', '{6}', '{1}');
INSERT INTO sluice.meta (name, value) VALUES ('target_id', 'e3167bd9d9e442f983aa63b71b1d9a82');
INSERT INTO sluice.paused (type) VALUES ('rest');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (7, 1, 0, false, 'wait');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (9, 1, 0, false, 'wait');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (10, 1, -5, false, 'wait');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (12, 1, 0, false, 'later');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (13, 1, 0, false, 'wait');
INSERT INTO sluice.ready (id, fence, priority, solo, type) VALUES (14, 1, 0, false, 'rest');
INSERT INTO sluice.sched (id, fence, due, priority, tried, type) VALUES (11, 1, '2100-01-01 00:00:00+00', 0, false, 'later');
INSERT INTO sluice.sched (id, fence, due, priority, tried, type) VALUES (15, 2, '2025-01-15 04:08:11.11161+00', 0, true, 'bad');
INSERT INTO sluice.schema_version (version, applied_at) VALUES (1, '2025-01-14 04:08:09.09391+00');
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
