# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed, stopped beyond their lease or cut off from their store: every job ends once, every line is
there once, and the history says what happened."""

import collections
import json
import os
import random
import signal
import time

import jobtest
from clitest import TIMEOUT
from jobtest import JobTest, alive

# Writes its lines in two halves; what it has done besides is one line in a file.
CHATTY = """echo "$SLUICE_JOB_ID/$SLUICE_ATTEMPT begins"
for i in 1 2 3 4 5; do echo "$SLUICE_JOB_ID/$SLUICE_ATTEMPT line $i"; done
%s
for i in 6 7 8 9; do echo "$SLUICE_JOB_ID/$SLUICE_ATTEMPT line $i"; done
echo "$SLUICE_JOB_ID/$SLUICE_ATTEMPT ends"
"""


class Killed(JobTest):
    def lines(self, job):
        return self.logs(job).decode().splitlines()

    def test_a_killed_worker_takes_its_command_along_and_the_job_runs_again(self):
        chain = self.enqueue("t")
        options = [self.handler("echo first $SLUICE_ATTEMPT; [ $SLUICE_ATTEMPT = 1 ] || exit 0; echo $$ >pid; "
                                "echo second; exec sleep 1000"), "--lease=1s"]
        worker = self.worker("--id=victim", *options)
        pid = int(self.until_file("pid"))
        worker.kill()
        worker.wait()
        self.until(lambda: not alive(pid))
        self.drain("--id=heir", *options)
        self.assertEqual(self.attempts(chain), [(1, "reaped"), (2, "completed")])
        job = self.show(chain)
        self.assertEqual((job["status"], [a["worker"] for a in job["attempts"]]), ("completed", ["victim", "heir"]))
        self.assertEqual(sorted(self.lines(chain)), ["first 1", "first 2", "second"])

    def test_what_a_command_wrote_before_its_worker_was_killed_is_kept_once(self):
        chain = self.enqueue("t")
        n = 2000
        options = [self.handler(f"[ $SLUICE_ATTEMPT = 1 ] || exit 0; seq {n}; echo $$ >pid; exec sleep 1000"), "--lease=1s"]
        worker = self.worker(*options)
        self.until_file("pid")
        worker.kill()
        worker.wait()
        self.drain(*options)
        self.assertEqual(self.lines(chain), [str(i + 1) for i in range(n)])

    def test_a_worker_that_stood_still_beyond_its_lease_is_refused(self):
        chain = self.enqueue("t")
        options = [self.handler("echo run $SLUICE_ATTEMPT by $$; echo $$ >pid.$SLUICE_ATTEMPT; "
                                'until [ -e "go.$SLUICE_ATTEMPT" ]; do sleep 0.01; done; '
                                """echo "{\\"output\\":$SLUICE_ATTEMPT}" >&3"""), "--lease=1s", "--json"]
        stale = self.worker("--id=stale", *options)
        self.until_file("pid.1")
        self.stand_still(stale)
        heir = self.worker("--id=heir", *options)
        self.until_file("pid.2")
        self.write("go.1", b"x")  # its command ends now, with the worker still standing
        self.until(lambda: not alive(int(self.read("pid.1"))))
        stale.send_signal(signal.SIGCONT)
        self.write("go.2", b"x")
        self.assertEqual(self.chain(chain)["output"], 2)
        out, _ = self.end(stale)
        self.assertEqual((json.loads(out)["completed"], json.loads(out)["lost"]), (0, 1))
        out, _ = self.end(heir)
        self.assertEqual(json.loads(out)["completed"], 1)
        self.assertEqual(self.attempts(chain), [(1, "reaped"), (2, "completed")])
        self.assertEqual(len([x for x in self.lines(chain) if x.startswith("run")]), 2)

    def test_a_command_of_a_lost_job_is_ended_with_the_reason(self):
        chain = self.enqueue("t")
        options = [self.handler("echo $$ >pid.$SLUICE_ATTEMPT; exec sleep 1000"), "--lease=1s", "--kill-grace=1s",
                   "--stop-grace=0"]
        stale = self.worker("--log-level=info", *options)
        pid = int(self.until_file("pid.1"))
        self.stand_still(stale)
        heir = self.worker(*options)
        self.until_file("pid.2")
        stale.send_signal(signal.SIGCONT)
        self.until(lambda: not alive(pid))
        self.assertEqual(self.show(chain)["status"], "running")
        self.ok("jobs", "cancel", str(chain))
        self.until(lambda: not alive(int(self.read("pid.2"))))
        self.end(heir)
        _, err = self.end(stale)
        self.assertIn(b"taken_by_another_worker", err)

    def test_a_storm_of_kills_loses_nothing(self):
        n, rng = 60, random.Random(7)
        ids = self.enqueue("t", "--bulk=-", stdin=b"{}\n" * n)
        options = [self.handler(CHATTY % "sleep 0.05" + 'echo "$SLUICE_JOB_ID" >>done\n'), "--lease=1s", "--slots=2"]
        workers = [self.worker(*options) for _ in range(3)]
        end = time.monotonic() + 60
        kills = 0
        while self.totals()["completed"] < n and time.monotonic() < end:
            victim = rng.randrange(3)
            if kills < 12:
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = self.worker(*options)
                kills += 1
            time.sleep(rng.uniform(0.05, 0.4))  # how long until the next one dies
        self.drain(*options)
        for w in workers:
            self.end(w)
        self.assertEqual(self.totals()["completed"], n)
        for i in ids:
            self.check_lines(i)
        print(f"# {n} jobs, {kills} workers killed, {sum(len(self.attempts(i)) for i in ids)} attempts", flush=True)

    def check_lines(self, job):
        """The attempt that completed has all its lines, each once and in order; a killed one a beginning of them."""
        whole = ["begins", *[f"line {i}" for i in range(1, 10)], "ends"]
        completed = [a["attempt"] for a in self.show(job)["attempts"] if a["outcome"] == "completed"]
        self.assertEqual(len(completed), 1)
        # A start that was not charged shares its number with the next, so lines are told apart by their offsets.
        runs, last = collections.defaultdict(list), None
        for e in self.events(job):
            if e["type"] == "started":
                last = e["offset"]
            elif e["type"] == "stdout":
                runs[e["attempt"], last].append(e["text"].split(" ", 1)[1])
        self.assertIn(whole, runs.values())
        for lines in runs.values():
            self.assertEqual(lines, whole[: len(lines)])

    def test_nothing_is_left_in_the_folder_of_logs(self):
        self.enqueue("t")
        self.drain("--type=t=echo x")
        left = [f for _, folders, files in os.walk(self.path(".sluice", "wal")) for f in files + folders
                if f.endswith((".wal", ".spool"))]
        self.assertEqual(left, [])
        self.assertEqual(len(os.listdir(self.path(".sluice", "archive"))), 1)


class KilledOnPostgres(Killed):
    postgres = True


class LostStore(JobTest):
    postgres = True

    def run_through(self, *commands):
        n = 40
        ids = self.enqueue("t", "--bulk=-", stdin=b"{}\n" * n)
        worker = self.start("worker", "--json", "--slots=2", "--lease=5s", "--drain",
                            self.handler(CHATTY % "sleep 0.05"))
        self.until(lambda: self.totals()["completed"] > 2)
        for command in commands:
            jobtest.tell_postgres(command)
        out, err = worker.communicate(timeout=TIMEOUT)
        self.assertEqual(worker.returncode, 0, err)
        self.assertEqual(self.totals()["completed"], n)
        for i in ids:
            self.assertEqual(len([x for x in self.logs(i).splitlines() if x.endswith(b" ends")]), 1)
        return json.loads(out)

    def test_a_worker_goes_on_after_a_restart_of_the_server(self):
        self.run_through("restart")

    def test_a_worker_goes_on_after_a_crash_of_the_server(self):
        self.run_through("crash")

    def test_a_worker_goes_on_when_the_server_was_away_for_a_while(self):
        self.run_through("stop", "start")


if __name__ == "__main__":
    jobtest.main()
