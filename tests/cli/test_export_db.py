# SPDX-License-Identifier: Apache-2.0
"""sluice export from databases: the same tests on SQLite and PostgreSQL; following, lost connections, job_events."""

import json
import os
import signal
import time

import jobtest
from exporttest import ExportTest
from jobtest import postgres_url, tell_postgres
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

    def test_a_gap_in_a_table_is_told(self):
        self.table(1, 25)
        self.db("DELETE FROM t WHERE n = 12")
        r = self.fails(65, "export", "--from", self.url, "--table", "t", *self.WHERE, "--partition-size", "10", says=["13", "column n"])
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
        began = time.monotonic()
        self.fill(27, 31)  # 26 is late: the rows behind it wait for it
        self.fill(26, 26)
        slow = time.monotonic() - began > 4
        self.until(lambda: self.checkpoint() == 29 or (slow and p.poll() is not None), p)
        if slow and p.poll() is not None:
            print("# not looked at: the row came later than an export is patient, 5 s")
            return
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

    def test_databases_that_do_not_answer_or_fit_are_told(self):
        self.db("CREATE TABLE t (n BIGINT)")
        self.fails(78, "export", "--from", self.url, "--table", "nowhere", *self.WHERE, says="nowhere")
        self.fails(64, "export", "--from", self.url, "--query", "SELEKT 1", *self.WHERE, says="syntax error")
        self.fails(64, "export", "--from", self.url, "--table", "t", "--sequence", "m", *self.WHERE, says="no column m")
        self.assertEqual(self.export(self.url, "--table", "t")["rows"], 0)
        self.db("INSERT INTO t VALUES (1), (NULL)")
        self.fails(65, "export", "--from", self.url, "--table", "t", *self.WHERE, says="table t")


class Postgres(Sqlite):
    postgres = True

    def test_a_dead_server_is_told(self):
        self.fails(69, "export", "--from", "postgres://127.0.0.1:1/x", "--table", "t", *self.WHERE, says="postgres")

    def test_a_server_that_goes_away_is_waited_for(self):
        self.table(1, 12)
        p = self.begin(self.url, "--table", "t", "--partition-size", "10", "--follow")
        self.until(lambda: self.checkpoint() == 9, p)
        tell_postgres("restart")
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


if __name__ == "__main__":
    jobtest.main()
