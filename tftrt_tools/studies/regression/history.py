"""Lists the kept results, and searches them for steps."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import documents
from tftrt_tools.base.stack.fingerprint import Fingerprint
from tftrt_tools.studies.regression import baseline, steps
from tftrt_tools.studies.regression import verdict as verdicts

# What a series can show: {name: (title, unit, factor to that unit, whether more is better)}.
VALUES = {
    "speed_up": ("times as fast as native", "", 1.0, True),
    "p50": ("candidate's p50", "ms", 1e3, False),
    "p99": ("candidate's p99", "ms", 1e3, False),
    "throughput": ("candidate's throughput", "/s", 1.0, True),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry(records.Record):
    """One kept result."""

    # Its number in the series.
    number: int
    # The file.
    path: str
    # When it was measured, as ISO 8601.
    created: str
    # sha256 of the models' files.
    candidate_digest: str
    native_digest: str
    # The run's comparison.Regression.outcome.
    outcome: str
    # {name of VALUES: value in its unit}, only measured ones.
    values: Mapping[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step(records.Record):
    """A change of level."""

    # The number of the first Entry on the new level.
    number: int
    created: str
    # The old and the new level, in the unit of the value shown.
    before: float
    after: float
    # The new level divided by the old one, minus 1.
    change: float
    # Whether the change is bad.
    worse: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """One candidate, called in one way, on one kind of machine."""

    # The name of the candidate.
    name: str
    # How it was called, in words.
    asked: str
    machine: Fingerprint
    # Name of VALUES.
    shown: str
    # The oldest first.
    entries: tuple[Entry, ...]
    # Levels of the shown value: (place of the first entry, of the last, value).
    levels: tuple[tuple[int, int, float], ...]
    # Files that are not results.
    skipped: tuple[str, ...] = ()

    @property
    def points(self) -> list[tuple[Entry, float]]:
        """[(Entry, value)] of the entries that have the value shown."""
        return [(one, one.values[self.shown]) for one in self.entries if self.shown in one.values]

    @property
    def steps(self) -> tuple[Step, ...]:
        """(Step, …)."""
        more_is_better = VALUES[self.shown][3]
        points, found = self.points, []
        for (_, _, before), (first, _, after) in zip(self.levels, self.levels[1:], strict=False):
            change = after / before - 1
            entry = points[first][0]
            found.append(
                Step(
                    number=entry.number,
                    created=entry.created,
                    before=before,
                    after=after,
                    change=change,
                    worse=(change < 0) == more_is_better,
                )
            )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Written by hand: it has the steps, and not the levels."""
        return {
            "name": self.name,
            "asked": self.asked,
            "machine": self.machine.to_dict(),
            "shown": self.shown,
            "entries": [one.to_dict() for one in self.entries],
            "steps": [one.to_dict() for one in self.steps],
            "skipped": list(self.skipped),
        }


@dataclasses.dataclass(frozen=True)
class History(records.Record):
    """directory: where it was read."""

    document = "history"

    directory: str
    series: tuple[Series, ...]


def read(
    directory: pathlib.Path,
    name: str = "",
    shown: str = "speed_up",
    min_effect: float = verdicts.MIN_EFFECT,
    digest: str = "",
) -> History:
    """Read a history.

    Args: directory: Path. name: of a series, "" for all. shown: of VALUES. min_effect: the smallest step, as a share. digest: of a
      machine, or its beginning, "" for all. Returns: History, without series where nothing was kept yet. Raises: UsageError if there is
      nothing of that name or machine.
    """
    folders = [folder for folder in sorted(directory.glob("*/*")) if folder.is_dir() and baseline.listing(folder)]
    chosen = [
        folder
        for folder in folders
        if (not name or folder.name.partition("@")[0] == name) and folder.parent.name.startswith(digest)
    ]
    if not folders and not name and not digest:
        return History(str(directory), ())
    if not chosen:
        known = ", ".join(sorted({folder.name.partition("@")[0] for folder in folders}))
        what = f" of {name}" if name else ""
        raise errors.UsageError(
            f"there is no history{what} in {directory}",
            f"series there: {known}" if known else "`tftrt regress … --save_baseline=auto` begins one",
        )
    found = (_series(folder, shown, min_effect) for folder in chosen)
    return History(str(directory), tuple(one for one in found if one))


def _series(folder: pathlib.Path, shown: str, min_effect: float) -> Series | None:
    entries, skipped, machine, asked = [], [], None, ""
    for number, path in baseline.listing(folder):
        try:
            kept = baseline.read(path)
        except errors.UsageError:
            skipped.append(str(path))
            continue
        try:
            entry = _entry(number, path, kept.document)
        except documents.MISREAD:
            skipped.append(str(path))
            continue
        machine = machine or Fingerprint.from_dict(kept.document["machine"])
        asked = asked or baseline.asked_text(kept.document)
        entries.append(entry)
    if machine is None:
        return None
    logs = [math.log(one.values[shown]) for one in entries if shown in one.values]
    levels = steps.levels(logs, smallest=math.log1p(min_effect))
    spans = tuple((one.first, one.last, math.exp(one.value)) for one in levels)
    return Series(
        name=folder.name.partition("@")[0],
        asked=asked,
        machine=machine,
        shown=shown,
        entries=tuple(entries),
        levels=spans,
        skipped=tuple(skipped),
    )


def _entry(number: int, path: pathlib.Path, document: Mapping[str, Any]) -> Entry:
    judged = {one["metric"]: one for one in (document["verdict"] or {}).get("judgements", ())}
    values = {
        name: VALUES[name][2] * judged[name]["candidate"]
        for name in ("p50", "p99", "throughput")
        if judged.get(name, {}).get("candidate") is not None
    }
    if judged.get("p50", {}).get("ratio"):
        values["speed_up"] = 1 / judged["p50"]["ratio"]
    if not all(math.isfinite(value) and value > 0 for value in values.values()):
        raise ValueError(f"{path} has values that no measurement gives")
    return Entry(
        number=number,
        path=str(path),
        created=document["created"],
        candidate_digest=document["candidate"]["digest"],
        native_digest=document["native"]["digest"],
        outcome=document["outcome"],
        values=values,
    )
