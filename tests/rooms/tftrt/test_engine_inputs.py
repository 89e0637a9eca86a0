"""What reaches the engine ops for given calls; a call that the model refuses."""

import pytest
import tensorflow as tf

from tests import signature_models as models
from tests import stacks
from tests.engine_models import Branches, Characters, Recurrent, saved
from tftrt_tools.base import errors, tf_private
from tftrt_tools.models.engine_cache.key import Fed
from tftrt_tools.models.savedmodel.job import control_flow, inline, loading
from tftrt_tools.tftrt.conversion.job import engine_inputs, graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings


def of_calls(path, *calls, smallest=3):
    return inputs_of(path, *calls, smallest=smallest).feeds


def inputs_of(path, *calls, smallest=3):
    root = tf.saved_model.load(str(path))
    function = root.signatures["serving_default"]
    frozen = graph_pass.freeze("serving_default", function)
    graph_def = graph_pass.run(frozen, Settings(use_dynamic_shape=True, minimum_segment_size=smallest)).graph_def
    return engine_inputs.of_calls(frozen, graph_def, loading.input_specs(function), calls)


class Growing(tf.Module):
    """Each iteration of a loop gets a matrix product of another size; one loop in another."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.random.stateless_normal((8, 8), [1, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
    def __call__(self, x):
        for _ in tf.range(2):
            tf.autograph.experimental.set_loop_options(shape_invariants=[(x, tf.TensorShape([None, 8]))])
            for _ in tf.range(2):
                tf.autograph.experimental.set_loop_options(shape_invariants=[(x, tf.TensorShape([None, 8]))])
                x = tf.concat([x, x[:1]], axis=0)
                x = tf.nn.relu(1.0 - tf.matmul(x, self.w) * 2.0)
        return {"y": x}


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    """Keras' recurrent layers, whose loops TensorFlow lowers. With Keras 2 engines lie inside: those of the GRU have constants of their own."""
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Input((12, 8), name="x"), layers.LSTM(16, return_sequences=True), layers.GRU(8), layers.Dense(4)]
    )
    path = tmp_path_factory.mktemp("recurrent") / "model"
    tf.saved_model.save(model, str(path))
    return path


def test_shapes_come_from_inference_or_from_running_the_graph(zoo_model):
    found = of_calls(zoo_model("bert_encoder"), {"input_ids": (4, 16), "input_mask": (4, 16)})
    assert sorted(tuple(fed.shape for fed in call) for (call,) in found.values()) == [
        ((4, 16),),
        ((4, 16), (16, 64), (4, 1, 1, 16)),
    ]


def test_a_call_that_the_model_refuses_is_a_clear_error(zoo_model):
    """Shape inference finds it, before TensorFlow runs anything."""
    with pytest.raises(errors.TftrtError) as raised:
        of_calls(zoo_model("bert_encoder"), {"input_ids": (1, 16), "input_mask": (1, 8)})
    assert "fails at the declared shapes input_ids 1x16, input_mask 1x8: Dimensions must be equal" in raised.value.cause
    assert raised.value.mend == "check --shapes" and "\n" not in raised.value.cause


def test_engine_ops_inside_loops_are_looked_at_in_every_iteration(tmp_path):
    found = of_calls(saved(Recurrent(), tmp_path / "model"), {"x": (2, 12, 8)}, {"x": (4, 12, 8)})
    shapes = [[[fed.shape for fed in feed] for feed in feeds] for feeds in found.values()]
    # In the loop, all iterations have one size, once for each call: a gate and a product. The values of sizes count, too: the step's number.
    assert sorted(shapes, key=str) == [
        [[()]] * 12,
        [[(2, 12, 8)], [(4, 12, 8)]],
        [[(2, 8), (2, 8)], [(4, 8), (4, 8)]],
        [[(8, 8), (2, 8), (2, 8), (2, 8)], [(8, 8), (4, 8), (4, 8), (4, 8)]],
    ]


def test_segments_inside_loops_answer_when_inlined(recurrent):
    """A constant of a segment runs in its loop, too; calibration and simulation run such graphs."""
    root = tf.saved_model.load(str(recurrent))
    frozen = graph_pass.freeze("serving_default", root.signatures["serving_default"])
    inlined, _ = inline.inline_segments(graph_pass.run(frozen, Settings(use_dynamic_shape=True)).graph_def)
    x = tf.random.stateless_normal((2, 12, 8), [1, 2])
    expected, got = (
        tf.nest.flatten(function(**{stacks.SAVED_INPUT or "x": x}))
        for function in (frozen.original, tf_private.rebuild(inlined, frozen))
    )
    tf.debugging.assert_near(expected[0], got[0])


def test_a_loop_may_give_an_engine_op_other_sizes_each_time(tmp_path):
    found = of_calls(saved(Growing(), tmp_path / "model"), {"x": (3, 8)}, smallest=1)
    assert ((4, 8), (5, 8), (6, 8), (7, 8)) in {tuple(feed[0].shape for feed in feeds) for feeds in found.values()}


def test_a_branch_that_no_call_takes_reaches_no_engine_op(tmp_path):
    """Drawn integers are 0 or 1, so that the branch of 7 is not taken."""
    found = of_calls(saved(Branches(), tmp_path / "model"), {"x": (2, 8), "branch": ()})
    assert sorted(tuple(feed[0].shape for feed in feeds) for feeds in found.values()) == [(), ((2, 8),), ((2, 8),)]


def test_an_input_that_nothing_reads_is_no_matter(tmp_path):
    """A TF1 export's placeholder with a default, and one of a function."""
    assert set(of_calls(models.with_unread_input(tmp_path / "tf1"), {"x": (2, 8), "training": ()}).values()) == {
        ((Fed((2, 8)),),)
    }


def test_shapes_that_follow_the_values_are_told_apart(tmp_path):
    found = inputs_of(saved(Characters(), tmp_path / "model"), {"text": (4,)}, {"text": (16,)})
    fixed = {engine for engine, feeds in found.feeds.items() if {feed[0].shape[0] for feed in feeds} == {4, 16}}
    assert fixed and found.by_values and not fixed & found.by_values and fixed | found.by_values == set(found.feeds)


class Photos(tf.Module):
    """Decodes pictures and resizes them, one after the other."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.random.stateless_normal((3, 3, 3, 4), [1, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="jpeg")])
    def __call__(self, jpeg):
        def one(content):
            return tf.image.resize(tf.io.decode_jpeg(content, channels=3), (16, 16)) / 255.0

        x = tf.nn.conv2d(tf.map_fn(one, jpeg, fn_output_signature=tf.TensorSpec((16, 16, 3))), self.w, 2, "SAME")
        return {"y": tf.reduce_mean(tf.nn.relu(x), (1, 2))}


def test_a_model_that_decodes_pictures_is_given_some(tmp_path):
    found = inputs_of(saved(Photos(), tmp_path / "model"), {"jpeg": (1,)}, {"jpeg": (4,)})
    assert [(1, 16, 16, 3), (4, 16, 16, 3)] in [[feed[0].shape for feed in feeds] for feeds in found.feeds.values()]
    assert not found.by_values


def test_what_lies_behind_an_inner_loop_is_still_inside_the_outer():
    graph = tf.compat.v1.GraphDef()
    for name, op, *sources in [
        ("x", "Placeholder"),
        ("outer", "Enter", "x"),
        ("merge", "Merge", "outer", "next"),
        ("inner", "Enter", "merge"),
        ("left", "Exit", "inner:0"),
        ("behind", "Relu", "left"),
        ("next", "NextIteration", "behind"),
        ("out", "Exit", "behind"),
        ("y", "Relu", "out"),
        ("constant", "Const", "^merge"),
    ]:
        graph.node.add(name=name, op=op, input=sources)
    assert control_flow.in_loops(graph) == {"outer", "merge", "inner", "left", "behind", "next", "constant"}
