"""A node of tf2onnx's graph in the course of its replacement by others that give the same tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from onnx import TensorProto
from tf2onnx import utils as tf2onnx_utils
from tf2onnx.graph import Graph, Node


class Replaced:
    """Takes the node out of the graph; what it gave has to be given by `give`. Args: graph: of tf2onnx; node: of it."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self._name, self._outputs = graph, node.name, list(node.output)
        self._dtypes, self._shapes = (
            [graph.get_dtype(one) for one in self._outputs],
            [graph.get_shape(one) for one in self._outputs],
        )
        graph.remove_node(node.name)

    def number(self, value: float) -> str:
        """A scalar of the node's dtype."""
        return self.constant(np.array(value, tf2onnx_utils.map_onnx_to_numpy_type(self._dtypes[0])))

    def constant(self, values: npt.ArrayLike) -> str:
        """A constant; whole numbers are int64."""
        return str(self._graph.make_const(tf2onnx_utils.make_name(self._name), np.asarray(values)).output[0])

    def make(
        self,
        op: str,
        inputs: Sequence[str],
        attributes: Mapping[str, object] | None = None,
        *,
        shape: Sequence[int] | None = None,
        dtype: int | None = None,
    ) -> str:
        """A node's output. Args: shape, dtype: by default those of the first output of the replaced node."""
        known = self._shapes[0] if shape is None else shape
        return self.several(op, inputs, attributes, [known], [self._dtypes[0] if dtype is None else dtype])[0]

    def several(
        self,
        op: str,
        inputs: Sequence[str],
        attributes: Mapping[str, object] | None,
        shapes: Sequence[Sequence[int] | None],
        dtypes: Sequence[int],
    ) -> list[str]:
        """A node's outputs."""
        made = self._graph.make_node(
            op,
            list(inputs),
            attr=dict(attributes or {}),
            name=tf2onnx_utils.make_name(self._name),
            output_count=len(shapes),
            shapes=list(shapes),
            dtypes=list(dtypes),
        )
        return list(map(str, made.output))

    def give(
        self,
        op: str,
        inputs: Sequence[str],
        attributes: Mapping[str, object] | None = None,
        output: int = 0,
        *,
        shape: Sequence[int] | None = None,
        dtype: int | None = None,
    ) -> None:
        """The node that gives an output of the replaced node. Args: shape, dtype: by default as they were."""
        self._graph.make_node(
            op,
            list(inputs),
            attr=dict(attributes or {}),
            outputs=[self._outputs[output]],
            name=self._name if output == 0 else tf2onnx_utils.make_name(self._name),
            shapes=[self._shapes[output] if shape is None else shape],
            dtypes=[self._dtypes[output] if dtype is None else dtype],
        )


FLOAT, BOOL, INT32, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64
