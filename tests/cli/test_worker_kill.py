# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed, stopped beyond their lease or cut off from their store: every job ends once, every line is
there once, and the history says what happened."""

import collections
import json
import os
import random
import signal
import subprocess
import time

import jobtest
from clitest import TIMEOUT
from jobtest import JobTest, alive

# The lease of a worker that stalls; it is waited for. Until then a slow machine must be able to renew it.
SHORT = "--lease=10s"
# Writes its lines in two halves; what it has done is one line in a file.
CHATTY = """run="$SLUICE_JOB_ID/$SLUICE_ATTEMPT/$$"
echo "$run begins"
for i in 1 2 3 4 5; do echo "$run line $i"; done
%s
for i in 6 7 8 9; do echo "$run line $i"; done
echo "$run ends"
"""


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return int(f.read().rpartition(")")[2].split()[1])


class Killed(JobTest):
    def lines(self, job):
        return self.logs(job).decode().splitlines()

    def test_a_killed_worker_takes_its_command_along_and_the_job_runs_again(self):
        chain = self.enqueue("t")
        options = [self.handler("echo first $SLUICE_ATTEMPT; [ $SLUICE_ATTEMPT = 1 ] || exit 0; echo $$ >pid; "
                                "echo second; exec sleep 1000")]
        worker = self.worker("--id=victim", *options)
        pid = int(self.until_file("pid"))
        worker.kill()
        worker.wait()
        self.until(lambda: not alive(pid))
        self.expire_leases()
        self.drain("--id=heir", *options)
        self.assertEqual(self.attempts(chain), [(1, "reaped"), (2, "completed")])
        job = self.show(chain)
        self.assertEqual((job["status"], [a["worker"] for a in job["attempts"]]), ("completed", ["victim", "heir"]))
        self.assertEqual(sorted(self.lines(chain)), ["first 1", "first 2", "second"])

    def test_with_a_key_no_line_is_readable_on_disk_and_a_kill_loses_none(self):
        self.write("key", b"k" * 32)
        secret = "secret-" + os.urandom(8).hex()
        chain = self.enqueue("t", json.dumps(secret))
        command = self.handler("""[ $SLUICE_ATTEMPT = 1 ] || exit 0
cat; echo; for i in 1 2 3; do cat "$0" >&2; done; ls -l /proc/self/fd
env | grep -c WAL_KEY; cat /proc/$PPID/environ /proc/$PPID/maps /proc/$PPID/mem; echo $$ >pid; exec sleep 1000 # ##""" + secret)
        self.env["SLUICE_WAL_KEY_FILE"] = self.path("key")
        worker = self.worker("--wal=log", command)
        pid = int(self.until_file("pid"))
        worker.kill()
        worker.wait()
        self.until(lambda: not alive(pid))

        def files():
            return [os.path.join(d, n) for d, _, names in os.walk(self.path("log")) for n in names]

        self.assertTrue([f for f in files() if f.endswith(".spool")])
        for path in files():
            with open(path, "rb") as f:
                self.assertNotIn(secret.encode(), f.read(), path)
        # Without the key, what was left behind stays.
        self.expire_leases()
        del self.env["SLUICE_WAL_KEY_FILE"]
        self.drain("--wal=log", command)
        self.assertTrue([f for f in files() if f.endswith(".spool")])
        self.ok("worker", "--drain", "--wal=log", "--wal-key-file=key", command)
        lines = self.lines(chain)
        self.assertIn(f'"{secret}"', lines)
        self.assertEqual(sum("##" + secret in line for line in lines), 3)
        # What the command could reach: no variable, no descriptor but its own, nothing of its parent.
        self.assertIn("0", lines)
        if os.getuid() != 0:
            self.assertEqual(sum("Permission denied" in line for line in lines), 3, lines)
        self.assertFalse([line for line in lines if " -> " in line and ("key" in line or ".spool" in line or ".wal" in line)])
        for path in files():
            with open(path, "rb") as f:
                self.assertNotIn(secret.encode(), f.read(), path)

    ONCE = "echo $SLUICE_JOB_ID >>starts; exec sleep 1000"

    def check_started_once(self, jobs, why):
        self.drain("--max-attempts=1", self.handler(self.ONCE), "--type=run", "--command-from-input")
        self.assertEqual(sorted(map(int, self.read("starts").split())), sorted(jobs))
        for job in jobs:
            self.assertEqual(self.show(job)["status"], "failed")
            self.assertIn(why, self.show(job)["error"])

    def test_what_may_run_once_is_not_started_again_after_a_kill(self):
        jobs = [self.enqueue("t") for _ in range(3)]
        jobs.append(int(self.ok("run", "--detach", "--", "/bin/sh", "-c", self.ONCE).text))
        worker = self.worker("--max-attempts=1", "--slots=4", self.handler(self.ONCE), "--type=run", "--command-from-input")
        self.until(lambda: os.path.exists(self.path("starts")) and len(self.read("starts").split()) == 4)
        worker.kill()
        worker.wait()
        self.expire_leases()
        self.check_started_once(jobs, "the attempts ran out")

    def test_what_may_run_once_is_not_started_again_after_a_stop(self):
        jobs = [self.enqueue("t") for _ in range(2)]
        worker = self.worker("--max-attempts=1", "--slots=2", "--stop-grace=0", "--kill-grace=1s", self.handler(self.ONCE))
        self.until(lambda: os.path.exists(self.path("starts")) and len(self.read("starts").split()) == 2)
        self.end(worker, 75)
        self.check_started_once(jobs, "the worker was stopped")

    def test_a_worker_killed_with_its_minder_takes_all_processes_of_the_command_along(self):
        chain = self.enqueue("t")
        options = [self.handler("[ $SLUICE_ATTEMPT = 1 ] || exit 0; echo first; (sh -c 'echo $$ >deep; exec sleep 1000') & "
                                "echo $$ >pid; wait")]
        worker = self.worker(*options)
        pids = [int(self.until_file("pid")), int(self.until_file("deep"))]
        self.stand_still(worker)  # so that it cannot see the minder's death
        os.kill(parent(pids[0]), signal.SIGKILL)
        worker.kill()
        worker.wait()
        for pid in pids:
            self.until(lambda pid=pid: not alive(pid))
        self.expire_leases()
        self.drain(*options)
        self.assertEqual(self.attempts(chain), [(1, "reaped"), (2, "completed")])
        self.assertEqual(self.lines(chain), ["first"])

    def test_what_a_command_wrote_before_its_worker_was_killed_is_kept_once(self):
        chain = self.enqueue("t")
        n = 2000
        options = [self.handler(f"[ $SLUICE_ATTEMPT = 1 ] || exit 0; seq {n}; echo $$ >pid; exec sleep 1000")]
        worker = self.worker(*options)
        self.until_file("pid")
        worker.kill()
        worker.wait()
        self.expire_leases()
        self.drain(*options)
        self.assertEqual(self.lines(chain), [str(i + 1) for i in range(n)])

    def test_a_worker_that_stalled_beyond_its_lease_is_refused(self):
        chain = self.enqueue("t")
        options = [self.handler("echo run $SLUICE_ATTEMPT by $$; echo $$ >pid.$SLUICE_ATTEMPT; "
                                'until [ -e "go.$SLUICE_ATTEMPT" ]; do sleep 0.01; done; '
                                """echo "{\\"output\\":$SLUICE_ATTEMPT}" >&3"""), "--json"]
        stale = self.worker("--id=stale", SHORT, *options)
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
        options = [self.handler("echo $$ >pid.$SLUICE_ATTEMPT; exec sleep 1000"), "--kill-grace=1s",
                   "--stop-grace=0"]
        stale = self.worker("--log-level=info", SHORT, *options)
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
        runs, processes = collections.defaultdict(list), collections.defaultdict(set)
        for e in self.events(job):
            if e["type"] == "stdout":
                run, line = e["text"].split(" ", 1)
                runs[e["attempt"]].append(line)
                processes[e["attempt"]].add(run)
        self.assertEqual(runs[completed[0]], whole)
        for lines in runs.values():
            self.assertEqual(lines, whole[: len(lines)])
        # No two runs have one number.
        self.assertTrue(all(len(p) == 1 for p in processes.values()), processes)

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
        worker = self.start("worker", "--json", "--slots=2", "--lease=20s", "--drain",
                            self.handler(CHATTY % "sleep 0.05"))
        self.until(lambda: self.totals()["completed"] > 2)
        for command in commands:
            jobtest.control_postgres(command)
        out, err = worker.communicate(timeout=TIMEOUT)
        self.assertEqual(worker.returncode, 0, err)
        self.assertEqual(self.totals()["completed"], n)
        for i in ids:
            self.assertEqual(len([x for x in self.logs(i).splitlines() if x.endswith(b" ends")]), 1)
        return json.loads(out)

    def ask(self, sql):
        return subprocess.run(["psql", "-qXAt", "-d", self.store, "-c", sql], check=True, capture_output=True).stdout

    def test_who_follows_waits_or_watches_continues_when_the_server_was_unavailable(self):
        for name in ("go", "end"):  # one of them twice: its first writer may still be there when it is opened again
            os.mkfifo(self.path(name))
        chain = self.enqueue("t")
        waiter = self.start("jobs", "wait", str(chain))  # one that cannot even begin ends, so it must have begun
        self.until(lambda: self.ask("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE "
                                    "'LISTEN%'") != b"0\n")
        worker = self.worker("--lease=60s", self.handler(
            "for i in 1 2 3; do echo $i; done; read x <go; echo 4; read x <end; for i in 5 6; do echo $i; done; "
            "echo '{\"output\":7}' >&3"))
        follower = self.start("jobs", "logs", str(chain), "--follow")
        self.assertEqual([follower.stdout.readline() for _ in range(3)], [b"1\n", b"2\n", b"3\n"])
        watcher = self.start("jobs", "watch", "--every=100ms")
        self.assertIn(b"sluice jobs", watcher.stdout.readline())
        jobtest.control_postgres("stop")
        try:
            self.assertIn(b"store unavailable, retrying", follower.stderr.readline())
        finally:
            jobtest.control_postgres("start")
        self.write("go", b"x\n")
        # The worker's output is delivered again. At the end of the chain the follower does not wait long for it.
        self.assertEqual(follower.stdout.readline(), b"4\n")
        self.write("end", b"x\n")
        out, err = follower.communicate(timeout=TIMEOUT)
        self.assertEqual((follower.returncode, out), (0, b"5\n6\n"), err)
        self.assertNotIn(b"away", err)  # once
        out, err = waiter.communicate(timeout=TIMEOUT)
        self.assertEqual((waiter.returncode, out), (0, b"7\n"), err)
        self.assertIsNone(watcher.poll())
        while b"completed" not in (line := watcher.stdout.readline()):
            self.assertTrue(line)
        self.end(watcher)
        self.end(worker)

    def test_an_outage_is_logged_once_and_not_with_every_try(self):
        self.enqueue("t")
        worker = self.start("worker", "--slots=2", "--lease=60s", "--log-level=debug", "--stop-grace=0", "--kill-grace=1s",
                            self.handler("echo >began; exec sleep 1000"))
        self.until_file("began")
        jobtest.control_postgres("stop")
        lines = []
        try:
            # One of those who try again and again says so in its debug log.
            while sum(b"LISTEN failed" in line for line in lines) < 5:
                lines.append(worker.stderr.readline())
                self.assertNotEqual(lines[-1], b"")
        finally:
            jobtest.control_postgres("start")
        while b"the store answers again" not in lines[-1]:
            lines.append(worker.stderr.readline())
        self.end(worker, 75)
        warnings = [line for line in lines if b"level=warn" in line]
        self.assertEqual(len([line for line in warnings if b"the store does not answer" in line]), 1, warnings)
        self.assertEqual(len([line for line in warnings if b"LISTEN failed" in line]), 1, warnings)
        self.assertEqual([line for line in lines if line.startswith(b"sluice worker:") and b"postgres" in line][1:], [], lines)

    def test_a_worker_continues_after_a_restart_of_the_server(self):
        self.run_through("restart")

    def test_a_worker_continues_after_a_crash_of_the_server(self):
        self.run_through("crash")

    def test_a_worker_continues_when_the_server_was_unavailable_for_a_while(self):
        self.run_through("stop", "start")


if __name__ == "__main__":
    jobtest.main()
