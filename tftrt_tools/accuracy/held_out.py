"""Whether the data that scores an INT8 model was kept out of its calibration. No TensorFlow here."""

import dataclasses

from tftrt_tools import errors
from tftrt_tools.inputs import rows

# From this share on the score is one of data that the ranges were fitted to.
REFUSED_SHARE = 0.5


@dataclasses.dataclass(frozen=True)
class CalibrationUse:
    """What an INT8 model's calibration has to do with the data of a verification. random: calibrated on random data; shared: rows of the
    data that calibrated it, at least (only so many hashes are kept); rows: rows of the data, 0 for random inputs."""

    random: bool
    shared: int
    rows: int

    def warnings(self):
        """Lines for people."""
        if self.random:
            yield "the model was calibrated on random data: its INT8 ranges say nothing about real inputs"
        if self.shared:
            yield f"{self.text()}: the score may be too good"

    def text(self):
        """Such as "312 of 400 rows were used for calibration"."""
        return f"{self.shared} of {self.rows} rows were used for calibration"

    def to_dict(self):
        return dataclasses.asdict(self)


def check(document, calls, sources, allowed):
    """Compare the rows of a verification's data with those of the calibration.

    Args: document: the model's calibration.json, or None. calls: run.Calls. sources: {signature: "data" or "random"}. allowed: accept any
      number of rows that both have.

    Returns: CalibrationUse, or None for a model without calibration. Raises: UsageError where more than half of the rows are the same.
    """
    data = (document or {}).get("data")
    if not isinstance(data, dict):
        return None
    known, shared, total = set(data.get("rows") or ()), 0, 0
    for call in calls:
        if sources.get(call.signature) == "data" and any(array.ndim for array in call.inputs.values()):
            total += call.rows
            shared += rows.overlap(known, call.inputs)
    found = CalibrationUse(bool(data.get("random")), shared, total)
    if not allowed and shared > REFUSED_SHARE * total:
        raise errors.UsageError(f"{found.text()}: --data has to be data that the calibration has not seen",
                                "give other rows; --allow_calibration_data accepts these")
    return found
