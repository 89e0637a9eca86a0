"""The digest of a native segment: what leaves it as it is, and what changes it."""

import copy
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import attr_value_pb2, function_pb2, tensor_pb2, types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from tests.conftest import ROOT
from tftrt_tools.models.savedmodel.job import segments

WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)


def node(function, name, op, inputs, **types):
    made = function.node_def.add(name=name, op=op, input=inputs)
    for key, number in types.items():
        made.attr[key].type = number
    return made


def constant(function, name, value):
    made = node(function, name, "Const", [], dtype=types_pb2.DT_FLOAT)
    made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return made


def empty(name, inputs=(), outputs=()):
    function = function_pb2.FunctionDef()
    function.signature.name = name
    for given_name in inputs:
        function.signature.input_arg.add(name=given_name, type=types_pb2.DT_FLOAT)
    for given_name in outputs:
        function.signature.output_arg.add(name=given_name, type=types_pb2.DT_FLOAT)
    return function


def segment():
    """out_0 = relu(a @ w - b); out_1 = softmax of the same."""
    function = empty("native_segment", ["a", "b"], ["out_0", "out_1"])
    constant(function, "w", WEIGHTS)
    product = node(function, "mul", "MatMul", ["a", "w:output:0"], T=types_pb2.DT_FLOAT)
    product.attr["transpose_a"].b = False
    product.attr["transpose_b"].b = False
    node(function, "sub", "Sub", ["mul:product:0", "b"], T=types_pb2.DT_FLOAT)
    node(function, "relu", "Relu", ["sub:z:0"], T=types_pb2.DT_FLOAT)
    node(function, "softmax", "Softmax", ["sub:z:0"], T=types_pb2.DT_FLOAT)
    function.ret["out_0"] = "relu:activations:0"
    function.ret["out_1"] = "softmax:softmax:0"
    return function


def digest(function, *called, names=False):
    return segments.digest(function, {one.signature.name: one for one in called}, names)


def named(function, name):
    return next(one for one in function.node_def if one.name == name)


def renamed(function, label, seed):
    """The same function with other names of nodes, arguments and of itself, and its nodes in another order."""
    names = {one.name: f"{label}/{one.name}" for one in [*function.node_def, *function.signature.input_arg]}

    def source(text):
        mark, name = ("^", text[1:]) if text.startswith("^") else ("", text)
        name, colon, port = name.partition(":")
        return mark + names[name] + colon + port

    other = copy.deepcopy(function)
    other.signature.name = label
    for one in [*other.signature.input_arg, *other.node_def]:
        one.name = names[one.name]
    for one in other.node_def:
        one.input[:] = map(source, one.input)
    nodes = list(other.node_def)
    random.Random(seed).shuffle(nodes)
    del other.node_def[:]
    other.node_def.extend(nodes)
    other.ret.clear()
    for position, arg in enumerate(other.signature.output_arg):
        before, arg.name = arg.name, f"{label}_{position}"
        other.ret[arg.name] = source(function.ret[before])
    return other


def test_a_digest_says_which_hash_it_is():
    assert digest(segment()).startswith("sha256:") and len(digest(segment())) == len("sha256:") + 64


def test_names_and_order_do_not_count():
    assert digest(renamed(segment(), "other", 1)) == digest(segment())


def test_with_names_the_order_does_not_count_and_names_do():
    function = segment()
    shuffled = copy.deepcopy(function)
    nodes = list(reversed(shuffled.node_def))
    del shuffled.node_def[:]
    shuffled.node_def.extend(nodes)
    shuffled.signature.name = "another"
    assert digest(shuffled, names=True) == digest(function, names=True)
    assert digest(renamed(function, "other", 1), names=True) != digest(function, names=True)
    assert digest(function, names=True) != digest(function)


@pytest.mark.parametrize("given_name", ["w", "mul", "relu"])
def test_with_names_each_nodes_name_counts(given_name):
    other = segment()
    for one in other.node_def:
        one.input[:] = [source.replace(f"{given_name}:", f"{given_name}2:") for source in one.input]
    for key, source in list(other.ret.items()):
        other.ret[key] = source.replace(f"{given_name}:", f"{given_name}2:")
    named(other, given_name).name += "2"
    assert digest(other) == digest(segment()) and digest(other, names=True) != digest(segment(), names=True)


def test_with_names_the_arguments_names_count():
    other = segment()
    other.signature.input_arg[0].name = "x"
    named(other, "mul").input[0] = "x"
    assert digest(other) == digest(segment()) and digest(other, names=True) != digest(segment(), names=True)


def harmless(function, what):
    mul = named(function, "mul")
    if what == "device":
        mul.device = "/device:GPU:0"
    elif what == "attributes that begin with _":
        mul.attr["_output_shapes"].list.shape.add().unknown_rank = True
    elif what == "control input":
        mul.input.append("^w")
    elif what == "debug information":
        mul.experimental_debug_info.original_node_names.append("m")
    elif what == "attributes of the function":
        function.attr["_noinline"].b = True
        function.arg_attr[0].attr["_output_shapes"].list.shape.add()
    elif what == "a default left out":
        del mul.attr["transpose_a"]
    elif what == "a node that reaches no output":
        constant(function, "lost", WEIGHTS * 2)
    elif what == "index 0 of an argument":
        mul.input[0] = "a:0"


@pytest.mark.parametrize(
    "what",
    [
        "device",
        "attributes that begin with _",
        "control input",
        "debug information",
        "attributes of the function",
        "a default left out",
        "a node that reaches no output",
        "index 0 of an argument",
    ],
)
def test_what_does_not_count(what):
    function = segment()
    harmless(function, what)
    assert function != segment() and digest(function) == digest(segment())


def swap(arguments):
    first, second = copy.deepcopy(arguments[0]), copy.deepcopy(arguments[1])
    arguments[0].CopyFrom(second)
    arguments[1].CopyFrom(first)


def set_weights(function, value):
    named(function, "w").attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))


def next_float(value):
    value = value.copy()
    value[-1, -1] = np.nextafter(value[-1, -1], np.float32(100))
    return value


CHANGES = {
    "one weight": lambda function: set_weights(function, next_float(WEIGHTS)),
    "shape of the weights": lambda function: set_weights(function, WEIGHTS.reshape(4, 3)),
    "type of the weights": lambda function: set_weights(function, WEIGHTS.view(np.int32)),
    "attribute": lambda function: setattr(named(function, "mul").attr["transpose_b"], "b", True),
    "op": lambda function: setattr(named(function, "sub"), "op", "AddV2"),
    "edge": lambda function: named(function, "relu").input.__setitem__(0, "mul:product:0"),
    "order of a node's inputs": lambda function: named(function, "sub").input.reverse(),
    "port": lambda function: named(function, "relu").input.__setitem__(0, "sub:z:1"),
    "order of the inputs": lambda function: swap(function.signature.input_arg),
    "order of the outputs": lambda function: swap(function.signature.output_arg),
    "type of an input": lambda function: setattr(function.signature.input_arg[0], "type", types_pb2.DT_HALF),
    "type of an output": lambda function: setattr(function.signature.output_arg[0], "type", types_pb2.DT_HALF),
    "an input more": lambda function: function.signature.input_arg.add(name="c", type=types_pb2.DT_FLOAT),
    "an output less": lambda function: function.signature.output_arg.pop(),
    "source of an output": lambda function: function.ret.update(out_1="sub:z:0"),
}


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_what_counts(what, names):
    function = segment()
    CHANGES[what](function)
    assert digest(function, names=names) != digest(segment(), names=names)


def test_no_two_changes_are_alike():
    changes = []
    for change in CHANGES.values():
        function = segment()
        change(function)
        changes.append(digest(function))
    assert len(set(changes)) == len(CHANGES)


def proto(dtype, dims, **fields):
    made = tensor_pb2.TensorProto(dtype=dtype, **fields)
    for dim in dims:
        made.tensor_shape.dim.add(size=dim)
    return made


def with_value(tensor):
    function = empty("f", [], ["out"])
    made = node(function, "w", "Const", [])
    made.attr["dtype"].type = tensor.dtype
    made.attr["value"].tensor.CopyFrom(tensor)
    function.ret["out"] = "w:output:0"
    return digest(function)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            proto(types_pb2.DT_FLOAT, [4], tensor_content=np.full(4, 2, np.float32).tobytes()),
            proto(types_pb2.DT_FLOAT, [4], float_val=[2]),
        ),
        (
            proto(types_pb2.DT_FLOAT, [4], tensor_content=np.float32([1, 2, 2, 2]).tobytes()),
            proto(types_pb2.DT_FLOAT, [4], float_val=[1, 2]),
        ),
        (proto(types_pb2.DT_FLOAT, [2], tensor_content=bytes(8)), proto(types_pb2.DT_FLOAT, [2])),
        (
            proto(types_pb2.DT_INT32, [2, 2], tensor_content=np.full(4, 7, np.int32).tobytes()),
            proto(types_pb2.DT_INT32, [2, 2], int_val=[7]),
        ),
        (
            proto(types_pb2.DT_INT64, [], tensor_content=np.int64(-1).tobytes()),
            proto(types_pb2.DT_INT64, [], int64_val=[-1]),
        ),
        (
            proto(types_pb2.DT_HALF, [3], tensor_content=np.full(3, 1.5, np.float16).tobytes()),
            proto(types_pb2.DT_HALF, [3], half_val=[int(np.float16(1.5).view(np.uint16))]),
        ),
        (proto(types_pb2.DT_BOOL, [2], tensor_content=b"\1\1"), proto(types_pb2.DT_BOOL, [2], bool_val=[True])),
        (
            proto(types_pb2.DT_STRING, [2], string_val=[b"a", b"a"]),
            proto(types_pb2.DT_STRING, [2], string_val=[b"a", b"a"]),
        ),
    ],
    ids=["repeated", "last repeated", "nothing said", "int32", "int64 scalar", "half", "bool", "string"],
)
def test_the_encoding_of_a_constant_does_not_count(one, other):
    assert with_value(one) == with_value(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            proto(types_pb2.DT_STRING, [2], string_val=[b"ab", b"c"]),
            proto(types_pb2.DT_STRING, [2], string_val=[b"a", b"bc"]),
        ),
        (proto(types_pb2.DT_FLOAT, [2], float_val=[1]), proto(types_pb2.DT_FLOAT, [3], float_val=[1])),
        (proto(types_pb2.DT_INT32, [1], int_val=[0]), proto(types_pb2.DT_FLOAT, [1], float_val=[0])),
        (proto(types_pb2.DT_FLOAT, [1], float_val=[0.0]), proto(types_pb2.DT_FLOAT, [1], float_val=[-0.0])),
    ],
)
def test_constants_that_differ(one, other):
    assert with_value(one) != with_value(other)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20), st.integers(0, 5))
def test_any_float_constant_has_one_digest_in_both_encodings(values, repeated):
    values = np.float32(values + [values[-1]] * repeated)
    short = proto(
        types_pb2.DT_FLOAT, [len(values)], float_val=[float(value) for value in values[: len(values) - repeated]]
    )
    assert with_value(short) == with_value(proto(types_pb2.DT_FLOAT, [len(values)], tensor_content=values.tobytes()))


def calling(name, key="f"):
    function = empty("outer", ["x"], ["y"])
    made = node(function, "call", "PartitionedCall", ["x"])
    made.attr[key].func.name = name
    function.ret["y"] = "call:output:0"
    return function


def called(name, op):
    function = empty(name, ["x"], ["y"])
    node(function, "do", op, ["x"], T=types_pb2.DT_FLOAT)
    function.ret["y"] = "do:activations:0"
    return function


def test_a_called_function_counts_by_what_it_does():
    relu = digest(calling("one"), called("one", "Relu"))
    assert relu == digest(calling("two"), called("two", "Relu")) != digest(calling("one"), called("one", "Relu6"))
    assert relu != digest(calling("one")), "a function that is not in the library counts by its name"


def test_lists_of_functions_count_by_what_they_do():
    def cases(*names):
        function = empty("outer", ["x"], ["y"])
        made = node(function, "case", "Case", ["x"])
        made.attr["branches"].CopyFrom(
            attr_value_pb2.AttrValue(
                list=attr_value_pb2.AttrValue.ListValue(func=[attr_value_pb2.NameAttrList(name=name) for name in names])
            )
        )
        function.ret["y"] = "case:output:0"
        return digest(function, called("a", "Relu"), called("b", "Relu6"), called("c", "Relu"))

    assert cases("a", "b") == cases("c", "b") != cases("b", "a")


@pytest.mark.parametrize(
    ("function", "library", "says"),
    [
        (calling("outer"), [calling("outer")], "calls itself"),
        (called("f", "Relu"), [], "no node"),
        (called("f", "Relu"), [], "cycle"),
        (called("f", "Relu"), [], "has no source"),
    ],
)
def test_what_is_no_segment_is_a_value_error(function, library, says):
    function = copy.deepcopy(function)
    if says == "no node":
        function.node_def[0].input[0] = "nowhere:output:0"
    elif says == "cycle":
        function.node_def[0].input[0] = "do:activations:0"
    elif says == "has no source":
        function.ret.clear()
    with pytest.raises(ValueError, match=says):
        digest(function, *library)


def test_a_segment_deeper_than_pythons_stack():
    def chain(length):
        function = empty("f", ["x"], ["y"])
        source = "x"
        for number in range(length):
            node(function, f"n{number}", "Relu", [source], T=types_pb2.DT_FLOAT)
            source = f"n{number}:activations:0"
        function.ret["y"] = source
        return digest(function)

    assert chain(5000) == chain(5000) != chain(5001)


@st.composite
def graphs(draw):
    """A function of elementwise ops: each node takes earlier values."""
    function = empty("f", ["a", "b"], ["y"])
    values = ["a", "b"]
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["Const", "Relu", "Add", "Mul"]))
        name = f"n{number}"
        if kind == "Const":
            constant(function, name, draw(st.floats(-8, 8, width=32)))
            values.append(f"{name}:output:0")
            continue
        inputs = [draw(st.sampled_from(values)) for _ in range(1 if kind == "Relu" else 2)]
        node(function, name, kind, inputs, T=types_pb2.DT_FLOAT)
        values.append(f"{name}:" + ("activations:0" if kind == "Relu" else "z:0"))
    function.ret["y"] = values[-1]
    return function


@settings(deadline=None)
@given(graphs(), st.integers(0, 2**32))
def test_any_graph_keeps_its_digest_under_other_names_and_orders(function, seed):
    assert digest(renamed(function, "x", seed)) == digest(function)


@settings(deadline=None)
@given(graphs(), st.data())
def test_any_change_of_a_node_that_counts_changes_the_digest(function, data):
    other = copy.deepcopy(function)
    last = function.ret["y"].partition(":")[0]
    before, last = digest(function), named(other, last)
    kind = data.draw(st.sampled_from(["op", "attribute"]))
    if kind == "op":
        last.op += "Other"
    else:
        last.attr["T"].type = types_pb2.DT_HALF
    assert digest(other) != before


IN_A_PROCESS = """
import json, sys
from tftrt_tools.tftrt.conversion.job import graph_pass, prepare
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.models.savedmodel.job import loading, segments
model = loading.load(sys.argv[1], ())
found = {}
for dynamic in json.loads(sys.argv[2]):
    settings = Settings(use_dynamic_shape=dynamic)
    frozen, _ = prepare.passed("serving_default", model.root.signatures["serving_default"], settings)
    passed = graph_pass.run(frozen, settings)
    found[str(dynamic)] = [list(segments.engine_digests(passed.graph_def, names).values()) for names in (False, True)]
print("@" + json.dumps(found))
"""


def converted_elsewhere(model, *dynamic):
    """{"True" or "False": [digests, digests with names]} of the model's segments, converted in another process."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, model, json.dumps(dynamic)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONHASHSEED": "random"},
    )
    return json.loads(done.stdout.rpartition("@")[2])


@pytest.mark.slow
def test_every_conversion_of_a_model_gives_its_segment_the_same_digests(zoo_model, converted):
    one = converted_elsewhere(zoo_model("digits_cnn"), False, True)
    other = converted_elsewhere(zoo_model("digits_cnn"), False)
    assert one["False"] == other["False"] and one["True"] == one["False"] and len(one["False"][0]) == 1
    # In the SavedModel defaults are dropped and functions have other names.
    saved = saved_model_pb2.SavedModel.FromString(
        (converted("digits_cnn", "--precision=FP16") / "saved_model.pb").read_bytes()
    )
    graph_def = saved.meta_graphs[0].graph_def
    for names in (False, True):
        assert list(segments.engine_digests(graph_def, names).values()) == one["False"][names]
