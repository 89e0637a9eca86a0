"""Finds the inputs that reach each engine op in given calls of the signature: the shapes that its engines are built for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tftrt_tools import errors, progress
from tftrt_tools.conversion.job.graph_pass import Frozen
from tftrt_tools.engine_cache.key import Fed
from tftrt_tools.execution import inputs as random_inputs
from tftrt_tools.savedmodel import shapes as shape_grammar
from tftrt_tools.savedmodel.job import control_flow, graph, inline, loading
from tftrt_tools.savedmodel.shapes import Call, InputSpec

if TYPE_CHECKING:
    import numpy.typing as npt


# The inputs of an engine op in one of its runs: a Fed for each.
Feed = tuple[Fed, ...]


def of_calls(frozen: Frozen, graph_def: graph_pb2.GraphDef, specs: Sequence[InputSpec],
             calls: Sequence[Call]) -> dict[str, tuple[Feed, ...]]:
    """Find the inputs of every engine op of the main graph.

    Shapes come from TensorFlow's shape inference. If it does not know them, if an input may be a shape tensor (its values count), or if
    a loop or a conditional decides what runs, the graph runs natively on random inputs (seed 0), and an op beside each engine op reads
    its inputs.

    Args: graph_def: the converted graph of `frozen`. specs: of the signature's inputs. calls: [{input: shape}].
    Returns: {engine: the different Feeds, in the order of the calls; those of one call, from the iterations of a loop, by size}. () if
      no call reaches the engine op, because its branch is not taken; an engine op inside a function is missing.
    Raises: TftrtError for a call that the model refuses.
    """
    inlined, _ = inline.inline_segments(graph_def)
    sources = {graph.engine_name(node.name): [_with_port(one) for one in node.input if not one.startswith("^")]
               for node in graph_def.node if node.op == graph.ENGINE_OP}
    uncertain = control_flow.uncertain(graph_def)
    certain = [graph.engine_name(node.name) for node in graph_def.node if node.op == graph.ENGINE_OP and node.name not in uncertain]
    wanted = list(dict.fromkeys(name for engine in certain for name in sources[engine]))
    known = [_inferred(frozen, inlined, wanted, call) for call in calls]
    found: dict[str, dict[Feed, None]] = {}
    for engine in certain:
        feeds = [tuple(one for name in sources[engine] if (one := fed[name]) is not None) for fed in known]
        if all(len(feed) == len(sources[engine]) for feed in feeds):
            found[engine] = dict.fromkeys(feeds)
    if len(found) < len(sources):
        found |= _observed(frozen, inlined, {engine: names for engine, names in sources.items() if engine not in found}, specs, calls)
    return {engine: tuple(found[engine]) for engine in sources}


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
    return errors.TftrtError(f"the model fails at the declared shapes {shape_grammar.call_text(call)}: {loading.first_line(error)}",
                             "check --shapes")


def _fed(tensor: Any) -> Fed | None:
    if not tensor.shape.is_fully_defined():
        return None
    shape = tuple(tensor.shape.as_list())
    may_be_shape_tensor = tensor.dtype == tf.int32 and len(shape) <= 1
    return None if may_be_shape_tensor else Fed(shape)


def _observed(frozen: Frozen, inlined: graph_pb2.GraphDef, sources: Mapping[str, list[str]], specs: Sequence[InputSpec],
              calls: Sequence[Call]) -> dict[str, dict[Feed, None]]:
    """{engine: its different Feeds in order}, seen in native runs. They run on the CPU, where no kernel has to be compiled for a new
    GPU; else wherever TensorFlow puts them (a CPU has no convolution with channels first)."""
    for device in ("/CPU:0", None):
        found: dict[str, dict[Feed, None]] = {engine: {} for engine in sources}
        seen: dict[str, set[Feed]] = {engine: set() for engine in sources}
        function = _watching(frozen, inlined, sources, seen, device)
        try:
            for number, call in enumerate(calls):
                progress.say("looking at what reaches the engine ops", number, len(calls))
                arrays = random_inputs.random(specs, call, seed=0)
                run(function, [arrays[name] for name in frozen.input_names])
                for engine, feeds in seen.items():
                    # Iterations of a loop overlap, so the order of their records differs from run to run; profiles and cache keys need a
                    # fixed one.
                    found[engine] |= dict.fromkeys(sorted(feeds, key=_size))
                    feeds.clear()
            return found
        except tf.errors.OpError as error:
            refused = _refused(call, error)
    raise refused


def _size(feed: Feed) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(one.shape, one.values or ()) for one in feed]


def run(function: Any, arrays: Sequence[npt.NDArray[Any]]) -> None:
    """Run it on `arrays`. If the model refuses their values (a float that serves as an index, say), run it on zeros."""
    try:
        function(*map(tf.constant, arrays))
    except tf.errors.InvalidArgumentError:
        function(*(tf.constant(np.zeros_like(array)) if array.dtype.kind in "fiu" else tf.constant(array) for array in arrays))


def _watching(frozen: Frozen, inlined: graph_pb2.GraphDef, sources: Mapping[str, list[str]], seen: Mapping[str, set[Feed]],
              device: str | None) -> Any:
    """A function of the signature's inputs that records in `seen` the inputs of each engine op. It runs only the ops that lead there."""
    def run(*inputs: Any) -> list[Any]:
        names = list(dict.fromkeys(name for own in sources.values() for name in own))
        with tf.device(device):
            tensors = tf.graph_util.import_graph_def(inlined, input_map=frozen.input_map(inputs), return_elements=names, name="model")
        found = dict(zip(names, tensors, strict=True))
        for engine, own in sources.items():
            # The record is made inside the loop or branch, because values computed there cannot be fetched.
            tf.numpy_function(_noting(seen[engine]), [found[name] for name in own], [])
        # It returns nothing: with outputs TensorFlow would prune everything that they do not need, the records too.
        return []

    return tf.compat.v1.wrap_function(run, frozen.input_specs())


def _noting(feeds: set[Feed]) -> Callable[..., None]:
    lock = threading.Lock()  # iterations of a loop may overlap

    def note(*arrays: npt.NDArray[Any]) -> None:
        with lock:
            feeds.add(tuple(map(Fed.of, arrays)))

    return note
