"""The child's side of `measurement`: engines are built, run, and compared with the original."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence

from tftrt_tools.accuracy import harm, metrics
from tftrt_tools.accuracy.measurement import MeasureRequest, Scored
from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.models.execution import npz, run
from tftrt_tools.models.kinds.savedmodel import runner_job
from tftrt_tools.tftrt.conversion import convert_job
from tftrt_tools.tftrt.conversion.converting import ConvertRequest


def job(request: MeasureRequest) -> dict[str, tuple[harm.Effect, ...]]:
    """Convert with engines, run, compare; on a GPU.

    Returns: {signature: Effects of its float outputs}. Raises: TftrtError, also where an engine fell back to TensorFlow.
    """
    with scratch.folder("measure") as folder:
        output = pathlib.Path(folder) / "model"
        output.mkdir()
        convert_job.job(
            ConvertRequest(source=request.source, output=str(output), settings=request.settings, int8=request.int8)
        )
        saved = run.named([(call.signature, call.inputs) for call in request.calls])
        calls = tuple(dataclasses.replace(call, output=f"{folder}/{number}.npz") for number, call in enumerate(saved))
        done = runner_job.job(run.Request(model=str(output), calls=calls, trace=True, label="the engines"))
        _check_engines(done)
        return _compared(calls, request.calls)


def _check_engines(done: run.Answer) -> None:
    for call in done.calls:
        if call.trace and call.trace.fallback:
            raise errors.TftrtError(
                f"{next(iter(call.trace.fallback))} ran in TensorFlow, not as an engine: "
                + "; ".join(call.trace.reasons[:1]),
                "`tftrt verify` on the converted model says more",
            )


def _compared(calls: Sequence[run.NamedCall], references: Sequence[Scored]) -> dict[str, tuple[harm.Effect, ...]]:
    accumulators: dict[tuple[str, str], metrics.Accumulator] = {}
    for call, before in zip(calls, references, strict=True):
        answer, reference = npz.load(call.output), npz.load(before.reference)
        for output, values in reference.items():
            if values.dtype.kind == "f":
                key = (call.signature, output)
                accumulators.setdefault(key, metrics.Accumulator(*key, wanted=harm.METRICS)).add(values, answer[output])
    grouped = itertools.groupby(accumulators.items(), key=lambda item: item[0][0])
    return {
        signature: tuple(harm.Effect.of(accumulator.result()) for _, accumulator in items)
        for signature, items in grouped
    }
