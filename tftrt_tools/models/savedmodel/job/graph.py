"""TRTEngineOps and functions in GraphDef protos: read, renamed, edited. Works on protos alone; nothing is run."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from tftrt_tools.models.savedmodel import tensor_kinds
from tftrt_tools.models.savedmodel.engine_op import ENGINE_OP as ENGINE_OP
from tftrt_tools.models.savedmodel.engine_op import PASSIVE_OPS as PASSIVE_OPS
from tftrt_tools.models.savedmodel.engine_op import EngineOp, Tensor, table_tensorrt
from tftrt_tools.models.savedmodel.job.protos import attr_value_pb2, types_pb2
from tftrt_tools.models.savedmodel.shapes import InputSpec

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, tensor_shape_pb2
    from tensorflow.core.protobuf import meta_graph_pb2

    from tftrt_tools.models.savedmodel.engine_op import Shape

# The meaning of a missing attribute, because a SavedModel drops attributes with their default value (TF 2.14's op definition).
_DEFAULTS = {
    "precision_mode": "FP32",
    "use_calibration": True,
    "max_cached_engines_count": 1,
    "use_explicit_precision": False,
    "static_engine": True,
    "calibration_data": "",
    "profile_strategy": "",
    "workspace_size_bytes": 0,
}


def engine_name(node_name: str) -> str:
    """The name under which TF-TRT caches engines: the last part of the node's name."""
    return node_name.rsplit("/", 1)[-1]


def engine_nodes(graph_def: graph_pb2.GraphDef) -> Iterator[node_def_pb2.NodeDef]:
    """Every TRTEngineOp NodeDef of a graph and its functions."""
    for node in graph_def.node:
        if node.op == ENGINE_OP:
            yield node
    for function in graph_def.library.function:
        for node in function.node_def:
            if node.op == ENGINE_OP:
                yield node


def variable_writers(graph_def: graph_pb2.GraphDef) -> list[str]:
    """Names of the nodes of a graph and its functions that change variables."""
    bodies = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    return [
        node.name for body in bodies for node in body if node.op.startswith("Assign") and node.op.endswith("VariableOp")
    ]


def engine_ops(graph_def: graph_pb2.GraphDef) -> list[EngineOp]:
    """The EngineOps of a graph, one for each name."""
    functions = library(graph_def)
    engines: dict[str, EngineOp] = {}
    for node in engine_nodes(graph_def):
        engines.setdefault(engine_name(node.name), _engine_op(node, functions))
    return list(engines.values())


def library(graph_def: graph_pb2.GraphDef) -> dict[str, function_pb2.FunctionDef]:
    """{name: FunctionDef} of a graph's functions."""
    return {function.signature.name: function for function in graph_def.library.function}


@dataclasses.dataclass(frozen=True)
class Segment:
    """An engine op with its native segment. function: FunctionDef."""

    engine: EngineOp
    function: Any

    @property
    def shapes(self) -> list[Shape]:
        """The engine op's declared input shapes, as `shape_of` gives them."""
        return [tensor.shape for tensor in self.engine.inputs]


def native_segments(graph_def: graph_pb2.GraphDef) -> dict[str, Segment]:
    """{engine name: Segment} of a graph's engine ops, left out where a segment was removed."""
    functions = library(graph_def)
    return {
        engine.name: Segment(engine, functions[engine.native_segment])
        for engine in engine_ops(graph_def)
        if engine.native_segment
    }


def _engine_op(node: node_def_pb2.NodeDef, functions: Mapping[str, function_pb2.FunctionDef]) -> EngineOp:
    segment = node.attr["segment_func"].func.name if "segment_func" in node.attr else ""
    ops = collections.Counter(inner.op for inner in functions[segment].node_def) if segment in functions else {}
    return EngineOp(
        name=engine_name(node.name),
        precision=_attr(node, "precision_mode"),
        inputs=_tensors(node, "InT", "input_shapes"),
        outputs=_tensors(node, "OutT", "output_shapes"),
        ops=dict(sorted(ops.items())),
        native_segment=segment if segment in functions else "",
        implicit_batch=_attr(node, "_use_implicit_batch", True),
        profile_strategy=_attr(node, "profile_strategy"),
        workspace_size_bytes=_attr(node, "workspace_size_bytes"),
        maximum_cached_engines=_attr(node, "max_cached_engines_count"),
        allow_build_at_runtime=_attr(node, "_allow_build_at_runtime", True),
        use_calibration=_attr(node, "use_calibration"),
        calibrated=bool(_attr(node, "calibration_data")),
        explicit_precision=_attr(node, "use_explicit_precision"),
        table_tensorrt=table_tensorrt((_attr(node, "calibration_data") or "").partition("\n")[0]),
    )


def attribute(node: node_def_pb2.NodeDef, name: str) -> attr_value_pb2.AttrValue:
    """An attribute, an empty one where the node has none. To read `node.attr[name]` adds it, and TensorFlow refuses one without a value."""
    return node.attr[name] if name in node.attr else attr_value_pb2.AttrValue()


def _attr(node: node_def_pb2.NodeDef, name: str, default: bool | None = None) -> Any:
    kind = node.attr[name].WhichOneof("value") if name in node.attr else None
    if kind is None:
        return _DEFAULTS.get(name, default)
    raw = getattr(node.attr[name], kind)
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw


def _tensors(node: node_def_pb2.NodeDef, types: str, shapes: str) -> tuple[Tensor, ...]:
    dtypes = [dtype_name(number) for number in node.attr[types].list.type]
    protos = list(node.attr[shapes].list.shape) if shapes in node.attr else []
    known = [shape_of(proto) for proto in protos] if len(protos) == len(dtypes) else [None] * len(dtypes)
    return tuple(map(Tensor, dtypes, known))


def dtype_name(number: int) -> str:
    """NumPy's name of a DataType number ("string" and "resource" included)."""
    if number not in types_pb2.DataType.values():
        return tensor_kinds.UNKNOWN
    name = types_pb2.DataType.Name(number).removeprefix("DT_").lower()
    result: str = {"float": "float32", "double": "float64", "half": "float16"}.get(name, name)
    return result


def shape_of(proto: tensor_shape_pb2.TensorShapeProto) -> Shape:
    """A TensorShapeProto as a tuple with None for unknown dimensions; None for an unknown rank."""
    return None if proto.unknown_rank else tuple(None if dim.size < 0 else dim.size for dim in proto.dim)


def specs(tensors: Mapping[str, meta_graph_pb2.TensorInfo]) -> tuple[InputSpec, ...]:
    """The InputSpecs of a SignatureDef's inputs or outputs ({name: TensorInfo}), by name."""
    return tuple(InputSpec(name, _kind(info), shape_of(info.tensor_shape)) for name, info in sorted(tensors.items()))


def _kind(info: meta_graph_pb2.TensorInfo) -> str:
    """The dtype of a tensor; for one that is not dense its kind, as in tensor_kinds."""
    encoding = info.WhichOneof("encoding")
    if encoding == "composite_tensor":
        return tensor_kinds.of_class(info.composite_tensor.type_spec.type_spec_class_name)
    return tensor_kinds.SPARSE if encoding == "coo_sparse" else dtype_name(info.dtype)


def compute_counts(nodes: Iterable[node_def_pb2.NodeDef]) -> dict[str, int]:
    """{op: count} of the nodes that compute something, engine ops left out."""
    counts = collections.Counter(node.op for node in nodes)
    return {op: count for op, count in sorted(counts.items()) if op not in PASSIVE_OPS and op != ENGINE_OP}


def rename(graph_def: graph_pb2.GraphDef, node_names: Mapping[str, str], function_names: Mapping[str, str]) -> None:
    """Rename nodes of the main graph and library functions, and every reference to them, in place.

    Args: node_names, function_names: {old: new}.
    """
    for node in graph_def.node:
        node.name = node_names.get(node.name, node.name)
        for index, source in enumerate(node.input):
            node.input[index] = _renamed_input(source, node_names)
    bodies = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    for function in graph_def.library.function:
        function.signature.name = function_names.get(function.signature.name, function.signature.name)
    for body in bodies:
        for node in body:
            node.op = function_names.get(node.op, node.op)
            for value in node.attr.values():
                _rename_functions(value, function_names)


def _renamed_input(source: str, names: Mapping[str, str]) -> str:
    mark = "^" if source.startswith("^") else ""
    name, colon, port = source[len(mark) :].partition(":")
    return mark + names.get(name, name) + colon + port


def _rename_functions(value: attr_value_pb2.AttrValue, names: Mapping[str, str]) -> None:
    kind = value.WhichOneof("value")
    if kind == "func":
        value.func.name = names.get(value.func.name, value.func.name)
        for inner in value.func.attr.values():
            _rename_functions(inner, names)
    elif kind == "list":
        for function in value.list.func:
            function.name = names.get(function.name, function.name)


def set_on_engines(graph_def: graph_pb2.GraphDef, **attributes: str | bool | int) -> None:
    """Set string, bool or int attributes on every engine op, in place."""
    for node in engine_nodes(graph_def):
        set_attributes(node, **attributes)


def set_attributes(node: node_def_pb2.NodeDef, **attributes: str | bool | int) -> None:
    """Set string, bool or int attributes of a NodeDef, in place."""
    for name, value in attributes.items():
        if isinstance(value, bool):
            node.attr[name].b = value
        elif isinstance(value, int):
            node.attr[name].i = value
        else:
            node.attr[name].s = value.encode()


def native(graph_def: graph_pb2.GraphDef, keep: Collection[str] = ()) -> list[str]:
    """Turn each engine op into a call of its native segment, in place, so that the graph runs without TensorRT.

    Args: keep: names of engine ops that stay.
    Returns: names of the engine ops that were replaced. Raises: KeyError(name) for one whose segment was removed.
    """

    def wanted(node: node_def_pb2.NodeDef) -> bool:
        return node.op == ENGINE_OP and engine_name(node.name) not in keep

    functions = library(graph_def)
    loops = any(node.op == "Enter" for node in graph_def.node)
    replaced = [_to_call(node, functions, loops) for node in graph_def.node if wanted(node)]
    for function in graph_def.library.function:
        inner = [node for node in function.node_def if wanted(node)]
        replaced += [_to_call(node, functions, True) for node in inner]
        _repoint({node.name for node in inner}, function)
    return replaced


def _to_call(node: node_def_pb2.NodeDef, functions: Mapping[str, function_pb2.FunctionDef], looped: bool) -> str:
    """looped: a loop may be around it. Then the call must not be inlined: a constant of the function has no input that ties it to the
    loop, and would run outside of it."""
    segment = node.attr["segment_func"].func.name
    if segment not in functions:
        raise KeyError(engine_name(node.name))
    if looped:
        functions[segment].attr["_noinline"].b = True
    inputs, outputs = list(node.attr["InT"].list.type), list(node.attr["OutT"].list.type)
    node.op, node.device = "PartitionedCall", ""
    node.attr.clear()
    node.attr["f"].func.name = segment
    node.attr["Tin"].list.type.extend(inputs)
    node.attr["Tout"].list.type.extend(outputs)
    return engine_name(node.name)


def _repoint(names: AbstractSet[str], function: function_pb2.FunctionDef) -> None:
    """Inside functions a reference names the output argument: TRTEngineOp's is out_tensor, PartitionedCall's is output."""
    if not names:
        return

    def mended(source: str) -> str:
        name, _, rest = source.partition(":")
        return f"{name}:output:{rest.split(':')[1]}" if name in names and rest.startswith("out_tensor:") else source

    for node in function.node_def:
        for index, source in enumerate(node.input):
            node.input[index] = mended(source)
    for key, source in list(function.ret.items()):
        function.ret[key] = mended(source)
