# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces with a cable between them, and a PostgreSQL or HTTP server in one of the two.

Needs the right to make namespaces (root); why_not() says what is missing.
"""

import os
import shutil
import subprocess
import sys
import tempfile

from clitest import ROOT

SERVER, CLIENT = "10.213.8.1", "10.213.8.2"


def ip(*args):
    return subprocess.run(["ip", *args], capture_output=True, text=True, check=False)


def why_not():
    """Why there can be no namespaces here; None when there can."""
    if not shutil.which("ip"):
        return "there is no ip command (Debian package iproute2)"
    name = f"sluice-probe-{os.getpid()}"
    r = ip("netns", "add", name)
    if r.returncode == 0:
        r = ip("-n", name, "link", "add", "name", "a", "type", "veth", "peer", "name", "b")
        ip("netns", "delete", name)
    return f"network namespaces are not permitted here: {r.stderr.strip()}" if r.returncode else None


class Network:
    def __init__(self):
        self.server, self.client = (f"sluice-{os.getpid()}-{side}" for side in ("server", "client"))
        for name in (self.server, self.client):
            self.do("netns", "add", name)
            self.do("-n", name, "link", "set", "lo", "up")
        self.do("-n", self.server, "link", "add", "name", "cable", "type", "veth", "peer", "name", "cable", "netns", self.client)
        for name, address in ((self.server, SERVER), (self.client, CLIENT)):
            self.do("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            self.do("-n", name, "link", "set", "cable", "up")

    def do(self, *args):
        r = ip(*args)
        if r.returncode:
            raise AssertionError(f"ip {' '.join(args)}: {r.stderr}")

    def pull(self):
        """Nothing gets through any more, and no error is reported."""
        self.do("-n", self.server, "link", "set", "cable", "down")

    def plug(self):
        self.do("-n", self.server, "link", "set", "cable", "up")

    def swallow_replies(self):
        """What the client says arrives, and no answer comes back."""
        self.do("-n", self.server, "route", "add", "blackhole", f"{CLIENT}/32")

    def let_replies_through(self):
        self.do("-n", self.server, "route", "delete", "blackhole", f"{CLIENT}/32")

    def under(self):
        """The words before a command that run it on the client's side."""
        return ["ip", "netns", "exec", self.client]

    def remove(self):
        for name in (self.server, self.client):
            ip("netns", "delete", name)


class Server:
    """PostgreSQL on the server's side: by its address, and by a unix socket from anywhere."""

    def __init__(self, network):
        self.folder = tempfile.mkdtemp(prefix="sluice-hba-")
        os.chmod(self.folder, 0o755)
        hba = os.path.join(self.folder, "pg_hba.conf")
        with open(hba, "w", encoding="ascii") as f:
            f.write("local all all trust\nhost all all samenet trust\n")
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", network.server, os.path.join(ROOT, "tests", "support", "pg-temp"), "--no-fsync",
             "--set", "listen_addresses=*", "--set", f"hba_file={hba}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.socket_url = self.process.stdout.readline().strip()
        # Over the cable, with timeouts that are worth waiting for; a busy machine may take its time to greet.
        self.cable_url = f"postgres://postgres@{SERVER}/postgres?connect_timeout=10&tcp_user_timeout=2000"
        if not self.socket_url:
            raise AssertionError(f"no PostgreSQL server: pg-temp ended with {self.process.wait()}")

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class HttpServer:
    """tests/sink/http_server.py on the server's side; its commands do not go over the cable."""

    def __init__(self, network):
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", network.server, sys.executable, os.path.join(ROOT, "tests", "sink", "http_server.py"),
             "--on", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://{SERVER}:{self.process.stdout.readline().strip()}/in"

    def command(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def counts(self):
        """Connections, requests, batches taken, batches seen before."""
        return [int(n) for n in self.command("counts").split()]

    def ids(self):
        return [int(n) for n in self.command("ids").split()]

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
