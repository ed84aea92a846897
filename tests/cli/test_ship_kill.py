# SPDX-License-Identifier: Apache-2.0
"""kill -9 of sluice ship at any moment, while writers write numbered lines and their files are rotated by rename, by
copytruncate, and several times in a row. At the end every line has arrived, and none of them twice; but of files that
are copied and truncated many times within a moment some lines may come twice or late."""

import collections
import os
import random
import shutil
import threading
import time

from clitest import main
from shiptest import ShipTest, seconds


class Writer(threading.Thread):
    """Writes "<name> <number>" lines, whole and in halves, and rotates its file."""

    def __init__(self, test, name, seed, copies, apart):
        super().__init__()
        self.test, self.name_, self.copies, self.apart, self.truncated, self.wrote = test, name, copies, apart, 0, 0
        self.random = random.Random(seed)
        self.path = test.path(name)
        self.over = threading.Event()
        self.lines = self.rotations = 0

    def rotated(self):
        self.rotations += 1
        return f"{self.path}-{time.time_ns():020d}"

    def rename(self, f):
        os.rename(self.path, self.rotated())
        for _ in range(self.random.randrange(3)):  # a writer that has not heard of it yet
            if time.monotonic() - self.wrote > 2:  # it stalled: by now the old file may count as left
                break
            self.write(f)
        f.close()
        return open(self.path, "ab", buffering=0)

    def copytruncate(self, f):
        if time.monotonic() - self.truncated < self.apart:
            return f
        shutil.copyfile(self.path, self.rotated())
        os.truncate(self.path, 0)
        self.truncated = time.monotonic()
        return f

    def write(self, f):
        self.lines += 1
        line = b"%s %d %s\n" % (self.name_.encode(), self.lines, b"x" * self.random.randrange(200))
        self.wrote = time.monotonic()
        cut = self.random.randrange(len(line)) if self.random.random() < 0.1 else 0
        if cut:
            f.write(line[:cut])
            time.sleep(0.001)
        f.write(line[cut:])

    def run(self):
        f = open(self.path, "ab", buffering=0)
        while not self.over.is_set():
            for _ in range(self.random.randrange(200)):
                self.write(f)
            time.sleep(self.random.random() * 0.01)
            how = self.random.random()
            if how < 0.06:
                f = self.copytruncate(f) if self.copies else self.rename(f)
            elif how < 0.08:
                for _ in range(3):
                    self.write(f)
                    f = self.copytruncate(f) if self.copies else self.rename(f)
        f.close()


class Killed(ShipTest):
    def args(self, to):
        return ("ship", "--log-level=info", "--follow", *(w.name_ for w in self.writers), "--stream=s", "--wal=wal", *to)

    def torture(self, to):
        """Kill it again and again; returns how often."""
        chance, kills = random.Random(self.seed), 0
        deadline = time.monotonic() + seconds(3)
        while time.monotonic() < deadline or kills < 4 or sum(w.rotations for w in self.writers) < 4:
            with open(self.path("err"), "ab") as err:
                p = self.start_with(err, *self.args(to))
            time.sleep(chance.random() ** 2 * 0.5)
            self.assertIsNone(p.poll(), self.said())
            self.kill(p)
            kills += 1
        return kills

    def check(self, to, arrived, copies, apart=0):
        self.seed = random.randrange(1 << 32)
        print(f"# seed {self.seed}", flush=True)
        self.writers = [Writer(self, name, self.seed + i, copies, apart) for i, name in enumerate(("a.log", "b.log", "c.log"))]
        for w in self.writers:  # a file that was never seen under its name is none of ours
            with open(w.path, "ab", buffering=0) as f:
                w.write(f)
        self.ok(*(a for a in self.args(to) if a != "--follow"))
        for w in self.writers:
            w.start()
        try:
            kills = self.torture(to)
        finally:
            for w in self.writers:
                w.over.set()
                w.join()
        self.ok(*(a for a in self.args(to) if a != "--follow"))
        found = collections.defaultdict(list)
        for line in arrived():
            self.assertRegex(line, r"^[abc]\.log [0-9]+ x*$", self.said()[-4000:])
            name, number, _ = line.split(" ")
            found[name].append(int(number))
        lines, rotations = sum(w.lines for w in self.writers), sum(w.rotations for w in self.writers)
        total = sum(len(v) for v in found.values())
        lost = sum(len(set(range(1, w.lines + 1)) - set(found[w.name_])) for w in self.writers)
        print(f"# {kills} kills, {rotations} rotations, {lines} lines written, {total} arrived, {lost} lost, "
              f"{total - lines + lost} twice", flush=True)
        for w in self.writers:
            missing = sorted(set(range(1, w.lines + 1)) - set(found[w.name_]))
            twice = sorted(n for n, times in collections.Counter(found[w.name_]).items() if times > 1)
            self.assertEqual(missing[:20], [], (w.name_, w.lines, len(missing), self.said()[-4000:]))
            if copies and not apart:
                continue
            self.assertEqual(twice[:20], [], (w.name_, w.lines, len(twice), self.said()[-4000:]))
            steps_back = [pair for pair in zip(found[w.name_], found[w.name_][1:]) if pair[0] > pair[1]]
            self.assertEqual(steps_back[:20], [], (w.name_, len(steps_back), self.said()[-4000:]))

    def of_table(self):
        return [r[0] for r in self.table("SELECT line FROM shipped_lines ORDER BY sequence")]

    def of_file(self):
        return [line.decode() for line in super().lines()]

    def test_every_line_is_in_the_table_once_after_kills_and_rotations(self):
        self.check(("--to", "sqlite:t.db", "--create"), self.of_table, copies=False)

    def test_every_line_is_in_the_file_once_after_kills_and_rotations(self):
        self.check(("--to", "file:out.jsonl"), self.of_file, copies=False)

    def test_every_line_is_in_the_table_once_after_kills_and_copytruncates(self):
        self.check(("--to", "sqlite:t.db", "--create"), self.of_table, copies=True, apart=0.1)

    def test_no_line_is_lost_by_copytruncates_within_a_moment(self):
        self.check(("--to", "sqlite:t.db", "--create"), self.of_table, copies=True)


if __name__ == "__main__":
    main()
