# SPDX-License-Identifier: Apache-2.0
"""The log format as docs/formats/wal.md has it, written from that page alone, to check the library against.

Nothing here shares code with the library: the CRC is computed bit by bit into a table, records are packed with struct.
"""

import struct
from dataclasses import dataclass

MAGIC = b"ARWAL001"
DATA, SENT, FAILED, NEW_INCARNATION, CLOSED = 1, 2, 3, 4, 5
STATUS_NAMES = {DATA: "pending", SENT: "sent", FAILED: "failed"}
MAX_PAYLOAD = 16 * 1024 * 1024 - 32


def _table():
    # Reflected: the polynomial 0xAD93D23594C93659 with its bits in the other order.
    poly = int(f"{0xAD93D23594C93659:064b}"[::-1], 2)
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ poly if value & 1 else value >> 1
        table.append(value)
    return table


_TABLE = _table()
_ONES = 0xFFFFFFFFFFFFFFFF


def crc64nvme(data):
    crc = _ONES
    table = _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ _ONES


def crc8(data):
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x07) & 0xFF if crc & 0x80 else crc << 1
    return crc


assert crc64nvme(b"123456789") == 0xAE8B14860A799888
assert crc64nvme(b"hello world!") == 0xD9160D1FA8E418E3
assert crc8(b"123456789") == 0xF4


def header(version=1, incarnation=0):
    """A header; incarnation 0 makes that of a foreign log, with four zero bytes."""
    start = MAGIC + struct.pack("<I", version)
    if incarnation == 0:
        return start + bytes(4)
    start += struct.pack("<I", incarnation)[:3]
    assert crc8(start) != 0, "a writer draws another incarnation"
    return start + bytes([crc8(start)])


def record(sequence, payload=b"", status=DATA, timestamp_ms=1704067200000):
    body = struct.pack("<qB3xq", sequence, status, timestamp_ms) + payload
    return struct.pack("<I", len(body) + 8) + body + struct.pack("<Q", crc64nvme(body))


def mark(status, last, first=None, timestamp_ms=1704067200000):
    """A status record for `last`, or for the range first..last."""
    return record(last, b"" if first is None else struct.pack("<q", first), status, timestamp_ms)


@dataclass
class Record:
    offset: int
    length: int
    sequence: int
    status: int
    timestamp_ms: int
    payload: bytes


class Damaged(Exception):
    pass


def parse(data):
    """(version, incarnation, raw records in the order of the file) of one segment. Strict: raises Damaged."""
    if len(data) < 16 or data[:8] != MAGIC:
        raise Damaged("header")
    version, = struct.unpack_from("<I", data, 8)
    incarnation = int.from_bytes(data[12:15], "little")
    if data[12:16] != bytes(4) and crc8(data[:15]) != data[15]:
        raise Damaged("CRC-8 of the header")
    records = []
    offset = 16
    while offset < len(data):
        if not any(data[offset:]):
            break  # zeros that were prepared
        length, = struct.unpack_from("<I", data, offset)
        end = offset + 4 + length
        if not 28 <= length <= MAX_PAYLOAD + 28 or end > len(data):
            raise Damaged(f"length {length} at {offset}")
        body = data[offset + 4 : end - 8]
        crc, = struct.unpack_from("<Q", data, end - 8)
        if crc64nvme(body) != crc:
            raise Damaged(f"CRC at {offset}")
        sequence, status, timestamp_ms = struct.unpack_from("<qB3xq", body)
        if body[9:12] != bytes(3) or status not in (*STATUS_NAMES, NEW_INCARNATION, CLOSED):
            raise Damaged(f"record at {offset}")
        records.append(Record(offset, length, sequence, status, timestamp_ms, body[20:]))
        offset = end
    return version, incarnation, records


def effective(raw):
    """The data records of raw with their effective status."""
    data = {r.sequence: r for r in raw if r.status == DATA}
    for r in raw:
        if r.status not in (SENT, FAILED):
            continue
        first = struct.unpack("<q", r.payload)[0] if r.payload else r.sequence
        for sequence in range(first, r.sequence + 1):
            if sequence in data:
                old = data[sequence]
                data[sequence] = Record(old.offset, old.length, sequence, r.status, old.timestamp_ms, old.payload)
    return [data[s] for s in sorted(data)]


def log(payloads, incarnation=0, first=1):
    """The bytes of a log with these payloads."""
    return header(incarnation=incarnation) + b"".join(record(first + i, p) for i, p in enumerate(payloads))
