"""A converted graph with its native segments inlined: it answers as before, and every inner tensor can be fetched."""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tests import stacks
from tests.engine_models import Recurrent
from tests.zoo import zoo_inputs
from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.job import control_flow, graph, inline
from tftrt_tools.tftrt.conversion.job import prepare
from tftrt_tools.tftrt.conversion.settings import Settings

MODELS = {
    "digits_cnn": False,
    "ranker": False,
    "bert_encoder": False,
    "lstm_tagger": True,
    "dynamic_segmenter": False,
    "tf1_export": False,
    "mobilenet_v2": False,
}
# The scope of the digits CNN's last layer.
PROBABILITIES = f"StatefulPartitionedCall/{stacks.node('digits_cnn/probabilities/')}"


@dataclasses.dataclass(frozen=True)
class Inlined:
    root: object
    frozen: object
    converted: object
    graph_def: object
    tensors: dict


@pytest.fixture(scope="module")
def inlined(zoo_model):
    """A function (name) -> {signature: Inlined}."""
    known = {}

    def get(name):
        if name not in known:
            root = tf.saved_model.load(str(zoo_model(name)))
            known[name] = {
                signature: _inlined(root, signature, function, MODELS[name])
                for signature, function in root.signatures.items()
            }
        return known[name]

    return get


def _inlined(root, signature, function, dynamic):
    frozen, result = prepare.passed(signature, function, Settings(use_dynamic_shape=dynamic))
    return Inlined(root, frozen, result.graph_def, *inline.inline_segments(result.graph_def))


def fed(function, inputs):
    return function(**{name: tf.constant(value) for name, value in inputs.items()})


@pytest.mark.parametrize("name", MODELS)
def test_the_inlined_graph_answers_exactly_as_the_called_segments(name, inlined):
    for signature, one in inlined(name).items():
        inputs = zoo_inputs(name)[signature]
        called = graph_pb2.GraphDef.FromString(one.converted.SerializeToString())
        assert set(graph.native(called)) >= set(one.tensors)
        expected = fed(tf_private.rebuild(called, one.frozen), inputs)
        got = fed(tf_private.rebuild(one.graph_def, one.frozen), inputs)
        assert len(got) == len(expected) == len(one.frozen.outputs)
        for mine, theirs in zip(tf.nest.flatten(got), tf.nest.flatten(expected), strict=True):
            np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", MODELS)
def test_no_engine_op_and_no_inlined_segment_is_left(name, inlined):
    for one in inlined(name).values():
        engines = [node for node in one.converted.node if node.op == graph.ENGINE_OP]
        assert not list(graph.engine_nodes(one.graph_def))
        assert set(one.tensors) == {graph.engine_name(node.name) for node in engines}
        segments = {node.attr["segment_func"].func.name for node in engines}
        assert not segments & {function.signature.name for function in one.graph_def.library.function}


@pytest.mark.parametrize("name", MODELS)
def test_every_inner_tensor_is_a_tensor_of_the_graph(name, inlined):
    for one in inlined(name).values():
        with tf.Graph().as_default() as loaded:
            tf.graph_util.import_graph_def(one.graph_def, name="")
            for tensors in one.tensors.values():
                for inner, outer in tensors.items():
                    assert loaded.get_tensor_by_name(outer).op.outputs, inner


def test_an_inner_tensor_has_the_value_that_the_network_gives_it(inlined):
    one = inlined("digits_cnn")["serving_default"]
    tensors = next(iter(one.tensors.values()))
    image = zoo_inputs("digits_cnn")["serving_default"]["image"]
    names = [
        next(outer for inner, outer in tensors.items() if re.fullmatch(f"{PROBABILITIES}{op}:0", inner))
        for op in ("BiasAdd", "Softmax")
    ]
    module = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(one.graph_def, name=""), [])
    logits, probabilities = module.prune(one.frozen.inputs, names)(tf.constant(image))
    expected = fed(one.root.signatures["serving_default"], {"image": image})
    np.testing.assert_allclose(tf.nn.softmax(logits), next(iter(expected.values())), rtol=1e-5)
    np.testing.assert_allclose(probabilities, next(iter(expected.values())), rtol=1e-5)


def test_arguments_and_results_of_a_segment_are_among_its_tensors(inlined):
    one = inlined("digits_cnn")["serving_default"]
    ((engine, tensors),) = one.tensors.items()
    assert tensors["tensorrtinputph_0:0"] == one.frozen.inputs[0]
    assert re.fullmatch(f"{engine}/{PROBABILITIES}Softmax:0", tensors["tensorrtoutputph_0:0"])


def test_the_given_graph_is_left_as_it_is(inlined):
    one = inlined("digits_cnn")["serving_default"]
    assert [node.op for node in one.converted.node].count(graph.ENGINE_OP) == 1
    assert len(one.converted.library.function) == 1


def test_an_engine_without_native_segment_is_named(inlined):
    one = inlined("digits_cnn")["serving_default"]
    bare = graph_pb2.GraphDef.FromString(one.converted.SerializeToString())
    del bare.library.function[:]
    with pytest.raises(KeyError, match=next(iter(one.tensors))):
        inline.inline_segments(bare)


@tf.function(input_signature=[tf.TensorSpec([4], tf.float32)])
def _doubled(x):
    return x * 2.0


def made(body, **functions):
    """A GraphDef with one engine op (named "scope/TRTEngineOp_7", two outputs) whose segment is `body`."""
    result = graph_pb2.GraphDef()
    result.node.add(name="x", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
    wait = result.node.add(name="wait", op="NoOp")
    engine = result.node.add(name="scope/TRTEngineOp_7", op=graph.ENGINE_OP, input=["x", f"^{wait.name}"])
    engine.attr["segment_func"].func.name = body.signature.name
    for key, count in (("InT", len(body.signature.input_arg)), ("OutT", len(body.signature.output_arg))):
        engine.attr[key].list.type.extend([tf.float32.as_datatype_enum] * count)
    result.node.add(name="scope/TRTEngineOp_7/mul", op="NoOp", input=[f"^{engine.name}"])
    result.node.add(name="y", op="Identity", input=[f"{engine.name}:1"]).attr["T"].type = tf.float32.as_datatype_enum
    result.library.function.add().CopyFrom(body)
    result.library.function.extend(functions.values())
    return result


def run(graph_def, names, value):
    module = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph_def, name=""), [])
    return [tensor.numpy() for tensor in module.prune(["x:0"], names)(tf.constant(value))]


def test_several_outputs_list_outputs_taken_names_and_a_call_inside_a_segment():
    inner = _doubled.get_concrete_function()

    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)])
    def segment(x):
        first, second = tf.split(inner(x), 2, name="split")
        values, _ = tf.nn.top_k(x, 3, name="top")
        return {"a": tf.identity(second, name="part") - first, "b": values}

    body = segment.get_concrete_function()
    library = {function.signature.name: function for function in body.graph.as_graph_def().library.function}
    graph_def, tensors = inline.inline_segments(made(body.function_def, **library))
    names = [tensors["TRTEngineOp_7"][key] for key in ("split:0", "split:1", "top:1")]
    first, second, places, result = run(graph_def, [*names, "y:0"], np.float32([1, 4, 2, 3]))
    assert first.tolist() == [2, 8] and second.tolist() == [4, 6]
    assert places.tolist() == [1, 3, 2] and result.tolist() == [4, 3, 2]
    waiting = next(node for node in graph_def.node if node.name == "scope/TRTEngineOp_7")
    assert "^wait" in waiting.input
    assert len({node.name for node in graph_def.node}) == len(graph_def.node)
    assert any("Call" in node.op for node in graph_def.node)


def test_engine_ops_inside_functions_become_calls():
    body = _doubled.get_concrete_function().function_def
    holder = made(body)
    outer = graph_pb2.GraphDef(library=holder.library)
    function = outer.library.function.add()
    function.signature.name = "holder"
    inner = function.node_def.add()
    inner.CopyFrom(next(node for node in holder.node if node.op == graph.ENGINE_OP))
    graph_def, tensors = inline.inline_segments(outer)
    assert tensors == {}
    assert [
        node.op for function in graph_def.library.function for node in function.node_def if "TRTEngineOp" in node.name
    ] == ["PartitionedCall"]


def test_a_segment_with_a_constant_of_its_own_runs_inside_a_loop():
    """TensorFlow puts a call's nodes in its place; a constant that nothing ties to the loop is none of its nodes. A GRU has 1 - gate."""
    model = Recurrent()
    frozen, result = prepare.passed(
        "serving_default", model.__call__.get_concrete_function(), Settings(use_dynamic_shape=True)
    )
    segments = graph.native_segments(result.graph_def)
    inside = [
        segments[graph.engine_name(node.name)].function.node_def
        for node in graph.engine_nodes(result.graph_def)
        if node.name in control_flow.in_loops(result.graph_def)
    ]
    assert any({"Const", "Sub"} <= {node.op for node in nodes} for nodes in inside)
    graph.native(result.graph_def)
    x = tf.random.stateless_normal((2, 5, 8), [3, 4])
    got = tf.nest.flatten(tf_private.rebuild(result.graph_def, frozen)(x=x))
    np.testing.assert_allclose(got[0].numpy(), model(x)["y"].numpy(), atol=1e-6)
