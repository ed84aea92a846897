# SPDX-License-Identifier: Apache-2.0
"""Servers that export their events: partitions as they fill, restarts, kills, a lease for several, verification."""

import glob
import hashlib
import json
import os
import signal

import servertest
from openapi import Api, Document
from servertest import ServerTest, ask

DOCUMENT = Document.of_source()
SIZE = 50


class ExportTest(ServerTest):
    def setUp(self):
        super().setUp()
        self.out = self.path("out")

    def exporting(self, *args, command="server", **more):
        p = self.server("--store=" + self.store, "--export=" + self.out, f"--set=export_events.partition_size={SIZE}", *args,
                        command=command, **more)
        p.api = Api(p.url, DOCUMENT)
        return p

    def talk(self, lines, *more):
        """A job that writes this many lines, run to its end by its own worker."""
        job = self.enqueue("t", *more)
        self.drain(self.handler(f"seq 1 {lines}"))
        return job

    def events(self, _job=None):
        """What the store has of all jobs: offset and text."""
        return [(e["offset"], e.get("text")) for e in self.ok("jobs", "logs", "--all", "--json", str(_job)).json()]

    def dataset(self, p):
        return {d["name"]: d for d in p.api("GET", "/exports")["items"]}.get("job_events")

    def until_checkpoint(self, p, sequence):
        def reached():
            d = self.dataset(p)
            return d and d["checkpoint"] and int(d["checkpoint"]) >= sequence and d["outbox_backlog"] == 0 and d

        return self.until(reached)

    def until_state(self, p, *states):
        return self.until(lambda: (x := p.api("GET", "/exports")["exporter"])["state"] in states and x)

    def rows(self):
        """All rows of the files, in the order of their names."""
        out = []
        for name in sorted(glob.glob(os.path.join(self.out, "job_events", "partition-*", "*.parquet"))):
            out += [json.loads(line) for line in self.ok("parquet", "cat", name).out.splitlines()]
        return out

    def verify(self, p):
        p.api("POST", "/exports/{dataset}/verify", dataset="job_events", status=202)
        return self.until(lambda: (v := p.api("GET", "/exports/{dataset}/verify", dataset="job_events"))["state"] != "running" and v)


class Exporting(ExportTest):
    def test_events_become_partitions_as_they_fill(self):
        p = self.exporting()
        job = self.talk(3 * SIZE)
        d = self.until_checkpoint(p, 3 * SIZE - 1)
        self.assertEqual((d["start"], d["sequence_column"], d["partition_size"]), ("1", "offset", str(SIZE)))
        self.assertEqual((d["rows"], d["bad_rows"], d["partitions"]), (int(d["checkpoint"]), 0, d["events"]))
        rows = self.rows()
        self.assertEqual([r["offset"] for r in rows], list(range(1, int(d["checkpoint"]) + 1)))
        self.assertEqual({r["job_id"] for r in rows}, {job})
        text = [bytes.fromhex(r["payload"].removeprefix("\\x")).decode() for r in rows if r["type"] == "stdout"]
        self.assertEqual(text, [str(n) for n in range(1, len(text) + 1)])
        self.assertGreater(len(text), 2 * SIZE)
        # what is not full waits
        self.until(lambda: self.dataset(p)["lag"] == len(self.events(job)) - int(d["checkpoint"]))
        # The catalog has it a moment before the numbers do.
        self.until(lambda: self.metric(p, "sluice_server_export_up") == 1)
        self.until(lambda: self.metric(p, "sluice_server_export_checkpoint") == int(d["checkpoint"]))
        self.end(p)
        self.ok("audit", "verify", self.out, "--dataset=job_events")

    def test_a_server_resumes_where_the_one_before_it_ended(self):
        p = self.exporting()
        self.talk(2 * SIZE)
        self.until_checkpoint(p, 2 * SIZE - 1)
        self.end(p)
        self.talk(2 * SIZE)
        p = self.exporting()
        self.until_checkpoint(p, 4 * SIZE - 1)
        self.end(p, code=-signal.SIGKILL, how=signal.SIGKILL)
        self.talk(2 * SIZE)
        p = self.exporting()
        d = self.until_checkpoint(p, 6 * SIZE - 1)
        self.assertEqual([r["offset"] for r in self.rows()], list(range(1, int(d["checkpoint"]) + 1)))
        self.assertEqual(self.verify(p)["state"], "passed")
        self.end(p)

    def test_retention_waits_for_the_export(self):
        keep = [f"--set=retention.{name}=1ms" for name in ("completed", "events", "lines")]
        first, second = self.talk(SIZE - 10), self.talk(SIZE - 10)
        newest = self.events(second)[-1][0]
        p = self.exporting(*keep)
        d = self.until_checkpoint(p, SIZE - 1)
        # The first chain is all in the partition, and goes; of the second, only what was exported.
        self.until(lambda: first not in [j["id"] for j in self.ok("jobs", "list", "--json").json()])
        self.until(lambda: p.api("GET", "/stats")["retention"]["deleted_events"] > 0)
        self.assertEqual(self.show(second)["status"], "completed")
        self.assertEqual([offset for offset, _ in self.events(second)], list(range(int(d["checkpoint"]) + 1, newest + 1)))
        # The rest goes when it was exported.
        third = self.talk(2 * SIZE)
        self.until_checkpoint(p, 2 * SIZE - 1)
        self.until(lambda: second not in [j["id"] for j in self.ok("jobs", "list", "--json").json()])
        self.assertEqual(self.show(third)["status"], "completed")
        self.end(p)
        rows = self.rows()
        self.assertEqual([r["offset"] for r in rows], list(range(1, len(rows) + 1)))
        self.assertNotIn(None, [r["payload"] for r in rows])
        self.ok("audit", "verify", self.out, "--dataset=job_events")

    def test_an_event_that_was_deleted_before_is_a_row_with_only_its_offset(self):
        first, gone = self.talk(3), self.talk(3)
        kept = len(self.events(first))
        lost = [offset for offset, _ in self.events(gone)]
        self.ok("jobs", "delete", str(gone))
        self.talk(SIZE)
        p = self.exporting()
        self.until_checkpoint(p, SIZE - 1)
        self.end(p)
        rows = self.rows()
        self.assertEqual([r["offset"] for r in rows], list(range(1, len(rows) + 1)))
        empty = [r["offset"] for r in rows if all(v is None for k, v in r.items() if k != "offset")]
        self.assertEqual(empty, lost)
        self.assertEqual(lost[0], kept + 1)
        self.ok("audit", "verify", self.out, "--dataset=job_events")

    def test_one_of_two_servers_exports_and_the_other_takes_over(self):
        first = self.exporting(*self.shared)
        self.talk(SIZE)
        self.until_checkpoint(first, SIZE - 1)  # the lease is its own, however slow it was to take it
        second = self.exporting(*self.shared)
        told = self.until_state(second, "waiting")
        self.assertIn("pid", told["error"])
        self.assertEqual({c["name"]: c["ok"] for c in ask(second.url, "readyz").json()["checks"]}["export"], True)
        self.talk(2 * SIZE)
        self.until_checkpoint(second, 3 * SIZE - 1)  # as the first one has written it
        # A try that takes long counts as a run until it finds the lease taken.
        self.until(lambda: self.metric(second, "sluice_server_export_up") == 0)
        self.end(first)
        self.until_state(second, "running")
        self.talk(2 * SIZE)
        self.until_checkpoint(second, 5 * SIZE - 1)
        self.assertEqual(self.verify(second)["state"], "passed")
        self.end(second)

    @property
    def shared(self):
        return [f"--set=export_events.catalog={self.store}"] if self.postgres else []


class ExportingOnPostgres(Exporting):
    postgres = True


class Failing(ExportTest):
    def test_a_failing_export_is_reported_and_restarted(self):
        self.write("out", b"a file where the folder should be")
        p = self.exporting()
        told = self.until_state(p, "failed")
        self.assertIn("out", told["error"])
        self.assertIsNotNone(told["next_try_at"])
        self.until(lambda: [c for c in ask(p.url, "readyz").json()["checks"] if c["name"] == "export" and not c["ok"]])
        self.until(lambda: (a := ask(p.url, "readyz")).status == 200 and a.json()["ready"])  # requests do not suffer from it
        self.assertGreater(self.metric(p, "sluice_server_export_failures_total"), 0)
        os.remove(self.out)
        self.talk(SIZE)
        self.until_state(p, "running")
        self.until_checkpoint(p, SIZE - 1)
        _, err = self.end(p)
        self.assertIn(b"export ended; restarting it", err)

    def test_a_server_that_drains_does_not_wait_for_an_export_for_ever(self):
        p = self.exporting("--set=server.drain_timeout_ms=3000", "--set=export_events.audit_endpoint=http://127.0.0.1:1/")
        self.talk(2 * SIZE)
        self.until_state(p, "running")
        self.until(lambda: (d := self.dataset(p)) and d["endpoint_backlog"])
        self.end(p)
        self.ok("audit", "verify", self.out, "--dataset=job_events")

    def test_a_dataset_that_has_another_shape_is_left_alone(self):
        self.write("rows.csv", b"n,a\n" + b"".join(b"%d,x\n" % i for i in range(1, 101)))
        self.ok("export", "--from", self.path("rows.csv"), "--to", self.out, "--dataset=job_events", "--partition-size=50", "--sequence=n")
        before = self.files()
        p = self.exporting()
        self.talk(SIZE)
        told = self.until_state(p, "failed")
        self.assertTrue(told["error"])
        self.end(p)
        self.assertEqual(self.files(), before)

    def files(self):
        out = {}
        for name in glob.glob(os.path.join(self.out, "job_events", "**", "*"), recursive=True):
            if os.path.isfile(name):
                with open(name, "rb") as f:
                    out[name] = hashlib.sha256(f.read()).hexdigest()
        return out


class Verifying(ExportTest):
    def test_a_flipped_byte_is_named_by_its_path(self):
        p = self.exporting()
        self.talk(3 * SIZE)
        self.until_checkpoint(p, 3 * SIZE - 1)
        good = self.verify(p)
        self.assertEqual((good["state"], good["findings"]), ("passed", []))
        self.assertEqual(good["rows"], self.dataset(p)["rows"])
        victim = sorted(glob.glob(os.path.join(self.out, "job_events", "*", "*.parquet")))[1]
        with open(victim, "r+b") as f:
            f.seek(100)
            byte = f.read(1)
            f.seek(100)
            f.write(bytes([byte[0] ^ 1]))
        bad = self.verify(p)
        self.assertEqual(bad["state"], "failed")
        self.assertEqual({os.path.realpath(f["path"]) for f in bad["findings"]}, {os.path.realpath(victim)})
        self.assertIn("hash", {f["fault"] for f in bad["findings"]})
        self.assertEqual(self.dataset(p)["verification"]["state"], "failed")
        self.end(p)

    def test_heads_are_signed_with_the_configured_key_and_find_a_cut_tail(self):
        self.ok("audit", "keygen", self.path("key"))
        p = self.exporting("--set=export_events.sign_key_file=" + self.path("key"))
        self.talk(3 * SIZE)
        self.until_checkpoint(p, 3 * SIZE - 1)
        head = p.api("GET", "/exports/{dataset}/head", dataset="job_events")
        self.assertTrue(head["signed"])
        self.end(p)
        self.write("head", head["text"].encode())
        args = ["audit", "verify", self.out, "--dataset=job_events", "--checkpoint=" + self.path("head"),
                "--public-key=" + self.path("key.pub")]
        self.ok(*args)
        events, = glob.glob(os.path.join(self.out, "job_events", "_audit", "*.jsonl"))
        with open(events, "rb") as f:
            lines = f.read().splitlines(keepends=True)
        with open(events, "wb") as f:
            f.writelines(lines[:-1])
        os.remove(sorted(glob.glob(os.path.join(self.out, "job_events", "*", "*.parquet")))[-1])
        for name in glob.glob(os.path.join(self.out, "_catalog.db*")):
            os.remove(name)
        self.ok("audit", "verify", self.out, "--dataset=job_events")  # by itself it looks whole
        self.assertEqual(self.sluice(*args).code, 65)

    def test_who_may_only_read_sees_but_does_not_verify(self):
        tokens = {role: f"{role}-token-of-a-length-that-will-do" for role in ("read", "write")}
        lines = [f"{r} {r} sha256:{hashlib.sha256(t.encode()).hexdigest()}\n" for r, t in tokens.items()]
        self.write("tokens", "".join(lines).encode())
        os.chmod(self.path("tokens"), 0o600)
        self.talk(SIZE)
        p = self.exporting("--tokens=" + self.path("tokens"))
        with_token = {r: Api(p.url, DOCUMENT, {"Authorization": "Bearer " + t}) for r, t in tokens.items()}
        p.api.refused("GET", "/exports", status=401)
        p.api = with_token["read"]
        self.until_checkpoint(p, SIZE - 1)
        p.api.refused("POST", "/exports/{dataset}/verify", dataset="job_events", status=403)
        with_token["write"]("POST", "/exports/{dataset}/verify", dataset="job_events", status=202)
        self.end(p)


if __name__ == "__main__":
    servertest.main()
