"""The digits of a double as RapidJSON 1.1.0 writes them: Grisu2 (its dtoa.h), which now and then has not the nearest of the shortest."""

from __future__ import annotations

import functools
import math
import struct

_MASK = (1 << 64) - 1
_HIDDEN, _BIAS = 1 << 52, 1075
_POWERS = 9  # of ten in RapidJSON's table; with more digits it does not round


def digits(value: float) -> tuple[str, int]:
    """(digits, K) of a finite number above 0: it is written as digits * 10**K."""
    f, e = _parts(value)
    upper, upper_e = _normal(2 * f + 1, e - 1)
    lower, lower_e = (4 * f - 1, e - 2) if f == _HIDDEN else (2 * f - 1, e - 1)
    lower <<= lower_e - upper_e
    power, power_e, k = _cached(upper_e)
    own, _ = _normal(f, e)
    top = _times(upper, power) - 1
    return _generated(_times(own, power), top, upper_e + power_e + 64, (top - _times(lower, power) - 1) & _MASK, k)


def _parts(value: float) -> tuple[int, int]:
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    exponent, fraction = bits >> 52 & 0x7FF, bits & _HIDDEN - 1
    return (fraction | _HIDDEN, exponent - _BIAS) if exponent else (fraction, 1 - _BIAS)


def _normal(f: int, e: int) -> tuple[int, int]:
    shift = 64 - f.bit_length()
    return f << shift, e - shift


def _times(a: int, b: int) -> int:
    """The upper 64 bits of a product, rounded."""
    return (a * b + (1 << 63)) >> 64


def _cached(e: int) -> tuple[int, int, int]:
    """(significand, exponent, K) of the power of ten in RapidJSON's table for a number of this exponent."""
    index = (math.ceil((-61 - e) * 0.30102999566398114 + 347) >> 3) + 1
    k = -348 + 8 * index
    return *_power(k), -k


@functools.lru_cache(128)
def _power(k: int) -> tuple[int, int]:
    above, below = (10**k, 1) if k >= 0 else (1, 10**-k)
    e = above.bit_length() - below.bit_length() - 64
    while True:
        f = (2 * (above << max(-e, 0)) // (below << max(e, 0)) + 1) // 2
        if f.bit_length() == 64:
            return f, e
        e += f.bit_length() - 64


def _generated(own: int, top: int, e: int, delta: int, k: int) -> tuple[str, int]:
    one = 1 << -e
    whole, part = top >> -e, top & one - 1
    gap, value, kappa = (top - own) & _MASK, 0, len(str(whole))
    while kappa > 0:
        kappa -= 1
        digit, whole = divmod(whole, 10**kappa)
        value = value * 10 + digit
        rest = (whole << -e) + part
        if rest <= delta:
            return _rounded(value, delta, rest, 10**kappa << -e, gap), k + kappa
    while True:
        part, delta, kappa = part * 10, delta * 10, kappa - 1
        value = value * 10 + (part >> -e)
        part &= one - 1
        if part < delta:
            scale = 10**-kappa if -kappa < _POWERS else 0
            return _rounded(value, delta, part, one, gap * scale & _MASK), k + kappa


def _rounded(found: int, delta: int, rest: int, step: int, gap: int) -> str:
    while rest < gap and delta - rest >= step and (rest + step < gap or gap - rest > rest + step - gap):
        found, rest = found - 1, rest + step
    return str(found)
