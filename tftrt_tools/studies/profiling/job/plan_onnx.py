"""The ONNX file of a plan with the sizes of given calls, from ONNX's shape inference. Nothing is run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorProto, helper, shape_inference

from tftrt_tools.models.kinds.plan.document import ENGINE
from tftrt_tools.studies.profiling.apart import OnnxRequest
from tftrt_tools.studies.profiling.engine_graph import Graph, Node, Tensor
from tftrt_tools.tensorrt.exporting.job import graph_facts

_Sizes = tuple[int | None, ...] | None


def describe(request: OnnxRequest) -> tuple[Graph, ...]:
    """A Graph for each call."""
    model = onnx.load(request.onnx, load_external_data=False)
    return tuple(of(model, shapes) for shapes in request.calls)


def of(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """The Graph of an outermost graph: its inputs are of op "_Arg", what the file holds is of op "Const", and its outputs are of op
    "_Retval". Args: shapes: {input: shape}; an input that it does not name keeps its declared one."""
    inferred = _inferred(model, shapes)
    graph, held = model.graph, {initializer.name for initializer in model.graph.initializer}
    # {tensor: the node that gives it}.
    tensors: dict[str, str] = {}
    nodes: dict[str, Node] = {}

    def add(name: str, op: str, reads: Sequence[str], outputs: Sequence[str], flops: int | None = 0) -> None:
        while name in nodes:
            name += "'"
        nodes[name] = Node(
            name=name,
            op=op,
            inputs=tuple(dict.fromkeys(tensors[read] for read in reads if read in tensors)),
            outputs=tuple(inferred.get(output, Tensor("", None)) for output in outputs),
            flops=flops,
        )
        tensors.update((output, name) for output in outputs)

    for value in graph.input:
        if value.name not in held:
            add(value.name, "_Arg", (), [value.name])
    # A node keeps its name, and a constant of the same name gets another: layers are named after nodes.
    taken = {graph_facts.name_of(node) for node in graph.node}
    for constant in graph.initializer:
        inferred[constant.name] = Tensor(_dtype(constant.data_type), tuple(constant.dims))
        add(f"{constant.name} (constant)" if constant.name in taken else constant.name, "Const", (), [constant.name])
    for node in graph.node:
        outputs = list(filter(None, node.output))
        reads = [*filter(None, node.input), *graph_facts.read_inside(node)]
        add(
            graph_facts.name_of(node),
            "Const" if node.op_type == "Constant" else node.op_type,
            reads,
            outputs,
            _flops(node, inferred),
        )
    for value in graph.output:
        add(f"{value.name} (output)", "_Retval", [value.name], ())
    return Graph(ENGINE, tuple(nodes.values()), tensors)


def _inferred(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """{tensor: its type and sizes}."""
    sized = onnx.ModelProto()
    sized.CopyFrom(model)
    for value in sized.graph.input:
        if value.name in shapes:
            value.CopyFrom(
                helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, list(shapes[value.name]))
            )
    # The file may have names in inner shapes for sizes that are given now.
    del sized.graph.value_info[:]
    for value in sized.graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = shape_inference.infer_shapes(sized, data_prop=True).graph
    return {
        value.name: Tensor(_dtype(value.type.tensor_type.elem_type), _sizes(value.type.tensor_type))
        for value in (*graph.input, *graph.value_info, *graph.output)
    }


def _dtype(kind: int) -> str:
    """NumPy's name."""
    return {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}.get(kind) or str(
        TensorProto.DataType.Name(kind)
    ).lower()


def _sizes(kind: onnx.TypeProto.Tensor) -> _Sizes:
    if not kind.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)


# Operations ------------------------------------------------------------------------------------------------------------------------------


def _flops(node: onnx.NodeProto, tensors: Mapping[str, Tensor]) -> int | None:
    """Two for each multiplication with its addition; 0 for other ops, None where a size is open."""
    if node.op_type not in _SUMMED:
        return 0
    given = [tensors[name].shape if name in tensors else None for name in node.input[:2]]
    result = (
        given[0]
        if node.op_type == "ConvTranspose"
        else tensors[node.output[0]].shape
        if node.output[0] in tensors
        else None
    )
    if result is None or any(shape is None for shape in given):
        return None
    sizes = [*result, *_SUMMED[node.op_type](node, [tuple(shape or ()) for shape in given])]
    numbers = [size for size in sizes if size is not None]
    return 2 * math.prod(numbers) if len(numbers) == len(sizes) else None


def _filter(_: onnx.NodeProto, given: Sequence[tuple[int | None, ...]]) -> Sequence[int | None]:
    """A filter is (output channels, input channels of a group, sizes…); of a transposed convolution the first two change places."""
    return given[1][1:]


def _row(node: onnx.NodeProto, given: Sequence[tuple[int | None, ...]]) -> Sequence[int | None]:
    turned = any(one.name == "transA" and one.i for one in node.attribute)
    return given[0][-2:-1] if turned else given[0][-1:]


def _labels(node: onnx.NodeProto, given: Sequence[tuple[int | None, ...]]) -> Sequence[int | None]:
    """The sizes that an Einsum of two operands sums over; None, which makes the count open, where the labels do not tell them."""
    equation = next(
        (attribute.s.decode().replace(" ", "") for attribute in node.attribute if attribute.name == "equation"), ""
    )
    operands, arrow, result = equation.partition("->")
    if not arrow or "." in equation or len(operands.split(",")) != len(given):
        return [None]
    sizes = {
        label: size
        for labels, shape in zip(operands.split(","), given, strict=True)
        for label, size in zip(labels, shape, strict=False)
    }
    return [size for label, size in sizes.items() if label not in result]


# {op: the sizes whose product is the number of multiplications for an element of the result; of a transposed convolution, of its input}.
_SUMMED = {"Conv": _filter, "ConvTranspose": _filter, "MatMul": _row, "Gemm": _row, "Einsum": _labels}
