# SPDX-License-Identifier: Apache-2.0
"""Workers whose output goes to a server: through kills of the server and of the worker, a wrong server, and a cable
that is pulled. Every line that a command has written is in job_events once.
"""

import collections
import hashlib
import os
import signal
import subprocess
import sys
import time
import unittest

from servertest import SLUICE, ServerTest, ask, free_port, main

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import netns  # noqa: E402

TALK = 'i=0; while [ $i -lt %d ]; do i=$((i+1)); echo "$SLUICE_JOB_ID line $i"; %s done\n'
WHY_NOT = netns.why_not()


class Through:
    """On SQLite and on PostgreSQL."""

    def serve(self, port):
        """A server on this port, ready; it may have been there before."""
        p = self.start("server", f"--listen=127.0.0.1:{port}", "--data=" + self.path("data"), "--set=coordinator.workers=2")
        line = p.stdout.readline().decode().strip()
        self.assertTrue(line.startswith("http"), p.stderr.read().decode() if not line else line)
        p.url = line
        return p

    def check(self, ids, lines):
        for job in ids:
            found = collections.Counter(self.logs(job).decode().splitlines())
            self.assertEqual(found, collections.Counter(f"{job} line {i}" for i in range(1, lines + 1)))

    def all_there(self, ids, lines):
        return all(len(self.logs(job).splitlines()) >= lines for job in ids)

    def test_output_reaches_the_store_through_the_server(self):
        server = self.serve(0)
        ids = [self.enqueue("t") for _ in range(10)]
        self.drain("--server", server.url, "--slots=4", self.handler(TALK % (50, "")))
        self.check(ids, 50)
        # started and exited are events, too: nothing got there by another way
        self.assertEqual(self.metric(server, "sluice_ingest_events_total"), 10 * 52)
        r = self.ok("run", "--server", server.url, "--", "echo", "once")
        self.assertEqual(r.out, b"once\n")
        self.assertEqual(self.metric(server, "sluice_ingest_events_total"), 10 * 52 + 3)
        streams = ask(server.url, "api/v1/streams").json()["items"]
        self.assertEqual([s["lag"] for s in streams], [0, 0])

    def test_a_server_that_is_killed_and_comes_back_loses_nothing(self):
        port = free_port()
        server = self.serve(port)
        ids = [self.enqueue("t") for _ in range(6)]
        # Lines 30 and 60 wait for the next kill, so that there is always something left to write.
        gate = "[ $((i % 30)) != 0 ] || until [ $i = 90 ] || [ -e killed.$i ]; do sleep 0.01; done; sleep 0.01;"
        worker = self.worker("--server", f"http://127.0.0.1:{port}", "--slots=3", self.handler(TALK % (100, gate)))
        for i in (30, 60, 90):
            self.until(lambda: self.metric(server, "sluice_ingest_events_total") > 20)
            server.kill()
            server.wait()
            server = self.serve(port)
            self.write(f"killed.{i}", b"")
        for job in ids:
            self.until_status(job, "completed")
        self.end(worker)
        self.check(ids, 100)

    def test_jobs_complete_while_the_server_is_down_and_the_next_worker_sends_their_output(self):
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        ids = [self.enqueue("t") for _ in range(3)]
        worker = self.worker("--server", url, "--slots=3", self.handler(TALK % (20, "")))
        for job in ids:
            self.until_status(job, "completed")
        self.assertFalse(self.all_there(ids, 1))
        worker.kill()
        worker.wait()
        server = self.serve(port)
        self.drain("--server", url, self.handler(TALK % (20, "")))
        self.until(self.all_there, ids, 20)
        self.check(ids, 20)
        self.end(server)

    def test_a_server_on_another_store_gets_nothing(self):
        self.env["SLUICE_STORE"] = "sqlite:" + self.path("other.db")
        wrong = self.serve(0)
        self.env["SLUICE_STORE"] = self.store
        job = self.enqueue("t")
        for patience in ("200ms", "30s"):  # the second for a machine on which nothing is refused in 200 ms
            r = self.sluice("worker", "--drain", "--server", wrong.url, f"--flush-timeout={patience}", self.handler(TALK % (5, "")))
            self.assertEqual(r.code, 75, r.err)
            if b"another store" in r.err:
                break
        self.assertIn(b"another store", r.err)
        self.assertEqual(self.metric(wrong, "sluice_ingest_events_total"), 0)
        right = self.serve(0)
        self.drain("--server", right.url, self.handler(TALK % (5, "")))
        self.until(self.all_there, [job], 5)
        self.check([job], 5)

    def test_a_token_that_is_refused_at_the_first_contact_ends_the_worker(self):
        self.write("tokens", f"w worker:t sha256:{hashlib.sha256(b'sesame').hexdigest()}\n"
                             f"r read sha256:{hashlib.sha256(b'reader').hexdigest()}\n".encode())
        os.chmod(self.path("tokens"), 0o600)
        p = self.start("server", "--listen=127.0.0.1:0", "--data=" + self.path("data"), "--tokens=" + self.path("tokens"))
        url = p.stdout.readline().decode().strip()
        job = self.enqueue("t")
        for token in (b"wrong", b"reader", None):
            with self.subTest(token=token):
                self.write("token", token or b"")
                os.chmod(self.path("token"), 0o600)
                args = ("--server", url, "--token-file=" + self.path("token"))[:3 if token else 2]
                began = time.monotonic()
                r = self.sluice("worker", "--drain", "--flush-timeout=60s", *args, self.handler(TALK % (5, "")))
                self.assertEqual(r.code, 78, r.err)
                self.assertIn(b"token", r.err)
                self.assertLess(time.monotonic() - began, 30)
                r = self.sluice("run", *args, "--", "touch", self.path("ran"))
                self.assertEqual(r.code, 78, r.err)
                self.assertFalse(os.path.exists(self.path("ran")))
        self.write("token", b"sesame")
        self.drain("--server", url, "--token-file=" + self.path("token"), self.handler(TALK % (5, "")))
        self.until(self.all_there, [job], 5)
        self.check([job], 5)

    def test_a_token_without_a_server_is_a_mistake(self):
        r = self.sluice("worker", "--token-file=x", "--type=t=true")
        self.assertEqual(r.code, 64, r.err)
        r = self.sluice("worker", "--server=ftp://x", "--type=t=true")
        self.assertEqual(r.code, 64, r.err)


class Sqlite(Through, ServerTest):
    pass


class Postgres(Through, ServerTest):
    postgres = True


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Parted(ServerTest):
    """The server in one network namespace, with TLS and a token, the worker in another, both on one PostgreSQL by its
    unix socket: what the cable carries is the output."""

    def setUp(self):
        super().setUp()
        self.network = netns.Network()
        self.addCleanup(self.network.remove)
        pg = netns.Server(self.network)
        self.addCleanup(pg.stop)
        self.store = self.env["SLUICE_STORE"] = pg.socket_url
        self.ok("jobs", "migrate")
        pem = self.path("server.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=test", "-addext", f"subjectAltName=IP:{netns.SERVER}", "-keyout", pem,
                        "-out", pem], check=True, stderr=subprocess.DEVNULL)
        self.write("token", b"sesame-of-the-worker\n")
        self.write("tokens", f"worker write sha256:{hashlib.sha256(b'sesame-of-the-worker').hexdigest()}\n".encode())
        for name in ("server.pem", "token", "tokens"):
            os.chmod(self.path(name), 0o600)

    def under(self, namespace, *args):
        err = open(self.path(f"{args[0]}.err"), "ab")
        p = subprocess.Popen(["ip", "netns", "exec", namespace, SLUICE, *args], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=err, env=self.env, cwd=self.dir)
        err.close()
        return self.ends_with_test(p)

    def test_a_cable_that_is_pulled_delays_lines_and_loses_none(self):
        pem = self.path("server.pem")
        server = self.under(self.network.server, "server", f"--listen={netns.SERVER}:7443", "--data=" + self.path("data"),
                            f"--tls-cert={pem}", f"--tls-key={pem}", "--tokens=" + self.path("tokens"))
        self.assertTrue(server.stdout.readline().startswith(b"https://"), self.read("server.err"))
        ids = [self.enqueue("t") for _ in range(4)]
        worker = self.under(self.network.client, "worker", f"--server=https://{netns.SERVER}:7443",
                            "--token-file=" + self.path("token"), f"--ca-file={pem}", "--slots=4",
                            "--log-level=info", self.handler(TALK % (200, "[ $i != 100 ] || until [ -e cut ]; do sleep 0.01; done;")))
        self.until(lambda: sum(len(self.logs(job).splitlines()) for job in ids) >= 400)
        self.network.pull()
        self.write("cut", b"x")
        for job in ids:
            self.until_status(job, "completed")
        self.assertEqual(sum(len(self.logs(job).splitlines()) for job in ids), 400)
        self.network.plug()
        self.until(lambda: sum(len(self.logs(job).splitlines()) for job in ids) >= 800)
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(timeout=120), 0, self.read("worker.err"))
        for job in ids:
            found = collections.Counter(self.logs(job).decode().splitlines())
            self.assertEqual(found, collections.Counter(f"{job} line {i}" for i in range(1, 201)))
        self.assertNotIn(b"sesame", self.read("worker.err") + self.read("server.err"))


if __name__ == "__main__":
    main()
