"""The accuracy against --labels of a model and of the signatures that `tftrt wrap` has added to it.

A signature that answers classes in place of scores is judged by these, and so is the original then: by the best class, or where five or
more are answered, by those. No TensorFlow here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy import labels as label_reader
from tftrt_tools.accuracy import metrics, thresholds, truth
from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.tftrt.wrapping import added as names
from tftrt_tools.tftrt.wrapping import client_side

if TYPE_CHECKING:
    from tftrt_tools.accuracy.judgement import Rules
    from tftrt_tools.accuracy.labels import Labels
    from tftrt_tools.accuracy.truth import Scored, Target
    from tftrt_tools.accuracy.verify import Options
    from tftrt_tools.accuracy.wrapped import Exchange, Labelled
    from tftrt_tools.models.execution.run import Run
    from tftrt_tools.tftrt.wrapping.added import Added

Answer = Mapping[str, npt.NDArray[Any]]
# Fewer classes do not tell top5.
_BEST = 5
# The metrics that classes without all scores allow.
_OF_CLASSES = ("top1", "top5", "class_top1")


def read(exchange: Exchange, options: Options) -> dict[str, Labels]:
    """{added signature: its labels}, of those that --label_output leaves. Raises: UsageError, before anything runs."""
    targets = {}
    for name, signature in exchange.labelled.items():
        if _output(_added(exchange, signature), options.label_output) is None:
            continue
        labels = label_reader.read(options.labels, signature.rows, options.label_column, options.classes)
        label_reader.check_count(
            labels, sum(exchange.sent[place].call.rows for place in signature.places), signature.dropped
        )
        output_names = _added(exchange, signature).answers.names
        targets[name] = (
            dataclasses.replace(labels, names=output_names)
            if output_names and labels.texts and not labels.names
            else labels
        )
    if not targets and exchange.labelled:
        raise errors.UsageError(
            f"--label_output={options.label_output} is of no signature that was added",
            "such are " + ", ".join(exchange.labelled),
        )
    if not targets:
        raise errors.UsageError(
            "--labels has no effect: no added signature takes the rows of --data",
            "give pictures, if signatures of pictures were added, else arrays",
        )
    return targets


def accuracies(
    exchange: Exchange, labels: Mapping[str, Labels], reference: Run, answers: Run, rules: Rules, options: Options
) -> tuple[tuple[dict[str, Any], ...], tuple[thresholds.Miss, ...]]:
    """(as truth.to_dict, of each signature, the least accurate first; Misses of the bounds on labels). Args: labels: of `read`. Raises:
    UsageError."""
    rows: list[dict[str, Any]] = []
    misses: list[thresholds.Miss] = []
    for name, own in labels.items():
        signature = exchange.labelled[name]
        added, places = _added(exchange, signature), signature.places
        given = _output(added, options.label_output) or ""
        first = reference.answer(exchange.sent[places[0]].original)
        answered = [*added.answers.kept, *filter(None, [added.answers.scores])]
        target = truth.find(
            own,
            {added.of: {output: first[output] for output in answered}},
            rules.kinds,
            [f"{added.of}/{added.answers.scores}"],
            f"{added.of}/{given}" if given else "",
            "--label_output",
        )
        both = [(reference.answer(exchange.sent[place].original), answers.answer(place)) for place in places]
        before, after, output = _scored(own, target, added, both)
        document = truth.to_dict(target, before, after) | {"output": f"{name}/{output}"}
        rows.append(document)
        misses += thresholds.of_labels(after.values, rules.bounds)
    higher = metrics.METRICS[str(rows[0]["metric"])].higher
    return tuple(sorted(rows, key=lambda row: row["converted"] if higher else -row["converted"])), tuple(misses)


def _added(exchange: Exchange, one: Labelled) -> Added:
    found = exchange.sent[one.places[0]].added
    assert found
    return found


def _output(added: Added, asked: str) -> str | None:
    """The wrapped output that --label_output names, "" for any; None where it is of another signature."""
    if not asked:
        return ""
    signature, output = signatures.split(asked, (added.name, added.of))
    if not signature:
        return None
    return (
        added.answers.scores
        if added.answers.scores and output in (names.SCORES, names.CLASSES, names.LABELS)
        else output
    )


def _scored(
    labels: Labels, target: Target, added: Added, both: Sequence[tuple[Answer, Answer]]
) -> tuple[Scored, Scored, str]:
    """(of the original, of the added signature, the output of it that was judged)."""
    if target.output != added.answers.scores:
        before, after = (truth.score(labels, target, side) for side in zip(*both, strict=True))
        return before, after, target.output
    if target.kind not in (label_reader.CLASSES, label_reader.MASKS):
        raise errors.UsageError(
            f"--labels are {target.kind}, and {added.name!r} answers classes alone",
            "give the number or name of each row's class",
        )
    width = both[0][0][target.output].shape[-1]
    numbers = labels.as_numbers(width)
    sides = zip(*((client_side.smaller(added, original), given) for original, given in both), strict=True)
    before, after = (
        _of_classes(truth.score(numbers, target, _best(side, target.output, width, added.answers.top_k)))
        for side in sides
    )
    return before, after, names.CLASSES


def _best(answers: Sequence[Answer], output: str, width: int, top_k: int) -> Iterator[Answer]:
    """The answers with the best class in place of the scores; or with scores of which all but the best are missing."""
    for answer in answers:
        classes = answer[names.CLASSES]
        if top_k < _BEST:
            yield {output: classes[..., 0] if top_k else classes}
            continue
        scores = np.full((*classes.shape[:-1], width), -np.inf)
        np.put_along_axis(scores, classes.astype(np.int64), answer[names.SCORES].astype(np.float64), -1)
        yield {output: scores}


def _of_classes(scored: Scored) -> Scored:
    return dataclasses.replace(
        scored,
        values={name: value for name, value in scored.values.items() if name in _OF_CLASSES} or dict(scored.values),
    )
