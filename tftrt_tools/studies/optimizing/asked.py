"""What the user of `tftrt optimize` asks for."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from typing import Literal

from tftrt_tools.base import records
from tftrt_tools.base.choices import Precision, Server

# The report of a run, a file of its work folder.
REPORT = "report.html"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(records.Record):
    """The flags, as they were typed."""

    # Path of the model.
    model: str
    # Rows to score, and the file of their right answers, or "".
    data: str
    labels: str = ""
    # Rows to calibrate on, "" to hold some of `data` back.
    calibration_data: str = ""
    # What the model has to keep, as accuracy.goal.parse takes it.
    goal: str
    # Text of --shapes, "" to take them from the batch sizes.
    shapes: str = ""
    batch_sizes: tuple[int, ...] = ()
    # To choose from.
    precisions: tuple[Precision, ...]
    # The directory to make.
    output: str
    # The promise of a service: text of `tftrt bench --slo`, and requests a second; "" and 0 for none.
    slo: str = ""
    rate: float = 0.0
    # BASE_PATH/MODEL_NAME to publish to, or "".
    publish: str = ""
    # What has to serve the model; "" for the default of the commands.
    server: Server | Literal[""] = ""
    # Builds of the engines, the fastest of which is kept.
    repeat: int = 1
    # Folder of the results.
    work_dir: str
    # {flag: its words} of flags that the steps repeat, as far as they were given.
    words: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def given(self, names: Iterable[str]) -> list[str]:
        """The words of these flags, as far as they were given."""
        return [word for name in names for word in self.words.get(name, ())]

    def path(self, name: str) -> str:
        """A file of the work folder."""
        return str(pathlib.Path(self.work_dir) / name)

    @property
    def serving(self) -> list[str]:
        """The words of --server, as far as it was given."""
        return [f"--server={self.server}"] if self.server else []

    @property
    def int8(self) -> bool:
        """Whether INT8 is to be tried."""
        return "INT8" in self.precisions

    @property
    def held_back(self) -> bool:
        """Whether some of the rows are held back to calibrate on."""
        return self.int8 and not self.calibration_data
