"""The score of answers against --labels, for the original and for the converted model."""

import dataclasses
import math
import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy import kinds
from tftrt_tools.accuracy import labels as label_kinds
from tftrt_tools.accuracy.labels import Labels
from tftrt_tools.accuracy.metrics import detections, registry
from tftrt_tools.accuracy.metrics.metric import Measure
from tftrt_tools.base import errors

# With fewer, who guesses is right by chance too often.
_ROWS_TO_TELL = 30
_NUMBERED = (label_kinds.CLASSES, label_kinds.MASKS, label_kinds.TAGS)


@dataclasses.dataclass(frozen=True)
class Target:
    """The output that the labels are about. signature, output: its name, for a detector detections.Group.name; kind: of accuracy.labels;
    group: of a detector, else None."""

    signature: str
    output: str
    kind: str
    group: detections.Group | None = None

    @property
    def name(self) -> str:
        """signature/output."""
        return f"{self.signature}/{self.output}"


@dataclasses.dataclass(frozen=True)
class Scored:
    """values: {metric: value}; rows: how many were compared with labels; per_class: {class: (rows or pixels, share of them that is
    right; of masks the IoU)}, {} where there are no classes."""

    values: Mapping[str, float]
    rows: int
    per_class: Mapping[int, tuple[int, float]]


def find(
    labels: Labels,
    first: Mapping[str, Mapping[str, npt.NDArray[Any]]],
    said: Mapping[str, str],
    classes: Iterable[str],
    wanted: str,
    flag: str,
) -> Target:
    """The output that labels are about.

    Args: first: {signature: the answer to its first rows}, of signatures with the user's data. said: what kinds.parse returned. classes:
      "signature/output" of the outputs that hold classes; they are preferred. wanted: "signature/output", "" to find it. flag: the flag
      that names it, for messages.
    Raises: UsageError.
    """
    able, classes = _able(labels, first, said), set(classes)
    names = {target.name: target for target in able}
    if wanted and wanted not in names and able and labels.boxes:
        # The name of a member stands for its detector.
        names |= {
            f"{target.signature}/{member}": target for target in able if target.group for member in target.group.members
        }
    if wanted:
        if wanted not in names:
            raise errors.UsageError(
                f"--labels: {_text(labels)} fits no output {wanted!r} with --data", _outputs(first, flag)
            )
        return _not_one_hot(names[wanted], labels, first, classes, flag)
    preferred = [target for target in able if target.name in classes] or able
    if len(preferred) == 1:
        return _not_one_hot(preferred[0], labels, first, classes, flag)
    if not able and labels.boxes:
        raise errors.UsageError(
            "--labels has boxes, and no signature with --data has the outputs of a detector",
            "say which they are, as in --output_kind='A:boxes;B:scores;C:ids'; " + _outputs(first, flag),
        )
    if not able:
        raise errors.UsageError(f"--labels: {_text(labels)} fits no output", _outputs(first, flag))
    raise errors.UsageError(
        "--labels: which output holds the classes is not clear"
        if preferred[0].kind == label_kinds.CLASSES
        else "--labels: which output they are about is not clear",
        "name it: " + " or ".join(shlex.quote(f"{flag}={target.name}") for target in preferred),
    )


def _not_one_hot(
    target: Target,
    labels: Labels,
    first: Mapping[str, Mapping[str, npt.NDArray[Any]]],
    classes: Collection[str],
    flag: str,
) -> Target:
    """The target. Raises: UsageError for one-hot labels of an output that holds classes: as values, tags or masks they give no top-1."""
    if target.name in classes and labels.one_hot and labels.shaped_as(first[target.signature][target.output]):
        raise errors.UsageError(
            f"--labels: each row of {_text(labels)} is one-hot, and {target.name} holds classes",
            f"give the number of each row's class (np.argmax(labels, axis=-1)), or name another output with {flag}",
        )
    return target


def _able(labels: Labels, first: Mapping[str, Mapping[str, npt.NDArray[Any]]], said: Mapping[str, str]) -> list[Target]:
    if labels.boxes:
        groups = {
            signature: detections.find(answer, {output: kinds.said(said, signature, output) for output in answer})
            for signature, answer in first.items()
        }
        return [Target(signature, group.name, label_kinds.BOXES, group) for signature, group in groups.items() if group]
    targets = []
    for signature, answer in first.items():
        for output, array in answer.items():
            kind = labels.kind(array) if array.ndim else ""
            if kind:
                targets.append(Target(signature, output, kind))
    return targets


def _text(labels: Labels) -> str:
    return ", ".join(f"{name} {array.dtype}{list(array.shape)}".strip() for name, array in labels.arrays.items())


def _outputs(first: Mapping[str, Mapping[str, npt.NDArray[Any]]], flag: str) -> str:
    here = ", ".join(
        f"{signature}/{output} {array.dtype}{['?', *array.shape[1:]]}".replace("'", "")
        for signature, answer in first.items()
        for output, array in answer.items()
    )
    return f"outputs here: {here or 'none'}; {flag} names one, and `tftrt verify --help` says what labels may be"


def check(labels: Labels, target: Target, answer: Mapping[str, npt.NDArray[Any]]) -> None:
    """Refuse labels that no answer of the target can be. Args: target: what `find` returned. answer: {output: array} to any rows.
    Raises: UsageError."""
    _check_classes(_numbered(labels, target, answer), target, answer)


def score(labels: Labels, target: Target, answers: Iterable[Mapping[str, npt.NDArray[Any]]]) -> Scored:
    """Compare a model's answers with labels.

    Args: labels: one for each row, in their order; more than there are rows are ignored. target: what `find` returned. answers: {output:
      array} of each call of its signature.
    Raises: UsageError where the labels' shapes do not go with the answers.
    """
    measures = {measure: measure() for measure in registry.of_labels(target.kind)}
    start = 0
    for answer in answers:
        if not start:
            labels = _numbered(labels, target, answer)
        rows = len(answer[target.group.boxes if target.group else target.output])
        own = labels.of(start, rows)
        if not labels.flat and len(own.array) < rows:
            raise errors.UsageError(
                f"--labels holds {len(labels.array)} values for {start + rows} rows and more", "give one for each row"
            )
        expected, given = _pair(own, target, answer, rows)
        _check_classes(own, target, answer)
        for measure in measures.values():
            measure.add(expected, given)
        start += rows
    metric_names = {metric.name for listed in registry.of_labels(target.kind).values() for metric in listed}
    values = {
        name: value for measure in measures.values() for name, value in measure.values().items() if name in metric_names
    }
    if registry.first_of(target.kind) not in values:
        raise errors.UsageError(
            f"--labels: {_text(labels)} and {target.name} give no {registry.first_of(target.kind)}",
            "labels need at least one box, or rows that have a tag and rows that have not",
        )
    return Scored(values, start, _per_class(measures.values(), target.kind))


def _numbered(labels: Labels, target: Target, answer: Mapping[str, npt.NDArray[Any]]) -> Labels:
    """Labels of classes as integers; others as they are."""
    return labels.as_numbers(_width(labels, target, answer)) if target.kind in _NUMBERED else labels


def _width(labels: Labels, target: Target, answer: Mapping[str, npt.NDArray[Any]]) -> int:
    """The number of classes of an output [rows, classes]; 0 where it has no such axis."""
    shape = () if target.group else answer[target.output].shape
    return (
        shape[-1] if target.kind == label_kinds.CLASSES and len(shape) == labels.array.ndim + 1 and shape[-1] > 1 else 0
    )


def _check_classes(labels: Labels, target: Target, answer: Mapping[str, npt.NDArray[Any]]) -> None:
    """Refuse a label that no answer can be, since no model would ever be right. Raises: UsageError."""
    classes = _width(labels, target, answer)
    if not classes or labels.array.dtype.kind not in "iu":
        return
    beyond = labels.array[(labels.array < 0) | (labels.array >= classes)]
    if beyond.size:
        raise errors.UsageError(
            f"--labels: {beyond.flat[0]} is no class of {target.name}, which has {classes}: 0 to {classes - 1}",
            "count classes from 0, in the order of the output",
        )


def _pair(labels: Labels, target: Target, answer: Mapping[str, npt.NDArray[Any]], rows: int) -> tuple[Any, Any]:
    """(labels as the measures take them, answer)."""
    if target.group:
        return detections.of_labels(labels, rows), target.group.images(answer)
    array, given = labels.array, answer[target.output]
    metric_functions = (
        given.shape[:-1]
        if target.kind in (label_kinds.CLASSES, label_kinds.MASKS) and array.size != given.size
        else given.shape
    )
    if array.size != math.prod(metric_functions):
        raise errors.UsageError(
            f"--labels: {array.dtype}{list(array.shape)} does not go with {target.name} {list(given.shape)}",
            "give labels of the shape that the model answers with",
        )
    if target.kind == label_kinds.TEXTS:
        encode = np.frompyfunc(lambda text: text.encode() if isinstance(text, str) else bytes(text), 1, 1)
        return encode(array.astype(object)).reshape(given.shape), given
    if target.kind in (label_kinds.VALUES, label_kinds.TAGS):
        return array.reshape(given.shape), given
    return array, given


def _per_class(measures: Iterable[Measure[Any]], kind: str) -> dict[int, tuple[int, float]]:
    if kind not in (label_kinds.CLASSES, label_kinds.MASKS):
        return {}
    counted = [measure.shares() for measure in measures if hasattr(measure, "shares")]
    # For masks, the share of pixels in both among those in either; the measure of classes counts pixels as rows.
    return counted[-1] if counted else {}


def guessed(accuracy: Mapping[str, Any]) -> str:
    """A line where labels show nothing, because the original is not better than who guesses; else "". Few rows say too little.

    Args: accuracy: as `to_dict` gives it.
    """
    classes = accuracy.get("per_class") or []
    rows = [one["rows"] for one in classes]
    if accuracy.get("kind") != label_kinds.CLASSES or len(classes) < 2 or sum(rows) < _ROWS_TO_TELL:
        return ""
    chance = 1 / len(classes)
    # Of the mean over the classes of what is right, where each is guessed equally often.
    deviation = chance * math.sqrt(sum(chance * (1 - chance) / count for count in rows))
    if sum(one["original"] for one in classes) / len(classes) > chance + 2 * deviation:
        return ""
    return (
        f"the original is no better than guessing on these labels ({accuracy['original']:.2%} of {accuracy['labels']} right, "
        f"{len(classes)} classes), so they show nothing: is the data prepared as it was for training (--image_scale, --image_preset), and "
        "are the classes in the order of the model's (--classes)?"
    )


def to_dict(target: Target, original: Scored, converted: Scored) -> dict[str, object]:
    """For JSON: {"output", "labels": rows, "original", "converted": of the first metric, "kind", "metric", "metrics", "per_class"}."""
    first = registry.first_of(target.kind)
    both = {
        name: {"original": value, "converted": converted.values[name]}
        for name, value in original.values.items()
        if name in converted.values
    }
    classes = [
        {
            "class": number,
            "rows": original.per_class[number][0],
            "original": original.per_class[number][1],
            "converted": converted.per_class[number][1],
        }
        for number in sorted(original.per_class)
        if number in converted.per_class
    ]
    return {
        "output": target.name,
        "labels": original.rows,
        **both[first],
        "kind": target.kind,
        "metric": first,
        "metrics": both,
        "per_class": classes,
    }
