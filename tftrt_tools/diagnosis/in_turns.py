"""Times one call of two models in turns, in one process, the way `tftrt profile` calls them."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Sequence

from tftrt_tools import child, errors, scratch
from tftrt_tools.execution import run
from tftrt_tools.inputs import calls as inputs
from tftrt_tools.models import opening
from tftrt_tools.models.model import Model
from tftrt_tools.profiling.measure import RECORD

_NAMES = ("before", "after")


@dataclasses.dataclass(frozen=True)
class Asked:
    """One side. model: path. signature: of its call. inputs: shapes (one call), ranges and seed."""

    model: str | os.PathLike[str]
    signature: str
    inputs: inputs.Asked


@dataclasses.dataclass(frozen=True)
class Pair:
    """Median seconds of each side's calls, and the least and most by which the first was slower in a round."""

    before: float
    after: float
    low: float
    high: float


def timed(sides: Sequence[Asked]) -> Pair:
    """Args: sides: two. Raises: TftrtError where a model cannot be loaded or called."""
    with opening.opened(*(side.model for side in sides)) as models, scratch.folder("turns") as folder:
        request = {"models": [{"name": name, "path": model.path, "calls": _calls(side, model, f"{folder}/{name}")}
                              for name, side, model in zip(_NAMES, sides, models, strict=True)],
                   "folder": folder, "traced": 1, "callers": [], "gpu": False}
        facts = child.run(RECORD, request).result
    rounds = {one["model"]: [sum_of(turn) for turn in one["untraced"] if turn] for one in facts["calls"]}
    if any(not rounds.get(name) for name in _NAMES):
        raise next((errors.from_dict(error) for error in facts["failed"].values()), errors.TftrtError("no call could be timed"))
    each = {name: [statistics.median(turn) for turn in rounds[name]] for name in _NAMES}
    gained = [before - after for before, after in zip(each["before"], each["after"], strict=False)]
    before, after = (statistics.median(seconds for turn in rounds[name] for seconds in turn) for name in _NAMES)
    return Pair(before, after, min(gained), max(gained))


def sum_of(turn: Sequence[Sequence[float]]) -> list[float]:
    """Seconds of each call of a round; the recorder has them by stages."""
    return [sum(stages) for stages in turn]


def _calls(side: Asked, model: Model, folder: str) -> list[dict[str, object]]:
    takes = inputs.Takes.of(model.inputs, model.contents.same, keys=(side.signature,))
    chosen = inputs.choose(takes, side.inputs, folder, sizes=(1,))
    named: list[dict[str, object]] = run.named(run.save_calls(chosen.all, folder))
    return named[:1]
