# SPDX-License-Identifier: Apache-2.0
"""sluice ship to PostgreSQL: a table has each line once, also when the server is restarted, killed or away on the way, and
when the command is killed too."""

import json
import os
import shutil

from jobtest import main, postgres_url, control_postgres
from loadtest import psql
from shiptest import ShipTest, numbered


class Postgres(ShipTest):
    def setUp(self):
        super().setUp()
        self.url = postgres_url()
        self.to = ("--to", self.url, "--create", "--stream=s", "--wal=wal")

    def found(self):
        """How many rows, how many different lines and keys, and the sum of the numbers."""
        sql = ("SELECT count(*), count(DISTINCT line), count(DISTINCT (stream, incarnation, sequence)), "
               "sum(substr(line, 6)::int) FROM shipped_lines")
        return tuple(int(x or 0) for x in psql(self.url, sql).split("|"))

    def wanted(self, n):
        return (n, n, n, n * (n + 1) // 2)

    def all_there(self, n, process):
        self.until("the table", lambda: psql(self.url, "SELECT to_regclass('shipped_lines')"), process)
        self.until(f"{n} rows", lambda: self.found()[0] >= n, process)
        self.assertEqual(self.found(), self.wanted(n))

    def test_rows_have_the_types_of_their_columns(self):
        self.write("app.log", b'plain\n\xff\n{"a":1}\n')
        self.ok("ship", "--input=jsonl", "app.log", *self.to)
        rows = psql(self.url, "SELECT sequence, partial, line, line_b64, event->>'a', ts > now() - interval '1 hour' "
                              "FROM shipped_lines ORDER BY sequence").splitlines()
        self.assertEqual(rows, ["1|f|plain|||t", "2|f||/w==||t", "3|f|||1|t"])

    def test_a_restored_log_adds_its_lines_to_a_table_and_replaces_none(self):
        r = self.restored("--to", self.url, "--create")
        self.assertIn("new incarnation", r.errors)
        rows = psql(self.url, "SELECT line FROM shipped_lines ORDER BY ts, sequence").splitlines()
        self.assertEqual(sorted(rows), sorted(self.RESTORED))

    def test_a_batch_that_comes_again_is_there_once(self):
        for _ in range(2):
            shutil.rmtree(self.path("wal"), ignore_errors=True)
            if os.path.exists(self.path("copy")):
                shutil.copytree(self.path("copy"), self.path("wal"))
            else:  # a log whose lines were never acknowledged
                self.sluice("ship", "--to", "postgresql://127.0.0.1:1/none", "--flush-timeout=0", "--stream=s", "--wal=wal",
                            stdin=numbered(1, 100))
                shutil.copytree(self.path("wal"), self.path("copy"))
            r = self.ok("ship", *self.to, "--retarget", stdin=b"")
            self.assertNotIn("new incarnation", r.errors)
            self.assertEqual(self.found(), self.wanted(100))

    def test_each_line_is_there_once_after_restarts_and_kills_of_both(self):
        self.write("app.log", numbered(1, 2000))
        p = self.follow("app.log", to=self.to)
        self.all_there(2000, p)
        last = 2000
        for fault in ("restart", "crash", "restart"):
            self.append("app.log", numbered(last + 1, last + 1500))
            control_postgres(fault)
            self.append("app.log", numbered(last + 1501, last + 3000))
            last += 3000
            self.kill(p)
            p = self.follow("app.log", to=self.to)
        self.all_there(last, p)
        self.assertEqual(self.finish(p)["left"], 0)

    def test_a_server_that_is_unavailable_is_waited_for_from_the_start_on(self):
        control_postgres("stop")
        try:
            self.write("app.log", numbered(1, 100))
            p = self.follow("app.log", to=self.to)
            self.until("reported", lambda: "lines wait for it in the log" in self.said(), p)
            self.until("100 records", lambda: json.loads(
                self.sluice("wal", "stat", "--json", "wal/s.wal").out or b'{"records":0}')["records"] == 100, p)
        finally:
            control_postgres("start")
        self.all_there(100, p)
        self.finish(p)

    def test_without_a_key_every_line_is_there_at_least_once(self):
        psql(self.url, "CREATE TABLE mine (line text)")
        to = ("--to", self.url, "--table=mine", "--columns=line", "--on-conflict=", "--stream=s", "--wal=wal")
        self.write("app.log", numbered(1, 3000))
        p = self.follow("app.log", to=to)
        self.until("some rows", lambda: int(psql(self.url, "SELECT count(*) FROM mine")) > 0, p)
        self.append("app.log", numbered(3001, 5000))
        control_postgres("crash")
        self.kill(p)
        self.ok("ship", "app.log", *to)
        count, different = psql(self.url, "SELECT count(*), count(DISTINCT line) FROM mine").split("|")
        self.assertEqual(int(different), 5000)
        print(f"# {count} rows of 5000 lines", flush=True)

    def test_a_missing_table_is_reported_before_anything_is_read(self):
        self.write("app.log", numbered(1, 3))
        r = self.sluice("ship", "app.log", "--to", self.url, "--stream=s", "--wal=wal")
        self.assertEqual(r.code, 78, r.err)
        self.assertIn("shipped_lines", r.errors)
        self.assertIn("create", r.errors)
        self.assertFalse(os.path.exists(self.path("wal")))


if __name__ == "__main__":
    main()
