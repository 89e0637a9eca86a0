"""A signature of a loaded SavedModel through tf2onnx."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import tensorflow as tf
import tf2onnx
from tf2onnx import graph as tf2onnx_graph
from tf2onnx import optimizer, tf_loader, tf_utils, tfonnx
from tf2onnx import utils as tf2onnx_utils
from tf2onnx.graph import ExternalTensorStorage, Graph, Node
from tf2onnx.optimizer import transpose_optimizer

from tftrt_tools.base import errors, tf_private
from tftrt_tools.models.savedmodel import preparation
from tftrt_tools.models.savedmodel.job import compiled, conditionals, defaulted, dropouts, loading, unnamed
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tensorrt.exporting.job import fourier
from tftrt_tools.tensorrt.exporting.job.rewrites.converting import BEFORE, CONVERTING
from tftrt_tools.tensorrt.exporting.job.rewrites.replaced import BOOL, Replaced

if TYPE_CHECKING:
    import onnx
    from tensorflow.core.framework import graph_pb2

# {table: (its keys, its values)}, as tf2onnx has them.
Tables = dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]
# Calls of functions within names of nodes.
_CALL = re.compile(r"(StatefulPartitionedCall|PartitionedCall)(_\d+)?$")
# What tf2onnx logs of an optimization that raised.
_FAILED = "Failed to apply "
EXPORTER = f"tf2onnx {tf2onnx.__version__}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Converted:
    """What tf2onnx made."""

    model: onnx.ModelProto
    # {tensor of the source's frozen graph: input or output of the file}.
    renamed: Mapping[str, str]
    # The graph with constants in place of variables that tf2onnx read; None if the weights were taken out of it.
    frozen: graph_pb2.GraphDef | None
    # {location in the model's tensors: bytes}, of weights that are not in it.
    weights: Mapping[str, bytes]
    # What was mended, a line each.
    notes: tuple[str, ...]
    # {rewrite that was asked for: how many nodes it wrote}.
    rewritten: Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What a signature becomes."""

    opset: int
    # Keep the weights out of the ModelProto.
    outside: bool = False
    # {input: the value that it has for good}.
    frozen: Mapping[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)
    # The outputs that are kept, () for all.
    outputs: tuple[str, ...] = ()
    # {input of an unknown rank: the rank that it gets}.
    ranks: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # Rewrites of `rewriting` that are made while tf2onnx converts.
    rewrites: tuple[str, ...] = ()


def convert(root: object, function: tf.types.experimental.ConcreteFunction, asked: Asked) -> Converted:
    """Convert a signature. Args: root, function: of a loaded model, and its signature. Raises: TftrtError."""
    outside = asked.outside
    inputs = dict(zip((tensor.name for tensor in function.inputs), tf_private.argument_names(function), strict=False))
    outputs = [
        (name, tensor.name)
        for name, tensor in zip(sorted(function.structured_outputs), function.outputs, strict=True)
        if not asked.outputs or name in asked.outputs
    ]
    tf_private.clear_collections(function)
    mends = Mends(asked.rewrites)
    # It numbers new nodes through the process. Names, which tables of ranges hold too, are the model's, whatever was converted before.
    tf2onnx_utils.INTERNAL_NAME = 1
    try:
        with tf.device("/cpu:0"):
            frozen, tables = _graph(root, function, inputs, [tensor for _, tensor in outputs], asked, mends.notes)
            _rank(frozen, {tensor: asked.ranks[name] for tensor, name in inputs.items() if name in asked.ranks})
            fetched = _own_tensors(frozen, outputs, inputs)
            mends.before(frozen, [*inputs, *fetched.values()])
            kept = None if outside else frozen
            renamed = {**inputs, **{tensor: name for name, tensor in fetched.items()}}
            model, weights = _through(
                frozen, list(inputs), list(fetched.values()), renamed, tables, asked.opset, mends, outside
            )
    except errors.TftrtError:
        raise
    except Exception as error:  # tf2onnx raises whatever its handlers do
        said = loading.first_line(error)
        mend = (
            "compute in float32 (tf.cast(x, tf.float32)), which is all that it knows"
            if "bfloat16" in said
            else "leave it out with --signature_keys, or export a model without that part"
        )
        raise errors.TftrtError(f"{EXPORTER} cannot export {_where(error)}: {said}", mend) from error
    return Converted(
        model=model, renamed=renamed, frozen=kept, weights=weights, notes=tuple(mends.notes), rewritten=mends.rewritten
    )


def _rank(frozen: graph_pb2.GraphDef, found: Mapping[str, int]) -> None:
    """Let placeholders have a rank. Args: found: {tensor: its rank}."""
    for node in frozen.node:
        if f"{node.name}:0" in found:
            node.attr["shape"].shape.CopyFrom(tf.TensorShape([None] * found[f"{node.name}:0"]).as_proto())


def _where(error: BaseException) -> str:
    """The node that tf2onnx was at, with the layer that it is of; "it" where that is not known."""
    trace, inside = error.__traceback__, False
    while trace is not None:
        frame = trace.tb_frame
        # The node is an argument of what converts it. In the function before, which goes on to others, the name is another one by now.
        node = frame.f_locals.get("node") if inside else None
        inside = inside or frame.f_code.co_name == tfonnx.tensorflow_onnx_mapping.__name__
        if isinstance(node, tf2onnx_graph.Node):
            parts = [one for one in str(node.name).split("/") if not _CALL.match(one)]
            layer = f", which is of {'/'.join(parts[:-1])}" if parts[:-1] else ""
            return f"its {node.type} {node.name}{layer}"
        trace = trace.tb_next
    return "it"


def _graph(
    root: object,
    function: tf.types.experimental.ConcreteFunction,
    inputs: Mapping[str, str],
    outputs: list[str],
    asked: Asked,
    notes: list[str],
) -> tuple[graph_pb2.GraphDef, Tables]:
    """(the graph with constants in place of variables, tables as tf2onnx has them). Args: inputs: {tensor: input}; notes: gets what to
    know, a line each."""
    # A call that XLA compiles, such as Keras' grouped convolution, stays a call otherwise, and ONNX has none.
    whole = function.graph.as_graph_def()
    calls = compiled.calls(whole)
    opened = compiled.opened(whole, calls) if calls else None
    if not asked.frozen and not unnamed.specs(whole, inputs):
        with tf_private.graph_in_place(function.graph, opened):
            frozen, tables = tf_loader.from_trackable(root, function, list(inputs), outputs, asked.outside)
        return frozen, tables
    graph, _, _, captures = tf_private.freeze(function, opened)
    if captures and asked.frozen:
        raise errors.TftrtError(
            "--freeze cannot be combined with the lookup tables that it reads", "leave --freeze out"
        )
    if captures:
        opened = opened or whole
        notes += [preparation.constant(*one) for one in defaulted.fold(opened, inputs)]
        notes += _dropouts(opened)
        with tf_private.graph_in_place(function.graph, opened):
            result: tuple[graph_pb2.GraphDef, Tables] = tf_loader.from_trackable(
                root, function, list(inputs), outputs, asked.outside
            )
            return result
    placeholders = {name: tensor.removesuffix(":0") for tensor, name in inputs.items()}
    others = {name: value for name, value in asked.frozen.items() if name not in placeholders}
    notes += [preparation.constant(*one) for one in defaulted.fold(graph, inputs, others)]
    conditionals.freeze(
        graph, {placeholders[name]: value for name, value in asked.frozen.items() if name in placeholders}
    )
    notes += _dropouts(graph)
    with tf.Graph().as_default():
        return tf_loader.tf_optimize(list(inputs), outputs, graph), {}


def _dropouts(graph: graph_pb2.GraphDef) -> list[str]:
    """Take out those that drop nothing, in place. Returns: a sentence on them, if there are any."""
    names = dropouts.fold(graph)
    return [preparation.dropouts(names)] if names else []


def deciding(frozen: graph_pb2.GraphDef, tensors: Mapping[str, str], specs: Sequence[InputSpec]) -> list[str]:
    """Inputs that are a single bool, and that conditionals alone read. Args: frozen: the graph; tensors: {its tensor: input}."""
    switches = {spec.name for spec in specs if spec.dtype == "bool" and spec.shape == ()}
    return [
        name
        for tensor, name in tensors.items()
        if name in switches and conditionals.deciding(frozen, tensor.removesuffix(":0"))
    ]


def _own_tensors(
    frozen: graph_pb2.GraphDef, outputs: list[tuple[str, str]], inputs: Mapping[str, str]
) -> dict[str, str]:
    """{output: its tensor}; an output that is an input, or another output, too gets a tensor of its own, because it has its own name."""
    found: dict[str, str] = {}
    for number, (name, tensor) in enumerate(outputs):
        if tensor in found.values() or tensor in inputs:
            node = frozen.node.add(name=f"tftrt_output_{number}", op="Identity", input=[tensor])
            node.attr["T"].type = tf.dtypes.as_dtype(_dtype(frozen, tensor)).as_datatype_enum
            tensor = f"{node.name}:0"
        found[name] = tensor
    return found


def _dtype(frozen: graph_pb2.GraphDef, tensor: str) -> tf.dtypes.DType:
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen, name="")
    return graph.get_tensor_by_name(tensor).dtype


def _through(
    frozen: graph_pb2.GraphDef,
    inputs: list[str],
    outputs: list[str],
    renamed: Mapping[str, str],
    tables: Tables,
    opset: int,
    mends: Mends,
    outside: bool,
) -> tuple[onnx.ModelProto, dict[str, bytes]]:
    storage = ExternalTensorStorage() if outside else None
    values = tf_utils.compress_graph_def(frozen) if outside else None
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen, name="")
        with _constants_written_once(), _nodes_in_order(), _scalars_added():
            made = tfonnx.process_tf_graph(
                graph,
                opset=opset,
                input_names=inputs,
                output_names=outputs,
                tensors_to_rename=dict(renamed),
                initialized_tables=tables,
                const_node_values=values,
                custom_op_handlers=mends.handlers(),
            )
            with _failures_told(mends.notes):
                made = optimizer.optimize_graph(made, catch_errors=not outside)
        model = made.make_model("", external_tensor_storage=storage)
    return model, dict(storage.name_to_tensor_data) if storage else {}


@contextlib.contextmanager
def _constants_written_once() -> Iterator[None]:
    """While it lasts, tf2onnx does not bring the messages of its constants up to date.

    It does so after each of two dozen optimizations, and reads them in `make_model` alone. protobuf gives the memory of what it replaces
    back with the whole message: 600 MB of weights took 18 GB.
    """
    update = tf2onnx_graph.Node.update_proto

    def changed(node: Node, *arguments: object) -> None:
        if not node.is_const():
            update(node, *arguments)

    tf2onnx_graph.Node.update_proto = changed
    try:
        yield
    finally:
        tf2onnx_graph.Node.update_proto = update


@contextlib.contextmanager
def _nodes_in_order() -> Iterator[None]:
    """While it lasts, sets of tf2onnx's nodes are in the same order each time: it goes through such sets, and a node's hash is its address,
    so that names of constants and nodes differed from run to run. Sets of texts are in order where PYTHONHASHSEED is set."""
    count, kept = itertools.count(), tf2onnx_graph.Node.__hash__

    def number(node: Node) -> int:
        found: int | None = node.__dict__.get("_number")
        if found is None:
            found = node.__dict__["_number"] = next(count)
        return found

    tf2onnx_graph.Node.__hash__ = number
    try:
        yield
    finally:
        tf2onnx_graph.Node.__hash__ = kept


@contextlib.contextmanager
def _failures_told(notes: list[str]) -> Iterator[None]:
    """While it lasts, an optimization of tf2onnx that fails is a note: tf2onnx logs it, and leaves the graph as slow as it was."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said = record.getMessage()
            if said.startswith(_FAILED) and record.exc_info:
                name = said.removeprefix(_FAILED)
                note = f"tf2onnx's optimization {name} failed ({record.exc_info[1]}): the file may be slower for it"
                if note not in notes:
                    notes.append(note)

    log, listener = logging.getLogger(optimizer.__name__), Listener(logging.WARNING)
    log.addHandler(listener)
    try:
        yield
    finally:
        log.removeHandler(listener)


@contextlib.contextmanager
def _scalars_added() -> Iterator[None]:
    """While it lasts, tf2onnx moves transposes over the sum of a convolution and a scalar.

    Its optimizer of transposes ends there (`max()` of the scalar's sizes), and then all transposes of a graph stay: 105 in a MobileNetV3,
    whose hard swish adds 3.
    """
    handler = transpose_optimizer.TransposeOptimizer._add_handler

    def handled(self: Any, transpose: Node, node: Node) -> bool:
        added = node.inputs[1]
        if added.is_const() and not added.get_tensor_value(as_list=False).shape:
            return bool(self._handle_node_having_branches(transpose, node))
        return bool(handler(self, transpose, node))

    transpose_optimizer.TransposeOptimizer._add_handler = handled
    try:
        yield
    finally:
        transpose_optimizer.TransposeOptimizer._add_handler = handler


class Mends:
    """Ops that tf2onnx 1.17.0 does not know, and that ONNX can say otherwise; and rewrites that are made in its place. notes: of those ops
    that occurred; rewritten: {rewrite: how many nodes}."""

    def __init__(self, rewrites: Sequence[str] = ()) -> None:
        self.notes: list[str] = []
        self.rewritten = dict.fromkeys((one for one in rewrites if one in CONVERTING or one in BEFORE), 0)

    def before(self, frozen: graph_pb2.GraphDef, tensors: Sequence[str]) -> None:
        """Make the rewrites of the frozen graph, in place. Args: tensors: of the ends, which stay as they are."""
        ends = frozenset(tensor.split(":")[0] for tensor in tensors)
        for name in [one for one in self.rewritten if one in BEFORE]:
            self.rewritten[name] = BEFORE[name](frozen, ends)

    def handlers(self) -> dict[str, tuple[Callable[..., None], list[object]]]:
        """As tf2onnx takes them."""
        handlers: dict[str, Callable[..., None]] = {
            "Erfc": self._erfc,
            "Log1p": self._log1p,
            "MulNoNan": self._mul_no_nan,
            "RFFT": self._rfft,
            "ComplexAbs": self._magnitude,
            "Real": self._part,
            "Imag": self._part,
        }
        handlers.update(
            (op, functools.partial(self._rewrite, name, write))
            for name, (op, write) in CONVERTING.items()
            if name in self.rewritten
        )
        return {op: (handler, []) for op, handler in handlers.items()}

    def _rewrite(
        self, rewrite: str, write: Callable[[Graph, Node], bool], graph: Graph, node: Node, name: str, _: object
    ) -> None:
        self.rewritten[rewrite] += write(graph, node)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _erfc(self, graph: Graph, node: Node, name: str, _: object) -> None:
        self._note("Erfc became 1 - Erf: of tails beyond 4 few digits are left")
        one = Replaced(graph, node)
        one.give("Sub", [one.number(1), one.make("Erf", [node.input[0]])])

    def _log1p(self, graph: Graph, node: Node, name: str, _: object) -> None:
        self._note("Log1p became Log(1 + x): of x near 0 few digits are left")
        one = Replaced(graph, node)
        one.give("Log", [one.make("Add", [node.input[0], one.number(1)])])

    def _rfft(self, graph: Graph, node: Node, name: str, _: object) -> None:
        self._note("RFFT became two products with cosines and sines")
        fourier.rfft(graph, node)

    def _magnitude(self, graph: Graph, node: Node, name: str, _: object) -> None:
        fourier.magnitude(graph, node)

    def _part(self, graph: Graph, node: Node, name: str, _: object) -> None:
        fourier.part(graph, node, ("Real", "Imag").index(node.type))

    def _mul_no_nan(self, graph: Graph, node: Node, name: str, _: object) -> None:
        self._note("MulNoNan became Where(y = 0, 0, x * y)")
        one = Replaced(graph, node)
        zero, (x, y) = one.number(0), node.input
        one.give(
            "Where", [one.make("Equal", [y, zero], shape=graph.get_shape(y), dtype=BOOL), zero, one.make("Mul", [x, y])]
        )
