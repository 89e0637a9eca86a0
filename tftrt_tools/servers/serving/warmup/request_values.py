"""The values of warm-up requests: the user's data, or values drawn for a shape. No TensorFlow here."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs import cutting
from tftrt_tools.models.inputs.drawing import Shapes
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel.shapes import InputSpec

# Rows to read from files. More rows would not warm up more.
_FILES = 64


@dataclasses.dataclass(frozen=True)
class Request:
    """One request to warm up with. call: execution.run.Call; source: "data" or "generated"."""

    call: run.Call
    source: str


@dataclasses.dataclass(frozen=True)
class Values:
    """The data of --warmup_data. arrays: {signature: {input: array, rows in front}}; requests: {signature: [run.Call]} of a function."""

    arrays: Mapping[str, Mapping[str, npt.NDArray[Any]]]
    requests: Mapping[str, list[run.Call]]

    def row_shape(self, signature: str, spec: InputSpec) -> tuple[int, ...] | None:
        """The shape of a row of an input's data, or None."""
        array = self.arrays.get(signature, {}).get(spec.name)
        return None if array is None or not array.ndim else array.shape[1:]


def read(takes: inputs.Takes, reference: str, reading: DataOptions, folder: str | pathlib.Path) -> Values:
    """Read --warmup_data.

    Args: takes: calls.Takes of the model. reference: what --data of `tftrt verify` takes, or "". reading: DataOptions. folder: for the
      read data. Returns: Values; data that fills a signature fills its twins. Raises: UsageError.
    """
    maker = inputs.CallMaker(takes, inputs.Asked(data=reference, reading=reading, said="--warmup_data"))
    given = maker.given(folder, files_rows=_FILES)
    if given is None:
        return Values({}, {})
    if given.calls:
        requests = takes.walked.with_twins(maker.cut(given, ())[0])
        return Values({}, {name: [run.Call(name, call.inputs) for call in calls] for name, calls in requests.items()})
    filled_rows = maker.filled(given)
    for arrays in filled_rows.values():
        for name, array in arrays.items():
            if array.ndim and not len(array):
                raise errors.UsageError(f"--warmup_data: input {name!r} has no rows", "give at least one row")
    return Values(
        {name: arrays for first, arrays in filled_rows.items() for name in (first, *takes.walked.twins[first])}, {}
    )


def filled(signature: str, takes: inputs.Takes, shapes: Sequence[Shapes], values: Values) -> list[Request]:
    """Requests of `signature` for `shapes` ([{input: shape}]): rows of its data, repeated where there are too few, else drawn values.
    Args: takes: calls.Takes of the model; signature: one of those, or a twin.

    Raises: UsageError where the rows of the data have another shape.
    """
    arrays, leader = values.arrays.get(signature), takes.walked.leader(signature)
    if arrays is None:
        drawn = inputs.CallMaker(takes, inputs.Asked()).drawn(leader, shapes)
        return [Request(run.Call(signature, call.inputs), "generated") for call in drawn]
    specs = takes.specs[leader]
    return [
        Request(
            run.Call(
                signature, {spec.name: _taken(arrays[spec.name], shape[spec.name], spec, signature) for spec in specs}
            ),
            "data",
        )
        for shape in shapes
    ]


def drew(signature: str, takes: inputs.Takes, requests: Sequence[Request]) -> tuple[str, ...]:
    """The inputs whose drawn values keep to what the model's ops take, a line each. Args: requests: of `filled`."""
    drawn = [one.call for one in requests if one.source == "generated"]
    return inputs.CallMaker(takes, inputs.Asked()).drew(takes.walked.leader(signature), drawn)


def _taken(array: npt.NDArray[Any], shape: tuple[int, ...], spec: InputSpec, signature: str) -> npt.NDArray[Any]:
    if not array.ndim and shape == ():
        return array
    if not array.ndim or array.shape[1:] != tuple(shape[1:]):
        rows = "x".join(map(str, array.shape[1:])) or "scalar"
        raise errors.UsageError(
            f"--warmup_data: the rows of input {spec.name!r} are {rows}, and {signature!r} is to be warmed with "
            f"{'x'.join(map(str, shape)) or 'a scalar'}",
            "give rows of that shape, or other --warmup_shapes",
        )
    return cutting.repeated(array, shape[0])
