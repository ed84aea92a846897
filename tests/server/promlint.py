# SPDX-License-Identifier: Apache-2.0
"""A strict reader of the Prometheus text format 0.0.4, and of the conventions that promtool's linter checks."""

import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(rf"^({NAME})(?:\{{(.*)\}})? (\S+)$")
TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}
NOT_BASE = re.compile(r"_(ms|us|ns|milliseconds|microseconds|minutes|hours|days|kb|mb|kib|mib|percent)(_total)?$")


class Wrong(AssertionError):
    pass


def _labels(text):
    labels, at = {}, 0
    while at < len(text):
        m = LABEL.match(text, at)
        if not m or m[1] in labels:
            raise Wrong(f"labels: {text}")
        labels[m[1]], at = m[2], m.end()
    if text.endswith(","):
        raise Wrong(f"labels end with a comma: {text}")
    return labels


def _value(text):
    if text in ("+Inf", "-Inf", "NaN"):
        return float(text.replace("Inf", "inf"))
    if not re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", text):
        raise Wrong(f"value: {text}")
    return float(text)


def _family_of(name, families):
    for suffix in ("_bucket", "_sum", "_count"):
        base = name.removesuffix(suffix)
        if base != name and families.get(base, {}).get("type") == "histogram":
            return base
    return name


def _histogram(name, samples):
    series = {}
    for sample, labels, value in samples:
        key = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        series.setdefault(key, []).append((sample.removeprefix(name), labels.get("le"), value))
    for key, rows in series.items():
        buckets = [(_value(le), v) for kind, le, v in rows if kind == "_bucket"]
        rest = {kind: v for kind, _, v in rows if kind != "_bucket"}
        if set(rest) != {"_sum", "_count"}:
            raise Wrong(f"{name}{key}: a histogram has one _sum and one _count: {rest}")
        if [b for b, _ in buckets] != sorted({b for b, _ in buckets}) or buckets[-1][0] != math.inf:
            raise Wrong(f"{name}{key}: buckets are not in order up to +Inf")
        if [v for _, v in buckets] != sorted(v for _, v in buckets) or buckets[-1][1] != rest["_count"]:
            raise Wrong(f"{name}{key}: buckets do not add up")


def lint(text):
    """The families as {name: type}; Wrong says what is not as it should be."""
    if text and not text.endswith("\n"):
        raise Wrong("the last line has no end")
    families, order, seen = {}, [], set()
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP ") or line.startswith("# TYPE "):
            _, what, name, rest = line.split(" ", 3)
            if not re.fullmatch(NAME, name):
                raise Wrong(line)
            family = families.setdefault(name, {"samples": []})
            if what.lower() in family or family["samples"]:
                raise Wrong(f"twice or too late: {line}")
            family[what.lower()] = rest
            if what == "TYPE" and rest not in TYPES:
                raise Wrong(line)
            if not order or order[-1] != name:
                order.append(name)
            continue
        if line.startswith("#") or not line:
            continue
        m = SAMPLE.match(line)
        if not m:
            raise Wrong(f"no sample: {line}")
        labels, value = _labels(m[2] or ""), _value(m[3])
        name = _family_of(m[1], families)
        if name not in families or order[-1] != name:
            raise Wrong(f"a sample outside of its family: {line}")
        identity = (m[1], tuple(sorted(labels.items())))
        if identity in seen:
            raise Wrong(f"a series twice: {line}")
        seen.add(identity)
        families[name]["samples"].append((m[1], labels, value))
    if len(order) != len(set(order)):
        raise Wrong("a family in two places")
    for name, family in families.items():
        kind = family.get("type")
        if not family.get("help") or not kind:
            raise Wrong(f"{name} has no help or no type")
        if (kind == "counter") != name.endswith("_total"):
            raise Wrong(f"{name} is a {kind}")
        if NOT_BASE.search(name):
            raise Wrong(f"{name}: not a base unit")
        if kind == "counter" and any(v < 0 or math.isnan(v) for _, _, v in family["samples"]):
            raise Wrong(f"{name}: a counter below zero")
        if kind == "histogram":
            _histogram(name, family["samples"])
    return {name: family["type"] for name, family in families.items()}
