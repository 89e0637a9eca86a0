"""How results show themselves: by the tables and the pages of their commands."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

from tftrt_tools.base import results

# {class of a result: (its command, function of report that makes its page, or "")}.
_WAYS = {
    "tftrt_tools.accuracy.verify.Verification": ("verify", "html:verification_page"),
    "tftrt_tools.tensorrt.plans.tensors.Tensors": ("verify", "tensors:page"),
    "tftrt_tools.tftrt.conversion.plan.Plan": ("inspect", ""),
    "tftrt_tools.models.savedmodel.inspection.Inspection": ("inspect", ""),
    "tftrt_tools.models.kinds.model.Overview": ("inspect", ""),
    "tftrt_tools.tftrt.conversion.pipeline.CalibrationRun": ("calibrate", ""),
    "tftrt_tools.tftrt.conversion.pipeline.Conversion": ("convert", ""),
    "tftrt_tools.tensorrt.plans.result.Built": ("convert", ""),
    "tftrt_tools.tftrt.conversion.build.Build": ("build", ""),
    "tftrt_tools.studies.tuning.repeats.Repeated": ("build", ""),
    "tftrt_tools.studies.fleet_builds.building.FleetBuild": ("build", ""),
    "tftrt_tools.studies.tuning.tried.Tuning": ("tune", "html:tuning_page"),
    "tftrt_tools.studies.optimizing.story.Story": ("optimize", "optimize:page_of"),
    "tftrt_tools.tensorrt.exporting.result.Exported": ("export", ""),
    "tftrt_tools.servers.serving.publishing.publish.Publication": ("publish", ""),
    "tftrt_tools.servers.serving.triton.publish.Publication": ("publish", ""),
    "tftrt_tools.studies.bench.measurements.Bench": ("bench", "bench:page_of"),
    "tftrt_tools.studies.batching.tuned.Tuned": ("bench", ""),
    "tftrt_tools.studies.side_by_side.measured.SideBySide": ("bench", ""),
    "tftrt_tools.studies.regression.comparison.Regression": ("regress", "regress:page"),
    "tftrt_tools.studies.regression.several.Regressions": ("regress", "regress:page"),
}


@functools.cache
def register() -> None:
    """Let the results of all commands show themselves. Nothing is imported before one does."""
    results.showing({name: _ways(command, page) for name, (command, page) in _WAYS.items()})


def _ways(command: str, page: str) -> results.Ways:
    return results.Ways(functools.partial(_table, command), functools.partial(_page, page) if page else None)


def _table(command: str, done: object) -> str:
    from tftrt_tools.command_line.commands import _calling, _output

    stream = io.StringIO()
    with _output.tables_to(stream):
        _calling.table(command, done)
    return stream.getvalue().rstrip("\n")


def _page(name: str, done: object) -> str:
    import importlib

    module, _, function = name.partition(":")
    make: Callable[[Any], str] = getattr(importlib.import_module(f"tftrt_tools.command_line.report.{module}"), function)
    return make(done)
