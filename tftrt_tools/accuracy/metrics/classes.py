"""Classes: the last dimension of the answer holds a number for each; or the answer is the class's number itself.

The right class of a row is its label, or the place of the original's largest number.

  top1       = share of rows whose largest number is at the right class
  top5       = share of rows whose right class has fewer than five larger numbers beside it (six classes and more)
  class_top1 = mean over the classes that occur of their own top1: balanced accuracy, macro-averaged recall (Brodersen et al. 2010,
               sklearn.metrics.balanced_accuracy_score)
  auc        = area under the ROC curve, the chance that a row of the class has a larger number than a row that is not of it, ties
               counting half: (R - n(n + 1) / 2) / (n m) with R the sum of the n rows' ranks among all n + m (Mann and Whitney 1947;
               Hanley and McNeil 1982). Of several classes the mean of one against the rest (sklearn.metrics.roc_auc_score, macro)

An answer of one number a row, with labels 0 and 1, is the probability of class 1: it answers 1 from 0.5 on.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy import labels
from tftrt_tools.accuracy.kinds import MASKS, PROBABILITIES, SCORES, VALUES
from tftrt_tools.accuracy.metrics.metric import Measure, Metric, fixed, percent

_CLASSED = frozenset((VALUES, SCORES, PROBABILITIES, MASKS))
_BEST = 5
_HALF = 0.5


def rows_of(answer: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """float64 [rows, classes], or None where there is nothing to choose from."""
    if answer.ndim < 2 or answer.shape[-1] < 2 or answer.dtype.kind == "c" or not answer.size:
        return None
    return answer.reshape(-1, answer.shape[-1]).astype(np.float64)


def _largest(answer: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    rows = rows_of(answer)
    assert rows is not None, "the answer and the reference both have rows of classes"
    result: npt.NDArray[np.int64] = rows.argmax(-1)
    return result


class Top(Measure[npt.NDArray[Any]]):
    """top1, top5 and class_top1."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon)
        self._rows = self._right = self._near = 0
        self._many = True
        self._per_class: dict[int, list[int]] = {}  # class: [rows, right ones]

    def add(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        rows = None if answer.dtype.kind in "iub" else rows_of(answer)
        numbers = reference.dtype.kind in "iub"
        if numbers and (rows is None or reference.size != len(rows)):
            self._many = False
            self._count(reference.reshape(-1), _chosen(reference, answer.reshape(-1)))
        elif rows is not None:
            self._add_rows(reference.reshape(-1).astype(np.int64) if numbers else _largest(reference), rows)

    def _add_rows(self, expected: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
        self._count(expected, rows.argmax(-1))
        self._many = self._many and rows.shape[-1] > _BEST
        if self._many:
            inside = (expected >= 0) & (expected < rows.shape[-1])
            own = rows[np.arange(len(rows)), np.where(inside, expected, 0)]
            self._near += int(np.sum(inside & (np.sum(rows > own[:, None], axis=-1) < _BEST)))

    def _count(self, expected: npt.NDArray[Any], chosen: npt.NDArray[Any]) -> None:
        right = expected == chosen
        self._rows += expected.size
        self._right += int(right.sum())
        classes, place = np.unique(expected, return_inverse=True)
        for number, rows, hits in zip(classes, np.bincount(place), np.bincount(place, weights=right), strict=True):
            entry = self._per_class.setdefault(int(number), [0, 0])
            entry[0] += int(rows)
            entry[1] += int(hits)

    def values(self) -> dict[str, float]:
        if not self._rows:
            return {}
        shares = [right / rows for rows, right in self._per_class.values()]
        results = {"top1": self._right / self._rows, "class_top1": float(np.mean(shares))}
        return results | ({"top5": self._near / self._rows} if self._many else {})

    def shares(self) -> dict[int, tuple[int, float]]:
        """{class: (rows of it, share of them that is right)}."""
        return {one: (rows, right / rows) for one, (rows, right) in self._per_class.items()}


def _chosen(reference: npt.NDArray[Any], given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The classes for one number a row: the number is the class, as an integer or a float, or the probability of class 1."""
    if given.dtype.kind in "iub":
        return given
    if set(np.unique(reference).tolist()) <= {0, 1} and not np.all(given == np.round(given)):
        return (given.astype(np.float64) >= _HALF).astype(np.int64)
    return np.round(given.astype(np.float64)).astype(np.int64)


class Auc(Measure[npt.NDArray[Any]]):
    """auc; it keeps all rows."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon)
        self._wanted: list[npt.NDArray[Any]] = []
        self._given: list[npt.NDArray[Any]] = []

    def add(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        if answer.dtype.kind == "f" and answer.size:
            self._wanted.append(reference)
            self._given.append(answer)

    def values(self) -> dict[str, float]:
        if not self._given:
            return {}
        expected, given = np.concatenate(self._wanted), np.concatenate(self._given).astype(np.float64)
        if expected.shape == given.shape and expected.ndim > 1 and expected.shape[-1] > 1:
            areas = [area(expected[..., number] > 0, given[..., number]) for number in range(given.shape[-1])]
        elif expected.size == given.size:
            areas = (
                [area(expected.reshape(-1) > 0, given.reshape(-1))]
                if set(np.unique(expected).tolist()) <= {0, 1}
                else []
            )
        else:
            rows = given.reshape(-1, given.shape[-1])
            flat = expected.reshape(-1)
            # If the numbers of two classes add up to one, both have the area of the second.
            chosen = (
                (1,) if rows.shape[-1] == 2 and np.allclose(rows.sum(-1), 1.0, atol=1e-3) else range(rows.shape[-1])
            )
            areas = [area(flat == number, rows[:, number]) for number in chosen]
        areas_known = [value for value in areas if value is not None]
        return {"auc": float(np.mean(areas_known))} if areas_known else {}


def area(positive: npt.NDArray[Any], given: npt.NDArray[Any]) -> float | None:
    """Area under the ROC curve. Args: positive: bool, of the class or not; given: float, same shape. Returns: None where all rows are on
    one side, or a number is NaN or Inf."""
    from scipy import stats

    positive, given = positive.reshape(-1), given.reshape(-1)
    count, others = int(positive.sum()), int((~positive).sum())
    if not count or not others or not np.all(np.isfinite(given)):
        return None
    return float((stats.rankdata(given)[positive].sum() - count * (count + 1) / 2) / (count * others))


METRICS = (
    Metric(
        name="top1",
        higher=True,
        column="top-1 same",
        show=percent,
        measure=Top,
        kinds=_CLASSED,
        labels=frozenset((labels.CLASSES, labels.MASKS)),
        first_of=frozenset((labels.CLASSES,)),
        perfect=1.0,
        share=True,
        of_classes=True,
        shown="short tables",
        written=True,
        meaning="share of rows whose largest entry is at the right class",
    ),
    Metric(
        name="top5",
        higher=True,
        column="top-5",
        show=percent,
        measure=Top,
        kinds=_CLASSED,
        labels=frozenset((labels.CLASSES,)),
        perfect=1.0,
        share=True,
        of_classes=True,
        meaning="share of rows whose right class is among the five largest entries",
    ),
    Metric(
        name="class_top1",
        higher=True,
        column="per class",
        show=percent,
        measure=Top,
        kinds=_CLASSED,
        labels=frozenset((labels.CLASSES,)),
        perfect=1.0,
        share=True,
        of_classes=True,
        meaning="mean over the classes of their own top1",
    ),
    Metric(
        name="auc",
        higher=True,
        column="AUC",
        show=fixed(4),
        measure=Auc,
        kinds=frozenset(),
        labels=frozenset((labels.CLASSES, labels.TAGS)),
        first_of=frozenset((labels.TAGS,)),
        perfect=1.0,
        share=True,
        meaning="area under the ROC curve, of several classes the mean",
    ),
)
