# SPDX-License-Identifier: Apache-2.0
"""A full disk under a whole worker: under its log and spools, or under its store. Nothing dies, nothing that was called
durable is lost, no attempt is charged while the log has no room, and when there is room all jobs complete.

Runs itself in its own mount namespace, with small filesystems in memory; skipped where that is not permitted.
"""

import collections
import contextlib
import errno
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

MARK = "SLUICE_TEST_MOUNTS"


def enter():
    """Begin again in a namespace where mounts are ours, and go away with us. Returns why that cannot be."""
    if os.environ.get(MARK):
        return None if os.environ[MARK] == "ours" else os.environ[MARK]
    why = "no unshare command (Debian package util-linux)"
    for how in ("-m", "-rm"):
        if shutil.which("unshare"):
            r = subprocess.run(["unshare", how, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True,
                               check=False)
            if r.returncode == 0:
                os.environ[MARK] = "ours"
                os.execvp("unshare", ["unshare", how, sys.executable, *sys.argv])
            why = f"mounting is not permitted here: {r.stderr.strip()}"
    return why


WHY_NOT = enter()

import unittest  # noqa: E402

import jobtest  # noqa: E402
from clitest import TIMEOUT  # noqa: E402
from jobtest import JobTest  # noqa: E402

LINE = "x" * 60
PAUSED = "the event log does not accept records; no more jobs are claimed"
# As many lines as the input says. Runs are distinguished by what is in every line.
NOISY = f"""read -r n || :
i=0
while [ $i -lt "$n" ]; do echo "$SLUICE_JOB_ID.$$ $i {LINE}"; i=$((i+1)); done
echo '{{"output":"'$SLUICE_JOB_ID.$$'"}}' >&3
"""


def free_bytes(folder):
    st = os.statvfs(folder)
    return st.f_bavail * st.f_frsize


@unittest.skipIf(WHY_NOT, WHY_NOT)
class DiskFull(JobTest):
    def setUp(self):
        super().setUp()
        self.small = self.path("small")
        os.mkdir(self.small)

    def mount(self, megabytes):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "none", self.small], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.small], check=True)

    def ballast(self, keep_bytes=0):
        """Take all room but this many bytes."""
        with open(os.path.join(self.small, "ballast"), "ab") as f:
            while (room := free_bytes(self.small) - keep_bytes) > 0:
                try:
                    os.posix_fallocate(f.fileno(), os.path.getsize(f.name), room)
                except OSError as e:  # others take of it too
                    if e.errno != errno.ENOSPC:
                        raise

    @contextlib.contextmanager
    def kept_full(self):
        """What others give back meanwhile is taken too."""
        done = threading.Event()

        def fill():
            while not done.wait(0.001):
                self.ballast()

        thread = threading.Thread(target=fill)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def lighten(self, n_bytes):
        path = os.path.join(self.small, "ballast")
        os.truncate(path, os.path.getsize(path) - n_bytes)

    def make_room(self):
        os.unlink(os.path.join(self.small, "ballast"))

    def serve(self, *options):
        with open(self.path("err"), "ab") as err:
            p = subprocess.Popen(
                [jobtest.SLUICE, "worker", "--json", "--slots=2", "--retry-delay=100ms", "--retry-max-delay=200ms",
                 "--max-attempts=3", "--log-level=info", "--kill-grace=500ms", "--stop-grace=1s", *options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, cwd=self.dir, env=self.env)
        return self.ends_with_test(p)

    def said(self):
        return self.read("err").decode()

    def finish(self, worker, codes=(0,)):
        self.assertIsNone(worker.poll(), self.said())  # it has been alive all the time
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=TIMEOUT)
        self.assertIn(worker.returncode, codes, self.said())
        return json.loads(out)

    def check_lines(self, job):
        """No line twice; of every run a beginning; of the one that completed all."""
        runs = collections.defaultdict(list)
        for e in self.events(job):
            if e["type"] == "stdout" and not e.get("partial"):
                run, number, text = e["text"].split(" ")
                self.assertEqual(text, LINE)
                runs[run].append(int(number))
        for run, numbers in runs.items():
            wrong = [(at, number) for at, number in enumerate(numbers) if at != number]
            self.assertEqual(wrong[:5], [], (run, len(numbers), len(wrong)))
        shown = self.show(job)
        self.assertEqual(shown["status"], "completed", shown)
        self.assertEqual([a["outcome"] for a in shown["attempts"]].count("completed"), 1)
        self.assertEqual(len(runs[shown["output"]]), shown["input"])
        return shown

    def enqueue_many(self, n, lines):
        return self.enqueue("t", "--bulk=-", stdin=b'{"input":%d}\n' % lines * n)

    def failures(self, ids):
        return [a["error"] for job in ids for a in self.show(job)["attempts"] if a["outcome"] == "failed"]


class FullLog(DiskFull):
    def begin(self):
        """A worker that has run some jobs: its spools are longer than any that comes, so it is the log that has no room,
        and no command waits for its spool. Archives go where there is room: a log could be archived while its spools
        cannot be brought in."""
        self.mount(1024)
        os.mkdir(self.path("archive"))
        os.symlink(self.path("archive"), os.path.join(self.small, "archive"))
        worker = self.serve(f"--wal={self.small}", self.handler(NOISY))
        ids = self.enqueue_many(8, 6000)
        self.until(lambda: self.totals()["completed"] == len(ids))
        return ids, worker

    def fill(self):
        """Jobs whose output has no room; returns when the log has failed."""
        self.ballast()
        before = self.said().count(PAUSED)
        ids = self.enqueue_many(24, 3000)
        self.until(lambda: self.said().count(PAUSED) > before)
        return ids

    def test_no_attempt_is_charged_while_the_log_has_no_room(self):
        end = time.monotonic() + float(os.environ.get("SLUICE_TEST_SECONDS", "0"))
        ids, worker = self.begin()
        while len(ids) == 8 or time.monotonic() < end:
            ids += self.fill()
            # A little, so that some get further before it is full again. An archive may make the rest of the room.
            full = self.said().count(PAUSED)
            self.lighten(3 << 20)
            self.until(lambda: self.said().count(PAUSED) > full or self.totals()["completed"] == len(ids))
            self.make_room()
            self.until(lambda: self.totals()["completed"] == len(ids))
        self.finish(worker)
        for job in ids:
            self.check_lines(job)
        self.assertEqual(self.failures(ids), [])
        print(f"# {len(ids)} jobs, the log was full {self.said().count(PAUSED)} times", flush=True)

    def test_a_worker_that_ends_on_a_full_disk_leaves_its_output_to_the_next(self):
        ids, worker = self.begin()
        with self.kept_full():
            ids += self.fill()
            # How much of the output there is room for at the end is a matter of moments; what stays is reported.
            self.finish(worker, codes=(0, 75))
        if not re.search(r"events stay in .*\.wal for the next worker", self.said()):
            self.assertEqual(glob.glob(os.path.join(self.small, "*", "*.spool", "*.spool")), [])
        self.assertLess(self.totals()["completed"], len(ids))
        self.make_room()
        # A process of the first one that had a command to end may keep its log locked for a moment: then it is the one after.
        self.until(self.drain_all)
        for job in ids:
            self.check_lines(job)

    def drain_all(self):
        self.drain(f"--wal={self.small}", self.handler(NOISY))
        return not [f for _, folders, files in os.walk(self.small) for f in files + folders if re.search(r"\.(wal|spool)$", f)]


class FullStore(DiskFull):
    def setUp(self):
        super().setUp()
        self.mount(96)
        self.store = "sqlite:" + os.path.join(self.small, "jobs.db")
        self.env["SLUICE_STORE"] = self.store

    def test_a_worker_waits_for_a_store_that_is_full(self):
        ids = self.enqueue_many(16, 6000)
        self.ballast(keep_bytes=6 << 20)
        worker = self.serve(f"--wal={self.path('wal')}", self.handler(NOISY))
        self.until(lambda: "full" in self.said())
        self.make_room()
        self.until(lambda: self.totals()["completed"] == len(ids))
        self.finish(worker)
        for job in ids:
            self.check_lines(job)


if __name__ == "__main__":
    jobtest.main()
