#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice load and dlq redrive while memory runs out: every allocation of the command, the library and jansson fails once,
one after the other (starve.c).

Each run ends as if nothing had been, or reports that there was no memory; the same command then continues, and every row and
every letter is there.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time

from clitest import SLUICE, TIMEOUT, Result, main
from loadtest import BARS, BARS_SUM, LoadTest, expected_sum, seconds

ROWS = 12
BAD = {4, 9}  # lines; the first has too few fields, the second a price that the table refuses
# No memory; a folder that was not made because of that; rows are written, and not marked so; a target that was not read.
GAVE_UP = (70, 73, 75, 64)


class Starved(LoadTest):
    def setUp(self):
        super().setUp()
        if os.path.isdir("/dev/shm"):  # nothing here is about disks
            self.dir = tempfile.mkdtemp(prefix="sluice-test-", dir="/dev/shm")
            self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.before = tempfile.mkdtemp(prefix="sluice-test-")  # the folder as every run finds it
        self.addCleanup(shutil.rmtree, self.before, ignore_errors=True)

    def keep(self):
        shutil.copytree(self.dir, self.before, dirs_exist_ok=True)

    def fresh(self):
        for name in os.listdir(self.dir):
            path = self.path(name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        shutil.copytree(self.before, self.dir, dirs_exist_ok=True)

    def starve(self, n, args):
        """Run the command with its nth allocation failing. The result, and what starve.c recorded."""
        self.fresh()
        told = self.path("starved")
        r = subprocess.run([SLUICE, *args], stdin=subprocess.DEVNULL, capture_output=True, cwd=self.dir, check=False, timeout=TIMEOUT,
                           env={**self.env, "SLUICE_STARVE": str(n), "SLUICE_STARVED": told})
        with open(told, encoding="ascii") as f:
            return Result(r.returncode, r.stdout, r.stderr), dict(line.split() for line in f)

    def each(self, args, check):
        """Run the command with each of its allocations failing, then check(what came of it). Where programs are slow, in
        the time that there is: every seventh of them, then the others."""
        self.keep()
        _, told = self.starve(0, args)
        total = int(told["of"])
        end, tried, gave_up = time.monotonic() + seconds(10), 0, 0
        for n in (n for first in range(1, 8) for n in range(first, total + 1, 7)):
            r, told = self.starve(n, args)
            if "failed" not in told:  # threads do not always need the same
                continue
            tried += 1
            with self.subTest(n=n, code=r.code, err=r.err):
                self.assertIn(r.code, (0, 65, *GAVE_UP))
                if r.code in GAVE_UP:
                    gave_up += 1
                    self.assertRegex(r.errors, "no memory|out of memory|[Cc]annot allocate memory")
                check(r)
            if n > total - 7 and time.monotonic() > end:  # behind each round
                break
        self.assertGreater(tried, total // 8)
        print(f"# {tried} of {total} allocations failed, {gave_up} runs gave up", flush=True)


class Loads(Starved):
    ARGS = ["load", "a.csv", "--to", "sqlite:t.db", "--table", "bars", "--on-conflict", "id", "--wal", "wal", "--workers", "1"]

    def check_load(self, r):
        once = r.code not in GAVE_UP
        if not once:
            r = self.sluice(*self.ARGS)
        self.assertEqual(r.code, 65, r.err)
        self.assertEqual(self.rows(BARS_SUM), [expected_sum(ROWS, BAD)])
        self.assertEqual(os.listdir(self.path("wal")), [])
        letters = self.letters()
        lines = [letter["line"] for letter in letters]
        self.assertEqual(set(lines), BAD)
        self.assertTrue(not once or len(lines) == len(BAD), lines)
        for letter in letters:
            self.assertEqual(json.loads(letter["target"]),
                             {"to": "sqlite:" + os.path.realpath(self.path("t.db")), "format": "csv", "table": "bars",
                              "columns": ["id", "symbol", "price"], "on_conflict": ["id"]})

    def test_a_load_with_a_log_loses_no_row(self):
        lines = self.bars(ROWS, BAD).splitlines(keepends=True)
        lines[3] = b"3,S3\n"
        self.write("a.csv", b"".join(lines))
        self.table(BARS)
        self.each(self.ARGS, self.check_load)

    def check_file(self, r):
        if r.code == 65:
            self.assertEqual(self.read("out.jsonl").splitlines(), [b'{"id":1}', b'{"id":2,"more":[1,2]}', b'{"id":3}'])
            self.assertEqual(self.lines(), [3])

    def test_a_load_of_json_lines_into_a_file_reports_what_it_did(self):
        self.write("a.jsonl", b'{"id":1}\n{"id":2,"more":[1,2]}\nno JSON\n{"id":3}\n')
        self.each(["load", "a.jsonl", "--to", "file:out.jsonl", "--workers", "1"], self.check_file)


class Redrives(Starved):
    def check_redrive(self, r):
        written = {row[0] for row in self.rows("SELECT id FROM t WHERE n > 9")}
        left = {letter["line"] - 1 for letter in self.letters()}
        self.assertEqual(written | left, {2, 3})
        self.assertEqual(r.code == 0, not left)
        if left:
            self.ok("dlq", "redrive", "sluice-dead-letters")
        self.assertEqual(self.rows("SELECT * FROM t"), [(2, 50), (3, 60)])

    def test_a_dead_letter_stays_or_is_written(self):
        to = self.table("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER CHECK (n < 10))")
        self.write("k.csv", b"id,n\n1,5\n2,50\n3,60\n")
        self.load("k.csv", *to, "--on-conflict", "id", code=65)
        self.table("DROP TABLE t; CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (2, 1)")
        self.each(["dlq", "redrive", "sluice-dead-letters"], self.check_redrive)


if __name__ == "__main__":
    main()
