# SPDX-License-Identifier: Apache-2.0
"""The API of a running server, on both stores; every answer is compared with openapi.json."""

import base64
import concurrent.futures
import glob
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request

import servertest
from openapi import Api, Document, Mismatch
from servertest import ROOT, ServerTest, ask

DOCUMENT = Document.of_source()
ENDED = ("completed", "failed", "cancelled")


def ids(items):
    return [int(x["id"]) for x in items]


class ApiTest(ServerTest):
    flags = ()

    def setUp(self):
        super().setUp()
        self.process = self.server("--store=" + self.store, *self.flags, command="server")
        self.api = Api(self.process.url, DOCUMENT)

    def begin(self, type_="t", **fields):
        return int(self.api("POST", "/chains", {"type": type_, **fields}, status=201)["chain_id"])

    def fail_one(self, error, type_="t", **fields):
        chain = self.begin(type_, **fields)
        self.api("POST", "/chains/{id}/fail", {"error": error}, id=chain)
        return chain

    def job(self, id_):
        return self.api("GET", "/jobs/{id}", id=id_)


# ---- chains ----

class Chains(ApiTest):
    def test_a_start_with_an_idempotency_key_happens_once(self):
        def start(body, key, path="/api/v1/chains", server=None):
            return ask((server or self.process).url, path, "POST", body, {"Idempotency-Key": key})

        body = {"type": "t", "input": {"n": 1}}
        first = start(body, "k1")
        self.assertEqual((first.status, first.headers["Idempotent-Replayed"]), (201, None))
        self.assertEqual(ask(self.process.url, first.headers["Location"]).json()["id"], first.json()["chain_id"])
        other = self.server("--store=" + self.store, *self.flags, command="server")
        for server in (self.process, other):
            again = start(body, "k1", server=server)
            self.assertEqual((again.status, again.headers["Idempotent-Replayed"]), (201, "true"))
            self.assertEqual(again.json(), first.json())
        # Another body, another key, and an invalid one.
        refused = start({**body, "priority": 1}, "k1", server=other)
        self.assertEqual((refused.status, refused.json()["error"]["code"]), (422, "refused"))
        self.assertIn("Idempotency-Key", refused.json()["error"]["message"])
        self.assertNotEqual(start(body, "k2").json(), first.json())
        for key in ("", "x" * 256):
            self.assertEqual(start(body, key).status, 400)
        # Many at once, of which one makes it.
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: start(body, "k3", server=(self.process, other)[i % 2]), range(16)))
        self.assertEqual({a.status for a in answers}, {201})
        self.assertEqual(len({a.body for a in answers}), 1)
        # Bulk, also with a chain that existed before; a start that failed keeps nothing.
        many = {"chains": [{"type": "t", "key": "once"}, body, {"type": "t", "key": "once"}]}
        bulk = start(many, "k1", "/api/v1/chains/bulk")
        self.assertEqual([c["existing"] for c in bulk.json()["chains"]], [False, False, True])
        self.assertEqual(start(many, "k1", "/api/v1/chains/bulk").json(), bulk.json())
        self.assertEqual(start(many, "k1", "/api/v1/chains/bulk", other).headers["Idempotent-Replayed"], "true")
        wrong = {"type": "t", "after": ["987654"]}
        self.assertEqual([start(wrong, "k4").status for _ in range(2)], [422, 422])
        self.assertEqual(start(body, "k4").status, 201)
        self.assertEqual(len(self.api("GET", "/chains", query={"limit": 100})["items"]), 6)

    def test_a_pending_job_is_ready_scheduled_or_retrying(self):
        ready = self.begin("other")
        scheduled, retrying = self.begin(in_ms=3600000), self.begin()
        worker = self.start("worker", "--store=" + self.store, "--type=t=false", "--retry-delay=1h")
        self.until(lambda: self.api("GET", "/chains/{id}", id=retrying)["state"] == "retrying")
        worker.terminate()
        worker.wait()
        for state, id_ in (("ready", ready), ("scheduled", scheduled), ("retrying", retrying)):
            for path in ("/jobs", "/chains"):
                [item] = self.api("GET", path, query={"status": state})["items"]
                self.assertEqual((int(item["id"]), item["status"], item["state"]), (id_, "pending", state))
        self.assertEqual(len(self.api("GET", "/jobs", query={"status": "pending"})["items"]), 3)
        [t] = [x for x in self.api("GET", "/types")["items"] if x["type"] == "t"]
        self.assertEqual((t["pending"], t["ready"], t["scheduled"], t["retrying"]), (2, 0, 1, 1))
        # Its error is among the failures already, and the group can be retried now.
        [group] = self.api("GET", "/errors")["items"]
        self.assertEqual((group["count"], group["retrying"], int(group["sample_id"])), (1, 1, retrying))
        listed = self.api("GET", "/chains", query={"status": "failed,retrying", "error": group["error"]})
        self.assertEqual(ids(listed["items"]), [retrying])

    def test_a_chain_is_started_with_all_that_it_can_have(self):
        first = self.begin()
        body = {"type": "mail/send", "input": {"to": "ä", "n": 0.1}, "key": "once", "scope": "any", "window_ms": 60000,
                "priority": -3, "in_ms": 3600000, "after": [str(first)],
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        started = self.api("POST", "/chains", body, status=201)
        self.assertFalse(started["existing"])
        again = self.api("POST", "/chains", body, status=201)
        self.assertEqual(again, {"chain_id": started["chain_id"], "existing": True})
        job = self.job(started["chain_id"])
        self.assertEqual((job["type"], job["status"], job["priority"], job["key"], job["blockers_open"]),
                         ("mail/send", "blocked", -3, "once", 1))
        self.assertEqual(job["input"], {"to": "ä", "n": 0.1})
        self.assertEqual(job["traceparent"], body["traceparent"])

    def test_input_and_output_are_kept_byte_for_byte(self):
        text = '{"big": 9007199254740993, "tenth": 0.1,   "e": 1E2, "nested": {"input": [1, "\\u00e4 ]}"]}}'
        answer = self.api.raw("POST", "/chains", f'{{"priority": 1, "input": {text} , "type": "t"}}'.encode(), status=201)
        chain = answer.json()["chain_id"]
        self.assertIn(f'"input":{text},', self.api.raw("GET", "/jobs/{id}", id=chain).text)
        self.api.raw("POST", "/chains/{id}/complete", f'{{"output":{text}}}'.encode(), id=chain)
        self.assertIn(f'"output":{text},', self.api.raw("GET", "/chains/{id}", id=chain).text)
        escaped = self.api.raw("POST", "/chains", b'{"type":"t","\\u0069nput":[1]}', status=201).json()["chain_id"]
        self.api.raw("POST", "/chains/{id}/complete", b'{"\\u006futput":[2]}', id=escaped)
        shown = self.api("GET", "/jobs/{id}", id=escaped)
        self.assertEqual((shown["input"], shown["output"]), ([1], [2]))
        bulk = f'{{"chains": [ {{"type":"t"}},{{"input":{text},"type":"t"}} ,{{"type":"t","input":"]"}}]}}'.encode()
        made = self.api.raw("POST", "/chains/bulk", bulk, status=201).json()["chains"]
        shown = [self.api.raw("GET", "/jobs/{id}", id=m["chain_id"]).text for m in made]
        self.assertIn('"input":null,', shown[0])
        self.assertIn(f'"input":{text},', shown[1])
        self.assertIn('"input":"]",', shown[2])

    def test_times_are_rfc_3339_or_milliseconds(self):
        for at, want in (("2100-02-03T04:05:06Z", "2100-02-03T04:05:06.000Z"),
                         ("2100-02-03T06:05:06.789012+02:00", "2100-02-03T04:05:06.789Z"),
                         (4105382400000, "2100-02-04T00:00:00.000Z")):
            self.assertEqual(self.job(self.begin(at=at))["scheduled_for"], want)
        for at in ("2100-02-30T00:00:00Z", "2100-01-01", "tomorrow", "2100-01-01T25:00:00Z", "-1", ""):
            self.api.refused("POST", "/chains", {"type": "t", "at": at}, says="at: must be a time")

    def test_what_is_wrong_with_a_chain_is_named(self):
        for body, says in (({}, "type: missing"), ({"type": 7}, "type: must be a string"),
                           ({"type": "no good"}, "type"), ({"type": "t", "color": 1}, "unknown field color"),
                           ({"type": "t", "priority": 1.5}, "priority: must be a whole number"),
                           ({"type": "t", "priority": 2 ** 31}, "priority: must be a whole number"),
                           ({"type": "t", "scope": "all"}, "scope: must be incomplete or any"),
                           ({"type": "t", "in_ms": -1}, "in_ms: must be"), ({"type": "t", "after": "7"}, "after: must be an array"),
                           ({"type": "t", "after": ["x"]}, "after: every id"),
                           ({"type": "t", "at": "2100-01-01T00:00:00Z", "in_ms": 5}, "exclude each other"),
                           ([], "must be an object"), (b"{", "JSON"), (b"", "JSON"), (b"{\"type\":\"t\",\"priority\":1\0}", "NUL")):
            with self.subTest(body=body):
                self.api.refused("POST", "/chains", body, says=says)
        self.api.refused("POST", "/chains", {"type": "t", "after": [99]}, status=422, says="after")
        self.api.refused("POST", "/chains", {"type": "t"}, says="unknown parameter x", x=1)
        self.assertEqual(self.api("GET", "/chains")["items"], [])

    def test_many_chains_are_started_all_or_none(self):
        made = self.api("POST", "/chains/bulk", {"chains": [{"type": "t", "input": i} for i in range(250)]}, status=201)
        self.assertEqual(len(made["chains"]), 250)
        self.assertEqual(len({m["chain_id"] for m in made["chains"]}), 250)
        self.api.refused("POST", "/chains/bulk", {"chains": [{"type": "t"}, {"type": "t", "at": "x"}]}, says="at: must be")
        self.api.refused("POST", "/chains/bulk", {"chains": [{"type": "t"}, {"tipe": "t"}]}, says="chains[1].tipe")
        self.api.refused("POST", "/chains/bulk", {"chains": [{"type": "t"}, {"type": "t", "after": [99999]}]}, status=422)
        self.api.refused("POST", "/chains/bulk", {"chains": []}, says="1 to 10000")
        self.api.refused("POST", "/chains/bulk", {"chains": [{"type": "t"}] * 10001}, says="1 to 10000")
        self.assertEqual(self.api("GET", "/types")["items"][0]["pending"], 250)

    def test_starts_of_many_clients_at_once_fail_each_for_its_own_fault(self):
        n, failures, started = 16, [], []
        bodies = [{"type": "t", "input": 1}, {"type": "no good"}, {"type": "t", "key": "k"}, {"type": "t", "after": [99999999]},
                  {"type": "t", "in_ms": 3600000}]
        want = [201, 400, 201, 422, 201]
        ready = threading.Barrier(n)

        def client(i):
            ready.wait()
            for k in range(30):
                which = (i + k) % len(bodies)
                answer = ask(self.process.url, "api/v1/chains", "POST", bodies[which])
                if answer.status != want[which]:
                    failures.append((bodies[which], answer.status, answer.text))
                elif answer.status == 201:
                    started.append((which, answer.json()["chain_id"]))

        threads = [threading.Thread(target=client, args=(i,)) for i in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])
        self.assertEqual(len({c for w, c in started if w == 2}), 1)
        plain = [c for w, c in started if w != 2]
        self.assertEqual(len(set(plain)), len(plain))
        of = self.api("GET", "/types")["items"][0]
        self.assertEqual((of["pending"], of["blocked"]), (len(plain) + 1, 0))
        recorded = [c for r in self.api("GET", "/audit", limit=1000)["items"] for c in r["chains"]]
        self.assertEqual(sorted(recorded), sorted({c for _, c in started}))

    def test_a_chain_is_shown_with_its_jobs_and_neighbours(self):
        a, b = self.begin("a"), self.begin("b")
        c = self.begin("c", after=[a, b])
        self.api("POST", "/chains/{id}/complete", {"output": 1}, id=a)
        chain = self.api("GET", "/chains/{id}", id=c)
        self.assertEqual([(n["id"], n["status"]) for n in chain["blockers"]], [(str(a), "completed"), (str(b), "pending")])
        self.assertEqual(ids(chain["jobs"]), [c])
        self.assertEqual(self.api("GET", "/chains/{id}", id=b)["blocked"], [{"id": str(c), "type": "c", "status": "blocked",
                                                                              "state": "blocked"}])
        for id_ in (12345, 0, "x", "1x", "-1", "99999999999999999999"):
            self.api.refused("GET", "/chains/{id}", id=id_, status=404)

    def test_a_chain_is_steered(self):
        a = self.begin()
        self.assertEqual(self.api("POST", "/chains/{id}/cancel", id=a)["status"], "cancelled")
        self.api.refused("POST", "/chains/{id}/cancel", id=a, status=409, says="ended")
        self.assertEqual(self.api("POST", "/chains/{id}/retry", id=a)["status"], "pending")
        self.api.refused("POST", "/chains/{id}/retry", id=a, status=409)
        failed = self.api("POST", "/chains/{id}/fail", {"error": "no\nmore"}, id=a)
        self.assertEqual((failed["status"], failed["error"]), ("failed", "no\nmore"))
        self.api.refused("POST", "/chains/{id}/complete", {"output": 1}, id=a, status=409)
        later = self.begin(in_ms=3600000)
        self.api("POST", "/chains/{id}/trigger", {}, id=later)
        self.api.refused("POST", "/chains/{id}/trigger", id=later, status=409)
        self.assertEqual(self.api("GET", "/types")["items"][0]["ready"], 1)
        for verb in ("cancel", "retry", "trigger"):
            self.api.refused("POST", f"/chains/{{id}}/{verb}", id=777, status=404)
            self.api.refused("POST", f"/chains/{{id}}/{verb}", {"x": 1}, id=a, says="unknown field x")
        self.api.refused("POST", "/chains/{id}/fail", {"error": 1}, id=a, says="error: must be a string")

    def test_a_chain_is_deleted_unless_another_waits_for_it(self):
        a = self.begin()
        b = self.begin(after=[a])
        self.api.refused("DELETE", "/chains/{id}", id=a, status=409)
        self.api.refused("DELETE", "/chains/{id}", id=a, cascade="x", says="cascade: must be 0 or 1")
        self.assertEqual(self.api("DELETE", "/chains/{id}", id=a, cascade=1), {"deleted": 2})
        self.api.refused("GET", "/chains/{id}", id=b, status=404)
        self.api.refused("DELETE", "/chains/{id}", id=a, status=404)


class ChainsOnPostgres(Chains):
    postgres = True


# ---- lists ----

class Lists(ApiTest):
    def test_a_list_comes_in_pages_in_both_orders(self):
        made = [self.begin() for _ in range(7)]
        for path in ("/jobs", "/chains"):
            items, pages = self.api.pages(path, limit=3)
            self.assertEqual(ids(items), made[::-1])
            self.assertEqual(pages, 3)
            self.assertEqual(ids(self.api.pages(path, limit=3, order="asc")[0]), made)
            self.assertEqual(ids(self.api.pages(path, limit=1000)[0]), made[::-1])

    def test_lists_are_filtered(self):
        t0 = self.begin(input={"text": "a needle in it"}, key="k1")
        failed = self.fail_one("timeout\nafter 3 s")
        other = self.fail_one("refused", "u")
        self.begin("u", in_ms=100000)
        for query, want in (({"type": "t"}, [failed, t0]), ({"type": "t,u", "status": "failed"}, [other, failed]),
                            ({"status": "failed,cancelled", "type": "u"}, [other]), ({"key": "k1"}, [t0]),
                            ({"q": "needle"}, [t0]), ({"q": "k1"}, [t0]), ({"q": "after 3"}, [failed]), ({"error": "timeout"}, [failed]),
                            ({"error": "timeout", "type": "u"}, []), ({"ended_from": "2020-01-01T00:00:00Z"}, [other, failed]),
                            ({"from": 1, "to": "2020-01-01T00:00:00Z"}, []), ({"ended_to": 1000}, [])):
            for path in ("/jobs", "/chains"):
                with self.subTest(path=path, query=query):
                    self.assertEqual(ids(self.api.pages(path, **query)[0]), want)

    def test_what_is_wrong_with_a_query_is_named(self):
        for query, says in (({"limit": 0}, "limit: must be 1 to 1000"), ({"limit": 1001}, "limit: must be a whole"),
                            ({"limit": "x"}, "limit"), ({"status": "gone"}, "status: unknown status 'gone'"),
                            ({"order": "up"}, "order: must be asc or desc"), ({"cursor": "7"}, "cursor: not from"),
                            ({"cursor": "a7"}, "cursor: not from a list in this order"), ({"from": "noon"}, "from: must be a time"),
                            ({"colour": "red"}, "unknown parameter colour"), ({"type": "x" * 129}, "type: must be"),
                            ({"type": ["a", "b"]}, "type: given twice"), ({"data": 2}, "data: must be 0 or 1")):
            for path in ("/jobs", "/chains"):
                self.api.refused("GET", path, says=says, query=query)

    def test_long_data_is_left_out_of_lists_unless_asked_for(self):
        small, big = self.begin(input="x" * 200), self.begin(input="x" * 2000)
        for path in ("/jobs", "/chains"):
            items = self.api("GET", path)["items"]
            self.assertEqual([("input" in x) for x in items], [False, True])
            items = self.api("GET", path, data=1)["items"]
            self.assertEqual([len(x["input"]) for x in items], [2000, 200])
        self.assertEqual(len(self.job(big)["input"]), 2000)
        self.assertEqual(len(self.job(small)["input"]), 200)

    def test_markup_and_bytes_that_are_no_text_stay_data(self):
        self.begin("t", input="<script>alert(1)</script>\u2028\x7f")
        self.assertEqual(self.api("GET", "/jobs")["items"][0]["input"], "<script>alert(1)</script>\u2028\x7f")

    def test_errors_are_grouped_by_their_first_line(self):
        for error in ("timeout\n1", "timeout\n2", "refused", "timeout"):
            newest = self.fail_one(error)
        self.fail_one("timeout", "u")
        groups = self.api("GET", "/errors")
        self.assertEqual([(g["type"], g["error"], g["count"]) for g in groups["items"]],
                         [("t", "timeout", 3), ("u", "timeout", 1), ("t", "refused", 1)])
        self.assertEqual(groups["items"][0]["sample_id"], str(newest))
        self.assertIsNone(groups["next_cursor"])
        self.assertEqual([g["type"] for g in self.api("GET", "/errors", type="u")["items"]], ["u"])
        self.assertEqual(len(self.api("GET", "/errors", limit=1)["items"]), 1)
        self.assertEqual(self.api("GET", "/errors", cursor=1)["items"], [])
        self.api.refused("GET", "/errors", cursor="x", says="cursor")
        self.api.refused("GET", "/errors", type="no good", says="types")


class ListsOnPostgres(Lists):
    postgres = True


# ---- many at once ----

class Bulk(ApiTest):
    def test_named_chains_are_changed_all_or_none(self):
        made = [self.begin() for _ in range(3)]
        self.assertEqual(self.api("POST", "/chains/cancel", {"chains": [str(made[0]), made[1]]}), {"changed": 2, "more": False})
        self.assertEqual(self.api("POST", "/chains/cancel", {"chains": made})["changed"], 1)
        self.api.refused("POST", "/chains/retry", {"chains": made + [777]}, status=404)
        self.assertEqual(self.api("POST", "/chains/retry", {"chains": made})["changed"], 3)
        self.assertEqual(self.api("POST", "/chains/delete", {"chains": made})["changed"], 3)
        self.assertEqual(self.api("GET", "/chains")["items"], [])

    def test_all_chains_that_a_filter_finds_are_changed(self):
        self.api("POST", "/chains/bulk", {"chains": [{"type": "t", "in_ms": 3600000}] * 1203 + [{"type": "u"}] * 7}, status=201)
        self.assertEqual(self.api("POST", "/chains/trigger", {"filter": {"type": "t"}})["changed"], 1203)
        self.assertEqual(self.api("POST", "/chains/cancel", {"filter": {"type": ["t"], "status": ["pending"]}})["changed"], 1203)
        types = {t["type"]: t for t in self.api("GET", "/types")["items"]}
        self.assertEqual((types["t"]["cancelled"], types["t"]["pending"], types["u"]["pending"]), (1203, 0, 7))
        self.assertEqual(self.api("POST", "/chains/retry", {"filter": {"status": "cancelled"}})["changed"], 1203)
        self.fail_one("boom\nx", "u")
        self.assertEqual(self.api("POST", "/chains/retry", {"filter": {"status": "failed", "error": "boom", "type": "u"}})["changed"], 1)
        self.assertEqual(self.api("POST", "/chains/delete", {"filter": {"type": "t"}})["changed"], 1203)
        self.assertEqual(self.api("POST", "/chains/delete", {"filter": {"from": 1}})["changed"], 8)

    def test_a_dry_run_counts_what_would_be_changed_and_changes_nothing(self):
        self.api("POST", "/chains/bulk", {"chains": [{"type": "t", "in_ms": 3600000}] * 7 + [{"type": "u"}] * 2}, status=201)
        self.fail_one("boom")
        before, records = self.api("GET", "/chains"), self.api("GET", "/audit")
        for verb, filter_, n in (("trigger", {"type": "t"}, 7), ("cancel", {"from": 1}, 9), ("retry", {"type": "t"}, 1),
                                 ("delete", {"type": "t"}, 8), ("delete", {"status": "failed"}, 1), ("retry", {"status": "pending"}, 0),
                                 ("cancel", {"status": "scheduled"}, 7), ("trigger", {"status": "ready,running"}, 0), ("trigger", {"status": "pending"}, 7), ("cancel", {"status": "failed"}, 0),
                                 ("cancel", {"type": "none"}, 0)):
            with self.subTest(verb=verb, filter=filter_):
                answer = self.api("POST", "/chains/" + verb, {"filter": filter_, "dry_run": True})
                self.assertEqual(answer, {"changed": 0, "matched": n, "more": False})
        self.assertEqual(self.api("GET", "/chains"), before)
        self.assertEqual(self.api("GET", "/audit"), records)
        self.assertEqual(self.api("POST", "/chains/retry", {"filter": {"status": "pending"}}), {"changed": 0, "more": False})
        self.api.refused("POST", "/chains/cancel", {"chains": [1], "dry_run": True}, says="dry_run: needs a filter")

    def test_a_delete_skips_chains_that_others_wait_for(self):
        a = self.begin("a")
        self.begin("b", after=[a])
        c = self.begin("a")
        self.assertEqual(self.api("POST", "/chains/delete", {"filter": {"type": "a"}})["changed"], 1)
        self.api.refused("GET", "/chains/{id}", id=c, status=404)
        self.api.refused("POST", "/chains/delete", {"chains": [a]}, status=409)
        self.assertEqual(self.api("POST", "/chains/delete", {"filter": {"type": "a"}, "cascade": True})["changed"], 2)

    def test_what_is_wrong_with_a_selection_is_named(self):
        for body, says in (({}, "either chains or filter"), ({"chains": [1], "filter": {"type": "t"}}, "either chains or filter"),
                           ({"filter": {}}, "at least one field"), ({"filter": {"colour": 1}}, "unknown field filter.colour"),
                           ({"filter": {"status": "gone"}}, "unknown status 'gone'"), ({"filter": 7}, "filter: must be an object"),
                           ({"chains": [0]}, "every id"), ({"chains": [1] * 10001}, "at most 10000"), ({"all": True}, "unknown field all")):
            for verb in ("cancel", "retry", "trigger", "delete"):
                with self.subTest(verb=verb, body=body):
                    self.api.refused("POST", "/chains/" + verb, body, says=says)
        self.api.refused("POST", "/chains/cancel", {"chains": [1], "cascade": True}, says="unknown field cascade")


class BulkOnPostgres(Bulk):
    postgres = True


# ---- waiting ----

class Waiting(ApiTest):
    def wait(self, chain, timeout_ms, out):
        began = time.monotonic()
        try:
            answer = self.api("GET", "/chains/{id}/wait", id=chain, timeout_ms=timeout_ms)
            out.append((answer["status"], time.monotonic() - began))
        except Exception as e:  # reported in the test's thread
            out.append((e, 0))

    def is_watched(self, chain):
        """A caller waits for it, and the store has been notified."""
        if self.postgres:
            r = subprocess.run(["psql", "-qXAt", "-d", self.store, "-c", f"SELECT watched FROM sluice.job WHERE id = {chain}"],
                               capture_output=True, check=True, text=True)
            return r.stdout.strip() == "t"
        with sqlite3.connect(self.path("jobs.db"), timeout=60) as db:
            return db.execute("SELECT flags & 2 FROM sluice_job WHERE id = ?", (chain,)).fetchone()[0] != 0

    def test_many_wait_for_the_end_of_a_chain_and_hear_of_it(self):
        chain, other, heard = self.begin(), self.begin(), []
        threads = [threading.Thread(target=self.wait, args=(c, 60000, heard)) for c in [chain] * 20 + [other]]
        for t in threads:
            t.start()
        self.until(lambda: self.is_watched(chain) and self.is_watched(other))
        self.api("POST", "/chains/{id}/complete", {"output": 7}, id=chain)
        for t in threads[:-1]:
            t.join(100)
        self.assertEqual([h[0] for h in heard], ["completed"] * 20)
        self.api("DELETE", "/chains/{id}", id=other)
        threads[-1].join(100)
        self.assertIn("404", str(heard[-1][0]))

    def test_an_end_in_another_process_is_heard_of(self):
        chain, heard = self.begin(), []
        t = threading.Thread(target=self.wait, args=(chain, 60000, heard))
        t.start()
        self.drain(self.handler("true"))
        t.join(100)
        self.assertEqual(heard[0][0], "completed")

    def test_a_wait_ends_with_its_time(self):
        chain = self.begin()
        self.api.refused("GET", "/chains/{id}/wait", id=chain, timeout_ms=0, status=408)
        error = self.api.refused("GET", "/chains/{id}/wait", id=chain, timeout_ms=50, status=408)
        self.assertEqual(error["code"], "timeout")
        self.api.refused("GET", "/chains/{id}/wait", id=chain, timeout_ms=60001, says="timeout_ms")
        self.api.refused("GET", "/chains/{id}/wait", id=777, status=404)
        self.api("POST", "/chains/{id}/cancel", id=chain)
        self.assertEqual(self.api("GET", "/chains/{id}/wait", id=chain)["status"], "cancelled")

    def test_a_server_that_stops_answers_those_who_wait(self):
        chain, heard = self.begin(), []
        t = threading.Thread(target=self.wait, args=(chain, 60000, heard))
        t.start()
        self.until(self.is_watched, chain)
        self.end(self.process)
        t.join(100)
        self.assertIn("503", str(heard[0][0]))


class WaitingOnPostgres(Waiting):
    postgres = True


# ---- jobs that run ----

class Running(ApiTest):
    def test_a_job_is_shown_with_its_attempts_and_events(self):
        chain = self.begin(input=1)
        self.drain(self.handler("echo out; printf 'b\\377ad\\n' >&2; echo '{\"output\":{\"n\":1}}' >&3"))
        job = self.job(chain)
        self.assertEqual((job["status"], job["output"], [a["outcome"] for a in job["attempts"]]), ("completed", {"n": 1}, ["completed"]))
        events = self.api("GET", "/jobs/{id}/events", id=chain)
        self.assertEqual(events["items"][0]["type"], "started")
        texts = {e["type"]: e.get("text", e.get("data_b64")) for e in events["items"]}
        self.assertEqual((texts["stdout"], base64.b64decode(texts["stderr"])), ("out", b"b\xffad"))
        self.assertIsNone(events["next_after"])
        first = self.api("GET", "/jobs/{id}/events", id=chain, limit=1)
        self.assertEqual(first["next_after"], first["items"][0]["offset"])
        rest = self.api("GET", "/jobs/{id}/events", id=chain, after=first["next_after"])
        self.assertEqual(first["items"] + rest["items"], events["items"])
        self.assertEqual(self.api("GET", "/jobs/{id}/events", id=self.begin())["items"], [])
        self.api.refused("GET", "/jobs/{id}/events", id=999, status=404)
        self.api.refused("GET", "/jobs/{id}/events", id=chain, after="x", says="after")
        self.api.refused("GET", "/jobs/{id}", id=999, status=404)
        self.api.refused("GET", "/jobs/{id}", id=chain, x=1, says="unknown parameter x")

    def test_events_are_followed(self):
        chain = self.begin()
        self.drain(self.handler("echo one; echo two"))
        request = urllib.request.Request(f"{self.api.url}/api/v1/jobs/{chain}/events/stream")
        with urllib.request.urlopen(request, timeout=60) as r:
            self.assertEqual(r.headers["Content-Type"].split(";")[0], "text/event-stream")
            texts = []
            while texts.count("two") == 0:
                line = r.readline().decode()
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    DOCUMENT.check(DOCUMENT.doc["components"]["schemas"]["Event"], event)
                    texts.append(event.get("text"))
        DOCUMENT.asked.add(("/jobs/{id}/events/stream", "GET"))
        self.assertIn("one", texts)

    def test_workers_and_leases_are_listed(self):
        self.assertEqual(self.api("GET", "/workers")["items"], [])
        self.assertEqual(self.api("GET", "/leases")["items"], [])
        chain = self.begin()
        worker = self.worker(self.handler(f"echo x > {self.path('on')}; sleep 1000"))
        self.until_file("on")
        listed = self.until(lambda: next((w for w in self.api("GET", "/workers")["items"] if w["host"]), None))
        self.assertEqual((listed["leases"], listed["jobs"], listed["types"]), (1, 1, ["t"]))
        self.assertEqual((listed["host"], listed["pid"], listed["slots"], listed["error"]),
                         (socket.gethostname(), worker.pid, 1, None))
        detail = self.api("GET", "/workers/{worker}", worker=listed["worker"])
        self.assertEqual([(j["id"], j["type"]) for j in detail["running"]], [(str(chain), "t")])
        self.api.refused("GET", "/workers/{worker}", status=404, worker="a/b", says="a/b")
        lease, = self.api("GET", "/leases", limit=1000)["items"]
        self.assertEqual((lease["worker"], lease["jobs"], lease["types"]), (listed["worker"], [str(chain)], ["t"]))
        page = self.api("GET", "/leases", limit=1)
        self.assertEqual(page["next_cursor"], lease["claim"])
        self.assertEqual(self.api("GET", "/leases", limit=1, cursor=lease["claim"])["items"], [])
        self.api.refused("GET", "/leases", cursor="xyz", says="cursor")
        self.assertEqual(self.job(chain)["leased_by"], lease["worker"])
        self.assertEqual(self.job(chain)["attempts"][0]["outcome"], "running")
        self.api("POST", "/chains/{id}/cancel", id=chain)
        self.assertEqual(self.api("GET", "/leases")["items"], [])
        self.end(worker)

    def test_the_history_begins_with_the_server_and_has_the_shape_of_its_range(self):
        for name, n, step in (("1h", 360, 10), ("24h", 288, 300), ("7d", 336, 1800)):
            h = self.until(lambda: next((h for h in [self.api("GET", "/history", range=name)] if h["due"][-1] is not None
                                         or h["due"][-2] is not None), None))
            self.assertEqual((h["range"], h["step_s"]), (name, step))
            for key in ("enqueued", "completed", "failed", "due", "running", "pickup_p50_ms", "pickup_p99_ms"):
                self.assertEqual(len(h[key]), n, key)
        self.assertEqual(self.api("GET", "/history")["range"], "1h")
        self.api.refused("GET", "/history", range="2h", says="7d")

    def test_an_idle_worker_is_listed_until_it_stops(self):
        worker = self.worker("--type=a/b=true", "--type=c=true", "--slots=3")
        listed = self.until(lambda: self.api("GET", "/workers")["items"])[0]
        self.assertEqual((sorted(listed["types"]), listed["slots"], listed["jobs"], listed["until"]), (["a/b", "c"], 3, 0, None))
        self.assertLessEqual(listed["started_at"], listed["seen_at"])
        self.assertEqual(self.api("GET", "/workers/{worker}", worker=listed["worker"])["running"], [])
        self.end(worker)
        self.assertEqual(self.api("GET", "/workers")["items"], [])

    def test_a_type_that_no_worker_serves_is_reported(self):
        chain, other = self.begin("a/b"), self.begin("b")
        self.assertEqual([t["served"] for t in self.api("GET", "/types")["items"]], [False, False])
        self.assertIs(self.job(chain)["served"], False)
        self.api("POST", "/types/{type}/pause", type="a/b")
        worker = self.worker("--type=a/b=true")
        self.until(lambda: self.job(chain)["served"])
        self.assertEqual([(t["type"], t["served"]) for t in self.api("GET", "/types")["items"]], [("a/b", True), ("b", False)])
        self.assertIs(self.job(other)["served"], False)
        self.end(worker)
        self.assertIs(self.job(chain)["served"], False)
        self.api("POST", "/chains/{id}/cancel", id=chain)
        self.assertIsNone(self.job(chain)["served"])

    def test_types_are_paused_and_resumed(self):
        self.begin("a/b")
        self.assertEqual(self.api("POST", "/types/{type}/pause", type="a/b"), {"type": "a/b", "paused": True})
        self.assertTrue(self.api("GET", "/types")["items"][0]["paused"])
        self.assertEqual(self.api("POST", "/types/{type}/resume", {}, type="a/b"), {"type": "a/b", "paused": False})
        self.assertFalse(self.api("GET", "/types")["items"][0]["paused"])
        self.api.refused("POST", "/types/{type}/pause", type="no good", says="type")

    def test_a_paused_type_without_jobs_is_shown(self):
        self.begin("a/b")
        self.api("POST", "/types/{type}/pause", type="quiet")
        busy, quiet = self.api("GET", "/types")["items"]
        self.assertEqual((busy["type"], busy["paused"], busy["pending"]), ("a/b", False, 1))
        self.assertEqual((quiet.pop("type"), quiet.pop("paused"), quiet.pop("oldest_at")), ("quiet", True, None))
        self.assertEqual(set(quiet.values()), {0})
        self.api("POST", "/types/{type}/resume", {}, type="quiet")
        self.assertEqual([t["type"] for t in self.api("GET", "/types")["items"]], ["a/b"])

    def test_schedules_are_put_listed_and_deleted(self):
        cron = self.api("PUT", "/cron/{name}", {"spec": "30 2 * * *", "type": "t", "input": {"a": 0.1}, "priority": 2, "catch_up": True}, name="nightly")
        self.assertEqual((cron["name"], cron["spec"], cron["input"], cron["priority"], cron["catch_up"]), ("nightly", "30 2 * * *", {"a": 0.1}, 2, True))
        self.assertIsNotNone(cron["next_at"])
        self.assertFalse(cron["paused"])
        paused = self.api("PUT", "/cron/{name}", {"spec": "30 2 * * *", "type": "t", "paused": True}, name="nightly")
        self.assertEqual((paused["paused"], paused["next_at"]), (True, None))
        self.api("PUT", "/cron/{name}", {"spec": "@yearly", "type": "t"}, name="nightly")
        listed, = self.api("GET", "/cron")["items"]
        self.assertEqual((listed["spec"], listed["input"], listed["last_chain"]), ("@yearly", None, None))
        escaped = self.api.raw("PUT", "/cron/{name}", b'{"spec":"@daily","type":"t","\\u0069nput":[1]}', name="nightly")
        self.assertEqual(escaped.json()["input"], [1])
        for body, says in (({"type": "t"}, "spec: missing"), ({"spec": "@daily"}, "type: missing"), ({"spec": "61 * * * *", "type": "t"}, ""),
                           ({"spec": "@daily", "type": "t", "when": 1}, "unknown field when"), ({"spec": "@daily", "type": "t", "catch_up": 1}, "catch_up: must be")):
            self.api.refused("PUT", "/cron/{name}", body, name="x", says=says)
        self.assertEqual(self.api("DELETE", "/cron/{name}", name="nightly"), {"deleted": 1})
        self.api.refused("DELETE", "/cron/{name}", name="nightly", status=404)


class RunningOnPostgres(Running):
    postgres = True

    def test_a_question_that_waits_for_another_machine_holds_up_no_other(self):
        chain = self.begin()
        with subprocess.Popen(["psql", "-qXAt", "-d", self.store], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as psql:
            psql.stdin.write("BEGIN; LOCK TABLE sluice.job IN ACCESS EXCLUSIVE MODE; SELECT 'locked';\n")
            psql.stdin.flush()
            self.assertEqual(psql.stdout.readline().strip(), "locked")
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(self.job, chain)
                for _ in range(50):
                    self.assertEqual(ask(self.process.url, "livez", timeout=25).status, 200)
                blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
                while subprocess.run(["psql", "-qXAt", "-d", self.store, "-c", blocked], check=True, capture_output=True, text=True).stdout.strip() == "0":
                    self.assertEqual(ask(self.process.url, "livez", timeout=25).status, 200)
                self.assertEqual(ask(self.process.url, "livez", timeout=25).status, 200)
                self.assertFalse(waiting.done())
                psql.stdin.close()
                self.assertEqual(waiting.result()["id"], str(chain))


# ---- numbers ----

class Numbers(ApiTest):
    def fresh(self, want):
        """The numbers, once they have come so far: they are counted every second."""
        return self.until(lambda: (lambda s: s if want(s) else None)(self.api("GET", "/stats")))

    def test_totals_follow_what_happens(self):
        stats = self.api("GET", "/stats")
        self.assertEqual((stats["totals"]["pending"], stats["oldest_due_at"], stats["pickup_ms"]["p50"]), (0, None, None))
        done = [self.begin() for _ in range(3)]
        self.begin("later", in_ms=3600000)
        stats = self.fresh(lambda s: s["totals"]["pending"] == 4)
        self.assertEqual((stats["ready"], stats["oldest_due_at"]), (3, self.job(done[0])["created_at"]))
        self.drain(self.handler("true"))
        stats = self.fresh(lambda s: s["totals"]["completed"] == 3)
        self.assertEqual((stats["totals"]["pending"], stats["ready"], stats["oldest_due_at"]), (1, 0, None))
        n = 3
        while not self.is_of_the_last_minute(stats):  # a count that took long is followed by a long rest
            n += 1
            self.assertLess(n, 10, stats)
            self.begin()
            self.drain(self.handler("true"))
            stats = self.fresh(lambda s: s["totals"]["completed"] == n)
        self.assertLessEqual(stats["pickup_ms"]["p50"], stats["pickup_ms"]["p99"])
        self.api.refused("GET", "/stats", x=1, says="unknown parameter x")

    @staticmethod
    def is_of_the_last_minute(stats):
        return stats["rates"]["completed"] > 0 and stats["rates"]["enqueued"] > 0 and stats["pickup_ms"]["p50"] is not None

    def test_numbers_are_followed(self):
        with urllib.request.urlopen(f"{self.api.url}/api/v1/stats/stream", timeout=60) as r:
            def event():
                lines = []
                while True:
                    line = r.readline().decode().rstrip("\n")
                    if line == "" and lines:
                        break
                    if line and not line.startswith(":"):
                        lines.append(line)
                self.assertEqual(lines[0], "event: stats")
                stats = json.loads(lines[1].removeprefix("data: "))
                DOCUMENT.check(DOCUMENT.doc["components"]["schemas"]["Stats"], stats)
                return stats
            self.assertEqual(event()["totals"]["pending"], 0)
            self.begin()
            self.until(lambda: event()["totals"]["pending"] == 1)
        DOCUMENT.asked.add(("/stats/stream", "GET"))

    def test_the_pipeline_has_its_stages(self):
        chain = self.begin()
        self.drain(self.handler("echo one"))
        stages = {s["name"]: s for s in self.api("GET", "/pipeline")["stages"]}
        self.assertEqual(list(stages), ["jobs", "workers", "log", "coordinator", "events"])
        self.assertEqual(stages["log"]["streams"], 1)
        self.assertEqual(stages["coordinator"]["dead_letters_waiting"], 0)
        self.assertEqual(self.job(chain)["status"], "completed")

    def test_the_receiver_reports_its_state(self):
        self.assertEqual(self.api("GET", "/backpressure")["state"], "ok")
        self.assertEqual(self.api("GET", "/coordinator")["breaker"], "closed")
        self.begin()
        self.drain(self.handler("echo one"))
        self.assertEqual(len(self.api.pages("/streams", limit=1)[0]), 1)
        self.assertRegex(self.api("GET", "/target")["target"], "^[0-9a-f]{32}$")


class NumbersOnPostgres(Numbers):
    postgres = True


# ---- exports ----

class Exports(ApiTest):
    def setUp(self):
        self.flags = ("--export=exports", "--set=export_events.partition_size=10")  # below the folder of the test
        super().setUp()

    def until_exported(self):
        """A job with 95 lines, and the dataset that has those of nine partitions."""
        self.begin()
        self.drain(self.handler("seq 1 95"))
        return self.until(lambda: next((d for d in self.api("GET", "/exports")["items"] if d["partitions"] >= 9), None))

    def test_datasets_partitions_and_events_are_listed(self):
        self.assertTrue(self.api("GET", "/exports")["configured"])
        d = self.until_exported()
        self.assertEqual((d["name"], d["sequence_column"], d["start"]), ("job_events", "offset", "1"))
        partitions, pages = self.api.pages("/exports/{dataset}/partitions", {"dataset": "job_events"}, limit=4)
        self.assertEqual(([p["start"] for p in partitions[:2]], pages), (["1", "10"], -(-len(partitions) // 4)))
        self.assertEqual([int(p["end"]) + 1 for p in partitions[:-1]], [int(p["start"]) for p in partitions[1:]])
        self.assertEqual(sum(p["rows"] for p in partitions), int(partitions[-1]["end"]))
        self.assertEqual([p["event"] for p in partitions], [str(n + 1) for n in range(len(partitions))])
        events, pages = self.api.pages("/exports/{dataset}/events", {"dataset": "job_events"}, limit=4)
        self.assertEqual([e["number"] for e in events], [p["event"] for p in partitions])
        chain = [e["event"]["chain"] for e in events]
        self.assertEqual([c["prev_event_hash"] for c in chain], ["0" * 64] + [c["event_hash"] for c in chain[:-1]])
        self.assertEqual([e["event"]["tables"][0]["sha256"] for e in events], [p["sha256"] for p in partitions])
        from_there = self.api("GET", "/exports/{dataset}/partitions", dataset="job_events", cursor="25", limit=1)
        self.assertEqual([p["start"] for p in from_there["items"]], ["30"])

    def test_the_head_is_that_of_the_last_event(self):
        d = self.until_exported()
        head = self.api("GET", "/exports/{dataset}/head", dataset="job_events")
        last = self.api("GET", "/exports/{dataset}/events", dataset="job_events", cursor=head["events"] - 1, limit=1)["items"][0]
        self.assertGreaterEqual(head["events"], d["events"])
        self.assertEqual((head["event_hash"], head["signed"]), (last["event"]["chain"]["event_hash"], False))
        self.assertEqual(json.loads(head["text"])["event_hash"], head["event_hash"])

    def test_a_verification_is_started_and_followed(self):
        self.until_exported()
        self.api.refused("GET", "/exports/{dataset}/verify", dataset="job_events", status=404, says="has not verified")
        begun = self.api("POST", "/exports/{dataset}/verify", {}, dataset="job_events", status=202)
        self.assertIn(begun["state"], ("running", "passed"))
        done = self.until(lambda: (v := self.api("GET", "/exports/{dataset}/verify", dataset="job_events"))["state"] != "running" and v)
        self.assertEqual((done["state"], done["findings"], done["error"]), ("passed", [], None))
        self.assertEqual(self.api("GET", "/exports")["items"][0]["verification"]["state"], "passed")
        self.assertIn("exports.verify", json.dumps(self.api("GET", "/audit", limit=5)["items"]))

    def test_what_is_wrong_is_named(self):
        self.until_exported()
        for name in ("nothing", "no/name", ".hidden", "x" * 200):
            for method, path in (("GET", "partitions"), ("GET", "events"), ("GET", "head"), ("GET", "verify"), ("POST", "verify")):
                self.api.refused(method, "/exports/{dataset}/" + path, dataset=name, status=404, says="no dataset")
        for path in ("partitions", "events"):
            for query, says in (({"limit": 0}, "limit"), ({"limit": 1001}, "limit"), ({"cursor": "x"}, "cursor"), ({"cursor": -1}, "cursor"), ({"x": 1}, "unknown parameter x")):
                self.api.refused("GET", "/exports/{dataset}/" + path, dataset="job_events", says=says, **query)
        self.api.refused("POST", "/exports/{dataset}/verify", {"all": True}, dataset="job_events", says="unknown field all")


class NoExports(ApiTest):
    def test_a_server_that_exports_nothing_says_so(self):
        self.assertEqual(self.api("GET", "/exports"), {"configured": False, "dir": None, "exporter": None, "items": [], "catalog_error": None})
        self.api.refused("GET", "/exports/{dataset}/head", dataset="job_events", status=404, says="set export_events.dir")


# ---- backups: test_backups.py has the rest ----

class Backups(ApiTest):
    def setUp(self):
        self.flags = ("--set=backup.repo=backups", "--set=backup.refresh_interval_ms=100")  # below the folder of the test
        super().setUp()

    def test_snapshots_are_listed_and_a_check_is_started_and_followed(self):
        self.ok("backup", "init", "backups", "--plain")
        snapshot = self.ok("backup", "create", "--data=data", "--repo=backups").text.strip()
        seen = self.until(lambda: (b := self.api("GET", "/backups"))["items"] and b)
        self.assertEqual([i["id"] for i in seen["items"]], [snapshot])
        begun = self.api("POST", "/backups/check", {"read_data": True}, status=202)
        self.assertIn(begun["state"], ("running", "passed"))
        done = self.until(lambda: (c := self.api("GET", "/backups/check"))["state"] != "running" and c)
        self.assertEqual((done["state"], done["findings"], done["read_data"]), ("passed", [], True))
        self.api.refused("GET", "/backups", says="unknown parameter x", x=1)


# ---- dead letters ----

class Letters(ApiTest):
    def put(self, folder, item, source="wal:w1", error="refused\nfor good"):
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        r = subprocess.run([sys.argv[2], folder, source, "7", "-5", "3", "2", "1700000000000", "1700000001000", "", error],
                           input=item, capture_output=True, check=True)
        return int(r.stdout)

    @staticmethod
    def event(job, text):
        """A JobEvent of the type log, of the first attempt of the job: proto/sluice/v1/events.proto by hand."""
        assert job < 128 and len(text) < 128
        token = bytes([1 << 3, job, 2 << 3, 1])
        return bytes([1 << 3, 7, 2 << 3 | 2, len(token)]) + token + bytes([6 << 3 | 2, len(text)]) + text.encode()

    def test_letters_are_listed_shown_and_go_again(self):
        self.assertEqual(self.api("GET", "/dead-letters")["items"], [])
        chain = self.begin()
        folder = self.path("data", "wal", "target", "w1.dead")
        for i in range(3):
            self.put(folder, self.event(chain, f"line {i}"))
        self.put(self.path("data", "dead"), b"no event at all", source="load:x.csv")
        items, pages = self.api.pages("/dead-letters", limit=2)
        self.assertEqual((len(items), pages), (4, 2))
        self.assertEqual({(x["source"], x["class"], x["attempts"]) for x in items}, {("wal:w1", "poison", 2), ("load:x.csv", "poison", 2)})
        letter = self.api("GET", "/dead-letters/{id}", id=items[0]["id"])
        self.assertEqual((letter["text"], letter["event"]["job_id"], letter["error"]), ("line 0", str(chain), "refused\nfor good"))
        self.assertEqual(base64.b64decode(letter["data_b64"]), self.event(chain, "line 0"))
        # They are counted every five seconds at most.
        self.until(lambda: {s["name"]: s for s in self.api("GET", "/pipeline")["stages"]}["coordinator"]["dead_letters_waiting"] == 4)
        self.assertEqual(self.api("POST", "/dead-letters/{id}/redrive", {}, id=items[0]["id"])["redriven"], 1)
        self.api.refused("POST", "/dead-letters/{id}/redrive", id=items[0]["id"], status=409)
        self.api.refused("POST", "/dead-letters/{id}/redrive", id=items[3]["id"], status=422, says="not an event")
        done = self.api("POST", "/dead-letters/redrive", {"all": True})
        self.assertEqual((done["redriven"], done["failed"]), (2, 1))
        self.assertIn("not an event", done["last_error"])
        events = self.api("GET", "/jobs/{id}/events", id=chain)["items"]
        self.assertEqual([e["text"] for e in events], ["line 0", "line 1", "line 2"])
        self.assertEqual([x["source"] for x in self.api("GET", "/dead-letters")["items"]], ["load:x.csv"])

    def test_what_is_wrong_is_named(self):
        for id_ in ("x", "00000000-1", "zzzzzzzz-1", "1"):
            self.api.refused("GET", "/dead-letters/{id}", id=id_, status=404)
            self.api.refused("POST", "/dead-letters/{id}/redrive", id=id_, status=404)
        self.api.refused("POST", "/dead-letters/redrive", {"all": False}, says="all: must be true")
        self.api.refused("POST", "/dead-letters/redrive", {}, says="all: must be true")
        self.api.refused("GET", "/dead-letters", cursor="x", says="cursor")


class LettersOnPostgres(Letters):
    postgres = True


# ---- the document ----

class Xdocument(ApiTest):
    def test_it_is_served_as_it_is(self):
        self.assertEqual(self.api("GET", "/openapi.json"), DOCUMENT.doc)

    def test_sessions_and_the_audit_log_are_as_it_says(self):
        session = self.api("GET", "/session")
        self.begin()
        self.assertIn("chains.start", json.dumps(self.api("GET", "/audit", limit=5)["items"]))
        for limit in ("5x", "0", "1001", "-1", " 5"):
            self.api.refused("GET", "/audit", limit=limit, says="limit")
        self.api.raw("POST", "/session", {"token": "unknown"}, status=401)
        self.api("DELETE", "/session", status=204)
        self.assertEqual(session["role"], "admin")
        self.assertEqual(session["store"], self.store)

    def test_a_browser_at_an_unknown_address_gets_the_page_and_everyone_else_an_error(self):
        for path in ("nowhere", "jobs/1/2/3", "jobs/", "api", "%zz"):
            with self.subTest(path=path):
                answer = ask(self.process.url, path, headers={"Accept": "text/html,*/*;q=0.8"})
                self.assertEqual((answer.status, answer.headers["Content-Type"]), (404, "text/html; charset=utf-8"))
                self.assertIn("<title>Sluice", answer.text)
                self.assertGreaterEqual(ask(self.process.url, path).status, 400)
                self.assertIn("application/json", ask(self.process.url, path).headers["Content-Type"])
        for path in ("api/v1/nowhere", "assets/nowhere.js"):
            answer = ask(self.process.url, path, headers={"Accept": "text/html"})
            self.assertEqual((answer.status, answer.headers["Content-Type"].split(";")[0]), (404, "application/json"))

    def test_a_checker_that_sees_nothing_is_no_checker(self):
        good = self.api("GET", "/jobs/{id}", id=self.begin())
        for spoil in (lambda j: j.pop("status"), lambda j: j.update(id=7), lambda j: j.update(status="gone"),
                      lambda j: j.update(extra=1), lambda j: j.update(created_at="yesterday"), lambda j: j.update(attempts=[{}]),
                      lambda j: j.update(attempt=-1), lambda j: j.update(attempt=True), lambda j: j.update(error=3)):
            job = json.loads(json.dumps(good))
            spoil(job)
            with self.assertRaises(Mismatch):
                DOCUMENT.check(DOCUMENT.doc["components"]["schemas"]["Job"], job)


class Ycoverage(ServerTest):
    """Runs after the others: classes run in the order of their names."""

    def test_every_operation_was_asked_for_and_answered(self):
        if len(sys.argv) > 3:
            self.skipTest("only some of the tests were run")
        self.assertEqual(sorted(DOCUMENT.operations() - DOCUMENT.asked - {("/session", "POST")}), [])

    def test_every_route_is_in_the_document(self):
        routes = set()
        for name in glob.glob(os.path.join(ROOT, "src", "server", "**", "*.c"), recursive=True):
            with open(name, encoding="utf-8") as f:
                text = f.read()
            routes |= {(path, method) for method, path in re.findall(r'{\s*"([A-Z]+)",\s*"/api/v1(/[^"]*)"', text)}
            routes |= {(path, "GET") for path in re.findall(r'\bGET\("(/[^"]*)"', text)}
            routes |= {(path, method) for method, path in re.findall(r'\bCHANGE\w*\("([A-Z]+)",\s*"(/[^"]*)"', text)}
        self.assertGreater(len(routes), 40)
        self.assertEqual(routes, DOCUMENT.operations())


if __name__ == "__main__":
    servertest.main()
