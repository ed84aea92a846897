# SPDX-License-Identifier: Apache-2.0
"""What the tests of `sluice backup` share: a tree with one of everything, and a repository."""

import glob
import hashlib
import os
import stat

from clitest import CliTest


def files_of(folder):
    return sorted(p for p in glob.glob(os.path.join(folder, "**"), recursive=True) if os.path.isfile(p))


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1]))


class BackupTest(CliTest):
    """Repositories are plain unless a test is about passphrases: making a key from one is slow on purpose."""

    def setUp(self):
        super().setUp()
        for name in ("SLUICE_BACKUP_REPO", "SLUICE_PASSPHRASE_FILE", "SLUICE_SERVER_DATA"):
            self.env.pop(name, None)
        self.repo = self.path("repo")

    def init(self):
        self.ok("backup", "init", self.repo, "--plain")

    def backup(self, word, *args, **more):
        return self.ok("backup", word, *args, "--repo", self.repo, **more)

    def refuses(self, code, word, *args, **more):
        return self.fails(code, "backup", word, *args, "--repo", self.repo, **more)

    def create(self, *args, **more):
        """The id of a new snapshot."""
        text = self.backup("create", *args, **more).text
        self.assertRegex(text, r"^[0-9a-f]{32}\n$")
        return text.strip()

    def snapshots(self):
        return [s["snapshot"] for s in self.backup("list", "--json").json()]

    def change_config(self, old, new):
        """In both places, with the checksum that belongs to it: as a person who knows the format would."""
        with open(os.path.join(self.repo, "config"), encoding="utf-8") as f:
            text = f.read()
        self.assertIn(old, text)
        changed = text[:text.index(',"check"')].replace(old, new)
        changed += ',"check":"%s"}' % hashlib.sha256(changed.encode()).hexdigest() + text[text.rindex("}") + 1:]
        for name in ("config", "copies/config"):
            with open(os.path.join(self.repo, name), "w", encoding="utf-8") as f:
                f.write(changed)

    def tree(self, name="tree"):
        """A folder with files, folders, links, odd modes and times, a hole, and a name that is not UTF-8."""
        root = self.path(name)
        os.makedirs(os.path.join(root, "a", "b"))
        self.write(f"{name}/a/one", b"one\n")
        self.write(f"{name}/a/b/big", bytes(i * i % 251 for i in range(300_000)))
        self.write(f"{name}/empty", b"")
        self.write(f"{name}/run", b"#!/bin/sh\n")
        os.chmod(os.path.join(root, "run"), 0o755)
        os.symlink("../outside", os.path.join(root, "a", "link"))
        os.link(os.path.join(root, "a", "one"), os.path.join(root, "hard"))
        os.mkfifo(os.path.join(root, "pipe"))
        with open(os.path.join(root, "hole"), "wb") as f:
            f.truncate(1 << 20)
            f.seek(1 << 19)
            f.write(b"in the middle")
        with open(os.path.join(os.fsencode(root), b"latin-\xe4"), "wb") as f:
            f.write(b"\xe4")
        os.utime(os.path.join(root, "run"), ns=(1, 1_000_000_001))
        os.chmod(os.path.join(root, "a", "b"), 0o750)
        return root

    def picture(self, root):
        """Everything that a restore must give back, by path."""
        out = {}
        for folder, folders, files in os.walk(os.fsencode(root)):
            for name in folders + files:
                path = os.path.join(folder, name)
                s = os.lstat(path)
                what = (stat.S_IFMT(s.st_mode), stat.S_IMODE(s.st_mode), s.st_uid, s.st_gid, s.st_mtime_ns)
                if stat.S_ISREG(s.st_mode):
                    with open(path, "rb") as f:
                        what += (f.read(), s.st_nlink)
                elif stat.S_ISLNK(s.st_mode):
                    what += (os.readlink(path),)
                out[os.path.relpath(path, os.fsencode(root))] = what
        return out

    def restored(self, to, *original):
        """Where a path of the tests' folder is below the target of a restore."""
        return os.path.join(to, os.path.join(*original).lstrip("/"))
