#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads that are run again: each row is written exactly once, without a key and without a log, whatever ended the runs
before; and rows with a key end as the last row of the input has them."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest

import jobtest
from clitest import SLUICE, TIMEOUT
from jobtest import postgres_url
from loadtest import BARS_SUM, LoadTest, expected_sum, psql

COLUMNS = {"sqlite": "(id INTEGER, symbol TEXT, price REAL)", "postgres": "(id bigint, symbol text, price float8)"}


class SqliteTarget:
    kind = "sqlite"

    def prepare(self):
        self.url = "sqlite:t.db"
        self.sql("SELECT 1")

    def sql(self, text):
        with contextlib.closing(sqlite3.connect(self.path("t.db"), timeout=60)) as db:
            cursor = db.execute(text)
            rows = cursor.fetchall()
            db.commit()
        return rows


class PostgresTarget:
    kind = "postgres"

    def prepare(self):
        self.url = postgres_url()

    def sql(self, text):
        out = psql(self.url, text)
        return [tuple(line.split("|")) for line in out.splitlines()]


class Resumed(LoadTest):
    """What both databases must do."""

    def setUp(self):
        super().setUp()
        self.prepare()
        self.make("bars")

    def make(self, table, key=False):
        self.sql(f"DROP TABLE IF EXISTS {table}")
        columns = COLUMNS[self.kind]
        self.sql(f"CREATE TABLE {table} {columns.replace(', symbol', ' PRIMARY KEY, symbol') if key else columns}")
        return self.into(table)

    def into(self, table="bars"):
        return ["--to", self.url, "--table", table]

    def sums(self, table="bars"):
        return tuple(float(x) for x in self.sql(BARS_SUM.replace("bars", table))[0])

    def count(self, table="bars"):
        return int(self.sql(f"SELECT count(*) FROM {table}")[0][0])

    def until(self, what):
        end = time.monotonic() + TIMEOUT
        while not what():
            self.assertLess(time.monotonic(), end, "it never came")
            time.sleep(0.01)

    def cut_off(self, data, part, *args, number=signal.SIGKILL, path="a.csv", written=1, also=lambda: True):
        """A run that has read `part` bytes of data and written some rows, and was ended; then the file is there."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path(path))
        os.mkfifo(self.path(path))
        before = self.count()
        p = self.start("load", path, *self.into(), *args)
        with open(self.path(path), "wb", buffering=0) as f:
            f.write(data[:part])
            self.until(lambda: self.count() >= before + written and also())
            p.send_signal(number)
            p.wait(TIMEOUT)
        os.remove(self.path(path))
        self.write(path, data)
        return p

    def test_a_load_that_was_killed_and_is_run_again_writes_each_row_once(self):
        data = self.bars(3000)
        self.cut_off(data, len(data) // 2, "--batch-size", "100")
        have = self.count()
        out = self.result("a.csv", *self.into())
        self.assertEqual(self.sums(), expected_sum(3000))
        self.assertEqual((out["skipped"], out["written"]), (have, 3000 - have))

    def test_the_options_of_the_next_run_may_be_others(self):
        data = self.bars(3000)
        self.cut_off(data, len(data) // 2, "--batch-size", "100", "--workers", "3")
        self.load("a.csv", *self.into(), "--batch-size", "7", "--workers", "1")
        self.assertEqual(self.sums(), expected_sum(3000))

    def test_a_load_that_a_signal_ended_is_resumed(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                self.make("bars")
                data = self.bars(2000)
                p = self.cut_off(data, len(data) // 2, number=number)
                self.assertEqual(p.returncode, 75)
                self.assertIn(b"run the same command again", p.stderr.read())
                self.load("a.csv", *self.into())
                self.assertEqual(self.sums(), expected_sum(2000))

    def test_bad_rows_between_ranges_are_dead_once(self):
        bad = {2, 3, 101, 102, 103, 201, 499, 500, 1001}
        data = self.bars(1000, bad)
        self.cut_off(data, len(data) // 2, "--batch-size", "100", "--workers", "1", written=300)
        self.load("a.csv", *self.into(), code=65)
        self.assertEqual(self.sums(), expected_sum(1000, bad))
        self.assertEqual(set(self.lines()), bad)
        again = self.load("a.csv", *self.into())
        self.assertIn("already loaded", again.errors)
        self.assertEqual(set(self.lines()), bad)

    def test_dead_letters_of_a_run_in_another_folder_count(self):
        bad = {2, 3, 101}
        data = self.bars(1000, bad)
        os.mkdir(self.path("sluice-dead-letters"), 0o700)
        with open(self.path("sluice-dead-letters/lock"), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as another load does
            self.cut_off(data, len(data) // 2, "--batch-size", "100", "--workers", "1",
                         also=lambda: set(self.lines("sluice-dead-letters-2")) == bad)
        # The letters of another load into the same table are not counted.
        self.write("others.csv", self.bars(10, {4}, first=2001))
        with open(self.path("sluice-dead-letters/lock"), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.load("others.csv", *self.into(), code=65)
        r = self.load("a.csv", *self.into(), code=65)
        # After a kill some of them may be there twice.
        found = self.letters("sluice-dead-letters-2") + self.letters()
        n = sum(letter["source"] == "load:a.csv" for letter in found)
        self.assertEqual(len(found), n + 1)
        self.assertIn(f"{n} dead letters in ./sluice-dead-letters and the folders of earlier runs", r.errors)
        self.assertEqual(self.count(), 1006)

    def test_dead_letters_that_were_recorded_are_not_repeated(self):
        bad = {12, 13, 14, 150}
        lines = self.bars(1000, bad).split(b"\n")
        lines[4] = b"a,record,with,too,many,fields"
        data = b"\n".join(lines)
        self.cut_off(data, len(data) // 2, "--batch-size", "100", "--workers", "1", written=400)
        self.load("a.csv", *self.into(), code=65)
        self.assertEqual(sorted(self.lines()), sorted(bad | {5}))
        # All of them are redriven now, none is in the way of the next run.
        self.ok("dlq", "purge", "--yes", "sluice-dead-letters")
        self.load("a.csv", *self.into())
        self.assertEqual(self.lines(), [])

    def test_a_load_that_has_finished_is_not_repeated_without_again(self):
        self.write("a.csv", self.bars(500))
        self.assertEqual(self.result("a.csv", *self.into())["written"], 500)
        r = self.load("--json", "a.csv", *self.into())
        self.assertIn("a.csv is already loaded; use --again", r.errors)
        self.assertEqual(json.loads(r.out)["written"], 0)
        self.assertEqual(self.sums(), expected_sum(500))
        self.assertEqual(self.result("a.csv", *self.into(), "--again")["written"], 500)
        self.assertEqual(self.count(), 1000)
        self.assertIn("already loaded", self.load("a.csv", *self.into()).errors)
        self.assertEqual(self.count(), 1000)

    def test_again_that_was_cut_off_is_resumed_without_it(self):
        data = self.bars(1000)
        self.write("a.csv", data)
        self.load("a.csv", *self.into())
        self.cut_off(data, len(data) // 2, "--again", "--batch-size", "100")
        self.load("a.csv", *self.into())
        self.assertEqual(self.count(), 2000)

    def test_of_a_file_that_has_grown_only_what_is_new_is_loaded(self):
        data = self.bars(1000)
        for end, more in [(b"\n", b""), (b"", b"\n"), (b"\r\n", b""), (b"", b"\r\n")]:
            with self.subTest(end=end, more=more):
                self.make("bars")
                self.write("a.csv", data.rstrip(b"\n") + end)
                self.load("a.csv", *self.into())
                self.write("a.csv", data.rstrip(b"\n") + end + more + self.bars(500, first=1001).split(b"\n", 1)[1])
                out = self.result("a.csv", *self.into())
                self.assertEqual((out["skipped"], out["written"]), (1000, 500))
                self.assertEqual(self.sums(), expected_sum(1500))

    def test_a_last_record_that_was_loaded_before_it_was_whole_is_noticed(self):
        self.write("a.csv", b"id,symbol,price\n1,A,1\n2,B,2")
        self.load("a.csv", *self.into())
        self.write("a.csv", b"id,symbol,price\n1,A,1\n2,B,25\n3,C,3\n")
        self.fails(65, "load", "a.csv", *self.into(), says=["a.csv", "before it was complete", "--again"])
        self.assertEqual(self.count(), 2)

    def test_a_file_that_has_changed_is_a_new_load_after_the_end_and_an_error_before(self):
        data = self.bars(1000)
        self.write("a.csv", data)
        self.load("a.csv", *self.into())
        other = data.replace(b"S7,", b"T7,")
        self.write("a.csv", other)
        self.assertEqual(self.result("a.csv", *self.into())["written"], 1000)
        self.assertEqual(self.count(), 2000)
        self.make("bars")
        self.cut_off(data, len(data) // 2, "--batch-size", "100", written=500)
        before = self.count()
        for change in [other, data.replace(b"symbol,price", b"price,symbol"), data[:200], data[:100] + data[150:], b"id,symbol,price\n"]:
            self.write("a.csv", change)
            self.fails(65, "load", "a.csv", *self.into(), says=["a.csv", "has changed", "--again"])
        self.assertEqual(self.count(), before)
        self.write("a.csv", data)
        self.load("a.csv", *self.into())
        self.assertEqual(self.sums(), expected_sum(1000))

    def test_a_table_that_was_emptied_is_loaded_again(self):
        self.write("a.csv", self.bars(100))
        self.write("b.csv", self.bars(100, first=101))
        self.load("a.csv", "b.csv", *self.into())
        self.sql("DELETE FROM bars")
        self.assertEqual(self.result("a.csv", "b.csv", *self.into())["written"], 200)
        self.assertEqual(self.sums(), expected_sum(200))

    def test_a_table_that_was_made_anew_is_loaded_again_although_it_has_rows(self):
        self.write("a.csv", self.bars(100))
        self.load("a.csv", *self.into())
        self.make("bars")
        self.sql("INSERT INTO bars VALUES (1000, 'other', 1)")
        self.assertEqual(self.result("a.csv", *self.into())["written"], 100)
        self.assertEqual(self.count(), 101)

    def test_a_table_keeps_its_records_when_it_is_changed(self):
        self.write("a.csv", self.bars(100))
        self.load("a.csv", *self.into())
        self.sql("ALTER TABLE bars ADD COLUMN more text")
        if self.kind == "sqlite":
            with contextlib.closing(sqlite3.connect(self.path("t.db"), isolation_level=None)) as db:
                db.execute("VACUUM")
        else:
            subprocess.run(["psql", "-qXd", self.url, "-c", "VACUUM FULL bars"], check=True)
        self.sql("ALTER TABLE bars RENAME TO candles")
        self.assertIn("already loaded", self.load("a.csv", *self.into("candles")).errors)
        self.assertEqual(self.count("candles"), 100)

    def test_each_table_has_its_own_records(self):
        self.make("others")
        self.write("a.csv", self.bars(100))
        self.load("a.csv", *self.into())
        self.load("a.csv", *self.into("others"))
        self.assertEqual((self.count(), self.count("others")), (100, 100))

    def test_standard_input_needs_a_name_and_is_resumed_by_it(self):
        data = self.bars(2000)
        self.fails(64, "load", "-", "--format", "csv", *self.into(), stdin=data, says=["standard input", "--load-id", "--no-resume"])
        args = ["-", "--format", "csv", *self.into(), "--load-id", "nightly"]
        p = self.start("load", *args, "--batch-size", "100")
        p.stdin.write(data[:len(data) // 2])
        p.stdin.flush()
        self.until(self.count)
        p.kill()
        p.wait()
        self.load(*args, stdin=data)
        self.assertEqual(self.sums(), expected_sum(2000))
        self.assertIn("standard input is already loaded", self.load(*args, stdin=data).errors)
        self.fails(65, "load", *args, stdin=data.replace(b"S7,", b"T7,"), says=["standard input", "has changed"])
        self.assertEqual(self.sums(), expected_sum(2000))
        for _ in range(2):
            self.load("-", "--format", "csv", *self.into(), "--no-resume", stdin=self.bars(10, first=5001))
        self.assertEqual(self.count(), 2020)

    def test_a_pipe_of_the_shell_needs_a_name_and_a_file_in_dev_shm_does_not(self):
        with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".csv") as f:
            f.write(self.bars(10))
            f.flush()
            self.load(f.name, *self.into())
            self.assertIn("already loaded", self.load(f.name, *self.into()).errors)
            self.load("/dev/stdin", "--format", "csv", *self.into(), code=64, stdin=self.bars(10))
        self.assertEqual(self.count(), 10)

    def test_several_inputs_are_resumed_in_the_middle_of_one(self):
        self.write("a.csv", self.bars(500))
        os.mkfifo(self.path("b.csv"))
        data = self.bars(500, first=501)
        p = self.start("load", "a.csv", "b.csv", *self.into(), "--batch-size", "50")
        with open(self.path("b.csv"), "wb", buffering=0) as f:
            f.write(data[:len(data) // 2])
            self.until(lambda: self.count() > 500)
            p.kill()
            p.wait()
        os.remove(self.path("b.csv"))
        self.write("b.csv", data)
        self.load("a.csv", "b.csv", *self.into())
        self.assertEqual(self.sums(), expected_sum(1000))

    def test_several_loads_at_the_same_time_into_one_table(self):
        for i in range(4):
            self.write(f"{i}.csv", self.bars(2000, first=2000 * i + 1))
        loads = [self.start("load", f"{i}.csv", *self.into(), "--batch-size", "100", "--dead-letters", f"dead-{i}") for i in range(4)]
        for p in loads:
            _, err = p.communicate(timeout=TIMEOUT)
            self.assertEqual(p.returncode, 0, err)
        self.assertEqual(self.sums(), expected_sum(8000))

    def test_a_second_run_of_the_same_load_takes_over_and_the_first_one_stops(self):
        data = self.bars(4000)
        os.mkfifo(self.path("a.csv"))
        first = self.start("load", "a.csv", *self.into(), "--batch-size", "50")
        with open(self.path("a.csv"), "wb", buffering=0) as f:
            f.write(data[:len(data) // 2])
            self.until(lambda: self.count() >= 50)
            os.rename(self.path("a.csv"), self.path("fifo"))
            self.write("a.csv", data)
            self.load("a.csv", *self.into(), "--dead-letters", "dead-2")
            with contextlib.suppress(BrokenPipeError):
                f.write(data[len(data) // 2:])
        _, err = first.communicate(timeout=TIMEOUT)
        self.assertEqual(first.returncode, 75, err)
        self.assertIn(b"another run of the same load has taken over", err)
        self.assertEqual(self.sums(), expected_sum(4000))

    def test_a_log_and_the_records_together_write_each_row_once(self):
        data = self.bars(3000, {7, 900, 2500})
        self.cut_off(data, len(data) // 2, "--batch-size", "100", "--wal", "wal")
        self.load("a.csv", *self.into(), "--wal", "wal", code=65)
        self.assertEqual(self.sums(), expected_sum(3000, {7, 900, 2500}))
        self.assertEqual(os.listdir(self.path("wal")), [])

    def test_without_a_record_nothing_is_resumed(self):
        self.write("a.csv", self.bars(100))
        self.load("a.csv", *self.into(), "--no-resume")
        self.load("a.csv", *self.into(), "--no-resume")
        self.assertEqual(self.count(), 200)
        self.fails(64, "load", "a.csv", *self.into(), "--no-resume", "--again", says="--again")
        self.fails(64, "load", "a.csv", "--to", "null:", "--again", says="--again")
        self.fails(64, "load", "a.csv", "a.csv", *self.into(), "--load-id", "x", says="one input")

    # ---- rows with a key ----

    KEYS, TIMES = 200, 40

    def history(self):
        """Each key TIMES times, with rising values."""
        return b"id,symbol,price\n" + b"".join(b"%d,v,%d\n" % (key, turn) for turn in range(1, self.TIMES + 1)
                                               for key in range(1, self.KEYS + 1))

    def last_values(self):
        return {tuple(map(float, row)) for row in self.sql("SELECT min(price), max(price), count(*) FROM bars")}

    def test_the_last_row_of_a_key_wins(self):
        self.write("a.csv", self.history())
        for batch in (100, 333, 5000):
            with self.subTest(batch=batch):
                to = [*self.make("bars", key=True), "--on-conflict", "id"]
                r = self.load("a.csv", *to, "--batch-size", str(batch))
                self.assertEqual(r.errors, "")
                self.assertEqual(self.last_values(), {(self.TIMES, self.TIMES, self.KEYS)})

    def test_the_last_row_of_a_key_wins_across_runs(self):
        to = ["--on-conflict", "id", "--batch-size", "100"]
        self.make("bars", key=True)
        data = self.history()
        self.cut_off(data, len(data) * 3 // 4, *to)
        self.load("a.csv", *self.into(), *to)
        self.assertEqual(self.last_values(), {(self.TIMES, self.TIMES, self.KEYS)})

    def test_one_key_in_several_forms_is_one_key(self):
        self.make("bars", key=True)
        forms = [b"%d", b"0%d", b"+%d", b" %d", b"%d "] if self.kind == "postgres" else [b"%d", b"0%d", b"+%d", b"%d.0", b"%de0"]
        lines = [forms[turn % 5] % key + b",v,%d\n" % turn for turn in range(1, 201) for key in range(1, 11)]
        self.write("a.csv", b"id,symbol,price\n" + b"".join(lines))
        self.load("a.csv", *self.into(), "--on-conflict", "id", "--batch-size", "50")
        self.assertEqual(self.last_values(), {(200, 200, 10)})

    def test_a_key_that_is_the_default_is_the_same_key_when_it_is_given(self):
        self.sql("DROP TABLE bars")
        self.sql(f"CREATE TABLE bars {COLUMNS[self.kind].replace(', symbol', ' DEFAULT 5 NOT NULL UNIQUE, symbol')}")
        rows = [{"price": turn} if turn % 2 else {"id": 5, "price": turn} for turn in range(1, 2001)]
        self.write("a.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        self.load("a.jsonl", *self.into(), "--on-conflict", "id", "--batch-size", "20")
        self.assertEqual(self.last_values(), {(2000, 2000, 1)})


class Sqlite(SqliteTarget, Resumed):
    pass


class Postgres(PostgresTarget, Resumed):
    def test_without_the_right_to_create_tables_it_fails_at_the_start_and_names_no_resume(self):
        psql(self.url, "DROP ROLE IF EXISTS ada; CREATE ROLE ada LOGIN; GRANT INSERT, SELECT ON bars TO ada; "
             "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        self.write("a.csv", self.bars(10))
        to = ["--to", self.url.replace("postgres://postgres@", "postgres://ada@"), "--table", "bars"]
        r = self.fails(74, "load", "a.csv", *to, says=["no permission to create", "--no-resume"])
        self.assertEqual(len(r.errors.splitlines()), 1)
        self.assertEqual(self.count(), 0)
        self.load("a.csv", *to, "--no-resume")
        self.assertEqual(self.count(), 10)

    def test_a_user_who_may_only_insert_is_resumed_too(self):
        self.write("a.csv", self.bars(10))
        self.load("a.csv", *self.into())
        psql(self.url, "DROP ROLE IF EXISTS eva; CREATE ROLE eva LOGIN; GRANT INSERT ON bars TO eva; "
             "GRANT SELECT, INSERT, UPDATE, DELETE ON sluice_loads, sluice_load_ranges TO eva")
        to = ["--to", self.url.replace("postgres://postgres@", "postgres://eva@"), "--table", "bars"]
        self.assertIn("already loaded", self.load("a.csv", *to).errors)
        psql(self.url, "DROP OWNED BY eva; DROP ROLE eva")

    def lost_answers(self, *options):
        self.write("a.csv", self.bars(5000))
        with Swallower(self.url) as proxy:
            r = self.load("a.csv", "--to", proxy.url, "--table", "bars", "--batch-size", "250", *options)
            self.assertGreater(proxy.swallowed, 2, r.errors)
        self.assertEqual(self.sums(), expected_sum(5000))

    def test_a_commit_whose_answer_is_lost_is_not_repeated(self):
        self.lost_answers()

    def test_a_commit_of_several_statements_whose_answer_is_lost_is_not_repeated(self):
        psql(self.url, "ALTER TABLE bars ALTER symbol SET DEFAULT 'none', ALTER price SET DEFAULT 7")
        rows = [json.dumps({"id": i, **({"symbol": "x"} if i % 100 < 50 else {"price": i})}) for i in range(1, 3001)]
        self.write("a.jsonl", "\n".join(rows).encode())
        with Swallower(self.url) as proxy:
            self.load("a.jsonl", "--to", proxy.url, "--table", "bars", "--batch-size", "250")
            self.assertGreater(proxy.swallowed, 2)
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT id) FROM bars"), [("3000", "3000")])

    def test_upserts_whose_answer_is_lost_are_not_repeated(self):
        self.make("bars", key=True)
        psql(self.url, "CREATE TABLE writes (id bigint); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
             "'BEGIN INSERT INTO writes VALUES (NEW.id); RETURN NEW; END'; "
             "CREATE TRIGGER note AFTER INSERT OR UPDATE ON bars FOR EACH ROW EXECUTE FUNCTION note()")
        self.lost_answers("--on-conflict", "id")
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT id) FROM writes"), [("5000", "5000")])

    def test_a_transaction_that_a_dead_client_left_is_waited_for(self):
        """kill -9 while the server still works: the next run must not read the records before that has ended."""
        psql(self.url, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
             "'BEGIN PERFORM pg_advisory_lock_shared(77); PERFORM pg_advisory_unlock_shared(77); RETURN NULL; END'; "
             "CREATE TRIGGER slow AFTER INSERT ON bars FOR EACH STATEMENT EXECUTE FUNCTION slow()")
        self.write("a.csv", self.bars(100))
        holder = subprocess.Popen(["psql", "-qXAtd", self.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            holder.stdin.write("SET client_connection_check_interval = 0; SELECT pg_advisory_lock(77); SELECT 'held';\n")
            holder.stdin.flush()
            while "held" not in holder.stdout.readline():
                pass
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 77"
            p = self.start("load", "a.csv", *self.into())
            self.until(lambda: psql(self.url, waiting) == "1")
            p.kill()
            p.wait()
        finally:
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()
        self.load("a.csv", *self.into())
        self.assertEqual(self.sums(), expected_sum(100))

    def test_parallel_upserts_do_not_deadlock(self):
        self.write("a.csv", self.history())
        self.make("bars", key=True)
        before = psql(self.url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        self.load("a.csv", *self.into(), "--on-conflict", "id", "--batch-size", "150", "--workers", "8")
        self.assertEqual(psql(self.url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"), before)


class Swallower:
    """Between a load and PostgreSQL: the answers to the first commits of a load get lost, after the server has given
    them, and their connections end."""

    LOSE = 5

    def __init__(self, url):
        options = dict(o.split("=", 1) for o in url.split("?", 1)[1].split("&"))
        self.server = os.path.join(options["host"].replace("%2F", "/"), f".s.PGSQL.{options.get('port', '5432')}")
        self.folder = tempfile.mkdtemp(prefix="sluice-swallow-")
        self.url = url.split("?", 1)[0] + f"?host={self.folder}&port=5432"
        self.swallowed, self.mu, self.sockets = 0, threading.Lock(), []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.folder, ".s.PGSQL.5432"))
        self.listener.listen(64)

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        for s in self.sockets:
            s.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self.server)
                self.sockets += [client, server]
                state = {"writes": False}
                threading.Thread(target=self.up, args=(client, server, state), daemon=True).start()
                threading.Thread(target=self.down, args=(server, client, state), daemon=True).start()

    def up(self, client, server, state):
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if b"INSERT INTO public.sluice_load_ranges" in data:
                    state["writes"] = True
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def down(self, server, client, state):
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                idle = data.endswith(b"Z\x00\x00\x00\x05I")
                if state["writes"] and idle:
                    with self.mu:
                        lose = self.swallowed < self.LOSE
                        self.swallowed += lose
                    if lose:
                        break
                    state["writes"] = False
                client.sendall(data)
        for s in (client, server):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


del Resumed

if __name__ == "__main__":
    jobtest.main()
