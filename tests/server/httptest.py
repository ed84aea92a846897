# SPDX-License-Identifier: Apache-2.0
"""Tests of HTTP alone: the fixture server as a process, asked with sockets of our own, byte by byte if need be."""

import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from clitest import SLUICE as FIXTURE  # noqa: E402
from clitest import TIMEOUT, main  # noqa: E402,F401
from memory import memory_has  # noqa: E402


class Answer:
    def __init__(self, status, fields, body):
        self.status, self.fields, self.body = status, fields, body

    def __getitem__(self, name):
        return self.fields.get(name.lower())

    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json()["error"]["code"]


def read_exactly(f, n):
    data = f.read(n)
    if len(data) < n:
        raise EOFError("the body is cut")
    return data


def read_answer(f, no_body=False):
    """The next answer, or None when the connection ends (or is reset) before one."""
    try:
        line = f.readline()
        if not line.endswith(b"\r\n"):
            return None
        status = int(line.split()[1])
        fields = {}
        while (line := f.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            fields[name.lower()] = (fields[name.lower()] + "\n" if name.lower() in fields else "") + value.strip()
        if status == 100:
            return read_answer(f, no_body)
        if no_body or status in (204, 304):
            body = b""
        elif "content-length" in fields:
            body = read_exactly(f, int(fields["content-length"]))
        elif fields.get("transfer-encoding") == "chunked":
            body = b""
            while n := int(f.readline(), 16):
                body += read_exactly(f, n)
                f.readline()
            f.readline()
        else:
            body = f.read()
        return Answer(status, fields, body)
    except (ConnectionError, EOFError):
        return None


def read_head(s):
    """The status of the next answer on a socket; a refusal is read to its end."""
    f = s.makefile("rb")
    status = int(f.readline().split()[1])
    length = 0
    while (line := f.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    f.read(length)
    return status


class Server:
    def __init__(self, test, *, tls=None, err=subprocess.PIPE, **options):
        options.setdefault("listen", "127.0.0.1:0")
        self.process = subprocess.Popen([FIXTURE, *(f"{k}={v}" for k, v in options.items())], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=err)
        test.addCleanup(self.end)
        self.tls = tls
        self.address = self.process.stdout.readline().decode().strip()
        if not self.address:
            raise RuntimeError(self.process.stderr.read().decode())
        self.port = int(self.address.rpartition(":")[2])

    def stop(self):
        """Asked to; what it said on standard error."""
        _, err = self.process.communicate(b"", timeout=TIMEOUT)
        return self.process.returncode, err

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for f in (self.process.stdin, self.process.stdout, self.process.stderr):
            if f:
                f.close()

    def reload(self):
        self.process.send_signal(signal.SIGHUP)
        return self.process.stdout.readline().decode().strip()

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            s = self.tls.wrap_socket(s, server_hostname="localhost")
        return s

    def raw(self, data, no_body=False):
        """Send bytes, take one answer. None: the connection ended."""
        with self.connect() as s, s.makefile("rb") as f:
            try:
                s.sendall(data)
            except OSError:
                pass  # cut while sending: the answer may still be there
            return read_answer(f, no_body)

    def ask(self, method, path, body=None, **fields):
        """fields: authorization="…", x_csrf_token="…"; host=None leaves Host out."""
        lines = {"host": f"localhost:{self.port}", "connection": "close"}
        lines.update({k.replace("_", "-"): v for k, v in fields.items()})
        if body is not None:
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            lines["content-length"] = str(len(body))
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v is not None)
        return self.raw(head.encode() + b"\r\n" + (body or b""), method == "HEAD")

    def served(self, method, path):
        """The answer of a server with short deadlines: on a busy machine we are too slow ourselves at times, and cut like others."""
        end = time.monotonic() + TIMEOUT
        while (answer := self.ask(method, path)) is None and time.monotonic() < end:
            pass
        return answer

    def metric(self, name):
        for line in self.served("GET", "/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        return None

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def memory_has(self, needle):
        """Whether the process has these bytes anywhere in its memory."""
        return memory_has(self.process.pid, needle)


class HttpTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="sluice-http-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text, mode=0o600):
        with open(self.path(name), "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def tokens(self, **roles):
        """A tokens file with a token for each name; they are in self.token."""
        self.token = {name: secrets.token_hex(32) for name in roles}
        lines = [f"{n} {r} sha256:{hashlib.sha256(self.token[n].encode()).hexdigest()}\n" for n, r in roles.items()]
        return self.write("tokens", "# for tests\n" + "".join(lines))

    def bearer(self, name):
        return "Bearer " + self.token[name]

    def certificate(self, name="cert", common="localhost"):
        """A separate certificate for localhost and sluice.example, and its key."""
        cert, key = self.path(name + ".pem"), self.path(name + ".key")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
                        "2", "-subj", f"/CN={common}", "-addext", "subjectAltName=DNS:localhost,DNS:sluice.example,IP:127.0.0.1",
                        "-keyout", key, "-out", cert], check=True, capture_output=True)
        os.chmod(key, 0o600)
        return cert, key

    def refused(self, **options):
        """A server that does not start: its exit code and what it says."""
        options.setdefault("listen", "127.0.0.1:0")
        r = subprocess.run([FIXTURE, *(f"{k}={v}" for k, v in options.items())], stdin=subprocess.DEVNULL, capture_output=True,
                           timeout=TIMEOUT, check=False)
        return r.returncode, r.stderr.decode()

    def trusting(self, *certs):
        context = ssl.create_default_context()
        for c in certs:
            context.load_verify_locations(c)
        return context
