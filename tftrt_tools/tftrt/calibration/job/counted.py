"""What the passes over calibration data have in common that count the values of tensors, whatever runs the model."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.tftrt.calibration.job.histogram import Histogram

if TYPE_CHECKING:
    from tftrt_tools.tftrt.calibration.job.kept_back import Batch


class Counted(abc.ABC):
    """Counts |x| of tensors of a model.

    histograms: {tensor: Histogram}; tensors with the same values may share one.
    """

    def __init__(self) -> None:
        self.histograms: dict[str, Histogram] = {}

    @abc.abstractmethod
    def add(self, batch: Batch, number: int, total: int | None = None) -> None:
        """Run one batch, {input: np.ndarray}. Args: number: from 1; total: of all batches, None where not known; both for the progress.

        Raises: TftrtError for NaN or infinity in a counted tensor, and where the model fails.
        """

    @contextlib.contextmanager
    def set_aside(self) -> Iterator[None]:
        """Inside the context the histograms are empty; afterwards they are as before."""
        states = [
            (histogram, vars(histogram).copy())
            for histogram in {id(histogram): histogram for histogram in self.histograms.values()}.values()
        ]
        for batch, _ in states:
            batch.__init__()  # type: ignore[misc]  # a Histogram has no subclasses
        yield
        for one, state in states:
            vars(one).update(state)

    def check_finite(self, number: int) -> None:
        """Raise TftrtError if batch `number` brought NaN or infinity."""
        for name, histogram in self.histograms.items():
            if histogram.nan or histogram.infinite:
                what = "NaN" if histogram.nan else "infinity"
                raise errors.TftrtError(
                    f"{name.rpartition(':')[0] or name} gives {what} for calibration batch {number}",
                    "leave that data out, or keep the node out of INT8 engines: no scale can hold it",
                )
