# SPDX-License-Identifier: Apache-2.0
"""Tests of sluice export: what is in the Parquet files, the catalog and the audit chain afterwards."""

import contextlib
import fcntl
import json
import os
import sqlite3
import termios
import time

from clitest import TIMEOUT, CliTest, rest_from


class ExportTest(CliTest):
    """One dataset, d, below the folder lake."""

    WHERE = ("--to", "lake", "--dataset", "d")

    def export(self, source, *args, code=0, **more):
        """Run to the end; the result as JSON gives it."""
        r = self.sluice("export", "--json", "--from", source, *self.WHERE, *args, **more)
        self.assertEqual(r.code, code, (r.out, r.err))
        result = json.loads(r.out) if r.out else {}
        result["errors"] = r.errors
        return result

    def begin(self, source, *args):
        return self.start("export", "--json", "--from", source, *self.WHERE, *args)

    def files(self, lake="lake"):
        """The paths of the partitions below the dataset, in order."""
        found = []
        for folder, _, names in os.walk(self.path(lake, "d")):
            found += [os.path.relpath(os.path.join(folder, n), self.path(lake)) for n in names if n.endswith(".parquet")]
        return sorted(found)

    def ranges(self):
        """First and last number of each partition, as its name has them."""
        return [tuple(int(part) for part in os.path.basename(f)[len("part-"):-len(".parquet")].split("-")) for f in self.files()]

    def rows(self):
        """All rows of all partitions, in order."""
        found = []
        for name in self.files():
            found += self.ok("parquet", "cat", self.path("lake", name)).json()
        return found

    def numbers(self, column="n"):
        return [int(row[column]) for row in self.rows()]

    def status(self):
        return json.loads(self.ok("export", "status", "lake", "--dataset", "d", "--json").out)

    def verify(self):
        return self.ok("audit", "verify", "lake", "--dataset", "d")

    def everything(self, lake="lake"):
        """What must be the same whatever happened on the way: the bytes of the files and of the audit events."""
        found = {name: self.read(os.path.join(lake, name)) for name in self.files(lake)}
        audit = self.path(lake, "d", "_audit")
        for name in sorted(os.listdir(audit)) if os.path.isdir(audit) else []:
            found[name] = self.read(os.path.join(audit, name))
        return found

    def leftovers(self):
        """Files below the dataset that are neither partitions nor audit events."""
        return [n for folder, _, names in os.walk(self.path("lake", "d")) for n in names
                if not n.endswith(".parquet") and not folder.endswith("_audit")]

    def ledger(self, first, last, **more):
        """CSV with the numbers first to last; columns n, hash, fee, closed_at."""
        lines = [] if more.get("header") is False else ["n,hash,fee,closed_at\n"]
        lines += [f"{i},{i * 2654435761 % 2**32:08x},{i % 1000},2024-01-01T00:{i // 60 % 60:02}:{i % 60:02}Z\n"
                  for i in range(first, last + 1)]
        return "".join(lines).encode()

    def schema(self):
        """Of the ledger, in a file: columns are not guessed, so that the first rows are not waited for."""
        return self.write("ledger.yaml", b"columns:\n  - {name: n, type: int64, nullable: false}\n  - {name: hash, type: string}\n"
                                         b"  - {name: fee, type: int64}\n  - {name: closed_at, type: timestamp}\n")

    def until(self, what, p=None):
        began = time.monotonic()
        end = began + TIMEOUT
        while not what():
            looked = time.monotonic()
            if p is not None and p.poll() is not None:
                self.fail(f"it ended with {p.returncode}: {p.stderr.read()}")
            self.assertLess(looked, end, "it never came")
            rest_from(looked - began)
            began = time.monotonic()

    def has_taken_all(self, p):
        """Nothing that was written to its standard input is left in the pipe, and all its threads wait for more."""
        if fcntl.ioctl(p.stdin, termios.FIONREAD, bytes(4)) != bytes(4):
            return False
        looks = []
        for _ in range(2):
            found = {}
            for thread in os.listdir(f"/proc/{p.pid}/task"):
                with contextlib.suppress(FileNotFoundError), open(f"/proc/{p.pid}/task/{thread}/status", encoding="ascii") as f:
                    fields = dict(line.split(":", 1) for line in f)
                    found[thread] = (fields["State"].split()[0], fields["voluntary_ctxt_switches"])
            looks.append(found)
        return looks[0] == looks[1] and all(state == "S" for state, _ in found.values())

    def events(self):
        """The lines of the audit chain, in order."""
        folder = self.path("lake", "d", "_audit")
        return [line for name in sorted(os.listdir(folder)) for line in open(os.path.join(folder, name), encoding="utf-8")]

    def checkpoint(self):
        """Of the catalog, 0 before it exists."""
        r = self.sluice("export", "status", "lake", "--dataset", "d", "--json")
        return json.loads(r.out)["checkpoint"] if r.code == 0 else 0

    def sql(self, script, name="t.db"):
        with contextlib.closing(sqlite3.connect(self.path(name), timeout=60)) as db:
            db.executescript(script)
