# SPDX-License-Identifier: Apache-2.0
"""Random CSV and JSON lines, read by the library and by Python's csv and json modules: they must agree.

usage: test_differential.py FORMAT_DUMP          TAP; SLUICE_TEST_SECONDS a test (default 1), SLUICE_SEED
"""
import csv
import decimal
import io
import json
import os
import random
import subprocess
import sys
import time

SECONDS = float(os.environ.get("SLUICE_TEST_SECONDS", "1"))
SEED = int(os.environ.get("SLUICE_SEED", "1"))
decimal.getcontext().prec = 1000


class Dump:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def read(self, kind, data, chunk):
        self.process.stdin.write(b"%s %d %d\n" % (kind.encode(), chunk, len(data)) + data)
        self.process.stdin.flush()
        records = []
        while (line := self.process.stdout.readline()) != b".\n":
            if not line:
                raise AssertionError("format_dump has died")
            records.append(json.loads(line, parse_float=decimal.Decimal))
        return records


def loops(rng):
    """Cases until the time is over, at least 200; each with its own seed, which a failure names."""
    end, n = time.monotonic() + SECONDS, 0
    while n < 200 or time.monotonic() < end:
        n += 1
        yield n, random.Random(rng.getrandbits(64))


def same_however_it_is_read(dump, kind, data, rng):
    whole = dump.read(kind, data, 1 << 20)
    for chunk in {1, rng.randint(1, 20), rng.randint(1, 300)}:
        assert dump.read(kind, data, chunk) == whole, f"reads of {chunk} bytes change something: {data!r}"
    return whole


def text(rng, alphabet):
    return "".join(rng.choice(alphabet) for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 8, 20, 40])))


CSV_LETTERS = list("abc01,;\"\n\r ' é€😀") + ['""', "\r\n", ",,", '","']


def written_csv(dump, rng):
    """What csv.writer writes comes out as it went in, on the line where it is."""
    columns = rng.randint(2, 6)
    rows = [[text(rng, CSV_LETTERS) for _ in range(columns)] for _ in range(rng.randint(0, 12))]
    ends = rng.choice(["\n", "\r\n"])
    out = io.StringIO(newline="")
    # With plain line ends Python leaves a carriage return without quotes, which RFC 4180 does not allow.
    minimal = rng.random() < 0.5 and (ends == "\r\n" or not any("\r" in field for row in rows for field in row))
    writer = csv.writer(out, lineterminator=ends, quoting=csv.QUOTE_MINIMAL if minimal else csv.QUOTE_ALL)
    names = [f"c{i}" for i in range(columns)]
    writer.writerow(names)
    lines = []
    for row in rows:
        lines.append(out.getvalue().count("\n") + 1)
        writer.writerow(row)
    data = out.getvalue()
    if rng.random() < 0.5:
        data = data[: -len(ends)]
    data = data.encode()
    if rng.random() < 0.3:
        data = b"\xef\xbb\xbf" + data
    got = same_however_it_is_read(dump, "csv", data, rng)
    assert all("row" in r for r in got), (data, got)
    assert [[r["row"][n] or "" for n in names] for r in got] == rows, (data, got)
    assert [r["line"] for r in got] == lines, (data, got)


def any_csv(dump, rng):
    """Of any bytes: when no record is bad, Python reads the same; a record is where it says that it is."""
    fields, ends = ["", "a", "b c", '""', '"a"', '"a\nb"', '"a""b"', '","', '"\r\n"', '""""'], ["\n", "\r\n", "\n\n"]
    pieces = [p for _ in range(rng.randrange(8)) for p in (rng.choice(fields), ",", rng.choice(fields), rng.choice(ends))]
    for _ in range(rng.choice([0, 0, 1, 3])):
        pieces.insert(rng.randint(0, len(pieces)), rng.choice(["a", ",", '"', "\n", "\r\n", '""', '"a"', '",', ',"']))
    body = "".join(pieces)
    data = ("x,y\n" + body).encode()
    got = same_however_it_is_read(dump, "csv", data, rng)
    at, line = 4, 2
    for r in got:
        assert r["offset"] >= at and r["end"] > r["offset"], (data, got)
        assert data[at:r["offset"]].strip(b"\r\n") == b"", (data, got)
        assert r["line"] == data[:r["offset"]].count(b"\n") + 1, (data, got)
        at = r["end"]
    assert data[at:].strip(b"\r\n") == b"", (data, got)
    bad = [r for r in got if "row" not in r]
    assert not any("error" in r for r in got), (data, got)
    if bad:
        return 0
    rows = [row for row in csv.reader(io.StringIO(body, newline=""), strict=True) if row]
    assert [[r["row"]["x"] or "", r["row"]["y"] or ""] for r in got] == rows, (data, got)
    return 1


def value(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 7)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return rng.choice([0, -1, 2**63 - 1, -(2**63), 2**64, 10**30, rng.getrandbits(53)])
    if kind == 3:
        return rng.choice([0.1, -1e-7, 1e300, 190.25, rng.random()])
    if kind <= 6:
        return text(rng, list('ab"\\/\n\t\r\0\x1f\x7f é€😀{}[]:,'))
    if kind == 7:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {text(rng, list('ab"\\é')): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def record(rng):
    keys = [f"m{i}" for i in range(6)] + ['q"uote', "é", ""]
    rng.shuffle(keys)
    return {k: value(rng) for k in keys[: rng.randrange(7)]}


def written(rng, obj):
    space = rng.choice(["", " "])
    line = json.dumps(obj, ensure_ascii=rng.random() < 0.5, separators=("," + space, ":" + space))
    return rng.choice(["", " ", "\t"]) + line + rng.choice(["", " ", "\r"])


def exact(line):
    return json.loads(line, parse_float=decimal.Decimal)


def written_json(dump, rng):
    """What json.dumps writes comes out as it went in: integers and decimals exactly."""
    lines = [written(rng, record(rng)) for _ in range(rng.randint(0, 8))]
    data = "\n".join(lines).encode() + rng.choice([b"", b"\n"])
    got = same_however_it_is_read(dump, "jsonl", data, rng)
    assert [r.get("row") for r in got] == [exact(line) for line in lines], (data, got)
    assert [r["line"] for r in got] == list(range(1, len(lines) + 1)), (data, got)


def has_surrogate(obj):
    if isinstance(obj, str):
        return any("\ud800" <= c <= "\udfff" for c in obj)
    if isinstance(obj, dict):
        return any(has_surrogate(k) or has_surrogate(v) for k, v in obj.items())
    return isinstance(obj, list) and any(has_surrogate(v) for v in obj)


def refuse(constant):
    raise ValueError(constant)


def python_takes(line):
    """None when Python does not take it for an object, by RFC 8259 (NaN and lone surrogates are Python's own)."""
    try:
        obj = json.loads(line.decode("utf-8"), parse_float=decimal.Decimal, parse_constant=refuse)
    except ValueError:
        return None
    return obj if isinstance(obj, dict) and not has_surrogate(obj) else None


def damage(rng, line):
    line = bytearray(line)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(line) + 1)
        piece = rng.choice([b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"e", b" ", b"\x01", b"\xff",
                            b"\xc3", b"\\u", b"\\ud800", b"null", b"NaN", bytes([rng.randrange(256)])])
        line[at:at + rng.randrange(3)] = piece
    return bytes(line).replace(b"\n", b" ").replace(b"\0", b" ")


def damaged_json(dump, rng):
    """Of a damaged line, both say the same."""
    line = damage(rng, written(rng, record(rng)).encode())
    got = same_however_it_is_read(dump, "jsonl", line + b"\n", rng)
    if line.strip(b" \t\r") == b"":
        assert got == [], (line, got)
        return 0
    expected = python_takes(line)
    assert len(got) == 1, (line, got)
    if expected is None:
        assert "bad" in got[0], (line, got)
    elif "error" in got[0]:
        assert "duplicate member" in got[0]["error"], (line, got)
    else:
        assert got[0].get("row") == expected, (line, got)
    return expected is not None


def run(number, name, dump, case):
    rng, valid = random.Random(SEED * 1000 + number), 0
    try:
        for n, own in loops(rng):
            valid += case(dump, own) or 0
    except AssertionError as e:
        print(f"not ok {number} - {name}\n# case {n} of seed {SEED}: {e}")
        return 1
    print(f"# {n} cases of seed {SEED}" + (f", {valid} of them valid" if valid else ""))
    print(f"ok {number} - {name}")
    return 0


def main():
    dump = Dump(sys.argv[1])
    cases = [("what Python writes as CSV is read as it was", written_csv),
             ("CSV without a bad record is what Python reads", any_csv),
             ("what Python writes as JSON is read as it was", written_json),
             ("a damaged JSON line is taken or refused as Python does", damaged_json)]
    print(f"1..{len(cases)}")
    return 1 if sum([run(i, name, dump, case) for i, (name, case) in enumerate(cases, 1)]) else 0


if __name__ == "__main__":
    sys.exit(main())
