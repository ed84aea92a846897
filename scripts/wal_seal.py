# SPDX-License-Identifier: Apache-2.0
"""The payloads of a version 2 log (docs/formats/wal.md), sealed in plain Python: XChaCha20-Poly1305-IETF, from RFC 8439
and the XChaCha draft. It shares nothing with the C code or libsodium. Made for reading, not for speed or secrets.
"""
import struct

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
    """The vector of the XChaCha draft, appendix A.3.1."""
    text = (b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen "
            b"would be it.")
    sealed = xchacha20poly1305(bytes(range(0x80, 0xA0)), bytes(range(0x40, 0x58)), text,
                               bytes.fromhex("50515253c0c1c2c3c4c5c6c7"))
    return sealed[:16].hex() == "bd6d179d3e83d43b9576579493c0e939" and \
        sealed[-16:].hex() == "c0875924c1c7987947deafd8780acf49"
