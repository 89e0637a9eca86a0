"""Boxes at the same places of both answers. A box is two opposite corners in any order, [y1, x1, y2, x2] or [x1, y1, x2, y2].

iou     = mean over the boxes of the area of both / the area of either (Jaccard 1912); boxes without area on both sides are left out
max_box = largest |d| of a corner / the longer side of the reference's box
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy.kinds import BOXES
from tftrt_tools.accuracy.metrics.metric import Measure, Metric, fixed, short


def sorted_corners(boxes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """float64 [n, 4], the lower corner first. Args: boxes: [..., 4]."""
    boxes = boxes.reshape(-1, 4).astype(np.float64)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)


def overlaps(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """IoU of boxes with sorted corners, [..., 4] that broadcast against each other; 0 where both are without area."""
    sides = np.clip(np.minimum(first[..., 2:], second[..., 2:]) - np.maximum(first[..., :2], second[..., :2]), 0, None)
    both = sides.prod(-1)
    either = (first[..., 2:] - first[..., :2]).prod(-1) + (second[..., 2:] - second[..., :2]).prod(-1) - both
    result: npt.NDArray[Any] = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return result


class Boxes(Measure[npt.NDArray[Any]]):
    """iou and max_box."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon)
        self._count, self._sum, self._largest = 0, 0.0, 0.0

    def add(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        reference, answer = sorted_corners(reference), sorted_corners(answer)
        sides = (reference[:, 2:] - reference[:, :2]).max(-1, initial=0)
        there = (sides > 0) | ((answer[:, 2:] - answer[:, :2]).max(-1, initial=0) > 0)
        if not there.any():
            return
        reference, answer, sides = reference[there], answer[there], sides[there]
        self._count += len(reference)
        self._sum += float(np.nan_to_num(overlaps(reference, answer)).sum())
        gap = np.abs(answer - reference).max(-1)
        share = np.divide(gap, sides, out=np.full_like(gap, math.inf), where=sides > 0)
        self._largest = max(self._largest, float(np.nan_to_num(share, nan=math.inf).max()))

    def values(self) -> dict[str, float]:
        return {"iou": self._sum / self._count, "max_box": self._largest} if self._count else {}


METRICS = (
    Metric(
        name="iou",
        higher=True,
        column="IoU",
        show=fixed(4),
        measure=Boxes,
        kinds=frozenset((BOXES,)),
        perfect=1.0,
        share=True,
        meaning="boxes at the same place: mean area of both / of either",
    ),
    Metric(
        name="max_box",
        higher=False,
        column="max of box",
        show=short,
        measure=Boxes,
        kinds=frozenset((BOXES,)),
        meaning="boxes: largest |d| / longer side of the box",
    ),
)
