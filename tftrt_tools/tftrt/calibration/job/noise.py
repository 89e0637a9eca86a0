"""How far answers with something rounded are from the plain ones. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tftrt_tools.base import errors
from tftrt_tools.tftrt.calibration import comparison
from tftrt_tools.tftrt.calibration.job.kept_back import Batch

if TYPE_CHECKING:
    import numpy.typing as npt

# If two runs with nothing rounded differ by more, the model draws random numbers or keeps state.
_LEAST_FIDELITY_DB = 40.0


def check_repeatable(outputs: Iterable[str], first: Batch, second: Batch) -> None:
    """Raise TftrtError if a model's answers to one input differ. Args: outputs: those that are floats."""
    for output in outputs:
        noise = Noise()
        noise.add(first[output], second[output])
        if noise.level < _LEAST_FIDELITY_DB:
            raise errors.TftrtError(
                f"it answers otherwise each time ({output}): it draws random numbers, or keeps state"
            )


class Noise:
    """The noise of an output over several calls, in float64: sum (a - r)^2 / sum r^2 over the elements that are finite in r."""

    def __init__(self) -> None:
        self._error = self._signal = 0.0

    def add(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        """Add one call. NaN or infinity that the reference does not have, and an answer of another shape, are infinite noise."""
        if reference.shape != answer.shape:
            self._error = np.inf
            return
        finite = np.isfinite(reference)
        reference, answer = reference[finite].astype(np.complex128), answer[finite].astype(np.complex128)
        gap = float(np.sum(np.abs(answer - reference) ** 2))
        self._error += gap if np.isfinite(gap) else np.inf
        self._signal += float(np.sum(np.abs(reference) ** 2))

    @property
    def level(self) -> float:
        """In dB, within comparison.LIMIT_DB."""
        if not self._error:
            return comparison.LIMIT_DB
        return comparison.limited(self._error / self._signal if self._signal else np.inf)
