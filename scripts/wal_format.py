# SPDX-License-Identifier: Apache-2.0
"""The log format of docs/formats/wal.md, written a second time from the text alone.

It shares nothing with the C code, so that the worked example of the document, the files of `sluice` and this module
check each other. Made for reading, not for speed.
"""
import struct

MAGIC = b"ARWAL001"
HEADER_BYTES = 16
FRAME_BYTES = 32  # Length 4, Sequence 8, Status 1, Reserved 3, Timestamp 8, CRC 8
MAX_RECORD_BYTES = 16 * 1024 * 1024
PENDING, SENT, FAILED = 1, 2, 3
STATUS_NAMES = {PENDING: "pending", SENT: "sent", FAILED: "failed"}


def crc8(data):
    """Polynomial 0x07, start 0, not reflected, no final XOR."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1) ^ (0x107 if crc & 0x80 else 0)
    return crc


def _crc64_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x9A6C9329AC4BC9B5 if byte & 1 else 0)  # 0xAD93D23594C93659 with its bits reversed
        table.append(byte)
    return table


CRC64_TABLE = _crc64_table()


def crc64nvme(data):
    crc = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC64_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFFFFFFFFFF


def header(incarnation, version=1):
    head = MAGIC + struct.pack("<I", version) + struct.pack("<I", incarnation)[:3]
    return head + bytes([crc8(head)])


def record(sequence, status, timestamp_ms, payload=b""):
    body = struct.pack("<qB3xq", sequence, status, timestamp_ms) + payload
    return struct.pack("<I", len(body) + 8) + body + struct.pack("<Q", crc64nvme(body))


def read(data):
    """(version, incarnation, [(offset, length, sequence, status, timestamp_ms, payload)]); ValueError on any fault."""
    if data[:8] != MAGIC:
        raise ValueError("not a log")
    version, reserved = struct.unpack_from("<II", data, 8)
    if reserved and crc8(data[:15]) != data[15]:
        raise ValueError("header CRC-8")
    records, at = [], HEADER_BYTES
    while at < len(data) and any(data[at:]):
        (length,) = struct.unpack_from("<I", data, at)
        if not FRAME_BYTES - 4 <= length <= MAX_RECORD_BYTES - 4 or at + 4 + length > len(data):
            raise ValueError(f"length at {at}")
        body, (crc,) = data[at + 4:at + length - 4], struct.unpack_from("<Q", data, at + length - 4)
        if crc64nvme(body) != crc:
            raise ValueError(f"CRC at {at}")
        sequence, status, reserved3, timestamp_ms = struct.unpack_from("<qB3sq", body)
        if status not in STATUS_NAMES or any(reserved3):
            raise ValueError(f"status or reserved bytes at {at}")
        records.append((at, length, sequence, status, timestamp_ms, body[20:]))
        at += 4 + length
    return version, reserved & 0xFFFFFF, records


def effective(records):
    """Data records as (offset, length, sequence, name of the effective status, timestamp_ms, payload)."""
    status = {r[2]: PENDING for r in records if r[3] == PENDING}
    for _, _, last, change, _, payload in records:
        if change != PENDING:
            first = struct.unpack("<Q", payload)[0] if payload else last
            status.update({s: change for s in range(first, last + 1) if s in status})
    return [(o, n, s, STATUS_NAMES[status[s]], t, p) for o, n, s, kind, t, p in records if kind == PENDING]


# ---- version 2: XChaCha20-Poly1305-IETF, from RFC 8439 and the XChaCha draft ----

MASK = 0xFFFFFFFF


def _quarter(s, a, b, c, d):
    for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & MASK
        s[z] ^= s[x]
        s[z] = ((s[z] << turn) | (s[z] >> (32 - turn))) & MASK


def _rounds(state):
    s = list(state)
    for _ in range(10):
        for q in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                  (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            _quarter(s, *q)
    return s


def _state(key, tail):
    return struct.unpack("<4I", b"expand 32-byte k") + struct.unpack("<8I", key) + struct.unpack("<4I", tail)


def _hchacha20(key, nonce16):
    s = _rounds(_state(key, nonce16))
    return struct.pack("<8I", *s[0:4], *s[12:16])


def _chacha20(key, nonce12, counter, data):
    out = bytearray()
    for i in range(0, len(data), 64):
        state = _state(key, struct.pack("<I", counter + i // 64) + nonce12)
        stream = struct.pack("<16I", *((a + b) & MASK for a, b in zip(state, _rounds(state))))
        out += bytes(a ^ b for a, b in zip(data[i:i + 64], stream))
    return bytes(out)


def _poly1305(key, data):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for i in range(0, len(data), 16):
        total = (total + int.from_bytes(data[i:i + 16] + b"\1", "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def _pad16(data):
    return data + bytes(-len(data) % 16)


def xchacha20poly1305(key, nonce24, plain, associated):
    """Ciphertext and 16-byte tag."""
    key, nonce = _hchacha20(key, nonce24[:16]), bytes(4) + nonce24[16:]
    sealed = _chacha20(key, nonce, 1, plain)
    covered = _pad16(associated) + _pad16(sealed) + struct.pack("<QQ", len(associated), len(sealed))
    return sealed + _poly1305(_chacha20(key, nonce, 0, bytes(32)), covered)


def seal(key, nonce24, stream, incarnation, sequence, timestamp_ms, plain):
    """The payload of a data record in a version 2 log."""
    associated = stream.encode() + struct.pack("<IQq", incarnation, sequence, timestamp_ms)
    return nonce24 + xchacha20poly1305(key, nonce24, plain, associated)


def self_check():
    """The published vectors of the three algorithms."""
    assert crc8(b"123456789") == 0xF4
    assert crc64nvme(b"123456789") == 0xAE8B14860A799888
    assert crc64nvme(b"hello world!") == 0xD9160D1FA8E418E3
    assert crc64nvme(bytes(4096)) == 0x6482D367EB22B64E
    text = (b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen "
            b"would be it.")
    sealed = xchacha20poly1305(bytes(range(0x80, 0xA0)), bytes(range(0x40, 0x58)), text,
                               bytes.fromhex("50515253c0c1c2c3c4c5c6c7"))
    assert sealed[:16].hex() == "bd6d179d3e83d43b9576579493c0e939", sealed[:16].hex()
    assert sealed[-16:].hex() == "c0875924c1c7987947deafd8780acf49", sealed[-16:].hex()
