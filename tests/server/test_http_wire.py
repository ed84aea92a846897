# SPDX-License-Identifier: Apache-2.0
"""What strangers send: malformed requests, path tricks, bodies too large, clients that leave early or crawl."""

import contextlib
import os
import random
import socket
import struct
import time

from httptest import HttpTest, Server, main, read_answer

HOST = b"Host: localhost\r\n"
# libmicrohttpd may miss the end of a connection that comes together with the last bytes; then the deadline ends it.
SHORT = {"header_deadline_ms": 1000, "request_deadline_ms": 1000, "idle_ms": 1000}


class Malformed(HttpTest):
    def test_what_is_not_a_request_is_refused_and_affects_no_other_client(self):
        server = Server(self, **SHORT)
        cases = [
            b"\r\n\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET /public\r\n\r\n",
            b"GET /public HTTP/9.9\r\n" + HOST + b"\r\n",
            b"GET /public HTTP/1.1\r\n\r\n",
            b"GET /public HTTP/1.1\r\nHost:\r\n\r\n",
            b"GET /public HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
            b"GET /public HTTP/1.1\r\nHost: a b\r\n\r\n",
            b"GET /public HTTP/1.1\r\nHost: localhost/x\r\n\r\n",
            b"GET public HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET http://localhost/public HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET * HTTP/1.1\r\n" + HOST + b"\r\n",
            b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /query?a=%zz HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /query?a=%00 HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /query?" + b"&".join(b"a%d=1" % i for i in range(100)) + b" HTTP/1.1\r\n" + HOST + b"\r\n",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: +3\r\n\r\nabc",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 3, 3\r\n\r\nabc",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999999999\r\n\r\n",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 0x3\r\n\r\nabc",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n",
            b"GET /public HTTP/1.1\r\n" + HOST + b"".join(b"X-%d: y\r\n" % i for i in range(200)) + b"\r\n",
            b"GET /public HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 100000 + b"\r\n\r\n",
            b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /public HTTP/1.1\r\n" + HOST + b"Cookie: a=b\r\n" * 5 + b"\r\n",
        ]
        for data in cases:
            with self.subTest(data=data[:80]):
                with server.connect() as s, s.makefile("rb") as f:
                    with contextlib.suppress(OSError):  # refused while we were sending
                        s.sendall(data)
                        s.shutdown(socket.SHUT_WR)
                    a = read_answer(f)
                    if a is not None:
                        self.assertIn(a.status, (400, 411, 413, 414, 421, 431, 501, 505))
        self.assertEqual(server.served("GET", "/public").status, 200)
        self.assertEqual(server.stop()[0], 0)

    def test_a_body_whose_end_cannot_be_determined_is_refused_immediately(self):
        server = Server(self)
        for fields in (b"Transfer-Encoding: gzip\r\n", b"Transfer-Encoding: chunked, chunked\r\n",
                       b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", b"Transfer-Encoding: xchunked\r\n"):
            with self.subTest(fields=fields), server.connect() as s, s.makefile("rb") as f:
                s.sendall(b"POST /echo HTTP/1.1\r\n" + HOST + fields + b"\r\n3\r\nab")
                self.assertEqual(read_answer(f).status, 400)
                self.assertEqual(f.read(), b"")

    def test_a_field_whose_name_is_not_a_token_is_refused_and_nothing_after_it_is_a_request(self):
        server = Server(self)
        inner = b"GET /public HTTP/1.1\r\n" + HOST + b"\r\n"
        for name in (b"Content-Length ", b"Content-Length\t", b"Transfer-Encoding ", b"X y", b"X\x00y", b"X(y)", b"X\xe9"):
            value = b"chunked" if name.startswith(b"T") else b"%d" % len(inner)
            with self.subTest(name=name), server.connect() as s, s.makefile("rb") as f:
                s.sendall(b"POST /echo HTTP/1.1\r\n" + HOST + name + b": " + value + b"\r\n\r\n" + inner)
                a = read_answer(f)
                # Without an answer the connection was cut, which is as good.
                if a is not None:
                    self.assertEqual(a.status, 400)
                self.assertEqual(f.read(), b"")

    def test_noise_is_survived(self):
        server = Server(self, **SHORT)
        seed = int(os.environ.get("SLUICE_TEST_SEED", random.randrange(1 << 30)))
        rng, until, n = random.Random(seed), time.monotonic() + float(os.environ.get("SLUICE_TEST_SECONDS", "1")), 0
        base = b"POST /echo?a=b&c=%20 HTTP/1.1\r\n" + HOST + b"Cookie: x=y\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        while n < 50 or time.monotonic() < until:
            data = bytearray(base)
            for _ in range(rng.randrange(1, 8)):
                at = rng.randrange(len(data))
                data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
            with server.connect() as s, s.makefile("rb") as f:
                try:
                    s.sendall(bytes(data))
                    s.shutdown(socket.SHUT_WR)
                    read_answer(f)
                except (OSError, ValueError):
                    pass
            n += 1
        print(f"# {n} damaged requests, seed {seed}")
        self.assertEqual(server.served("GET", "/public").status, 200)
        self.assertEqual(server.stop()[0], 0)

    def test_a_body_after_a_refusal_is_not_the_next_request(self):
        server = Server(self)
        inner = b"GET /public HTTP/1.1\r\n" + HOST + b"\r\n"
        for method, path in ((b"POST", b"/nothing"), (b"DELETE", b"/nothing"), (b"PUT", b"/echo"), (b"GET", b"/public")):
            with self.subTest(method=method), server.connect() as s, s.makefile("rb") as f:
                s.sendall(method + b" " + path + b" HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(inner) + inner)
                first = read_answer(f)
                self.assertEqual(first.status, 200 if method == b"GET" else 405 if method == b"PUT" else 404)
                s.sendall(b"GET /read HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
                second = read_answer(f)
                if second is not None:
                    self.assertIsNone(second.json()["id"])
                    self.assertEqual(second.json()["actor"], "local")
                    self.assertIsNone(read_answer(f))


class Paths(HttpTest):
    def test_paths_that_climb_or_hide_are_refused(self):
        server = Server(self)
        for path in ("/files/../x", "/files/%2e%2e/x", "/files/..%2fx/../y", "/files/%2E%2E", "/files/.", "/files//x", "//files/x",
                     "/files/%00", "/files/a%00.js", "/files/%c0%ae%c0%ae/x", "/files/%e0%80%ae", "/files/%f0%80%80%ae",
                     "/files/%ff", "/files/%", "/files/%2", "/files/a%0ab", "/files/a%0d%0ab", "/files/%ed%a0%80"):
            with self.subTest(path=path):
                self.assertEqual(server.ask("GET", path).status, 400)
        self.assertEqual(server.ask("GET", "/files/a/b%20c/%C3%A9").json(), {"rest": "a/b c/é"})
        self.assertEqual(server.ask("GET", "/files/..x/a..b").json(), {"rest": "..x/a..b"})
        self.assertEqual(server.ask("GET", "/files").status, 404)

    def test_queries_arrive_decoded(self):
        server = Server(self)
        self.assertEqual(server.ask("GET", "/query?a=1&a=2&b=x%26y%3Dz&c=+%2B&%C3%A9=%E2%82%AC&d").json(),
                         [["a", "1"], ["a", "2"], ["b", "x&y=z"], ["c", " +"], ["é", "€"], ["d", ""]])


class Bodies(HttpTest):
    def test_a_large_body_is_refused_in_a_way_that_the_client_sees(self):
        server = Server(self, body_max=100000)
        body = b"x" * 100001
        self.assertEqual(server.ask("POST", "/echo", body).status, 413)
        self.assertEqual(server.ask("POST", "/echo", body[:-1]).body, body[:-1])
        a = server.raw(b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
                       + b"".join(b"3e8\r\n" + b"x" * 1000 + b"\r\n" for _ in range(150)) + b"0\r\n\r\n")
        self.assertEqual(a.status, 413)
        self.assertEqual(a.code, "too_big")

    def test_a_client_that_expects_100_continue_is_answered_before_it_sends(self):
        server = Server(self, body_max=1000)
        head = b"POST /%s HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        for path, n, status in ((b"echo", 1001, 413), (b"nothing", 10, 404)):
            with server.connect() as s, s.makefile("rb") as f:
                s.sendall(head % (path, n))
                self.assertEqual(read_answer(f).status, status)
                self.assertEqual(f.read(), b"")  # and the connection ends
        with server.connect() as s, s.makefile("rb") as f:
            s.sendall(head % (b"echo", 3))
            self.assertEqual(f.readline().split()[1], b"100")
            f.readline()
            s.sendall(b"abc")
            self.assertEqual(read_answer(f).body, b"abc")

    def test_compressed_bodies_are_refused(self):
        server = Server(self)
        self.assertEqual(server.ask("POST", "/echo", b"abc", content_encoding="gzip").status, 415)


class Leaving(HttpTest):
    def test_clients_that_leave_early_leave_nothing_behind(self):
        server = Server(self, **SHORT)
        self.assertEqual(server.served("GET", "/public").status, 200)
        before = server.descriptors()
        pieces = [b"", b"GET /pub", b"GET /public HTTP/1.1\r\nHost: loc", b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\nabc",
                  b"GET /pool HTTP/1.1\r\n" + HOST + b"\r\n", b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n",
                  b"GET /flood HTTP/1.1\r\n" + HOST + b"\r\n"]
        for i in range(140):
            with server.connect() as s:
                s.sendall(pieces[i % len(pieces)])
                if i % 2:  # with a reset
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        deadline = time.monotonic() + 60  # only a leak reaches it
        while server.descriptors() > before + 1 or server.metric("sluice_http_streams") > 0:
            self.assertLess(time.monotonic(), deadline, "connections are left")
        self.assertEqual(server.stop()[0], 0)

    def test_crawling_clients_are_cut_while_others_are_served(self):
        server = Server(self, header_deadline_ms=300, request_deadline_ms=600)
        crawlers = [(b"GET /public HTTP/1.1\r\nX: ", b"y"), (b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 100000\r\n\r\n", b"z"),
                    (b"", b"G")]
        for head, crumb in crawlers:
            with self.subTest(head=head), server.connect() as s:
                s.sendall(head)
                s.settimeout(0.02)
                n = 0
                while True:
                    try:
                        s.sendall(crumb)
                        n += 1
                        if s.recv(1) == b"":
                            break
                    except socket.timeout:
                        continue
                    except OSError:
                        break
                    if n % 10 == 0:
                        self.assertEqual(server.served("GET", "/public").status, 200)
        self.assertGreaterEqual(server.metric('sluice_http_cut_connections_total{reason="deadline"}'), len(crawlers))

    def test_a_client_that_takes_nothing_is_left(self):
        server = Server(self, idle_ms=1000)
        with server.connect() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(b"GET /flood HTTP/1.1\r\n" + HOST + b"\r\n")
            s.recv(1)
            while server.metric("sluice_http_streams") > 0:
                time.sleep(0.05)  # waiting for the server's own clock
        self.assertEqual(server.stop()[0], 0)

    def test_stopping_with_open_streams_and_half_requests_is_clean(self):
        server = Server(self)
        held = []
        for data in (b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n",) * 20 + (b"POST /echo HTTP/1.1\r\n",) * 5 + (b"",) * 5:
            s = server.connect()
            self.addCleanup(s.close)
            s.sendall(data)
            held.append(s)
        while server.metric("sluice_http_streams") < 20:
            pass
        code, err = server.stop()
        self.assertEqual((code, err), (0, b""))

    def test_connections_beyond_the_limit_wait_their_turn(self):
        server = Server(self, connections_max=4, header_deadline_ms=500)
        idle = [server.connect() for _ in range(8)]
        for s in idle:
            self.addCleanup(s.close)
        self.assertEqual(server.served("GET", "/public").status, 200)  # once the idle ones are cut


if __name__ == "__main__":
    main()
