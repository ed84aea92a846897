# SPDX-License-Identifier: Apache-2.0
"""The demo's faults at random, for as long as SLUICE_TEST_SECONDS says: servers, workers and the database are killed
while chains are submitted over HTTP. At the end the sets are compared: what was submitted, what is in the store, what
the commands noted to have written, what was delivered.
"""

import collections
import http.client
import os
import random
import signal
import sqlite3
import subprocess
import time
import urllib.error

import servertest
from servertest import ServerTest, ask, free_port, control_postgres

SECONDS = float(os.environ.get("SLUICE_TEST_SECONDS", "12"))
SCRIPT = """run="$SLUICE_JOB_ID/$SLUICE_ATTEMPT/$$"
say() { echo "$run $1"; echo "$run $1" >>"$LEDGER"; }
say begin
say middle
say end
"""


class Soak(ServerTest):
    def setUp(self):
        super().setUp()
        if not self.postgres:
            self.store = "sqlite:" + self.path("soak.db")
            self.env["SLUICE_STORE"] = self.store
        self.env["LEDGER"] = self.path("ledger")
        self.handler_option = self.handler(SCRIPT, "step")
        self.ports = [free_port(), free_port()]
        self.running, self.faults = {}, collections.Counter()
        self.submitted = {}  # key to the chain that was acknowledged
        self.random = random.Random(int.from_bytes(os.urandom(4), "big"))

    def spawn(self, who):
        """server-0, server-1, worker-0 … worker-2; what it says is in <who>.log."""
        kind, number = who.split("-")
        if kind == "server":
            args = ["server", f"--listen=127.0.0.1:{self.ports[int(number)]}", "--data=" + self.path(f"data-{number}")]
        else:
            args = ["worker", self.handler_option, f"--id={who}", "--slots=4", "--lease=2s", "--retry-delay=50ms",
                    "--wal=" + self.path("wal"), f"--server=http://127.0.0.1:{self.ports[int(number) % 2]}"]
        with open(self.path(who + ".log"), "ab") as log:
            p = subprocess.Popen([servertest.SLUICE, *args], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 env=self.env, cwd=self.dir)
        self.running[who] = p
        self.ends_with_test(p)

    def answers(self, number):
        try:
            return ask(f"http://127.0.0.1:{self.ports[number]}", "readyz", timeout=5).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def obeys(self, p):
        """One that was started a moment ago may not have its handler yet, and would die of the signal."""
        with open(f"/proc/{p.pid}/status", encoding="ascii") as f:
            caught = next(int(line.split()[1], 16) for line in f if line.startswith("SigCgt:"))
        return caught >> (signal.SIGTERM - 1) & 1

    def submit(self, first, n):
        """n chains by their keys; the same again until they are acknowledged."""
        keys = [f"c-{first + i}" for i in range(n)]
        body = {"chains": [{"type": "step", "input": 1, "key": k, "scope": "any"} for k in keys]}
        try:
            answer = ask(f"http://127.0.0.1:{self.ports[self.random.randrange(2)]}", "api/v1/chains/bulk", "POST", body,
                         timeout=40)
        except (OSError, urllib.error.URLError, http.client.HTTPException):  # the last: killed in the middle of an answer
            return False
        if answer.status != 201:
            self.assertIn(answer.status, (429, 500, 503), answer.text)
            return False
        for key, chain in zip(keys, answer.json()["chains"]):
            self.assertEqual(self.submitted.setdefault(key, chain["chain_id"]), chain["chain_id"])
        return True

    def disturb(self):
        kinds = ["kill server", "kill worker", "stop worker", "kill database"] if self.postgres else ["kill server",
                                                                                                   "kill worker"]
        what = self.random.choice(kinds)
        self.faults[what] += 1
        if what == "kill database":
            control_postgres("crash")
            return
        who = f"server-{self.random.randrange(2)}" if "server" in what else f"worker-{self.random.randrange(3)}"
        if what == "stop worker":
            self.running[who].send_signal(signal.SIGSTOP)
            time.sleep(3)
            self.running[who].send_signal(signal.SIGCONT)
            return
        self.running[who].kill()
        self.running[who].wait()
        self.spawn(who)

    # ---- what the store says, read by SQL ----

    def ask_store(self, sql):
        if not self.postgres:
            with sqlite3.connect(self.path("soak.db"), timeout=60) as db:
                return [tuple(str(v) for v in row) for row in db.execute(sql)]
        sql = sql.replace("CAST(payload AS TEXT)", "encode(payload, 'escape')")
        out = subprocess.run(["psql", "-qXAtF\t", "-d", self.store, "-c", "SET search_path TO sluice", "-c", sql],
                             check=True, capture_output=True, text=True).stdout
        return [tuple(line.split("\t")) for line in out.splitlines()]

    def delivered(self):
        return collections.Counter(r[0] for r in self.ask_store("SELECT CAST(payload AS TEXT) FROM job_events "
                                                                "WHERE type = 2"))

    def written(self):
        with open(self.path("ledger"), encoding="ascii") as f:
            return f.read().splitlines()

    def clear(self):
        totals = self.totals()
        return totals["completed"] == len(self.submitted) and not set(self.written()) - set(self.delivered())

    def test_sets_are_equal_after_random_kills(self):
        for who in ("server-0", "server-1", "worker-0", "worker-1", "worker-2"):
            self.spawn(who)
            if who.startswith("server"):
                self.until(lambda: self.answers(int(who[-1])))
        end, next_fault, n = time.monotonic() + SECONDS, time.monotonic() + 1, 0
        while time.monotonic() < end:
            if self.submit(n, 20):
                n += 20
            if time.monotonic() > next_fault:
                self.disturb()
                next_fault = time.monotonic() + self.random.uniform(0.3, 1.5)
            if n - self.totals_or(n) > 400:
                time.sleep(0.1)
        while not self.submit(n, 20):  # what was sent last may be stored without an acknowledgement: it is sent again
            time.sleep(0.1)
        limit = time.monotonic() + 240
        while not self.clear():
            if time.monotonic() > limit:
                break
            time.sleep(0.5)
        self.compare()

    def totals_or(self, otherwise):
        r = self.sluice("jobs", "stats", "--json")
        if r.code:
            return otherwise
        return servertest.json.loads(r.out)["totals"]["completed"]

    def compare(self):
        written, delivered = self.written(), self.delivered()
        jobs = self.ask_store(f"SELECT id, status FROM {'job' if self.postgres else 'sluice_job'}")
        ids = {r[0] for r in jobs}
        doubled = {line for line, count in delivered.items() if count > 1}
        lost = set(written) - set(delivered)
        print(f"# {'postgres' if self.postgres else 'sqlite'}, {SECONDS:.0f} s: {len(self.submitted)} chains, "
              f"{dict(self.faults)}; {len(written)} lines written, {sum(delivered.values())} delivered, {len(lost)} lost, "
              f"{len(doubled)} doubled")
        self.assertEqual(lost, set())
        self.assertEqual(doubled, set())
        self.assertEqual(ids, {str(i) for i in self.submitted.values()})
        self.assertEqual(len(set(self.submitted.values())), len(self.submitted))
        self.assertEqual(self.totals()["completed"], len(self.submitted))
        self.assertGreater(len(self.submitted), 0)
        for chain in self.random.sample(sorted(ids), min(50, len(ids))):
            outcomes = [outcome for _, outcome in self.attempts(chain)]
            self.assertEqual(outcomes.count("completed"), 1, (chain, outcomes))
        for p in self.running.values():
            self.until(self.obeys, p)
            p.send_signal(signal.SIGTERM)
        for who, p in self.running.items():
            self.assertEqual(p.wait(timeout=120), 0, self.read(who + ".log")[-2000:])


class SoakPostgres(Soak):
    postgres = True


if __name__ == "__main__":
    servertest.main()
