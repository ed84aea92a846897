# SPDX-License-Identifier: Apache-2.0
"""sluice wal dump, verify and stat: reading logs of this and other programs, sound and damaged, and changing nothing."""

import base64
import json
import os
import random
import signal
import subprocess
import time

import walfmt
from clitest import SLUICE, TIMEOUT, CliTest, main

READERS = ["dump", "verify", "stat"]
T0 = 1704067200000


def flip(data, at, bit=0x01):
    changed = bytearray(data)
    changed[at] ^= bit
    return bytes(changed)


class Dump(CliTest):
    def test_a_foreign_log_is_dumped_field_by_field(self):
        payloads = [b"hello", b"", b"\xff\0\n"]
        self.write("x.wal", walfmt.header() + b"".join(
            walfmt.record(n + 1, p, timestamp_ms=T0 + n) for n, p in enumerate(payloads)))
        expected, offset = [], 16
        for n, p in enumerate(payloads):
            expected.append({"offset": offset, "length": len(p) + 28, "sequence": n + 1, "status": "pending",
                             "timestamp_ms": T0 + n, "payload_b64": base64.b64encode(p).decode()})
            offset += len(p) + 32
        r = self.ok("wal", "dump", "--json", "x.wal")
        self.assertEqual(r.json(), expected)
        self.assertEqual([list(o) for o in r.json()], [list(expected[0])] * 3)
        self.assertEqual(r.err, b"")

    def test_the_effective_status_is_shown_and_status_records_are_not(self):
        data = walfmt.log([b"%d" % n for n in range(1, 9)])
        data += walfmt.mark(walfmt.SENT, 4, first=1) + walfmt.mark(walfmt.FAILED, 6) + walfmt.mark(walfmt.FAILED, 2)
        data += walfmt.mark(walfmt.SENT, 2)
        self.write("x.wal", data)
        r = self.ok("wal", "dump", "--json", "x.wal").json()
        self.assertEqual([o["status"] for o in r],
                         ["sent", "sent", "sent", "sent", "pending", "failed", "pending", "pending"])
        self.assertEqual([(o["sequence"], o["status"]) for o in r],
                         [(e.sequence, walfmt.STATUS_NAMES[e.status]) for e in self.read_by_format("x.wal")])

    def test_text_is_readable_and_cannot_move_the_cursor(self):
        self.write("x.wal", walfmt.log([b"plain", b"\x1b[2Jevil\x07\xff\"\\", "gr\u00fc\u00df \u202e".encode(), b"z" * 500]))
        r = self.ok("wal", "dump", "--utc", "x.wal")
        lines = r.lines()
        self.assertEqual(len(lines), 4)
        self.assertRegex(lines[0], r'^1  2024-01-01 00:00:00Z  pending  x\.wal@16  5 bytes  "plain"$')
        self.assertIn(r'"\x1b[2Jevil\x07\xff\"\\"', lines[1])
        self.assertIn("grüß \\xe2\\x80\\xae", lines[2])
        self.assertIn("500 bytes", lines[3])
        self.assertLess(len(lines[3]), 250)
        self.assertTrue(all(c == "\n" or c.isprintable() for c in r.text))

    def test_any_64_bit_timestamp_is_printed(self):
        for t in [0, -1, 2**63 - 1, -2**63, 253402300799999]:
            with self.subTest(t=t):
                self.write("x.wal", walfmt.header() + walfmt.record(1, b"x", timestamp_ms=t))
                self.assertEqual(self.ok("wal", "dump", "-j", "x.wal").json()[0]["timestamp_ms"], t)
                self.ok("wal", "dump", "x.wal")
                self.ok("wal", "stat", "x.wal")

    def test_all_valid_records_of_a_damaged_log_are_printed_with_status_65(self):
        parts = [walfmt.header()] + [walfmt.record(n, b"payload %d" % n) for n in range(1, 8)]
        parts[3] = flip(parts[3], 30)
        parts[6] = flip(parts[6], 25)
        self.write("x.wal", b"".join(parts))
        r = self.fails(65, "wal", "dump", "--json", "x.wal", says="2 damaged ranges")
        self.assertEqual([o["sequence"] for o in r.json()], [1, 2, 4, 5, 7])
        for n in (3, 6):
            self.assertIn(f"x.wal at {len(b''.join(parts[:n]))}, {len(parts[n])} bytes", r.errors)

    def test_a_torn_tail_is_not_damage(self):
        whole = walfmt.log([b"one", b"two"])
        torn = walfmt.record(3, b"three")
        for cut in [1, 4, 20, len(torn) - 1]:
            with self.subTest(cut=cut):
                self.write("x.wal", whole + torn[:cut])
                self.assertEqual(len(self.ok("wal", "dump", "x.wal").lines()), 2)
                self.assertIn("torn tail", self.ok("wal", "verify", "x.wal").text)
                self.assertEqual(self.ok("wal", "stat", "--json", "x.wal").json()[0]["torn_bytes"],
                                 len(torn[:cut].rstrip(b"\0")))

    def test_quiet_hides_warnings_and_keeps_errors(self):
        self.write("x.wal", walfmt.log([b"one"]) + b"torn")
        self.assertIn("torn tail", self.ok("wal", "dump", "x.wal").errors)
        self.assertEqual(self.ok("wal", "dump", "--quiet", "x.wal").err, b"")
        self.assertEqual(self.ok("wal", "dump", "--log-level=error", "x.wal").err, b"")
        self.fails(74, "wal", "dump", "--quiet", "missing.wal", says="missing.wal")

    def test_zeros_after_the_last_record_are_the_end(self):
        self.write("x.wal", walfmt.log([b"one"]) + bytes(100000))
        self.assertEqual(self.records("x.wal"), {1: b"one"})
        self.assertNotIn("torn", self.ok("wal", "verify", "x.wal").text)

    def test_a_broken_pipe_ends_a_dump_quietly(self):
        self.write("x.wal", walfmt.log([b"x" * 1000] * 500))
        p = self.start("wal", "dump", "--json", "x.wal")
        p.stdout.readline()
        p.stdout.close()
        self.assertEqual(p.wait(TIMEOUT), 141)
        self.assertEqual(p.stderr.read(), b"")

    def test_SIGTERM_ends_a_dump_with_status_75(self):
        self.write("x.wal", walfmt.log([b"x" * 1000] * 500))
        p = self.start("wal", "dump", "--json", "x.wal")
        p.stdout.read(1)  # it runs, and more than a pipe holds is still to come
        p.send_signal(signal.SIGTERM)
        p.stdout.read()
        self.assertEqual(p.wait(TIMEOUT), 75)
        self.assertIn(b"interrupted", p.stderr.read())


class Verify(CliTest):
    def snapshot(self):
        return {n: (self.read(n), os.stat(self.path(n)).st_mtime_ns) for n in os.listdir(self.dir)}

    def test_a_sound_log_gives_a_summary_and_nothing_changes(self):
        data = walfmt.log([b"one", b"two", b"three"]) + walfmt.mark(walfmt.SENT, 1)
        path = self.write("x.wal", data)
        os.utime(path, (1000000000, 1000000000))
        before = self.snapshot()
        r = self.ok("wal", "verify", "x.wal")
        self.assertEqual(r.text, f"x.wal: ok: 3 records (2 pending, 1 sent, 0 failed), sequences 1 to 3, {len(data)} B in 1 segment\n")
        self.assertEqual(r.err, b"")
        self.assertEqual(self.snapshot(), before)

    def test_names_of_folders_are_escaped(self):
        os.mkdir(self.path("a\n\x1b[2Jb"))
        path = os.path.join("a\n\x1b[2Jb", "x.wal")
        self.write(path, walfmt.header() + flip(walfmt.record(1, b"one"), 26) + walfmt.record(2, b"two"))
        for text in (self.sluice("wal", "verify", path).text, self.ok("wal", "stat", path).text):
            self.assertIn("a\\n\\x1b[2Jb/x.wal", text)
            self.assertNotIn("\x1b", text)

    def test_every_damaged_range_is_reported_and_nothing_changes(self):
        parts = [walfmt.header()] + [walfmt.record(n, b"payload %d" % n) for n in range(1, 8)]
        parts[2] = flip(parts[2], 26)
        parts[5] = flip(parts[5], len(parts[5]) - 1)
        path = self.write("x.wal", b"".join(parts) + walfmt.record(8, b"torn")[:13])
        os.utime(path, (1000000000, 1000000000))
        before = self.snapshot()
        r = self.fails(65, "wal", "verify", "x.wal", says=["x.wal", "2 damaged ranges"])
        damaged = [line for line in r.lines() if line.startswith("damaged: ")]
        self.assertEqual(len(damaged), 2)
        for n, line in zip((2, 5), damaged):
            self.assertIn(f"x.wal at {len(b''.join(parts[:n]))}, {len(parts[n])} bytes", line)
            self.assertIn(f"sequence {n} is missing", line)
            self.assertRegex(line, r"CRC [0-9a-f]{16} expected, [0-9a-f]{16} found")
        self.assertEqual(len([line for line in r.lines() if line.startswith("torn tail: ")]), 1)
        self.assertEqual(self.snapshot(), before)

        o = self.sluice("wal", "verify", "--json", "x.wal").json()[0]
        self.assertEqual([g["kind"] for g in o["ranges"]], ["damage", "damage", "torn_tail"])
        self.assertEqual([g["first_missing"] for g in o["ranges"][:2]], [2, 5])
        self.assertEqual((o["ok"], o["file"], o["records"], o["damaged_ranges"], o["torn_bytes"]), (False, "x.wal", 5, 2, 13))
        body = parts[5][4:-8]
        self.assertEqual(int(o["ranges"][1]["actual_crc"], 16), walfmt.crc64nvme(body))
        self.assertEqual(int(o["ranges"][1]["expected_crc"], 16), walfmt.crc64nvme(body) ^ 1 << 56)

    def test_a_declared_hole_is_skipped_and_reported(self):
        self.write("x.wal", walfmt.header() + walfmt.record(1, b"one") + walfmt.mark(walfmt.FAILED, 4, first=2)
                   + walfmt.record(5, b"five"))
        r = self.ok("wal", "verify", "x.wal")
        self.assertIn("declared hole", r.text)
        self.assertIn("sequences 2 to 4 are missing", r.text)
        o = self.ok("wal", "verify", "--json", "x.wal").json()[0]
        self.assertEqual((o["ok"], o["holes"], o["records"], o["last_sequence"]), (True, 3, 2, 5))
        self.assertEqual([(g["kind"], g["first_missing"], g["last_missing"]) for g in o["ranges"]], [("hole", 2, 4)])
        self.assertEqual(list(self.records("x.wal")), [1, 5])

    def test_an_undeclared_gap_is_damage(self):
        self.write("x.wal", walfmt.header() + walfmt.record(1, b"one") + walfmt.record(5, b"five"))
        self.fails(65, "wal", "verify", "x.wal", says="damaged")

    def test_damage_of_the_last_record_of_a_closed_log_is_damage(self):
        self.ok("wal", "append", "x.wal", stdin=b"one\ntwo\nthree\n")
        data = self.read("x.wal")
        last = [r for r in walfmt.parse(data)[2] if r.status == walfmt.DATA][-1]
        self.write("x.wal", flip(data, last.offset + 25))
        crc = walfmt.crc64nvme(data[last.offset + 4 : last.offset + last.length - 4])
        r = self.fails(65, "wal", "verify", "--json", "x.wal")
        found = r.json()[0]["ranges"]
        self.assertEqual([(d["first_missing"], d["last_missing"]) for d in found], [(3, 3)])
        self.assertIn(f"{crc:016x}", r.text)
        self.fails(65, "wal", "recover", "--on-corruption=refuse", "x.wal")
        self.ok("wal", "recover", "x.wal")
        self.assertEqual(self.ok("wal", "append", "x.wal", stdin=b"four\n").out, b"4\n")
        self.assertEqual(self.records("x.wal"), {1: b"one", 2: b"two", 4: b"four"})

    def test_every_flipped_byte_is_noticed(self):
        data = walfmt.log([b"one", b"two", b"three"], incarnation=0x5A17C3)
        good = [b"one", b"two", b"three"]
        last = len(data) - len(walfmt.record(3, b"three"))
        for at in range(0, len(data), 5):
            with self.subTest(at=at):
                self.write("x.wal", flip(data, at, 1 << at % 8))
                r = self.sluice("wal", "verify", "--json", "x.wal")
                if at < last:
                    self.assertEqual(r.code, 65, r.out)
                else:  # nothing after it is valid: as good as never acknowledged, and reported as torn
                    self.assertEqual([g["kind"] for g in r.json()[0]["ranges"]], ["torn_tail"])
                d = self.sluice("wal", "dump", "--json", "x.wal")
                for o in d.json():
                    self.assertEqual(base64.b64decode(o["payload_b64"]), good[o["sequence"] - 1])

    def test_a_log_that_is_being_written_can_be_verified(self):
        p = self.start("wal", "append", "x.wal", bufsize=0)
        p.stdin.write(b"one\n")
        p.stdout.readline()
        self.ok("wal", "verify", "x.wal")
        self.assertEqual(self.records("x.wal"), {1: b"one"})


class Stat(CliTest):
    def test_records_bytes_ages_and_damage_are_counted(self):
        data = walfmt.header(incarnation=0xABCDEF)
        now = int(time.time() * 1000)
        for n in range(1, 6):
            data += walfmt.record(n, b"x" * n, timestamp_ms=now - 3600000 + n)
        data += walfmt.mark(walfmt.SENT, 2, first=1) + walfmt.mark(walfmt.FAILED, 4)
        self.write("x.wal", data)
        o = self.ok("wal", "stat", "--json", "x.wal").json()[0]
        age = o.pop("oldest_pending_age_ms")
        self.assertGreaterEqual(age, 3600000 - 3)
        self.assertLess(age, 3600000 + 600000)
        self.assertEqual(o, {"file": "x.wal", "records": 5, "pending": 2, "sent": 2, "failed": 1, "holes": 0,
                             "bytes": len(data), "pending_bytes": 35 + 37, "first_sequence": 1, "last_sequence": 5,
                             "segments": 1, "incarnation": "abcdef", "version": 1, "damaged_ranges": 0, "torn_bytes": 0,
                             "sent_incarnation": "abcdef", "oldest_pending_ms": now - 3600000 + 3})
        text = self.ok("wal", "stat", "x.wal").text
        for line in ["records         5 (2 pending, 2 sent, 1 failed)", "incarnation     abcdef", "version         1"]:
            self.assertIn(line + "\n", text)
        self.assertIn("oldest pending  1.0 h ago (", text)

    def test_nothing_pending_has_no_age(self):
        self.write("x.wal", walfmt.log([b"one"]) + walfmt.mark(walfmt.SENT, 1))
        o = self.ok("wal", "stat", "--json", "x.wal").json()[0]
        self.assertIsNone(o["oldest_pending_ms"])
        self.assertIsNone(o["oldest_pending_age_ms"])
        self.assertIn("oldest pending  none", self.ok("wal", "stat", "x.wal").text)

    def test_what_is_not_there_is_null_and_one_record_is_no_plural(self):
        self.write("empty.wal", walfmt.header())
        for command in ["stat", "verify"]:
            o = self.ok("wal", command, "--json", "empty.wal").json()[0]
            self.assertEqual([o[k] for k in ["first_sequence", "last_sequence", "incarnation"]], [None] * 3)
        self.write("one.wal", walfmt.log([b"x"], incarnation=0x00ABCD))
        self.assertEqual(self.ok("wal", "stat", "--json", "one.wal").json()[0]["incarnation"], "00abcd")
        self.assertIn("ok: 1 record (1 pending, 0 sent, 0 failed), sequence 1, 49 B in 1 segment",
                      self.ok("wal", "verify", "one.wal").text)
        self.assertIn("  1 byte  ", self.ok("wal", "dump", "one.wal").text)

    def test_damage_is_counted_and_does_not_change_the_status(self):
        parts = [walfmt.header()] + [walfmt.record(n, b"payload %d" % n) for n in range(1, 5)]
        parts[2] = flip(parts[2], 26)
        self.write("x.wal", b"".join(parts))
        o = self.ok("wal", "stat", "--json", "x.wal").json()[0]
        self.assertEqual((o["records"], o["damaged_ranges"]), (3, 1))


class Segments(CliTest):
    def test_the_active_file_of_a_foreign_rotated_log_stands_for_all_of_it(self):
        self.write("x.wal.1", walfmt.log([b"1", b"2"]))
        self.write("x.wal.3", walfmt.log([b"3", b"4"], first=3) + walfmt.mark(walfmt.SENT, 2, first=1))
        self.write("x.wal", walfmt.log([b"5"], first=5) + walfmt.mark(walfmt.SENT, 3))
        r = self.ok("wal", "dump", "--json", "x.wal").json()
        self.assertEqual([o["sequence"] for o in r], [1, 2, 3, 4, 5])
        self.assertEqual([o["status"] for o in r], ["sent", "sent", "sent", "pending", "pending"])
        o = self.ok("wal", "stat", "--json", "x.wal").json()[0]
        self.assertEqual((o["segments"], o["records"], o["pending"], o["first_sequence"], o["last_sequence"]), (3, 5, 2, 1, 5))
        self.ok("wal", "verify", "x.wal")
        self.assertEqual(list(self.records("x.wal.3")), [3, 4])

    def test_a_log_that_rotated_is_read_whole(self):
        lines = [b"line %d" % n for n in range(1, 501)]
        self.ok("wal", "append", "--segment-bytes=4KiB", "x.wal", stdin=b"\n".join(lines))
        self.assertGreater(len(self.segments("x.wal")), 2)
        self.assertEqual(list(self.records("x.wal").values()), lines)
        o = self.ok("wal", "stat", "--json", "x.wal").json()[0]
        self.assertEqual((o["records"], o["segments"]), (500, len(self.segments("x.wal"))))
        self.ok("wal", "verify", "x.wal")

    def test_numbering_continues_after_rotation(self):
        self.ok("wal", "append", "--segment-bytes=4KiB", "x.wal", stdin=b"x" * 3000 + b"\n" + b"y" * 3000 + b"\n")
        self.assertEqual(self.ok("wal", "append", "--segment-bytes=4KiB", "x.wal", stdin=b"z\n").out, b"3\n")

    def test_damage_in_a_sealed_segment_is_found(self):
        parts = [walfmt.header()] + [walfmt.record(n, b"payload %d" % n) for n in range(1, 4)]
        parts[2] = flip(parts[2], 26)
        self.write("x.wal.1", b"".join(parts))
        self.write("x.wal", walfmt.log([b"4"], first=4))
        self.fails(65, "wal", "verify", "x.wal", says="damaged")
        r = self.fails(65, "wal", "dump", "--json", "x.wal", says="x.wal.1 at ")
        self.assertEqual([o["sequence"] for o in r.json()], [1, 3, 4])

    def test_a_lost_segment_is_damage(self):
        self.write("x.wal.1", walfmt.log([b"1", b"2"]))
        self.write("x.wal", walfmt.log([b"5"], first=5))
        self.fails(65, "wal", "verify", "x.wal", says="damaged")


class Archives(CliTest):
    def archive(self):
        self.ok("wal", "append", "x.wal", stdin=b"one\ntwo\n")
        return self.ok("wal", "archive", "x.wal", "--to", "a", "--include-pending").lines()[0]

    def test_an_archive_is_read_like_a_log(self):
        path = self.archive()
        self.assertEqual(path, "a/x.wal.zst")
        self.assertEqual(self.records(path), {1: b"one", 2: b"two"})
        self.assertIn("ok: 2 records", self.ok("wal", "verify", path).text)
        self.assertEqual(self.ok("wal", "stat", "-j", path).json()[0]["records"], 2)

    def bomb(self, name, beginning, byte, n_blocks):
        """A zstd frame of a few KB whose content is that beginning and then the byte, 128 KiB for each block."""
        def block(kind, size, data, last=0):
            return (last | kind << 1 | size << 3).to_bytes(3, "little") + data
        frame = b"\x28\xb5\x2f\xfd\x00\x38" + block(0, len(beginning), beginning)
        frame += block(1, 1 << 17, byte) * (n_blocks - 1) + block(1, 1 << 17, byte, last=1)
        self.write(name, frame)
        self.assertLess(len(frame), 20000)

    def test_a_small_archive_of_a_huge_content_takes_little_memory(self):
        self.ok("wal", "append", "log.wal", stdin=b"one\ntwo\n")
        with open(self.path("log.wal"), "rb") as f:
            log = f.read()
        # 320 MiB, which could not all be allocated.
        for byte, command in ((b"\0", "verify"), (b"\0", "stat"), (b"\0", "dump"), (b"\xff", "dump")):
            self.bomb("bomb.wal.zst", log, byte, 2560)
            r = self.sluice("wal", command, "bomb.wal.zst", under=("prlimit", f"--data={220 << 20}"))
            self.assertEqual(r.code, 0, (command, byte, r.errors))
            if command == "dump":
                self.assertEqual("torn tail" in r.errors, byte == b"\xff")
                self.assertIn("one", r.text)

    def test_a_damaged_archive_is_bad_data(self):
        path = self.archive()
        data = self.read(path)
        for name, bad in [("cut", data[: len(data) // 2]), ("flip", flip(data, len(data) - 3)), ("junk", data + b"junk"),
                          ("text", b"not zstd at all")]:
            for command in READERS:
                with self.subTest(name=name, command=command):
                    self.write("bad.wal.zst", bad)
                    r = self.sluice("wal", command, "bad.wal.zst")
                    self.assertEqual(r.code, 0 if command == "stat" and name != "text" else 65, r.err)
                    self.assertIn("bad.wal.zst", r.errors)

    def big_archive(self):
        """An archive of several blocks: its path, its payloads, and where its blocks end."""
        payloads = [random.Random(n).randbytes(1500) for n in range(300)]
        self.write("y.wal", walfmt.log(payloads))
        path = self.ok("wal", "archive", "y.wal", "--to", "a", "--include-pending").lines()[0]
        data = self.read(path)
        single, size_bytes = data[4] & 0x20, [0, 2, 4, 8][data[4] >> 6]
        at, ends, last = 5 + (0 if single else 1) + (size_bytes or (1 if single else 0)), [], False
        while not last:
            head = int.from_bytes(data[at : at + 3], "little")
            last = head & 1
            at += 3 + (1 if head >> 1 & 3 == 1 else head >> 3)
            ends.append(at)
        self.assertEqual(at + 4, len(data))  # and the checksum
        self.assertGreater(len(ends), 2)
        return path, payloads, ends

    def test_a_cut_archive_shows_what_can_be_decompressed(self):
        path, payloads, ends = self.big_archive()
        data = self.read(path)
        cuts = [20, ends[0] - 1, *ends, ends[0] + 1, ends[1] + 1000, len(data) - 1]
        for cut in cuts:
            with self.subTest(cut=cut):
                self.write("cut.wal.zst", data[:cut])
                whole = min(sum(1 for e in ends if e <= cut) * 128 * 1024, sum(len(p) + 32 for p in payloads) + 16)
                r = self.fails(65, "wal", "dump", "--json", "cut.wal.zst",
                               says=["cut.wal.zst", f"compressed offset {cut}", "decompressed offset", "cut off"])
                found = [base64.b64decode(o["payload_b64"]) for o in r.json()]
                self.assertEqual(found, payloads[: len(found)])
                self.assertGreaterEqual(len(found), (whole - 16) // 1532)
                v = self.fails(65, "wal", "verify", "--json", "cut.wal.zst", says="damaged range")
                o = json.loads(v.text)
                self.assertEqual((o["ok"], o["records"], o["damaged_ranges"]), (False, len(found), 1))
                self.assertEqual([(d["kind"], d["archive_offset"]) for d in o["ranges"]], [("archive", cut)])
                s = self.ok("wal", "stat", "--json", "cut.wal.zst")
                self.assertEqual((s.json()[0]["records"], s.json()[0]["damaged_ranges"]), (len(found), 1))
                self.assertIn("damaged", s.errors)

    def test_a_flipped_archive_shows_no_wrong_record(self):
        path, payloads, ends = self.big_archive()
        data = self.read(path)
        for at in [4, 5, 6, *range(8, 14), ends[0] - 50, ends[0], ends[0] + 1, ends[1] + 5, len(data) - 2]:
            with self.subTest(at=at):
                self.write("flip.wal.zst", flip(data, at))
                r = self.fails(65, "wal", "dump", "--json", "flip.wal.zst", says="flip.wal.zst")
                for o in r.json():
                    self.assertEqual(base64.b64decode(o["payload_b64"]), payloads[o["sequence"] - 1])


class Encrypted(CliTest):
    def setUp(self):
        super().setUp()
        self.write("key", bytes(range(32)))
        self.write("hex", bytes(range(32)).hex().encode())
        self.write("other", bytes(range(1, 33)))
        self.ok("wal", "append", "--key-file=key", "x.wal", stdin=b"secret one\nsecret two\n")

    def test_payloads_are_sealed_on_disk_and_opened_with_the_key(self):
        self.assertNotIn(b"secret", self.read("x.wal"))
        self.assertEqual(walfmt.parse(self.read("x.wal"))[0], 2)
        for key in ["key", "hex"]:
            self.assertEqual(self.records("x.wal", f"--key-file={key}"), {1: b"secret one", 2: b"secret two"})
        self.ok("wal", "append", "--key-file=hex", "x.wal", stdin=b"secret three\n")
        self.assertEqual(self.records("x.wal", "--key-file=key")[3], b"secret three")

    def test_without_the_key_payloads_are_shown_as_stored_with_a_warning(self):
        r = self.ok("wal", "dump", "--json", "x.wal")
        self.assertIn("--key-file", r.errors)
        raw = [r for r in walfmt.parse(self.read("x.wal"))[2] if r.status == walfmt.DATA]
        self.assertEqual([base64.b64decode(o["payload_b64"]) for o in r.json()], [e.payload for e in raw])
        self.ok("wal", "verify", "x.wal")
        self.assertEqual(self.ok("wal", "stat", "-j", "x.wal").json()[0]["version"], 2)

    def test_a_wrong_or_missing_key_is_a_configuration_error(self):
        self.fails(78, "wal", "dump", "--key-file=other", "x.wal", says="key")
        self.fails(78, "wal", "append", "--key-file=other", "x.wal", stdin=b"x\n", says="key")
        self.fails(78, "wal", "append", "x.wal", stdin=b"x\n", says="key")
        self.assertEqual(len(self.records("x.wal")), 2)

    def test_a_key_that_does_not_open_the_log_keeps_it_from_being_archived(self):
        before = self.read("x.wal")
        self.one_line(self.fails(78, "wal", "archive", "x.wal", "--to", "a", "--include-pending", "--key-file=other",
                                 says=["x.wal", "wrong key"]))
        self.assertEqual(self.read("x.wal"), before)
        self.ok("wal", "archive", "x.wal", "--to", "a", "--include-pending", "--key-file=key")
        self.assertEqual(self.records("a/x.wal.zst", "--key-file=key"), {1: b"secret one", 2: b"secret two"})

    def test_archives_stay_sealed(self):
        self.ok("wal", "archive", "x.wal", "--to", "a", "--include-pending")
        self.assertEqual(self.records("a/x.wal.zst", "--key-file=key"), {1: b"secret one", 2: b"secret two"})


class NotALog(CliTest):
    def test_what_is_not_a_log_is_named_with_the_right_status(self):
        self.write("empty.wal", b"")
        self.write("text.wal", b"this is not a log, it is a text\n" * 5)
        self.write("short.wal", b"ARWAL0")
        self.write("later.wal", walfmt.header(version=3, incarnation=0x5A17C3) + walfmt.record(1, b"x"))
        os.mkdir(self.path("dir.wal"))
        os.mkfifo(self.path("fifo.wal"))
        for command in READERS:
            for name, code in [("empty.wal", 65), ("text.wal", 65), ("short.wal", 65), ("dir.wal", 65), ("fifo.wal", 65),
                               ("missing.wal", 74), ("no/such/x.wal", 74), ("later.wal", 78), ("missing.wal.zst", 74)]:
                with self.subTest(command=command, name=name):
                    r = self.fails(code, "wal", command, name, says=name)
                    self.one_line(r)

    def test_a_symbolic_link_is_not_followed(self):
        self.write("x.wal", walfmt.log([b"one"]))
        os.symlink("x.wal", self.path("link.wal"))
        for command in [*READERS, "append", "recover"]:
            with self.subTest(command=command):
                self.one_line(self.fails(74, "wal", command, "link.wal", says=["link.wal", "symbolic link"]))

    def test_what_cannot_be_read_is_an_input_error(self):
        # Root reads everything, unless it gives up the right to.
        under = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        self.write("x.wal", walfmt.log([b"one"]))
        os.chmod(self.path("x.wal"), 0)
        for command in READERS:
            self.fails(74, "wal", command, "x.wal", says="x.wal", under=under)

    def test_json_output_of_a_failed_verify_is_still_json(self):
        self.write("empty.wal", b"")
        o = self.sluice("wal", "verify", "--json", "empty.wal").json()[0]
        self.assertFalse(o["ok"])
        self.assertTrue(o["error"])

    def test_a_name_that_is_not_utf_8_is_printed_as_json(self):
        name = os.fsencode(self.dir) + b"/\xff\xfe.wal"
        with open(name, "wb") as f:
            f.write(walfmt.log([b"x"]))
        r = subprocess.run([SLUICE.encode(), b"wal", b"stat", b"--json", name], capture_output=True, check=False)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("\ufffd", r.stdout.decode())


if __name__ == "__main__":
    main()
