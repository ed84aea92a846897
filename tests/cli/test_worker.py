# SPDX-License-Identifier: Apache-2.0
"""Workers and single runs: what commands are given, what they may say, and how they end."""

import contextlib
import datetime
import fcntl
import glob
import json
import os
import re
import signal
import sqlite3
import subprocess
import time

import jobtest
from clitest import TIMEOUT
from jobtest import SLUICE, JobTest, alive


class Handlers(JobTest):
    def test_a_command_gets_the_input_and_who_it_is(self):
        chain = self.enqueue("my/type", '{"to": "ada"}')
        self.drain("--type=my/type=/bin/sh -c 'cat; echo; echo $SLUICE_JOB_ID $SLUICE_CHAIN_ID $SLUICE_ATTEMPT $SLUICE_TYPE'")
        self.assertEqual(self.logs(chain).decode(), f'{{"to": "ada"}}\n{chain} {chain} 1 my/type\n')
        job = self.show(chain)
        self.assertEqual((job["status"], job["attempt"], job["output"]), ("completed", 1, None))
        self.assertEqual(self.attempts(chain), [(1, "completed")])
        self.assertIsNotNone(job["completed_at"])
        self.assertIsNotNone(job["leased_by"])

    def test_secrets_of_ours_do_not_reach_a_command_unless_asked_for(self):
        url = "postgres://ada:%s@db.example:5432/jobs?%sconnect_timeout=3%s"
        whole = url % ("se:c@ret", "password=x&", "&sslpassword=y")
        self.env |= {"PGPASSWORD": "secret", "SLUICE_HTTP_TOKEN": "secret", "SLUICE_PASSPHRASE_FILE": "secret",
                     "SLUICE_STORE": whole, "SLUICE_BACKUP_REPO": "/repo", "OTHER_TOKEN": "theirs", "PGUSER": "ada"}
        where = f"--store={self.store}"

        def given(*options):
            chain = self.enqueue(where, "t")
            self.drain(where, "--type=t=env", *options)
            lines = self.logs(chain, where).decode().splitlines()
            return {k: v for k, _, v in (line.partition("=") for line in lines) if k in self.env}

        kept = {"OTHER_TOKEN": "theirs", "PGUSER": "ada", "SLUICE_BACKUP_REPO": "/repo"}
        without = {"SLUICE_STORE": "postgres://ada@db.example:5432/jobs?connect_timeout=3"}
        names = {"PGPASSWORD", "SLUICE_HTTP_TOKEN", "SLUICE_PASSPHRASE_FILE", "SLUICE_STORE", *kept}
        for password in ("se:c@ret", "pa?ss", "pa#ss", "pa?ss:@w#rd"):
            with self.subTest(password=password):
                self.env["SLUICE_STORE"] = url % (password, "password=x&", "&sslpassword=y")
                self.assertEqual({k: v for k, v in given().items() if k in names}, kept | without)
        self.env["SLUICE_STORE"] = whole
        found = given("--pass-env=PGPASSWORD", "--pass-env=SLUICE_STORE", "--pass-env=NOT_THERE")
        self.assertEqual({k: v for k, v in found.items() if k in names},
                         kept | {"PGPASSWORD": "secret", "SLUICE_STORE": whole})

    def test_words_are_split_without_a_shell_unless_asked_for(self):
        chain = self.enqueue("t")
        self.drain("--type=t=printf '<%s>\\n' $HOME \"a b\" c\\ d ''")
        self.assertEqual(self.logs(chain), b"<$HOME>\n<a b>\n<c d>\n<>\n")
        chain = self.enqueue("t")
        self.drain("--shell", "--type=t=echo $SLUICE_TYPE | tr t T && exit 0")
        self.assertEqual(self.logs(chain), b"T\n")

    def test_several_types_have_their_own_commands(self):
        one, two = self.enqueue("one"), self.enqueue("two")
        self.drain("--type=one=echo first", "--type=two=echo second", "--slots=3")
        self.assertEqual((self.logs(one), self.logs(two)), (b"first\n", b"second\n"))

    def test_wrong_usage_is_64(self):
        for args, says in [([], "--type"), (["--type=a='open"], "not closed"), (["--type=a="], "missing command"),
                           (["--type==x"], "missing name"), (["--type=a=true", "--type=a=false"], "twice"),
                           (["--type=no good=x"], "type"), (["--type=a=true", "--slots=0"], "--slots"),
                           (["--type=a=true", "--lease=1"], "--lease"), (["--type=a=true", "extra"], "extra"),
                           (["--type=a=true", "--retention-completed=5x"], "--retention-completed"),
                           (["--type=a=true", "--retention-failed=-1s"], "--retention-failed"),
                           (["--type=a=true", "--retention-events=7"], "--retention-events"),
                           (["--type=a=true", "--retention-lines=36501d"], "36500d"),
                           (["--type=a=true", "--retry-delay=2s", "--retry-max-delay=1s"], "--retry-max-delay")]:
            with self.subTest(args=args):
                self.fails(64, "worker", "--drain", *args, says=says)

    def test_a_long_first_delay_lifts_the_default_of_the_longest(self):
        self.ok("worker", "--drain", "--type=a=true", "--retry-delay=1h")

    def test_descriptor_3_is_the_protocol(self):
        chain = self.enqueue("t", "1")
        self.drain(self.handler("""cat >/dev/null
echo '{"progress":{"done":1}}' >&3
echo '{"output":{"sum":[1, 2.50]}}' >&3
echo done
"""))
        r = self.ok("jobs", "wait", str(chain))
        self.assertEqual(r.text, '{"sum":[1,2.50]}\n')
        self.assertEqual(self.show(chain)["progress"], {"done": 1})
        self.assertIn(("progress", '{"done":1}'), [(e["type"], e["text"]) for e in self.events(chain)])
        self.assertEqual(self.logs(chain), b"done\n")

    def test_a_chain_continues_job_by_job(self):
        chain = self.enqueue("t", "3")
        script = """read n
if [ "$n" -gt 0 ]; then
  echo "{\\"continue_with\\":{\\"type\\":\\"t\\",\\"input\\":$((n - 1))}}" >&3
else
  echo '{"output":"end"}' >&3
fi
echo "$n in $SLUICE_CHAIN_ID"
"""
        self.drain(self.handler(script))
        self.assertEqual(self.chain(chain)["output"], "end")
        jobs = self.ok("jobs", "list", f"--chain={chain}", "--oldest-first", "--json").json()
        self.assertEqual([j["input"] for j in jobs], [3, 2, 1, 0])
        self.assertEqual([j["next_id"] for j in jobs], [j["id"] for j in jobs[1:]] + [None])
        self.assertEqual(self.logs(chain).decode(), "".join(f"{n} in {chain}\n" for n in (3, 2, 1, 0)))
        self.assertEqual(self.logs(jobs[2]["id"]).decode(), f"1 in {chain}\n")
        self.assertEqual(self.chain(chain)["last_id"], jobs[-1]["id"])

    def test_a_chain_starts_when_all_it_waits_for_have_completed(self):
        parts = [self.enqueue("part", str(i)) for i in range(5)]
        total = self.enqueue("total", *[f"--after={p}" for p in parts])
        self.drain(self.handler('echo "{\\"output\\":$(cat)}" >&3; echo part >>order', "part"),
                   self.handler("echo total >>order", "total"), "--slots=3", "--kill-grace=1s")
        self.assertEqual(self.chain(total)["status"], "completed")
        self.assertEqual(self.read("order"), b"part\n" * 5 + b"total\n")

    def test_a_failed_blocker_keeps_others_waiting_until_it_is_retried(self):
        first = self.enqueue("first")
        second = self.enqueue("second", f"--after={first}")
        types = [self.handler("test -e good", "first"), "--type=second=true", "--max-attempts=1"]
        self.drain(*types)
        self.assertEqual((self.show(first)["status"], self.show(second)["status"]), ("failed", "blocked"))
        self.write("good", b"")
        self.ok("jobs", "retry", str(first))
        self.drain(*types)
        self.assertEqual((self.show(first)["status"], self.show(second)["status"]), ("completed", "completed"))

    def test_failures_are_tried_again_until_the_attempts_run_out(self):
        chain = self.enqueue("t")
        summary = self.drain(self.handler("echo try $SLUICE_ATTEMPT; echo no >&2; exit 3"), "--max-attempts=3")
        self.assertEqual((summary["failed"], summary["retried"], summary["completed"]), (1, 2, 0))
        job = self.show(chain)
        self.assertEqual((job["status"], job["attempt"]), ("failed", 3))
        self.assertIn("exit code 3", job["error"])
        self.assertIn("no", job["error"])
        self.assertEqual(self.attempts(chain), [(1, "failed"), (2, "failed"), (3, "failed")])
        self.assertEqual([line for line in self.logs(chain).split(b"\n") if b"try" in line], [b"try 1", b"try 2", b"try 3"])
        self.fails(65, "jobs", "wait", str(chain), says="exit code 3")

    def test_a_retry_can_succeed(self):
        chain = self.enqueue("t")
        self.drain(self.handler("test $SLUICE_ATTEMPT = 3"))
        self.assertEqual(self.attempts(chain), [(1, "failed"), (2, "failed"), (3, "completed")])

    def test_a_command_can_fail_for_good_or_ask_for_later(self):
        bad = self.enqueue("bad")
        later = self.enqueue("later")
        temporary = self.enqueue("temporary")
        again = "[ -e {0} ] && exit 0; touch {0}; "
        worker = self.worker(self.handler("""echo '{"fail":"no such user"}' >&3""", "bad"),
                             self.handler(again.format("l") + """echo '{"reschedule_in_ms":20}' >&3""", "later"),
                             self.handler(again.format("t") + "exit 75", "temporary"))
        for chain in (bad, later, temporary):
            self.chain(chain)
        self.end(worker)
        job = self.show(bad)
        self.assertEqual((job["status"], job["error"], job["attempt"]), ("failed", "no such user", 1))
        for chain in (later, temporary):
            job = self.show(chain)
            self.assertEqual((job["status"], job["attempt"]), ("completed", 2))
            self.assertEqual(self.attempts(chain), [(1, "rescheduled"), (2, "completed")])

    def delay_of(self, chain):
        """Hours that the job waits after its last attempt."""
        job = self.show(chain)
        until, since = (datetime.datetime.fromisoformat(t.replace("Z", "+00:00"))
                        for t in (job["scheduled_for"], job["attempts"][-1]["ended_at"]))
        return (until - since).total_seconds() / 3600

    def test_exit_75_uses_the_delays_of_the_type_and_charges_nothing(self):
        def ended():
            return [outcome for _, outcome in self.attempts(chain)].count("rescheduled") + 2

        chain = self.enqueue("t")
        options = ["--retry-delay=1h", "--retry-max-delay=3h", "--max-attempts=2"]
        # Attempts that were given back have their numbers, and are no reason to wait.
        for n in (1, 2):
            worker = self.start("worker", self.handler("echo >ran.$SLUICE_ATTEMPT; exec sleep 1000"), *options,
                                "--stop-grace=0", "--kill-grace=1s")
            self.until_file(f"ran.{n}")
            self.end(worker, 75)
        worker = self.start("worker", self.handler("exit 75"), *options)
        for n, hours in ((3, 1), (4, 2), (5, 3), (6, 3)):
            self.until(lambda n=n: ended() == n)
            self.assertAlmostEqual(self.delay_of(chain), hours, places=4)
            self.ok("jobs", "trigger", str(chain))
        self.until(lambda: ended() == 7)
        self.end(worker)
        self.assertEqual([o for _, o in self.attempts(chain)], ["released"] * 2 + ["rescheduled"] * 5)
        self.assertEqual(self.show(chain)["status"], "pending")

    def test_a_continuation_that_would_wait_for_itself_fails_with_the_reason(self):
        first = self.enqueue("first")
        second = self.enqueue("second", f"--after={first}")
        worker = self.worker(self.handler(
            f"""echo '{{"continue_with":{{"type":"second","blockers":[{second}]}}}}' >&3""", "first"), "--max-attempts=1")
        self.chain(first)
        self.end(worker)
        job = self.show(first)
        self.assertEqual((job["status"], job["attempt"], job["next_id"]), ("failed", 1, None))
        self.assertIn(f"chains {first} and {second} would wait for each other", job["error"])

    def test_a_bad_line_on_descriptor_3_is_a_failed_attempt(self):
        for line, says in [("oops", "line 1"), ('{"outptu":1}', "descriptor 3"), ('{"output":1', "line 1"),
                           ('{"continue_with":{"input":1}}', "type"), ('{"reschedule_in_ms":"x"}', "reschedule_in_ms")]:
            with self.subTest(line=line):
                chain = self.enqueue("t")
                self.write("line", line.encode() + b"\n")
                self.drain(self.handler("cat line >&3"), "--max-attempts=1")
                job = self.show(chain)
                self.assertEqual(job["status"], "failed", job)
                self.assertIn(says, job["error"])

    def test_a_command_that_does_not_read_its_input_is_no_error(self):
        chain = self.enqueue("t", "-", stdin=b'"' + b"x" * 3_000_000 + b'"')
        self.drain("--type=t=true")
        self.assertEqual(self.show(chain)["status"], "completed")

    def test_a_command_that_crashes_fails_alone(self):
        crash = self.enqueue("t", "0")
        others = [self.enqueue("t", str(i)) for i in range(1, 9)]
        self.drain(self.handler('read n; [ "$n" = 0 ] && kill -SEGV $$; exit 0'), "--slots=2", "--max-attempts=2")
        job = self.show(crash)
        self.assertEqual((job["status"], job["attempt"]), ("failed", 2))
        self.assertIn("SIGSEGV", job["error"])
        self.assertEqual([(self.show(o)["status"], self.show(o)["attempt"]) for o in others], [("completed", 1)] * 8)

    def test_a_command_that_disappears_is_reported(self):
        chain = self.enqueue("t")
        self.drain(self.handler('rm "$0"; exit 1'), "--max-attempts=2")
        self.assertIn("No such file", self.show(chain)["error"])

    def test_a_command_that_is_not_there_is_refused_at_the_start(self):
        self.write("plain", b"#!/bin/sh\n")
        os.mkdir(self.path("folder"))
        for command, says in (("./missing", ("--type foo: no file ./missing;", "give the path")),
                              ("no-such-command --fast", "no command no-such-command in PATH; give its path"),
                              ("./plain", "./plain cannot be executed; check its permissions (chmod +x)"),
                              ("./folder", "./folder is a folder"), ("plain/x", "no file plain/x"),
                              ("''", "no command")):
            with self.subTest(command=command):
                self.fails(64, "worker", "--drain", "--type=ok=true", f"--type=foo={command}", says=says)
        if not self.postgres:
            self.assertFalse(os.path.exists(self.path("jobs.db")), "the store was opened first")

    def test_a_command_is_found_in_path_as_exec_finds_it(self):
        for folder in ("first", "second"):
            os.mkdir(self.path(folder))
        self.write("first/tool", b"cannot be executed")
        self.script("second/tool", "echo second")
        self.env["PATH"] = f"{self.path('none')}:{self.path('first')}::{self.path('second')}:{self.env['PATH']}"
        chain = self.enqueue("t")
        self.drain("--type=t=tool")
        self.assertEqual(self.logs(chain), b"second\n")
        os.remove(self.path("second/tool"))
        self.fails(64, "worker", "--drain", "--type=t=tool", says="tool cannot be executed")
        self.script("tool", "echo here")  # an empty folder of PATH is the working folder
        chain = self.enqueue("t")
        self.drain("--type=t=tool")
        self.assertEqual(self.logs(chain), b"here\n")

    def test_ten_megabytes_and_any_bytes_are_kept(self):
        big = b"".join(b"%07d " % i + b"y" * 90 + b"\n" for i in range(100_000))
        odd = b"\xff\xfe\x00\x01\xc3(\x1b[31m"
        self.write("big", big)
        self.write("odd", odd + b"\n" + b"z" * 700_000 + b"\nend")
        one, two = self.enqueue("big"), self.enqueue("odd")
        self.drain("--type=big=cat big", "--type=odd=cat odd", "--slots=2")
        self.assertEqual(self.logs(one), big)
        logs = self.logs(two)
        self.assertTrue(logs.startswith(odd + b"\n"))
        self.assertEqual(logs.replace(b"\n", b""), self.read("odd").replace(b"\n", b""))
        first = [e for e in self.events(two) if e["type"] == "stdout"][0]
        self.assertEqual(first["data_b64"], "//4AAcMoG1szMW0=")

    @staticmethod
    def in_short(text):
        """The lines, sorted; long ones by what they are made of."""
        lines = text.decode().split("\n")
        assert lines.pop() == "", "the last line has no end"
        return sorted(f"{len(line)} of {''.join(sorted(set(line)))}" if len(line) > 9 else line for line in lines)

    def test_a_line_that_was_cut_into_events_is_one_line_again(self):
        long = 700_000
        job = self.enqueue("t")
        self.drain(self.handler(f"head -c {long} /dev/zero | tr '\\0' x; echo; echo next; printf last; printf err >&2"))
        self.assertEqual(self.in_short(self.logs(job)), [f"{long} of x", "err", "last", "next"])
        pieces = [(e["partial"], len(e["text"])) for e in self.events(job) if e["type"] == "stdout"]
        self.assertEqual(pieces, [(True, 262144), (True, 262144), (False, long - 2 * 262144), (False, 4), (True, 4)])
        self.assertEqual([e["partial"] for e in self.events(job) if e["type"] == "stderr"], [True])

    def test_two_long_lines_at_once_do_not_mix(self):
        job = self.enqueue("t")
        both = "head -c 262144 /dev/zero | tr '\\0' %s %s; "
        self.drain(self.handler("".join(both % (c, to) for _ in range(3) for c, to in (("o", ""), ("e", ">&2"))) +
                                "echo; echo >&2; echo end"))
        self.assertEqual(self.in_short(self.logs(job)), ["786432 of e", "786432 of o", "end"])
        text = self.logs(job, "--all").decode().split("\n")
        self.assertRegex(text[0], r"^\[.*started")
        self.assertRegex(text[-2], r"^\[.*exited")

    def test_what_a_command_leaves_behind_does_not_hold_its_job(self):
        chain = self.enqueue("t")
        self.drain(self.handler("sleep 1000 & echo $! >left; echo started"))
        self.assertEqual(self.show(chain)["status"], "completed")
        self.assertEqual(self.logs(chain), b"started\n")
        self.assertFalse(alive(int(self.read("left"))))

    def test_a_timeout_ends_the_command_and_counts(self):
        chain = self.enqueue("t")
        self.drain(self.handler("echo $$ >>pids; sleep 1000"), "--timeout=200ms", "--max-attempts=2", "--kill-grace=1s")
        job = self.show(chain)
        self.assertEqual((job["status"], job["attempt"]), ("failed", 2))
        self.assertIn("timeout", job["error"])
        if os.path.exists(self.path("pids")):  # not when the time was over before the shell came so far
            for pid in self.read("pids").split():
                self.assertFalse(alive(int(pid)))

    def test_a_schedule_is_kept_and_drain_does_not_wait_for_it(self):
        later, soon = self.enqueue("t", "--in=1h"), self.enqueue("t", "--in=300ms")
        self.until(lambda: json.loads(self.ok("jobs", "stats", "--json").out)["types"]["t"]["ready"] == 1)
        self.drain("--type=t=true")
        self.assertEqual((self.show(later)["status"], self.show(soon)["status"]), ("pending", "completed"))
        self.assertGreaterEqual(self.show(soon)["started_at"], self.show(soon)["scheduled_for"])

    def test_a_running_worker_takes_a_scheduled_job_when_it_is_due(self):
        worker = self.worker("--type=t=true")
        chain = self.enqueue("t", "--in=400ms")
        self.assertEqual(self.chain(chain)["status"], "completed")
        job = self.show(chain)
        self.assertGreaterEqual(job["started_at"], job["scheduled_for"])
        self.end(worker)

    def test_a_worker_deletes_what_is_too_old_as_its_options_say(self):
        done, bad, waiting = self.enqueue("t"), self.enqueue("bad"), self.enqueue("none")
        self.drain(self.handler("echo one"), "--type=bad=false", "--max-attempts=1")
        worker = self.worker("--type=other=true", "--retention-completed=1ms", "--retention-failed=0")
        self.until(lambda: str(done) not in [str(j["id"]) for j in self.ok("jobs", "list", "--json").json()])
        self.assertEqual(int(self.events(bad)[-1]["job_id"]), int(bad))
        self.end(worker)
        # What was set holds for a worker without options, too.
        done = self.enqueue("t")
        self.drain(self.handler("echo two"))
        worker = self.worker("--type=other=true")
        self.until(lambda: str(done) not in [str(j["id"]) for j in self.ok("jobs", "list", "--json").json()])
        self.assertEqual([self.show(j)["status"] for j in (bad, waiting)], ["failed", "pending"])
        self.end(worker)

    def test_smaller_priorities_run_first(self):
        for n in (5, -5, 0, 7, -9):
            self.enqueue("t", f"--priority={n}", "--", str(n))
        self.drain(self.handler("cat >>order; echo >>order"))
        self.assertEqual(self.read("order"), b"-9\n-5\n0\n5\n7\n")

    def test_a_paused_type_rests(self):
        self.ok("jobs", "pause", "t")
        chain = self.enqueue("t")
        worker = self.worker("--type=t=true", "--type=u=true", "--slots=2")
        self.assertEqual(self.chain(self.enqueue("u"))["status"], "completed")
        self.assertEqual(self.show(chain)["status"], "pending")
        self.ok("jobs", "resume", "t")
        self.assertEqual(self.chain(chain)["status"], "completed")
        self.end(worker)

    def test_a_drain_reports_that_it_waits_for_a_paused_type(self):
        self.ok("jobs", "pause", "t")
        chain = self.enqueue("t")
        worker = self.worker("--drain", "--type=t=true", "--type=u=true")
        line = worker.stderr.readline()
        while b"paused" not in line:
            self.assertNotEqual(line, b"", "it ended without a word")
            line = worker.stderr.readline()
        self.assertIn(b"jobs of paused types: t; continue with: sluice jobs resume", line)
        self.ok("jobs", "resume", "t")
        self.assertEqual(worker.wait(timeout=TIMEOUT), 0)
        self.assertEqual(self.show(chain)["status"], "completed")

    def test_all_slots_work_at_once(self):
        ids = [self.enqueue("t", str(i)) for i in range(4)]
        # Each waits until all four are there: with fewer slots than that, none would end.
        self.drain(self.handler('touch "here.$SLUICE_JOB_ID"; until [ $(ls here.* | wc -l) = 4 ]; do sleep 0.01; done'),
                   "--slots=4", "--timeout=100s", "--max-attempts=1")
        self.assertEqual([self.show(i)["status"] for i in ids], ["completed"] * 4)

    def test_many_jobs_complete_once_each_over_several_workers(self):
        n = 200
        ids = self.enqueue("t", "--bulk=-", stdin=b"{}\n" * n)
        workers = [self.start("worker", "--drain", "--json", "--slots=2", "--type=t=echo line") for _ in range(3)]
        completed = 0
        for w in workers:
            out, err = w.communicate(timeout=TIMEOUT)
            self.assertEqual(w.returncode, 0, err)
            completed += json.loads(out)["completed"]
        self.assertEqual(completed, n)
        self.assertEqual(self.totals()["completed"], n)
        for i in ids[:: n // 10]:
            self.assertEqual(self.logs(i), b"line\n")

    def test_a_cron_schedule_is_enqueued_once_a_tick(self):
        self.ok("cron", "add", "x", "0 0 1 1 *", "tick", '"now"')
        self.make_due("x")
        workers = [self.worker("--type=tick=true") for _ in range(2)]
        self.until(self.ticked)
        for w in workers:
            self.end(w)
        crons = self.ok("cron", "list", "--json").json()
        ticks = self.ok("jobs", "list", "--type=tick", "--json").json()
        self.assertEqual(len(ticks), 1)
        self.assertEqual((ticks[0]["input"], ticks[0]["status"]), ("now", "completed"))
        self.assertEqual(crons[0]["last_chain"], ticks[0]["id"])

    def make_due(self, name):
        """As if time had passed: the schedule's next tick lies an hour back."""
        if self.postgres:
            sql = f"UPDATE sluice.cron SET next_at = date_trunc('hour', clock_timestamp()) WHERE name = '{name}'"
            subprocess.run(["psql", "-qX", "-d", self.store, "-c", sql], check=True)
        else:
            db = sqlite3.connect(self.path("jobs.db"), timeout=60)
            db.execute("UPDATE sluice_cron SET next_us = next_us - 366*24*3600*1000000 WHERE name = ?", (name,))
            db.commit()
            db.close()

    def ticked(self):
        jobs = self.ok("jobs", "list", "--type=tick", "--json").json()
        return jobs and jobs[0]["status"] == "completed"


class Secrets(JobTest):
    def test_a_command_cannot_read_secrets_in_the_memory_of_its_parents(self):
        self.env |= {"PGPASSWORD": "geheim-1", "SLUICE_HTTP_TOKEN": "geheim-2"}
        # The minder, and the worker that started it.
        script = self.script("peek.sh", """worker=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status)
for p in $PPID $worker; do
  tr '\\0' '\\n' <"/proc/$p/environ" || echo unreadable
  true <"/proc/$p/mem" || echo unreadable
done 2>/dev/null
echo "of $(sed -n 's/^Name:[[:space:]]*//p' "/proc/$worker/status")"
""")
        chain = self.enqueue("t")
        as_nobody = []
        if os.getuid() == 0:  # root may read everything, but not what is not there
            self.drain(f"--type=t={script}")
            text = self.logs(chain).decode()
            self.assertIn("of sluice", text)
            self.assertNotIn("geheim", text)
            as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            self.env["HOME"] = self.path("home")
            os.mkdir(self.env["HOME"])
            for folder, _, names in os.walk(self.dir):
                for path in [folder, *(os.path.join(folder, n) for n in names)]:
                    os.chown(path, 65534, 65534)
            chain = self.enqueue("t")
            os.chown(self.path("jobs.db"), 65534, 65534)
            for name in os.listdir(self.dir):
                os.chown(self.path(name), 65534, 65534)
        r = subprocess.run([*as_nobody, SLUICE, "worker", "--drain", f"--type=t={script}"], cwd=self.dir, env=self.env,
                           capture_output=True, timeout=TIMEOUT, check=False)
        self.assertEqual(r.returncode, 0, r.stderr)
        text = self.logs(chain).decode()
        self.assertNotIn("geheim", text)
        self.assertEqual(text.count("unreadable"), 4, text)


class Types(JobTest):
    """Settings of single types, from a file and from --set."""

    def due_in(self, job):
        """Seconds from its last failure to its next attempt."""
        job = self.show(job)
        ended = max(a["ended_at"] for a in job["attempts"])
        return (datetime.datetime.fromisoformat(job["scheduled_for"].replace("Z", "+00:00"))
                - datetime.datetime.fromisoformat(ended.replace("Z", "+00:00"))).total_seconds()

    def configured(self, text, *args):
        self.write("sluice.yaml", text.encode())
        return self.drain("--config=sluice.yaml", *args)

    def test_each_type_has_its_own_command_and_attempts(self):
        fails = self.script("fails", "exit 1")
        one, two, three = (self.enqueue(t) for t in ("one", "two", "three"))
        self.configured(f"jobs: {{max_attempts: 3}}\ntypes:\n  one: {{command: {fails}, retry: {{max_attempts: 1}}}}\n"
                        f"  two: {{command: {fails}, retry: {{first: 1ms, max_attempts: 2}}}}\n  three: {{command: {fails}}}\n")
        self.assertEqual([self.show(j)["attempt"] for j in (one, two, three)], [1, 2, 3])

    def test_a_flag_wins_over_the_file_and_type_over_both_for_the_command(self):
        fails = self.script("fails", "exit 1")
        a, b = self.enqueue("a"), self.enqueue("b")
        self.configured(f"types:\n  a: {{command: {fails}, retry: {{max_attempts: 5}}}}\n  b: {{command: ./missing}}\n",
                        "--type=b=echo b", "--set=types.a.retry.max_attempts=2")
        self.assertEqual((self.show(a)["status"], self.show(a)["attempt"]), ("failed", 2))
        self.assertEqual(self.logs(b), b"b\n")

    def test_the_delays_between_attempts_are_those_of_the_type(self):
        a, b = self.enqueue("a"), self.enqueue("b")
        fails = self.script("fails", "exit 1")
        w = self.worker(f"--type=a={fails}", f"--type=b={fails}", "--set=types.a.retry.first=1h",
                        "--set=types.b.retry.multiplier=100", "--set=types.b.retry.cap=40m")
        self.until(lambda: self.show(a)["attempt"] == 1 and self.show(a)["status"] == "pending" and self.show(a)["error"])
        self.until(lambda: self.show(b)["attempt"] == 3 and self.show(b)["status"] == "pending")
        self.end(w)
        self.assertEqual(round(self.due_in(a)), 3600)
        self.assertEqual(round(self.due_in(b)), 100)  # 10 ms, 1 s, 100 s

    def test_a_type_has_its_own_lease_and_timeout(self):
        slow, quick = self.enqueue("slow"), self.enqueue("quick")
        w = self.worker("--slots=2", self.handler("echo x >slow; exec sleep 600", "slow"), self.handler("exec sleep 600", "quick"),
                        "--set=types.slow.lease=3h", "--set=types.quick.timeout=50ms", "--set=types.quick.retry.max_attempts=1")
        self.until_file("slow")
        self.until_status(quick, "failed")
        if not self.postgres:
            with contextlib.closing(sqlite3.connect(self.path("jobs.db"), timeout=60)) as db:
                until, claimed = db.execute("SELECT until_us, claimed_us FROM sluice_lease").fetchone()
            self.assertGreater(until - claimed, 2 * 3600 * 1000000)
        self.assertEqual(self.show(slow)["status"], "running")
        self.ok("jobs", "cancel", str(slow))
        self.end(w)

    def test_the_slots_of_a_type_bound_how_many_of_it_run_at_the_same_time(self):
        for _ in range(6):
            self.enqueue("one")
            self.enqueue("two")
        # Two of type two meet; each of type one must be alone.
        one = self.handler("mkdir alone || echo x >>together; sleep 0.05; rmdir alone", "one")
        two = self.handler("echo x >>met; until [ $(wc -l <met) -gt 1 ]; do sleep 0.01; done", "two")
        self.drain(one, two, "--slots=4", "--set=types.one.slots=1")
        self.assertFalse(os.path.exists(self.path("together")))
        self.assertEqual(self.totals()["completed"], 12)

    def test_the_next_job_of_a_chain_gets_the_priority_of_its_type(self):
        chain = self.enqueue("first")
        self.drain(self.handler("""echo '{"continue_with":{"type":"next"}}' >&3""", "first"), "--set=types.next.priority=-7")
        jobs = self.ok("jobs", "list", f"--chain={chain}", "--oldest-first", "--json").json()
        self.assertEqual([(j["type"], j["priority"]) for j in jobs], [("first", 0), ("next", -7)])

    def test_the_file_names_the_store_the_slots_and_the_log(self):
        chain = self.enqueue("t")
        del self.env["SLUICE_STORE"]
        self.write("sluice.yaml", f"store: {{url: '{self.store}'}}\njobs: {{slots: 3, types: [t=echo $SLUICE_STORE], shell: true}}\n"
                                  f"wal: {{wal_dir: {self.path('log')}, archive_dir: {self.path('kept')}}}\n".encode())
        r = self.ok("worker", "--drain", "--config=sluice.yaml", "--log-level=info")
        self.assertIn("3 slots", r.errors)
        self.assertTrue(os.path.isdir(self.path("log")) and os.listdir(self.path("kept")))
        self.env["SLUICE_STORE"] = self.store
        self.assertIn(b":", self.logs(chain))

    def test_the_environment_has_settings_of_a_worker_and_may_have_those_of_other_commands(self):
        chain = self.enqueue("t")
        self.env |= {"SLUICE_JOBS_MAX_ATTEMPTS": "2", "SLUICE_BACKUP_REPO": "s3://bucket/repo", "SLUICE_SERVER_X": "y"}
        self.drain("--type=t=false")
        self.assertEqual(self.show(chain)["attempt"], 2)
        self.env["SLUICE_JOBS_SLOT"] = "2"
        self.fails(78, "worker", "--drain", "--type=t=false", says="did you mean SLUICE_JOBS_SLOTS?")

    def test_wrong_settings_are_refused_with_their_place(self):
        self.fails(64, "worker", "--drain", says="no type to serve; give --type NAME=COMMAND, or types in a file")
        self.fails(64, "worker", "--drain", "--type=a=true", "--set=types.b.lease=1s", says="does not serve b")
        self.fails(78, "worker", "--drain", "--type=a=true", "--set=types.a.lease=1", says="types.a.lease: '1' is not")
        self.fails(78, "worker", "--drain", "--type=a=true", "--lease=10s", "--renew=6s", says="at most half of lease_ms")
        self.write("sluice.yaml", b"types:\n  a: {command: ./missing}\n")
        self.fails(78, "worker", "--drain", "--config=sluice.yaml", says="sluice.yaml:2:16: types.a.command: no file ./missing")
        self.fails(78, "worker", "--drain", "--config=sluice.yaml", "--set=types.a.command=./else",
                   says="--set types.a.command: no file ./else")


class TypesOnPostgres(Types):
    postgres = True


class HandlersOnPostgres(Handlers):
    postgres = True


class Control(JobTest):
    """Following, cancelling and stopping what runs."""

    def test_logs_are_followed_until_the_chain_has_ended(self):
        os.mkfifo(self.path("go"))
        chain = self.enqueue("t")
        follower = self.start("jobs", "logs", str(chain), "--follow")
        worker = self.worker(self.handler("echo one; read x <go; echo two"))
        self.assertEqual(follower.stdout.readline(), b"one\n")
        self.write("go", b"x\n")
        out, err = follower.communicate(timeout=TIMEOUT)
        self.assertEqual((follower.returncode, out), (0, b"two\n"), err)
        self.end(worker)

    def test_following_ends_with_a_signal(self):
        chain = self.enqueue("t")
        worker = self.worker(self.handler("echo one; sleep 1000"), "--stop-grace=0", "--kill-grace=1s")
        follower = self.start("jobs", "logs", str(chain), "--follow")
        self.assertEqual(follower.stdout.readline(), b"one\n")
        self.end(follower, 75, signal.SIGINT)
        self.end(worker, 75)

    def test_a_cancelled_command_dies_and_the_history_reports_why(self):
        chain = self.enqueue("t")
        worker = self.worker(self.handler("echo $$ >pid; sleep 1000"), "--kill-grace=1s")
        pid = int(self.until_file("pid"))
        self.ok("jobs", "cancel", str(chain))
        self.until(lambda: not alive(pid))
        job = self.show(chain)
        self.assertEqual((job["status"], self.attempts(chain)), ("cancelled", [(1, "aborted")]))
        self.assertIn("cancelled", job["attempts"][0]["error"])
        os.remove(self.path("pid"))
        self.ok("jobs", "retry", str(chain))
        self.assertNotEqual(int(self.until_file("pid")), pid)
        self.assertEqual(self.show(chain)["status"], "running")
        self.ok("jobs", "delete", str(chain))
        self.until(lambda: not alive(int(self.read("pid"))))
        self.fails(65, "jobs", "show", str(chain))
        self.end(worker)

    def test_a_command_that_ignores_sigterm_is_killed(self):
        chain = self.enqueue("t")
        worker = self.worker(self.handler("trap '' TERM; echo $$ >pid; while :; do sleep 0.1; done"), "--kill-grace=200ms")
        pid = int(self.until_file("pid"))
        self.ok("jobs", "cancel", str(chain))
        self.until(lambda: not alive(pid))
        self.end(worker)

    def test_a_stopped_worker_lets_commands_finish(self):
        os.mkfifo(self.path("go"))
        chain, waiting = self.enqueue("t"), self.enqueue("t")
        worker = self.worker(self.handler("echo $$ >pid; read x <go; echo finished"), "--json", "--log-level=info")
        self.until_file("pid")
        worker.send_signal(signal.SIGTERM)
        while b"stopping" not in (line := worker.stderr.readline()):
            self.assertTrue(line)
        self.write("go", b"x\n")
        out, err = worker.communicate(timeout=TIMEOUT)
        self.assertEqual(worker.returncode, 0, err)
        self.assertEqual(json.loads(out)["completed"], 1)
        self.assertEqual((self.show(chain)["status"], self.logs(chain)), ("completed", b"finished\n"))
        self.assertEqual((self.show(waiting)["status"], self.show(waiting)["attempt"]), ("pending", 0))

    def test_a_worker_reports_its_start_failed_attempts_and_what_it_finishes(self):
        failing, running = self.enqueue("bad"), self.enqueue("t")
        os.mkfifo(self.path("go"))
        handlers = [self.handler("echo $$ >pid; read x <go"), "--type=bad=sh -c 'exit 3'", "--max-attempts=2", "--slots=2"]
        worker = self.worker(*handlers)
        self.until_file("pid")
        self.until_status(failing, "failed")
        worker.send_signal(signal.SIGINT)
        lines = []
        while not lines or b"stopping" not in lines[-1]:
            lines.append(worker.stderr.readline())
            self.assertTrue(lines[-1], lines)
        self.write("go", b"x\n")
        self.assertEqual(worker.wait(TIMEOUT), 0)
        store = self.store.partition("?")[0].rpartition("/")[2]
        said = b"".join(lines).decode()
        # An attempt may fail before the worker reports its start.
        self.assertRegex(said, rf"(?m)^sluice worker: ready: types t, bad, 2 slots, store \w+:[^@?]*/{store}$")
        for text in [f"job {failing} (bad), attempt 1 failed: exit code 3", f"job {failing} (bad), attempt 2 failed: exit code 3",
                     f"job {failing} (bad) failed and is not retried; retry it with: sluice jobs retry {failing}",
                     f"stopping; finishing job {running} (t). A second signal exits immediately"]:
            self.assertEqual(said.count(text), 1, (text, said))
        # What it says can be copied.
        self.ok("jobs", "retry", str(failing))
        self.enqueue("bad")
        r = self.sluice("worker", "--drain", "--quiet", "--retry-delay=10ms", *handlers)
        self.assertEqual((r.code, r.err), (0, b""))

    def test_a_stopped_worker_does_not_name_a_job_that_it_has_lost(self):
        lost, running = self.enqueue("t"), self.enqueue("t")
        for name in ("go1", "go2"):
            os.mkfifo(self.path(name))
        worker = self.worker(self.handler(f"n=$((1 + (SLUICE_JOB_ID != {lost}))); echo $$ >pid$n; read x <go$n"), "--slots=1")
        self.until_file("pid1")
        # As if another worker had taken it, of which this one learns at the end of its attempt.
        if self.postgres:
            subprocess.run(["psql", "-qX", "-d", self.store, "-c", f"UPDATE sluice.job SET fence = fence + 5 WHERE id = {lost}"],
                           check=True)
        else:
            with contextlib.closing(sqlite3.connect(self.path("jobs.db"), timeout=60)) as db:
                db.execute("UPDATE sluice_job SET fence = fence + 5 WHERE id = ?", (lost,))
                db.commit()
        self.write("go1", b"x\n")
        lines = [b""]
        while f"job {lost} (t), attempt 1 lost its lease: taken by another worker".encode() not in lines[-1]:
            lines.append(worker.stderr.readline())
            self.assertTrue(lines[-1], lines)
        self.until_file("pid2")
        worker.send_signal(signal.SIGTERM)
        while b"stopping" not in lines[-1]:
            lines.append(worker.stderr.readline())
            self.assertTrue(lines[-1], lines)
        self.write("go2", b"x\n")
        self.assertEqual(worker.wait(TIMEOUT), 0)
        self.assertIn(f": stopping; finishing job {running} (t). A second".encode(), lines[-1])

    def test_with_a_key_for_the_log_no_line_shows_what_a_failed_command_printed(self):
        self.write("key", b"k" * 32)
        os.chmod(self.path("key"), 0o600)
        command = self.handler("echo confidential >&2; exit 3")
        job = self.enqueue("t")
        r = self.ok("worker", "--drain", "--max-attempts=1", command)
        self.assertIn(f"job {job} (t), attempt 1 failed: exit code 3: confidential", r.errors)
        job = self.enqueue("t")
        r = self.ok("worker", "--drain", "--max-attempts=1", "--wal=sealed", "--wal-key-file=key", "--log-level=debug", command)
        self.assertNotIn("confidential", r.errors)
        self.assertIn(f"job {job} (t), attempt 1 failed; see the reason with: sluice jobs show {job}\n", r.errors)
        self.assertEqual(self.show(job)["error"], "exit code 3: confidential")

    def test_a_flood_of_failed_attempts_does_not_flood_the_terminal(self):
        for _ in range(100):
            self.enqueue("bad")
        began = time.monotonic()
        r = self.ok("worker", "--type=bad=false", "--max-attempts=1", "--drain", "--slots=8")
        lines = len(re.findall(r"(?m), attempt 1 failed: | is not retried; ", r.errors))
        left_out = sum(int(n) for n in re.findall(r"(?m): (\d+) more lines about failed attempts were left out$", r.errors))
        self.assertLessEqual(lines, 20 * (time.monotonic() - began + 2))
        self.assertEqual(lines + left_out, 200)

    def test_a_stopped_worker_gives_back_what_takes_too_long(self):
        chain = self.enqueue("t")
        worker = self.worker(self.handler("echo $$ >pid; sleep 1000"), "--stop-grace=0", "--kill-grace=1s")
        pid = int(self.until_file("pid"))
        self.end(worker, 75, signal.SIGINT)
        self.assertFalse(alive(pid))
        job = self.show(chain)
        self.assertEqual((job["status"], job["attempt"]), ("pending", 1))
        self.assertEqual(self.attempts(chain), [(1, "released")])
        self.drain("--type=t=true")
        self.assertEqual(self.show(chain)["status"], "completed")

    def test_a_log_that_another_holds_when_the_worker_ends_is_waited_for(self):
        """Workers that end together sweep each other's logs: what one of them delivers is no failure of the other."""
        worker = self.worker("--type=t=echo line", "--flush-timeout=100s")
        chain = self.enqueue("t")
        self.until_status(chain, "completed")
        [log] = glob.glob(self.path(".sluice", "wal", "*", "worker-*.wal"))
        folder = os.path.dirname(log)
        self.write(log.replace(".wal", ".spool") + "/0000000000000001.spool", b"")  # one that it could not bring in
        # Other logs to be swept before keep the worker for a moment each: another process seems to use their spools.
        with contextlib.ExitStack() as files:
            held = files.enter_context(open(log, "rb"))
            spools = []
            for name in "abcdef":
                self.write(f"{folder}/{name}.wal", self.read(log)[:16])  # a header alone: nothing is in it
                os.mkdir(f"{folder}/{name}.spool")
                spools.append(files.enter_context(open(f"{folder}/{name}.spool/0000000000000001.spool", "wb")))
                fcntl.flock(spools[-1], fcntl.LOCK_EX)
            worker.send_signal(signal.SIGTERM)
            fcntl.flock(held, fcntl.LOCK_EX)  # as soon as the worker lets go of it
            self.assertTrue(os.path.exists(log))
            for spool in spools:
                spool.close()
            with self.assertRaises(subprocess.TimeoutExpired):
                worker.wait(1)
        _, err = worker.communicate(timeout=TIMEOUT)
        self.assertEqual(worker.returncode, 0, err)
        self.assertFalse(os.path.exists(log))
        self.assertEqual(self.logs(chain), b"line\n")

    def test_an_interrupted_drain_is_75(self):
        self.enqueue("t")
        worker = self.worker(self.handler("echo $$ >pid; sleep 1000"), "--drain", "--stop-grace=0", "--kill-grace=1s")
        self.until_file("pid")
        self.end(worker, 75)

    def test_a_job_shows_who_has_it_while_it_runs(self):
        chain = self.enqueue("t")
        worker = self.worker(self.handler("echo $$ >pid; sleep 1000"), "--id=me", "--kill-grace=1s", "--stop-grace=0")
        self.until_file("pid")
        job = self.show(chain)
        self.assertEqual((job["status"], job["leased_by"], self.attempts(chain)), ("running", "me", [(1, "running")]))
        self.assertIsNotNone(job["leased_until"])
        text = self.ok("jobs", "watch", "--count=1").text
        self.assertRegex(text, rf"(?m)^{chain} .* me$")
        self.end(worker, 75)


class ControlOnPostgres(Control):
    postgres = True

    def test_the_line_about_the_start_shows_no_part_of_a_password(self):
        begin, _, end = self.store.partition("://")
        user, at, host = end.partition("@")
        user, host = (user.partition(":")[0], host) if at and "/" not in user else ("postgres", end)
        for password in ("secret", "pa?ss", "pa#ss:w", "?#"):
            with self.subTest(password=password):
                r = self.ok("worker", "--drain", "--type=t=true", f"--store={begin}://{user}:{password}@{host}")
                shown = host.partition("?")[0]
                self.assertIn(f"ready: type t, 1 slot, store {begin}://{shown}\n", re.sub(r"\d+ slots", "1 slot", r.errors))


class Run(JobTest):
    def test_output_and_code_are_the_commands(self):
        r = self.sluice("run", "--", "sh", "-c", "echo out; echo err >&2; printf unfinished; exit 3")
        self.assertEqual((r.code, r.out, r.err), (3, b"out\nunfinished", b"err\n"))
        job = self.ok("jobs", "list", "--json").json()[0]
        self.assertEqual((job["status"], job["attempt"]), ("failed", 1))
        self.assertEqual(self.logs(job["id"]), b"out\nerr\nunfinished\n")
        self.assertEqual(json.loads(self.ok("jobs", "stats", "--json").out)["types"]["run"]["failed"], 1)

    def test_arguments_are_kept_as_they_are(self):
        self.assertEqual(self.ok("run", "printf", "<%s>", "a b", "", "$HOME", "é").text, "<a b><><$HOME><é>")

    def test_codes_are_as_a_shell_has_them(self):
        for args, code in [(["true"], 0), (["false"], 1), (["sh", "-c", "exit 75"], 75), (["sh", "-c", "exit 255"], 255),
                           (["sh", "-c", "kill -9 $$"], 137), (["sh", "-c", "kill -TERM $$"], 143), (["no-such-command"], 127),
                           (["/"], 127)]:
            with self.subTest(args=args):
                self.assertEqual(self.sluice("run", "--", *args).code, code)
        self.assertEqual(self.totals()["running"] + self.totals()["pending"], 0)
        self.fails(65, "run", "--", "sh", "-c", """echo '{"fail":"no good"}' >&3""", says="no good")
        self.fails(64, "run", says="COMMAND")
        self.fails(64, "run", "ls", "-l", says="-l")

    def test_a_command_that_continues_its_chain_ends_the_run(self):
        script = self.script("go-on", """echo here; echo '{"continue_with":{"type":"next","input":7}}' >&3""")
        r = self.sluice("run", "--", script)
        self.assertEqual((r.code, r.out), (0, b"here\n"), r.err)
        chain, job = [j["id"] for j in self.ok("jobs", "list", "--oldest-first", "--json").json()]
        self.assertIn(f"the chain continues as job {job} of type next", r.err.decode())
        self.assertEqual((self.show(job)["status"], self.show(job)["input"]), ("pending", 7))
        self.assertEqual(self.logs(chain), b"here\n")
        self.drain("--type=next=true")
        self.assertEqual(self.chain(chain)["status"], "completed")

    def test_it_runs_where_it_was_called(self):
        self.assertEqual(self.ok("run", "pwd").text, self.dir + "\n")

    def test_a_signal_cancels_the_command(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            p = self.start("run", "--", "sh", "-c", "echo $$; sleep 1000")
            pid = int(p.stdout.readline())
            _, err = self.end(p, 128 + how, how)
            self.assertFalse(alive(pid))
            self.assertRegex(err, rb"^sluice run: cancelled; job \d+ was stopped\n$")
            job = self.ok("jobs", "list", "--json", "--limit=1").json()[0]
            self.assertEqual(job["status"], "cancelled")
            self.one_line(self.fails(65, "jobs", "retry", job["id"], says="start its command again"))

    def test_a_detached_command_is_run_by_a_worker_once(self):
        chain = self.enqueue_detached("sh", "-c", "echo ran; exit 1")
        self.assertEqual(self.show(chain)["status"], "pending")
        self.drain("--type=run", "--command-from-input")
        job = self.show(chain)
        self.assertEqual((job["status"], job["attempt"], self.logs(chain)), ("failed", 1, b"ran\n"))

    def enqueue_detached(self, *args):
        return int(self.ok("run", "--detach", "--", *args).text)

    def test_a_killed_run_takes_its_command_along_and_its_job_does_not_stay(self):
        p = self.start("run", "--", "sh", "-c", "printf '%s\\nlast\\n' $$; sleep 1000")
        pid = int(p.stdout.readline())
        p.kill()
        p.wait()
        self.until(lambda: not alive(pid))
        job = self.ok("jobs", "list", "--json").json()[0]["id"]
        self.assertEqual(self.show(job)["status"], "running")
        self.ok("run", "true")
        shown = self.show(job)
        self.assertEqual((shown["status"], shown["error"]), ("failed", "the 'sluice run' of this command was killed"))
        self.assertEqual(self.attempts(job), [(1, "aborted")])
        self.assertEqual(self.logs(job).decode(), f"{pid}\nlast\n")
        self.assertIn("killed", [e["text"] for e in self.events(job) if e["type"] == "error"][0])

    def test_a_run_that_has_ended_is_not_retried_since_no_worker_serves_it(self):
        self.sluice("run", "--", "sh", "-c", "exit 3")
        self.ok("run", "true")
        done, failed = (self.ok("jobs", "list", "--json").json()[i]["id"] for i in (0, 1))
        other = self.enqueue("a")
        self.ok("jobs", "cancel", str(other))
        self.one_line(self.fails(65, "jobs", "retry", str(other), failed, says="start its command again"))
        self.assertEqual((self.show(failed)["status"], self.show(other)["status"]), ("failed", "cancelled"))
        self.assertEqual(self.ok("jobs", "retry", done).text, "redriven 0 of 1\n")
        detached = self.enqueue_detached("false")
        self.drain("--type=run", "--command-from-input")
        self.assertEqual(self.ok("jobs", "retry", str(detached)).text, "redriven 1 of 1\n")

    def test_what_is_on_a_terminal_comes_at_once(self):
        p = subprocess.Popen([SLUICE, "run", "--", "sh", "-c", "echo now; read x; echo $x"], stdout=subprocess.PIPE,
                             stdin=subprocess.DEVNULL, env=self.env, cwd=self.dir)
        self.assertEqual(p.stdout.readline(), b"now\n")
        self.assertEqual(p.stdout.read(), b"\n")
        p.stdout.close()
        self.assertEqual(p.wait(TIMEOUT), 0)


class RunOnPostgres(Run):
    postgres = True


if __name__ == "__main__":
    jobtest.main()
