# SPDX-License-Identifier: Apache-2.0
"""What clients can make a server hold in memory is bounded: parsed JSON, lists, answers that are not read."""

import json
import re
import socket
import subprocess
import threading

from servertest import ServerTest, ask, main, postgres_url

MiB = 1 << 20
# Far above what the bounds allow (bodies and parsed JSON 256 MiB, answers 256 MiB, the workers' own pages), far below
# what the same requests took without them (4.5 GB, 1.8 GB, 4.3 GB).
MOST = 900 * MiB


def peak(p):
    """The largest resident size that the process has had, in bytes."""
    with open(f"/proc/{p.pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1]) * 1024


class Memory(ServerTest):
    def at_once(self, n, fn):
        """n threads run fn(i); the results."""
        results = [None] * n

        def run(i):
            results[i] = fn(i)
        threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return results

    def test_bodies_of_many_small_values_are_refused_before_they_are_built(self):
        p = self.server()
        element = b'{"":{}},'
        dense = b"[" + element * (15 * MiB // len(element)) + b"{}]"
        for path, body in (("api/v1/chains/bulk", dense), ("api/v1/chains", dense),
                           ("api/v1/chains/bulk", b'{"chains":' + dense + b"}"),
                           ("api/v1/chains/cancel", b'{"chains":[' + b"1," * (7 * MiB) + b"1]}")):
            statuses = {a.status for a in self.at_once(4, lambda i, path=path, body=body: ask(p.url, path, "POST", body))}
            self.assertLessEqual(statuses, {400, 413, 503}, path)
        self.assertLess(peak(p), MOST)
        self.until_ready(p)

    def test_a_large_input_is_kept_as_text_and_not_built(self):
        p = self.server()
        value = "[" + ",".join(["[{}]"] * (7 * MiB // 5)) + "]"
        body = ('{"type":"t","input":' + value + "}").encode()
        made = self.at_once(4, lambda i: ask(p.url, "api/v1/chains", "POST", body))
        self.assertEqual([a.status for a in made], [201] * 4)
        bulk = ('{"chains":[{"type":"t","input":' + value + '},{"\\u0074ype":"t","\\u0069nput" :\n 7}]}').encode()
        a = ask(p.url, "api/v1/chains/bulk", "POST", bulk)
        self.assertEqual(a.status, 201)
        first, second = (c["chain_id"] for c in a.json()["chains"])
        self.assertIn(value.encode(), ask(p.url, f"api/v1/chains/{first}").body)
        self.assertEqual(ask(p.url, f"api/v1/chains/{second}").json()["input"], 7)
        self.assertLess(peak(p), MOST)

    def test_an_input_that_is_not_json_is_refused_wherever_it_stands(self):
        p = self.server()
        for value in ("]", "}", "{", "[1", "tru", "1 2", '{"a":1]', '"', "", ",", '"a" "b"', "[}", "\x00", "1,", "'x'"):
            one = ('{"type":"t","input":' + value + "}").encode()
            many = ('{"chains":[{"type":"t","input":' + value + '},{"type":"t","input":1}]}').encode()
            for path, body in (("api/v1/chains", one), ("api/v1/chains/bulk", many)):
                self.assertEqual(ask(p.url, path, "POST", body).status, 400, (path, value))
        for twice in (b'{"type":"t","input":1,"input":2}', b'{"type":"t","input":1,"\\u0069nput":2}',
                      b'{"type":"t","type":"u"}'):
            self.assertEqual(ask(p.url, "api/v1/chains", "POST", twice).status, 400, twice)
        self.assertEqual(ask(p.url, "api/v1/chains").json()["items"], [])

    def test_the_edges_of_one_request_are_bounded(self):
        p = self.server()
        first = ask(p.url, "api/v1/chains", "POST", {"type": "t"}).json()["chain_id"]
        after = [first] * 5000
        body = {"chains": [{"type": "t", "after": after}] * 3}
        a = ask(p.url, "api/v1/chains/bulk", "POST", body)
        self.assertEqual((a.status, a.json()["error"]["code"]), (400, "invalid"))
        self.assertIn("chains[2].after", a.json()["error"]["message"])
        self.assertEqual(len(ask(p.url, "api/v1/chains").json()["items"]), 1)

    def fill(self, p, n=16):
        value = '"' + "x" * (15 * MiB) + '"'
        for _ in range(n):
            self.assertEqual(ask(p.url, "api/v1/chains", "POST", ('{"type":"t","input":' + value + "}").encode()).status, 201)

    def pages(self, p, path):
        """All items of a list, page by page; the largest page."""
        n, largest, cursor = 0, 0, None
        while True:
            a = ask(p.url, path + (f"&cursor={cursor}" if cursor else ""))
            self.assertEqual(a.status, 200)
            page = json.loads(a.body)
            n += len(page["items"])
            largest = max(largest, len(a.body))
            cursor = page["next_cursor"]
            if cursor is None:
                return n, largest

    def lists(self, p):
        self.fill(p)
        for path in ("api/v1/jobs?limit=1000", "api/v1/chains?limit=1000"):
            self.assertEqual(self.pages(p, path)[0], 16)
            n, largest = self.pages(p, path + "&data=1")
            self.assertEqual(n, 16)
            self.assertLess(largest, 48 * MiB)
        self.assertLess(peak(p), MOST)

    def test_a_list_with_data_comes_in_pages_that_are_bounded_in_bytes(self):
        self.lists(self.server())

    def test_a_list_with_data_comes_in_bounded_pages_on_postgresql(self):
        self.env["SLUICE_STORE"] = self.store = postgres_url()
        self.lists(self.server())

    def test_events_with_large_payloads_come_in_bounded_pages_on_postgresql(self):
        self.env["SLUICE_STORE"] = self.store = postgres_url()
        p = self.server()
        job = ask(p.url, "api/v1/chains", "POST", {"type": "t"}).json()["chain_id"]
        subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", self.store, "-c",
                        "INSERT INTO sluice.job_events (\"offset\", incarnation, sequence, crc, job_id, ts, attempt, type, late,"
                        f" stream, payload) SELECT g, 1, g, 0, {job}, now(), 1, 2, false, 's',"
                        " convert_to(repeat('x', 15 << 20), 'UTF8') FROM generate_series(1, 60) g"], check=True, timeout=120)
        after, seen = 0, []
        while after is not None:
            a = ask(p.url, f"api/v1/jobs/{job}/events?limit=1000&after={after}")
            self.assertEqual(a.status, 200)
            self.assertLess(len(a.body), 48 * MiB)
            seen += [e["offset"] for e in a.json()["items"]]
            after = a.json()["next_after"]
        self.assertEqual(seen, list(range(1, 61)))
        self.assertLess(peak(p), 800 * MiB)  # it was 2 GB when all of them were read at the same time

    def test_answers_that_are_not_read_are_bounded(self):
        p = self.server()
        self.fill(p, 2)
        host, port = p.url.split("/")[2].split(":")
        request = f"GET /api/v1/chains?data=1 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        sockets = []
        for _ in range(40):
            s = socket.create_connection((host, int(port)))
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(request)
            sockets.append(s)
        # Once there is no room, further answers say so; and there is room again when clients have gone.
        self.until(lambda: ask(p.url, "api/v1/chains?data=1").status == 503)
        self.assertLess(peak(p), MOST)
        for s in sockets:
            s.close()
        self.until(lambda: ask(p.url, "api/v1/chains?data=1").status == 200)


if __name__ == "__main__":
    main()
