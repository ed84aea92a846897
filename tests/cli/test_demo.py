# SPDX-License-Identifier: Apache-2.0
"""sluice demo, small: it counts what is there, notices a loss, and leaves nothing behind however it is ended."""

import glob
import json
import os
import pty
import re
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.request

from clitest import SLUICE, TIMEOUT, CliTest, _default_signals, main

SMALL = ("--chains=30",)
JOBS = 30 * 2 + 3 + 1


def processes_below(folder):
    """Everything that has the folder in its arguments or its environment, but for us."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as a, open(f"/proc/{pid}/environ", "rb") as e, \
                    open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as s:
                if folder.encode() in a.read() + e.read() and s.read().rpartition(")")[2].split()[0] != "Z":
                    found.append(int(pid))
        except OSError:
            pass
    return found


class Demo(CliTest):
    def setUp(self):
        super().setUp()
        self.env["TMPDIR"] = self.dir
        self.env["TERM"] = "xterm"

    def begin(self, *args, **more):
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        p = subprocess.Popen([SLUICE, "demo", *SMALL, *args], stdin=subprocess.DEVNULL, env=self.env, cwd=self.dir,
                             preexec_fn=_default_signals, **more)

        def end():
            if p.poll() is None:
                p.kill()
            p.communicate()

        self.addCleanup(end)
        return p

    def folder(self):
        found = glob.glob(self.path("sluice-demo-*"))
        return found[0] if found else None

    def until(self, what, check):
        deadline = time.monotonic() + TIMEOUT
        while not (found := check()):
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.01)
        return found

    def workers_run(self):
        return self.folder() and os.path.exists(os.path.join(self.folder(), "ledger"))

    def gone(self):
        self.until("all processes are gone", lambda: not processes_below(self.path("sluice-demo-")))

    def test_it_counts_and_keeps_the_server_to_explore(self):
        mine, theirs = pty.openpty()
        self.addCleanup(os.close, mine)
        p = self.begin("--keep", stdout=theirs)
        os.close(theirs)
        text = b""
        while b"Ctrl-C" not in text or not text.endswith(b"\n"):
            text += os.read(mine, 65536)
        text = text.decode()
        url = re.search(r"until Ctrl-C: (http://\S+)", text)[1]
        with urllib.request.urlopen(url + "livez", timeout=60) as r:
            self.assertEqual(r.status, 200)
        counts = {name: int(n) for name, n in re.findall(r"^  ([a-z ]+?) +(\d+)(?: |\r)", text.split("Nothing lost")[0], re.M)}
        self.assertIn("Nothing lost, nothing doubled.", text)
        self.assertIn("\r\033[K", text)  # drawn in place
        with sqlite3.connect(os.path.join(self.folder(), "sluice.db"), timeout=60) as db:
            self.assertEqual(db.execute("SELECT count(*) FROM job_events WHERE type = 2").fetchone()[0], counts["lines delivered"], text)
        with open(os.path.join(self.folder(), "ledger"), "rb") as f:
            self.assertEqual(f.read().count(b"\n"), counts["lines written"])
        self.assertEqual((counts["jobs"], counts["lost"], counts["duplicated"]), (JOBS, 0, 0), text)
        self.assertGreaterEqual(counts["lines written"], 3 * JOBS)
        for fault in ("SIGSTOP", "SIGKILL", "cut: connections reset", "up again", "resumes"):
            self.assertIn(fault, text)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(timeout=TIMEOUT), 0)
        self.gone()
        self.assertIsNone(self.folder())

    def test_a_line_that_is_lost_is_counted_and_fails_the_demo(self):
        p = self.begin("--json", "--patience=20s")
        self.until("workers", self.workers_run)
        with open(os.path.join(self.folder(), "ledger"), "ab") as f:
            f.write(b"job 1 attempt 1 pid 1: this was never delivered\n")
        out, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 70, err)
        r = json.loads(out)
        self.assertEqual((r["jobs"], r["completed_once"], r["lost"], r["duplicated"]), (JOBS, JOBS, 1, 0))
        self.assertIn(b"nothing has moved", err)
        self.assertIsNotNone(self.folder())
        self.gone()

    def test_a_signal_ends_all_processes_and_leaves_no_folder(self):
        p = self.begin()
        self.until("workers", self.workers_run)
        self.until("more than three processes", lambda: len(processes_below(self.folder())) > 3)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 75, err)
        self.gone()
        self.assertIsNone(self.folder())

    def test_a_given_folder_is_a_new_one_and_stays(self):
        p = self.begin("--data=mine")
        self.until("workers", lambda: os.path.exists(self.path("mine", "ledger")))
        again = self.begin("--data=mine")
        _, err = again.communicate(timeout=TIMEOUT)
        self.assertEqual((again.returncode, len(err.splitlines())), (73, 1), err)
        self.assertIn(b"mine: File exists", err)
        p.send_signal(signal.SIGINT)
        self.assertEqual((p.wait(timeout=TIMEOUT), self.folder()), (75, None))
        with sqlite3.connect(self.path("mine", "sluice.db"), timeout=60) as db:
            self.assertGreater(db.execute("SELECT count(*) FROM sluice_job").fetchone()[0], 0)
        self.until("all processes are gone", lambda: not processes_below(self.path("mine")))

    def test_a_kill_ends_all_processes_too(self):
        p = self.begin()
        self.until("workers", self.workers_run)
        p.kill()
        p.wait()
        self.gone()

    def test_a_port_in_use_is_reported(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            p = self.begin(f"--listen=127.0.0.1:{s.getsockname()[1]}")
            out, err = p.communicate(timeout=TIMEOUT)
        self.assertNotIn(p.returncode, (0, 75), err)
        self.assertIn(b"the server did not start", err)
        self.assertIn(b"Address already in use", err)
        self.assertIn(b"--listen", err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertEqual(out, b"")
        self.assertIsNone(self.folder())


if __name__ == "__main__":
    main()
