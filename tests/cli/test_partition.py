# SPDX-License-Identifier: Apache-2.0
"""A network that parts: PostgreSQL in one network namespace, a worker in another, a cable between them that is pulled
while its commands run, and a worker on the server's side that takes over. Every job ends once, every line is there once,
and what the worker that was cut off says afterwards is refused.

Needs the right to make network namespaces (root); skipped without.
"""

import collections
import json
import os
import random
import signal
import subprocess
import time
import unittest

import jobtest
import netns
from clitest import SLUICE, TIMEOUT
from jobtest import JobTest, alive

ROUNDS = 3  # of the storm; more when SLUICE_TEST_SECONDS says how long

# What a command has written it notes in a separate file, afterwards: a line of the file is a line of the output.
SAY = """run="$SLUICE_JOB_ID/$SLUICE_ATTEMPT/$WHO/$$"
say() { echo "$run $1"; echo "$run $1" >>"written/$SLUICE_JOB_ID.$$"; }
output() { echo "{\\"output\\":\\"$run\\"}" >&3; }
"""


WHY_NOT = netns.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Parted(JobTest):
    def setUp(self):
        super().setUp()
        self.network = netns.Network()
        self.addCleanup(self.network.remove)
        server = netns.Server(self.network)
        self.addCleanup(server.stop)
        self.store, self.far_store = server.socket_url, server.cable_url
        self.env["SLUICE_STORE"] = self.store
        os.mkdir(self.path("written"))
        self.ok("jobs", "migrate")

    def serve(self, who, *options, namespace=None, lease="3s"):
        """A worker with its own log folder; its messages go to <who>.err."""
        under = ["ip", "netns", "exec", namespace] if namespace else []
        store = self.far_store if namespace else self.store
        with open(self.path(who + ".err"), "ab") as err:
            p = subprocess.Popen(
                [*under, SLUICE, "worker", "--store", store, f"--id={who}", f"--wal={self.path('wal-' + who)}", "--json",
                 f"--lease={lease}", "--retry-delay=10ms", "--log-level=info", "--kill-grace=1s", *options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, cwd=self.dir, env={**self.env, "WHO": who})
        return self.ends_with_test(p)

    def finish(self, worker, who):
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=TIMEOUT)
        self.assertEqual(worker.returncode, 0, self.said(who))
        return json.loads(out)

    def said(self, who):
        return self.read(who + ".err").decode()

    def until_says(self, who, text, times=1):
        self.until(lambda: self.said(who).count(text) >= times)

    def until_settled(self, n):
        self.until(lambda: self.totals()["completed"] == n)

    def check(self, ids):
        """Each job has ended once in effect, and each line of each of its commands is in job_events once."""
        for job in ids:
            shown = self.show(job)
            self.assertEqual(shown["status"], "completed", shown)
            self.assertEqual([a["outcome"] for a in shown["attempts"]].count("completed"), 1, shown)
            lines = collections.Counter(self.logs(job).decode().splitlines())
            self.assertEqual([x for x, times in lines.items() if times != 1], [])
            for name in os.listdir(self.path("written")):
                if name.startswith(f"{job}."):
                    missing = [x for x in self.read(os.path.join("written", name)).decode().splitlines() if x not in lines]
                    self.assertEqual(missing, [], (shown, self.said("far")))
            # The run whose output was taken has written everything.
            self.assertIn(f"{shown['output']} ends", lines)

    def part(self, cut, heal):
        """The cable is pulled under three commands that end meanwhile, and one that does not."""
        types = [self.handler(SAY + 'say begins; [ "$WHO" = near ] || { echo "$$" >"stale.$SLUICE_JOB_ID"; '
                              "until [ -e cut ]; do sleep 0.01; done; }; say ends; output\n", "stale"),
                 self.handler(SAY + 'say begins; [ "$WHO" = near ] || { echo "$$" >held; exec sleep 1000; }\n'
                              "say ends; output\n", "held")]
        stale = [self.enqueue("stale") for _ in range(3)]
        held = self.enqueue("held")
        # Waited for once; before the cut a slow machine must be able to renew it.
        far = self.serve("far", "--slots=4", *types, namespace=self.network.client, lease="8s")
        for job in stale:
            self.until_file(f"stale.{job}")
        pid = int(self.until_file("held"))
        cut()
        self.write("cut", b"x")
        self.until_says("far", "the store does not answer")
        # No process can renew the lease: the command is ended before another one is started.
        self.until(lambda: not alive(pid))
        near = self.serve("near", "--slots=4", *types, lease="60s")
        self.until_settled(4)
        self.assertEqual(self.show(held)["leased_by"], "near")
        heal()
        self.until_says("far", "the store answers again")
        # It is as good as ever.
        near_did = self.finish(near, "near")
        later = [self.enqueue("stale") for _ in range(3)]
        self.until_settled(7)
        far_did = self.finish(far, "far")
        self.check([*stale, held, *later])
        self.assertEqual({self.show(job)["leased_by"] for job in later}, {"far"})
        return stale, held, near_did, far_did

    def test_a_worker_that_is_cut_off_is_replaced_and_refused_afterwards(self):
        stale, held, near_did, far_did = self.part(self.network.pull, self.network.plug)
        self.assertEqual(near_did["completed"], 4)
        self.assertEqual((far_did["completed"], far_did["lost"]), (3, 4))
        for job in stale:
            self.assertEqual([(a["worker"], a["outcome"]) for a in self.show(job)["attempts"]],
                             [("far", "reaped"), ("near", "completed")])
            self.assertIn(f"job {job} (stale), attempt 1 lost its lease: taken by another worker", self.said("far"))

    def test_a_worker_that_hears_no_answer_is_refused_or_has_completed_once(self):
        stale, held, near_did, far_did = self.part(self.network.swallow_replies, self.network.let_replies_through)
        self.assertEqual([a["outcome"] for a in self.show(held)["attempts"]], ["reaped", "completed"])
        # Whichever worker ended them: both together did so once.
        self.assertEqual(near_did["completed"] + sum(self.show(job)["leased_by"] == "far" for job in stale), 4)

    def test_a_storm_of_partitions_loses_nothing(self):
        rng = random.Random(11)
        seconds = float(os.environ.get("SLUICE_TEST_SECONDS", "0"))
        end, rounds, n = time.monotonic() + seconds, 0, 0
        type_ = self.handler(SAY + "say begins; for i in 1 2 3 4 5; do say $i; done; sleep 0.1\n"
                             "for i in 6 7 8 9; do say $i; done; say ends; output\n")
        far = self.serve("far", "--slots=2", type_, namespace=self.network.client)
        near = self.serve("near", "--slots=2", type_)
        ids = []
        ways = [(self.network.pull, self.network.plug),
                (self.network.swallow_replies, self.network.let_replies_through)]
        while rounds < ROUNDS or time.monotonic() < end:
            ids += self.enqueue("t", "--bulk=-", stdin=b"{}\n" * 24)
            n += 24
            self.until(lambda: self.totals()["completed"] > n - 24 + rng.randrange(8))
            cut, heal = ways[rng.randrange(2)]
            cut()
            # Sometimes it comes back before anybody has noticed, sometimes when all is done without the one cut off.
            if rounds % 2:
                self.until(lambda: self.totals()["completed"] > n - 16 + rng.randrange(8))
            else:
                self.until_settled(n)
            heal()
            self.until_settled(n)
            rounds += 1
        near_did, far_did = self.finish(near, "near"), self.finish(far, "far")
        # What it could not send before its deadline it left to the next worker, and said so.
        self.ok("worker", type_, "--drain", f"--wal={self.path('wal-far')}")
        self.check(ids)
        print(f"# {n} jobs, {rounds} partitions; completed near {near_did['completed']}, far {far_did['completed']}, "
              f"lost by far {far_did['lost']}", flush=True)


if __name__ == "__main__":
    jobtest.main()
