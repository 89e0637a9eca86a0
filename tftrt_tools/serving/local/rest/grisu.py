"""Digits of doubles by Grisu2 (Loitsch, "Printing Floating-Point Numbers Quickly and Accurately with Integers", 2010, with 64-bit integers).

RapidJSON 1.1.0 prints with it. The digits read back as the same double; they are not always the shortest or the nearest. It leaves the
last digit as it is where nine digits or more stand behind the point of the scaled number, so 2**64 is 18446744073709553000.
"""

from __future__ import annotations

import functools
import math
import struct

_HIDDEN = 1 << 52
_MASK64 = (1 << 64) - 1
# As many digits behind the point, and RapidJSON 1.1.0 no longer adjusts the last one: its table of powers of ten ends.
_UNADJUSTED = 9
# A number here is (integer below 2**64, binary exponent).
_Scaled = tuple[int, int]


def digits(value: float) -> tuple[str, int]:
    """Digits of a positive finite double, and the power of ten of the last one: value is about int(digits) * 10**power."""
    number, low, high = _boundaries(value)
    factor, power = _cached_power(high[1])
    scaled, lowest, highest = _product(number, factor), _product(low, factor), _product(high, factor)
    return _generated(scaled, (highest[0] - 1, highest[1]), highest[0] - lowest[0] - 2, power)


def _boundaries(value: float) -> tuple[_Scaled, _Scaled, _Scaled]:
    """The number, and the middles between it and its neighbours below and above, each with bit 63 set."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    fraction, biased = bits & (_HIDDEN - 1), bits >> 52
    whole, exponent = (fraction | _HIDDEN, biased - 1075) if biased else (fraction, -1074)
    above = _normal(2 * whole + 1, exponent - 1)
    narrow = whole == _HIDDEN  # the neighbour below is half as far away
    below = (4 * whole - 1, exponent - 2) if narrow else (2 * whole - 1, exponent - 1)
    return _normal(whole, exponent), (below[0] << (below[1] - above[1]), above[1]), above


def _normal(whole: int, exponent: int) -> _Scaled:
    shift = 64 - whole.bit_length()
    return whole << shift, exponent - shift


def _product(one: _Scaled, other: _Scaled) -> _Scaled:
    """The upper 64 bits, rounded."""
    return (one[0] * other[0] + (1 << 63)) >> 64, one[1] + other[1] + 64


@functools.lru_cache(maxsize=None)
def _cached_power(exponent: int) -> tuple[_Scaled, int]:
    """(10**k with 64 bits, -k): k is a multiple of 8 less 348, and brings a number with that binary exponent to one from -60 to -32."""
    wanted = (-61 - exponent) * 0.30102999566398114 + 347
    index = (math.ceil(wanted) >> 3) + 1
    k = -348 + 8 * index
    # Eight bits more than are kept, so that the last one is rounded as it should be.
    shift = 72 - ((10 ** abs(k)).bit_length() if k >= 0 else 1 - (10 ** -k).bit_length())
    wide = (10**k << shift if shift >= 0 else 10**k >> -shift) if k >= 0 else (1 << shift) // 10**-k
    extra = wide.bit_length() - 64
    rounded = (wide + (1 << (extra - 1))) >> extra
    return _normal(rounded, extra - shift), -k


def _generated(number: _Scaled, highest: _Scaled, room: int, power: int) -> tuple[str, int]:
    """Digits of a number from `highest - room` to `highest`, as few as needed, the last one as near to `number` as its rounding allows."""
    one = 1 << -highest[1]
    behind = highest[0] - number[0]
    whole, fraction = highest[0] >> -highest[1], highest[0] & (one - 1)
    found, left = "", len(str(whole))
    while left > 0:
        left -= 1
        unit = 10**left
        digit, whole = divmod(whole, unit)
        if digit or found:
            found += str(digit)
        rest = (whole << -highest[1]) + fraction
        if rest <= room:
            return _rounded(found, room, rest, unit << -highest[1], behind), power + left
    scale = 1
    while True:
        fraction, room, scale, left = fraction * 10, room * 10, scale * 10, left - 1
        digit = fraction >> -highest[1]
        if digit or found:
            found += str(digit)
        fraction &= one - 1
        if fraction < room:
            adjusted = behind * scale & _MASK64 if -left < _UNADJUSTED else 0
            return _rounded(found, room, fraction, one, adjusted), power + left


def _rounded(found: str, room: int, rest: int, unit: int, behind: int) -> str:
    """The digits with the last one lowered while that brings them nearer."""
    last = int(found[-1])
    while rest < behind and room - rest >= unit and (rest + unit < behind or behind - rest > rest + unit - behind):
        last -= 1
        rest += unit
    return found[:-1] + str(last)
