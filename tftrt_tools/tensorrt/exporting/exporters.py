"""What exports each kind of model to ONNX, and what that needs. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Mapping

from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs
from tftrt_tools.models.kinds import table
from tftrt_tools.models.kinds.model import Kind
from tftrt_tools.models.kinds.onnx.kind import ONNX
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.kinds.pytorch.kind import PYTORCH
from tftrt_tools.models.kinds.savedmodel.kind import SAVED_MODEL
from tftrt_tools.models.sources.source import Source
from tftrt_tools.tensorrt.exporting import bisecting, converting
from tftrt_tools.tensorrt.exporting.result import Departure

_CHECKS = {"onnx": "onnx", "onnxslim": "onnxslim", "onnxruntime": "ONNX Runtime"}
# The only Python with the TensorFlow of TF-TRT, whose environment has TensorFlow already.
_WITH_TF_TRT = (3, 10)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exporter:
    """What exports the models of a kind."""

    job: jobs.Job[converting.Request, converting.Answer]
    # The search for the first tensor that departs.
    bisect: jobs.Job[bisecting.Request, Departure | None]
    # {package to import: what people call it}.
    needed: Mapping[str, str]
    # The extra of pyproject.toml with them.
    extra: str
    # Why it takes no --freeze, "" where it does.
    unfrozen: str = ""
    # Whether `bisect` runs the source itself, and not what `job` has kept of it.
    bisects_source: bool = False


# {name of a kind: what exports its models}.
_EXPORTERS = {
    SAVED_MODEL.name: Exporter(
        job=converting.saved_model,
        bisect=bisecting.saved_model,
        needed={"tensorflow": "TensorFlow", "tf2onnx": "tf2onnx", **_CHECKS},
        extra="export" if sys.version_info[:2] == _WITH_TF_TRT else "export-tensorflow",
    ),
    PYTORCH.name: Exporter(
        job=converting.program,
        bisect=bisecting.program,
        needed={"torch": "PyTorch", "onnxscript": "onnxscript", **_CHECKS},
        extra="export-torch",
        unfrozen="--freeze is for models of TensorFlow and ONNX files",
    ),
    ONNX.name: Exporter(
        job=converting.onnx_file, bisect=bisecting.onnx_file, needed=_CHECKS, extra="export-onnx", bisects_source=True
    ),
}


def exports(kind: Kind) -> bool:
    """Whether models of a kind that are no ONNX files can become one."""
    return kind.name in _EXPORTERS and kind is not ONNX


def of(source: Source) -> Exporter:
    """The Exporter of a model. Raises: UsageError for a plan; TftrtError for one whose packages are missing."""
    kind = table.kind(source.path)
    found = _EXPORTERS.get(kind.name)
    if found is None:
        raise errors.UsageError(
            f"{source} is {table.noun(source.path)} already",
            f"give the ONNX file that it was built from, {os.path.join(source.path, document.ONNX)}; `tftrt build` "
            "builds the plan anew",
        )
    for package, title in found.needed.items():
        if importlib.util.find_spec(package) is None:
            raise errors.TftrtError(f"{title}, which an export needs, is not installed", errors.install(found.extra))
    return found
