"""Engine ops that no GPU builds, because of a convolution whose channels are in no shape and the like: found without one."""

import argparse
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from saved_models import keras_versions
from tests import keras_layers, stacks
from tests.conftest import ROOT
from tests.detectors import detector
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _building, _made
from tftrt_tools.models.execution.job import build_log
from tftrt_tools.models.savedmodel.job import unbuildable
from tftrt_tools.tftrt.conversion.build import Build
from tftrt_tools.tftrt.conversion.job import finishing, graph_pass, watched
from tftrt_tools.tftrt.conversion.pipeline import Conversion
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import BuiltEngine, SignatureResult, Unbuilt

_layers = tf.keras.layers
CONVOLUTION = "StatefulPartitionedCall/" + stacks.node("model/second/Conv2D")


@pytest.fixture(scope="module")
def normalized(tmp_path_factory):
    """A convolution after a layer normalisation of Keras' default epsilon: sizes are fixed, and yet its channels are in no shape."""
    keras_versions.forget_names()
    inputs = tf.keras.Input((16, 16, 3), name="x")
    x = _layers.ReLU()(_layers.Conv2D(8, 3)(inputs))
    x = _layers.Conv2D(8, 3, name="second", use_bias=False)(keras_layers.Normalization()(x))
    x = _layers.Dense(4)(_layers.Flatten()(_layers.ReLU()(x)))
    path = tmp_path_factory.mktemp("normalized") / "model"
    tf.saved_model.save(tf.keras.Model(inputs, x, name="model"), str(path))
    return path


def found(path, dynamic=True, **settings):
    root = tf.saved_model.load(str(path))
    return [
        finding
        for name, signature in root.signatures.items()
        for finding in unbuildable.find(
            graph_pass.run(
                graph_pass.freeze(name, signature), Settings(use_dynamic_shape=dynamic, **settings)
            ).graph_def
        )
    ]


def test_a_convolution_whose_channels_depend_on_a_tensor_is_found_and_its_mend_leaves_nothing_to_find(normalized):
    (finding,) = found(normalized)
    assert re.match(r"no GPU builds it, and its \d ops run in TensorFlow", finding.text) and re.search(
        f"those of {CONVOLUTION} \\(Conv2D\\) depend", finding.text
    )
    pattern = re.search(r"--keep_native_nodes='(.+)'", finding.mend)[1]
    assert re.fullmatch(CONVOLUTION, pattern)
    assert found(normalized, keep_native_nodes=pattern) == []
    assert found(normalized, dynamic=False) == []


def test_all_such_convolutions_of_an_engine_are_in_the_mend(tmp_path):
    keras_versions.forget_names()
    inputs = tf.keras.Input((16, 16, 8), name="x")
    x = keras_layers.Normalization()(_layers.Conv2D(8, 3)(inputs))
    x = _layers.Conv2D(8, 3, name="one")(x) + _layers.Conv2D(8, 3, padding="same", name="three")(
        _layers.Conv2D(8, 3, name="two")(x)
    )
    tf.saved_model.save(tf.keras.Model(inputs, x, name="model"), str(tmp_path / "model"))
    (finding,) = found(tmp_path / "model")
    pattern = re.search(r"--keep_native_nodes='(.+)'", finding.mend)[1]
    assert "(and of 1 more) depend on a tensor" in finding.text
    root = tf.saved_model.load(str(tmp_path / "model"))
    nodes = graph_pass.freeze("serve", root.signatures["serving_default"]).graph_def.node
    kept = [node.name for node in nodes if re.fullmatch(pattern, node.name)]
    assert [
        any(re.search(f"/{stacks.node(f'{name}/Conv2D')}$", node) for node in kept) for name in ("one", "two", "three")
    ] == [True, True, False]
    assert found(tmp_path / "model", keep_native_nodes=pattern) == []


FILTER, VOLUME = np.ones((3, 3, 4, 4), np.float32), np.ones((3, 3, 3, 4, 4), np.float32)


def normalize(x, scale):
    """Without `scale` no op after Keras' reshape tells how many channels there are; with it their number alone is known."""
    normal = keras_layers.Normalization(center=False, scale=False)(x)
    return normal * tf.constant([1.0, 2.0, 3.0, 4.0]) if scale else normal


def upsample(x, size):
    return tf.raw_ops.Conv2DBackpropInput(
        input_sizes=[2, size, size, 4], filter=FILTER, out_backprop=x, strides=[1, 2, 2, 1], padding="SAME"
    )


# {name: (function, shapes of its inputs, their type, what is said)}.
REFUSED = {
    "k": (
        lambda x: tf.math.top_k(x, 3841)[0],
        [(None, 5000)],
        tf.float32,
        "TopK gives at most 3840, and {}TopKV2 (TopKV2) asks for more",
    ),
    "power": (lambda x: tf.pow(x, 3) + 1, [(None, 8)], tf.int32, "no power of integers, and {}Pow (Pow) is one"),
    "square": (lambda x: tf.square(x) + 1, [(None, 8)], tf.int32, "no power of integers, and {}Square (Square) is one"),
    "nine": (
        lambda x: tf.raw_ops.Cumsum(x=tf.expand_dims(x, 0), axis=0),
        [(None, 1, 2, 1, 2, 1, 2, 1)],
        tf.float32,
        "at most 8 dimensions, and the result of {}ExpandDims (ExpandDims) has more",
    ),
    "channels": (
        lambda x: tf.nn.max_pool(x, [1, 1, 1, 2], [1, 1, 1, 2], "VALID"),
        [(None, 8, 8, 4)],
        tf.float32,
        "its answers would be wrong: TF-TRT pools height and width alone, and {}MaxPool2d (MaxPool) pools channels",
    ),
    "broadcast": (
        lambda x, y: x + y * 3,
        [(None, 4, None, None), (4, None, None)],
        tf.float32,
        "with at most one open size, and that of ",
    ),
    "odd": (
        lambda x: upsample(x, 7),
        [(2, 4, 4, 4)],
        tf.float32,
        "the result of {}Conv2DBackpropInput (Conv2DBackpropInput) is smaller",
    ),
    "picture": (
        lambda x: upsample(normalize(x, True), 16),
        [(None, 8, 8, 4)],
        tf.float32,
        "the height and width that a transposed convolution reads, and those of {}Conv2DBackpropInput",
    ),
    "volume": (
        lambda x: tf.nn.conv3d(normalize(x, False), VOLUME, [1] * 5, "SAME"),
        [(None, 8, 8, 8, 4)],
        tf.float32,
        "how many channels a convolution reads, and those of {}Conv3D (Conv3D) depend on a tensor",
    ),
    "normalization": (
        lambda x: tf.compat.v1.nn.fused_batch_norm(
            normalize(x, False), *np.ones((4, 4), np.float32), is_training=False
        )[0],
        [(None, 8, 8, 4)],
        tf.float32,
        "how many channels a batch normalization reads, and those of {}FusedBatchNormV3 (FusedBatchNormV3) depend",
    ),
}
REFUSED |= {
    "end": (
        lambda x: x[:, :-3] * 2,
        [(None, None, 8)],
        tf.float32,
        "its answers would be wrong, unless it is built for one shape alone: TF-TRT takes an end that is counted back from an open size for a "
        "length, and {}strided_slice (StridedSlice) has one",
    )
}
# What TF-TRT builds, next to what it does not.
BUILT = {
    "k": (lambda x: tf.math.top_k(x, 3840)[0], [(None, 5000)], tf.float32),
    "power": (lambda x: tf.pow(x, 3.0) + tf.square(x), [(None, 8)], tf.float32),
    "eight": (lambda x: tf.raw_ops.Cumsum(x=tf.expand_dims(x, 0), axis=0), [(None, 1, 2, 1, 2, 1, 2)], tf.float32),
    "pool": (lambda x: tf.nn.max_pool(x, 2, 2, "VALID"), [(None, 8, 8, 4)], tf.float32),
    "broadcast": (lambda x, y: x + y * 3, [(None, 4, None, 8), (4, None, 8)], tf.float32),
    "same rank": (lambda x, y: x + y * 3, [(None, 4, None, None), (1, 4, None, None)], tf.float32),
    "even": (lambda x: upsample(x, 8), [(2, 4, 4, 4)], tf.float32),
    "slice": (
        lambda x: x[:, 1:, 2:-2:2] + x[..., -6:-4] * x[:, :1, :2] + x[:, 1:, -5][..., None],
        [(None, None, 8)],
        tf.float32,
    ),
    "channels": (lambda x: tf.nn.conv3d(normalize(x, True), VOLUME, [1] * 5, "SAME"), [(None, 8, 8, 8, 4)], tf.float32),
}


def frozen(function, shapes, dtype):
    """A model of `function` between ops that TF-TRT takes, frozen."""

    def call(*tensors):
        given = (
            [tf.maximum(tensor, 0) * 2 + 1 for tensor in tensors]
            if dtype.is_integer
            else [tf.nn.relu(tensor) * 2 + 1 for tensor in tensors]
        )
        return {"y": function(*given) - 3}

    specs = [tf.TensorSpec(shape, dtype, name=f"x{index}") for index, shape in enumerate(shapes)]
    return graph_pass.freeze("serve", tf.function(call).get_concrete_function(*specs))


def never_built(function, shapes, dtype, calls=(), **settings):
    one = frozen(function, shapes, dtype)
    passed = graph_pass.run(one, Settings(use_dynamic_shape=True, **settings))
    assert passed.engines
    return graph_pass.never_built(one, passed.graph_def, calls)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_segmenter_takes_and_the_build_refuses_is_named_with_a_mend_that_leaves_nothing(name):
    *model, said = REFUSED[name]
    finding, *more = never_built(*model)
    assert not more and said.format("") in finding.text, finding.text
    pattern = re.search(r"--keep_native_nodes='(.+)'", finding.mend)[1]
    assert never_built(*model, keep_native_nodes=pattern) == ()


@pytest.mark.parametrize("name", BUILT)
def test_what_is_just_within_the_bounds_is_not(name):
    assert never_built(*BUILT[name]) == ()


def test_a_tensor_of_more_elements_than_tensorrt_counts_is_found_at_the_shapes_that_are_asked_for():
    model = (lambda x: x, [(None, 1024, 1024)], tf.float32)
    assert never_built(*model) == never_built(*model, calls=[{"x0": (2047, 1024, 1024)}]) == ()
    (finding,) = never_built(*model, calls=[{"x0": (8, 1024, 1024)}, {"x0": (2048, 1024, 1024)}])
    assert (
        "TensorRT's tensors have less than 2^31 elements" in finding.text
        and "2,147,483,648 at x0 2048x1024x1024" in finding.text
    )
    # In one dimension: grappler would make a constant of so many elements in several.
    assert "2,147,483,648" in never_built(lambda x: x, [(1 << 31,)], tf.float32)[0].text


@pytest.mark.parametrize("name", ["digits_cnn", "dynamic_segmenter", "mobilenet_v2", "tf1_export", "spread_cnn"])
def test_models_whose_engines_were_built_on_a_gpu_have_nothing_to_find(name, zoo_model):
    assert found(zoo_model(name)) == []


@pytest.mark.parametrize("name", keras_layers.BUILDERS)
def test_of_the_keras_layers_the_one_that_did_not_build_on_a_gpu_is_found(name, tmp_path_factory):
    text = [finding.text for finding in found(keras_layers.built_once(name, tmp_path_factory))]
    node = stacks.node("separable_conv1d/separable_conv2d/depthwise") + r" \(DepthwiseConv2dNative\)"
    assert [bool(re.search(node, one)) for one in text] == [True] * (name == "conv1d")


def test_convert_inspect_and_the_manifest_tell(normalized, tftrt, tmp_path):
    done = tftrt(
        "convert",
        f"--model={normalized}",
        f"--output={tmp_path / 'out'}",
        "--precision=FP16",
        "--use_dynamic_shape",
        "--keep_native_ops=FusedBatchNormV3",
    )
    assert done.returncode == 0 and re.search(r"warning: TRTEngineOp_\S+: no GPU builds it", done.stdout), done.stderr
    assert re.search(f"--keep_native_nodes='{CONVOLUTION}'", done.stdout)
    manifest = json.loads((tmp_path / "out/assets.extra/tftrt/manifest.json").read_text())
    (told,) = manifest["signatures"][0]["findings"]
    assert told["about"].startswith("TRTEngineOp_") and told["mend"]
    done = tftrt("inspect", tmp_path / "out", "--check", "--json=-")
    said = json.loads(done.stdout)["disagreements"]
    assert done.returncode == 3 and [one["about"] for one in said] == [told["about"]]
    done = tftrt("inspect", normalized, "--use_dynamic_shape", "--keep_native_ops=FusedBatchNormV3", "--json=-")
    findings = json.loads(done.stdout)["signatures"][0]["findings"]
    (planned,) = (one for one in findings if "no GPU builds it" in one["text"])
    assert re.fullmatch(r"segment \d", planned["about"]) and planned["mend"] == told["mend"]


# As TensorFlow 2.14.1 wrote them on an H200.
BUILD = (
    "2026-11-22 22:00:14.955841: W tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:1133] TF-TRT Warning: Engine creation for "
    "TRTEngineOp_d09f26e3d0_0_1 failed. The native segment will be used instead. Reason: INVALID_ARGUMENT: Channel dimension must be static"
)
CALIBRATION = (
    "2026-11-22 21:54:24.902754: E tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:1422] Calibration failed: "
    "INVALID_ARGUMENT: Channel dimension must be static"
)
LISTED = (
    "2026-11-22 21:53:56.217005: I tensorflow/compiler/tf2tensorrt/segment/segment.cc:922] Not a TF-TRT candidate, (Op type: NoOp), "
    "(Op name: _SINK), (Reason: Op type NoOp is not supported.)"
)


@pytest.mark.parametrize("line", [BUILD, CALIBRATION])
def test_the_reason_is_read_from_the_log(line):
    assert build_log.reason(f"{LISTED}\n{line}\n{LISTED}\n") == "INVALID_ARGUMENT: Channel dimension must be static"
    assert build_log.reason(LISTED) == build_log.reason("") == ""


def test_tensorrts_own_error_stands_beside_it():
    error = (
        "2026-11-22 22:00:14.900000: E tensorflow/compiler/tf2tensorrt/utils/trt_logger.cc:87] DefaultLogger 10: [optimizer.cpp] Error "
        "Code 10: Internal Error (no implementation)"
    )
    assert build_log.reason(f"{error}\n{BUILD}") == (
        "INVALID_ARGUMENT: Channel dimension must be static (TensorRT: 10: [optimizer.cpp] Error Code "
        "10: Internal Error (no implementation))"
    )


def test_a_reason_over_two_lines_keeps_its_node():
    """TF-TRT's form where TensorRT gives no layer: the function, then the place in the source and the node."""
    text = BUILD.split("Reason: ")[0] + (
        "Reason: INTERNAL: TFTRT::ConvertCombinedNMS\ntensorflow/compiler/tf2tensorrt/convert/convert_nodes.cc:5200 "
        "failed to add TRT layer, at: nms/CombinedNonMaxSuppression"
    )
    assert (
        build_log.reason(text)
        == "INTERNAL: TFTRT::ConvertCombinedNMS failed to add TRT layer, at: nms/CombinedNonMaxSuppression"
    )


def test_the_node_that_a_reason_names():
    names = ["model/concat", "model/concat/concat", "model/conv"]
    assert (
        build_log.node("INVALID_ARGUMENT: Received inputs with inconsistent shape, at model/concat/concat", names)
        == "model/concat/concat"
    )
    assert build_log.node("INTERNAL: failed to add TRT layer, at: model/conv. (TensorRT: …)", names) == "model/conv"
    assert build_log.node("INVALID_ARGUMENT: Channel dimension must be static", names) == ""


def test_refused_engines_are_an_error_only_where_nothing_was_built(capsys):
    refused = Unbuilt(
        name="E_1", reason="it did not build: no kernel", refused=True, mend="--keep_native_nodes='a' leaves it out"
    )
    some, none = (
        _result(built=(BuiltEngine(name="E_0", shapes=((1, 8),), bytes=7),), unbuilt=(refused,)),
        _result(unbuilt=(refused,)),
    )
    finishing.check_built([some, none], watched.Budget())
    with pytest.raises(errors.TftrtError, match="engine E_1 of signature 's': it did not build: no kernel") as raised:
        finishing.check_built([none], watched.Budget())
    assert raised.value.exit_code == 1 and raised.value.mend == refused.mend
    done = argparse.Namespace(unbuilt=[refused])
    late = argparse.Namespace(unbuilt=[Unbuilt.late("E_0", 2)])
    for kind in (Build, Conversion):
        assert not kind.complete.fget(done) and kind.complete.fget(late)
    failed = _made.failure(argparse.Namespace(complete=False, unbuilt=[refused]))
    assert failed.exit_code == 3 and _made.failure(argparse.Namespace(complete=True)) is None
    _building.print_unbuilt(Console(), done, None)
    printed = capsys.readouterr().out
    assert (
        "E_1 has no engine and runs in TensorFlow: it did not build: no kernel" in printed and refused.mend in printed
    )


def _result(**kept):
    return SignatureResult(
        name="s", inputs=(), converted=True, coverage=1.0, engines=(), left_out=(), native_ops={}, **kept
    )


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_what_is_written_to_stderr_is_read_on_the_way(kind, tmp_path):
    script = (
        "import os, sys; from tftrt_tools.base.process import native_log; os.write(2, b'before\\n'); at = native_log.position();"
        "os.write(2, b'after\\n'); sys.stderr.write('python too\\n'); print(repr(native_log.since(at)))"
    )
    with open(tmp_path / "log", "wb") as log:
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=log if kind == "file" else subprocess.PIPE,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert done.stdout.strip() == (repr("after\npython too\n") if kind == "file" else "''")
    assert ((tmp_path / "log").read_text() or done.stderr) == "before\nafter\npython too\n"


def test_non_max_suppression_stays_in_tensorflow_for_want_of_a_plugin(tmp_path):
    root = tf.saved_model.load(str(detector(tmp_path / "model")))
    passed = graph_pass.run(
        graph_pass.freeze("serving_default", root.signatures["serving_default"]), Settings(use_dynamic_shape=True)
    )
    [left] = [one for one in passed.left_out if one.op == "CombinedNonMaxSuppression"]
    assert passed.engines and "EfficientNMS_TFTRT_TRT" in left.reason


@stacks.needs_bindings
def test_tensorrt_still_lacks_the_plugin_that_tftrt_asks_for():
    """Where it has one, the op need not stay in TensorFlow (graph_pass.NEVER_BUILT). Its own Python lists the plugins without a GPU."""
    code = (
        "import tensorrt; tensorrt.init_libnvinfer_plugins(None, ''); "
        "print(*{one.name for one in tensorrt.get_plugin_registry().plugin_creator_list})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert "EfficientNMS_TRT" in done.stdout.split() and "EfficientNMS_TFTRT_TRT" not in done.stdout.split()
