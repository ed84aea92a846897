# SPDX-License-Identifier: Apache-2.0
"""Commands, options, help, and what happens when the output cannot be written."""

import json
import os
import pty
import re
import shutil
import subprocess

from clitest import ROOT, SLUICE, CliTest, main


class Usage(CliTest):
    def tables(self):
        return json.loads(self.ok("help", "--json").out)

    def test_the_version_is_printed(self):
        r = self.ok("--version")
        self.assertRegex(r.text, r"^sluice \d+\.\d+\.\d+\n$")
        self.assertEqual(self.ok("wal", "dump", "--version").text, r.text)

    def test_every_help_exits_0_and_has_an_example(self):
        commands = [c["name"].split() for c in self.tables()["commands"]]
        self.assertIn(["wal", "append"], commands)
        for words in [[], ["jobs"], ["cron"], ["wal"], ["parquet"], ["dlq"], *commands]:
            with self.subTest(words=words):
                by_option = self.ok(*words, "--help").text
                self.assertIn("\nExample:\n  ", by_option)
                self.assertIn("Usage: sluice", by_option)
                self.assertEqual(self.ok("help", *words).text, by_option)
                self.assertEqual(self.ok(*words, "-h").text, by_option)
                for line in by_option.splitlines():
                    self.assertEqual(line, line.rstrip())

    def test_a_command_s_help_names_all_its_options(self):
        for c in self.tables()["commands"]:
            text = self.ok("help", *c["name"].split()).text
            for o in c["options"]:
                self.assertIn("--" + o["name"], text)

    def test_unknown_words_are_usage_errors_on_one_line(self):
        for args, says in [
            ([], "no command"),
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
            p.wait()
            text = os.read(leader, 4096)
            os.close(leader)
            return text

        self.assertIn(b"\x1b[31m", errors())
        self.assertNotIn(b"\x1b", errors(NO_COLOR="1"))
        self.assertNotIn(b"\x1b", errors(TERM="dumb"))


PAGES = ["sluice.1"] + [f"sluice-{name}.1" for name in ("up", "demo", "server", "config", "run", "enqueue", "worker", "jobs",
                                                    "cron", "load", "ship", "export", "wal", "parquet", "dlq")]


class Manual(CliTest):
    def manual(self, name):
        with open(os.path.join(ROOT, "man", name), encoding="utf-8") as f:
            return f.read().replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")

    def test_the_manual_has_every_command_option_and_exit_status(self):
        tables = json.loads(self.ok("help", "--json").out)
        top = self.manual("sluice.1")
        for o in tables["global_options"]:
            self.assertRegex(top, rf"--{o['name']}\b")
        for code in tables["exit_codes"]:
            self.assertRegex(top, rf"(?m)^\.B {code}$")
        for c in tables["commands"]:
            words = c["name"].split()
            self.assertIn(c["name"], top)
            if words == ["help"]:
                continue
            page = self.manual(f"sluice-{words[0]}.1")
            if len(words) == 2:
                self.assertEqual(len(page.split(f"\n.SS {words[1]}\n", 1)), 2, c["name"])
            synopsis = re.search(rf"(?ms)^sluice {c['name']} .*?(?=^sluice |^\.fi)", page).group(0)
            for o in c["options"]:
                self.assertRegex(page, rf"(?m)^\.(B|BI|BR) .*--{o['name']}\b", c["name"])
                if not (c["name"] == "dlq export" and o["name"] == "json"):
                    self.assertRegex(synopsis, rf"--{o['name']}\b")

    def test_the_manual_has_the_version_of_the_command(self):
        version = self.ok("--version").text.strip()
        for name in PAGES:
            self.assertIn(f'"{version}"', self.manual(name))

    def test_the_manual_is_formatted_without_a_warning(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        for name in PAGES:
            r = subprocess.run(["groff", "-ww", "-man", "-Tutf8", os.path.join(ROOT, "man", name)], capture_output=True,
                               check=True)
            self.assertEqual(r.stderr, b"")

    def test_the_completion_has_every_command_and_option(self):
        tables = json.loads(self.ok("help", "--json").out)
        script = os.path.join(ROOT, "completions", "sluice.bash")

        def words(call):
            r = subprocess.run(["bash", "-c", f'. "$0"; {call}', script], capture_output=True, text=True, check=True)
            return set(r.stdout.split())

        for c in tables["commands"]:
            name = c["name"].split()
            self.assertIn(name[-1], words(f"_sluice_commands '{' '.join(name[:-1])}'"))
            expected = {f"--{o['name']}{'' if o['kind'] == 'flag' else '='}" for o in tables["global_options"] + c["options"]}
            self.assertEqual(words(f"_sluice_options '{c['name']}'"), expected, c["name"])
            for o in tables["global_options"] + c["options"]:
                self.assertEqual(words(f"_sluice_values --{o['name']}"), set(o.get("choices", [])))

    def test_the_completion_completes(self):
        script = os.path.join(ROOT, "completions", "sluice.bash")

        def complete(*line):
            quoted = " ".join(f"'{w}'" for w in line)
            r = subprocess.run(["bash", "-c", f'. "$0"; COMP_WORDS=({quoted}); COMP_CWORD={len(line) - 1}; _sluice; '
                                'printf "%s\\n" "${COMPREPLY[@]}"', script], capture_output=True, text=True, check=True,
                               cwd=self.dir)
            return r.stdout.split()

        self.assertEqual(complete("sluice", "wa"), ["wal"])
        self.assertEqual(complete("sluice", "jobs", "mig"), ["migrate"])
        self.assertEqual(complete("sluice", "enqueue", "--key-scope", "=", "a"), ["any"])
        self.assertEqual(complete("sluice", "-q", "wal", "app"), ["append"])
        self.assertEqual(complete("sluice", "wal", "append", "--win"), ["--window="])
        self.assertEqual(complete("sluice", "wal", "recover", "--on-corruption", "=", "tr"), ["truncate"])
        self.write("demo.wal", b"")
        self.assertEqual(complete("sluice", "wal", "dump", "de"), ["demo.wal"])


if __name__ == "__main__":
    main()
