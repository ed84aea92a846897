#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice load with inputs that take a while."""

import os
import resource

from clitest import SLUICE, main
from loadtest import LoadTest


class Long(LoadTest):
    def test_a_line_of_four_gigabytes_costs_itself_only(self):
        """More than 32 bits count, from a file that has holes, in a process that has little of it in memory."""
        to = self.table("CREATE TABLE t (id INTEGER)")
        size = 4 * 1024**3 + 12345
        with open(self.path("a.jsonl"), "wb") as f:
            f.write(b'{"id":1}\n')
            f.seek(size)
            f.write(b'\n{"id":2}\nx\n{"id":3}\n')
        r = self.sluice("load", "a.jsonl", *to, "--wal", "wal")
        self.assertEqual(r.code, 65, r.err)
        self.assertEqual(self.rows("SELECT id FROM t ORDER BY id"), [(1,), (2,), (3,)])
        long, bad = self.letters()
        self.assertEqual((long["line"], long["code"], long["payload"]), (2, "ETOOBIG", b"\0" * 4096))
        self.assertEqual((bad["line"], bad["payload"]), (4, b"x"))
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.assertLess(used, 200000)
        print(f"# {size} bytes, {os.path.basename(SLUICE)} held at most {used} KiB", flush=True)


if __name__ == "__main__":
    main()
