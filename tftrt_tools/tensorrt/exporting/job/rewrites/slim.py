"""Rewrites by onnxslim: constants folded, nodes that do nothing left out, neighbours merged."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

import onnx
import onnxslim
from onnxslim.core.shape_inference import context as inference

_STEPS = ("constant_folding", "graph_fusion", "dead_node_elimination", "subexpression_elimination", "weight_tying")
# MatMul and Add stay: TensorRT merges them itself, and products, not Gemm between reshapes, are what its fusion of attention looks for.
_LEFT = ["FusionGemm"]


def rewrite(*steps: str) -> Callable[[onnx.ModelProto, str], int]:
    """A rewrite by some of onnxslim's steps. It returns how many nodes it took out."""

    def made(model: onnx.ModelProto, target: str) -> int:
        given = onnx.ModelProto()
        given.CopyFrom(model)
        logging.getLogger("onnxslim").setLevel(logging.ERROR)
        with _values_of_vectors():
            slimmed = onnxslim.slim(
                given, skip_optimizations=[one for one in _STEPS if one not in steps], skip_fusion_patterns=_LEFT
            )
        before = len(model.graph.node)
        # Inputs that nothing reads are gone, and open dimensions have other names.
        ends = [(list(model.graph.input), slimmed.graph.input), (list(model.graph.output), slimmed.graph.output)]
        for ours, theirs in ends:
            copies = [onnx.ValueInfoProto.FromString(one.SerializeToString()) for one in ours]
            del theirs[:]
            theirs.extend(copies)
        model.graph.CopyFrom(slimmed.graph)
        return before - len(model.graph.node)

    return made


@contextlib.contextmanager
def _values_of_vectors() -> Iterator[None]:
    """While it lasts, onnxslim keeps the values of vectors and numbers alone while it infers shapes.

    0.1.98 keeps those of a matrix as a flat list, and reverses that list where the graph reverses rows: PyTorch's padding became another.
    """
    kept = inference.InferenceContext.pass_on_sympy_data

    def passed(self: inference.InferenceContext, node: onnx.NodeProto) -> None:
        kept(self, node)
        if len(self.known_vi_[node.output[0]].type.tensor_type.shape.dim) > 1:
            self.sympy_data_.pop(node.output[0], None)

    inference.InferenceContext.pass_on_sympy_data = passed
    try:
        yield
    finally:
        inference.InferenceContext.pass_on_sympy_data = kept
