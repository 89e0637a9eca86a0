"""Usual groups of nodes: found in graphs, fused or not in engines, and why not."""

import pytest

from tests.rooms.studies.test_layers import SMALL
from tests.rooms.tftrt.test_layer_table import ENCODER_INT8, FOUND
from tftrt_tools.studies.profiling import engine_rows, fusion, layers
from tftrt_tools.studies.profiling.engine_graph import Graph, Node, Tensor

CONV = "TRTEngineOp_x/conv-conv:CONVOLUTION"


def graph(*nodes):
    """A Graph of (name, op, inputs…), with an input x and weights w."""
    listed = (("x", "_Arg"), ("w", "Const"), *nodes)
    return Graph(
        "TRTEngineOp_x", tuple(Node(name=name, op=op, inputs=inputs, outputs=(SMALL,)) for name, op, *inputs in listed)
    )


def fused(known, *names, precisions=(), rows=None):
    found = layers.of_names(names, known)
    return fusion.of(
        fusion.Engine(
            graph=known, layers=found, seconds=dict.fromkeys(names, 1e-6), precisions=dict(precisions), rows=rows or {}
        )
    )


def part(name, kind):
    return f"TRTEngineOp_x/{name}:{kind}"


def test_a_convolution_goes_on_to_its_activation():
    known = graph(
        ("conv", "Conv2D", "x", "w"),
        ("norm", "FusedBatchNormV3", "conv", "w", "w", "w", "w"),
        ("relu", "Relu", "norm"),
        ("more", "Sigmoid", "relu"),
        ("out", "_Retval", "more"),
    )
    one = fused(
        known, f"{CONV} + {part('norm', 'SCALE')} + {part('relu-activation', 'ACTIVATION')}", part("more", "ACTIVATION")
    ).groups
    assert [(group.kind, group.nodes, group.fused, group.split_seconds) for group in one] == [
        ("convolution", ("conv", "norm", "relu"), True, 0)
    ]


SPLITS = {
    "a second reader": (
        (
            ("conv", "Conv2D", "x", "w"),
            ("relu", "Relu", "conv"),
            ("tanh", "Tanh", "conv"),
            ("out", "_Retval", "relu"),
            ("too", "_Retval", "tanh"),
        ),
        (CONV, part("relu", "ACTIVATION"), part("tanh", "ACTIVATION")),
        "reader",
        "tanh reads conv, too",
    ),
    "an output": (
        (
            ("conv", "Conv2D", "x", "w"),
            ("relu", "Relu", "conv"),
            ("out", "_Retval", "relu"),
            ("too", "_Retval", "conv"),
        ),
        (CONV, part("relu", "ACTIVATION")),
        "reader",
        "conv is an output of the engine, too",
    ),
    "an op between": (
        (
            ("conv", "Conv2D", "x", "w"),
            ("flat", "Reshape", "conv", "w"),
            ("relu", "Relu", "flat"),
            ("out", "_Retval", "relu"),
        ),
        (CONV, part("flat", "SHUFFLE"), part("relu", "ACTIVATION")),
        "between",
        "Reshape flat stands between",
    ),
    "a reformat": (
        (("conv", "Conv2D", "x", "w"), ("relu", "Relu", "conv"), ("out", "_Retval", "relu")),
        (CONV, f"Reformatting CopyNode for Input Tensor 0 to {part('relu', 'ACTIVATION')}", part("relu", "ACTIVATION")),
        "reformat",
        "a reformat of TensorRT's own between the two",
    ),
    "nothing": (
        (("conv", "Conv2D", "x", "w"), ("relu", "Relu", "conv"), ("out", "_Retval", "relu")),
        (CONV, part("relu", "ACTIVATION")),
        "not told",
        "neither the graph nor the engine shows why",
    ),
}


@pytest.mark.parametrize("case", SPLITS)
def test_why_a_group_is_split(case):
    nodes, names, cause, reason = SPLITS[case]
    groups = fused(graph(*nodes), *names).groups
    assert len(groups) == 1 and [(one.before, one.behind, one.cause, one.reason) for one in groups[0].splits] == [
        ("conv", "relu", cause, reason)
    ]
    assert not groups[0].fused and len(groups[0].layers) == 2
    # What could be saved: the activation's layer, and the reformat before it.
    assert groups[0].split_seconds == pytest.approx(2e-6 if case == "a reformat" else 1e-6)


def test_another_precision_is_a_reason():
    known = graph(("conv", "Conv2D", "x", "w"), ("relu", "Relu", "conv"), ("out", "_Retval", "relu"))
    names = CONV, part("relu", "ACTIVATION")
    (group,) = fused(known, *names, precisions=zip(names, ("INT8", "FP16"), strict=True)).groups
    assert group.splits[0].cause == "precision" and group.splits[0].reason == "conv is computed in INT8, relu in FP16"


def test_a_residual_sum_belongs_to_one_of_its_products():
    known = graph(
        ("conv", "Conv2D", "x", "w"),
        ("bias", "BiasAdd", "conv", "w"),
        ("short", "Conv2D", "x", "w"),
        ("scale", "Mul", "short", "w"),
        ("sum", "AddV2", "bias", "scale"),
        ("relu", "Relu", "sum"),
        ("out", "_Retval", "relu"),
    )
    first = f"{CONV} + {part('bias', 'ELEMENTWISE')} + {part('sum', 'ELEMENTWISE')} + {part('relu', 'ACTIVATION')}"
    groups = fused(known, first, f"{part('short-conv', 'CONVOLUTION')} + {part('scale', 'SCALE')}").groups
    assert [group.nodes for group in groups] == [("conv", "bias", "sum", "relu"), ("short", "scale")] and all(
        group.fused for group in groups
    )
    alone = fused(
        known,
        f"{CONV} + {part('bias', 'ELEMENTWISE')}",
        f"{part('short-conv', 'CONVOLUTION')} + {part('scale', 'SCALE')}",
        f"PWN({part('sum', 'ELEMENTWISE')}, {part('relu', 'ACTIVATION')})",
    ).groups
    assert [group.fused for group in alone] == [False, False]


ATTENTION = graph(
    ("q", "BatchMatMulV2", "x", "w"),
    ("k", "BatchMatMulV2", "x", "w"),
    ("scores", "BatchMatMulV2", "q", "k"),
    ("scaled", "Mul", "scores", "w"),
    ("mask", "_Arg"),
    ("masked", "AddV2", "scaled", "mask"),
    ("soft", "Softmax", "masked"),
    ("v", "BatchMatMulV2", "x", "w"),
    ("mixed", "BatchMatMulV2", "soft", "v"),
    ("out", "_Retval", "mixed"),
)


def test_attention_is_whole_in_a_fused_graph_only():
    whole = fused(ATTENTION, "{ForeignNode[TRTEngineOp_x/w:CONSTANT...TRTEngineOp_x/mixed:MATRIX_MULTIPLY]}").groups
    assert [group.kind for group in whole if group.kind == "attention"] == ["attention"] and all(
        group.fused for group in whole
    )
    single = fused(
        ATTENTION,
        *(part(name, "MATRIX_MULTIPLY") for name in ("q", "k", "scores", "v", "mixed")),
        f"PWN({part('masked', 'ELEMENTWISE')})",
        part("soft", "SOFTMAX"),
    ).groups
    attention = next(group for group in single if group.kind == "attention")
    assert attention.nodes == ("scores", "masked", "soft", "mixed")  # the factor is in no layer of its own
    assert {split.cause for split in attention.splits} == {"single"} and attention.split_seconds == pytest.approx(2e-6)


def test_a_layer_of_its_own_between_two_is_found_by_their_tensors():
    """Of an INT8 engine of an encoder, by the log of its build on an H200: what stands between a product and the sum behind it."""
    rows = {row.name: row for row in FOUND[ENCODER_INT8].rows}
    prefix = "StatefulPartitionedCall/"
    size = Tensor("float32", (32, 128, 256))
    known = Graph(
        ENCODER_INT8,
        tuple(
            Node(name=name, op=op, inputs=inputs, outputs=(size,))
            for name, op, *inputs in (
                ("x", "_Arg"),
                ("w", "Const"),
                (f"{prefix}MatMul", "BatchMatMulV2", "x", "w"),
                (f"{prefix}add_3", "AddV2", f"{prefix}MatMul", "w"),
                ("out", "_Retval", f"{prefix}add_3"),
            )
        ),
    )
    found = layers.of_names(rows, known, rows)
    made = fusion.of(
        fusion.Engine(graph=known, layers=found, seconds=dict.fromkeys(rows, 1e-6), precisions={}, rows=rows)
    )
    (group,) = made.groups
    assert group.splits[
        0
    ].reason == "a reformat and a shuffle of TensorRT's own between the two" and group.split_seconds == pytest.approx(
        3e-6
    )
    assert made.split == (group,)


def test_moves_are_counted_with_their_time():
    found = layers.of_names(
        [
            "Reformatting CopyNode for Input Tensor 0 to TRTEngineOp_x/a:FULLY_CONNECTED",
            "TRTEngineOp_x/b-shuffle:SHUFFLE",
            "TRTEngineOp_x/c-0-TransposeNHWCToNCHW-LayoutOptimizer:SHUFFLE",
            "TRTEngineOp_x/d-shuffle:SHUFFLE",
        ],
        None,
    )
    seconds = {layer.name: 1e-6 * place for place, layer in enumerate(found)}
    moved = fusion.of(fusion.Engine(graph=graph(), layers=found, seconds=seconds, precisions={}, rows={})).moved
    assert [(one.role, one.count, one.running, one.seconds) for one in moved] == [
        ("reformat", 1, 0, 0),
        ("transpose", 1, 1, 2e-6),
        ("shuffle", 2, 2, pytest.approx(4e-6)),
    ]


def test_what_is_split_alike_is_one_line():
    nodes = [
        node
        for name in "abc"
        for node in ((name, "Conv2D", "x", "w"), (f"{name}_relu", "Relu", name), (f"{name}_flat", "Reshape", name, "w"))
    ]
    nodes += [
        ("d", "Conv2D", "x", "w"),
        ("d_relu", "Relu", "d"),
        *((f"out{name}", "_Retval", f"{name}_relu") for name in "abcd"),
    ]
    made = fused(
        graph(*nodes),
        *(part(f"{name}-conv", "CONVOLUTION") for name in "abcd"),
        *(part(f"{name}_relu", "ACTIVATION") for name in "abcd"),
    )
    lines = engine_rows.splits(made)
    assert lines == [
        "a + a_relu in 2 layers: a_flat reads a, too (up to 0.0010 ms)",
        "b + b_relu in 2 layers: b_flat reads b, too (up to 0.0010 ms)",
        "c + c_relu in 2 layers: c_flat reads c, too (up to 0.0010 ms)",
        "d + d_relu in 2 layers: neither the graph nor the engine shows why (up to 0.0010 ms)",
    ]
