# SPDX-License-Identifier: Apache-2.0
"""What a core of a process would show: its memory, as the system lets its owner read it."""

import re


def readable(pid):
    """Each range of the process's memory: its line of the map, and its bytes."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb") as mem:
        for line in maps:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if not m or line.rstrip().endswith(("[vvar]", "[vsyscall]")):
                continue
            low, high = int(m[1], 16), int(m[2], 16)
            if high - low > 1 << 32:
                continue  # a sanitizer's notes, terabytes of them
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
