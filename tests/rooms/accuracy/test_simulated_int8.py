"""What `verify` says of INT8 and FP16 engines where no engine runs: their rounding is simulated, or the verdict says that it was not."""

import json
import re
import shlex
import tempfile

import numpy as np
import pytest
import tensorflow as tf

from tests import quantized, stacks
from tests.command_here import run_tftrt
from tests.example_flags import check_flags
from tests.sensitive_models import kernels, rows, saved_chain, saved_function, two_layers
from tests.zoo import zoo_inputs
from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.job import graph, protos

GRAPH, INT8, FP16 = (f"PASSED ({what}; no engine ran)" for what in ("the graph", "INT8 simulated", "FP16 simulated"))


def converted(model, target, *flags, precision="INT8"):
    done = run_tftrt("convert", f"--model={model}", f"--output={target}", f"--precision={precision}", *flags)
    assert done.returncode == 0, done.stderr
    return target, done.stdout


def verified(original, model, *flags, code=errors.EXIT_DONE):
    """(what was printed, the passport's verify.json)."""
    done = run_tftrt("verify", original, model, *flags)
    assert done.returncode == code, done.stdout + done.stderr
    said = passport.read(model, passport.VERIFY)
    assert said["verdict"] == done.stdout.split("\nnext")[0].strip().splitlines()[-1]
    assert said["passed"] == said["verdict"].startswith("PASSED") == (code == errors.EXIT_DONE)
    return done.stdout, said


@pytest.fixture(scope="module")
def made(zoo_model, images, tmp_path_factory):
    """Folder with digits in INT8, calibrated on training images (good) and on the same times 255, as uint8 (bad), without a GPU."""
    folder = tmp_path_factory.mktemp("simulated")
    with np.load(images / "calibration.npz") as known:
        np.savez(folder / "times255.npz", image=(known["image"] * 255).astype(np.uint8))
    converted(zoo_model("digits_cnn"), folder / "good", f"--calibration_data={images}/calibration.npz")
    _, said = converted(zoo_model("digits_cnn"), folder / "bad", f"--calibration_data={folder}/times255.npz")
    (folder / "said.txt").write_text(said)
    return folder


def data(images):
    return f"--data={images}/held_back.npz", f"--labels={images}/labels.npy"


def test_ranges_of_rows_that_were_not_scaled_fail_without_a_gpu(made, zoo_model, images, tmp_path):
    said = (made / "said.txt").read_text()
    assert "integers (uint8) from 0 to 255 fill input image, which takes float32" in said
    assert (
        "probabilities shows nothing: it is saturated: 0 or 1 in all 128 rows" in said
        and "exact" not in said
        and "harms" not in said
    )
    printed, found = verified(zoo_model("digits_cnn"), made / "bad", *data(images), code=errors.EXIT_CHECK)
    (one,) = found["comparisons"]
    assert one["snr_db"] < 3 and found["accuracy"]["converted"] < 0.2 < 0.9 < found["accuracy"]["original"]
    assert (found["mode"], found["arithmetic"], found["evidence"]) == (
        "native segments",
        "INT8",
        "INT8 simulated, no engine ran",
    )
    assert (
        found["bounds"]["serving_default/probabilities"]["snr_db"] == 15.0 and float(found["graph"][0]["snr_db"]) > 100
    )
    assert any("calibration's values go from 0 to 255" in line and "from 0 to 1" in line for line in found["warnings"])
    assert found["simulation"]["simulated"] == {"serving_default": "INT8"} and found["simulation"]["rows"] == 400
    done = run_tftrt("publish", made / "bad", "--model_name=m", f"--base_path={tmp_path}")
    assert done.returncode == errors.EXIT_CHECK and "its verification failed" in done.stderr


def test_good_ranges_pass_with_a_word_that_says_what_ran(made, zoo_model, images, tmp_path):
    page = f"--html={tmp_path}/page.html"
    printed, found = verified(zoo_model("digits_cnn"), made / "good", *data(images), page)
    assert (
        found["verdict"] == INT8
        and found["warnings"] == []
        and "INT8 simulated on 400 rows: 4 nodes rounded in TensorFlow" in printed
    )
    (line,) = re.findall(r"^next, on a machine with a GPU: (.*)$", printed, re.MULTILINE)
    assert "\nnext: " not in printed and shlex.split(line)[1:] == [
        "verify",
        str(zoo_model("digits_cnn")),
        str(made / "good"),
        *data(images),
        "--allow_builds",
    ]
    check_flags(shlex.split(line))
    page = (tmp_path / "page.html").read_text()
    assert (
        f"<title>tftrt verify: {INT8.replace('PASSED', 'passed')}</title>" in page
        and "Evidence: INT8 simulated, no engine ran" in page
    )
    seen = run_tftrt("inspect", made / "good").stdout
    assert INT8 in seen and "next, on a machine with a GPU: tftrt verify" in seen and "publish" not in seen
    done = run_tftrt("publish", made / "good", "--model_name=m", f"--base_path={tmp_path}", "--nowarmup")
    assert (
        done.returncode == 0
        and "nothing is known of the engines themselves" in done.stdout
        and "INT8 ranges" not in done.stdout
    )
    kept = passport.read(tmp_path / "m/1", passport.PUBLISH)
    assert kept["verified"] and kept["evidence"]["said"]["verdict"] == INT8


def test_the_simulation_is_that_of_sensitivity_with_the_models_own_table(made, zoo_model, images, tmp_path):
    level = passport.read(made / "good", passport.VERIFY)
    if level is None:
        _, level = verified(zoo_model("digits_cnn"), made / "good", *data(images))
    done = run_tftrt(
        "sensitivity",
        zoo_model("digits_cnn"),
        f"--data={images}/held_back.npz",
        f"--calibration_table={made}/good",
        "--json=-",
        "--measure=simulate",
    )
    assert json.loads(done.stdout)["signatures"][0]["snr_db"] == pytest.approx(
        level["comparisons"][0]["snr_db"], abs=0.05
    )


def test_the_table_on_the_engine_ops_decides(made, zoo_model, images, tmp_path):
    """An edited table ruins the answers; nodes that it keeps high mend them."""
    done = run_tftrt("table", "edit", made / "good", "--scale=.*=200", f"--output={tmp_path}/ruined.json")
    assert done.returncode == 0, done.stderr
    ruined, _ = converted(zoo_model("digits_cnn"), tmp_path / "ruined", f"--calibration_table={tmp_path}/ruined.json")
    _, found = verified(zoo_model("digits_cnn"), ruined, *data(images), code=errors.EXIT_CHECK)
    assert found["comparisons"][0]["snr_db"] < 5
    kept, _ = converted(
        zoo_model("digits_cnn"),
        tmp_path / "kept",
        f"--calibration_table={tmp_path}/ruined.json",
        f"--high_precision_nodes=.*({'|'.join(map(stacks.node, (stacks.here().first, 'conv2/Conv2D', 'hidden/MatMul')))})",
    )
    _, found = verified(zoo_model("digits_cnn"), kept, "--thresholds=snr_db>=0,cosine>=0,top1>=0", *data(images))
    assert found["simulation"]["nodes"] == {"serving_default": 1}


@pytest.mark.parametrize(
    "flags",
    [
        ("--use_dynamic_shape",),
        ("--use_dynamic_shape", "--dynamic_shape_profile_strategy=Range"),
        ("--fp32_nodes=.*conv1.*",),
    ],
)
def test_every_way_to_batch_and_engines_of_several_precisions(flags, made, zoo_model, images, tmp_path):
    model, _ = converted(
        zoo_model("digits_cnn"), tmp_path / "m", f"--calibration_data={images}/calibration.npz", *flags
    )
    _, found = verified(zoo_model("digits_cnn"), model, *data(images))
    assert found["verdict"] == INT8 and 30 < found["comparisons"][0]["snr_db"] < 80


def test_loops_are_simulated(zoo_model, tmp_path):
    for name, seed in (("calibration", 1), ("scored", 2)):
        np.savez(tmp_path / f"{name}.npz", **zoo_inputs("lstm_tagger", batch=16, seed=seed)["serving_default"])
    model, _ = converted(
        zoo_model("lstm_tagger"),
        tmp_path / "m",
        "--use_dynamic_shape",
        "--calibration_batch_size=8",
        f"--calibration_data={tmp_path}/calibration.npz",
    )
    _, found = verified(zoo_model("lstm_tagger"), model, f"--data={tmp_path}/scored.npz")
    assert found["verdict"] == INT8 and 10 < found["comparisons"][0]["snr_db"] < 80


# Where nothing can be simulated, the word is about the graph, and a line says why.


def test_drawn_inputs_show_the_graph_alone(made, zoo_model):
    printed, found = verified(zoo_model("digits_cnn"), made / "good")
    assert found["verdict"] == GRAPH and "graph rewrite only" in found["evidence"] and found["arithmetic"] == "rewrite"
    assert "INT8 was not simulated for serving_default, and no engine ran: its inputs are random" in printed
    assert "next, on a machine with a GPU" in printed
    with tempfile.TemporaryDirectory() as folder:
        done = run_tftrt("publish", made / "good", "--model_name=m", f"--base_path={folder}", "--nowarmup")
    assert done.returncode == 0 and "nothing has judged the INT8 ranges" in done.stdout


def test_a_quantization_aware_model_rounds_by_itself(tmp_path):
    quantized.build(tmp_path / "model", "QuantizeAndDequantizeV2")
    model, _ = converted(tmp_path / "model", tmp_path / "m", "--use_dynamic_shape")
    np.savez(tmp_path / "x.npz", image=np.random.default_rng(0).normal(size=(16, 8, 8, 3)).astype("float32"))
    printed, found = verified(tmp_path / "model", model, f"--data={tmp_path}/x.npz")
    assert found["verdict"] == GRAPH and "is quantization-aware" in printed


def test_an_engine_that_a_gpu_has_yet_to_calibrate_is_no_green_light(made, zoo_model, images, tmp_path):
    import shutil

    shutil.copytree(made / "good", tmp_path / "m")
    proto = protos.read(tmp_path / "m")
    for node in graph.engine_nodes(protos.meta_graph(proto).graph_def):
        graph.set_attributes(node, calibration_data="")
    (tmp_path / "m/saved_model.pb").write_bytes(proto.SerializeToString())
    printed, found = verified(zoo_model("digits_cnn"), tmp_path / "m", *data(images))
    assert found["verdict"] == GRAPH and "carries no calibration table" in printed


def test_classes_alone_have_no_levels(tmp_path):
    original = saved_function(tmp_path / "model", lambda x: {"class": tf.argmax(two_layers(x), -1)})
    model, _ = converted(original, tmp_path / "m", f"--calibration_data={rows(tmp_path / 'c.npz', seed=5)}")
    printed, found = verified(original, model, f"--data={rows(tmp_path / 'x.npz')}")
    assert found["verdict"] == GRAPH and "it has no float output" in printed


def test_data_for_one_signature_leaves_the_others_open(zoo_model, tmp_path):
    inputs = {
        name: {key: value.astype("S") if value.dtype == object else value for key, value in one.items()}
        for name, one in zoo_inputs("ranker", batch=16).items()
    }
    model, _ = converted(zoo_model("ranker"), tmp_path / "m", precision="FP16")
    np.savez(tmp_path / "x.npz", **{f"user_embedding/{key}": value for key, value in inputs["user_embedding"].items()})
    _, found = verified(zoo_model("ranker"), model, f"--data={tmp_path}/x.npz")
    assert found["verdict"] == GRAPH and found["simulation"]["simulated"] == {"user_embedding": "FP16"}
    assert "FP16 simulated for user_embedding alone" in found["evidence"]


# FP16, FP32.


def test_values_that_fp16_cannot_hold_fail_without_a_gpu(tmp_path):
    first, *rest, last = kernels()
    original = saved_chain(tmp_path / "model", [first * 3e5, *rest, last / 3e5])
    scored = f"--data={rows(tmp_path / 'x.npz')}"
    model, _ = converted(original, tmp_path / "fp16", precision="FP16")
    _, found = verified(original, model, scored, code=errors.EXIT_CHECK)
    assert "NaN or Inf" in found["problems"][0] or found["comparisons"][0]["snr_db"] < 30
    model, _ = converted(original, tmp_path / "fp32", precision="FP32")
    _, found = verified(original, model, scored)
    assert found["verdict"] == GRAPH and found["simulation"]["left_out"] == {} and found["warnings"] == []


def test_fp16_is_simulated_too(zoo_model, images, tmp_path):
    model, _ = converted(zoo_model("digits_cnn"), tmp_path / "m", precision="FP16")
    _, found = verified(zoo_model("digits_cnn"), model, *data(images))
    assert found["verdict"] == FP16 and 40 < found["comparisons"][0]["snr_db"] < 110 < float(
        found["graph"][0]["snr_db"]
    )


def test_a_graph_that_answers_otherwise_fails_whatever_the_simulation_allows(tmp_path):
    """20 dB are enough for INT8, and not for a rewrite in float32."""
    x = rows(tmp_path / "x.npz")
    first, second = (
        saved_chain(tmp_path / name, [scale * one for one in kernels()])
        for name, scale in (("model", 1.0), ("other", 1.01))
    )
    model, _ = converted(second, tmp_path / "m", f"--calibration_data={rows(tmp_path / 'c.npz', seed=5, count=512)}")
    _, found = verified(first, model, f"--data={x}", code=errors.EXIT_CHECK)
    assert found["comparisons"][0]["snr_db"] > 15 and found["misses"] == []
    assert all(line.startswith("the graph, without the engines' rounding: ") for line in found["problems"])


# Answers that show nothing.


def test_rows_and_ranges_of_one_wrong_scale_show_nothing(made, zoo_model, images, tmp_path):
    with np.load(images / "held_back.npz") as known:
        pixels = (known["image"] * 255).astype(np.int64)
    model = tf.saved_model.load(str(zoo_model("digits_cnn"))).signatures["serving_default"]
    answers = model(image=tf.constant(pixels, tf.float32))["probabilities"].numpy()
    pixels = pixels[np.isin(answers, (0, 1)).all(1)]
    assert len(pixels) > 300
    np.savez(tmp_path / "x.npz", image=pixels)
    printed, found = verified(zoo_model("digits_cnn"), made / "bad", f"--data={tmp_path}/x.npz", code=errors.EXIT_CHECK)
    assert "integers (int64) from 0 to 255 fill input image" in printed
    assert (
        f"probabilities is saturated: 0 or 1 in all {len(pixels)} rows" in found["nothing_shown"][0]
        and found["misses"] == []
    )
    # Not conv1: of Keras 3's graph TensorFlow folds the normalization behind it into the convolution, which gets its name.
    done = run_tftrt("sensitivity", zoo_model("digits_cnn"), f"--data={tmp_path}/x.npz", "--nodes=.*conv2.*")
    told = f"nothing was shown: serving_default: probabilities is saturated: 0 or 1 in all {len(pixels)} rows"
    assert told in done.stdout
    assert "suggestion: none: these answers show nothing" in done.stdout and "\nnext" not in done.stdout


def test_calibration_on_one_row_again_and_again_compares_nothing(tmp_path):
    """The ranges of the other rows are then those of the row itself: 145 dB."""
    original, x = saved_function(tmp_path / "model", lambda x: {"y": two_layers(x)}), rows(tmp_path / "x.npz")
    with np.load(x) as known:
        np.savez(tmp_path / "one.npz", **{name: np.repeat(array[:1], 64, 0) for name, array in known.items()})
    done = run_tftrt("calibrate", original, f"--calibration_data={tmp_path}/one.npz", "--compare_methods")
    assert (
        done.returncode == 0
        and "y shows nothing: it is the answer to one row, which the data has 64 times" in done.stdout
    ), done.stderr
    assert "nothing tells the methods apart" in done.stdout and "harms" not in done.stdout


def test_calibration_on_rows_for_which_the_answer_is_always_the_same_says_so(tmp_path):
    original = saved_function(tmp_path / "model", lambda x: {"y": tf.nn.relu(two_layers(x) - 1e6)})
    done = run_tftrt("calibrate", original, f"--calibration_data={rows(tmp_path / 'x.npz')}", "--compare_methods")
    assert done.returncode == 0 and "y shows nothing: it is 0 everywhere" in done.stdout, done.stderr
    assert (
        "nothing tells the methods apart" in done.stdout and "exact" not in done.stdout and "harms" not in done.stdout
    )
