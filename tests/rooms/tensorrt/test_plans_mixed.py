"""Nodes that an ONNX file in FP16 leaves in FP32 stay there in a plan. No engine can be built here: what TensorRT does of it, tests/gpu/test_gpu_plan_rewrites.py
looks at on a GPU."""

import types

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

trt = pytest.importorskip("tensorrt")
from tests import onnx_files  # noqa: E402
from tests.command_here import run_tftrt  # noqa: E402
from tftrt_tools.tensorrt.plans.job import mixed, network  # noqa: E402
from tftrt_tools.tensorrt.plans.settings import Settings  # noqa: E402


@pytest.fixture(scope="module")
def squares(tmp_path_factory):
    """y = sqrt(x * x) w, its product in FP16, its squares and roots in FP32; the file in FP32, and that in FP16."""
    folder = tmp_path_factory.mktemp("mixed")
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["s"], name="square"),
        helper.make_node("Sqrt", ["s"], ["r"], name="root"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="product"),
    ]
    plain = onnx_files.write(
        folder / "m.onnx",
        nodes,
        onnx_files.values(("x", "float32", ("n", 8))),
        onnx_files.values(("y", "float32", ("n", 4))),
        {"w": np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)},
    )
    done = run_tftrt(
        "export",
        plain,
        f"--output={folder / 'half.onnx'}",
        "--target=8.5",
        "--precision=FP16",
        "--fp32_nodes=square,root",
        "--ranges=x:1:2",
        "--shapes=x:4x8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return plain, str(folder / "half.onnx")


def test_the_tensors_in_fp32_are_those_of_the_nodes_that_were_named(squares):
    plain, half = squares
    found = mixed.wide(mixed.read(half), by_types=True)
    wide, computed = found.tensors, found.computed
    ops = {name: node.op_type for node in onnx.load(half).graph.node for name in node.output}
    assert {ops[name] for name in wide} == {"Mul", "Sqrt"} and computed == set(ops)
    assert "Cast" in ops.values() and "MatMul" in ops.values()
    assert not found.exact
    assert mixed.wide(mixed.read(plain), by_types=True) == mixed.Wide(), (
        "of a file in FP32 TensorRT chooses the precision"
    )
    assert mixed.wide(mixed.read(half), by_types=False) == mixed.Wide(), (
        "with INT8 float32 is the type of what is rounded, too"
    )


def test_what_is_moved_and_what_keeps_from_zero_is_among_them(tmp_path):
    source = onnx_files.moved_and_clamped(tmp_path / "m.onnx")
    done = run_tftrt(
        "export", source, f"--output={tmp_path / 'half.onnx'}", "--precision=FP16", "--shapes=x:4x64;t:4x4"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wide = mixed.wide(mixed.read(str(tmp_path / "half.onnx")), by_types=True).tensors
    assert {
        node.name for node in onnx.load(tmp_path / "half.onnx").graph.node for name in node.output if name in wide
    } == {"power", "clamp", "log", "turn"}


def spectrum(path, *, quantized=False):
    """A file in FP32: y = log(re² + im² + 1e-6) w, with a product by a quantized tensor in front, if asked for."""
    front = [
        helper.make_node("QuantizeLinear", ["x", "scale"], ["q"], name="round"),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["d"], name="unround"),
    ]
    source = "d" if quantized else "x"
    nodes = [
        *(front if quantized else []),
        helper.make_node("MatMul", [source, "cosines"], ["re"], name="real"),
        helper.make_node("MatMul", [source, "sines"], ["im"], name="imaginary"),
        *(helper.make_node("Mul", [one, one], [f"{one}2"], name=f"square {one}") for one in ("re", "im")),
        helper.make_node("Add", ["re2", "im2"], ["power"], name="power"),
        helper.make_node("Add", ["power", "least"], ["above"], name="above"),
        helper.make_node("Log", ["above"], ["log"], name="log"),
        helper.make_node("Max", ["log", "lowest"], ["bounded"], name="bound"),
        helper.make_node("MatMul", ["bounded", "w"], ["y"], name="network"),
    ]
    turns = 2 * np.pi * np.outer(np.arange(8), np.arange(4)) / 8
    weights = {"cosines": np.cos(turns), "sines": np.sin(turns), "w": np.ones((4, 2)), "least": np.array([1e-6])}
    weights["lowest"] = np.array([-10.0])
    if quantized:
        weights["scale"] = np.array(0.01)
    return onnx_files.write(
        path,
        nodes,
        onnx_files.values(("x", "float32", ("n", 8))),
        onnx_files.values(("y", "float32", ("n", 2))),
        {name: value.astype(np.float32) for name, value in weights.items()},
    )


def test_a_spectrum_whose_logarithm_is_taken_is_held_where_nothing_is_quantized_and_tf32_is_off(tmp_path):
    found = mixed.wide(mixed.read(spectrum(tmp_path / "plain.onnx")), by_types=True)
    assert found.exact and found.tensors == {"re", "im", "re2", "im2", "power", "above", "log"}
    # TensorRT refuses plans of Q/DQ files with held layers.
    assert mixed.wide(mixed.read(spectrum(tmp_path / "int8.onnx", quantized=True)), by_types=False) == mixed.Wide()
    done = run_tftrt(
        "export", tmp_path / "plain.onnx", f"--output={tmp_path / 'half.onnx'}", "--precision=FP16", "--shapes=x:4x8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    half = mixed.wide(mixed.read(str(tmp_path / "half.onnx")), by_types=True)
    assert half.exact and found.tensors == half.tensors


def layer(kind, taken, given, name="in"):
    """As TensorRT's inspector tells of one. Args: taken, given: types of what it reads and writes."""
    described = [
        [{"Name": one, "Location": "Device", "Dimensions": [1, 36], "Format/Datatype": said}]
        for one, said in ((name, taken), (f"Reformatted Input Tensor 0 to {name}", given))
    ]
    return {"Name": "some", "LayerType": kind, "Inputs": described[0], "Outputs": described[1]}


LINEAR, HALF = "Row major linear FP32", "Channel major FP16 format where channel % 8 == 0"


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        # What TensorRT 8.5.3 says of a plan of basic_pitch on an H200, and of one of the same file without FP16.
        ([layer("CaskConvolution", LINEAR, LINEAR, "x"), layer("Reformat", LINEAR, HALF, "re")], ("re",)),
        ([layer("Reformat", LINEAR, HALF, "re"), layer("Reformat", LINEAR, HALF, "re")], ("re",)),
        ([layer("Myelin", LINEAR, LINEAR, "re")], ()),
        ([layer("Reformat", LINEAR, "Channel major FP32 format", "re")], ()),
        # The file's own cast behind the logarithm, and what the network reads.
        ([layer("Reformat", LINEAR, HALF, "log"), layer("Reformat", LINEAR, HALF, "x")], ()),
        # With less verbosity layers are names alone.
        (["{ForeignNode[real...log]}"], ()),
    ],
)
def test_a_spectrum_that_the_plan_hands_on_in_fp16_is_named(tmp_path, layers, said):
    wide = mixed.wide(mixed.read(spectrum(tmp_path / "plain.onnx")), by_types=True)
    assert wide.inner == {"re", "im", "re2", "im2", "power", "above"}
    assert mixed.narrowed({"Layers": layers}, wide) == said
    assert mixed.narrowed({"text": "no JSON"}, wide) == ()


def test_weights_in_a_file_of_their_own_are_not_read(tmp_path):
    model = onnx.load(spectrum(tmp_path / "plain.onnx"))
    for node in model.graph.node:
        if node.op_type == "Mul":
            node.op_type = "Pow"
            node.input[1] = "least"
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "weights").unlink()
    # Whether the power is a square is in that file.
    assert mixed.wide(mixed.read(str(tmp_path / "m.onnx")), by_types=True) == mixed.Wide()


def test_a_file_all_of_whose_nodes_are_in_fp16_holds_none(tmp_path):
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
    ]
    path = onnx_files.write(tmp_path / "m.onnx", nodes, *(onnx_files.values((name, "float32", (2,))) for name in "xy"))
    assert mixed.wide(mixed.read(path), by_types=True) == mixed.Wide()


class Layer:
    """What an ILayer has, as a stand-in: without a GPU TensorRT 8.5 makes no network."""

    precision = None

    @property
    def precision_is_set(self):
        return self.precision is not None

    def __init__(self, kind, *outputs):
        self.type, self.num_outputs, self.types = trt.LayerType.__members__[kind], len(outputs), {}
        self._outputs = [types.SimpleNamespace(name=name, dtype=dtype) for name, dtype in outputs]

    def get_output(self, number):
        return self._outputs[number]

    def set_output_type(self, number, dtype):
        self.types[number] = dtype


def test_the_layers_of_these_nodes_are_constrained_and_no_other(squares):
    wide = mixed.wide(mixed.read(squares[1]), by_types=True).tensors
    names = {
        node.op_type: node.output[0]
        for node in onnx.load(squares[1]).graph.node
        if node.output[0] in wide or node.op_type == "MatMul"
    }
    float32, half, int32 = trt.DataType.FLOAT, trt.DataType.HALF, trt.DataType.INT32
    square, inner, root = (
        Layer("ELEMENTWISE", (names["Mul"], float32)),
        Layer("SHUFFLE", ("(Unnamed)", float32)),
        Layer("UNARY", (names["Sqrt"], float32)),
    )
    sizes, constant = Layer("SHAPE", ("(sizes)", int32)), Layer("CONSTANT", ("w", float32))
    cast, product = Layer("IDENTITY", ("(cast)", half)), Layer("MATRIX_MULTIPLY", (names["MatMul"], half))
    loop = Layer("RECURRENCE", ("(state)", float32))
    layers = [square, sizes, constant, inner, loop, root, cast, product]
    stand_in = types.SimpleNamespace(num_layers=len(layers), get_layer=layers.__getitem__)
    assert mixed.hold(trt, stand_in, mixed.wide(mixed.read(squares[1]), by_types=True)) == 3
    assert [one.precision for one in layers] == [float32, None, None, float32, None, float32, None, None]
    assert [one.types for one in (square, root, product, sizes)] == [{0: float32}, {0: float32}, {}, {}]
    assert mixed.hold(trt, stand_in, mixed.wide(mixed.read(squares[0]), by_types=True)) == 0


def test_tensorrt_has_what_is_asked_of_it():
    assert mixed.FLAG in trt.BuilderFlag.__members__
    assert mixed._LAYERS - {"CAST", "PLUGIN_V3"} <= set(trt.LayerType.__members__), "8.5 has neither of these two"
    assert hasattr(trt.ILayer, "precision") and hasattr(trt.ILayer, "set_output_type")


def test_the_layers_of_a_parsed_file_are_found(squares):
    """By the parser of tensorrt_rtx, which has the API of TensorRT 11: the layers that give these nodes' outputs, and none of the product."""
    rtx = pytest.importorskip("tensorrt_rtx")
    logger = rtx.Logger(rtx.Logger.ERROR)
    builder = rtx.Builder(logger)
    made, parser = network.parsed(rtx, builder, logger, squares[1], strongly_typed=False)
    wide = mixed.wide(mixed.read(squares[1]), by_types=True)
    found = {layer.type.name for layer in mixed._layers(made, wide.tensors, wide.computed)} - mixed._LAYERS
    assert found == {"ELEMENTWISE", "UNARY"}
    config, flags = network.configured(rtx, builder, made, [], Settings(), {})
    assert mixed.FLAG not in flags
    del parser, config
