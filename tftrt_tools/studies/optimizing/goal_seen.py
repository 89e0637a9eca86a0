"""Whether what `tftrt verify` saw keeps the goal of an optimization."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tftrt_tools.accuracy import metrics
from tftrt_tools.accuracy.goal import Goal


@dataclasses.dataclass(frozen=True)
class Seen:
    """The goal's metric, of the original and of the converted model; text: the goal, for people."""

    original: float
    converted: float
    kept: bool
    text: str

    @property
    def miss(self) -> str:
        """For people: "snr_db is 24.3, and the goal is snr_db >= 30"."""
        name = self.text.partition(" ")[0]
        return f"{name} is {self.converted:.6g}, and the goal is {self.text}"


def of_verification(goal: Goal, document: Mapping[str, Any], output: str = "") -> Seen | None:
    """Look for the goal's metric in a verification.

    Args: document: accuracy.verify.Verification as JSON. output: SIGNATURE/OUTPUT of the goal, "" for the worst of all.
    Returns: Seen, None where the metric was not computed: a function of the user's, or labels of another kind.
    """
    if goal.is_function:
        return None
    scored = ((document.get("accuracy") or {}).get("metrics") or {}).get(goal.metric)
    if scored:
        return _seen(goal, float(scored["original"]), float(scored["converted"]))
    able = [
        one
        for one in document.get("comparisons", ())
        if one.get(goal.metric) is not None
        and not one.get("part_of")
        and output in ("", f"{one.get('signature')}/{one.get('output')}")
    ]
    if metrics.METRICS[goal.metric].of_classes:  # as accuracy.score takes them
        able = [one for one in able if one.get("classes")] or able
    values = [float(one[goal.metric]) for one in able]
    if not values:
        return None
    return _seen(goal, metrics.METRICS[goal.metric].perfect, min(values) if goal.higher else max(values))


def _seen(goal: Goal, original: float, converted: float) -> Seen:
    return Seen(original, converted, goal.kept(converted, original), goal.text(original))
