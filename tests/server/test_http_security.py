# SPDX-License-Identifier: Apache-2.0
"""Who may ask for what: tokens, roles, sessions, CSRF, other sites' pages, Host, TLS, the audit log, and where tokens
must not be found."""

import json
import os
import socket
import ssl
import subprocess
import warnings

from httptest import FIXTURE, TIMEOUT, HttpTest, Server, main, read_answer, read_head
from memory import memory_find

CROSS = ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"},
         {"origin": "http://localhost:1"}, {"origin": "http://localhost.evil.example"})


class Loopback(HttpTest):
    def test_without_a_token_file_every_client_is_admin(self):
        server = Server(self)
        self.assertEqual(server.ask("POST", "/admin").json()["actor"], "local")
        self.assertEqual(server.ask("GET", "/api/v1/session").json()["role"], "admin")

    def test_another_sites_page_gets_nothing_and_changes_nothing(self):
        server = Server(self)
        csrf = server.ask("GET", "/api/v1/session").json()["csrf"]
        for fields in CROSS:
            with self.subTest(fields=fields):
                for method, path in (("POST", "/write"), ("DELETE", "/things/1"), ("GET", "/read"), ("GET", "/stream")):
                    a = server.ask(method, path, **fields, x_csrf_token=csrf)
                    self.assertEqual((a.status, a.code), (403, "cross_site"))

    def test_our_own_page_needs_the_csrf_token_to_change_something(self):
        server = Server(self)
        own = {"origin": f"http://localhost:{server.port}", "sec_fetch_site": "same-origin"}
        csrf = server.ask("GET", "/api/v1/session", **own).json()["csrf"]
        self.assertEqual(server.ask("GET", "/read", **own).status, 200)
        for wrong in (None, "", "x", csrf[:-1], csrf + "0", ("0" if csrf[0] != "0" else "1") + csrf[1:]):
            a = server.ask("POST", "/write", **own, x_csrf_token=wrong)
            self.assertEqual((a.status, a.code), (403, "csrf"))
        self.assertEqual(server.ask("POST", "/write", **own, x_csrf_token=csrf).status, 200)
        self.assertNotEqual(Server(self).ask("GET", "/api/v1/session").json()["csrf"], csrf)

    def test_fields_that_a_browser_sends_once_are_not_taken_twice(self):
        server = Server(self)
        own = f"http://localhost:{server.port}"
        csrf = server.ask("GET", "/api/v1/session").json()["csrf"]
        once = f"Origin: {own}\r\nSec-Fetch-Site: same-origin\r\n"
        for fields, status in ((once, 200), (once + f"Origin: {own}\r\n", 403), (once + "Sec-Fetch-Site: same-origin\r\n", 403),
                               (f"Origin: https://evil.example\r\nOrigin: {own}\r\n", 403)):
            a = server.raw(f"POST /write HTTP/1.1\r\nHost: localhost:{server.port}\r\nX-CSRF-Token: {csrf}\r\n{fields}"
                           "Content-Length: 0\r\n\r\n".encode())
            self.assertEqual(a.status, status, fields)

    def test_a_link_from_another_site_opens_the_page(self):
        server = Server(self)
        self.assertEqual(server.ask("GET", "/", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status, 200)
        self.assertEqual(server.ask("POST", "/write", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status, 403)

    def test_a_name_that_is_not_ours_is_refused(self):
        server = Server(self, host="sluice.example")
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:7070"):
            a = server.ask("GET", "/read", host=host)
            self.assertEqual((a.status, a.code), (421, "wrong_host"))
        for host in ("127.0.0.1", f"127.0.0.1:{server.port}", "localhost", "LOCALHOST:9", "[::1]:7070", "a.localhost",
                     "sluice.example", "Sluice.Example:443", "192.0.2.7"):
            self.assertEqual(server.ask("GET", "/read", host=host).status, 200, host)

    def test_a_token_that_is_not_asked_for_does_no_harm(self):
        self.assertEqual(Server(self).ask("GET", "/read", authorization="Bearer x").status, 200)


class Tokens(HttpTest):
    def setUp(self):
        super().setUp()
        self.file = self.tokens(reader="read", writer="write", boss="admin")

    def test_roles_bound_what_a_token_may_do(self):
        server = Server(self, tokens=self.file)
        allowed = {"reader": [200, 403, 403], "writer": [200, 200, 403], "boss": [200, 200, 200]}
        for name, statuses in allowed.items():
            got = [server.ask(m, p, authorization=self.bearer(name)).status
                   for m, p in (("GET", "/read"), ("POST", "/write"), ("POST", "/admin"))]
            self.assertEqual(got, statuses, name)
        self.assertEqual(server.ask("GET", "/read", authorization=self.bearer("reader")).json()["actor"], "reader")
        self.assertIsNone(server.ask("GET", "/read", authorization=self.bearer("boss")).json()["authorization"])

    def test_without_the_right_token_nothing_but_the_public_is_there(self):
        server = Server(self, tokens=self.file)
        for value in (None, "", "Bearer", "Bearer ", "Bearer x", "Basic " + self.token["boss"], self.token["boss"],
                      "Bearer " + self.token["boss"][:-1], "Bearer " + self.token["boss"] + "x"):
            a = server.ask("GET", "/read", authorization=value)
            self.assertEqual(a.status, 401, value)
            self.assertIn("Bearer", a["www-authenticate"])
        self.assertEqual(server.ask("GET", "/public").status, 200)
        self.assertEqual(server.ask("GET", "/api/v1/session").status, 401)
        two = f"Authorization: {self.bearer('boss')}\r\n".encode() * 2
        self.assertEqual(server.raw(b"GET /read HTTP/1.1\r\nHost: localhost\r\n" + two + b"\r\n").status, 401)

    def test_a_bearer_needs_no_csrf_token(self):
        server = Server(self, tokens=self.file)
        a = server.ask("POST", "/write", authorization=self.bearer("writer"), origin="https://elsewhere.example")
        self.assertEqual(a.status, 200)

    def log_in(self, server, name, **fields):
        a = server.ask("POST", "/api/v1/session", {"token": self.token[name]}, **fields)
        self.assertEqual(a.status, 200, a.body)
        return a["set-cookie"], a.json()

    def test_a_session_stands_for_its_token_in_a_browser(self):
        server = Server(self, tokens=self.file)
        cookie, session = self.log_in(server, "writer")
        for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="):
            self.assertIn(part, cookie)
        self.assertNotIn("Secure", cookie)
        self.assertNotIn(self.token["writer"], cookie)
        self.assertEqual((session["actor"], session["role"], session["read_only"]), ("writer", "write", False))
        pair = cookie.split(";")[0]
        self.assertEqual(server.ask("GET", "/read", cookie="a=b; " + pair).json()["actor"], "writer")
        self.assertEqual(server.ask("GET", "/api/v1/session", cookie=pair).json()["csrf"], session["csrf"])
        self.assertEqual(server.ask("POST", "/write", cookie=pair).code, "csrf")
        self.assertEqual(server.ask("POST", "/write", cookie=pair, x_csrf_token=session["csrf"]).status, 200)
        self.assertEqual(server.ask("POST", "/admin", cookie=pair, x_csrf_token=session["csrf"]).code, "forbidden")
        for fields in CROSS:
            self.assertEqual(server.ask("POST", "/write", cookie=pair, x_csrf_token=session["csrf"], **fields).code, "cross_site")
        self.assertEqual(server.ask("DELETE", "/api/v1/session", cookie=pair).code, "csrf")
        a = server.ask("DELETE", "/api/v1/session", cookie=pair, x_csrf_token=session["csrf"])
        self.assertEqual(a.status, 204)
        self.assertIn("Max-Age=0", a["set-cookie"])
        self.assertEqual(server.ask("GET", "/read", cookie=pair).status, 401)

    def test_logging_in_needs_a_token_and_our_own_page(self):
        server = Server(self, tokens=self.file)
        self.assertEqual(server.ask("POST", "/api/v1/session", {"token": "x"}).status, 401)
        self.assertEqual(server.ask("POST", "/api/v1/session", {}).status, 400)
        self.assertEqual(server.ask("POST", "/api/v1/session", b"{").status, 400)
        self.assertEqual(server.ask("POST", "/api/v1/session", {"token": "x" * 5000}).status, 413)
        a = server.ask("POST", "/api/v1/session", {"token": self.token["boss"]}, origin="https://evil.example")
        self.assertEqual(a.code, "cross_site")

    def test_a_reload_takes_tokens_in_and_out(self):
        server = Server(self, tokens=self.file)
        pair = self.log_in(server, "boss")[0].split(";")[0]
        old = self.bearer("boss")
        self.write("tokens", "nonsense\n")
        self.assertIn("line 1", server.reload())
        self.assertEqual(server.ask("GET", "/read", authorization=old).status, 200)
        self.tokens(other="admin")
        self.assertEqual(server.reload(), "reloaded")
        self.assertEqual(server.ask("GET", "/read", authorization=old).status, 401)
        self.assertEqual(server.ask("GET", "/read", cookie=pair).status, 401)
        self.assertEqual(server.ask("GET", "/read", authorization=self.bearer("other")).status, 200)

    def test_files_that_are_open_to_others_are_a_configuration_error(self):
        os.chmod(self.file, 0o644)
        code, err = self.refused(tokens=self.file)
        self.assertEqual(code, 78)
        self.assertIn("chmod 600", err)

    def test_a_tokens_file_of_another_user_is_a_configuration_error(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        os.chown(self.file, 65534, 65534)
        p = subprocess.run([FIXTURE, "listen=127.0.0.1:0", f"tokens={self.file}"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT)
        self.assertEqual(p.returncode, 78)
        self.assertIn(b"belongs to another user", p.stderr)

    def test_a_server_behind_a_proxy_needs_tokens_and_no_tls(self):
        p = subprocess.run([FIXTURE, "listen=127.0.0.1:0", "behind_proxy=1"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT)
        self.assertEqual(p.returncode, 78)
        self.assertIn(b"tokens file", p.stderr)
        server = Server(self, tokens=self.file, behind_proxy=1, listen="0.0.0.0:0", access_log=2)
        self.assertEqual(server.ask("GET", "/read").status, 401)
        self.assertEqual(server.ask("GET", "/read", authorization=self.bearer("reader")).status, 200)
        cookie, _ = self.log_in(server, "boss", x_forwarded_proto="https")
        self.assertIn("Secure", cookie)
        self.assertNotIn("Secure", self.log_in(server, "boss")[0])

    def test_the_address_of_a_client_is_what_the_proxy_added_last(self):
        def seen(forwarded, **options):
            server = Server(self, tokens=self.file, access_log=2, **options)
            server.ask("GET", "/read", authorization=self.bearer("reader"), x_forwarded_for=forwarded)
            _, log = server.stop()
            return [json.loads(line)["address"] for line in log.decode().splitlines() if '"/read"' in line]
        self.assertEqual(seen("192.0.2.1", behind_proxy=1), ["192.0.2.1"])
        self.assertEqual(seen("203.0.113.9, 192.0.2.1", behind_proxy=1), ["192.0.2.1"])
        self.assertEqual(seen("2001:db8::7", behind_proxy=1), ["2001:db8::7"])
        self.assertEqual(seen('x" evil', behind_proxy=1), ["127.0.0.1"])
        self.assertEqual(seen("192.0.2.1"), ["127.0.0.1"])

    def test_the_streams_of_a_client_leave_room_for_its_other_requests(self):
        server = Server(self, connections_per_address=16)
        streams = []
        for _ in range(8):
            s = server.connect()
            self.addCleanup(s.close)
            s.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertIn(b" 200 ", s.makefile("rb").readline())
            streams.append(s)
        a = server.ask("GET", "/stream")
        self.assertEqual((a.status, a.code), (429, "too_many_streams"))
        self.assertEqual(server.ask("GET", "/read").status, 200)
        streams.pop().close()
        s = server.connect()
        self.addCleanup(s.close)

        def opens():
            s.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return read_head(s)
        while opens() == 429:
            pass  # until the server has noticed that the other one is gone

    def test_clients_of_a_proxy_have_each_their_own_limit(self):
        server = Server(self, tokens=self.file, behind_proxy=1, connections_per_address=4)
        auth = f"Authorization: {self.bearer('reader')}\r\n"
        for client, status in (("192.0.2.1", 200), ("192.0.2.1", 200), ("192.0.2.1", 429), ("192.0.2.2", 200), ("192.0.2.2", 200),
                               ("192.0.2.3", 200), ("192.0.2.2", 429)):
            s = server.connect()
            self.addCleanup(s.close)
            s.sendall(f"GET /stream HTTP/1.1\r\nHost: localhost\r\n{auth}X-Forwarded-For: {client}\r\n\r\n".encode())
            self.assertIn(b" %d " % status, s.makefile("rb").readline(), client)

    def test_refused_log_ins_are_throttled_and_lock_no_user_out(self):
        server = Server(self, tokens=self.file)
        seen = {server.ask("POST", "/api/v1/session", {"token": "wrong"}).status for _ in range(100)}
        self.assertEqual(seen, {401, 429})
        self.log_in(server, "boss")
        self.assertEqual(server.ask("POST", "/write", authorization=self.bearer("writer")).status, 200)

    def test_the_access_log_has_every_request_and_no_secret(self):
        for form in (1, 2):
            server = Server(self, tokens=self.file, access_log=form)
            server.ask("GET", "/read?secret=yes", authorization=self.bearer("reader"), x_request_id="mine")
            cookie, _ = self.log_in(server, "boss")
            server.ask("GET", "/read", cookie=cookie.split(";")[0])
            server.ask("GET", "/nothing")
            code, err = server.stop()
            text = err.decode()
            self.assertEqual(code, 0)
            lines = text.splitlines()
            self.assertEqual(len(lines), 4)
            if form == 2:
                first = json.loads(lines[0])
                self.assertEqual((first["request_id"], first["status"], first["path"], first["actor"], first["address"]),
                                 ("mine", 200, "/read", "reader", "127.0.0.1"))
            else:
                self.assertRegex(lines[0], r"request_id=mine .*actor=reader method=GET path=/read status=200")
            for secret in (*self.token.values(), "secret", cookie.split(";")[0].partition("=")[2]):
                self.assertNotIn(secret, text)

    def test_the_manuals_way_makes_a_token(self):
        manual = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "man", "sluice-server.1")
        with open(manual, encoding="utf-8") as f:
            steps = f.read().partition("    umask 077\n")[2].partition(".fi")[0].replace("\\-", "-").replace("\\e", "\\")
        subprocess.run(["sh", "-euc", "umask 077\n" + steps], cwd=self.dir, check=True)
        with open(self.path("ops.token"), encoding="ascii") as f:
            token = f.readline().strip()
        self.assertRegex(token, "^[0-9a-f]{64}$")
        server = Server(self, tokens=self.path("tokens"))
        answer = server.ask("POST", "/write", authorization="Bearer " + token)
        self.assertEqual((answer.status, answer.json()["actor"]), (200, "ops"))
        self.assertEqual(server.ask("POST", "/admin", authorization="Bearer " + token).status, 403)
        self.assertEqual(server.ask("GET", "/read", authorization=self.bearer("boss")).status, 200)

    def nowhere(self, server, *secrets):
        """Not even in part: memory that was given back has its first bytes overwritten, registers are saved in pieces."""
        self.other.sendall(b"GET /public HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_answer(self.other_file)  # the network thread has ended the request before by then
        pieces = [secret[i:i + 16].encode() for secret in secrets for i in (0, 16, 24, 32, 48)]
        found = memory_find(server.process.pid, [b"application/json", *pieces])
        self.assertTrue(found.pop(b"application/json", None), "memory cannot be searched")
        self.assertEqual(found, {})

    def scan(self, server):
        """No token and no session in the server's memory, its arguments or its environment, once they were checked."""
        boss = self.token["boss"]
        self.other = server.connect()  # with its own buffers, so that those of others stay as they were left
        self.addCleanup(self.other.close)
        self.other_file = self.other.makefile("rb")
        self.addCleanup(self.other_file.close)
        for size in (10, 500, 1500):
            body = {"pad": "x" * size, "token": boss, "more": "y" * size}
            a = server.ask("POST", "/api/v1/session", body)
            self.assertEqual(a.status, 200)
            self.nowhere(server, boss, a["set-cookie"].split(";")[0].partition("=")[2])
        for body, status in ((b'{"pad":"%s","token":"%s"', 400), (b'{"%s":1,"tokens":["%s"]}', 400), (b'{"a":"%s","token":"%sx"}', 401),
                             (b'{"a":"%s","token":"\\u0030%s"}', 401), (b'{"a":"%s","%s":0}', 400)):  # refused, and at a slip
            for size in (10, 100, 1000):
                self.assertEqual(server.ask("POST", "/api/v1/session", body % (b"x" * size, boss.encode())).status, status)
                self.nowhere(server, boss)
        evil = server.ask("POST", "/api/v1/session", {"token": boss}, origin="https://evil.example")
        self.assertEqual(evil.status, 403)
        self.nowhere(server, boss)
        pair, csrf = a["set-cookie"].split(";")[0], a.json()["csrf"]
        value = pair.partition("=")[2]
        for _ in range(3):
            self.assertEqual(server.ask("GET", "/read", authorization=self.bearer("boss")).status, 200)
            self.assertEqual(server.ask("POST", "/write", b"x", cookie=pair, x_csrf_token=csrf).status, 200)
        self.assertEqual(server.ask("GET", "/nothing", authorization=self.bearer("boss"), cookie=pair).status, 404)
        self.assertEqual(server.ask("GET", "/files/..", authorization=self.bearer("boss"), cookie=pair).status, 400)
        self.nowhere(server, boss, value)
        with server.connect() as s, s.makefile("rb") as f:  # in pieces, and the connection stays open
            for piece in (b"GET /read HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ", boss[:20].encode(),
                          boss[20:].encode() + b"\r\nCookie: " + pair.encode() + b"\r\n", b"\r\n"):
                s.sendall(piece)
                server.ask("GET", "/public")  # the server has read it by then
            self.assertEqual(read_answer(f).status, 200)
            self.nowhere(server, boss, value)
        for field in ("Authorization: " + self.bearer("boss"), "Cookie: " + pair):  # while the request lasts
            with server.connect() as s, s.makefile("rb") as f:
                s.sendall(f"GET /stream HTTP/1.1\r\nHost: localhost\r\nX-Kept: in-the-open\r\n{field}\r\n\r\n".encode())
                self.assertIn(b"200", f.readline())
                self.assertTrue(server.memory_has(b"in-the-open"), "other fields are there")
                self.nowhere(server, boss, value)
        for name in ("cmdline", "environ"):
            with open(f"/proc/{server.process.pid}/{name}", "rb") as f:
                self.assertNotIn(boss.encode(), f.read())

    def test_no_token_stays_in_memory(self):
        self.scan(Server(self, tokens=self.file))

    def test_no_token_stays_in_memory_under_tls(self):
        cert, key = self.certificate()
        self.scan(Server(self, tokens=self.file, cert=cert, key=key, tls=self.trusting(cert)))


class Tls(HttpTest):
    def setUp(self):
        super().setUp()
        self.file = self.tokens(boss="admin")
        self.cert, self.key = self.certificate()

    def test_requests_and_sessions_over_tls(self):
        server = Server(self, cert=self.cert, key=self.key, tokens=self.file, tls=self.trusting(self.cert))
        self.assertEqual(server.ask("GET", "/read", authorization=self.bearer("boss")).json()["actor"], "boss")
        body = os.urandom(3000000)
        self.assertEqual(server.ask("POST", "/echo", body, authorization=self.bearer("boss")).body, body)
        cookie = server.ask("POST", "/api/v1/session", {"token": self.token["boss"]})["set-cookie"]
        self.assertIn("Secure", cookie)
        self.assertTrue(cookie.startswith("__Host-"))
        self.assertEqual(server.ask("GET", "/read", host="sluice.example", authorization=self.bearer("boss")).status, 200)
        self.assertEqual(server.ask("GET", "/read", host="other.example", authorization=self.bearer("boss")).status, 421)

    def test_what_is_not_tls_is_not_served(self):
        server = Server(self, cert=self.cert, key=self.key, tokens=self.file, tls=self.trusting(self.cert))
        with socket.create_connection(("127.0.0.1", server.port)) as s, s.makefile("rb") as f:
            s.sendall(b"GET /public HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertIsNone(read_answer(f))
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname = False
        old.verify_mode = ssl.CERT_NONE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                old.wrap_socket(s)
        self.assertEqual(server.ask("GET", "/public").status, 200)

    def test_a_reload_brings_a_new_certificate(self):
        server = Server(self, cert=self.cert, key=self.key, tokens=self.file, tls=self.trusting(self.cert))

        def shown():
            with server.connect() as s:
                return s.getpeercert()["subject"][0][0][1]

        self.assertEqual(shown(), "localhost")
        new, new_key = self.certificate("new", "renewed")
        server.tls = self.trusting(self.cert, new)
        with server.connect() as kept, kept.makefile("rb") as f:
            os.replace(new_key, self.key)
            self.assertIn("does not belong to", server.reload())  # half of a renewal
            self.assertEqual(shown(), "localhost")
            os.replace(new, self.cert)
            self.assertEqual(server.reload(), "reloaded")
            self.assertEqual(shown(), "renewed")
            kept.sendall(b"GET /public HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertEqual(read_answer(f).status, 200)

    def test_what_others_reach_needs_tls_and_tokens(self):
        for options in ({}, {"tokens": self.file}, {"cert": self.cert, "key": self.key}, {"cert": self.cert, "tokens": self.file}):
            code, err = self.refused(listen="0.0.0.0:0", **options)
            self.assertEqual(code, 78, err)
        server = Server(self, listen="0.0.0.0:0", cert=self.cert, key=self.key, tokens=self.file, tls=self.trusting(self.cert))
        self.assertEqual(server.ask("GET", "/read").status, 401)
        self.assertEqual(server.ask("GET", "/read", authorization=self.bearer("boss")).status, 200)

    def test_bad_certificates_and_keys_are_a_configuration_error(self):
        other, other_key = self.certificate("other")
        bad = self.write("bad", "not a certificate\n")
        for options in ({"cert": self.cert, "key": other_key}, {"cert": bad, "key": self.key}, {"cert": self.cert, "key": bad},
                        {"cert": self.path("none"), "key": self.key}, {"cert": self.cert, "key": self.path("none")}):
            code, err = self.refused(tokens=self.file, **options)
            self.assertEqual(code, 78, err)
        os.chmod(self.key, 0o604)
        code, err = self.refused(tokens=self.file, cert=self.cert, key=self.key)
        self.assertEqual(code, 78)
        self.assertIn("chmod 600", err)
        self.assertTrue(other)

    def test_curl_agrees(self):
        server = Server(self, cert=self.cert, key=self.key, tokens=self.file, tls=self.trusting(self.cert))
        header = self.write("header", f"Authorization: {self.bearer('boss')}\n")
        try:
            r = subprocess.run(["curl", "-sS", "--cacert", self.cert, "-H", "@" + header, f"https://localhost:{server.port}/read"],
                               capture_output=True, check=True)
        except FileNotFoundError:
            self.skipTest("no curl")
        self.assertEqual(json.loads(r.stdout)["actor"], "boss")


if __name__ == "__main__":
    main()
