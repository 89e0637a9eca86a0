"""Freezes a signature and rewrites it for TF-TRT, so that more of it goes into engines. Its answers stay the same."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import fixed_sizes, frozen_inputs
from tftrt_tools.models.savedmodel.job import (
    chosen,
    compiled,
    conditionals,
    cumulated,
    defaulted,
    dilated,
    dropouts,
    einsums,
    fake_quant,
    fixing,
    flattened,
    gather_nd,
    graph,
    grouped,
    indexed,
    interleaved,
    loading,
    new_axes,
    normalized,
    open_sizes,
    outside,
    repeated,
    resized,
    select_ranks,
    slices,
    transposed,
    unbuildable,
)
from tftrt_tools.models.savedmodel.preparation import Preparation, stands_for
from tftrt_tools.tftrt.conversion.job import graph_pass

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen, PassResult
    from tftrt_tools.tftrt.conversion.job.patterns import Patterns
    from tftrt_tools.tftrt.conversion.settings import Settings


def passed(
    name: str, function: tf.types.experimental.ConcreteFunction, settings: Settings, gathered: Patterns | None = None
) -> tuple[Frozen, PassResult]:
    """Freeze a signature, open the calls that XLA compiles, write grouped convolutions as TensorRT can build them and those with
    dilations as TF-TRT takes them, and run the pass.

    Nodes that stay in TensorFlow are not changed.

    Args: name, function: of the signature. settings: Settings. gathered: as of graph_pass.run.
    Returns: (graph_pass.Frozen, graph_pass.PassResult).
    Raises: as graph_pass.freeze and run; UsageError for a model that is converted already.
    """
    before = function.graph.as_graph_def()
    calls = [call for call in compiled.calls(before) if not _kept(call, settings)]
    # Calls with such an op can be frozen only when they are opened.
    for_good = compiled.holding(before, graph_pass.ROWS)
    values = frozen_inputs.of_signature(settings.freeze, name, loading.freezable(function))
    lone: frozenset[str] = frozenset()
    # A table of INT8 names TensorRT's layers. How it names those of SelectV2, OnesLike, ZerosLike, and of DepthToSpace with open sizes is
    # not known (calibration.job.layer_rules), and one name that is wrong shifts the numbers of all behind it.
    named = settings.precision_mode != "INT8"
    while True:
        frozen = graph_pass.freeze(name, function, compiled.opened(before, calls) if calls else None)
        _refuse_converted(frozen.graph_def)
        kept = frozenset(
            node.name
            for node in frozen.graph_def.node
            if _kept(node.name, settings) or node.op in settings.keep_native_ops
        )
        own = {key: value for key, value in values.items() if key in frozen.input_names}
        defaults = defaulted.fold(
            frozen.graph_def, frozen.inputs, {key: value for key, value in values.items() if key not in own}
        )
        offered = _freeze_inputs(frozen, own)
        sizes = _fix_sizes(name, frozen, function, settings)
        dropped = dropouts.fold(frozen.graph_def, kept)
        folded = fake_quant.fold(frozen.graph_def, kept)
        left_out = fake_quant.leave_out(frozen.graph_def, kept) if _drops_quantization(settings) else ()
        enlarged, repeats = repeated.rewrite(frozen.graph_def, kept)
        fetched = frozenset(name.split(":")[0] for name in frozen.outputs)
        written = dilated.rewrite(frozen.graph_def, fetched, kept, settings.dynamic)
        paddings = dilated.lift_paddings(frozen.graph_def, kept)
        as_they_are = kept | lone
        by_numbers, lifted = indexed.rewrite(frozen.graph_def, as_they_are | frozenset(paddings))
        wider = new_axes.rewrite(frozen.graph_def, as_they_are, settings.dynamic)
        sums = cumulated.rewrite(frozen.graph_def, as_they_are, settings.dynamic) if named else ()
        taken = gather_nd.rewrite(frozen.graph_def, as_they_are) if settings.dynamic and named else ()
        choices = chosen.rewrite(frozen.graph_def, as_they_are, settings.dynamic) if named else ()
        if settings.dynamic:
            select_ranks.rewrite(frozen.graph_def, as_they_are)
        half = settings.precision_mode == "FP16"
        takes = settings.dynamic and named
        normal = normalized.rewrite(frozen.graph_def, as_they_are, half, frozen.outputs) if takes else ()
        convolutions = grouped.rewrite(frozen.graph_def, graph_pass.room(frozen), kept)
        reshaped = flattened.rewrite(frozen.graph_def, kept)
        room = graph_pass.room(frozen)
        products = einsums.rewrite(frozen.graph_def, as_they_are, settings.dynamic, room, fetched)
        plain = transposed.rewrite(frozen.graph_def, kept, settings.dynamic)
        otherwise, wrong = resized.rewrite(frozen.graph_def, kept)
        blocks, larger = interleaved.rewrite(frozen.graph_def, kept) if settings.dynamic and named else ((), ())
        done = Preparation(
            opened=tuple(calls),
            convolutions=convolutions,
            dilated=written,
            paddings=(*paddings, *lifted),
            indexed=by_numbers,
            new_axes=wider,
            cumulated=sums,
            gathered=taken,
            einsums=products,
            chosen=choices,
            normalized=normal,
            folded=folded,
            enlarged=enlarged,
            repeats=repeats,
            flattened=reshaped,
            transposed=plain,
            interleaved=blocks,
            upsampled=larger,
            resized=otherwise,
            kept_resizes=wrong,
            dropouts=dropped,
            unquantized=left_out,
            frozen=tuple((key, value.item()) for key, value in own.items()),
            defaults=defaults,
            sizes=sizes,
            open_sizes=open_sizes.nodes(frozen.graph_def, kept),
            outside=outside.reasons(frozen.graph_def, kept, lone, settings.dynamic, named),
            offered=offered,
        )
        frozen = dataclasses.replace(frozen, preparation=done)
        closed, alone = set(_unwritten(frozen.preparation)), frozenset[str]()
        if not closed:
            result = graph_pass.run(frozen, settings, gathered)
            moving = done.moved - frozenset(paddings)
            closed, alone = set(_in_vain(result)) - for_good, _alone(result, moving)
        if not closed and not alone:
            return _counted(frozen, result, settings, gathered)
        lone |= alone
        calls = [
            call for call in calls if call not in closed and not any(compiled.inside(outer, call) for outer in closed)
        ]


def _counted(
    frozen: Frozen, result: PassResult, settings: Settings, gathered: Patterns | None
) -> tuple[Frozen, PassResult]:
    """Run the pass again where engines hold slices that TF-TRT would take wrongly and the graph tells what they mean.

    TensorFlow merges equal nodes, so that a slice may show up only after its like was rewritten.
    """
    while open_slices := unbuildable.open_slices(result.graph_def):
        changed = slices.rewrite(frozen.graph_def, open_slices)
        if not changed:
            break
        done = dataclasses.replace(frozen.preparation, slices=(*frozen.preparation.slices, *changed))
        frozen = dataclasses.replace(frozen, preparation=done)
        result = graph_pass.run(frozen, settings, gathered)
    return frozen, result


def _freeze_inputs(frozen: Frozen, values: Mapping[str, npt.NDArray[Any]]) -> tuple[str, ...]:
    """Replace inputs by values. Returns: names of other inputs whose replacement would remove conditionals."""
    placeholders = {
        name: tensor.removesuffix(":0") for name, tensor in zip(frozen.input_names, frozen.inputs, strict=True)
    }
    if values:
        conditionals.freeze(frozen.graph_def, {placeholders[name]: value for name, value in values.items()})
    switches = {
        name
        for name, spec in zip(frozen.input_names, frozen.input_specs(), strict=True)
        if spec.dtype == tf.bool and spec.shape.rank == 0 and name not in values
    }
    return tuple(name for name in sorted(switches) if conditionals.deciding(frozen.graph_def, placeholders[name]))


def _fix_sizes(
    name: str, frozen: Frozen, function: tf.types.experimental.ConcreteFunction, settings: Settings
) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
    """Let inputs take one size, where that is asked for. Returns: ((input, shape), …)."""
    sizes = fixed_sizes.of_signature(settings.fix_sizes, name, loading.freezable(function))
    nodes = dict(zip(frozen.input_names, (tensor.removesuffix(":0") for tensor in frozen.inputs), strict=True))
    fixing.fix(
        frozen.graph_def, {nodes[input_name]: shape for input_name, shape in sizes.items() if input_name in nodes}
    )
    return tuple(sizes.items())


def _refuse_converted(graph_def: graph_pb2.GraphDef) -> None:
    for node in graph.engine_nodes(graph_def):
        raise errors.UsageError(
            f"the model is converted already: it holds engine op {graph.engine_name(node.name)}",
            "give the original model; the manifest in assets.extra/tftrt of the converted one names it",
        )


def _kept(name: str, settings: Settings) -> bool:
    return bool(settings.keep_native_nodes and re.fullmatch(settings.keep_native_nodes, name))


def _drops_quantization(settings: Settings) -> bool:
    """Whether FakeQuant nodes on activations are left out: they serve only INT8, and leaving them out changes the answers."""
    return settings.allow_quantization_changes and settings.precision_mode != "INT8"


def _unwritten(done: Preparation) -> list[str]:
    """Opened calls with a grouped convolution that could not be rewritten. TF-TRT would take it, and no GPU builds such an engine; if
    the call stays closed, XLA computes it."""
    return [call for call in done.opened if any(compiled.inside(call, name) for name in done.left)]


def _in_vain(result: PassResult) -> list[str]:
    """Opened calls that gained nothing: none of their ops is in an engine, or a convolution that was written with zeros is not. XLA
    computes them faster as a whole."""
    done = result.preparation
    native = {node.name for node in result.graph_def.node}
    zeros = [
        convolution.name
        for convolution in done.convolutions
        if convolution.written == "Conv2D" and convolution.name in native
    ]
    inner = [
        node
        for native_segment in graph.native_segments(result.graph_def).values()
        for node in native_segment.function.node_def
    ]
    taken = {node.name for node in inner if node.op not in graph.PASSIVE_OPS}
    return [
        call
        for call in done.opened
        if any(compiled.inside(call, name) for name in zeros) or not any(compiled.inside(call, name) for name in taken)
    ]


def _alone(result: PassResult, moving: frozenset[str]) -> frozenset[str]:
    """Names of nodes that are in no engine, or for the most part in none, or in one that holds nothing else. TensorFlow's own op is faster.

    Args: moving: names of nodes that were written otherwise, some as several, whose names begin with that one's.
    """
    if not moving:
        return frozenset()
    alone: set[str] = set()
    useful: set[str] = set()
    # {node: how many of its parts are in engines, less those that are not}.
    more: collections.Counter[str] = collections.Counter()
    segments = graph.native_segments(result.graph_def).values()
    for engine, nodes in ((False, result.graph_def.node), *((True, one.function.node_def) for one in segments)):
        inner = [node.name for node in nodes if node.op not in graph.PASSIVE_OPS]
        of = {inside: stands_for(inside, moving) for inside in inner}
        (useful if engine and not all(of.values()) else alone).update(*of.values())
        for wholes in of.values():
            more.update(dict.fromkeys(wholes, 1 if engine else -1))
    return frozenset(name for name in alone if name not in useful or more[name] < 0)
