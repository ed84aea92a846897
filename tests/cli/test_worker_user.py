# SPDX-License-Identifier: Apache-2.0
"""Commands that run as another user than their worker (--run-as): who they are, what they cannot reach, how they end."""

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile
import unittest

import jobtest
from clitest import TIMEOUT
from jobtest import SLUICE, JobTest, alive

NOBODY = pwd.getpwnam("nobody")
# A user id that no account has, for a worker that is neither root nor the user of its commands.
OTHER = 64999
CAPABILITIES = "+setuid,+setgid,+kill"


@unittest.skipUnless(os.getuid() == 0, "needs root to run commands as another user")
class RunAs(JobTest):
    def setUp(self):
        super().setUp()
        # Where the commands can be found and may write, unlike the worker's own folder.
        self.shared = tempfile.mkdtemp(prefix="sluice-shared-")
        self.addCleanup(shutil.rmtree, self.shared)
        os.chmod(self.shared, 0o777)
        self.wal = self.path("wal")

    def at(self, name):
        return os.path.join(self.shared, name)

    def command(self, text):
        path = self.at("t.sh")
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return [f"--type=t={shlex.quote(path)}", f"--wal={self.wal}", "--run-as=nobody"]

    def until_shared(self, name):
        self.until(lambda: os.path.exists(self.at(name)) and os.path.getsize(self.at(name)) > 0)
        with open(self.at(name), encoding="utf-8") as f:
            return f.read().split()

    def lines(self, text):
        """What a command of this text prints."""
        chain = self.enqueue("t")
        self.drain(*self.command(text), "--max-attempts=1")
        self.assertEqual(self.show(chain)["status"], "completed", self.show(chain)["error"])
        return self.logs(chain).decode().splitlines()

    def test_a_command_that_the_user_cannot_execute_is_refused_at_the_start(self):
        hidden = self.script("hidden.sh", "true")  # in the worker's own folder, which has mode 0700
        for command in (hidden, self.at("missing")):
            self.fails(64, "worker", "--drain", f"--type=t={command}", *self.command("true")[1:],
                       says=("--type t: ", command, " as user "))

    WHO = r"""grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapAmb):' /proc/self/status
echo "$HOME $USER $LOGNAME"; echo "session $(cut -d' ' -f6 /proc/self/stat) $$"
"""

    def is_nobody(self, lines):
        found = dict(line.split(":", 1) for line in lines if ":" in line)
        self.assertEqual(found["Uid"].split(), [str(NOBODY.pw_uid)] * 4)
        self.assertEqual(found["Gid"].split(), [str(NOBODY.pw_gid)] * 4)
        groups = os.getgrouplist("nobody", NOBODY.pw_gid)
        self.assertEqual(sorted(int(g) for g in found["Groups"].split()), sorted(groups))
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(int(found[name], 16), 0, name)
        self.assertIn(f"{NOBODY.pw_dir} nobody nobody", lines)
        # No terminal of the worker's can be reached from its own session.
        session = next(line.split() for line in lines if line.startswith("session"))
        self.assertEqual(session[1], session[2])

    def other_worker(self, *args, capabilities=CAPABILITIES):
        """A worker as the drop-in of the unit has it: of a user that is neither root nor that of the commands, with the
        capabilities that it needs and no others to be had."""
        for folder, _, names in os.walk(self.dir):
            for path in [folder, *(os.path.join(folder, n) for n in names)]:
                os.chown(path, OTHER, OTHER)
        caps = [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"] if capabilities else []
        p = subprocess.Popen(["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--groups=0,4", "--no-new-privs",
                              f"--bounding-set=-all,{CAPABILITIES}", *caps, SLUICE, "worker", "--retry-delay=10ms",
                              "--max-attempts=1", *args],
                             cwd=self.dir, env=self.env | {"HOME": self.dir}, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.communicate)
        self.addCleanup(p.kill)
        return p

    def drain_other(self, *args, code=0, **more):
        """What such a worker says on stderr when it ends with this code."""
        p = self.other_worker("--drain", *args, **more)
        _, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, code, err)
        return err

    def test_a_command_has_the_ids_and_groups_of_its_user_and_no_capabilities(self):
        groups = os.getgroups()
        self.addCleanup(os.setgroups, groups)
        os.setgroups([0, 4])  # of the worker's, the command keeps none
        self.is_nobody(self.lines(self.WHO))

    def test_a_worker_that_is_not_root_needs_three_capabilities_and_leaves_its_command_none(self):
        chain = self.enqueue("t")
        self.drain_other(*self.command(self.WHO))
        self.is_nobody(self.logs(chain).decode().splitlines())

    def test_a_worker_without_the_capabilities_does_not_start(self):
        chain = self.enqueue("t")
        for capabilities, missing in [(None, "CAP_SETUID CAP_SETGID CAP_KILL"), ("+setuid,+setgid", "without CAP_KILL;"),
                                      ("+setuid,+kill", "without CAP_SETGID;")]:
            with self.subTest(capabilities=capabilities):
                err = self.drain_other(*self.command("true"), code=78, capabilities=capabilities)
                self.assertIn("run_as", err)
                self.assertIn(missing, err)
        self.assertEqual(self.attempts(chain), [])

    def test_a_user_that_is_unknown_or_separates_nothing_is_64(self):
        chain = self.enqueue("t")
        for user, says in [("no-such-user", 'run_as: no user "no-such-user"'), ("root", "is root"), ("", "missing user")]:
            with self.subTest(user=user):
                self.fails(64, "worker", "--drain", "--type=t=true", f"--run-as={user}", says=says)
        self.assertEqual(self.attempts(chain), [])

    def test_a_command_cannot_reach_store_log_spool_token_or_the_worker(self):
        self.write("token", b"secret")
        os.chmod(self.path("token"), 0o600)
        # As open as it gets: the files' own modes must do.
        os.chmod(self.dir, 0o755)
        lines = self.lines(f"""for f in {self.path('jobs.db')} {self.path('jobs.db')}-wal {self.path('token')}; do
  cat "$f" >/dev/null 2>&1 && echo "reached $f"
  (: >>"$f") 2>/dev/null && echo "wrote $f"
done
ls {self.wal} >/dev/null 2>&1 && echo reached the log
worker=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status)
for p in $PPID $worker; do
  cat /proc/$p/environ >/dev/null 2>&1 && echo "reached environ of $p"
  ls /proc/$p/fd/ >/dev/null 2>&1 && echo "reached descriptors of $p"
  kill -0 $p 2>/dev/null && echo "may signal $p"
done
readlink /proc/$$/fd/* | sed 's/^/fd /'
[ -e {self.path('jobs.db')} ] && [ -d {self.wal} ] && echo all are there
""")
        self.assertIn("all are there", lines)
        # Its input, its output, the leash, and the script that the shell reads: nothing of the worker's.
        fds = [line for line in lines if line.startswith("fd ")]
        self.assertGreaterEqual(len(fds), 5)
        for fd in fds:
            self.assertRegex(fd, rf"^fd (pipe:|/memfd:sluice-input|{self.shared}/t\.sh$)")
        self.assertEqual([line for line in lines if not line.startswith("fd ")], ["all are there"])

    def test_its_folder_is_the_workers_only_where_its_user_may_go(self):
        os.chmod(self.dir, 0o700)
        self.assertEqual(self.lines("pwd"), ["/"])
        # Open itself, in a folder that is closed: not by a working folder that was inherited.
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        chain = self.enqueue("t")
        r = subprocess.run([SLUICE, "worker", "--drain", *self.command("pwd")], cwd=self.path("open"), env=self.env,
                           capture_output=True, timeout=TIMEOUT, check=False)
        self.assertEqual((r.returncode, self.logs(chain)), (0, b"/\n"), r.stderr)
        os.chmod(self.dir, 0o755)
        self.assertEqual(self.lines("pwd"), [os.path.realpath(self.dir)])

    def test_output_descriptor_3_and_the_exit_code_arrive(self):
        chain = self.enqueue("t", '{"a":1}')
        self.drain(*self.command("""cat; echo; echo out >/dev/stdout; echo err >/dev/stderr
cat /dev/stdin >/dev/null; echo '{"output":7}' >/dev/fd/3"""), "--max-attempts=1")
        self.assertEqual(sorted(self.logs(chain).decode().split()), ["err", "out", '{"a":1}'])
        self.assertEqual(self.chain(chain)["output"], 7)
        chain = self.enqueue("t")
        self.drain(*self.command("echo no >&2; exit 3"), "--max-attempts=1")
        self.assertIn("exit code 3: no", self.show(chain)["error"])

    STUBBORN = "trap '' TERM\nsh -c 'trap \"\" TERM; echo $$ >>%s; while :; do sleep 0.1; done' &\necho $$ >%s\nwait\nwait\n"

    def stubborn(self):
        return self.command(self.STUBBORN % (self.at("child"), self.at("pid")))

    def pids(self):
        return [int(p) for name in ("pid", "child") for p in self.until_shared(name)]

    def test_a_timeout_kills_a_command_that_ignores_sigterm_with_its_children(self):
        chain = self.enqueue("t")
        worker = self.worker(*self.stubborn(), "--timeout=3s", "--kill-grace=100ms", "--max-attempts=1")
        pids = self.pids()
        self.assertEqual(os.stat(f"/proc/{pids[1]}").st_uid, NOBODY.pw_uid)
        self.until_status(chain, "failed")
        self.until(lambda: not any(alive(p) for p in pids))
        self.end(worker)

    def test_a_worker_with_three_capabilities_kills_it_too(self):
        chain = self.enqueue("t")
        self.drain_other(*self.stubborn(), "--timeout=3s", "--kill-grace=100ms")
        self.assertEqual(self.show(chain)["status"], "failed")
        pids = self.pids()
        self.until(lambda: not any(alive(p) for p in pids))

    def kill_with_minder(self, worker):
        """Both at the same time; the kernel alone is left to end the command and its child."""
        pids = self.pids()
        with open(f"/proc/{pids[0]}/stat", encoding="ascii") as f:
            minder = int(f.read().rpartition(")")[2].split()[1])
        os.kill(minder, signal.SIGSTOP)
        worker.kill()
        os.kill(minder, signal.SIGKILL)
        worker.communicate(timeout=TIMEOUT)
        self.until(lambda: not any(alive(p) for p in pids))

    def test_a_killed_worker_and_minder_take_the_command_along(self):
        self.enqueue("t")
        self.kill_with_minder(self.worker(*self.stubborn()))

    def test_a_killed_worker_with_three_capabilities_takes_it_along_too(self):
        self.enqueue("t")
        self.kill_with_minder(self.other_worker(*self.stubborn()))


if __name__ == "__main__":
    jobtest.main()
