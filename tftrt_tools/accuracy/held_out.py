"""Whether the data that scores an INT8 model was kept out of its calibration. No TensorFlow here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors, records
from tftrt_tools.models.inputs import rows, value_ranges

if TYPE_CHECKING:
    from tftrt_tools.models.execution.run import Call

# From this share of shared rows on, the score counts as one of data that the ranges were fitted to.
REFUSED_SHARE = 0.5


@dataclasses.dataclass(frozen=True)
class CalibrationUse(records.Record):
    """How an INT8 model's calibration goes with the data of a verification. random: calibrated on random data; shared: the least number
    of rows that also calibrated it (only some hashes are kept); rows: rows of the data, 0 for random inputs; scaled: inputs whose values
    differ in scale, a line each."""

    random: bool
    shared: int
    rows: int
    scaled: tuple[str, ...] = ()

    def warnings(self) -> Iterator[str]:
        """Lines for people."""
        if self.random:
            yield "the model was calibrated on random data: its INT8 ranges say nothing about real inputs"
        if self.shared:
            yield f"{self.text()}: the score may be too good"
        yield from self.scaled

    def text(self) -> str:
        """Such as "312 of 400 rows were used for calibration"."""
        return f"{self.shared} of {self.rows} rows were used for calibration"


def check(
    document: Mapping[str, Any] | None, calls: Iterable[Call], sources: Mapping[str, str], allowed: bool
) -> CalibrationUse | None:
    """Compare the rows of a verification's data with those of the calibration.

    Args: document: the model's calibration.json, or None. calls: run.Calls. sources: {signature: "data" or "random"}. allowed: accept
      any number of shared rows.

    Returns: CalibrationUse, or None for a model without calibration. Raises: UsageError where more than half of the rows are the same.
    """
    data = (document or {}).get("data")
    if not isinstance(data, dict):
        return None
    hashes, shared, total, ranges = set(data.get("rows") or ()), 0, 0, value_ranges.Ranges()
    for call in calls:
        if sources.get(call.signature) == "data" and any(array.ndim for array in call.inputs.values()):
            total += call.rows
            shared += rows.overlap(hashes, call.inputs)
            ranges.add(call.signature, call.inputs)
    scaled = () if data.get("random") else tuple(value_ranges.differing(value_ranges.read(data), ranges.found))
    use = CalibrationUse(bool(data.get("random")), shared, total, scaled)
    if not allowed and shared > REFUSED_SHARE * total:
        raise errors.UsageError(
            f"{use.text()}: --data has to be data that the calibration has not seen",
            "give other rows; --allow_calibration_data accepts these",
        )
    return use
