"""Finds the inputs that reach each engine op in given calls of the signature: the shapes that its engines are built for."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.engine_cache.key import Fed
from tftrt_tools.models.execution import inputs as random_inputs
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.job import control_flow, graph, inline, loading
from tftrt_tools.models.savedmodel.shapes import Call, InputSpec
from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen

if TYPE_CHECKING:
    import numpy.typing as npt


# The inputs of an engine op in one of its runs: a Fed for each.
Feed = tuple[Fed, ...]
_DECODERS = {"DecodeJpeg", "DecodeAndCropJpeg", "DecodePng", "DecodeImage", "DecodeBmp", "DecodeGif"}
# Height and width of the pictures for a model that decodes strings, one for each drawing.
_PICTURES = ((64, 48), (48, 80), (33, 65))


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What reaches the engine ops of a signature for declared calls.

    feeds: {engine: the different Feeds, in the order of the calls; those of one call, from the iterations of a loop, by size}. () if no
      call reaches the engine op, because its branch is not taken, and for those in by_values; an engine op inside a function is missing.
    by_values: the engines whose shapes depend on what the inputs hold: the number of words in a text, say. No declared shapes cover them.
    """

    feeds: dict[str, tuple[Feed, ...]]
    by_values: frozenset[str] = frozenset()


def of_calls(
    frozen: Frozen, graph_def: graph_pb2.GraphDef, specs: Sequence[InputSpec], calls: Sequence[Call]
) -> Inputs:
    """Find the inputs of every engine op of the main graph.

    Shapes come from TensorFlow's shape inference. If it does not know them, if an input may be a shape tensor (its values count), or if
    a loop or a conditional decides what runs, the graph runs natively on random inputs, and an op beside each engine op reads its inputs.
    It runs on several drawings of them: where the shapes differ, they depend on the values. The feeds are those of the first (seed 0).

    Args: graph_def: the converted graph of `frozen`. specs: of the signature's inputs. calls: [{input: shape}].
    Returns: Inputs.
    Raises: TftrtError for a call that the model refuses.
    """
    inlined, _ = inline.inline_segments(graph_def)
    sources = {
        graph.engine_name(node.name): [_with_port(source) for source in node.input if not source.startswith("^")]
        for node in graph_def.node
        if node.op == graph.ENGINE_OP
    }
    uncertain = control_flow.uncertain(graph_def)
    certain = [
        graph.engine_name(node.name)
        for node in graph_def.node
        if node.op == graph.ENGINE_OP and node.name not in uncertain
    ]
    names = list(dict.fromkeys(name for engine in certain for name in sources[engine]))
    inferred = [_inferred(frozen, inlined, names, call) for call in calls]
    feeds_of: dict[str, dict[Feed, None]] = {}
    for engine in certain:
        feeds = [tuple(value for name in sources[engine] if (value := fed[name]) is not None) for fed in inferred]
        if all(len(feed) == len(sources[engine]) for feed in feeds):
            feeds_of[engine] = dict.fromkeys(feeds)
    by_values: set[str] = set()
    if len(feeds_of) < len(sources):
        observed, by_values = _observed(
            frozen, inlined, {name: own for name, own in sources.items() if name not in feeds_of}, specs, calls
        )
        feeds_of |= observed
    return Inputs(
        {engine: () if engine in by_values else tuple(feeds_of[engine]) for engine in sources}, frozenset(by_values)
    )


def _with_port(source: str) -> str:
    return source if ":" in source else source + ":0"


def _inferred(frozen: Frozen, inlined: graph_pb2.GraphDef, wanted: Sequence[str], call: Call) -> dict[str, Fed | None]:
    """{tensor: Fed, or None where only running the graph tells}."""
    fed = zip(frozen.inputs, frozen.input_specs(), (call[name] for name in frozen.input_names), strict=True)
    with tf.Graph().as_default() as scratch:
        feeds = {name: tf.compat.v1.placeholder(spec.dtype, shape) for name, spec, shape in fed}
        try:
            tf.graph_util.import_graph_def(inlined, input_map=feeds, name="")
        except ValueError as error:
            raise _refused(call, error) from None
        tensors = {name: feeds[name] if name in feeds else scratch.get_tensor_by_name(name) for name in wanted}
    return {name: _fed(tensor) for name, tensor in tensors.items()}


def _refused(call: Call, error: BaseException) -> errors.TftrtError:
    return errors.TftrtError(
        f"the model fails at the declared shapes {shape_grammar.call_text(call)}: {loading.first_line(error)}",
        "check --shapes",
    )


def _fed(tensor: tf.Tensor) -> Fed | None:
    if not tensor.shape.is_fully_defined():
        return None
    shape = tuple(tensor.shape.as_list())
    may_be_shape_tensor = tensor.dtype == tf.int32 and len(shape) <= 1
    return None if may_be_shape_tensor else Fed(shape)


def _observed(
    frozen: Frozen,
    inlined: graph_pb2.GraphDef,
    sources: Mapping[str, list[str]],
    specs: Sequence[InputSpec],
    calls: Sequence[Call],
) -> tuple[dict[str, dict[Feed, None]], set[str]]:
    """The result of native runs: {engine: its different Feeds in order}, and the engines whose shapes differ from drawing to drawing.

    They run on the CPU, where no kernel has to be compiled for a new GPU; else wherever TensorFlow puts them (a CPU has no convolution
    with channels first)."""
    # Words differ in length, but few drawn ones may not.
    drawings = 3 if any(spec.dtype == "string" for spec in specs) else 2
    for device in ("/CPU:0", None):
        feeds_of: dict[str, dict[Feed, None]] = {engine: {} for engine in sources}
        differing: set[str] = set()
        observer = _Observer(frozen, inlined, sources, device)
        try:
            for number, call in enumerate(calls):
                progress.say("looking at what reaches the engine ops", number, len(calls))
                first, *others = (
                    observer.feeds(random_inputs.random(specs, call, seed), seed) for seed in range(drawings)
                )
                for engine, feeds in first.items():
                    # Iterations of a loop overlap, so the order of their records differs from run to run; profiles and cache keys need a
                    # fixed one.
                    feeds_of[engine] |= dict.fromkeys(sorted(feeds, key=_size))
                differing |= {
                    engine for engine, feeds in first.items() for other in others if _differ(feeds, other[engine])
                }
            return feeds_of, differing
        except tf.errors.OpError as error:
            refused = _refused(call, error)
    raise refused


def _differ(one: frozenset[Feed], other: frozenset[Feed]) -> bool:
    """Whether two drawings gave an engine op other shapes. A branch that one of them did not take says nothing, nor do the values of
    integers that may be no shape tensor."""
    shapes, others = ({tuple(fed.shape for fed in feed) for feed in feeds} for feeds in (one, other))
    return bool(shapes and others) and shapes != others


def _size(feed: Feed) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(one.shape, one.values or ()) for one in feed]


class _Observer:
    """Runs the model natively and records what reaches the engine ops."""

    def __init__(
        self, frozen: Frozen, inlined: graph_pb2.GraphDef, sources: Mapping[str, list[str]], device: str | None
    ) -> None:
        self._names, self._graph_def = frozen.input_names, inlined
        self._seen: dict[str, set[Feed]] = {engine: set() for engine in sources}
        self._function = _watching(frozen, inlined, sources, self._seen, device)

    def feeds(self, arrays: Mapping[str, npt.NDArray[Any]], drawing: int) -> dict[str, frozenset[Feed]]:
        """{engine: its Feeds} of one call. Raises: tf.errors.OpError."""
        self._forget()
        run(self._function, [arrays[name] for name in self._names], self._graph_def, self._forget, drawing)
        return {engine: frozenset(feeds) for engine, feeds in self._seen.items()}

    def _forget(self) -> None:
        for feeds in self._seen.values():
            feeds.clear()


def run(
    function: Callable[..., Sequence[tf.Tensor]],
    arrays: Sequence[npt.NDArray[Any]],
    graph_def: graph_pb2.GraphDef,
    forget: Callable[[], None],
    drawing: int = 0,
) -> None:
    """Run it on `arrays`. If the model refuses their values (a float that serves as an index, a string that is no picture), run it again:
    numbers are zeros then, and strings are pictures if the graph decodes any. forget: called in between. Raises: tf.errors.OpError."""
    try:
        function(*map(tf.constant, arrays))
    except tf.errors.InvalidArgumentError:
        forget()
        bodies = [graph_def.node, *(library_function.node_def for library_function in graph_def.library.function)]
        decodes = any(node.op in _DECODERS for body in bodies for node in body)
        function(*(tf.constant(_plain(array, _PICTURES[drawing] if decodes else None)) for array in arrays))


def _plain(array: npt.NDArray[Any], picture: tuple[int, int] | None) -> npt.NDArray[Any]:
    if array.dtype.kind in "fiu":
        return np.zeros_like(array)
    if array.dtype.kind == "O" and picture:
        return np.full(array.shape, tf.io.encode_jpeg(np.zeros((*picture, 3), np.uint8)).numpy(), object)
    return array


def _watching(
    frozen: Frozen,
    inlined: graph_pb2.GraphDef,
    sources: Mapping[str, list[str]],
    seen: Mapping[str, set[Feed]],
    device: str | None,
) -> Callable[..., Sequence[tf.Tensor]]:
    """A function of the signature's inputs that records in `seen` the inputs of each engine op. It runs only the ops that lead there."""

    def run(*inputs: tf.Tensor) -> list[Any]:
        names = list(dict.fromkeys(name for own in sources.values() for name in own))
        with tf.device(device):
            tensors = tf.graph_util.import_graph_def(
                inlined, input_map=frozen.input_map(inputs), return_elements=names, name="model"
            )
        values = dict(zip(names, tensors, strict=True))
        for engine, own in sources.items():
            # The record is made inside the loop or branch, because values computed there cannot be fetched.
            tf.numpy_function(_noting(seen[engine]), [values[name] for name in own], [])
        # It returns nothing: with outputs TensorFlow would prune everything that they do not need, the records too.
        return []

    watching: Callable[..., Sequence[tf.Tensor]] = tf.compat.v1.wrap_function(run, frozen.input_specs())
    return watching


def _noting(feeds: set[Feed]) -> Callable[..., None]:
    lock = threading.Lock()  # iterations of a loop may overlap

    def note(*arrays: npt.NDArray[Any]) -> None:
        with lock:
            feeds.add(tuple(map(Fed.of, arrays)))

    return note
