"""The distribution of every wanted tensor of a converted model over calibration data: no GPU, no TensorRT, one pass."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel.job import loading
from tftrt_tools.tftrt.calibration.job.counted import Counted
from tftrt_tools.tftrt.calibration.job.frozen import Frozen
from tftrt_tools.tftrt.calibration.job.histogram import Histogram

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.tftrt.calibration.job.kept_back import Batch

# Ops whose output holds exactly the values of their first input.
_ALIASES = frozenset({"Identity", "Snapshot", "StopGradient", "Reshape", "Squeeze", "ExpandDims", "Transpose"})
_FLOATS = (tf.float32, tf.float16)


def collect(
    frozen: Frozen, graph_def: graph_pb2.GraphDef, wanted: Sequence[str], batches: Iterable[Batch]
) -> dict[str, Histogram]:
    """Run the signature over calibration data and count |x| of each wanted tensor.

    Args: frozen, graph_def, wanted: as of Collector. batches: iterable of {input: np.ndarray}.
    Returns: {tensor: Histogram}. Raises: as Collector.add.
    """
    collector = Collector(frozen, graph_def, wanted)
    total = operator.length_hint(batches) or None
    for number, batch in enumerate(batches, 1):
        collector.add(batch, number, total)
    return collector.histograms


class Collector(Counted):
    """Counts |x| of each wanted tensor of a signature.

    A tensor is counted inside the run, as soon as it is computed, and not kept: memory does not grow with the number of tensors or
    batches. In a loop each iteration counts; tensors in a branch that no batch takes stay empty.

    histograms: {tensor: Histogram}; tensors with the same values (before and after a Reshape, say) share one.
    """

    def __init__(self, frozen: Frozen, graph_def: graph_pb2.GraphDef, wanted: Sequence[str]) -> None:
        """Args: frozen: graph_pass.Frozen of the signature. graph_def: its converted graph, segments inlined (inline.inline_segments).
        wanted: names of tensors of `graph_def`, "node:port"; those that are neither float32 nor float16 are left out."""
        super().__init__()
        self._inputs = frozen.input_names
        self._function = _counting(frozen, graph_def, list(dict.fromkeys(wanted)), self.histograms)

    def add(self, batch: Batch, number: int, total: int | None = None) -> None:
        """Run one batch and count its values, as Counted.add."""
        progress.say(f"collecting ranges, batch {number}", number - 1, total)
        try:
            self._function(*[tf.constant(batch[name]) for name in self._inputs])
        except tf.errors.OpError as error:
            raise errors.TftrtError(
                f"the model fails on calibration batch {number}: {loading.first_line(error)}", "check the data"
            ) from None
        self.check_finite(number)


def _counting(
    frozen: Frozen, graph_def: graph_pb2.GraphDef, wanted: Sequence[str], histograms: dict[str, Histogram]
) -> Callable[..., Sequence[tf.Tensor]]:
    """A function of the signature's inputs that counts and returns nothing. Fills `histograms` with the wanted float tensors."""
    graph_def = _in_order(graph_def)

    def run(*inputs: tf.Tensor) -> list[Any]:
        tensors = tf.graph_util.import_graph_def(
            graph_def, input_map=frozen.input_map(inputs), return_elements=wanted, name="model"
        )
        counted: dict[Any, Histogram] = {}
        for name, tensor in zip(wanted, tensors, strict=True):
            if tensor.dtype in _FLOATS:
                source = _source(tensor)
                if source.ref() not in counted:
                    counted[source.ref()] = Histogram()
                    tf.numpy_function(_adder(counted[source.ref()]), [source], [])
                histograms[name] = counted[source.ref()]
        # It returns nothing: with outputs TensorFlow would prune everything that they do not need, the counting too.
        return []

    counting: Callable[..., Sequence[tf.Tensor]] = tf.compat.v1.wrap_function(run, frozen.input_specs())
    return counting


def _in_order(graph_def: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """A copy whose loops run one iteration after the other: the first value decides the bins, and scales must not vary between runs."""
    copy = type(graph_def)()
    copy.CopyFrom(graph_def)
    for body in (copy.node, *(function.node_def for function in copy.library.function)):
        for node in body:
            if "parallel_iterations" in node.attr:
                node.attr["parallel_iterations"].i = 1
    return copy


def _source(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor whose values `tensor` only passes on."""
    while tensor.op.type in _ALIASES:
        tensor = tensor.op.inputs[0]
    return tensor


def _adder(histogram: Histogram) -> Callable[[npt.NDArray[Any]], None]:
    lock = threading.Lock()  # calls from several places may run at the same time

    def add(values: npt.NDArray[Any]) -> None:
        with lock:
            histogram.add(values)

    return add
