# SPDX-License-Identifier: Apache-2.0
"""Tests of a running server: a process on a free port, asked over HTTP, stopped with the test."""

import json  # noqa: F401
import os
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from clitest import ROOT, free_port  # noqa: E402,F401
from jobtest import SLUICE, JobTest, alive, main, postgres_url, stop_postgres, control_postgres  # noqa: E402,F401


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


def ask(url, path="", method="GET", body=None, headers=None, timeout=60):
    """One request; an error status is an answer like others."""
    data = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
    request = urllib.request.Request(url.rstrip("/") + "/" + path.lstrip("/"), data=data, method=method,
                                     headers={**({"Content-Type": "application/json"} if data else {}),
                                              **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as r:
            return Answer(r.status, r.headers, r.read())
    except urllib.error.HTTPError as e:
        with e:
            return Answer(e.code, e.headers, e.read())


class ServerTest(JobTest):
    """self.store is the store of the other commands, too; self.server starts one."""

    def setUp(self):
        super().setUp()
        for name in list(self.env):
            if name.startswith("SLUICE_") and name not in ("SLUICE_STORE", "SLUICE_TEST_SECONDS"):
                del self.env[name]

    def server(self, *args, command="up", port=0):
        """The process, with its address as .url once it is ready."""
        p = self.start(command, f"--listen=127.0.0.1:{port}", "--data=" + self.path("data"), *args)
        p.began = time.monotonic()
        line = p.stdout.readline().decode().strip()
        p.took = time.monotonic() - p.began
        self.assertTrue(line.startswith("http"), (line, p.stderr.read().decode() if not line else ""))
        p.url = line
        return p

    def until_ready(self, p):
        """It is not ready for a moment when one of its threads stalled, or its worker has not asked the store yet."""
        self.until(lambda: ask(p.url, "readyz").status == 200)

    def metric(self, p, name):
        """The sum of a metric's series."""
        lines = [line for line in ask(p.url, "metrics").text.splitlines() if line.split("{")[0].split(" ")[0] == name]
        self.assertTrue(lines, name)
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)
