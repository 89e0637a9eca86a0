"""Inputs for a signature: drawn from a seed, for shapes; as NumPy arrays, no TensorFlow here."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.limits import Limit
from tftrt_tools.models.savedmodel.shapes import InputSpec, call_text

# NumPy counts the bytes of an array in a signed word; the widest numbers that are drawn have 16.
_MOST_ELEMENTS = np.iinfo(np.intp).max // 16
_WORDS = np.array([b"a", b"b", b"the", b"model", b"x1", b""], dtype=object)


def random(
    specs: Sequence[InputSpec],
    shapes: Mapping[str, tuple[int, ...]],
    seed: int,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Draw one call's inputs.

    Args:
      specs: [InputSpec] of the signature.
      shapes: {input: concrete shape}.
      seed: the same seed gives the same values, input by input, on every machine.
      ranges: {input: (low, high)}, the half-open interval to draw from; by default what the model takes as far as its graph tells
        (InputSpec.limit), else floats are standard normal and integers 0 or 1.

    Returns: {input: np.ndarray}; strings as object arrays of bytes. Raises: TftrtError for shapes beyond any memory, UsageError for a range
      that the type does not hold.
    """
    for spec in specs:
        if math.prod(shapes[spec.name]) > _MOST_ELEMENTS:
            raise errors.TftrtError(
                f"not enough memory for an input {call_text({spec.name: shapes[spec.name]})}",
                "give smaller sizes with --shapes, if the model takes them",
            )
        bounds = (ranges or {}).get(spec.name)
        if bounds and not _holds(spec.dtype, *bounds):
            flag_text = f"{spec.name}:{bounds[0]:g}:{bounds[1]:g}"
            raise errors.UsageError(
                f"--ranges: {flag_text} is more than {spec.dtype} holds", "give numbers that the input's type holds"
            )
    return {spec.name: _drawn(spec, shapes, seed, (ranges or {}).get(spec.name)) for spec in specs}


def _holds(name: str, low: float, high: float) -> bool:
    """Whether a type holds the numbers from `low` to below `high`, and NumPy draws them."""
    if name in ("string", "bool"):
        return True
    if np.dtype(name).kind in "iu":
        return np.iinfo(name).min <= low and high <= min(np.iinfo(name).max, np.iinfo(np.int64).max) + 1
    with np.errstate(over="ignore"):
        return math.isfinite(high - low) and bool(np.isfinite(np.array([low, high]).astype(name)).all())


def _drawn(
    spec: InputSpec, shapes: Mapping[str, tuple[int, ...]], seed: int, bounds: tuple[float, float] | None
) -> npt.NDArray[Any]:
    shape, limit = shapes[spec.name], spec.limit
    if bounds is None and limit and spec.dtype != "bool":
        values = _within(
            spec.dtype, limit, shape, shapes, np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
        )
        if values is not None:
            return values
    return _draw(spec, shape, seed, bounds)


def _within(
    name: str, limit: Limit, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator
) -> npt.NDArray[Any] | None:
    """Values in a limit; None where it is none for this type."""
    if limit.keys:
        keys = np.array(
            [key.encode() for key in limit.keys] if name == "string" else [int(key) for key in limit.keys],
            object if name == "string" else name,
        )
        return np.asarray(keys[rng.integers(0, len(keys), shape)], keys.dtype)
    ends = None if name == "string" or np.dtype(name).kind == "c" else limit.ends(shapes)
    if ends is None:
        return None
    low, high = ends
    if not limit.whole and np.dtype(name).kind not in "iu":
        return np.asarray(rng.uniform(low, high, shape)).astype(name)
    drawn = rng.integers(int(low), max(int(low) + 1, min(int(high), _most_whole(name))), shape)
    return np.asarray(np.sort(drawn, axis=0) if limit.rising and shape else drawn).astype(name)


def _most_whole(name: str) -> int:
    """The end of the whole numbers from 0 that a type holds."""
    if np.dtype(name).kind in "iu":
        return min(int(np.iinfo(name).max), int(np.iinfo(np.int64).max) - 1) + 1
    result: int = 2 ** (int(ml_dtypes.finfo(name).nmant) + 1)
    return result


def _draw(spec: InputSpec, shape: tuple[int, ...], seed: int, bounds: tuple[float, float] | None) -> npt.NDArray[Any]:
    rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    if spec.dtype == "string":
        return _WORDS[rng.integers(0, len(_WORDS), shape)] if shape else np.asarray(b"a", dtype=object)
    if spec.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    dtype = np.dtype(spec.dtype)
    if dtype.kind in "iu":
        low, high = bounds or (0, 2)
        return rng.integers(int(low), int(high), shape).astype(dtype)
    if bounds:
        return rng.uniform(*bounds, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def plain(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Inputs of the same shapes for a model that refuses drawn values: zeros, and for strings a picture, a PNG file of 64x48 black pixels
    (TensorFlow's decoders of JPEG take it, too)."""
    return {
        name: np.full(array.shape, _picture(64, 48), object) if array.dtype.kind == "O" else np.zeros_like(array)
        for name, array in arrays.items()
    }


def pictures(shape: tuple[int, ...], seed: int) -> npt.NDArray[Any]:
    """Encoded pictures: PNG files of noise, 64x48 and smaller. Args: shape: of the input of strings. Returns: object array of bytes."""
    rng, array = np.random.default_rng(seed), np.empty(shape, object)
    for place in np.ndindex(shape):
        height, width = (int(side) for side in rng.integers((24, 32), (65, 49)))
        array[place] = _picture(height, width, rng.bytes(3 * height * width))
    return array


def _picture(height: int, width: int, pixels: bytes = b"") -> bytes:
    """An RGB picture as PNG, https://www.w3.org/TR/png-3/. Args: pixels: line by line, by default black."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = pixels or bytes(3 * width * height)
    lines = b"".join(b"\0" + pixels[3 * width * line : 3 * width * (line + 1)] for line in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def parse_ranges(text: str, flag: str = "--ranges") -> dict[str, tuple[float, float]]:
    """The text 'ids:0:30522;x:-1:1' of a flag. Returns: {input: (low, high)}. Raises: UsageError."""
    ranges = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        try:
            name, low, high = item.rsplit(":", 2)
            ranges[name] = (float(low), float(high))
            assert name
        except (ValueError, AssertionError):
            raise errors.UsageError(
                f"{flag}: {item!r} is not of the form INPUT:LOW:HIGH", f"e.g. {flag}='ids:0:30522'"
            ) from None
        if not ranges[name][0] < ranges[name][1]:
            raise errors.UsageError(
                f"{flag}: {item!r} is no range: LOW has to be below HIGH", f"e.g. {flag}='ids:0:30522'"
            )
    return ranges
