"""What a trial's process is asked, and what it answers (`measure_job`). No runtime is imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.engine_cache.store import Place
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.studies.tuning.final import Final
from tftrt_tools.studies.tuning.latency import Latency
from tftrt_tools.studies.tuning.tried import Measured
from tftrt_tools.tftrt.calibration.calibrated import Calibrated
from tftrt_tools.tftrt.calibration.file import Calibration
from tftrt_tools.tftrt.conversion.settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timed(records.Record):
    """A call that is timed."""

    # As text.
    call: str
    signature: str
    # {input: shape}.
    shapes: Mapping[str, tuple[int, ...]]
    specs: tuple[InputSpec, ...]
    # {input: value} of inputs with one value for good.
    frozen: Mapping[str, bool | int | float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scored(records.Record):
    """A call of the data, on disk: .npz paths of its inputs, and of the original's answer."""

    signature: str
    rows: int
    inputs: str
    reference: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring(records.Record):
    """How a trial's answers are scored."""

    goal: Goal
    calls: tuple[Scored, ...] = ()
    # "signature/output" of the goal, or "".
    output: str = ""
    # Of the outputs, as kinds.parse returned them.
    kinds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The file of Labels.save, or "".
    labels: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Original(records.Record):
    """The model that is tuned. tags: of the MetaGraph."""

    path: str
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Converting(records.Record):
    """A conversion of a SavedModel."""

    # Its path.
    source: str
    settings: Settings
    # Of INT8: the calibration's data, or a table.
    data: DataOptions | None = None
    table: Calibration | None = None
    # The engine cache, None for none.
    cache: Place | None = None
    # Minutes for all engines; None for no bound.
    build_minutes: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfOriginal(records.Record):
    """Time the original."""

    original: Original
    timed: tuple[Timed, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfConversion(records.Record):
    """Convert, and measure that. folder: for the temporary model."""

    convert: Converting
    folder: str
    timed: tuple[Timed, ...]
    scoring: Scoring


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfMade(records.Record):
    """Measure a model of another back end than TF-TRT. path: where it is; title: what messages call it; facts: what it tells of itself."""

    path: str
    title: str
    facts: Measured
    timed: tuple[Timed, ...]
    scoring: Scoring


@dataclasses.dataclass(frozen=True, kw_only=True)
class InTurns(records.Record):
    """Time the original, conversions of it and what other back ends made in turns. converts: {number of the trial: conversion}; made:
    {number: path}; without_engines: the numbers of those that have none; folder: for the temporary models."""

    original: Original
    timed: Timed
    folder: str
    converts: Mapping[int, Converting] = dataclasses.field(default_factory=dict)
    made: Mapping[int, str] = dataclasses.field(default_factory=dict)
    without_engines: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """One thing to do; the others are None."""

    # Score the original's own answers.
    score: Scoring | None = None
    native: OfOriginal | None = None
    # Make the tables of a conversion.
    calibrate: Converting | None = None
    trial: OfConversion | None = None
    made: OfMade | None = None
    final: InTurns | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(records.Record):
    """The answer to a Request; the others are None."""

    # The goal's metric of the original.
    score: float | None = None
    # {call: Latency} of the original.
    native: Mapping[str, Latency] | None = None
    calibrated: Calibrated | None = None
    # Without seconds; its failure says why the model is unusable, if it is. Of `trial` and of `made`.
    measured: Measured | None = None
    final: Final | None = None


@jobs.job
def measure() -> Callable[[Request], Answer]:
    """The work of trials, many in one process. Raises: UsageError, TftrtError."""
    from tftrt_tools.studies.tuning import measure_job

    return measure_job.job
