"""The goal's metric of a model's answers. NumPy only; a user's function is called here, so it runs where TensorFlow may."""

import dataclasses
import math

import numpy as np

from tftrt_tools import errors
from tftrt_tools.accuracy import metrics
from tftrt_tools.execution import user_function


@dataclasses.dataclass(frozen=True)
class Score:
    """value: of the goal's metric, of the worst output where several count; nonfinite: NaN and Inf in the answers that the original does
    not have."""

    value: float
    nonfinite: int


def score(goal, calls, reference, answers, labels=None, output=""):
    """Score a model's answers.

    Args:
      goal: Goal. calls: names of the signatures, one a call. reference, answers: {output: array} of each call, of the original and of the
        model. labels: array (rows,), or None. output: "signature/output" that counts alone; "" for all that the metric applies to.

    Returns: Score. Raises: UsageError.
    """
    compared = _compared(calls, reference, answers)
    nonfinite = sum(one.nonfinite - one.nonfinite_same for one in compared.values())
    if output and output not in compared:
        raise errors.UsageError(f"--accuracy_output={output} is no output of the data's signatures", "here: " + ", ".join(compared))
    if goal.is_function:
        return Score(_own(goal.metric, calls, reference, answers, labels, output), nonfinite)
    if goal.metric == "top1" and labels is not None:
        return Score(_accuracy(calls, compared, answers, labels, output), nonfinite)
    chosen = [compared[output]] if output else _applicable(goal.metric, compared)
    values = [getattr(one, goal.metric) for one in chosen]
    if not values or None in values:
        raise errors.UsageError(f"--accuracy: {goal.metric} does not apply to {output or 'any output'}",
                                "outputs here: " + ", ".join(f"{name} ({one.dtype})" for name, one in compared.items()))
    return Score(min(values) if goal.higher else max(values), nonfinite)


def _compared(calls, reference, answers):
    found = {}
    for signature, before, after in zip(calls, reference, answers, strict=True):
        for output in before:
            entry = found.setdefault(f"{signature}/{output}", metrics.Accumulator(signature, output))
            try:
                entry.add(before[output], after[output])
            except (KeyError, ValueError) as error:
                raise errors.TftrtError(f"output {output!r} of {signature!r}: {error}",
                                        "the converted model answers in another form") from None
    return {name: entry.result() for name, entry in found.items()}


def _applicable(metric, compared):
    """top1 speaks of classes; of a vector's largest entry only where no output has classes."""
    able = [one for one in compared.values() if getattr(one, metric) is not None]
    return [one for one in able if one.classes] or able if metric == "top1" else able


def _accuracy(calls, compared, answers, labels, output):
    if not output:
        classes = [one.name for one in _applicable("top1", compared)]
        if len(classes) != 1:
            raise errors.UsageError("--labels: which output holds the classes is not clear",
                                    "name it with --accuracy_output=SIGNATURE/OUTPUT")
        output = classes[0]
    signature, _, name = output.rpartition("/")
    rows = _joined([answer for one, answer in zip(calls, answers, strict=True) if one == signature])[name]
    if labels.dtype.kind not in "iu" or len(labels) < len(rows):
        raise errors.UsageError(f"--labels holds {len(labels)} {labels.dtype} values for {len(rows)} rows", "give one integer for each row")
    return metrics.accuracy(labels[:len(rows)], rows)


def _joined(answers):
    """{output: the rows of all calls}; outputs without rows are those of the first call."""
    return {name: np.concatenate([one[name] for one in answers]) if answers[0][name].ndim else answers[0][name] for name in answers[0]}


def _own(reference_text, calls, reference, answers, labels, output):
    signatures = list(dict.fromkeys(calls))
    signature = output.rpartition("/")[0] or signatures[0]
    if len(signatures) > 1 and not output:
        raise errors.UsageError("the data fills several signatures, and the metric judges one",
                                "name it with --accuracy_output=SIGNATURE/OUTPUT")
    picked = [[answer for one, answer in zip(calls, listed, strict=True) if one == signature] for listed in (answers, reference)]
    outputs, originals = map(_joined, picked)
    rows = max((len(array) for array in outputs.values() if array.ndim), default=0)
    if labels is not None and len(labels) < rows:
        raise errors.UsageError(f"--labels holds {len(labels)} values for {rows} rows", "give one for each row")
    function = user_function.find(reference_text, "--accuracy", "a function metric(outputs, labels, reference) -> float")
    try:
        value = float(function(outputs, None if labels is None else labels[:rows], originals))
    except Exception as error:
        raise errors.UsageError(f"--accuracy={reference_text}: {user_function.text(error)}",
                                "it is called as metric(outputs: {name: array}, labels or None, reference: {name: array}) and returns a "
                                "number") from None
    return value if math.isfinite(value) else math.nan
