# SPDX-License-Identifier: Apache-2.0
"""What a core of a process would show: its memory, as the system lets its owner read it."""

import re


def memory_has(pid, needle):
    """Where the process has these bytes in its memory: a line of its map; None: nowhere."""
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
                if needle in mem.read(high - low):
                    return line.strip()
            except OSError:
                continue  # a guard page
    return None
