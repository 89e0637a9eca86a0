"""The results that were kept: listed, and searched for steps."""

import dataclasses
import math
import pathlib

from tftrt_tools import errors
from tftrt_tools.regression import baseline, steps
from tftrt_tools.regression import verdict as verdicts
from tftrt_tools.stack.fingerprint import Fingerprint

# What a series can show: {name: (title, unit, factor to that unit, whether more is better)}.
VALUES = {"speed_up": ("times as fast as native", "", 1.0, True), "p50": ("candidate's p50", "ms", 1e3, False),
          "p99": ("candidate's p99", "ms", 1e3, False), "throughput": ("candidate's throughput", "/s", 1.0, True)}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One kept result. number: in its series. values: {name of VALUES: in its unit}, those that were measured."""

    number: int
    path: str
    created: str
    candidate_digest: str
    native_digest: str
    outcome: str
    values: dict

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Step:
    """A change of level. number: of the first Entry on the new level; change: new over old level, less 1; worse: whether that is bad."""

    number: int
    created: str
    before: float
    after: float
    change: float
    worse: bool

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Series:
    """One candidate, asked in one way, on one kind of machine. asked: how, in words. machine: Fingerprint. shown: name of VALUES. entries:
    (Entry, …), the oldest first; levels: of the shown value, ((first place, last place, value), …); skipped: files that are no results."""

    name: str
    asked: str
    machine: Fingerprint
    shown: str
    entries: tuple
    levels: tuple
    skipped: tuple = ()

    @property
    def points(self):
        """[(Entry, value)] of the entries that have the value shown."""
        return [(one, one.values[self.shown]) for one in self.entries if self.shown in one.values]

    @property
    def steps(self):
        """(Step, …)."""
        more_is_better = VALUES[self.shown][3]
        points, found = self.points, []
        for (_, _, before), (first, _, after) in zip(self.levels, self.levels[1:], strict=False):
            change = after / before - 1
            found.append(Step(points[first][0].number, points[first][0].created, before, after, change, (change < 0) == more_is_better))
        return tuple(found)

    def to_dict(self):
        return {"name": self.name, "asked": self.asked, "machine": self.machine.to_dict(), "shown": self.shown,
                "entries": [one.to_dict() for one in self.entries], "steps": [one.to_dict() for one in self.steps],
                "skipped": list(self.skipped)}


@dataclasses.dataclass(frozen=True)
class History:
    """directory: where it was read. series: (Series, …)."""

    directory: str
    series: tuple

    def to_dict(self):
        return {"kind": "history", "directory": self.directory, "series": [one.to_dict() for one in self.series]}


def read(directory, name="", shown="speed_up", min_effect=verdicts.MIN_EFFECT, digest=""):
    """Read a history.

    Args: directory: Path. name: of a series, "" for all. shown: of VALUES. min_effect: the smallest step, as a share. digest: of a
      machine, or its beginning, "" for all.
    Returns: History. Raises: UsageError where there is nothing.
    """
    folders = [folder for folder in sorted(directory.glob("*/*")) if folder.is_dir() and baseline.listing(folder)]
    chosen = [folder for folder in folders if (not name or folder.name.partition("@")[0] == name) and folder.parent.name.startswith(digest)]
    if not chosen:
        known = ", ".join(sorted({folder.name.partition("@")[0] for folder in folders}))
        what = f" of {name}" if name else ""
        raise errors.UsageError(f"there is no history{what} in {directory}",
                                f"series there: {known}" if known else "`tftrt regress … --save_baseline=auto` begins one")
    found = (_series(folder, shown, min_effect) for folder in chosen)
    return History(str(directory), tuple(one for one in found if one))


def _series(folder, shown, min_effect):
    entries, skipped, machine, asked = [], [], None, ""
    for number, path in baseline.listing(folder):
        try:
            kept = baseline.read(path)
        except errors.UsageError:
            skipped.append(str(path))
            continue
        try:
            entry = _entry(number, path, kept.document)
        except (TypeError, ValueError, KeyError, AttributeError):
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
    return Series(folder.name.partition("@")[0], asked, machine, shown, tuple(entries), spans, tuple(skipped))


def _entry(number, path, document):
    judged = {one["metric"]: one for one in (document["verdict"] or {}).get("judgements", ())}
    values = {name: VALUES[name][2] * judged[name]["candidate"] for name in ("p50", "p99", "throughput")
              if judged.get(name, {}).get("candidate") is not None}
    if judged.get("p50", {}).get("ratio"):
        values["speed_up"] = 1 / judged["p50"]["ratio"]
    if not all(math.isfinite(value) and value > 0 for value in values.values()):
        raise ValueError(f"{path} has values that no measurement gives")
    return Entry(number, str(pathlib.Path(path)), document["created"], document["candidate"]["digest"], document["native"]["digest"],
                 document["outcome"], values)
