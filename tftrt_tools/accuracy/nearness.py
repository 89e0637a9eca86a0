"""Whether answers are like those of another model by the bounds of `tftrt verify`, and how near they are, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tftrt_tools.accuracy import judgement, kinds
from tftrt_tools.accuracy.metrics import Comparison
from tftrt_tools.base import errors
from tftrt_tools.base.choices import Precision
from tftrt_tools.models.savedmodel.engine_op import lowest_precision

if TYPE_CHECKING:
    import numpy.typing as npt

    from tftrt_tools.accuracy.metrics.comparison import Pair


def alike(pairs: Iterable[Pair], precisions: Iterable[Precision]) -> tuple[bool, str]:
    """(whether the answers are alike, how near they are or the first difference).

    Args: pairs: as of judgement.judge. precisions: of all engines of both models: the lowest has the bounds. Engines in FP32 may compute in
      TF32.
    """
    lowest = lowest_precision(precisions)
    # That a model shows nothing on these calls is no difference.
    rules = judgement.Rules(allow_constant_outputs=True)
    pairs = [_finite(pair) for pair in pairs]
    try:
        judged = judgement.judge(pairs, lowest if lowest in ("INT8", "FP16") else "TF32", (), rules)
    except errors.TftrtError as error:
        return False, error.cause
    problem = next(iter(judged.all_problems), "")
    # The judgement leaves out what the first, an original there, has no number for.
    for name in [] if problem else [name for _, first, _ in pairs for name, one in first.items() if _has_others(one)]:
        problem = f"{name}: one of them has NaN or Inf where the other has none"
    return not problem, problem or ", ".join(parts(judged.comparisons))


def _finite(pair: Pair) -> Pair:
    """A pair without what is NaN or infinite in both alike: a model that answers so by itself is no difference of two."""
    call, first, second = pair
    ones, others = dict(first), dict(second)
    for name, one in first.items():
        other = second.get(name)
        if other is None or one.dtype != other.dtype or one.shape != other.shape or one.dtype.kind != "f":
            continue
        same = ~np.isfinite(one) & ((one == other) | (np.isnan(one) & np.isnan(other)))
        if same.any():
            ones[name], others[name] = (np.where(same, np.zeros((), one.dtype), values) for values in (one, other))
    return call, ones, others


def _has_others(values: npt.NDArray[Any]) -> bool:
    """Whether there is NaN or infinity among them."""
    return values.dtype.kind == "f" and not np.isfinite(values).all()


def parts(comparisons: Sequence[Comparison]) -> list[str]:
    """For each measure the worst output: ["SNR 52.1 dB", "top-1 equal in 99.00%"]."""
    # An output that is judged together with others has no figure of its own; ids have no SNR.
    alone = [one for one in comparisons if not one.part_of]
    worst = (
        (_snr, min, [one.snr_db for one in alone if one.kind != kinds.IDS]),
        ("top-1 equal in {:.2%}".format, min, [one.top1 for one in alone if one.classes]),
        ("{:.2%} of the elements differ".format, max, [one.mismatches for one in alone]),
        ("{:.2%} of the detections matched".format, min, [one.value("matched") for one in alone]),
    )
    known = [(form, choose, [value for value in values if value is not None]) for form, choose, values in worst]
    return [form(choose(values)) for form, choose, values in known if values]


def _snr(value: float) -> str:
    return "no float differs" if math.isinf(value) else f"SNR {value:.1f} dB"
