# SPDX-License-Identifier: Apache-2.0
"""sluice export from databases: the same tests on SQLite and PostgreSQL; following, lost connections, job_events."""

import hashlib
import json
import os
import re
import signal

import jobtest
from exporttest import ExportTest
from jobtest import postgres_url, control_postgres
from loadtest import psql


class Sqlite(ExportTest):
    postgres = False

    def setUp(self):
        super().setUp()
        self.url = postgres_url() if self.postgres else "sqlite:t.db"

    def db(self, script):
        if self.postgres:
            psql(self.url, script)
        else:
            self.sql(script)

    def fill(self, first, last):
        """Rows with the numbers first to last."""
        series = (f"generate_series({first}, {last}) AS s(i)" if self.postgres else
                  f"(WITH RECURSIVE c(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM c WHERE i < {last}) SELECT i FROM c)")
        self.db(f"INSERT INTO t SELECT i, 'row ' || i, i * 0.5, i % 2 = 0 FROM {series}")

    def table(self, first, last):
        self.db("CREATE TABLE t (n BIGINT PRIMARY KEY, name TEXT, half DOUBLE PRECISION, even BOOLEAN)")
        self.fill(first, last)

    def test_a_table_is_exported_with_its_types_and_the_last_partition_waits(self):
        self.table(1, 25)
        result = self.export(self.url, "--table", "t", "--partition-size", "10")
        self.assertEqual((result["rows"], result["checkpoint"], result["waiting"]), (19, 19, 6))
        self.assertEqual(self.ranges(), [(1, 9), (10, 19)])
        again = self.export(self.url, "--table", "t")
        self.assertEqual((again["rows"], again["waiting"]), (0, 6))
        final = self.export(self.url, "--table", "t", "--final")
        self.assertEqual((final["rows"], final["checkpoint"], final["waiting"]), (6, 25, 0))
        self.assertEqual([(r["n"], r["name"], r["half"], r["even"]) for r in self.rows()],
                         [(i, f"row {i}", i * 0.5, i % 2 == 0) for i in range(1, 26)])
        self.fill(26, 31)
        self.export(self.url, "--table", "t", "--final")
        self.assertEqual(self.ranges(), [(1, 9), (10, 19), (20, 25), (26, 29), (30, 31)])
        self.verify()

    def test_infinities_are_exported(self):
        self.table(1, 4)
        infinity = "'Infinity'::float8" if self.postgres else "9e999"
        self.db(f"UPDATE t SET half = {infinity} WHERE n = 2; UPDATE t SET half = -{infinity} WHERE n = 3")
        self.export(self.url, "--table", "t", "--final")
        self.assertEqual([r["half"] for r in self.rows()], [0.5, "Infinity", "-Infinity", 2.0])

    def test_a_query_is_exported(self):
        self.table(1, 30)
        self.export(self.url, "--query", "SELECT n / 3 AS third, name FROM t WHERE n % 3 = 0", "--sequence", "third",
                    "--partition-size", "5", "--final")
        self.assertEqual([(r["third"], r["name"]) for r in self.rows()], [(i, f"row {3 * i}") for i in range(1, 11)])

    def test_numbers_that_a_table_does_not_have_are_recorded_as_holes(self):
        self.table(1, 45)
        self.db("DELETE FROM t WHERE n IN (1, 12, 20, 21, 39) OR n BETWEEN 24 AND 26")
        result = self.export(self.url, "--table", "t", "--partition-size", "10", "--final")
        self.assertEqual((result["rows"], result["holes"], result["checkpoint"], result["start"]), (37, 7, 45, 2))
        self.assertEqual(self.ranges(), [(2, 9), (10, 19), (20, 29), (30, 39), (40, 45)])
        events = [json.loads(line)["tables"][0] for line in self.events()]
        self.assertEqual([(e["holes"], e["hole_ranges"]) for e in events],
                         [("0", ""), ("1", "12"), ("5", "20-21,24-26"), ("1", "39"), ("0", "")])
        self.verify()
        before = self.everything()
        self.fill(46, 50)
        self.db("DELETE FROM t WHERE n = 46")
        again = self.export(self.url, "--table", "t", "--final")
        self.assertEqual((again["rows"], again["holes"], again["checkpoint"]), (4, 1, 50))
        self.assertEqual({k: v for k, v in self.everything().items() if k in before and k.endswith(".parquet")},
                         {k: v for k, v in before.items() if k.endswith(".parquet")})
        # A partition with holes can be built again, and comes out the same.
        os.unlink(self.path("lake", self.files()[2]))
        self.ok("export", "backfill", "--from", self.url, "--table", "t", *self.WHERE, "--ranges", "20-25")
        self.verify()
        self.assertEqual({k: v for k, v in self.everything().items() if k in before and k.endswith(".parquet")},
                         {k: v for k, v in before.items() if k.endswith(".parquet")})

    def test_holes_that_an_event_has_no_room_for_are_hashed_there_and_verified(self):
        self.table(1, 4001)
        self.db("DELETE FROM t WHERE n % 2 = 0")
        result = self.export(self.url, "--table", "t", "--final")
        self.assertEqual((result["rows"], result["holes"]), (2001, 2000))
        told = json.loads(self.events()[0])["tables"][0]
        self.assertEqual(told["holes"], "2000")
        self.assertRegex(told["hole_ranges"], "^sha256:[0-9a-f]{64}$")
        self.verify()
        self.sql("UPDATE sluice_partition SET holes = replace(holes, '100,', '101,')", "lake/_catalog.db")
        self.fails(65, "audit", "verify", "lake", "--dataset", "d")
        # Without the catalog the rows alone are held against the hash, also of an event that is right in itself.
        self.ok("audit", "verify", "lake", "--dataset", "d", "--no-catalog")
        line = self.events()[0].replace(told["hole_ranges"], "sha256:" + 64 * "0")
        body = re.sub('"event_hash":"[0-9a-f]{64}",', "", line.rstrip("\n"))
        forged = re.sub('(?<="event_hash":")[0-9a-f]{64}', hashlib.sha256(body.encode()).hexdigest(), line)
        folder = os.path.join("lake", "d", "_audit")
        self.write(os.path.join(folder, os.listdir(self.path(folder))[0]), forged.encode())
        r = self.fails(65, "audit", "verify", "lake", "--dataset", "d", "--no-catalog")
        self.assertIn("its rows leave out 2,4,6,", r.text)

    def test_a_partition_of_holes_only_is_an_empty_file(self):
        self.table(1, 35)
        self.db("DELETE FROM t WHERE n BETWEEN 8 AND 31")
        result = self.export(self.url, "--table", "t", "--partition-size", "10", "--final")
        self.assertEqual((result["rows"], result["holes"]), (11, 24))
        self.assertEqual(self.ranges(), [(1, 9), (10, 19), (20, 29), (30, 35)])
        self.assertEqual(self.numbers(), [*range(1, 8), *range(32, 36)])
        self.verify()

    def test_numbers_that_have_jumped_far_are_reported(self):
        self.table(1, 5)
        self.fill(1000000, 1000003)
        self.fails(65, "export", "--from", self.url, "--table", "t", *self.WHERE, "--partition-size", "10", "--final",
                   says=["6 to 999999 are missing", "another dataset"])

    def test_holes_that_were_changed_in_the_catalog_are_named(self):
        self.table(1, 19)
        self.db("DELETE FROM t WHERE n = 12")
        self.export(self.url, "--table", "t", "--partition-size", "10")
        self.sql("UPDATE sluice_partition SET holes = '13' WHERE first_sequence = 10", "lake/_catalog.db")
        r = self.fails(65, "audit", "verify", "lake", "--dataset", "d")
        self.assertIn("holes is not that of the event", r.text)

    def test_a_row_that_appears_in_a_recorded_hole_is_reported_for_a_day(self):
        self.table(1, 35)
        self.db("DELETE FROM t WHERE n IN (12, 13, 22)")
        self.export(self.url, "--table", "t", "--partition-size", "10", "--final")
        self.fill(13, 13)
        self.fill(36, 40)
        result = self.export(self.url, "--table", "t", "--final", code=65)
        self.assertIn("n 13 has appeared in the source after it was recorded as a hole", result["errors"])
        self.assertEqual((result["rows"], result["checkpoint"]), (5, 40))  # what can be exported is
        self.verify()
        self.sql("UPDATE sluice_partition SET committed_ms = committed_ms - 24 * 3600 * 1000", "lake/_catalog.db")
        self.export(self.url, "--table", "t", "--final")

    def test_a_row_that_appears_in_a_hole_ends_following_the_table(self):
        self.table(1, 35)
        self.db("DELETE FROM t WHERE n = 12")
        self.export(self.url, "--table", "t", "--partition-size", "10")
        self.fill(12, 12)
        result = self.export(self.url, "--table", "t", "--follow", code=65)
        self.assertIn("n 12 has appeared", result["errors"])
        # Whatever is done about gaps now: it is recorded as a hole, and it is there.
        self.assertIn("n 12 has appeared", self.export(self.url, "--table", "t", "--gaps", "stop", code=65)["errors"])

    def backfill(self, ranges, code=0, **more):
        args = ("export", "backfill", "--from", self.url, "--table", "t", *self.WHERE, "--ranges", ranges)
        return self.ok(*args) if code == 0 else self.fails(code, *args, **more)

    def test_rows_that_appear_in_recorded_holes_are_exported_by_a_backfill(self):
        self.table(1, 35)
        self.db("DELETE FROM t WHERE n BETWEEN 10 AND 14 OR n BETWEEN 18 AND 22 OR n = 30")
        self.export(self.url, "--table", "t", "--partition-size", "10", "--final")
        committed = self.everything()
        self.fill(10, 11)   # the first numbers of their partition,
        self.fill(13, 13)   # and two stretches in one hole
        self.fill(19, 19)
        self.assertIn("a backfill of 10 to 19 exports it", self.export(self.url, "--table", "t", "--final", code=65)["errors"])
        self.backfill("13-13")
        self.assertEqual(sorted(self.numbers()), [*range(1, 12), 13, 15, 16, 17, 19, *range(23, 30), *range(31, 36)])
        # Nothing that was committed has changed, and each stretch has its event.
        self.assertEqual({k: v for k, v in self.everything().items() if k in committed and k.endswith(".parquet")},
                         {k: v for k, v in committed.items() if k.endswith(".parquet")})
        late = [json.loads(line) for line in self.events()[4:]]
        self.assertEqual([(e["type"], e["id"], e["tables"][0]["rows"]) for e in late],
                         [("late", "d:10-11:late", "2"), ("late", "d:13-13:late", "1"), ("late", "d:19-19:late", "1")])
        self.assertEqual(late[0]["tables"][0]["path"],
                         "d/partition-00000000000000000001/part-00000000000000000010-00000000000000000011-late.parquet")
        self.verify()
        self.assertEqual(self.ok("export", "gaps", "lake", "--dataset", "d").out, b"")
        self.assertEqual(self.status()["rows"], 28)
        # They are reported no more; the next one that appears is, also next to them.
        self.export(self.url, "--table", "t", "--final")
        before = self.everything()
        self.fill(12, 12)
        self.assertIn("n 12 has appeared", self.export(self.url, "--table", "t", "--final", code=65)["errors"])
        for name in self.files()[1:3]:  # lost files come back as they were, also late ones
            os.unlink(self.path("lake", name))
        self.backfill("10-19")
        self.assertEqual({k: v for k, v in self.everything().items() if k in before and k.endswith(".parquet")},
                         {k: v for k, v in before.items() if k.endswith(".parquet")})
        self.assertIn(12, self.numbers())
        self.verify()
        self.backfill("1-35")  # nothing is left to do
        self.assertEqual(len(self.events()), 8)
        # A late row that the source does not have any more is reported, as any other is.
        self.db("DELETE FROM t WHERE n = 13")
        self.backfill("10-19", code=65, says="no longer has all rows that were exported late")

    def test_late_rows_may_fill_a_partition_that_had_none(self):
        self.table(1, 25)
        self.db("DELETE FROM t WHERE n BETWEEN 10 AND 19")
        self.export(self.url, "--table", "t", "--partition-size", "10", "--final")
        self.fill(10, 19)
        self.export(self.url, "--table", "t", "--final", code=65)
        self.backfill("10-19")
        self.assertEqual(sorted(self.numbers()), list(range(1, 26)))
        self.assertEqual(len({json.loads(line)["id"] for line in self.events()}), 4)
        self.verify()
        self.export(self.url, "--table", "t", "--final")
        self.fill(26, 45)
        self.export(self.url, "--table", "t", "--final")
        self.assertEqual(self.numbers(), list(range(1, 46)))
        self.verify()

    def test_files_of_late_rows_are_held_against_the_events(self):
        self.table(1, 25)
        self.db("DELETE FROM t WHERE n = 12")
        self.export(self.url, "--table", "t", "--partition-size", "10", "--final")
        self.fill(12, 12)
        self.backfill("12-12")
        late = self.files()[2]
        self.assertTrue(late.endswith("-late.parquet"), late)
        self.write("lake/d/partition-00000000000000000002/part-00000000000000000021-00000000000000000021-late.parquet",
                   self.read(os.path.join("lake", late)))
        r = self.sluice("audit", "verify", "lake", "--dataset", "d", "--all")
        self.assertIn("not committed", r.text)  # a backfill that was killed leaves such a file
        os.unlink(self.path("lake", late))
        r = self.fails(65, "audit", "verify", "lake", "--dataset", "d")
        self.assertIn(os.path.basename(late), r.text)

    def test_a_backfill_below_the_start_records_holes(self):
        self.table(1, 35)
        self.db("DELETE FROM t WHERE n IN (3, 9, 12, 19)")
        where = ("--query", "SELECT * FROM t WHERE n >= 20", "--sequence", "n")
        self.export(self.url, *where, "--partition-size", "10", "--final")
        self.backfill("1-19")
        self.assertEqual(self.numbers(), [n for n in range(1, 36) if n not in (3, 9, 12, 19)])
        told = [json.loads(line) for line in self.events()]
        self.assertEqual([(e["type"], e["tables"][0]["hole_ranges"]) for e in told[2:]],
                         [("backfill", "12,19"), ("backfill", "3,9")])
        self.verify()

    def test_a_gap_stops_the_export_when_that_is_wanted(self):
        self.table(1, 25)
        self.db("DELETE FROM t WHERE n = 12")
        for source in (["--table", "t", "--gaps", "stop"], ["--query", "SELECT * FROM t", "--sequence", "n"]):
            r = self.fails(65, "export", "--from", self.url, *source, *self.WHERE, "--partition-size", "10", says=["13", "column n"])
            self.assertNotRegex(r.errors, r"\bline \d")
            self.assertEqual(self.numbers(), list(range(1, 10)))

    def test_rows_that_are_already_exported_may_be_deleted(self):
        self.table(1, 25)
        self.export(self.url, "--table", "t", "--partition-size", "10")
        self.db("DELETE FROM t WHERE n < 15")
        self.fill(26, 30)
        self.db("DELETE FROM t WHERE n < 20")
        self.export(self.url, "--table", "t")
        self.assertEqual(self.numbers(), list(range(1, 30)))

    def test_a_growing_table_is_followed(self):
        self.table(1, 12)
        p = self.begin(self.url, "--table", "t", "--partition-size", "10", "--follow")
        self.until(lambda: self.checkpoint() == 9, p)
        self.fill(13, 25)
        self.until(lambda: self.checkpoint() == 19, p)
        self.fill(26, 31)
        self.until(lambda: self.checkpoint() == 29, p)
        p.send_signal(signal.SIGTERM)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)
        self.assertEqual(json.loads(out)["checkpoint"], 29)
        self.export(self.url, "--table", "t", "--final")
        self.assertEqual(self.numbers(), list(range(1, 32)))
        self.verify()

    def test_the_events_of_a_job_store_are_exported(self):
        self.env["SLUICE_STORE"] = self.url
        for i in range(3):
            self.ok("run", "--", "sh", "-c", f"echo line {i}; echo again")
        table = ["--table", "sluice.job_events" if self.postgres else "job_events"]
        self.export(self.url, *table, "--sequence", "offset", "--partition-size", "4", "--final")
        rows = self.rows()
        self.assertEqual([r["offset"] for r in rows], list(range(1, len(rows) + 1)))
        self.assertGreater(len(rows), 6)
        self.verify()

    def test_databases_that_do_not_answer_or_fit_are_reported(self):
        self.db("CREATE TABLE t (n BIGINT)")
        self.fails(78, "export", "--from", self.url, "--table", "nowhere", *self.WHERE, says="nowhere")
        self.fails(64, "export", "--from", self.url, "--query", "SELEKT 1", *self.WHERE, says="syntax error")
        self.fails(64, "export", "--from", self.url, "--table", "t", "--sequence", "m", *self.WHERE, says="no column m")
        self.assertEqual(self.export(self.url, "--table", "t")["rows"], 0)
        self.db("INSERT INTO t VALUES (1), (NULL)")
        self.fails(65, "export", "--from", self.url, "--table", "t", *self.WHERE, says="table t")


class Postgres(Sqlite):
    postgres = True

    def test_every_type_has_a_column_type_or_is_text_by_a_rule(self):
        columns = {"a": ("timestamp", "'2024-02-29 12:00:00.5'", "timestamp(micros,local)", "2024-02-29T12:00:00.500000"),
                   "b": ("timestamptz", "'2024-02-29 12:00:00+09'", "timestamp(micros)", "2024-02-29T03:00:00.000000Z"),
                   "c": ("timestamp", "'infinity'", "timestamp(micros,local)", 2**63 - 1),
                   "d": ("timestamptz", "'-infinity'", "timestamp(micros)", -(2**63 - 1)),
                   "e": ("date", "'infinity'", "date", 2**31 - 1),
                   "f": ("date", "'0044-03-15 BC'", "date", -735160),
                   "f2": ("date", "'5874897-12-31'", "date", 2145042905),
                   "f3": ("timestamp", "'4713-01-01 00:00:00 BC'", "timestamp(micros,local)", -210863520000000000),
                   "g": ("timestamptz", "'10000-01-01 00:00:00+00'", "timestamp(micros)", 253402300800000000),
                   "h": ("double precision", "'NaN'", "double", "NaN"),
                   "i": ("real", "'-Infinity'", "float", "-Infinity"),
                   "j": ("numeric(18,2)", "1234567890123456.78", "decimal(18,2)", 1234567890123456.78),
                   "k": ("numeric(38,2)", "123456789012345678901234567890123456.78", "string", "123456789012345678901234567890123456.78"),
                   "l": ("numeric", "'NaN'", "string", "NaN"),
                   "m": ("uuid", "'00000000-0000-0000-0000-00000000000a'", "string", "00000000-0000-0000-0000-00000000000a"),
                   "o": ("time", "'12:34:56.5'", "string", "12:34:56.5"),
                   "p": ("timetz", "'12:34:56+02'", "string", "12:34:56+02"),
                   "q": ("json", "'{\"a\": 1}'", "string", '{"a": 1}'),
                   "r": ("jsonb", "'[1]'", "string", "[1]"),
                   "s": ("integer[]", "'{1,NULL}'", "string", "[1,null]"),
                   "t": ("text[]", "'{\"a,b\"}'", "string", '["a,b"]'),
                   "u": ("interval", "'1 day 2 hours'", "string", "P1DT2H"),
                   "v": ("inet", "'10.0.0.1/8'", "string", "10.0.0.1/8"),
                   "w": ("bytea", "'\\x00ff'", "binary", "\\x00ff")}
        self.db("CREATE TABLE t (n bigint PRIMARY KEY, " + ", ".join(f"{c} {kind}" for c, (kind, _, _, _) in columns.items()) + ")")
        self.db("INSERT INTO t VALUES (1, " + ", ".join(value for _, value, _, _ in columns.values()) + ")")
        self.db("INSERT INTO t (n) VALUES (2)")
        self.export(self.url, "--table", "t", "--final")
        schema = {c["name"]: c["type"] for c in json.loads(
            self.ok("parquet", "schema", "--json", self.path("lake", self.files()[0])).out)["columns"]}
        self.assertEqual(schema, {"n": "int64", **{c: kind for c, (_, _, kind, _) in columns.items()}})
        row, empty = self.rows()
        self.assertEqual({c: row[c] for c in columns}, {c: told for c, (_, _, _, told) in columns.items()})
        self.assertEqual({c: empty[c] for c in columns}, dict.fromkeys(columns))

    def test_a_dead_server_is_reported(self):
        self.fails(69, "export", "--from", "postgres://127.0.0.1:1/x", "--table", "t", *self.WHERE, says="postgres")

    def test_a_server_that_becomes_unavailable_is_waited_for(self):
        self.table(1, 12)
        p = self.begin(self.url, "--table", "t", "--partition-size", "10", "--follow")
        self.until(lambda: self.checkpoint() == 9, p)
        control_postgres("restart")
        self.fill(13, 25)
        self.until(lambda: self.checkpoint() == 19, p)
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)

    def test_the_catalog_may_be_in_postgres(self):
        self.write("in.csv", self.ledger(1, 25))
        self.export("in.csv", "--partition-size", "10", "--catalog", self.url)
        self.assertFalse(os.path.exists(self.path("lake", "_catalog.db")))
        status = json.loads(self.ok("export", "status", "lake", "--catalog", self.url, "--json").out)
        self.assertEqual(status["checkpoint"], 25)
        self.ok("audit", "verify", "lake", "--dataset", "d", "--catalog", self.url)

    def test_late_rows_may_be_in_a_catalog_in_postgres(self):
        self.table(1, 25)
        self.db("DELETE FROM t WHERE n IN (10, 12)")
        where = ("--table", "t", "--catalog", self.url)
        self.export(self.url, *where, "--partition-size", "10", "--final")
        self.fill(10, 10)
        self.export(self.url, *where, "--final", code=65)
        self.ok("export", "backfill", "--from", self.url, *where, *self.WHERE, "--ranges", "10-19")
        self.ok("audit", "verify", "lake", "--dataset", "d", "--catalog", self.url)
        self.export(self.url, *where, "--final")


if __name__ == "__main__":
    jobtest.main()
