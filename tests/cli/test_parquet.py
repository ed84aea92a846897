# SPDX-License-Identifier: Apache-2.0
"""sluice parquet: rows, columns and statistics of files, and what is said about damaged ones."""

import datetime
import json
import os
import struct
import subprocess

from clitest import DLQ_PUT as SAMPLES
from clitest import CliTest, main

EPOCH = datetime.date(1970, 1, 1)


def cell(name, value):
    """A value of cat as parquet_samples writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if name in ("float", "double"):
        code, digits = ("<f", 8) if name == "float" else ("<d", 16)
        return "nan" if value == "NaN" else f"{int.from_bytes(struct.pack(code, float(value)), 'little'):0{digits}x}"
    if name.startswith("ts_"):
        day, rest = value.rstrip("Z").split("T")
        clock, fraction = rest.split(".")
        h, m, s = map(int, clock.split(":"))
        seconds = ((datetime.date.fromisoformat(day) - EPOCH).days * 24 + h) * 3600 + m * 60 + s
        return str(seconds * 10 ** len(fraction) + int(fraction))
    if name == "date":
        return str((datetime.date.fromisoformat(value) - EPOCH).days)
    if name == "decimal":
        return str(int(value.replace(".", "")))
    if name in ("binary", "fixed"):
        return value.removeprefix("\\x")
    return value.encode().hex() if name == "string" else str(value)


class Parquet(CliTest):
    def sample(self, name):
        subprocess.run([SAMPLES, self.dir, name], check=True)
        return name + ".parquet"

    def cells(self, name, column):
        return self.read(f"{name}.{column}.cells").decode().splitlines()

    def rows(self, *args):
        return [json.loads(line, parse_float=str) for line in self.ok("parquet", "cat", *args).lines()]

    def test_cat_prints_every_cell_as_it_was_written(self):
        for name in ("nullable", "extremes", "dictionary", "zero_rows", "all_null"):
            with self.subTest(name=name):
                rows = self.rows(self.sample(name))
                columns = [c["name"] for c in self.ok("parquet", "schema", "--json", name + ".parquet").json()[0]["columns"]]
                self.assertEqual(len(columns), 14)
                for i, column in enumerate(columns):
                    want = self.cells(name, i)
                    self.assertEqual(len(rows), len(want))
                    for row, text in zip(rows, want):
                        self.assertEqual(cell(column, row[column]), text, column)

    def test_cat_takes_columns_a_limit_and_a_start(self):
        file = self.sample("dictionary")
        whole = self.rows(file)
        self.assertEqual(len(whole), 20000)
        some = self.rows(file, "--columns=string,int64", "--skip=5998", "--limit", "5")
        self.assertEqual([list(r) for r in some], [["string", "int64"]] * 5)
        self.assertEqual(some, [{"string": r["string"], "int64": r["int64"]} for r in whole[5998:6003]])
        self.assertEqual(self.rows(file, "-n", "0"), [])
        self.assertEqual(self.rows(file, "--skip", "30000"), [])
        self.fails(64, "parquet", "cat", "-c", "int64,nope", file, says="'nope'")
        self.fails(64, "parquet", "cat", "-c", "", file, says="columns")

    def test_stat_shows_the_name_of_the_file_escaped(self):
        os.rename(self.path(self.sample("nullable")), self.path("a\n\x1b[2Jb"))
        self.assertTrue(self.ok("parquet", "stat", "a\n\x1b[2Jb").text.startswith("a\\n\\x1b[2Jb\nrows "))

    def test_schema_names_every_type(self):
        file = self.sample("one_row")
        lines = [line.split() for line in self.ok("parquet", "schema", file).lines()]
        self.assertEqual([t for _, t, _ in lines], [
            "bool", "int32", "int64", "float", "double", "timestamp(millis)", "timestamp(micros)", "timestamp(nanos)", "date",
            "decimal(18,4)", "string", "binary", "fixed(5)", "timestamp(micros,local)"])
        self.assertEqual({n for _, _, n in lines}, {"nullable"})
        self.assertIn("required", self.ok("parquet", "schema", self.sample("required")).text)

    def test_stat_reports_sizes_bounds_and_metadata(self):
        file = self.sample("nullable")
        stat = self.ok("parquet", "stat", "--check", "--json", file).json()[0]
        self.assertEqual((stat["rows"], stat["bytes"]), (3000, os.path.getsize(self.path(file))))
        self.assertEqual(stat["metadata"], [["origin", "a test"], ["empty", ""], ["none", None]])
        self.assertRegex(stat["created_by"], r"^sluice version \d+\.\d+\.\d+ \(build .*\)$")
        columns = {c["name"]: c for g in stat["row_groups"] for c in g["columns"]}
        ints = [int(v) for v in self.cells("nullable", 2) if v != "NULL"]
        self.assertEqual((columns["int64"]["min"], columns["int64"]["max"]), (min(ints), max(ints)))
        self.assertEqual(columns["int64"]["nulls"], 3000 - len(ints))
        texts = [bytes.fromhex(v).decode() for v in self.cells("nullable", 10) if v != "NULL"]
        self.assertEqual((columns["string"]["min"], columns["string"]["max"]), (min(texts), max(texts)))
        text = self.ok("parquet", "stat", file).text
        self.assertIn("rows         3000", text)
        self.assertIn(f"{columns['int64']['nulls']} NULLs", text)

    def test_a_flipped_byte_is_named_and_status_65(self):
        file = self.sample("dictionary")
        stat = self.ok("parquet", "stat", "--json", file).json()[0]
        column = stat["row_groups"][1]["columns"][2]
        data = bytearray(self.read(file))
        data[column["offset"] + column["bytes"] - 1] ^= 1
        self.write("bad.parquet", bytes(data))
        r = self.fails(65, "parquet", "cat", "bad.parquet", says=["bad.parquet", "row group 1", "'int64'", "CRC"])
        self.assertEqual(len(r.lines()), 6000)
        self.fails(65, "parquet", "stat", "--check", "bad.parquet", says=["'int64'", "CRC"])
        self.ok("parquet", "stat", "bad.parquet")

    def test_what_is_no_parquet_file_is_reported(self):
        self.write("no.parquet", b"a,b\n1,2\n" * 10)
        self.fails(65, "parquet", "cat", "no.parquet", says=["no.parquet", "PAR1"])
        data = self.read(self.sample("nullable"))
        self.write("cut.parquet", data[:-100])
        self.fails(65, "parquet", "schema", "cut.parquet", says="truncated")
        self.fails(74, "parquet", "cat", "absent.parquet", says="absent.parquet")
        self.fails(64, "parquet", "cat", ".", says="regular")

    def test_a_broken_pipe_ends_cat(self):
        file = self.sample("dictionary")
        p = self.start("parquet", "cat", file)
        p.stdout.readline()
        p.stdout.close()
        self.assertEqual(p.wait(60), 141)


if __name__ == "__main__":
    main()
