"""The jobs of `tftrt convert` and `tftrt calibrate`: what their child processes take and give. No TensorFlow here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.engine_cache.store import Place
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.tftrt.calibration.calibrated import Calibrated
from tftrt_tools.tftrt.calibration.file import Calibration
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesFrom(records.Record):
    """Where INT8 tables come from."""

    # The data to calibrate on, or None.
    options: DataOptions | None = None
    # A calibration to reuse, or None.
    given: Calibration | None = None
    # Compare the toolkit's methods even if the settings name one.
    compare: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertRequest(records.Record):
    """A conversion."""

    # The SavedModel directory.
    source: str
    # The empty directory to fill; None for a dry run.
    output: str | None = None
    settings: Settings
    int8: TablesFrom = TablesFrom()
    # The engine cache, None for none.
    cache: Place | None = None
    # For all engines together, None for no bound.
    build_minutes: float | None = None
    # The coverage below which the other batch mode is tried; 0 for never.
    compare_modes: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Converted(Calibrated):
    """A conversion that is done. Its tables, data, method and comparison are those of an INT8 model."""

    signatures: tuple[SignatureResult, ...]
    # The GPU, by execution.job.gpu.seen; None if none is visible.
    gpu: dict[str, str] | None
    # Why the engine cache did not work, or "".
    cache_problem: str = ""
    # Tags of the MetaGraphs that are not converted.
    other_tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrateRequest(records.Record):
    """A calibration. Nothing is saved."""

    # The SavedModel directory, converted or not.
    source: str
    settings: Settings
    int8: TablesFrom


@jobs.job
def convert() -> Callable[[ConvertRequest], Converted]:
    """Convert a SavedModel."""
    from tftrt_tools.tftrt.conversion import convert_job

    return convert_job.job


@jobs.job
def calibrate() -> Callable[[CalibrateRequest], Calibrated]:
    """Make the INT8 tables of a SavedModel's engines."""
    from tftrt_tools.tftrt.conversion import calibrate_job

    return calibrate_job.job
