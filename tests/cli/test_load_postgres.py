#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads into PostgreSQL while it is stopped, restarted, killed, its connections are dropped or the network parts.

Every row arrives exactly once, with a key and without; the table is compared with the input at the end. No
test waits for a load that might have ended before the fault: the input is a pipe, and its second half is fed afterwards.
"""

import contextlib
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import jobtest
import netns
from clitest import ROOT, SLUICE, TIMEOUT
from jobtest import postgres_url, control_postgres
from loadtest import BARS_SUM, LoadTest, expected_sum, psql

N = 100000
UPSERT = ["--on-conflict", "id"]
WHY_NOT = netns.why_not()


class PgTest(LoadTest):
    def make(self, url, key=True):
        self.url = url
        psql(url, f"CREATE TABLE bars (id bigint{' PRIMARY KEY' if key else ''}, symbol text, price float8)")
        return ["--to", url, "--table", "bars", *(UPSERT if key else [])]

    def sums(self):
        return tuple(float(x) for x in psql(self.url, BARS_SUM).split("|"))

    def begin(self, *args, under=(), n=N // 2):
        """A load that has written some of its rows, and waits for more."""
        p = self.start_under(under, *args)
        self.errors, self.input = [], queue.Queue()
        self.threads = [threading.Thread(target=f, args=(p,), daemon=True) for f in (self.hear, self.pump)]
        for t in self.threads:
            t.start()
        self.input.put(self.bars(n))
        return p

    def hear(self, p):
        self.errors.extend(p.stderr)

    def pump(self, p):
        """Writes what feed gives it: the load reads no faster than its target takes."""
        while (data := self.input.get()) is not None:
            p.stdin.write(data)
            p.stdin.flush()
        p.stdin.close()

    def start_under(self, under, *args):
        p = subprocess.Popen([*under, SLUICE, "load", "-", "--format", "csv", "--load-id", "x", "--json", "--batch-size", "1000", *args],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.dir, env=self.env)

        def end():
            if p.poll() is None:
                p.kill()
            p.wait()
            self.input.put(None)
            for f in (p.stdin, p.stdout, p.stderr):
                with contextlib.suppress(OSError):
                    f.close()

        self.addCleanup(end)
        return p

    def until(self, what):
        end = time.monotonic() + TIMEOUT
        while not what():
            self.assertLess(time.monotonic(), end, ("it never came", self.errors))
            time.sleep(0.01)

    def until_written(self, n):
        self.until(lambda: int(psql(self.url, "SELECT count(*) FROM bars")) >= n)

    def until_says(self, text, times=1):
        self.until(lambda: b"".join(self.errors).count(text) >= times)

    def feed(self, first, n):
        self.input.put(self.bars(n, first=first).split(b"\n", 1)[1])

    def finish(self, p, total=N, key=True):
        self.input.put(None)
        out = p.stdout.read()
        self.assertEqual(p.wait(TIMEOUT), 0, self.errors)
        for t in self.threads:
            t.join()
        result, have, want = json.loads(out), self.sums(), expected_sum(total)
        self.assertEqual((result["written"], result["dead"], result["left"]), (total, 0, 0))
        self.assertEqual(have, want)
        self.assertEqual(self.lines(), [])
        return have[0] - want[0]


class Faults(PgTest):
    def disturb(self, key, away, back):
        p = self.begin(*self.make(postgres_url(), key))
        self.until_written(1)
        away()
        self.feed(N // 2 + 1, N // 4)
        back()
        self.feed(3 * N // 4 + 1, N // 4)
        doubled = self.finish(p, key=key)
        print(f"# {N} rows, {doubled:.0f} of them twice", flush=True)

    def stop_and_start(self, key):
        def away():
            control_postgres("stop")

        def back():
            self.until_says(b"write failed")
            control_postgres("start")

        self.disturb(key, away, back)

    def test_a_server_that_stops_and_starts_again_with_a_key(self):
        self.stop_and_start(True)

    def test_a_server_that_stops_and_starts_again_without_a_key(self):
        self.stop_and_start(False)

    def test_a_server_that_is_restarted_with_a_key(self):
        self.disturb(True, lambda: control_postgres("restart"), lambda: None)

    def test_a_server_that_is_restarted_without_a_key(self):
        self.disturb(False, lambda: control_postgres("restart"), lambda: None)

    def test_a_server_that_crashes_with_a_key(self):
        self.disturb(True, lambda: control_postgres("crash"), lambda: None)

    def test_a_server_that_crashes_without_a_key(self):
        self.disturb(False, lambda: control_postgres("crash"), lambda: None)

    def dropped_connections(self, key):
        p = self.begin(*self.make(postgres_url(), key), n=1000)
        self.until_written(1)
        dropped = []
        for first in range(1001, N, 3000):
            self.feed(first, 3000)
            dropped.append(int(psql(self.url, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = "
                                    "current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()")))
        doubled = self.finish(p, key=key)
        self.assertGreater(sum(dropped), 0)
        print(f"# {sum(dropped)} connections dropped, {N} rows, {doubled:.0f} of them twice", flush=True)

    def test_connections_that_are_dropped_again_and_again_with_a_key(self):
        self.dropped_connections(True)

    def test_connections_that_are_dropped_again_and_again_without_a_key(self):
        self.dropped_connections(False)

    def test_rows_that_never_serialize_keep_no_other_row_from_the_table(self):
        url = postgres_url()
        to = self.make(url)
        psql(url, "CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id IN (33, 77) THEN "
             "RAISE EXCEPTION 'never' USING ERRCODE = '40001'; END IF; RETURN NEW; END $$; "
             "CREATE TRIGGER odd BEFORE INSERT ON bars FOR EACH ROW EXECUTE FUNCTION odd()")
        self.write("a.csv", self.bars(100))
        for batch in ["10", "100"]:
            with self.subTest(batch=batch):
                psql(url, "TRUNCATE bars")
                out = self.result("a.csv", *to, "-q", "--batch-size", batch, "--dead-letters", f"dead{batch}", code=65)
                self.assertEqual((out["written"], out["dead"], out["left"]), (98, 2, 0))
                self.assertEqual(self.sums(), expected_sum(100, bad={34, 78}))
                self.assertEqual(sorted(self.lines(f"dead{batch}")), [34, 78])

    def test_a_row_that_is_refused_in_between_is_a_dead_letter(self):
        to = self.make(postgres_url())
        bad = {7, 5000, 9000}
        self.write("a.csv", self.bars(10000, bad))
        r = self.load("a.csv", *to, code=65)
        self.assertEqual(len(r.errors.splitlines()), 1, r.errors)
        self.assertEqual(self.sums(), expected_sum(10000, bad))
        self.assertEqual(set(self.lines()), bad)
        psql(self.url, "ALTER TABLE bars ALTER price TYPE text")
        self.assertEqual(len(self.ok("dlq", "redrive", "sluice-dead-letters").lines()), 3)
        self.assertEqual(psql(self.url, "SELECT count(*) FROM bars WHERE price = 'x'"), "3")
        self.assertEqual(self.lines(), [])


class Wrong(PgTest):
    def test_what_is_wrong_is_reported_at_the_start_and_no_secret(self):
        url = postgres_url()
        self.make(url)
        psql(url, "DROP ROLE IF EXISTS eve; CREATE ROLE eve LOGIN; CREATE VIEW v AS SELECT count(*) FROM bars")
        self.write("a.csv", self.bars(10))
        self.write("b.csv", b"id,nome\n1,2\n")
        eve = url.replace("postgres://postgres@", "postgres://eve:geheim@")
        for code, args, says in [
            (78, ["a.csv", "--to", url, "--table", "nope"], ["nope"]),
            (78, ["a.csv", "--to", url.replace("/t", "/nosuch"), "--table", "bars"], ["nosuch"]),
            (78, ["b.csv", "--to", url, "--table", "bars"], ["nome"]),
            (78, ["a.csv", "--to", url, "--table", "bars", "--on-conflict", "nope"], ["nope"]),
            (78, ["a.csv", "--to", url, "--table", "bars", "--on-conflict", "symbol"], ["bars", "no unique"]),
            (64, ["a.csv", "--to", url], ["table"]),
            (74, ["a.csv", "--to", eve, "--table", "bars"], ["bars", "denied"]),
        ]:
            with self.subTest(args=args):
                r = self.fails(code, "-q", "load", *args, says=says)
                self.one_line(r)
                self.assertNotIn(b"geheim", r.err)
        self.assertEqual(psql(url, "SELECT count(*) FROM bars"), "0")

    def test_a_wrong_password(self):
        with PasswordServer() as server:
            self.write("a.csv", self.bars(10))
            psql(server.url, "CREATE ROLE ada LOGIN PASSWORD 'richtig'; CREATE TABLE bars (id bigint, symbol text, price float8); "
                 "GRANT INSERT, SELECT ON bars TO ada")
            to = server.url.replace("postgres://postgres@", "postgres://ada@")
            self.env["PGPASSWORD"] = "geheim"
            r = self.fails(74, "load", "a.csv", "--to", to, "--table", "bars", says=["password", "ada"])
            self.assertNotIn(b"geheim", r.err)
            self.env["PGPASSWORD"] = "richtig"
            self.load("a.csv", "--to", to, "--table", "bars", "--no-resume")
            self.assertEqual(psql(server.url, "SELECT count(*) FROM bars"), "10")

    def test_a_dead_server_at_the_start(self):
        url = postgres_url()
        self.make(url)
        self.write("a.csv", self.bars(10))
        control_postgres("stop")
        try:
            r = self.fails(69, "load", "a.csv", "--to", url, "--table", "bars", says=["postgres", "connect"])
            self.one_line(r)
        finally:
            control_postgres("start")
        self.load("a.csv", "--to", url, "--table", "bars")


class PasswordServer:
    """Asks everybody but postgres for a password."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="sluice-hba-")
        os.chmod(self.folder, 0o755)
        hba = os.path.join(self.folder, "pg_hba.conf")
        with open(hba, "w", encoding="ascii") as f:
            f.write("local all postgres trust\nlocal all all scram-sha-256\n")
        self.process = subprocess.Popen([os.path.join(ROOT, "tests", "support", "pg-temp"), "--no-fsync", "--set",
                                         f"hba_file={hba}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        assert self.url
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Parted(PgTest):
    def test_a_network_that_parts_is_noticed_within_the_timeouts_of_the_url(self):
        network = netns.Network()
        self.addCleanup(network.remove)
        server = netns.Server(network)
        self.addCleanup(server.stop)
        self.make(server.socket_url)
        url = server.cable_url
        p = self.begin("--to", url, "--table", "bars", *UPSERT, under=network.under())
        self.until_written(N // 4)
        network.pull()
        start = time.monotonic()
        self.feed(N // 2 + 1, N // 4)
        self.until_says(b"write failed")
        noticed = time.monotonic() - start
        self.assertLess(noticed, 60)  # the statement's own timeout
        network.plug()
        self.feed(3 * N // 4 + 1, N // 4)
        self.finish(p)
        print(f"# noticed after {noticed:.1f} s", flush=True)


if __name__ == "__main__":
    jobtest.main()
