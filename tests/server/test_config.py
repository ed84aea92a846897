# SPDX-License-Identifier: Apache-2.0
"""Settings: where they come from, who wins, and what is said of a wrong one."""

import json
import os
import re

import servertest
from openapi import Api, Document
from servertest import ServerTest, ask

DOCUMENT = Document.of_source()


class Config(ServerTest):
    def check(self, text, *expected):
        """The problems of a file as 'line:column: text'; each must have what is expected of it, in order."""
        path = self.write("c.yaml", text.encode())
        r = self.sluice("config", "check", path)
        if not expected:
            self.assertEqual((r.code, r.text), (0, f"{path}: good\n"), r.err)
            return
        self.assertEqual(r.code, 78, r.err)
        lines = [line.split(f"{path}:", 1)[1] for line in r.errors.splitlines()]
        self.assertEqual(len(lines), len(expected), r.errors)
        for line, want in zip(lines, expected):
            for part in [want] if isinstance(want, str) else want:
                self.assertIn(part, line)

    def test_a_good_file_is_good(self):
        self.check("")
        self.check("# nothing\n")
        self.check("server:\n")
        self.check("server:\n  threads:\n")
        self.check("server:\n  listen: 127.0.0.1:0\n  hosts: [a, b]\nperf:\n  workers: 4\n  queue_size: 8\n"
                   "  retry_attempts: 3\n  retry_backoff_ms: 1000\n")
        self.check('jobs: {types: ["a=echo x", b], lease_ms: 30s}\nwal: {segment_bytes: 1MiB}\n')

    def test_nothing_is_suggested_only_because_the_section_is_the_same(self):
        for wrong, hint in (("server.foo", ""), ("server.lisen", "; did you mean server.listen?"), ("sever.listen", "; did you mean server.listen?")):
            with self.subTest(wrong=wrong):
                r = self.fails(78, "server", f"--set={wrong}=1", says=f"unknown setting {wrong}{hint}")
                self.assertEqual(bool(hint), "did you mean" in r.errors)

    def test_a_folder_instead_of_a_file_is_reported(self):
        self.fails(74, "config", "check", ".", says="read .: Is a directory")
        self.fails(74, "server", "--config=.", says="read .: Is a directory")

    def test_an_unknown_name_is_placed_and_the_nearest_known_one_suggested(self):
        self.check("server:\n  threads: 3\n  lisetn: x\n", ("3:3: ", "'lisetn'", "'listen'"))
        self.check("\nserv:\n  listen: x\n", ("2:1: ", "'serv'", "'server'"))
        self.check("perf:\n  workers: 1\n  retry_attempt: 1\n", ("3:3: ", "'retry_attempts'"))
        self.check("coordinator: {capacty: 5}\n", ("1:15: ", "'capacity'"))
        self.check("listen: x\n", ("1:1: ", "belongs in section 'server'"))
        self.check("zzzzzzzzzzz: {}\n", "1:1: unknown section 'zzzzzzzzzzz'")

    def test_a_wrong_value_is_placed_with_what_is_expected(self):
        self.check("server:\n  threads: many\n", ("2:12: ", "'many'", "a whole number from 1 to 256"))
        self.check("server:\n  threads: 0\n", "2:12: ")
        self.check("server:\n  threads: 1.5\n", "2:12: ")
        self.check("server:\n  read_only: maybe\n", ("2:14: ", "true or false"))
        self.check("server:\n  access_log: xml\n", ("2:15: ", "one of off, logfmt, json"))
        self.check("jobs:\n  lease_ms: 5 parsecs\n", ("2:13: ", "duration"))
        self.check("retention:\n  completed: forever\n", ("2:14: ", "duration"))
        self.check("retention:\n  lines: -1\n", ("2:10: ", "from 0 to"))
        self.check("retention:\n  failed: 36501d\n", ("2:11: ", "from 0 to"))
        self.check("server:\n  listen: [a]\n", ("2:11: ", "expected a value, not a list"))
        self.check("server:\n  listen: {a: b}\n", ("2:11: ", "expected a value, not a section"))
        self.check("server: 5\n", ("1:9: ", "expected the settings of 'server', not a value"))
        self.check("- server\n", ("1:1: ", "expected sections, not a list"))
        self.check("server:\n  threads: 99999999999999999999\n", "2:12: ")

    def test_all_problems_of_a_file_are_named_at_once(self):
        self.check("server:\n  a1: 1\n  threads: x\nfoo: 1\njobs:\n  slots: 0\n", "2:3: ", "3:12: ", "4:1: ", "6:10: ")

    def test_what_is_no_yaml_is_placed(self):
        self.check("server:\n\tlisten: x\n", "2:1: ")
        self.check('server:\n  listen: "x\n', "3:1: ")
        self.check("server:\n  listen: x\n listen: y\n", "3:2: ")

    def test_the_same_name_twice_is_a_slip(self):
        self.check("server:\n  threads: 3\n  threads: 4\n", ("3:3: ", "server.threads is given twice"))
        self.check("server:\n  threads: 3\nserver:\n  threads: 4\n", ("4:3: ", "twice"))

    def test_values_that_do_not_go_together_are_placed(self):
        self.check("jobs:\n  lease_ms: 1000\n  renew_interval_ms: 900\n", ("3:22: ", "at most half of lease_ms, 500"))
        self.check("coordinator:\n  capacity: 10\n  high_watermark: 11\n", ("3:19: ", "above capacity"))
        self.check("server:\n  tls_cert_file: /x\n", "tls_key_file: missing; a certificate and its key go together")
        self.check("server:\n  tls_key_file: /x\n", "tls_cert_file: missing; a certificate and its key go together")

    def test_a_file_that_is_not_there_is_said_so(self):
        self.fails(74, "config", "check", self.path("none.yaml"), says="none.yaml")

    def test_settings_of_one_type_are_checked_like_all_others(self):
        self.check("types:\n")
        self.check("types:\n  mail:\n  eu.mail/x: {}\n")
        self.check("types:\n  mail: {command: ./mail --fast, lease: 60s, renew: 10s, timeout: 5m, priority: -5, slots: 2,\n"
                   "         next_job_delay: 1s, retry: {first: 5s, cap: 5m, multiplier: 1.5, max_attempts: 5}}\n")
        self.check("types:\n  mail: {lese: 60s}\n", ("2:10: ", "'types.mail.lese'", "did you mean 'lease'?"))
        self.check("types:\n  mail: {retry: {cpa: 1s}}\n", ("2:18: ", "'types.mail.retry.cpa'", "did you mean 'retry.cap'?"))
        self.check("types:\n  mail: {max_attempts: 3}\n", ("2:10: ", "did you mean 'retry.max_attempts'?"))
        self.check("types:\n  mail: {lease: soon}\n", ("2:17: ", "types.mail.lease: 'soon' is not", "60s"))
        self.check("types:\n  mail: {slots: 0}\n", ("2:17: ", "a whole number from 1 to 10000"))
        self.check("types:\n  mail:\n    retry: {multiplier: 0.5}\n", ("3:25: ", "a number such as 2 or 1.5", "1 to 100"))
        self.check("types:\n  mail: {lease: [1s]}\n", ("2:17: ", "types.mail.lease: expected a value, not a list"))
        self.check("types:\n  mail: ./mail\n", ("2:9: ", "types.mail: expected its settings", "{command: ./mail}"))
        self.check("types: [mail]\n", ("1:8: ", "not a list"))
        self.check("types:\n  mail: {lease: 1s, lease: 2s}\n", ("2:21: ", "types.mail.lease is given twice"))
        self.check('types:\n  "no good": {lease: 1s}\n', ("2:22: ", 'invalid type "no good"'))
        self.check("type:\n  mail: {}\n", ("1:1: ", "did you mean 'types'?"))

    def test_settings_of_one_type_must_fit_each_other_and_those_of_all(self):
        self.check("types:\n  a: {lease: 10s, renew: 6s}\n", ("2:26: ", "types.a.renew: the renewal, 6000 ms, must be at most "
                                                              "half of the lease, 10000 ms"))
        self.check("jobs: {lease_ms: 1m}\ntypes:\n  a: {renew: 31s}\n", ("3:14: ", "half of the lease, 60000 ms"))
        self.check("jobs: {renew_interval_ms: 20s}\ntypes:\n  a: {lease: 1s}\n")  # the pair of the type
        self.check("types:\n  a: {retry: {first: 2s, cap: 1s}}\n", ("2:31: ", "types.a.retry.cap: must not be shorter"))
        self.check("types:\n  a: {retry: {first: 1h}}\n")  # lifts the cap of all types

    def test_set_has_the_types_too(self):
        up = ("up", "--listen=127.0.0.1:0", "--data=" + self.path("data"), "--type=eu.mail=true")
        for value, says in (("types.eu.mail.lese=1s", ("types.eu.mail.lese", "did you mean lease?")),
                            ("types.eu.mail.retry.first=x", "types.eu.mail.retry.first: 'x' is not"),
                            ("types.lease=1s", "types.TYPE.SETTING=VALUE"), ("types.x", "types.TYPE.SETTING=VALUE"),
                            ("types.eu.mail.command=", "missing value")):
            with self.subTest(value=value):
                self.fails(78, *up, "--set", value, says=says)
        self.fails(64, *up, "--set=types.mail.lease=1s", says="this worker does not serve mail; add --type mail=COMMAND")
        self.fails(64, "server", "--set=types.mail.lease=1s", says="a server runs no jobs and uses only the priority")

    def test_a_server_with_a_bad_file_does_not_start(self):
        path = self.write("c.yaml", b"server:\n  lisetn: x\n")
        self.fails(78, "up", "--config", path, says=[f"{path}:2:3", "listen"])
        self.fails(78, "server", "--config", path, says=[f"{path}:2:3", "listen"])

    def run_and_see_log_format(self, *args):
        """The format of the access log shows which source won."""
        p = self.server(*args)
        ask(p.url, "livez")
        _, err = self.end(p)
        lines = [line for line in err.decode().splitlines() if "/livez" in line]
        return "off" if not lines else "json" if lines[0].startswith("{") else "logfmt"

    def test_the_environment_wins_over_the_file_and_flags_over_both(self):
        path = self.write("c.yaml", b"server: {access_log: logfmt}\n")
        self.assertEqual(self.run_and_see_log_format(), "off")
        self.assertEqual(self.run_and_see_log_format("--config", path), "logfmt")
        self.env["SLUICE_SERVER_ACCESS_LOG"] = "json"
        self.assertEqual(self.run_and_see_log_format("--config", path), "json")
        self.assertEqual(self.run_and_see_log_format("--config", path, "--access-log=off"), "off")
        self.assertEqual(self.run_and_see_log_format("--config", path, "--set", "server.access_log=logfmt"), "logfmt")

    def test_slips_in_the_environment_and_in_set_are_refused(self):
        self.fails(78, "up", "--set", "server.lisetn=x", says="did you mean server.listen?")
        self.fails(78, "up", "--set", "server.threads=x", says="a whole number")
        self.fails(78, "up", "--set", "listen", says="SECTION.NAME=VALUE")
        self.env["SLUICE_SERVER_THREDS"] = "4"
        self.fails(78, "up", says=["SLUICE_SERVER_THREDS", "did you mean SLUICE_SERVER_THREADS?"])
        self.env["SLUICE_SERVER_THREDS"] = ""
        del self.env["SLUICE_SERVER_THREDS"]
        self.env["SLUICE_SERVER_THREADS"] = "four"
        self.fails(78, "up", says=["SLUICE_SERVER_THREADS", "'four'"])

    def keeps(self, days, *args):
        """A server that was started so keeps completed, failed, events and lines for these days; None: for ever."""
        p = self.server(*args)
        wanted = [d and d * 86400000 for d in days]
        self.until(lambda: [Api(p.url, DOCUMENT)("GET", "/stats")["retention"][name + "_ms"]
                            for name in ("completed", "failed", "events", "lines")] == wanted)
        self.end(p)

    def test_retention_comes_from_all_sources_and_stays_with_the_store(self):
        self.keeps([7, 90, 30, 30])
        path = self.write("c.yaml", b"retention: {completed: 8d, failed: 0}\n")
        self.env["SLUICE_RETENTION_EVENTS"] = "9d"
        self.keeps([8, None, 9, 10], "--config", path, "--retention-lines=10d")
        del self.env["SLUICE_RETENTION_EVENTS"]
        self.keeps([1, None, 9, 10], "--set", "retention.completed=1d")

    def test_lists_of_a_later_source_replace_those_of_an_earlier_one(self):
        path = self.write("c.yaml", b"jobs: {types: ['one=echo 1', 'two=echo 2']}\n")
        self.env["SLUICE_JOBS_TYPES"] = "three=echo 3\nfour=echo 4"
        p = self.server("--config", path)
        three, four, one = self.enqueue("three"), self.enqueue("four"), self.enqueue("one")
        self.assertEqual([self.chain(three)["status"], self.chain(four)["status"]], ["completed", "completed"])
        self.assertEqual(self.show(one)["status"], "pending")
        self.end(p)

    def test_the_printed_list_is_a_good_file_with_every_setting(self):
        text = self.ok("config", "list").text
        self.check(text)
        names = [json.loads(line) for line in self.ok("config", "list", "--json").lines()]
        self.assertGreater(len(names), 40)
        for s in names:
            if s["section"] == "types":
                self.assertRegex(text, rf"(?m)^  #  +{s['name'].rpartition('.')[2]}:$")
                continue
            self.assertIn(f"  # {s['name']}:", text)
            self.assertIn(s["env"], text)
        uncommented = re.sub(r"^  # (\w+: *\S.*)$", r"  \1", text, flags=re.M)
        bare = "\n".join(line for line in uncommented.splitlines() if not line.lstrip().startswith("#"))
        self.check("\n".join(line for line in bare.splitlines() if not line.startswith("  SLUICE")) + "\n")

    def test_flags_of_the_commands_are_settings(self):
        settings = {s["flag"]: s for s in map(json.loads, self.ok("config", "list", "--json").lines()) if s["flag"]}
        tables = {c["name"]: {o["name"]: o for o in c["options"]}
                  for c in json.loads(self.ok("help", "--json").out)["commands"]}
        for flag, s in settings.items():
            self.assertEqual(tables["up"][flag]["help"], s["help"])
        self.assertEqual(set(tables["up"]) - set(settings), {"config", "set"})
        shared = set(tables["worker"]) & set(settings)
        self.assertLess({"lease", "renew", "retry-multiplier", "next-job-delay", "slots", "type", "wal"}, shared)
        for flag in shared - {"slots", "store"}:  # with a default of their own
            self.assertEqual(tables["worker"][flag]["help"], settings[flag]["help"])
        self.assertLess(set(tables["server"]) - {"config", "set"}, set(settings))

    def test_the_documentation_is_made_of_the_same_table(self):
        script = os.path.join(servertest.ROOT, "scripts", "config-docs")
        r = os.system(f"{script} {servertest.SLUICE} --check >/dev/null")
        self.assertEqual(r, 0, "run scripts/config-docs BUILD/src/cli/sluice")


if __name__ == "__main__":
    servertest.main()
