"""INT8 tables as a child process made them, and the Calibration that is made of them. No TensorFlow here."""

from __future__ import annotations

import dataclasses

from tftrt_tools.base import records
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tftrt.calibration import merge
from tftrt_tools.tftrt.calibration.comparison import Comparison
from tftrt_tools.tftrt.calibration.file import Calibration, EngineTable
from tftrt_tools.tftrt.calibration.record import DataRecord


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated(records.Record):
    """The tables of a model's engines, and what they were made from."""

    # Versions of TensorFlow, TensorRT (linked and loaded), CUDA and cuDNN.
    versions: dict[str, str]
    tables: tuple[EngineTable, ...] = ()
    # The data of each signature that was calibrated.
    data: tuple[DataRecord, ...] = ()
    # The method, as a calibration file names it; "" where no signature was looked at.
    method: str = ""
    # The comparison of the methods, None if they were not compared.
    comparison: Comparison | None = None

    def calibration(self, calibrator: str, model: str, digest: str) -> Calibration:
        """The Calibration of these tables, made now. Args: calibrator: of the settings. model: its path; digest: of it, "" where not
        known."""
        stamp, sources = passport.stamp(), [source.to_dict() for source in self.data]
        return Calibration(
            tool=stamp["tool"],
            created=stamp["created"],
            calibrator=calibrator,
            method=self.method,
            tensorrt=self.versions["tensorrt"],
            tensorflow=self.versions["tensorflow"],
            model=model,
            model_digest=digest,
            # No signature has data where no engine needs a table: a quantization-aware model carries its own ranges.
            data=merge.combined(sources) if len(sources) > 1 else next(iter(sources), {}),
            engines=self.tables,
            comparison=self.comparison,
        )
