#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads that are ended: by signals, by kill -9 at random moments, by inputs that change. With --wal nothing is lost, and each row is there once."""

import contextlib
import fcntl
import json
import os
import random
import signal
import sqlite3
import struct
import termios
import time

import jobtest
from clitest import TIMEOUT
from jobtest import postgres_url
from loadtest import BARS, BARS_SUM, LoadTest, expected_sum, psql, seconds

UPSERT = ["--on-conflict", "id"]


class Ended(LoadTest):
    def until(self, what):
        end = time.monotonic() + TIMEOUT
        while not what():
            self.assertLess(time.monotonic(), end, "it never came")
            time.sleep(0.005)

    def begin(self, *args):
        """A load from a pipe that has seen its header and its target, and has written the first row."""
        p = self.start("load", "-", "--format", "csv", "--load-id", "x", "--json", *args)
        p.stdin.write(self.bars(1))
        p.stdin.flush()
        self.until(lambda: self.rows("SELECT count(*) FROM bars") == [(1,)])
        return p

    def feed(self, p, data, skip=1):
        """Until it is all read; begin has written the first row."""
        p.stdin.write(data.split(b"\n", 1 + skip)[1 + skip])
        p.stdin.flush()
        self.until(lambda: struct.unpack("i", fcntl.ioctl(p.stdin, termios.FIONREAD, b"\0" * 4))[0] == 0)

    def hold(self):
        """Keep everybody from writing to the database."""
        db = sqlite3.connect(self.path("t.db"), timeout=60, isolation_level=None)
        self.addCleanup(db.close)
        db.execute("BEGIN IMMEDIATE")
        return db

    def until_stopping(self, p):
        while b"stopping" not in (line := p.stderr.readline()):  # it may have reported before that the target is busy
            self.assertTrue(line, "it ended")
        self.assertIn(b"second signal", line)

    def places(self):
        if not os.path.isdir(self.path("wal")):
            return []
        return [n for n in os.listdir(self.path("wal")) if n.endswith(".place") and os.path.getsize(self.path("wal", n))]

    def pending(self):
        """Rows in the log that are not written."""
        logs = [n for n in os.listdir(self.path("wal")) if n.endswith(".wal")] if os.path.isdir(self.path("wal")) else []
        found = [self.sluice("wal", "stat", "--json", os.path.join("wal", n)) for n in logs]
        return sum(json.loads(r.out)["pending"] for r in found if r.code == 0)

    def test_the_first_signal_ends_the_reading_and_writes_what_was_read(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                to = self.table("DROP TABLE IF EXISTS bars; " + BARS)[:2] + ["--table", "bars"]
                p = self.begin(*to, "--batch-size", "100")
                self.feed(p, self.bars(1000))
                self.until(lambda: self.rows("SELECT count(*) FROM bars") == [(1000,)])
                db = self.hold()
                self.feed(p, self.bars(1000, first=1001), skip=0)
                p.send_signal(number)
                self.until_stopping(p)
                db.execute("ROLLBACK")
                out, err = p.communicate(timeout=TIMEOUT)
                self.assertEqual(p.returncode, 75, err)
                self.assertIn(b"interrupted; the rows that were read are written", err)
                n = json.loads(out)["written"]
                self.assertEqual(json.loads(out)["read"], n)
                self.assertGreaterEqual(n, 1000)
                self.assertEqual(self.rows(BARS_SUM), [expected_sum(n)])

    def test_the_second_signal_leaves_the_rest_in_the_log(self):
        to = [*self.table(BARS), *UPSERT, "--wal", "wal", "--batch-size", "100"]
        p = self.begin(*to)
        db = self.hold()
        self.feed(p, self.bars(3000))
        self.until(self.pending)
        p.send_signal(signal.SIGINT)
        self.until_stopping(p)
        p.send_signal(signal.SIGINT)
        self.end_of(p, TIMEOUT)
        self.assertEqual(p.returncode, -signal.SIGINT)
        db.execute("ROLLBACK")
        self.assertEqual(self.rows("SELECT count(*) FROM bars"), [(1,)])
        out = self.result("-", "--format", "csv", "--load-id", "x", *to, stdin=self.bars(3000))
        self.assertGreaterEqual(out["written"], 2999)
        self.assertEqual(out["left"], 0)
        self.assertEqual(self.rows(BARS_SUM), [expected_sum(3000)])
        self.assertEqual(os.listdir(self.path("wal")), [])

    def test_with_a_log_a_signal_does_not_wait_for_a_target_that_is_unavailable(self):
        to = [*self.table(BARS), *UPSERT, "--wal", "wal", "--batch-size", "100"]
        p = self.begin(*to)
        os.rename(self.path("t.db"), self.path("away.db"))
        self.feed(p, self.bars(3000))
        self.until(self.pending)
        p.send_signal(signal.SIGTERM)
        out, err = self.end_of(p, TIMEOUT)
        self.assertEqual(p.returncode, 75, err)
        self.assertIn(b"run the same command again", err)
        self.assertGreater(json.loads(out)["left"], 0)
        os.rename(self.path("away.db"), self.path("t.db"))
        self.load("-", "--format", "csv", "--load-id", "x", *to, stdin=self.bars(3000))
        self.assertEqual(self.rows(BARS_SUM), [expected_sum(3000)])

    def cut_off(self, to):
        """A run of a.csv and b.csv that ended in the middle of b.csv."""
        self.write("a.csv", self.bars(500))
        os.mkfifo(self.path("b.csv"))
        p = self.start("load", "a.csv", "b.csv", *to)
        with open(self.path("b.csv"), "wb", buffering=0) as f:
            f.write(self.bars(500, first=501)[:4000])
            self.until(lambda: len(self.places()) == 2)
            p.kill()
            p.wait()
        os.remove(self.path("b.csv"))
        self.write("b.csv", self.bars(500, first=501))

    def test_files_that_were_done_are_not_loaded_again(self):
        to = [*self.table("CREATE TABLE bars (id INTEGER, symbol TEXT, price REAL)"), "--wal", "wal"]
        self.cut_off(to)
        before, = self.rows("SELECT count(*) FROM bars WHERE id <= 500")
        self.assertEqual(before, (500,))
        self.load("a.csv", "b.csv", *to)
        self.assertEqual(self.rows("SELECT count(*), count(DISTINCT id) FROM bars WHERE id <= 500"), [(500, 500)])
        self.assertEqual(self.rows("SELECT count(DISTINCT id) FROM bars"), [(1000,)])
        self.assertEqual(os.listdir(self.path("wal")), [])

    def test_an_input_that_is_not_what_it_was_is_noticed(self):
        to = [*self.table("CREATE TABLE bars (id INTEGER, symbol TEXT, price REAL)"), "--wal", "wal"]
        self.cut_off(to)
        for other in [self.bars(500, first=501).replace(b"S", b"T"), self.bars(500, first=2001), self.bars(3), b"id,symbol,price\n"]:
            with self.subTest(bytes=len(other)):
                self.write("b.csv", other)
                self.fails(65, "load", "a.csv", "b.csv", *to, says=["b.csv", "has changed", "--again"])
        self.write("b.csv", self.bars(500, first=501))
        # Rows that came since are loaded, the others are not again.
        self.write("a.csv", self.bars(500) + b"9001,NEW,1\n9002,NEW,2\n")
        self.load("a.csv", "b.csv", *to)
        self.assertEqual(self.rows("SELECT count(*), count(DISTINCT id) FROM bars WHERE id NOT BETWEEN 501 AND 1000"), [(502, 502)])

    def test_an_empty_place_means_from_the_beginning(self):
        for damage in [b"", b"0" * 85, b"rubbish\n", None]:
            with self.subTest(damage=damage):
                to = self.table("DROP TABLE IF EXISTS bars; CREATE TABLE bars (id INTEGER, symbol TEXT, price REAL)")[:2]
                to += ["--table", "bars", "--wal", "wal"]
                self.cut_off(to)
                place, = [n for n in self.places() if n.endswith("-1.place")]
                if damage is None:  # another log than the one it was noted for
                    for n in os.listdir(self.path("wal")):
                        if ".place" not in n:
                            os.remove(self.path("wal", n))
                else:
                    self.write(os.path.join("wal", place), damage)
                self.load("a.csv", "b.csv", *to)
                self.assertEqual(self.rows("SELECT count(DISTINCT id) FROM bars"), [(1000,)])
                os.remove(self.path("b.csv"))


class Killed(LoadTest):
    """kill -9 again and again, until a run gets to its end; then everything is compared with the input."""

    N = 4000
    BAD = {7, 1000, 2001, 3999}

    def make(self, key):
        self.table(f"DROP TABLE IF EXISTS bars; CREATE TABLE bars (id INTEGER{key}, symbol TEXT, price REAL)")
        return ["--to", "sqlite:t.db", "--table", "bars"]

    def sums(self):
        return self.rows(BARS_SUM)[0]

    def run_until_done(self, rng, *args):
        kills = 0
        while True:
            p = self.start("load", "a.csv", "--wal", "wal", "--batch-size", "50", *args)
            with contextlib.suppress(Exception):
                p.wait(rng.uniform(0.0, 0.25 * 1.05**kills))  # so that one gets through on any machine
            if p.poll() is not None:
                err = p.stderr.read()
                # The one before it may have been killed after its last row.
                self.assertIn(p.returncode, (0, 65) if b"already loaded" in err else (65,), err)
                return kills
            p.kill()
            p.wait()
            kills += 1

    def cycle(self, rng, key):
        """One input to its end."""
        self.write("a.csv", self.bars(self.N, self.BAD))
        folder = "dead"
        to = self.make(" PRIMARY KEY" if key else "")
        kills = self.run_until_done(rng, *to, *(UPSERT if key else []), "--dead-letters", folder)
        want = expected_sum(self.N, self.BAD)
        have = tuple(float(x) for x in self.sums())
        self.assertEqual(have, want)
        self.assertEqual(set(self.lines(folder)), self.BAD)
        self.assertEqual(os.listdir(self.path("wal")), [])
        self.ok("dlq", "purge", "--yes", folder)
        return kills

    def run_cycles(self, key):
        seed = int(os.environ.get("SLUICE_TEST_SEED", random.randrange(1 << 32)))
        rng, end, kills, loads = random.Random(seed), time.monotonic() + seconds(3) / 2, 0, 0
        while time.monotonic() < end or kills == 0:
            kills += self.cycle(rng, key)
            loads += 1
        print(f"# seed {seed}: {kills} kills, {loads} loads of {self.N} rows", flush=True)

    def test_with_a_key_every_row_is_there_once(self):
        self.run_cycles(True)

    def test_without_a_key_every_row_is_there(self):
        self.run_cycles(False)


class KilledPostgres(Killed):
    """The same, into PostgreSQL."""

    def setUp(self):
        super().setUp()
        self.url = postgres_url()

    def make(self, key):
        psql(self.url, f"DROP TABLE IF EXISTS bars; CREATE TABLE bars (id bigint{key}, symbol text, price float8)")
        return ["--to", self.url, "--table", "bars"]

    def sums(self):
        return psql(self.url, BARS_SUM).split("|")


if __name__ == "__main__":
    jobtest.main()
