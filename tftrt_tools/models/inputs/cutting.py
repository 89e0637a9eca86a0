"""Cuts rows of the user's data into calls. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import arrays as array_reader
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import drawing
from tftrt_tools.models.savedmodel.shapes import InputSpec

Arrays = Mapping[str, npt.NDArray[Any]]


def calls_of_arrays(
    arrays: Arrays, specs: Mapping[str, Sequence[InputSpec]], batch_sizes: Sequence[int], aside: Collection[str] = ()
) -> tuple[dict[str, list[run.Call]], int]:
    """Cut arrays into calls.

    Args:
      arrays: {input, or signature/input: array with the rows in front}; "" for the only input of a signature.
      specs: {signature: InputSpecs}.
      batch_sizes: rows of a call, largest first; the rest of the data goes to the smaller ones.
      aside: names of arrays that are left aside.

    Returns: ({signature: its calls}, rows that fill no call). Raises: UsageError.
    """
    cut, dropped = {}, 0
    for signature, prepared in filled(arrays, specs, aside=aside).items():
        cut[signature], lost = _cut(signature, prepared, specs[signature], batch_sizes)
        dropped += lost
    return cut, dropped


def filled(
    arrays: Arrays, specs: Mapping[str, Sequence[InputSpec]], said: str = "the data", aside: Collection[str] = ()
) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """The arrays of the signatures for which all inputs are there, in the inputs' dtypes.

    Args: arrays, specs, aside: as in `calls_of_arrays`. said: the data, for messages.
    Returns: {signature: {input: array}}, one at least. Raises: UsageError.
    """
    array_reader.check_names((name for name in arrays if name not in aside), specs)
    by_signature = {}
    for signature, inputs in specs.items():
        picked = {spec.name: array_reader.pick(arrays, signature, spec.name, len(inputs)) for spec in inputs}
        if all(value is not None for value in picked.values()):
            by_signature[signature] = {spec.name: array_reader.prepared(picked[spec.name], spec) for spec in inputs}
    if not by_signature:
        names = "; ".join(f"{name}: {', '.join(spec.name for spec in inputs)}" for name, inputs in specs.items())
        raise errors.UsageError(
            f"{said} names {', '.join(arrays) or 'nothing'}, which fills no signature{_lacking(arrays, specs)}",
            f"inputs here: {names}" + _about_scalars(arrays, specs),
        )
    return by_signature


def _lacking(arrays: Arrays, specs: Mapping[str, Sequence[InputSpec]]) -> str:
    """What the signature lacks that arrays fill most of; "" where they fill nothing."""
    missing = {
        name: [one.name for one in inputs if array_reader.pick(arrays, name, one.name, len(inputs)) is None]
        for name, inputs in specs.items()
    }
    part = [name for name, inputs in specs.items() if len(missing[name]) < len(inputs)]
    nearest = min(part, key=lambda name: len(missing[name]), default="")
    return f": {nearest} lacks {', '.join(missing[nearest])}" if nearest else ""


def unnamed(path: str, specs: Mapping[str, Sequence[InputSpec]]) -> errors.UsageError:
    """The error for one array without a name, where each signature has several inputs."""
    name, inputs = next(iter(specs.items()))
    listed = ", ".join(spec.name for spec in inputs)
    whose = "the model" if len(specs) == 1 else f"signature {name!r}"
    count = "no input" if not inputs else f"{len(inputs)} inputs ({listed})"
    form = ", ".join(f"{spec.name}=array" for spec in inputs)
    return errors.UsageError(
        f"{path} is one array without a name, and {whose} has {count}",
        f"give an .npz with all of them: np.savez('data.npz', {form})" if inputs else "leave the data out",
    )


def _about_scalars(arrays: Arrays, specs: Mapping[str, Sequence[InputSpec]]) -> str:
    """How to give the missing inputs of rank 0, "" if other inputs are missing."""
    for signature, inputs in specs.items():
        missing = [spec for spec in inputs if array_reader.pick(arrays, signature, spec.name, len(inputs)) is None]
        if missing and len(missing) < len(inputs) and all(spec.shape == () for spec in missing):
            return "; " + array_reader.scalar_text(missing[0])
    return ""


def without(optional: Collection[str], specs: Sequence[InputSpec], given: Iterable[str]) -> list[InputSpec]:
    """The inputs that the data has to fill: those in `optional` only if it has them. Args: given: names of its arrays."""
    has = {name.rpartition("/")[2] for name in given}
    return [spec for spec in specs if spec.name in has or spec.name not in optional]


def whole(signature: str, arrays: Arrays, specs: Sequence[InputSpec]) -> run.Call:
    """One call of all of the arrays, in their own shapes. Args: arrays: {input: array}. Raises: UsageError as `calls_of_arrays`."""
    filled_in = filled({f"{signature}/{name}": array for name, array in arrays.items()}, {signature: specs})[signature]
    _check_shapes(signature, filled_in, specs)
    if any(not array.size for array in filled_in.values()) and all(
        not len(array) for array in filled_in.values() if array.ndim
    ):
        raise _empty(signature)
    return drawing.called(signature, specs, filled_in)


def _empty(signature: str) -> errors.UsageError:
    return errors.UsageError(f"the data of signature {signature!r} is empty", "give at least one row")


def _cut(
    signature: str, arrays: Arrays, specs: Sequence[InputSpec], batch_sizes: Sequence[int]
) -> tuple[list[run.Call], int]:
    rows = {len(array) for array in arrays.values() if array.ndim}
    if len(rows) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items() if array.ndim)
        raise errors.UsageError(
            f"the data of signature {signature!r} has inputs of different lengths: {lengths}",
            "give equally many rows; items of unlike rows, such as graphs, are what module:function yields",
        )
    total = rows.pop() if rows else 1
    if total == 0:
        raise _empty(signature)
    calls, start = [], 0
    while start < total:
        size = next((size for size in batch_sizes if size <= total - start), None)
        if size is None:
            break
        part = {name: array[start : start + size] if array.ndim else array for name, array in arrays.items()}
        _check_shapes(signature, part, specs)
        calls.append(run.Call(signature, part, size))
        start += size
    return calls, total - start


def _check_shapes(signature: str, part: Arrays, specs: Sequence[InputSpec]) -> None:
    for spec in specs:
        if not spec.accepts(part[spec.name].shape):
            shape = ",".join(map(str, part[spec.name].shape))
            mend = f"{signature!r} takes {spec.text()}" + (
                f": {array_reader.scalar_text(spec)}" if spec.shape == () else ""
            )
            raise errors.UsageError(f"the data of input {spec.name!r} has shape [{shape}] a call", mend)


def repeated(array: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """`rows` rows, by repeating those of an array in turn. Args: array: rows in front, at least one."""
    result: npt.NDArray[Any] = array[np.arange(rows) % len(array)]
    return result
