"""What the calls of an export tell of a graph's inputs and outputs: their ranks, and which dimensions are not of one size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy.typing as npt
import onnx

from tftrt_tools.base import errors
from tftrt_tools.models.execution import npz
from tftrt_tools.models.kinds.onnx import runner_job
from tftrt_tools.tensorrt.exporting.job.graph_facts import is_open

Arrays = Mapping[str, npt.NDArray[Any]]


def read(paths: Sequence[str]) -> list[Arrays]:
    """The calls in .npz files."""
    return list(map(npz.load, paths))


def of_inputs(names: Iterable[str], calls: Sequence[Arrays], frozen: Iterable[str] = ()) -> dict[str, int]:
    """{input: its rank}, of inputs of which the model does not say it. Args: frozen: those with one value for good. Raises: TftrtError
    where calls differ, or do not have it."""
    found = dict.fromkeys(frozen, 0)
    for name in names:
        ranks = {call[name].ndim for call in calls if name in call} if name not in found else {0}
        if len(ranks) != 1:
            raise errors.TftrtError(
                f"the model does not say how many dimensions input {name!r} has"
                + (f", and the calls have {' and '.join(map(str, sorted(ranks)))}" if ranks else ""),
                "give --shapes, or --data of one rank",
            )
        found[name] = ranks.pop()
    return found


def notes(found: Mapping[str, int], frozen: Iterable[str]) -> list[str]:
    """What to know, a line each."""
    return [
        f"input {name} has {rank} dimensions in the file, as in the calls: the model takes any number"
        for name, rank in found.items()
        if name not in frozen
    ]


def set_ranks(values: Iterable[onnx.ValueInfoProto], found: Mapping[str, int]) -> None:
    """Give inputs or outputs without a shape open dimensions without names."""
    for value in values:
        if value.name in found and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()
            for _ in range(found[value.name]):
                value.type.tensor_type.shape.dim.add()


def tell_apart(values: Iterable[onnx.ValueInfoProto], calls: Sequence[Arrays]) -> None:
    """Give open dimensions of inputs that have no name, or are not of the size of the first one of their name in each call, one of their
    own."""
    first: dict[str, list[int | None]] = {}
    for value in values:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if is_open(dim):
                sizes = [call[value.name].shape[axis] if value.name in call else None for call in calls]
                if not dim.dim_param or first.setdefault(dim.dim_param, sizes) != sizes:
                    dim.dim_param = re.sub(r"\W", "_", f"{value.name}_{axis}")


def complete(model: onnx.ModelProto, calls: Sequence[Arrays]) -> None:
    """Give outputs of an unknown rank that of a run. Raises: TftrtError that names one whose rank no run tells."""
    unknown = [value.name for value in model.graph.output if not value.type.tensor_type.HasField("shape")]
    if not unknown:
        return
    session = runner_job.session(model.SerializeToString(), "the exported graph", optimized=False) if calls else None
    taken = [one.name for one in model.graph.input]
    ran = [session.run(unknown, {name: call[name] for name in taken}) for call in calls[:_MOST_RUNS] if session]
    for number, name in enumerate(unknown):
        ranks = {one[number].ndim for one in ran}
        if len(ranks) != 1:
            raise errors.TftrtError(
                f"output {name!r} has no rank of its own"
                + (
                    f": it has {' and '.join(map(str, sorted(ranks)))} dimensions, and an ONNX file names one number"
                    if ranks
                    else ""
                ),
                "give its axes in the model (tf.squeeze(x, axis), tf.reshape), or leave it out with --outputs",
            )
        set_ranks(model.graph.output, {name: ranks.pop()})


# Calls that tell a rank.
_MOST_RUNS = 4
