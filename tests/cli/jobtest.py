# SPDX-License-Identifier: Apache-2.0
"""Tests of the commands about jobs: the same test on a SQLite file and on its own PostgreSQL database."""

import contextlib
import itertools
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time

from clitest import ROOT, SLUICE, TIMEOUT, CliTest, rest_from

sys.path.insert(0, os.path.join(ROOT, "scripts"))
import standstill  # noqa: E402

_pg = {"server": None, "url": None, "numbers": itertools.count(1)}


def postgres_url():
    """The URL of a fresh database; the server is started with the first and ends with this process."""
    if _pg["server"] is None:
        _pg["server"] = subprocess.Popen([os.path.join(ROOT, "tests", "support", "pg-temp"), "--no-fsync"],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        _pg["url"] = _pg["server"].stdout.readline().strip()
        if not _pg["url"]:
            raise AssertionError(f"no PostgreSQL server: pg-temp ended with {_pg['server'].wait()}")
    name = f"t{next(_pg['numbers'])}"
    subprocess.run(["psql", "-qX", "-d", _pg["url"], "-c", f"CREATE DATABASE {name}"], check=True)
    return _pg["url"].replace("/postgres?", f"/{name}?")


def control_postgres(command):
    """restart, crash, stop or start, as pg-temp has it; returns when it is done."""
    _pg["server"].stdin.write(command + "\n")
    _pg["server"].stdin.flush()
    answer = _pg["server"].stdout.readline().strip()
    assert answer == "ok", answer


def stop_postgres():
    """To be called at the end of a file that used it."""
    if _pg["server"] is not None:
        _pg["server"].stdin.close()
        _pg["server"].wait()
        _pg["server"].stdout.close()
        _pg["server"] = None


class JobTest(CliTest):
    postgres = False

    def setUp(self):
        super().setUp()
        self.store = postgres_url() if self.postgres else "sqlite:" + self.path("jobs.db")
        self.env["SLUICE_STORE"] = self.store
        self.env.pop("TRACEPARENT", None)

    def enqueue(self, *args, **more):
        """The chain ids that were printed."""
        ids = [int(line) for line in self.ok("enqueue", *args, **more).lines()]
        return ids[0] if len(ids) == 1 else ids

    def show(self, job):
        return json.loads(self.ok("jobs", "show", str(job), "--json").out)

    def chain(self, chain):
        """A chain that has ended, as wait shows it."""
        r = self.sluice("jobs", "wait", str(chain), "--timeout", "100s", "--json")
        self.assertIn(r.code, (0, 65), r.err)
        return json.loads(r.out)

    def totals(self):
        return json.loads(self.ok("jobs", "stats", "--json").out)["totals"]

    def logs(self, job, *args):
        return self.ok("jobs", "logs", str(job), *args).out

    def events(self, job):
        return self.ok("jobs", "logs", str(job), "--all", "--json").json()

    def attempts(self, job):
        return [(a["attempt"], a["outcome"]) for a in self.show(job)["attempts"]]

    def script(self, name, text):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def handler(self, text, type_="t"):
        """--type for a shell script of this text."""
        name = f"{type_.replace('/', '_')}.sh"
        return f"--type={type_}={shlex.quote(self.script(name, text))}"

    def drain(self, *args, **more):
        """Run a worker until nothing is left to do; its summary."""
        return json.loads(self.ok("worker", "--drain", "--json", "--retry-delay=10ms", *args, **more).out)

    def worker(self, *args):
        return self.start("worker", "--retry-delay=10ms", *args)

    def end(self, process, code=0, how=signal.SIGTERM):
        process.send_signal(how)
        out, err = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, code, err)
        return out, err

    def stand_still(self, process):
        """SIGSTOP, not in the middle of a write to the file of the store."""
        standstill.stand_still(process, None if self.postgres else self.path("jobs.db"))

    def expire_leases(self):
        """As if their time were over: those who had them are dead."""
        if self.postgres:
            subprocess.run(["psql", "-qX", "-d", self.store, "-c", "UPDATE sluice.lease SET until = claimed_at"], check=True)
            return
        with contextlib.closing(sqlite3.connect(self.path("jobs.db"), timeout=60)) as db:
            db.execute("UPDATE sluice_lease SET until_us = claimed_us")
            db.commit()

    def until(self, what, *args):
        """Wait for something another process does: what(*args) is true. Only a failure takes long."""
        began = time.monotonic()
        end = began + TIMEOUT
        while not (found := what(*args)):
            looked = time.monotonic()
            if looked > end:
                self.fail(f"it never came: {what} {args}")
            rest_from(looked - began)
            began = time.monotonic()
        return found

    def until_file(self, name):
        self.until(lambda: os.path.exists(self.path(name)) and os.path.getsize(self.path(name)) > 0)
        return self.read(name).decode().strip()

    def until_status(self, job, status):
        self.until(lambda: self.show(job)["status"] == status)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main():
    import clitest

    try:
        clitest.main()
    finally:
        stop_postgres()


__all__ = ["JobTest", "main", "alive", "SLUICE", "sys"]
