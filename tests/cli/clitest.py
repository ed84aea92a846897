# SPDX-License-Identifier: Apache-2.0
"""Tests of the sluice command: a process a call, a fresh folder a test, TAP on standard output.

A test file is run as: test_x.py PATH-OF-SLUICE [PATH-OF-DLQ_PUT] [NAME-OF-TEST...]
"""

import base64
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import walfmt

SLUICE = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "sluice"
DLQ_PUT = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else "dlq_put"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIMEOUT = 120  # only a hang reaches it


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def text(self):
        return self.out.decode()

    @property
    def errors(self):
        return self.err.decode()

    def lines(self):
        return self.text.splitlines()

    def json(self):
        return [json.loads(line) for line in self.lines()]


def _default_signals():
    # A test run in the background has SIGINT ignored, and under nohup SIGHUP, which the command would respect.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class CliTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="sluice-test-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR",)}
        self.env["HOME"] = self.dir

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def write(self, name, data):
        path = self.path(name)
        with open(path, "wb") as f:
            f.write(data)
        os.chmod(path, 0o600)
        return path

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def sluice(self, *args, stdin=b"", under=(), **more):
        """Run to the end. stdin: bytes, or what subprocess takes; under: a command that runs the command."""
        given = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
        more.setdefault("stdout", subprocess.PIPE)
        r = subprocess.run([*under, SLUICE, *args], stderr=subprocess.PIPE, env=self.env, cwd=self.dir, timeout=TIMEOUT,
                           preexec_fn=_default_signals, check=False, **given, **more)
        return Result(r.returncode, r.stdout, r.stderr)

    def start(self, *args, **more):
        """A running process with pipes. Ended with the test."""
        more.setdefault("stdout", subprocess.PIPE)
        p = subprocess.Popen([SLUICE, *args], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, cwd=self.dir,
                             preexec_fn=_default_signals, **more)
        return self.ends_with_test(p)

    def end_of(self, p, timeout=60):
        """What it prints until it ends by itself, with its standard input open: an input that ends is a reason too."""
        stdin, p.stdin = p.stdin, None
        try:
            return p.communicate(timeout=timeout)
        finally:
            stdin.close()

    def ends_with_test(self, p):
        """Kill a process that is still there when the test is over, and close its pipes. Returns it."""
        def end():
            if p.poll() is None:
                p.kill()
            p.wait()
            for f in (p.stdin, p.stdout, p.stderr):
                if f:
                    try:
                        f.close()
                    except OSError:
                        pass

        self.addCleanup(end)
        return p

    def ok(self, *args, **more):
        r = self.sluice(*args, **more)
        self.assertEqual(r.code, 0, r.err)
        return r

    def fails(self, code, *args, says=(), **more):
        """Ends with code and at least one line on stderr that has all of `says`."""
        r = self.sluice(*args, **more)
        self.assertEqual(r.code, code, (args, r.out[:500] if r.out else r.out, r.err))
        for line in r.errors.splitlines():
            if all(s in line for s in ([says] if isinstance(says, str) else says)):
                return r
        self.fail(f"{args}: no line on stderr has {says}: {r.err}")

    def one_line(self, r):
        self.assertEqual(len(r.errors.splitlines()), 1, r.err)
        self.assertEqual(r.out, b"")

    def records(self, path, *args):
        """Sequence to payload, as dump shows them."""
        return {r["sequence"]: base64.b64decode(r["payload_b64"], validate=True)
                for r in self.ok("wal", "dump", "--json", path, *args).json()}

    def segments(self, name):
        """The files of a log in this test's folder, sealed ones first."""
        sealed = sorted((int(n[len(name) + 1 :]), n) for n in os.listdir(self.dir)
                        if n.startswith(name + ".") and n[len(name) + 1 :].isdigit())
        return [n for _, n in sealed] + [name]

    def read_by_format(self, name):
        """The effective data records of a log, read by the independent reader."""
        raw, incarnations = [], set()
        for segment in self.segments(name):
            _, incarnation, records = walfmt.parse(self.read(segment))
            incarnations.add(incarnation)
            raw += records
        self.assertEqual(len(incarnations), 1)
        return walfmt.effective(raw)


def rest_from(took):
    """Between two checks of what others do: twice as long as a check took, which may be a separate process. The caller
    must not take the processors from those it waits for, nor from other tests."""
    time.sleep(min(max(2 * took, 0.01), 0.25))


def free_port():
    """A port that no process listens on, and that no connection of others is given meanwhile: below those that the kernel hands
    out. A server that listens on it, ends and comes back finds it free."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        above = int(f.read().split()[0])
    while True:
        port = random.randrange(max(above // 2, 1024), max(above, 2048))
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


class _TapResult(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.n = 0
        self.sub_failures = 0

    def _line(self, ok, test, more=""):
        self.n += 1
        name = test.id().split(".")[-1].replace("_", " ").removeprefix("test ")
        print(f"{'ok' if ok else 'not ok'} {self.n} - {name}{more}", flush=True)

    def _explain(self, test, err):
        for line in self._exc_info_to_string(err, test).splitlines():
            print("# " + line, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.sub_failures = 0

    def addSuccess(self, test):
        self._line(True, test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._explain(test, err)
        self._line(False, test)

    def addError(self, test, err):
        super().addError(test, err)
        self._explain(test, err)
        self._line(False, test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._explain(subtest, err)
            self.sub_failures += 1
            if self.sub_failures == 1:
                self._line(False, test, f" {subtest._subDescription()}")

    def addSkip(self, test, reason):
        self._line(True, test, f" # SKIP {reason}")


def main():
    only = sys.argv[3:]
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromModule(sys.modules["__main__"])
    tests = [t for group in suite for t in group if not only or t.id().split(".")[-1] in only]
    missing = set(only) - {t.id().split(".")[-1] for t in tests}
    if missing or not tests:
        print(f"Bail out! no test {', '.join(sorted(missing)) or 'at all'} in {os.path.basename(sys.argv[0])}")
        sys.exit(64)
    print(f"1..{len(tests)}", flush=True)
    result = _TapResult()
    for t in tests:
        t.run(result)
    sys.exit(0 if result.wasSuccessful() else 1)
