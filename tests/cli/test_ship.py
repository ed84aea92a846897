# SPDX-License-Identifier: Apache-2.0
"""sluice ship: lines of files and pipes, read to their end or followed, and where they go."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

from clitest import SLUICE, TIMEOUT, main
import walfmt
from shiptest import Endpoint, ShipTest, free_port, line_of, numbered, numbers


class ToTheEnd(ShipTest):
    def test_every_line_arrives_once_with_its_file_and_number(self):
        self.write("app.log", numbered(1, 1000))
        r = self.result("app.log")
        self.assertEqual((r["read"], r["delivered"], r["left"], r["refused"]), (1000, 1000, 0, 0))
        rows = self.rows()
        self.assertEqual([line_of(row) for row in rows], numbers(1, 1000))
        self.assertEqual([row["sequence"] for row in rows], list(range(1, 1001)))
        self.assertEqual({row["stream"] for row in rows}, {"s"})
        self.assertEqual({row["file"] for row in rows}, {self.path("app.log")})
        self.assertRegex(rows[0]["ts"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

    def test_a_second_run_ships_only_what_is_new(self):
        self.write("app.log", numbered(1, 10))
        self.ship("app.log")
        self.assertEqual(self.result("app.log")["read"], 0)
        self.append("app.log", numbered(11, 12))
        self.assertEqual(self.result("app.log")["read"], 2)
        self.assertEqual(self.lines(), numbers(1, 12))

    def test_bytes_are_kept_as_they_are(self):
        data = b"plain\ncr\r\n\nnul\0in\n\xff\xfe\xc3(\n\xed\xa0\x80\nquote \" back \\ tab\t\x01\n\xc3\xa4\xf0\x9f\x98\x80\nno end"
        self.write("app.log", data)
        self.ship("app.log")
        rows = self.rows()
        self.assertEqual(b"\n".join(self.lines()), data)
        self.assertEqual([row["partial"] for row in rows], [False] * 8 + [True])
        self.assertEqual([("line_b64" in row) for row in rows], [False, False, False, True, True, True, False, False, False])

    def test_a_line_without_its_end_is_taken_up_where_it_was(self):
        self.write("app.log", b"a\nbegin")
        self.ship("app.log")
        self.append("app.log", b"ning\nc\n")
        self.ship("app.log")
        self.assertEqual([(line_of(r), r["partial"]) for r in self.rows()],
                         [(b"a", False), (b"begin", True), (b"ning", False), (b"c", False)])

    def test_a_line_that_is_too_long_arrives_in_pieces(self):
        long = bytes(range(1, 9)) * (5 << 20)  # 40 MiB
        self.write("app.log", b"before\n" + long.replace(b"\n", b"x") + b"\nafter\n")
        r = self.result("app.log")
        rows = self.rows()
        self.assertEqual((r["read"], r["cut"]), (5, 2))
        self.assertEqual([row["partial"] for row in rows], [False, True, True, False, False])
        self.assertEqual(b"".join(line_of(row) for row in rows[1:4]), long.replace(b"\n", b"x"))
        self.assertEqual(line_of(rows[4]), b"after")

    def test_several_files_keep_their_places_when_others_are_added_or_left_out(self):
        self.write("a", numbered(1, 3))
        self.write("b", numbered(4, 6))
        self.ship("a")
        self.ship("a", "b")
        self.append("a", numbered(7, 8))
        self.ship("b")
        self.ship("a", "b")
        self.assertEqual(self.lines(), numbers(1, 8))
        self.assertEqual([os.path.basename(r["file"]) for r in self.rows()], ["a"] * 3 + ["b"] * 3 + ["a"] * 2)

    def test_standard_input_is_shipped_to_its_end(self):
        r = self.result(stdin=numbered(1, 5) + b"rest")
        self.assertEqual(r["read"], 6)
        self.result("-", stdin=numbered(1, 2))
        self.assertEqual(self.lines(), [*numbers(1, 5), b"rest", *numbers(1, 2)])
        self.assertNotIn("file", self.rows()[0])

    def test_lines_of_a_pipe_are_durable_before_the_pipe_ends(self):
        p = self.start("ship", "--to", f"http://127.0.0.1:{free_port()}/x", "--stream=s", "--wal=wal")
        p.stdin.write(numbered(1, 3))
        p.stdin.flush()
        self.until("3 records", lambda: os.path.exists(self.path("wal/s.wal")) and
                   json.loads(self.ok("wal", "stat", "--json", "wal/s.wal").out)["records"] == 3)
        self.kill(p)
        self.result("--retarget", stdin=b"")
        self.assertEqual(self.lines(), numbers(1, 3))

    def test_json_objects_are_events_and_other_lines_stay_lines(self):
        self.write("app.log", b'{"a":1,"b":[12345678901234567890]}\nplain\n[1]\n {"c":"\xc3\xa4"}\r\n{"broken":\n')
        self.ship("--input=jsonl", "app.log")
        rows = self.rows()
        self.assertEqual(rows[0]["event"], {"a": 1, "b": [12345678901234567890]})
        self.assertNotIn("line", rows[0])
        self.assertEqual(rows[3]["event"], {"c": "ä"})
        self.assertEqual([r.get("line") for r in rows], [None, "plain", "[1]", None, '{"broken":'])

    def test_an_empty_file_is_nothing_to_ship(self):
        self.write("app.log", b"")
        r = self.result("app.log")
        self.assertEqual((r["read"], r["delivered"], r["left"]), (0, 0, 0))
        self.assertEqual(self.result(stdin=b"")["read"], 0)
        self.append("app.log", b"\n")
        self.assertEqual(self.result("app.log")["read"], 1)
        self.assertEqual(self.lines(), [b""])

    def test_a_file_that_may_not_be_read_is_an_error_with_a_name(self):
        self.write("app.log", b"secret\n")
        self.forbid("app.log")
        self.fails(74, "ship", "app.log", *self.TO, under=self.bound(), says=["app.log", "Permission denied"])
        self.assertEqual(self.rows(), [])

    def test_what_cannot_be_read_is_an_error_with_a_name(self):
        self.fails(74, "ship", "missing.log", *self.TO, says=["missing.log", "No such file"])
        os.mkdir(self.path("d"))
        self.fails(64, "ship", "d", *self.TO, says=["d", "folder"])
        self.write("app.log", b"")
        self.fails(64, "ship", "app.log", "./app.log", *self.TO, says=["app.log", "twice"])

    def test_a_folder_is_an_error_also_when_it_is_followed(self):
        os.mkdir(self.path("d"))
        self.fails(64, "ship", "--follow", "d", *self.TO, says=["d", "folder"])

    def test_a_signal_keeps_what_was_read_of_a_pipe_also_without_its_end(self):
        with open(self.path("err"), "wb") as err:
            p = subprocess.Popen([SLUICE, "ship", "--json", *self.TO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
                                 cwd=self.dir, env=self.env)
        for end in (p.stdin.close, p.stdout.close, p.wait, p.kill):
            self.addCleanup(end)
        p.stdin.write(b"line 1\nhal")
        p.stdin.flush()
        self.arrives(p, b"line 1")  # and "hal" was in the same read
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(timeout=120), 75)
        self.assertEqual([(line_of(r), r["partial"]) for r in self.rows()], [(b"line 1", False), (b"hal", True)])

    def test_usage_errors_name_the_option(self):
        for args, says in [
            ([], "--to"),
            (["--to", "gopher://x"], "gopher"),
            (["--to", "null:", "--table=t"], "--table"),
            (["--to", "file:x", "--create"], "--create"),
            (["--to", "file:x", "--columns=stream,nope"], "nope"),
            (["--to", "sqlite:x", "--body=array"], "--body"),
            (["--to", "sluice:file:x"], "sluice:"),
            (["--to", "sluice:http://h/x", "--body=array"], "--body"),
            (["--to", "http://127.0.0.1:1", "--columns=line"], "--columns"),
            (["--to", "null:", "--stream=a/b"], "a/b"),
        ]:
            with self.subTest(args=args):
                self.fails(64, "ship", *args, says=says)


class Targets(ShipTest):
    def test_a_table_has_each_line_once_under_its_key(self):
        self.write("app.log", numbered(1, 50) + b"\xff\n")
        self.ok("ship", "app.log", "--to", "sqlite:t.db", "--create", "--stream=s", "--wal=wal")
        rows = self.table("SELECT stream, sequence, partial, line, line_b64 FROM shipped_lines ORDER BY sequence")
        self.assertEqual([r[3] for r in rows[:50]], [n.decode() for n in numbers(1, 50)])
        self.assertEqual(rows[50], ("s", 51, 0, None, base64.b64encode(b"\xff").decode()))
        self.assertEqual(len(set(self.table("SELECT incarnation FROM shipped_lines"))), 1)

    def test_a_table_of_ones_own_gets_the_columns_that_it_has(self):
        self.table("CREATE TABLE mine (sequence INTEGER PRIMARY KEY, line TEXT)")
        self.write("app.log", numbered(1, 3))
        self.ok("ship", "app.log", "--to", "sqlite:t.db", "--table=mine", "--columns=sequence,line",
                "--on-conflict=sequence", "--wal=wal")
        self.assertEqual(self.table("SELECT * FROM mine"), [(i, f"line {i}") for i in (1, 2, 3)])

    def test_a_missing_table_is_reported_before_anything_is_read(self):
        self.write("app.log", numbered(1, 3))
        self.table("CREATE TABLE other (x)")
        self.fails(78, "ship", "app.log", "--to", "sqlite:t.db", "--wal=wal", says=["shipped_lines", "--create"])
        self.assertFalse(os.path.exists(self.path("wal")))

    def test_a_refused_line_is_a_dead_letter_and_the_others_arrive(self):
        self.table("CREATE TABLE shipped_lines (stream TEXT, incarnation INTEGER, sequence INTEGER, ts TEXT, file TEXT, "
                   "partial INTEGER, line TEXT CHECK (line <> 'line 7'), PRIMARY KEY (stream, incarnation, sequence))")
        self.write("app.log", numbered(1, 20))
        self.fails(65, "ship", "app.log", "--to", "sqlite:t.db", "--stream=s", "--wal=wal", says=["1 line", "refused", "s.dead"])
        self.assertEqual([r[0] for r in self.table("SELECT line FROM shipped_lines ORDER BY sequence")],
                         [f"line {i}" for i in range(1, 21) if i != 7])
        letters = self.ok("dlq", "list", "--json", "wal/s.dead").json()
        self.assertEqual([x["position"] for x in letters], [7])

    def test_the_status_speaks_of_this_run_and_not_of_what_an_earlier_one_refused(self):
        self.table("CREATE TABLE shipped_lines (stream TEXT, incarnation INTEGER, sequence INTEGER, ts TEXT, file TEXT, "
                   "partial INTEGER, line TEXT CHECK (line <> 'bad'), PRIMARY KEY (stream, incarnation, sequence))")
        to = ("--json", "--to", "sqlite:t.db", "--stream=s", "--wal=wal")
        r = self.fails(65, "ship", *to, stdin=b"one\nbad\nbad\n", says=["2 lines", "refused"])
        self.assertEqual(json.loads(r.out)["refused"], 2)
        r = self.ok("ship", *to, stdin=b"two\n")
        self.assertEqual((json.loads(r.out)["refused"], json.loads(r.out)["delivered"]), (0, 1))
        self.assertNotIn("refused", r.errors)
        r = self.fails(65, "ship", *to, stdin=b"bad\n", says=["1 line", "refused"])
        self.assertEqual(json.loads(r.out)["refused"], 1)
        self.ok("dlq", "redrive", "wal/s.dead")
        self.table("DROP TABLE shipped_lines")
        r = self.ok("ship", *to, "--create", stdin=b"")
        self.assertEqual((json.loads(r.out)["refused"], json.loads(r.out)["delivered"]), (0, 3))

    def test_a_dead_letter_that_is_redriven_does_not_move_the_place(self):
        self.table("CREATE TABLE shipped_lines (stream TEXT, incarnation INTEGER, sequence INTEGER, ts TEXT, file TEXT, "
                   "partial INTEGER, line TEXT, PRIMARY KEY (stream, incarnation, sequence))")
        self.table("CREATE UNIQUE INDEX other ON shipped_lines (line)")
        self.write("app.log", numbered(1, 20) + b"line 3\n" + numbered(21, 25))
        to = ("--to", "sqlite:t.db", "--stream=s", "--wal=wal")
        self.fails(65, "ship", "app.log", *to, says="refused")
        self.ok("dlq", "redrive", "wal/s.dead")
        self.table("DROP INDEX other")
        self.append("app.log", numbered(26, 27))
        self.sluice("ship", "app.log", *to)
        self.assertEqual(sorted(r[0] for r in self.table("SELECT line FROM shipped_lines")),
                         sorted([f"line {i}" for i in range(1, 28)] + ["line 3"]))

    def test_an_endpoint_gets_rows_and_a_key(self):
        self.write("app.log", numbered(1, 10))
        to = Endpoint(self)
        self.ok("ship", "app.log", "--to", to.url, "--stream=s", "--wal=wal")
        self.assertEqual([line_of(r) for r in to.rows], numbers(1, 10))
        self.assertEqual(to.paths, ["/rows"])
        self.assertTrue(all(to.keys))

    def test_a_restored_log_adds_its_lines_to_a_table_and_replaces_none(self):
        r = self.restored("--to", "sqlite:t.db", "--create")
        self.assertIn("new incarnation", r.errors)
        rows = self.table("SELECT incarnation, sequence, line FROM shipped_lines ORDER BY rowid")
        self.assertEqual([x[2] for x in rows], self.RESTORED)
        self.assertEqual([x[1] for x in rows], [1, 2, 3, 4, 5, 3, 4, 5, 6])
        self.assertEqual([x[0] == rows[0][0] for x in rows], [True] * 5 + [False] * 4)
        stat = self.ok("wal", "stat", "--json", "wal/s.wal").json()[0]
        self.assertEqual([int(stat["incarnation"], 16), int(stat["sent_incarnation"], 16)], [rows[0][0], rows[-1][0]])
        # It is remembered: the next run continues with it.
        self.ok("ship", "--to", "sqlite:t.db", "--stream=s", "--wal=wal", stdin=b"N7\n")
        last = self.table("SELECT incarnation, sequence, line FROM shipped_lines ORDER BY rowid DESC LIMIT 1")
        self.assertEqual(last, [(rows[-1][0], 7, "N7")])

    def test_a_key_of_the_lines_themselves_takes_the_last_one(self):
        self.table("CREATE TABLE shipped_lines (sequence INTEGER, line TEXT PRIMARY KEY)")
        self.ok("ship", "--to", "sqlite:t.db", "--columns=sequence,line", "--on-conflict=line", "--stream=s", "--wal=wal",
                stdin=b"a\nb\na\n")
        self.assertEqual(self.table("SELECT line, sequence FROM shipped_lines ORDER BY line"), [("a", 3), ("b", 2)])

    def test_a_key_without_the_incarnation_keeps_what_is_there(self):
        self.table("CREATE TABLE shipped_lines (stream TEXT, sequence INTEGER, line TEXT, PRIMARY KEY (stream, sequence))")
        to = ("--to", "sqlite:t.db", "--columns=stream,sequence,line", "--on-conflict=stream,sequence", "--stream=s",
              "--wal=wal")
        self.ok("ship", *to, stdin=b"b1\nb2\n")
        shutil.copytree(self.path("wal"), self.path("copy"))
        self.ok("ship", *to, stdin=b"b3\n")
        shutil.rmtree(self.path("wal"))
        os.rename(self.path("copy"), self.path("wal"))
        self.fails(65, "ship", *to, stdin=b"N3\n", says="another row has the key")
        self.assertEqual(self.table("SELECT line FROM shipped_lines ORDER BY sequence"), [("b1",), ("b2",), ("b3",)])
        self.assertIn(b"N3", self.records("wal/s.wal")[3])  # it is not lost

    def test_a_restored_log_adds_its_lines_to_a_file(self):
        r = self.restored("--to", "file:out.jsonl")
        self.assertIn("new incarnation", r.errors)
        self.assertEqual([x["line"] for x in self.rows()], self.RESTORED)
        self.assertEqual(len({(x["incarnation"], x["sequence"]) for x in self.rows()}), 9)

    def test_a_restored_log_gives_an_endpoint_other_keys_for_other_lines(self):
        to = Endpoint(self)
        self.restored("--to", to.url, lines=b"N3\nN4\nN5\n")
        self.assertEqual([line_of(r).decode() for r in to.rows], self.RESTORED[:-1])
        self.assertEqual(len(set(to.keys)), len(to.keys))

    def test_a_batch_that_a_crash_repeats_is_in_a_table_once(self):
        to = ("--to", "sqlite:t.db", "--create", "--stream=s", "--wal=wal")
        self.ok("ship", *to, stdin=b"one\ntwo\n")
        before = self.table("SELECT * FROM shipped_lines")
        # As if the process had died before it noted that they were taken: the marks are cut off.
        data = self.read("wal/s.wal")
        version, incarnation, records = walfmt.parse(data)
        end = next((r.offset for r in records if r.status not in (walfmt.DATA,)), len(data))
        self.write("wal/s.wal", data[:end])
        r = self.ok("ship", *to, stdin=b"")
        self.assertNotIn("new incarnation", r.errors)
        self.assertEqual(self.table("SELECT * FROM shipped_lines"), before)

    def test_a_start_removes_no_archive_and_nothing_that_was_quarantined_lately(self):
        to = ("--to", "file:out.jsonl", "--stream=s", "--wal=wal")
        self.ok("ship", *to, stdin=b"one\n")
        self.write("old.wal", walfmt.header() + walfmt.record(1, b"of 2024"))
        self.ok("wal", "archive", "old.wal", "--to=wal", "--include-pending")
        names = ["old.wal.zst", "s.wal.torn-148", "s.wal.damaged-20", "other.wal.torn-148"]
        for name in names[1:]:
            self.write("wal/" + name, b"hi\n")
        self.ok("ship", *to, stdin=b"two\n")
        self.assertLessEqual(set(names), set(os.listdir(self.path("wal"))))

    def test_an_endpoint_that_asks_for_patience_gets_it(self):
        self.write("app.log", numbered(1, 10))
        to = Endpoint(self, answers=[(429, {"Retry-After": "1"}), (503, {"Retry-After": "1"}), (500, {})])
        self.ok("ship", "app.log", "--to", to.url, "--stream=s", "--wal=wal")
        self.assertEqual(to.refusals, 3)
        self.assertGreaterEqual(to.times[1] - to.times[0], 1)
        self.assertGreaterEqual(to.times[2] - to.times[1], 1)
        self.assertEqual([line_of(r) for r in to.rows], numbers(1, 10))

    def test_an_endpoint_that_refuses_the_first_lines_ends_the_command_and_they_stay_in_the_log(self):
        lines = b"one\n"
        for status, says in [(401, "not authorized"), (403, "forbidden"), (404, "this URL does not exist")]:
            with self.subTest(status=status):
                to = Endpoint(self, answers=[(status, {})] * 1000)
                r = self.fails(78, "ship", "--json", "--to", to.url, "--stream=s", "--wal=wal", "--retarget", stdin=lines,
                               says=[says, "accepted no line"])
                self.assertIn("1 line left in wal/s.wal", r.errors)
                self.assertEqual(json.loads(r.out)["left"], 1)
                lines = b""  # the log has it
        to = Endpoint(self)
        self.ok("ship", "--to", to.url, "--stream=s", "--wal=wal", "--retarget", stdin=b"two\n")
        self.assertEqual([line_of(r) for r in to.rows], [b"one", b"two"])

    def test_the_first_refusal_ends_a_command_that_follows_too(self):
        self.write("app.log", numbered(1, 3))
        to = Endpoint(self, answers=[(401, {})] * 1000)
        p = self.follow("app.log", to=("--to", to.url, "--stream=s", "--wal=wal"))
        p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 78, self.said())

    def test_an_endpoint_that_refuses_lines_later_is_waited_for_visibly(self):
        self.write("app.log", numbered(1, 3))
        to = Endpoint(self, answers=[(200, {}), (401, {}), (404, {})])
        p = self.follow("app.log", to=("--to", to.url, "--stream=s", "--wal=wal"))
        self.until("the first lines", lambda: len(to.rows) == 3, p)
        self.append("app.log", numbered(4, 4))
        self.until("the next one", lambda: len(to.rows) == 4, p)
        self.assertIn("not authorized", self.said())
        self.finish(p)

    def test_a_target_that_takes_nothing_is_given_up_when_that_is_wanted(self):
        self.write("app.log", numbered(1, 3))
        for status, code in [(401, 78), (503, 69), (500, 69)]:
            with self.subTest(status=status):
                to = Endpoint(self, answers=[(200, {})] + [(status, {})] * 100000)
                p = self.follow("app.log", "--give-up-after=300ms", to=("--to", to.url, f"--stream=s{status}", "--wal=wal"))
                self.until("the first lines", lambda to=to: len(to.rows) == 3, p)
                self.append("app.log", b"one more\n")
                out, _ = p.communicate(timeout=TIMEOUT)
                self.assertEqual(p.returncode, code, self.said())
                self.assertEqual(json.loads(out)["left"], 1)
                self.assertIn("accepted no line for", self.said())
                self.write("app.log", numbered(1, 3))

    def test_an_endpoint_gets_the_token_of_the_file_or_of_the_environment(self):
        self.write("token", b"sesame-of-the-file\n")
        self.env["SLUICE_HTTP_TOKEN"] = "sesame-of-the-environment"
        for args, token in [([], "Bearer sesame-of-the-environment"), (["--token-file=token"], "Bearer sesame-of-the-file")]:
            to = Endpoint(self)
            self.ok("ship", "--to", to.url, "--stream=s", "--wal=wal", *args, stdin=b"one\n")
            self.assertEqual(to.tokens, {token})

    def test_a_dead_target_leaves_the_lines_in_the_log_for_the_next_run(self):
        port = free_port()
        to = ("--to", f"http://127.0.0.1:{port}/rows", "--stream=s", "--wal=wal")
        self.write("app.log", numbered(1, 10))
        r = self.fails(75, "ship", "app.log", "--json", "--flush-timeout=0", *to, says=["10 lines left", "s.wal"])
        self.assertEqual(json.loads(r.out)["left"], 10)
        os.unlink(self.path("app.log"))  # the log has them
        self.write("other.log", numbered(11, 12))
        end = Endpoint(self, port=port)
        self.ok("ship", "other.log", *to)
        self.assertEqual([line_of(r) for r in end.rows], numbers(1, 12))

    def test_lines_for_one_target_do_not_go_to_another_unasked(self):
        self.write("app.log", numbered(1, 3))
        self.fails(75, "ship", "app.log", "--flush-timeout=0", "--to", f"http://127.0.0.1:{free_port()}/x", "--stream=s",
                   "--wal=wal", says="3 lines left")
        self.fails(78, "ship", "app.log", *self.TO, says=["3 lines for another target", "--retarget"])
        self.ship("app.log", "--retarget")
        self.assertEqual(self.lines(), numbers(1, 3))

    def test_the_stream_has_its_own_name_for_each_target(self):
        self.write("app.log", numbered(1, 3))
        self.ok("ship", "app.log", "--to", "file:a")
        self.ok("ship", "app.log", "--to", "file:b")
        self.ok("ship", "app.log", "--to", f"file:{self.path('a')}")
        self.assertEqual([self.lines("a"), self.lines("b")], [numbers(1, 3)] * 2)
        self.assertNotEqual(self.rows("a")[0]["stream"], self.rows("b")[0]["stream"])

    def test_two_commands_with_one_log_are_distinguished(self):
        self.write("app.log", numbered(1, 3))
        p = self.follow("app.log")
        self.arrives(p, *numbers(1, 3))
        self.fails(75, "ship", "app.log", *self.TO, says=["out.jsonl", "another process"])
        r = self.fails(75, "ship", "app.log", *self.TO, "--to", "null:", says=["another process", "stream s", "--stream"])
        self.one_line(r)
        self.finish(p)

    def test_an_encrypted_log_keeps_places_too(self):
        self.write("key", os.urandom(32))
        self.write("app.log", b"secret 1\n")
        self.ship("--key-file=key", "app.log")
        self.append("app.log", b"secret 2\n")
        self.ship("--key-file=key", "app.log")
        self.assertEqual(self.lines(), [b"secret 1", b"secret 2"])
        self.assertNotIn(b"secret", self.read("wal/s.wal"))


class Followed(ShipTest):
    def test_lines_are_shipped_as_they_come(self):
        self.write("app.log", numbered(1, 2))
        p = self.follow("app.log")
        self.arrives(p, *numbers(1, 2))
        self.append("app.log", b"line 3\nhal")
        self.arrives(p, *numbers(1, 3))
        self.append("app.log", b"f\n")
        self.arrives(p, *numbers(1, 3), b"half")
        self.assertFalse(self.rows()[-1]["partial"])
        self.assertEqual(self.finish(p)["delivered"], 4)

    def test_a_signal_makes_durable_what_was_written_before_it(self):
        self.write("app.log", b"")
        p = self.follow("app.log", to=("--to", f"http://127.0.0.1:{free_port()}/x", "--stream=s", "--wal=wal"))
        self.append("app.log", numbered(1, 5))
        self.until("5 records", lambda: os.path.exists(self.path("wal/s.wal")) and
                   json.loads(self.ok("wal", "stat", "--json", "wal/s.wal").out)["records"] == 5, p)
        r = self.finish(p, code=75, how=signal.SIGINT)
        self.assertEqual((r["read"], r["left"]), (5, 5))

    def test_a_signal_between_two_waits_is_heard(self):
        """The process is held in the middle of its work, by a terminal that does not take what it says."""
        self.write("err", b"")
        told, errors = os.pipe()
        self.addCleanup(os.close, told)
        p = self.start_with(errors, "ship", "--follow", "--json", "--log-level=info", "app.log", *self.TO)
        self.hear(told, b"waiting for it")
        os.mkdir(self.path("app.log"))
        self.hear(told, b"not a regular file")
        os.set_blocking(errors, False)  # the command's too: both are one end of the pipe
        with contextlib.suppress(BlockingIOError):
            while os.write(errors, b"." * 4096):
                pass
        os.set_blocking(errors, True)
        os.close(errors)
        os.rmdir(self.path("app.log"))
        self.until("it reports that nothing is there", lambda: self.syscall(p)[1:2] == ["0x2"], p)
        p.send_signal(signal.SIGTERM)
        os.read(told, 1 << 20)
        p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 0)

    def hear(self, told, text):
        heard = b""
        while text not in heard:
            more = os.read(told, 65536)
            self.assertTrue(more, heard)
            heard += more

    def syscall(self, process):
        with open(f"/proc/{process.pid}/syscall", encoding="ascii") as f:
            return f.read().split()

    def test_a_renamed_file_is_finished_before_its_successor(self):
        self.write("app.log", numbered(1, 2))
        p = self.follow("app.log")
        self.arrives(p, *numbers(1, 2))
        writer = open(self.path("app.log"), "ab", buffering=0)
        self.addCleanup(writer.close)
        with self.stopped(p):
            os.rename(self.path("app.log"), self.path("app.log.1"))
            writer.write(b"line 3\n")
            self.write("app.log", b"line 4\n")
            self.just_written(writer)
        self.arrives(p, *numbers(1, 4))
        with self.stopped(p):
            writer.write(b"late 1\nlate ")  # a writer that has not heard of the rotation yet
            self.just_written(writer)
        self.arrives(p, *numbers(1, 4), b"late 1")
        with self.stopped(p):
            self.append("app.log", b"line 5\n")
            self.just_written(writer)
        self.arrives(p, *numbers(1, 4), b"late 1", b"line 5")
        with self.stopped(p):
            writer.write(b"2")
            writer.close()
        self.arrives(p, *numbers(1, 4), b"late 1", b"line 5", b"late 2")  # when it was quiet for a while
        self.assertTrue(self.rows()[-1]["partial"])
        self.finish(p)

    def test_a_file_that_was_idle_when_it_was_renamed_is_not_left_at_once(self):
        self.write("app.log", b"line 1\n")
        p = self.follow("app.log")
        self.arrives(p, b"line 1")
        with open(self.path("app.log"), "ab", buffering=0) as writer:
            # What ship waits for after a file's last change has passed.
            self.until("the file is idle", lambda: time.time() - os.fstat(writer.fileno()).st_ctime > 5.5, p)
            with self.stopped(p):
                os.rename(self.path("app.log"), self.path("app.log.1"))
                self.write("app.log", b"line 2\n")
            self.arrives(p, b"line 1", b"line 2")
            renamed = os.fstat(writer.fileno()).st_ctime
            writer.write(b"late\n")  # its writer has not heard of the rotation yet
            late = time.time() - renamed > 4
        if late:
            print("# not checked: the machine stalled for longer than a writer has")
            return
        self.arrives(p, b"line 1", b"line 2", b"late")
        self.finish(p)

    def just_written(self, f):
        """An old file is left 5 s after the last write to it. A slow writer has 4 s more."""
        soon = time.time_ns() + 4_000_000_000
        os.utime(f.fileno(), ns=(soon, soon))

    def test_rotations_in_a_row_are_read_in_their_order(self):
        self.write("app.log", numbered(1, 2))
        p = self.follow("app.log")
        self.arrives(p, *numbers(1, 2))
        with self.stopped(p):
            self.append("app.log", numbered(3, 4))
            self.rotate("app.log", 5)
            self.rotate("app.log", 7)
            self.rotate("app.log", 9)
        self.arrives(p, *numbers(1, 10))
        self.append("app.log", b"line 11\n")
        self.arrives(p, *numbers(1, 11))
        self.finish(p)

    def rotate(self, name, first):
        """As logrotate does: .1 becomes .2 and so on. The new file has two lines."""
        old = sorted(int(n.rpartition(".")[2]) for n in os.listdir(self.dir) if n.startswith(name + "."))
        for n in reversed(old):
            os.rename(self.path(f"{name}.{n}"), self.path(f"{name}.{n + 1}"))
        os.rename(self.path(name), self.path(name + ".1"))
        self.write(name, numbered(first, first + 1))

    def test_rotations_while_it_was_dead_are_read_in_their_order(self):
        self.write("app.log", numbered(1, 2))
        p = self.follow("app.log")
        self.arrives(p, *numbers(1, 2))
        self.kill(p)
        self.append("app.log", b"line 3\n")
        self.rotate("app.log", 4)
        self.rotate("app.log", 6)
        self.rotate("app.log", 8)
        p = self.follow("app.log")
        self.arrives(p, *numbers(1, 9))
        self.kill(p)
        self.rotate("app.log", 10)
        self.ship("app.log")
        self.assertEqual(self.lines(), numbers(1, 11))

    def test_rotated_names_with_dates_are_found(self):
        for base, rotated in [("app.log", "app.log-20240501"), ("a.log", "a-2024-05-01T12.log"), ("plain", "plain.old")]:
            with self.subTest(rotated=rotated):
                to = ("--to", f"file:out-{base}", f"--stream={base}", "--wal=wal")
                self.write(base, numbered(1, 2))
                self.ok("ship", base, *to)
                self.append(base, b"line 3\n")
                os.rename(self.path(base), self.path(rotated))
                self.write(base, b"line 4\n")
                self.ok("ship", base, *to)
                self.assertEqual(self.lines(f"out-{base}"), numbers(1, 4))

    def test_files_of_former_days_and_of_others_are_left_alone(self):
        self.write("app.log.2", b"former 2\n")
        self.write("app.log.1", b"former 1\n")
        self.write("app.log", numbered(1, 2))
        p = self.follow("app.log")
        self.arrives(p, *numbers(1, 2))
        self.write("app.log.debug", b"other\n")
        self.write("app.log.1.gz", b"other\n")
        self.write("app.log2", b"other\n")
        self.write("app.log.3", self.read("app.log"))  # another copy
        self.rotate_to("app.log", "app.log.4", b"line 3\n")
        self.arrives(p, *numbers(1, 3))
        self.kill(p)
        self.rotate_to("app.log", "app.log.5", b"line 4\n")
        self.ship("app.log")
        self.assertEqual(self.lines(), numbers(1, 4))

    def rotate_to(self, name, rotated, data):
        os.rename(self.path(name), self.path(rotated))
        self.write(name, data)

    def copytruncate(self, name, copy):
        self.write(copy, self.read(name))
        os.truncate(self.path(name), 0)

    def test_a_copytruncated_file_loses_nothing(self):
        self.write("app.log", numbered(1, 20))
        p = self.follow("app.log")
        self.arrives(p, *numbers(1, 20))
        self.append("app.log", numbered(21, 30))
        self.arrives(p, *numbers(1, 30))
        with self.stopped(p):
            self.append("app.log", numbered(31, 33))
            self.copytruncate("app.log", "app.log.1")
            self.append("app.log", b"line 34\n")
        self.arrives(p, *numbers(1, 34))
        with self.stopped(p):  # it is longer than before when it is checked
            self.append("app.log", b"line 35\n")
            self.copytruncate("app.log", "app.log.2")
            self.append("app.log", numbered(36, 99))
        self.arrives(p, *numbers(1, 99))
        self.copytruncate("app.log", "app.log.3")
        self.append("app.log", b"line 100\n")
        self.arrives(p, *numbers(1, 100))
        self.rotate_to("app.log", "app.log.4", b"line 101\n")  # the copies are not taken for unseen files
        self.arrives(p, *numbers(1, 101))
        self.finish(p)

    def test_copytruncate_twice_while_it_was_dead(self):
        self.write("app.log", numbered(1, 3))
        self.ship("app.log")
        self.append("app.log", numbered(4, 5))
        self.copytruncate("app.log", "app.log.2")
        self.append("app.log", numbered(6, 8))
        self.copytruncate("app.log", "app.log.1")
        self.append("app.log", numbered(9, 9))
        self.ship("app.log")
        self.assertEqual(self.lines(), numbers(1, 9))
        self.assertEqual(self.result("app.log")["read"], 0)

    def test_a_copy_is_found_while_the_truncated_file_is_empty(self):
        self.write("app.log", numbered(1, 3))
        self.ship("app.log")
        self.copytruncate("app.log", "app.log.2")
        self.ship("app.log")  # sees the truncation, and nothing since
        self.append("app.log", numbered(4, 5))
        self.copytruncate("app.log", "app.log.1")
        self.ship("app.log")
        self.assertEqual(self.lines(), numbers(1, 5))
        self.append("app.log", numbered(6, 7))
        self.ship("app.log")
        self.assertEqual(self.lines(), numbers(1, 7))

    def test_a_copy_that_begins_like_the_file_is_not_taken_for_a_copy_of_it(self):
        banner = b"#" * 300 + b"\n"
        self.write("app.log", banner + numbered(100, 103))
        self.ship("app.log")
        self.copytruncate("app.log", "app.log.3")
        self.ship("app.log")
        self.append("app.log", numbered(104, 105))
        self.copytruncate("app.log", "app.log.2")
        self.append("app.log", b"line 10")  # of line 106: the writer is in the middle of it
        p = self.follow("app.log")
        self.until("the copy was read", lambda: b"line 105" in self.lines(), p)
        self.append("app.log", b"6\n")
        self.until("the file was read", lambda: b"line 106" in self.lines(), p)
        self.finish(p)
        self.copytruncate("app.log", "app.log.1")
        self.ship("app.log")
        self.append("app.log", banner + numbered(107, 108))
        self.copytruncate("app.log", "app.log.0")
        self.append("app.log", banner)
        self.ship("app.log")
        self.append("app.log", numbered(109, 109))
        self.ship("app.log")
        self.assertEqual([line for line in self.lines() if line[:1] != b"#"], numbers(100, 109))

    def test_a_truncated_file_is_read_from_its_beginning(self):
        self.write("app.log", numbered(1, 5) + b"cut o")
        p = self.follow("app.log")
        self.arrives(p, *numbers(1, 5))
        os.truncate(self.path("app.log"), 0)
        self.arrives(p, *numbers(1, 5), b"cut o")
        self.assertTrue(self.rows()[-1]["partial"])
        self.append("app.log", b"line 6\n")
        self.arrives(p, *numbers(1, 5), b"cut o", b"line 6")
        self.finish(p)

    def test_a_deleted_file_is_finished_and_waited_for(self):
        self.write("app.log", numbered(1, 2))
        p = self.follow("app.log")
        self.arrives(p, *numbers(1, 2))
        writer = open(self.path("app.log"), "ab", buffering=0)
        self.addCleanup(writer.close)
        with self.stopped(p):
            os.unlink(self.path("app.log"))
            writer.write(b"line 3\n")
        self.arrives(p, *numbers(1, 3))
        fds = f"/proc/{p.pid}/fd"

        def target(n):
            try:
                return os.readlink(f"{fds}/{n}")
            except FileNotFoundError:  # closed meanwhile
                return ""

        def held():
            return [n for n in os.listdir(fds) if "app.log (deleted)" in target(n)]

        self.until("the deleted file is let go", lambda: not held(), p)
        self.write("app.log", b"line 4\n")
        self.arrives(p, *numbers(1, 4))
        self.finish(p)

    def test_files_and_folders_that_are_not_there_yet_are_waited_for(self):
        p = self.follow("app.log", "new/deep/other.log")
        self.until("reported", lambda: self.said().count("waiting for it") == 2, p)
        self.write("app.log", b"line 1\n")
        self.arrives(p, b"line 1")
        os.makedirs(self.path("new/deep"))
        self.write("new/deep/other.log", b"line 2\n")
        self.arrives(p, *numbers(1, 2))
        self.append("new/deep/other.log", b"line 3\n")
        self.arrives(p, *numbers(1, 3))
        self.finish(p)

    def test_a_file_that_may_not_be_read_is_read_as_soon_as_it_may_be(self):
        self.write("app.log", b"line 1\n")
        self.forbid("app.log")
        with open(self.path("err"), "ab") as err:
            p = self.start_with(err, "ship", "--follow", "--json", "app.log", *self.TO, under=self.bound())
        self.until("reported", lambda: "app.log: Permission denied" in self.said(), p)
        self.allow("app.log")
        self.arrives(p, b"line 1")
        self.append("app.log", b"line 2\n")
        self.arrives(p, *numbers(1, 2))
        self.write("next", b"line 3\n")
        self.forbid("next")
        os.rename(self.path("next"), self.path("app.log"))
        self.until("reported", lambda: self.said().count("Permission denied") == 2, p)
        self.allow("app.log")
        self.arrives(p, *numbers(1, 3))
        self.finish(p)

    def test_nothing_wakes_it_while_nothing_happens(self):
        """Counted by the kernel: how often its threads have slept. No heartbeat, no timer."""
        self.write("app.log", numbered(1, 3))
        os.mkdir(self.path("more"))
        self.write("more/b.log", b"")
        p = self.follow("app.log", "more/b.log")
        self.arrives(p, *numbers(1, 3))
        before = self.quiet(p)
        self.append("app.log", b"line 4\n")
        self.arrives(p, *numbers(1, 4))
        self.assertNotEqual(self.slept(p), before)
        self.finish(p)

    def slept(self, p):
        found = {}
        for thread in os.listdir(f"/proc/{p.pid}/task"):
            with open(f"/proc/{p.pid}/task/{thread}/status", encoding="ascii") as f:
                fields = dict(line.split(":", 1) for line in f)
            found[thread] = int(fields["voluntary_ctxt_switches"])
        return found

    def quiet(self, p):
        """What was delivered is noted a little later; after that the counts stay."""
        for _ in range(40):
            counts = self.slept(p)
            time.sleep(1.5)
            if self.slept(p) == counts:
                return counts
        self.fail(f"it wakes up again and again: {counts}, {self.slept(p)}")

    def test_a_link_that_is_turned_to_another_file_is_followed(self):
        os.mkdir(self.path("logs"))
        self.write("logs/1", numbered(1, 2))
        os.symlink("logs/1", self.path("current"))
        p = self.follow("current")
        self.arrives(p, *numbers(1, 2))
        self.append("logs/1", b"line 3\n")
        self.arrives(p, *numbers(1, 3))
        self.write("logs/2", b"line 4\n")
        os.symlink("logs/2", self.path("next"))
        os.rename(self.path("next"), self.path("current"))
        self.arrives(p, *numbers(1, 4))
        self.finish(p)

    def test_an_inode_that_is_used_again_is_another_file(self):
        for i in range(20):  # another file on this file system may be given the inode
            name, before = f"app{i}.log", self.lines()
            self.write(name, numbered(1, 9))
            self.ship(name)
            inode = os.stat(self.path(name)).st_ino
            os.unlink(self.path(name))
            self.write(name, b"other 1\nother 2\n" * 20)
            again = os.stat(self.path(name)).st_ino == inode
            self.ship(name)
            self.assertEqual(self.lines(), before + numbers(1, 9) + [b"other 1", b"other 2"] * 20)
            if again:
                return
        self.skipTest("this file system does not use it again at once")

    def test_a_hangup_opens_everything_anew_and_ends_nothing(self):
        self.write("app.log", b"line 1\n")
        p = self.follow("app.log")
        self.arrives(p, b"line 1")
        for i in range(2, 6):
            p.send_signal(signal.SIGHUP)
            self.append("app.log", b"line %d\n" % i)
            self.arrives(p, *numbers(1, i))
        self.rotate_to("app.log", "app.log.1", b"line 6\n")
        p.send_signal(signal.SIGHUP)
        self.arrives(p, *numbers(1, 6))
        self.finish(p)

    def test_a_full_backlog_stops_the_reading_until_there_is_room(self):
        port = free_port()
        lines = [b"%05d %s" % (i, b"x" * 1000) for i in range(400)]
        self.write("app.log", b"\n".join(lines) + b"\n")
        p = self.follow("app.log", "--max-pending=64KiB", to=("--to", f"http://127.0.0.1:{port}/rows", "--stream=s",
                                                              "--wal=wal"))
        self.until("reported", lambda: "the log is full" in self.said(), p)
        end = Endpoint(self, port=port)
        self.until("all", lambda: len(end.rows) >= len(lines), p)
        self.assertEqual([line_of(r) for r in end.rows], lines)
        self.finish(p)

    def test_without_inotify_files_are_checked_every_second(self):
        limit = "echo 0 > /proc/sys/user/max_inotify_instances"
        if subprocess.run(["unshare", "-Ur", "sh", "-c", limit], capture_output=True, check=False).returncode:
            self.skipTest("no user namespaces here")
        self.write("app.log", b"line 1\n")
        with open(self.path("err"), "ab") as err:
            p = subprocess.Popen(["unshare", "-Ur", "sh", "-c", limit + '; exec "$@"', "sh", SLUICE, "ship", "--follow",
                                  "--json", "app.log", *self.TO], stderr=err, stdout=subprocess.PIPE, cwd=self.dir, env=self.env)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.arrives(p, b"line 1")
        self.assertIn("every second", self.said())
        self.append("app.log", b"line 2\n")
        self.arrives(p, *numbers(1, 2))
        self.rotate_to("app.log", "app.log.1", b"line 3\n")
        self.arrives(p, *numbers(1, 3))
        self.finish(p)


if __name__ == "__main__":
    main()
