"""The user's arrays for a signature: read, named, cast. No TensorFlow here."""

from __future__ import annotations

import contextlib
import os
import pathlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.files import archives
from tftrt_tools.models.savedmodel.shapes import InputSpec


def load(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Arrays of an .npz or .npy file. Returns: {name: array}; an .npy has the name "". Raises: UsageError."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise errors.UsageError(f"no such file: {path}", "give an .npz or .npy file, or module:function")
    _check_size(path)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        hint = (
            "save strings as a fixed-width array (np.array(values, 'S')), not as objects"
            if "pickle" in str(error).lower()
            else "write it with np.savez(path, input_name=array)"
        )
        raise errors.UsageError(f"{path} is no readable .npz or .npy file", hint) from None


def _check_size(path: pathlib.Path) -> None:
    """Refuse an archive that unpacks to far more than it holds. Raises: UsageError."""
    with contextlib.suppress(OSError, zipfile.BadZipFile, NotImplementedError), zipfile.ZipFile(path) as archive:
        try:
            archives.check(archive)
        except ValueError as error:
            raise errors.UsageError(
                f"{path}: {error}", "write it with np.savez(path, input_name=array), which does not pack"
            ) from None


def names(path: str | os.PathLike[str]) -> list[str]:
    """Names of the arrays in an .npz file; [""] for an .npy, and for any other file."""
    if not zipfile.is_zipfile(path):
        return [""]
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def scalar_text(spec: InputSpec) -> str:
    """How to give an input of rank 0, for messages. Args: spec: its InputSpec."""
    value = "False" if spec.dtype == "bool" else "b'text'" if spec.dtype == "string" else "1"
    return (
        f"{spec.name} is one value for all rows: give it as an array of rank 0, such as {spec.name}=np.array({value})"
    )


def input_names(specs: Mapping[str, Sequence[InputSpec]]) -> set[str]:
    """The names that arrays of these signatures may have: INPUT, and SIGNATURE/INPUT. Args: specs: {signature: [InputSpec]}."""
    return {
        name
        for signature, inputs_of in specs.items()
        for spec in inputs_of
        for name in (spec.name, f"{signature}/{spec.name}")
    }


def check_names(arrays: Iterable[str], specs: Mapping[str, Sequence[InputSpec]]) -> None:
    """Refuse arrays whose names are not inputs. Args: specs: {signature: [InputSpec]}. Raises: UsageError."""
    expected = input_names(specs)
    unknown = [name for name in arrays if name and name not in expected]
    if unknown:
        raise errors.UsageError(
            f"the data has an array {unknown[0]!r} that is no input", "inputs here: " + ", ".join(sorted(expected))
        )


def pick(arrays: Mapping[str, npt.NDArray[Any]], signature: str, name: str, count: int) -> Any:
    """The array of input `name` of a signature with `count` inputs: SIGNATURE/INPUT before INPUT, "" for an only input. Returns: None
    where there is none."""
    if "" in arrays:
        return arrays[""] if count == 1 else None
    return arrays.get(f"{signature}/{name}", arrays.get(name))


def prepared(array: npt.NDArray[Any], spec: InputSpec, where: str = "") -> npt.NDArray[Any]:
    """The array in the input's dtype, where no information but a float's precision is lost.

    Args: array: rows in front. spec: InputSpec. where: file or batch for the message, such as " of data.npz".
    Returns: np.ndarray of spec.dtype; strings as objects (bytes). Raises: UsageError, also for NaN and Inf.
    """
    what = f"the data of input {spec.name!r}{where}"
    if spec.dtype == "string":
        if array.dtype.kind not in "SUO":
            raise errors.UsageError(f"{what} is {array.dtype}, and the signature takes strings", "give strings")
        return np.char.encode(array, "utf-8").astype(object) if array.dtype.kind == "U" else array.astype(object)
    dtype = np.dtype(spec.dtype)
    if dtype.name == "bfloat16":
        return _as_bfloat16(array, spec, what)
    if array.dtype.kind in "SUO" or not np.can_cast(array.dtype, dtype, "same_kind") and not _lossless(array, dtype):
        raise errors.UsageError(f"{what} is {array.dtype}, and the signature takes {spec.dtype}", "convert it first")
    if array.dtype.kind in "iu" and dtype.kind in "iu" and not _lossless(array, dtype):
        raise errors.UsageError(
            f"{what} has values from {array.min()} to {array.max()}, more than {spec.dtype} holds", "convert it first"
        )
    _check_finite(array, what, "holds")
    with np.errstate(over="ignore"):
        cast = array.astype(dtype, copy=False)
    if cast.dtype != array.dtype:
        _check_finite(cast, what, f"as {spec.dtype} holds")
    return cast


def _as_bfloat16(array: npt.NDArray[Any], spec: InputSpec, what: str) -> npt.NDArray[Any]:
    """bfloat16 from a file: NumPy does not count it as a number, and reads it as two bytes without a type."""
    if array.dtype.str.lstrip("|") == "V2":
        array = array.view(ml_dtypes.bfloat16)
    if array.dtype != ml_dtypes.bfloat16 and array.dtype.kind != "f":
        raise errors.UsageError(f"{what} is {array.dtype}, and the signature takes {spec.dtype}", "convert it first")
    with np.errstate(over="ignore"):
        cast = array.astype(ml_dtypes.bfloat16, copy=False)
    _check_finite(array.astype(np.float64), what, "holds")
    _check_finite(cast.astype(np.float64), what, f"as {spec.dtype} holds")
    return cast


def _check_finite(array: npt.NDArray[Any], what: str, verb: str) -> None:
    if array.dtype.kind not in "fc":
        return
    bad = ~np.isfinite(array)
    if bad.any():
        rows = bad.reshape(len(bad), -1).any(axis=1) if bad.ndim else bad.reshape(1)
        raise errors.UsageError(
            f"{what} {verb} NaN or Inf: {int(bad.sum())} of {bad.size} values, in {int(rows.sum())} of {rows.size} "
            f"rows, the first of them row {int(rows.argmax())} (counted from 0)",
            "clean the data first",
        )


def _lossless(array: npt.NDArray[Any], wanted: np.dtype[Any]) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.array_equal(array.astype(wanted).astype(array.dtype), array))
