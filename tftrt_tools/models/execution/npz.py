"""Arrays of every dtype that a signature can have, in .npz files of this package's own.

NumPy's file form knows no bfloat16, and it would pickle strings: who can write to such a file could run code in its reader. So an array of
bfloat16 is written as its bits; strings are written as their bytes, one behind the other, with their lengths and which of them are texts.
The names in the file say so.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file

Array = npt.NDArray[Any]
_BITS = "bfloat16 bits of "
_LENGTHS, _TEXTS, _BYTES = "string lengths of ", "string texts of ", "string bytes of "


def save(path: str | os.PathLike[str], arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Args: arrays: {name: array}; strings are objects (bytes or str)."""
    # np.savez takes names as keywords, and would refuse an input that is named "file".
    with plain_file.naming(path), zipfile.ZipFile(path, "w") as archive:
        for given, array in arrays.items():
            for name, part in _parts(given, np.asarray(array)):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, part, allow_pickle=False)  # type: ignore[no-untyped-call]


def _parts(name: str, array: Array) -> Iterator[tuple[str, Array]]:
    """(name in the file, array) of all that an array is written as. Raises: UsageError for objects that are no strings."""
    if array.dtype == ml_dtypes.bfloat16:
        yield _BITS + name, array.view(np.uint16)
    elif array.dtype == object:
        texts = np.array([isinstance(element, str) for element in array.flat], bool)
        raw = [
            element.encode("utf-8", "surrogatepass") if isinstance(element, str) else element for element in array.flat
        ]
        strange = [element for element in raw if not isinstance(element, bytes)][:1]
        for other in strange:
            raise errors.UsageError(
                f"{name!r} is an array of Python objects ({type(other).__name__}), which are no strings",
                "give numbers, or str or bytes",
            )
        yield _LENGTHS + name, np.array([len(encoded) for encoded in raw], np.int64).reshape(array.shape)
        yield _TEXTS + name, texts
        yield _BYTES + name, np.frombuffer(b"".join(raw), np.uint8)
    else:
        yield name, array


def load(path: str | os.PathLike[str] | BinaryIO) -> dict[str, Array]:
    """{name: array} of what `save` wrote. Raises: ValueError, also for a file with pickles, which no one is to write here."""
    loaded: dict[str, Array] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            if name.startswith(_BITS):
                loaded[name.removeprefix(_BITS)] = arrays[name].view(ml_dtypes.bfloat16)
            elif name.startswith(_LENGTHS):
                bare = name.removeprefix(_LENGTHS)
                loaded[bare] = _strings(arrays[name], arrays[_TEXTS + bare], arrays[_BYTES + bare])
            elif not name.startswith((_TEXTS, _BYTES)):
                loaded[name] = arrays[name]
    return loaded


def _strings(lengths: Array, texts: Array, content: Array) -> Array:
    raw, elements, begin = content.tobytes(), np.empty(lengths.size, object), 0
    for place, (length, is_text) in enumerate(zip(lengths.flat, texts.flat, strict=True)):
        element = raw[begin : begin + length]
        elements[place], begin = element.decode("utf-8", "surrogatepass") if is_text else element, begin + length
    return elements.reshape(lengths.shape)
