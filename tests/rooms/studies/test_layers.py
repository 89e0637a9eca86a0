"""What layers are and which nodes they hold, by the names that TensorRT gave them on an H200 and an H100."""

import pytest

from tests.engine_recordings import DIGITS, recording
from tests.rooms.tftrt.test_layer_table import DIGITS_INT8, ENCODER_INT8, FOUND
from tftrt_tools.studies.profiling import layers
from tftrt_tools.studies.profiling.engine_graph import Graph, Node, Tensor

SMALL = Tensor("float32", (1, 4))


def graph(**nodes):
    """A Graph: {name: (op, inputs…)}, in order."""
    return Graph(
        "TRTEngineOp_x",
        tuple(
            Node(name=name, op=op, inputs=inputs, outputs=(SMALL,))
            for name, (op, *inputs) in (
                (name.replace("__", "/"), (op, *map(str, inputs))) for name, (op, *inputs) in nodes.items()
            )
        ),
    )


def named(name, known=None):
    return layers.of_names([name], known)[0]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("TRTEngineOp_x/a/Conv2D-conv:CONVOLUTION + TRTEngineOp_x/a/Relu-activation:ACTIVATION", "product"),
        ("TRTEngineOp_x/a/MatMul:FULLY_CONNECTED", "product"),
        ("PWN(PWN(TRTEngineOp_x/a/Sigmoid:ACTIVATION), TRTEngineOp_x/a/mul:ELEMENTWISE)", "pointwise"),
        (
            "{ForeignNode[TRTEngineOp_x/_tftrt_constant_-0:CONSTANT...TRTEngineOp_x/Tanh-activation:ACTIVATION]}",
            "fused graph",
        ),
        ("Reformatting CopyNode for Input Tensor 0 to TRTEngineOp_x/a/MatMul:FULLY_CONNECTED", "reformat"),
        (
            "Reformatting CopyNode for Output Tensor 1 to {ForeignNode[TRTEngineOp_x/a:CONSTANT...TRTEngineOp_x/b:SHUFFLE]}",
            "reformat",
        ),
        ("TRTEngineOp_x/a/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer:SHUFFLE", "transpose"),
        ("TRTEngineOp_x/a/Reshape-shuffle:SHUFFLE", "shuffle"),
        ("squeeze_after_TRTEngineOp_x/a/Relu-activation:ACTIVATION", "shuffle"),
        ("copied_squeeze_after_TRTEngineOp_x/a/BiasAdd-sum:ELEMENTWISE", "shuffle"),
        ("(Unnamed Layer* 51) [Shuffle]", "shuffle"),
        ("(Unnamed Layer* 31) [Constant]", "constant"),
        ("TRTEngineOp_x/_tftrt_constant_-7:CONSTANT", "constant"),
        ("[ShapeHostToDeviceCopy 0]", "shape"),
        ("TRTEngineOp_x/a/Softmax:SOFTMAX", "other"),
    ],
)
def test_roles(name, role):
    assert named(name).role == role and named(f"{name} [profile 1]").role == role


def test_a_part_gives_its_node():
    known = graph(
        x=("_Arg",),
        a__w=("Const",),
        a__Conv2D=("Conv2D", "x", "a/w"),
        a__Relu=("Relu", "a/Conv2D"),
        b_1__MatMul=("MatMul", "a/Relu", "a/w"),
    )
    fused = named(
        "TRTEngineOp_x/a/Relu-activation:ACTIVATION + TRTEngineOp_x/a/Conv2D-conv:CONVOLUTION + TRTEngineOp_x/_tftrt_constant_-0:CONSTANT",
        known,
    )
    assert fused.nodes == ("a/Conv2D", "a/Relu")  # in the graph's order
    assert named("TRTEngineOp_x/b_1/MatMul-FULLY_CONNECTED-shuffle_0:SHUFFLE", known).nodes == ("b_1/MatMul",)
    assert named("TRTEngineOp_x/a/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer:SHUFFLE", known).nodes == ()
    assert named("squeeze_after_TRTEngineOp_x/a/Relu-activation:ACTIVATION", known).nodes == ()
    assert named("TRTEngineOp_x/a/Conv2D-conv:CONVOLUTION").nodes == ("a/Conv2D",)  # guessed, without the graph


def test_a_reformat_says_for_which_layer():
    name = "TRTEngineOp_x/a/Conv2D-conv:CONVOLUTION + TRTEngineOp_x/a/Relu-activation:ACTIVATION"
    assert named(f"Reformatting CopyNode for Input Tensor 0 to {name}").beside == name
    assert layers.short(name) == "a/Conv2D-conv + a/Relu-activation"


def test_a_fused_graph_holds_what_lies_before_its_end():
    known = graph(
        x=("_Arg",),
        w=("Const",),
        a=("MatMul", "x", "w"),
        b=("Relu", "a"),
        c=("Tanh", "b"),
        d=("MatMul", "c", "w"),
        e=("Sigmoid", "b"),
        out=("_Retval", "d"),
    )
    found = layers.of_names(
        [
            "{ForeignNode[TRTEngineOp_x/w:CONSTANT...TRTEngineOp_x/c-activation:ACTIVATION]}",
            "TRTEngineOp_x/d:FULLY_CONNECTED",
        ],
        known,
    )
    # e is another output of the fused graph, whose name has one end only.
    assert [layer.nodes for layer in found] == [("a", "b", "c", "e"), ("d",)]
    # The end may be a helper of a node whose product is a layer of its own.
    helper = layers.of_names(
        [
            "{ForeignNode[TRTEngineOp_x/w:CONSTANT...TRTEngineOp_x/d-FULLY_CONNECTED-shuffle_0:SHUFFLE]}",
            "TRTEngineOp_x/d:FULLY_CONNECTED",
        ],
        known,
    )
    assert [layer.nodes for layer in helper] == [("a", "b", "c", "e"), ("d",)]
    assert not layers.homeless(found, known)


def test_each_node_of_the_digits_has_a_layer_in_another_engine_of_it():
    """The names are those of an INT8 engine that an H200 built; the graph is that of the recording."""
    known = recording(DIGITS).graphs[0]
    found = layers.of_names([row.name for row in FOUND[DIGITS_INT8].rows], known)
    assert not layers.homeless(found, known)
    assert [len(layer.nodes) for layer in found if layer.role == "product"] == [3, 3, 3, 2]
    assert sum(layer.role == "reformat" for layer in found) == 5


def test_a_layer_holds_the_node_whose_tensor_it_writes():
    """TensorRT takes the factor behind a product into it, and names the layer after the product alone."""
    rows = {row.name: row for row in FOUND[ENCODER_INT8].rows}
    name = next(name for name in rows if name.endswith("/MatMul_2:MATRIX_MULTIPLY"))
    known = graph(
        **{
            "StatefulPartitionedCall__q": ("_Arg",),
            "StatefulPartitionedCall__s": ("Const",),
            "StatefulPartitionedCall__MatMul_2": (
                "BatchMatMulV2",
                "StatefulPartitionedCall/q",
                "StatefulPartitionedCall/q",
            ),
            "StatefulPartitionedCall__mul_3": ("Mul", "StatefulPartitionedCall/MatMul_2", "StatefulPartitionedCall/s"),
        }
    )
    assert layers.of_names([name], known, rows)[0].nodes == (
        "StatefulPartitionedCall/MatMul_2",
        "StatefulPartitionedCall/mul_3",
    )
    assert layers.homeless(layers.of_names([name], known), known) == ("StatefulPartitionedCall/mul_3",)
