"""Quantization-aware models: their quantization nodes, and what TF-TRT does with each. TF-TRT itself reports little of that.

Its behaviour was seen by running the pass of TF 2.14.1; what happens inside an engine is from its source (convert/ops/quantization_ops.cc):

- One QuantizeAndDequantizeV2 switches the whole graph to explicit mode: every engine is INT8 without calibration, whatever precision
  was asked for. In this mode convolutions need weights behind such a node; plain constants keep them out. In implicit batch mode the
  nodes on weights keep them out too. Tensors of less than 4 dimensions pass unquantized.
- Otherwise QuantizeAndDequantizeV3, FakeQuantWithMinMaxVars and …Args are taken if INT8 is asked for, as the range of the tensor.
  Convolutions whose weights pass through one are not. A node on weights that an engine takes all the same finds no tensor to set a
  range on when the engine is built (read in the source: it dereferences a null pointer).
- QuantizeAndDequantizeV4, FakeQuantWithMinMaxVarsPerChannel and the first QuantizeAndDequantize have no converter.
- INT8 without calibration and without a node that TF-TRT knows becomes FP16.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.models.savedmodel.job import graph
from tftrt_tools.tftrt.conversion import pass_log
from tftrt_tools.tftrt.conversion.quantization import (
    DYNAMIC_RANGE,
    EXPLICIT_INT8,
    NO_EFFECT,
    REMOVED,
    STAYS_NATIVE,
    Problem,
    Quantization,
    QuantizationNode,
)

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2

    from tftrt_tools.base.choices import NodeFate, Precision
    from tftrt_tools.models.savedmodel.engine_op import EngineOp
    from tftrt_tools.tftrt.conversion.pass_log import LeftOut

EXPLICIT_OPS = frozenset({"QuantizeAndDequantizeV2"})
RANGE_OPS = frozenset({"QuantizeAndDequantizeV3", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxArgs"})
UNSUPPORTED_OPS = frozenset({"QuantizeAndDequantize", "QuantizeAndDequantizeV4", "FakeQuantWithMinMaxVarsPerChannel"})
OPS = EXPLICIT_OPS | RANGE_OPS | UNSUPPORTED_OPS

# {op: input that holds the weights}.
_WEIGHTS = {
    "Conv2D": 1,
    "DepthwiseConv2dNative": 1,
    "Conv2DBackpropInput": 1,
    "Conv3D": 1,
    "Conv3DBackpropInputV2": 1,
    "MatMul": 1,
    "BatchMatMul": 1,
    "BatchMatMulV2": 1,
}
_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2"})
_EXPLICIT_RANK = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Detected:
    """A quantization node of a graph."""

    name: str
    op: str
    # Whether it quantizes constants.
    weights: bool
    # Its range, or one range a channel; () where they are computed.
    low: tuple[float, ...]
    high: tuple[float, ...]


def detect(graph_def: graph_pb2.GraphDef) -> tuple[Detected, ...]:
    """The quantization nodes of a frozen signature. Args: graph_def: before the pass. Returns: Detected, in graph order."""
    flow = _Flow(graph_def)
    return tuple(_detected(node, flow) for node in graph_def.node if node.op in OPS)


def pass_parameters(graph_def: graph_pb2.GraphDef, precision: Precision) -> dict[str, Any]:
    """Parameters with which the pass takes the quantization nodes.

    Args: precision: the requested one. Returns: {"precision_mode", "use_calibration"} for TrtGraphConverterV2.
    """
    aware = precision == "INT8" and any(node.op in OPS for node in graph_def.node)
    # FP32 in all other cases: TF-TRT's FP16 mode rewrites casts all over the graph. See graph_pass.
    return {"precision_mode": "INT8" if aware else "FP32", "use_calibration": False}


def statements(
    before: graph_pb2.GraphDef,
    after: graph_pb2.GraphDef,
    requested: Precision | Mapping[str, Precision],
    *,
    dynamic: bool,
    left_out: Iterable[LeftOut] = (),
) -> Quantization:
    """What happens to each quantization node, and where TF-TRT departs from the request.

    Args:
      before: GraphDef of the frozen signature.
      after: GraphDef that the pass made of it; precision_mode of the engines as they will be saved.
      requested: the requested precision, or {engine name: precision} if engines differ.
      dynamic: whether the pass ran with dynamic shapes.
      left_out: pass_log.LeftOut of the pass; those that the user, the segment's size or
        TensorRT kept out are no problem of quantization.

    Returns: Quantization.
    """
    engines = _engines(after)
    precisions = set(requested.values()) if isinstance(requested, dict) else {requested}
    view = _View(
        flow=_Flow(before),
        inside={name: engine for engine in engines for name in engine.nodes},
        native={node.name for node in after.node},
        explicit=any(node.op in EXPLICIT_OPS for node in before.node),
        dynamic=dynamic,
        int8="INT8" in precisions,
    )
    ranks = _ranks(before) if view.explicit else {}
    detected = detect(before)
    nodes = tuple(_statement(node, view, ranks.get(node.name)) for node in detected)
    taken = {node.name for node in nodes if node.kind in (EXPLICIT_INT8, DYNAMIC_RANGE)}
    kept = {node.node for node in left_out if node.reason.startswith(("kept native", "its segment", pass_log.REFUSED))}
    lost = tuple(filter(None, (_lost(node, view) for node in before.node if node.name not in kept)))
    altered = tuple(
        filter(None, (_altered(node, view.flow.nodes[node.name]) for node in detected if node.name in taken))
    )
    unbuildable = tuple(filter(None, (_null_range(node) for node in nodes))) + tuple(
        filter(None, map(_mislabelled, engines))
    )
    downgraded, upgraded = _precisions(engines, taken if nodes else None, requested)
    downgraded += tuple(filter(None, (_unquantized(node, view, taken) for node in before.node)))
    return Quantization(
        nodes=nodes,
        explicit=view.explicit,
        unbuildable=unbuildable,
        lost=lost,
        altered=altered,
        downgraded=downgraded,
        upgraded=upgraded,
    )


@dataclasses.dataclass(frozen=True)
class _Engine:
    """op: graph.EngineOp; nodes: {name: op} of its segment."""

    op: EngineOp
    nodes: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _View:
    """The facts from which a statement is made."""

    flow: _Flow
    # {name of a node: the engine that holds it}.
    inside: dict[str, _Engine]
    # Names of the nodes that stay in the main graph.
    native: set[str]
    # Whether TF-TRT used its explicit mode.
    explicit: bool
    # Whether the pass ran with dynamic shapes.
    dynamic: bool
    # Whether INT8 was asked for.
    int8: bool


class _Flow:
    """The data flow of a graph: what feeds what, and which nodes are computed from constants alone."""

    def __init__(self, graph_def: graph_pb2.GraphDef) -> None:
        self.nodes = {node.name: node for node in graph_def.node}
        self.sources = {
            node.name: [_source(text) for text in node.input if not text.startswith("^")] for node in graph_def.node
        }
        self.constants = self._constants()

    def _constants(self) -> set[str]:
        users: dict[str, list[str]] = collections.defaultdict(list)
        waiting = {}
        for name, sources in self.sources.items():
            waiting[name] = len(sources)
            for source in sources:
                users[source].append(name)
        names: set[str] = set()
        queue = [name for name, node in self.nodes.items() if node.op == "Const"]
        while queue:
            name = queue.pop()
            names.add(name)
            for user in users[name]:
                waiting[user] -= 1
                if not waiting[user]:
                    queue.append(user)
        return names

    def constant_ancestors(self, name: str) -> list[node_def_pb2.NodeDef]:
        """The nodes that a constant is computed from, including itself; () if the node is not a constant."""
        sources: dict[str, node_def_pb2.NodeDef] = {}
        queue = [name] if name in self.constants else []
        while queue:
            name = queue.pop()
            if name not in sources:
                sources[name] = self.nodes[name]
                queue += self.sources[name]
        return list(sources.values())

    def value(self, name: str) -> tuple[float, ...]:
        """A constant's numbers, flat, or () where it is computed."""
        while name in self.nodes and self.nodes[name].op == "Identity":
            name = self.sources[name][0]
        node = self.nodes.get(name)
        return (
            tuple(tf.make_ndarray(node.attr["value"].tensor).ravel().tolist())
            if node is not None and node.op == "Const"
            else ()
        )


def _source(text: str) -> str:
    return text.partition(":")[0]


def _detected(node: node_def_pb2.NodeDef, flow: _Flow) -> Detected:
    sources = flow.sources[node.name]
    if node.op in ("FakeQuantWithMinMaxArgs", "QuantizeAndDequantize"):
        names = ("min", "max") if node.op == "FakeQuantWithMinMaxArgs" else ("input_min", "input_max")
        ranges: list[tuple[float, ...]] = [(float(node.attr[name].f),) for name in names]
    else:
        ranges = [flow.value(name) for name in sources[1:3]]
    return Detected(name=node.name, op=node.op, weights=sources[0] in flow.constants, low=ranges[0], high=ranges[1])


def _ranks(graph_def: graph_pb2.GraphDef) -> dict[str, int | None]:
    """{quantization node: rank of its tensor, None for an unknown one}."""
    with tf.Graph().as_default() as whole:
        tf.graph_util.import_graph_def(graph_def, name="")
    return {
        node.name: whole.get_tensor_by_name(f"{node.name}:0").shape.rank for node in graph_def.node if node.op in OPS
    }


def _engines(graph_def: graph_pb2.GraphDef) -> list[_Engine]:
    functions = graph.library(graph_def)
    nodes = []
    for op in graph.engine_ops(graph_def):
        segment = functions.get(op.native_segment)
        nodes.append(_Engine(op, {node.name: node.op for node in segment.node_def} if segment else {}))
    return nodes


def _statement(one: Detected, view: _View, rank: int | None) -> QuantizationNode:
    kind, text = _kind(one, view, rank)
    return QuantizationNode(name=one.name, op=one.op, weights=one.weights, kind=kind, text=text)


def _kind(node: Detected, view: _View, rank: int | None) -> tuple[NodeFate, str]:
    engine = view.inside.get(node.name)
    if engine is None:
        return _outside(node, view)
    where = f"engine {engine.op.name}"
    if view.explicit:
        if rank is not None and rank < _EXPLICIT_RANK:
            return (
                NO_EFFECT,
                f"{where}: the tensor has {rank} dimensions; TF-TRT quantizes those of {_EXPLICIT_RANK} only",
            )
        return EXPLICIT_INT8, f"{where}: becomes TensorRT's quantization with {_range(node)}"
    largest = max((abs(number) for number in (*node.low[:1], *node.high[:1])), default=0.0)
    uneven = node.low[:1] != tuple(-number for number in node.high[:1])
    remark = f", where the model says {node.low[0]:g} to {node.high[0]:g}" if uneven and node.low and node.high else ""
    return (
        DYNAMIC_RANGE,
        f"{where}: not computed; tells TensorRT that the tensor is within {-largest:g} and {largest:g}{remark}",
    )


def _outside(node: Detected, view: _View) -> tuple[NodeFate, str]:
    if node.name not in view.native:
        return REMOVED, "merged with an equal node, or without effect on the outputs"
    if node.op in UNSUPPORTED_OPS:
        return STAYS_NATIVE, f"TF-TRT has no converter for {node.op}"
    if view.explicit and node.op in RANGE_OPS:
        return STAYS_NATIVE, f"TF-TRT takes no {node.op} in a graph that also has QuantizeAndDequantizeV2"
    if node.op in RANGE_OPS and not view.int8:
        return STAYS_NATIVE, f"TF-TRT takes {node.op} only if INT8 is asked for"
    return STAYS_NATIVE, "no engine took it: what it feeds stays native, or its segment is too small"


def _range(one: Detected) -> str:
    if not one.low or not one.high:
        return "a range that is computed"
    more = f" (the first of {len(one.low)} ranges)" if len(one.low) > 1 else ""
    return f"range {one.low[0]:g} to {one.high[0]:g}{more}"


def _lost(node: node_def_pb2.NodeDef, view: _View) -> Problem | None:
    """The Problem of a convolution or product that stays native because of its weights, or None."""
    if node.op not in _WEIGHTS or node.name not in view.native or node.name in view.inside:
        return None
    weights = view.flow.sources[node.name][_WEIGHTS[node.op]]
    ancestors = view.flow.constant_ancestors(weights)
    quantized = [ancestor for ancestor in ancestors if ancestor.op in OPS]
    if quantized:
        text, mend = _quantized_weights(node, quantized[0], view)
        return Problem(node.name, node.op, text, mend)
    if view.explicit and ancestors and node.op not in _PRODUCTS:
        return Problem(
            node.name,
            node.op,
            "stays in TensorFlow: with QuantizeAndDequantizeV2 in the graph, TF-TRT takes no convolution "
            "whose weights are plain constants",
            "quantize its weights by QuantizeAndDequantizeV2 too",
        )
    return None


def _quantized_weights(node: node_def_pb2.NodeDef, quantizer: node_def_pb2.NodeDef, view: _View) -> tuple[str, str]:
    stays = f"stays in TensorFlow: its weights pass through {quantizer.name} ({quantizer.op}), "
    if view.explicit and not view.dynamic:
        return stays + "which TF-TRT takes only with dynamic shapes", "add --use_dynamic_shape or --shapes"
    if node.op in _PRODUCTS and not view.dynamic:
        return (
            stays + "and in implicit batch mode a product needs constant weights",
            "add --use_dynamic_shape or --shapes",
        )
    if quantizer.op in EXPLICIT_OPS or node.op in _PRODUCTS:
        return stays + "and no engine took it", ""
    return stays + f"and TF-TRT's {node.op} needs constant weights", _EXPORT


_EXPORT = (
    "export it with QuantizeAndDequantizeV2 around activations and weights, or with FakeQuantWithMinMaxVars around activations "
    "only"
)


def _altered(detected: Detected, node: node_def_pb2.NodeDef) -> Problem | None:
    """The Problem of a node that TensorRT computes with other numbers, or None. Explicit mode reads the first range only, and neither
    num_bits nor range_given."""
    texts = []
    if len(set(detected.low)) > 1 or len(set(detected.high)) > 1:
        texts.append(
            f"has {len(detected.high)} ranges, one for each channel; "
            f"TF-TRT uses the first, {detected.low[0]:g} to {detected.high[0]:g}, for all"
        )
    if detected.op != "FakeQuantWithMinMaxArgs" and (not detected.low or not detected.high):
        texts.append("has a range that is computed; TF-TRT needs a constant one")
    if "range_given" in node.attr and not node.attr["range_given"].b:
        texts.append("takes its range from the data; TF-TRT uses the constants that the node ignores")
    if "num_bits" in node.attr and node.attr["num_bits"].i != 8:
        texts.append(f"has {node.attr['num_bits'].i} bits; TensorRT uses 8")
    return (
        Problem(detected.name, detected.op, "; ".join(texts), "export it with one constant range and 8 bits")
        if texts
        else None
    )


def _null_range(node: QuantizationNode) -> Problem | None:
    if node.kind != DYNAMIC_RANGE or not node.weights:
        return None
    return Problem(
        node.name,
        node.op,
        "quantizes constants inside an engine, where TF-TRT looks for a tensor: building the engine is "
        "expected to end the process",
        f"--keep_native_nodes={re.escape(node.name)}",
    )


def _mislabelled(engine: _Engine) -> Problem | None:
    if not engine.op.explicit_precision or engine.op.precision == "INT8":
        return None
    return _engine_problem(
        engine, f"is marked {engine.op.precision} but holds quantization nodes, which TensorRT builds in INT8 only", ""
    )


def _unquantized(node: node_def_pb2.NodeDef, view: _View, taken: AbstractSet[str]) -> Problem | None:
    """The Problem of a convolution in an explicit engine whose quantized weights come from outside, or None."""
    if node.op not in _WEIGHTS or node.op in _PRODUCTS or not view.explicit or node.name not in view.inside:
        return None
    ancestors = view.flow.constant_ancestors(view.flow.sources[node.name][_WEIGHTS[node.op]])
    quantized = [ancestor for ancestor in ancestors if ancestor.op in OPS]
    if not quantized or any(source.name in taken for source in quantized):
        return None
    return Problem(
        node.name,
        node.op,
        f"computes in FP16 in an INT8 engine: {quantized[0].name} ({quantized[0].op}), which quantizes its "
        "weights, stays native",
        _EXPORT,
    )


def _precisions(
    engines: Sequence[_Engine], taken: AbstractSet[str] | None, requested: Precision | Mapping[str, Precision]
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """taken: names of the nodes that take effect, None for a model that has none."""
    downgraded: list[Problem] = []
    upgraded: list[Problem] = []
    for engine in engines:
        precision = requested.get(engine.op.name) if isinstance(requested, dict) else requested
        if precision == "INT8":
            text = _downgrade(engine, taken)
            downgraded += [_engine_problem(engine, text)] if text else []
        elif precision and engine.op.precision == "INT8":
            upgraded.append(
                _engine_problem(
                    engine,
                    f"is INT8 although {precision} was asked for: QuantizeAndDequantizeV2 decides over the precision",
                    "ask for INT8, or export the model without quantization nodes",
                )
            )
    return tuple(downgraded), tuple(upgraded)


def _downgrade(engine: _Engine, taken: AbstractSet[str] | None) -> str | None:
    if engine.op.precision != "INT8":
        return f"is {engine.op.precision} although INT8 was asked for: TF-TRT takes no quantization node of this model"
    calibrated = engine.op.use_calibration or engine.op.calibrated
    if calibrated or taken is None:
        return None
    heavy = sum(op in _WEIGHTS for op in engine.nodes.values())
    if heavy and not taken & set(engine.nodes):
        return f"is marked INT8, but no quantization node takes effect in it: its {heavy} convolutions and products compute in FP16"
    return None


def _engine_problem(engine: _Engine, text: str, mend: str = _EXPORT) -> Problem:
    return Problem(engine.op.name, graph.ENGINE_OP, text, mend)
