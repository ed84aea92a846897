# SPDX-License-Identifier: Apache-2.0
"""sluice wal recover, archive and cleanup: what changes files, and what it never loses."""

import json
import os
import time

import walfmt
from clitest import CliTest, main

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
DAY_MS = 86400000


def flip(data, at):
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


class Recover(CliTest):
    def damaged(self):
        """Six records, the third of them damaged; its bytes and its offset."""
        parts = [walfmt.header(incarnation=0x5A17C3)] + [walfmt.record(n, b"payload %d" % n) for n in range(1, 7)]
        parts[3] = flip(parts[3], 30)
        self.write("x.wal", b"".join(parts))
        return parts[3], len(b"".join(parts[:3]))

    def test_salvage_keeps_every_good_record_and_the_damaged_bytes(self):
        bad, offset = self.damaged()
        r = self.ok("wal", "recover", "x.wal")
        self.assertIn(f"damaged: x.wal at {offset}, {len(bad)} bytes", r.text)
        self.assertIn("recovered: 5 records", r.text)
        self.assertEqual(self.read(f"x.wal.damaged-{offset}"), bad)
        self.assertEqual(list(self.records("x.wal")), [1, 2, 4, 5, 6])
        o = self.ok("wal", "verify", "--json", "x.wal").json()[0]
        self.assertEqual([(g["kind"], g["first_missing"], g["last_missing"]) for g in o["ranges"]], [("hole", 3, 3)])
        self.assertEqual([e.sequence for e in self.read_by_format("x.wal")], [1, 2, 4, 5, 6])

    def test_twice_is_the_same_as_once(self):
        self.damaged()
        self.ok("wal", "recover", "x.wal")
        first = {n: self.read(n) for n in os.listdir(self.dir)}
        r = self.ok("wal", "recover", "--json", "x.wal").json()[0]
        self.assertTrue(r["ok"])
        self.assertNotIn("damage", [g["kind"] for g in r["ranges"]])
        self.assertEqual({n: self.read(n) for n in os.listdir(self.dir)}, first)

    def test_truncate_cuts_at_the_first_damage_and_keeps_what_it_cut(self):
        _, offset = self.damaged()
        before = self.read("x.wal")
        r = self.ok("wal", "recover", "--on-corruption=truncate", "x.wal")
        self.assertIn("1 damaged range quarantined", r.errors)
        self.assertIn("3 good records after the damage cut off", r.errors)
        self.assertEqual(list(self.records("x.wal")), [1, 2])
        aside = [n for n in os.listdir(self.dir) if n != "x.wal"]
        self.assertEqual(len(aside), 1)
        self.assertEqual(self.read(aside[0]), before[offset:])

    def test_json_counts_the_good_records_that_were_cut(self):
        for what, cut in [("truncate", 3), ("salvage", 0)]:
            self.damaged()
            r = self.ok("wal", "recover", "--json", f"--on-corruption={what}", "x.wal")
            self.assertEqual(r.json()[0]["cut_records"], cut)
            self.assertEqual("cut off" in r.errors, cut > 0)

    def test_refuse_changes_nothing(self):
        self.damaged()
        before = self.read("x.wal")
        self.fails(65, "wal", "recover", "--on-corruption=refuse", "x.wal", says="x.wal")
        self.assertEqual(self.read("x.wal"), before)
        self.assertEqual([n for n in os.listdir(self.dir) if "damaged" in n], [])

    def test_json_has_the_ranges_and_the_counts_afterwards(self):
        bad, offset = self.damaged()
        o = self.ok("wal", "recover", "--json", "x.wal").json()[0]
        self.assertEqual((o["ok"], o["records"], o["holes"], o["last_sequence"]), (True, 5, 1, 6))
        g = [g for g in o["ranges"] if g["kind"] == "damage"]
        self.assertEqual([(x["offset"], x["length"], x["first_missing"]) for x in g], [(offset, len(bad), 3)])

    def test_the_library_s_records_are_logfmt_or_json_lines(self):
        _, offset = self.damaged()
        before = self.read("x.wal")
        r = self.ok("wal", "recover", "x.wal")
        self.assertRegex(r.errors, rf"(?m)^ts=\S+ level=\w+ component=wal msg=.* offset={offset} .*expected_crc=\S+ actual_crc=")
        self.write("y.wal", before)
        records = [json.loads(line) for line in self.ok("wal", "recover", "--log-format=json", "y.wal").errors.splitlines()]
        self.assertIn(offset, [o.get("offset") for o in records])
        self.assertEqual({o["component"] for o in records}, {"wal", "sluice"})

    def test_a_torn_tail_is_trimmed_and_kept(self):
        torn = walfmt.record(3, b"three")[:-3]
        self.write("x.wal", walfmt.log([b"one", b"two"]) + torn)
        r = self.ok("wal", "recover", "--on-corruption=refuse", "x.wal")
        self.assertIn("torn tail", r.text)
        self.assertEqual(self.read("x.wal"), walfmt.log([b"one", b"two"]))
        self.assertIn(torn, [self.read(n) for n in os.listdir(self.dir)])

    def test_a_flipped_bit_in_the_header_is_repaired(self):
        good = walfmt.log([b"one", b"two"], incarnation=0x5A17C3)
        for at in [0, 8, 13, 15]:
            with self.subTest(at=at):
                self.write("x.wal", flip(good, at))
                self.sluice("wal", "verify", "x.wal")
                self.ok("wal", "recover", "x.wal")
                self.assertEqual(self.read("x.wal")[: len(good)], good)  # then the record of a clean close

    def test_a_new_incarnation_keeps_records_and_makes_them_pending(self):
        self.write("x.wal", walfmt.log([b"one", b"two"], incarnation=0x5A17C3))
        self.ok("wal", "recover", "--new-incarnation", "x.wal")
        o = self.ok("wal", "stat", "--json", "x.wal").json()[0]
        self.assertNotIn(o["incarnation"], (0, 0x5A17C3))
        self.assertEqual((o["pending"], list(self.records("x.wal").values())), (2, [b"one", b"two"]))

    def test_what_is_not_there_is_not_made(self):
        self.one_line(self.fails(74, "wal", "recover", "x.wal", says="x.wal"))
        self.assertEqual(os.listdir(self.dir), [])
        self.fails(64, "wal", "recover", "x.log", says="x.log.wal")
        self.write("e.wal", b"")
        self.write("t.wal", b"not a log, but something that a person needs\n")
        for name in ["e.wal", "t.wal"]:
            before = self.read(name)
            self.fails(65, "wal", "recover", name, says=name)
            self.assertEqual(self.read(name), before)


class Archive(CliTest):
    def test_a_delivered_log_becomes_a_plain_zstd_frame_and_is_removed(self):
        self.write("x.wal", walfmt.log([b"one", b"two"]) + walfmt.mark(walfmt.SENT, 2, first=1))
        self.assertEqual(self.ok("wal", "archive", "x.wal", "--to", "a").text, "a/x.wal.zst\n")
        self.assertFalse(os.path.exists(self.path("x.wal")))
        data = self.read("a/x.wal.zst")
        self.assertEqual(data[:4], ZSTD_MAGIC)
        self.assertEqual(os.stat(self.path("a/x.wal.zst")).st_mode & 0o777, 0o600)
        r = self.ok("wal", "dump", "--json", "a/x.wal.zst").json()
        self.assertEqual([(o["sequence"], o["status"]) for o in r], [(1, "sent"), (2, "sent")])

    def test_pending_records_keep_a_log_from_being_archived(self):
        self.ok("wal", "append", "x.wal", stdin=b"one\n")
        before = self.read("x.wal")
        self.one_line(self.fails(75, "wal", "archive", "x.wal", "--to", "a", says=["pending", "--include-pending"]))
        self.assertEqual(self.read("x.wal"), before)
        self.assertEqual(self.ok("wal", "archive", "x.wal", "--to=a/", "--include-pending").text, "a/x.wal.zst\n")
        self.assertEqual(self.records("a/x.wal.zst"), {1: b"one"})

    def test_every_segment_is_archived_and_printed(self):
        lines = [b"line %d" % n for n in range(1, 501)]
        self.ok("wal", "append", "--segment-bytes=4KiB", "x.wal", stdin=b"\n".join(lines))
        segments = self.segments("x.wal")
        r = self.ok("wal", "archive", "x.wal", "--to", "a", "--include-pending")
        self.assertEqual(sorted(r.lines()), sorted(f"a/{s}.zst" for s in segments))
        found = {}
        for path in r.lines():
            found.update(self.records(path))
        self.assertEqual([found[n] for n in sorted(found)], lines)
        self.assertEqual([n for n in os.listdir(self.dir) if n.startswith("x.wal")], [])

    def test_an_archive_that_is_there_is_never_replaced(self):
        for text in [b"first\n", b"second\n"]:
            self.ok("wal", "append", "x.wal", stdin=text)
            r = self.ok("wal", "archive", "x.wal", "--to", "a", "--include-pending")
            self.assertEqual(len(r.lines()), 1)
            self.assertEqual(list(self.records(r.lines()[0]).values()), [text.strip()])
        self.assertEqual(len(os.listdir(self.path("a"))), 2)

    def test_running_it_again_after_a_crash_finishes_it(self):
        self.ok("wal", "append", "x.wal", stdin=b"one\n")
        log = self.read("x.wal")
        self.ok("wal", "archive", "x.wal", "--to", "a", "--include-pending")
        self.write("x.wal", log)  # as if the crash came before the removal
        self.assertEqual(self.ok("wal", "archive", "x.wal", "--to", "a", "--include-pending").text, "a/x.wal.zst\n")
        self.assertFalse(os.path.exists(self.path("x.wal")))
        self.assertEqual(os.listdir(self.path("a")), ["x.wal.zst"])

    def test_a_missing_log_and_a_folder_that_cannot_be_made_are_distinguished(self):
        self.one_line(self.fails(74, "wal", "archive", "x.wal", "--to", "a", says="x.wal"))
        self.ok("wal", "append", "x.wal", stdin=b"one\n")
        self.write("file", b"")
        for to in ["no/such/dir", "file", "file/dir"]:
            with self.subTest(to=to):
                self.one_line(self.fails(73, "wal", "archive", "x.wal", "--to", to, "--include-pending", says=to))
                self.assertEqual(self.records("x.wal"), {1: b"one"})


class Cleanup(CliTest):
    def setUp(self):
        super().setUp()
        now = int(time.time() * 1000)
        for name, days in [("old", 40), ("older", 400), ("young", 1)]:
            self.write(f"{name}.wal", walfmt.header() + walfmt.record(1, b"x", timestamp_ms=now - days * DAY_MS)
                       + walfmt.mark(walfmt.SENT, 1, timestamp_ms=now - days * DAY_MS))
            self.ok("wal", "archive", f"{name}.wal", "--to", "a")
        self.write("a/notes.txt", b"mine")
        self.write("a/foreign.zst", b"mine too")

    def names(self):
        return sorted(os.listdir(self.path("a")))

    def test_old_archives_go_and_everything_else_stays(self):
        r = self.ok("wal", "cleanup", "a", "--retention-days", "30")
        self.assertEqual(self.names(), ["foreign.zst", "notes.txt", "young.wal.zst"])
        self.assertIn("removed old.wal.zst (", r.text)
        self.assertIn("2 archives removed", r.text)

    def test_a_dry_run_removes_nothing(self):
        before = self.names()
        r = self.ok("wal", "cleanup", "a", "--retention-days=30", "--dry-run")
        self.assertEqual(self.names(), before)
        self.assertIn("would remove old.wal.zst (", r.text)
        self.assertIn("2 archives due", r.text)

    def test_json_has_one_object_an_archive(self):
        r = self.ok("wal", "cleanup", "a", "--retention-days=30", "--json").json()
        self.assertEqual(sorted((o["name"], o["removed"]) for o in r), [("old.wal.zst", True), ("older.wal.zst", True)])
        for o in r:
            self.assertGreater(o["bytes"], 0)
            self.assertLess(o["last_record_ms"], time.time() * 1000 - 39 * DAY_MS)

    def test_days_are_checked_and_a_missing_folder_is_empty(self):
        self.fails(64, "wal", "cleanup", "a", "--retention-days=-1", says=["--retention-days", "0 to 36500"])
        r = self.ok("wal", "cleanup", "none", "--retention-days=1")
        self.assertIn("none does not exist", r.errors)
        self.assertIn("0 archives", r.text)


if __name__ == "__main__":
    main()
