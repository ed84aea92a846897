# SPDX-License-Identifier: Apache-2.0
"""Tests of sluice ship: real files, and what arrived as rows of a file, a table or an endpoint."""

import base64
import contextlib
import http.server
import json
import os
import shutil
import signal
import sqlite3
import threading
import time

from clitest import TIMEOUT, CliTest, free_port  # noqa: F401


def line_of(row):
    return base64.b64decode(row["line_b64"], validate=True) if row.get("line_b64") is not None else row["line"].encode()


class ShipTest(CliTest):
    """Rows go to out.jsonl, the log to wal/s.wal."""

    TO = ("--to", "file:out.jsonl", "--stream=s", "--wal=wal")

    def rows(self, name="out.jsonl"):
        """Complete rows only: another one may be on its way."""
        try:
            data = self.read(name)
        except FileNotFoundError:
            return []
        return [json.loads(row) for row in data[: data.rfind(b"\n") + 1].splitlines()]

    def lines(self, name="out.jsonl"):
        return [line_of(r) for r in self.rows(name)]

    def append(self, name, data):
        with open(self.path(name), "ab") as f:
            f.write(data)

    def ship(self, *args, code=0, **more):
        r = self.sluice("ship", *args, *self.TO, **more)
        self.assertEqual(r.code, code, (r.out, r.err))
        return r

    def result(self, *args, **more):
        return json.loads(self.ship("--json", *args, **more).out)

    def follow(self, *args, to=None):
        """A running ship. Its errors go to the file err."""
        with open(self.path("err"), "ab") as err:
            return self.start_with(err, "ship", "--follow", "--json", "--log-level=info", *args, *(to or self.TO))

    def bound(self):
        """What runs a command bound by the modes of files, also as root."""
        return ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()

    def forbid(self, name):
        os.chmod(self.path(name), 0)

    def allow(self, name):
        os.chmod(self.path(name), 0o600)

    def start_with(self, err, *args, under=()):
        import subprocess

        import clitest

        p = subprocess.Popen([*under, clitest.SLUICE, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err,
                             env=self.env, cwd=self.dir, preexec_fn=clitest._default_signals)
        return self.ends_with_test(p)

    def said(self):
        return self.read("err").decode()

    def until(self, what, check, process=None):
        """Wait until check() is true. Only a hang reaches the deadline."""
        deadline = time.monotonic() + TIMEOUT
        while not check():
            if process is not None:
                self.assertIsNone(process.poll(), self.said())
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.005)

    def arrives(self, process, *lines, name="out.jsonl"):
        """These lines, and no others, have arrived in this order."""
        self.until(f"{len(lines)} lines", lambda: len(self.rows(name)) >= len(lines), process)
        self.assertEqual(self.lines(name), list(lines))

    def finish(self, process, code=0, how=signal.SIGTERM):
        """End it; nothing more arrives. Returns its result."""
        self.assertIsNone(process.poll(), self.said())
        process.send_signal(how)
        out, _ = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, code, self.said())
        return json.loads(out)

    def kill(self, process):
        process.kill()
        process.wait()

    def stopped(self, process):
        """The process is stopped until the block ends."""
        return _Stopped(process)

    def restored(self, *to, lines=b"N3\nN4\nN5\nN6\n"):
        """Ship b1 and b2, copy the log, ship b3 to b5, restore the copy, ship N3 to N6. What the last one said."""
        self.ok("ship", *to, "--stream=s", "--wal=wal", stdin=b"b1\nb2\n")
        shutil.copytree(self.path("wal"), self.path("copy"))
        self.ok("ship", *to, "--stream=s", "--wal=wal", stdin=b"b3\nb4\nb5\n")
        shutil.rmtree(self.path("wal"))
        os.rename(self.path("copy"), self.path("wal"))
        return self.ok("ship", *to, "--stream=s", "--wal=wal", "--log-level=warn", stdin=lines)

    RESTORED = ["b1", "b2", "b3", "b4", "b5", "N3", "N4", "N5", "N6"]

    def table(self, sql, name="t.db"):
        with contextlib.closing(sqlite3.connect(self.path(name), timeout=60)) as db:
            return db.execute(sql).fetchall()


class _Stopped:
    def __init__(self, process):
        self.process = process

    def __enter__(self):
        self.process.send_signal(signal.SIGSTOP)
        while True:  # the signal is on its way
            with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
                if f.read().rpartition(")")[2].split()[0] in "Tt":
                    return
            time.sleep(0.001)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGCONT)


class Endpoint:
    """An HTTP endpoint that gives the listed answers first, then accepts all rows, and records what it accepted."""

    def __init__(self, test, answers=(), port=0):
        self.rows, self.keys, self.paths, self.refusals = [], [], [], 0
        self.times, self.tokens = [], set()  # when each request came; what they brought
        self.answers = list(answers)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                outer.times.append(time.monotonic())
                outer.tokens.add(self.headers["Authorization"])
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers = outer.answers.pop(0) if outer.answers else (200, {})
                if status == 200:
                    outer.rows += [json.loads(row) for row in body.splitlines()]
                    outer.keys.append(self.headers["Idempotency-Key"])
                    outer.paths.append(self.path)
                else:
                    outer.refusals += 1
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/rows"
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()

        def end():
            self.server.shutdown()
            thread.join()
            self.server.server_close()

        test.addCleanup(end)


def numbered(first, last):
    return b"".join(b"line %d\n" % i for i in range(first, last + 1))


def numbers(first, last):
    return [b"line %d" % i for i in range(first, last + 1)]


def seconds(default):
    return float(os.environ.get("SLUICE_TEST_SECONDS", default))
