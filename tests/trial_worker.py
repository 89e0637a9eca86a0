"""A worker of trials that converts nothing: what becomes of a trial is written in its settings."""

import os
import pathlib
import time
from collections.abc import Callable

from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs
from tftrt_tools.studies.tuning import final, measuring
from tftrt_tools.studies.tuning.tried import NATIVE, Measured
from tftrt_tools.tftrt.calibration.calibrated import Calibrated
from tftrt_tools.tftrt.calibration.file import EngineTable
from tftrt_tools.tftrt.calibration.record import DataRecord
from tftrt_tools.tftrt.calibration.table import Table


@jobs.job
def worker() -> Callable[[measuring.Request], measuring.Answer]:
    """Stands in for measuring.measure."""
    return worker_job


def worker_job(request):
    """keep_native_nodes says what happens to a trial."""
    if request.calibrate:
        table = EngineTable(
            segment="sha256:1", signature="s", engine="e", table=Table("TRT-8503-EntropyCalibration2", {"x": 0.5})
        )
        record = DataRecord(
            source="rows.npz",
            kind="arrays",
            digest="",
            samples=8,
            batch_size=8,
            batches=1,
            dropped=0,
            random=False,
            rows=(),
            failed_files=(),
            failed_count=0,
            warnings=(),
        )
        return measuring.Answer(
            calibrated=Calibrated(
                tables=(table,), data=(record,), versions={"tensorrt": "8.5.3", "tensorflow": "2.14.1"}, method="mse"
            )
        )
    if request.final:
        asked = request.final
        if any(one.settings.keep_native_nodes == "bug" for one in asked.converts.values()):
            raise ZeroDivisionError("a slip")
        numbers = [NATIVE, *asked.converts]
        seconds = [[[float(os.getpid())]] * 20] * len(numbers)
        return measuring.Answer(final=final.final(asked.timed.call, numbers, seconds))
    convert = request.trial.convert
    what = convert.settings.keep_native_nodes
    if what == "abort":
        (pathlib.Path(request.trial.folder) / ".trial-abc").mkdir()
        os.abort()
    if what == "bug":
        raise ZeroDivisionError("a slip")
    if what == "error":
        raise errors.CheckFailed("no segment", "a fix")
    if what == "endless":
        time.sleep(600)
    minutes = convert.build_minutes
    if what.startswith("late") and minutes is not None and minutes < 5:
        said = f"--max_build_minutes={minutes:g}"
        if what == "late, all":
            raise errors.CheckFailed(f"none of the 2 engines was ready within {said}")
        return measuring.Answer(measured=Measured(failure=f"E_1 was not ready when {said} were over"))
    engines = len(convert.table.engines) if convert.table else 0
    return measuring.Answer(measured=Measured(accuracy=float(os.getpid()), engines=engines))
