"""The record of a calibration's data. No TensorFlow here."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

ROWS_KEPT = 20_000
FILES_NAMED = 20


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The data of a calibration.

    source: text of --calibration_data, "" for random data; kind: "arrays", "tfrecords", "images", "function" or "random"; digest:
    "sha256:…" over the row hashes in order, the same for any batch size that uses the same rows; samples: rows used; batches of
    batch_size rows each, the last maybe of fewer; dropped: rows of a last batch that was left out; rows: hashes of the first 20,000
    rows (rows.row_hashes); failed_files: names of the first 20 of the failed_count files that did not decode;
    warnings: what to know about the data.
    """

    source: str
    kind: str
    digest: str
    samples: int
    batch_size: int
    batches: int
    dropped: int
    random: bool
    rows: tuple[str, ...]
    failed_files: tuple[str, ...]
    failed_count: int
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "rows": list(self.rows), "failed_files": list(self.failed_files),
                "warnings": list(self.warnings)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DataRecord:
        return cls(**{**data, "rows": tuple(data["rows"]), "failed_files": tuple(data["failed_files"]),
                      "warnings": tuple(data["warnings"])})
