# SPDX-License-Identifier: Apache-2.0
"""sluice dlq: what could not be delivered is listed, shown, redriven and purged."""

import base64
import os
import pty
import subprocess
import time

import walfmt
from clitest import DLQ_PUT, SLUICE, TIMEOUT, CliTest, main

EREFUSED, POISON = -18, 3
T0 = 1704067200000


class LetterTest(CliTest):
    def put(self, item=b"item", source="wal:job-7", position=42, code=EREFUSED, error_class=POISON, attempts=3, first=T0,
            last=T0 + 1000, target="", error="refused: bad row", folder="d", encoding=0):
        r = subprocess.run([DLQ_PUT, folder, source, str(position), str(code), str(error_class), str(attempts), str(first),
                            str(last), target, error, str(encoding)], input=item, capture_output=True, cwd=self.dir, check=False)
        self.assertEqual(r.returncode, 0, r.stderr)
        return int(r.stdout)

    def ids(self, *args):
        return [o["id"] for o in self.ok("dlq", "list", "--json", "d", *args).json()]


class Letters(LetterTest):
    def test_dead_letters_are_listed_with_every_field(self):
        self.put(item=b"\0\xffitem\n")
        self.put(item=b"", source="load:bars.csv", position=17, attempts=1, target="postgres:bars", error="no \x1b[2Jsuch\nrow")
        expected = [
            {"id": 1, "source": "wal:job-7", "position": 42, "line": None, "class": "poison", "error": "refused: bad row",
             "code": "EREFUSED", "attempts": 3, "first_failed_ms": T0, "last_failed_ms": T0 + 1000, "target": "",
             "acknowledged": False, "sealed": False, "payload_b64": base64.b64encode(b"\0\xffitem\n").decode()},
            {"id": 2, "source": "load:bars.csv", "position": 17, "line": 17, "class": "poison",
             "error": "no \x1b[2Jsuch\nrow", "code": "EREFUSED", "attempts": 1, "first_failed_ms": T0,
             "last_failed_ms": T0 + 1000, "target": "postgres:bars", "acknowledged": False, "sealed": False,
             "payload_b64": ""},
        ]
        self.assertEqual(self.ok("dlq", "list", "--json", "d").json(), expected)
        self.assertEqual(self.ok("dlq", "export", "d").json(), expected)
        text = self.ok("dlq", "list", "d", "--utc")
        self.assertEqual(len(text.lines()), 3)
        self.assertEqual(text.lines()[0].split(), ["ID", "FAILED", "CLASS", "ATTEMPTS", "STATE", "SOURCE", "ERROR"])
        self.assertIn(" 1  2024-01-01 00:00:01Z  poison", text.lines()[1])
        self.assertRegex(text.lines()[1], "wal:job-7@42 +refused: bad row")
        self.assertTrue(all(c == "\n" or c.isprintable() for c in text.text))

    def test_one_dead_letter_is_shown(self):
        self.put(item=b"first")
        self.put(item=b"second \x1b\xff")
        text = self.ok("dlq", "show", "d", "2").text
        for part in ["id            2", "source        wal:job-7", "code          EREFUSED", '"second \\x1b\\xff"']:
            self.assertIn(part, text)
        self.assertEqual(self.ok("dlq", "show", "--json", "d", "1").json()[0]["payload_b64"], base64.b64encode(b"first").decode())
        self.assertEqual(self.ok("dlq", "show", "--raw", "d", "2").out, b"second \x1b\xff")
        self.one_line(self.fails(65, "dlq", "show", "d", "3", says=["d has no dead letter 3", "dlq list"]))

    def test_an_empty_folder_has_no_dead_letters_and_a_missing_one_is_an_error(self):
        os.mkdir(self.path("d"))
        self.assertEqual(self.ok("dlq", "list", "d").out, b"")
        self.write("file", b"")
        for folder, code, says in [("none", 74, "no such folder"), ("file", 65, "is a file")]:
            for command in [["list", folder], ["show", folder, "1"], ["redrive", folder, "--to-wal=x.wal"],
                            ["purge", folder, "--yes"], ["export", folder]]:
                with self.subTest(command=command):
                    self.one_line(self.fails(code, "dlq", *command, says=[folder, says]))
        self.assertEqual(sorted(os.listdir(self.dir)), ["d", "file"])

    def test_a_damaged_dead_letter_is_skipped_and_reported(self):
        for n in range(3):
            self.put(item=b"item number %d" % n)
        name = [n for n in os.listdir(self.path("d")) if b"item number 1" in self.read(os.path.join("d", n))][0]
        data = self.read(os.path.join("d", name))
        self.write(os.path.join("d", name), data.replace(b"item number 1", b"item numbe_ 1"))
        r = self.fails(65, "dlq", "list", "--json", "d", says="1 damaged dead letter skipped")
        self.assertEqual([o["id"] for o in r.json()], [1, 3])

    def test_dead_letters_are_redriven_into_a_log_and_acknowledged(self):
        for item in [b"a", b"b", b""]:
            self.put(item=item)
        self.ok("wal", "append", "x.wal", stdin=b"before\n")
        r = self.ok("dlq", "redrive", "d", "--to-wal", "x.wal")
        self.assertEqual(r.text, "1 -> 2\n2 -> 3\n3 -> 4\n")
        self.assertEqual(self.records("x.wal"), {1: b"before", 2: b"a", 3: b"b", 4: b""})
        self.assertEqual(self.ids(), [])
        self.assertEqual(self.ok("dlq", "redrive", "d", "--to-wal", "x.wal").out, b"")
        self.put(item=b"later")
        self.assertEqual(self.ok("dlq", "redrive", "--json", "d", "--to-wal", "x.wal").json(), [{"id": 4, "sequence": 5}])

    def test_dead_letters_of_a_log_go_back_into_it(self):
        self.ok("wal", "append", "job-7.wal", stdin=b"before\n")
        self.put(item=b"by target", target=self.path("job-7.wal"))
        self.assertEqual(self.ok("dlq", "redrive", "d").text, "1 -> 2\n")
        self.put(item=b"by place", folder="job-7.dead")
        self.assertEqual(self.ok("dlq", "redrive", "job-7.dead").text, "1 -> 3\n")
        self.assertEqual(self.records("job-7.wal"), {1: b"before", 2: b"by target", 3: b"by place"})

    def test_a_dead_letter_without_a_log_stays(self):
        self.put(source="load:bars.csv")
        self.put(source="wal:elsewhere", target="https://example.org/ingest")
        self.ok("wal", "append", "job-7.wal")
        self.put(item=b"mine", folder="d", target=self.path("job-7.wal"))
        r = self.fails(64, "dlq", "redrive", "d", says=["letter 1 stays", "--to-wal"])
        self.assertIn("letter 2 stays", r.errors)
        self.assertEqual(r.text, "3 -> 1\n")
        self.assertEqual(self.ids(), [1, 2])

    def test_a_log_in_use_keeps_the_dead_letters(self):
        self.put()
        p = self.start("wal", "append", "x.wal", bufsize=0)
        p.stdin.write(b"one\n")
        p.stdout.readline()
        self.fails(75, "dlq", "redrive", "d", "--to-wal=x.wal", says="letter 1 stays")
        self.assertEqual(self.ids(), [1])

    def test_an_encrypted_log_takes_dead_letters_with_its_key(self):
        self.write("key", bytes(range(32)))
        self.put(item=b"secret")
        self.ok("dlq", "redrive", "d", "--to-wal=x.wal", "--key-file=key")
        self.assertNotIn(b"secret", self.read("x.wal"))
        self.assertEqual(self.records("x.wal", "--key-file=key"), {1: b"secret"})

    def test_a_target_that_is_not_a_log_keeps_the_dead_letters(self):
        self.put(item=b"small")
        self.fails(64, "dlq", "redrive", "d", "--to-wal=x.log", says="x.log.wal")
        self.assertEqual(self.ids(), [1])

    def test_purge_needs_a_yes(self):
        self.put()
        r = self.fails(64, "dlq", "purge", "d", says=["1 dead letter would", "--yes"])
        self.one_line(r)
        self.assertEqual(self.ids(), [1])
        self.assertEqual(self.ok("dlq", "purge", "d", "--yes").text, "1 dead letter purged\n")
        self.assertEqual(self.ids(), [])
        self.assertEqual(self.ok("dlq", "purge", "--json", "d").json(), [{"purged": 0}])

    def test_purge_asks_on_a_terminal(self):
        self.put()
        for answer, code, left in [(b"n\n", 75, [1]), (b"y\n", 0, [])]:
            with self.subTest(answer=answer):
                leader, follower = pty.openpty()
                p = subprocess.Popen([SLUICE, "dlq", "purge", "d"], stdin=follower, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, cwd=self.dir)
                os.write(leader, answer)
                out, err = p.communicate(timeout=TIMEOUT)
                os.close(leader)
                os.close(follower)
                self.assertEqual(p.returncode, code, (out, err))
                self.assertIn(b"[y/N]", err)
                self.assertEqual(self.ids(), left)

    def test_only_dead_letters_before_a_time_are_purged(self):
        now = int(time.time() * 1000)
        self.put(last=T0)
        self.put(last=now)
        self.ok("dlq", "purge", "d", "--before=2023-01-01")
        self.assertEqual(self.ids(), [1, 2])
        self.assertEqual(self.ok("dlq", "purge", "d", "--before=7d", "-y").text, "1 dead letter purged\n")
        self.assertEqual(self.ids(), [2])

    def test_acknowledged_dead_letters_are_listed_when_asked_for(self):
        self.put(last=T0)
        self.put(last=int(time.time() * 1000))
        self.ok("dlq", "purge", "d", "--before=7d", "--yes")
        listed = self.ok("dlq", "list", "--all", "--json", "d").json()
        self.assertEqual([(o["id"], o["acknowledged"]) for o in listed], [(1, True), (2, False)])

    def test_a_broken_pipe_is_noticed(self):
        for _ in range(3):
            self.put(item=b"x" * 100000)
        p = self.start("dlq", "export", "d")
        p.stdout.read(1)
        p.stdout.close()
        self.assertEqual(p.wait(TIMEOUT), 141)


class SealedLetters(LetterTest):
    def setUp(self):
        super().setUp()
        self.write("key", bytes(range(32)))
        self.write("other", bytes(range(1, 33)))
        self.ok("wal", "append", "--key-file=key", "job-7.wal", stdin=b"secret one\nsecret two\n")
        log = self.read("job-7.wal")
        _, _, records = walfmt.parse(log)
        second = records[1]
        self.item = log[:16] + log[second.offset : second.offset + 4 + second.length]
        self.put(item=b"plain")
        self.put(item=self.item, position=2, encoding=1)

    def test_a_sealed_item_is_shown_with_its_key_only(self):
        self.assertRegex(self.ok("dlq", "list", "d").lines()[2], "  sealed  wal:job-7@2  ")
        text = self.ok("dlq", "show", "d", "2").text
        self.assertIn("sealed", text)
        self.assertIn("--key-file", text)
        self.assertNotIn("secret", text)
        self.assertIn('"secret two"', self.ok("dlq", "show", "--key-file=key", "d", "2").text)
        self.assertEqual(self.ok("dlq", "show", "--raw", "--key-file=key", "d", "2").out, b"secret two")
        self.one_line(self.fails(78, "dlq", "show", "--raw", "d", "2", says=["letter 2", "sealed", "--key-file"]))
        self.one_line(self.fails(78, "dlq", "show", "--raw", "--key-file=other", "d", "2", says=["letter 2", "wrong key"]))
        self.assertEqual(self.ok("dlq", "show", "--raw", "d", "1").out, b"plain")

    def test_an_export_has_the_sealed_bytes_or_the_payload(self):
        for command in [["export"], ["list", "--json"]]:
            plain, sealed = self.ok("dlq", *command, "d").json()
            self.assertEqual((plain["sealed"], base64.b64decode(plain["payload_b64"])), (False, b"plain"))
            self.assertNotIn("sealed_b64", plain)
            self.assertEqual((sealed["sealed"], sealed["payload_b64"]), (True, None))
            self.assertEqual(base64.b64decode(sealed["sealed_b64"]), self.item)
            _, opened = self.ok("dlq", *command, "--key-file=key", "d").json()
            self.assertEqual((opened["sealed"], base64.b64decode(opened["payload_b64"])), (True, b"secret two"))
            self.assertNotIn("sealed_b64", opened)
            r = self.fails(78, "dlq", *command, "--key-file=other", "d", says=["letter 2", "wrong key"])
            self.assertEqual(r.json()[1], sealed)

    def test_a_redrive_without_the_key_keeps_the_dead_letter(self):
        for args in [[], ["--key-file=other"]]:
            with self.subTest(args=args):
                to = f"to-{len(args)}.wal"
                r = self.fails(78, "dlq", "redrive", "d", f"--to-wal={to}", *args, says=["letter 2 stays", "key"])
                self.assertEqual(r.text, "1 -> 1\n" if not args else "")
                self.assertEqual(self.ids(), [2])
        self.assertEqual(self.records("to-0.wal"), {1: b"plain"})

    def test_a_redrive_with_the_key_seals_it_again(self):
        r = self.ok("dlq", "redrive", "d", "--to-wal=job-7.wal", "--key-file=key")
        self.assertEqual(r.text, "1 -> 3\n2 -> 4\n")
        self.assertNotIn(b"secret", b"".join(self.read(n) for n in self.segments("job-7.wal")))
        self.assertEqual(self.records("job-7.wal", "--key-file=key")[4], b"secret two")
        self.assertEqual(self.ids(), [])

    def test_a_dead_letter_that_was_tampered_with_stays(self):
        self.put(item=self.item, source="wal:job-8", position=2, encoding=1)  # the seal is for another stream
        self.put(item=b"no record", position=2, encoding=1)
        self.put(item=self.item, position=3, encoding=1)
        r = self.fails(78, "dlq", "redrive", "d", "--to-wal=x.wal", "--key-file=key", says=["letter 3 stays", "tampered"])
        for n in [4, 5]:
            self.assertIn(f"letter {n} stays: dead letter {n} is marked as sealed", r.errors)
        self.assertEqual(self.ids(), [3, 4, 5])
        self.assertEqual(self.records("x.wal", "--key-file=key"), {1: b"plain", 2: b"secret two"})


if __name__ == "__main__":
    main()
