#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An HTTP server for tests that follows commands.

usage: http_server.py [--on ADDRESS] [CERTIFICATE KEY]

It listens on a free port of 127.0.0.1, or of another address, and prints it. Then it reads commands from standard input,
a line each, and answers each with a line; at the end of its input it ends.

  script B…     the next requests behave as B, one each; then as usual
  always B      every request that has no script behaves as B ("usual": as usual)
  chaos SEED P  every request that has no script behaves as usual with probability P, else as a random fault
  token T       401 unless the request carries the bearer token T ("-": no token is wanted)
  clear         forget everything that was received, and the script
  ids           the ids of all items taken, in the order of arrival
  counts        connections, requests, batches taken, batches seen before, by their key
  last HEADER   that header of the last request
  path          the path of the last request
  body          the body of the last request, as JSON text
  down, up      stop listening and drop all connections; listen again on the same port
  hung          answers when a request hangs; release lets all of them go

Behaviours:
  usual            see below
  STATUS           that answer; STATUS:N with Retry-After ("date+N": a date in N seconds); STATUS@TEXT with that body
                   ("_" for a blank, "|" for a line end)
  hang, drip       no answer; one that comes a byte at a time
  close, reset     the connection ends without an answer
  garbage, half    an answer that is no HTTP; one that breaks off
  big              100,000 bytes of an answer, then nothing
  echo             500 with the query and the headers of the request
  moved            308 to a URL with secrets
  early            413 without reading the body, and the connection is closed
  limit:N          413 above N items
  name, names      422 and 400 that name the first poison, or all of it
A "+" before it: a batch without poison is taken first, and the answer is the fault.

As usual: a batch is taken as a whole, once per Idempotency-Key (every time, if it has none), unless an item's body is
"poison": 422.
"""
import email.utils
import http.client
import json
import random
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ["500", "+500", "429:0", "503:0", "503", "502", "408", "hang", "+drip", "close", "+close", "reset", "+reset",
          "garbage", "+garbage", "half", "+half"]

http.client._MAXHEADERS = 1000  # of a request


class State:
    def __init__(self):
        self.lock = threading.Condition()
        self.clear()
        self.token = "-"
        self.default = "usual"
        self.sockets = set()
        self.released = threading.Event()

    def clear(self):
        self.script, self.ids, self.keys = [], [], set()
        self.connections = self.requests = self.batches = self.repeats = self.hanging = 0
        self.headers, self.body, self.chaos = {}, None, None

    def behaviour(self):
        with self.lock:
            self.requests += 1
            if self.script:
                return self.script.pop(0)
            if self.chaos:
                return self.chaos()
            return self.default

    def take(self, key, items):
        with self.lock:
            if key is not None and key in self.keys:
                self.repeats += 1
                return
            self.keys.add(key)
            self.batches += 1
            self.ids += [item["id"] for item in items]


state = State()


def items_of(kind, text):
    if kind == "application/x-ndjson":
        assert text == "" or text.endswith("\n")
        return [json.loads(line) for line in text.splitlines()]
    if kind == "application/json":
        return json.loads(text)
    assert kind == "application/cloudevents-batch+json; charset=UTF-8", kind
    events = json.loads(text)
    for e in events:
        assert e["specversion"] == "1.0" and e["source"] and e["type"] and e["time"].endswith("Z")
        assert e["datacontenttype"] == "application/json"
    assert len({e["id"] for e in events}) == len(events)
    return [e["data"] for e in events]


def poison_in(items):
    return [i for i, item in enumerate(items) if isinstance(item, dict) and item.get("body") == "poison"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        with state.lock:
            state.connections += 1
            state.sockets.add(self.connection)

    def finish(self):
        with state.lock:
            state.sockets.discard(self.connection)
        try:
            super().finish()
        except OSError:
            pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass

    def log_message(self, *args):
        pass

    def answer(self, status, text="", headers=()):
        body = text.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def raw(self, data):
        self.wfile.write(data)
        self.wfile.flush()
        self.close_connection = True

    def hang(self, drip=False):
        if drip:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        with state.lock:
            state.hanging += 1
            state.lock.notify_all()
        while not state.released.wait(0.02):
            if drip:
                self.wfile.write(b".")
                self.wfile.flush()
            elif self.gone():
                break
        with state.lock:
            state.hanging -= 1
        self.close_connection = True

    def gone(self):
        try:
            self.connection.setblocking(False)
            return self.connection.recv(1) == b""
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        finally:
            try:
                self.connection.setblocking(True)
            except OSError:
                pass

    def drop(self, reset=False):
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
        self.close_connection = True

    def status(self, how):
        text, headers = "", []
        how, _, text = how.partition("@")
        how, _, wait = how.partition(":")
        if wait.startswith("date+"):
            wait = email.utils.formatdate(time.time() + int(wait[5:]), usegmt=True)
        if wait:
            headers.append(("Retry-After", wait.replace("_", " ")))
        self.answer(int(how), text.replace("_", " ").replace("|", "\n"), headers)

    def handle_expect_100(self):
        return not self.early() and super().handle_expect_100()

    def early(self):
        with state.lock:
            early = state.script[:1] == ["early"]
            state.script = state.script[early:]
        if early:
            self.answer(413, "too much\n", [("Connection", "close")])
            self.close_connection = True
        return early

    def usual(self, key, items, naming=None):
        bad = poison_in(items)
        if not bad:
            state.take(key, items)
            return self.answer(200, '{"ok":true}\n')
        if naming == "name":
            return self.answer(422, json.dumps({"index": bad[0], "error": "no poison here"}))
        if naming == "names":
            errors = [{"index": i, "error": "no poison here"} for i in bad]
            return self.answer(400, json.dumps({"title": "Bad Request", "errors": errors}))
        return self.answer(422, "there is poison in it\n")

    def do_POST(self):
        if self.early():
            return None
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        key = self.headers["Idempotency-Key"]
        items = items_of(self.headers["Content-Type"], text)
        with state.lock:
            state.headers, state.body = dict(self.headers.items()), text
            state.path = self.path
        how = state.behaviour()
        if state.token != "-" and self.headers["Authorization"] != "Bearer " + state.token:
            return self.answer(401, "who are you?\n")
        if how.startswith("+"):
            if not poison_in(items):
                state.take(key, items)
            how = how[1:]
        return self.behave(how, key, items)

    def behave(self, how, key, items):
        if how in ("usual", "name", "names"):
            return self.usual(key, items, how)
        if how == "hang" or how == "drip":
            return self.hang(how == "drip")
        if how == "close" or how == "reset":
            return self.drop(how == "reset")
        if how == "garbage":
            return self.raw(b"\x00\x01\xff 220 ready, this is no HTTP\r\n" * 3)
        if how == "half":
            return self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"ok\":")
        if how == "big":
            state.take(key, items)
            self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 100000)
            return self.hang()
        if how == "echo":
            return self.answer(500, self.path.partition("=")[2] + " " + self.path + " ".join(f"{k}={v}" for k, v in self.headers.items()))
        if how == "moved":
            return self.answer(308, "", [("Location", "https://u:sesame@elsewhere.example/new?key=sesame")])
        if how.startswith("limit:"):
            if len(items) > int(how[6:]):
                return self.answer(413, "too much at once\n")
            return self.usual(key, items)
        return self.status(how)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    context = None

    def get_request(self):
        conn, peer = super().get_request()
        if self.context:
            conn = self.context.wrap_socket(conn, server_side=True, do_handshake_on_connect=False)
        return conn, peer

    def handle_error(self, request, client_address):
        kind = sys.exc_info()[0]
        if not issubclass(kind, OSError):
            super().handle_error(request, client_address)


def listen(port):
    args = sys.argv[1:]
    address = args.pop(1) if args[:1] == ["--on"] else "127.0.0.1"
    server = Server((address, port), Handler)
    if len(args) > 1:
        server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.context.load_cert_chain(*args[-2:])
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


def drop_all():
    with state.lock:
        for s in state.sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def chaos(seed, good):
    rng = random.Random(seed)
    return lambda: "usual" if rng.random() < good else rng.choice(FAULTS)


def free_port():
    """A port, and a socket that reserves it while the server does not listen there."""
    address = sys.argv[2] if sys.argv[1:2] == ["--on"] else "127.0.0.1"
    guard = socket.socket()
    guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    guard.bind((address, 0))
    return guard, guard.getsockname()[1]


def main():
    _guard, port = free_port()  # the guard lives as long as this does
    server = listen(port)
    print(port, flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        reply = "ok"
        with state.lock:
            if command == "script":
                state.script = words
            elif command == "always":
                state.default = words[0]
            elif command == "chaos":
                state.chaos = chaos(int(words[0]), float(words[1]))
            elif command == "token":
                state.token = words[0]
            elif command == "clear":
                state.clear()
                state.default, state.token = "usual", "-"
            elif command == "ids":
                reply = " ".join(map(str, state.ids))
            elif command == "counts":
                reply = f"{state.connections} {state.requests} {state.batches} {state.repeats}"
            elif command == "last":
                reply = state.headers.get(words[0], "-")
            elif command == "path":
                reply = state.path
            elif command == "body":
                reply = json.dumps(state.body)
            elif command == "hung":
                state.lock.wait_for(lambda: state.hanging > 0)
            elif command == "release":
                state.released.set()
                state.released = threading.Event()
            elif command not in ("down", "up"):
                sys.exit(f"http_server.py: no command {command}")
        if command == "down":
            server.shutdown()
            server.server_close()
            drop_all()
        elif command == "up":
            server = listen(port)
        print(reply, flush=True)


main()
