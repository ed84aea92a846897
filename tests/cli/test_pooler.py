# SPDX-License-Identifier: Apache-2.0
"""Jobs through PgBouncer in transaction mode: every transaction may be in another session, which others have before and
after it. Nothing may be counted on that was left in one, and nothing be left."""

import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import urllib.parse

import jobtest
from jobtest import JobTest

SETTINGS = """[databases]
* = host={server} user={name}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
unix_socket_mode = 0777
auth_type = any
pool_mode = transaction
default_pool_size = {size}
logfile = {folder}/log
"""


class Pooled(JobTest):
    postgres = True
    size = 1

    def setUp(self):
        super().setUp()
        url = urllib.parse.urlsplit(self.store)
        query = dict(urllib.parse.parse_qsl(url.query))
        folder = tempfile.mkdtemp(prefix="sluice-pooler-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        # As root it refuses to run: it is whom the server is.
        owner = os.stat(query["host"])
        user = [] if os.geteuid() else ["-u", pwd.getpwuid(owner.st_uid).pw_name]
        with open(os.path.join(folder, "ini"), "w", encoding="ascii") as f:
            f.write(SETTINGS.format(server=query["host"], folder=folder, size=self.size,
                                    name=url.username or query.get("user", "postgres")))
        if user:
            os.chown(folder, owner.st_uid, owner.st_gid)
            os.chmod(os.path.join(folder, "ini"), 0o644)
        self.pooler = subprocess.Popen(["/usr/sbin/pgbouncer", "-q", *user, os.path.join(folder, "ini")],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.pooler.wait)
        self.addCleanup(self.pooler.terminate)
        self.store = f"postgres://{url.netloc}{url.path}?host={urllib.parse.quote(folder, safe='')}&port=6432"
        self.env["SLUICE_STORE"] = self.store
        self.until(self.listens, os.path.join(folder, ".s.PGSQL.6432"))

    def listens(self, path):
        self.assertIsNone(self.pooler.poll())
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(path) == 0

    def ask(self, sql):
        return subprocess.run(["psql", "-qXAt", "-d", self.store, "-c", sql], check=True, capture_output=True,
                              text=True).stdout.strip()

    def run_jobs(self):
        chains = [self.enqueue("t", str(i), f"--key=k{i % 20}") for i in range(40)]
        self.assertEqual(chains[:20], chains[20:])
        last = self.enqueue("u", "null", *[f"--after={c}" for c in chains[:20]])
        handlers = [self.handler("echo line $SLUICE_JOB_ID; echo '{\"continue_with\":{\"type\":\"v\"}}' >&3"),
                    self.handler("echo '{\"output\":5}' >&3", "u"), self.handler("echo again", "v")]
        workers = [self.worker("--slots=3", "--poll=100ms", *handlers) for _ in range(2)]
        self.assertEqual(self.ok("jobs", "wait", str(last), "--timeout=100s").out, b"5\n")
        said = [self.end(w)[1] for w in workers]
        self.assertEqual(self.totals()["completed"], 41)
        for c in chains[:20]:
            self.assertEqual(self.logs(c).decode().splitlines(), [f"line {c}", "again"])
        for err in said:
            self.assertNotIn(b"prepared statement", err)
            self.assertNotIn(b"the store", err)

    def test_jobs_run_to_their_end_in_one_session_that_all_share(self):
        self.run_jobs()
        for name, value in (("synchronous_commit", "on"), ("statement_timeout", "0"), ("enable_seqscan", "on"),
                            ("idle_in_transaction_session_timeout", "0"), ("default_transaction_read_only", "off")):
            self.assertEqual(self.ask(f"SHOW {name}"), value, name)

    def test_an_export_needs_its_own_session(self):
        self.run_jobs()
        self.fails(78, "export", "--from", self.store, "--table", "sluice.job_events", "--sequence", "offset", "--to",
                   self.path("lake"), "--dataset", "d", says="pooler")
        self.assertEqual(self.ask("SHOW default_transaction_read_only"), "off")


    def load_days(self, *args):
        """Days and moments that can be read only with the settings of the session, in batches of other columns, too."""
        self.ask("DROP TABLE IF EXISTS days; CREATE TABLE days (id bigint PRIMARY KEY, d date, at timestamptz, note text);"
                 "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET DateStyle = ''ISO, DMY''', current_database());"
                 "EXECUTE format('ALTER DATABASE %I SET TimeZone = ''America/New_York''', current_database()); END $$")
        rows = [f'{{"id": {i}, "d": "01/02/03", "at": "2024-05-01 12:00"{extra}}}'
                for i, extra in ((i, ', "note": "n"' if i % 3 == 0 else "") for i in range(600))]
        r = self.ok("load", "-", "--format", "jsonl", "--load-id", "x", "--json", "--to", self.store, "--table", "days", "--workers", "3",
                    "--batch-size", "20", *args, stdin="\n".join(rows).encode() + b"\n")
        self.assertEqual(json.loads(r.out)["written"], 600, r.err)
        self.assertEqual(self.ask("SELECT d, at AT TIME ZONE 'UTC', count(*), count(note) FROM days GROUP BY 1, 2"),
                         "2001-02-03|2024-05-01 12:00:00|600|200")
        self.assertNotEqual(self.ask("SHOW DateStyle"), "ISO, YMD")
        self.assertEqual(self.ask("SHOW idle_in_transaction_session_timeout"), "0")
        self.assertEqual(self.ask("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''"), "0")

    def test_a_load_brings_its_settings_along_with_every_transaction(self):
        self.load_days()

    def test_an_upsert_prepares_nothing_for_others(self):
        self.load_days("--on-conflict", "id")


class SeveralSessions(Pooled):
    size = 3


if __name__ == "__main__":
    jobtest.main()
