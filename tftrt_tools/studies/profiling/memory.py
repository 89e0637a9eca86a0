"""What an engine takes of the GPU's memory: asked for, measured, and what another one would add."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base import records
from tftrt_tools.studies.profiling import roofline
from tftrt_tools.studies.profiling.engine_graph import Graph
from tftrt_tools.tftrt.conversion import layer_table

# TF-TRT's default for the workspace is nearly 2**63.
_NO_LIMIT = 1 << 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory(records.Record):
    """Memory of an engine in bytes; None where nothing tells."""

    # The serialized engine.
    plan: int
    # Constants of the native segment, as the SavedModel has them.
    weights_in_model: int | None = None
    # GPU memory that loading the engine took, mostly for weights.
    engine: int | None = None
    # GPU memory that a context took.
    context: int | None = None
    # What TensorRT says that a context needs for activations and scratch, the most that any of the engine's profiles does.
    activations_and_scratch: int | None = None
    # The part of it that this profile needs, by the log of the build.
    activations_of_profile: int | None = None
    # Memory of the activations between its layers if each had its own.
    activations_without_reuse: int | None = None
    # Scratch memory that the engine may use (max_workspace_size_bytes, None for no limit), and that its layers do, by the log of the build.
    workspace_asked: int | None = None
    workspace_taken: int | None = None
    # Inputs and outputs of one call.
    inputs_and_outputs: int | None = None
    # What another copy of the engine with its context took: (engine, context).
    next_engine: tuple[int, int] | None = None

    @property
    def reuse_saves(self) -> int | None:
        """Bytes that the activations of this profile save by sharing memory; scratch counts against it."""
        if self.activations_without_reuse is None or self.activations_of_profile is None:
            return None
        return self.activations_without_reuse - self.activations_of_profile


def of(
    told: Mapping[str, Any],
    streams: Mapping[str, Any],
    graph: Graph | None,
    built: layer_table.Built | None,
    profile: int,
    workspace_asked: int | None,
) -> Memory:
    """From the recorded parts "told" and "streams". Args: built: what the log of the build says; profile: from 0."""
    # What is free on the GPU is measured: where another process gives memory back, a copy would seem to cost less than nothing.
    copies = [size if min(size) >= 0 else None for size in streams.get("copies_bytes") or ()] or [None]
    return Memory(
        plan=told["bytes"],
        weights_in_model=None
        if graph is None
        else sum(tensor.bytes() or 0 for node in graph.nodes if node.op == "Const" for tensor in node.outputs),
        engine=told.get("engine_bytes"),
        context=told.get("context_bytes"),
        activations_and_scratch=told.get("device_memory_size"),
        activations_of_profile=built.activation_bytes[profile]
        if built and profile < len(built.activation_bytes)
        else None,
        activations_without_reuse=_activations([row for row in built.rows if row.profile == profile] if built else ()),
        workspace_asked=workspace_asked if workspace_asked and workspace_asked < _NO_LIMIT else None,
        workspace_taken=built.scratch_bytes[profile] if built and profile < len(built.scratch_bytes) else None,
        inputs_and_outputs=sum(told["buffer_bytes"].values()) if "buffer_bytes" in told else None,
        next_engine=None if copies[0] is None else (copies[0][0], copies[0][1]),
    )


def _activations(rows: Sequence[layer_table.Row]) -> int | None:
    """All tensors between layers; those of the engine's inputs and outputs are not in its memory, and a NoOp's output is its input."""
    read = {tensor.name for row in rows for tensor in row.inputs}
    sizes = [
        roofline.tensor_bytes(tensor)
        for row in rows
        if row.kind not in ("Constant", "NoOp")
        for tensor in row.outputs
        if tensor.name in read
    ]
    sizes_known = [size for size in sizes if size is not None]
    return sum(sizes_known) if rows and len(sizes_known) == len(sizes) else None
