"""What becomes of a build in which TensorRT refuses nodes by name: `tests.refusals` stands in for TensorRT."""

import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf

from tests import keras_layers, prepared_models, quantized, stacks
from tests.command_here import run_tftrt
from tests.engine_models import Steps, saved
from tests.refusals import GPU, LAYER, UNNAMED, VERSIONS, Refusals, converted, cropping, stand_in
from tftrt_tools.base import errors, tf_private
from tftrt_tools.base.process import child
from tftrt_tools.command_line.commands import _made
from tftrt_tools.models.execution import coverage, run
from tftrt_tools.models.execution.job import gpu as gpu_module
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.job import graph, protos
from tftrt_tools.tftrt.calibration import file
from tftrt_tools.tftrt.calibration import table as tables
from tftrt_tools.tftrt.calibration.job import parts, tensorrt
from tftrt_tools.tftrt.conversion import build, build_job, pass_log, pipeline
from tftrt_tools.tftrt.conversion.job import finishing, int8
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import refused_lines

CALLS = [{"x": (1, 24, 8)}, {"x": (4, 24, 8)}]
DATA = DataOptions(random=True, shapes="x:8x24x8", batches=2)
MEASURED = int8.Source(options=DATA, given=None)
INT8 = {"precision_mode": "INT8", "calibration_method": "max"}


def by_tensor(made):
    """{tensor of the graph without engines: scale} of a finishing.Made with its graph in `function`."""
    return scales(made.function.graph.as_graph_def(), made.tables)


def scales(graph_def, engine_tables):
    divided = parts._Divided(graph_def)
    known = parts._Known(divided, engine_tables, True)
    return {tensor: one.table.scales[name] for tensor, (one, name) in known._lines.items() if name in one.table.scales}


def written(made):
    """{engine: the table on its op}."""
    return {
        graph.engine_name(node.name): tables.parse(node.attr["calibration_data"].s.decode())
        for node in graph.engine_nodes(made.function.graph.as_graph_def())
    }


def test_a_refused_int8_engine_is_measured_again_and_its_parts_have_tables_of_their_own(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("StridedSlice"))
    model = cropping(tmp_path / "model")
    made = converted(model, CALLS, tmp_path, MEASURED, **INT8)
    assert len(made.result.built) == 2 and not made.result.unbuilt and made.record is not None
    (left,) = made.result.refused_nodes
    assert left.op == "StridedSlice" and left.reason.startswith(pass_log.REFUSED)
    stand_in(monkeypatch, Refusals("none"))
    kept = converted(model, CALLS, tmp_path, MEASURED, keep_native_nodes=".*strided_slice", **INT8)
    assert [one.table.scales for one in made.tables] == [one.table.scales for one in kept.tables]
    assert written(made) == {one.engine: one.table for one in made.tables}


def test_the_method_that_was_decided_stays_and_is_not_compared_again(monkeypatch, tmp_path):
    compared = []
    real = int8._compared
    monkeypatch.setattr(int8, "_compared", lambda *given: compared.append(given[0]) or real(*given))
    stand_in(monkeypatch, Refusals("StridedSlice"))
    model = cropping(tmp_path / "model")
    made = converted(model, CALLS, tmp_path, MEASURED, precision_mode="INT8", calibration_method="auto")
    assert len(compared) == 1 and len(made.result.built) == 2
    stand_in(monkeypatch, Refusals("none"))
    kept = converted(model, CALLS, tmp_path, MEASURED, keep_native_nodes=".*strided_slice", **INT8)
    assert [one.table.scales for one in made.tables] == [one.table.scales for one in kept.tables]


def test_a_given_table_is_divided_among_the_parts_with_the_scales_of_the_same_tensors(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("none"))
    model = cropping(tmp_path / "model")
    whole = converted(model, CALLS, tmp_path, MEASURED, **INT8)
    kept = converted(model, CALLS, tmp_path, MEASURED, keep_native_nodes=".*strided_slice", **INT8)
    stand_in(monkeypatch, Refusals("StridedSlice"))
    given = int8.Source(options=None, given=calibration(whole.tables))
    made = converted(model, CALLS, tmp_path, given, **INT8)
    assert len(made.result.built) == 2 and not made.result.unbuilt
    assert [one.table.scales for one in made.tables] == [one.table.scales for one in kept.tables]
    assert written(made) == {one.engine: one.table for one in made.tables}


def calibration(engine_tables):
    from tftrt_tools.tftrt.calibration.file import Calibration

    return Calibration(
        **passport.stamp(),
        calibrator="toolkit",
        method="max",
        tensorrt="8.5.3",
        tensorflow="2.14.1",
        model="",
        model_digest="",
        data={},
        engines=tuple(engine_tables),
    )


def without(one, end):
    """A table without the lines whose names end so."""
    kept = {name: scale for name, scale in one.table.scales.items() if not name.endswith(end)}
    return dataclasses.replace(one, table=tables.Table(one.table.header, kept), left_out=())


def test_a_part_whose_end_no_table_knows_is_left_as_it_is_and_says_why(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("StridedSlice"))
    model = cropping(tmp_path / "model")
    real = parts.tables

    def forgetful(before, made, after, wanted, **options):
        return real(before, [without(one, "strided_slice") for one in made], after, wanted, **options)

    monkeypatch.setattr(parts, "tables", forgetful)
    stand_in(monkeypatch, Refusals("none"))
    whole = converted(model, CALLS, tmp_path, MEASURED, **INT8)
    stand_in(monkeypatch, Refusals("StridedSlice"))
    given = int8.Source(options=None, given=calibration(whole.tables))
    made = converted(model, CALLS, tmp_path, given, **INT8)
    (left,) = made.result.unbuilt
    assert left.refused and "strided_slice is not left to TensorFlow: the table of" in left.reason
    assert "calibrate again" in left.reason and "\n" not in left.reason
    assert not made.result.refused_nodes and len(made.result.engines) == 1


def test_without_the_flag_the_engine_stays_unbuilt(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("StridedSlice"))
    made = converted(cropping(tmp_path / "model"), CALLS, tmp_path, leave_refused_nodes=False)
    (left,) = made.result.unbuilt
    assert left.refused and left.node and not made.result.refused_nodes and not made.result.built
    assert "--keep_native_nodes=" in left.mend


def test_where_nothing_is_left_for_an_engine_the_refused_node_is_the_reason(monkeypatch, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((None, None, 8), name="x")])
    def serve(x):
        return {"y": tf.nn.relu(x)[:, 2:-2] + 1}

    stand_in(monkeypatch, Refusals("StridedSlice"))
    made = converted(prepared_models.save(serve, tmp_path / "model"), CALLS, tmp_path)
    assert not made.result.engines and not made.result.unbuilt and made.result.refused_nodes
    done = pipeline.Conversion(
        source="model",
        source_digest="",
        output=None,
        settings=Settings(use_dynamic_shape=True),
        versions=VERSIONS,
        gpu=GPU,
        seconds=0.0,
        signatures=(made.result,),
    )
    with pytest.raises(errors.CheckFailed) as caught:
        pipeline._check_engines(done)
    assert "strided_slice (StridedSlice) stays in TensorFlow: TensorRT refuses this node" in caught.value.cause
    assert "--minimum_segment_size" in caught.value.mend and "--allow_no_engines" in caught.value.mend


def calibrating(monkeypatch, refuse):
    """Stands in for TensorRT's calibration. Args: refuse: of an engine and its native segment, the attributes of the error, or None. Returns:
    the graphs that it got, in order."""
    graphs = []

    def calibrated(frozen, graph_def, batches, dynamic, folder):
        list(batches)
        graphs.append(graph_def)
        native = graph.native_segments(graph_def)
        for engine, segment in native.items():
            if said := refuse(engine, segment):
                error = tensorrt.NoTable("TensorRT made no calibration table", "a fix")
                vars(error).update(said)
                raise error
        return {engine: "TRT-8503-EntropyCalibration2\nTensorRTInputPH_0: 3c010a14\n" for engine in native}

    monkeypatch.setattr(tensorrt, "tables", calibrated)
    return graphs


def test_tensorrts_own_calibration_goes_on_without_a_node_that_it_refuses(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("none"))

    def refuse(engine, segment):
        names = [node.name for node in segment.function.node_def if node.op == "StridedSlice"]
        return {"node": names[0], "reason": "ISliceLayer has out of bounds access"} if names else None

    calls = calibrating(monkeypatch, refuse)
    settings = {"precision_mode": "INT8", "calibrator": "tensorrt"}
    made = converted(cropping(tmp_path / "model"), CALLS, tmp_path, MEASURED, **settings)
    assert len(calls) == 2 and len(made.result.built) == 2 and len(made.tables) == 2
    assert [one.op for one in made.result.refused_nodes] == ["StridedSlice"]
    with pytest.raises(tensorrt.NoTable):
        converted(cropping(tmp_path / "no"), CALLS, tmp_path, MEASURED, leave_refused_nodes=False, **settings)


def test_tensorrts_own_calibration_says_which_node_it_refused(monkeypatch, tmp_path):
    made = converted(cropping(tmp_path / "model"), [], tmp_path, MEASURED, **INT8)
    graph_def = made.function.graph.as_graph_def()
    (engine,) = graph.engine_ops(graph_def)
    said = (
        "2026-11-26 09:43:10.1: E tensorflow/compiler/tf2tensorrt/utils/trt_logger.cc:86] DefaultLogger 4: "
        f"({engine.name}/PartitionedCall/strided_slice-slice:SLICE: out of bounds)\n"
        "2026-11-26 09:43:10.2: W tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:1120] TF-TRT Warning: Engine creation for "
        f"{engine.name} failed. The native segment will be used instead. Reason: INTERNAL: Failed to build TensorRT engine\n"
    )
    monkeypatch.setattr(tensorrt, "_ready", lambda *_: None)
    monkeypatch.setattr(tensorrt, "_call", lambda *_: os.write(2, said.encode()))
    monkeypatch.setattr(tf_private, "calibration_table", lambda name: None)
    monkeypatch.setattr(tf_private, "serialize_engines", lambda *_: False)

    class Named:
        input_names = ("x",)

    with pytest.raises(tensorrt.NoTable) as raised:
        tensorrt.tables(Named(), graph_def, [{"x": np.zeros((1, 24, 8), "f4")}], True, str(tmp_path))
    assert raised.value.node == "PartitionedCall/strided_slice" and "out of bounds" in raised.value.reason


def test_all_parts_of_a_node_that_was_written_as_several_stay_in_tensorflow_together(monkeypatch, tmp_path):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 8), name="x")])
    def serve(x):
        return {"y": tf.nn.softmax(tf.nn.relu(tf.cumsum(tf.nn.relu(x * 2 + 1) - 3.0, 1) * 1.5) + 1)}

    builds = stand_in(monkeypatch, Refusals("GatherV2"))
    made = converted(prepared_models.save(serve, tmp_path / "model"), [{"x": (1, 8)}], tmp_path)
    assert len(made.result.built) == 2 and not made.result.unbuilt and len(builds.compiled) == 3
    assert all(one.node.startswith("PartitionedCall/Cumsum") for one in made.result.refused_nodes)
    assert {one.op for one in made.result.refused_nodes} == {"GatherV2", "AddV2", "ConcatV2"}


# A Keras model's.
X = stacks.SAVED_INPUT or "x"
OPEN_CHANNELS = [{X: (1, 24, 16)}, {X: (4, 24, 16)}]
# A normalization that stays in TensorFlow: the sizes of what it normalizes reach the second engine as a tensor.
OUTSIDE = "FusedBatchNormV3"


def test_a_refusal_without_a_name_is_that_of_the_nodes_that_were_foreseen(monkeypatch, tmp_path):
    builds = stand_in(monkeypatch, Refusals("DepthwiseConv2dNative", logged=UNNAMED))
    model = keras_layers.build("conv1d", tmp_path / "model")
    made = converted(model, OPEN_CHANNELS, tmp_path, keep_native_ops=(OUTSIDE,))
    assert len(builds.compiled) > 2 and made.result.built and not made.result.unbuilt
    (left,) = made.result.refused_nodes
    assert left.node.endswith("/depthwise") and "Channel dimension must be static" in left.reason


def test_several_foreseen_nodes_stay_in_tensorflow_at_once(monkeypatch, tmp_path):
    layers = tf.keras.layers
    x = tf.keras.Input((None, 16), name="x")
    normalized = keras_layers.Normalization()(layers.Conv1D(16, 3, padding="same", activation="relu")(x))
    first, second = (layers.SeparableConv1D(16, size, padding="same")(normalized) for size in (3, 5))
    y = layers.Dense(8, activation="relu")(layers.Dense(16, activation="relu")(first * second + 1.0))
    tf.saved_model.save(tf.keras.Model(x, y), str(tmp_path / "model"))
    builds = stand_in(monkeypatch, Refusals("DepthwiseConv2dNative", logged=UNNAMED))
    made = converted(tmp_path / "model", OPEN_CHANNELS, tmp_path, keep_native_ops=(OUTSIDE,))
    assert not made.result.unbuilt and [one.op for one in made.result.refused_nodes] == ["DepthwiseConv2dNative"] * 2
    assert made.result.built and sum(builds.refusals) == 1


def test_tensorrts_calibration_leaves_foreseen_nodes_too(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("none"))

    def refuse(engine, segment):
        unnamed = any(node.op == "DepthwiseConv2dNative" for node in segment.function.node_def)
        return {"engine": engine, "reason": "INVALID_ARGUMENT: Channel dimension must be static"} if unnamed else None

    calls = calibrating(monkeypatch, refuse)
    model = keras_layers.build("conv1d", tmp_path / "model")
    data = int8.Source(options=DataOptions(random=True, shapes=f"{X}:8x24x16", batches=2), given=None)
    made = converted(model, OPEN_CHANNELS, tmp_path, data, precision_mode="INT8", calibrator="tensorrt")
    assert len(calls) == 2 and made.result.built and not made.result.unbuilt
    assert [one.op for one in made.result.refused_nodes] == ["DepthwiseConv2dNative"]


def test_a_refused_constant_stands_for_the_node_that_reads_it(monkeypatch, tmp_path):
    # The stand-in refuses the first product by the name of its factor.
    stand_in(monkeypatch, Refusals("Mul", LAYER.replace("{node}", "{node}/y")))
    made = converted(cropping(tmp_path / "model"), CALLS, tmp_path)
    assert {one.op for one in made.result.refused_nodes} == {"Mul"} and len(made.result.refused_nodes) == 2
    assert made.result.built and not made.result.unbuilt


def test_an_engine_stays_that_was_built_before_the_time_was_over(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("none"))

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 8), name="x")])
    def serve(x):
        x = tf.math.lgamma(tf.nn.relu(x * 2 + 1) * 3 - 1)
        return {"y": tf.nn.relu(tf.tanh(x * 2 + 1) * 3 - 1)}

    class Over:
        minutes, left = 1.0, 3

        @property
        def over(self):
            self.left -= 1
            return self.left < 0

        def until(self):
            return None

    real = finishing.Work
    monkeypatch.setattr(finishing, "Work", lambda **given: real(budget=Over(), **given))
    stand_in(monkeypatch, Refusals("Tanh"))
    made = converted(prepared_models.save(serve, tmp_path / "model"), [{"x": (1, 8)}], tmp_path)
    assert len(made.result.built) == 1 and len(made.resources) == 1
    (left,) = made.result.unbuilt
    assert left.refused and "Tanh is not left to TensorFlow: no other part" in left.reason


# --- quantization-aware models


def test_a_refused_node_of_a_quantization_aware_model_stays_in_tensorflow(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("Mean"))
    quantized.build(tmp_path / "model", "QuantizeAndDequantizeV2", dense=False)
    made = converted(
        tmp_path / "model",
        [{"image": (1, 8, 8, 3)}],
        tmp_path,
        precision_mode="INT8",
        minimum_segment_size=1,
        allow_quantization_changes=True,
    )
    assert [one.op for one in made.result.refused_nodes] == ["Mean"]
    assert made.result.built and not made.result.unbuilt and not made.tables


def test_a_convolution_that_tensorrt_refuses_is_no_departure_from_the_quantization(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("Conv2D"))
    quantized.build(tmp_path / "model", "QuantizeAndDequantizeV2")
    made = converted(tmp_path / "model", [{"image": (1, 8, 8, 3)}], tmp_path, precision_mode="INT8")
    lost = made.result.quantization.lost if made.result.quantization else ()
    assert {one.op for one in made.result.refused_nodes} == {"Conv2D"} and not lost


# --- tftrt build


def refused_build(monkeypatch, model, output, builds, tmp_path, shapes, **options):
    """What build.build makes where TensorRT is `builds`, in this process."""

    class Job:
        def run(self, request, env=None, log_file=None):
            os.makedirs(request.output, exist_ok=True)
            return child.Outcome(build_job.job(request), "")

    # Commands may run in this process, too, and have no stand-ins.
    with monkeypatch.context() as patch:
        stand_in(patch, builds)
        patch.setattr(gpu_module, "seen", lambda: GPU)
        patch.setattr(finishing, "versions", lambda: VERSIONS)
        patch.setattr(coverage, "check", lambda *_: ())
        patch.setattr(run, "worker", lambda *_, **__: child.contextlib.nullcontext())
        patch.setattr(build, "build_engines", Job())
        return build.build(model, output, build.Options(shapes=shapes, **options))


def tftrt_convert(model, output, *flags):
    done = run_tftrt("convert", model, output, "--use_dynamic_shape", *flags)
    assert done.returncode == 0, done.stderr
    return output


SHAPES = "x:1x24x8,4x24x8"


class LastRelu(Refusals):
    """Refuses the last Relu of tests.engine_models.Steps."""

    def compile(self, lone, feeds, dynamic):
        (one,) = graph.native_segments(lone.graph_def).values()
        self.op = "Relu" if any(node.name.endswith("Relu_2") for node in one.function.node_def) else "none"
        super().compile(lone, feeds, dynamic)


@pytest.mark.slow
def test_build_splits_a_refused_engine_and_keeps_the_rest(monkeypatch, tmp_path):
    model = saved(Steps(), tmp_path / "model")
    made = tftrt_convert(model, tmp_path / "made", "--minimum_segment_size=1")
    manifest = passport.read(made, passport.MANIFEST)
    assert manifest["settings"].pop("leave_refused_nodes") is True
    passport.write(made, passport.MANIFEST, manifest)  # as versions before wrote it

    builds = LastRelu("")
    done = refused_build(monkeypatch, made, tmp_path / "built", builds, tmp_path, "x:4x8")
    compiled = [name for name, _ in builds.compiled]
    assert len(compiled) == len(set(compiled)) == 5  # three, and the two parts of the last
    assert len(done.built) == 4 and not done.unbuilt and done.complete and _made.failure(done) is None
    (left,) = done.signatures[0].refused_nodes
    assert left.op == "Relu" and left.node.endswith("Relu_2")
    (line,) = [line for line in done.text() if line.startswith("node ")]
    assert line.startswith(f"node {left.node} (Relu) stays in TensorFlow: TensorRT refuses this node (")
    said = passport.read(tmp_path / "built", passport.MANIFEST)
    assert [one["node"] for one in said["signatures"][0]["refused_nodes"]] == [left.node]
    assert said["settings"]["leave_refused_nodes"] is True
    assert said["signatures"][0]["native_ops"] == {"Cumsum": 3, "Relu": 1}
    engines = {one.name for one in done.built}
    assert engines == {one.name for one in done.signatures[0].engines}
    assert {path.name for path in (tmp_path / "built" / "assets").iterdir()} == {
        f"trt-serialized-engine.{name}" for name in engines
    }
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(4, 8)).astype("f4"))
    verified = run_tftrt("verify", model, tmp_path / "built", f"--data={tmp_path / 'data.npz'}")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    # The passport keeps the nodes where the model is built again.
    again = refused_build(monkeypatch, tmp_path / "built", tmp_path / "again", Refusals("none"), tmp_path, "x:4x8")
    assert again.signatures[0].refused_nodes == (left,) and len(again.built) == 4


@pytest.mark.slow
@pytest.mark.parametrize("recorded", ["by this version", "by one that named no nodes"])
def test_build_leaves_the_nodes_that_were_foreseen_where_the_refusal_names_none(recorded, monkeypatch, tmp_path):
    model = keras_layers.build("conv1d", tmp_path / "model")
    made = tftrt_convert(model, tmp_path / "made", f"--keep_native_ops={OUTSIDE}")
    if recorded != "by this version":
        manifest = passport.read(made, passport.MANIFEST)
        for finding in manifest["signatures"][0]["findings"]:
            finding.pop("nodes", None)
        passport.write(made, passport.MANIFEST, manifest)
    builds = Refusals("DepthwiseConv2dNative", logged=UNNAMED)
    done = refused_build(monkeypatch, made, tmp_path / "built", builds, tmp_path, f"{X}:1x24x16,4x24x16")
    assert any(builds.refusals) and done.built and not done.unbuilt and done.complete
    (left,) = done.signatures[0].refused_nodes
    assert left.node.endswith("/depthwise") and "Channel dimension must be static" in left.reason
    engines = {one.name for one in done.signatures[0].engines}
    assert all(one.about in engines for one in done.signatures[0].findings if one.about.startswith("TRTEngineOp"))


@pytest.mark.slow
def test_build_leaves_a_refused_engine_where_that_is_asked_for(monkeypatch, tmp_path):
    model = saved(Steps(), tmp_path / "model")
    made = tftrt_convert(model, tmp_path / "made")

    class One(Refusals):
        def compile(self, lone, feeds, dynamic):
            self.op = "Relu" if len(self.compiled) == 2 else "none"
            super().compile(lone, feeds, dynamic)

    done = refused_build(monkeypatch, made, tmp_path / "built", One(""), tmp_path, "x:4x8", leave_refused_nodes=False)
    (left,) = done.unbuilt
    assert left.refused and not done.complete and isinstance(_made.failure(done), errors.CheckFailed)
    assert passport.read(tmp_path / "built", passport.MANIFEST)["settings"]["leave_refused_nodes"] is False
    assert not refused_lines(done.signatures)


@pytest.mark.slow
def test_build_leaves_an_engine_unbuilt_that_has_no_part_worth_an_engine(monkeypatch, tmp_path):
    made = tftrt_convert(cropping(tmp_path / "model"), tmp_path / "made")

    class All(Refusals):
        def compile(self, lone, feeds, dynamic):
            (one,) = graph.native_segments(lone.graph_def).values()
            self.op = next(node.op for node in one.function.node_def if node.op not in graph.PASSIVE_OPS)
            super().compile(lone, feeds, dynamic)

    with pytest.raises(errors.TftrtError) as raised:
        refused_build(monkeypatch, made, tmp_path / "built", All(""), tmp_path, SHAPES)
    assert "no other part of it is worth an engine" in raised.value.cause and not (tmp_path / "built").exists()


@pytest.mark.slow
def test_build_divides_the_int8_table_of_a_split_engine(monkeypatch, tmp_path):
    model = cropping(tmp_path / "model")
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(16, 24, 8)).astype("f4"))
    flags = ("--precision=INT8", f"--calibration_data={tmp_path / 'data.npz'}", "--calibration_method=max")
    made = tftrt_convert(model, tmp_path / "made", *flags)
    kept = tftrt_convert(model, tmp_path / "kept", *flags, "--keep_native_nodes=.*strided_slice")
    done = refused_build(monkeypatch, made, tmp_path / "built", Refusals("StridedSlice"), tmp_path, SHAPES)
    assert len(done.built) == 2 and not done.unbuilt
    divided, measured = (file.read(path).engines for path in (tmp_path / "built", tmp_path / "kept"))
    assert [one.table.scales for one in divided] == [one.table.scales for one in measured]
    assert kept and {one.engine for one in divided} == {one.name for one in done.built}


def test_build_leaves_an_int8_engine_unbuilt_whose_ranges_no_file_has(monkeypatch, tmp_path):
    model = cropping(tmp_path / "model")
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(16, 24, 8)).astype("f4"))
    made = tftrt_convert(model, tmp_path / "made", "--precision=INT8", f"--calibration_data={tmp_path / 'data.npz'}")
    (passport.folder(made) / passport.CALIBRATION).unlink()
    with pytest.raises(errors.TftrtError) as raised:
        refused_build(monkeypatch, made, tmp_path / "built", Refusals("StridedSlice"), tmp_path, SHAPES)
    assert "no calibration file of the model has its ranges" in raised.value.cause


@pytest.mark.slow
def test_build_keeps_the_int8_tables_of_other_engines(monkeypatch, tmp_path):
    model = saved(Steps(), tmp_path / "model")
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(16, 8)).astype("f4"))
    made = tftrt_convert(
        model,
        tmp_path / "made",
        "--minimum_segment_size=1",
        "--precision=INT8",
        f"--calibration_data={tmp_path / 'data.npz'}",
        "--calibration_method=max",
    )
    done = refused_build(monkeypatch, made, tmp_path / "built", LastRelu(""), tmp_path, "x:4x8")
    before, after = (file.read(path).engines for path in (made, tmp_path / "built"))
    assert (len(before), len(after), len(done.built)) == (3, 4, 4) and not done.unbuilt
    kept = {one.segment: one.table for one in before} | {one.segment: one.table for one in after}
    assert len(kept) == 5 and sum(kept[one.segment] == one.table for one in before) == 3
    on_ops = {
        graph.engine_name(node.name): tables.parse(node.attr["calibration_data"].s.decode())
        for node in graph.engine_nodes(protos.meta_graph(protos.read(tmp_path / "built")).graph_def)
    }
    assert on_ops == {one.engine: one.table for one in after}


def test_a_given_table_of_another_tensorrt_is_written_for_the_one_that_is_here(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("none"))
    model = cropping(tmp_path / "model")
    whole = converted(model, CALLS, tmp_path, MEASURED, **INT8)
    before = [dataclasses.replace(one, table=one.table.for_tensorrt("8.6.1")) for one in whole.tables]
    assert all(one.table.header.startswith("TRT-8601-") for one in before)
    given = int8.Source(options=None, given=calibration(before))
    made = converted(model, CALLS, tmp_path, given, **INT8)
    here = tf_private.tensorrt_versions()[1]
    assert written(made) and all(one == whole.tables[0].table.for_tensorrt(here) for one in written(made).values())
