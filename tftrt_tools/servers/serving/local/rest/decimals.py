"""Floating-point numbers as the server writes them.

Six significant digits where these read back as the same number, else 9 (float) or 17 (double); ".0" after whole numbers;
NaN, Infinity, -Infinity (util/json_tensor.cc, WriteDecimal).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
_LONG: dict[np.dtype[Any], int] = {np.dtype(np.float32): 9, np.dtype(np.float64): 17}


def text(value: float, single: bool) -> str:
    """One number. Args: value: float. single: whether it is a float rather than a double."""
    with np.errstate(over="ignore"):
        return texts(np.array([value], np.float64).astype(np.float32) if single else np.array([value], np.float64))[0]


def texts(values: Floats) -> list[str]:
    """Each number of a float32 or float64 array, flat. Returns: list of str."""
    flat = values.ravel()
    numbers = flat.tolist()
    written = [""] * len(numbers)
    finite = np.isfinite(flat)
    maybe = _maybe_short(flat) & finite
    short = np.flatnonzero(maybe)
    texts = _formatted(flat[short].tolist(), 6)
    with np.errstate(over="ignore"):
        same = np.array(list(map(float, texts)), np.float64).astype(flat.dtype) == flat[short]
    for i, text in zip(short.tolist(), texts, strict=True):
        written[i] = text
    long = np.concatenate([np.flatnonzero(finite & ~maybe), short[~same]])
    for i, text in zip(long.tolist(), _formatted(flat[long].tolist(), _LONG[flat.dtype]), strict=True):
        written[i] = text
    written = [text if "." in text or "e" in text else text + ".0" for text in written]
    for i in np.flatnonzero(~finite).tolist():
        written[i] = "NaN" if numbers[i] != numbers[i] else "Infinity" if numbers[i] > 0 else "-Infinity"
    return written


def _maybe_short(values: Floats) -> npt.NDArray[np.bool_]:
    """Whether a number may read back from six digits: False only if it certainly does not, which saves most numbers one of two tries."""
    wide = np.abs(values.astype(np.float64))
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log10(wide))
        exponent -= 10.0**exponent > wide  # if log10 was rounded up
        unit = 10.0 ** (exponent - 5)
        error = np.abs(np.round(wide / unit) * unit - wide)
        # Half a unit in the last place would be enough, but double arithmetic has an error of a few units.
        result: npt.NDArray[np.bool_] = ~(
            error > (1 if values.dtype == np.float32 else 8) * np.spacing(np.abs(values)).astype(np.float64)
        )  # NaN: maybe
        return result


def _formatted(numbers: Sequence[float], digits: int) -> list[str]:
    # One format string for all numbers is several times faster than one call for each.
    return (f"%.{digits}g\n" * len(numbers) % tuple(numbers)).split("\n")[:-1]
