# SPDX-License-Identifier: Apache-2.0
"""Tests of sluice load: tables and dead letters as they are afterwards."""

import base64
import contextlib
import json
import os
import sqlite3
import subprocess

from clitest import CliTest


class LoadTest(CliTest):
    def table(self, sql, name="t.db"):
        """Make a table; returns the options that load into it."""
        with contextlib.closing(sqlite3.connect(self.path(name), timeout=60)) as db:
            db.executescript(sql)
        return ["--to", f"sqlite:{name}", "--table", sql.split("(")[0].split()[-1]]

    def rows(self, sql, name="t.db"):
        with contextlib.closing(sqlite3.connect(self.path(name), timeout=60)) as db:
            return db.execute(sql).fetchall()

    def letters(self, folder="sluice-dead-letters"):
        found = self.ok("dlq", "list", "--json", folder).json()
        for letter in found:
            letter["payload"] = base64.b64decode(letter["payload_b64"], validate=True)
        return found

    def lines(self, folder="sluice-dead-letters"):
        """The lines of the dead letters; a line may be there more than once after a crash."""
        return [letter["line"] for letter in self.letters(folder)]

    def load(self, *args, code=0, **more):
        r = self.sluice("load", *args, **more)
        self.assertEqual(r.code, code, (r.out, r.err))
        return r

    def result(self, *args, **more):
        return json.loads(self.load("--json", *args, **more).out)

    def bars(self, n, bad=(), first=1):
        """CSV with rows first to first + n - 1; of the lines in bad, the price is not a number."""
        out = ["id,symbol,price\n"]
        for i in range(first, first + n):
            out.append(f"{i},S{i % 97},{'x' if i - first + 2 in bad else f'{i % 1000}.25'}\n")
        return "".join(out).encode()


BARS = "CREATE TABLE bars (id INTEGER PRIMARY KEY, symbol TEXT, price REAL)"
BARS_SUM = "SELECT count(*), count(DISTINCT id), sum(id), sum(price) FROM bars"


def expected_sum(n, bad=(), first=1):
    good = [i for i in range(first, first + n) if i - first + 2 not in bad]
    return (len(good), len(good), sum(good), sum(i % 1000 + 0.25 for i in good))


def psql(url, sql):
    return subprocess.run(["psql", "-qXAt", "-d", url, "-c", sql], check=True, capture_output=True, text=True).stdout.strip()


def seconds(default):
    return float(os.environ.get("SLUICE_TEST_SECONDS", default))
