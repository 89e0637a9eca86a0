"""Right or wrong: mismatches = share of elements that differ, over all calls. Ids in floats are compared as whole numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy import labels
from tftrt_tools.accuracy.kinds import EXACT, IDS, TEXTS
from tftrt_tools.accuracy.metrics.metric import Measure, Metric, percent


class Mismatches(Measure[npt.NDArray[Any]]):
    """mismatches."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon)
        self._elements = self._differing = 0

    def add(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        if reference.dtype.kind not in "OSUb":
            reference, answer = (
                np.round(array.astype(np.float64)) if array.dtype.kind not in "iu" else array
                for array in (reference, answer)
            )
        self._elements += reference.size
        self._differing += int(np.sum(reference != answer))

    def values(self) -> dict[str, float]:
        return {"mismatches": self._differing / max(self._elements, 1)}


METRICS = (
    Metric(
        name="mismatches",
        higher=False,
        column="equal",
        show=lambda value: percent(1 - value),
        measure=Mismatches,
        kinds=frozenset((EXACT, IDS, TEXTS)),
        labels=frozenset((labels.TEXTS,)),
        share=True,
        shown="short tables",
        written=True,
        meaning="share of elements that differ",
    ),
)
