# SPDX-License-Identifier: Apache-2.0
"""sluice export from files and standard input: rows, columns, partitions, resuming, bad input, what is said of it."""

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import ssl
import subprocess
import time

from clitest import SLUICE, TIMEOUT, main
from exporttest import ExportTest
from shiptest import Endpoint


class Files(ExportTest):
    def test_no_folder_of_a_dataset_is_taken_for_a_column(self):
        self.write("rows.csv", b"n,partition,number\n1,a,x\n2,b,y\n")
        self.export("rows.csv")
        self.assertEqual([name for name in self.files() if "=" in name], [])
        self.assertEqual([row["partition"] for row in self.rows()], ["a", "b"])

    def test_the_schema_file_takes_every_type_that_parquet_schema_prints(self):
        types = ["bool", "int32", "int64", "float", "double", "date", "string", "binary", "fixed(3)", "decimal(18,4)",
                 *(f"timestamp({unit}{local})" for unit in ("millis", "micros", "nanos") for local in ("", ",local"))]
        names = [f"c{i}" for i in range(len(types))]
        self.write("in.csv", ("n," + ",".join(names) + "\n1" + "," * len(names) + "\n").encode())
        self.write("schema.yaml", ("columns:\n- {name: n, type: int64, nullable: false}\n" + "".join(
            f"- {{name: {name}, type: '{kind}'}}\n" for name, kind in zip(names, types))).encode())
        self.export("in.csv", "--schema", "schema.yaml")
        printed = json.loads(self.ok("parquet", "schema", "--json", self.path("lake", self.files()[0])).out)["columns"]
        self.assertEqual([c["type"] for c in printed[1:]], types)
        # What is printed is a schema again, as it stands.
        self.write("again.yaml", json.dumps({"columns": printed}).encode())
        self.export("in.csv", "--schema", "again.yaml")
        for wrong in ("decimal(19,2)", "fixed(0)", "timestamp(days)", "int64(2)"):
            self.write("wrong.yaml", f"columns:\n- {{name: n, type: '{wrong}'}}\n".encode())
            self.fails(78, "export", "--from", "in.csv", *self.WHERE, "--schema", "wrong.yaml", says=["wrong.yaml:2:", wrong])

    def test_not_a_number_in_the_first_rows_does_not_make_a_column_text(self):
        self.write("in.csv", b"n,v,w,t\n1,NaN,1,NaN\n2,0.5,Infinity,x\n3,-Infinity,2.5,y\n")
        self.export("in.csv")
        self.assertEqual([(r["v"], r["w"], r["t"]) for r in self.rows()],
                         [("NaN", 1.0, "NaN"), (0.5, "Infinity", "x"), ("-Infinity", 2.5, "y")])

    def test_rows_land_in_aligned_partitions_and_can_be_verified(self):
        self.write("in.csv", self.ledger(5, 27))
        result = self.export("in.csv", "--partition-size", "10")
        self.assertEqual((result["rows"], result["partitions"], result["start"], result["checkpoint"], result["stopped"]),
                         (23, 3, 5, 27, False))
        self.assertEqual(self.ranges(), [(5, 9), (10, 19), (20, 27)])
        self.assertEqual(self.files()[1], "d/partition-00000000000000000001/part-00000000000000000010-00000000000000000019.parquet")
        self.assertEqual(self.numbers(), list(range(5, 28)))
        self.assertEqual(self.leftovers(), [])
        self.verify()
        status = self.status()
        self.assertEqual((status["rows"], status["start"], status["checkpoint"], status["partition_size"], status["sequence"],
                          status["head"]), (23, 5, 27, 10, "n", result["head"]))

    def test_the_bytes_are_the_same_for_any_number_of_workers_and_either_way_of_reading(self):
        self.write("in.csv", self.ledger(1, 5000))
        self.export("in.csv", "--partition-size", "500", "--workers", "1")
        for name, source, args, stdin in [("b", "in.csv", ["--workers", "4"], b""),
                                          ("c", "-", ["--format", "csv", "--workers", "3"], self.read("in.csv"))]:
            r = self.sluice("export", "--from", source, "--to", name, "--dataset", "d", "--partition-size", "500", *args, stdin=stdin)
            self.assertEqual(r.code, 0, r.err)
            self.assertEqual(self.everything(name), self.everything())

    def test_json_lines_may_have_their_members_in_any_order_and_absent(self):
        self.write("in.jsonl", b'{"n":1,"big":9223372036854775807,"at":"2024-02-29T23:59:59.5+01:00","tag":"\\u00e4","more":{"a":[1,2]}}\n'
                               b'{"tag":null,"n":2}\n'
                               b'{"more":[],"at":"2024-03-01T00:00:00Z","big":-9223372036854775808,"n":3,"flag":true,"d":"2024-02-29"}\n')
        self.export("in.jsonl", "--sequence", "n")
        rows = self.rows()
        self.assertEqual([r["n"] for r in rows], [1, 2, 3])
        self.assertEqual([int(rows[i]["big"]) for i in (0, 2)], [2**63 - 1, -2**63])
        self.assertIsNone(rows[1]["big"])
        self.assertEqual(rows[0]["at"][:21], "2024-02-29T22:59:59.5")
        self.assertEqual((rows[0]["tag"], rows[1]["tag"], rows[2]["tag"]), ("ä", None, None))
        self.assertEqual([json.loads(rows[i]["more"]) for i in (0, 2)], [{"a": [1, 2]}, []])
        self.assertEqual((rows[2]["flag"], rows[2]["d"], rows[0]["flag"]), (True, "2024-02-29", None))
        self.verify()

    def test_csv_fields_may_hold_quotes_commas_line_ends_and_nothing(self):
        self.write("in.csv", b'n,a,b\r\n1,"x, ""y""\nz",\r\n2,"",q\r\n')
        self.export("in.csv")
        self.assertEqual([(r["a"], r["b"]) for r in self.rows()], [('x, "y"\nz', None), ("", "q")])

    def test_a_schema_gives_the_columns_their_types(self):
        self.write("s.yaml", b"""columns:
  - {name: n, type: int64, nullable: false}
  - {name: i, type: int32}
  - {name: f, type: float}
  - {name: d, type: double}
  - {name: b, type: bool}
  - {name: t, type: timestamp, unit: millis}
  - {name: day, type: date}
  - {name: fee, type: decimal, precision: 10, scale: 2}
  - {name: s, type: string}
  - {name: raw, type: binary}
  - {name: key, type: fixed, length: 2}
""")
        self.write("in.csv", b"n,i,f,d,b,t,day,fee,s,raw,key\n1,-7,0.5,0.1,true,2024-01-01T00:00:00.123Z,2024-02-29,12.34,x,\\x00ff,\\x0102\n"
                             b"2,,,,,,,,,,\n")
        self.export("in.csv", "--schema", "s.yaml")
        shown = self.ok("parquet", "schema", self.path("lake", self.files()[0])).text
        for word in ("int32", "float", "double", "bool", "timestamp(millis)", "date", "decimal(10,2)", "string", "binary", "fixed(2)"):
            self.assertIn(word, shown)
        first, second = self.rows()
        self.assertEqual((first["i"], first["f"], first["d"], first["b"], first["s"], first["day"]), (-7, 0.5, 0.1, True, "x", "2024-02-29"))
        self.assertEqual(str(first["fee"]), "12.34")
        self.assertEqual({v for k, v in second.items() if k != "n"}, {None})

    def test_the_next_run_continues_after_the_checkpoint(self):
        self.write("in.csv", self.ledger(1, 25))
        self.export("in.csv", "--partition-size", "10")
        again = self.export("in.csv")
        self.assertEqual((again["rows"], again["partitions"], again["checkpoint"]), (0, 0, 25))
        self.write("in.csv", self.ledger(1, 42))
        more = self.export("in.csv")
        self.assertEqual((more["rows"], more["partitions"], more["checkpoint"]), (17, 3, 42))
        self.assertEqual(self.ranges(), [(1, 9), (10, 19), (20, 25), (26, 29), (30, 39), (40, 42)])
        self.write("rest.csv", self.ledger(43, 50))
        self.export("rest.csv")
        self.assertEqual(self.numbers(), list(range(1, 51)))
        self.verify()

    def test_a_dataset_stays_what_it_is(self):
        self.write("in.csv", self.ledger(1, 25))
        self.export("in.csv", "--partition-size", "10")
        self.write("other.csv", b"n,hash\n26,x\n")
        for args in (["in.csv", "--partition-size", "20"], ["in.csv", "--sequence", "fee"]):
            self.fails(65, "export", "--from", *args, *self.WHERE)
        self.assertEqual(self.checkpoint(), 25)

    def test_rows_that_do_not_fit_can_be_diverted(self):
        lines = self.ledger(1, 30).splitlines(keepends=True)
        lines[7] = b"7,x,not a fee,2024-01-01T00:00:00Z\n"
        lines[12] = b"12,x,1,yesterday\n"
        self.write("in.csv", b"".join(lines))
        self.write("s.yaml", b"columns: [{name: n, type: int64}, {name: hash, type: string}, {name: fee, type: int64}, {name: closed_at, type: timestamp}]\n")
        result = self.export("in.csv", "--partition-size", "10", "--schema", "s.yaml", "--bad-rows", "divert", code=65)
        self.assertEqual((result["rows"], result["bad_rows"], result["checkpoint"]), (28, 2, 30))
        self.assertIn("2 bad rows in lake/_dead/d", result["errors"])
        letters = self.ok("dlq", "list", "--json", self.path("lake", "_dead", "d")).json()
        self.assertEqual(sorted(letter["position"] for letter in letters), [8, 13])
        self.assertEqual([n for n in range(1, 31) if n not in (7, 12)], self.numbers())
        parts = self.ok("export", "status", "lake", "--partitions", "--json").json()[1:]
        self.assertEqual([(p["rows"], p["bad_rows"]) for p in parts], [(8, 1), (9, 1), (10, 0), (1, 0)])
        self.verify()

    def test_numbers_of_diverted_rows_are_holes_that_verify_counts(self):
        lines = self.ledger(1, 40).splitlines(keepends=True)
        bad = (10, 19, 20, 25, 40)  # also the first and the last of a partition, and the last of all
        for n in bad:
            lines[n] = lines[n].replace(b"2024-", b"the year 2024-")
        self.write("in.csv", b"".join(lines))
        result = self.export("in.csv", "--partition-size", "10", "--schema", self.schema(), "--bad-rows=divert", code=65)
        self.assertEqual((result["rows"], result["bad_rows"], result["checkpoint"]), (35, 5, 40))
        r = self.ok("audit", "verify", "lake", "--dataset", "d", "--json")
        self.assertEqual([(v["rows"], v["bad_rows"]) for v in r.json() if "rows" in v], [(35, 5)])
        events = [json.loads(line) for line in self.read("lake/d/_audit/" + sorted(os.listdir(self.path("lake/d/_audit")))[0]).splitlines()]
        self.assertEqual([(e["partition"]["start"], e["tables"][0]["rows"], e["tables"][0]["bad_rows"]) for e in events],
                         [("1", "9", "0"), ("10", "8", "2"), ("20", "8", "2"), ("30", "10", "0"), ("40", "0", "1")])
        self.assertEqual(self.numbers(), [n for n in range(1, 41) if n not in bad])
        letters = self.ok("dlq", "list", "--json", self.path("lake", "_dead", "d")).json()
        self.assertEqual(sorted(letter["position"] for letter in letters), [n + 1 for n in bad])
        shown = self.ok("dlq", "show", self.path("lake", "_dead", "d"), str(letters[0]["id"])).text
        self.assertIn("the year 2024-", shown)

    def test_missing_files_are_listed_and_put_back(self):
        self.write("in.csv", self.ledger(1, 45))
        self.export("in.csv", "--partition-size", "10")
        before = self.everything()
        self.ok("export", "gaps", "lake", "--dataset", "d")
        os.remove(self.path("lake", self.files()[2]))
        with open(self.path("lake", self.files()[0]), "ab") as f:
            f.write(b"x")
        r = self.sluice("export", "gaps", "lake", "--dataset", "d")
        self.assertEqual((r.code, r.errors), (65, ""))
        self.assertEqual([line.split()[:2] for line in r.lines()], [["1-9", "size"], ["20-29", "missing"]])
        self.ok("export", "backfill", "--from", "in.csv", *self.WHERE, "--ranges", "1-9,20-29")
        self.assertEqual(self.everything(), before)
        self.ok("export", "gaps", "lake", "--dataset", "d")
        self.verify()

    def test_gaps_of_a_dataset_that_is_not_there_are_an_error(self):
        self.write("in.csv", self.ledger(1, 25))
        self.export("in.csv", "--partition-size", "10")
        for command in ("status", "gaps"):
            self.fails(74, "export", command, "lake", "--dataset", "other", says="no dataset other")

    def test_a_backfill_of_what_is_in_place_puts_no_dead_letters(self):
        lines = self.ledger(1, 30).splitlines(keepends=True)
        for n in (7, 12):
            lines[n] = lines[n].replace(b"2024-", b"the year 2024-")
        self.write("in.csv", b"".join(lines))
        divert = ("--schema", self.schema(), "--bad-rows=divert")
        self.export("in.csv", "--partition-size", "10", *divert, code=65)

        def letters():
            return sorted(letter["position"] for letter in self.ok("dlq", "list", "--json", self.path("lake", "_dead", "d")).json())

        backfill = ("export", "backfill", "--from", "in.csv", *self.WHERE, "--ranges", "1-30", *divert)
        self.ok(*backfill)
        self.assertEqual(letters(), [8, 13])
        os.remove(self.path("lake", self.files()[1]))
        self.sluice(*backfill)
        self.assertEqual(letters(), [8, 13, 13])  # at least once
        self.ok("export", "gaps", "lake", "--dataset", "d")

    def test_a_source_that_returns_something_else_is_no_backfill(self):
        self.write("in.csv", self.ledger(1, 25))
        self.export("in.csv", "--partition-size", "10")
        before = self.everything()
        self.write("in.csv", self.ledger(1, 25).replace(b"\n12,", b"\n12,00"))
        self.fails(65, "export", "backfill", "--from", "in.csv", *self.WHERE, "--ranges", "10-19")
        self.assertEqual(self.everything(), before)

    def test_what_came_before_the_start_can_be_added(self):
        self.write("in.csv", self.ledger(21, 40))
        self.export("in.csv", "--partition-size", "10")
        self.write("old.csv", self.ledger(1, 20))
        self.ok("export", "backfill", "--from", "old.csv", *self.WHERE, "--ranges", "1-20")
        self.assertEqual(self.numbers(), list(range(1, 41)))
        self.verify()

    def test_a_growing_file_is_followed_until_a_signal(self):
        self.write("in.csv", self.ledger(1, 12))
        p = self.begin("in.csv", "--partition-size", "10", "--follow", "--schema", self.schema())
        self.until(lambda: self.checkpoint() == 9, p)
        with open(self.path("in.csv"), "ab") as f:
            f.write(self.ledger(13, 25, header=False)[:-5])  # the last line has no end yet
        self.until(lambda: self.checkpoint() == 19, p)
        with open(self.path("in.csv"), "ab") as f:
            f.write(self.ledger(13, 35, header=False)[len(self.ledger(13, 25, header=False)) - 5:])
        self.until(lambda: self.checkpoint() == 29, p)
        p.send_signal(signal.SIGTERM)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)
        self.assertEqual(json.loads(out)["checkpoint"], 29)
        self.export("in.csv")
        self.assertEqual(self.numbers(), list(range(1, 36)))
        self.verify()

    def test_diverted_rows_can_be_redriven(self):
        for name, rows, bad in (("csv", b"n,v\n1,10\n2,two\n3,30\n", b"2,two\n"),
                                ("jsonl", b'{"n":1,"v":10}\n{"n":2,"v":"two"}\n{"n":3,"v":30}\n', b'{"n":2,"v":"two"}\n')):
            with self.subTest(format=name):
                shutil.rmtree(self.path("lake"), ignore_errors=True)
                self.write("in." + name, rows)
                self.write("schema.yaml", b"columns:\n- {name: n, type: int64, nullable: false}\n- {name: v, type: int64}\n")
                self.export("in." + name, "--schema", "schema.yaml", "--bad-rows", "divert", code=65)
                self.fails(64, "dlq", "redrive", "lake/_dead/d", says=["letter 1 stays", "--to=URL"])
                self.ok("dlq", "redrive", "lake/_dead/d", "--to", "file:fixed." + name)
                self.assertIn(bad, self.read("fixed." + name))
                self.assertEqual(self.ok("dlq", "list", "lake/_dead/d").out, b"")
        self.sql("CREATE TABLE d (n, v)")
        self.export("in.csv", "--schema", "schema.yaml", "--bad-rows", "divert", "--dataset", "e", code=65)
        self.sql("CREATE TABLE e (n, v)")
        self.ok("dlq", "redrive", "lake/_dead/e", "--to", "sqlite:t.db")
        with contextlib.closing(sqlite3.connect(self.path("t.db"))) as db:
            self.assertEqual(db.execute("SELECT * FROM e").fetchall(), [("2", "two")])

    def test_diverted_rows_of_very_many_columns_can_be_redriven(self):
        many = [f"a_rather_long_name_of_a_column_{i}" for i in range(200)]
        columns, values = ["n", "v", *many], ["2", "two", *(f'"{c}, ""x"""' for c in many[:-2]), "", '""']
        self.write("in.csv", "\n".join(",".join(row) for row in (columns, ["1", "10", *many], values)).encode() + b"\n")
        self.write("schema.yaml", ("columns:\n- {name: n, type: int64, nullable: false}\n- {name: v, type: int64}\n" +
                                   "".join(f"- {{name: {c}, type: string}}\n" for c in many)).encode())
        self.export("in.csv", "--schema", "schema.yaml", "--bad-rows", "divert", code=65)
        self.sql(f"CREATE TABLE d ({', '.join(columns)})")
        self.ok("dlq", "redrive", "lake/_dead/d", "--to", "sqlite:t.db")
        with contextlib.closing(sqlite3.connect(self.path("t.db"))) as db:
            self.assertEqual(db.execute("SELECT * FROM d").fetchall(), [("2", "two", *(f'{c}, "x"' for c in many[:-2]), None, "")])

    def follow_through(self, change, checkpoint, code=0):
        """Follow in.csv with 1 to 25, change it, and wait for the checkpoint. What it says."""
        self.write("in.csv", self.ledger(1, 25))
        p = self.begin("in.csv", "--partition-size", "10", "--follow")
        self.until(lambda: self.checkpoint() == 19, p)
        change()
        if code == 0:
            self.until(lambda: self.checkpoint() == checkpoint, p)
            p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, code, err)
        self.assertEqual(self.numbers(), list(range(1, checkpoint + 1)))
        self.verify()
        return err.decode()

    def append(self, name, data):
        with open(self.path(name), "ab") as f:
            f.write(data)

    def test_a_followed_file_may_be_rotated(self):
        def rotate():
            os.rename(self.path("in.csv"), self.path("in.csv.1"))
            self.append("in.csv.1", self.ledger(26, 33, header=False))  # its writer has not noticed yet
            self.write("in.csv", self.ledger(34, 45))
            self.append("in.csv", self.ledger(46, 50, header=False))

        self.follow_through(rotate, 49)

    def test_a_line_that_a_rotation_cut_off_does_not_become_a_row(self):
        def rotate():
            os.rename(self.path("in.csv"), self.path("in.csv.1"))
            self.append("in.csv.1", b"2")  # of 26
            self.write("in.csv", self.ledger(26, 40))

        self.assertIn("has no line feed", self.follow_through(rotate, 39))

    def test_a_followed_file_may_be_copied_and_truncated(self):
        def copytruncate():
            self.append("in.csv", self.ledger(26, 28, header=False))
            shutil.copy(self.path("in.csv"), self.path("in.csv.1"))
            self.append("in.csv.1", self.ledger(29, 33, header=False))  # written between the last look and the copy
            os.truncate(self.path("in.csv"), 0)
            self.append("in.csv", self.ledger(34, 50))

        self.follow_through(copytruncate, 49)

    def test_a_followed_file_that_was_truncated_and_has_grown_past_its_place_is_noticed(self):
        def rewrite():
            text = self.ledger(26, 60)
            self.assertGreater(len(text), os.path.getsize(self.path("in.csv")))
            with open(self.path("in.csv"), "r+b") as f:
                f.truncate(0)
                f.write(text)

        self.follow_through(rewrite, 59)

    def test_rotations_in_a_row_are_read_in_their_order(self):
        def rotate():
            for first in (26, 36, 46):
                for i in (3, 2, 1):
                    if os.path.exists(self.path(f"in.csv.{i}")):
                        os.rename(self.path(f"in.csv.{i}"), self.path(f"in.csv.{i + 1}"))
                os.rename(self.path("in.csv"), self.path("in.csv.1"))
                self.write("in.csv.new", self.ledger(first, first + 9))
                os.rename(self.path("in.csv.new"), self.path("in.csv"))
            self.write("in.csv.5.gz", b"not a ledger")

        self.follow_through(rotate, 49)

    def test_a_link_that_is_turned_to_another_file_is_followed(self):
        def turn():
            self.write("second.csv", self.ledger(26, 40))
            os.symlink("second.csv", self.path("new"))
            os.rename(self.path("new"), self.path("in.csv"))

        self.write("first.csv", b"")
        os.symlink("first.csv", self.path("in.csv"))
        self.follow_through(turn, 39)

    def resume_after(self, change, checkpoint, *args, code=0):
        """Export 1 to 25 of in.csv, change it while no export runs, and follow it from then on. What it says."""
        self.write("in.csv", self.ledger(1, 25))
        self.export("in.csv", "--partition-size", "10")
        change()
        p = self.begin("in.csv", "--follow", *args)
        if code == 0:
            self.until(lambda: self.checkpoint() == checkpoint, p)
            p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, code, err)
        self.assertEqual(self.numbers(), list(range(1, checkpoint + 1)))
        self.verify()
        return err.decode()

    def test_rotations_while_no_export_ran_are_read_in_their_order(self):
        def rotate():
            self.append("in.csv", self.ledger(26, 31, header=False))
            os.rename(self.path("in.csv"), self.path("in-20240501.csv"))
            self.write("in-20240502.csv", self.ledger(32, 37))
            self.write("in.csv.old", self.ledger(38, 41))
            self.write("in.csv", self.ledger(42, 50))

        self.resume_after(rotate, 49)

    def test_a_file_without_a_row_does_not_hold_up_those_that_were_rotated(self):
        def rotate():
            self.append("in.csv", self.ledger(26, 33, header=False))
            os.rename(self.path("in.csv"), self.path("in.csv.1"))
            self.write("in.csv", self.ledger(1, 1).splitlines(True)[0])

        self.resume_after(rotate, 29)

    def test_a_copy_that_was_made_while_no_export_ran_is_read(self):
        def copytruncate():
            self.append("in.csv", self.ledger(26, 33, header=False))
            shutil.copy(self.path("in.csv"), self.path("in.csv.1"))
            self.write("in.csv", self.ledger(34, 41))

        self.resume_after(copytruncate, 39)

    def test_rows_that_no_rotated_file_has_are_reported(self):
        def lose():
            os.rename(self.path("in.csv"), self.path("in.csv.1"))
            self.write("in.csv", self.ledger(30, 45))

        self.assertIn("26 to 29 are missing", self.resume_after(lose, 25, code=65))

    def test_rows_that_a_rotation_has_taken_away_are_reported(self):
        def lose():
            os.rename(self.path("in.csv"), self.path("gone"))
            self.write("in.csv", self.ledger(30, 45))

        self.assertIn("26 to 29 are missing", self.follow_through(lose, 19, code=65))

    def test_a_pipe_that_is_cut_in_its_last_line_gives_no_row_of_it(self):
        for name, start, rows, cut in (("csv", b"n,v\n", [b"%d,%d\n" % (i, 1000 + i) for i in range(1, 8)], b"8,10"),
                                       ("jsonl", b"", [b'{"n":%d,"v":{"a":1}}\n' % i for i in range(1, 8)], b'{"n":8,"v":{"a":1}')):
            for divert in ("stop", "divert"):
                with self.subTest(format=name, bad_rows=divert):
                    shutil.rmtree(self.path("lake"), ignore_errors=True)
                    args = ("export", "--from", "-", "--format", name, *self.WHERE, "--partition-size", "2", "--bad-rows", divert)
                    self.fails(65, *args, stdin=start + b"".join(rows) + cut, says="it ends in the middle of a line")
                    self.assertEqual(self.numbers(), [1, 2, 3, 4, 5, 6, 7])
                    self.assertFalse(os.path.exists(self.path("lake", "_dead")))
                    self.ok(*args, stdin=start + b"".join(rows) + (b"8,1008\n" if name == "csv" else b'{"n":8,"v":{"a":1}}\n'))
                    self.assertEqual(self.numbers(), [1, 2, 3, 4, 5, 6, 7, 8])

    def test_a_file_that_begins_empty_is_followed_from_its_first_row(self):
        self.write("in.csv", b"")
        p = self.begin("in.csv", "--partition-size", "10", "--follow")
        self.until(lambda: os.path.exists(self.path("lake", "_catalog.db")), p)
        for first, last in ((1, 3), (4, 12), (13, 24)):
            with open(self.path("in.csv"), "ab") as f:
                f.write(self.ledger(first, last, header=first == 1))
        self.until(lambda: self.checkpoint() == 19, p)
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0)
        self.assertEqual(self.numbers(), list(range(1, 20)))

    def test_a_slow_pipe_is_exported_before_it_ends(self):
        p = self.begin("-", "--format", "csv", "--partition-size", "10")
        p.stdin.write(self.ledger(1, 12))
        p.stdin.flush()
        self.until(lambda: self.checkpoint() == 9, p)
        p.communicate(self.ledger(13, 25, header=False), timeout=60)
        self.assertEqual((p.returncode, self.numbers()), (0, list(range(1, 26))))


class Signals(ExportTest):
    N = 60000

    def run_until(self, p, checkpoint):
        self.until(lambda: self.checkpoint() >= checkpoint, p)

    def reference(self):
        self.ok("export", "--from", "in.csv", "--to", "whole", "--dataset", "d", "--partition-size", "1000")
        return self.everything("whole")

    def feed(self, p, upto):
        """Give the rows to standard input and keep it open."""
        p.stdin.write(self.ledger(1, upto))
        p.stdin.flush()

    def test_the_first_signal_commits_what_was_read_and_the_command_continues_there(self):
        self.write("in.csv", self.ledger(1, self.N))
        p = self.begin("-", "--format", "csv", "--partition-size", "1000")
        self.feed(p, self.N // 2 - 1)
        self.run_until(p, self.N // 2 - 1001)
        self.until(lambda: self.has_taken_all(p), p)
        p.send_signal(signal.SIGINT)
        out, err = self.end_of(p)
        self.assertEqual(p.returncode, 75, err)
        self.assertIn(b"resume after the checkpoint", err)
        self.assertEqual(json.loads(out)["stopped"], True)
        self.assertEqual(json.loads(out)["checkpoint"], self.N // 2 - 1)
        self.export("in.csv")
        self.assertEqual(self.everything(), self.reference())
        self.verify()

    def test_a_second_signal_ends_it_where_it_can_continue(self):
        self.write("in.csv", self.ledger(1, self.N))
        p = self.begin("-", "--format", "csv", "--partition-size", "1000")
        self.feed(p, self.N // 2)
        self.run_until(p, 999)
        p.send_signal(signal.SIGTERM)
        p.send_signal(signal.SIGINT)
        _, err = self.end_of(p)
        self.assertEqual(p.returncode, 75, err)
        self.export("in.csv")
        self.assertEqual(self.everything(), self.reference())

    def test_killed_at_any_moment_the_next_run_makes_the_same_bytes(self):
        self.write("in.csv", self.ledger(1, self.N))
        expected = self.reference()
        deadline = time.monotonic() + float(os.environ.get("SLUICE_TEST_SECONDS", "2"))
        kills = 0
        while time.monotonic() < deadline:
            p = self.begin("in.csv", "--partition-size", "1000", "--workers", "3")
            time.sleep(0.002 + 0.03 * (kills * 7 % 10) / 10)  # whenever: every moment is as good as another
            p.kill()
            p.communicate(timeout=60)
            kills += p.returncode == -signal.SIGKILL
            if p.returncode == 0:
                self.assertEqual(self.everything(), expected)
                subprocess.run(["rm", "-rf", self.path("lake")], check=True)
        print(f"# {kills} kills")
        self.export("in.csv", "--partition-size", "1000")
        self.assertEqual(self.everything(), expected)
        self.assertEqual(self.leftovers(), [])
        self.verify()

    def test_one_process_at_a_time_exports_to_a_dataset(self):
        self.write("in.csv", self.ledger(1, 20))
        p = self.begin("-", "--format", "csv", "--partition-size", "10", "--schema", self.schema())
        self.feed(p, 15)
        self.run_until(p, 9)
        self.fails(75, "export", "--from", "in.csv", *self.WHERE)
        p.stdin.close()
        p.stdin = None
        self.assertEqual(p.wait(timeout=60), 0)


class Bad(ExportTest):
    def refused(self, code, says, data, *args, name="in.csv", **more):
        self.write(name, data)
        r = self.fails(code, "export", "--from", name, *self.WHERE, "--partition-size", "10", *args, says=says, **more)
        self.assertEqual(self.leftovers(), [])
        return r

    def test_what_is_wrong_with_the_numbers_is_reported_with_its_line(self):
        for what, rows, says in [("a gap", "11\n13\n", ["13", "line 13"]), ("a repetition", "11\n11\n", ["11", "line 13"]),
                                 ("a step back", "11\n5\n", ["5", "line 13"]), ("a first gap", "12\n", ["12", "line 12"]),
                                 ("no number", "x\n", ["n", "line 12"]), ("nothing", '""\n', ["n", "line 12"]),
                                 ("a fraction", "11.5\n", ["n", "line 12"]), ("below zero", "-1\n", ["n", "line 12"]),
                                 ("too big", "99999999999999999999\n", ["n", "line 12"])]:
            with self.subTest(what=what):
                subprocess.run(["rm", "-rf", self.path("lake")], check=True)
                self.refused(65, says, ("n\n" + "".join(f"{i}\n" for i in range(1, 11)) + rows).encode())
                self.assertEqual(self.checkpoint(), 9)

    def test_a_row_that_does_not_fit_is_reported_with_line_and_column(self):
        schema = self.write("s.yaml", b"columns: [{name: n, type: int64}, {name: small, type: int32}, {name: at, type: timestamp}, {name: must, type: string, nullable: false}]\n")
        for what, row, column in [("a wrong type", "2,x,,m", "small"), ("out of range", "2,2147483648,,m", "small"),
                                  ("not a time", "2,1,yesterday,m", "at"), ("an impossible day", "2,1,2023-02-29T00:00:00Z,m", "at"),
                                  ("NULL", "2,1,,", "must")]:
            with self.subTest(what=what):
                self.refused(65, ["line 3", column], f"n,small,at,must\n1,1,,m\n{row}\n".encode(), "--schema", schema)
        with self.subTest(what="invalid UTF-8"):
            self.refused(65, ["line 3"], b"n,small,at,must\n1,1,,m\n2,1,,\xff\n", "--schema", schema)
        with self.subTest(what="another number of fields"):
            self.refused(65, ["line 3"], b"n,small,at,must\n1,1,,m\n2,1\n", "--schema", schema)

    def test_input_that_ends_in_the_middle_is_reported(self):
        self.refused(65, ["line 3"], b'n,a\n1,x\n2,"open')
        self.refused(65, ["line 2"], b'{"n":1}\n{"n":2,"a', name="in.jsonl")
        self.refused(65, ["line 2"], b'{"n":1}\n[]\n', name="in.jsonl")

    def test_a_last_line_without_its_end_is_a_row(self):
        self.write("in.csv", b"n,a\n1,x\n2,y")
        self.assertEqual(self.export("in.csv")["rows"], 2)

    def test_a_line_that_is_too_long_is_reported(self):
        self.refused(65, ["line 2"], b'{"n":1}\n{"n":2,"a":"' + b"x" * (17 << 20) + b'"}\n', name="in.jsonl")

    def test_an_empty_file_has_no_rows(self):
        self.write("in.csv", b"")
        self.assertIn("empty", self.export("in.csv", code=65)["errors"])
        self.write("head.csv", b"n,a\n")
        self.assertEqual(self.export("head.csv")["rows"], 0)

    def test_a_file_without_a_usable_line_is_recognised_by_its_first_one(self):
        self.refused(65, ["in.jsonl: line 2: ", "UTF-8"], b'\n{"s":1,"a":"\xff"}\n{"s":\n', name="in.jsonl")
        self.refused(65, ["in.jsonl: line 1: "], b"[]\n", name="in.jsonl")

    def test_a_member_without_a_column_is_reported(self):
        self.refused(65, ["line 2", "extra"], b'{"n":1}\n{"n":2,"extra":1}\n', "--schema",
                     self.write("s.yaml", b"columns: [{name: n, type: int64}]\n"), name="in.jsonl")

    def test_files_and_folders_that_cannot_be_used_are_named(self):
        self.write("in.csv", b"n\n1\n")
        self.fails(74, "export", "--from", "none.csv", *self.WHERE, says="none.csv")
        for to in ("in.csv/x", "in.csv", "/proc/none"):
            self.fails(73, "export", "--from", "in.csv", "--to", to, "--dataset", "d", says=["cannot create the folder", to])
        os.mkdir(self.path("taken"))
        self.write("taken/d", b"")
        self.fails(73, "export", "--from", "in.csv", "--to", "taken", "--dataset", "d", says=["cannot create the folder", "taken/d"])
        self.fails(74, "export", "--from", "sqlite:none.db", "--table", "t", *self.WHERE, says="none.db")
        self.fails(65, "export", "--from", "sqlite:in.csv", "--table", "t", *self.WHERE, says="in.csv")
        self.fails(64, "export", "--from", "in.csv", "--to", "lake", "--dataset", "../x", says="a name begins with a letter")
        self.fails(64, "export", "--from", "in.csv", "--sequence", "m", *self.WHERE, says="m")
        self.fails(69, "export", "status", "nowhere", says="nowhere")
        self.fails(69, "export", "--from", "in.csv", *self.WHERE, "--catalog", "postgres://127.0.0.1:1/x", says="127.0.0.1")

    def test_a_full_disk_is_reported_and_the_next_run_continues(self):
        if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode:
            self.skipTest("mounting is not permitted here")
        os.mkdir(self.path("lake"))
        self.write("in.csv", self.ledger(1, 60000))
        self.write("c.yaml", b"perf:\n  retry_attempts: 2\n  retry_backoff_ms: 10\n")
        twice = ('mount -t tmpfs -o size=150k none lake || exit; "$@" >first; echo $?; mount -o remount,size=30m lake; '
                 '"$@" >second; echo $?; "$1" audit verify lake --dataset d --catalog sqlite:catalog.db')
        r = self.ok("export", "--from", "in.csv", *self.WHERE, "--partition-size", "5000", "--config", "c.yaml", "--catalog",
                    "sqlite:catalog.db", under=["unshare", "-m", "sh", "-c", twice, "sh"])
        self.assertEqual(r.lines()[:2], ["74", "0"])
        self.assertIn("No space left", r.errors)
        self.assertIn("60000 rows in 13 partitions", r.text)

    def test_a_full_disk_under_the_catalog_ends_the_run_and_the_next_continues(self):
        if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode:
            self.skipTest("mounting is not permitted here")
        os.mkdir(self.path("small"))
        self.write("in.csv", self.ledger(1, 1000))
        self.write("c.yaml", b"perf:\n  retry_attempts: 2\n  retry_backoff_ms: 10\n")
        twice = ('mount -t tmpfs -o size=400k none small || exit; "$@" >first; echo $?; mount -o remount,size=30m small; '
                 '"$@" >second; echo $?; "$1" audit verify lake --dataset d --catalog sqlite:small/c.db')
        r = self.ok("export", "--from", "in.csv", *self.WHERE, "--partition-size", "10", "--config", "c.yaml", "--catalog",
                    "sqlite:small/c.db", under=["unshare", "-m", "sh", "-c", twice, "sh"])
        self.assertEqual(r.lines()[:2], ["74", "0"])
        self.assertRegex(r.errors, "attempt 2: commit: catalog .*small/c.db cannot be written: .*; free some space\n"
                                   ".*run the same command again; it resumes after the checkpoint")
        self.assertIn("1000 rows in 101 partitions", r.text)

    def test_a_catalog_whose_writes_fail_ends_the_run_and_the_next_continues(self):
        self.write("in.csv", self.ledger(1, 500))
        self.write("c.yaml", b"perf:\n  retry_attempts: 2\n  retry_backoff_ms: 10\n")
        args = ("--partition-size", "10", "--config", "c.yaml")
        small = ["sh", "-c", "trap '' XFSZ; ulimit -f 400; exec \"$@\"", "sh"]  # files of 200 KiB at most
        r = self.fails(74, "export", "--from", "in.csv", *self.WHERE, *args, under=small,
                       says=["attempt 2: commit: catalog ", "_catalog.db cannot be written: ", "check its disk"])
        self.assertIn("resumes after the checkpoint", r.errors)
        done = self.checkpoint()
        self.assertTrue(0 < done < 500, done)
        self.assertEqual(self.export("in.csv", *args)["rows"], 500 - done)
        self.assertEqual(self.numbers(), list(range(1, 501)))
        self.verify()

    def test_a_limit_of_the_size_of_files_is_an_error_and_no_signal(self):
        self.write("in.csv", self.ledger(1, 20))
        tiny = ["sh", "-c", "ulimit -f 10; exec \"$@\"", "sh"]  # files of 5 KiB at most: the catalog is larger
        self.fails(74, "export", "--from", "in.csv", *self.WHERE, under=tiny, says="_catalog.db")

    def test_an_input_that_is_truncated_while_it_is_read_is_reported(self):
        self.write("in.csv", self.ledger(1, 60000))
        self.write("c.yaml", b"perf:\n  retry_attempts: 1000000\n  retry_backoff_ms: 10\n")
        # No file may be so large: the workers read the mapped input again and again.
        limited = ["sh", "-c", "trap '' XFSZ; ulimit -f 400; exec \"$@\"", "sh", SLUICE]
        p = self.ends_with_test(subprocess.Popen([*limited, "export", "--from", "in.csv", *self.WHERE, "--config", "c.yaml"], cwd=self.dir,
                                                 env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        while b"step failed; retrying" not in (line := p.stderr.readline()):
            self.assertTrue(line, "it ended")
        os.truncate(self.path("in.csv"), 0)
        _, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 74, err[-500:])
        self.assertRegex(err, rb"(?m)^sluice export: in.csv became shorter while it was read")

    def test_the_largest_partition_that_is_offered_can_be_had(self):
        self.write("in.csv", b"n\n7\n")
        largest = re.search(r"--partition-size=N .*?; 1 to (\d+)", self.ok("export", "--help").text, re.S)[1]
        self.export("in.csv", "--partition-size", largest)
        self.fails(64, "export", "--from", "in.csv", *self.WHERE, "--partition-size", str(int(largest) + 1), says=largest)

    def test_wrong_options_are_reported_before_anything_is_done(self):
        self.write("in.csv", b"n\n1\n")
        for args, says in [(["--from", "in.csv"], "--to"), (["--from", "in.csv", "--to", "lake"], "--dataset"), (["--to", "lake"], "--from"),
                           (["--from", "-", *self.WHERE], "--format"), (["--from", "in.csv", "--table", "t", *self.WHERE], "--table"),
                           (["--from", "sqlite:x", *self.WHERE], "--table or --query"),
                           (["--from", "sqlite:x", "--table", "t", "--query", "q", *self.WHERE], "exclude each other"),
                           (["--from", "sqlite:x", "--table", "t", "--format", "csv", *self.WHERE], "--format"),
                           (["--from", "in.csv", "--partition-size", "0", *self.WHERE], "--partition-size"),
                           (["--from", "in.csv", "--zstd-level", "20", *self.WHERE], "1 to 19"),
                           (["--from", "in.csv", "--partitionsize", "3", *self.WHERE], "'--partition-size'"),
                           (["--from", "in.csv", "--dead-letters", "x", *self.WHERE], "--bad-rows"),
                           (["--from", "in.txt", *self.WHERE], "in.txt"),
                           (["--from", "in.csv", "--follow", "--final", *self.WHERE], "--final"),
                           (["backfill", "--from", "in.csv", *self.WHERE], "--ranges"),
                           (["backfill", "--from", "in.csv", *self.WHERE, "--ranges", "5-1"], "5-1"),
                           (["backfill", "--from", "in.csv", *self.WHERE, "--ranges", "1-99999999999999999999"], "99999"),
                           (["gaps", "lake"], "--dataset"), (["status"], "DIR")]:
            with self.subTest(args=args):
                self.one_line(self.fails(64, "export", *args, says=says))
        self.assertFalse(os.path.exists(self.path("lake")))

    def test_every_problem_of_a_schema_is_reported_with_its_place(self):
        self.write("in.csv", b"n\n1\n")
        for text, places in [("columns:\n  - {name: n, type: int46}\n  - {nme: x, type: string}\n", ("2:21: unknown type 'int46'; did you mean 'int64'?", "3:6: unknown property of a column 'nme'")),
                             ("columns:\n  - {name: n, type: decimal, precision: 19}\n", ("2:41: precision: '19'",)),
                             ("columns:\n  - {name: n, type: decimal}\n", ("2:5: ",)), ("columns:\n  - {name: n, type: fixed}\n", ("2:5: ",)),
                             ("columns:\n  - {name: n, type: timestamp, unit: seconds}\n", ("2:38: unknown unit 'seconds'",)),
                             ("columns:\n  - {name: n, type: int64, length: 3}\n", ("2:36: length",)),
                             ("columns:\n  - {name: n, type: int64, nullable: perhaps}\n", ("2:38: nullable",)),
                             ("columns:\n  - {name: n, type: int64}\n  - {name: n, type: int64}\n", ("3:12: duplicate column 'n'",)),
                             ("columns: []\n", ("1:10: no columns",)), ("fields:\n  - x\n", ("1:1: ",)), ("- x\n", ("1:1: ",)), ("", (": a schema",)),
                             ("columns: [\n", ("2:1: ",)), ("columns:\n  - n\n", ("2:5: expected a column as a mapping",))]:
            with self.subTest(text=text):
                self.write("s.yaml", text.encode())
                r = self.fails(78, "export", "--from", "in.csv", *self.WHERE, "--schema", "s.yaml")
                for place in places:
                    self.assertIn("s.yaml:" + place.lstrip(":") if not place.startswith(":") else "s.yaml" + place, r.errors)
        self.fails(74, "export", "--from", "in.csv", *self.WHERE, "--schema", "none.yaml", says="none.yaml")

    def test_passwords_are_not_shown(self):
        for option, args in (("--from", ["--table", "t", *self.WHERE]), ("--catalog", ["--from", "in.csv", *self.WHERE])):
            self.write("in.csv", b"n\n1\n")
            r = self.sluice("export", option, "postgres://u:hush-hush@127.0.0.1:1/x", *args)
            self.assertEqual(r.code, 69, r.err)
            self.assertNotIn("hush", r.errors)
            self.assertIn(f"the password in {option} can be seen", r.errors)


class Audit(ExportTest):
    def test_events_reach_an_endpoint_whose_certificate_a_file_vouches_for(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-keyout", self.path("key.pem"), "-out", self.path("cert.pem"), "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("cert.pem"), self.path("key.pem"))
        endpoint = Endpoint(self)
        endpoint.server.socket = context.wrap_socket(endpoint.server.socket, server_side=True)
        self.write("in.csv", self.ledger(1, 25))
        self.write("token", b"secret\n")
        self.export("in.csv", "--partition-size", "10", "--audit-url", endpoint.url.replace("http:", "https:"), "--audit-ca-file", "cert.pem",
                    "--audit-token-file", "token")
        self.assertEqual([e["partition"]["end"] for e in endpoint.rows], ["9", "19", "25"])
        self.assertEqual(endpoint.tokens, {"Bearer secret"})


class Settings(ExportTest):
    def test_a_file_has_the_settings_and_flags_win(self):
        self.write("in.csv", self.ledger(1, 25))
        self.write("c.yaml", b"perf:\n  workers: 2\n  queue_size: 3\nexport:\n  from: in.csv\n  to: lake\n  dataset: d\n  partition_size: 5\n")
        self.ok("export", "--config", "c.yaml", "--partition-size", "10")
        self.assertEqual(self.ranges(), [(1, 9), (10, 19), (20, 25)])
        self.ok("config", "check", "c.yaml")

    def test_the_environment_stands_between_the_file_and_the_flags(self):
        self.write("in.csv", self.ledger(1, 25))
        self.write("c.yaml", b"export: {from: in.csv, to: lake, dataset: d, partition_size: 5}\n")
        self.env["SLUICE_EXPORT_PARTITION_SIZE"] = "10"
        self.ok("export", "--config", "c.yaml")
        self.assertEqual(self.ranges(), [(1, 9), (10, 19), (20, 25)])

    def test_a_wrong_setting_is_reported_with_its_place_and_the_nearest_name(self):
        self.write("c.yaml", b"perf:\n  worker: 2\nexport:\n  bad_rows: perhaps\n")
        r = self.fails(78, "export", "--config", "c.yaml", says="c.yaml:2:3: unknown setting of 'perf': 'worker'; did you mean 'workers'?")
        self.assertIn("c.yaml:4:13: export.bad_rows", r.errors)


class Shown(ExportTest):
    def test_the_result_is_reported_in_words(self):
        self.write("in.csv", self.ledger(1, 25))
        r = self.ok("export", "--from", "in.csv", *self.WHERE, "--partition-size", "10")
        self.assertRegex(r.text, r"^25 rows in 3 partitions \(.*\) committed to lake/d in .* s; checkpoint 25\n$")
        text = self.ok("export", "status", "lake").text
        for part in ("d\n", "n, 10 per partition", "1 to 25: 25 rows in 3 partitions"):
            self.assertIn(part, text)
        self.assertEqual(len(self.ok("export", "status", "lake", "--partitions").lines()), len(text.splitlines()) + 3)

    def test_status_shows_names_escaped(self):
        self.write("in.csv", b"a\x1b[2Jb,v\n1,x\n")
        self.ok("export", "--from", "in.csv", *self.WHERE, "--sequence", "a\x1b[2Jb")
        for args in ((), ("--partitions",)):
            text = self.ok("export", "status", "lake", *args).text
            self.assertIn("sequence       a\\x1b[2Jb, ", text)
            self.assertNotIn("\x1b", text)

    def test_a_terminal_shows_how_much_of_a_file_is_done(self):
        self.write("in.csv", self.ledger(1, 20000))
        leader, follower = pty.openpty()
        p = subprocess.Popen([SLUICE, "export", "--from", "in.csv", *self.WHERE, "--partition-size", "10"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=follower, cwd=self.dir, env=self.env)
        os.close(follower)
        bar = rb"\[#+\.*\] \d+%, [0-9.]+ [KM]iB/s, [^,]+ left, \d+ rows, \d+ partitions of [^,]+, checkpoint \d+"
        seen = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while not re.search(bar, seen):
                seen += os.read(leader, 4096)
        p.kill()
        p.communicate(timeout=60)
        os.close(leader)
        self.assertRegex(seen, bar)

    def test_a_terminal_shows_progress_and_a_pipe_gets_none_for_short_work(self):
        leader, follower = pty.openpty()
        p = subprocess.Popen([SLUICE, "export", "--from", "-", "--format", "csv", *self.WHERE, "--partition-size", "10", "--schema", self.schema()], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=follower, cwd=self.dir, env=self.env)
        os.close(follower)
        p.stdin.write(self.ledger(1, 25))
        p.stdin.flush()
        seen = b""
        while b"checkpoint 19" not in seen:
            seen += os.read(leader, 4096)
        p.stdin.close()
        p.stdin = None
        p.communicate(timeout=60)
        os.close(leader)
        self.assertEqual(p.returncode, 0)
        self.assertNotIn(b"%", seen)  # the total is unknown
        self.write("in.csv", self.ledger(1, 25))
        self.assertEqual(self.ok("export", "--from", "in.csv", "--to", "b", "--dataset", "d").err, b"")


if __name__ == "__main__":
    main()
