"""The detections in an image, compared as a set: the order of near ties does not matter.

Detections of an image are matched as COCO does (Lin et al. 2014; cocoeval of pycocotools): those of the answer in the order of their
scores, each with the one of the reference that is of its class, not taken yet and overlaps it most, if IoU reaches the threshold (0.5).

  matched       = 2 pairs / (detections of the reference + detections of the answer), over all images (Dice's coefficient, F1)
  matched_iou   = mean IoU of the pairs
  matched_score = largest difference of the scores in a pair
  map50         = mean over the classes of the average precision at IoU 0.5: precision, made non-increasing in recall, averaged at the
                  recalls 0, 0.01, …, 1
  map           = mean of that over the IoU thresholds 0.5, 0.55, …, 0.95: COCO's AP, all areas, at most 100 detections an image
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy import kinds, labels
from tftrt_tools.accuracy.metrics.boxes import overlaps, sorted_corners
from tftrt_tools.accuracy.metrics.metric import Measure, Metric, fixed, short

_THRESHOLDS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0, 1, 101)
_MOST = 100
_NAMES = {
    "boxes": r"box",
    "scores": r"score|conf|prob",
    "classes": r"class|categor|label",
    "count": r"num|count|valid|detections",
}


@dataclasses.dataclass(frozen=True)
class Found:
    """The detections of one image. boxes: float64 [n, 4], sorted corners; scores: float64 [n]; classes: int64 [n]."""

    boxes: npt.NDArray[Any]
    scores: npt.NDArray[Any]
    classes: npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Group:
    """Names of the outputs that together give a detector's findings: boxes [rows, most, 4], scores and classes [rows, most], count [rows].
    classes and count may be "", not both."""

    boxes: str
    scores: str
    classes: str
    count: str

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.boxes, self.scores, self.classes, self.count)))

    @property
    def name(self) -> str:
        """The name of the group in tables and bounds: "boxes+scores+classes"."""
        return "+".join(filter(None, (self.boxes, self.scores, self.classes)))

    def kind_of(self, output: str) -> str:
        """The kind of a member."""
        return {self.boxes: kinds.BOXES, self.scores: kinds.SCORES}.get(output, kinds.IDS)

    def images(self, answer: Mapping[str, npt.NDArray[Any]]) -> list[Found]:
        """[Found] of each row of an answer. Without a count, those of a score above 0."""
        boxes, scores = answer[self.boxes], answer[self.scores].astype(np.float64)
        classes = (
            np.round(answer[self.classes].astype(np.float64)).astype(np.int64)
            if self.classes
            else np.zeros(scores.shape, np.int64)
        )
        groups = []
        for row in range(len(scores)):
            there = (
                np.arange(scores.shape[1]) < int(answer[self.count].reshape(-1)[row]) if self.count else scores[row] > 0
            )
            groups.append(Found(sorted_corners(boxes[row][there]), scores[row][there], classes[row][there]))
        return groups


def find(outputs: Mapping[str, npt.NDArray[Any]], said: Mapping[str, str]) -> Group | None:
    """The Group among the outputs of a signature, by their names and shapes or by their given kinds; None if there is none.

    Args: outputs: of one call. said: {output: kind}, of --output_kind; a kind other than its place in the group asks for takes an output
      out of the group.
    """
    able = {
        role: [name for name, array in outputs.items() if _able(role, name, array, said.get(name, ""))]
        for role in _NAMES
    }
    for boxes in able["boxes"]:
        size = outputs[boxes].shape[:2]
        scores = [name for name in able["scores"] if outputs[name].shape == size]
        classes = [name for name in able["classes"] if outputs[name].shape == size and name not in scores]
        counts = [name for name in able["count"] if outputs[name].size == size[0]]
        if len(scores) == 1 and len(classes) < 2 and (classes or len(counts) == 1):
            return Group(boxes, scores[0], classes[0] if classes else "", counts[0] if len(counts) == 1 else "")
    return None


def _able(role: str, name: str, array: npt.NDArray[Any], kind: str) -> bool:
    kind_of_role = {"boxes": kinds.BOXES, "scores": kinds.SCORES}.get(role, kinds.IDS)
    if kind not in ("", kind_of_role) or not (kind or re.search(_NAMES[role], name, re.IGNORECASE)):
        return False
    fits = {
        "boxes": array.ndim == 3 and array.shape[-1] == 4,
        "count": array.ndim == 1 or array.ndim == 2 and array.shape[1] == 1,
    }
    numbers = "fiu" if role in ("classes", "count") else "f"
    return array.dtype.kind in numbers and fits.get(role, array.ndim == 2)


def of_labels(truth: labels.Labels, rows: int) -> list[Found]:
    """[Found] of each row of labels that are boxes, with scores of 1."""
    truths = []
    for row in range(rows):
        of_row = truth.arrays["rows"] == row if truth.flat else row
        boxes, classes = sorted_corners(truth.arrays["boxes"][of_row]), truth.arrays["classes"][of_row].astype(np.int64)
        there = (classes >= 0) & ((boxes[:, 2:] - boxes[:, :2]).prod(-1) > 0)
        truths.append(Found(boxes[there], np.ones(int(there.sum())), classes[there]))
    return truths


def matches(reference: Found, answer: Found, threshold: float) -> list[tuple[int, int, float]]:
    """[(place in the reference, place in the answer, IoU)] of the pairs; the answer's in the order of their scores."""
    overlap = overlaps(reference.boxes[None], answer.boxes[:, None])
    overlap[answer.classes[:, None] != reference.classes[None]] = -1
    pairs, free = [], np.ones(len(reference.boxes), bool)
    for place in np.argsort(-answer.scores, kind="stable"):
        own = np.where(free, overlap[place], -1)
        best = int(own.argmax()) if own.size else -1
        # As in cocoeval, a value that misses the threshold only by rounding reaches it.
        if best >= 0 and own[best] >= min(threshold, 1 - 1e-10):
            free[best] = False
            pairs.append((best, int(place), float(own[best])))
    return pairs


class Pairs(Measure[list[Found]]):
    """matched, matched_iou, matched_score. `add` takes lists of Found."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon)
        self._there = self._pairs = 0
        self._iou = self._score = 0.0

    def add(self, reference: list[Found], answer: list[Found]) -> None:
        for expected, given in zip(reference, answer, strict=True):
            self._there += len(expected.boxes) + len(given.boxes)
            for box, other, overlap in matches(expected, given, _THRESHOLDS[0]):
                self._pairs += 1
                self._iou += overlap
                self._score = max(self._score, abs(float(expected.scores[box] - given.scores[other])))

    def values(self) -> dict[str, float]:
        if not self._there:
            return {}
        found = {"matched": 2 * self._pairs / self._there}
        return found | ({"matched_iou": self._iou / self._pairs, "matched_score": self._score} if self._pairs else {})


class Precision(Measure[list[Found]]):
    """map and map50. `add` takes lists of Found; the reference's are the truth."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon)
        self._truths: dict[int, int] = {}
        self._given: dict[int, list[tuple[float, npt.NDArray[Any]]]] = {}  # class: (score, right at each threshold)

    def add(self, reference: list[Found], answer: list[Found]) -> None:
        for expected, given in zip(reference, answer, strict=True):
            for class_number in expected.classes.tolist():
                self._truths[class_number] = self._truths.get(class_number, 0) + 1
            best = np.argsort(-given.scores, kind="stable")[:_MOST]
            given = Found(given.boxes[best], given.scores[best], given.classes[best])
            right = np.zeros((len(best), len(_THRESHOLDS)), bool)
            for number, threshold in enumerate(_THRESHOLDS):
                right[[place for _, place, _ in matches(expected, given, threshold)], number] = True
            for place, number_of_class in enumerate(given.classes.tolist()):
                self._given.setdefault(number_of_class, []).append((float(given.scores[place]), right[place]))

    def values(self) -> dict[str, float]:
        if not self._truths:
            return {}
        found = np.mean([self._of_class(one) for one in self._truths], axis=0)
        return {"map": float(found.mean()), "map50": float(found[0])}

    def _of_class(self, class_number: int) -> npt.NDArray[Any]:
        """Average precision at each threshold, float64 [10]."""
        given = sorted(self._given.get(class_number, ()), key=lambda pair: -pair[0])
        if not given:
            return np.zeros(len(_THRESHOLDS))
        right = np.cumsum([flags for _, flags in given], axis=0)
        precision = right / np.arange(1, len(given) + 1)[:, None]
        precision = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
        recall = right / self._truths[class_number]
        precisions = np.zeros(len(_THRESHOLDS))
        for number in range(len(_THRESHOLDS)):
            places = np.searchsorted(recall[:, number], _RECALLS, side="left")
            precisions[number] = np.where(
                places < len(given), precision[np.minimum(places, len(given) - 1), number], 0
            ).mean()
        return precisions


_DETECTIONS, _BOXES = frozenset((kinds.DETECTIONS,)), frozenset((labels.BOXES,))
METRICS = (
    Metric(
        name="matched",
        higher=True,
        column="matched",
        show=fixed(4),
        measure=Pairs,
        kinds=_DETECTIONS,
        perfect=1.0,
        share=True,
        shown="tables",
        meaning="detections: 2 pairs / all detections of both",
    ),
    Metric(
        name="matched_iou",
        higher=True,
        column="IoU of pairs",
        show=fixed(4),
        measure=Pairs,
        kinds=_DETECTIONS,
        perfect=1.0,
        share=True,
        shown="tables",
        meaning="detections: mean IoU of the pairs",
    ),
    Metric(
        name="matched_score",
        higher=False,
        column="score gap",
        show=short,
        measure=Pairs,
        kinds=_DETECTIONS,
        shown="tables",
        meaning="detections: largest difference of scores in a pair",
    ),
    Metric(
        name="map",
        higher=True,
        column="mAP",
        show=fixed(4),
        measure=Precision,
        kinds=_DETECTIONS,
        labels=_BOXES,
        first_of=_BOXES,
        perfect=1.0,
        share=True,
        shown="tables",
        meaning="detections: COCO's mean average precision, IoU 0.5 to 0.95",
    ),
    Metric(
        name="map50",
        higher=True,
        column="mAP 50",
        show=fixed(4),
        measure=Precision,
        kinds=_DETECTIONS,
        labels=_BOXES,
        perfect=1.0,
        share=True,
        shown="tables",
        meaning="the same at IoU 0.5",
    ),
)
