"""The harm of the worst nodes, measured on a GPU: engines with everything rounded, and engines with everything but one node rounded,
against the original.

One process builds all of them and keeps TensorRT's timings of kernels: the second model builds much faster than the first.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.accuracy import harm
from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs, progress
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds.savedmodel import kind as saved_model
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.tftrt.calibration.file import Calibration, EngineTable
from tftrt_tools.tftrt.conversion import pass_log
from tftrt_tools.tftrt.conversion.converting import TablesFrom
from tftrt_tools.tftrt.conversion.settings import KEEPS_HIGH, Settings

if TYPE_CHECKING:
    from tftrt_tools.models.execution.run import Call


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scored(records.Record):
    """A call, on disk: .npz paths of its inputs, and of the original's answer."""

    signature: str
    inputs: str
    reference: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureRequest(records.Record):
    """A conversion to measure."""

    # The SavedModel directory.
    source: str
    settings: Settings
    int8: TablesFrom
    calls: tuple[Scored, ...]


@jobs.job
def measure() -> Callable[[MeasureRequest], Mapping[str, tuple[harm.Effect, ...]]]:
    """Convert with engines, run, compare; needs a GPU. Answers {signature: Effects of its float outputs}."""
    from tftrt_tools.accuracy import measurement_job

    return measurement_job.job


# The result of a MeasureRequest.
Outcome = Mapping[str, tuple[harm.Effect, ...]] | errors.TftrtError


def measured(
    model: str,
    settings: Settings,
    given: Calibration | None,
    calls: Mapping[str, Sequence[Call]],
    saved: Mapping[str, Sequence[str]],
    found: Sequence[harm.SignatureHarm],
    count: int,
    folder: str,
) -> list[harm.SignatureHarm]:
    """Measure the `count` worst nodes of all signatures.

    Args: model: SavedModel directory; settings: Settings with signature_keys; given: file.Calibration with the tables for INT8, None for
      FP16; calls: {signature: [run.Call]}, saved: {signature: [.npz path of each]}; found: [SignatureHarm]; folder: for temporary files.

    Returns: [SignatureHarm] with the measurements. Raises: TftrtError where the model with everything rounded does not build or run.
    """
    flat = [(signature, path) for signature, paths in saved.items() for path in paths]
    reference = run.run(saved_model.at(model), flat, f"{folder}/reference", "the original", exact=True)
    scored = tuple(
        Scored(signature=signature, inputs=path, reference=answer)
        for (signature, path), answer in zip(flat, reference.answers, strict=True)
    )
    settings = dataclasses.replace(settings, shapes=shapes_flag(calls, settings.dynamic), calibrator="toolkit")
    nodes = [(signature.name, node) for signature in found for node in signature.nodes]
    worst = sorted(nodes, key=lambda pair: -pair[1].worst.noise)[:count]
    outcomes = _outcomes(
        [
            MeasureRequest(source=str(model), settings=trial_settings, int8=TablesFrom(given=given), calls=scored)
            for trial_settings in (settings, *(excluding(settings, node.name) for _, node in worst))
        ]
    )
    baseline = outcomes[0]
    if isinstance(baseline, errors.TftrtError):
        raise errors.TftrtError(
            f"with everything in {settings.precision_mode} the model does not run: {baseline.cause}",
            baseline.mend or "--measure=simulate needs no engines",
        )
    engines = {}
    for (signature, node), outcome in zip(worst, outcomes[1:], strict=True):
        engines[signature, node.name, node.engine] = _measured(outcome, baseline, signature)
    return [
        dataclasses.replace(
            harmed,
            measured=baseline[harmed.name],
            nodes=tuple(
                dataclasses.replace(node, measured=engines.get((harmed.name, node.name, node.engine)))
                for node in harmed.nodes
            ),
        )
        for harmed in found
    ]


def excluding(settings: Settings, name: str) -> Settings:
    """Settings that keep node `name` in a higher precision, besides those that they keep already."""
    field = KEEPS_HIGH[settings.precision_mode]
    before = getattr(settings, field)
    pattern = f"(?:{before})|{re.escape(name)}" if before else re.escape(name)
    changed: dict[str, Any] = {field: pattern}
    return dataclasses.replace(settings, **changed)


def shapes_flag(calls: Mapping[str, Sequence[Call]], dynamic: bool) -> str:
    """The text of --shapes that serves {signature: [run.Call]}: each shape; in implicit batch mode (not `dynamic`) only the largest
    batch, whose engine serves the smaller ones."""
    items = []
    for signature, calls_made in calls.items():
        largest: dict[tuple[tuple[str, tuple[int, ...]], ...], dict[str, tuple[int, ...]]] = {}
        for shapes in (call.shapes for call in calls_made):
            key = tuple(sorted((name, shape if dynamic else shape[1:]) for name, shape in shapes.items()))
            largest[key] = max(
                largest.get(key, shapes), shapes, key=lambda shape_of: [shape_of[name] for name in sorted(shape_of)]
            )
        items.append(shape_grammar.flag_text(signature, list(largest.values())))
    return ";".join(items)


def calibration(tables: Iterable[EngineTable], method: str) -> Calibration:
    """EngineTables, made by the toolkit's `method`, as a file.Calibration that is not kept."""
    unknown: dict[str, Any] = dict.fromkeys(("tensorrt", "tensorflow", "model", "model_digest"), "")
    stamp: dict[str, Any] = {**passport.stamp()}
    return Calibration(**stamp, calibrator="toolkit", method=method, **unknown, data={}, engines=tuple(tables))


def _outcomes(requests: Sequence[MeasureRequest]) -> list[Outcome]:
    """The outcome of each request: what `measure` answers, or the TftrtError that it ended with. If a process dies, another takes over."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(requests):
        with measure.worker(env=pass_log.ENV) as worker:
            while len(outcomes) < len(requests) and worker.alive:
                progress.say(
                    "building engines without one node each"
                    if outcomes
                    else "building engines with everything rounded",
                    len(outcomes),
                    len(requests),
                )
                try:
                    outcomes.append(worker.call(requests[len(outcomes)]).result)
                except errors.TftrtError as error:
                    outcomes.append(error)
                if isinstance(outcomes[0], errors.TftrtError):
                    return outcomes
    return outcomes


def _measured(outcome: Outcome, baseline: Mapping[str, tuple[harm.Effect, ...]], signature: str) -> harm.Measured:
    if isinstance(outcome, errors.TftrtError):
        return harm.Measured(None, None, None, outcome.cause)
    return harm.Measured.of(outcome[signature], baseline[signature])
