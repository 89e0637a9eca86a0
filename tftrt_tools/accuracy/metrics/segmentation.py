"""Masks: mean_iou = mean over the classes that occur in reference or answer of |both| / |either|, counted in pixels over all calls (the
Jaccard index of PASCAL VOC's segmentation task, Everingham et al. 2010; sklearn.metrics.jaccard_score, macro)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy import labels
from tftrt_tools.accuracy.kinds import MASKS
from tftrt_tools.accuracy.metrics.metric import Measure, Metric, fixed

_HALF = 0.5


def classes_of(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The class of each pixel, int64 [pixels]. Args: array: whole numbers [...], or floats [..., classes]; of one class those from 0.5
    on."""
    if array.dtype.kind in "iub":
        return array.reshape(-1).astype(np.int64)
    if array.shape[-1] > 1:
        result: npt.NDArray[Any] = array.reshape(-1, array.shape[-1]).astype(np.float64).argmax(-1)
        return result
    return (array.reshape(-1).astype(np.float64) >= _HALF).astype(np.int64)


class MeanIou(Measure[npt.NDArray[Any]]):
    """mean_iou."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon)
        self._per_class: dict[int, list[int]] = {}  # class: [pixels in both, pixels in either]

    def add(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        expected, given = classes_of(reference), classes_of(answer)
        for number in np.union1d(expected, given).tolist():
            entry = self._per_class.setdefault(int(number), [0, 0])
            entry[0] += int(np.sum((expected == number) & (given == number)))
            entry[1] += int(np.sum((expected == number) | (given == number)))

    def values(self) -> dict[str, float]:
        shares = [both / either for both, either in self._per_class.values()]
        return {"mean_iou": float(np.mean(shares))} if shares else {}

    def shares(self) -> dict[int, tuple[int, float]]:
        """{class: (pixels in either, share of them in both)}."""
        return {one: (either, both / either) for one, (both, either) in self._per_class.items()}


METRICS = (
    Metric(
        name="mean_iou",
        higher=True,
        column="mean IoU",
        show=fixed(4),
        measure=MeanIou,
        kinds=frozenset((MASKS,)),
        labels=frozenset((labels.MASKS,)),
        first_of=frozenset((labels.MASKS,)),
        perfect=1.0,
        share=True,
        meaning="masks: mean over the classes of the pixels in both / in either",
    ),
)
