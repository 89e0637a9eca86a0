"""The job that writes two ONNX files with tensors that they share as outputs. No runtime is imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tftrt_tools.accuracy.marked import Chunks
from tftrt_tools.base import records
from tftrt_tools.base.process import jobs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """Which tensors of two ONNX files."""

    # Their paths.
    files: tuple[str, str]
    # Names of tensors, () for all.
    names: tuple[str, ...] = ()
    # Where the files go.
    folder: str
    # Tensors of a file.
    chunk: int


@jobs.job
def find() -> Callable[[Request], Chunks]:
    """Find the tensors that both compute, and write files with some of them each. Raises: UsageError where there is none."""
    from tftrt_tools.tensorrt.plans import tensors_job

    return tensors_job.job
