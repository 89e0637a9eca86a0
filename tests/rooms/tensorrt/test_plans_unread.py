"""An ONNX file of others becomes no plan of TensorRT 8 where its parser would read a node otherwise than the file says."""

import numpy as np
import pytest
from onnx import TensorProto, helper

trt = pytest.importorskip("tensorrt")
from tests import onnx_files  # noqa: E402
from tests.command_here import run_tftrt  # noqa: E402
from tftrt_tools.base import errors  # noqa: E402
from tftrt_tools.tensorrt.plans.job import mixed, unread  # noqa: E402


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


@pytest.mark.skipif(
    trt.__version__.partition(".")[0] != "8", reason="of later releases nothing is known that they do not read"
)
def test_convert_says_so_before_it_looks_for_a_gpu(tmp_path):
    nodes = [helper.make_node("ScatterND", ["x", "places", "x"], ["y"], name="sums", reduction="add")]
    path = onnx_files.write(
        tmp_path / "m.onnx",
        nodes,
        *(onnx_files.values((name, "float32", (2, 3))) for name in "xy"),
        {"places": np.array([[0], [0]], np.int64)},
        opset=16,
    )
    done = run_tftrt(
        "convert",
        "--backend=tensorrt",
        f"--input_saved_model_dir={path}",
        f"--output_saved_model_dir={tmp_path / 'plan'}",
    )
    assert done.returncode == 1 and not (tmp_path / "plan").exists()
    assert (
        f"TensorRT {trt.__version__} would read the file otherwise than it is: ScatterND: the parser does not read its reduction (add)"
        in (done.stdout + done.stderr)
    )
