"""TensorFlow's private names stay in one file, and that file is used with TensorFlow versions that someone has checked."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests import stacks
from tests.conftest import ROOT
from tftrt_tools.base import tensorrt_rule, tf_private

# stack/probe_job.py runs in broken installations, where importing tf_private would be the first thing to fail.
ALLOWED = {"tftrt_tools/base/tf_private.py", "tftrt_tools/base/stack/probe_job.py"}
PRIVATE = re.compile(r"^\s*(from|import) tensorflow\.(python|compiler|tsl)\b", re.MULTILINE)


def test_this_tensorflow_was_checked():
    """Another version: check what each name in tf_private does there, by running, then add it to CHECKED_VERSIONS."""
    assert tf.__version__ in tf_private.CHECKED_VERSIONS


def test_no_other_file_imports_private_names():
    found = {
        str(path.relative_to(ROOT)) for path in (ROOT / "tftrt_tools").rglob("*.py") if PRIVATE.search(path.read_text())
    }
    assert found == ALLOWED


def test_a_session_callable_takes_arrays_and_gives_those_of_its_fetches():
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        x = tf.compat.v1.placeholder(tf.float32, [2], "x")
        double, _ = tf.multiply(x, 2.0, name="double"), tf.negative(x, name="less")
        run = tf_private.session_callable(session, ["x:0"], ["less:0", double.name])
        assert [list(one) for one in run(np.float32([1.0, 2.0]))] == [[-1.0, -2.0], [2.0, 4.0]]


def test_what_the_private_names_are_relied_on_for():
    linked, loaded = tf_private.tensorrt_versions()
    assert linked == stacks.here().linked and loaded in stacks.here().loaded
    assert {"Conv2D", "MatMul"} <= tf_private.registered_converters()
    rewriter = tf_private.trt_convert._get_tensorrt_rewriter_config(
        tf_private.trt_convert.DEFAULT_TRT_CONVERSION_PARAMS, is_dynamic_op=True
    )
    # The pass leaves exactly this one out; were it renamed, conversions would depend on the machine again.
    assert "layout" in rewriter.optimizers


def test_tensorflows_check_of_tensorrt_is_left_out_for_a_patch_that_the_user_names_alone(monkeypatch):
    def refuses():
        raise RuntimeError("Incompatible TensorRT versions")

    monkeypatch.setattr(tf_private.trt_convert, "_check_trt_version_compatibility", refuses)
    monkeypatch.setattr(tf_private, "_versions", lambda: ((8, 6, 1), (8, 6, 0)))
    monkeypatch.delenv(tensorrt_rule.ALLOW, raising=False)
    with pytest.raises(RuntimeError, match="Incompatible"):
        tf_private.GraphPass(input_saved_model_dir="m")
    monkeypatch.setenv(tensorrt_rule.ALLOW, "8.6.0")
    assert tf_private.GraphPass(input_saved_model_dir="m")
    assert tf_private.trt_convert._check_trt_version_compatibility is refuses
