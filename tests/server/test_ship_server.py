# SPDX-License-Identifier: Apache-2.0
"""sluice ship to a real server: every line is one event of its stream, also when both are killed on the way."""

import contextlib
import hashlib
import http.server
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

from servertest import SLUICE, ServerTest, ask, free_port, main

TIMEOUT = 120


class Busy:
    """In front of a server: refuses the first batches with these answers and Retry-After, and passes the rest on."""

    def __init__(self, test, server, answers):
        self.times = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.pass_on("GET", None)

            def do_POST(self):
                outer.times.append(time.monotonic())
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if not answers:
                    return self.pass_on("POST", body)
                status, seconds = answers.pop(0)
                return self.answer(status, [("Retry-After", seconds)], b"")

            def pass_on(self, method, body):
                kept = {k: v for k, v in self.headers.items() if k.startswith(("Content-Type", "Connect-"))}
                a = ask(server, self.path, method, body, kept)
                self.answer(a.status, [("Content-Type", a.headers["Content-Type"])], a.body)

            def answer(self, status, headers, body):
                self.send_response(status)
                for name, value in [*headers, ("Content-Length", str(len(body)))]:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{http_server.server_address[1]}"
        thread = threading.Thread(target=http_server.serve_forever)
        thread.start()
        test.addCleanup(http_server.server_close)
        test.addCleanup(thread.join)
        test.addCleanup(http_server.shutdown)


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

    def follow(self, url, *files, err=subprocess.DEVNULL):
        p = subprocess.Popen([SLUICE, "ship", "--follow", "--json", *files, "--to", url, "--stream=s", "--wal=wal"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, env=self.env, cwd=self.dir)
        return self.ends_with_test(p)

    def stop(self, p):
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(timeout=TIMEOUT), 0)

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

    def test_a_restored_log_delivers_everything_under_a_new_incarnation(self):
        server = self.server()
        to = ("--to", server.url, "--stream=s", "--wal=wal")
        for after in (b"N3\nN4\nN5\nN6\n", b"M3\n"):  # a log longer than what the server has, and a shorter one
            with self.subTest(after=after):
                for name in ("wal", "copy"):
                    shutil.rmtree(self.path(name), ignore_errors=True)
                before = len(self.lines())
                self.ok("ship", *to, stdin=b"b1\nb2\n")
                shutil.copytree(self.path("wal"), self.path("copy"))
                self.ok("ship", *to, stdin=b"b3\nb4\nb5\n")
                shutil.rmtree(self.path("wal"))
                shutil.copytree(self.path("copy"), self.path("wal"))
                r = self.ok("ship", *to, "--json", "--log-level=warn", stdin=after)
                self.assertIn("new incarnation", r.errors)
                self.assertEqual(json.loads(r.out)["delivered"], len(after.split()))
                self.assertEqual(self.lines()[before:], [b"b1", b"b2", b"b3", b"b4", b"b5", *after.split()])

    def copy_store(self, source, to):
        """The database with its write-ahead log; a shared-memory file is made anew."""
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(to + suffix))
            if suffix != "-shm" and os.path.exists(self.path(source + suffix)):
                shutil.copy(self.path(source + suffix), self.path(to + suffix))

    def test_a_restored_server_gets_what_it_lost_again(self):
        server = self.server()
        to = ("--stream=s", "--wal=wal")
        self.ok("ship", "--to", server.url, *to, stdin=b"b1\nb2\n")
        self.stop(server)
        self.copy_store("jobs.db", "copy.db")
        server = self.server()
        self.ok("ship", "--to", server.url, *to, "--retarget", stdin=b"b3\nb4\n")
        self.stop(server)
        self.copy_store("copy.db", "jobs.db")
        server = self.server()
        self.assertEqual(self.lines(), [b"b1", b"b2"])
        r = self.ok("ship", "--to", server.url, *to, "--retarget", stdin=b"b5\n")
        self.assertNotIn("new incarnation", r.errors)
        self.assertEqual(self.lines(), [b"b1", b"b2", b"b3", b"b4", b"b5"])

    def test_a_restored_server_that_took_another_log_s_lines_gets_all_again(self):
        """Log and server are restored one after the other: the server acknowledged b3 and b4, and lost them."""
        to = ("--stream=s", "--wal=wal", "--retarget", "--log-level=warn")
        for lines in (b"X3\n", b"X3\nX4\nX5\nX6\n"):
            with self.subTest(lines=lines):
                for name in ("wal", "early", "whole", "jobs.db", "jobs.db-wal", "jobs.db-shm"):
                    if os.path.isdir(self.path(name)):
                        shutil.rmtree(self.path(name))
                    elif os.path.exists(self.path(name)):
                        os.unlink(self.path(name))
                server = self.server()
                self.ok("ship", "--to", server.url, *to, stdin=b"b1\nb2\n")
                shutil.copytree(self.path("wal"), self.path("early"))
                self.stop(server)
                self.copy_store("jobs.db", "copy.db")
                server = self.server()
                self.ok("ship", "--to", server.url, *to, stdin=b"b3\nb4\n")
                self.stop(server)
                os.rename(self.path("wal"), self.path("whole"))
                os.rename(self.path("early"), self.path("wal"))
                self.copy_store("copy.db", "jobs.db")
                server = self.server()
                r = self.ok("ship", "--to", server.url, *to, stdin=lines)
                self.assertNotIn("new incarnation", r.errors)
                shutil.rmtree(self.path("wal"))
                os.rename(self.path("whole"), self.path("wal"))
                r = self.ok("ship", "--to", server.url, *to, "--json", stdin=b"b5\n")
                self.assertIn("lost acknowledged records", r.errors)
                self.assertEqual(json.loads(r.out)["delivered"], 1)
                self.assertEqual(self.lines(), [b"b1", b"b2", *lines.split(), b"b1", b"b2", b"b3", b"b4", b"b5"])
                self.stop(server)

    def test_a_url_behind_sluice_is_a_server_with_a_path_too(self):
        server = self.server()
        self.ok("ship", "--to", "sluice:" + server.url, "--stream=s", "--wal=wal", stdin=b"one\n")
        self.assertEqual(self.lines(), [b"one"])

    def guarded(self):
        """A server that wants tokens, and its address."""
        tokens = {"writer": ("write", "sesame-of-the-writer"), "reader": ("read", "sesame-of-the-reader")}
        self.write("tokens", "".join(f"{name} {role} sha256:{hashlib.sha256(token.encode()).hexdigest()}\n"
                                     for name, (role, token) in tokens.items()).encode())
        self.guard = self.server("--tokens=" + self.path("tokens"))
        return self.guard.url

    def shipped(self, url, *args, **more):
        return self.sluice("ship", "--to", url, "--stream=s", "--wal=wal", *args, **more)

    def test_a_token_comes_from_a_file_or_from_the_environment(self):
        url = self.guarded()
        self.write("token", b"sesame-of-the-writer\n")
        r = self.shipped(url, "--token-file=token", stdin=b"one\n")
        self.assertEqual(r.code, 0, r.err)
        self.env["SLUICE_HTTP_TOKEN"] = "sesame-of-the-writer"
        r = self.shipped(url, stdin=b"two\n")
        self.assertEqual(r.code, 0, r.err)
        self.env["SLUICE_HTTP_TOKEN"] = "sesame-of-another"  # the file counts
        r = self.shipped(url, "--token-file=token", stdin=b"three\n")
        self.assertEqual(r.code, 0, r.err)
        self.assertEqual(self.lines(), [b"one", b"two", b"three"])

    def test_an_unknown_token_is_reported_at_the_start_and_repeated_nowhere(self):
        url = self.guarded()
        self.write("token", b"sesame-of-a-stranger\n")
        self.append("app.log", b"one\n")
        for args, token in [(["--token-file=token"], None), ([], "sesame-of-a-stranger"), ([], None), ([], "two words")]:
            with self.subTest(args=args, token=token):
                self.env.pop("SLUICE_HTTP_TOKEN", None)
                if token:
                    self.env["SLUICE_HTTP_TOKEN"] = token
                r = self.shipped(url, "app.log", "--log-level=debug", *args)
                self.assertEqual(r.code, 64 if token == "two words" else 78, r.err)
                self.assertIn("token", r.errors)
                self.assertNotIn("sesame", r.errors + r.text)
                self.assertNotIn("two words", r.errors)
        self.assertFalse(os.path.exists(self.path("wal")))  # nothing was read
        self.assertEqual(self.lines(), [])

    def test_a_token_without_the_right_to_write_leaves_the_lines_in_the_log(self):
        url = self.guarded()
        self.env["SLUICE_HTTP_TOKEN"] = "sesame-of-the-reader"
        r = self.shipped(url, "--flush-timeout=60s", stdin=b"one\n")
        self.assertEqual(r.code, 78, r.err)
        self.assertIn("1 line left", r.errors)
        self.assertIn("the role write", r.errors)
        self.env["SLUICE_HTTP_TOKEN"] = "sesame-of-the-writer"
        self.assertEqual(self.shipped(url, stdin=b"").code, 0)
        self.assertEqual(self.lines(), [b"one"])

    def test_a_token_that_changes_on_the_way_is_read_again_and_seen_nowhere(self):
        url = self.guarded()
        self.write("token", b"sesame-of-the-writer\n")
        self.append("app.log", b"one\n")
        err = open(self.path("err"), "wb")
        p = self.follow(url, "app.log", "--token-file=token", "--log-level=debug", err=err)
        err.close()
        self.until("one line", lambda: len(self.lines()) == 1)
        with open(f"/proc/{p.pid}/cmdline", "rb") as f:
            self.assertNotIn(b"sesame", f.read())
        other = hashlib.sha256(b"sesame-of-tomorrow").hexdigest()
        self.write("tokens", f"writer write sha256:{other}\n".encode())
        self.guard.send_signal(signal.SIGHUP)
        self.until("another token", lambda: ask(url, "api/v1/session", headers={
            "Authorization": "Bearer sesame-of-tomorrow"}).status == 200)
        self.append("app.log", b"two\n")
        self.until("reported", lambda: b"check the token" in self.read("err"))
        os.rename(self.write("token.new", b"sesame-of-tomorrow\n"), self.path("token"))  # never read half written
        self.until("two lines", lambda: self.lines() == [b"one", b"two"])
        self.stop(p)
        self.assertNotIn(b"sesame", self.read("err"))

    def test_an_address_without_a_sluice_server_is_reported_at_the_start(self):
        server = self.server()
        r = self.sluice("ship", "--to", "sluice:" + server.url + "nowhere", "--stream=s", "--wal=wal", stdin=b"one\n")
        self.assertEqual(r.code, 78, r.err)
        self.assertIn("no Sluice server answers at this URL", r.errors)

    def test_ship_waits_as_long_as_retry_after_says(self):
        server = self.server()
        busy = Busy(self, server.url, [(429, "2"), (503, "1")])
        self.append("app.log", b"one\ntwo\n")
        self.ok("ship", "app.log", "--to", busy.url, "--stream=s", "--wal=wal")
        self.assertEqual(self.lines(), [b"one", b"two"])
        self.assertGreaterEqual(busy.times[1] - busy.times[0], 2)
        self.assertGreaterEqual(busy.times[2] - busy.times[1], 1)

    def test_an_unavailable_server_gets_everything_when_it_is_back(self):
        server = self.server(port=free_port())
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
        port = free_port()
        server = self.server(port=port)
        url, lines, kills, rotations = server.url, 1, 0, 0
        self.append("app.log", b"line 1\n")
        ship = self.follow(url, "app.log")
        # A file that was renamed before it was ever seen is not read.
        self.until("the first line", lambda: len(self.events()) == 1)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or kills < 2:
            for _ in range(500 - lines % 500):
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
        self.until_all(lines)
        self.stop(ship)
        found = self.lines()
        expected = [b"line %d" % i for i in range(1, lines + 1)]
        print(f"# {kills} kills, {rotations} rotations, {lines} lines written, {len(found)} arrived, "
              f"{len(set(expected) - set(found))} lost, {len(found) - len(set(found))} twice", flush=True)
        self.assertEqual(set(expected) - set(found), set())
        self.assertEqual(len(found), lines)
        self.assertTrue(found == expected, "in order")

    def until_all(self, lines):
        """However many a fast writer has left to a slow disk: only a stall is a failure."""
        there = -1
        while there < lines:
            before = there
            self.until(f"more than {before} of {lines} lines", lambda: self.count() > before)
            there = self.count()

    def count(self):
        with contextlib.closing(sqlite3.connect(self.path("jobs.db"), timeout=60)) as db:
            return db.execute("SELECT count(*) FROM job_events WHERE job_id IS NULL").fetchone()[0]


if __name__ == "__main__":
    main()
