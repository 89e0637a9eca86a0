"""Rewrites by onnxslim: constants folded, nodes that do nothing left out, neighbours merged."""

from __future__ import annotations

import logging
from collections.abc import Callable

import onnx
import onnxslim

_STEPS = ("constant_folding", "graph_fusion", "dead_node_elimination", "subexpression_elimination", "weight_tying")
# MatMul and Add stay: TensorRT merges them itself, and products, not Gemm between reshapes, are what its fusion of attention looks for.
_LEFT = ["FusionGemm"]


def rewrite(*steps: str) -> Callable[[onnx.ModelProto, str], int]:
    """A rewrite by some of onnxslim's steps. It returns how many nodes it took out."""

    def made(model: onnx.ModelProto, target: str) -> int:
        given = onnx.ModelProto()
        given.CopyFrom(model)
        logging.getLogger("onnxslim").setLevel(logging.ERROR)
        slimmed = onnxslim.slim(given, skip_optimizations=[one for one in _STEPS if one not in steps], skip_fusion_patterns=_LEFT)
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
