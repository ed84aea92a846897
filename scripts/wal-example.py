#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The worked examples of docs/formats/wal.md.

usage: scripts/wal-example.py                  print both examples as they stand in the document
       scripts/wal-example.py --write DIR      write example.wal, sealed.wal and sealed.key into DIR
       scripts/wal-example.py --fix DOC        put them into the document
       scripts/wal-example.py --test DOC [SLUICE]
              check the document and, with a built command, that both sides read what the other wrote (TAP)
"""
import base64
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "cli"))
import wal_seal  # noqa: E402
import walfmt  # noqa: E402

TIME = 1704067200000  # 2024-01-01 00:00:00 UTC
INCARNATION = 0x5A17C3
KEY, NONCE = bytes(range(32)), bytes(range(0x40, 0x58))
STREAM = "sealed"

# (sequence, status, timestamp, payload, what it is)
RECORDS = [
    (1, walfmt.DATA, TIME, b"job started", 'payload "job started"'),
    (2, walfmt.DATA, TIME + 5, b"hello world!", 'payload "hello world!"'),
    (2, walfmt.SENT, TIME + 9, struct.pack("<Q", 1), "payload: first sequence of the range, so 1 and 2 are sent"),
    (3, walfmt.DATA, TIME + 12, b"", "payload: none"),
]


def rows_of_header(incarnation, version):
    head = walfmt.header(version, incarnation)
    return [(head[:8], 'magic "ARWAL001"'), (head[8:12], f"version {version}"),
            (head[12:15], f"incarnation 0x{incarnation:06x}"), (head[15:], "CRC-8 of the fifteen bytes before")]


def rows_of_record(sequence, status, timestamp_ms, payload, parts):
    """parts: the payload as (bytes, what it is)."""
    raw = walfmt.record(sequence, payload, status, timestamp_ms)
    (length,), (crc,) = struct.unpack("<I", raw[:4]), struct.unpack("<Q", raw[-8:])
    rows = [(raw[:4], f"length {length} = {len(payload)} + 28"), (raw[4:12], f"sequence {sequence}"),
            (raw[12:13], f"status {status}, {'data' if status == walfmt.DATA else walfmt.STATUS_NAMES[status]}"),
            (raw[13:16], "reserved"), (raw[16:24], f"timestamp {timestamp_ms}")]
    return rows + parts + [(raw[-8:], f"CRC-64/NVME {crc:016x} of the {length - 8} bytes between length and itself")]


def table(rows):
    """One line for up to eight bytes; longer fields go on below without a text."""
    lines, at = [], 0
    for data, text in rows:
        for i in range(0, max(len(data), 1), 8):
            piece = data[i:i + 8]
            lines.append(f"{at + i:>4}  {piece.hex(' '):<23}  {text if i == 0 else ''}".rstrip())
        at += len(data)
    return lines


def dump_lines(data):
    return ['{"offset":%d,"length":%d,"sequence":%d,"status":"%s","timestamp_ms":%d,"payload_b64":"%s"}'
            % (r.offset, r.length, r.sequence, walfmt.STATUS_NAMES[r.status], r.timestamp_ms,
               base64.b64encode(r.payload).decode()) for r in data]


def effective(data):
    return walfmt.effective(walfmt.parse(data)[2])


def plain_example():
    rows = rows_of_header(INCARNATION, 1)
    for sequence, status, stamp, payload, text in RECORDS:
        rows += rows_of_record(sequence, status, stamp, payload, [(payload, text)])
    return rows


def sealed_example():
    payload = wal_seal.seal(KEY, NONCE, STREAM, INCARNATION, 1, TIME, b"hello world!")
    parts = [(payload[:24], "payload: nonce"), (payload[24:-16], 'ciphertext of "hello world!"'),
             (payload[-16:], "tag")]
    return rows_of_header(INCARNATION, 2) + rows_of_record(1, walfmt.DATA, TIME, payload, parts)


def joined(rows):
    return b"".join(data for data, _ in rows)


def blocks():
    """name -> the lines of the code block that follows its marker in the document."""
    plain = joined(plain_example())
    return {
        "example": table(plain_example()),
        "example-dump": dump_lines(effective(plain)),
        "sealed": table(sealed_example()),
    }


def block_pattern(name):
    return re.compile(r"(<!-- wal-example.py: %s -->\n```[a-z]*\n)(.*?)(```\n)" % name, re.S)


def fix(doc):
    with open(doc, encoding="utf-8") as f:
        text = f.read()
    for name, lines in blocks().items():
        text = block_pattern(name).sub(lambda m: m[1] + "\n".join(lines) + "\n" + m[3], text)
    with open(doc, "w", encoding="utf-8") as f:
        f.write(text)


def write(folder):
    for name, data in (("example.wal", joined(plain_example())), ("sealed.wal", joined(sealed_example())),
                       ("sealed.key", KEY)):
        path = os.path.join(folder, name)
        with open(path, "wb", opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
            f.write(data)


# ---- the test ----

def run(*command, stdin=b""):
    return subprocess.run(command, input=stdin, capture_output=True, check=False)


def same_dump(command, expected):
    done = run(*command)
    got = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = [json.loads(line) for line in dump_lines(expected)]
    return done.returncode == 0 and [{k: g.get(k) for k in w} for g, w in zip(got, wanted)] == wanted \
        and len(got) == len(wanted)


def document_cases(doc):
    with open(doc, encoding="utf-8") as f:
        text = f.read()
    for name, lines in blocks().items():
        m = block_pattern(name).search(text)
        yield f"the block {name} of the document is right", bool(m) and m[2].splitlines() == lines
    yield "the published vector of the cipher holds", wal_seal.self_check()


def command_cases(sluice, folder):
    write(folder)
    plain, sealed, key = (os.path.join(folder, n) for n in ("example.wal", "sealed.wal", "sealed.key"))
    records = effective(joined(plain_example()))
    yield "sluice dumps the example as the document says", same_dump([sluice, "wal", "dump", plain, "--json"], records)
    yield "sluice verifies the example", run(sluice, "wal", "verify", plain).returncode == 0
    opened = effective(joined(sealed_example()))
    opened[0].payload = b"hello world!"
    yield "sluice opens the sealed example with its key", \
        same_dump([sluice, "wal", "dump", sealed, "--key-file", key, "--json"], opened)
    own = os.path.join(folder, "own.wal")
    lines = [b"one", b"", b"three" * 1000]
    wrote = run(sluice, "wal", "append", own, stdin=b"\n".join(lines) + b"\n")
    yield "sluice appends to a new log", wrote.returncode == 0 and wrote.stdout.split() == [b"1", b"2", b"3"]
    with open(own, "rb") as f:
        version, incarnation, found = walfmt.parse(f.read())
    yield "what sluice wrote is read by the letter of the document", \
        version == 1 and incarnation != 0 and [(r.sequence, r.status, r.payload) for r in found] == \
        [(i, walfmt.DATA, line) for i, line in enumerate(lines, 1)] + [(3, walfmt.CLOSED, b"")]


def foreign_cases(sluice, folder):
    """A log with four zero bytes in its header, written by another program, can be read and continued."""
    path = os.path.join(folder, "foreign.wal")
    theirs = walfmt.log([b"theirs"])
    with open(path, "wb") as f:
        f.write(theirs)
    yield "sluice reads a foreign log", same_dump([sluice, "wal", "dump", path, "--json"], effective(theirs))
    wrote = run(sluice, "wal", "append", path, stdin=b"ours\n")
    with open(path, "rb") as f:
        found = walfmt.parse(f.read())[2]
    yield "sluice goes on with a foreign log", \
        wrote.stdout.split() == [b"2"] and [(r.sequence, r.payload) for r in found] == [(1, b"theirs"), (2, b"ours")]


def test(doc, sluice):
    cases = list(document_cases(doc))
    if sluice:
        with tempfile.TemporaryDirectory() as folder:
            cases += list(command_cases(sluice, folder)) + list(foreign_cases(sluice, folder))
    print(f"1..{len(cases)}")
    for number, (name, good) in enumerate(cases, 1):
        print(f"{'ok' if good else 'not ok'} {number} - {name}")
    return 0 if all(good for _, good in cases) else 1


def main(args):
    if not args:
        for name, lines in blocks().items():
            print(f"{name}\n" + "\n".join(lines) + "\n")
    elif args[0] == "--write" and len(args) == 2:
        write(args[1])
    elif args[0] == "--fix" and len(args) == 2:
        fix(args[1])
    elif args[0] == "--test" and len(args) in (2, 3):
        return test(args[1], args[2] if len(args) == 3 else None)
    else:
        print(__doc__, file=sys.stderr)
        return 64
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
