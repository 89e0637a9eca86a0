"""Hashes of single rows, by which data sets are compared. No TensorFlow here."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def row_hashes(arrays: Mapping[str, npt.ArrayLike]) -> list[str]:
    """A hash of each row over all inputs: names, dtypes, the shape of the row, bytes. How rows are batched does not matter.

    Args: arrays: {input: array with the rows in front}; arrays of rank 0 belong to every row. Strings of any array type are equal
      to the same bytes. Arrays of different lengths are one item, with one hash.
    Returns: list of str, 16 hexadecimal digits each (BLAKE2b of 8 bytes). Raises: ValueError where no array has rows.
    """
    plain = {name: _plain(np.asarray(arrays[name])) for name in sorted(arrays)}
    lengths = {len(array) for array in plain.values() if array.ndim}
    if not lengths:
        raise ValueError("no array has rows")
    if len(lengths) > 1:
        return row_hashes({name: array[None] if array.ndim else array for name, array in plain.items()})
    heads = {
        name: repr(
            (name, "string" if array.dtype == object else array.dtype.name, array.shape[1:], array.ndim)
        ).encode()
        for name, array in plain.items()
    }
    hashes = []
    for index in range(lengths.pop()):
        digest = hashlib.blake2b(digest_size=8)
        for name, array in plain.items():
            digest.update(heads[name])
            digest.update(_bytes(array[index] if array.ndim else array))
        hashes.append(digest.hexdigest())
    return hashes


def overlap(known: Collection[str], arrays: Mapping[str, npt.ArrayLike]) -> int:
    """How many rows of `arrays` are among those of a data set.

    Args: known: set of the data set's row hashes (DataRecord.rows); if it keeps fewer hashes than it has samples, the count is a lower
      bound. arrays: as in `row_hashes`, in the dtypes of the signature's inputs.
    """
    return sum(row_hash in known for row_hash in row_hashes(arrays))


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Strings as objects, numbers in little-endian order without gaps."""
    if array.dtype.kind in "OSU":
        return array.astype(object)
    return np.asarray(array, array.dtype.newbyteorder("<") if array.dtype.isbuiltin != 2 else None, order="C")


def _bytes(row: bytes | str | np.generic | npt.NDArray[Any]) -> bytes:
    if isinstance(row, (bytes, str)) or row.dtype == object:
        values = [
            value.encode() if isinstance(value, str) else bytes(value) for value in np.asarray(row, object).reshape(-1)
        ]
        return b"".join(len(value).to_bytes(8, "little") + value for value in values)
    result: bytes = row.tobytes()
    return result
