"""The SavedModel that the user named, or a temporary one, exported from the file that the user named. No TensorFlow here.

`check` and `opened` here are for commands that convert or serve a SavedModel, which need its directory alone. Those of `kinds.opening` take
models of every kind, read what is in them, and call these for SavedModels; so this room knows no other kind.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import jobs, progress
from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.sources import kinds, tensors
from tftrt_tools.models.sources.source import Source, of

# Keras 3 can compute with others, too.
_ENV = {"TF_CPP_MIN_LOG_LEVEL": "1", "KERAS_BACKEND": "tensorflow"}
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
_open: dict[Source, str] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class KerasRequest(records.Record):
    """A Keras file to export."""

    source: str
    # The directory to write.
    output: str
    # As of Source.
    unsafe: bool = False
    custom_objects: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KerasExported(records.Record):
    """A Keras model that was exported. class_name: of the model's class; parameters: how many it has."""

    class_name: str
    parameters: int


@jobs.job
def export_keras() -> Callable[[KerasRequest], KerasExported]:
    """Export a Keras file to a SavedModel. Raises: TftrtError, UsageError."""
    from tftrt_tools.models.sources import keras_job

    return keras_job.job


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphRequest(records.Record):
    """A graph to export."""

    # A file, or the prefix of a checkpoint.
    source: str
    # kinds.GRAPH or CHECKPOINT.
    kind: str
    # The directory to write.
    output: str
    # Texts of the flags; () for what the graph shows.
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphExported(records.Record):
    """A graph that was exported: texts of its ends, and whether the graph showed any of them."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    chosen: bool


@jobs.job
def export_graph() -> Callable[[GraphRequest], GraphExported]:
    """Export a frozen graph, or a checkpoint with its MetaGraph, to a SavedModel. Raises: TftrtError, UsageError."""
    from tftrt_tools.models.sources import graph_job

    return graph_job.job


def check(model: str | os.PathLike[str] | Source) -> Source:
    """Refuse a path that cannot be a model, before any work. Returns: its Source. Raises: UsageError, TftrtError."""
    source = of(model)
    kind = kinds.kind(source.path)
    if kind in (kinds.SAVED_MODEL, kinds.KERAS) and (source.inputs or source.outputs):
        flag = "inputs" if source.inputs else "outputs"
        raise errors.UsageError(f"--{flag} has no effect: {source} is a {kind}, which has signatures", "leave it out")
    if kind == kinds.SAVED_MODEL:
        files.check(source.path)
    if kind != kinds.KERAS and source.custom_objects:
        raise errors.UsageError(
            f"--custom_objects has no effect: {source} is a {kind}, and they are of Keras files", "leave it out"
        )
    if kind != kinds.KERAS and source.unsafe:
        raise errors.UsageError(
            f"--allow_unsafe_deserialization has no effect: {source} is a {kind}, and it is about code in Keras files",
            "leave it out",
        )
    for flag in ("inputs", "outputs"):
        tensors.parse(flag, getattr(source, flag))
    return source


@contextlib.contextmanager
def opened(model: str | os.PathLike[str] | Source, log_file: str | None = None) -> Iterator[str]:
    """The SavedModel of what the user named. An `opened` inside another one of the same model shares its export.

    Args: model: SavedModel directory, Keras file, or a Source. log_file: where to keep what TensorFlow logs during an export.
    Yields: a SavedModel directory, to be read only. Raises: UsageError, TftrtError.
    """
    source = check(model)
    if kinds.kind(source.path) == kinds.SAVED_MODEL:
        yield source.path
    elif source in _open:
        yield _open[source]
    else:
        with scratch.folder("export") as folder:
            _export(source, folder + "/model", log_file)
            _open[source] = folder + "/model"
            try:
                yield _open[source]
            finally:
                del _open[source]


def _export(source: Source, output: str, log_file: str | None) -> None:
    kind = kinds.kind(source.path)
    if kind == kinds.KERAS:
        keras = KerasRequest(
            source=source.path, output=output, unsafe=source.unsafe, custom_objects=source.custom_objects
        )
        export_keras.run(keras, env=_ENV, log_file=log_file)
        return
    graph = GraphRequest(source=source.path, kind=kind, output=output, inputs=source.inputs, outputs=source.outputs)
    ends = export_graph.run(graph, env=_ENV | _NO_GPU, log_file=log_file).result
    if ends.chosen:
        progress.note(
            f"{source}: inputs {', '.join(ends.inputs)}; outputs {', '.join(ends.outputs)}; "
            "--inputs and --outputs choose others"
        )
