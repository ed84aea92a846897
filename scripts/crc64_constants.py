#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the constants of src/base/crc64nvme.c, derived from the polynomial alone.

Values are reflected: bit 63 - i of a word is the coefficient of x^i.
"""

POLY = 0x9A6C9329AC4BC9B5  # 0xAD93D23594C93659 reflected


def times_x(word):
    return (word >> 1) ^ (POLY if word & 1 else 0)


def x_to_the(n):
    word = 1 << 63
    for _ in range(n):
        word = times_x(word)
    return word


def mu():
    """The top 64 of the 65 coefficients of x^128 / P, reflected: bit i is the coefficient of x^(64 - i)."""
    divisor = 1 << 64 | int(f"{POLY:064b}"[::-1], 2)
    rest, quotient = 1 << 128, 0
    while rest.bit_length() >= 65:
        shift = rest.bit_length() - 65
        quotient |= 1 << shift
        rest ^= divisor << shift
    return int(f"{quotient >> 1:064b}"[::-1], 2)


def main():
    print("slicing basis: row k holds the table entries of the single bits 1, 2, 4 … 128, k bytes before the end")
    for k in range(8):
        row = [x_to_the(64 + 8 * k + 7 - j) for j in range(8)]
        print(f"\tX({k}, " + ", ".join(f"0x{w:016X}" for w in row) + ")")
    print("folding by d bits: the multiplier of the first eight bytes, then of the last eight")
    for d in (128, 256, 384, 512, 768, 1024, 1280, 1536, 1792, 2048):
        print(f"#define FOLD_{d} {{0x{x_to_the(d + 63):016X}, 0x{x_to_the(d - 1):016X}}}")
    print(f"#define FOLD_64 0x{x_to_the(127):016X}")
    print(f"#define BARRETT_MU 0x{mu():016X}")
    print(f"#define BARRETT_POLY 0x{(POLY << 1 | 1) & (1 << 64) - 1:016X}")


if __name__ == "__main__":
    main()
