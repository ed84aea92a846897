# SPDX-License-Identifier: Apache-2.0
"""sluice audit: an export is verified, shown, its head signed; what was changed is named."""

import json
import os
import signal
import stat

from clitest import main
from exporttest import ExportTest
from shiptest import Endpoint


class Audit(ExportTest):
    def setUp(self):
        super().setUp()
        self.write("in.csv", self.ledger(5, 37))
        self.export("in.csv", "--partition-size", "10")
        self.lake = self.path("lake")

    def audit(self, word, *args, **more):
        return self.sluice("audit", word, self.lake, "--dataset", "d", *args, **more)

    def parquet(self, number):
        return os.path.join(self.lake, self.files()[number])

    def flip(self, path, at=100):
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 1]))

    def head(self, *args):
        r = self.audit("head", *args)
        self.assertEqual(r.code, 0, r.err)
        return r.out

    def test_an_untouched_export_is_fine(self):
        r = self.audit("verify")
        self.assertEqual(r.code, 0, r.err)
        self.assertIn("ok: 5 to 37, 33 rows in 4 partitions", r.text)
        self.assertIn("catalog checked", r.text)
        self.assertEqual(r.err, b"")
        j = self.audit("verify", "--json").json()[0]
        self.assertEqual((j["ok"], j["findings"], j["events"], j["rows"], j["start"], j["checkpoint"], j["catalog_checked"]),
                         (True, [], 4, 33, 5, 37, True))
        self.assertEqual(j["head"], json.loads(self.head())["event_hash"])

    def test_a_flipped_byte_is_named_by_its_path(self):
        path = self.parquet(2)
        self.flip(path)
        r = self.audit("verify")
        self.assertEqual(r.code, 65)
        self.assertTrue(r.lines()[0].startswith(path + ": "), r.text)
        self.assertEqual(len(r.errors.splitlines()), 1)
        j = self.audit("verify", "--json").json()[0]
        self.assertFalse(j["ok"])
        self.assertEqual([(f["fault"], f["path"], f["event"], f["note"]) for f in j["findings"]], [("hash", path, 3, False)])

    def test_all_names_everything_in_the_order_of_the_chain(self):
        for i in (3, 0, 2):
            self.flip(self.parquet(i))
        self.assertEqual(len(self.audit("verify").lines()), 1)
        r = self.audit("verify", "--all", "--threads", "3")
        self.assertEqual(r.code, 65)
        self.assertEqual([line.split(": ")[0] for line in r.lines()], [self.parquet(i) for i in (0, 2, 3)])
        self.assertIn("3 findings", r.errors)

    def test_a_cut_tail_is_found_by_a_head_that_was_kept(self):
        self.ok("audit", "keygen", "k")
        self.write("head", self.head("--key-file", "k"))
        events = os.path.join(self.lake, "d", "_audit", "events-00000000000000000001.jsonl")
        with open(events, "rb") as f:
            lines = f.read().splitlines(True)
        with open(events, "wb") as f:
            f.writelines(lines[:-1])
        os.unlink(self.parquet(3))
        self.assertEqual(self.audit("verify", "--no-catalog").code, 0)
        r = self.audit("verify", "--no-catalog", "--checkpoint", "head", "--public-key", "k.pub")
        self.assertEqual(r.code, 65)
        self.assertIn("its end is missing", r.text)
        self.assertEqual(self.audit("verify").code, 65)  # the catalog still knows

    def test_a_head_is_signed_and_its_signature_checked(self):
        r = self.ok("audit", "keygen", "k")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("k")).st_mode), 0o600)
        secret = self.read("k").split(b":")[1].strip()
        public = self.read("k.pub").split(b":")[1].strip()
        self.assertNotIn(secret, r.out + r.err)
        self.assertIn(public, r.out)
        self.fails(73, "audit", "keygen", "k", says="k")
        self.assertEqual(self.read("k").split(b":")[1].strip(), secret)
        self.assertEqual(self.ok("audit", "keygen", "--json", "k2").json()[0]["key_file"], "k2")
        self.assertEqual(self.audit("head", "--key-file", "k", "--out", "head").code, 0)
        head = json.loads(self.read("head"))
        self.assertEqual((head["events"], head["checkpoint"], head["dataset"], head["public_key"]),
                         ("4", "37", "d", public.decode()))
        r = self.audit("verify", "--checkpoint", "head", "--public-key", "k.pub")
        self.assertEqual(r.code, 0, r.err)
        self.assertIn("signed head found", r.text)
        r = self.audit("verify", "--checkpoint", "head", "--public-key", "k2.pub")
        self.assertEqual(r.code, 65)
        self.assertIn("another key", r.text)
        self.write("plain", self.head())
        self.assertEqual(self.audit("verify", "--checkpoint", "plain").code, 0)
        self.assertEqual(self.audit("verify", "--checkpoint", "plain", "--public-key", "k.pub").code, 65)

    def test_keys_that_are_wrong_are_status_78_and_never_shown(self):
        self.ok("audit", "keygen", "k")
        secret = self.read("k").split(b":")[1].strip()
        os.chmod(self.path("k"), 0o640)
        r = self.audit("head", "--key-file", "k")
        self.assertEqual(r.code, 78)
        self.assertIn("chmod 600", r.errors)
        self.assertNotIn(secret, r.err + r.out)
        os.chmod(self.path("k"), 0o600)
        self.assertEqual(self.audit("head", "--key-file", "k.pub").code, 78)
        self.assertEqual(self.audit("head", "--key-file", "nothing").code, 78)
        os.symlink("k", self.path("link"))
        self.assertEqual(self.audit("head", "--key-file", "link").code, 78)
        self.write("head", self.head())
        self.assertEqual(self.audit("verify", "--checkpoint", "head", "--public-key", "k").code, 78)

    def test_events_are_shown(self):
        r = self.audit("show")
        self.assertEqual(r.code, 0, r.err)
        self.assertEqual(len(r.lines()), 5)
        self.assertEqual(r.lines()[0].split(), ["EVENT", "HASH", "TYPE", "FROM", "TO", "ROWS", "HOLES", "BAD", "SIZE", "FILE"])
        self.assertEqual(r.lines()[2].split()[2:6], ["partition", "10", "19", "10"])
        events = self.audit("show", "--json").json()
        self.assertEqual([e["number"] for e in events], ["1", "2", "3", "4"])
        self.assertTrue(all(b["chain"]["prev_event_hash"] == a["chain"]["event_hash"] for a, b in zip(events, events[1:])))
        self.assertEqual([e["number"] for e in self.audit("show", "--json", "--after", "1", "--limit", "2").json()], ["2", "3"])
        self.flip(os.path.join(self.lake, "d", "_audit", "events-00000000000000000001.jsonl"), 1000)
        r = self.audit("show")
        self.assertEqual(r.code, 65)
        self.assertIn("events-", r.errors)

    def test_what_is_not_there_is_reported(self):
        self.assertEqual(self.sluice("audit", "verify", self.lake, "--dataset", "x").code, 74)
        self.assertEqual(self.sluice("audit", "show", "nowhere", "--dataset", "d").code, 74)
        self.assertEqual(self.sluice("audit", "verify", self.lake, "--dataset", "../d").code, 64)
        self.assertEqual(self.audit("verify", "--public-key", "k").code, 64)
        self.assertEqual(self.audit("verify", "--catalog", "sqlite:x", "--no-catalog").code, 64)
        self.assertEqual(self.audit("verify", "--catalog", "sqlite:not.db").code, 69)
        self.assertEqual(self.audit("verify", "--checkpoint", "nothing").code, 74)
        j = self.sluice("audit", "verify", self.lake, "--dataset", "x", "--json").json()[0]
        self.assertEqual((j["ok"], j["code"]), (False, "ENOENT"))

    def test_a_dataset_that_never_held_anything_is_not_there(self):
        self.write("e.csv", b"")
        self.assertEqual(self.sluice("export", "--from", "e.csv", "--to", "empty", "--dataset", "e").code, 65)
        self.fails(74, "audit", "verify", "empty", "--dataset", "e", says="no dataset e")
        os.makedirs(self.path("empty", "e"))
        self.fails(74, "audit", "verify", "empty", "--dataset", "e", says="no dataset e")
        self.write("empty/e/x", b"")
        self.assertEqual(self.sluice("audit", "verify", "empty", "--dataset", "e").code, 65)

    def test_a_dataset_that_holds_nothing_yet_is_reported_as_empty(self):
        self.write("e.csv", self.ledger(1, 0))
        self.ok("export", "--from", "e.csv", "--to", "empty", "--dataset", "e", "--schema", self.schema())
        r = self.ok("audit", "verify", "empty", "--dataset", "e")
        self.assertEqual(r.lines(), ["empty/e: ok: nothing is committed yet"])
        self.assertEqual(self.ok("audit", "verify", "empty", "--dataset", "e", "--json").json()[0]["events"], 0)

    def test_rows_that_were_diverted_are_counted(self):
        self.write("bad.csv", self.ledger(1, 20) + b"21,x,no number,2024-01-01T00:00:00Z\n" + self.ledger(22, 25, header=False))
        self.sluice("export", "--from", "bad.csv", "--to", "lake", "--dataset", "b", "--schema", self.schema(), "--bad-rows", "divert")
        r = self.ok("audit", "verify", "lake", "--dataset", "b")
        self.assertRegex(r.lines()[0], "ok: 1 to 25, 24 rows in 1 partition, .*, 1 bad row diverted$")
        self.assertNotIn("diverted", self.audit("verify").text)

    def test_an_interrupted_verification_is_reported_to_machines(self):
        for i in range(4000):  # more than a pipe holds: it waits to be read
            self.write(f"lake/d/stranger-{i:04}", b"")
        p = self.start("audit", "verify", self.lake, "--dataset", "d", "--all", "--json")
        begin = os.read(p.stdout.fileno(), 1)
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=60)
        j = json.loads(begin + out)
        self.assertEqual((p.returncode, j["ok"], j["code"]), (75, False, "ECANCELLED"))
        self.assertIn("interrupted", j["error"])

    def test_what_an_endpoint_has_accepted_is_counted(self):
        def accepted():
            return json.loads(self.ok("export", "status", "lake", "--dataset", "d", "--json").out)["delivered_endpoint"]

        self.assertEqual(accepted(), 0)
        endpoint = Endpoint(self)
        self.write("in.csv", self.ledger(5, 47))
        self.export("in.csv", "--audit-url", endpoint.url)
        self.assertEqual((accepted(), len(endpoint.rows)), (6, 6))
        self.assertNotIn("endpoint", self.ok("export", "status", "lake").text)
        self.write("in.csv", self.ledger(5, 67))
        self.export("in.csv")
        self.assertEqual(accepted(), 6)
        self.assertIn("not accepted   3 audit events by the endpoint", self.ok("export", "status", "lake").text)

    def test_what_cannot_be_made_is_status_73(self):
        self.fails(73, "audit", "keygen", "nowhere/k", says="nowhere/k")
        self.fails(73, "audit", "head", self.lake, "--dataset", "d", "--out", "nowhere/x", says="nowhere/x")
        self.write("file", b"")
        self.fails(73, "audit", "keygen", "file/k", says="file/k")
        self.fails(73, "audit", "head", self.lake, "--dataset", "d", "--out", "file/x", says="file/x")
        os.mkdir(self.path("folder"))
        self.fails(73, "audit", "head", self.lake, "--dataset", "d", "--out", "folder", says="folder")
        self.assertEqual(os.listdir(self.path("folder")), [])

    def test_names_of_files_cannot_move_the_cursor(self):
        with open(os.path.join(self.lake, "d", "x\x1b[2Jy"), "wb"):
            pass
        r = self.audit("verify")
        self.assertEqual(r.code, 65)
        self.assertTrue(all(c == "\n" or c.isprintable() for c in r.text))
        self.assertEqual(self.audit("verify", "--json").json()[0]["findings"][0]["fault"], "unknown")

    def test_an_export_that_continues_is_no_fault(self):
        p = self.start("export", "--from", "-", "--format", "csv", "--to", "running", "--dataset", "d", "--partition-size", "2",
                       "--schema", self.schema())
        p.stdin.write(self.ledger(1, 8))
        p.stdin.flush()
        self.until(lambda: os.path.exists(self.path("running", "d", "_audit")), p)
        for first in range(9, 1009, 40):
            p.stdin.write(self.ledger(first, first + 39, header=False))
            p.stdin.flush()
            r = self.sluice("audit", "verify", "running", "--dataset", "d")
            self.assertEqual(r.code, 0, (r.out, r.err))
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0)
        self.assertIn("ok: 1 to 1008", self.ok("audit", "verify", "running", "--dataset", "d").text)

    def test_verifying_changes_nothing(self):
        before = self.everything_with_times()
        self.audit("verify")
        self.audit("show")
        self.audit("head")
        self.assertEqual(self.everything_with_times(), before)

    def everything_with_times(self):
        found = {}
        for root, _, names in os.walk(self.lake):
            for n in names:
                # The index of SQLite's log is for readers, too.
                if not n.endswith("-shm"):
                    s = os.stat(os.path.join(root, n))
                    found[os.path.join(root, n)] = (s.st_size, s.st_mtime_ns)
        return found


if __name__ == "__main__":
    main()
