# SPDX-License-Identifier: Apache-2.0
"""When a server is ready, what it says about it to whom, and that it waits for a store that is locked when it starts."""

import fcntl
import hashlib
import os
import resource
import subprocess

from servertest import ServerTest, ask, main, postgres_url, stop_postgres, control_postgres


class Ready(ServerTest):
    def tokens(self, **roles):
        """A tokens file; the token of a name is the name."""
        path = self.path("tokens")
        with open(path, "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), 0o600)
            for name, role in roles.items():
                f.write(f"{name} {role} sha256:{hashlib.sha256(name.encode()).hexdigest()}\n")
        return path

    def psql(self, sql):
        subprocess.run(["psql", "-qX", "-d", self.store, "-c", sql], check=True)

    def test_a_read_only_database_is_not_ready(self):
        self.env["SLUICE_STORE"] = self.store = postgres_url()
        p = self.server(command="server")
        self.until_ready(p)
        name = self.store.split("/")[-1].split("?")[0]
        self.psql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        self.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                  " WHERE datname = current_database() AND pid <> pg_backend_pid()")
        self.until(lambda: ask(p.url, "readyz").status == 503)
        store = self.until(lambda: [c for c in ask(p.url, "readyz").json()["checks"]
                                    if c["name"] == "store" and "read-only" in c.get("why", "")])
        self.assertFalse(store[0]["ok"])
        self.psql(f"SET transaction_read_only = off; ALTER DATABASE {name} RESET default_transaction_read_only")
        self.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                  " WHERE datname = current_database() AND pid <> pg_backend_pid()")
        self.until_ready(p)

    def test_a_server_whose_disk_is_full_is_not_ready_until_there_is_room(self):
        p = self.server(command="server")
        self.until_ready(p)
        old = resource.prlimit(p.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(p.pid, resource.RLIMIT_FSIZE, (0, old[1]))  # every write to a file fails
        self.assertGreaterEqual(ask(p.url, "api/v1/chains", "POST", {"type": "t"}).status, 500)
        self.until(lambda: ask(p.url, "readyz").status == 503)
        store = {c["name"]: c for c in ask(p.url, "readyz").json()["checks"]}["store"]
        self.assertFalse(store["ok"])
        resource.prlimit(p.pid, resource.RLIMIT_FSIZE, old)
        self.until_ready(p)
        self.assertEqual(ask(p.url, "api/v1/chains", "POST", {"type": "t"}).status, 201)

    def test_reasons_are_for_those_who_may_read(self):
        self.env["SLUICE_STORE"] = self.store = postgres_url()
        p = self.server("--tokens=" + self.tokens(reader="read"), command="server")
        control_postgres("stop")
        try:
            reader = {"Authorization": "Bearer reader"}
            self.until(lambda: any("why" in c for c in ask(p.url, "readyz", headers=reader).json()["checks"]))
            a = ask(p.url, "readyz")
            self.assertEqual(a.status, 503)
            self.assertTrue(all("why" not in c for c in a.json()["checks"]), a.text)
            self.assertFalse({c["name"]: c["ok"] for c in a.json()["checks"]}["store"])
        finally:
            control_postgres("start")
        self.until_ready(p)

    def test_what_opened_the_breaker_is_for_those_who_may_read(self):
        self.env["SLUICE_STORE"] = self.store = postgres_url()
        p = self.server("--tokens=" + self.tokens(reader="read", writer="write"), command="server")
        self.until_ready(p)
        reader, writer = ({"Authorization": "Bearer " + name} for name in ("reader", "writer"))
        event = {"stream": "s", "events": [{"sequence": 1, "event": {"type": 7, "ts_ms": 1}}]}
        control_postgres("stop")
        try:
            def opened():
                self.assertEqual(ask(p.url, "sluice.v1.JobEvents/PublishJobEvents", "POST", event, writer).status, 503)
                return [c for c in ask(p.url, "readyz", headers=reader).json()["checks"]
                        if c["name"] == "ingest" and "the breaker is open: " in c.get("why", "")]

            why = self.until(opened)[0]["why"]
            a = ask(p.url, "readyz")
            self.assertEqual(a.status, 503)
            self.assertNotIn("why", a.text)
            self.assertNotIn(why.split(": ", 1)[1], a.text)
            self.assertFalse({c["name"]: c["ok"] for c in a.json()["checks"]}["ingest"])
        finally:
            control_postgres("start")
        self.until_ready(p)

    def hold(self, path):
        f = open(path, "r+b")
        fcntl.flock(f, fcntl.LOCK_EX)
        return f

    def test_a_server_waits_for_a_store_that_is_locked_when_it_starts(self):
        self.enqueue("t")
        with self.hold(self.path("jobs.db-lock")):
            p = self.start("server", "--listen=127.0.0.1:0", "--data=" + self.path("data"),
                           "--set", "store.statement_timeout_ms=100")
            self.assertIn("waiting and retrying", p.stderr.readline().decode())
        p.url = p.stdout.readline().decode().strip()
        self.until_ready(p)

    def test_a_server_that_waits_for_its_store_ends_on_sigterm(self):
        self.enqueue("t")
        with self.hold(self.path("jobs.db-lock")):
            p = self.start("server", "--listen=127.0.0.1:0", "--data=" + self.path("data"),
                           "--set", "store.statement_timeout_ms=100")
            self.assertIn("waiting and retrying", p.stderr.readline().decode())
            p.terminate()
            self.assertEqual(p.wait(), 75)

    def test_a_worker_waits_for_a_store_that_is_locked_when_it_starts(self):
        self.enqueue("t")
        with self.hold(self.path("jobs.db-lock")):
            p = self.start("worker", "--type=t=true", "--drain", "--wal=" + self.path("wal"))
            # Opening the store itself waits 30 s first.
            self.assertIn("waiting and retrying", p.stderr.readline().decode())
        self.assertEqual(p.wait(), 0)


if __name__ == "__main__":
    try:
        main()
    finally:
        stop_postgres()
