# SPDX-License-Identifier: Apache-2.0
"""Commands, options, help, and what happens when the output cannot be written."""

import contextlib
import itertools
import json
import os
import pty
import re
import shlex
import subprocess

from clitest import SLUICE, CliTest, main


class Usage(CliTest):
    def tables(self):
        return json.loads(self.ok("help", "--json").out)

    def test_the_version_is_printed(self):
        r = self.ok("--version")
        self.assertRegex(r.text, r"^sluice \d+\.\d+\.\d+\n$")
        self.assertEqual(self.ok("wal", "dump", "--version").text, r.text)

    def test_every_help_exits_0_and_has_two_examples(self):
        commands = [c["name"].split() for c in self.tables()["commands"]]
        self.assertIn(["wal", "append"], commands)
        for words in [[], *([g] for g in self.tables()["groups"] if [g] not in commands), *commands]:
            with self.subTest(words=words):
                by_option = self.ok(*words, "--help").text
                if words in commands:
                    self.assertRegex(by_option, r"\AUsage: sluice [^\n]+\n\n[A-Z][^\n]+\.\n\nExamples:\n")
                if words:
                    examples = by_option.split("\nExamples:\n")[1].split("\n\n")[0].splitlines()
                    self.assertEqual([line.startswith("  ") for line in examples], [True, True], by_option)
                    self.assertNotIn("--log-format", by_option)
                self.assertIn("Usage: sluice", by_option)
                self.assertEqual(self.ok("help", *words).text, by_option)
                self.assertEqual(self.ok(*words, "-h").text, by_option)
                for line in by_option.splitlines():
                    self.assertEqual(line, line.rstrip())

    def test_the_overview_fits_a_screen_and_leads_to_every_command(self):
        overview = self.ok("help")
        self.assertLessEqual(len(overview.lines()), 24)
        for line in overview.lines():
            self.assertLessEqual(len(line), 80)
        self.assertEqual(self.ok().text, overview.text)
        for c in self.tables()["commands"]:
            if c["name"] != "help":
                self.assertRegex(overview.text, rf"(?m)^  .*\b{c['name'].split()[0]}\b")
            self.assertIn(f"\n  sluice {c['name']} ", self.ok("help", "--all").text)

    def test_exit_codes_and_global_options_have_a_topic(self):
        text = self.ok("help", "exit-codes").text
        for code, meaning in self.tables()["exit_codes"].items():
            self.assertRegex(text, rf"(?m)^ +{code}  {re.escape(meaning[:30])}")
        for o in self.tables()["global_options"]:
            self.assertIn("--" + o["name"], text)

    def test_a_command_s_help_names_all_its_options(self):
        for c in self.tables()["commands"]:
            text = self.ok("help", *c["name"].split()).text
            for o in c["options"]:
                self.assertIn("--" + o["name"], text)

    URLS = ("s3://bucket/x", "gs://bucket/x", "https://host.example/x", "file:///x", "S3+tls.v-2://x")

    def test_a_url_is_refused_wherever_a_file_or_folder_is_expected(self):
        before, tried = sorted(os.listdir(self.dir)), 0
        for c in self.tables()["commands"]:
            words = c["name"].split()
            lines = [[*words, f"--{o['name']}={{}}"] for o in c["options"] if o["arg"] in ("DIR", "FILE", "PATH", "REPO")]
            names = c["operands"].replace("…", "").split()
            lines += [[*words, *["x"] * i, "{}"] for i, name in enumerate(names) if name in ("DIR", "FILE", "PATH", "REPO")]
            for line in lines:
                with self.subTest(line=line):
                    url = self.URLS[tried % len(self.URLS)]
                    tried += 1
                    r = self.fails(64, *[w.format(url) for w in line], says=[url.split("://")[0] + "://", "is not supported here"])
                    self.assertEqual(r.out, b"")
        self.assertGreater(tried, 60)
        self.assertEqual(sorted(os.listdir(self.dir)), before)

    def test_a_url_is_refused_as_a_source_a_sink_a_catalog_and_by_the_environment(self):
        self.write("rows.csv", b"id,v\n1,a\n")
        export = ("export", "--from", "rows.csv", "--dataset", "d")
        self.fails(64, "export", "--from", "s3://bucket/rows.csv", "--to", "out", "--dataset", "d", says="s3:// is not supported")
        self.fails(64, *export, "--to", "out", "--catalog", "sqlite:s3://bucket/c.db", says="s3:// is not supported")
        self.fails(64, "load", "rows.csv", "--to", "file:gs://bucket/rows", says="gs:// is not supported")
        self.fails(64, "jobs", "list", "--store", "sqlite:s3://bucket/x.db", says="s3:// is not supported")
        for name in ("SLUICE_SERVER_DATA", "SLUICE_WAL_WAL_DIR", "SLUICE_EXPORT_EVENTS_DIR", "SLUICE_BACKUP_REPO", "SLUICE_SERVER_TOKENS_FILE"):
            self.env[name] = "s3://bucket/x"
            self.fails(78, "server", says="s3:// is not supported")
            del self.env[name]
        self.fails(78, "server", "--set", "wal.archive_dir=s3://bucket/x", says="wal.archive_dir: s3:// is not supported")
        self.write("sluice.yaml", b"export:\n  to: s3://bucket/x\n")
        self.fails(78, "config", "check", "sluice.yaml", says="export.to: s3:// is not supported")
        self.fails(78, "export", "--config", "sluice.yaml", "--from", "rows.csv", "--dataset", "d", says="s3:// is not supported")
        self.assertEqual([name for name in os.listdir(self.dir) if ":" in name], [])

    def test_a_local_folder_that_looks_like_a_url_can_be_named(self):
        self.write("rows.csv", b"id,v\n1,a\n")
        self.ok("export", "--from", "rows.csv", "--to", "./s3:/bucket", "--dataset", "d")
        self.assertTrue(os.path.isdir(self.path("s3:", "bucket", "d")))

    def examples(self):
        """(where, command line) of everything that the help asks people to type."""
        tables = self.tables()
        told = [(f"help {c['name']}", line) for c in tables["commands"] for line in c["example"].splitlines()]
        told += [("help", line.strip()) for line in self.ok("help", "--all").text.splitlines()
                 if line.startswith("  sluice") and "  #" in line]
        told += [(f"help {name}", line[2:]) for name, topic in tables["topics"].items()
                 for line in (topic["text"] or "").splitlines() if line.startswith("  ")]
        return told

    def test_every_command_line_in_the_help_is_understood(self):
        known = {c["name"] for c in self.tables()["commands"]}
        seen = set()
        for where, line in self.examples():
            words = shlex.split(line.replace("$(sluice", "; sluice").replace(")", " ;"), comments=True)
            while "sluice" in words:
                words = words[words.index("sluice") + 1:]
                one = list(itertools.takewhile(lambda w: w not in (";", "|", "&&", ">", "<", "--"), words))
                with self.subTest(where=where, words=one):
                    self.ok(*one, "--help")
                seen |= {" ".join(w for w in one if not w.startswith("-"))[:len(name)] for name in known} & known
        self.assertEqual(known - seen - {"help"}, set(), "has no example")

    def test_topics_are_printed_and_fit_a_terminal(self):
        tables = self.tables()
        names = {c["name"].split()[0] for c in tables["commands"]}
        main = self.ok("help", "--all").text
        self.assertGreaterEqual(len(tables["topics"]), 5)
        for name, topic in tables["topics"].items():
            self.assertNotIn(name, names)
            self.assertRegex(main, rf"(?m)^  {name} +{re.escape(topic['summary'])}$")
            text = self.ok("help", name).text
            self.assertTrue(text.startswith(f"{name} - {topic['summary']}\n\n{topic['text'] or ''}"))
            for line in text.splitlines():
                self.assertLessEqual(len(line), 80 if not line.startswith("  ") else 100, line)

    def test_a_mistyped_command_gets_the_nearest_as_a_suggestion(self):
        for args, hint in [
            (["wrker"], "'worker'"),
            (["jbos", "list"], "'jobs'"),
            (["wal", "vrify"], "'wal verify'"),
            (["jobs", "lst"], "'jobs list'"),
            (["export", "stauts"], "'export status'"),
            (["logs", "1"], "'jobs logs'"),
            (["list"], "'jobs list' or 'cron list' or 'dlq list'"),
            (["help", "wrker"], "'worker'"),
            (["help", "chian"], "'chains'"),
            (["help", "jobs", "lst"], "'jobs list'"),
            (["wal", "dump", "--jsn"], "'--json'"),
            (["version"], "'--version'"),
            (["--vers"], "'--version'"),
            (["load", "--on-c"], "'--on-conflict'"),
            (["back"], "'backup'"),
        ]:
            with self.subTest(args=args):
                r = self.fails(64, *args, says=f"; did you mean {hint}?")
                self.one_line(r)

    def test_an_error_names_what_it_is_about_though_a_word_of_it_begins_so(self):
        self.ok("backup", "init", "repo", "--plain")
        self.one_line(self.fails(73, "backup", "init", "repo", "--plain", says="repo: there is a repository already"))
        self.one_line(self.fails(65, "backup", "ls", "latest", "--repo", "repo", says="repo: the repository has no snapshot"))

    def test_nothing_is_suggested_where_nothing_is_near(self):
        for args in [["qqqqqqqq"], ["wal", "qqqqqqqq"], ["help", "qqqqqqqq"], ["wal", "dump", "a", "b"], ["export", "qqqqqqqq"],
                     ["x" * 500], ["wal", "x" * 500]]:
            with self.subTest(args=args):
                self.assertNotIn("did you mean", self.fails(64, *args, says="see 'sluice").errors)

    def test_unknown_words_are_usage_errors_on_one_line(self):
        for args, says in [
            (["wal"], "no command"),
            (["frob"], "frob"),
            (["wal", "frob"], "frob"),
            (["help", "frob"], "frob"),
            (["help", "wal", "frob"], "wal frob"),
            (["--frob"], "--frob"),
            (["-x"], "-x"),
            (["wal", "dump", "--frob", "x"], "--frob"),
            (["wal", "dump", "x", "-x"], "-x"),
            (["wal", "dump", "--frob=1", "x"], "'--frob'"),
            (["wal", "dump"], "FILE"),
            (["dlq", "show", "d"], "ID"),
            (["wal", "dump", "a", "b"], "'b'"),
            (["wal", "dump", ""], "empty"),
            (["wal", "append", "--window"], "--window"),
            (["wal", "append", "-w"], "-w"),
            (["wal", "dump", "--json=1", "x"], "--json takes no value"),
            (["wal", "archive", "x.wal"], "--to"),
            (["wal", "cleanup", "d"], "--retention-days"),
            (["dlq", "show", "d", "x"], "'x'"),
            (["dlq", "show", "d", "0"], "'0'"),
            (["jobs"], "no command"),
            (["jobs", "frob"], "frob"),
            (["cron", "add", "x"], "SPEC"),
            (["worker"], "--type"),
            (["run"], "COMMAND"),
        ]:
            with self.subTest(args=args):
                r = self.fails(64, *args, says=[says, "--help"])
                self.one_line(r)

    def test_a_bad_value_names_the_option_and_what_it_takes(self):
        for option, value, says in [
            ("--window", "0", "1 to 4096"),
            ("--window", "4097", "1 to 4096"),
            ("--window", "ten", "1 to 4096"),
            ("--window", "", "1 to 4096"),
            ("--window", "9" * 40, "1 to 4096"),
            ("--window", " 5", "1 to 4096"),
            ("--window", "5x", "1 to 4096"),
            ("--segment-bytes", "4095", "4KiB to 1TiB"),
            ("--segment-bytes", "64MB", "4KiB to 1TiB"),
            ("--segment-bytes", "99999999999GiB", "4KiB to 1TiB"),
            ("--lock-wait", "5", "5m"),
            ("--lock-wait", "-1s", "1d"),
            ("--lock-wait", "2d", "1d"),
            ("--on-corruption", "pray", "salvage, truncate, refuse"),
            ("--log-level", "loud", "debug, info, warn, error"),
            ("--log-format", "xml", "logfmt, json"),
        ]:
            with self.subTest(option=option, value=value):
                r = self.fails(64, "wal", "append", f"{option}={value}", "x.wal", says=[option, says])
                self.one_line(r)
                self.assertEqual(os.listdir(self.dir), [])

    def test_times_are_dates_moments_or_ages(self):
        os.mkdir(self.path("d"))
        for bad in ["2024-02-31", "2024-1-1", "yesterday", "2024-05-01T12:00:00", "2024-05-01 12:00:00", "-7d", "2024-13-01"]:
            with self.subTest(bad=bad):
                self.fails(64, "dlq", "purge", f"--before={bad}", "d", says="--before")
        for good in ["2024-02-29", "2024-05-01T12:00:00Z", "7d", "250ms"]:
            with self.subTest(good=good):
                self.ok("dlq", "purge", f"--before={good}", "d")

    def test_options_stand_anywhere_and_two_dashes_end_them(self):
        self.ok("wal", "append", "--", "-odd.wal", stdin=b"x\n")
        self.assertTrue(os.path.exists(self.path("-odd.wal")))
        for args in [
            ["--quiet", "wal", "dump", "--json", "--", "-odd.wal"],
            ["wal", "--quiet", "dump", "-j", "--", "-odd.wal"],
            ["wal", "dump", "-qj", "--", "-odd.wal"],
            ["--log-level", "error", "wal", "dump", "--log-format=json", "./-odd.wal", "--json"],
        ]:
            with self.subTest(args=args):
                self.assertEqual(self.ok(*args).json()[0]["sequence"], 1)

    def test_errors_are_json_records_when_asked_for(self):
        r = self.sluice("--log-format=json", "wal", "dump", "missing.wal")
        self.assertEqual(r.code, 74)
        for line in r.errors.splitlines():
            record = json.loads(line)
            self.assertEqual(record["level"], "error")
        self.assertIn("missing.wal", r.errors)

    def test_a_full_disk_behind_standard_output_is_noticed(self):
        self.ok("wal", "append", "x.wal", stdin=b"x\n")
        for args in [["--version"], ["--help"], ["wal", "dump", "x.wal"], ["wal", "stat", "--json", "x.wal"],
                     ["wal", "verify", "x.wal"]]:
            with self.subTest(args=args), open("/dev/full", "wb") as full:
                r = self.sluice(*args, stdout=full)
                self.assertEqual(r.code, 74)
                self.assertIn("standard output: No space left", r.errors)

    def test_a_closed_standard_output_is_noticed(self):
        r = subprocess.run(["sh", "-c", f'"{SLUICE}" --version >&-'], stderr=subprocess.PIPE, check=False)
        self.assertEqual(r.returncode, 74)
        self.assertIn(b"standard output", r.stderr)

    def test_a_closed_standard_input_is_noticed(self):
        r = subprocess.run(["sh", "-c", f'"{SLUICE}" wal append x.wal <&-'], cwd=self.dir, stderr=subprocess.PIPE, check=False)
        self.assertEqual(r.returncode, 74, r.stderr)
        self.assertIn(b"standard input", r.stderr)

    def test_nothing_is_coloured_without_a_terminal(self):
        r = self.fails(74, "wal", "dump", "missing.wal", says="missing.wal")
        self.assertNotIn("\x1b", r.errors)

    def test_a_terminal_gets_colour_unless_NO_COLOR_is_set(self):
        def errors(**env):
            leader, follower = pty.openpty()
            p = subprocess.Popen([SLUICE, "wal", "dump", "missing.wal"], stderr=follower, cwd=self.dir,
                                 env={**self.env, "TERM": "xterm", **env})
            os.close(follower)
            text = b""
            with contextlib.suppress(OSError):  # the end of a terminal
                while more := os.read(leader, 4096):
                    text += more
            p.wait()
            os.close(leader)
            self.assertIn(b"missing.wal", text)
            return text

        self.assertIn(b"\x1b[31m", errors())
        self.assertNotIn(b"\x1b", errors(NO_COLOR="1"))
        self.assertNotIn(b"\x1b", errors(TERM="dumb"))


if __name__ == "__main__":
    main()
