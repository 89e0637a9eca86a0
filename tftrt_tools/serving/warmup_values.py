"""What the requests of a warm-up hold: the user's data, or values drawn for a shape. No TensorFlow here."""

import dataclasses

import numpy as np

from tftrt_tools import errors
from tftrt_tools.accuracy import data
from tftrt_tools.execution import arrays as array_reader
from tftrt_tools.execution import inputs, run

# Rows of files that have to be read: more different values warm nothing more.
_FILES = 64


@dataclasses.dataclass(frozen=True)
class Request:
    """One request to warm up with. call: execution.run.Call; source: "data" or "generated"."""

    call: run.Call
    source: str


@dataclasses.dataclass(frozen=True)
class Values:
    """What --warmup_data gives. arrays: {signature: {input: array, rows in front}}; requests: {signature: [run.Call]} of a function."""

    arrays: dict
    requests: dict

    def row_shape(self, signature, spec):
        """The shape of a row of an input's data, or None."""
        array = self.arrays.get(signature, {}).get(spec.name)
        return None if array is None or not array.ndim else array.shape[1:]


def read(reference, specs, folder):
    """Read --warmup_data.

    Args: reference: what --data of `tftrt verify` takes, or "". specs: {signature: [InputSpec]}. folder: for what is read.
    Returns: Values. Raises: UsageError.
    """
    if not reference:
        return Values({}, {})
    given = data.given(reference, specs, folder, said="--warmup_data", files_rows=_FILES)
    if given.calls:
        return Values({}, given.calls)
    arrays = given.arrays
    array_reader.check_names(arrays, specs)
    found = {}
    for signature, listed in specs.items():
        mine = {spec.name: array_reader.pick(arrays, signature, spec.name, len(listed)) for spec in listed}
        if all(value is not None for value in mine.values()):
            found[signature] = {spec.name: _rows(array_reader.prepared(mine[spec.name], spec), spec) for spec in listed}
    if not found:
        wanted = "; ".join(f"{name}: {', '.join(spec.name for spec in listed)}" for name, listed in specs.items())
        raise errors.UsageError(f"--warmup_data names {', '.join(arrays) or 'nothing'}, which fills no signature", f"inputs here: {wanted}")
    return Values(found, {})


def _rows(array, spec):
    if array.ndim and not len(array):
        raise errors.UsageError(f"--warmup_data: input {spec.name!r} has no rows", "give at least one row")
    return array


def filled(signature, specs, shapes, values):
    """Requests of `signature` for `shapes` ([{input: shape}]): rows of its data, repeated where there are too few, else drawn values.

    Raises: UsageError where the rows of the data have another shape.
    """
    arrays = values.arrays.get(signature)
    if arrays is None:
        return [Request(run.Call(signature, inputs.random(specs, one, seed)), "generated") for seed, one in enumerate(shapes)]
    return [Request(run.Call(signature, {spec.name: _taken(arrays[spec.name], one[spec.name], spec, signature) for spec in specs}), "data")
            for one in shapes]


def _taken(array, shape, spec, signature):
    if not array.ndim and shape == ():
        return array
    if not array.ndim or array.shape[1:] != tuple(shape[1:]):
        rows = "x".join(map(str, array.shape[1:])) or "scalar"
        raise errors.UsageError(f"--warmup_data: the rows of input {spec.name!r} are {rows}, and {signature!r} is to be warmed with "
                                f"{'x'.join(map(str, shape)) or 'a scalar'}", "give rows of that shape, or other --warmup_shapes")
    return array[np.arange(shape[0]) % len(array)]
