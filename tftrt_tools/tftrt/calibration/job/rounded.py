"""A converted signature whose engines run natively, with rounding that is switched on node by node.

The simulation rounds the values that enter a kernel, and for FP16 also those that leave it. Only a GPU shows how TensorRT adds inside a
kernel, and whether it finds INT8 faster for a node at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.job import loading, rounding, rounding_sites
from tftrt_tools.tftrt.calibration.job.frozen import Frozen

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.models.savedmodel.job.rounding import Rounded


def with_scales(
    graph_def: graph_pb2.GraphDef,
    inner: Mapping[str, dict[str, str]],
    scales: Mapping[str, float],
    left_out: Collection[str] = (),
) -> tuple[tuple[rounding_sites.Site, ...], tuple[str, ...], dict[str, float]]:
    """Which nodes INT8 rounds, and with which scales.

    Args: graph_def, inner: of inline.inline_segments. scales: {tensor of that graph: float > 0}, as toolkit.by_tensor gives them.
      left_out: tensors without a scale, as toolkit.left_out gives them; any other takes the scale of the tensor whose values it passes on.
    Returns: (rounding_sites.Sites whose inputs all have a scale, names of nodes that lack one, {tensor that a site rounds: its scale}).
    """
    aliases = rounding_sites.Aliases(graph_def)
    scales = {**{aliases.source(tensor): scale for tensor, scale in scales.items()}, **scales}
    sites: list[rounding_sites.Site] = []
    unrounded: list[str] = []
    ranges: dict[str, float] = {}
    for site in rounding_sites.int8_sites(graph_def, inner):
        answers: dict[str, float | Any] = {
            tensor: None if tensor in left_out else scales.get(tensor, scales.get(aliases.source(tensor)))
            for tensor in site.tensors
        }
        if None in answers.values():
            unrounded.append(site.name)
            continue
        sites.append(site)
        ranges.update(answers)
    return tuple(sites), tuple(unrounded), ranges


class Simulated:
    """A signature as a function of the gates of its nodes, the scales of its tensors and its inputs.

    outputs: names of all of its outputs; floats: of those that are floats.
    """

    def __init__(self, name: str, frozen: Frozen, rounded: rounding.Rounded) -> None:
        """Args: name: of the signature. frozen: graph_pass.Frozen of it. rounded: its converted graph with rounding put in."""
        self.name, self._original, self._tensors = name, frozen.original, rounded.tensors
        self._inputs = frozen.input_names
        self.outputs = sorted(frozen.original.structured_outputs)
        self.floats = [
            output for output in self.outputs if frozen.original.structured_outputs[output].dtype.is_floating
        ]
        self._function = _function(frozen, rounded)

    def vector(self, scales: Mapping[str, float]) -> npt.NDArray[np.float32]:
        """The scales to feed. Args: scales: {tensor: float > 0} of every tensor that is rounded. Returns: float32 [tensors]."""
        return np.array([scales[tensor] for tensor in self._tensors], np.float32)

    def original(self, feed: Mapping[str, tf.Tensor]) -> dict[str, npt.NDArray[Any]]:
        """{output: array} of the model itself. Raises: TftrtError where it fails."""
        try:
            return loading.answers(self._original, feed)
        except tf.errors.OpError as error:
            raise self._failed(error) from None

    def answers(
        self, gates: npt.NDArray[np.bool_], scales: npt.NDArray[np.float32], feed: Mapping[str, tf.Tensor]
    ) -> dict[str, npt.NDArray[Any]]:
        """{output: array} with some nodes rounded. Args: gates: bool [nodes]; scales: of `vector`. Raises: TftrtError where it fails."""
        fed = [tf.constant(gates, tf.bool), *([tf.constant(scales, tf.float32)] if self._tensors else [])]
        try:
            answers = self._function(*fed, *[feed[name] for name in self._inputs])
        except tf.errors.OpError as error:
            raise self._failed(error) from None
        return {output: tensor.numpy() for output, tensor in zip(self.outputs, answers, strict=True)}

    def _failed(self, error: Exception) -> errors.TftrtError:
        return errors.TftrtError(
            f"signature {self.name!r} fails on the data: {loading.first_line(error)}", "check the data"
        )


def _function(frozen: Frozen, rounded: Rounded) -> Callable[..., list[tf.Tensor]]:
    """A function of (gates, scales where there are any, the signature's inputs by name) that returns the signature's outputs as a list."""
    names: Sequence[str] = [rounded.gates, *([rounded.scales] if rounded.tensors else [])]

    def run(*fed: tf.Tensor) -> list[tf.Tensor]:
        switches, inputs = fed[: len(names)], fed[len(names) :]
        given = {
            key: tensor
            for name, tensor in zip(names, switches, strict=True)
            for key in (name, f"^{name.removesuffix(':0')}")
        }
        outputs: list[tf.Tensor] = tf.graph_util.import_graph_def(
            rounded.graph_def, input_map={**given, **frozen.input_map(inputs)}, return_elements=frozen.outputs, name=""
        )
        return outputs

    specs = [tf.TensorSpec((None,), kind) for kind in (tf.bool, tf.float32)[: len(names)]]
    function: Callable[..., list[tf.Tensor]] = tf.compat.v1.wrap_function(run, [*specs, *frozen.input_specs()])
    return function
