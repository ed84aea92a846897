# SPDX-License-Identifier: Apache-2.0
"""Enqueue, look, steer and clean up, without a worker."""

import contextlib
import datetime
import fcntl
import json
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import subprocess
import termios

import jobtest
from clitest import _default_signals
from jobtest import SLUICE, JobTest

DAY = 86400


def asleep_in_read(pid):
    """Waits for more on a pipe."""
    with open(f"/proc/{pid}/wchan", encoding="ascii") as f:
        if "pipe" in f.read():
            return True
    with open(f"/proc/{pid}/syscall", encoding="ascii") as f:  # where the kernel does not name the place
        return f.read().split()[:2] == ["0", "0x0"]


def has_read_all(p):
    """Nothing that was written to its standard input is left in the pipe."""
    return fcntl.ioctl(p.stdin, termios.FIONREAD, b"\0" * 4) == b"\0" * 4


class Enqueue(JobTest):
    def test_the_id_is_printed_and_the_job_is_there(self):
        job = self.show(self.enqueue("mail", '{"to": "ada"}'))
        self.assertEqual((job["type"], job["status"], job["input"]), ("mail", "pending", {"to": "ada"}))
        for name in ["id", "chain_id", "attempt", "output", "error", "created_at", "scheduled_for", "completed_at",
                     "leased_by", "leased_until", "attempts"]:
            self.assertIn(name, job)
        self.assertEqual(job["id"], job["chain_id"])
        self.assertEqual(job["attempts"], [])
        self.assertEqual(job["attempt"], 0)

    def test_the_input_is_null_from_stdin_or_an_argument(self):
        self.assertIsNone(self.show(self.enqueue("a"))["input"])
        self.assertEqual(self.show(self.enqueue("a", "-", stdin=b' [1,\n2] \n'))["input"], [1, 2])
        self.assertEqual(self.show(self.enqueue("a", "--", "-5"))["input"], -5)
        self.assertEqual(self.show(self.enqueue("a", '"\\u0000\u00e9"'))["input"], "\0é")

    def test_json_is_printed_when_asked_for(self):
        first, second = (self.ok("enqueue", "a", "1", "--key=k", "--json").json()[0] for _ in range(2))
        self.assertEqual(first["existing"], False)
        self.assertEqual(second, {"chain_id": first["chain_id"], "existing": True})

    def test_a_key_that_exists_is_reported(self):
        first = self.ok("enqueue", "a", "--key=k")
        self.assertEqual(first.err, b"")
        again = self.ok("enqueue", "a", "--key=k")
        self.assertEqual(again.out, first.out)
        self.assertIn(f"nothing was enqueued: chain {int(first.out)} already has the key k", again.err.decode())
        bulk = self.ok("enqueue", "a", "--bulk=-", stdin=b'{"key":"k"}\n{"key":"l"}\n{"key":"l"}\n')
        self.assertEqual(len(bulk.lines()), 3)
        self.assertIn(b"nothing was enqueued for 2 lines", bulk.err)

    def test_bad_input_is_refused_with_its_place(self):
        for text, place in [(b'{"a":', "line 1, column 6"), (b"", "line 1, column 1"), (b"[1,\n  oops]", "line 2, column 3"),
                            (b'"\xff"', "UTF-8"), (b"nul", "column 1"), (b"1 2", "column 3"), (b'{"a":1\0}', "zero byte")]:
            with self.subTest(text=text):
                self.one_line(self.fails(65, "enqueue", "a", "-", stdin=text, says=place))
        self.assertEqual(self.totals()["pending"], 0)

    def test_json_whose_quotes_the_shell_took_is_explained(self):
        self.one_line(self.fails(65, "enqueue", "a", "{to:ada}", says=["column 2", "quote JSON for the shell"]))
        self.assertNotIn(b"quote JSON for the shell", self.fails(65, "enqueue", "a", '{"to":}', says="column 7").err)

    def test_wrong_usage_is_64_and_makes_nothing(self):
        for args, says in [
            ([], "TYPE is missing"),
            (["bad type"], "type"),
            (["a", "1", "2"], "unexpected argument"),
            (["a", "--at=tomorrow"], "--at"),
            (["a", "--at=2031-01-01T00:00:00Z", "--in=5s"], "exclude"),
            (["a", "--in=5"], "--in"),
            (["a", "--in=-5s"], "--in"),
            (["a", "--priority=x"], "--priority"),
            (["a", "--priority=3000000000"], "--priority"),
            (["a", "--after=x"], "invalid id 'x'"),
            (["a", "--after=1,,2"], "invalid id ''"),
            (["a", "--after=0"], "invalid id '0'"),
            (["a", "--key-scope=none"], "incomplete, any"),
            (["a", "--key-scope=any"], "--key-scope needs --key"),
            (["a", "--key-window=5s"], "--key-window needs --key"),
            (["a", "5", "--bulk=f"], "--bulk"),
            (["a", "--store=mysql://u:secret@h/x"], "mysql"),
            (["a", "--store=sqlite:"], "sqlite"),
            (["a", "--store=nothing"], "sqlite:FILE"),
        ]:
            with self.subTest(args=args):
                r = self.fails(64, "enqueue", *args, says=says)
                self.assertNotIn("secret", r.errors)
                self.assertEqual(r.out, b"")
        self.assertEqual(self.totals()["pending"], 0)

    def test_a_key_holds_until_the_chain_has_ended(self):
        first = self.enqueue("a", "--key=k")
        self.assertEqual(self.enqueue("a", "2", "--key=k"), first)
        self.assertNotEqual(self.enqueue("a", "--key=other"), first)
        self.ok("jobs", "cancel", str(first))
        self.assertNotEqual(self.enqueue("a", "--key=k"), first)

    def test_a_key_of_any_scope_holds_after_the_end(self):
        first = self.enqueue("a", "--key=k", "--key-scope=any")
        self.ok("jobs", "cancel", str(first))
        self.assertEqual(self.enqueue("a", "--key=k", "--key-scope=any"), first)

    def test_schedules_are_kept(self):
        at = self.show(self.enqueue("a", "--at=2031-05-01T12:00:00Z"))
        self.assertEqual(at["scheduled_for"], "2031-05-01T12:00:00.000Z")
        soon = self.show(self.enqueue("a", "--in=1d"))
        self.assertGreater(soon["scheduled_for"], soon["created_at"])
        self.assertEqual(json.loads(self.ok("jobs", "stats", "--json").out)["types"]["a"]["ready"], 0)
        self.ok("jobs", "trigger", soon["id"])
        self.assertEqual(json.loads(self.ok("jobs", "stats", "--json").out)["types"]["a"]["ready"], 1)

    def test_a_chain_waits_for_others(self):
        one, two = self.enqueue("a"), self.enqueue("a")
        for options in [[f"--after={one}", f"--after={two}"], [f"--after={one},{two}"]]:
            job = self.show(self.enqueue("b", *options))
            self.assertEqual((job["status"], job["blockers_open"]), ("blocked", 2))
            self.assertIn(job["id"], [j["id"] for j in self.ok("jobs", "list", "--json", f"--waiting-for={two}").json()])
        self.fails(65, "enqueue", "b", "--after=99999", says="no chain 99999")

    def test_a_bulk_file_starts_a_chain_a_line(self):
        lines = [{"input": {"n": 1}}, {"type": "other", "priority": -3}, {"input": 2, "in_ms": 60000},
                 {"at": "2031-01-01T00:00:00Z", "key": "k"}, {"key": "k"}]
        self.write("f.jsonl", b"\n\n".join(json.dumps(line).encode() for line in lines))
        started = self.ok("enqueue", "a", "--bulk=f.jsonl", "--json").json()
        self.assertEqual([s["existing"] for s in started], [False] * 4 + [True])
        jobs = [self.show(s["chain_id"]) for s in started]
        self.assertEqual([j["type"] for j in jobs], ["a", "other", "a", "a", "a"])
        self.assertEqual([j["input"] for j in jobs], [{"n": 1}, None, 2, None, None])
        self.assertEqual(jobs[1]["priority"], -3)
        self.assertIsNotNone(jobs[2]["scheduled_for"])
        self.assertEqual(jobs[3]["scheduled_for"], "2031-01-01T00:00:00.000Z")
        self.assertEqual(jobs[3]["id"], jobs[4]["id"])

    def test_options_about_keys_hold_for_the_keys_of_a_bulk_file(self):
        first = self.enqueue("a", "--bulk=-", "--key-scope=any", stdin=b'{"key":"k"}')
        self.ok("jobs", "cancel", str(first))
        self.assertEqual(self.enqueue("a", "--bulk=-", "--key-scope=any", stdin=b'{"key":"k"}'), first)

    def test_numbers_of_a_bulk_file_are_kept_digit_for_digit(self):
        text = '[1.1,12345678901234567890,1e999,"\\u0000"]'
        job = self.enqueue("a", "--bulk=-", stdin=f'{{"key":"k", "input" : {text} }}\n'.encode())
        self.assertIn(f'"input":{text}', self.ok("jobs", "show", str(job), "--json").text)

    def test_a_bad_line_of_a_bulk_file_is_named_and_nothing_starts(self):
        for line, says in [
            (b"x", "line 3: column"),
            (b'{"input":[1,}]}', "line 3: column 13"),
            (b'{"input":"\xff"}', "line 3: column"),
            (b"[]", "line 3: the line is not a JSON object"),
            (b'{"inputs":1}', 'line 3: unknown member "inputs"'),
            (b'{"type":5}', 'line 3: "type" is not a string'),
            (b'{"type":"no good"}', "line 3: type"),
            (b'{"priority":1.5}', 'line 3: "priority"'),
            (b'{"in_ms":-1}', 'line 3: "in_ms"'),
            (b'{"at":"soon"}', 'line 3: "at"'),
            (b'{"at":"2031-01-01T00:00:00Z","in_ms":5}', "exclude"),
            (b'{"input":1,"input":2}', "line 3"),
            (b'{"inp\\u0075t":1}', "line 3"),
            (b'{"type":"a\\u0000"}', 'line 3: column 17: \\u0000 is allowed only in "input"'),
            (b'{"a\\u0000":1}', "line 3: column 10: a member's name cannot contain \\u0000"),
            (b"{} {}", "line 3: column 4: nothing may follow the object"),
            (b'{"input":1]}', "line 3: column 11: '}' expected near ']'"),
            (b'{"input":[1', "line 3: column 11: the line ends before the object does"),
            (b'{"key":"a', "line 3: column 9: the line ends before the object does"),
            (b'{"key":"\xff"}', "line 3: column 8: the line is not UTF-8"),
        ]:
            with self.subTest(line=line):
                self.one_line(self.fails(65, "enqueue", "a", "--bulk=-", stdin=b'{"input":1}\n\n' + line, says=["stdin", says]))
        self.fails(65, "enqueue", "--bulk=-", stdin=b"{}\n", says='"type" is missing')
        self.fails(74, "enqueue", "a", "--bulk=missing.jsonl", says="missing.jsonl: No such file")
        self.fails(74, "enqueue", "a", "--bulk=.", says="directory")
        self.assertEqual(self.totals()["pending"], 0)
        self.assertEqual(self.ok("enqueue", "a", "--bulk=-", stdin=b"").out, b"")

    def test_a_signal_while_it_reads_starts_nothing(self):
        for args in (["--bulk=-"], ["-"]):
            p = self.start("enqueue", "a", *args)
            p.stdin.write(b'{"input":1}\n')
            p.stdin.flush()
            self.until(lambda: has_read_all(p) and ("-" not in args or asleep_in_read(p.pid)))
            p.send_signal(signal.SIGINT)
            self.assertEqual(p.wait(60), 75)
            self.assertIn(b"interrupted", p.stderr.read())
        self.assertEqual(self.totals()["pending"], 0)

    def test_a_bulk_that_waits_for_its_input_blocks_no_other_command(self):
        n = 6000  # more than is handed to the store at once
        p = self.start("enqueue", "a", "--bulk=-")
        p.stdin.write(b"{}\n" * n)
        p.stdin.flush()
        self.until(has_read_all, p)
        self.enqueue("b")
        if self.postgres:
            found = subprocess.run(["psql", "-qXAt", "-d", self.store, "-c", "SELECT count(*) FROM pg_stat_activity "
                                    "WHERE datname = current_database() AND state LIKE 'idle in transaction%'"],
                                   check=True, capture_output=True)
            self.assertEqual(found.stdout, b"0\n")
        self.assertEqual(self.totals()["pending"], 1)
        out, err = p.communicate(timeout=jobtest.TIMEOUT)
        self.assertEqual((p.returncode, len(out.split())), (0, n), err)
        self.assertEqual(self.totals()["pending"], n + 1)

    def test_a_bulk_file_larger_than_memory_is_meant_for_goes_by_way_of_a_temporary_file(self):
        n, text = 200, "x" * 40000
        lines = b"".join(b'{"input":[%d,"%s"]}\n\n' % (i, text.encode()) for i in range(n))
        os.mkdir(self.path("tmp"))
        self.ok("jobs", "migrate")
        self.env["TMPDIR"] = self.path("none")
        self.one_line(self.fails(74, "enqueue", "a", "--bulk=-", stdin=lines,
                                 says=["stdin", "TMPDIR", "No such file", "nothing was enqueued"]))
        self.enqueue("few", "--bulk=-", stdin=b"{}\n")  # needs none
        self.env["TMPDIR"] = self.path("tmp")
        full = ["sh", "-c", "ulimit -f 2000; exec \"$@\"", "sh"]  # files of 1 MB at most
        self.one_line(self.fails(74, "enqueue", "a", "--bulk=-", stdin=lines, under=full,
                                 says=["stdin", "TMPDIR", self.path("tmp"), "File too large", "nothing was enqueued"]))
        self.one_line(self.fails(65, "enqueue", "a", "--bulk=-", stdin=lines + b'{"type":"no good"}',
                                 says=["stdin", f"line {2 * n + 1}: type"]))
        self.assertEqual(self.totals()["pending"], 1)
        ids = self.enqueue("a", "--bulk=-", stdin=lines)
        self.assertEqual(len(ids), n)
        for i in (0, 99, n - 1):
            self.assertEqual(self.show(ids[i])["input"], [i, text])
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_a_line_of_a_bulk_file_that_is_too_long_is_refused_before_it_ends(self):
        self.write("huge", b"{}\n")
        os.truncate(self.path("huge"), 1 << 36)  # no test waits for the end of that
        self.one_line(self.fails(65, "enqueue", "a", "--bulk=huge", says=["huge, line 2", "longer than 64 MiB", "nothing"]))
        self.assertEqual(self.totals()["pending"], 0)

    def test_the_progress_of_a_bulk_counts_lines(self):
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        p = self.ends_with_test(subprocess.Popen([SLUICE, "enqueue", "a", "--bulk=-"], stdin=subprocess.PIPE,
                                                 stdout=subprocess.DEVNULL, stderr=follower, env=self.env, cwd=self.dir))
        os.close(follower)
        shown = b""

        def shows():
            nonlocal shown
            p.stdin.write(b"{}\n")  # another line reads the clock again
            p.stdin.flush()
            while select.select([leader], [], [], 0)[0]:
                shown += os.read(leader, 65536)
            return b"\x1b[K" in shown

        self.until(shows)
        self.assertRegex(shown, rb"^\r +[0-9]+ lines? read\x1b\[K")
        p.stdin.close()
        self.assertEqual(p.wait(jobtest.TIMEOUT), 0)

    def test_a_bulk_file_of_many_lines_is_started_in_order(self):
        n = 12001
        ids = self.enqueue("a", "--bulk=-", stdin=b"".join(b'{"input":%d}\n' % i for i in range(n)))
        self.assertEqual(len(set(ids)), n)
        self.assertEqual(ids, sorted(ids))
        self.assertEqual(self.show(ids[-1])["input"], n - 1)
        self.assertEqual(self.totals()["pending"], n)


class NotesBesideTheFile(JobTest):
    def test_a_folder_for_notes_that_is_not_to_be_trusted_is_reported_once_and_not_used(self):
        self.enqueue("t")
        os.chmod(self.path("jobs.db-notify"), 0o777)
        r = self.ok("enqueue", "t")
        self.assertEqual(r.err.decode().count("is writable by other users"), 1, r.err)
        self.assertEqual(self.drain("--type=t=true")["completed"], 2)


class EnqueueOnPostgres(Enqueue):
    postgres = True


class Look(JobTest):
    def test_lists_filter_and_page(self):
        ids = [self.enqueue("even" if i % 2 == 0 else "odd", str(i)) for i in range(10)]
        self.ok("jobs", "cancel", str(ids[0]), str(ids[1]))

        def listed(*args):
            return [int(j["id"]) for j in self.ok("jobs", "list", "--json", *args).json()]

        self.assertEqual(listed(), ids[::-1])
        self.assertEqual(listed("--oldest-first"), ids)
        self.assertEqual(listed("--oldest-first", "--type=even"), ids[::2])
        self.assertEqual(listed("--status=cancelled"), [ids[1], ids[0]])
        self.assertEqual(len(listed("--status=cancelled", "--status=pending")), 10)
        self.assertEqual(listed("--limit=3"), ids[:-4:-1])
        self.assertEqual(listed("--limit=3", f"--cursor={ids[7]}"), [ids[6], ids[5], ids[4]])
        self.assertEqual(listed(f"--chain={ids[4]}"), [ids[4]])
        self.assertEqual(listed("--since=2099-01-01"), [])
        self.assertEqual(listed("--until=2000-01-01"), [])
        self.assertEqual(listed("--since=1h", "--chains", "--limit=2"), ids[:-3:-1])
        lines = self.ok("jobs", "list", "--limit=2")
        self.assertEqual(len(lines.lines()), 3)
        self.assertIn(f"--cursor={ids[8]}", lines.errors)

    def test_a_table_has_a_heading_local_times_and_is_cut_on_a_terminal_only(self):
        long = "x" * 120
        job = self.enqueue(long)
        created = datetime.datetime.fromisoformat(self.show(job)["created_at"])
        self.env["TZ"] = "XYZ-05:30"
        local = (created + datetime.timedelta(hours=5, minutes=30)).strftime("%Y-%m-%d %H:%M:%S")
        row = rf"{job} +{job}  {long}  ready +0  "
        for args in ([], ["--chains"]):
            self.assertEqual(self.ok("jobs", "list", *args).lines()[0].split()[0], "ID")
        heading, line = self.ok("jobs", "list").lines()
        self.assertEqual(heading.split(), ["ID", "CHAIN", "TYPE", "STATUS", "ATTEMPT", "CREATED", "ERROR"])
        self.assertEqual(heading.index("STATUS"), line.index("ready"))
        self.assertRegex(line, rf"^ *{row}{local} *$")
        self.assertRegex(self.ok("jobs", "list", "--utc").lines()[1], rf"{row}{created.strftime('%Y-%m-%d %H:%M:%S')}Z *$")
        self.assertIn(created.strftime("%Y-%m-%dT%H:%M:%S"), self.ok("jobs", "list", "--json").text)
        shown = self.on_a_terminal("jobs", "list", columns=80).decode().splitlines()
        self.assertEqual([len(line.rstrip()) <= 80 for line in shown], [True, True], shown)
        self.assertRegex(shown[1], rf"^ *{job} +{job}  x+…  ready +0  {local} *$")

    def test_what_waits_for_a_retry_is_not_what_is_scheduled(self):
        scheduled = self.enqueue("t", "--in=1h")
        retrying = self.enqueue("t")
        ready = self.enqueue("u")
        worker = self.start("worker", "--type=t=false", "--retry-delay=1h")
        self.until(lambda: self.totals()["retrying"] == 1)
        worker.terminate()
        worker.wait()
        for state, job in (("ready", ready), ("scheduled", scheduled), ("retrying", retrying)):
            listed = [(int(j["id"]), j["status"], j["state"])
                      for j in self.ok("jobs", "list", "--json", "--status=" + state).json()]
            self.assertEqual(listed, [(job, "pending", state)])
            self.assertRegex(self.ok("jobs", "list", "--chains", "--status=" + state).text, rf"{job} .* {state} ")
            self.assertEqual(self.totals()[state], 1)
        self.assertEqual(len(self.ok("jobs", "list", "--json", "--status=pending").json()), 3)
        self.one_line(self.fails(64, "jobs", "list", "--status=waiting", says="retrying"))

    def test_showing_is_for_people_too(self):
        job = self.enqueue("mail", '{ "to" : "ada\\u001b[31m" }', "--key=k\x1b[31m")
        text = self.ok("jobs", "show", str(job)).text
        self.assertIn('input         {"to":"ada\\u001b[31m"}\n', text)
        self.assertNotIn("\x1b", text)
        self.assertIn("ready", text)

    def test_an_unknown_id_is_an_error(self):
        self.enqueue("a")
        for args in [["show", "999"], ["logs", "999"], ["wait", "999"], ["cancel", "999"], ["retry", "999"],
                     ["trigger", "999"], ["delete", "999"], ["fail", "999"]]:
            with self.subTest(args=args):
                self.one_line(self.fails(65, "jobs", *args, says="999"))
        self.one_line(self.fails(65, "enqueue", "b", "--after=1,999", says="no chain 999"))
        self.one_line(self.fails(65, "cron", "remove", "none", says="none"))
        self.assertEqual(self.totals()["pending"], 1)
        for args in [["show", "x"], ["logs", "-1"], ["wait", ""], ["cancel", "1", "1x"], ["show"], ["cancel"],
                     ["show", "99999999999999999999"]]:
            with self.subTest(args=args):
                self.fails(64, "jobs", *args)

    def test_stats_count_by_type_and_status(self):
        ids = [self.enqueue(t) for t in ["a", "a", "b"]]
        self.enqueue("c", f"--after={ids[2]}")
        self.ok("jobs", "cancel", str(ids[0]))
        self.ok("jobs", "pause", "b")
        stats = json.loads(self.ok("jobs", "stats", "--json").out)
        self.assertEqual(stats["totals"], {"blocked": 1, "pending": 2, "running": 0, "completed": 0, "failed": 0,
                                           "cancelled": 1, "ready": 2, "scheduled": 0, "retrying": 0})
        self.assertEqual(stats["types"]["a"]["cancelled"], 1)
        self.assertEqual(stats["types"]["b"]["paused"], True)
        self.assertRegex(self.ok("jobs", "stats").text, r"(?m)^b .* paused$")
        self.ok("jobs", "resume", "b")
        self.assertNotIn("paused", self.ok("jobs", "stats").text)

    def test_stats_show_a_paused_type_without_jobs(self):
        self.enqueue("a")
        self.ok("jobs", "pause", "quiet")
        self.assertRegex(self.ok("jobs", "stats").text, r"(?m)^quiet( +0){8}  paused$")

    def test_looking_makes_no_store(self):
        for args in (["jobs", "list"], ["jobs", "show", "1"], ["jobs", "logs", "1"], ["jobs", "stats"],
                     ["jobs", "watch", "--count=1"], ["jobs", "wait", "1"], ["jobs", "retry", "1"],
                     ["jobs", "cancel", "1"], ["jobs", "fail", "1"], ["jobs", "trigger", "1"], ["jobs", "delete", "1"],
                     ["jobs", "prune"], ["cron", "list"], ["cron", "remove", "x"]):
            with self.subTest(args=args):
                r = self.fails(69, *args, says="jobs migrate")
                self.one_line(r)
                self.assertIn("the store" if self.postgres else "jobs.db", r.errors)
                self.assertFalse(os.path.exists(self.path("jobs.db")))
        if self.postgres:
            found = subprocess.run(["psql", "-qXAt", "-d", self.store, "-c", "SELECT count(*) FROM pg_namespace "
                                    "WHERE nspname = 'sluice'"], check=True, capture_output=True)
            self.assertEqual(found.stdout, b"0\n")
        self.ok("jobs", "migrate")
        self.assertEqual(self.ok("jobs", "list").out, b"")

    def test_an_empty_store_has_zeros(self):
        self.ok("jobs", "migrate")
        self.assertEqual(json.loads(self.ok("jobs", "stats", "--json").out),
                         {"totals": dict.fromkeys(["blocked", "pending", "running", "completed", "failed", "cancelled",
                                                   "ready", "scheduled", "retrying"], 0),
                          "types": {}})
        self.assertEqual(self.ok("jobs", "list", "--json").out, b"")

    def test_the_view_is_plain_lines_in_a_pipe(self):
        self.enqueue("mail")
        text = self.ok("jobs", "watch", "--count=2", "--every=100ms").text
        self.assertEqual(text.count("RUNNING"), 2)
        self.assertIn("mail", text)
        self.assertNotIn("\x1b", text)

    def on_a_terminal(self, *args, columns=0):
        """What a command that ends writes to a terminal."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        p = self.ends_with_test(subprocess.Popen([SLUICE, *args], stdout=follower, stderr=follower, stdin=subprocess.DEVNULL,
                                                 env={**self.env, "TERM": "xterm"}, cwd=self.dir))
        os.close(follower)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is gone with the process
            while more := os.read(leader, 65536):
                shown += more
        os.close(leader)
        self.assertEqual(p.wait(jobtest.TIMEOUT), 0)
        return shown.replace(b"\r\n", b"\n")

    def test_output_of_a_job_cannot_command_a_terminal(self):
        line = b"\x1b]0;owned\x07\x1b[2Jgr\xc3\xbc\xc3\x9fe\ta\\b \xff\x9b1m\r\xe2\x80\xae.\n"
        self.write("output", line)
        chain = self.enqueue("t")
        self.ok("worker", "--type", "t=cat output", "--drain", "--wal", self.path("wal"))
        escaped = b"\\x1b]0;owned\\x07\\x1b[2Jgr\xc3\xbc\xc3\x9fe\ta\\b \\xff\\x9b1m\\r\\xe2\\x80\\xae.\n"
        self.assertEqual(self.on_a_terminal("jobs", "logs", str(chain)), escaped)
        self.assertEqual(self.on_a_terminal("jobs", "logs", str(chain), "--raw"), line)
        self.assertEqual(self.ok("jobs", "logs", str(chain)).out, line)

    def watch_on_a_terminal(self, *, key=None, **env):
        leader, follower = pty.openpty()
        before = termios.tcgetattr(leader)
        p = subprocess.Popen([SLUICE, "jobs", "watch", "--every=100ms"], stdout=follower, stderr=follower, stdin=follower,
                             env={**self.env, "TERM": "xterm", **env}, cwd=self.dir,
                             preexec_fn=lambda: (_default_signals(), os.login_tty(follower)))
        os.close(follower)
        self.addCleanup(lambda: (p.kill(), p.wait()))
        shown = b""
        while shown.count(b"RUNNING") < 2:
            shown += os.read(leader, 65536)
        if key is None:
            p.send_signal(signal.SIGINT)
        else:
            os.write(leader, key)
        try:
            while more := os.read(leader, 65536):
                shown += more
        except OSError:
            pass  # the terminal is gone with the process
        self.assertEqual(p.wait(), 0)
        self.assertEqual(termios.tcgetattr(leader), before)
        os.close(leader)
        return shown

    def test_the_view_is_drawn_in_place_on_a_terminal_and_leaves_it_in_order(self):
        self.enqueue("mail")
        shown = self.watch_on_a_terminal()
        self.assertIn(b"mail", shown)
        self.assertIn(b"\x1b[H", shown)
        self.assertTrue(shown.rstrip().endswith(b"\x1b[?25h"), shown[-80:])
        self.assertNotRegex(self.watch_on_a_terminal(NO_COLOR="1"), rb"\x1b\[[0-9;]*m")

    def test_the_view_ends_with_the_key_q(self):
        self.enqueue("mail")
        shown = self.watch_on_a_terminal(key=b"xq")
        self.assertIn(b"q: quit", shown)
        self.assertTrue(shown.rstrip().endswith(b"\x1b[?25h"), shown[-80:])

    def test_the_password_is_never_printed(self):
        for store in ["postgres://u:se%63ret@localhost:1/x", "postgres://u@localhost:1/x?password=secret"]:
            with self.subTest(store=store):
                for args in [["jobs", "list"], ["enqueue", "a"], ["worker", "--type=a=true"], ["cron", "list"]]:
                    r = self.fails(69, *args, f"--store={store}")
                    self.assertNotIn("secret", r.errors)
                    self.assertNotIn("se%63ret", r.errors)
        # A '/' ends the authority: what was meant as a password is a port.
        r = self.fails(64, "jobs", "list", "--store=postgres://u:secret/x@localhost:1/x", says="write / as %2F")
        self.assertNotIn("secret", r.errors)
        self.fails(69, "jobs", "list", "--store=postgres://u:p@localhost:1/x", says="can be seen by every user")
        self.env["SLUICE_STORE"] = "postgres://u:secret@localhost:1/x"
        r = self.fails(69, "jobs", "list")
        self.assertNotIn("secret", r.errors)
        self.one_line(r)

    def test_a_store_that_cannot_be_is_named(self):
        os.mkdir(self.path("folder"))
        self.write("text", b"This is no database. " * 100)
        self.write("short", b"no")
        for store, code, says in [
            ("sqlite:folder", 74, "folder"),
            ("sqlite:text", 65, "not a database"),
            ("sqlite:text/below.db", 73, "text"),
            ("sqlite:/proc/none/x.db", 73, "/proc/none"),
            ("sqlite:/proc/x.db", 73, "/proc/x.db"),
            ("postgres://localhost:port/x", 64, "port"),
            ("postgres://localhost:99999/x", 64, "port"),
            ("postgres://localhost:1/x", 69, "localhost"),
            ("postgres:///x?host=%2Fnonexistent", 69, "nonexistent"),
        ]:
            with self.subTest(store=store):
                self.one_line(self.fails(code, "enqueue", "a", f"--store={store}", says=says))
                self.one_line(self.fails(69 if code == 73 else code, "jobs", "list", f"--store={store}", says=says))

    def test_a_store_in_a_missing_folder_is_made_for_its_owner_only(self):
        self.ok("enqueue", "a", "--store=sqlite:new/deep/x.db")
        self.assertEqual(os.stat(self.path("new")).st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(self.path("new/deep/x.db")).st_mode & 0o777, 0o600)

    def test_the_default_store_is_in_the_home_folder(self):
        del self.env["SLUICE_STORE"]
        self.enqueue("a")
        self.assertTrue(os.path.exists(self.path(".sluice", "sluice.db")))
        self.env["SLUICE_STORE"] = ""
        self.assertEqual(self.totals()["pending"], 1)


class LookOnPostgres(Look):
    postgres = True


class LookAtFiles(JobTest):
    def test_the_database_of_another_program_is_left_as_it_is(self):
        with contextlib.closing(sqlite3.connect(self.path("jobs.db"), timeout=60)) as db:
            db.execute("CREATE TABLE theirs(a)")
            db.execute("INSERT INTO theirs VALUES (7)")
            db.commit()
        before = self.read("jobs.db")
        for args in (["jobs", "list"], ["jobs", "retry", "1"], ["cron", "list"]):
            with self.subTest(args=args):
                self.one_line(self.fails(69, *args, says=["jobs.db", "jobs migrate"]))
                self.assertEqual(self.read("jobs.db"), before)
        self.enqueue("a")
        self.assertEqual(self.totals()["pending"], 1)
        with contextlib.closing(sqlite3.connect(self.path("jobs.db"), timeout=60)) as db:
            self.assertEqual(db.execute("SELECT a FROM theirs").fetchall(), [(7,)])


class Steer(JobTest):
    def test_cancelled_chains_can_be_retried(self):
        one, two = self.enqueue("a"), self.enqueue("a")
        self.assertEqual(self.ok("jobs", "cancel", str(one), str(two)).text, "cancelled 2 of 2\n")
        self.assertEqual(self.ok("jobs", "cancel", str(one), "--json").json(), [{"cancelled": 0, "unchanged": 1}])
        self.assertEqual(self.show(one)["status"], "cancelled")
        self.assertEqual(self.ok("jobs", "retry", str(one)).text, "redriven 1 of 1\n")
        self.assertEqual(self.ok("jobs", "retry", str(one)).text, "redriven 0 of 1\n")
        self.assertEqual(self.show(one)["status"], "pending")
        three = self.enqueue("a")
        self.ok("jobs", "cancel", str(three))
        self.assertEqual(self.ok("jobs", "retry", str(two), str(one), str(three)).text, "redriven 2 of 3\n")
        self.assertEqual([self.show(i)["status"] for i in (one, two, three)], ["pending"] * 3)
        self.ok("jobs", "cancel", str(one))
        self.fails(65, "jobs", "retry", str(one), "999", says="999")
        self.assertEqual(self.show(one)["status"], "cancelled")

    def test_a_chain_is_not_retried_while_another_has_its_key(self):
        one = self.enqueue("a", "--key=k")
        self.ok("jobs", "fail", str(one))
        two = self.enqueue("a", "--key=k")
        self.one_line(self.fails(65, "jobs", "retry", str(one), says=f"chain {two} has the same key"))
        self.assertEqual(self.show(one)["status"], "failed")
        self.ok("jobs", "cancel", str(two))
        self.ok("jobs", "retry", str(one))
        self.assertEqual(self.enqueue("a", "--key=k"), one)

    def test_a_chain_whose_blocker_was_deleted_is_not_retried(self):
        one = self.enqueue("a")
        two = self.enqueue("b", f"--after={one}")
        self.ok("jobs", "cancel", str(two))
        self.ok("jobs", "delete", str(one))
        self.one_line(self.fails(65, "jobs", "retry", str(two), says=f"waits for chain {one}, which was deleted"))
        self.assertEqual(self.show(two)["status"], "cancelled")

    def test_chains_can_be_failed_from_outside(self):
        one, two, three = self.enqueue("a"), self.enqueue("a"), self.enqueue("a")
        self.ok("jobs", "cancel", str(three))
        self.assertEqual(self.ok("jobs", "fail", str(one), str(three), "--error", "no paper").text, "failed 1 of 2\n")
        self.assertEqual((self.show(one)["status"], self.show(one)["error"]), ("failed", "no paper"))
        self.assertEqual(self.show(three)["status"], "cancelled")
        self.fails(65, "jobs", "fail", str(two), "999", says="999")
        self.assertEqual(self.show(two)["status"], "pending")
        self.assertEqual(self.ok("jobs", "fail", str(two), "--json").json(), [{"failed": 1, "unchanged": 0}])
        self.assertEqual(self.show(two)["error"], "failed from outside")
        self.assertEqual(self.ok("jobs", "retry", str(two)).text, "redriven 1 of 1\n")
        r = self.fails(65, "jobs", "fail", str(two), "--error", b"\xff", says="UTF-8")
        self.one_line(r)
        self.assertNotIn("the store" if self.postgres else "jobs.db", r.errors)  # which has nothing to do with it

    def test_deleting_is_refused_while_others_wait(self):
        one = self.enqueue("a")
        two = self.enqueue("b", f"--after={one}")
        self.fails(75, "jobs", "delete", str(one), says=str(two))
        self.assertEqual(self.show(one)["status"], "pending")
        self.assertEqual(self.ok("jobs", "delete", "--cascade", str(one)).text, "deleted 2\n")
        self.fails(65, "jobs", "show", str(two))

    def test_a_wait_times_out_and_reports_the_end(self):
        chain = self.enqueue("a")
        self.fails(75, "jobs", "wait", str(chain), "--timeout=50ms", says="not ended in time")
        self.fails(75, "jobs", "wait", str(chain), "--timeout=0", says="not ended in time")
        waiter = self.start("jobs", "wait", str(chain), "--json")
        self.ok("jobs", "cancel", str(chain))
        out, err = waiter.communicate(timeout=60)
        self.assertEqual(waiter.returncode, 65)
        self.assertEqual(json.loads(out)["status"], "cancelled")
        self.assertIn(b"is cancelled", err)

    def test_a_wait_ends_with_a_signal_or_when_the_chain_is_deleted(self):
        chain = self.enqueue("a")
        for how in (signal.SIGINT, signal.SIGTERM):
            waiter = self.start("jobs", "wait", str(chain))
            self.until(lambda: waiter.poll() is None and self.handles(waiter.pid, how))
            out, err = self.end(waiter, 75, how)
            self.assertEqual(out, b"")
            self.assertIn(b"interrupted", err)
        waiter = self.start("jobs", "wait", str(chain))
        self.ok("jobs", "delete", str(chain))
        waiter.communicate(timeout=60)
        self.assertEqual(waiter.returncode, 65)

    def handles(self, pid, number):
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            return int(re.search(r"SigCgt:\s*([0-9a-f]+)", f.read())[1], 16) >> (number - 1) & 1

    def test_pruning_keeps_what_is_young_or_not_ended(self):
        chain, other = self.enqueue("a"), self.enqueue("a")
        self.ok("jobs", "cancel", str(chain))
        self.assertEqual(self.ok("jobs", "prune").text, "deleted 0\n")
        self.assertEqual(self.ok("jobs", "prune", "--keep=0", "--json").json(), [{"deleted": 1}])
        self.fails(65, "jobs", "show", str(chain))
        self.show(other)

    def test_migrating_again_is_harmless(self):
        for _ in range(2):
            self.assertEqual(self.ok("jobs", "migrate", "--json").json(), [{"schema_version": 1}])
        self.assertEqual(self.ok("jobs", "migrate").text, "schema version 1\n")

    def test_many_processes_migrate_at_once(self):
        running = [self.start("enqueue", "a", str(i)) for i in range(8)]
        ids = set()
        for p in running:
            out, err = p.communicate(timeout=60)
            self.assertEqual(p.returncode, 0, err)
            ids.add(int(out))
        self.assertEqual(len(ids), 8)


class SteerOnPostgres(Steer):
    postgres = True


class Cron(JobTest):
    def test_schedules_are_added_listed_replaced_and_removed(self):
        self.ok("cron", "add", "nightly", "30 2 * * *", "report", '{"kind":"full"}', "--priority=-1")
        self.ok("cron", "add", "often", "@hourly", "tick", "--catch-up")
        crons = {c["name"]: c for c in self.ok("cron", "list", "--json").json()}
        self.assertEqual(set(crons), {"nightly", "often"})
        self.assertEqual(crons["nightly"]["input"], {"kind": "full"})
        self.assertEqual((crons["nightly"]["spec"], crons["nightly"]["priority"]), ("30 2 * * *", -1))
        self.assertRegex(crons["nightly"]["next_at"], r"T02:30:00\.000Z$")
        self.assertEqual((crons["often"]["catch_up"], crons["nightly"]["catch_up"]), (True, False))
        self.ok("cron", "add", "nightly", "0 3 * * 1-5", "report")
        self.assertIn("0 3 * * 1-5", self.ok("cron", "list").text)
        self.ok("cron", "add", "often", "@hourly", "tick", "--paused")
        self.assertRegex(self.ok("cron", "list").text, r"\noften +@hourly +tick +paused +-\n$")
        other, paused = self.ok("cron", "list", "--json").json()
        self.assertEqual((paused["paused"], paused["next_at"], other["paused"]), (True, None, False))
        self.ok("cron", "remove", "nightly", "often")
        self.assertEqual(self.ok("cron", "list").out, b"")
        self.fails(65, "cron", "remove", "nightly", says="nightly")

    def test_what_no_calendar_has_is_refused_with_its_place(self):
        for spec, code, says in [("61 * * * *", 65, "column 1"), ("* * * *", 65, "schedule"), ("* * * * * *", 65, "schedule"),
                                 ("* 24 * * *", 65, "column 3"), ("0 0 30 2 *", 65, "no such date"), ("@never", 65, "@never"),
                                 ("*/0 * * * *", 65, "column 3")]:
            with self.subTest(spec=spec):
                self.fails(code, "cron", "add", "x", spec, "t", says=says)
        self.fails(65, "cron", "add", "x", "@daily", "t", "{", says="column")
        self.fails(64, "cron", "add", "x", "@daily", "no good", says="type")
        self.fails(64, "cron", "add", "x", "@daily", says="TYPE is missing")
        self.assertEqual(self.ok("cron", "list").out, b"")


class CronOnPostgres(Cron):
    postgres = True


if __name__ == "__main__":
    jobtest.main()
