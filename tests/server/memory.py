# SPDX-License-Identifier: Apache-2.0
"""What root can read of a process: its memory, but for the stacks of its threads.

Buffers that held a token are wiped. Registers, and what the compiler saved of them on a stack, are not: other processes
of the same user cannot read the server's memory at all (PR_SET_DUMPABLE), and it leaves no core."""

import contextlib
import os
import re
import subprocess
import sys
import time


def stack_pointers(pid):
    """Of every thread; one that is running is asked again when it waits."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        words, end = ["running"], time.monotonic() + 60
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            while words == ["running"] and time.monotonic() < end:
                with open(f"/proc/{pid}/task/{thread}/syscall", encoding="ascii") as f:
                    words = f.read().split()
        if len(words) > 2:
            yield int(words[-2], 16)


def readable(pid):
    """Each range of the process's memory: its line of the map, and its bytes."""
    stacks = list(stack_pointers(pid))
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb") as mem:
        for line in maps:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if not m or line.rstrip().endswith(("[vvar]", "[vsyscall]")):
                continue
            low, high = int(m[1], 16), int(m[2], 16)
            if high - low > 1 << 32:
                continue  # a sanitizer's shadow memory, terabytes of it
            if any(low <= p < high for p in stacks):
                continue
            try:
                mem.seek(low)
                yield line.strip(), mem.read(high - low)
            except OSError:
                continue  # a guard page


def memory_find(pid, needles):
    """Which of these bytes are in the process's memory, each with the first place where it is."""
    found = {}
    for line, data in readable(pid):
        for needle in needles:
            if needle not in found and needle in data:
                found[needle] = line
    return found


def memory_has(pid, needle):
    """Where the process has these bytes in its memory; None: nowhere."""
    return memory_find(pid, [needle]).get(needle)


# A command before which root is a user like any other: who has all privileges may read everything.
PLAIN_USER = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.getuid() == 0 else []


def same_user_reads(pid):
    """Which files about the memory of a process, started with PLAIN_USER, another process of its user can open."""
    probe = """import sys
for name in ("environ", "maps", "mem"):
    try:
        with open(f"/proc/{sys.argv[1]}/{name}", "rb"):
            print(name)
    except PermissionError:
        pass
"""
    args = [*PLAIN_USER, sys.executable, "-c", probe, str(pid)]
    return set(subprocess.run(args, check=True, capture_output=True, text=True).stdout.split())
