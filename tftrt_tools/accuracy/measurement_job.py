"""The child's side of `measurement`: engines are built, run, and compared with the original."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.accuracy import harm, metrics
from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.models.execution import npz, run
from tftrt_tools.models.kinds.savedmodel import runner_job
from tftrt_tools.tftrt.conversion import convert_job


def job(request: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Convert with engines, run, compare; in a child, on a GPU.

    Args: request: {"source", "settings", "int8"} as conversion.convert_job.job takes them, "calls": [{"signature", "inputs": .npz path,
      "reference": .npz path of the original's answers}]}.

    Returns: {signature: [Effect dicts of its float outputs]}. Raises: TftrtError, also where an engine fell back to TensorFlow.
    """
    with scratch.folder("measure") as folder:
        output = pathlib.Path(folder) / "model"
        output.mkdir()
        convert_job.job(
            {
                "source": request["source"],
                "output": str(output),
                "settings": request["settings"],
                "int8": request["int8"],
                "cache": None,
            }
        )
        saved = run.named([(call["signature"], call["inputs"]) for call in request["calls"]])
        calls = tuple(dataclasses.replace(call, output=f"{folder}/{number}.npz") for number, call in enumerate(saved))
        done = runner_job.job(run.Request(model=str(output), calls=calls, trace=True, label="the engines"))
        _check_engines(done)
        return _compared(calls, request["calls"])


def _check_engines(done: run.Answer) -> None:
    for one in done.calls:
        if one.trace and one.trace.fallback:
            raise errors.TftrtError(
                f"{next(iter(one.trace.fallback))} ran in TensorFlow, not as an engine: "
                + "; ".join(one.trace.reasons[:1]),
                "`tftrt verify` on the converted model says more",
            )


def _compared(
    calls: Sequence[run.NamedCall], references: Sequence[Mapping[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    found: dict[tuple[str, str], metrics.Accumulator] = {}
    for call, before in zip(calls, references, strict=True):
        answer, reference = npz.load(call.output), npz.load(before["reference"])
        for output, values in reference.items():
            if values.dtype.kind == "f":
                key = (call.signature, output)
                found.setdefault(key, metrics.Accumulator(*key, wanted=harm.METRICS)).add(values, answer[output])
    grouped = itertools.groupby(found.items(), key=lambda item: item[0][0])
    return {signature: [harm.Effect.of(one.result()).to_dict() for _, one in items] for signature, items in grouped}
