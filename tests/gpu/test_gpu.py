"""What only a GPU can show: engines built, saved, served, watched. `make gpu-test`, or with N GPUs
`TFTRT_TEST_GPUS=0,1 pytest -m gpu -n 2`: engines are timed while they are built, so that tests on one GPU slow each other down.

Each test that measures appends a line to the file named by TFTRT_GPU_REPORT; `python -m tests.gpu_report FILE` prints the table.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import saved_models
from tests import keras_layers, stacks
from tests.command_line import FLAGS, assert_clear
from tests.conftest import ROOT, run_tftrt
from tests.gpu_commands import EXACT, NO_GPU, change_engines, convert, report, verify
from tests.saved_inputs import saved_inputs
from tests.zoo import zoo_inputs
from tftrt_tools.models.savedmodel import describe, engine_assets, passport
from tftrt_tools.models.savedmodel.job import protos

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]


@pytest.fixture(scope="session")
def digits(zoo_model, tmp_path_factory):
    """A function (*flags) -> path of digits_cnn converted with them, made once a session by whichever worker comes first."""
    from tests import zoo

    folder = zoo.common(tmp_path_factory) / "digits"

    def get(*flags, env=None):
        label = "".join(c if c.isalnum() else "-" for c in "".join(flags) + str(env or ""))
        with zoo.lock(folder / f".{label}.lock"):
            if not (folder / label).exists():
                convert(zoo_model("digits_cnn"), folder / label, "--precision=FP16", *flags, env=env)
        return folder / label

    return get


WITHOUT_GPU = dict(env=NO_GPU)


@pytest.mark.parametrize("name", saved_models.NAMES)
def test_every_sample_model_converted_without_a_gpu_runs_here(name, zoo_model, tmp_path):
    model = zoo_model(name, **({"width": 64} if name == "resnet50" else {}))
    done = convert(model, tmp_path / "out", "--precision=FP16", *FLAGS[name], env=NO_GPU)
    assert done["gpu"] is None
    data = saved_inputs(tmp_path / "data.npz", name, batch=8)
    # Random weights have thin margins between the first two classes: these are judged by the error of their logits alone.
    bounds = ["--thresholds=top1>=0"] if name in ("resnet50", "mobilenet_v2") else []
    code, said, error = verify(model, tmp_path / "out", f"--data={data}", "--batch_size=8", "--allow_builds", *bounds)
    assert said, error
    worst = min((one["snr_db"] for one in said["comparisons"] if isinstance(one["snr_db"], float)), default=None)
    report(
        test="converted without a GPU",
        model=name,
        engines=done["engine_count"],
        coverage=done["coverage"],
        worst_snr_db=worst,
        engine_runs=sum(said["engine_runs"].values()),
        builds=sum(said["builds"].values()),
        passed=said["passed"],
        problems=said["problems"],
    )
    assert said["mode"] == "gpu" and said["engine_runs"], said
    assert code == 0, said["problems"]


@pytest.mark.parametrize(
    ("label", "flags"),
    [
        ("Optimal", (EXACT,)),
        ("Range", (EXACT, "--dynamic_shape_profile_strategy=Range")),
        ("implicit", (EXACT, "--nouse_dynamic_shape")),
    ],
)
def test_declared_shapes_are_built_saved_and_served(label, flags, zoo_model, digits):
    target = digits(*flags)
    said = passport.read(target, passport.MANIFEST)
    assert [list(one["shapes"].values()) for one in said["shapes_served"]] == [[[1, 8, 8, 1]], [[8, 8, 8, 1]]]
    assert said["gpu"]["compute_capability"] and said["signatures"][0]["built"]
    code, result, error = verify(zoo_model("digits_cnn"), target)
    assert code == 0, (result or {}).get("problems", error)
    assert result["mode"] == "gpu" and not result["builds"] and sum(result["engine_runs"].values()) == 2
    report(
        test="engines saved",
        model=f"digits_cnn {label}",
        engines=said["engine_count"],
        build_seconds=said["signatures"][0]["build_seconds"],
        bytes=sum(one["bytes"] for one in said["signatures"][0]["built"]),
        passed=True,
    )


def test_held_back_images_are_answered_by_the_engines(zoo_model, digits, tmp_path):
    images, labels = saved_models.builder("digits_cnn").held_back()
    np.savez(tmp_path / "images.npz", image=images)
    np.save(tmp_path / "labels.npy", labels)
    code, said, error = verify(
        zoo_model("digits_cnn"),
        digits(EXACT),
        f"--data={tmp_path / 'images.npz'}",
        f"--labels={tmp_path / 'labels.npy'}",
    )
    assert code == 0, (said or {}).get("problems", error)
    report(
        test="accuracy",
        model="digits_cnn FP16",
        original=said["accuracy"]["original"],
        converted=said["accuracy"]["converted"],
        top1=said["comparisons"][0]["top1"],
        worst_snr_db=said["comparisons"][0]["snr_db"],
        passed=True,
    )
    assert said["accuracy"]["converted"] >= said["accuracy"]["original"] - 0.005


def fails_naming_engine_and_shape(zoo_model, target, verb, shape, *flags, env=None):
    code, said, error = verify(zoo_model("digits_cnn"), target, *flags, env=env)
    assert said, error
    engine = describe.describe(target)[0].engines[0].name
    hits = [
        problem for problem in said["engine_problems"] if verb in problem and engine in problem and shape in problem
    ]
    report(
        test="fallback caught",
        model=verb,
        cause=os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1].split(" ")[0],
        passed=bool(hits) and code == 3,
        said=hits[:1],
    )
    assert code == 3 and hits, said["problems"]
    return said


def test_a_shape_without_a_profile_is_caught(zoo_model, digits):
    said = fails_naming_engine_and_shape(
        zoo_model, digits(EXACT), "ran natively", "image 4x8x8x1", "--shapes=image:4x8x8x1"
    )
    assert "Engine retrieval for input shapes" in said["engine_problems"][0]


def test_no_engine_and_no_leave_to_build_one_is_caught(zoo_model, digits):
    target = digits("--noallow_build_at_runtime", **WITHOUT_GPU)
    fails_naming_engine_and_shape(zoo_model, target, "ran natively", "image 1x8x8x1", "--shapes=image:1x8x8x1")


def test_a_build_inside_a_call_is_caught_and_can_be_accepted(zoo_model, digits):
    target = digits(**WITHOUT_GPU)
    fails_naming_engine_and_shape(
        zoo_model, target, "was built inside the call", "image 8x8x8x1", "--shapes=image:8x8x8x1"
    )
    assert verify(zoo_model("digits_cnn"), target, "--shapes=image:8x8x8x1", "--allow_builds")[0] == 0


def test_a_failed_build_is_caught(zoo_model, digits):
    said = fails_naming_engine_and_shape(
        zoo_model,
        digits(**WITHOUT_GPU),
        "ran natively",
        "image 2x8x8x1",
        "--shapes=image:2x8x8x1",
        "--allow_builds",
        env={"TF_TRT_ABORT_CUDA_ENGINE_BUILD": "1"},
    )
    assert "Engine creation" in said["engine_problems"][0]


def test_an_engine_left_in_calibration_mode_is_caught(zoo_model, digits, tmp_path):
    target = shutil.copytree(digits(**WITHOUT_GPU), tmp_path / "copy")
    change_engines(target, precision_mode="INT8", use_calibration=True, calibration_data="")
    fails_naming_engine_and_shape(
        zoo_model, target, "calibration", "image 8x8x8x1", "--shapes=image:8x8x8x1", "--allow_builds"
    )


def test_an_engine_left_in_profile_generation_mode_is_caught(zoo_model, digits, tmp_path):
    target = shutil.copytree(digits("--use_dynamic_shape", **WITHOUT_GPU), tmp_path / "copy")
    change_engines(target, _profile_generation_mode=True)
    fails_naming_engine_and_shape(
        zoo_model, target, "ran natively", "image 8x8x8x1", "--shapes=image:8x8x8x1", "--allow_builds"
    )


def test_inputs_that_the_engine_op_refuses_are_caught(zoo_model, digits, tmp_path):
    target = shutil.copytree(digits(**WITHOUT_GPU), tmp_path / "copy")
    proto = protos.read(target)
    from tftrt_tools.models.savedmodel.job import graph

    for node in graph.engine_nodes(proto.meta_graphs[0].graph_def):
        node.attr["input_shapes"].list.shape[0].dim[1].size = 9
    (target / "saved_model.pb").write_bytes(proto.SerializeToString())
    said = fails_naming_engine_and_shape(
        zoo_model, target, "ran natively", "image 8x8x8x1", "--shapes=image:8x8x8x1", "--allow_builds"
    )
    assert "verifying input shapes" in said["engine_problems"][0]


def test_dropping_the_loaded_object_is_seen_as_a_build(digits):
    """The trap: `f = tf.saved_model.load(path).signatures[...]` destroys the saved engines before the first call."""
    code = textwrap.dedent(f"""
        import json, numpy as np, tensorflow as tf
        from tftrt_tools.base.process import native_log
        from tftrt_tools.models.execution import trace
        from tftrt_tools.models.execution.job import profiling
        x = tf.constant(np.zeros((8, 8, 8, 1), np.float32))
        def traced(function):
            with native_log.captured() as log:
                _, counts = profiling.profiled(lambda: [v.numpy() for v in function(image=x).values()])
            return trace.combine(counts, log[0]).to_dict()
        kept = tf.saved_model.load({str(digits(EXACT))!r})
        first = traced(kept.signatures["serving_default"])
        del kept
        dropped = traced(tf.saved_model.load({str(digits(EXACT))!r}).signatures["serving_default"])
        print(json.dumps([first, dropped]))
    """)
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT) + os.pathsep + os.environ.get("PYTHONPATH", ""),
        "TF_CPP_VMODULE": "trt_engine_op=1",
        "TF_CPP_MIN_LOG_LEVEL": "0",
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    kept, dropped = json.loads(done.stdout.splitlines()[-1])
    assert kept["engine"] and not kept["build"] and not kept["fallback"]
    assert dropped["build"] or dropped["fallback"]
    report(
        test="fallback caught",
        model="dropped object",
        cause="loaded object dropped",
        passed=True,
        said=[json.dumps(dropped)],
    )


def test_every_signature_gets_its_engines(zoo_model, tmp_path):
    shapes = "--shapes=user:8;user_features:8x8;visits:8x4;item:8;price_cents:8"
    said = convert(zoo_model("ranker"), tmp_path / "out", "--precision=FP16", shapes)
    assert all(one["built"] for one in said["signatures"]) and len(said["shapes_served"]) == 3
    data = saved_inputs(tmp_path / "data.npz", "ranker", batch=8)
    code, result, error = verify(zoo_model("ranker"), tmp_path / "out", f"--data={data}")
    assert code == 0, (result or {}).get("problems", error)
    assert not result["builds"] and set(result["engine_runs"]) == {
        engine.name for engine in describe.describe(tmp_path / "out")[0].engines
    }
    exact = {one["output"]: one for one in result["comparisons"] if one["signature"] == "serving_default"}
    assert exact["total_visits"]["mismatches"] == 0 and exact["expected_revenue"]["nonfinite"] == 0
    report(
        test="engines saved",
        model="ranker, three signatures",
        engines=said["engine_count"],
        build_seconds=sum(one["build_seconds"] for one in said["signatures"]),
        passed=True,
        bytes=sum(built["bytes"] for one in said["signatures"] for built in one["built"]),
    )


def test_mixed_precision_engines_run(zoo_model, tmp_path):
    said = convert(
        zoo_model("digits_cnn"),
        tmp_path / "out",
        "--precision=FP16",
        "--fp32_nodes=.*/(MatMul|Softmax)",
        "--shapes=image:8x8x8x1",
    )
    assert {
        engine["precision_mode" if "precision_mode" in engine else "precision"]
        for engine in said["signatures"][0]["engines"]
    } == {"FP16", "FP32"}
    code, result, error = verify(zoo_model("digits_cnn"), tmp_path / "out")
    assert code == 0, (result or {}).get("problems", error)
    assert len(result["engine_runs"]) == said["engine_count"] >= 2
    inspected = run_tftrt("inspect", tmp_path / "out", "--check")
    assert inspected.returncode == 0, inspected.stdout


def test_the_precision_set_on_the_op_is_what_tensorrt_builds(zoo_model, tmp_path):
    """Conversion runs as FP32 and writes FP16 on the op: the engine must be half the size, and its answers FP16's, not FP32's. An engine of
    TensorRT 8.6 has kernels in it, too, and its size does not tell."""
    sizes, snr = {}, {}
    for precision in ("FP32", "FP16"):
        said = convert(
            zoo_model("mobilenet_v2", size=96),
            tmp_path / precision,
            f"--precision={precision}",
            "--shapes=image:2x96x96x3",
        )
        sizes[precision] = sum(one["bytes"] for one in said["signatures"][0]["built"])
        code, result, error = verify(zoo_model("mobilenet_v2", size=96), tmp_path / precision)
        assert code == 0, (result or {}).get("problems", error)
        snr[precision] = result["comparisons"][0]["snr_db"]
        report(
            test="engines saved",
            model=f"mobilenet_v2 96x96 {precision}",
            engines=said["engine_count"],
            bytes=sizes[precision],
            build_seconds=said["signatures"][0]["build_seconds"],
            worst_snr_db=snr[precision],
            passed=True,
        )
    assert not stacks.KERNELS_OUTSIDE or sizes["FP16"] < 0.75 * sizes["FP32"]
    assert snr["FP16"] != snr["FP32"]


def test_engines_can_be_left_out(zoo_model, tmp_path):
    said = convert(
        zoo_model("digits_cnn"), tmp_path / "out", "--precision=FP16", "--shapes=image:1x8x8x1", "--nosave_engines"
    )
    assert said["signatures"][0]["built"] and not list((tmp_path / "out").glob("assets/trt-serialized-engine*"))


def test_two_models_with_engines_live_in_one_process(digits):
    code = textwrap.dedent(f"""
        import numpy as np, tensorflow as tf
        models = [tf.saved_model.load(path) for path in {[str(digits(EXACT)), str(digits(EXACT, "--nouse_dynamic_shape"))]!r}]
        x = tf.constant(np.random.default_rng(0).normal(size=(8, 8, 8, 1)).astype("float32"))
        one, other = (next(iter(model.signatures["serving_default"](image=x).values())).numpy() for model in models)
        assert np.allclose(one, other, atol=0.01), abs(one - other).max()
    """)
    env = {**os.environ, "TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_v1_loader_of_tensorflow_serving_gets_the_saved_engines(zoo_model, digits):
    code = textwrap.dedent(f"""
        import numpy as np, tensorflow as tf
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            meta = tf.compat.v1.saved_model.load(session, ["serve"], {str(digits(EXACT, "--noallow_build_at_runtime"))!r})
            signature = meta.signature_def["serving_default"]
            got = session.run(signature.outputs["probabilities"].name, {{signature.inputs["image"].name: np.zeros((8, 8, 8, 1), np.float32)}})
            assert np.isfinite(got).all()
    """)
    # With native execution and building both forbidden, an answer can only come from a saved engine.
    env = {**os.environ, "TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_engines_of_another_tensorrt_are_refused_before_they_are_loaded(zoo_model, digits, tmp_path):
    """An engine says in its head which TensorRT built it; here another is written there."""
    target = shutil.copytree(digits(EXACT), tmp_path / "copy")
    (asset,) = (target / "assets").glob(engine_assets.PREFIX + "*")
    (before,) = engine_assets.read_file(asset)
    raw = bytearray(asset.read_bytes())
    raw[raw.index(b"ptrt") + 33] = 4
    asset.write_bytes(raw)
    done = run_tftrt("verify", zoo_model("digits_cnn"), target)
    assert_clear(done, 1, f"were built for TensorRT {stacks.here().heads[before.tensorrt]}")


def test_shapes_that_fail_in_the_model_are_a_clear_error(zoo_model, tmp_path):
    done = run_tftrt(
        "convert",
        f"--model={zoo_model('bert_encoder')}",
        f"--output={tmp_path / 'out'}",
        "--shapes=input_ids:1x16;input_mask:1x8",
    )
    assert_clear(done, 1, "fails at the declared shapes")
    assert not list(tmp_path.iterdir())


def test_the_encoder_with_two_lengths(zoo_model, tmp_path):
    shapes = "--shapes=input_ids:1x16,4x32;input_mask:1x16,4x32"
    said = convert(zoo_model("bert_encoder"), tmp_path / "out", "--precision=FP16", shapes)
    code, result, error = verify(zoo_model("bert_encoder"), tmp_path / "out", "--ranges=input_ids:0:1000")
    assert code == 0, (result or {}).get("problems", error)
    report(
        test="engines saved",
        model="bert_encoder 1x16, 4x32",
        engines=said["engine_count"],
        passed=True,
        build_seconds=said["signatures"][0]["build_seconds"],
        bytes=sum(one["bytes"] for one in said["signatures"][0]["built"]),
        worst_snr_db=min(one["snr_db"] for one in result["comparisons"]),
    )
    assert zoo_inputs("bert_encoder")


def test_grouped_convolutions_and_calls_for_xla_run_in_one_engine(tmp_path):
    """Converted without a GPU: as they are, TF-TRT takes neither."""
    source, shapes = keras_layers.build("grouped", tmp_path / "source"), f"--shapes={keras_layers.INPUT}:8x32x32x8"
    manifest = convert(source, tmp_path / "out", "--precision=FP16", shapes)
    code, said, error = verify(source, tmp_path / "out", shapes)
    report(
        test="grouped",
        coverage=manifest["coverage"],
        engines=manifest["engine_count"],
        snr_db=said["comparisons"][0]["snr_db"],
        engine_runs=said["engine_runs"],
        passed=code == 0,
    )
    assert code == 0, (said["problems"], error)
    assert (manifest["engine_count"], manifest["coverage"]) == (1, 1.0) and said["engine_runs"]
