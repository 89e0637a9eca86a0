"""HPACK's Huffman code (RFC 7541, appendix B). It is canonical: the lengths of the codes say everything."""

from __future__ import annotations

import functools

# Bits of the codes of the bytes 0 to 255, then of the end of a string.
_LENGTHS = bytes([
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30])
_END = 256
_SHORTEST, _PADDING = 5, 7


def decode(data: bytes) -> bytes:
    """The text of a coded string. Raises: ValueError."""
    codes = _codes()
    out = bytearray()
    code = length = 0
    for byte in data:
        for place in range(7, -1, -1):
            code, length = code << 1 | byte >> place & 1, length + 1
            if length < _SHORTEST:
                continue
            symbol = codes.get((length, code))
            if symbol is not None:
                if symbol == _END:
                    raise ValueError("a Huffman string has its end inside")
                out.append(symbol)
                code = length = 0
    if length > _PADDING or code != (1 << length) - 1:
        raise ValueError("a Huffman string is not filled up with ones")
    return bytes(out)


@functools.cache
def _codes() -> dict[tuple[int, int], int]:
    """{(bits, code): byte}: codes of one length follow each other by their byte."""
    found: dict[tuple[int, int], int] = {}
    code = last = 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(_LENGTHS)):
        code <<= length - last
        found[length, code] = symbol
        code, last = code + 1, length
    return found
