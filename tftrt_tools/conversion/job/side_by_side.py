"""Times the kernels of several engines and profiles side by side, in threads of this process; the builds after it find the times known.

TensorRT builds an engine on one core and uses a third of the GPU meanwhile. Engines are independent of each other, and so are the kernel
times of an engine's profiles. Threads of one process share the GPU without slices of time, which processes do not. The engines that the
threads build are thrown away; what stays is TensorRT's timing cache.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tftrt_tools import errors, tf_private
from tftrt_tools.savedmodel.job import graph

if TYPE_CHECKING:
    from tftrt_tools.savedmodel.job.lone_engine import LoneEngine

SWITCH = "TFTRT_BUILD_THREADS"


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of the work: the engine op `lone`, built for `feeds`, a list of tensors for each call."""

    lone: LoneEngine
    feeds: Sequence[Sequence[Any]]


def threads() -> int:
    """How many threads the environment asks for; 1 for none. Raises: UsageError."""
    text = os.environ.get(SWITCH, "1")
    if not text.isdecimal() or not int(text):
        raise errors.UsageError(f"{SWITCH}={text} in the environment is no number of threads", "give 1 or more")
    return int(text)


def pieces(lone: LoneEngine, feeds: Sequence[Sequence[Any]], strategy: str) -> list[Piece]:
    """The parts of an engine in explicit batch mode: a profile each, where the profiles are the calls; else one part.

    Args: strategy: the profile strategy of its op.
    """
    if strategy != "Optimal":
        return [_named(lone, "all", feeds)]
    return [_named(lone, str(index), [feed]) for index, feed in enumerate(feeds)]


def _named(lone: LoneEngine, suffix: str, feeds: Sequence[Sequence[Any]]) -> Piece:
    """A copy under another name: TF-TRT finds an engine by the name of its op."""
    graph_def = graph_pb2.GraphDef.FromString(lone.graph_def.SerializeToString())
    node = next(node for node in graph_def.node if node.op == graph.ENGINE_OP)
    node.name = f"{lone.node}_part_{suffix}"
    return Piece(dataclasses.replace(lone, graph_def=graph_def, node=node.name), feeds)


def time_kernels(work: Sequence[Piece], build: Any, registry: tf_private.TimingCache, count: int, folder: str | os.PathLike[str]) -> None:
    """Build every piece in one of `count` threads and put the kernel times of all into `registry`.

    Args: build: engines.compile_engines. folder: for a file that is removed. A piece that fails adds no times; the build of the
      whole engine then says why.
    """
    known = [registry.read()]

    def one(piece: Piece) -> None:
        path = pathlib.Path(folder) / f"{piece.lone.node}.part"
        with contextlib.suppress(tf.errors.OpError):
            build(piece.lone, piece.feeds, True)
        # Each build replaces the registry's cache by what it was given and its own times.
        known.append(registry.read())
        tf_private.serialize_engines(piece.lone.node, path)
        path.unlink(missing_ok=True)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(one, work))
    if combined := _combined([content for content in known if content]):
        registry.write(combined)


def _combined(contents: Sequence[bytes]) -> bytes:
    """The times of several serialized caches in one; those of a later cache count only where an earlier one has none."""
    if not contents:
        return b""
    import tensorrt

    builder = tensorrt.Builder(tensorrt.Logger(tensorrt.Logger.ERROR))
    config = builder.create_builder_config()
    caches = [config.create_timing_cache(content) for content in contents]
    for cache in caches[1:]:
        caches[0].combine(cache, ignore_mismatch=False)
    return bytes(caches[0].serialize())
