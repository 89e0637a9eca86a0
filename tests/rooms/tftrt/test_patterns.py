"""Patterns of node names over several signatures."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.command_line import assert_clear
from tftrt_tools.base import errors
from tftrt_tools.tftrt.conversion.job import patterns

NAMES = ["model/conv1/Conv2D", "model/conv2/Conv2D", "model/dense/MatMul"]


def test_a_pattern_has_to_match_in_one_signature_only():
    gathered = patterns.Patterns()
    assert patterns.matching("fp32_nodes", ".*/conv1/.*", NAMES, gathered) == {NAMES[0]}
    assert patterns.matching("fp32_nodes", ".*/conv1/.*", NAMES[1:], gathered) == set()
    assert gathered.unmatched(["fp32_nodes", "keep_native_nodes"]) == ["keep_native_nodes"]
    gathered.check()


def test_one_that_matches_nowhere_names_what_is_near_in_any_signature():
    gathered = patterns.Patterns()
    patterns.matching("fp32_nodes", "model/conv3/Conv2D", NAMES[2:], gathered)
    patterns.matching("fp32_nodes", "model/conv3/Conv2D", NAMES[:2], gathered)
    with pytest.raises(errors.UsageError) as raised:
        gathered.check()
    assert "matches no node" in raised.value.cause and raised.value.mend.startswith("near are model/conv")


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("conv2", "near are model/conv2/Conv2D; "),
        (r"model/dense/Matmul", "near are model/dense/MatMul"),
        (r"model\/dense\/Mat", "near are model/dense/MatMul"),
        ("xyz", "names look like model/conv1/Conv2D, "),
    ],
)
def test_where_there_is_no_other_signature_nothing_is_waited_for(pattern, says):
    with pytest.raises(errors.UsageError) as raised:
        patterns.matching("keep_native_nodes", pattern, NAMES, None)
    assert raised.value.mend.startswith(says)


class Two(tf.Module):
    """Two networks, a signature each, as a detector's stages are."""

    def __init__(self):
        super().__init__()
        self.w = [tf.Variable(tf.random.stateless_normal((8, 8), [1, number])) for number in range(2)]

    @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
    def first(self, x):
        return {"y": tf.nn.relu(tf.matmul(x, self.w[0], name="first_product") + 1.0) * 2.0}

    @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
    def second(self, x):
        return {"y": tf.nn.relu(tf.matmul(x, self.w[1], name="second_product") + 1.0) * 2.0}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder, module = tmp_path_factory.mktemp("two"), Two()
    tf.saved_model.save(module, str(folder / "model"), signatures={"first": module.first, "second": module.second})
    np.save(folder / "x.npy", np.ones((4, 8), np.float32))
    np.savez(folder / "x.npz", **{f"{name}/x": np.ones((4, 8), np.float32) for name in ("first", "second")})
    return folder


SECOND = ".*second_product"


@pytest.mark.parametrize(
    "flags",
    [
        [f"--keep_native_nodes={SECOND}"],
        ["--precision=FP16", f"--fp32_nodes={SECOND}", "--minimum_segment_size=1"],
        ["--precision=INT8", f"--high_precision_nodes={SECOND}", "--calibrate_on_random_data"],
    ],
)
def test_convert_takes_a_pattern_for_one_signature(flags, two, tftrt, tmp_path):
    done = tftrt("convert", f"--model={two / 'model'}", f"--output={tmp_path / 'out'}", *flags)
    assert done.returncode == 0, done.stderr


def test_convert_inspect_and_sensitivity_refuse_what_matches_nowhere(two, tftrt, tmp_path):
    model = two / "model"
    for command in (
        ("convert", f"--model={model}", f"--output={tmp_path / 'out'}", "--keep_native_nodes=.*third_product"),
        ("inspect", model, "--keep_native_nodes=.*third_product"),
        ("sensitivity", model, f"--data={two / 'x.npz'}", "--precision=FP16", "--nodes=.*third_product"),
    ):
        done = tftrt(*command)
        assert_clear(done, 2, "third_product matches no node")
        assert "first_product" in done.stderr and "second_product" in done.stderr
    assert not (tmp_path / "out").exists()


def test_sensitivity_looks_at_nodes_of_one_signature(two, tftrt):
    done = tftrt(
        "sensitivity", two / "model", f"--data={two / 'x.npz'}", "--precision=FP16", f"--nodes={SECOND}", "--json=-"
    )
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["signatures"]
    assert not first["nodes"] and [node["name"].rsplit("/", 1)[-1] for node in second["nodes"]] == ["second_product"]
