"""The predicted names of calibration tables: rules on small segments, and whole tables recorded on a GPU."""

import json

import pytest
import tensorflow as tf

from tests import keras_layers, stacks
from tests.conftest import ROOT
from tests.weights_of import weights
from tftrt_tools.models.savedmodel.job import graph
from tftrt_tools.tftrt.calibration.job import numbering, tensor_names
from tftrt_tools.tftrt.calibration.job.tensor_names import NamedTensor
from tftrt_tools.tftrt.conversion.job import graph_pass, patterns, prepare
from tftrt_tools.tftrt.conversion.settings import Settings

# Names alone, of the tables that TensorRT 8.5.3 made through TensorFlow 2.14.1 on an H100 and an H200, of the sample models' own sizes:
# {model: {mode: {"shapes": {signature: [shape of each engine input, by engine]}, "names": {signature: [names, by engine]}, "zero": the
# like, where kept, of those without a scale, whose places are not known}}}; null: an engine without a float inside, which is not calibrated.
RECORDED = json.loads((ROOT / "tests/data/calibration_names.json").read_text())
# Where the order of the lines differs from run to run; which lines there are, does not.
_BRANCHED = {"resnet50", "unet", "attention", "lstm_tagger", "squeeze_and_excite", "conv1d"}
# Where with the order the numbers differ: recorded are those of one order.
_RENUMBERED = {"conv1d"}
# Options of a builder where the sample model of the tests is another than the one recorded.
_AS_RECORDED = {"bert_encoder": {"layers": 4, "hidden": 256}}


def segment_of(body, *shapes, dtype=tf.float32):
    """The segment that `body` is, with arguments of `shapes`."""
    arguments = [tf.TensorSpec(shape, dtype) for shape in shapes]
    function = tf.function(body, autograph=False).get_concrete_function(*arguments).function_def
    # tf.function returns through identities; a native segment does not.
    last = {f"{node.name}:output:0": node for node in function.node_def if node.op == "Identity"}
    for name, source in function.ret.items():
        function.ret[name] = last[source].input[0]
    for node in last.values():
        function.node_def.remove(node)
    return function


def predicted(body, *shapes, dynamic=True, dtype=tf.float32, built=None):
    """names() of the segment that `body` is, with engine inputs of `shapes`, for an engine that is built for the shapes `built`."""
    return tensor_names.names(segment_of(body, *shapes, dtype=dtype), dynamic, built or shapes)


def unnamed(found):
    return [tensor.name for tensor in found if tensor.name.startswith("(")]


def conv(x, *shape):
    return tf.raw_ops.Conv2D(input=x, filter=weights(*shape), strides=[1, 1, 1, 1], padding="SAME", name="conv")


def test_a_constant_that_the_layout_optimizer_turns_holds_the_values_of_the_models():
    """Keras 3 writes batch normalization so. Without a range for it no layer adds it in INT8 (a table of TensorRT 8.6 lists it)."""

    def body(x):
        moved = tf.raw_ops.AddV2(x=conv(x, 3, 3, 3, 4), y=tf.constant([0.5, -2, 1, 0.25], name="offset"), name="moved")
        return tf.raw_ops.Relu(features=moved, name="relu")

    assert predicted(body, (None, 8, 8, 3))[3] == NamedTensor("(Unnamed Layer* 2) [Constant]_output", "offset:0", True)


def test_the_transposition_of_a_tensor_that_is_passed_on_holds_the_values_of_the_one_behind_it():
    """A convolution of one dimension is one of two behind an ExpandDims."""

    def body(x):
        before = tf.raw_ops.ExpandDims(input=tf.raw_ops.Relu(features=x, name="before"), axis=1, name="expand")
        return tf.raw_ops.Relu(features=conv(before, 1, 3, 3, 4), name="relu")

    function = segment_of(body, (None, 16, 3))
    names = {"before", "expand", "conv-0-TransposeNHWCToNCHW-LayoutOptimizer"}
    for tensor in ("before:0", "expand:0"):
        assert tensor_names.holding([tensor], function, True, [(None, 16, 3)]) == names


def test_a_sum_of_constants_with_the_name_of_a_node_that_computed_is_not_that_nodes_tensor():
    """Grappler adds two constants, and calls the sum as the node was that added the first one."""

    def body(x):
        sums = tf.raw_ops.Tanh(x=conv(x, 3, 3, 3, 4), name="tanh")
        for number in range(2):
            sums = tf.raw_ops.BiasAdd(value=sums, bias=[0.5, -2.0, 1.0, 0.25], name=f"bias_{number}")
            sums = tf.raw_ops.AddV2(x=sums, y=[[[[3.0, 1.0, 2.0, 4.0]]]], name=f"sum_{number}")
        return tf.raw_ops.Relu(features=sums, name="relu")

    constants = [one for one in predicted(body, (None, 8, 8, 3)) if "Constant" in one.name]
    assert constants and not any(one.tensor and one.tensor.startswith(("bias_", "sum_")) for one in constants)


def test_a_convolution_gets_transpositions_that_hold_its_neighbours_values():
    assert predicted(lambda x: tf.raw_ops.Relu(features=conv(x, 3, 3, 3, 4), name="relu"), (None, 8, 8, 3)) == [
        NamedTensor("TensorRTInputPH_0", "x:0", True),
        NamedTensor("conv-0-TransposeNHWCToNCHW-LayoutOptimizer", "x:0", True),
        NamedTensor("conv", "conv:0", True),
        NamedTensor("relu", "relu:0", True),
        NamedTensor("TensorRTOutputPH_0", "relu:0", True),
    ]


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_matrix_product_with_a_constant_is_fully_connected_between_reshapes(dynamic):
    found = predicted(
        lambda x: tf.raw_ops.Tanh(x=tf.raw_ops.MatMul(a=x, b=weights(8, 4), name="product"), name="tanh"),
        (4, 8),
        dynamic=dynamic,
    )
    assert found == [
        NamedTensor("TensorRTInputPH_0", "x:0", True),
        NamedTensor("(Unnamed Layer* 0) [Shuffle]_output", "x:0", True),
        NamedTensor("(Unnamed Layer* 1) [Fully Connected]_output", "product:0", True),
        NamedTensor("product", "product:0", True),
        NamedTensor("TensorRTOutputPH_0", "tanh:0", True),
    ]


def test_a_product_of_two_tensors_is_a_matrix_multiplication():
    found = predicted(lambda x, y: tf.raw_ops.BatchMatMulV2(x=x, y=y, name="product"), (None, 4, 8), (None, 8, 4))
    assert [tensor.name for tensor in found] == ["TensorRTInputPH_0", "TensorRTInputPH_1", "TensorRTOutputPH_0"]


def test_a_bias_is_a_constant_layer_with_the_values_of_its_constant():
    found = predicted(
        lambda x: tf.raw_ops.BiasAdd(value=x, bias=tf.constant([1.0, 2.0], name="bias"), name="sum"), (None, 2)
    )
    assert found[1] == NamedTensor("(Unnamed Layer* 0) [Constant]_output", "bias:0", True)


def test_what_is_computed_inside_a_converter_is_no_tensor_of_tensorflow():
    found = predicted(lambda x: tf.raw_ops.Rsqrt(x=x, name="root"), (None, 2))
    assert found[1] == NamedTensor("(Unnamed Layer* 0) [Unary]_output", None, True)


def test_an_operand_of_lower_rank_is_reshaped_where_the_ranks_are_known_to_differ():
    found = predicted(lambda x, y: tf.raw_ops.AddV2(x=x, y=y, name="sum"), (2, 3, 4), (3, 4))
    assert unnamed(found) == ["(Unnamed Layer* 0) [Shuffle]_output"]


def test_a_reshape_to_the_shape_that_is_there_makes_no_layer_and_renames_the_tensor():
    found = predicted(
        lambda x: tf.raw_ops.Relu(
            features=tf.raw_ops.Reshape(tensor=tf.raw_ops.Tanh(x=x, name="tanh"), shape=[-1, 3], name="same")
        ),
        (None, 3),
    )
    assert [tensor.name for tensor in found] == ["TensorRTInputPH_0", "same", "TensorRTOutputPH_0"]
    assert found[1].tensor == "tanh:0"


def test_an_output_that_is_an_input_is_copied():
    found = predicted(lambda x: [tf.raw_ops.Tanh(x=x, name="tanh"), x], (None, 3))
    assert [(tensor.name, tensor.tensor) for tensor in found] == [
        ("TensorRTInputPH_0", "x:0"),
        ("TensorRTOutputPH_0", "tanh:0"),
        ("TensorRTOutputPH_1", "x:0"),
    ]


def test_a_slice_of_unknown_sizes_hides_layers_that_compute_shapes():
    def body(x):
        cut = tf.raw_ops.StridedSlice(
            input=x, begin=[0, 0], end=[0, 2], strides=[1, 1], begin_mask=3, end_mask=1, name="cut"
        )
        return tf.raw_ops.Rsqrt(x=cut, name="root")

    # 24 layers of int32 between the slice, which is layer 0, and the square root.
    assert unnamed(predicted(body, (None, 4))) == ["(Unnamed Layer* 25) [Unary]_output"]
    assert unnamed(predicted(body, (5, 4))) == ["(Unnamed Layer* 1) [Unary]_output"]


def test_sizes_taken_from_a_shape_need_a_slice_and_a_reshape_each():
    """As in the encoder: TensorRT knows how many sizes there are, also where it does not know the sizes."""

    def body(x):
        batch = tf.raw_ops.StridedSlice(
            input=tf.raw_ops.Shape(input=x), begin=[0], end=[1], strides=[1], shrink_axis_mask=1, name="batch"
        )
        split = tf.raw_ops.Reshape(tensor=x, shape=tf.raw_ops.Pack(values=[batch, 2, 2]), name="split")
        return tf.raw_ops.Rsqrt(x=split, name="root")

    # Shape, Slice, Shuffle, what Pack makes of three sizes (three and a concatenation), Reshape.
    for batch in (None, 5):
        assert unnamed(predicted(body, (None, 4), built=[(batch, 4)])) == ["(Unnamed Layer* 8) [Unary]_output"]
    # A shape that the model itself knows is folded before: no layer.
    assert unnamed(predicted(body, (5, 4))) == ["(Unnamed Layer* 1) [Unary]_output"]


def dense_over_the_last_axis(x):
    """What Keras makes of a dense layer over the last of three axes, its sizes computed."""
    sizes = tf.raw_ops.Shape(input=x)
    rows, columns = (
        tf.raw_ops.Prod(input=tf.raw_ops.GatherV2(params=sizes, indices=axes, axis=0), axis=[0])
        for axes in ([0, 1], [2])
    )
    flat = tf.raw_ops.Reshape(tensor=x, shape=tf.raw_ops.Pack(values=[rows, columns]), name="flat")
    return tf.raw_ops.Tanh(x=tf.raw_ops.MatMul(a=flat, b=weights(8, 4), name="product"), name="tanh")


def test_sizes_are_followed_through_their_arithmetic_as_far_as_they_are_known():
    """TensorFlow does not know the columns of what it reshapes here, and TensorRT does. Layers 0 to 10 compute sizes and reshape."""
    for shape in ((None, None, 8), (2, 3, 8)):
        found = predicted(dense_over_the_last_axis, (None, None, 8), built=[shape])
        assert unnamed(found) == [
            "(Unnamed Layer* 11) [Shuffle]_output",
            "(Unnamed Layer* 12) [Fully Connected]_output",
        ]
    assert unnamed(predicted(dense_over_the_last_axis, (None, None, None))) == ["(Unnamed Layer* 11) [Constant]_output"]


def test_sizes_keep_their_places_in_slices_and_between_others():
    def body(x):
        sizes = tf.raw_ops.Shape(input=x)
        tail = tf.raw_ops.StridedSlice(input=sizes, begin=[-1], end=[0], strides=[1], end_mask=1)
        head = tf.raw_ops.StridedSlice(input=sizes, begin=[0], end=[-1], strides=[1], begin_mask=1)
        rows = tf.raw_ops.Prod(input=head, axis=[0], keep_dims=True)
        flat = tf.raw_ops.Reshape(tensor=x, shape=tf.raw_ops.ConcatV2(values=[rows, tail], axis=0), name="flat")
        return tf.raw_ops.MatMul(a=flat, b=weights(8, 4), name="product")

    assert [name.partition("[")[2] for name in unnamed(predicted(body, (None, None, 8)))] == [
        "Shuffle]_output",
        "Fully Connected]_output",
    ]


@stacks.needs_keras_2
def test_the_taggers_first_engine_has_the_name_that_tensorrt_was_seen_to_write(zoo_model):
    """Line 10 of its table was "(Unnamed Layer* 31) [Constant]_output: 0", the first scale of zero, on an H200."""
    root = tf.saved_model.load(str(zoo_model("lstm_tagger")))
    frozen = graph_pass.freeze("serving_default", root.signatures["serving_default"])
    native = graph.native_segments(graph_pass.run(frozen, Settings(use_dynamic_shape=True)).graph_def).values()
    (first,) = (one for one in native if any(node.op == "Fill" for node in one.function.node_def))
    lines = [
        "TRT-8503-EntropyCalibration2",
        *(tensor.name for tensor in tensor_names.names(first.function, True, first.shapes)),
    ]
    assert lines[10 - 1] == "(Unnamed Layer* 31) [Constant]_output"


def test_a_size_that_is_not_there_is_not_known():
    """TensorFlow would fail when it runs."""

    def body(x):
        sizes = tf.raw_ops.Shape(input=x)
        outside = tf.raw_ops.GatherV2(params=sizes, indices=[7], axis=0)
        flat = tf.raw_ops.Reshape(tensor=x, shape=tf.raw_ops.ConcatV2(values=[[-1], outside], axis=0), name="flat")
        return tf.raw_ops.MatMul(a=flat, b=weights(8, 4), name="product")

    assert [name.partition("[")[2] for name in unnamed(predicted(body, (None, None, 8)))] == ["Constant]_output"]


def test_what_is_added_to_a_convolution_is_transposed_where_its_shape_is_known():
    """As in a decoder whose other operand comes from outside of the engine; seen on an H200."""

    def body(x, y):
        return tf.raw_ops.AddV2(x=conv(x, 3, 3, 3, 4), y=y, name="sum")

    found = predicted(body, (None, 8, 8, 3), (None, 8, 8, 4))
    assert NamedTensor("sum-1-TransposeNHWCToNCHW-LayoutOptimizer", "y:0", True) in found
    assert "conv-0-0-TransposeNCHWToNHWC-LayoutOptimizer" in [
        tensor.name for tensor in predicted(body, (None, 8, 8, 3), None)
    ]


def test_a_constant_that_changes_nothing_is_folded_where_the_shapes_are_known():
    def body(x):
        return tf.raw_ops.Rsqrt(
            x=tf.raw_ops.AddV2(x=tf.raw_ops.Tanh(x=x, name="tanh"), y=tf.zeros([4]), name="sum"), name="root"
        )

    assert unnamed(predicted(body, (None, 4))) == ["(Unnamed Layer* 1) [Unary]_output"]
    assert NamedTensor("sum", "tanh:0", True) in predicted(body, (None, 4))
    assert unnamed(predicted(body, (None, None))) == [
        "(Unnamed Layer* 1) [Constant]_output",
        "(Unnamed Layer* 3) [Unary]_output",
    ]


def same(x):
    return tf.raw_ops.Reshape(tensor=x, shape=[-1, 4], name="same")


def no_more(x):
    return tf.raw_ops.AddV2(x=x, y=tf.zeros([4]), name="sum")


@pytest.mark.parametrize(
    ("pass_on", "name"), [(lambda x: x, "tanh"), (same, "same"), (no_more, "sum"), (lambda x: no_more(same(x)), "sum")]
)
def test_what_feeds_a_node_is_found_in_the_table_also_behind_what_passes_it_on(pass_on, name):
    """TensorRT has one tensor for all of them, with the name of the last."""

    def body(x):
        fed = pass_on(tf.raw_ops.Tanh(x=x, name="tanh"))
        return tf.raw_ops.Relu(features=tf.raw_ops.MatMul(a=fed, b=weights(4, 4), name="product"))

    function, shapes = segment_of(body, (None, 4)), [(None, 4)]
    assert tensor_names.holding({f"{name}:0"}, function, True, shapes) == {name, "(Unnamed Layer* 1) [Shuffle]_output"}
    assert tensor_names.holding({"tanh:0"}, function, True, shapes) == {name, "(Unnamed Layer* 1) [Shuffle]_output"}
    assert tensor_names.holding({"nowhere:0"}, function, True, shapes) == set()


def test_tensors_between_einsums_and_their_constants_have_no_range():
    """TensorRT merges them away: seen on an H200, with products next to each other, transposed or not, read twice."""

    def body(x):
        first = tf.raw_ops.Einsum(inputs=[x, weights(4, 4)], equation="abc,cd->abd", name="first")
        second = tf.raw_ops.Einsum(inputs=[first, weights(4, 4)], equation="abc,cd->abd", name="second")
        third = tf.raw_ops.Einsum(inputs=[second, weights(4, 4)], equation="abc,cd->abd", name="third")
        return third, tf.raw_ops.Tanh(x=second, name="tanh")

    assert [tensor.name for tensor in predicted(body, (None, 3, 4))] == [
        "TensorRTInputPH_0",
        "second",
        "TensorRTOutputPH_0",
        "TensorRTOutputPH_1",
    ]


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", keras_layers.BUILDERS)
def test_the_tensors_of_keras_layers_have_names(name, dynamic, tmp_path_factory):
    """That these are TensorRT's own is a test that needs a GPU."""
    root = tf.saved_model.load(str(keras_layers.built_once(name, tmp_path_factory)))
    _, passed = prepare.passed(
        "serving_default",
        root.signatures["serving_default"],
        Settings(use_dynamic_shape=dynamic, precision_mode="INT8"),
    )
    engines = graph.native_segments(passed.graph_def).values()
    assert engines or not dynamic
    for one in engines:
        shapes = one.shapes if dynamic else [(4, *shape[1:]) for shape in one.shapes]
        found = tensor_names.names(one.function, dynamic, shapes)
        names = [tensor.name for tensor in found]
        assert all(tensor.sure for tensor in found) and len(set(names)) == len(names) > 1


def test_taking_one_row_of_an_axis_puts_the_other_sizes_together_where_they_are_unknown():
    def body(x):
        first = tf.raw_ops.StridedSlice(
            input=x,
            begin=[0, 0],
            end=[0, 1],
            strides=[1, 1],
            begin_mask=1,
            end_mask=1,
            shrink_axis_mask=2,
            name="first",
        )
        return tf.raw_ops.Rsqrt(x=first, name="root")

    # Beside the slice and its 24 layers: Shape, a Slice for each of two sizes, Concatenation, the reshape.
    assert unnamed(predicted(body, (None, 3, 4)))[-1] == "(Unnamed Layer* 30) [Unary]_output"
    assert unnamed(predicted(body, (5, 3, 4)))[-1] == "(Unnamed Layer* 2) [Unary]_output"


def test_a_table_that_rows_are_looked_up_in_gets_no_range():
    def body(x):
        rows = tf.raw_ops.GatherV2(params=weights(5, 4), indices=x, axis=0, name="rows")
        return tf.raw_ops.Rsqrt(x=rows, name="root")

    assert [tensor.name for tensor in predicted(body, (None, 3), dtype=tf.int32)] == [
        "rows",
        "(Unnamed Layer* 2) [Unary]_output",
        "TensorRTOutputPH_0",
    ]


def test_integers_are_not_listed():
    assert predicted(lambda x: tf.raw_ops.Neg(x=x), (None, 3), dtype=tf.int32) == []


def test_an_op_of_unknown_layers_ends_the_numbered_names_and_no_others():
    def body(x):
        first = tf.raw_ops.Rsqrt(x=x, name="first")
        unknown = tf.raw_ops.Cumsum(x=first, axis=1, name="unknown")
        last = tf.raw_ops.Rsqrt(x=unknown, name="last")
        return tf.raw_ops.Tanh(x=last, name="tanh")

    assert predicted(body, (None, 3)) == [
        NamedTensor("TensorRTInputPH_0", "x:0", True),
        NamedTensor("(Unnamed Layer* 0) [Unary]_output", None, True),
        NamedTensor("first", "first:0", True),
        NamedTensor("unknown", "unknown:0", False),
        NamedTensor("last", "last:0", True),
        NamedTensor("TensorRTOutputPH_0", "tanh:0", True),
    ]


def test_an_input_of_unknown_rank_leaves_the_nodes_names():
    found = predicted(lambda x: tf.raw_ops.Tanh(x=tf.raw_ops.Rsqrt(x=x, name="root"), name="tanh"), None)
    assert [(tensor.name, tensor.sure) for tensor in found] == [
        ("TensorRTInputPH_0", True),
        ("root", False),
        ("TensorRTOutputPH_0", False),
    ]


def test_engines_take_the_profiles_shapes_where_there_is_only_one_optimal_profile():
    declared, one, two = [(None, 8)], [(4, 8)], [(2, 8)]
    assert tensor_names.build_shapes(declared, [one], True, "Optimal") == one
    assert tensor_names.build_shapes(declared, [one, two], True, "Optimal") == declared
    assert tensor_names.build_shapes(declared, [one], True, "Range") == declared
    assert tensor_names.build_shapes(declared, [one], False, None) == one


def looked_up(ids, other):
    """As Keras 3's Embedding takes negative ids; a table of TensorRT 8.6.0 on an H200 has these numbers. other: what Select takes instead."""
    moved = tf.raw_ops.AddV2(x=tf.constant(5), y=ids, name="moved")
    less = tf.raw_ops.Less(x=ids, y=tf.constant(0), name="less")
    chosen = tf.raw_ops.SelectV2(condition=less, t=moved, e=other(ids), name="chosen")
    rows = tf.raw_ops.GatherV2(params=weights(5, 8), indices=chosen, axis=tf.constant(0), name="rows")
    return tf.raw_ops.MatMul(a=rows, b=weights(8, 4), name="product")


def test_what_compares_and_selects_has_its_layers():
    found = unnamed(predicted(lambda ids: looked_up(ids, lambda one: one), (None,), dtype=tf.int32))
    assert found == ["(Unnamed Layer* 7) [Shuffle]_output", "(Unnamed Layer* 8) [Fully Connected]_output"]


def test_after_a_select_of_other_ranks_no_number_is_given():
    found = predicted(lambda ids: looked_up(ids, lambda one: tf.constant(0)), (None,), dtype=tf.int32)
    assert not unnamed(found) and found[-1].name == "TensorRTOutputPH_0"


# What was in no engine when the tables were recorded: slices with a new axis have become ExpandDims since.
_OUTSIDE = {**keras_layers.KEPT_NATIVE, "ranker": r"(.*/)?strided_slice", "bert_encoder": r"(.*/)?strided_slice_2"}


# Tables of layers that Keras 3 writes with other nodes.
_OF_KERAS_2 = {
    *(
        "attention",
        "conv1d",
        "digits_cnn",
        "einsums",
        "grouped",
        "lstm_tagger",
        "mobilenet_v2",
        "resnet50",
        "spread_cnn",
    ),
    *("squeeze_and_excite", "unet"),
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=[stacks.needs_keras_2] if name in _OF_KERAS_2 else [])
        for name in RECORDED
        for mode in RECORDED[name]
    ],
)
def test_predicted_tables_are_those_recorded_on_a_gpu(zoo_model, tmp_path_factory, name, mode):
    recorded = RECORDED[name][mode]
    path = (
        keras_layers.built_once(name, tmp_path_factory)
        if name in keras_layers.BUILDERS
        else zoo_model(name, **_AS_RECORDED.get(name, {}))
    )
    root = tf.saved_model.load(str(path))
    for signature, tables in recorded["names"].items():
        settings = Settings(
            use_dynamic_shape=mode == "dynamic", precision_mode="INT8", keep_native_nodes=_OUTSIDE.get(name, "")
        )
        graph_def = prepare.passed(signature, root.signatures[signature], settings, patterns.Patterns())[1].graph_def
        functions = {function.signature.name: function for function in graph_def.library.function}
        engines = list(graph.engine_nodes(graph_def))
        zeros = recorded.get("zero", {}).get(signature, [[] for _ in tables])
        for engine, shapes, names, zero in zip(engines, recorded["shapes"][signature], tables, zeros, strict=True):
            if names is None:
                continue
            function = functions[engine.attr["segment_func"].func.name]
            found = tensor_names.names(function, mode == "dynamic", [tuple(shape) for shape in shapes])
            # Of parallel branches TF-TRT takes now one first, now the other, in the pass and in the build: numbering.py.
            free = numbering.varying(function, True, shapes).keys() if name in _RENUMBERED else set()
            assert {*names, *zero} - {tensor.name for tensor in found} <= free
            assert {tensor.name for tensor in found} - {*names, *zero} <= free
            assert len(found) == len({*names, *zero}) == len(names + zero)
            if name not in _BRANCHED:
                assert [tensor.name for tensor in found if tensor.name not in zero] == names
