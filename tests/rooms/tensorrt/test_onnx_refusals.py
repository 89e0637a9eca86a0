"""What ONNX Runtime refuses, and what is told of it (`models/onnx/refusals_job.py`)."""

import pathlib
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests import onnx_files, stacks
from tftrt_tools.base import errors
from tftrt_tools.models.kinds.onnx import runner_job


def _add(*inputs, output="y", **more):
    return helper.make_node("Add", list(inputs), [output], **more)


@pytest.mark.parametrize(
    ("nodes", "changed", "said"),
    [
        ([_add("x", "c", output="a", name="n"), _add("a", "c", name="n")], {}, "two nodes are called 'n'"),
        ([_add("x", "c"), helper.make_node("Mul", ["x", "c"], ["y"])], {}, "two tensors are called 'y'"),
        ([helper.make_node("Frobnicate", ["x"], ["y"])], {}, "opset 13 has no op Frobnicate"),
        (
            [helper.make_node("Frobnicate", ["x"], ["y"], domain="com.acme")],
            {},
            "it uses ops of the domain 'com.acme', which is not among its opsets",
        ),
        (
            [_add("x", "b", output="a"), _add("a", "x", output="b"), _add("b", "x")],
            {},
            "its nodes wait for each other in a circle",
        ),
        ([_add("x", "c")], {"opset": -3}, "opset -3 has no op Add"),
        pytest.param(
            [
                helper.make_node("Cast", ["x"], ["u"], to=TensorProto.UINT8),
                helper.make_node("Cast", ["c"], ["s"], to=TensorProto.INT8),
                helper.make_node("Reshape", ["u", "form"], ["v"]),
                helper.make_node("Reshape", ["s", "form"], ["w"]),
                helper.make_node("ConvInteger", ["v", "w"], ["z"]),
                helper.make_node("Cast", ["z"], ["y"], to=TensorProto.FLOAT),
            ],
            {},
            "it has no ConvInteger of signed weights on a CPU",
            marks=stacks.needs_older_onnxruntime,
        ),
        ([_add("x", "gone")], {}, "a node reads the tensor 'gone', which nothing makes"),
        ([_add("x", "c", output="a")], {}, "nothing makes its output 'y'"),
        ([_add("x", "c")], {"ir_version": 99}, "its format is version 99, and the newest that is known is "),
        ([_add("x", "c")], {"opset": 99}, "its opset 99 is newer than those that are known"),
        (
            [
                helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
                _add("h", "h", output="z"),
                helper.make_node("Cast", ["z"], ["y"], to=TensorProto.FLOAT),
            ],
            {},
            "it has no Add of opset 13 for the types here on a CPU",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_onnx_runtime_refuses_is_told_in_plain_words(tmp_path, nodes, changed, said):
    ends = [onnx_files.values((name, "float32", ("batch", 4))) for name in "xy"]
    path = onnx_files.write(
        tmp_path / "m.onnx",
        nodes,
        *ends,
        {"c": np.ones(4, np.float32), "form": np.array([1, 1, -1])},
        opset=changed.get("opset", 13),
    )
    model = onnx.load(path)
    model.ir_version = changed.get("ir_version", 8)
    onnx.save(model, path)
    with pytest.raises(errors.TftrtError, match="cannot load .*m.onnx: " + re.escape(said)) as raised:
        runner_job.session(path)
    assert raised.value.mend and "{" not in raised.value.mend


def test_a_cut_file_and_cut_weights_are_named_before_a_session_is_opened(tmp_path):
    path = pathlib.Path(onnx_files.product(tmp_path / "m.onnx"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(errors.TftrtError, match="is truncated or damaged"):
        runner_job.session(str(path))
    model = onnx.load_from_string(whole)
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:7]
    onnx.save(model, path)
    with pytest.raises(errors.TftrtError, match="the weights 'w' are damaged"):
        runner_job.session(str(path))
