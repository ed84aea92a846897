# SPDX-License-Identifier: Apache-2.0
"""sluice ship on a full disk: under its log, or under the file that it ships to. It reports it once, continues when there is
room, and no line is lost or doubled, also when it was killed meanwhile.

Runs itself in its own mount namespace; skipped where that is not permitted.
"""

import os
import signal
import unittest

import jobtest
from clitest import TIMEOUT
from shiptest import Endpoint, ShipTest, free_port, line_of
from test_disk_full import WHY_NOT, DiskFull, free_bytes  # begins again in the namespace

LINES = [b"%06d %s" % (i, b"x" * 500) for i in range(16000)]  # 8 MB


@unittest.skipIf(WHY_NOT, WHY_NOT)
class FullDisk(ShipTest, DiskFull):
    def setUp(self):
        super().setUp()
        self.mount(4)
        self.write("app.log", b"\n".join(LINES) + b"\n")
        self.port = free_port()

    def to(self):
        """An endpoint that is unavailable, so that the log grows; the log is on the small disk."""
        return ("--to", f"http://127.0.0.1:{self.port}/rows", "--stream=s", f"--wal={self.small}/wal")

    def stuck(self):
        """A ship whose log has filled the disk."""
        p = self.follow("app.log", to=self.to())
        self.until("reported", lambda: "reading continues when there is space" in self.said(), p)
        self.assertIn("No space left on device", self.said())
        return p

    def more_room(self):
        jobtest.subprocess.run(["mount", "-o", "remount,size=64m", self.small], check=True)

    def delivered(self, end, process=None):
        self.until("all lines", lambda: len(end.rows) >= len(LINES), process)
        self.assertTrue([line_of(r) for r in end.rows] == LINES, len(end.rows))

    def test_reading_waits_for_room_and_continues(self):
        p = self.stuck()
        self.more_room()
        self.until("reported", lambda: "the log accepts lines again" in self.said(), p)
        self.delivered(Endpoint(self, port=self.port), p)
        self.assertEqual(self.finish(p)["read"], len(LINES))
        self.assertEqual(self.said().count("reading continues when there is space"), 1, self.said())

    def test_a_kill_while_the_disk_is_full_loses_nothing(self):
        self.kill(self.stuck())
        self.more_room()
        p = self.follow("app.log", to=self.to())
        self.delivered(Endpoint(self, port=self.port), p)
        self.finish(p)

    def test_a_start_on_a_full_disk_delivers_what_is_there_and_waits_with_the_rest(self):
        self.kill(self.stuck())
        self.ballast()
        self.assertEqual(free_bytes(self.small), 0)
        end = Endpoint(self, port=self.port)
        p = self.follow("app.log", to=self.to())
        self.until("some are delivered", lambda: len(end.rows) > 0, p)
        self.until("reported again", lambda: self.said().count("reading continues when there is space") == 2, p)
        self.assertLess(len(end.rows), len(LINES))
        self.more_room()
        self.delivered(end, p)
        self.finish(p)

    def test_a_signal_while_the_disk_is_full_leaves_lines_of_a_file_to_the_next_run(self):
        r = self.finish(self.stuck(), code=75)
        self.assertEqual(r["read"], r["left"])
        self.assertLess(r["read"], len(LINES))
        self.more_room()
        end = Endpoint(self, port=self.port)
        self.ok("ship", "app.log", *self.to())
        self.delivered(end)

    def test_a_signal_while_the_disk_is_full_reports_how_much_of_a_pipe_is_lost(self):
        read, write = os.pipe()
        with open(self.path("err"), "wb") as err, open(self.path("app.log"), "rb") as f:
            p = jobtest.subprocess.Popen([jobtest.SLUICE, "ship", "--json", *self.to()], stdin=read, stderr=err,
                                         stdout=jobtest.subprocess.PIPE, cwd=self.dir, env=self.env)
            feeder = jobtest.subprocess.Popen(["cat"], stdin=f, stdout=write)
        os.close(read)
        os.close(write)
        self.addCleanup(feeder.wait)
        self.addCleanup(feeder.kill)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.addCleanup(p.stdout.close)
        self.until("reported", lambda: "reading continues when there is space" in self.said(), p)
        p.send_signal(signal.SIGTERM)
        p.wait(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 74, self.said())
        self.assertRegex(self.said(), r"No space left on device; [\d,]+ lines that had been read did not fit")

    def test_a_full_target_is_waited_for_and_has_each_line_once(self):
        out = os.path.join(self.small, "out.jsonl")
        p = self.follow("app.log", to=("--to", f"file:{out}", "--stream=s", "--wal=wal"))
        self.until("reported", lambda: "No space left on device" in self.said(), p)
        self.more_room()
        self.until("all lines", lambda: len(self.rows(out)) >= len(LINES), p)
        self.assertTrue(self.lines(out) == LINES)
        self.finish(p)


if __name__ == "__main__":
    jobtest.main()
