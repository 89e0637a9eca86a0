"""Rewritten ONNX files, and those of others, as plans on a GPU: TensorRT takes them, and they answer as the model does. `make gpu-test`."""

import json
import time

import numpy as np
import pytest
from onnx import helper

from tests import onnx_files, onnx_sources, stacks
from tests.conftest import run_tftrt
from tests.gpu.test_gpu_plans import build
from tests.gpu_commands import report, verify

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(380), stacks.needs_bindings]
LENGTH, WIDTH = 64, 128


@pytest.fixture(scope="module")
def attention(tmp_path_factory):
    """Two layers of attention, each with a normalization and GELU, as Keras writes them."""
    layers, path = tf.keras.layers, tmp_path_factory.mktemp("attention") / "model.keras"
    x = given = tf.keras.Input((LENGTH, WIDTH), name="x")
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, WIDTH // 4)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="gelu")(x)))
    tf.keras.utils.set_random_seed(1)
    tf.keras.Model(given, x).save(path)
    return path


def exported(source, output, *flags):
    done = run_tftrt(
        "export", source, f"--output={output}", "--target=8.5", f"--json={output}.json", *flags, timeout=370
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = json.loads((output.parent / f"{output.name}.json").read_text())["files"]
    return {one["name"]: one["nodes"] for one in made["rewrites"] if not one["undone"] and one["nodes"]}


def profiled(plan, shapes, folder):
    """(Milliseconds, layers) of the plan's one engine run."""
    done = run_tftrt(
        "profile", plan, f"--shapes={shapes}", "--callers=1", f"--json={folder / 'profile.json'}", timeout=370
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (engine,) = json.loads((folder / "profile.json").read_text())["engines"]
    for layer in engine["layers"]:
        print("   ", layer["kind"], round(1e6 * layer["seconds"], 2), layer["name"][:160])
    return 1e3 * engine["layer_seconds"], len(engine["layers"])


@pytest.mark.parametrize("precision", ["FP32", "FP16"])
def test_attention_of_keras_is_built_with_its_rewrites_and_without(attention, precision, tmp_path):
    shapes, seen = f"x:8x{LENGTH}x{WIDTH}", {}
    for name, flag in (("rewritten", []), ("plain", ["--rewrite=none"])):
        rewrites = exported(attention, tmp_path / f"{name}.onnx", f"--shapes={shapes}", *flag)
        assert ("einsum" in rewrites) == ("layer_norm" in rewrites) == (name == "rewritten")
        build(tmp_path / f"{name}.onnx", tmp_path / name, f"--precision={precision}", f"--shapes={shapes}")
        code, said, stderr = verify(tmp_path / f"{name}.onnx", tmp_path / name)
        assert code == 0 and said["passed"], stderr
        seen[name] = profiled(tmp_path / name, shapes, tmp_path)
        report(
            test="plan, rewrites",
            model=f"two layers of attention, {precision}",
            graph=name,
            ms=seen[name][0],
            layers=seen[name][1],
            passed=True,
        )
    print(seen)


def test_a_long_kernel_as_channels_answers_as_it_did(tmp_path):
    source, shapes = onnx_files.wide(tmp_path / "m.onnx"), "--shapes=x:1x1x20x48,8x1x20x48"
    assert exported(source, tmp_path / "wide.onnx", "--rewrite=+wide_conv")["wide_conv"] == 1
    build(tmp_path / "wide.onnx", tmp_path / "plan", "--precision=FP16", shapes)
    code, said, stderr = verify(source, tmp_path / "plan")
    assert code == 0 and said["passed"], stderr


@pytest.mark.parametrize("form", ["rewritten", "plain"])
def test_hard_swishes_and_learned_scales_answer_as_they_did(form, tmp_path):
    source, shapes = onnx_files.mobile(tmp_path / "m.onnx"), "--shapes=x:1x3x16x16,8x3x16x16"
    flag = ["--rewrite=-hard_swish,-conv_scale"] if form == "plain" else []
    made = exported(source, tmp_path / "file.onnx", *flag)
    assert [made.get(one, 0) for one in ("hard_swish", "conv_scale")] == ([4, 4] if form == "rewritten" else [0, 0])
    began = time.monotonic()
    build(tmp_path / "file.onnx", tmp_path / "plan", "--precision=FP16", shapes)
    seconds = time.monotonic() - began
    code, said, stderr = verify(source, tmp_path / "plan")
    report(test="plan, rewrites", model="four hard swishes", graph=form, build_seconds=seconds, passed=said["passed"])
    assert code == 0 and said["passed"], stderr


def test_a_suppression_of_classes_answers_as_onnx_runtime(tmp_path):
    source, shapes = onnx_sources.suppression(tmp_path / "saved", "combined open"), "b:3x50x1x4;s:3x50x3"
    assert "nms" in exported(source, tmp_path / "m.onnx", f"--shapes={shapes}", "--ranges=b:0:1;s:0:1")
    build(tmp_path / "m.onnx", tmp_path / "plan", f"--shapes={shapes}")
    code, said, stderr = verify(tmp_path / "m.onnx", tmp_path / "plan", "--ranges=b:0:1;s:0:1")
    assert code == 0 and said["passed"], stderr


def test_an_input_that_nothing_reads_may_be_left_out_of_the_plan(tmp_path):
    source, shapes = onnx_sources.trained(tmp_path / "saved"), "--shapes=x:4x4;training:scalar"
    exported(source, tmp_path / "m.onnx", "--freeze=training:false", shapes)
    build(tmp_path / "m.onnx", tmp_path / "plan", shapes)
    code, said, stderr = verify(tmp_path / "m.onnx", tmp_path / "plan")
    assert code == 0 and said["passed"], stderr


def test_dimensions_of_one_name_may_have_other_sizes(tmp_path):
    spec = ("?", 4, "?", "?")
    source = onnx_files.write(
        tmp_path / "m.onnx",
        [helper.make_node("Relu", ["x"], ["y"])],
        onnx_files.values(("x", "float32", spec)),
        onnx_files.values(("y", "float32", spec)),
    )
    build(source, tmp_path / "plan", "--shapes=x:1x4x5x6,2x4x8x6")
    code, said, stderr = verify(source, tmp_path / "plan")
    assert code == 0 and said["passed"], stderr


def test_what_an_fp16_file_keeps_in_fp32_does_not_overflow_in_the_plan(tmp_path):
    shapes = f"--shapes=x:{onnx_files.TALL_ROWS}x{onnx_files.TALL_WIDTH}"
    source = onnx_files.tall(tmp_path / "m.onnx")
    exported(
        source,
        tmp_path / "half.onnx",
        "--precision=FP16",
        f"--fp32_nodes={onnx_files.TALL_NODES}",
        shapes,
        "--ranges=x:250:300",
    )
    build(tmp_path / "half.onnx", tmp_path / "plan", "--precision=FP16", shapes)
    manifest = json.loads((tmp_path / "plan/assets.extra/tftrt/manifest.json").read_text())
    assert manifest["held"] >= 3 and "OBEY_PRECISION_CONSTRAINTS" in manifest["plan"]["builder_flags"]
    code, said, stderr = verify(source, tmp_path / "plan", "--ranges=x:250:300")
    assert code == 0 and said["passed"], stderr


def test_what_is_moved_and_what_keeps_from_zero_is_in_fp32_in_the_plan(tmp_path):
    """x [n, 64] goes to a product in FP16; t [n, 4] is moved to an output; log(max(x * x, 1e-12)) is asked for silence."""
    source, shapes = onnx_files.moved_and_clamped(tmp_path / "m.onnx"), "--shapes=x:4x64;t:4x4"
    exported(source, tmp_path / "half.onnx", "--precision=FP16", shapes)
    build(tmp_path / "half.onnx", tmp_path / "plan", "--precision=FP16", shapes)
    manifest = json.loads((tmp_path / "plan/assets.extra/tftrt/manifest.json").read_text())
    assert manifest["held"] >= 3 and "OBEY_PRECISION_CONSTRAINTS" in manifest["plan"]["builder_flags"]
    silence = np.zeros((4, 64), np.float32)
    silence[1:] = np.random.default_rng(0).normal(size=(3, 64)) * [[1e-4], [1.0], [1.0]]
    np.savez(tmp_path / "rows.npz", x=silence, t=np.array([[1.7e9, 2049, 4097, 100003]] * 4, np.float32))
    code, said, stderr = verify(source, tmp_path / "plan", f"--data={tmp_path / 'rows.npz'}")
    assert code == 0 and said["passed"], stderr
    (moved,) = (one for one in said["comparisons"] if one["output"].endswith("moved"))
    assert moved["max_abs"] == 0


def test_a_plan_keeps_an_input_that_was_frozen(tmp_path):
    source = onnx_files.decided(tmp_path / "m.onnx")
    build(source, tmp_path / "plan", "--freeze=sr:16000", "--shapes=x:4x4")
    code, said, stderr = verify(source, tmp_path / "plan", "--shapes=x:4x4")
    assert code == 0 and said["passed"], stderr


def test_int8_is_written_where_a_plan_with_ranges_takes_it(zoo_model, tmp_path):
    model, shapes = zoo_model("digits_cnn"), "--shapes=image:1x8x8x1,32x8x8x1"
    drawn = ["--calibrate_on_random_data", "--ranges=image:0:1", "--nojudge_precision"]
    exported(model, tmp_path / "plain.onnx")
    exported(model, tmp_path / "all.onnx", "--precision=INT8", *drawn, f"--output_table={tmp_path / 'ranges.json'}")
    build(
        tmp_path / "plain.onnx",
        tmp_path / "ranges",
        "--precision=INT8",
        f"--calibration_table={tmp_path / 'ranges.json'}",
        shapes,
    )
    words = [
        "export",
        model,
        f"--output={tmp_path / 'some.onnx'}",
        "--precision=INT8",
        f"--calibration_table={tmp_path / 'ranges.json'}",
        f"--int8_as={tmp_path / 'ranges'}",
        "--nojudge_precision",
        f"--json={tmp_path / 'said.json'}",
    ]
    done = run_tftrt(*words, timeout=370)
    if done.returncode == 2:  # TensorRT chooses by its timings, and the network is small
        assert "computes no node of it in INT8" in done.stderr
        pytest.skip("TensorRT took no layer of the small network in INT8")
    assert done.returncode == 0, done.stderr
    (made,) = json.loads((tmp_path / "said.json").read_text())["files"]
    nodes = {one["name"]: one for one in made["precision"]["nodes"]}
    written = sum(one["precision"] == "INT8" for one in nodes.values())
    assert 1 <= written <= 4 and all(
        "which was faster" in one["reason"] for one in nodes.values() if one["precision"] == "FP32"
    )
    build(tmp_path / "some.onnx", tmp_path / "plan", "--precision=INT8", shapes)
    code, said, stderr = verify(tmp_path / "some.onnx", tmp_path / "plan", "--ranges=image:0:1")
    assert code == 0 and said["passed"], stderr
    report(test="plan, INT8 as another plan has it", model="digits_cnn", nodes=written, of=len(nodes), passed=True)


def test_auto_builds_both_plans(zoo_model, tmp_path):
    words = [
        "convert",
        "--backend=tensorrt",
        f"--model={zoo_model('digits_cnn')}",
        f"--output={tmp_path / 'plan'}",
        "--precision=INT8",
        "--calibrate_on_random_data",
        "--int8_as=auto",
        "--shapes=image:1x8x8x1,32x8x8x1",
        "--noengine_cache",
    ]
    done = run_tftrt(*words, timeout=370)
    if done.returncode:
        assert done.returncode == 2 and "--int8_as=auto: TensorRT computes no node of it in INT8" in done.stderr, (
            done.stderr
        )
        pytest.skip("TensorRT took no layer of the small network in INT8")
    assert "INT8 was written into the ONNX file" in done.stdout
    code, said, stderr = verify(tmp_path / "plan/model.onnx", tmp_path / "plan", "--ranges=image:0:1")
    assert code == 0 and said["passed"], stderr
