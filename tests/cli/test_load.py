#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice load: formats, bad rows, targets, dead letters and redriving them, progress."""

import contextlib
import fcntl
import http.server
import json
import os
import pty
import random
import re
import struct
import subprocess
import termios
import threading
import time

from clitest import SLUICE, TIMEOUT, free_port, main, rest_from
from loadtest import BARS, BARS_SUM, LoadTest, expected_sum


class Formats(LoadTest):
    def test_another_delimiter_is_read_and_kept_for_dead_letters(self):
        self.write("semi.csv", b'id;v\n1;a,b\n2;"x;y"\nthree;c\n')
        to = self.table("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        self.fails(65, "load", "semi.csv", *to, "--delimiter", ";", says="1 dead letter")
        self.assertEqual(self.rows("SELECT id, v FROM t ORDER BY id"), [(1, "a,b"), (2, "x;y")])
        self.rows("DROP TABLE t")
        self.table("CREATE TABLE t (id TEXT, v TEXT)")
        self.ok("dlq", "redrive", "sluice-dead-letters")
        self.assertEqual(self.rows("SELECT id, v FROM t"), [("three", "c")])
        self.write("tab.csv", b"4\td,e\n")
        self.ok("load", "tab.csv", "--no-header", *to, "--delimiter", "tab")
        self.assertEqual(self.rows("SELECT v FROM t WHERE id = '4'"), [("d,e",)])
        self.ok("load", "semi.csv", "--to", "file:out.csv", "--delimiter", ";", "--quiet")
        self.assertEqual(self.read("out.csv"), b'id,v\n1,"a,b"\n2,x;y\nthree,c\n')
        for bad in ("", ";;", '"', "\u00e9"):
            self.fails(64, "load", "semi.csv", "--to", "null:", "--delimiter", bad, says="--delimiter")
        self.write("x.jsonl", b"{}\n")
        self.fails(64, "load", "x.jsonl", "--to", "null:", "--delimiter", ";", says="needs CSV")

    def test_two_loads_in_one_folder_do_not_block_each_other(self):
        first = self.start("load", "-", "--format=jsonl", "--no-resume", "--to", "file:first.jsonl")
        self.addCleanup(first.stdin.close)
        first.stdin.write(b'{"id":1}\n')
        first.stdin.flush()
        end = time.monotonic() + TIMEOUT
        # A row is written after the folder of its dead letters was locked.
        while not os.path.exists(self.path("first.jsonl")) or not os.path.getsize(self.path("first.jsonl")):
            self.assertLess(time.monotonic(), end)
            rest_from(0)
        self.write("second.jsonl", b'{"id":2}\nnot json\n')
        self.fails(65, "load", "second.jsonl", "--to", "file:out.jsonl", says="1 dead letter in ./sluice-dead-letters-2;")
        self.assertEqual(len(self.ok("dlq", "list", "sluice-dead-letters-2", "--json").lines()), 1)
        # A folder that was named is the one that is used.
        self.fails(75, "load", "second.jsonl", "--to", "file:out.jsonl", "--dead-letters", "sluice-dead-letters",
                   says="use another folder")
        first.communicate(timeout=TIMEOUT)
        self.assertEqual(first.returncode, 0)

    def test_options_of_the_breaker_and_of_certificates_reach_the_target(self):
        self.write("a.jsonl", b'{"id":1}\n')
        self.fails(64, "load", "a.jsonl", "--to", "null:", "--breaker-failures=0", says="--breaker-failures")
        self.ok("load", "a.jsonl", "--to", "null:", "--breaker-failures=1", "--breaker-pause=10ms", "--breaker-max-pause=20ms")
        self.fails(64, "load", "a.jsonl", "--to", "null:", "--ca-file", "ca.pem", says="option ca_file does not apply")
        r = self.sluice("load", "a.jsonl", "--to", "https://127.0.0.1:1/", "--ca-file", "absent.pem")
        self.assertNotEqual(r.code, 0)
        self.assertIn("absent.pem", r.errors)

    def test_csv_makes_its_table(self):
        self.write("a.csv", b"id,name,price,day,ok\n1,ada,1.5,2024-02-29,true\n2,,2.5,2024-03-01,false\n")
        r = self.load("a.csv", "--to", "sqlite:t.db", "--table", "t", "--create")
        self.assertRegex(r.text, r"^2 rows written to sqlite:t.db in [0-9.]+ s\n$")
        self.assertEqual(r.err, b"")
        self.assertEqual(self.rows("SELECT * FROM t"), [(1, "ada", 1.5, "2024-02-29", 1), (2, None, 2.5, "2024-03-01", 0)])
        kinds = [k for (k,) in self.rows("SELECT type FROM pragma_table_info('t')")]
        self.assertEqual(kinds, ["INTEGER", "TEXT", "REAL", "TEXT", "INTEGER"])

    def test_csv_is_that_of_rfc_4180(self):
        to = self.table("CREATE TABLE t (id INTEGER, text TEXT)")
        self.write("a.csv", b'\xef\xbb\xbfid,text\r\n1,"a ""quoted"", text"\r\n2,"two\r\nlines"\r\n3,""\r\n4,\r\n\r\n5,"\xc3\xa4"')
        self.load("a.csv", *to)
        self.assertEqual(self.rows("SELECT * FROM t ORDER BY id"),
                         [(1, 'a "quoted", text'), (2, "two\r\nlines"), (3, ""), (4, None), (5, "ä")])

    def test_json_lines_keep_their_numbers_and_nested_values(self):
        to = self.table("CREATE TABLE t (id INTEGER, exact TEXT, nested TEXT, other TEXT DEFAULT 'd')")
        self.write("a.jsonl", b'{"id":9223372036854775807,"exact":0.1000000000000000055511151231257827}\n'
                   b'{"nested":{"b":[1,2.50,"x"]},"id":-9223372036854775808,"other":null}\n')
        self.load("a.jsonl", *to)
        self.assertEqual(self.rows("SELECT * FROM t ORDER BY id DESC"),
                         [(9223372036854775807, "0.1000000000000000055511151231257827", None, "d"),
                          (-9223372036854775808, None, '{"b":[1,2.50,"x"]}', None)])

    def test_json_lines_make_their_table(self):
        self.write("a.jsonl", b'{"id":1}\n{"id":2,"tags":["x"],"at":"2024-01-01T00:00:00Z"}\n')
        self.load("a.jsonl", "--to", "sqlite:t.db", "--table", "t", "--create", "--on-conflict", "id")
        self.load("a.jsonl", "--to", "sqlite:t.db", "--table", "t", "--create", "--on-conflict", "id")
        self.assertEqual(self.rows("SELECT * FROM t ORDER BY id"), [(1, None, None), (2, '["x"]', "2024-01-01T00:00:00Z")])

    def test_rows_with_a_key_replace_what_is_there(self):
        to = self.table(BARS)
        self.write("a.csv", b"id,symbol,price\n1,A,1\n2,B,2\n")
        self.load("a.csv", *to)
        self.write("a.csv", b"id,symbol,price\n2,B,20\n3,C,30\n")
        self.load("a.csv", *to, "--on-conflict", "id")
        self.assertEqual(self.rows("SELECT * FROM bars ORDER BY id"), [(1, "A", 1.0), (2, "B", 20.0), (3, "C", 30.0)])

    def test_csv_without_a_header(self):
        self.write("a.csv", b"1,A,1\n2,B,2\n")
        to = self.table(BARS)
        self.load("a.csv", *to, "--no-header")
        self.load("a.csv", "--to", "sqlite:t.db", "--table", "u", "--no-header", "--create", "--columns", "x,y,z")
        self.assertEqual(self.rows("SELECT x, y, z FROM u ORDER BY x"), self.rows("SELECT * FROM bars ORDER BY id"))
        self.fails(65, "load", "a.csv", "--to", "sqlite:t.db", "--table", "v", "--no-header", "--create", "--columns", "x,y",
                   says=["2 names", "3 fields"])

    def test_null_has_the_text_that_was_given(self):
        to = self.table("CREATE TABLE t (id INTEGER, text TEXT)")
        self.write("a.csv", b'id,text\n1,\\N\n2,"\\N"\n3,\n')
        self.load("a.csv", *to, "--null", "\\N")
        self.assertEqual(self.rows("SELECT * FROM t ORDER BY id"), [(1, None), (2, "\\N"), (3, "")])

    def test_several_files_and_standard_input(self):
        to = self.table(BARS)
        self.write("a.csv", self.bars(10))
        self.write("b.csv", self.bars(10, first=11))
        out = self.result("a.csv", "-", "b.csv", "--format", "csv", "--load-id", "x", *to, stdin=self.bars(10, first=21))
        self.assertEqual((out["read"], out["written"], out["dead"]), (30, 30, 0))
        self.assertEqual(self.rows(BARS_SUM), [expected_sum(30)])

    def test_a_pipe_that_is_cut_in_its_last_line_gives_no_row_of_it(self):
        for name, start, rows, cut, rest in (("csv", b"n,v\n", [b"%d,%d\n" % (i, 1000 + i) for i in range(1, 8)], b"8,10", b"08\n"),
                                             ("jsonl", b"", [b'{"n":%d,"v":1}\n' % i for i in range(1, 8)], b'{"n":8,"v":1}', b"\n")):
            for create in ((), ("--create",)):
                with self.subTest(format=name, create=create):
                    table = f"{name}{len(create)}"
                    if not create:
                        self.table(f"CREATE TABLE {table} (n INTEGER, v INTEGER)")
                    args = ("load", "-", "--format", name, "--load-id", table, "--to", "sqlite:t.db", "--table", table, *create)
                    r = self.fails(65, *args, stdin=start + b"".join(rows) + cut,
                                   says=["standard input", "it ends in the middle of a line, perhaps because its writer was interrupted"])
                    self.assertIn("7 rows written", r.text)
                    self.assertEqual(self.rows(f"SELECT n FROM {table} ORDER BY n"), [(i,) for i in range(1, 8)])
                    self.ok(*args, stdin=start + b"".join(rows) + cut + rest)  # continues after what was loaded
                    self.assertEqual(self.rows(f"SELECT n FROM {table} ORDER BY n"), [(i,) for i in range(1, 9)])

    def test_a_pipe_that_is_cut_in_its_first_line_is_refused(self):
        self.table("CREATE TABLE t (n INTEGER, v INTEGER)")
        for stdin in (b"n,v", b"n,v\n1,2"):
            for create in ((), ("--create",)):
                with self.subTest(stdin=stdin, create=create):
                    self.fails(65, "load", "-", "--format", "csv", "--load-id", "x", "--to", "sqlite:t.db", "--table", "t", *create,
                               stdin=stdin, says="it ends in the middle of a line")
        self.assertEqual(self.rows("SELECT * FROM t"), [])

    def test_a_file_without_a_final_newline_gives_its_last_row(self):
        self.table("CREATE TABLE t (n INTEGER, v INTEGER)")
        self.write("a.csv", b"n,v\n1,2\n3,4")
        self.load("a.csv", "--to", "sqlite:t.db", "--table", "t")
        with open(self.path("a.csv"), "rb") as f:
            subprocess.run([SLUICE, "load", "-", "--format", "csv", "--load-id", "x", "--to", "sqlite:t.db", "--table", "t"], stdin=f,
                           cwd=self.dir, env=self.env, check=True, capture_output=True)
        self.assertEqual(self.rows("SELECT n, v FROM t ORDER BY n"), [(1, 2), (1, 2), (3, 4), (3, 4)])

    def test_a_file_may_be_given_twice(self):
        self.write("a.csv", self.bars(10))
        self.assertEqual(self.result("a.csv", "a.csv", "--to", "null:")["written"], 20)
        self.assertEqual(self.result("a.csv", "a.csv", "--to", "null:", "--wal", "wal")["written"], 20)
        self.assertEqual(os.listdir(self.path("wal")), [])

    def test_files_with_different_headers_are_refused(self):
        self.write("a.csv", b"id,name\n1,a\n")
        self.write("b.csv", b"name,id\na,1\n")
        r = self.fails(65, "load", "a.csv", "b.csv", "--to", "null:", says=["b.csv", "header"])
        self.assertIn("1 row written", r.text)

    def test_nothing_to_load_is_no_error(self):
        to = self.table(BARS)
        self.write("empty.csv", b"")
        self.write("empty.jsonl", b"")
        self.write("header.csv", b"id,symbol,price\n")
        for args, stdin, says in [(["empty.csv"], b"", "is empty"), (["empty.jsonl"], b"", ""), (["header.csv"], b"", ""),
                                  (["--format", "csv", "--load-id=x"], b"", "standard input is empty"), (["-", "--format=jsonl", "--load-id=y"], b"\n\n", ""),
                                  (["empty.csv", "header.csv", "--wal", "wal"], b"", "empty.csv is empty")]:
            with self.subTest(args=args):
                r = self.load(*args, *to, stdin=stdin)
                self.assertIn("0 rows written", r.text)
                self.assertIn(says, r.errors)

    def test_an_empty_file_does_not_fix_the_columns_of_the_next(self):
        to = self.table(BARS)
        self.write("empty.csv", b"")
        self.write("a.csv", b"price,id,symbol\n1.5,7,A\n")
        self.load("empty.csv", "a.csv", *to)
        self.assertEqual(self.rows("SELECT * FROM bars"), [(7, "A", 1.5)])

    def test_other_targets(self):
        self.write("a.csv", b'id,name\n1,"a,b"\n2,c\n')
        self.load("a.csv", "--to", "file:out.csv")
        self.assertEqual(self.read("out.csv"), b'id,name\n1,"a,b"\n2,c\n')
        self.load("a.csv", "--to", "exec:cat >got")
        self.assertEqual(self.read("got"), b'1,"a,b"\n2,c\n')
        self.load("a.csv", "--to", "null:")


class Wrong(LoadTest):
    def test_wrong_usage_is_reported_before_anything_is_done(self):
        self.write("a.csv", self.bars(2))
        self.write("a.jsonl", b"{}\n")
        self.write("a.txt", b"")
        os.mkdir(self.path("folder"))
        sqlite = ["--to", "sqlite:t.db"]
        null = ["--to", "null:"]
        for args, says in [
            (["a.csv"], ["--to"]),
            (["a.csv", *sqlite], ["table"]),
            (["a.txt", *null], ["--format", "a.txt"]),
            ([*null], ["--format", "standard input"]),
            (["a.csv", "a.jsonl", *null], ["different formats"]),
            (["-", "-", "--format", "csv", *null], ["only once"]),
            (["folder", "--format", "csv", *null], ["folder", "is a folder"]),
            (["a.csv", "--to", "exec:cat", "--table", "t"], ["exec", "table"]),
            (["a.csv", *null, "--on-conflict", "id"], ["null", "on_conflict"]),
            (["a.csv", "--to", "nosuch:x"], ["nosuch", "sqlite:FILE"]),
            (["a.csv", "--to", "file:"], ["file:"]),
            (["a.csv", *null, "--columns", "a,b"], ["--columns", "--no-header"]),
            (["a.csv", *null, "--no-header", "--columns", "a,,b"], ["--columns"]),
            (["a.jsonl", *null, "--columns", "a"], ["--columns", "CSV"]),
            (["a.jsonl", *null, "--no-header"], ["--no-header", "CSV"]),
            (["a.csv", *null, "--workers", "0"], ["--workers"]),
            (["a.csv", *sqlite, "--table", "t", "--create", "--on-conflict", "nope"], ["nope"]),
        ]:
            with self.subTest(args=args):
                self.one_line(self.fails(64, "load", *args, says=says))
        self.assertFalse(os.path.exists(self.path("sluice-dead-letters")))

    def test_a_target_that_does_not_fit_is_reported_before_the_first_row(self):
        self.table(BARS)
        self.write("a.csv", self.bars(2))
        self.write("b.csv", b"id,nome\n1,2\n")
        self.write("c.csv", b"id,id\n1,2\n")
        self.write("text", b"no database")
        self.write("secret", b"")
        pg = "postgres://user:geheim@127.0.0.1:1/x?connect_timeout=60"
        for code, args, says in [
            (74, ["a.csv", "--to", "sqlite:nope.db", "--table", "t"], ["nope.db", "--create"]),
            (74, ["a.csv", "--to", "sqlite:t.db", "--table", "nope"], ["no table nope"]),
            (78, ["b.csv", "--to", "sqlite:t.db", "--table", "bars"], ["no column nome"]),
            (78, ["a.csv", "--to", "sqlite:t.db", "--table", "bars", "--on-conflict", "nope"], ["no column nope"]),
            (78, ["a.csv", "--to", "sqlite:t.db", "--table", "bars", "--on-conflict", "symbol"], ["UNIQUE"]),
            (65, ["a.csv", "--to", "sqlite:text", "--table", "t"], ["text"]),
            (65, ["c.csv", "--to", "null:"], ["c.csv", "id"]),
            (69, ["a.csv", "--to", pg, "--table", "t"], ["127.0.0.1", "refused"]),
            (69, ["a.csv", "--to", "http://127.0.0.1:1/"], ["127.0.0.1"]),
            (74, ["nope.csv", "--to", "null:"], ["nope.csv", "No such file"]),
            (74, ["a.csv", "--to", "null:", "--dead-letters", "/proc/nope"], ["/proc/nope"]),
            (73, ["a.csv", "--to", "null:", "--dead-letters", "text"], ["text is not a folder"]),
            (78, ["a.csv", "--to", "null:", "--create"], ["null:"]),
        ]:
            with self.subTest(args=args):
                r = self.fails(code, "-q", "load", *args, says=says)
                self.one_line(r)
                self.assertNotIn(b"geheim", r.err)
        self.assertEqual(self.rows("SELECT count(*) FROM bars"), [(0,)])

    def test_a_password_on_the_command_line_is_warned_of_and_never_shown(self):
        self.write("a.csv", self.bars(2))
        r = self.fails(69, "load", "a.csv", "--to", "postgres://user:geheim@127.0.0.1:1/x", "--table", "t",
                       says=["password", "every user"])
        self.assertNotIn(b"geheim", r.err)

    def test_a_folder_of_dead_letters_that_is_in_use(self):
        self.write("a.csv", self.bars(2))
        first = self.start("load", "--format", "csv", "--to", "null:")
        first.stdin.write(self.bars(1))
        first.stdin.flush()
        while not os.path.exists(self.path("sluice-dead-letters", "lock")):
            self.assertIsNone(first.poll())
        self.until_locked()
        self.fails(75, "load", "a.csv", "--to", "null:", "--dead-letters=sluice-dead-letters",
                   says=["sluice-dead-letters", "--dead-letters"])
        self.load("a.csv", "--to", "null:", "--dead-letters", "other")
        first.communicate(timeout=TIMEOUT)
        self.assertEqual(first.returncode, 0)

    def until_locked(self):
        """The lock file is made before it is locked: wait for a redrive to be refused."""
        while self.sluice("dlq", "purge", "--yes", "sluice-dead-letters").code != 75:
            pass


class BadRows(LoadTest):
    def test_each_is_a_dead_letter_with_its_line_and_reason(self):
        to = self.table("CREATE TABLE t (id INTEGER NOT NULL, text TEXT)")
        self.write("a.csv", b"id,text\n"  # 1
                   b"1,good\n"  # 2
                   b'2,"over\ntwo\r\nlines"\n'  # 3 to 5
                   b"x,no number\n"  # 6
                   b"3\n"  # 7
                   b"\n"  # 8
                   b"4,\xff\n"  # 9
                   b"5,a\0b\n"  # 10
                   b'6,"a"b\n'  # 11
                   b',"no id\nat all"\n'  # 12, 13
                   b"7,good\n"  # 14
                   b'8,"never closed\n'  # 15
                   b"9,good\n")  # 16
        r = self.load("a.csv", *to, code=65)
        self.assertEqual(r.errors.splitlines(),
                         ["sluice load: 7 dead letters in ./sluice-dead-letters; list the reasons with 'sluice dlq list'"])
        self.assertEqual(self.rows("SELECT * FROM t ORDER BY id"),
                         [(1, "good"), (2, "over\ntwo\r\nlines"), (7, "good"), (9, "good")])
        found = {letter["line"]: letter for letter in self.letters()}
        self.assertEqual({n: letter["payload"] for n, letter in found.items()},
                         {6: b"x,no number", 7: b"3", 9: b"4,\xff", 10: b"5,a\0b", 11: b'6,"a"b',
                          12: b',"no id\nat all"', 15: b'8,"never closed'})
        for n, says in [(6, "id accepts"), (7, "fields"), (9, "UTF-8"), (10, "NUL"), (11, "quote"), (12, "NOT NULL"),
                        (15, "unclosed quote")]:
            self.assertIn(says, found[n]["error"])
            self.assertEqual((found[n]["class"], found[n]["source"]), ("poison", "load:a.csv"))
        self.assertGreater(found[6]["attempts"], 0)

    def test_bad_json_lines(self):
        to = self.table("CREATE TABLE t (id INTEGER)")
        self.write("a.jsonl", b'\xef\xbb\xbf{"id":1}\r\n{"id":2,}\n[3]\n{"id":4,"other":5}\n{"id":"x"}\n{"id":6}{"id":7}\n'
                   b'{"id":1e400}\n\n{"id":"\\ud800"}\n{"id":\xff}\n{"id":8}')
        self.load("a.jsonl", *to, code=65)
        self.assertEqual(self.rows("SELECT * FROM t ORDER BY id"), [(1,), (8,)])
        self.assertEqual(sorted(self.lines()), [2, 3, 4, 5, 6, 7, 9, 10])

    def test_poison_does_not_flood_standard_error(self):
        to = self.table(BARS)
        bad = set(range(100, 2000, 7))
        self.write("a.csv", self.bars(2000, bad))
        r = self.load("a.csv", *to, "--batch-size", "100", code=65)
        self.assertEqual(len(r.errors.splitlines()), 1, r.errors)
        self.assertEqual(set(self.lines()), bad)
        self.assertEqual(self.rows(BARS_SUM), [expected_sum(2000, bad)])

    def test_a_line_beyond_all_measure_costs_itself_only(self):
        """400 MB in one line, from a pipe, in a process that never has half of it in memory."""
        to = self.table("CREATE TABLE t (id INTEGER, text TEXT)")
        p = subprocess.Popen([SLUICE, "load", "--format", "jsonl", "--load-id", "x", "--json", *to],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.dir, env=self.env)

        def feed():
            with p.stdin as f:
                f.write(b'{"id":1}\n{"id":2,"text":"')
                for _ in range(400):
                    f.write(b"x" * 1000000)
                f.write(b'"}\n{"id":3}\n')

        feeder = threading.Thread(target=feed)
        feeder.start()
        out, err = p.stdout.read(), p.stderr.read()
        feeder.join()
        p.stdout.close()
        p.stderr.close()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(p.returncode, 65, err)
        self.assertLess(usage.ru_maxrss, 200000)  # KiB
        self.assertEqual(json.loads(out)["written"], 2)
        self.assertEqual(self.rows("SELECT id FROM t ORDER BY id"), [(1,), (3,)])
        letter, = self.letters()
        self.assertEqual((letter["line"], letter["code"], len(letter["payload"])), (2, "ETOOBIG", 4096))

    def test_a_record_that_is_too_long_for_the_log_only(self):
        to = self.table("CREATE TABLE t (id INTEGER, text TEXT)")
        long = b'{"id":2,"text":"' + b"x" * (16 * 1024 * 1024 - 100) + b'"}'
        self.write("a.jsonl", b'{"id":1}\n' + long + b'\n{"id":3}\n')
        self.load("a.jsonl", *to, "--wal", "wal", code=65)
        self.assertEqual(self.rows("SELECT id FROM t ORDER BY id"), [(1,), (3,)])
        letter, = self.letters()
        self.assertEqual((letter["line"], letter["code"], letter["payload"]), (2, "ETOOBIG", long[:4096]))


class Redrive(LoadTest):
    def setUp(self):
        super().setUp()
        self.to = self.table("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT NOT NULL CHECK (text <> 'no'))")
        self.write("a.csv", b"id,text\n1,a\n2,no\n3,\nx,b\n5\n6,c\n")
        self.load("a.csv", *self.to, code=65)
        self.assertEqual(sorted(self.lines()), [3, 4, 5, 6])

    def again(self, *args, code=0):
        r = self.sluice("dlq", "redrive", "sluice-dead-letters", *args)
        self.assertEqual(r.code, code, (r.out, r.err))
        return r

    def test_what_is_refused_again_stays_and_reports_why(self):
        r = self.again(code=65)
        self.assertEqual((r.out, len(r.errors.splitlines())), (b"", 4))
        for says in ["CHECK constraint", "NOT NULL", "id accepts", "fields"]:
            self.assertIn(says, r.errors)
        self.assertEqual(len(self.letters()), 4)
        self.assertEqual(self.rows("SELECT id FROM t ORDER BY id"), [(1,), (6,)])

    def test_what_is_taken_now_is_acknowledged(self):
        self.table("DROP TABLE t; CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
        letters = {letter["line"]: letter["id"] for letter in self.letters()}
        r = self.again("--json", code=65)
        self.assertEqual({o["id"] for o in r.json()}, {letters[3], letters[4]})
        self.assertTrue(all(o["to"].endswith("/t.db") for o in r.json()))
        self.assertEqual(sorted(self.lines()), [5, 6])
        self.assertEqual(self.rows("SELECT * FROM t ORDER BY id"), [(2, "no"), (3, None)])

    def test_the_target_is_found_from_any_folder(self):
        self.table("DROP TABLE t; CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
        os.mkdir(self.path("elsewhere"))
        r = subprocess.run([SLUICE, "dlq", "redrive", "../sluice-dead-letters"], cwd=self.path("elsewhere"), env=self.env,
                           capture_output=True, check=False)
        self.assertEqual(r.returncode, 65, r.stderr)
        self.assertEqual(len(r.stdout.splitlines()), 2)
        self.assertEqual(self.rows("SELECT id FROM t ORDER BY id"), [(2,), (3,)])

    def test_another_target_with_the_same_table(self):
        self.table("CREATE TABLE t (id TEXT, text TEXT)", "u.db")
        r = self.again("--to", "sqlite:u.db", code=65)
        self.assertEqual(len(r.lines()), 3)
        self.assertEqual(sorted(self.rows("SELECT * FROM t", "u.db"), key=str), [("2", "no"), ("3", None), ("x", "b")])
        self.assertEqual(self.lines(), [6])

    def test_a_log_may_take_them_too(self):
        self.again("--to-wal", "x.wal")
        self.assertEqual(set(self.records("x.wal").values()), {b"2,no", b"3,", b"x,b", b"5"})
        self.fails(64, "dlq", "redrive", "sluice-dead-letters", "--to-wal=x.wal", "--to=null:", says="exclude")

    def test_a_target_that_is_gone_keeps_them(self):
        os.rename(self.path("t.db"), self.path("u.db"))
        r = self.again(code=74)
        self.assertEqual(len(r.errors.splitlines()), 1, r.err)
        self.assertEqual(len(self.letters()), 4)

    def test_what_no_sink_looks_into_is_not_written_either(self):
        """A broken record is broken also for a file, a program and nowhere."""
        self.write("b.csv", b'id,text\n1\n2,\xff\n3,"a"b\n4,fine\n')
        for to, got in [("file:got", b"id,text\n4,fine\n"), ("exec:cat >>got", b"4,fine\n"), ("null:", b"")]:
            with self.subTest(to=to):
                self.write("got", b"")
                folder = "dead-" + to.split(":")[0]
                self.load("b.csv", "--to", to, "--dead-letters", folder, code=65)
                r = self.fails(65, "dlq", "redrive", folder, says="letter 1 stays")
                self.assertEqual((r.out, len(self.letters(folder)), self.read("got")), (b"", 3, got))

    def test_the_beginning_of_a_record_is_no_record(self):
        to = self.table("CREATE TABLE w (text TEXT)")
        self.write("long.csv", b"text\n" + b"x" * 5000 + b"\nfine\n")
        self.load("long.csv", *to, "--max-record", "1KiB", "--dead-letters", "d2", code=65)
        self.fails(65, "dlq", "redrive", "d2", says=["letter 1 stays", "beginning"])
        self.assertEqual((self.rows("SELECT * FROM w"), self.lines("d2")), ([("fine",)], [2]))

    def test_upserts_stay_upserts(self):
        to = self.table("CREATE TABLE k (id INTEGER PRIMARY KEY, n INTEGER CHECK (n < 10))")
        self.write("k.csv", b"id,n\n1,5\n2,50\n")
        self.load("k.csv", *to, "--on-conflict", "id", "--dead-letters", "d2", code=65)
        self.table("DROP TABLE k; CREATE TABLE k (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO k VALUES (2, 1)")
        self.assertEqual(self.ok("dlq", "redrive", "d2").text, f"1 -> sqlite:{os.path.realpath(self.path('t.db'))}\n")
        self.assertEqual(self.rows("SELECT * FROM k"), [(2, 50)])
        self.assertEqual(self.letters("d2"), [])


class RememberedUrl(LoadTest):
    """Letters have what opens the target again, and nothing secret."""

    def target(self, url, *args):
        with http.server.HTTPServer(("127.0.0.1", free_port()), Refusing) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            self.write("a.jsonl", b'{"id":1}\n')
            self.load("a.jsonl", "--to", url.replace("HOST", f"127.0.0.1:{server.server_port}"), *args, "-q", code=65)
            server.shutdown()
            thread.join()
        letter, = self.letters()
        return json.loads(letter["target"]), server.server_port

    def test_a_url_with_a_query_or_a_password_must_be_given_again(self):
        for url in ["http://HOST/x?key=geheim", "http://user:geheim@HOST/x"]:
            with self.subTest(url=url):
                target, port = self.target(url)
                self.assertEqual((target["to"], target["partial"]), (f"http://127.0.0.1:{port}/x{'?…' if '?' in url else ''}", True))
                self.fails(64, "dlq", "redrive", "sluice-dead-letters", says=["letter", "stays", "--to=URL"])
                self.ok("dlq", "redrive", "sluice-dead-letters", "--to", "null:")

    def test_a_token_file_is_found_from_anywhere(self):
        self.write("token", b"geheim\n")
        target, port = self.target("http://HOST/x", "--token-file", "token")
        self.assertEqual(target, {"to": f"http://127.0.0.1:{port}/x", "format": "jsonl",
                                  "token_file": os.path.realpath(self.path("token"))})

    def test_a_header_file_is_found_from_anywhere(self):
        self.write("headers", b"# of the ingest\n\nX-Key: geheim\r\nAuthorization: Token geheim\n")
        target, port = self.target("http://HOST/x", "--header-file", "headers")
        self.assertEqual((Refusing.keys[-1], Refusing.seen[-1]), ("geheim", "Token geheim"))
        self.assertEqual(target, {"to": f"http://127.0.0.1:{port}/x", "format": "jsonl",
                                  "header_file": os.path.realpath(self.path("headers"))})
        self.assertNotIn("geheim", self.ok("dlq", "export", "sluice-dead-letters").text)
        # As it is by now, and without it where it makes no sense.
        self.write("headers", b"X-Key: other\n")
        self.refused_again(port)
        self.assertEqual((Refusing.keys[-1], Refusing.seen[-1]), ("other", None))
        os.unlink(self.path("headers"))
        self.fails(74, "dlq", "redrive", "sluice-dead-letters", says=["stays", "header_file", self.path("headers")])
        self.ok("dlq", "redrive", "sluice-dead-letters", "--to", "file:out.jsonl")
        self.assertEqual(self.read("out.jsonl"), b'{"id":1}\n')

    def refused_again(self, port):
        with http.server.HTTPServer(("127.0.0.1", port), Refusing) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            os.mkdir(self.path("elsewhere"))
            r = self.sluice("dlq", "redrive", self.path("sluice-dead-letters"), under=["env", "-C", self.path("elsewhere")])
            server.shutdown()
            thread.join()
        self.assertEqual(r.code, 65, r.err)

    def test_a_bad_header_file_is_reported_at_the_start(self):
        self.write("a.jsonl", b'{"id":1}\n')
        for text, says in [
            (b"X-A: 1\nX-Key geheim\n", "line 2 is not \"Name: value\""),
            (b"X-A: 1\n\n# x\nX-Key: ge\x01heim\n", "line 4 has a control character"),
            (b"Content-Type: geheim\n", "line 1: the sink sets Content-Type itself"),
            (b"\n# geheim\n", "no headers in it"),
        ]:
            with self.subTest(text=text):
                self.write("headers", text)
                r = self.fails(78, "load", "a.jsonl", "--to", "http://127.0.0.1:1/", "--header-file", "headers",
                               says=["headers", says])
                self.one_line(r)
                self.assertNotIn(b"geheim", r.err)
        self.write("headers", b"Authorization: geheim\n")
        self.env["SLUICE_HTTP_TOKEN"] = "geheim"
        r = self.fails(78, "load", "a.jsonl", "--to", "http://127.0.0.1:1/", "--header-file", "headers",
                       says=["line 1", "Authorization is already set"])
        self.assertNotIn(b"geheim", r.err)
        self.fails(74, "load", "a.jsonl", "--to", "http://127.0.0.1:1/", "--header-file", "nope", says=["nope"])
        self.fails(64, "load", "a.jsonl", "--to", "null:", "--header-file", "headers", says=["header_file", "does not apply to this kind"])

    def test_a_token_comes_from_the_environment(self):
        self.env["SLUICE_HTTP_TOKEN"] = "geheim"
        target, port = self.target("http://HOST/x")
        self.assertEqual(Refusing.seen[-1], "Bearer geheim")
        self.assertEqual(target, {"to": f"http://127.0.0.1:{port}/x", "format": "jsonl"})


class Refusing(http.server.BaseHTTPRequestHandler):
    seen, keys = [], []

    def do_POST(self):
        self.seen.append(self.headers["Authorization"])
        self.keys.append(self.headers["X-Key"])
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(422)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class ByRow(http.server.BaseHTTPRequestHandler):
    """A row that has a status is answered with it, and nothing of its batch is taken; all others are taken."""
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        rows = [json.loads(line) for line in self.rfile.read(int(self.headers["Content-Length"])).splitlines()]
        status = next((row["status"] for row in rows if "status" in row), 200)
        if status == 200:
            self.server.good.set()
            time.sleep(self.server.takes_s)
        elif self.server.takes_s:
            self.server.good.wait(TIMEOUT)  # so that a good batch is on its way when this one is refused
        with self.server.mu:
            self.server.requests += 1
            status = self.server.turn(self.server.requests) or status
            if status == 200:
                self.server.taken += [row["id"] for row in rows]
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class OddTargets(LoadTest):
    """Rows that a working target never takes, and targets that take none."""

    @contextlib.contextmanager
    def target(self, turn=lambda n: None, takes_s=0):
        with http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), ByRow) as server:
            server.takes_s, server.good = takes_s, threading.Event()
            server.mu, server.taken, server.requests, server.turn = threading.Lock(), [], 0, turn
            server.url = f"http://127.0.0.1:{server.server_port}/rows"
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()

    def rows_with(self, n, status_of):
        rows = [{"id": i} | ({"status": status_of[i]} if i in status_of else {}) for i in range(1, n + 1)]
        self.write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())

    def ends(self, n, status_of, *args, takes_s=0):
        """Every row is taken once, or in the dead letters."""
        self.rows_with(n, status_of)
        with self.target(takes_s=takes_s) as server:
            out = self.result("a.jsonl", "--to", server.url, "-q", *args, code=65)
        self.assertEqual(sorted(server.taken), [i for i in range(1, n + 1) if i not in status_of])
        self.assertEqual((out["written"], out["dead"], out["left"]), (n - len(status_of), len(status_of), 0))
        self.assertEqual(sorted(self.lines()), sorted(status_of))

    def test_rows_that_get_a_500_keep_no_other_row_from_the_target(self):
        self.ends(5000, {i: 500 for i in (1, 11, 21, 31, 41, 4999)}, "--batch-size", "10")

    def test_one_bad_row_costs_itself_only_in_the_only_batch_too(self):
        self.ends(1000, {500: 500})

    def test_whatever_the_status_of_a_row_all_others_are_written(self):
        dice = random.Random(19)
        statuses = [301, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 418, 421, 422, 425, 429,
                    500, 501, 502, 503, 504, 505, 507, 511, 520, 599]
        rows = dice.sample(range(200, 3001), 2 * len(statuses))
        self.ends(3000, dict(zip(rows, statuses * 2)), "--batch-size", "20", "--give-up-after", "5s",
                  "--max-attempts", "3", "--max-backoff", "100ms")

    def test_first_rows_that_are_refused_at_once_do_not_speak_for_those_on_their_way(self):
        self.ends(60, {i: 404 for i in (1, 11, 21)}, "--batch-size", "10", "--give-up-after", "3s", takes_s=0.7)

    def test_a_target_that_refuses_the_first_rows_is_no_target(self):
        self.rows_with(100, {})
        for status, code, says in [(401, 78, "not authorized"), (403, 78, "forbidden"), (404, 78, "this URL does not exist"),
                                   (503, 69, "unavailable")]:
            with self.subTest(status=status), self.target(lambda n, status=status: status) as server:
                r = self.fails(code, "load", "a.jsonl", "--to", server.url, "--batch-size", "10", says=[says, str(status)])
                self.assertRegex(r.text, r"(?m)^0 rows written.*\n.*100 rows read but not written")

    def test_a_target_that_refuses_everything_later_is_waited_for_visibly_and_not_for_ever(self):
        self.rows_with(100, {})
        with self.target(lambda n: 401 if 3 <= n <= 6 else None) as server:
            r = self.load("a.jsonl", "--to", server.url, "--batch-size", "10", "--workers", "1")
        self.assertIn("401", r.err.decode())
        self.assertEqual(sorted(server.taken), list(range(1, 101)))
        with self.target(lambda n: 401 if n >= 3 else None) as server:
            r = self.fails(78, "load", "a.jsonl", "--to", server.url, "--batch-size", "10", "--workers", "1",
                           "--capacity", "100", "--give-up-after", "2s", says=["accepted no row for", "not authorized"])
        self.assertEqual(sorted(server.taken), list(range(1, 21)))
        left = int(re.search(r"(\d+) rows read but not written", r.text)[1])
        self.assertEqual(20 + left + len(self.lines()), 100)

    def test_the_options_of_the_coordinator_can_all_be_set(self):
        self.rows_with(2000, {})
        r = self.load("a.jsonl", "--to", "null:", "--capacity", "100", "--high-watermark", "90", "--low-watermark", "10",
                      "--overflow", "block", "--workers", "2", "--batch-size", "50", "--flush-interval", "10ms",
                      "--max-attempts", "2", "--initial-backoff", "1ms", "--max-backoff", "2ms", "--backoff-multiplier", "1.5",
                      "--jitter", "off", "--give-up-after", "1m", "--rate", "1000000")
        self.assertIn("2000 rows written", r.text)
        for value in ["0.5", "x", "1x", "nan", ""]:
            self.fails(64, "load", "a.jsonl", "--to", "null:", "--backoff-multiplier", value, says=["--backoff-multiplier"])
        self.fails(64, "load", "a.jsonl", "--to", "null:", "--capacity", "10", "--high-watermark", "11", says=["high_watermark"])


class Progress(LoadTest):
    def errors_on_a_terminal(self, *args, until=None, columns=0):
        """until: what is shown before the target takes anything."""
        self.write("a.csv", self.bars(1500))
        to = "exec:until [ -e go ]; do sleep 0.01; done; cat >/dev/null" if until else "null:"
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        p = subprocess.Popen([SLUICE, "load", "a.csv", "--to", to, "--rate", "1000", "--batch-size", "100", *args],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, cwd=self.dir,
                             env=dict(self.env, TERM="xterm"))
        os.close(slave)
        out = b""
        while True:
            try:
                got = os.read(master, 65536)
            except OSError:
                break
            if not got:
                break
            out += got
            if until and re.search(until, out):
                self.write("go", b"")
        os.close(master)
        with p.stdout:
            printed = p.stdout.read()
        self.assertEqual(p.wait(), 0, out)
        return out.decode(), printed.decode()

    def test_a_bar_on_a_terminal(self):
        shown = r"\r\[#*\.*\] \d+ rows?, \d+/s, \d+ queued, \d+ retrying, \d+ dead\x1b\[K"
        bar, printed = self.errors_on_a_terminal(until=shown.encode())
        self.assertRegex(bar, shown)
        self.assertTrue(bar.endswith("\r\x1b[K"), bar[-80:])
        self.assertRegex(printed, r"^1500 rows written")

    def test_a_bar_stays_on_its_line(self):
        bar, _ = self.errors_on_a_terminal(until=rb"rows?, .*\x1b\[K", columns=50)
        shown = [line.replace("\x1b[K", "") for line in bar.split("\r")]
        self.assertEqual(max(len(line) for line in shown), 49)

    def test_quiet_shows_none(self):
        self.assertEqual(self.errors_on_a_terminal("--quiet")[0], "")

    def test_json_is_one_object(self):
        self.write("a.csv", self.bars(100, bad={5}))
        out = self.result("a.csv", *self.table(BARS), code=65)
        self.assertEqual({k: v for k, v in out.items() if k != "seconds"},
                         {"read": 100, "written": 99, "dead": 1, "dropped": 0, "left": 0, "skipped": 0})
        self.assertGreaterEqual(out["seconds"], 0)

    def test_rows_that_are_dropped_are_counted(self):
        self.write("a.csv", self.bars(20000))
        r = self.load("--json", "a.csv", "--to", "exec:sleep 0.05; cat >>got", "--overflow", "drop_oldest", "--batch-size",
                      "10", "--workers", "1", code=65)
        out = json.loads(r.out)
        self.assertRegex(r.err.decode(), rf"{out['dropped']} rows dropped")
        self.assertEqual(out["written"] + out["dropped"], 20000)
        self.assertGreater(out["dropped"], 0)
        self.assertEqual(len(self.read("got").splitlines()), out["written"])

    def test_overflow_may_be_an_error(self):
        self.write("a.csv", self.bars(20000))
        r = self.fails(75, "load", "a.csv", "--to", "exec:sleep 0.05; cat >>got", "--overflow", "error", "--batch-size", "10",
                       "--workers", "1", says=["a.csv", "not accepted", "full"])
        self.assertNotIn("interrupted", r.errors)
        written = int(re.match(r"(\d+) rows written", r.text)[1])
        self.assertEqual(len(self.read("got").splitlines()), written)


if __name__ == "__main__":
    main()
