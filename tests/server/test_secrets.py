# SPDX-License-Identifier: Apache-2.0
"""A whole server with tokens and TLS: after requests of every kind, no token and no session is in what it wrote, in
its arguments, in its environment, or in its memory."""

import hashlib
import http.client
import json
import os
import re
import secrets
import signal
import ssl
import subprocess
import threading
import time

import servertest
from memory import PLAIN_USER, memory_find, same_user_reads

PUBLISH = "/sluice.v1.JobEvents/PublishJobEvents"


class Secrets(servertest.ServerTest):
    tls = True

    def setUp(self):
        super().setUp()
        self.token = {name: secrets.token_hex(32) for name in ("boss", "reader", "stranger")}
        roles = {"boss": "admin", "reader": "read"}
        self.secret_file("tokens", "".join(f"{n} {r} sha256:{hashlib.sha256(self.token[n].encode()).hexdigest()}\n" for n, r in roles.items()))
        args = ["--tokens=" + self.path("tokens"), "--access-log=logfmt", "--log-level=debug"]
        if self.tls:
            self.certificate()
            args += ["--tls-cert=" + self.path("cert.pem"), "--tls-key=" + self.path("key.pem")]
        self.p = self.server(*args, command="server")
        self.read_errors()
        self.assertTrue(self.p.url.startswith("https://" if self.tls else "http://"), self.p.url)
        self.address = self.p.url.partition("://")[2].strip("/")
        self.secrets = dict(self.token)
        self.other = self.connect()  # with its own buffers, so that those of others stay as they were left

    def read_errors(self):
        """All the time: it has a line for every request, and no request is served while a full pipe waits for a reader."""
        pipe, self.errors = self.p.stderr, []
        self.reader = threading.Thread(target=lambda: self.errors.append(pipe.read()))
        self.reader.start()
        self.addCleanup(self.reader.join)
        self.addCleanup(self.p.kill)

    def secret_file(self, name, text):
        with open(self.path(name), "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(text)

    def certificate(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", self.path("key.pem"),
                        "-out", self.path("cert.pem")], check=True, capture_output=True)
        os.chmod(self.path("key.pem"), 0o600)

    def connect(self):
        if self.tls:
            c = http.client.HTTPSConnection(self.address, timeout=60, context=ssl.create_default_context(cafile=self.path("cert.pem")))
        else:
            c = http.client.HTTPConnection(self.address, timeout=60)
        self.addCleanup(c.close)
        return c

    def ask(self, method, path, body=None, status=200, on=None, **fields):
        """The answer's headers and its JSON, on its own connection unless one is given to be kept."""
        c = on or self.connect()
        data = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
        c.request(method, path, data, {k.replace("_", "-"): v for k, v in fields.items()})
        r = c.getresponse()
        text = r.read()
        self.assertEqual(r.status, status, (method, path, text))
        if not on:
            c.close()
        return r.headers, json.loads(text) if r.headers["Content-Type"] == "application/json" else text

    def bearer(self, name):
        return "Bearer " + self.token[name]

    def log_in(self, **more):
        headers, body = self.ask("POST", "/api/v1/session", {**more, "token": self.token["boss"]}, content_type="application/json")
        pair = headers["Set-Cookie"].split(";")[0]
        self.secrets[f"session {len(self.secrets)}"] = pair.partition("=")[2]
        return pair, body["csrf"]

    def nowhere(self, when):
        """Not even in part: memory that was given back has its first bytes overwritten."""
        if os.getuid() != 0:
            return  # only root can read that memory
        self.ask("GET", "/livez", on=self.other)  # the network thread has ended the requests before by then
        parts = {secret[24:56].encode(): name for name, secret in self.secrets.items()}
        found = memory_find(self.p.pid, [b"application/json", *parts])
        self.assertTrue(found.pop(b"application/json", None), "memory cannot be searched")
        self.assertEqual({parts[part]: where for part, where in found.items()}, {}, when)

    def stream(self, path, **fields):
        """A connection with a stream that stays open."""
        c = self.connect()
        c.request("GET", path, headers={k.replace("_", "-"): v for k, v in fields.items()})
        r = c.getresponse()
        self.assertEqual((r.status, r.headers["Content-Type"].split(";")[0]), (200, "text/event-stream"))
        return c

    def use(self):
        boss = self.bearer("boss")
        pair, csrf = self.log_in()
        for size in (10, 700, 1500):
            self.log_in(pad="x" * size)
        self.nowhere("logged in")
        for field in ({"authorization": boss}, {"cookie": pair, "x_csrf_token": csrf}):
            _, made = self.ask("POST", "/api/v1/chains", {"type": "t", "input": {"a": 1}}, 201, **field)
            chain = made["chain_id"]
            for path in (f"/jobs/{chain}", f"/chains/{chain}", "/jobs", "/types", "/stats", "/session", "/audit"):
                self.ask("GET", "/api/v1" + path, **field)
            self.ask("GET", f"/api/v1/chains/{chain}/wait?timeout_ms=1", None, 408, **field)
            self.ask("PUT", "/api/v1/cron/nightly", {"spec": "@daily", "type": "t"}, **field)
            self.ask("GET", "/metrics", **field)
            self.nowhere("used")
        event = {"type": "stdout", "token": {"jobId": chain, "attempt": 1}, "tsMs": "1", "data": "aGVsbG8="}
        self.ask("POST", PUBLISH, {"stream": "s", "incarnation": 1, "events": [{"sequence": "1", "crc": "1", "event": event}]},
                 authorization=boss, content_type="application/json")
        self.nowhere("published")
        return chain, pair, csrf

    def refuse(self, chain, pair):
        for name, path, status in (("stranger", "/api/v1/jobs", 401), ("reader", "/api/v1/nothing", 404), ("reader", "/api/v1/jobs?x=%zz", 400)):
            self.ask("GET", path, None, status, authorization=self.bearer(name), cookie=pair)
        self.ask("POST", f"/api/v1/chains/{chain}/cancel", {}, 403, authorization=self.bearer("reader"))
        self.ask("POST", "/api/v1/session", {"token": self.token["stranger"]}, 401)
        self.ask("POST", "/api/v1/session", b'{"token":"' + self.token["boss"].encode() + b'"', 400)
        self.nowhere("refused")

    def keep(self, chain, pair):
        """While requests last, and on connections that stay."""
        boss = self.bearer("boss")
        kept = self.connect()
        for _ in range(3):
            self.ask("GET", f"/api/v1/jobs/{chain}", on=kept, authorization=boss)
            self.ask("GET", "/api/v1/stats", on=kept, cookie=pair)
        streams = [self.stream(path, **field) for path in ("/api/v1/stats/stream", f"/api/v1/jobs/{chain}/events/stream")
                   for field in ({"authorization": boss}, {"cookie": pair})]
        self.nowhere("kept")
        return streams

    def break_off(self, pair):
        """Requests that never come to be: the connection ends, and what it held with it."""
        boss = self.bearer("boss").encode()
        head = b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nCookie: " + pair.encode() + b"\r\nAuthorization: " + boss + b"\r\n"
        login = b'{"token":"' + self.token["boss"].encode() + b'"'
        for data in (head, head + b"no field at all\r\n\r\n", head + b"X-Long: " + b"x" * 100000 + b"\r\n\r\n", head[:-20],
                     head.replace(b"GET ", b"GET  "), head.replace(b"HTTP/1.1", b"HTTP/9.9") + b"\r\n",
                     b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n" + login,
                     b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nzz" % (len(login), login)):
            c = self.connect()
            c.connect()
            try:
                c.sock.sendall(data)
                self.ask("GET", "/livez", on=self.other)  # the server has read it by then
                c.sock.settimeout(0.01)
                c.sock.recv(65536)
            except OSError:
                pass  # it waits for more, or has closed already
            c.close()
            self.await_connections(1)
            self.nowhere(data[:60] + data[-60:])

    def await_connections(self, n):
        """Until the server has only this many connections."""
        while True:
            _, text = self.ask("GET", "/metrics", on=self.other, authorization=self.bearer("reader"))
            if re.search(rb"^sluice_http_connections %d$" % n, text, re.M):
                return
            time.sleep(0.01)

    def written(self):
        """Everything that it wrote, to files and to its standard output and error, once it has ended."""
        for name in ("cmdline", "environ"):
            if name == "cmdline" or os.getuid() == 0:
                with open(f"/proc/{self.p.pid}/{name}", "rb") as f:
                    yield name, f.read()
        self.p.send_signal(signal.SIGTERM)
        out = self.p.stdout.read()
        self.reader.join()
        self.assertEqual(self.p.wait(timeout=60), 0, self.errors)
        yield "standard output", out
        yield "standard error", self.errors[0]
        for folder, _, names in os.walk(self.dir):
            for name in names:
                with open(os.path.join(folder, name), "rb") as f:
                    yield name, f.read()

    def test_no_secret_is_in_memory_in_proc_or_in_anything_written(self):
        chain, pair, csrf = self.use()
        self.refuse(chain, pair)
        self.break_off(pair)
        streams = self.keep(chain, pair)
        self.ask("DELETE", "/api/v1/session", None, 204, cookie=pair, x_csrf_token=csrf)
        self.p.send_signal(signal.SIGHUP)  # the tokens are read again
        self.ask("GET", "/api/v1/jobs", authorization=self.bearer("boss"))
        self.nowhere("in the end")
        for c in streams:
            c.close()
        written = dict(self.written())
        self.assertIn(b"path=/api/v1/session", written["standard error"])
        self.assertIn("session.begin", self.ok("jobs", "audit", "--limit=1000", "--store=" + self.store).text)
        for name, text in written.items():
            for secret in self.secrets.values():
                self.assertNotIn(secret.encode(), text, name)


class OtherProcesses(servertest.ServerTest):
    def run_as_plain_user(self, *args):
        p = subprocess.Popen([*PLAIN_USER, *args], env=self.env, cwd=self.dir, stdout=subprocess.PIPE)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.assertTrue(p.stdout.readline())
        return p

    def test_another_process_of_the_same_user_cannot_read_its_memory(self):
        plain = self.run_as_plain_user("sh", "-c", "echo started; exec sleep 60")
        self.assertLessEqual({"environ", "maps"}, same_user_reads(plain.pid), "the probe works")
        for command in ("server", "up"):
            p = self.run_as_plain_user(servertest.SLUICE, command, "--listen=127.0.0.1:0", "--data=" + self.path(command))
            self.assertEqual(same_user_reads(p.pid), set(), command)


class SecretsWithoutTls(Secrets):
    tls = False


if __name__ == "__main__":
    servertest.main()
