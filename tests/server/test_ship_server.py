# SPDX-License-Identifier: Apache-2.0
"""sluice ship to a real server: every line is one event of its stream, also when both are killed on the way."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time

from servertest import SLUICE, ServerTest, ask, main

TIMEOUT = 120


class ShipToServer(ServerTest):
    def setUp(self):
        super().setUp()
        self.env["SLUICE_STORE"] = self.store

    def events(self):
        """(stream, sequence, type, payload) of lines that belong to no job."""
        with contextlib.closing(sqlite3.connect(self.path("jobs.db"), timeout=60)) as db:
            return db.execute("SELECT stream, sequence, type, payload FROM job_events WHERE job_id IS NULL ORDER BY offset").fetchall()

    def lines(self):
        return [bytes(e[3]) if e[3] is not None else b"" for e in self.events()]

    def follow(self, url, *files):
        p = subprocess.Popen([SLUICE, "ship", "--follow", "--json", *files, "--to", url, "--stream=s", "--wal=wal"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.env, cwd=self.dir)

        def end():
            if p.poll() is None:
                p.kill()
            p.wait()
            p.stdout.close()

        self.addCleanup(end)
        return p

    def until(self, what, check):
        deadline = time.monotonic() + TIMEOUT
        while not check():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.01)

    def append(self, name, data):
        with open(self.path(name), "ab") as f:
            f.write(data)

    def test_lines_are_events_without_a_job_byte_for_byte(self):
        server = self.server()
        data = b"plain\ncr\r\n\nnul\0in\n\xff\xfe\nlast"
        r = self.ok("ship", "--json", "--to", server.url, "--stream=s", "--wal=wal", stdin=data)
        self.assertEqual(json.loads(r.out)["delivered"], 6)
        self.assertEqual(b"\n".join(self.lines()), data)
        self.ok("ship", "--input=jsonl", "--to", server.url, "--stream=s", "--wal=wal", stdin=b'{"a":1}\n')
        self.assertEqual(self.events()[-1], ("s", 7, 7, b'{"a":1}'))
        streams = ask(server.url, "api/v1/streams").json()["items"]
        self.assertEqual([(s["stream"], s["mark"]) for s in streams], [("s", 7)])

    def test_a_url_behind_sluice_is_a_server_with_a_path_too(self):
        server = self.server()
        self.ok("ship", "--to", "sluice:" + server.url, "--stream=s", "--wal=wal", stdin=b"one\n")
        self.assertEqual(self.lines(), [b"one"])

    def test_a_server_that_is_away_gets_everything_when_it_is_back(self):
        server = self.server()
        url = server.url
        server.send_signal(signal.SIGTERM)
        server.wait()
        self.append("app.log", b"".join(b"line %d\n" % i for i in range(1, 101)))
        r = self.fails(75, "ship", "--flush-timeout=0", "app.log", "--to", url, "--stream=s", "--wal=wal", says="100 lines left")
        self.assertIn("s.wal", r.errors)
        port = url.rstrip("/").rsplit(":", 1)[1]
        self.start("up", f"--listen=127.0.0.1:{port}", "--data=" + self.path("data"))
        self.append("app.log", b"line 101\n")
        self.ok("ship", "app.log", "--to", url, "--stream=s", "--wal=wal")
        self.assertEqual(self.lines(), [b"line %d" % i for i in range(1, 102)])

    def test_kills_of_both_lose_nothing_and_double_nothing(self):
        seconds = float(os.environ.get("SLUICE_TEST_SECONDS", 6))
        server = self.server()
        port = server.url.rstrip("/").rsplit(":", 1)[1]
        url, lines, kills, rotations = server.url, 0, 0, 0
        deadline = time.monotonic() + seconds
        self.append("app.log", b"")
        ship = self.follow(url, "app.log")
        while time.monotonic() < deadline:
            for _ in range(500):
                lines += 1
                self.append("app.log", b"line %d\n" % lines)
            if lines % 3000 == 0:
                os.rename(self.path("app.log"), self.path(f"app.log-{time.time_ns()}"))
                self.append("app.log", b"")
                rotations += 1
            if lines % 1500 == 0:
                ship.kill()
                ship.wait()
                ship = self.follow(url, "app.log")
                kills += 1
            if lines % 4000 == 0:
                server.kill()
                server.wait()
                server = self.start("up", f"--listen=127.0.0.1:{port}", "--data=" + self.path("data"))
                kills += 1
        self.until("all lines", lambda: len(self.events()) >= lines)
        ship.send_signal(signal.SIGTERM)
        self.assertEqual(ship.wait(timeout=TIMEOUT), 0)
        found = self.lines()
        expected = [b"line %d" % i for i in range(1, lines + 1)]
        print(f"# {kills} kills, {rotations} rotations, {lines} lines written, {len(found)} arrived, "
              f"{len(set(expected) - set(found))} lost, {len(found) - len(set(found))} twice", flush=True)
        self.assertEqual(set(expected) - set(found), set())
        self.assertEqual(len(found), lines)
        self.assertTrue(found == expected, "in order")
        self.assertGreater(kills, 1)


if __name__ == "__main__":
    main()
