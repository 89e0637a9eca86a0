"""What a diagnosis says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import ClassVar, Literal

from tftrt_tools.base import records
from tftrt_tools.models.savedmodel import passport

Cause = Literal[
    "fallback",
    "coverage",
    "many-engines",
    "range",
    "precision",
    "reformat",
    "small-batch",
    "launches",
    "inputs",
    "calling",
    "one-caller",
    "gpu-state",
    "memory-bound",
    "native-fast",
    "cold",
    "wire",
    "queue",
    "decoding",
]
# They cost the original as much: they lie in how it is called, so they are not why a conversion gives little.
OF_THE_CALLER: frozenset[Cause] = frozenset({"small-batch", "calling", "one-caller"})
# "ceiling": no mend of this kind gives more than this; "estimate": what it should give; "" where the profile does not tell.
Basis = Literal["ceiling", "estimate", ""]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial(records.Record):
    """What a mend really gave: the mended and the converted model, timed in turns, and their answers compared."""

    # The command that made the mended model, without "tftrt".
    command: tuple[str, ...]
    # Median seconds of a call of each; None where it could not be made or timed.
    before: float | None = None
    after: float | None = None
    # Seconds that the mended one takes less: the median over the rounds, and its 95 % interval.
    saved: float | None = None
    low: float | None = None
    high: float | None = None
    # Whether the mended model's answers are like those of the converted model, None where they were not compared; and in words, "" in
    # files of earlier versions.
    alike: bool | None = None
    answers: str = ""
    # Why there are no figures, or "".
    problem: str = ""

    @property
    def gained(self) -> float | None:
        """Seconds of a call; negative where the mend made it slower."""
        if self.saved is not None:
            return self.saved
        # As files of earlier versions say it.
        return None if self.before is None or self.after is None else self.before - self.after

    @property
    def told(self) -> bool:
        """Whether the rounds show that it is faster, or that it is slower."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    @property
    def better(self) -> bool:
        """Whether the mended model is shown to be faster, and answers like the converted one."""
        return self.alike is True and self.told and (self.gained or 0.0) > 0

    @property
    def answered(self) -> str:
        """For people: how the mended model's answers compare; "" where it gave none."""
        return "" if self.gained is None else self.answers or "not compared with the model's"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding(records.Record):
    """One cause at one shape."""

    cause: Cause
    # One sentence.
    title: str
    # The call that it is about, as run.Call.text writes it; "" for all.
    call: str = ""
    # Seconds of that call; 0 where it costs nothing now, None where the profile does not tell.
    worth: float | None = None
    basis: Basis = ""
    # How `worth` was found: "engines are 0.44 of 0.89 ms, so …".
    rule: str = ""
    # Measured facts, a line each.
    evidence: tuple[str, ...] = ()
    # What to do, in words.
    mend: str = ""
    # Words of the tftrt command that does it, without "tftrt"; () where no flag does.
    command: tuple[str, ...] = ()
    # Set by --try.
    trial: Trial | None = None


@dataclasses.dataclass(frozen=True)
class Remark(records.Record):
    """A fact that bounds what can be gained, or that a reader would take for a fault. It costs nothing by itself.

    cause: as of Finding. call: the call it is about, "" for all. text: a sentence."""

    cause: Cause
    call: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Looked(records.Record):
    """A call that was looked at. Seconds at the median."""

    # As Finding.call.
    call: str
    # Its batch.
    rows: int
    # Of the converted model and of the original, None where that was not profiled.
    seconds: float
    original_seconds: float | None = None
    # The GPU runs engines, it runs anything, and the share that could not be placed.
    engine_seconds: float
    gpu_seconds: float
    unplaced_share: float = records.field(digits=4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosis(passport.Stamped):
    """All findings about a model."""

    # Paths.
    model: str
    original: str
    # When the profile was made, and on which GPU; "" where it does not say.
    profiled: str
    gpu: str
    # Ranked.
    findings: tuple[Finding, ...]
    remarks: tuple[Remark, ...] = ()
    # What could not be looked at, a line each.
    unknown: tuple[str, ...] = ()
    # The calls.
    calls: tuple[Looked, ...] = ()

    document: ClassVar[str] = "diagnosis"


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What a change to the model or the machine mends comes before OF_THE_CALLER; in each, the most worth first and those without a figure
    last. A ceiling counts half: what such a mend gives lies between nothing and it."""
    return tuple(sorted(findings, key=lambda one: (one.cause in OF_THE_CALLER, one.worth is None, -_counted(one))))


def _counted(one: Finding) -> float:
    return (one.worth or 0.0) * (0.5 if one.basis == "ceiling" else 1.0)


def matters(finding: Finding, calls: Iterable[Looked], share: float) -> bool:
    """Whether a finding is worth at least `share` of its call, 0 to 1. One without a figure matters."""
    whole = {one.call: one.seconds for one in calls}.get(finding.call)
    return finding.worth is None or whole is None or finding.worth >= share * whole
