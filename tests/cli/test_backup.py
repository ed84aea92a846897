# SPDX-License-Identifier: Apache-2.0
"""sluice backup create, list, show, ls, cat and restore, and everything that a person can get wrong with them."""

import contextlib
import os
import pty
import shutil
import signal
import socket
import sqlite3
import subprocess
import time

from backuptest import BackupTest, files_of, flip
from clitest import SLUICE, TIMEOUT, main


class Creating(BackupTest):
    def test_a_tree_comes_back_as_it_was(self):
        self.init()
        root = self.tree()
        before = self.picture(root)
        snapshot = self.create(root)
        r = self.backup("restore", snapshot, "--to", "out")
        self.assertIn("restored to out", r.text)
        self.assertEqual(self.picture(self.restored(self.path("out"), root)), before)
        self.assertLess(os.stat(self.restored(self.path("out"), root, "hole")).st_blocks * 512, 1 << 20)

    def test_only_the_id_is_on_standard_output_and_the_rest_on_standard_error(self):
        self.init()
        root = self.tree()
        r = self.backup("create", root)
        self.assertRegex(r.text, r"^[0-9a-f]{32}\n$")
        self.assertRegex(r.errors, r"^sluice backup create: \d+ files \(\d+ new, 0 changed\), .* written, in ")
        self.assertEqual(len(r.errors.splitlines()), 1)
        self.assertEqual(self.backup("create", root, "--quiet").err, b"")

    def test_json_has_the_counts_of_a_backup(self):
        self.init()
        root = self.tree()
        j = self.backup("create", root, "--json").json()
        self.assertEqual(len(j), 1)
        first = j[0]
        self.assertEqual((first["problems"], first["unreadable"], first["files_unchanged"]), (0, 0, 0))
        self.assertGreater(first["new_bytes"], 300_000)
        self.assertGreater(first["physical_bytes"], 0)
        os.utime(os.path.join(root, "run"))
        second = self.backup("create", root, "--json").json()[0]
        self.assertEqual(second["files"], first["files"])
        self.assertEqual(second["new_bytes"] < 100_000, True)
        self.assertNotEqual(second["snapshot"], first["snapshot"])

    def test_what_is_excluded_is_left_out_with_all_below(self):
        self.init()
        root = self.tree()
        self.create(root, "--exclude", "b", "--exclude", "*.tmp", "-x", os.path.join(root, "r*"))
        names = self.backup("ls", "latest").out.splitlines()
        self.assertFalse([n for n in names if n.endswith((b"/b", b"/big", b"/run"))], names)
        self.assertTrue([n for n in names if n.endswith(b"/one")])

    def test_tags_and_host_are_kept_and_found_by(self):
        self.init()
        root = self.tree()
        one = self.create(root, "--tag", "daily", "-t", "two words", "--host", "ada")
        two = self.create(root, "--host", "bob")
        self.assertEqual([s["snapshot"] for s in self.backup("list", "--json", "--host", "ada").json()], [one])
        self.assertEqual([s["snapshot"] for s in self.backup("list", "--json", "--tag", "two words").json()], [one])
        self.assertEqual([s["snapshot"] for s in self.backup("list", "--json", "--path", root).json()], [one, two])
        shown = self.backup("show", one, "--json").json()[0]
        self.assertEqual((shown["host"], shown["tags"], shown["paths"]), ("ada", ["daily", "two words"], [root]))

    def test_a_file_that_cannot_be_read_is_reported_and_the_rest_is_in_the_snapshot(self):
        self.init()
        root = self.tree()
        secret = os.path.join(root, "a", "one")
        os.unlink(os.path.join(root, "hard"))
        os.chmod(secret, 0)
        under = ()
        if os.getuid() == 0:  # root may read everything
            if not shutil.which("setpriv"):
                self.skipTest("setpriv is not installed")
            subprocess.run(["chown", "-R", "65534:65534", self.dir], check=True)
            os.chown(secret, 0, 0)
            under = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        r = self.sluice("backup", "create", root, "--repo", self.repo, under=under)
        self.assertEqual(r.code, 65, r.err)
        snapshot = r.text.strip()
        self.assertIn(f"unreadable: {secret}", r.errors)
        self.assertIn("1 file could not be read; the snapshot has everything else", r.errors)
        j = self.sluice("backup", "create", root, "--repo", self.repo, "--json", under=under).json()[0]
        self.assertEqual((j["unreadable"], j["problems"]), (1, 1))
        self.assertEqual(self.snapshots(), [snapshot, j["snapshot"]])
        self.assertTrue(self.backup("cat", snapshot, os.path.join(root, "run")).out)

    def test_a_database_that_only_its_program_can_read_is_kept_as_a_file_and_status_65(self):
        self.init()
        root = self.tree()
        with contextlib.closing(sqlite3.connect(os.path.join(root, "x.db"), isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA locking_mode=EXCLUSIVE")
            db.execute("CREATE TABLE t(a)")
            r = self.sluice("backup", "create", root, "--repo", self.repo, "--quiet")
            self.assertEqual(r.code, 65, r.err)
            self.assertIn(f"as_file: {os.path.join(root, 'x.db')}", r.errors)
            self.assertIn("1 database is in the snapshot as a plain file", r.errors)
            r = self.sluice("backup", "create", root, "--repo", self.repo, "--json")
            self.assertEqual(r.code, 65, r.err)
            self.assertEqual([r.json()[0][n] for n in ("as_file", "changed", "problems")], [1, 0, 1])
        self.create(root)

    def test_a_socket_is_left_out_and_reported_only_on_request(self):
        self.init()
        root = self.tree()
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(os.path.join(root, "sock"))
            r = self.backup("create", root)
            self.assertNotIn("sock", r.errors)
            r = self.backup("create", root, "--json", "--log-level=info")
            self.assertIn("skipped: ", r.errors)
        self.assertEqual((r.json()[0]["problems"], r.json()[0]["skipped"]), (0, 1))

    def test_a_repository_inside_of_a_path_is_left_out(self):
        root = self.tree()
        self.repo = os.path.join(root, "we[i]rd *repo?")
        self.init()
        self.create(root)
        first = len(self.backup("ls", "latest").out.splitlines())
        self.create(root)
        names = self.backup("ls", "latest").out.splitlines()
        self.assertEqual(len(names), first)
        self.assertFalse([n for n in names if b"*repo?" in n], names)
        self.fails(64, "backup", "create", self.repo, "--repo", self.repo, says="is the repository, or lies in it")
        self.fails(64, "backup", "create", root, os.path.join(self.repo, "packs"), "--repo", self.repo, says="or lies in it")

    def test_a_repository_inside_of_a_path_is_left_out_however_it_is_named(self):
        os.makedirs(self.path("sub/in"))
        self.write("sub/f", b"f")
        os.symlink("sub", self.path("link"))
        self.repo = self.path("sub/in/we\\ird \\[repo\\")
        self.init()
        for name in ("sub", "sub//", "./sub/", "link", "link/", "sub/in/..", self.path("sub"), "."):
            with self.subTest(name=name):
                self.create(name)
                names = self.backup("ls", "latest").out.splitlines()
                self.assertTrue([n for n in names if n.endswith(b"/sub/f")], names)
                self.assertFalse([n for n in names if b"repo" in n], names)

    def test_a_signal_ends_it_without_a_snapshot_and_the_next_run_makes_one(self):
        self.init()
        lines = b"".join(b"line %d of a text that compresses slowly %d\n" % (i, i * 7919 % 10007) for i in range(700_000))
        self.write("text", lines)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal is closed, or the connection to it
            p = self.start("backup", "create", self.path("text"), "--level", "19", "--threads", "1", "--repo", self.repo)
            end = time.monotonic() + 60
            while not files_of(os.path.join(self.repo, "sessions")):
                self.assertIsNone(p.poll())
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            p.send_signal(number)
            out, err = p.communicate(timeout=100)
            self.assertEqual((p.returncode, out), (75, b""), err)
            self.assertIn(b"interrupted; no snapshot was made", err)
            self.assertNotIn(b"level=error", err)
            self.assertEqual(files_of(os.path.join(self.repo, "sessions")), [])
            self.assertEqual(self.snapshots(), [])
        snapshot = self.create(self.path("text"))
        self.assertEqual(self.backup("cat", snapshot, self.path("text")).out, lines)

    def test_broken_output_is_noticed(self):
        self.init()
        root = self.tree()
        with open("/dev/full", "wb") as full:
            for args in (["create", root], ["list"], ["ls", "latest"], ["cat", "latest", os.path.join(root, "a/one")], ["check"]):
                r = self.sluice("backup", *args, "--repo", self.repo, stdout=full)
                self.assertEqual(r.code, 74, (args, r.err))
                self.assertIn("standard output: No space left", r.errors)


class OwnData(BackupTest):
    def database(self):
        """The data folder of `sluice`, with a job in its store, whose log of SQLite is not empty."""
        self.ok("enqueue", "t", '{"n":1}')
        self.assertTrue(os.path.exists(self.path(".sluice", "sluice.db")))
        os.makedirs(self.path(".sluice", "archive"))
        self.write(".sluice/archive/x.wal.zst", b"an archive")

    def test_without_a_path_sluice_s_data_folder_is_backed_up_with_consistent_snapshots_of_its_databases(self):
        self.init()
        self.database()
        snapshot = self.create()
        names = [os.fsdecode(n) for n in self.backup("ls", snapshot).out.splitlines()]
        self.assertTrue([n for n in names if n.endswith(".sluice/archive/x.wal.zst")], names)
        self.assertFalse([n for n in names if n.endswith(("-wal", "-shm", "-journal"))], names)
        self.backup("restore", snapshot, "--to", "out")
        restored = self.restored(self.path("out"), self.path(".sluice"), "sluice.db")
        self.assertEqual(self.ok("jobs", "list", "--json", "--store", "sqlite:" + restored).json()[0]["type"], "t")
        with sqlite3.connect(restored) as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))

    def test_a_server_that_runs_is_backed_up_and_its_copy_serves_the_same_jobs(self):
        self.init()
        server = self.start("up", "--listen=127.0.0.1:0", "--data", self.path("data"), "--type", "t=seq 1 200")
        self.assertTrue(server.stdout.readline().startswith(b"http"))
        store = "--store=sqlite:" + self.path("data", "sluice.db")
        jobs = [self.ok("enqueue", "t", store).text.strip() for _ in range(3)]
        for job in jobs:
            self.ok("jobs", "wait", job, store)
        end = time.monotonic() + TIMEOUT  # the last output reaches the store a moment after the end of its job
        while any(len(self.ok("jobs", "logs", job, store).lines()) < 200 for job in jobs):
            self.assertLess(time.monotonic(), end)
        r = self.backup("create", "--data", self.path("data"))
        self.assertNotIn("unreadable", r.errors)
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
        self.backup("restore", "latest", "--to", "out")
        copy = self.restored(self.path("out"), os.path.realpath(self.path("data")))
        for job in jobs:
            lines = self.ok("jobs", "logs", job, "--store=sqlite:" + os.path.join(copy, "sluice.db")).lines()
            self.assertEqual(lines, [str(n) for n in range(1, 201)])
        again = self.start("up", "--listen=127.0.0.1:0", "--data", copy, "--type", "t=seq 1 200")
        self.assertTrue(again.stdout.readline().startswith(b"http"))
        again.send_signal(signal.SIGTERM)
        self.assertEqual(again.wait(timeout=60), 0)

    def test_files_are_as_new_as_the_databases_next_to_them(self):
        """While a database cannot be copied, no file of the data folder is read."""
        self.init()
        os.mkdir(self.path("data"))
        for n in range(1000):  # enough to be handed out before the database is met, were it not first
            self.write(f"data/a{n:04}", b"old")
        db = sqlite3.connect(self.path("data", "z.db"), isolation_level=None)
        self.addCleanup(db.close)
        db.execute("CREATE TABLE t(x)")
        db.execute("BEGIN EXCLUSIVE")
        p = self.start("backup", "create", "--data", self.path("data"), "--repo", self.repo)
        end = time.monotonic() + 60
        while not any(link.endswith("/z.db") for link in self.open_files(p.pid)):
            self.assertLess(time.monotonic(), end)
        self.write("data/a0000", b"new")
        db.execute("ROLLBACK")
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)
        self.assertEqual(self.backup("cat", out.decode().strip(), self.path("data", "a0000")).out, b"new")

    def open_files(self, pid):
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                yield os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                pass  # closed meanwhile

    def test_a_database_that_is_written_meanwhile_is_copied_as_a_consistent_snapshot(self):
        self.init()
        path = self.path("live.db")
        db = sqlite3.connect(path, isolation_level=None)
        self.addCleanup(db.close)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute("CREATE TABLE t(x)")
        db.execute("INSERT INTO t VALUES (42)")  # only in the -wal file
        db.execute("BEGIN")
        db.execute("INSERT INTO t VALUES (43)")  # not committed
        snapshot = self.create(path)
        self.backup("restore", snapshot, "--to", "out")
        with sqlite3.connect(self.restored(self.path("out"), path)) as copy:
            self.assertEqual(copy.execute("SELECT x FROM t").fetchall(), [(42,)])

    def test_the_data_folder_can_be_named_and_joins_paths(self):
        self.init()
        os.mkdir(self.path("elsewhere"))
        self.write("elsewhere/f", b"f")
        self.write("other", b"o")
        self.create("--data", self.path("elsewhere"), self.path("other"))
        names = self.backup("ls", "latest").text.split()
        self.assertTrue([n for n in names if n.endswith("elsewhere/f")])
        self.assertTrue([n for n in names if n.endswith("/other")])
        self.env["SLUICE_SERVER_DATA"] = self.path("elsewhere")
        self.create()
        self.assertEqual(self.backup("show", "latest", "--json").json()[0]["paths"], [os.path.realpath(self.path("elsewhere"))])

    def test_what_the_configuration_puts_elsewhere_is_backed_up_too(self):
        self.init()
        for name in ("data", "export", "logs"):
            os.mkdir(self.path(name))
            self.write(f"{name}/file", name.encode())
        self.write("sluice.yaml", f"server: {{data: {self.path('data')}}}\nwal: {{wal_dir: {self.path('logs')}}}\n"
                   f"export_events: {{dir: {self.path('export')}}}\n".encode())
        self.create("--config", self.path("sluice.yaml"))
        shown = self.backup("show", "latest", "--json").json()[0]["paths"]
        self.assertEqual(sorted(os.path.basename(p) for p in shown), ["data", "export", "logs"])
        self.write("bad.yaml", b"server: {dta: x}\n")
        self.refuses(78, "create", "--config", self.path("bad.yaml"), says="dta")

    def test_a_folder_that_cannot_be_read_is_reported_once(self):
        self.init()
        self.database()
        locked = self.path(".sluice", "archive")
        os.chmod(locked, 0)
        under = ()
        if os.getuid() == 0:  # root may read everything
            if not shutil.which("setpriv"):
                self.skipTest("setpriv is not installed")
            subprocess.run(["chown", "-R", "65534:65534", self.dir], check=True)
            under = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        r = self.sluice("backup", "create", "--repo", self.repo, "--json", under=under)
        os.chmod(locked, 0o700)
        self.assertEqual(r.code, 65, r.err)
        self.assertEqual((r.json()[0]["unreadable"], r.json()[0]["problems"]), (1, 1))
        self.assertEqual(r.errors.count(f"unreadable: {locked}"), 1, r.errors)

    def test_a_data_folder_that_is_not_there_is_reported(self):
        self.init()
        r = self.refuses(74, "create", says=[".sluice", "No such file"])
        self.assertEqual(r.out, b"")


class Looking(BackupTest):
    def setUp(self):
        super().setUp()
        self.init()
        self.root = self.tree()
        self.snapshot = self.create(self.root)
        self.inner = self.root.lstrip("/")

    def test_snapshots_are_listed_oldest_first(self):
        self.create(self.root, "--tag", "x")
        lines = self.backup("list").lines()
        self.assertEqual(len(lines), 3)
        self.assertTrue(lines[0].startswith("ID "))
        self.assertTrue(lines[1].startswith(self.snapshot[:8]))
        self.assertIn("[x]", lines[2])
        j = self.backup("list", "--json").json()
        self.assertEqual(j[0]["snapshot"], self.snapshot)
        self.assertLessEqual(j[0]["time"], j[1]["time"])
        self.assertEqual(j[1]["parent"], self.snapshot)

    def test_an_empty_repository_has_an_empty_list(self):
        self.repo = self.path("empty")
        self.init()
        self.assertEqual(self.backup("list").out, b"")
        self.assertEqual(self.backup("list", "--json").out, b"")
        self.refuses(65, "show", "latest", says="snapshot")

    def test_a_snapshot_is_named_by_id_beginning_and_latest(self):
        for name in (self.snapshot, self.snapshot[:4], self.snapshot[:12], "latest"):
            with self.subTest(name=name):
                self.assertIn(self.snapshot, self.backup("show", name).text)
                self.assertEqual(self.backup("cat", name, self.inner + "/a/one").out, b"one\n")
        newer = self.create(self.root)
        self.assertIn(newer, self.backup("show", "latest").text)

    def test_an_older_snapshot_does_not_pass_for_the_latest(self):
        newest = self.create(self.root)
        flip(os.path.join(self.repo, "snapshots", newest), 40)
        self.assertIn(newest, self.backup("show", "latest").text)  # its copy is right
        flip(os.path.join(self.repo, "copies", "snapshots", newest), 40)
        self.refuses(65, "show", "latest", says=[newest, "name it by its id"])

    def test_a_path_may_be_written_as_create_takes_it(self):
        os.makedirs(self.path("sub/in"))
        self.write("sub/f", b"f")
        os.symlink("sub", self.path("link"))
        folder, file = self.create("sub/in"), self.create("sub/f")
        for id_, names in ((folder, ["sub/in", "sub/in//", "./sub/in", "link/in/", "sub/in/../in", self.path("sub/in")]),
                           (file, ["sub/f", "link/f", "./sub//f"])):
            for name in names:
                with self.subTest(name=name):
                    self.assertEqual([s["snapshot"] for s in self.backup("list", "--json", "--path", name).json()], [id_])
                    said = self.backup("forget", "--keep-last", "1", "--dry-run", "--json", "--path", name).json()
                    self.assertEqual([s["snapshot"] for s in said], [id_])
        shutil.rmtree(self.path("sub"))
        for name in ("sub/in", "sub/in/", "./sub/x/../in"):
            self.assertEqual([s["snapshot"] for s in self.backup("list", "--json", "--path", name).json()], [folder])
        self.assertEqual(self.backup("list", "--json", "--path", "in").json(), [])

    def test_a_snapshot_that_is_not_there_or_not_the_only_one_is_reported(self):
        other = ("0" if self.snapshot[5] != "0" else "1").join([self.snapshot[:5], self.snapshot[6:]])
        shutil.copy(os.path.join(self.repo, "snapshots", self.snapshot), os.path.join(self.repo, "snapshots", other))
        for word in (["show"], ["ls"], ["restore", "--to", "out"], ["forget"]):
            self.refuses(65, word[0], self.snapshot[:4], *word[1:], says=self.snapshot[:4])
            self.refuses(65, word[0], "ffff0000ffff", *word[1:], says="ffff0000ffff")
            self.refuses(65, word[0], "abc", *word[1:], says="abc")
            self.refuses(65, word[0], "not-hex-at-all", *word[1:], says="not-hex-at-all")
        self.assertFalse(os.path.exists(self.path("out")))
        r = self.refuses(65, "list", says=other)  # a copy under another name is none
        self.assertIn(self.snapshot[:8], r.text)

    def test_ls_prints_one_line_for_each_name_and_null_prints_the_bytes(self):
        names = self.backup("ls", "latest").lines()
        for name in ("/a", "/a/b/big", "/latin-\\xe4", "/pipe", "/a/link"):
            self.assertIn(self.inner + name, names)
        self.assertLess(names.index(self.inner + "/a"), names.index(self.inner + "/a/b"))
        raw = self.backup("ls", "latest", "--null").out.split(b"\0")[:-1]
        self.assertIn(os.fsencode(self.inner) + b"/latin-\xe4", raw)
        self.assertEqual(len(raw), len(names))

    # a newline, a control of a terminal, C1, a right-to-left override, not UTF-8, a backslash, and what stays
    ODD = {b"new\nline": "new\\nline", b"\x1b[2J\t\r": "\\x1b[2J\\t\\r", b"c1\xc2\x9b": "c1\\xc2\\x9b",
           b"rtl\xe2\x80\xae": "rtl\\xe2\\x80\\xae", b"\xff\xfe": "\\xff\\xfe", b"back\\nslash": "back\\\\nslash",
           "gr\u00fcn \u2713".encode(): "gr\u00fcn \u2713"}

    def test_names_that_a_line_cannot_show_are_escaped(self):
        folder = os.fsencode(self.root) + b"/odd"
        os.mkdir(folder)
        for name in self.ODD:
            os.symlink(name, os.path.join(folder, name))
        self.create(self.root)
        expected = sorted(f"{self.inner}/odd/{text}" for text in self.ODD.values())
        self.assertEqual(sorted(n for n in self.backup("ls", "latest").lines() if "/odd/" in n), expected)
        long = [n.split("Z ", 1)[1] for n in self.backup("ls", "-l", "latest").lines() if "/odd/" in n]
        self.assertEqual(sorted(long), sorted(f"{self.inner}/odd/{text} -> {text}" for text in self.ODD.values()))
        raw = self.backup("ls", "latest", "--null").out.split(b"\0")[:-1]
        self.assertEqual({n.rsplit(b"/", 1)[1] for n in raw if b"/odd/" in n}, set(self.ODD))

    def test_messages_show_such_names_escaped_on_one_line(self):
        path = os.path.join(self.root, "evil\n\x1b[2Jname")
        with open(path, "wb") as f:
            f.write(os.urandom(300_000))
        self.create(self.root)
        # restore, check and repair name the file that is lost; restore names what is in the way
        self.backup("restore", "latest", "--to", "out")
        shown = "evil\\n\\x1b[2Jname"
        with open(self.restored(self.path("out"), path), "ab") as f:
            f.write(b"x")
        self.assertIn(shown, self.refuses(73, "restore", "latest", "--to", "out").errors)
        flip(max(files_of(os.path.join(self.repo, "packs")), key=os.path.getsize), 100_000)
        for word in (("restore", "latest", "--to", "new"), ("check", "--read-data"), ("repair",)):
            r = self.sluice("backup", *word, "--repo", self.repo)
            self.assertIn(shown, r.text + r.errors, word)
            self.assertNotIn("\x1b", r.text + r.errors)

    def test_ls_takes_a_path_with_or_without_slashes(self):
        expected = [f"{self.inner}/a/b", f"{self.inner}/a/b/big"]
        for path in (f"{self.root}/a/b", f"{self.inner}/a/b", f"{self.root}//a/./b/"):
            self.assertEqual(self.backup("ls", "latest", path).lines(), expected)
        self.refuses(65, "ls", "latest", "no/such", says="no/such")

    def test_ls_long_and_json_have_everything_of_an_entry(self):
        long = {line.split()[5]: line for line in self.backup("ls", "-l", "latest", self.inner + "/a").lines()}
        self.assertTrue(long[self.inner + "/a/link"].startswith("lrwxrwxrwx"))
        self.assertTrue(long[self.inner + "/a/link"].endswith(" -> ../outside"))
        self.assertTrue(long[self.inner + "/a/b"].startswith("drwxr-x---"))
        j = {e["path"]: e for e in self.backup("ls", "latest", "--json").json()}
        run = j[self.inner + "/run"]
        self.assertEqual((run["type"], run["mode"], run["size"]), ("file", "0755", 10))
        self.assertEqual((run["mtime_s"], run["mtime_ns"], run["time"]), (1, 1, "1970-01-01T00:00:01.000Z"))
        self.assertEqual(j[self.inner + "/pipe"]["type"], "fifo")
        self.assertEqual({j[self.inner + "/a/one"]["type"], j[self.inner + "/hard"]["type"]}, {"file", "hardlink"})
        odd = [e for e in j.values() if "path_hex" in e]
        self.assertEqual([bytes.fromhex(e["path_hex"]) for e in odd], [os.fsencode(self.inner) + b"/latin-\xe4"])
        self.fails(64, "backup", "ls", "latest", "--long", "--json", "--repo", self.repo, says="exclude each other")

    def test_ls_shows_times_of_any_year(self):
        path = self.write("tree/far", b"")
        for seconds, text in ((-1, "1969-12-31T23:59:59"), (9_225_014_400, "2262-05-01T00:00:00")):
            os.utime(path, ns=(0, seconds * 10**9 + 999_999_999))
            self.create(self.root)
            j = next(e for e in self.backup("ls", "latest", "--json").json() if e["path"].endswith("/far"))
            self.assertEqual((j["mtime_s"], j["mtime_ns"], j["time"]), (seconds, 999_999_999, text + ".999Z"))
            self.assertIn(text + "Z", next(n for n in self.backup("ls", "-l", "latest").lines() if n.endswith("/far")))

    def test_names_cannot_move_the_cursor_of_a_terminal(self):
        self.write("tree/\x1b[2J", b"")
        self.create(self.root)
        for args in (["ls", "latest"], ["ls", "latest", "--long"], ["list"], ["show", "latest"]):
            leader, follower = pty.openpty()
            p = subprocess.Popen([SLUICE, "backup", *args, "--repo", self.repo], stdout=follower, env=self.env, cwd=self.dir)
            os.close(follower)
            text = b""
            try:
                while chunk := os.read(leader, 65536):
                    text += chunk
            except OSError:
                pass
            p.wait()
            os.close(leader)
            self.assertNotIn(b"\x1b", text)

    def test_cat_prints_a_file_byte_for_byte(self):
        for name in ("a/b/big", "hole", "empty", "hard"):
            with open(os.path.join(self.root, name), "rb") as f:
                self.assertEqual(self.backup("cat", "latest", f"{self.inner}/{name}").out, f.read())
        self.refuses(65, "cat", "latest", self.inner + "/nothing", says="nothing")
        self.refuses(65, "cat", "latest", self.inner + "/a", says="a")
        self.fails(64, "backup", "cat", "latest", "--repo", self.repo, says="PATH is missing")


class Restoring(BackupTest):
    def setUp(self):
        super().setUp()
        self.init()
        self.root = self.tree()
        self.snapshot = self.create(self.root)
        self.out = self.path("out")

    def test_parts_are_restored_by_their_paths(self):
        j = self.backup("restore", "latest", self.root + "/a/b/", self.root.lstrip("/") + "/run", "--to", "out", "--json").json()[0]
        self.assertEqual((j["files"], j["ok"], j["snapshot"], j["problems"]), (2, True, self.snapshot, 0))
        below = self.restored(self.out, self.root)
        self.assertEqual(sorted(os.listdir(below)), ["a", "run"])
        self.assertEqual(os.listdir(os.path.join(below, "a")), ["b"])
        r = self.refuses(65, "restore", "latest", "no/such/path", "--to", "other", says="no/such/path")
        self.assertIn("begin at the root", r.errors)
        r = self.refuses(65, "restore", "latest", "/no/such/path", "--to", "other", says="no/such/path")
        self.assertNotIn("begin at the root", r.errors)
        self.fails(64, "backup", "restore", "latest", "/", "--to", "other", "--repo", self.repo, says="everything")

    def test_a_second_run_finds_everything_there(self):
        self.backup("restore", "latest", "--to", "out")
        before = self.picture(self.out)
        j = self.backup("restore", "latest", "--to", "out", "--json").json()[0]
        self.assertEqual((j["files"], j["bytes"]), (0, 0))
        self.assertGreater(j["skipped"], 3)
        self.assertEqual(self.picture(self.out), before)

    def test_a_file_that_differs_is_in_the_way_unless_it_may_be_replaced(self):
        self.backup("restore", "latest", "--to", "out")
        victim = self.restored(self.out, self.root, "a", "b", "big")
        with open(victim, "wb") as f:
            f.write(b"mine")
        self.refuses(73, "restore", "latest", "--to", "out", says="--overwrite")
        with open(victim, "rb") as f:
            self.assertEqual(f.read(), b"mine")
        self.backup("restore", "latest", "--to", "out", "--overwrite")
        self.assertEqual(self.picture(self.restored(self.out, self.root)), self.picture(self.root))

    def test_overwriting_looks_into_files_of_the_same_size_and_time(self):
        self.backup("restore", "latest", "--to", "out")
        before = self.picture(self.restored(self.out, self.root))
        for name, at in (("a/b/big", 150_000), ("hole", 1 << 19), ("hole", 5)):
            with self.subTest(name=name, at=at):
                victim = self.restored(self.out, self.root, name)
                s = os.stat(victim)
                flip(victim, at)
                os.utime(victim, ns=(s.st_atime_ns, s.st_mtime_ns))
                j = self.backup("restore", "latest", "--to", "out", "--overwrite", "--json").json()[0]
                self.assertEqual(j["files"], 1)  # and the others stay as they are
                self.assertEqual(self.picture(self.restored(self.out, self.root)), before)

    def test_the_target_must_be_a_folder(self):
        self.write("file", b"")
        self.refuses(73, "restore", "latest", "--to", "file", says=["--to", "not a folder"])
        self.fails(64, "backup", "restore", "latest", "--repo", self.repo, says="--to")
        self.fails(64, "backup", "restore", "latest", "--to=", "--repo", self.repo, says="--to")
        self.fails(64, "backup", "restore", "--to", "out", "--repo", self.repo, says="SNAPSHOT is missing")

    def test_a_target_that_cannot_be_made_is_reported_and_one_that_nothing_came_into_goes_again(self):
        self.write("file", b"")
        self.refuses(73, "restore", "latest", "--to", "file/below", says="cannot create the target folder")
        self.refuses(65, "restore", "latest", "/no/such/path", "--to", "new//er/", says="no/such/path")
        self.assertFalse(os.path.exists(self.path("new")))
        os.mkdir(self.path("mine"))
        self.refuses(65, "restore", "latest", "/no/such/path", "--to", "mine/new", says="no/such/path")
        self.assertEqual(os.listdir(self.path("mine")), [])
        self.refuses(65, "restore", "latest", "/no/such/path", "--to", "mine", says="no/such/path")
        self.assertTrue(os.path.isdir(self.path("mine")))

    def test_overwriting_is_advised_only_where_it_helps(self):
        os.makedirs(self.restored(self.out, self.root, "run"))
        for args in ([], ["--overwrite"]):
            r = self.refuses(73, "restore", "latest", "--to", "out", *args, says="a folder is where a file should be")
            self.assertNotIn("--overwrite", r.errors)

    def test_a_name_of_a_file_that_was_restored_alone_becomes_a_link_with_the_others(self):
        for first in ("hard", "a/one"):
            with self.subTest(first=first):
                self.backup("restore", "latest", os.path.join(self.root, first), "--to", "out")
                self.backup("restore", "latest", "--to", "out")
                self.assertEqual(self.picture(self.restored(self.out, self.root)), self.picture(self.root))
                shutil.rmtree(self.out)

    def test_a_problem_names_its_file_once(self):
        self.write("tree/random", os.urandom(300_000))
        self.create(self.root)
        flip(max(files_of(os.path.join(self.repo, "packs")), key=os.path.getsize), 100_000)
        r = self.sluice("backup", "restore", "latest", "--to", "out", "--repo", self.repo)
        self.assertEqual(r.code, 65)
        lines = [line for line in r.errors.splitlines() if "unreadable" in line]
        for line in lines:
            self.assertEqual(line.count("sluice-test-"), 1, line)
        self.assertTrue(lines, r.errors)

    # The capability to bind low ports, permitted and effective, as the kernel keeps it.
    CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")

    def rights(self):
        """Set-id bits on a file and a folder, and a capability where the process may set one."""
        os.chmod(os.path.join(self.root, "run"), 0o4755)
        os.chmod(os.path.join(self.root, "a"), 0o2755)
        with contextlib.suppress(OSError):
            os.setxattr(os.path.join(self.root, "empty"), "security.capability", self.CAPABILITY)
            return True
        return False

    def rights_below(self, to):
        """The modes of both, and whether the capability is there."""
        path = lambda name: self.restored(self.path(to), self.root, name)
        modes = [os.stat(path(name)).st_mode & 0o7777 for name in ("run", "a")]
        return (*modes, "security.capability" in os.listxattr(path("empty")))

    def test_a_plain_repository_loses_set_id_bits_and_capabilities_with_a_count_unless_asked(self):
        capable = self.rights()
        self.create(self.root)
        r = self.backup("restore", "latest", "--to", "out")
        self.assertEqual(self.rights_below("out"), (0o755, 0o755, False))
        self.assertIn("2 entries restored without their set-uid and set-gid bits", r.errors)
        self.assertIn("--set-id", r.errors)
        if capable:
            self.assertIn("1 entry restored without its security.* and trusted.* attributes", r.errors)
            self.assertIn("--security", r.errors)
        r = self.backup("restore", "latest", "--to", "with", "--set-id", "--security", "--json")
        self.assertEqual(self.rights_below("with"), (0o4755, 0o2755, capable))
        self.assertEqual((r.json()[0]["set_id_stripped"], r.json()[0]["security_stripped"], r.errors), (0, 0, ""))
        r = self.backup("restore", "latest", "--to", "without", "--no-set-id", "--no-security", "--json")
        self.assertEqual(self.rights_below("without"), (0o755, 0o755, False))
        self.assertEqual((r.json()[0]["set_id_stripped"], r.json()[0]["security_stripped"]), (2, int(capable)))
        self.assertEqual(r.errors, "")  # what was asked for is not a warning
        self.fails(64, "backup", "restore", "latest", "--to", "x", "--set-id", "--no-set-id", "--repo", self.repo, says="--no-set-id")

    def test_an_encrypted_repository_gives_set_id_bits_and_capabilities_back(self):
        capable = self.rights()
        self.repo = self.path("sealed")
        secret = ("--passphrase-file", self.write("pass", b"a passphrase\n"))
        self.ok("backup", "init", self.repo, *secret)
        self.create(self.root, *secret)
        r = self.backup("restore", "latest", "--to", "out", *secret)
        self.assertEqual(self.rights_below("out"), (0o4755, 0o2755, capable))
        self.assertEqual(r.errors, "")
        self.backup("restore", "latest", "--to", "without", "--no-set-id", "--no-security", *secret)
        self.assertEqual(self.rights_below("without"), (0o755, 0o755, False))


if __name__ == "__main__":
    main()
