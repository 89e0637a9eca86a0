"""Reads rows of any source as arrays, for commands with `--data`. No TensorFlow in this process."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes  # noqa: F401 (from then on NumPy knows "bfloat16")
import numpy as np
import numpy.typing as npt

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution import arrays as array_reader
from tftrt_tools.models.execution import npz
from tftrt_tools.models.inputs.find import Found
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import DEFAULT, Once

ENV = {"TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1"}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Rows that were read."""

    # {SIGNATURE/INPUT: array, rows in front}, of the signatures that the source fills.
    arrays: dict[str, npt.NDArray[Any]]
    # The kind, of find.Found.
    kind: str
    # Where each row comes from: the path for pictures and other whole files, () for other sources.
    names: tuple[str, ...]
    # The number of each row among all rows of the source, counted from 0.
    numbers: tuple[int, ...]
    # Rows of the source, 0 if not counted.
    total: int
    # Names of pictures that did not decode.
    failed: tuple[str, ...]
    # Float inputs that got integers, a line each.
    integers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignatureRows(records.Record):
    """A signature that rows are read for; its fields as of the request to a source."""

    name: str
    specs: tuple[InputSpec, ...]
    twins: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """Rows to read."""

    options: DataOptions
    # Of find.Found.
    kind: str
    files: tuple[str, ...]
    # The most, 0 for all.
    rows: int = 0
    # The flag that named the source, for messages.
    said: str
    signatures: tuple[SignatureRows, ...]
    # Where the rows are kept.
    folder: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place(records.Record):
    """A file that holds the rows of an input: its values as they are in memory, or an .npz of strings, without a dtype."""

    path: str
    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved(records.Record):
    """Rows in files; the other fields as of Rows."""

    # {SIGNATURE/INPUT: its file}.
    arrays: dict[str, Place]
    names: tuple[str, ...]
    numbers: tuple[int, ...]
    total: int
    failed: tuple[str, ...]
    integers: tuple[str, ...]


@jobs.job
def save() -> Callable[[Request], Saved]:
    """Read rows into files that can be mapped. Raises: UsageError."""
    from tftrt_tools.models.inputs import read_job

    return read_job.job


def read(
    found: Found,
    specs: Mapping[str, Sequence[InputSpec]],
    options: DataOptions,
    folder: str | pathlib.Path,
    rows: int = 0,
    said: str = "--data",
    walked: Once | None = None,
    known: Mapping[str, Sequence[InputSpec]] | None = None,
) -> Rows:
    """Read rows of files, in a child.

    Args:
      found: of find.find, not a function. specs: {signature: [InputSpec]}; a signature that the source does not fit is left out, if
      another one fits.
      options: the source, and how pictures are read.
      folder: where the rows are kept; the arrays are maps of files there.
      rows: the most rows, for pictures spread over all files, else the first ones; 0 for all.
      said: the flag that named the source, for messages.
      walked: the signatures of `specs`, with further names of their functions, which the source may also use.
      known: {signature: [InputSpec]} of all signatures, whose arrays the source may hold; None for those of `specs`.

    Returns: Rows. Raises: UsageError.
    """
    order = sorted(specs, key=lambda name: name != DEFAULT)
    every = known or specs
    others = {name: array_reader.input_names(every) - array_reader.input_names({name: every[name]}) for name in order}
    request = Request(
        options=options,
        kind=found.kind,
        files=found.files,
        rows=rows,
        said=said,
        signatures=tuple(
            SignatureRows(
                name=name,
                specs=tuple(specs[name]),
                twins=walked.twins.get(name, ()) if walked else (),
                others=tuple(sorted(others[name])),
            )
            for name in order
        ),
        folder=str(folder),
    )
    answer = save.run(request, env=ENV).result
    return Rows(
        arrays={name: _array(place) for name, place in answer.arrays.items()},
        kind=found.kind,
        names=answer.names,
        numbers=answer.numbers,
        total=answer.total,
        failed=answer.failed,
        integers=answer.integers,
    )


def _array(place: Place) -> npt.NDArray[Any]:
    if not place.dtype:
        return npz.load(place.path)["values"]
    dtype, shape = np.dtype(place.dtype), place.shape
    # Empty arrays, and arrays without rows, cannot be mapped.
    return (
        np.memmap(place.path, dtype, "r", shape=shape)
        if shape and all(shape)
        else np.fromfile(place.path, dtype).reshape(shape)
    )
