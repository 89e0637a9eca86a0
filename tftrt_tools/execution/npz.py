"""Arrays of every dtype that a signature can have, in .npz files of this package's own.

NumPy's file form knows no bfloat16 and would return bytes without a type. So such an array is written as its bits, and its name in the
file says so.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
import numpy.typing as npt

_BITS = "bfloat16 bits of "


def save(path: str | os.PathLike[str], arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Args: arrays: {name: array}; strings are objects (bytes)."""
    # np.savez takes names as keywords, and would refuse an input that is named "file".
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            array = np.asarray(array)
            if array.dtype == ml_dtypes.bfloat16:
                name, array = _BITS + name, array.view(np.uint16)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=True)


def load(path: str | os.PathLike[str] | BinaryIO) -> dict[str, npt.NDArray[Any]]:
    """{name: array} of what `save` wrote. Strings are unpickled: only for files that this package wrote to a folder of its own."""
    with np.load(path, allow_pickle=True) as arrays:
        return {name.removeprefix(_BITS): arrays[name].view(ml_dtypes.bfloat16) if name.startswith(_BITS) else arrays[name]
                for name in arrays.files}
