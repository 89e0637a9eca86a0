"""The record of a calibration's data. No TensorFlow here."""

from __future__ import annotations

import dataclasses

from tftrt_tools.base import records
from tftrt_tools.models.inputs.value_ranges import ValueRange

ROWS_KEPT = 20_000
FILES_NAMED = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataRecord(records.Record):
    """The data of a calibration."""

    # Text of --calibration_data, "" for random data.
    source: str
    # "arrays", "tfrecords", "images", "function" or "random".
    kind: str
    # "sha256:…" over the row hashes in order, the same for any batch size that uses the same rows.
    digest: str
    # Rows used.
    samples: int
    # Rows of a batch, the last maybe of fewer; and how many batches there were.
    batch_size: int
    batches: int
    # Rows of a last batch that was left out.
    dropped: int
    # Whether it was drawn.
    random: bool
    # Hashes of the first 20,000 rows (rows.row_hashes).
    rows: tuple[str, ...]
    # Names of the first 20 files that did not decode, and how many did not.
    failed_files: tuple[str, ...]
    failed_count: int
    # What to know about the data.
    warnings: tuple[str, ...]
    # {signature/input: the range of its values} of float inputs.
    ranges: dict[str, ValueRange] = dataclasses.field(default_factory=dict)
