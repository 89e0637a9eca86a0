"""What TensorRT did in its builds: kernels that it timed and skipped, layer by layer, fusions, phases, memory.

Forms of the verbose lines: TensorRT 7 ("Tactic: N time T"), 8.2 to 8.5 ("Tactic: 0x… Time: T"), 8.6 to 10 ("Tactic Name: … Tactic: 0x…
Time: T", "profiling completed in S seconds").
"""

from __future__ import annotations

import dataclasses
import math
import re

from tftrt_tools.base import records
from tftrt_tools.base.logs import builder_lines, engine_layers, heads
from tftrt_tools.base.logs.bounded import Counts, Table
from tftrt_tools.base.logs.entries import Entry

_MOST_LAYERS, _MOST_KINDS, _MOST_WRITERS, _MOST_ENGINES = 5000, 500, 200, 500
_TACTIC = re.compile(r"Tactic: (?P<tactic>(?:0x)?-?[0-9a-f]+) [tT]ime:? (?P<time>\S+)")
_COMPLETED = re.compile(
    r"(?P<layer>.*) \((?P<kind>\w+)(?:\[[^\]]*\])?\) profiling completed in (?P<seconds>[\d.]+) seconds"
)
_CHOSEN = re.compile(r">+ Chose Runner Type: (?P<kind>[\w:]+) Tactic: (?P<tactic>\S+)")
_SKIPPED = re.compile(
    r"[Ss]kipping tactic \S+ due to insuff?icient memory on requested size of (?P<size>\d+) detected for tactic"
)
_SKIPPED_7 = re.compile(r"Tactic:? -?\d+ scratch requested: (?P<size>\d+), available: \d+")
_SKIPPED_OTHER = re.compile(r"[Ss]kipping tactic .*(?:due to|exception)")
_FUSION = re.compile(r"(?P<kind>\w{1,80}): [Ff]using ")
_PHASE = re.compile(
    r"(?P<phase>Engine generation|Formats and tactics selection|Graph construction and optimization|Graph construction|"
    r"Calibration|Configuring builder for Int8 Mode) completed in (?P<seconds>[\d.]+) seconds|"
    r"Engine built in (?P<whole>[\d.]+) sec"
)
_MEMORY = re.compile(r"\[MemUsageChange\].*now: CPU (?P<cpu>\d+), GPU (?P<gpu>\d+) \(MiB\)")
# Reformats between layers are timed like layers, under names that hold both tensors.
_REFORMATS = "reformats between layers"
# Characters of a layer's name that are kept: the names of a whole fused graph are in it.
_LONGEST = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerTimes(records.Record):
    """The kernels that TensorRT timed for a layer."""

    layer: str
    # How long finding and timing them took, None where neither the times of the lines nor TensorRT itself tells.
    seconds: float | None = records.field(digits=3)
    timings: int
    # The fastest kernel: its milliseconds, kind of runner and tactic; None and "" where none was timed.
    fastest_ms: float | None = records.field(digits=6)
    runner: str
    tactic: str
    # Kernels not tried for want of memory, and the largest wish among them, in bytes.
    skipped: int
    wanted_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerTimes(records.Record):
    """The kernels of a kind of runner."""

    kind: str
    seconds: float | None = records.field(digits=3)
    timings: int
    # How often it was the fastest.
    chosen: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineLayers(records.Record):
    """Layers of a built engine (logs.engine_layers): those that compute, of all its profiles."""

    # "" for an engine that is not TF-TRT's.
    engine: str
    count: int
    # {precision, "" for other types: layers}, of convolutions and products, and of the others; {TensorRT's kind: layers}.
    products: dict[str, int]
    others: dict[str, int]
    kinds: dict[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Builder(records.Record):
    """What TensorRT did in all builds of the logs."""

    # The slowest to time first.
    layers: tuple[LayerTimes, ...]
    runners: tuple[RunnerTimes, ...]
    engine_layers: tuple[EngineLayers, ...]
    # {pass: fusions}; {"Original" or "After …": layers}, of the last build.
    fusions: dict[str, int]
    layer_counts: dict[str, int]
    # {phase: (times, seconds)}.
    phases: dict[str, tuple[int, float]]
    # Kernels not tried: for want of memory, and for other reasons.
    skipped_memory: int
    skipped_other: int
    # The most that TensorRT saw used while it built, in MiB; {kind of an engine's memory: the most bytes}.
    peak_cpu_mib: int
    peak_gpu_mib: int
    memory: dict[str, int]
    # Lines about layers that there was no place for.
    left_out: int


@dataclasses.dataclass(kw_only=True)
class _LayerRow:
    seconds: float = 0.0
    timed: bool = False
    timings: int = 0
    fastest: float = math.inf
    runner: str = ""
    tactic: str = ""
    skipped: int = 0
    wanted: int = 0


@dataclasses.dataclass(kw_only=True)
class _RunnerRow:
    seconds: float = 0.0
    timed: bool = False
    timings: int = 0
    chosen: int = 0


@dataclasses.dataclass(kw_only=True)
class _EngineRow:
    count: int = 0
    products: Counts = dataclasses.field(default_factory=lambda: Counts(8))
    others: Counts = dataclasses.field(default_factory=lambda: Counts(8))
    kinds: Counts = dataclasses.field(default_factory=lambda: Counts(_MOST_KINDS))


@dataclasses.dataclass(kw_only=True)
class _Writer:
    """The layer and the kind of runner that one source of lines is timing now."""

    layer: str = ""
    kind: str = ""
    # When the line before it came, and its last one, None where unknown. TensorRT names a runner when it has found its kernels.
    began: float | None = None
    last: float | None = None
    # The time of TensorRT's last line, as the log has it.
    before: str = ""


class Builds:
    """Collects a `Builder` from the messages of logs."""

    def __init__(self) -> None:
        self._layers: Table[str, _LayerRow] = Table(_LayerRow, _MOST_LAYERS)
        self._runners: Table[str, _RunnerRow] = Table(_RunnerRow, _MOST_KINDS)
        self._engines: Table[str, _EngineRow] = Table(_EngineRow, _MOST_ENGINES)
        self._writers: Table[str, _Writer] = Table(_Writer, _MOST_WRITERS)
        self._fusions, self._memory = Counts(_MOST_KINDS), Counts(_MOST_KINDS)
        self._counts: dict[str, int] = {}
        self._phases: dict[str, tuple[int, float]] = {}
        self._skipped = self._other = self._cpu = self._gpu = 0
        self._says_seconds = False

    def take(self, entry: Entry) -> None:
        """Take a message."""
        self._take(entry)
        if entry.tensorrt and (writer := self._writers.row(entry.source)):
            writer.before = entry.time

    def _take(self, entry: Entry) -> None:
        text = entry.text
        first = text[:1]
        if first == "T" and text.startswith("Tactic"):
            self._tactic(entry)
        elif first == "-" and (match := builder_lines.RUNNER.search(text)):
            self._begin(entry, match["layer"], match["kind"])
        elif first == ">" and (match := _CHOSEN.match(text)):
            self._close(entry)
            if row := self._runners.row(match["kind"]):
                row.chosen += 1
        elif first == "L" and text.startswith("Layer("):
            self._engine_layer(text)
        elif "kipping tactic" in text:
            self._skip(entry)
        else:
            self._other_line(entry)

    def _other_line(self, entry: Entry) -> None:
        text = entry.text
        if " profiling completed in " in text and (match := _COMPLETED.match(text)):
            self._says_seconds = True
            self._time(_name(match["layer"]), match["kind"], _seconds(match["seconds"]))
            return
        if text.startswith((builder_lines.COMBINATION, builder_lines.REFORMATS, builder_lines.COSTS)):
            self._close(entry)
        elif match := _FUSION.match(text):
            self._fusions.add(match["kind"])
        elif " layers" in text and (match := builder_lines.LAYERS.match(text)):
            self._counts[match["when"]] = heads.whole(match["count"])
        elif (" completed in " in text or text.startswith("Engine built")) and (match := _PHASE.search(text)):
            self._close(entry)
            phase = match["phase"] or "Engine built by trtexec"
            times, seconds = self._phases.get(phase, (0, 0.0))
            self._phases[phase] = times + 1, seconds + _seconds(match["seconds"] or match["whole"])
        elif text.startswith("[MemUsageChange]") and (match := _MEMORY.match(text)):
            self._cpu, self._gpu = max(self._cpu, heads.whole(match["cpu"])), max(self._gpu, heads.whole(match["gpu"]))
        elif text.startswith("Total ") and (match := builder_lines.MEMORY.match(text)):
            what, size = match["what"], heads.whole(match["bytes"])
            if size < builder_lines.NO_BYTES:
                self._memory.add(what, max(0, size - self._memory.of.get(what, 0)))

    def _begin(self, entry: Entry, layer: str, kind: str) -> None:
        self._close(entry)
        if writer := self._writers.row(entry.source):
            writer.layer, writer.kind = _name(layer), kind
            writer.began = writer.last = heads.seconds(writer.before or entry.time)

    def _stamp(self, entry: Entry) -> None:
        writer = self._writers.rows.get(entry.source)
        if writer and writer.layer:
            writer.last = heads.seconds(entry.time)

    def _close(self, entry: Entry) -> None:
        """Ends the timing of the current runner and adds its times to the layer."""
        writer = self._writers.rows.get(entry.source)
        if writer is None or not writer.layer:
            return
        if not self._says_seconds and writer.began is not None and writer.last is not None:
            self._time(writer.layer, writer.kind, max(0.0, writer.last - writer.began))
        writer.layer = ""

    def _time(self, layer: str, kind: str, seconds: float) -> None:
        row: _LayerRow | _RunnerRow | None
        for row in (self._layers.row(layer), self._runners.row(kind)):
            if row:
                row.seconds, row.timed = row.seconds + seconds, True

    def _tactic(self, entry: Entry) -> None:
        writer = self._writers.rows.get(entry.source)
        if match := _SKIPPED_7.match(entry.text):
            self._count_skipped(writer, heads.whole(match["size"]))
            return
        match = _TACTIC.search(entry.text)
        if not match:
            return
        self._stamp(entry)
        layer, runner = (
            (self._layers.row(writer.layer), self._runners.row(writer.kind))
            if writer and writer.layer
            else (None, None)
        )
        if runner:
            runner.timings += 1
        if layer:
            layer.timings += 1
            time = _number(match["time"])
            if time < layer.fastest and writer:
                layer.fastest, layer.runner, layer.tactic = time, writer.kind, match["tactic"]

    def _skip(self, entry: Entry) -> None:
        if found := _SKIPPED.search(entry.text):
            self._count_skipped(self._writers.rows.get(entry.source), heads.whole(found["size"]))
        elif _SKIPPED_OTHER.search(entry.text):
            self._other += 1

    def _count_skipped(self, writer: _Writer | None, size: int) -> None:
        self._skipped += 1
        layer = self._layers.row(writer.layer) if writer and writer.layer else None
        if layer:
            layer.skipped, layer.wanted = layer.skipped + 1, max(layer.wanted, size)

    def _engine_layer(self, text: str) -> None:
        engine = engine_layers.ENGINE.search(text)
        name = engine[1] if engine else ""
        layer = next((engine_layers.computes(layer_row, f"{name}/") for layer_row in engine_layers.rows(text)), None)
        row = self._engines.row(name) if layer else None
        if layer and row:
            row.count += 1
            row.kinds.add(layer.kind)
            (row.products if layer.multiplies else row.others).add(layer.precision)

    def result(self) -> Builder:
        """The Builder of all messages so far."""
        tried = {
            name: row
            for name, row in self._layers.rows.items()
            if row.timings or row.timed and row.seconds or row.skipped
        }
        used = {
            kind: row
            for kind, row in self._runners.rows.items()
            if row.timings or row.timed and row.seconds or row.chosen
        }
        layers = [
            LayerTimes(
                layer=name,
                seconds=row.seconds if row.timed else None,
                timings=row.timings,
                runner=row.runner,
                tactic=row.tactic,
                fastest_ms=row.fastest if math.isfinite(row.fastest) else None,
                skipped=row.skipped,
                wanted_bytes=row.wanted,
            )
            for name, row in tried.items()
        ]
        runners = [
            RunnerTimes(kind=kind, seconds=row.seconds if row.timed else None, timings=row.timings, chosen=row.chosen)
            for kind, row in used.items()
        ]
        engines = [
            EngineLayers(
                engine=name,
                count=row.count,
                products=row.products.sorted(),
                others=row.others.sorted(),
                kinds=row.kinds.sorted(),
            )
            for name, row in self._engines.rows.items()
        ]
        return Builder(
            layers=tuple(sorted(layers, key=_slowest)),
            runners=tuple(sorted(runners, key=_slowest)),
            engine_layers=tuple(engines),
            fusions=self._fusions.sorted(),
            layer_counts=self._counts,
            phases=self._phases,
            skipped_memory=self._skipped,
            skipped_other=self._other,
            peak_cpu_mib=self._cpu,
            peak_gpu_mib=self._gpu,
            memory=dict(self._memory.of),
            left_out=self._layers.left_out + self._writers.left_out + self._engines.left_out,
        )


def _name(layer: str) -> str:
    return _REFORMATS if layer.startswith("Optimizer Reformat") else engine_layers.without_profile(layer)[0][:_LONGEST]


def _slowest(row: LayerTimes | RunnerTimes) -> tuple[float, int]:
    return -(row.seconds or 0.0), -row.timings


def _seconds(text: str) -> float:
    """0 for what a damaged line has in its place."""
    value = _number(text)
    return value if value < math.inf else 0.0


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.inf
    return value if value >= 0 else math.inf
