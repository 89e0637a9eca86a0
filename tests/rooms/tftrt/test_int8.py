"""INT8 without a GPU: `tftrt convert` and `tftrt calibrate` end to end, tables reused, scoring data kept apart from calibration data."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from saved_models import digits_cnn
from tests import quantized, stacks
from tests.command_here import run_tftrt
from tests.command_line import processes_marked
from tests.conftest import ROOT
from tests.zoo import zoo_inputs
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.job import engine_order, graph, protos, segments
from tftrt_tools.tftrt.calibration import file, table
from tftrt_tools.tftrt.calibration.job import fitting
from tftrt_tools.tftrt.conversion.job import int8
from tftrt_tools.tftrt.conversion.settings import Settings

INT8 = "--precision=INT8"


def convert(source, target, *flags):
    return run_tftrt("convert", f"--model={source}", f"--output={target}", INT8, *flags)


def calibrate(model, target, *flags):
    return run_tftrt("calibrate", model, f"--output={target}", *flags)


def ok(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(done, code, *says):
    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
    for one in says:
        assert one in done.stderr
    return done.stderr


def tables(model):
    """{engine: table.Table} of the engine ops themselves."""
    nodes = graph.engine_nodes(protos.meta_graph(protos.read(model)).graph_def)
    return {graph.engine_name(node.name): table.parse(node.attr["calibration_data"].s.decode()) for node in nodes}


def inputs(name, path, batch=24, keep=lambda key: True):
    """An .npz of the sample model's inputs, SIGNATURE/INPUT."""
    arrays = {
        f"{signature}/{key}": value.astype("S") if value.dtype == object else value
        for signature, one in zoo_inputs(name, batch=batch).items()
        for key, value in one.items()
    }
    np.savez(path, **{key: value for key, value in arrays.items() if keep(key)})
    return path


def test_all_rows_are_used_where_the_model_takes_a_smaller_batch(work, zoo_model, tmp_path):
    images = np.load(work / "training.npz")["image"][:21]
    images[16:] *= 1000  # the rows of the last batch alone have such values
    np.savez(tmp_path / "odd.npz", image=images)
    ok(convert(zoo_model("digits_cnn"), tmp_path / "out", f"--calibration_data={tmp_path / 'odd.npz'}"))
    made = json.loads((tmp_path / "out/assets.extra/tftrt/calibration.json").read_text())
    assert (made["data"]["samples"], made["data"]["batches"], made["data"]["dropped"]) == (21, 3, 0)
    ranges = [one["max"] for one in made["engines"][0]["ranges"].values()]
    assert max(ranges) > 100


def test_rows_that_the_model_does_not_take_are_left_out_and_counted(work, tmp_path):
    filters = tf.constant(np.random.default_rng(0).normal(size=(3, 3, 1, 4)).astype("f4"))

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 1), name="image")])
    def serve(image):
        # The graph says 8, and the signature does not.
        x = tf.nn.relu(tf.nn.conv2d(tf.reshape(image, (8, 8, 8, 1)), filters, 1, "SAME"))
        return {"y": tf.nn.relu(tf.nn.max_pool(x, 2, 2, "SAME")) * 2.0}

    module = tf.Module()
    module.serve = serve
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"serving_default": serve})
    np.savez(tmp_path / "odd.npz", image=np.load(work / "training.npz")["image"][:21])
    said = ok(
        convert(
            tmp_path / "model", tmp_path / "out", "--use_dynamic_shape", f"--calibration_data={tmp_path / 'odd.npz'}"
        )
    )
    assert "5 rows at the end were left out: they do not fill a batch of 8" in said
    made = json.loads((tmp_path / "out/assets.extra/tftrt/calibration.json").read_text())
    assert (made["data"]["samples"], made["data"]["dropped"]) == (16, 5)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("int8")
    images, _ = digits_cnn.training_images()
    np.savez(folder / "training.npz", image=images[:64])
    np.savez(folder / "held_back.npz", image=digits_cnn.held_back()[0][:40])
    return folder


@pytest.fixture(scope="module")
def digits(work, zoo_model):
    """digits_cnn in INT8, calibrated on training.npz."""
    ok(convert(zoo_model("digits_cnn"), work / "digits", f"--calibration_data={work}/training.npz"))
    return work / "digits"


@pytest.fixture(scope="module")
def digits_table(work, zoo_model):
    ok(calibrate(zoo_model("digits_cnn"), work / "digits.json", f"--calibration_data={work}/training.npz"))
    return work / "digits.json"


# Converting.


def test_the_tables_on_the_engine_ops_are_those_of_the_calibration_file(digits):
    kept = file.read(digits)
    assert (
        tables(digits) == {one.engine: one.table for one in kept.engines}
        and len(kept.engines[0].table.scales) == stacks.RANGES
    )
    assert kept.data["samples"] == 64 and len(kept.data["rows"]) == 64 and not kept.data["random"]
    manifest = passport.read(digits, passport.MANIFEST)
    assert manifest["calibration"]["tensors"] == stacks.RANGES and "rows" not in manifest["calibration"]["data"]
    assert not list((digits / "assets").glob("*"))


def test_without_a_gpu_the_model_answers_as_its_original(digits, work, zoo_model):
    done = run_tftrt("verify", zoo_model("digits_cnn"), digits, f"--data={work}/held_back.npz", "--json=-", "--nowrite")
    said = json.loads(ok(done))
    assert said["arithmetic"] == "INT8" and said["verdict"] == "PASSED (INT8 simulated; no engine ran)"
    assert said["calibration"] == {"random": False, "shared": 0, "rows": 40, "scaled": []} and not said["warnings"]


def test_several_signatures_share_one_data_set(work, zoo_model):
    data = inputs("ranker", work / "ranker.npz")
    ok(convert(zoo_model("ranker"), work / "ranker", f"--calibration_data={data}"))
    kept = file.read(work / "ranker")
    assert {one.signature for one in kept.engines} == {"serving_default", "user_embedding", "item_embedding"}
    assert tables(work / "ranker") == {one.engine: one.table for one in kept.engines}
    ok(calibrate(work / "ranker", work / "ranker.json", f"--calibration_data={data}"))
    again = {one.segment: one.table for one in file.read(work / "ranker.json").engines}
    assert again == {one.segment: one.table for one in kept.engines}


def test_data_for_one_signature_only_names_what_is_missing(work, zoo_model):
    data = inputs("ranker", work / "one.npz", keep=lambda key: key.startswith("user_embedding/"))
    refused(
        convert(zoo_model("ranker"), work / "out", f"--calibration_data={data}"),
        2,
        "nothing for input",
        "--signature_keys",
    )
    ok(convert(zoo_model("ranker"), work / "one", f"--calibration_data={data}", "--signature_keys=user_embedding"))


def test_loops_give_the_same_table_each_time(work, zoo_model):
    data = inputs("lstm_tagger", work / "lstm.npz")
    for number in (1, 2):
        ok(
            calibrate(
                zoo_model("lstm_tagger"),
                work / f"lstm{number}.json",
                f"--calibration_data={data}",
                "--use_dynamic_shape",
            )
        )
    first, second = (file.read(work / f"lstm{number}.json").engines for number in (1, 2))
    assert len(first) > 1 and first == second


@stacks.needs_keras_2
def test_high_precision_nodes_lose_the_ranges_of_their_inputs(work, zoo_model):
    ok(
        convert(
            zoo_model("digits_cnn"),
            work / "high",
            f"--calibration_data={work}/training.npz",
            f"--high_precision_nodes=.*/{stacks.node('conv1/Conv2D')}",
        )
    )
    (one,) = file.read(work / "high").engines
    assert dict(one.left_out)["TensorRTInputPH_0"] == "--high_precision_nodes" and len(one.table.scales) == 22
    said = refused(
        convert(
            zoo_model("digits_cnn"),
            work / "out",
            f"--calibration_data={work}/training.npz",
            "--high_precision_nodes=conv1",
        ),
        2,
        "matches no node of an INT8 engine",
    )
    assert re.search(f"near are StatefulPartitionedCall/{stacks.node('digits_cnn/conv1/Conv2D')}", said)


def test_a_tensor_that_is_always_zero_is_named_and_has_no_range(work, zoo_model):
    np.savez(work / "zero.npz", image=np.zeros((8, 8, 8, 1), np.float32))
    said = ok(convert(zoo_model("digits_cnn"), work / "zero", f"--calibration_data={work}/zero.npz"))
    assert "zero in all of the data" in said and "TensorRTInputPH_0" in said
    assert "TensorRTInputPH_0" not in file.read(work / "zero").engines[0].table.scales


FLAGS_REFUSED = {
    "no data": ((), "INT8 needs ranges"),
    "data and table": (("--calibration_data=x.npz", "--calibration_table=y"), "exclude each other"),
    "data and random": (("--calibration_data=x.npz", "--calibrate_on_random_data"), "exclude each other"),
    "data with FP16": (("--precision=FP16", "--calibration_data=x.npz"), "--calibration_data has no effect"),
    "batch size with FP16": (
        ("--precision=FP16", "--calibration_batch_size=4"),
        "--calibration_batch_size has no effect",
    ),
    "method with FP16": (("--precision=FP16", "--calibration_method=max"), "--calibration_method has no effect"),
    "percentile without its method": (
        ("--calibration_method=mse", "--calibration_percentile=99"),
        "--calibration_percentile has no effect",
    ),
    "no such table": (("--calibration_table=nowhere",), "no such file"),
}


@pytest.mark.parametrize(
    "flags, said",
    [
        (dict(calibration_method="entropy"), "entropy"),
        (dict(calibration_method="percentile", calibration_percentile=99.9), "percentile 99.9"),
        (dict(calibrator="tensorrt"), "entropy2"),
    ],
)
def test_a_table_says_by_which_method_and_percentile_it_was_made(flags, said):
    assert Settings(precision_mode="INT8", **flags).table_method == said
    given = dataclasses.replace(file.of_table(table.Table("TRT-8503-EntropyCalibration2", {"x": 0.5})), method=said)
    assert int8.method_of(given) == {"entropy2": "entropy"}.get(said, said.split()[0])


@pytest.mark.parametrize("case", FLAGS_REFUSED)
def test_flags_that_can_never_work(case, zoo_model, tmp_path):
    flags, says = FLAGS_REFUSED[case]
    refused(convert(zoo_model("digits_cnn"), tmp_path / "out", *flags), 2, says)
    assert not list(tmp_path.iterdir())


def test_tensorrts_own_calibration_needs_a_gpu(work, zoo_model, tmp_path):
    done = run_tftrt(
        "calibrate",
        zoo_model("digits_cnn"),
        f"--output={tmp_path}/out.json",
        f"--calibration_data={work}/training.npz",
        "--calibrator=tensorrt",
        env={"CUDA_VISIBLE_DEVICES": "-1"},
    )
    refused(done, 1, "calibrates on a GPU")
    assert not list(tmp_path.iterdir())


# Reuse.


def test_a_table_of_calibrate_is_that_of_convert_and_serves_any_batch_size(digits, digits_table, work, zoo_model):
    assert [one.table for one in file.read(digits_table).engines] == list(tables(digits).values())
    ok(
        convert(
            zoo_model("digits_cnn"),
            work / "reused",
            f"--calibration_table={digits_table}",
            "--calibration_batch_size=3",
        )
    )
    assert list(tables(work / "reused").values()) == list(tables(digits).values())
    kept = file.read(work / "reused")
    assert kept.provenance[-1]["step"] == "reused" and kept.data["samples"] == 64
    assert passport.read(work / "reused", passport.MANIFEST)["calibration"]["reused"]


def test_a_table_of_implicit_mode_becomes_that_of_dynamic_mode(digits_table, work, zoo_model):
    ok(convert(zoo_model("digits_cnn"), work / "moved", f"--calibration_table={digits_table}", "--use_dynamic_shape"))
    ok(
        convert(
            zoo_model("digits_cnn"), work / "dynamic", f"--calibration_data={work}/training.npz", "--use_dynamic_shape"
        )
    )
    assert list(tables(work / "moved").values()) == list(tables(work / "dynamic").values())


def test_a_table_of_a_converted_model_of_any_precision_is_the_same(digits_table, work, converted):
    ok(
        calibrate(
            converted("digits_cnn", "--precision=FP16"), work / "fp16.json", f"--calibration_data={work}/training.npz"
        )
    )
    assert [(one.segment, one.table) for one in file.read(work / "fp16.json").engines] == [
        (one.segment, one.table) for one in file.read(digits_table).engines
    ]
    refused(
        calibrate(
            converted("digits_cnn", "--precision=FP16"),
            work / "no.json",
            f"--calibration_data={work}/training.npz",
            "--minimum_segment_size=5",
        ),
        2,
        "converted already",
    )


@stacks.needs_keras_2
def test_an_edited_table_keeps_what_was_removed_away_with_its_other_names(digits_table, work, zoo_model):
    ok(
        run_tftrt(
            "table",
            "edit",
            digits_table,
            f"--remove=.*/{stacks.node('probabilities/MatMul')}",
            f"--scale=.*/{stacks.node('relu1/Relu')}=2",
            f"--output={work}/edited.json",
        )
    )
    ok(convert(zoo_model("digits_cnn"), work / "edited", f"--calibration_table={work}/edited.json"))
    (one,) = file.read(work / "edited").engines
    assert {name.rpartition("/")[2] for name, _ in one.left_out} == {
        "MatMul",
        "(Unnamed Layer* 18) [Fully Connected]_output",
    }
    before = file.read(digits_table).engines[0].table.scales
    relu = next(name for name in before if re.search(f"/{stacks.node('relu1/Relu')}$", name))
    assert one.table.scales[relu] == pytest.approx(2 * before[relu])


def test_a_table_of_another_graph_is_refused(digits_table, work, zoo_model):
    refused(
        convert(
            zoo_model("digits_cnn"), work / "out", f"--calibration_table={digits_table}", "--keep_native_ops=Softmax"
        ),
        1,
        "was made for another graph",
    )
    (work / "other.table").write_text(
        "TRT-8503-EntropyCalibration2\nTensorRTInputPH_0: 3c03156f\nother/Relu: 3c03156f\n"
    )
    refused(
        convert(zoo_model("digits_cnn"), work / "out", f"--calibration_table={work}/other.table"), 1, "has no node of"
    )
    (work / "garbage").write_bytes(bytes(range(256)))
    refused(
        convert(zoo_model("digits_cnn"), work / "out", f"--calibration_table={work}/garbage"), 2, "no calibration file"
    )
    assert not (work / "out").exists()


def test_calibrate_replaces_a_file_only_if_asked(digits_table, work, zoo_model):
    before = digits_table.read_bytes()
    refused(
        calibrate(zoo_model("digits_cnn"), digits_table, f"--calibration_data={work}/training.npz"), 2, "--overwrite"
    )
    refused(
        calibrate(zoo_model("digits_cnn"), digits_table, f"--calibration_data={work}/no.npz", "--overwrite"),
        2,
        "no.npz",
    )
    assert digits_table.read_bytes() == before
    refused(
        calibrate(zoo_model("digits_cnn"), work / "no" / "x.json", f"--calibration_data={work}/training.npz"),
        2,
        "no directory",
    )
    refused(calibrate(zoo_model("digits_cnn"), work / "x.json"), 2, "--calibration_data is missing")


# Fitting to another build.


def _function():
    """A segment whose numbered names depend on the batch mode: a slice of unknown sizes hides layers that compute shapes."""

    def body(x):
        cut = tf.raw_ops.StridedSlice(
            input=x, begin=[0, 0], end=[0, 2], strides=[1, 1], begin_mask=3, end_mask=1, name="cut"
        )
        return tf.raw_ops.MatMul(a=cut + tf.constant([0.5, -2.0], name="bias"), b=tf.ones((2, 3)), name="product")

    made = tf.function(body, autograph=False).get_concrete_function(tf.TensorSpec((None, 2), tf.float32)).function_def
    (last,) = (node for node in made.node_def if node.op == "Identity")
    made.ret[next(iter(made.ret))] = last.input[0]
    made.node_def.remove(last)
    return made


def _made(dynamic):
    """The table for a build in which each name has the scale of its tensor."""
    from tftrt_tools.tftrt.calibration.job import tensor_names

    function, scales = _function(), {"x:0": 1.0, "cut:0": 2.0, "add:0": 4.0, "product:0": 8.0, "bias:0": 2.0 / 127}
    named = tensor_names.names(function, dynamic, [(None, 2)])
    found = {one.name: scales[one.tensor] for one in named}
    return function, file.EngineTable(
        segment="sha256:x", signature="s", engine="E", table=table.Table("TRT-8503-EntropyCalibration2", found)
    )


def test_numbered_names_are_worked_out_anew_for_the_other_mode():
    function, implicit = _made(False)
    _, dynamic = _made(True)
    assert set(implicit.table.scales) != set(dynamic.table.scales)
    moved = fitting.fitted(implicit, function, True, [(None, 2)], "max")
    assert (
        moved.table == dynamic.table and list(moved.table.scales) == list(dynamic.table.scales) and not moved.left_out
    )


def test_what_is_no_longer_measured_and_what_was_removed_stays_out():
    function, implicit = _made(False)
    kept = {
        name: scale
        for name, scale in implicit.table.scales.items()
        if name != "product" and not name.startswith("TensorRTOutput")
    }
    less = file.EngineTable(
        segment="sha256:x",
        signature="s",
        engine="E",
        table=table.Table(implicit.table.header, kept),
        left_out=(("TensorRTOutputPH_0", "removed by hand"),),
    )
    moved = fitting.fitted(less, function, True, [(None, 2)], "max")
    product = [name for name in moved.table.scales if "Fully Connected" in name]
    assert not product and {reason for name, reason in moved.left_out if "Fully Connected" in name} == {
        "removed by hand"
    }


@pytest.mark.parametrize(("reason", "stays_out"), [(file.NOT_MEASURED, False), ("removed by hand", True)])
def test_a_constant_that_an_earlier_version_did_not_know_gets_a_scale(reason, stays_out):
    function, dynamic = _made(True)
    (name,) = (name for name in dynamic.table.scales if "Constant" in name)
    kept = {one: scale for one, scale in dynamic.table.scales.items() if one != name}
    earlier = dataclasses.replace(dynamic, table=table.Table(dynamic.table.header, kept), left_out=((name, reason),))
    moved = fitting.fitted(earlier, function, True, [(None, 2)], "max")
    assert moved == (earlier if stays_out else dynamic)


def test_a_table_for_the_same_build_stays_as_it_is():
    function, dynamic = _made(True)
    assert fitting.fitted(dynamic, function, True, [(None, 2)]) == dynamic


def test_a_table_follows_the_shapes_of_each_build(zoo_model):
    """The encoder computes sizes: with one profile TF-TRT makes a network of known sizes, which has other layers than one of unknown."""
    from tftrt_tools.models.savedmodel.job import loading
    from tftrt_tools.tftrt.calibration.job import tensor_names
    from tftrt_tools.tftrt.conversion.job import engine_inputs, graph_pass

    root = tf.saved_model.load(str(zoo_model("bert_encoder", layers=1)))
    frozen = graph_pass.freeze("serving_default", root.signatures["serving_default"])
    specs = loading.input_specs(root.signatures["serving_default"])
    one, two = ({spec.name: (batch, 16) for spec in specs} for batch in (2, 4))
    settings = Settings(precision_mode="INT8", use_dynamic_shape=True)
    graph_def = graph_pass.run(frozen, settings).graph_def
    native = graph.native_segments(graph_def)
    engine = max(native, key=lambda name: len(native[name].function.node_def))
    static = [fed.shape for fed in engine_inputs.of_calls(frozen, graph_def, specs, [one]).feeds[engine][0]]
    names = {
        key: {found.name for found in tensor_names.names(native[engine].function, True, shapes) if found.tensor}
        for key, shapes in (("one", static), ("any", native[engine].shapes))
    }
    assert names["one"] != names["any"]
    portable = file.EngineTable(
        segment="sha256:x",
        signature="s",
        engine=engine,
        table=table.Table("TRT-8503-EntropyCalibration2", dict.fromkeys(names["any"], 1.0)),
    )

    def built(calls, made, **flags):
        shapes = Settings(precision_mode="INT8", use_dynamic_shape=True, dynamic_shape_profile_strategy="Optimal")
        (fitted,) = int8.for_build(frozen, graph_def, specs, shapes, calls, [made], "max", **flags)
        return {name for name in fitted.table.scales if "Constant" not in name}, fitted

    def wanted(key):
        return {name for name in names[key] if "Constant" not in name}

    single, fitted = built([one], portable)
    assert single == wanted("one")
    assert built([one, two], portable)[1] == portable
    assert built([one, two], fitted, earlier=True)[0] == wanted("any")
    assert built([], fitted, earlier=True)[0] == wanted("any")
    assert built([two], fitted, earlier=True)[0] == wanted("one")


def test_int8_for_any_shape_gets_a_profile_that_keeps_the_tables_names():
    plain, int8_of = Settings(use_dynamic_shape=True), Settings(precision_mode="INT8", use_dynamic_shape=True)
    assert plain.strategy == "Optimal" and int8_of.strategy == "Range"
    assert dataclasses.replace(int8_of, shapes="x:1x2").strategy == "Optimal"
    assert dataclasses.replace(int8_of, dynamic_shape_profile_strategy="Optimal").strategy == "Optimal"


# The order of an engine's inputs and outputs.


def _permuted(graph_def, engine):
    """The same graph with the inputs of `engine` listed the other way round."""
    copy = type(graph_def)()
    copy.CopyFrom(graph_def)
    node = next(node for node in copy.node if node.name == engine)
    function = next(one for one in copy.library.function if one.signature.name == node.attr["segment_func"].func.name)
    names = [arg.name for arg in function.signature.input_arg]
    swap = dict(zip(names, reversed(names), strict=True))
    data = [source for source in node.input if not source.startswith("^")]
    node.input[: len(data)] = data[::-1]
    shapes = node.attr["input_shapes"].list.shape
    reversed_shapes = [type(one).FromString(one.SerializeToString()) for one in reversed(shapes)]
    for place, shape in zip(shapes, reversed_shapes, strict=True):
        place.CopyFrom(shape)
    function.arg_attr.clear()
    for inner in function.node_def:
        inner.input[:] = [swap.get(source, source) for source in inner.input]
    return copy


def test_the_order_in_which_tf_trt_lists_inputs_does_not_matter(zoo_model):
    from tftrt_tools.tftrt.conversion.job import graph_pass
    from tftrt_tools.tftrt.conversion.settings import Settings

    root = tf.saved_model.load(str(zoo_model("lstm_tagger")))
    frozen = graph_pass.freeze("serving_default", root.signatures["serving_default"])
    graph_def = graph_pass.run(frozen, Settings(use_dynamic_shape=True)).graph_def
    several = [node for node in graph_def.node if node.op == graph.ENGINE_OP and len(node.attr["InT"].list.type) > 1]
    assert several
    for node in several:
        other = _permuted(graph_def, node.name)
        assert segments.engine_digests(other, names=True) != segments.engine_digests(graph_def, names=True)
        engine_order.sort_borders(other)
        assert segments.engine_digests(other, names=True) == segments.engine_digests(graph_def, names=True)
        assert list(next(one for one in other.node if one.name == node.name).input) == list(node.input)


# Quantization-aware models.


@pytest.mark.parametrize(
    ("weights", "flags", "explicit"),
    [(None, ("--use_dynamic_shape",), True), ("", (), False)],
    ids=["explicit", "ranges of activations"],
)
def test_a_quantization_aware_model_needs_no_data(weights, flags, explicit, tmp_path):
    quantized.build(tmp_path / "model", "QuantizeAndDequantizeV2" if explicit else "FakeQuantWithMinMaxVars", weights)
    ok(convert(tmp_path / "model", tmp_path / "out", *flags))
    (engine,) = graph.engine_ops(protos.meta_graph(protos.read(tmp_path / "out")).graph_def)
    assert engine.precision == "INT8" and engine.explicit_precision == explicit and not engine.calibrated
    assert not (passport.folder(tmp_path / "out") / passport.CALIBRATION).exists()
    done = ok(convert(tmp_path / "model", tmp_path / "out2", *flags, "--calibrate_on_random_data"))
    assert "calibration was not used" in done
    refused(
        calibrate(tmp_path / "model", tmp_path / "t.json", *flags, "--calibrate_on_random_data"), 3, "no INT8 engine"
    )


def test_what_tf_trt_does_otherwise_than_the_model_asks_is_refused_unless_allowed(tmp_path):
    quantized.build(tmp_path / "model", "QuantizeAndDequantizeV3")
    refused(convert(tmp_path / "model", tmp_path / "out"), 3, "quantization-aware", "--allow_quantization_changes")
    assert not (tmp_path / "out").exists()
    ok(convert(tmp_path / "model", tmp_path / "out", "--allow_quantization_changes"))
    said = ok(run_tftrt("inspect", tmp_path / "model", INT8))
    assert "quant_w0" in said and "layers that quantization keeps out of TensorRT: " in said
    plan = json.loads(ok(run_tftrt("inspect", tmp_path / "model", INT8, "--json=-")))
    assert {node["name"].rpartition("/")[2] for node in plan["signatures"][0]["quantization"]["nodes"]} >= {
        "quant_a0",
        "quant_w0",
    }


# Random data, and data that was seen before.


def test_random_calibration_is_said_everywhere(work, zoo_model):
    said = ok(convert(zoo_model("digits_cnn"), work / "random", "--calibrate_on_random_data"))
    assert "random samples" in said and "the ranges say nothing" in said
    assert passport.read(work / "random", passport.MANIFEST)["calibration"]["data"]["random"]
    assert "random" in ok(run_tftrt("inspect", work / "random")) and "random" in ok(
        run_tftrt("table", "show", work / "random")
    )
    done = run_tftrt("verify", zoo_model("digits_cnn"), work / "random", f"--html={work}/random.html")
    assert "calibrated on random data" in ok(done) and "calibrated on random data" in (work / "random.html").read_text()
    assert passport.read(work / "random", passport.VERIFY)["calibration"]["random"]


@pytest.mark.parametrize(
    ("seen", "new", "flags", "code", "says"),
    [
        (0, 8, (), 0, ""),
        (8, 8, (), 0, "8 of 16 rows were used"),
        (9, 8, (), 2, "9 of 17 rows were used"),
        (9, 8, ("--allow_calibration_data",), 0, "9 of 17 rows were used"),
    ],
)
def test_scoring_data_that_calibrated_the_model_is_counted_and_refused(
    seen, new, flags, code, says, digits, zoo_model, tmp_path
):
    rows = np.concatenate([digits_cnn.training_images()[0][:seen], digits_cnn.held_back()[0][:new]])
    np.savez(tmp_path / "data.npz", image=rows)
    done = run_tftrt("verify", zoo_model("digits_cnn"), digits, f"--data={tmp_path}/data.npz", "--nowrite", *flags)
    assert done.returncode == code and says in done.stdout + done.stderr, done.stderr


# Papers that disagree.


def test_a_calibration_file_that_is_missing_or_another_is_found(digits, work, tmp_path):
    import shutil

    shutil.copytree(digits, tmp_path / "model")
    path = passport.folder(tmp_path / "model") / passport.CALIBRATION
    document = json.loads(path.read_text())
    document["engines"][0]["table"]["scales"]["TensorRTInputPH_0"] *= 2
    path.write_text(json.dumps(document))
    done = run_tftrt("inspect", tmp_path / "model", "--check")
    assert done.returncode == 3 and "another than that of calibration.json" in done.stdout
    path.unlink()
    done = run_tftrt("inspect", tmp_path / "model", "--check")
    assert done.returncode == 3 and "calibration.json: it is missing" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["convert", "calibrate"])
def test_an_interrupt_amid_the_batches_writes_nothing_and_leaves_no_child(command, number, zoo_model, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "slow_data.py").write_text(
        "import pathlib, time\nimport numpy as np\n\ndef batches():\n    yield np.ones((4, 8, 8, 1), np.float32)\n"
        "    pathlib.Path('reading').touch()\n    time.sleep(120)\n"
    )
    flags = {
        "convert": [f"--model={zoo_model('digits_cnn')}", f"--output={tmp_path / 'out'}", INT8],
        "calibrate": [zoo_model("digits_cnn"), f"--output={tmp_path / 'out'}"],
    }[command]
    running = subprocess.Popen(
        [sys.executable, "-m", "tftrt_tools", command, *map(str, flags), "--calibration_data=slow_data:batches"],
        cwd=data,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TFTRT_TEST_MARK": str(tmp_path)},
    )
    while not (data / "reading").exists():
        assert running.poll() is None, running.stderr.read()
        time.sleep(0.1)
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 1 and "Traceback" not in said and "tftrt: error: " in said
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert not processes_marked(str(tmp_path))
