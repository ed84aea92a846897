# SPDX-License-Identifier: Apache-2.0
"""What a benchmark found: printed as it comes, and kept for scripts/bench-table.

A figure is a value of ours, with the value it is compared with, or one of a peer, which stands beside ours of the same
row. Floor (what must hold) and goal speak of the ratio where there is one, else of the value; with at_most, less is
better.
"""
import json
import time


def verdict(f):
    """below: its floor; goal: reached; "" otherwise."""
    got = f["value"] if f.get("ratio") is None else f["ratio"]
    sign = -1 if f.get("at_most") else 1
    if f.get("floor") is not None and sign * got < sign * f["floor"]:
        return "below"
    return "goal" if f.get("goal") is not None and sign * got >= sign * f["goal"] else ""


def busy_percent(seconds=1):
    """How much of the processors others use, before anything is measured."""
    def look():
        with open("/proc/stat", encoding="ascii") as f:
            ticks = [int(n) for n in f.readline().split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]

    total, idle = look()
    time.sleep(seconds)
    now, rest = look()
    return 100 * (1 - (rest - idle) / max(now - total, 1))


class Figures:
    def __init__(self, part, quick):
        self.part, self.quick, self.list = part, quick, []
        self.busy = busy_percent()
        if self.busy > 15:
            print(f"# others use {self.busy:.0f} % of the processors: too busy, run it again on an idle machine", flush=True)

    def peer(self, row, what, value, unit):
        self.add({"row": row, "what": what, "value": value, "unit": unit, "peer": True})

    def ours(self, row, what, value, unit, base=None, floor=None, goal=None, ratio=None, at_most=False):
        """base: (name, value) that it is compared with; ratio where it is not value / base."""
        if base and ratio is None:
            ratio = value / base[1]
        self.add({"row": row, "what": what, "value": value, "unit": unit, "base": base[0] if base else None,
                  "base_value": base[1] if base else None, "ratio": ratio, "floor": floor, "goal": goal, "at_most": at_most})

    def add(self, figure):
        self.list.append(figure)
        text = f"{figure['row']:16s} {figure['what']:52s} {figure['value']:14.2f} {figure['unit']:8s}"
        if figure.get("base"):
            text += f" {figure['ratio']:6.2f}x {figure['base']}"
        if figure.get("floor") is not None:
            most = "at most " if figure["at_most"] else ""
            goal = f", goal {figure['goal']}" if figure["goal"] is not None else ""
            text += f" (floor {most}{figure['floor']}{goal})"
        print(text + {"below": "  BELOW THE FLOOR", "goal": "  goal", "": ""}[verdict(figure)], flush=True)

    def save(self, path):
        if path:
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"part": self.part, "quick": self.quick, "others_percent": self.busy, "figures": self.list}, f, indent=1)
