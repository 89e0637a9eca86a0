"""Times one call of two models in turns, from arrays on the host to arrays on the host, as `tftrt profile` does; compares the answers."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence

from tftrt_tools.accuracy import nearness
from tftrt_tools.base.files import scratch
from tftrt_tools.models.execution import npz, run
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
    # Whether the second model's answers are like the first's, None where they were not compared; and in words.
    alike: bool | None
    answers: str


def timed(first: Asked, second: Asked) -> Pair:
    """Both sides, each in a process of its own. Raises: TftrtError where a model cannot be loaded or called."""
    both = (first, second)
    with opening.opened(*(side.model for side in both)) as models, scratch.folder("turns") as folder:
        calls = [_call(side, model, folder) for side, model in zip(both, models, strict=True)]
        sides = {
            number: _side(model.path, call, pathlib.Path(folder) / str(number))
            for number, (model, call) in enumerate(zip(models, calls, strict=True), 1)
        }
        rounds = repeats.turns(sides, "comparing the fixed model", ROUNDS)
        alike, answers = _compared(models, calls, [npz.load(side.answer(0)) for side in sides.values()])
    before, after = ([ms / 1e3 for (ms,) in rounds[number]] for number in sides)
    saved = [seconds - other for seconds, other in zip(before, after, strict=True)]
    low, high = _interval(saved)
    return Pair(
        before=statistics.median(before),
        after=statistics.median(after),
        saved=statistics.median(saved),
        low=low,
        high=high,
        alike=alike,
        answers=answers,
    )


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with 95 %, whatever the distribution: by order statistics (Conover, Practical Nonparametric
    Statistics, 1999)."""
    from scipy import stats

    test = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    return float(test.low), float(test.high)


def _call(one: Asked, model: Model, folder: str) -> run.Call:
    takes = inputs.Takes.of(model.inputs, model.contents.same, keys=(one.signature,))
    return inputs.choose(takes, one.inputs, folder, sizes=(1,)).all[0]


def _side(model: str, call: run.Call, folder: pathlib.Path) -> repeats.Side:
    answers = folder / "answers"
    answers.mkdir(parents=True)
    return repeats.Side(
        model=model, saved=run.save_calls([call], folder / "inputs"), from_host=True, answers=str(answers)
    )


def _compared(
    models: Sequence[Model], calls: Sequence[run.Call], answers: Sequence[Mapping[str, npz.Array]]
) -> tuple[bool | None, str]:
    """Pair.alike and Pair.answers, by the bounds of `tftrt verify` for the lowest precision of both models."""
    call, other = calls
    if not _same(call.inputs, other.inputs):
        takes, model_takes = _text(other.inputs), _text(call.inputs)
        why = "it got other random values" if takes == model_takes else f"it takes {takes}, and the model {model_takes}"
        return None, f"not compared with the model's: {why}"
    first, second = answers
    if first.keys() != second.keys():
        return None, f"not compared with the model's: its outputs are {', '.join(second)}"
    alike, how = nearness.alike(
        [(call, first, second)], (engine.precision for model in models for engine in model.engines)
    )
    return alike, f"like the model's: {how}" if alike else f"not like the model's: {how}"


def _same(one: Mapping[str, npz.Array], other: Mapping[str, npz.Array]) -> bool:
    return one.keys() == other.keys() and all(
        array.dtype == other[name].dtype and array.tobytes() == other[name].tobytes()
        if array.dtype != object
        else array.tolist() == other[name].tolist()
        for name, array in one.items()
    )


def _text(arrays: Mapping[str, npz.Array]) -> str:
    return ", ".join(f"{name} {array.dtype.name}" for name, array in sorted(arrays.items()))
