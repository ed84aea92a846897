# SPDX-License-Identifier: Apache-2.0
"""Two servers and three workers on one side of a cable, PostgreSQL on the other. The cable is pulled under them, in two
ways, and plugged in again: everything resumes without intervention, and nothing is lost or duplicated.

Needs the right to make network namespaces (root); skipped without.
"""

import collections
import os
import signal
import subprocess
import sys
import time
import unittest

import servertest
from servertest import ServerTest

import netns  # of tests/cli

SCRIPT = """run="$SLUICE_JOB_ID/$SLUICE_ATTEMPT/$$"
say() { echo "$run $1"; echo "$run $1" >>"$LEDGER"; }
say begin; sleep 0.05
[ "$(cat)" != '"held"' ] || until [ -e "$LEDGER.parted" ]; do sleep 0.05; done
say end
"""
PORTS = (7171, 7172)  # of a namespace of our own
WHY_NOT = netns.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Parted(ServerTest):
    def setUp(self):
        super().setUp()
        self.network = netns.Network()
        self.addCleanup(self.network.remove)
        self.database = netns.Server(self.network)
        self.addCleanup(self.database.stop)
        self.store = self.database.socket_url  # ours: it does not go over the cable
        self.env["SLUICE_STORE"] = self.store
        self.env["LEDGER"] = self.path("ledger")
        self.ok("jobs", "migrate")
        self.handler_option = self.handler(SCRIPT, "step")
        self.running = {}

    def far(self, who, *args):
        """A process on the far side of the cable; its output is in <who>.log."""
        with open(self.path(who + ".log"), "ab") as log:
            p = subprocess.Popen([*self.network.under(), servertest.SLUICE, *args, "--store", self.database.cable_url,
                                  "--log-level=info"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir,
                                 env=self.env)
        self.running[who] = p
        self.ends_with_test(p)

    def ready(self, port):
        """The status of /readyz, asked from the far side of the cable."""
        ask = ("import sys, urllib.request, urllib.error\n"
               "try: print(urllib.request.urlopen(sys.argv[1], timeout=20).status)\n"
               "except urllib.error.HTTPError as e: print(e.code)\n"
               "except OSError: print(0)\n")
        return int(subprocess.run([*self.network.under(), sys.executable, "-c", ask, f"http://127.0.0.1:{port}/readyz"],
                                  capture_output=True, text=True, check=True).stdout)

    def until_ready(self, status):
        for port in PORTS:
            self.until(lambda: self.ready(port) == status)

    def delivered(self):
        sql = "SELECT encode(payload, 'escape') FROM sluice.job_events WHERE type = 2"
        out = subprocess.run(["psql", "-qXAt", "-d", self.store, "-c", sql], check=True, capture_output=True, text=True)
        return collections.Counter(out.stdout.splitlines())

    def written(self):
        return set(self.read("ledger").decode().splitlines())

    def test_two_servers_and_three_workers_heal_by_themselves(self):
        for i, port in enumerate(PORTS):
            self.far(f"server-{i}", "server", f"--listen=127.0.0.1:{port}", "--data=" + self.path(f"data-{i}"))
        self.until_ready(200)
        for i in range(3):
            self.far(f"worker-{i}", "worker", self.handler_option, f"--id=worker-{i}", "--slots=2", "--lease=3s",
                     "--retry-delay=50ms", "--wal=" + self.path("wal"), f"--server=http://127.0.0.1:{PORTS[i % 2]}")
        n = 0
        for cut, heal in ((self.network.pull, self.network.plug),
                          (self.network.swallow_replies, self.network.let_replies_through)):
            self.enqueue("step", '"held"')  # however slow we are, this one is not done before the cut is noticed
            self.enqueue("step", "--bulk=-", stdin=b"{}\n" * 59)
            n += 60
            self.until(lambda: self.totals()["completed"] > n - 55)
            cut()
            self.until_ready(503)
            self.assertLess(self.totals()["completed"], n)
            self.write("ledger.parted", b"")
            heal()
            self.until_ready(200)
            self.until(lambda: self.totals()["completed"] == n)
            os.remove(self.path("ledger.parted"))
        limit = time.monotonic() + 120
        while self.written() - set(self.delivered()) and time.monotonic() < limit:
            time.sleep(0.2)
        delivered = self.delivered()
        print(f"# {n} jobs over two partitions; {len(self.written())} lines written, {sum(delivered.values())} delivered")
        self.assertEqual(self.written() - set(delivered), set())
        self.assertEqual([line for line, times in delivered.items() if times > 1], [])
        self.assertGreaterEqual(len(self.written()), 2 * n)
        for who in ("worker-0", "worker-1", "worker-2", "server-0", "server-1"):
            self.running[who].send_signal(signal.SIGTERM)
            self.assertEqual(self.running[who].wait(timeout=120), 0, self.read(who + ".log")[-2000:])


if __name__ == "__main__":
    servertest.main()
