"""The step of an export that writes a precision into the graph: asked for in this process, done in a child. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs, progress
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tensorrt.exporting import as_plan, writing
from tftrt_tools.tensorrt.exporting.onnx_graph import Node
from tftrt_tools.tensorrt.exporting.precision import Asked, Written
from tftrt_tools.tensorrt.exporting.writing import Files, ToFp16, ToInt8
from tftrt_tools.tftrt.calibration import file as calibration_files
from tftrt_tools.tftrt.calibration.file import Calibration, EngineTable
from tftrt_tools.tftrt.calibration.record import DataRecord
from tftrt_tools.tftrt.calibration.table import Table, header

# The opset from which on there are scales for each channel, and that of casts that all targets read.
_LEAST_OPSET = 13
# Whose format a written table has.
_TENSORRT = "8.5.3"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """A signature's graph in FP32, as it was exported."""

    # The file, and the name of the one with its weights, or "".
    path: pathlib.Path
    weights: str
    signature: str
    # Further names of the signature.
    twins: tuple[str, ...]
    # {signature: its inputs} of the whole source, under all names; {} where they are not known. asked: those that are exported.
    inputs: Mapping[str, Sequence[InputSpec]] = dataclasses.field(default_factory=dict)
    asked: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Precise:
    """The same with another precision."""

    path: pathlib.Path
    # What is judged in its place, because ONNX Runtime does not compute in that precision; else the same path.
    judged: pathlib.Path
    written: Written
    nodes: tuple[Node, ...]
    # INT8: {tensor: scale} of all tensors that were measured, and the record of the data, None for a given table.
    scales: Mapping[str, float]
    data: DataRecord | None


class Run(Protocol):
    """Runs a job, and returns its answer."""

    def __call__(self, called: jobs.Job[jobs.Request, jobs.Answer], request: jobs.Request, /) -> jobs.Answer: ...


def check(asked: Asked, opset: int) -> None:
    """Refuse what cannot work. Raises: UsageError, TftrtError."""
    if asked.int8_as:
        if asked.precision != "INT8":
            raise errors.UsageError(
                f"--int8_as has no effect with --precision={asked.precision}", "leave it out, or choose INT8"
            )
        as_plan.read(asked.int8_as, asked.int8_said)
    if asked.precision == "FP32":
        if asked.fp32_nodes:
            raise errors.UsageError(
                "--fp32_nodes has no effect with --precision=FP32", "leave it out, or choose another precision"
            )
        return
    if opset < least_opset(asked):
        raise errors.UsageError(
            f"--opset={opset} has no nodes for --precision={asked.precision}", f"give {_LEAST_OPSET} or more"
        )
    if asked.precision == "INT8" and not asked.data and not asked.table:
        raise errors.UsageError(
            "INT8 needs ranges, and neither --calibration_data nor --calibration_table is given",
            "give one of them; --calibrate_on_random_data shows that it works, with useless ranges",
        )
    if asked.table:
        calibration_files.read(asked.table)


def least_opset(asked: Asked) -> int:
    """The oldest opset that has the nodes for it; 0 for any."""
    return 0 if asked.precision == "FP32" else _LEAST_OPSET


def make(asked: Asked, exported: Exported, folder: pathlib.Path, run: Run, calls: tuple[str, ...] = ()) -> Precise:
    """Write the precision. Args: folder: where the file is written, under its own name; run: runs a job; calls: .npz files of
    inputs, for FP16. Raises: UsageError, TftrtError."""
    folder.mkdir()
    output = folder / exported.path.name
    progress.say(f"writing {asked.precision} into {exported.signature}")
    files = Files(onnx=str(exported.path), output=str(output), weights=exported.weights)
    judged = output
    if asked.precision == "FP16":
        judged = folder / f"judged-{output.name}"
        answer = run(writing.fp16, ToFp16(files=files, fp32_nodes=asked.fp32_nodes, calls=calls, judged=str(judged)))
    else:
        answer = run(
            writing.int8,
            ToInt8(
                files=files,
                fp32_nodes=asked.fp32_nodes,
                signature=exported.signature,
                twins=exported.twins,
                inputs={name: tuple(specs) for name, specs in exported.inputs.items()},
                asked=exported.asked,
                data=asked.data,
                method=asked.method,
                percentile=asked.percentile,
                table=scales(calibration_files.read(asked.table), exported, asked.table) if asked.table else {},
                every_tensor=bool(asked.output_table),
                as_plan=as_plan.read(asked.int8_as, asked.int8_said) if asked.int8_as else None,
            ),
        )
    return Precise(
        path=output, judged=judged, written=answer.written, nodes=answer.nodes, scales=answer.scales, data=answer.data
    )


def scales(calibration: Calibration, exported: Exported, path: str) -> dict[str, float]:
    """{tensor, by its name in the table: scale} of a signature; the larger one where engines differ. Raises: TftrtError."""
    names = ("", exported.signature, *exported.twins)
    engines = [one for one in calibration.engines if one.signature in names]
    if not engines:
        raise errors.TftrtError(
            f"{path} has no table of signature {exported.signature!r}",
            "it has tables of " + ", ".join(dict.fromkeys(repr(one.signature) for one in calibration.engines)),
        )
    found: dict[str, float] = {}
    for one in engines:
        for tensor, scale in one.table.scales.items():
            found[tensor] = max(scale, found.get(tensor, 0.0))
    return found


def calibration(made: Mapping[str, Precise], model: str, digest: str) -> Calibration:
    """The calibration file of an export: the ranges of all tensors, under their names in the graphs. Args: made: by signature, one or
    more; model, digest: the source's path and digest."""
    first = next(iter(made.values()))
    engines = tuple(
        EngineTable(segment="", signature=name, engine=name, table=Table(header(_TENSORRT), dict(one.scales)))
        for name, one in made.items()
    )
    return Calibration(
        **passport.stamp(),
        calibrator="toolkit",
        method=first.written.method,
        tensorrt=_TENSORRT,
        tensorflow="",
        model=model,
        model_digest=digest,
        data=first.data.to_dict() if first.data else {},
        engines=engines,
        comparison=first.written.comparison,
    )
