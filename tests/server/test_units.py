# SPDX-License-Identifier: Apache-2.0
"""What the units of the Debian package promise, as far as their text says it; tests/deb/boot runs them."""

import os
import re
import unittest

import servertest

DEBIAN = os.path.join(servertest.ROOT, "debian")


def read(name):
    with open(os.path.join(DEBIAN, name), encoding="utf-8") as f:
        return f.read()


def unit(name):
    """{setting: [values]} of a unit."""
    settings = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", read(name), re.M):
        settings.setdefault(name, []).append(value)
    return settings


class Units(unittest.TestCase):
    server, worker = unit("sluice.sluice-server.service"), unit("sluice.sluice-worker@.service")

    def test_worker_and_server_run_as_different_users_in_folders_of_their_own(self):
        users = [u["User"][0] for u in (self.server, self.worker)]
        self.assertEqual(len(set(users)), 2, users)
        for u in (self.server, self.worker):
            self.assertEqual(u["Group"], u["User"])
            self.assertNotIn("SupplementaryGroups", u)
            self.assertEqual(u["StateDirectory"], u["User"])
            # Closed to the other: not even its names can be listed.
            self.assertEqual(u["StateDirectoryMode"][0][-1], "0")
            self.assertIn(f"u {u['User'][0]} ", read("sluice.sysusers"))
            self.assertRegex(read("sluice.tmpfiles"),
                             rf"(?m)^d /var/lib/{u['User'][0]} 07[05]0 {u['User'][0]} {u['User'][0]} -$")
        folder = "/var/lib/" + self.worker["StateDirectory"][0]
        self.assertEqual(self.worker["WorkingDirectory"], [folder])
        self.assertIn(f"--wal={folder}/", self.worker["ExecStart"][0])

    def test_the_passwords_of_a_worker_are_closed_to_its_commands(self):
        self.assertEqual(self.worker["EnvironmentFile"], ["/etc/sluice/workers/%i.env"])
        self.assertIn("chmod 0600 debian/sluice/etc/sluice/workers/default.env", read("rules"))

    def test_a_busy_store_is_tried_again_and_a_wrong_configuration_is_not(self):
        for u in (self.server, self.worker):
            self.assertEqual(u["Restart"], ["on-failure"])
            self.assertEqual(u["RestartForceExitStatus"], ["75"])
            self.assertEqual(u["StartLimitIntervalSec"], ["0"])
            self.assertEqual(u["RestartPreventExitStatus"], ["64 78"])

    def test_the_drop_in_for_a_sqlite_store_separates_commands_from_the_store(self):
        drop_in = unit("run-as.conf")
        self.assertEqual((drop_in["User"], drop_in["Group"]), (self.server["User"], self.server["Group"]))
        # What --run-as needs, and nothing else.
        needed = {"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}
        self.assertEqual(set(drop_in["AmbientCapabilities"][0].split()), needed)
        self.assertEqual(set(drop_in["CapabilityBoundingSet"][0].split()), needed)
        self.assertEqual(drop_in["StateDirectoryMode"], ["0700"])
        self.assertRegex(read("sluice.sysusers"), r"(?m)^u sluice-job ")
        self.assertIn("--run-as sluice-job", read("run-as.conf"))
        self.assertIn("debian/run-as.conf", read("sluice.examples"))
        # Nothing of the unit itself forbids the change of the user.
        for setting in ("SystemCallFilter", "PrivateUsers", "CapabilityBoundingSet"):
            self.assertNotIn(setting, self.worker)

    def test_memory_is_bounded(self):
        for u in (self.server, self.worker):
            self.assertRegex(u["MemoryMax"][0], r"^\d+[GM%]$")


if __name__ == "__main__":
    servertest.main()
