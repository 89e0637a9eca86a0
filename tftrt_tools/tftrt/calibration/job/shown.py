"""Whether the answers to calibration data tell calibration methods apart. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tftrt_tools.models.execution import constancy
from tftrt_tools.models.execution.run import Call

if TYPE_CHECKING:
    import numpy.typing as npt

    from tftrt_tools.tftrt.calibration.job.kept_back import Batch

# Answers of which most rows are saturated hide rounding, if every method keeps so much: no row's class changes.
_UNCHANGED_DB = 60.0

Levels = Mapping[str, Mapping[str, float]]


class Shown:
    """Watches the answers of a signature, with nothing rounded."""

    def __init__(self, signature: str) -> None:
        self._signature = signature
        self._watch = constancy.Watch()

    def add(self, batch: Batch, plain: Mapping[str, npt.NDArray[Any]], floats: Iterable[str]) -> None:
        """Add a batch and its answers. Args: floats: the outputs to watch."""
        self._watch.add(Call(self._signature, dict(batch)), {name: plain[name] for name in floats})

    def nothing(self, levels: Levels) -> dict[str, str]:
        """{output that shows nothing: why, in words}. Args: levels: {method: {output: dB}}."""
        outputs = next(iter(levels.values()), {})
        found = {output: self._why(output, min(by[output] for by in levels.values())) for output in outputs}
        return {output: why for output, why in found.items() if why}

    def _why(self, output: str, level: float) -> str:
        if text := self._watch.constant(self._signature, output):
            return text
        if repeated := self._watch.repeated(self._signature):
            return f"the answer to one row, which the data has {repeated} times"
        share = self._watch.saturated(self._signature, output)
        mostly = share >= constancy.MOSTLY_SATURATED and level >= _UNCHANGED_DB
        return f"saturated: 0 or 1 in {share:.0%} of the rows" if mostly else ""
