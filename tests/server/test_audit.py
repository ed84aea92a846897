# SPDX-License-Identifier: Apache-2.0
"""The audit trail of a running server, on both stores: no record, no change, whatever route is asked for."""

import glob
import json
import os
import re
import signal
import sqlite3
import subprocess
import time

import servertest
from servertest import ROOT, ServerTest, ask

# What changes nothing that lasts.
NOT_AUDITED = {("DELETE", "/session")}
# Publishing is audited where it is out of the ordinary: see Ingest below.
BY_ITSELF = {("POST", "/publish"), ("POST", "/session")}


def route_table():
    """{(method, path): action} of everything but GET, as the server's tables in the source have it."""
    routes = {}
    for name in glob.glob(os.path.join(ROOT, "src", "server", "**", "*.c"), recursive=True):
        with open(name, encoding="utf-8") as f:
            text = f.read()
        text = re.sub(r"PUBLISH_PATH(?=,)", '"/api/v1/publish"', text)  # it is not below /api/v1
        for method, path, action in re.findall(
                r'{\s*"(POST|PUT|DELETE|PATCH)",\s*"/api/v1(/[^"]*)",[^}]*?,\s*\w+,\s*("[^"]*"|NULL)\s*}', text):
            routes[method, path] = action.strip('"')
        for method, path, action in re.findall(
                r'\bCHANGE\w*\("(POST|PUT|DELETE|PATCH)",\s*"(/[^"]*)",[^)]*?\s("[^"]*"|NULL)\)', text):
            routes[method, path] = action.strip('"')
    return routes


class Trail(ServerTest):
    def setUp(self):
        super().setUp()
        self.p = self.server("--store=" + self.store, "--export=" + self.path("out"), command="server")

    def api(self, method, path, body=None):
        return ask(self.p.url, "api/v1" + path, method, body)

    def begin(self, **fields):
        return self.api("POST", "/chains", {"type": "t", **fields}).json()["chain_id"]

    def failed(self):
        chain = self.begin()
        self.api("POST", f"/chains/{chain}/fail", {"error": "no"})
        return chain

    def records(self):
        return self.api("GET", "/audit?limit=1000").json()["items"]

    # ---- the trail fails ----

    def sql(self, on_sqlite, on_postgres):
        if self.postgres:
            subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", self.store, "-c", on_postgres], check=True, timeout=60)
        else:
            with sqlite3.connect(self.store.removeprefix("sqlite:"), timeout=60) as db:
                db.executescript(on_sqlite)
            db.close()

    def block(self):
        self.sql("CREATE TRIGGER full BEFORE INSERT ON sluice_audit BEGIN SELECT RAISE(ABORT, 'trail full'); END",
                 "ALTER TABLE sluice.audit ADD CONSTRAINT full_ CHECK (false) NOT VALID")

    def unblock(self):
        self.sql("DROP TRIGGER full", "ALTER TABLE sluice.audit DROP CONSTRAINT full_")

    def picture(self):
        """Everything that a change could change."""
        chains = [(c["id"], c["status"]) for c in self.api("GET", "/chains?limit=1000").json()["items"]]
        jobs = [(j["id"], j["status"], j["scheduled_for"]) for j in self.api("GET", "/jobs?limit=1000").json()["items"]]
        crons = self.api("GET", "/cron").json()["items"]
        with_paused = self.ok("jobs", "stats", "--json").text
        letters = self.api("GET", "/dead-letters").json()["items"]
        return chains, jobs, crons, with_paused, letters

    def examples(self):
        """A request for each route that is found to be right, and what it needs before."""
        later = {"in_ms": 3600000}
        cron = {"spec": "@hourly", "type": "t"}
        self.api("PUT", "/cron/old", cron)
        return {
            ("POST", "/chains"): ("/chains", {"type": "t"}),
            ("POST", "/chains/bulk"): ("/chains/bulk", {"chains": [{"type": "t"}, {"type": "u", "key": "k"}]}),
            ("POST", "/chains/{id}/complete"): (f"/chains/{self.begin()}/complete", {"output": 1}),
            ("POST", "/chains/{id}/fail"): (f"/chains/{self.begin()}/fail", {"error": "x"}),
            ("POST", "/chains/{id}/cancel"): (f"/chains/{self.begin()}/cancel", None),
            ("POST", "/chains/{id}/trigger"): (f"/chains/{self.begin(**later)}/trigger", None),
            ("POST", "/chains/{id}/retry"): (f"/chains/{self.failed()}/retry", None),
            ("DELETE", "/chains/{id}"): (f"/chains/{self.begin()}", None),
            ("POST", "/chains/cancel"): ("/chains/cancel", {"chains": [self.begin()]}),
            ("POST", "/chains/retry"): ("/chains/retry", {"chains": [self.failed()]}),
            ("POST", "/chains/trigger"): ("/chains/trigger", {"chains": [self.begin(**later)]}),
            ("POST", "/chains/delete"): ("/chains/delete", {"chains": [self.begin()]}),
            ("POST", "/types/{type}/pause"): ("/types/p/pause", None),
            ("POST", "/types/{type}/resume"): ("/types/p/resume", None),
            ("PUT", "/cron/{name}"): ("/cron/new", cron),
            ("DELETE", "/cron/{name}"): ("/cron/old", None),
            ("POST", "/exports/{dataset}/verify"): ("/exports/job_events/verify", None),
            ("POST", "/backups/check"): None,  # without a repository there is nothing to check: test_backups.py
            ("POST", "/dead-letters/{id}/redrive"): None,  # without letters: test_api.py
            ("POST", "/dead-letters/redrive"): ("/dead-letters/redrive", {"all": True}),
        }

    def test_no_route_of_the_table_changes_anything_without_its_record(self):
        table = route_table()
        self.assertGreater(len(table), 20)
        self.assertEqual({r for r, action in table.items() if action == "NULL"} - {("POST", "/publish")},
                         NOT_AUDITED)
        examples = self.examples()
        self.assertEqual(set(table) - NOT_AUDITED - BY_ITSELF, set(examples))
        self.until(lambda: self.api("GET", "/exports").json()["items"])
        for route, request in examples.items():
            if request is None:
                continue
            with self.subTest(route=route):
                path, body = request
                before = self.picture()
                self.block()
                refused = self.api(route[0], path, body)
                self.unblock()
                self.assertGreaterEqual(refused.status, 400, refused.text)
                self.assertEqual(self.picture(), before)
                n = len(self.records())
                done = self.api(route[0], path, body)
                self.assertIn(done.status, (200, 201, 202, 204), done.text)
                records = self.records()
                self.assertEqual(len(records), n + 1)
                self.assertEqual((records[0]["action"], records[0]["actor"], records[0]["via"]),
                                 (table[route], "local", "http"))
                # It names what was changed: its chains, or the parameters of the path.
                if "chain" in route[1]:
                    self.assertTrue(records[0]["chains"], records[0])
        self.end(self.p)

    def test_starts_of_clients_that_share_a_transaction_are_all_recorded(self):
        import threading
        ids = []
        ready = threading.Barrier(16)

        def client():
            ready.wait()
            for _ in range(20):
                ids.append(self.begin())

        threads = [threading.Thread(target=client) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        recorded = [c for r in self.records() for c in r["chains"]]
        self.assertEqual(sorted(recorded), sorted(ids))
        self.end(self.p)

    def test_what_commands_change_is_in_the_trail_too(self):
        chain = self.enqueue("t")
        self.ok("jobs", "cancel", str(chain))
        self.ok("jobs", "pause", "mail")
        self.ok("cron", "add", "nightly", "@daily", "t")
        self.ok("jobs", "delete", str(chain))
        seen = [(r["action"], r["via"], r["chains"], r["detail"]) for r in self.records()]
        self.assertEqual(seen, [("jobs.delete", "command", [str(chain)], {"operands": [str(chain)]}),
                                ("cron.add", "command", [], {"operands": ["nightly", "@daily", "t"]}),
                                ("jobs.pause", "command", [], {"operands": ["mail"]}),
                                ("jobs.cancel", "command", [str(chain)], {"operands": [str(chain)]}),
                                ("enqueue", "command", [str(chain)], None)])
        shown = self.ok("jobs", "audit", "--json").json()
        self.assertEqual([r["action"] for r in shown], [s[0] for s in seen])
        self.assertIn("jobs.cancel", self.ok("jobs", "audit", "--limit=4").text)
        self.block()
        for args in (("enqueue", "t"), ("jobs", "pause", "other"), ("cron", "remove", "nightly")):
            self.assertNotEqual(self.sluice(*args).code, 0, args)
        self.unblock()
        self.assertEqual(len(self.records()), 5)
        self.assertEqual(len(self.api("GET", "/cron").json()["items"]), 1)
        self.assertEqual(self.api("GET", "/chains").json()["items"], [])
        self.end(self.p)

    def test_old_records_go(self):
        self.begin()
        self.sql("UPDATE sluice_audit SET at_us = 1000", "UPDATE sluice.audit SET at = '2000-01-01'")
        self.begin()
        self.ok("jobs", "prune", "--keep-audit=1d")
        self.assertEqual([r["action"] for r in self.records()], ["chains.start"])
        self.sql("UPDATE sluice_audit SET at_us = 1000", "UPDATE sluice.audit SET at = '2000-01-01'")
        self.end(self.p)
        self.p = self.server("--store=" + self.store, command="server")
        self.until(lambda: not self.records())  # the server does it by itself
        self.end(self.p)


class TrailOnPostgres(Trail):
    postgres = True


class Strangers(ServerTest):
    """Without a token, nothing can be filled."""

    def test_sixteen_thousand_log_outs_and_log_ins_leave_nothing_and_stop_nothing(self):
        import hashlib
        import http.client
        self.write("tokens", f"boss admin sha256:{hashlib.sha256(b'secret').hexdigest()}\n".encode())
        os.chmod(self.path("tokens"), 0o600)
        p = self.server("--tokens=" + self.path("tokens"), command="server")
        host = p.url.split("//")[1].strip("/")
        boss = {"Authorization": "Bearer secret"}
        started = ask(p.url, "api/v1/chains", "POST", {"type": "t"}, headers=boss)
        self.assertEqual(started.status, 201)
        c = http.client.HTTPConnection(host, timeout=60)
        statuses = set()
        body = json.dumps({"token": "wrong"})
        end = time.monotonic() + 5
        n = 0
        while n < 16000 and time.monotonic() < end:
            for method in ("DELETE", "POST"):
                c.request(method, "/api/v1/session", body if method == "POST" else None,
                          {"Content-Type": "application/json"})
                a = c.getresponse()
                a.read()
                statuses.add((method, a.status))
                n += 1
        print(f"# {n} requests")
        self.assertEqual(statuses, {("DELETE", 204), ("POST", 401), ("POST", 429)})
        for _ in range(5):  # a client with a token is recorded, but only once
            self.assertEqual(ask(p.url, "api/v1/session", "POST", {"token": "secret"}).status, 200)
        self.until(lambda: len(ask(p.url, "api/v1/audit", headers=boss).json()["items"]) == 2)
        records = ask(p.url, "api/v1/audit", headers=boss).json()["items"]
        self.assertEqual([(r["action"], r["actor"]) for r in records], [("session.begin", "boss"), ("chains.start", "boss")])
        self.assertGreaterEqual(self.metric_of(p, boss), n // 2)
        self.assertEqual(ask(p.url, "api/v1/chains", "POST", {"type": "t"}, headers=boss).status, 201)
        self.end(p)

    def metric_of(self, p, headers):
        text = ask(p.url, "metrics", headers=headers).text
        return float(re.search(r"^sluice_http_refused_logins_total (\S+)", text, re.M).group(1))


class Scopes(ServerTest):
    def test_a_token_does_what_its_scopes_say_and_nothing_else(self):
        import hashlib
        lines = {"boss": "admin", "ci": "enqueue:build,mail/*", "box": "ship:web-"}
        self.write("tokens", "".join(f"{n} {s} sha256:{hashlib.sha256(n.encode()).hexdigest()}\n"
                                     for n, s in lines.items()).encode())
        os.chmod(self.path("tokens"), 0o600)
        p = self.server("--tokens=" + self.path("tokens"), command="server")

        def status(who, path, method="POST", body=None):
            return ask(p.url, path, method, body, headers={"Authorization": f"Bearer {who}"}).status

        def publish(who, stream, **more):
            return status(who, "sluice.v1.JobEvents/PublishJobEvents", body={"stream": stream, "incarnation": 1, **more})

        self.assertEqual(status("ci", "api/v1/chains", body={"type": "build"}), 201)
        self.assertEqual(status("ci", "api/v1/chains", body={"type": "mail/send"}), 201)
        self.assertEqual(status("ci", "api/v1/chains", body={"type": "deploy"}), 403)
        self.assertEqual(status("ci", "api/v1/chains/bulk", body={"chains": [{"type": "build"}, {"type": "deploy"}]}), 403)
        for path, method in (("api/v1/chains/1/cancel", "POST"), ("api/v1/types/build/pause", "POST"),
                             ("api/v1/jobs", "GET"), ("api/v1/audit", "GET"), ("api/v1/chains/1", "DELETE")):
            self.assertEqual(status("ci", path, method), 403, path)
            self.assertEqual(status("box", path, method), 403, path)
        self.assertEqual(status("box", "api/v1/chains", body={"type": "build"}), 403)
        line = {"type": "stdout", "tsMs": "1", "data": "aGVsbG8="}
        events = [{"sequence": "1", "crc": "1", "event": line}]
        self.assertEqual(publish("ci", "web-1", events=events), 403)
        self.assertEqual(publish("box", "db-1", events=events), 403)
        self.assertEqual(publish("box", "web-1", events=events), 200)
        # Sequences that are said never to come are recorded; ordinary events are not.
        skips = [{"first": "2", "last": "4"}]
        self.assertEqual(publish("box", "db-1", skipped=skips), 403)
        self.assertEqual(publish("box", "web-1", skipped=skips), 200)
        records = ask(p.url, "api/v1/audit", headers={"Authorization": "Bearer boss"}).json()["items"]
        self.assertEqual([(r["action"], r["actor"]) for r in records],
                         [("events.publish", "box"), ("chains.start", "ci"), ("chains.start", "ci")])
        self.assertEqual(records[0]["detail"], {"stream": "web-1", "incarnation": 1, "skipped": ["2", "4"]})
        self.end(p)


class Streams(ServerTest):
    """One client cannot lose, halt or forge the lines of another."""

    TOKENS = {"boss": "admin", "ann": "write", "bob": "write", "box": "ship:s", "gpu": "worker:render,train/*"}

    def setUp(self):
        super().setUp()
        import hashlib
        self.write("tokens", "".join(f"{n} {s} sha256:{hashlib.sha256(n.encode()).hexdigest()}\n"
                                     for n, s in self.TOKENS.items()).encode())
        os.chmod(self.path("tokens"), 0o600)
        self.p = self.server("--store=" + self.store, "--tokens=" + self.path("tokens"), command="server")

    def ask_as(self, who, path, method="POST", body=None):
        return ask(self.p.url, path, method, body, headers={"Authorization": f"Bearer {who}"})

    def publish(self, who, *sequences, stream="s", incarnation=1, token=None, **more):
        events = [{"sequence": str(n), "crc": str(n), "event": {"type": "stdout", "tsMs": "1", "data": "aGk="}}
                  for n in sequences]
        body = {"stream": stream, "incarnation": incarnation, "events": events, **more}
        return self.ask_as(who, "sluice.v1.JobEvents/PublishJobEvents", body=body | ({"token": token} if token else {}))

    def rows(self):
        out = self.ask_as("boss", "api/v1/streams", "GET").json()["items"]
        return {(s["stream"], s["incarnation"]): s["mark"] for s in out}

    def records(self):
        items = self.ask_as("boss", "api/v1/audit", "GET").json()["items"]
        return [(r["actor"], r["detail"]) for r in items if r["action"] == "events.publish"]

    def test_a_stream_belongs_to_the_token_that_created_it(self):
        self.assertEqual(self.publish("ann", 1).status, 200)
        for more in ({}, {"incarnation": 9}, {"skipped": [{"first": "2", "last": "99"}]}):
            a = self.publish("bob", *(() if "skipped" in more else (2,)), **more)
            self.assertEqual((a.status, a.json()["code"]), (403, "permission_denied"), more)
        self.assertEqual(self.publish("box", 2).status, 403)  # its scope names it, but it has an owner
        self.assertEqual(self.publish("ann", 2).status, 200)
        self.assertEqual(self.rows(), {("s", 1): 2})
        self.assertEqual(self.records(), [])
        self.assertEqual(self.publish("boss", 3).status, 200)
        self.assertEqual(self.records(), [("boss", {"stream": "s", "incarnation": 1, "foreign": True})])
        # A new token of the same name is the same client.
        import hashlib
        with open(self.path("tokens"), "a", encoding="ascii") as f:
            f.write(f"ann write sha256:{hashlib.sha256(b'renewed').hexdigest()}\n")
        self.p.send_signal(signal.SIGHUP)
        self.until(lambda: self.publish("renewed", 4).status == 200)
        self.end(self.p)

    def test_publishes_of_two_tokens_at_the_same_time_are_told_apart(self):
        import threading
        answers = {}

        def client(who):
            answers[who] = [self.publish(who, 1, stream=f"race{i}").status for i in range(40)]

        threads = [threading.Thread(target=client, args=(who,)) for who in ("ann", "bob")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for first, second in zip(answers["ann"], answers["bob"]):
            self.assertEqual({first, second}, {200, 403})
        self.end(self.p)

    def test_a_stream_that_no_token_created_needs_a_scope_that_names_it(self):
        self.end(self.p)
        p = self.server("--store=" + self.store, command="server")
        body = {"stream": "s", "incarnation": 1,
                "events": [{"sequence": "1", "crc": "1", "event": {"type": "stdout", "tsMs": "1", "data": "aGk="}}]}
        self.assertEqual(ask(p.url, "sluice.v1.JobEvents/PublishJobEvents", "POST", body).status, 200)
        self.end(p)
        self.p = self.server("--store=" + self.store, "--tokens=" + self.path("tokens"), command="server")
        self.assertEqual(self.publish("ann", 2).status, 403)
        self.assertEqual(self.publish("box", 2).status, 200)
        self.assertEqual(self.records(), [("box", {"stream": "s", "incarnation": 1, "new_owner": True})])
        self.end(self.p)

    def test_a_worker_publishes_what_jobs_of_its_types_print(self):
        jobs = {t: self.ask_as("boss", "api/v1/chains", body={"type": t}).json()["chain_id"]
                for t in ("render", "train/big", "mail")}
        n = 0
        for kind, status in (("render", 200), ("train/big", 200), ("mail", 403)):
            a = self.publish("gpu", n + 1, stream="w", token={"jobId": jobs[kind], "attempt": 1})
            self.assertEqual(a.status, status, (kind, a.text))
            n += status == 200
        self.assertEqual(self.publish("gpu", n + 1, stream="w").status, 403)  # lines of no job
        for path, method in (("api/v1/chains", "POST"), ("api/v1/jobs", "GET"), ("api/v1/streams", "GET")):
            self.assertEqual(self.ask_as("gpu", path, method, {"type": "render"} if method == "POST" else None).status, 403)
        # Without its claim a line is in no job's output in time, and the attempt is recorded.
        events = self.ask_as("boss", f"api/v1/jobs/{jobs['render']}/events", "GET").json()["items"]
        self.assertEqual([e["late"] for e in events], [True])
        self.assertEqual([(who, d["without_claim"]) for who, d in self.records()], [("gpu", 1), ("gpu", 1)])
        self.end(self.p)

    def test_what_cannot_be_recorded_is_not_taken(self):
        self.assertEqual(self.publish("ann", 1).status, 200)
        Trail.sql(self, "CREATE TRIGGER full BEFORE INSERT ON sluice_audit BEGIN SELECT RAISE(ABORT, 'trail full'); END",
                  "ALTER TABLE sluice.audit ADD CONSTRAINT full_ CHECK (false) NOT VALID")
        self.assertGreaterEqual(self.publish("ann", skipped=[{"first": "2", "last": "9"}]).status, 400)
        self.assertEqual(self.rows(), {("s", 1): 1})
        self.assertEqual(self.publish("ann", 2).status, 200)  # what is ordinary needs no record
        self.end(self.p)


class StreamsOnPostgres(Streams):
    postgres = True


if __name__ == "__main__":
    servertest.main()
