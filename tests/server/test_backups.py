# SPDX-License-Identifier: Apache-2.0
"""Servers that show a repository of backups: its snapshots, checks, what goes wrong with it, and no secrets."""

import glob
import json
import os

import servertest
from openapi import Api, Document
from servertest import ServerTest, ask

DOCUMENT = Document.of_source()
PASSPHRASE = "this one is never shown"


class Backups(ServerTest):
    def setUp(self):
        super().setUp()
        for name in ("SLUICE_BACKUP_REPO", "SLUICE_PASSPHRASE_FILE"):
            self.env.pop(name, None)
        self.repo = self.path("backups")
        self.write("passphrase", PASSPHRASE.encode())
        os.mkdir(self.path("tree"))
        self.write("tree/file", b"contents\n" * 5000)

    def init(self, *args):
        self.ok("backup", "init", self.repo, *(args or ("--plain",)))

    def create(self, *args):
        return self.ok("backup", "create", self.path("tree"), "--repo", self.repo, *args).text.strip()

    def showing(self, *args):
        p = self.server("--store=" + self.store, f"--set=backup.repo={self.repo}", "--set=backup.refresh_interval_ms=100", *args,
                        command="server")
        p.api = Api(p.url, DOCUMENT)
        return p

    def until_seen(self, p, fits):
        return self.until(lambda: (b := p.api("GET", "/backups")) and fits(b) and b)

    def check(self, p, body=None):
        p.api("POST", "/backups/check", body, status=202)
        return self.until(lambda: (c := p.api("GET", "/backups/check"))["state"] != "running" and c)

    def test_snapshots_are_seen_soon_newest_first(self):
        self.init()
        first = self.create("--tag", "t")
        p = self.showing()
        seen = self.until_seen(p, lambda b: b["items"])
        self.assertEqual((seen["state"], seen["repo"], seen["error"]), ("ready", self.repo, None))
        item = seen["items"][0]
        self.assertEqual((item["id"], item["tags"], item["paths"], item["problems"]), (first, ["t"], [self.path("tree")], 0))
        self.assertEqual((item["bytes"], seen["newest_at"]), (45000, item["time"]))
        second = self.create()
        seen = self.until_seen(p, lambda b: len(b["items"]) == 2)
        self.assertEqual([i["id"] for i in seen["items"]], [second, first])
        self.assertEqual((seen["repository"]["snapshots"], seen["repository"]["encrypted"]), (2, False))
        self.assertEqual(self.metric(p, "sluice_server_backup_up"), 1)
        self.assertEqual(self.metric(p, "sluice_server_backup_snapshots"), 2)
        self.assertGreater(self.metric(p, "sluice_server_backup_newest_timestamp_seconds"), 1e9)
        self.ok("backup", "forget", first, "--repo", self.repo)
        self.until_seen(p, lambda b: len(b["items"]) == 1)
        self.end(p)

    def test_a_check_passes_and_names_what_is_damaged(self):
        self.init()
        self.create()
        p = self.showing()
        p.api.refused("GET", "/backups/check", status=404, says="has not checked")
        good = self.check(p)
        self.assertEqual((good["state"], good["findings"], good["read_data"], good["snapshots"]), ("passed", [], False, 1))
        self.assertEqual(p.api("GET", "/backups")["check"]["state"], "passed")
        victim = glob.glob(os.path.join(self.repo, "packs", "*", "*"))[0]
        os.chmod(victim, 0o600)
        with open(victim, "r+b") as f:
            f.seek(60)
            byte = f.read(1)[0]
            f.seek(60)
            f.write(bytes([byte ^ 1]))
        bad = self.check(p, {"read_data": True})
        self.assertEqual((bad["state"], bad["read_data"]), ("failed", True))
        self.assertTrue([f for f in bad["findings"] if os.path.basename(victim) in f["object"] and not f["harmless"]], bad)
        self.assertIn("backups.check", json.dumps(p.api("GET", "/audit", limit=5)["items"]))
        p.api.refused("POST", "/backups/check", {"all": True}, says="unknown field all")
        p.api.refused("POST", "/backups/check", {"read_data": 1}, says="read_data: must be true or false")
        self.end(p)

    def test_a_passphrase_opens_it_and_is_never_shown(self):
        self.init("--passphrase-file", self.path("passphrase"))
        self.create("--passphrase-file", self.path("passphrase"))
        p = self.showing(f"--set=backup.passphrase_file={self.path('passphrase')}", "--log-level=debug")
        seen = self.until_seen(p, lambda b: b["items"])
        self.assertTrue(seen["repository"]["encrypted"])
        self.assertEqual(self.check(p)["state"], "passed")
        said = json.dumps(seen) + ask(p.url, "metrics").body.decode()
        out, err = self.end(p)
        for text in (said, out.decode(), err.decode()):
            self.assertNotIn(PASSPHRASE, text)

    def test_a_plain_repository_is_refused_where_a_passphrase_is_configured(self):
        self.init()
        self.create()
        p = self.showing(f"--set=backup.passphrase_file={self.path('passphrase')}")
        told = self.until_seen(p, lambda b: b["state"] == "failed")
        self.assertIn("the repository is plain", told["error"])
        self.assertEqual(told["items"], [])
        self.end(p)

    def test_backup_failures_are_reported_and_the_server_keeps_serving(self):
        p = self.showing()  # nothing is there yet
        told = self.until_seen(p, lambda b: b["state"] == "failed")
        self.assertTrue(told["error"])
        self.assertIsNone(told["read_at"])
        self.until_ready(p)
        self.assertEqual(self.metric(p, "sluice_server_backup_up"), 0)
        self.assertEqual(self.check(p)["state"], "error")
        self.init()
        snapshot = self.create()
        seen = self.until_seen(p, lambda b: b["items"])
        self.assertEqual((seen["state"], seen["items"][0]["id"]), ("ready", snapshot))
        os.rename(self.repo, self.repo + ".away")
        told = self.until_seen(p, lambda b: b["state"] == "failed")
        self.assertEqual([i["id"] for i in told["items"]], [snapshot])  # as it was last seen
        os.rename(self.repo + ".away", self.repo)
        self.until_seen(p, lambda b: b["state"] == "ready")
        self.end(p)

    def test_an_encrypted_one_without_a_passphrase_says_which_setting_is_missing(self):
        self.init("--passphrase-file", self.path("passphrase"))
        p = self.showing()
        self.assertIn("backup.passphrase_file", self.until_seen(p, lambda b: b["error"])["error"])
        self.end(p)
        os.chmod(self.path("passphrase"), 0o644)
        p = self.showing(f"--set=backup.passphrase_file={self.path('passphrase')}")
        self.assertIn("chmod 600", self.until_seen(p, lambda b: b["error"])["error"])
        self.end(p)

    def test_a_damaged_snapshot_is_listed_beside_the_others(self):
        self.init()
        first, second = self.create(), self.create()
        for folder in ("snapshots", "copies/snapshots"):
            path = os.path.join(self.repo, folder, first)
            os.chmod(path, 0o600)
            with open(path, "r+b") as f:
                f.write(b"\0\0\0\0\0\0\0\0")
        p = self.showing()
        seen = self.until_seen(p, lambda b: b["read_at"])
        self.assertEqual([i["id"] for i in seen["items"]], [second])
        self.assertEqual((seen["damaged_total"], [d["id"] for d in seen["damaged"]]), (1, [first]))
        self.end(p)

    def test_a_server_without_one_says_so(self):
        p = self.server("--store=" + self.store, command="server")
        p.api = Api(p.url, DOCUMENT)
        seen = p.api("GET", "/backups")
        self.assertEqual((seen["configured"], seen["state"], seen["items"], seen["check"]), (False, "off", [], None))
        p.api.refused("GET", "/backups/check", status=404, says="set backup.repo")
        p.api.refused("POST", "/backups/check", status=404, says="set backup.repo")
        self.end(p)


if __name__ == "__main__":
    servertest.main()
