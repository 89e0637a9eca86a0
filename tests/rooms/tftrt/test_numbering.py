"""Numbered names in tables of networks whose layers TF-TRT orders anew for each build."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.weights_of import weights
from tftrt_tools.models.savedmodel.job import graph
from tftrt_tools.tftrt.calibration.file import EngineTable
from tftrt_tools.tftrt.calibration.job import fitting, numbering, tensor_names
from tftrt_tools.tftrt.calibration.table import Table, header, is_numbered
from tftrt_tools.tftrt.conversion.job import graph_pass, int8
from tftrt_tools.tftrt.conversion.settings import Settings

BUILDS = 8


def segment_of(tmp_path, body):
    """The only native segment that TF-TRT makes of `body`, with images of 8 x 8 x 4 as input."""
    module = tf.Module()
    module.call = tf.function(
        body, input_signature=[tf.TensorSpec((None, 8, 8, 4), tf.float32, name="x")], autograph=False
    )
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.call)
    root = tf.saved_model.load(str(tmp_path / "model"))
    graph_def = graph_pass.run(
        graph_pass.freeze("serving_default", root.signatures["serving_default"]), Settings(use_dynamic_shape=True)
    ).graph_def
    (engine,) = graph.engine_nodes(graph_def)
    (function,) = (
        one for one in graph_def.library.function if one.signature.name == engine.attr["segment_func"].func.name
    )
    return function


def branches(first, second):
    """Blocks of two parallel convolutions with biases of these sizes, as in a residual network."""

    def conv(x, bias, name):
        kernel = weights(1, 1, 4, 4) * bias  # not the same in both branches, which would then be merged
        return tf.nn.bias_add(
            tf.nn.conv2d(x, kernel, 1, "SAME", name=name + "_conv"), tf.fill([4], np.float32(bias)), name=name + "_bias"
        )

    def body(x):
        for block in range(6):
            x = tf.nn.relu(conv(x, first, f"b{block}_left") + conv(x, second, f"b{block}_right"), name=f"b{block}_out")
        return {"y": x}

    return body


@pytest.fixture
def network(tmp_path):
    """A function (first bias, second bias) -> (segment, its table)."""

    def made(first, second):
        function = segment_of(tmp_path, branches(first, second))
        named = tensor_names.names(function, True, [(None, 8, 8, 4)])
        constants = fitting.constants(function)
        scales = {
            one.name: fitting.constant_scale(constants[one.tensor], "max") if one.tensor in constants else 0.1
            for one in named
        }
        return function, EngineTable(
            segment="sha256:x", signature="serving_default", engine="engine", table=Table(header("8.5.3"), scales)
        )

    return made


def test_names_of_nodes_are_the_same_in_every_build(network):
    function, made = network(1.0, 2.0)
    builds = [tensor_names.names(function, True, [(None, 8, 8, 4)]) for _ in range(BUILDS)]
    nodes = [{one.name: one.tensor for one in build if not is_numbered(one.name)} for build in builds]
    assert all(one == nodes[0] for one in nodes)


def test_a_number_that_varies_gets_the_largest_of_its_tensors_scales(network):
    function, made = network(1.0, 2.0)
    varying = numbering.varying(function, True, [(None, 8, 8, 4)])
    settled = numbering.settled(made, function, True, [(None, 8, 8, 4)], "max")
    assert varying and varying == numbering.varying(function, True, [(None, 8, 8, 4)])
    constants = fitting.constants(function)
    for name, tensors in varying.items():
        largest = max(fitting.constant_scale(constants[tensor], "max") for tensor in tensors)
        assert settled.table.scales[name] == pytest.approx(largest)
    assert any(len(tensors) > 1 for tensors in varying.values())
    for build in (tensor_names.names(function, True, [(None, 8, 8, 4)]) for _ in range(BUILDS)):
        for one in build:
            if one.tensor in constants:
                assert settled.table.scales[one.name] >= 0.99 * fitting.constant_scale(constants[one.tensor], "max")
    rest = made.table.scales.keys() - varying.keys()
    assert all(settled.table.scales[name] == made.table.scales[name] for name in rest)


def test_scales_too_far_apart_are_left_out(network):
    function, made = network(1.0, 100.0)
    settled = numbering.settled(made, function, True, [(None, 8, 8, 4)], "max")
    varying = numbering.varying(function, True, [(None, 8, 8, 4)])
    gone = set(varying) & dict(settled.left_out).keys()
    assert gone and not gone & settled.table.scales.keys()
    assert {reason for name, reason in settled.left_out} == {numbering.VARIES}


def test_without_branches_nothing_changes(tmp_path):
    function = segment_of(
        tmp_path,
        lambda x: {"y": tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, weights(1, 1, 4, 4), 1, "SAME"), [1.0] * 4))},
    )
    assert numbering.varying(function, True, [(None, 8, 8, 4)]) == {}


def test_the_constant_of_a_node_kept_high_has_no_scale_under_any_of_its_numbers(network):
    """Neither when the model is converted nor when its engines are built, which names all numbers anew."""
    function, made = network(1.0, 2.0)
    shapes, kept = (
        [(None, 8, 8, 4)],
        Settings(precision_mode="INT8", high_precision_nodes=".*b3_left_bias", use_dynamic_shape=True),
    )
    named = {one.name: one.tensor for one in tensor_names.names(function, True, shapes)}
    excluded = int8._inputs_of(function, kept.high_precision_nodes, True, shapes)
    (constant,) = {named[name] for name in excluded if is_numbered(name)}
    meant = {name for name, tensors in numbering.varying(function, True, shapes).items() if constant in tensors}
    converted = int8._settled(made, function, shapes, "max", kept)
    built = int8._settled(fitting.fitted(converted, function, True, shapes, "max"), function, shapes, "max", kept)
    for one in (converted, built):
        assert len(meant) > 1 and not (excluded | meant) & one.table.scales.keys()
        assert {reason for name, reason in one.left_out if name in meant} == {"--high_precision_nodes"}
    assert len(built.table.scales) > 20


def test_what_was_removed_by_hand_stays_out(network):
    function, made = network(1.0, 2.0)
    shapes = [(None, 8, 8, 4)]
    name = min(numbering.varying(function, True, shapes).keys() & made.table.scales.keys())
    scales = {one: scale for one, scale in made.table.scales.items() if one != name}
    removed = dataclasses.replace(made, table=Table(made.table.header, scales), left_out=((name, "removed"),))
    settled = numbering.settled(removed, function, True, shapes, "max")
    assert name not in settled.table.scales and dict(settled.left_out)[name] == "removed"
