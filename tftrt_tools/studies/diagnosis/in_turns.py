"""Times one call of two models in turns, from arrays on the host to arrays on the host, as `tftrt profile` does."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Sequence

from tftrt_tools.base.files import scratch
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.kinds.model import Model
from tftrt_tools.studies.tuning import repeats


@dataclasses.dataclass(frozen=True)
class Asked:
    """One side. model: path. signature: of its call. inputs: shapes (one call), ranges and seed."""

    model: str | os.PathLike[str]
    signature: str
    inputs: inputs.Asked


# A round is two blocks of a tenth of a second. Where the host's part of a call wavers by a third, fewer tell nothing.
ROUNDS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Seconds."""

    # The median of each side's rounds.
    before: float
    after: float
    # The median over the rounds of what the second took less, and its 95 % interval. It is a difference, and not one of
    # base.statistics.ratios, because it stands beside the seconds that the finding promised.
    saved: float
    low: float
    high: float


def timed(first: Asked, second: Asked) -> Pair:
    """Both sides, each in a process of its own. Raises: TftrtError where a model cannot be loaded or called."""
    both = (first, second)
    with opening.opened(*(side.model for side in both)) as models, scratch.folder("turns") as folder:
        sides = {
            number: repeats.Side(model.path, _call(side, model, f"{folder}/{number}"), from_host=True)
            for number, (side, model) in enumerate(zip(both, models, strict=True), 1)
        }
        rounds = repeats.turns(sides, "comparing the mended model", ROUNDS)
    before, after = ([ms / 1e3 for (ms,) in rounds[number]] for number in sides)
    saved = [seconds - other for seconds, other in zip(before, after, strict=True)]
    low, high = _interval(saved)
    return Pair(
        before=statistics.median(before),
        after=statistics.median(after),
        saved=statistics.median(saved),
        low=low,
        high=high,
    )


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with 95 %, whatever the distribution: by order statistics (Conover, Practical Nonparametric
    Statistics, 1999)."""
    from scipy import stats

    test = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    return float(test.low), float(test.high)


def _call(one: Asked, model: Model, folder: str) -> run.SavedCalls:
    takes = inputs.Takes.of(model.inputs, model.contents.same, keys=(one.signature,))
    return run.save_calls(inputs.choose(takes, one.inputs, folder, sizes=(1,)).all[:1], folder)
