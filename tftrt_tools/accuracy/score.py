"""The goal's metric of a model's answers. NumPy only. It calls the user's function, so it runs in a process that may load TensorFlow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy import metrics, truth
from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.accuracy.labels import Labels
from tftrt_tools.base import errors
from tftrt_tools.models.execution import user_function
from tftrt_tools.models.savedmodel.signatures import split

# {output: array} of one call.
Answer = Mapping[str, npt.NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Score:
    """value: of the goal's metric, of the worst output where several count; nonfinite: NaN and Inf in the answers that the original does
    not have."""

    value: float
    nonfinite: int


def score(
    goal: Goal,
    calls: Sequence[str],
    reference: Sequence[Answer],
    answers: Sequence[Answer],
    labels: Labels | None = None,
    output: str = "",
    kinds: Mapping[str, str] | None = None,
) -> Score:
    """Score a model's answers.

    Args:
      goal: Goal. calls: names of the signatures, one a call. reference, answers: {output: array} of each call, of the original and of the
        model. labels: labels.Labels of the rows, or None: a metric that labels can have is taken against them, all others against the
        original. output: "signature/output" that counts alone; "" for all that the metric applies to. kinds: what
        kinds.parse returned.

    Returns: Score. Raises: UsageError.
    """
    compared = _compared(calls, reference, answers, kinds or {})
    nonfinite = sum(comparison.nonfinite - comparison.nonfinite_same for comparison in compared.values())
    if output and output not in compared:
        raise errors.UsageError(
            f"--accuracy_output={output} is no output of the data's signatures", "here: " + ", ".join(compared)
        )
    if goal.is_function:
        return Score(own(goal.metric, calls, reference, answers, labels, output), nonfinite)
    if labels is not None and metrics.METRICS[goal.metric].labels:
        return Score(_against(goal.metric, calls, compared, reference, answers, labels, output, kinds or {}), nonfinite)
    chosen = [compared[output]] if output else _applicable(goal.metric, compared)
    values = [value for value in (comparison.value(goal.metric) for comparison in chosen) if value is not None]
    if not values or len(values) < len(chosen):
        mend = "outputs here: " + ", ".join(f"{name} ({comparison.dtype})" for name, comparison in compared.items())
        if not metrics.METRICS[goal.metric].kinds:
            mend = "it needs --labels that it applies to"
        raise errors.UsageError(f"--accuracy: {goal.metric} does not apply to {output or 'any output'}", mend)
    return Score(min(values) if goal.higher else max(values), nonfinite)


def _compared(
    calls: Sequence[str], reference: Sequence[Answer], answers: Sequence[Answer], kinds: Mapping[str, str]
) -> dict[str, metrics.Comparison]:
    comparing = metrics.Comparing(said=kinds)
    for signature, before, after in zip(calls, reference, answers, strict=True):
        lost = next((output for output in before if output not in after), None)
        if lost is not None:
            raise errors.TftrtError(
                f"output {lost!r} of {signature!r} is missing", "the converted model answers in another form"
            )
        comparing.add(signature, before, after)
    if comparing.problems:
        raise errors.TftrtError(next(iter(comparing.problems)), "the converted model answers in another form")
    return {result.name: result for result in comparing.results()}


def _applicable(metric: str, compared: Mapping[str, metrics.Comparison]) -> list[metrics.Comparison]:
    """The outputs that the metric applies to. A metric of classes takes outputs that have classes, or any vectors if none has. An output
    that is judged together with others is left out."""
    able = [one for one in compared.values() if one.value(metric) is not None and not one.part_of]
    return [one for one in able if one.classes] or able if metrics.METRICS[metric].of_classes else able


def _against(
    metric: str,
    calls: Sequence[str],
    compared: Mapping[str, metrics.Comparison],
    reference: Sequence[Answer],
    answers: Sequence[Answer],
    labels: Labels,
    output: str,
    kinds: Mapping[str, str],
) -> float:
    """The metric against labels. Raises: UsageError where labels of their kind do not have it."""
    first = dict(reversed(list(zip(calls, reference, strict=True))))
    classes = [name for name, comparison in compared.items() if comparison.classes]
    target = truth.find(labels, first, kinds, classes, output, "--accuracy_output")
    check(metric, target)
    result = truth.score(
        labels,
        target,
        [answer for signature, answer in zip(calls, answers, strict=True) if signature == target.signature],
    )
    if metric not in result.values:
        raise errors.UsageError(
            f"--accuracy: {metric} does not apply to {target.name} and these labels",
            f"they have {', '.join(result.values)}",
        )
    return result.values[metric]


def check(metric: str, target: truth.Target) -> None:
    """Refuse a metric of labels that these have not. Args: target: the output that they fit. Raises: UsageError."""
    known = metrics.METRICS[metric].labels
    if not known or target.kind in known:
        return
    own = [name for name, one in metrics.METRICS.items() if target.kind in one.labels]
    raise errors.UsageError(
        f"--accuracy: {metric} does not apply to --labels, which are {target.kind} of {target.name}",
        f"they have {', '.join(own)}; without --labels {metric} compares with the original's answers",
    )


def _joined(answers: Sequence[Answer]) -> dict[str, npt.NDArray[Any]]:
    """{output: the rows of all calls}; outputs without rows are those of the first call."""
    return {
        name: np.concatenate([answer[name] for answer in answers]) if answers[0][name].ndim else answers[0][name]
        for name in answers[0]
    }


def _given(labels: Labels) -> npt.NDArray[Any] | dict[str, npt.NDArray[Any]]:
    """Labels as the user's metric gets them: an array, or {name: array} of boxes."""
    return dict(labels.arrays) if labels.boxes else (labels.as_numbers() if labels.names else labels).array


def own(
    reference_text: str,
    calls: Sequence[str],
    reference: Sequence[Answer],
    answers: Sequence[Answer],
    labels: Labels | None,
    output: str,
    said: str = "--accuracy",
) -> float:
    """The value of the user's function for a model's answers, NaN if it is not finite. Args: reference_text: module:function; the
    others as of `score`. Raises: UsageError."""
    signatures = list(dict.fromkeys(calls))
    signature = split(output, signatures)[0] or signatures[0]
    if len(signatures) > 1 and not output:
        raise errors.UsageError(
            "the data fills several signatures, and the metric judges one",
            "name it with --accuracy_output=SIGNATURE/OUTPUT"
            if said == "--accuracy"
            else "choose it with --signature_keys",
        )
    picked = [
        [answer for key, answer in zip(calls, listed, strict=True) if key == signature]
        for listed in (answers, reference)
    ]
    outputs, originals = map(_joined, picked)
    rows = max((len(array) for array in outputs.values() if array.ndim), default=0)
    if labels is not None and not labels.flat and len(labels.array) < rows:
        raise errors.UsageError(f"--labels holds {len(labels.array)} values for {rows} rows", "give one for each row")
    function = user_function.find(reference_text, said, "a function metric(outputs, labels, reference) -> float")
    try:
        value = float(function(outputs, None if labels is None else _given(labels.of(0, rows)), originals))
    except Exception as error:
        raise errors.UsageError(
            f"{said}={reference_text}: {user_function.text(error)}",
            "it is called as metric(outputs: {name: array}, labels or None, reference: {name: array}) and returns a "
            "number",
        ) from None
    return value if math.isfinite(value) else math.nan
