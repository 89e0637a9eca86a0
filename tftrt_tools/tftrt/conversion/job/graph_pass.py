"""The TF-TRT graph pass on one frozen signature: which nodes go to which engine, and what stays out. Needs no GPU."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2

from tftrt_tools.base import errors, terminal, tf_private
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.job import engine_order, graph, loading, resized, unbuildable
from tftrt_tools.models.savedmodel.preparation import Preparation, stands_for
from tftrt_tools.tftrt.conversion import pass_log
from tftrt_tools.tftrt.conversion.job import patterns, quantization_aware, thrown

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2

    from tftrt_tools.base.choices import Precision
    from tftrt_tools.models.savedmodel.engine_op import EngineOp, Shape
    from tftrt_tools.models.savedmodel.inspection import Finding
    from tftrt_tools.models.savedmodel.shapes import Call
    from tftrt_tools.tftrt.conversion.job.patterns import Patterns
    from tftrt_tools.tftrt.conversion.pass_log import LeftOut, PassLog
    from tftrt_tools.tftrt.conversion.quantization import Quantization
    from tftrt_tools.tftrt.conversion.settings import Settings

# TensorFlow's protobufs end at 2 GiB; a frozen graph holds every weight in one.
PROTOBUF_LIMIT_BYTES = 2**31 - 1
# Ops that take rows of a variable.
ROWS = ("ResourceGather", "ResourceGatherNd")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frozen:
    """A signature with its variables as constants."""

    graph_def: graph_pb2.GraphDef
    # The names of the fed and of the returned tensors, "node:0".
    inputs: list[str]
    outputs: list[str]
    # {placeholder: resource} of lookup tables.
    captures: dict[str, Any]
    # The signature's ConcreteFunction.
    original: Any
    # The rewrites of the graph since it was frozen.
    preparation: Preparation = Preparation()
    # Nodes that passes could not leave to TF-TRT.
    thrown: thrown.Thrown = dataclasses.field(default_factory=dict)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the signature's inputs in the order of `inputs`."""
        return tf_private.argument_names(self.original)

    def input_map(self, values: Iterable[Any]) -> dict[str, Any]:
        """The input_map with which the graph is imported. Args: values: tensors, one for each of `inputs`."""
        fed = dict(zip(self.inputs, values, strict=True))
        fed.update({f"{name}:0": tf.identity(resource) for name, resource in self.captures.items()})
        # Control edges, too: otherwise a node would wait for a placeholder that nobody feeds.
        fed.update({f"^{name.removesuffix(':0')}": tensor for name, tensor in fed.items()})
        return fed

    def input_specs(self) -> list[Any]:
        """[tf.TensorSpec] of `inputs`."""
        tensors = [self.original.graph.get_tensor_by_name(name) for name in self.inputs]
        return [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]

    def fed(self, call: Mapping[str, Shape]) -> dict[str, Shape]:
        """{placeholder: shape} of a call."""
        return {
            tensor.removesuffix(":0"): call[name] for name, tensor in zip(self.input_names, self.inputs, strict=True)
        }

    def one_row(self, calls: Sequence[Call]) -> dict[str, Shape]:
        """{placeholder: shape} of the smallest call: 1 for an unknown first dimension, the others as in the first of `calls` ({input:
        shape}), None if there is none."""
        segments = {}
        for name, tensor, spec in zip(self.input_names, self.inputs, self.input_specs(), strict=True):
            declared = spec.shape.as_list() if spec.shape.rank is not None else None
            shape = list(calls[0][name]) if calls else declared
            if shape and (declared is None or declared[0] is None):
                shape[0] = 1
            segments[tensor.removesuffix(":0")] = None if shape is None else tuple(shape)
        return segments


def never_built(frozen: Frozen, graph_def: graph_pb2.GraphDef, calls: Sequence[Call]) -> tuple[Finding, ...]:
    """Findings on the engine ops that no GPU builds. Args: graph_def: `frozen` after the pass. calls: those that get engines."""
    by_text = {shape_grammar.call_text(call): frozen.fed(call) for call in calls}
    return (*unbuildable.find(graph_def), *unbuildable.too_large(frozen.graph_def, graph_def, by_text))


# Ops that TF-TRT takes and TensorRT never builds, and why. They stay in TensorFlow. Seen on an H200, TensorFlow 2.14.1, TensorRT 8.5.3.
NEVER_BUILT = {
    "CombinedNonMaxSuppression": "TF-TRT asks for the plugin EfficientNMS_TFTRT_TRT, which TensorRT 8.5 does not have"
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassResult:
    """A signature after the pass."""

    # The graph after the pass, with TRTEngineOps.
    graph_def: graph_pb2.GraphDef
    # The engine ops, in the order of the graph.
    engines: tuple[EngineOp, ...]
    # Nodes that compute something and stay in TensorFlow.
    left_out: tuple[pass_log.LeftOut, ...]
    # {op: how many} of those nodes.
    native_ops: dict[str, int]
    quantization: Quantization
    # How the signature was prepared, as in its Frozen.
    preparation: Preparation

    @property
    def coverage(self) -> float:
        """Share of the computing ops that run in TensorRT, 0 to 1."""
        inside = sum(engine.compute_ops for engine in self.engines)
        total = inside + sum(self.native_ops.values())
        return inside / total if total else 0.0


def freeze(
    name: str, function: tf.types.experimental.ConcreteFunction, graph_def: graph_pb2.GraphDef | None = None
) -> Frozen:
    """Freeze ConcreteFunction `function` of signature `name`. graph_def: its graph, changed by the caller; None for its own.

    Raises: TftrtError where it is over 2 GiB or where the signature changes variables.
    """
    weights = sum(_bytes(variable) for variable in function.graph.variables)
    if weights > PROTOBUF_LIMIT_BYTES - (1 << 20):
        raise errors.TftrtError(
            f"signature {name!r} holds {weights / 2**30:.2f} GiB of weights; TF-TRT freezes a signature into one "
            "protobuf, which ends at 2 GiB",
            "split the model into signatures of less than 2 GiB, or name the others in --signature_keys",
        )
    _check_no_writes(name, function.graph.as_graph_def())
    _check_no_resources(name, function)
    try:
        graph_def, inputs, outputs, captures = tf_private.freeze(function, graph_def)
    except Exception as error:  # TensorFlow raises many types of errors for a graph that it cannot open
        raise errors.TftrtError(
            f"TensorFlow cannot freeze signature {name!r}: {loading.first_line(error)}",
            "leave it out: name the other signatures in --signature_keys; it is kept as it is",
        ) from error
    _check_lookups(name, graph_def)
    return Frozen(graph_def=graph_def, inputs=inputs, outputs=outputs, captures=captures, original=function)


def room(frozen: Frozen) -> int:
    """The bytes by which the weights of a Frozen may grow."""
    result: int = PROTOBUF_LIMIT_BYTES - (1 << 20) - frozen.graph_def.ByteSize()
    return result


def _bytes(variable: tf.Variable) -> int:
    result: int = (variable.shape.num_elements() or 0) * variable.dtype.size
    return result


def _check_no_writes(name: str, graph_def: graph_pb2.GraphDef) -> None:
    writers = graph.variable_writers(graph_def)
    if writers:
        raise errors.TftrtError(
            f"signature {name!r} changes variables ({writers[0]}); frozen weights would never see the change",
            "leave it out: --signature_keys names others, and it is kept as it is; where there is no other, save one "
            "that reads the variables alone, such as one of model(x, training=False)",
        )


def _check_no_resources(name: str, function: tf.types.experimental.ConcreteFunction) -> None:
    for spec in loading.input_specs(function):
        if spec.dtype in ("resource", "variant"):
            raise errors.TftrtError(
                f"input {spec.name!r} of signature {name!r} is a {spec.dtype}, which no request holds",
                "leave it out: name the other signatures in --signature_keys; it is kept as it is",
            )


def _check_lookups(name: str, graph_def: graph_pb2.GraphDef) -> None:
    """In a call that is not inlined, TensorFlow freezes a variable, but not the op that takes rows of it."""
    for function in graph_def.library.function:
        frozen = {argument.name for argument in function.signature.input_arg if argument.type != types_pb2.DT_RESOURCE}
        for node in function.node_def:
            if node.op in ROWS and node.input[0] in frozen:
                raise errors.TftrtError(
                    f"signature {name!r} takes rows of a variable ({node.name}) inside a call that stays a call, and "
                    "TensorFlow cannot freeze that",
                    "leave the call out of --keep_native_nodes, or export the model without jit_compile",
                )


def run(frozen: Frozen, settings: Settings, gathered: Patterns | None = None) -> PassResult:
    """Run the pass, twice where `settings.fp32_nodes` asks for engines of two precisions.

    Args: gathered: patterns.Patterns over the model's signatures; None where a pattern that matches nothing here is an error.
    Returns: PassResult. Raises: UsageError.
    """
    _check_ops(settings.keep_native_ops)
    native = _native(frozen, settings, gathered)
    named = _matching(frozen.graph_def, settings, "fp32_nodes", gathered)
    several = frozen.preparation.apart & named
    parts = {node.name for node in frozen.graph_def.node if several and stands_for(node.name, several)}
    high = (named | parts) - native
    result, log = once(frozen, frozen.graph_def, settings, settings.precision_mode, native | high)
    requested = {engine.name: settings.precision_mode for engine in graph.engine_ops(result)}
    if high:
        # Nodes that the second pass took are no longer left out; for the others its newer reason counts.
        result, log = once(frozen, result, settings, "FP32", native)
    requested = {engine.name: requested.get(engine.name, "FP32") for engine in graph.engine_ops(result)}
    patterns.in_int8_engines(result, settings.high_precision_nodes, gathered)
    left_out = left_of(result, log, native, settings, frozen)
    statements = quantization_aware.statements(
        frozen.graph_def, result, requested, dynamic=settings.dynamic, left_out=left_out
    )
    return PassResult(
        graph_def=result,
        engines=tuple(graph.engine_ops(result)),
        left_out=left_out,
        native_ops=graph.compute_counts(result.node),
        quantization=statements,
        preparation=frozen.preparation,
    )


def clusters(frozen: Frozen, settings: Settings) -> PassLog:
    """All segments of any size that TF-TRT would form, from one pass with a minimum size that none reaches. Returns: pass_log.PassLog."""
    native = _native(frozen, settings, patterns.Patterns())
    _, log = once(
        frozen,
        frozen.graph_def,
        dataclasses.replace(settings, minimum_segment_size=10**6),
        settings.precision_mode,
        native,
    )
    return log


def _native(frozen: Frozen, settings: Settings, gathered: Patterns | None) -> set[str]:
    """Names of nodes that stay in TensorFlow."""
    return _matching(frozen.graph_def, settings, "keep_native_nodes", gathered) | frozen.preparation.native


def _check_ops(names: Sequence[str]) -> None:
    """Refuse op types that TensorFlow does not know; TF-TRT ignores them."""
    for name in names:
        if not hasattr(tf.raw_ops, name):
            near = difflib.get_close_matches(name, dir(tf.raw_ops), 1)
            raise errors.UsageError(
                f"--keep_native_ops: TensorFlow has no op {name!r}",
                f"did you mean {near[0]}?" if near else "`tftrt inspect` lists the model's ops",
            )


def _matching(graph_def: graph_pb2.GraphDef, settings: Settings, flag: str, gathered: Patterns | None) -> set[str]:
    """Names of the nodes that the pattern of a flag matches."""
    # Nodes that compute come first: an error shows the first names as examples.
    nodes = sorted(graph_def.node, key=lambda node: node.op in graph.PASSIVE_OPS)
    return patterns.matching(flag, getattr(settings, flag), [node.name for node in nodes], gathered)


def once(
    frozen: Frozen, graph_def: graph_pb2.GraphDef, settings: Settings, precision: Precision, preserved: AbstractSet[str]
) -> tuple[graph_pb2.GraphDef, PassLog]:
    """Run the pass once. Engine ops of an earlier pass stay as they are.

    Args: graph_def: `frozen`, or what an earlier pass made of it. precision: of the new engines. preserved: names of nodes that stay in
      TensorFlow. Returns: (the graph after the pass, pass_log.PassLog).
    """
    before = {node.name for node in graph.engine_nodes(graph_def)}
    # The pass runs as FP32: asked for FP16 it sends every Cast to float32 through half in the whole graph, and the integer 100000
    # becomes inf. The engine op's precision attribute decides what TensorRT builds. Only as INT8 does it take quantization nodes;
    # INT8 leaves casts alone.
    parameters = quantization_aware.pass_parameters(graph_def, precision)
    denied = ",".join([*settings.keep_native_ops, *NEVER_BUILT])
    graph_pass = thrown.Pass(
        graph_def=graph_def,
        preserved=(*frozen.inputs, *frozen.captures, *frozen.outputs, *sorted(preserved)),
        parameters={
            **parameters,
            "minimum_segment_size": settings.minimum_segment_size,
            "max_workspace_size_bytes": settings.max_workspace_size_bytes,
            "maximum_cached_engines": settings.maximum_cached_engines,
            "use_dynamic_shape": settings.dynamic,
            "dynamic_shape_profile_strategy": settings.strategy,
        },
        variables={"TF_TRT_OP_DENYLIST": denied, "TF_TRT_MAX_ALLOWED_ENGINES": str(settings.max_engines)},
    )
    converted, text = thrown.run(graph_pass, frozen.thrown)
    engine_order.sort_borders(converted)
    for node in graph.engine_nodes(converted):
        # If quantization nodes decide, TF-TRT's precision stays: an engine with explicit quantization can only be built as INT8, and one
        # that TF-TRT made FP16, because it found no such node, has no scales.
        if (
            node.name not in before
            and parameters["precision_mode"] == "FP32"
            and not node.attr["use_explicit_precision"].b
        ):
            graph.set_attributes(node, precision_mode=precision, use_calibration=precision == "INT8")
    return converted, pass_log.parse(text)


def left_of(
    graph_def: graph_pb2.GraphDef, log: PassLog, native: AbstractSet[str], settings: Settings, frozen: Frozen
) -> tuple[pass_log.LeftOut, ...]:
    """The nodes of a graph after the pass that compute something and stay in TensorFlow, with the reasons. Args: log: of the pass. native:
    nodes that the user keeps there."""
    remaining = [node for node in graph_def.node if node.op not in graph.PASSIVE_OPS and node.op != graph.ENGINE_OP]
    return tuple(_reason(node, log, native, settings, frozen) for node in remaining)


def _reason(
    node: node_def_pb2.NodeDef, log: PassLog, native: AbstractSet[str], settings: Settings, frozen: Frozen
) -> LeftOut:
    if node.name in frozen.preparation.left:
        return pass_log.LeftOut(node.name, node.op, "a convolution of several groups; TF-TRT knows of one only")
    if node.name in frozen.preparation.kept_resizes:
        return pass_log.LeftOut(node.name, node.op, resized.REASON)
    if node.name in native:
        return pass_log.LeftOut(node.name, node.op, "kept native by --keep_native_nodes")
    told = dict(frozen.preparation.outside).get(node.name, "")
    if node.name in frozen.thrown[settings.dynamic]:
        reason = frozen.thrown[settings.dynamic][node.name]
        return pass_log.LeftOut(node.name, node.op, f"{reason}; {told}" if told else reason)
    if node.op in NEVER_BUILT and node.op not in settings.keep_native_ops:
        return pass_log.LeftOut(node.name, node.op, NEVER_BUILT[node.op])
    if node.name in log.left_out:
        return pass_log.LeftOut(node.name, node.op, told) if told else log.left_out[node.name]
    for cluster in log.clusters:
        if node.name in cluster.nodes:
            if cluster.effective is not None:
                size = terminal.counted(cluster.effective, "node")
                reason = f"its segment has {size}, fewer than minimum_segment_size={settings.minimum_segment_size}"
            else:
                reason = f"its segment is not among the {settings.max_engines} largest (max_engines), or has no input that varies"
            return pass_log.LeftOut(node.name, node.op, reason)
    return pass_log.LeftOut(node.name, node.op, told or "not offered to TensorRT")
