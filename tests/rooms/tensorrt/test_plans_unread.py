"""An ONNX file of others becomes no plan of TensorRT 8 where its parser would read a node otherwise than the file says."""

import numpy as np
import pytest
from onnx import TensorProto, helper

trt = pytest.importorskip("tensorrt")
from tests import onnx_files  # noqa: E402
from tests.command_here import run_tftrt  # noqa: E402
from tftrt_tools.base import errors  # noqa: E402
from tftrt_tools.tensorrt.plans.job import mixed, unread, valid  # noqa: E402


def normalized(path, dtype):
    """x normalized with scales of `dtype`; their data lie beside the file, and are gone."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    onnx_files.write(
        path,
        [
            helper.make_node("Cast", ["x"], ["h"], to=number),
            helper.make_node("InstanceNormalization", ["h", "scale", "shift"], ["n"], name="norm"),
            helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT),
        ],
        *(onnx_files.values((name, "float32", (2, 3, 8))) for name in "xy"),
        {"scale": np.array([1.5, -2, 0.25], dtype), "shift": np.zeros(3, dtype)},
        outside=True,
    )
    path.with_name(f"{path.name}.data").unlink()
    return str(path)


@pytest.mark.parametrize(
    ("dtype", "version", "said"),
    [
        (
            np.float16,
            "8.5.3.1",
            "InstanceNormalization: the parser reads its scales as float32, and they are float16 (norm)",
        ),
        (np.float16, "8.6.1", "InstanceNormalization"),
        (np.float32, "8.5.3.1", ""),
        (np.float16, "10.8.0.43", ""),
    ],
)
def test_a_node_that_the_parser_would_read_otherwise_is_named(tmp_path, dtype, version, said):
    path = normalized(tmp_path / "m.onnx", dtype)
    model = mixed.read(path)
    if not said:
        unread.check(model, version)
        return
    with pytest.raises(errors.TftrtError, match="would read the file otherwise") as found:
        unread.check(model, version)
    assert said in found.value.cause and version in found.value.cause and "tftrt export FILE" in found.value.mend


X = onnx_files.values(("x", "float32", ("n", 3, 7)))
ALL = "the parser does not read axes that are an input, and would reduce over all"
LAST, SCALES = {"axes": np.array([-1])}, {"c": np.ones(3, np.float32)}
# {what: (node, constants, opset, what TensorRT 8 is said to do, whether 10 does, too)}.
NODES = {
    "a mean along an axis": (("ReduceMean", "x", "axes"), {}, LAST, 18, ALL, False),
    "a largest along an axis": (("ReduceMax", "x", "axes"), {"keepdims": 0}, LAST, 18, ALL, False),
    "a mean along an attribute": (("ReduceMean", "x"), {"axes": [-1]}, {}, 17, "", False),
    "a mean of all": (("ReduceMean", "x"), {}, {}, 18, "", False),
    "a mean along all axes": (("ReduceMean", "x", "axes"), {}, {"axes": np.arange(3)}, 18, "", False),
    "a sum along an axis": (("ReduceSum", "x", "axes"), {}, LAST, 18, "", False),
    "a sum along no axis": (
        ("ReduceSum", "x"),
        {"noop_with_empty_axes": 1},
        {},
        13,
        "the parser does not read noop_with_empty_axes, and would reduce over all axes",
        False,
    ),
    "uneven parts": (
        ("Split", "x"),
        {"axis": -1, "num_outputs": 2},
        {},
        18,
        "the parser would leave out a part of 7 in 2",
        False,
    ),
    "even parts": (("Split", "x"), {"axis": 1, "num_outputs": 3}, {}, 18, "", False),
    "parts of an open size": (("Split", "x"), {"axis": 0, "num_outputs": 2}, {}, 18, "", False),
    "a smooth resize": (
        ("Resize", "x", "", "half"),
        {"mode": "linear", "antialias": 1},
        {"half": np.array([1, 1, 0.5], np.float32)},
        18,
        "the parser does not read its antialias",
        False,
    ),
    "a resize": (
        ("Resize", "x", "", "half"),
        {"mode": "linear", "antialias": 0, "keep_aspect_ratio_policy": "stretch"},
        {"half": np.array([1, 1, 0.5], np.float32)},
        18,
        "",
        False,
    ),
    "statistics of the batch": (
        ("BatchNormalization", "x", "c", "c", "c", "c"),
        {"training_mode": 1},
        SCALES,
        15,
        "the parser does not read its training_mode",
        False,
    ),
    "pooled with dilations": (
        ("LpPool", "x"),
        {"kernel_shape": [2], "dilations": [2]},
        {},
        18,
        "the parser does not read its dilations",
        False,
    ),
    "the upper triangle by default": (
        ("Trilu", "x"),
        {},
        {},
        14,
        "it leaves out upper, which is 1 then, and the parser takes 0",
        True,
    ),
    "the lower triangle": (("Trilu", "x"), {"upper": 0}, {}, 14, "", False),
}


@pytest.mark.parametrize("kind", NODES)
def test_an_input_an_attribute_or_a_default_that_is_read_otherwise_is_named(tmp_path, kind):
    (op, *read), given, constants, opset, said, newer = NODES[kind]
    parts = given.get("num_outputs", 3 if op == "BatchNormalization" else 1)
    results = ["y", "z", "w"][:parts]
    nodes = [helper.make_node(op, read, results, name="one", **given)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    model = mixed.read(onnx_files.write(tmp_path / "m.onnx", nodes, X, ends, constants, opset=opset))
    for version, wanted in (("8.5.3.1", said), ("8.6.1", said), ("10.8.0.43", said if newer else "")):
        if not wanted:
            unread.check(model, version)
            continue
        with pytest.raises(errors.TftrtError) as found:
            unread.check(model, version)
        assert f"{op}: {wanted} (one)" in found.value.cause


@pytest.mark.skipif(trt.__version__.partition(".")[0] != "8", reason="later releases read the sums of a Scatter")
def test_convert_says_so_before_it_looks_for_a_gpu(tmp_path):
    nodes = [helper.make_node("ScatterND", ["x", "places", "x"], ["y"], name="sums", reduction="add")]
    path = onnx_files.write(
        tmp_path / "m.onnx",
        nodes,
        *(onnx_files.values((name, "float32", (2, 3))) for name in "xy"),
        {"places": np.array([[0], [0]], np.int64)},
        opset=16,
    )
    done = run_tftrt("convert", "--backend=tensorrt", f"--model={path}", f"--output={tmp_path / 'plan'}")
    assert done.returncode == 1 and not (tmp_path / "plan").exists()
    assert (
        f"TensorRT {trt.__version__} would read the file otherwise than it is: ScatterND: the parser does not read its reduction (add)"
        in (done.stdout + done.stderr)
    )


BROKEN = {
    "a Shape of nothing": ("Shape", [], ["y"], {}),
    "a mean of nothing": ("ReduceMean", [], ["y"], {}),
    "a loop of nothing": ("Loop", [], ["y"], {}),
    "nothing that is given": ("Relu", ["x"], [], {}),
    "a number for a text": ("ScatterND", ["x", "x", "x"], ["y"], {"reduction": 3}),
    "a number for numbers": ("LpPool", ["x"], ["y"], {"kernel_shape": [2], "dilations": 1}),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_not_valid_is_told_in_a_line(tmp_path, kind):
    op, read, given, more = BROKEN[kind]
    nodes = [helper.make_node(op, read, given, **more), helper.make_node("Relu", ["x"], ["z"])]
    ends = (onnx_files.values((name, "float32", (2, 3))) for name in "xz")
    path = onnx_files.write(tmp_path / "m.onnx", nodes, *ends, opset=18)
    with pytest.raises(errors.TftrtError, match="the ONNX file is not valid: ") as found, valid.told(path):
        unread.check(mixed.read(path), "8.5.3.1")
    assert "Traceback" not in found.value.cause and "export the model again" in found.value.mend


def test_a_valid_file_hides_no_error_of_this_package(tmp_path):
    path = onnx_files.product(tmp_path / "m.onnx")
    with pytest.raises(ZeroDivisionError), valid.told(path):
        _ = 1 / 0
