"""Small ONNX files, written with the package onnx."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TYPES = {
    "float32": TensorProto.FLOAT,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "string": TensorProto.STRING,
}


def values(*specs):
    """ValueInfos. Args: specs: (name, dtype, shape) each; a size that is a text is open."""
    return [helper.make_tensor_value_info(name, _TYPES[dtype], shape) for name, dtype, shape in specs]


def write(path, nodes, inputs, outputs, constants=None, opset=13, outside=False, properties=None):
    """Write a model. Args: inputs, outputs: of `values`. constants: {name: array}. outside: put their data into a file beside it.
    properties: its metadata. Returns: the path, as text."""
    held = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    helper.set_model_props(model, properties or {})
    onnx.save(
        model,
        str(path),
        save_as_external_data=outside,
        location=f"{path.name}.data" if outside else None,
        size_threshold=0,
    )
    return str(path)


def product(path, rows="batch", outside=False, seed=0, **more):
    """x [rows, 4] times a constant [4, 3], drawn from a seed, gives y."""
    weights = np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32)
    return write(
        path,
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        values(("x", "float32", (rows, 4))),
        values(("y", "float32", (rows, 3))),
        {"w": weights},
        outside=outside,
        **more,
    )


def foreign(path, opset=18):
    """What exporters write that needs care. y is x [?, 4, ?] with a zero around its rows, split in two and added to the second input z, times a
    constant; nodes without names, one of which would be called as another one; a dimension "?" twice; metadata."""
    constants = {
        "w": np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32),
        "pads": np.array([0, 1, 0, 0, 1, 0]),
    }
    parts = {"num_outputs": 2} if opset >= 18 else {}
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"], name="c"),
        helper.make_node("Split", ["padded"], ["a", "b"], name="split", axis=1, **parts),
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["d"]),
        helper.make_node("Add", ["d", "z"], ["y"]),
    ]
    return write(
        path,
        nodes,
        values(("z", "float32", (8,)), ("x", "float32", ("?", 4, "?"))),
        values(("y", "float32", ("?", 3, 8))),
        constants,
        opset=opset,
        properties={"license": "its own", "tftrt.tool": "older"},
    )


def two_products(path):
    """y is relu(x first) second, of x [batch, 64]: two products that INT8 may take."""
    rng = np.random.default_rng(0)
    constants = {name: rng.normal(size=(64, 64)).astype(np.float32) for name in ("a", "b")}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["t"], name="first"),
        helper.make_node("Relu", ["t"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "b"], ["y"], name="second"),
    ]
    return write(path, nodes, *(values((name, "float32", ("batch", 64))) for name in "xy"), constants)


TALL_ROWS, TALL_WIDTH, TALL_NODES = 1024, 1024, "square,mix,root"


def tall(path):
    """y is sqrt((x * x) m) w, of x [n, TALL_WIDTH]. With x from 250 to 300 the squares, and what is mixed of them, are beyond FP16's 65,504. TALL_NODES
    are the nodes that have to stay in FP32."""
    rng = np.random.default_rng(0)
    constants = {
        "m": rng.random((TALL_WIDTH, TALL_WIDTH)).astype(np.float32) * 2 / TALL_WIDTH,
        "w": rng.normal(size=(TALL_WIDTH, TALL_WIDTH)).astype(np.float32) / TALL_WIDTH**0.5,
    }
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["s"], name="square"),
        helper.make_node("MatMul", ["s", "m"], ["t"], name="mix"),
        helper.make_node("Sqrt", ["t"], ["r"], name="root"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="product"),
    ]
    return write(path, nodes, *(values((name, "float32", ("n", TALL_WIDTH))) for name in "xy"), constants)


def moved_and_clamped(path):
    """y is a product of log(max(x * x, 1e-12)), x of [n, 64]; moved is t, of [n, 4], with its axes turned."""
    constants = {"e": np.float32(1e-12), "w": np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32) / 20}
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["p"], name="power"),
        helper.make_node("Max", ["p", "e"], ["m"], name="clamp"),
        helper.make_node("Log", ["m"], ["l"], name="log"),
        helper.make_node("MatMul", ["l", "w"], ["y"], name="product"),
        helper.make_node("Transpose", ["t"], ["moved"], name="turn", perm=[1, 0]),
    ]
    return write(
        path,
        nodes,
        values(("x", "float32", ("n", 64)), ("t", "float32", ("n", 4))),
        values(("y", "float32", ("n", 8)), ("moved", "float32", (4, "n"))),
        constants,
        opset=16,
    )


def wide(path):
    """A convolution of x [n, 1, 20, 48] whose kernel, 3 x 40, reaches over most of the width; y is [n, 8, 20, 9]."""
    constants = {"w": np.random.default_rng(0).normal(size=(8, 1, 3, 40)).astype(np.float32) / 10}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="wide", pads=[1, 0, 1, 0]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    return write(
        path, nodes, values(("x", "float32", ("n", 1, 20, 48))), values(("y", "float32", ("n", 8, 20, 9))), constants
    )


def mobile(path, blocks=4):
    """A picture x of 16 x 16, and convolutions, each with a learned scale and shift behind it, a hard swish made of four ops, and a scale."""
    rng, channels = np.random.default_rng(0), 8
    constants = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)}
    nodes, x = [], "x"
    for block in range(blocks):
        rows = 3 if block == 0 else channels
        constants[f"w{block}"] = (rng.standard_normal((channels, rows, 3, 3)) / np.sqrt(4 * rows)).astype(np.float32)
        constants[f"scale{block}"] = np.float32([1.5])
        constants[f"shift{block}"] = np.float32([0.25])
        constants[f"last{block}"] = np.float32([0.75])
        steps = [
            ("Conv", [x, f"w{block}"], {"pads": [1, 1, 1, 1]}),
            ("Mul", [f"scale{block}", "{0}"], {}),
            ("Add", ["{1}", f"shift{block}"], {}),
            ("Add", ["{2}", "three"], {}),
            ("Clip", ["{3}", "zero", "six"], {}),
            ("Mul", ["{2}", "{4}"], {}),
            ("Div", ["{5}", "six"], {}),
            ("Mul", ["{6}", f"last{block}"], {}),
        ]
        made = [f"b{block}/{op}{number}" for number, (op, _, _) in enumerate(steps)]
        for number, (op, inputs, given) in enumerate(steps):
            named = [one.format(*made) for one in inputs]
            nodes.append(helper.make_node(op, named, [made[number]], name=made[number], **given))
        x = made[-1]
    nodes.append(helper.make_node("Identity", [x], ["y"], name="y"))
    shape = ("batch", 3, 16, 16)
    return write(
        path,
        nodes,
        values(("x", "float32", shape)),
        values(("y", "float32", ("batch", channels, 16, 16))),
        constants,
        14,
    )


def decided(path, rank=()):
    """x [rows, 4] times one of two constants, by sr."""
    constants = {
        f"w{rate}": np.random.default_rng(rate).normal(size=(4, 3)).astype(np.float32) for rate in (8000, 16000)
    }
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("MatMul", ["x", f"w{rate}"], [name], name=name)],
            name,
            [],
            values((name, "float32", ("rows", 3))),
        )
        for name, rate in (("then", 16000), ("else", 8000))
    }
    nodes = [
        helper.make_node("Equal", ["sr", "fast"], ["is_fast"], name="is_fast"),
        helper.make_node("If", ["is_fast"], ["y"], name="rate", **branches),
    ]
    return write(
        path,
        nodes,
        values(("x", "float32", ("rows", 4)), ("sr", "int64", rank)),
        values(("y", "float32", ("rows", 3))),
        {**constants, "fast": np.array(16000)},
        opset=16,
    )


def chosen(path):
    """The places and the values of the numbers in x [length] that are above 0: outputs whose shapes depend on values."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("NonZero", ["r"], ["places"]),
        helper.make_node("Transpose", ["places"], ["t"], perm=[1, 0]),
        helper.make_node("GatherND", ["r", "t"], ["values"]),
    ]
    return write(
        path,
        nodes,
        values(("x", "float32", ("length",))),
        values(("places", "int64", (1, "count")), ("values", "float32", ("count",))),
    )


def quantized(path):
    """As `product`, with QuantizeLinear and DequantizeLinear around x and around the constant, wide enough for an INT8 kernel."""
    weights = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    constants = {
        "w": weights,
        "sx": np.float32(4 / 127),
        "sw": np.float32(np.abs(weights).max() / 127),
        "zero": np.int8(0),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zero"], ["qx"]),
        helper.make_node("DequantizeLinear", ["qx", "sx", "zero"], ["dx"]),
        helper.make_node("QuantizeLinear", ["w", "sw", "zero"], ["qw"]),
        helper.make_node("DequantizeLinear", ["qw", "sw", "zero"], ["dw"]),
        helper.make_node("MatMul", ["dx", "dw"], ["y"], name="product"),
    ]
    return write(
        path, nodes, values(("x", "float32", ("batch", 64))), values(("y", "float32", ("batch", 64))), constants
    )
