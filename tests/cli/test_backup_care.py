# SPDX-License-Identifier: Apache-2.0
"""sluice backup check, repair, forget and prune; repositories, passphrases and progress."""

import json
import os
import pty
import shutil
import signal
import subprocess
import termios

from backuptest import BackupTest, files_of, flip
from clitest import SLUICE, main


class Caring(BackupTest):
    def setUp(self):
        super().setUp()
        self.init()
        self.root = self.tree()
        self.snapshot = self.create(self.root)

    def packs(self):
        return files_of(os.path.join(self.repo, "packs"))

    def test_an_untouched_repository_is_fine(self):
        r = self.backup("check")
        self.assertRegex(r.text, r"^ok: 1 snapshot, \d+ blocks in \d+ packs?, ")
        self.assertEqual(r.err, b"")
        r = self.backup("check", "--read-data")
        self.assertIn("every byte read", r.text)
        j = self.backup("check", "--read-data", "--json").json()[0]
        self.assertEqual((j["ok"], j["findings"], j["snapshots"], j["read_data"], j["repo"]), (True, [], 1, True, self.repo))

    def test_damage_is_found_named_and_repaired_as_far_as_it_can_be(self):
        self.write("tree/random", os.urandom(100_000))
        self.create(self.root)
        big = max(self.packs(), key=os.path.getsize)
        flip(big, os.path.getsize(big) // 2)
        r = self.refuses(65, "check", "--read-data", says="'sluice backup repair' saves everything that is undamaged")
        self.assertIn(os.path.basename(big), r.text)
        j = json.loads(self.sluice("backup", "check", "--read-data", "--json", "--repo", self.repo).out)
        self.assertFalse(j["ok"])
        self.assertGreater(j["findings_total"], 0)
        self.assertTrue(any(f["fault"] == "pack" for f in j["findings"]), j)
        r = self.sluice("backup", "repair", "--repo", self.repo)
        self.assertEqual(r.code, 65, r.err)
        self.assertIn("lost: ", r.errors)
        self.backup("check", "--read-data")
        again = self.backup("repair", "--json").json()[0]
        self.assertEqual((again["ok"], again["findings"], again["blocks_lost"]), (True, [], 0))
        self.create(self.root, "--force")  # brings everything back
        self.backup("restore", "latest", "--to", "out")
        self.assertEqual(self.picture(self.restored(self.path("out"), self.root)), self.picture(self.root))

    def test_a_file_of_many_damaged_blocks_is_named_once(self):
        self.write("tree/many", os.urandom(5 << 20))
        self.create(self.root)
        os.truncate(max(self.packs(), key=os.path.getsize), 100)
        r = self.refuses(65, "check", says="2 findings")
        self.assertEqual(r.text.count("/many: "), 1, r.text)

    def test_what_is_lost_whole_is_not_called_rewritten(self):
        for pack in self.packs():
            os.truncate(pack, 0)
        r = self.sluice("backup", "repair", "--repo", self.repo)
        self.assertEqual(r.code, 65)
        self.assertIn("0 packs rewritten, 0 blocks kept", r.text)

    def test_a_missing_pack_is_found_without_reading_data(self):
        self.write("tree/random", os.urandom(100_000))
        self.create(self.root)
        os.unlink(max(self.packs(), key=os.path.getsize))
        self.refuses(65, "check", says="finding")
        r = self.sluice("backup", "restore", "latest", "--to", "out", "--repo", self.repo)
        self.assertEqual(r.code, 65, r.err)

    def test_a_lost_pack_of_metadata_costs_nothing_and_repair_makes_it_good(self):
        self.repo = self.path("other")
        self.init()
        os.mkdir(self.path("one"))
        self.write("one/random", os.urandom(100_000))
        self.create(self.path("one"))
        *metadata, _ = sorted(self.packs(), key=os.path.getsize)  # the largest has the file's contents
        self.assertTrue(metadata)
        for pack in metadata:
            os.rename(pack, self.path("kept"))
            self.backup("restore", "latest", "--to", "out")
            self.assertEqual(self.picture(self.restored(self.path("out"), self.path("one"))), self.picture(self.path("one")))
            shutil.rmtree(self.path("out"))
            self.assertIn("note: one_copy ", self.backup("check").text)
            os.rename(self.path("kept"), pack)
        os.unlink(metadata[0])
        self.sluice("backup", "repair", "--repo", self.repo)
        self.assertNotIn("note:", self.backup("check", "--read-data").text)

    def test_what_a_pack_that_was_cut_off_had_is_stored_again(self):
        self.write("tree/random", os.urandom(300_000))
        self.create(self.root)
        for size in (0, 100, 150_000):  # of the last one, the frames in front are whole
            for pack in self.packs():
                os.truncate(pack, min(size, os.path.getsize(pack)))
            self.refuses(65, "prune", says="nothing was changed")
            again = self.create(self.root, *(["--force"] if size == 100 else []))
            self.backup("restore", again, "--to", f"out{size}")
            self.assertEqual(self.picture(self.restored(self.path(f"out{size}"), self.root)), self.picture(self.root))
            self.backup("forget", "--keep-last", "1")
            self.backup("prune")
            self.backup("prune")
            self.backup("check", "--read-data")

    def test_a_lost_index_is_no_loss(self):
        shutil.rmtree(os.path.join(self.repo, "index"))
        self.backup("check", "--read-data")
        self.backup("restore", "latest", "--to", "out")
        self.assertEqual(self.picture(self.restored(self.path("out"), self.root)), self.picture(self.root))

    def test_rules_keep_and_the_rest_is_forgotten(self):
        more = [self.create(self.root) for _ in range(4)]
        said = {s["snapshot"]: s for s in self.backup("forget", "--keep-last", "2", "--keep-daily", "1", "--dry-run", "--json").json()}
        self.assertEqual(sorted(i for i, s in said.items() if s["keep"]), sorted(more[-2:]))
        self.assertIn("last", said[more[-1]]["rules"])
        self.assertEqual(len(self.snapshots()), 5)
        r = self.backup("forget", "--keep-last", "2")
        self.assertEqual([line.split()[0] for line in r.lines()], ["KEEP"] + ["keep"] * 2 + ["forget"] * 3)
        self.assertIn("3 snapshots forgotten", r.errors)
        self.assertEqual(self.snapshots(), more[-2:])

    def test_snapshots_are_forgotten_by_name(self):
        second = self.create(self.root)
        third = self.create(self.root)
        self.backup("forget", self.snapshot[:8], "latest")
        self.assertEqual(self.snapshots(), [second])
        self.refuses(65, "forget", second, third, says=third)
        self.assertEqual(self.snapshots(), [second])

    def test_what_is_to_be_forgotten_must_be_given(self):
        self.fails(64, "backup", "forget", "--repo", self.repo, says="give what to keep")
        self.fails(64, "backup", "forget", "--tag", "x", "--repo", self.repo, says="give what to keep")
        self.fails(64, "backup", "forget", "latest", "--keep-last", "1", "--repo", self.repo, says="not both")
        self.fails(64, "backup", "forget", "--keep-last", "0", "--repo", self.repo, says="1 to 1000000")
        self.assertEqual(self.snapshots(), [self.snapshot])

    def test_the_second_prune_frees_what_the_first_marked_for_deletion(self):
        self.write("tree/random", os.urandom(2 << 20))
        self.create(self.root)
        os.unlink(os.path.join(self.root, "random"))
        self.backup("forget", "latest")
        dry = self.backup("prune", "--dry-run", "--json").json()[0]
        self.assertGreaterEqual(dry["packs_marked"], 1)
        self.assertEqual(dry["packs_merged"], 0)
        size = sum(os.path.getsize(p) for p in self.packs())
        first = self.backup("prune", "--json").json()[0]
        self.assertEqual(first["packs_deleted"], 0)
        self.assertGreater(first["bytes_marked"], 2 << 20)
        second = self.backup("prune", "--json").json()[0]
        self.assertGreater(second["bytes_deleted"], 2 << 20)
        self.assertLess(sum(os.path.getsize(p) for p in self.packs()), size - (2 << 20))
        self.assertIn("deleted", self.backup("prune").text)
        self.backup("check", "--read-data")
        self.backup("restore", self.snapshot, "--to", "out")


class Repositories(BackupTest):
    def test_one_that_is_there_is_never_made_again(self):
        self.init()
        self.fails(73, "backup", "init", self.repo, "--plain", says="repo")
        os.mkdir(self.path("file.d"))
        self.write("file", b"")
        self.fails(73, "backup", "init", self.path("file"), "--plain", says="not a folder")
        self.assertEqual(self.ok("backup", "init", self.path("file.d"), "--plain", "--json").json(), [
            {"repo": self.path("file.d"), "encrypted": False}])
        self.fails(73, "backup", "init", self.path("file/below"), "--plain", says="cannot create the folder")
        self.fails(64, "backup", "init", "--plain", says="--repo=REPO is missing, and SLUICE_BACKUP_REPO is not set")
        self.fails(64, "backup", "init", "a", "--repo", "b", "--plain", says="exclude each other")
        self.ok("backup", "init", "--repo", self.path("by-option"), "--plain")
        self.env["SLUICE_BACKUP_REPO"] = self.path("by-environment")
        self.ok("backup", "init", "--plain")
        for name in ("by-option", "by-environment"):
            self.ok("backup", "list", "--repo", self.path(name))
        del self.env["SLUICE_BACKUP_REPO"]
        self.fails(64, "backup", "init", "a", "b", says="'b'")

    def test_what_is_no_repository_is_reported(self):
        self.write("file", b"")
        self.write("other", b"")
        os.mkdir(self.path("folder"))
        for word in ("list", "check", "prune", "repair", "create", "show", "ls"):
            more = {"show": ["latest"], "ls": ["latest"], "create": [self.path("other")]}.get(word, [])
            self.fails(74, "backup", word, *more, "--repo", "nowhere", says=["nowhere", "sluice backup init"])
            self.fails(74, "backup", word, *more, "--repo", "file", says="file is not a folder")
            self.fails(74, "backup", word, *more, "--repo", "folder", says=["folder is not a repository", "sluice backup init"])
            self.fails(64, "backup", word, *more, says=["--repo", "SLUICE_BACKUP_REPO"])
        self.assertEqual(os.listdir(self.path("folder")), [])

    def test_the_environment_names_it(self):
        self.init()
        self.env["SLUICE_BACKUP_REPO"] = self.repo
        self.write("f", b"f")
        self.ok("backup", "create", "f")
        self.assertEqual(len(self.ok("backup", "list", "--json").json()), 1)
        self.fails(74, "backup", "list", "--repo", "other", says="other")

    def test_mistyped_options_get_the_nearest_as_a_suggestion(self):
        for word, wrong, right in [("create", "--exlude", "--exclude"), ("forget", "--keep-dayly", "--keep-daily"),
                                   ("restore", "--overwite", "--overwrite"), ("check", "--read-dta", "--read-data")]:
            self.fails(64, "backup", word, wrong, "x", says=f"did you mean '{right}'?")
        self.fails(64, "backup", "frob", says="frob")
        self.fails(64, "backup", says="no command")

    def test_a_path_that_is_not_there_is_reported_before_anything_is_stored(self):
        self.init()
        before = files_of(self.repo)
        self.refuses(74, "create", "/no/such/path", says="/no/such/path")
        self.assertEqual(files_of(self.repo), before)
        self.fails(64, "backup", "create", "x", "--level", "20", "--repo", self.repo, says="1 to 19")
        self.fails(64, "backup", "create", "x", "--tag", "", "--repo", self.repo, says="--tag")

    def test_a_later_version_is_refused(self):
        self.init()
        self.change_config('"version":1', '"version":2')
        self.refuses(78, "list", says="version")


class Passphrases(BackupTest):
    def secret(self, name, text, mode=0o600):
        path = self.write(name, text)
        os.chmod(path, mode)
        return path

    def init_secret(self, text=b"correct horse\n"):
        return self.ok("backup", "init", self.repo, "--passphrase-file", self.secret("pass", text))

    def test_a_file_opens_it_with_or_without_the_end_of_a_line(self):
        r = self.init_secret()
        self.assertIn("without it the backups cannot be read", r.text)
        self.write("f", b"hidden words, many of them " * 100)
        self.ok("backup", "create", self.path("f"), "--repo", self.repo, "--passphrase-file", "pass")
        self.env["SLUICE_PASSPHRASE_FILE"] = self.secret("same", b"correct horse")
        self.assertEqual(len(self.backup("list", "--json").json()), 1)
        everything = b"".join(open(p, "rb").read() for p in files_of(self.repo))
        for word in (b"hidden words", b"correct horse", os.path.basename(self.dir).encode()):
            self.assertNotIn(word, everything)

    def test_files_that_are_wrong_are_status_78_and_never_shown(self):
        self.init_secret()
        os.symlink("pass", self.path("link"))
        os.mkfifo(self.path("pipe"), 0o600)
        for name, says in [(self.secret("open", b"correct horse", 0o640), "chmod 600"), (self.secret("empty", b""), "empty"),
                           (self.secret("line", b"\n"), "empty"), (self.secret("long", b"x" * 5000), "too long"),
                           (self.path("link"), "symbolic link"), (self.path("pipe"), "regular file"),
                           (self.path("none"), "No such file"), (self.dir, "regular file")]:
            with self.subTest(name=name):
                r = self.refuses(78, "list", "--passphrase-file", name, says=says)
                self.assertNotIn("correct horse", r.errors)
        self.refuses(78, "list", "--passphrase-file", self.secret("wrong", b"wrong horse"), says="passphrase")

    def test_without_a_file_and_a_terminal_the_error_names_what_to_give(self):
        self.init_secret()
        r = self.refuses(78, "list", says=["no terminal", "--passphrase-file", "SLUICE_PASSPHRASE_FILE"])
        self.one_line(r)
        r = self.fails(78, "backup", "init", self.path("new"), says="no terminal")
        self.assertFalse(os.path.exists(self.path("new")))

    def test_a_plain_repository_needs_none_and_is_refused_with_one(self):
        self.init()
        self.backup("list")
        self.refuses(78, "list", "--passphrase-file", self.secret("pass", b"correct horse\n"), says=["not encrypted", "--passphrase-file"])
        self.env["SLUICE_PASSPHRASE_FILE"] = self.path("pass")
        self.one_line(self.refuses(78, "list", says=["not encrypted", "SLUICE_PASSPHRASE_FILE"]))
        self.env["SLUICE_PASSPHRASE_FILE"] = ""
        self.backup("list")
        self.fails(64, "backup", "init", self.path("new"), "--plain", "--passphrase-file", "pass", says="--plain")
        self.assertFalse(os.path.exists(self.path("new")))

    def test_a_config_that_was_changed_to_plain_makes_no_run_write_unsealed(self):
        self.init_secret()
        self.write("f", b"hidden words, many of them " * 100)
        self.change_config('"encrypted":true', '"encrypted":false')
        before = files_of(self.repo)
        self.refuses(78, "create", self.path("f"), "--passphrase-file", "pass", says="its config was changed")
        self.refuses(78, "create", self.path("f"), says="has keys")  # nor who would be asked on a terminal
        self.assertEqual(files_of(self.repo), before)
        shutil.rmtree(os.path.join(self.repo, "keys"))
        shutil.rmtree(os.path.join(self.repo, "copies", "keys"))
        self.refuses(78, "create", self.path("f"), "--passphrase-file", "pass", says="its config was changed")

    def test_it_is_changed_and_the_old_one_opens_no_more(self):
        self.init_secret()
        self.write("f", b"f")
        self.backup("create", self.path("f"), "--passphrase-file", "pass")
        new = self.secret("new", b"another \xff one\n")
        r = self.backup("passphrase", "--passphrase-file", "pass", "--new-passphrase-file", new)
        self.assertIn("changed", r.text)
        self.refuses(78, "list", "--passphrase-file", "pass", says="passphrase")
        self.assertEqual(len(self.backup("list", "--json", "--passphrase-file", new).json()), 1)
        self.refuses(78, "passphrase", "--passphrase-file", new, says="--new-passphrase-file")
        self.refuses(78, "passphrase", "--passphrase-file", new, "--new-passphrase-file", self.secret("e", b""), says="empty")

    def on_terminal(self, *args, answers=(), interrupt=False):
        """(code, what the terminal showed) of a command whose terminal answers each question."""
        pid, leader = pty.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as in clitest: a run in the background has it ignored
            os.chdir(self.dir)
            os.execve(SLUICE, [SLUICE, *args], {**self.env, "TERM": "dumb"})
        text, asked = b"", 0
        try:
            while True:
                chunk = os.read(leader, 4096)
                if not chunk:
                    break
                text += chunk
                if text.endswith(b": ") and asked < len(answers):
                    # Only what is typed after the echo is off counts: typed ahead would be thrown away.
                    self.assertFalse(termios.tcgetattr(leader)[3] & termios.ECHO)
                    os.write(leader, answers[asked] + b"\n")
                    asked += 1
                elif text.endswith(b": ") and interrupt:
                    interrupt = False
                    os.kill(pid, signal.SIGINT)
        except OSError:
            pass
        echo = termios.tcgetattr(leader)[3] & termios.ECHO
        _, status = os.waitpid(pid, 0)
        os.close(leader)
        self.assertTrue(echo)
        return os.waitstatus_to_exitcode(status), text.decode()

    def test_it_is_asked_for_on_a_terminal_without_an_echo(self):
        code, text = self.on_terminal("backup", "init", self.repo, answers=[b"typed horse", b"typed horse"])
        self.assertEqual(code, 0, text)
        self.assertNotIn("typed horse", text)
        code, text = self.on_terminal("backup", "list", "--repo", self.repo, answers=[b"typed horse"])
        self.assertEqual(code, 0, text)
        code, text = self.on_terminal("backup", "list", "--repo", self.repo, answers=[b"other horse"])
        self.assertEqual(code, 78, text)

    def test_a_new_one_that_is_not_the_same_twice_makes_nothing(self):
        code, text = self.on_terminal("backup", "init", self.repo, answers=[b"one", b"two"])
        self.assertEqual(code, 78)
        self.assertIn("differ", text)
        code, text = self.on_terminal("backup", "init", self.repo, answers=[b""])
        self.assertEqual((code, "empty" in text), (78, True))
        self.assertFalse(os.path.exists(self.repo))

    def test_a_signal_at_the_question_gives_the_echo_back(self):
        self.init_secret()
        code, text = self.on_terminal("backup", "list", "--repo", self.repo, interrupt=True)
        self.assertEqual((code, "interrupted" in text), (75, True))


class Progress(BackupTest):
    def shown(self, *args, **env):
        """What a terminal as standard error gets."""
        leader, follower = pty.openpty()
        p = subprocess.Popen([SLUICE, "backup", *args, "--repo", self.repo], stderr=follower, stdout=subprocess.DEVNULL,
                             stdin=subprocess.DEVNULL, env={**self.env, "TERM": "xterm", **env}, cwd=self.dir)
        os.close(follower)
        text = b""
        try:
            while chunk := os.read(leader, 65536):
                text += chunk
        except OSError:
            pass
        self.assertEqual(p.wait(), 0, text)
        os.close(leader)
        return text.decode()

    def test_a_terminal_sees_a_bar_with_bytes_files_rate_and_writes(self):
        self.init()
        lines = b"".join(b"line %d of a text that compresses slowly %d\n" % (i, i * 7919 % 10007) for i in range(200_000))
        self.write("text", lines)
        text = self.shown("create", "text", "--level", "15", "--threads", "1")
        self.assertIn("\r", text)
        self.assertRegex(text, r"1 of 1 files?|0 of 1 files?|\d files?")
        self.assertRegex(text, r"[KMG]iB/s")
        self.assertIn(" written", text)
        self.assertRegex(text, r"\d/\d writes")
        quiet = self.shown("create", "text", "--level", "15", "--threads", "1", "--force", "--quiet")
        self.assertEqual(quiet, "")

if __name__ == "__main__":
    main()
