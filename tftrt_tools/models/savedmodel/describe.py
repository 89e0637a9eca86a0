"""Signatures and engine ops of SavedModels, read from their protos in a child process; nothing is loaded or run."""

import dataclasses
import os
from collections.abc import Callable, Sequence

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.models.savedmodel.shapes import InputSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description(records.Record):
    """The inputs, outputs and engine ops of a SavedModel."""

    # {signature: its inputs}.
    inputs: dict[str, tuple[InputSpec, ...]]
    # {signature: its outputs}.
    outputs: dict[str, tuple[InputSpec, ...]]
    # The engine ops of the whole model.
    engines: tuple[EngineOp, ...]
    # Tags of the MetaGraph.
    tags: tuple[str, ...]
    # {signature: the one that stands for it} of twins.find.
    same: dict[str, str] = dataclasses.field(default_factory=dict)
    # {signature: placeholders with a default that it does not name}.
    unnamed: dict[str, tuple[InputSpec, ...]] = dataclasses.field(default_factory=dict)


@jobs.job
def read() -> Callable[[Sequence[str]], Sequence[Description]]:
    """Descriptions of SavedModel directories, by their paths."""
    from tftrt_tools.models.savedmodel import describe_job

    return describe_job.job


def describe(*models: str | os.PathLike[str]) -> list[Description]:
    """Descriptions of SavedModel directories. Raises: TftrtError, UsageError."""
    return list(read.run([str(model) for model in models]).result)
