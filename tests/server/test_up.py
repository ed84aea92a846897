# SPDX-License-Identifier: Apache-2.0
"""sluice up and sluice server as processes: start, readiness, systemd, signals, the end."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import unittest

import promlint
import servertest
from servertest import ServerTest, ask, postgres_url, control_postgres


class Up(ServerTest):
    def setUp(self):
        super().setUp()
        self.store = "sqlite:" + self.path("data", "sluice.db")
        self.env["SLUICE_STORE"] = self.store

    def test_one_command_serves_a_dashboard_and_an_api(self):
        p = self.server()
        print(f"# ready after {p.took * 1000:.0f} ms")
        self.assertEqual(ask(p.url, "livez").text, "alive\n")
        self.assertIn("<html", ask(p.url).text)
        ready = self.until(lambda: (a := ask(p.url, "readyz")).status == 200 and a.json())
        self.assertTrue(ready["ready"])
        self.assertEqual({c["name"] for c in ready["checks"]}, {"store", "ingest"})
        self.end(p)

    def test_its_worker_runs_commands_and_their_output_goes_into_the_store_without_http(self):
        p = self.server("--type=greet=sh -c 'echo hello; echo oops >&2'")
        job = self.enqueue("greet")
        self.assertEqual(self.chain(job)["status"], "completed")
        self.until(lambda: self.logs(job) == b"hello\noops\n" or self.logs(job) == b"oops\nhello\n")
        self.assertEqual(ask(p.url, "api/v1/coordinator").json()["accepted"], 0)
        # What it writes by itself counts and is reported as what other workers send.
        self.until(lambda: (m := re.search(r"^sluice_ingest_events_total (\d+)$", ask(p.url, "metrics").text, re.M))
                   and int(m[1]) >= 3)
        stream = self.until(lambda: (s := ask(p.url, "api/v1/streams").json()["items"]) and s[0]["lag"] == 0 and s[0])
        self.assertIsNotNone(stream["heard_at"])
        self.end(p)

    def test_detached_runs_are_served_only_when_inputs_may_name_commands(self):
        p = self.server(self.handler("true"))
        job = int(self.ok("run", "--detach", "--", "sh", "-c", "echo detached").out)
        self.until(lambda: ask(p.url, "readyz").status == 200)
        self.end(p)
        self.assertEqual(self.show(job)["status"], "pending")
        p = self.server("--command-from-input")
        job = int(self.ok("run", "--detach", "--", "sh", "-c", "echo detached").out)
        self.assertEqual(self.chain(job)["status"], "completed")
        self.until(lambda: self.logs(job) == b"detached\n")
        self.end(p)

    def test_a_read_only_server_keeps_the_output_of_the_worker_it_runs(self):
        p = self.server("--read-only", "--command-from-input")
        job = int(self.ok("run", "--detach", "--", "sh", "-c", "echo kept").out)
        self.until(lambda: self.logs(job) == b"kept\n")
        self.assertEqual(ask(p.url, "/api/v1/chains", "POST", {"type": "t"}).status, 403)
        self.end(p)

    def test_http_clients_cannot_run_their_own_commands(self):
        p = self.server()
        body = {"type": "run", "input": {"argv": ["touch", self.path("owned")]}}
        self.assertEqual(ask(p.url, "api/v1/chains", "POST", body).status, 403)
        self.assertEqual(ask(p.url, "api/v1/chains", "POST", {**body, "type": "run/x"}).status, 403)
        self.assertEqual(ask(p.url, "api/v1/chains/bulk", "POST", {"chains": [{"type": "t"}, body]}).status, 403)
        self.assertEqual(ask(p.url, "api/v1/cron/x", "PUT", {"spec": "* * * * *", **body}).status, 403)
        self.assertEqual(ask(p.url, "api/v1/chains").json()["items"], [])
        self.end(p)

    def test_a_command_that_is_not_there_is_refused_before_anything_starts(self):
        self.fails(64, "up", "--data=" + self.path("data"), "--listen=127.0.0.1:0", "--type=foo=./missing",
                   says="--type foo: no file ./missing; give the path of an executable file")
        for text, code, says in ((b"jobs:\n  types: [foo=./missing]\n", 64, "no file ./missing"),
                                 (b"types:\n  foo: {command: ./missing -x}\n", 78,
                                  "sluice.yaml:2:18: types.foo.command: no file ./missing; give the path")):
            self.write("sluice.yaml", text)
            self.fails(code, "up", "--data=" + self.path("data"), "--listen=127.0.0.1:0", "--config=sluice.yaml", says=says)
            self.fails(code, "worker", "--config=sluice.yaml", says=says)
        self.assertFalse(os.path.exists(self.path("data")))

    def test_the_priority_of_a_type_is_that_of_new_jobs_that_give_none(self):
        self.write("sluice.yaml", b"types:\n  fast: {priority: -5}\n  slow: {priority: 9, slots: 1}\n")
        for command in ("up", "server"):
            p = self.server("--config=sluice.yaml", "--set=types.slow.priority=7", command=command)

            def priority(body, p=p):
                chain = ask(p.url, "api/v1/chains", "POST", body).json()["chain_id"]
                return ask(p.url, f"api/v1/jobs/{chain}").json()["priority"]

            self.assertEqual(priority({"type": "fast"}), -5)
            self.assertEqual(priority({"type": "slow"}), 7)
            self.assertEqual(priority({"type": "slow", "priority": 3}), 3)
            self.assertEqual(priority({"type": "slow", "priority": 0}), 0)
            self.assertEqual(priority({"type": "slow", "priority": None}), 7)
            self.assertEqual(priority({"type": "other"}), 0)
            self.assertEqual(priority({"type": "other", "priority": 0}), 0)
            for given, kept in (({}, 7), ({"priority": 3}, 3), ({"priority": 0}, 0)):
                body = {"spec": "@yearly", "type": "slow", **given}
                self.assertEqual(ask(p.url, "api/v1/cron/x", "PUT", body).json()["priority"], kept)
            self.end(p)

    def test_a_type_whose_input_names_the_command_is_asked_for(self):
        self.fails(64, "up", "--data=" + self.path("data"), "--listen=127.0.0.1:0", "--type=anycmd",
                   says="--command-from-input")
        self.fails(64, "worker", "--type=anycmd", says="--command-from-input")

    def test_http_clients_cannot_name_a_command(self):
        bad = {"argv": ["touch", self.path("owned")]}
        then = json.dumps({"continue_with": {"type": "anycmd", "input": bad}})
        p = self.server("--command-from-input", "--type=anycmd", self.handler(f"echo '{then}' >&3", "innocent"))
        body = {"type": "anycmd", "input": bad}
        jobs = [ask(p.url, "api/v1/chains", "POST", body).json()["chain_id"],
                ask(p.url, "api/v1/chains", "POST", {**body, "key": "k"}).json()["chain_id"]]
        jobs += [c["chain_id"] for c in
                 ask(p.url, "api/v1/chains/bulk", "POST", {"chains": [body, body]}).json()["chains"]]
        # One that a command enqueued for later, cancelled, and retried over HTTP.
        local = self.enqueue("anycmd", json.dumps(bad), "--in=1h")
        self.ok("jobs", "cancel", str(local))
        self.assertEqual(ask(p.url, f"api/v1/chains/{local}/retry", "POST").status, 200)
        # A command that was started over HTTP, and continues with it.
        jobs.append(ask(p.url, "api/v1/chains", "POST", {"type": "innocent"}).json()["chain_id"])
        for job in [*jobs, local]:
            chain = self.chain(int(job))
            self.assertEqual(chain["status"], "failed")
            self.assertIn("came over HTTP", chain["error"])
        self.assertFalse(os.path.exists(self.path("owned")))
        # The same by the command line runs.
        self.enqueue("anycmd", json.dumps({"argv": ["touch", self.path("mine")]}))
        self.until(lambda: os.path.exists(self.path("mine")))
        self.end(p)

    def test_a_schedule_put_over_http_names_no_command(self):
        p = self.server("--command-from-input", "--type=anycmd")
        body = {"spec": "* * * * *", "type": "anycmd", "input": {"argv": ["touch", self.path("owned")]}}
        self.assertEqual(ask(p.url, "api/v1/cron/x", "PUT", body).status, 200)
        self.end(p)
        with sqlite3.connect(self.path("data", "sluice.db")) as db:  # its time has come
            db.execute("UPDATE sluice_cron SET next_us = 1000000")
        db.close()
        p = self.server("--command-from-input", "--type=anycmd")
        failed = self.until(lambda: self.ok("jobs", "list", "--json", "--status=failed").json())
        self.assertIn("came over HTTP", failed[0]["error"])
        self.assertFalse(os.path.exists(self.path("owned")))
        self.end(p)

    def as_nobody(self, script):
        """What a Python program prints that runs as another user."""
        become = ("import os, socket, http.client, email.parser, encodings.idna\n"  # which that user may not read
                  "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n")
        return subprocess.run(["python3", "-c", become + script], check=True, capture_output=True, timeout=60,
                              cwd="/").stdout.decode()

    @unittest.skipUnless(os.geteuid() == 0, "needs root to become another user")
    def test_without_tokens_another_local_user_gets_nothing(self):
        p = self.server(self.handler(f"touch {self.path('owned')}"))
        host, port = p.url.split("//")[1].strip("/").split(":")
        body = json.dumps({"type": "t"})
        answers = self.as_nobody(
            f"for method, path, body in (('POST', '/api/v1/chains', {body!r}), ('GET', '/api/v1/jobs', None),"
            " ('GET', '/livez', None)):\n"
            f"    c = http.client.HTTPConnection({host!r}, {port}); c.request(method, path, body)\n"
            "    r = c.getresponse(); print(r.status, r.read().decode().strip())\n").splitlines()
        self.assertEqual([a.split(" ")[0] for a in answers], ["401", "401", "200"], answers)
        self.assertIn("--tokens", answers[0])
        # The kernel reports a socket that its process has closed as root's; it must not be taken for that.
        request = f"POST /api/v1/chains HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        self.as_nobody(f"for _ in range(300):\n    s = socket.create_connection(({host!r}, {port}))\n"
                       f"    s.sendall({request!r}); s.close()\n")
        self.assertEqual(ask(p.url, "api/v1/chains").json()["items"], [])
        self.assertEqual(ask(p.url, "api/v1/chains", "POST", {"type": "t"}).status, 201)
        self.end(p)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to run commands as another user")
    def test_commands_of_another_user_cannot_read_the_store(self):
        self.write("sluice.yaml", b"jobs:\n  run_as: nobody\n")
        script = f"id -un; cat {self.path('data', 'sluice.db')} >/dev/null 2>&1 && echo readable; echo end"
        for option in ("--run-as=nobody", "--config=" + self.path("sluice.yaml")):
            with self.subTest(option=option):
                p = self.server("--shell", f"--type=t={script}", option)
                job = self.enqueue("t")
                self.assertEqual(self.chain(job)["status"], "completed")
                self.until(lambda: self.logs(job) == b"nobody\nend\n")
                self.end(p)
        self.fails(64, "up", "--listen=127.0.0.1:0", "--data=" + self.path("other"), "--type=t=true",
                   "--run-as=no-such-user", says="no-such-user")

    def test_a_taken_address_is_said_so(self):
        p = self.server()
        self.fails(74, "up", "--data=" + self.path("other"), "--listen=" + p.url.split("//")[1].strip("/"),
                   says="in use")
        self.end(p)

    def test_sigterm_lets_a_command_finish_and_its_last_line_arrives(self):
        p = self.server(self.handler(f"echo begun; echo x >{self.path('begun')}\n"
                                     f"while [ ! -e {self.path('go')} ]; do sleep 0.01; done; echo last"))
        job = self.enqueue("t")
        self.until_file("begun")
        p.send_signal(signal.SIGTERM)
        self.until(lambda: ask(p.url, "readyz").status == 503)
        self.assertEqual(ask(p.url, "readyz").json()["why"], "the server is stopping")
        self.write("go", b"x")
        _, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)
        self.assertEqual(self.show(job)["status"], "completed")
        self.assertEqual(self.logs(job), b"begun\nlast\n")
        self.assertEqual([n for _, _, files in os.walk(self.path("data", "wal")) for n in files], [])

    def test_a_command_that_does_not_finish_in_time_is_ended_and_given_back(self):
        p = self.server(self.handler(f"echo x >{self.path('begun')}; sleep 600"), "--set=server.drain_timeout_ms=50",
                        "--set=jobs.kill_grace_ms=50")
        job = self.enqueue("t")
        self.until_file("begun")
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 75)
        self.assertIn(self.show(job)["status"], ("pending", "running"))

    def test_kill_9_loses_nothing_that_a_command_has_written(self):
        p = self.server(self.handler(f"echo one; echo two; echo x >{self.path('begun')}; sleep 600"))
        job = self.enqueue("t")
        self.until_file("begun")
        p.kill()
        p.wait()
        again = self.server("--set=jobs.lease_ms=1s", self.handler("echo three"))
        self.until(lambda: b"one\ntwo\n" in self.logs(job))
        self.end(again)

    def hears(self, p, *parts):
        """Lines with these, in this order; others may come between them."""
        for part in parts:
            while part not in (line := p.stderr.readline()):
                self.assertTrue(line, f"it never said {part}")

    def test_sighup_reads_the_level_of_the_log_again(self):
        path = self.write("c.yaml", b"server: {log_level: error}\n")
        p = self.server("--config", path)
        self.write("c.yaml", b"server: {log_level: info}\n")
        p.send_signal(signal.SIGHUP)
        self.hears(p, b"reloaded")
        self.write("c.yaml", b"server: {log_levle: info}\n")
        p.send_signal(signal.SIGHUP)
        self.hears(p, b"log_level", b"old settings stay")
        self.assertEqual(ask(p.url, "livez").status, 200)
        self.end(p)

    def test_metrics_are_in_the_text_format_that_collectors_read(self):
        p = self.server("--type=greet=echo hello")
        self.chain(self.enqueue("greet"))
        self.assertEqual(ask(p.url, "metrics").headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        wanted = {"sluice_build_info", "process_resident_memory_bytes", "sluice_job_observations_total"}
        families = self.until(lambda: (f := promlint.lint(ask(p.url, "metrics").text)) and wanted <= set(f) and f)
        print(f"# {len(families)} families, resident {self.metric(p, 'process_resident_memory_bytes') / 2**20:.1f} MiB")
        self.end(p)

    def alerts(self):
        """Names of metrics by alert, as docs/alerts.yaml has them."""
        with open(os.path.join(servertest.ROOT, "docs", "alerts.yaml"), encoding="utf-8") as f:
            text = f.read()
        rules = re.findall(r"- alert: (\w+)\n +expr: (.*)\n", text)
        self.assertEqual(len(rules), text.count("- alert:"))
        return {name: set(re.findall(r"\bsluice_[a-z_]+", expr)) for name, expr in rules}

    def test_every_metric_of_the_alert_rules_is_there(self):
        self.ok("backup", "init", self.path("backups"), "--plain")
        p = self.server("--type=greet=echo hello", "--export=" + self.path("lake"), "--set=backup.repo=" + self.path("backups"))
        self.chain(self.enqueue("greet"))
        for alert, names in self.alerts().items():
            # These are of programs that embed the library; the rule has the server's beside them.
            there = {n for n in names if not n.startswith("sluice_dead_letter_")}
            self.assertTrue(there, alert)
            wanted = {re.sub("_bucket$", "", n) for n in there}
            self.until(lambda w: w <= set(promlint.lint(ask(p.url, "metrics").text)), wanted)
        self.end(p)

    def test_a_server_reports_jobs_that_other_processes_run(self):
        p = self.server(command="server")
        self.enqueue("bad")
        self.until(lambda: self.metric(p, "sluice_server_jobs_due") == 1 and
                   self.metric(p, "sluice_server_jobs_oldest_due_seconds") > 0)
        self.ok("worker", "--type=bad=false", "--max-attempts=1", "--drain", "--wal=" + self.path("wal"))

        def failed():
            ask(p.url, "api/v1/stats")  # a request for statistics: it counts every second
            return 'sluice_server_jobs{status="failed"} 1\n' in ask(p.url, "metrics").text
        self.until(failed)
        self.assertEqual(self.metric(p, "sluice_server_jobs_due"), 0)
        self.assertEqual(self.metric(p, "sluice_server_jobs"), 1)
        self.end(p)

    def test_a_password_on_the_command_line_is_warned_of(self):
        self.fails(69, "server", "--listen=127.0.0.1:0", "--data=" + self.path("data"),
                   "--store=postgres://u:s3cret@127.0.0.1:1/x", says=["password", "SLUICE_STORE"])


class Systemd(ServerTest):
    def setUp(self):
        super().setUp()
        self.store = "sqlite:" + self.path("data", "sluice.db")
        self.env["SLUICE_STORE"] = self.store
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.bind(self.path("notify"))
        self.socket.settimeout(60)
        self.env["NOTIFY_SOCKET"] = self.path("notify")

    def hear(self):
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def hear_of(self, name):
        while name not in (message := self.hear()):
            pass
        return message

    def heard(self):
        """How many watchdog messages lie in the socket now."""
        n = 0
        self.socket.setblocking(False)
        try:
            while True:
                n += "WATCHDOG" in self.hear()
        except BlockingIOError:
            self.socket.settimeout(60)
            return n

    def test_the_service_manager_is_notified_of_every_change(self):
        p = self.server()
        message = self.hear()
        self.assertEqual(message, {"READY": "1", "STATUS": f"Serving on {p.url}"})
        p.send_signal(signal.SIGHUP)
        message = self.hear()
        self.assertEqual(message["RELOADING"], "1")
        self.assertGreater(int(message["MONOTONIC_USEC"]), 0)
        self.assertEqual(self.hear()["READY"], "1")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(self.hear()["STOPPING"], "1")
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0)

    def test_ready_means_that_it_answers(self):
        p = self.start("up", "--listen=127.0.0.1:0", "--data=" + self.path("data"))
        p.url = self.hear()["STATUS"].split()[-1]
        self.until_ready(p)  # the first question has an answer
        self.end(p)

    def test_an_abstract_socket_is_notified_too(self):
        name = f"sluice-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind("\0" + name)
            s.settimeout(60)
            self.env["NOTIFY_SOCKET"] = "@" + name
            p = self.server()
            self.assertIn(b"READY=1", s.recv(4096))
            self.end(p)

    def test_commands_do_not_speak_for_the_service(self):
        self.env["WATCHDOG_USEC"] = "60000000"
        p = self.server("--type=show=env")
        job = self.enqueue("show")
        self.chain(job)
        self.until(lambda: b"SLUICE_JOB_ID" in self.logs(job))
        self.assertNotIn(b"NOTIFY_SOCKET", self.logs(job))
        self.assertNotIn(b"WATCHDOG_USEC", self.logs(job))
        self.end(p)

    def test_the_watchdog_is_fed_and_not_when_it_is_another_processs(self):
        self.env["WATCHDOG_USEC"] = "300000"
        p = self.server()
        for _ in range(3):
            self.hear_of("WATCHDOG")
        self.end(p)
        self.heard()
        self.env["WATCHDOG_PID"] = "1"
        p = self.server()
        self.assertIn("READY", self.hear())
        self.until(lambda: self.metric(p, "process_resident_memory_bytes") > 0)
        p.send_signal(signal.SIGTERM)
        self.assertIn("STOPPING", self.hear())
        p.communicate(timeout=60)


class OnPostgres(Systemd):
    """What can be seen only with a store that becomes unavailable or hangs."""

    def setUp(self):
        super().setUp()
        self.store = postgres_url()
        self.env["SLUICE_STORE"] = self.store

    def backends(self):
        out = subprocess.run(["psql", "-qXAt", "-d", self.store, "-c",
                              "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                              "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"],
                             check=True, capture_output=True, text=True).stdout
        return [int(pid) for pid in out.split()]

    def stop_backends(self, stopped):
        """Also those that have come since the last look; true when there were none."""
        new = set(self.backends()) - stopped
        for pid in new:
            os.kill(pid, signal.SIGSTOP)
        stopped |= new
        return not new

    def test_a_store_that_hangs_is_not_ready_and_does_not_feed_the_watchdog(self):
        self.env["WATCHDOG_USEC"] = "300000"
        p = self.server(command="server")
        self.hear_of("WATCHDOG")
        stopped = set()
        try:
            self.until(self.stop_backends, stopped)
            self.assertGreater(len(stopped), 0)
            self.heard()
            self.until(lambda: ask(p.url, "readyz").status == 503)
            self.assertIn("has not returned", ask(p.url, "readyz").json()["why"])
            # It took 5 seconds to get there; a server that feeds the watchdog would have sent some fifty messages.
            self.assertLessEqual(self.heard(), 2)
            self.assertEqual(ask(p.url, "livez").status, 200)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        self.until(lambda: ask(p.url, "readyz").status == 200)
        self.hear_of("WATCHDOG")
        self.end(p)

    def test_a_server_without_its_store_is_not_ready_and_recovers_automatically(self):
        self.env["WATCHDOG_USEC"] = "300000"
        p = self.server("--type=greet=echo hello")
        control_postgres("stop")
        try:
            self.until(lambda: ask(p.url, "readyz").status == 503)
            self.assertFalse({c["name"]: c["ok"] for c in ask(p.url, "readyz").json()["checks"]}["store"])
            # A restart would not bring the store back: the watchdog is content.
            self.heard()
            self.hear_of("WATCHDOG")
        finally:
            control_postgres("start")
        self.until(lambda: ask(p.url, "readyz").status == 200)
        job = self.enqueue("greet")
        self.assertEqual(self.chain(job)["status"], "completed")
        self.until(lambda: self.logs(job) == b"hello\n")
        self.end(p)

    def test_two_servers_share_one_store(self):
        one, two = self.server("--type=greet=echo hello"), self.server(command="server")
        job = self.enqueue("greet")
        self.assertEqual(self.chain(job)["status"], "completed")
        self.until(lambda: self.logs(job) == b"hello\n")
        for p in (one, two):
            self.until_ready(p)
            # That it started, its line, that it exited.
            self.until(lambda: [s["mark"] for s in ask(p.url, "api/v1/streams").json()["items"]] == [3])
        self.end(one)
        self.end(two)


if __name__ == "__main__":
    servertest.main()
