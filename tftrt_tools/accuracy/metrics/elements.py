"""Differences element by element. With reference r and answer a over all elements that are finite in both, and d = a - r:

max_abs = max|d|       max_rel = max |d| / max(|r|, epsilon)       max_share = max|d| / max|r|
mean_abs = mean|d|, the mean absolute error                        rmse = sqrt(mean d^2)
cosine = r.a / (|r| |a|)                                           snr_db = 10 log10(sum r^2 / sum d^2); inf where d = 0
r2 = 1 - sum d^2 / sum (r - mean r)^2, with the mean of each column over the rows (the coefficient of determination, weighted by the
     columns' variances, as sklearn.metrics.r2_score(multioutput="variance_weighted"))
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy.kinds import BOXES, IDS, MASKS, PROBABILITIES, SCORES, VALUES
from tftrt_tools.accuracy.metrics.metric import Measure, Metric, fixed, short

_FLOATS = frozenset((VALUES, IDS, SCORES, BOXES, PROBABILITIES, MASKS))
_NUMBERS = frozenset((VALUES,))


class Elements(Measure[npt.NDArray[Any]]):
    """Computes all metrics of elements but r2."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon)
        self._count = 0
        self._max_abs = self._max_rel = self._sum_abs = self._sum_squares = self._largest = 0.0
        self._dot = self._reference_squares = self._answer_squares = 0.0

    def add(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        wide = np.complex128 if reference.dtype.kind == "c" else np.float64
        reference, answer = reference.astype(wide), answer.astype(wide)
        both = np.isfinite(reference) & np.isfinite(answer)
        reference, answer = reference[both], answer[both]
        if not reference.size:
            return
        gap, size = np.abs(answer - reference), np.abs(reference)
        self._count += reference.size
        self._max_abs = max(self._max_abs, float(gap.max()))
        self._max_rel = max(self._max_rel, float((gap / np.maximum(size, self.epsilon)).max()))
        self._largest = max(self._largest, float(size.max()))
        self._sum_abs += float(gap.sum())
        self._sum_squares += float(np.square(gap).sum())
        self._dot += float(np.real(np.vdot(reference, answer)))
        self._reference_squares += float(np.square(size).sum())
        self._answer_squares += float(np.square(np.abs(answer)).sum())

    def values(self) -> dict[str, float]:
        count = max(self._count, 1)
        share = self._max_abs / self._largest if self._largest else math.inf if self._max_abs else 0.0
        return {
            "max_abs": self._max_abs,
            "max_rel": self._max_rel,
            "max_share": share,
            "mean_abs": self._sum_abs / count,
            "rmse": math.sqrt(self._sum_squares / count),
            "cosine": self._cosine(),
            "snr_db": self._snr(),
        }

    def _cosine(self) -> float:
        norms = math.sqrt(self._reference_squares) * math.sqrt(self._answer_squares)
        both_zero = self._reference_squares == 0 and self._answer_squares == 0
        return self._dot / norms if norms else (1.0 if both_zero else 0.0)

    def _snr(self) -> float:
        if self._sum_squares == 0:
            return math.inf
        return 10 * math.log10(self._reference_squares / self._sum_squares) if self._reference_squares else -math.inf


class Determination(Measure[npt.NDArray[Any]]):
    """r2."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon)
        self._rows, self._residual, self._squares, self._usable = 0, 0.0, 0.0, True
        self._sums: npt.NDArray[np.float64] | None = None

    def add(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        if not self._usable or not reference.size or reference.dtype.kind == "c":
            return
        reference, answer = (
            np.atleast_1d(array).astype(np.float64).reshape(len(np.atleast_1d(array)), -1)
            for array in (reference, answer)
        )
        if self._sums is None:
            # The squares are of differences from the first row, so a large mean costs no digits.
            self._first, self._sums = reference[0], np.zeros(reference.shape[1])
        if reference.shape[1] != self._sums.size or not (np.isfinite(reference).all() and np.isfinite(answer).all()):
            self._usable = False
            return
        self._rows += len(reference)
        self._residual += float(np.square(answer - reference).sum())
        moved = reference - self._first
        self._squares += float(np.square(moved).sum())
        self._sums += moved.sum(axis=0)

    def values(self) -> dict[str, float]:
        if not self._usable or self._sums is None or self._rows < 2:
            return {}
        spread = self._squares - float(np.square(self._sums).sum()) / self._rows
        return {"r2": 1 - self._residual / spread} if spread > 0 else {}


METRICS = (
    Metric(
        name="max_abs",
        higher=False,
        column="max abs",
        show=short,
        measure=Elements,
        kinds=_FLOATS,
        labels=_NUMBERS,
        shown="short tables",
        written=True,
        meaning="largest |d|",
    ),
    Metric(
        name="max_rel",
        higher=False,
        column="max rel",
        show=short,
        measure=Elements,
        kinds=_FLOATS,
        shown="tables",
        written=True,
        meaning="largest |d| / max(|r|, --epsilon)",
    ),
    Metric(
        name="max_share",
        higher=False,
        column="max share",
        show=short,
        measure=Elements,
        kinds=_FLOATS,
        meaning="largest |d| / largest |r|",
    ),
    Metric(
        name="mean_abs",
        higher=False,
        column="mean abs",
        show=short,
        measure=Elements,
        kinds=_FLOATS,
        labels=_NUMBERS,
        written=True,
        meaning="mean of |d| (MAE)",
    ),
    Metric(
        name="rmse",
        higher=False,
        column="RMSE",
        show=short,
        measure=Elements,
        kinds=_FLOATS,
        labels=_NUMBERS,
        first_of=_NUMBERS,
        shown="tables",
        written=True,
        meaning="square root of the mean of d²",
    ),
    Metric(
        name="cosine",
        higher=True,
        column="cosine",
        show=fixed(6),
        measure=Elements,
        kinds=_FLOATS,
        perfect=1.0,
        share=True,
        least=-1.0,
        shown="short tables",
        written=True,
        meaning="r·a / (|r| |a|)",
    ),
    Metric(
        name="snr_db",
        higher=True,
        column="SNR dB",
        show=fixed(1),
        measure=Elements,
        kinds=_FLOATS,
        perfect=math.inf,
        shown="short tables",
        written=True,
        meaning="10 log10(sum r² / sum d²)",
    ),
    Metric(
        name="r2",
        higher=True,
        column="R²",
        show=fixed(4),
        measure=Determination,
        kinds=frozenset((VALUES, SCORES)),
        labels=_NUMBERS,
        perfect=1.0,
        meaning="1 - sum d² / sum (r - mean r)²",
    ),
)
