"""What each engine of TF-TRT did: its runs, its runs in TensorFlow by shape, its builds."""

from __future__ import annotations

import collections
import dataclasses
from typing import Literal

from tftrt_tools.base import records
from tftrt_tools.base.logs import engine_lines, heads
from tftrt_tools.base.logs.bounded import Counts, Table
from tftrt_tools.base.logs.entries import Entry
from tftrt_tools.base.logs.known import builds, calibration, fallback
from tftrt_tools.base.logs.message import Message

_MOST_ENGINES, _MOST_SHAPES, _MOST_BUILDS = 2000, 200, 2000
# The first words of the lines that are read here.
_WORDS = frozenset({"Executing", "Native", "Building", "Added", "Engine", "Running", "Failed", "Calibration"})
_ANY = "?"
Outcome = Literal["built", "failed", "not finished"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fallback(records.Record):
    """Warnings that an engine did not run."""

    # Name of the known message.
    reason: str
    # The shapes of the request as the log writes them; "" where it does not say.
    shapes: str
    # Warnings. TF-TRT stops after five a process: there may have been more requests.
    warnings: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engine(records.Record):
    """An engine op."""

    # "?" for warnings that name none.
    name: str
    # Runs of the engine, and of TensorFlow in its place, as far as the logs count them (`EngineRuns.counted`).
    runs: int
    native_runs: int
    # Further runs in TensorFlow that are intended: for calibration, and while shapes are collected.
    calibration_runs: int
    collecting_runs: int
    fallbacks: tuple[Fallback, ...]
    # Warnings of shapes that there was no place for.
    fallbacks_left_out: int

    @property
    def warnings(self) -> int:
        """How many warnings say that the engine did not run."""
        return sum(one.warnings for one in self.fallbacks) + self.fallbacks_left_out

    @property
    def fell_back(self) -> int:
        """The number of runs in TensorFlow that the logs prove. A process that does not count its runs warns five times at most."""
        return max(self.native_runs, self.warnings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Build(records.Record):
    """A build of an engine."""

    engine: str
    # The shapes of the request that it was built for, as the log writes them.
    shapes: str
    outcome: Outcome
    # Seconds, from the times of the log's lines; None where they do not tell.
    seconds: float | None = records.field(digits=3)
    # Why it failed.
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineRuns(records.Record):
    """What all engines of the logs did."""

    engines: tuple[Engine, ...]
    builds: tuple[Build, ...]
    # Whether the logs have a line for each run (TF_CPP_VMODULE=trt_engine_op=1), those of all sources that warn.
    counted: bool
    # Lines about engines and builds that there was no place for.
    left_out: int


@dataclasses.dataclass(kw_only=True)
class _Row:
    runs: int = 0
    native: int = 0
    calibrating: int = 0
    collecting: int = 0
    # "reason\tshapes".
    fallbacks: Counts = dataclasses.field(default_factory=lambda: Counts(_MOST_SHAPES))


@dataclasses.dataclass(kw_only=True)
class _Writer:
    """The runs that one source of lines has announced and not ended."""

    # Runs of the native segment that are announced: while shapes are collected, and those of calibrating engines.
    collecting: int = 0
    calibrating: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


class Engines:
    """Collects the `EngineRuns` from the messages of logs."""

    def __init__(self) -> None:
        self._rows: Table[str, _Row] = Table(_Row, _MOST_ENGINES)
        self._writers: Table[str, _Writer] = Table(_Writer, _MOST_ENGINES)
        # {(source, engine): (shapes, time)} of builds under way.
        self._building: dict[tuple[str, str], tuple[str, str]] = {}
        self._builds: list[Build] = []
        # Sources with a line for each run, and those with warnings.
        self._counting, self._warning = Counts(_MOST_ENGINES), Counts(_MOST_ENGINES)
        self._left_out = 0

    def take(self, entry: Entry) -> None:
        """Take a message."""
        first, _, _ = entry.text.partition(" ")
        if first not in _WORDS:
            if first == "Found" and fallback.NOT_BUILT.find(entry.text) is not None:
                self._warn(entry, _ANY, fallback.NOT_BUILT, "")
            return
        text = entry.text
        if first in ("Executing", "Native"):
            self._run(entry)
        elif first == "Building":
            self._begin(entry)
        elif first == "Added" and (values := engine_lines.BUILT.find(text)):
            self._end(entry, engine_lines.name(values["engine"]), "built", "")
        elif first == "Engine" and (values := builds.CREATION_FAILED.find(text)):
            self._end(entry, engine_lines.name(values["engine"]), "failed", values["reason"])
        elif first == "Calibration" and (values := calibration.FAILED.find(text)) and "reason" in values:
            self._end(entry, _ANY, "failed", f"calibration: {values['reason']}")
        else:
            for message in (fallback.NO_ENGINE_FITS, fallback.WRONG_SHAPES, fallback.NOT_EXECUTED):
                if values := message.find(text):
                    name = engine_lines.name(values["engine"])
                    self._warn(entry, name, message, values.get("shapes") or _shapes(values.get("why", "")))

    def _run(self, entry: Entry) -> None:
        writer = self._writers.row(entry.source)
        if engine_lines.COLLECTING.find(entry.text) is not None:
            if writer:
                writer.collecting += 1
            return
        for form, kind in (
            (engine_lines.EXECUTED, "runs"),
            (engine_lines.CALIBRATED, "calibrating"),
            (engine_lines.NATIVE, "native"),
        ):
            if not (values := form.find(entry.text)):
                continue
            self._counting.add(entry.source)
            name = engine_lines.name(values["engine"])
            row = self._rows.row(name)
            if kind == "native" and writer and writer.collecting:
                writer.collecting -= 1
                kind = "collecting"
            elif kind == "native" and writer and writer.calibrating[name]:
                writer.calibrating[name] -= 1
                return
            elif kind == "calibrating" and writer:
                writer.calibrating[name] += 1
            if row:
                setattr(row, kind, getattr(row, kind) + 1)
            return

    def _warn(self, entry: Entry, name: str, message: Message, shapes: str) -> None:
        self._warning.add(entry.source)
        if row := self._rows.row(name):
            row.fallbacks.add(f"{message.name}\t{shapes}")

    def _begin(self, entry: Entry) -> None:
        values = engine_lines.BUILDING_FOR.find(entry.text) or engine_lines.BUILDING.find(entry.text)
        if not values:
            return
        key = (entry.source, engine_lines.name(values["engine"]))
        if key in self._building:
            self._keep(key[1], *self._building.pop(key), "", "not finished", "")
        if len(self._building) < _MOST_BUILDS:
            self._building[key] = values.get("shapes", ""), entry.time
        self._rows.row(key[1])

    def _end(self, entry: Entry, name: str, outcome: Outcome, reason: str) -> None:
        begun = self._building.pop((entry.source, name), None)
        if begun is None:
            # Another thread may say how it ended.
            other = next((key for key in self._building if key[1] == name), None)
            begun = self._building.pop(other) if other else ("", "")
        self._keep(name, *begun, entry.time, outcome, reason)

    def _keep(self, name: str, shapes: str, began: str, ended: str, outcome: Outcome, reason: str) -> None:
        if len(self._builds) >= _MOST_BUILDS:
            self._left_out += 1
            return
        start, end = heads.seconds(began), heads.seconds(ended)
        seconds = end - start if start is not None and end is not None and end >= start else None
        self._builds.append(Build(engine=name, shapes=shapes, outcome=outcome, seconds=seconds, reason=reason))

    def result(self) -> EngineRuns:
        """Those that fell back first, then by name."""
        unfinished = [
            Build(engine=name, shapes=shapes, outcome="not finished", seconds=None, reason="")
            for (_, name), (shapes, _) in self._building.items()
        ]
        engines = [_engine(name, row) for name, row in self._rows.rows.items()]
        counted = bool(self._counting.of) and self._warning.of.keys() <= self._counting.of.keys()
        return EngineRuns(
            engines=tuple(sorted(engines, key=lambda engine: (-engine.fell_back, engine.name))),
            builds=(*self._builds, *unfinished),
            counted=counted,
            left_out=self._left_out + self._rows.left_out,
        )


def _engine(name: str, row: _Row) -> Engine:
    fallbacks = []
    for key, count in row.fallbacks.sorted().items():
        reason, _, shapes = key.partition("\t")
        fallbacks.append(Fallback(reason=reason, shapes=shapes, warnings=count))
    return Engine(
        name=name,
        runs=row.runs,
        native_runs=row.native,
        calibration_runs=row.calibrating,
        collecting_runs=row.collecting,
        fallbacks=tuple(fallbacks),
        fallbacks_left_out=row.fallbacks.left_out,
    )


def _shapes(why: str) -> str:
    """The request's shapes in a reason such as "…, for X: [[1,2]] != [[1,3]]"."""
    _, mark, behind = why.partition("[[")
    return mark + behind.partition("]]")[0] + "]]" if mark else ""
