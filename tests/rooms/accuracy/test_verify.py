"""`tftrt verify` without a GPU: every sample model, every way to fail, what it writes."""

import contextlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import saved_models
from tests.command_line import FLAGS, assert_clear
from tests.saved_inputs import saved_inputs
from tftrt_tools.accuracy import labels as label_reader
from tftrt_tools.base import errors
from tftrt_tools.base.tf_private import tensorrt_versions
from tftrt_tools.models.inputs import drawing
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel.job import protos
from tftrt_tools.models.savedmodel.shapes import InputSpec


@pytest.fixture
def copy(tmp_path):
    """A function that copies a model, so that a test may change it."""

    def make(source, name="copy"):
        return shutil.copytree(source, tmp_path / name, symlinks=True)

    return make


@pytest.mark.parametrize("name", saved_models.NAMES)
def test_every_sample_model_answers_like_its_original(name, tftrt, zoo_model, converted, tmp_path):
    target = converted(name, "--precision=FP16", *FLAGS[name])
    data = saved_inputs(tmp_path / "data.npz", name)
    done = tftrt("verify", zoo_model(name), target, f"--data={data}", "--json=-", "--nowrite")
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["passed"] and said["mode"] == "native segments"
    assert (
        said["evidence"] == "FP16 simulated, no engine ran"
        and said["arithmetic"] == "FP16 simulated"
        and said["simulation"]["left_out"] == {}
    )
    assert said["verdict"] == "PASSED (FP16 simulated; no engine ran)"
    assert all(one["snr_db"] is None or one["snr_db"] == "inf" or one["snr_db"] > 80 for one in said["graph"])
    assert set(said["sources"].values()) == {"data"} and set(said["samples"].values()) == {6}


def test_the_result_goes_into_the_model_with_both_digests(tftrt, zoo_model, converted, copy):
    target = copy(converted("ranker", "--precision=FP16"))
    assert tftrt("verify", zoo_model("ranker"), target).returncode == 0
    said = passport.read(target, passport.VERIFY)
    assert (
        said["passed"]
        and said["original_digest"] == files.digest(zoo_model("ranker"))
        and said["converted_digest"] == files.digest(target)
    )


def test_a_model_that_cannot_keep_the_result_loses_no_other_copy_of_it(tftrt, zoo_model, converted, copy, tmp_path):
    target = copy(converted("digits_cnn", "--precision=FP16"))
    (target / "assets.extra/tftrt/verify.json").mkdir()  # No file can take this name, not even for root.
    done = tftrt(
        "verify", zoo_model("digits_cnn"), target, f"--json={tmp_path / 'v.json'}", f"--html={tmp_path / 'v.html'}"
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert (
        "was not kept with the model" in done.stderr and "Is a directory" in done.stderr and "--nowrite" in done.stderr
    )
    assert json.loads((tmp_path / "v.json").read_text())["passed"] and (tmp_path / "v.html").stat().st_size
    _scale_weights(target, 1.05)
    failed = tftrt("verify", zoo_model("digits_cnn"), target)
    assert failed.returncode == 3 and "was not kept with the model" in failed.stdout and failed.stderr == ""


def test_random_inputs_are_the_same_for_the_same_seed(tftrt, zoo_model, converted, tmp_path):
    def metrics(seed):
        done = tftrt(
            "verify",
            zoo_model("tf1_export"),
            converted("tf1_export", "--precision=FP16"),
            f"--seed={seed}",
            f"--json={tmp_path / 'out.json'}",
            "--nowrite",
        )
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / "out.json").read_text())["comparisons"]

    # That another seed gives others: test_drawn_calls_follow_the_seed.
    assert metrics(1) == metrics(1)


@pytest.mark.parametrize("dtype", ["float32", "int8", "string", "bool", "complex128"])
@pytest.mark.parametrize("size", [2**62, 10**22])
def test_inputs_beyond_any_memory_are_one_line(dtype, size):
    with pytest.raises(errors.TftrtError, match=f"not enough memory for an input x {size}x4"):
        drawing.calls("serving_default", [InputSpec("x", dtype, (None, 4))], [{"x": (size, 4)}], seed=0)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "held"),
    [
        ("int8", 0, 500, False),
        ("int8", -128, 128, True),
        ("uint8", 0, 256, True),
        ("uint8", -1, 4, False),
        ("int64", 0, 1e20, False),
        ("int64", 0, 2.0**63, True),
        ("uint64", 0, 1e19, False),
        ("float32", -np.inf, 1, False),
        ("float32", 0, 1e39, False),
        ("float64", -1e308, 1e308, False),
        ("float64", 0, 1e308, True),
        ("float16", 0, 7e4, False),
        ("bfloat16", 0, 7e4, True),
        ("bool", 0, 5, True),
        ("complex64", 0, 1, True),
    ],
)
def test_ranges_that_a_type_does_not_hold_are_one_line(dtype, low, high, held):
    with contextlib.nullcontext() if held else pytest.raises(errors.UsageError, match=f"is more than {dtype} holds"):
        drawing.calls("serving_default", [InputSpec("x", dtype, (None, 4))], [{"x": (2, 4)}], 0, {"x": (low, high)})


def test_drawn_calls_follow_the_seed():
    specs = [InputSpec("x", "float32", (None, 3)), InputSpec("n", "int64", (None,))]
    shapes = [{"x": (2, 3), "n": (2,)}, {"x": (2, 3), "n": (2,)}]

    def drawn(seed):
        return [call.inputs["x"].tolist() for call in drawing.calls("serving_default", specs, shapes, seed, {})]

    assert drawn(1) == drawn(1) != drawn(2) and drawn(1)[0] != drawn(1)[1]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_labels_may_be_floats_that_are_whole(dtype, tftrt, zoo_model, converted, tmp_path):
    images, labels = saved_models.builder("digits_cnn").held_back()
    np.savez(tmp_path / "images.npz", image=images)
    np.save(tmp_path / "labels.npy", np.asarray(labels).astype(dtype))
    flags = [f"--data={tmp_path / 'images.npz'}", f"--labels={tmp_path / 'labels.npy'}", "--json=-", "--nowrite"]
    done = tftrt("verify", zoo_model("digits_cnn"), converted("digits_cnn", "--precision=FP16"), *flags)
    assert done.returncode == 0 and json.loads(done.stdout)["accuracy"]["converted"] > 0.97, done.stderr


def test_labels_of_an_output_that_the_other_model_lacks_leave_its_loss_to_the_comparison(tftrt, tmp_path):
    for name, output in (("one", "y"), ("two", "z")):
        module = tf.Module()
        module.call = tf.function(
            lambda x, output=output: {output: tf.nn.softmax(x)},
            input_signature=[tf.TensorSpec((None, 3), tf.float32, name="x")],
        )
        tf.saved_model.save(module, str(tmp_path / name), signatures=module.call)
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).random((8, 3), np.float32))
    np.save(tmp_path / "labels.npy", np.arange(8) % 3)
    flags = [f"--data={tmp_path / 'rows.npz'}", f"--labels={tmp_path / 'labels.npy'}", "--nowrite"]
    done = tftrt("verify", tmp_path / "one", tmp_path / "two", *flags)
    assert done.returncode == 3 and "lost its output 'y'" in done.stdout, done.stderr


def test_accuracy_of_both_models_on_labels(tftrt, zoo_model, converted, tmp_path):
    images, labels = saved_models.builder("digits_cnn").held_back()
    np.savez(tmp_path / "images.npz", image=images)
    np.save(tmp_path / "labels.npy", labels)
    done = tftrt(
        "verify",
        zoo_model("digits_cnn"),
        converted("digits_cnn", "--precision=FP16"),
        f"--data={tmp_path / 'images.npz'}",
        f"--labels={tmp_path / 'labels.npy'}",
        "--json=-",
        "--nowrite",
        f"--html={tmp_path / 'report.html'}",
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["accuracy"]
    assert said["labels"] == 400 and said["original"] == said["converted"] > 0.97
    page = (tmp_path / "report.html").read_text()
    assert (
        "FP16 simulated, no engine ran" in page
        and page.count("<svg") == 2
        and "http://"
        not in page.replace("http://www.w3.org", "")
        .replace("http://purl.org", "")
        .replace("http://creativecommons.org", "")
        .replace("http://matplotlib", "")
    )


def _scale_weights(path, factor):
    """Damage a converted model: multiply the weights of its last layer, a constant inside a native segment."""
    from tensorflow.python.framework import tensor_util

    proto = protos.read(path)
    segments = [
        one for one in proto.meta_graphs[0].graph_def.library.function if "native_segment" in one.signature.name
    ]
    matrices = [
        node
        for segment in segments
        for node in segment.node_def
        if node.op == "Const" and [dim.size for dim in node.attr["value"].tensor.tensor_shape.dim][1:] == [10]
    ]
    tensor = matrices[0].attr["value"].tensor
    tensor.CopyFrom(tensor_util.make_tensor_proto(tensor_util.MakeNdarray(tensor) * np.float32(factor)))
    (path / "saved_model.pb").write_bytes(proto.SerializeToString())


def test_a_model_that_answers_otherwise_fails_and_names_the_output(tftrt, zoo_model, converted, copy):
    target = copy(converted("digits_cnn", "--precision=FP16"))
    _scale_weights(target, 1.05)
    done = tftrt("verify", zoo_model("digits_cnn"), target)
    assert done.returncode == 3 and "FAILED" in done.stdout
    assert "serving_default/probabilities: snr_db is" in done.stdout and "wanted >= 80" in done.stdout
    assert passport.read(target, passport.VERIFY)["passed"] is False


def test_nan_fails(tftrt, zoo_model, converted, copy):
    target = copy(converted("digits_cnn", "--precision=FP16"))
    _scale_weights(target, float("nan"))
    done = tftrt("verify", zoo_model("digits_cnn"), target, "--thresholds=snr_db>=0,cosine>=0")
    assert done.returncode == 3 and "NaN or Inf" in done.stdout


def test_bounds_can_be_set_per_output(tftrt, zoo_model, converted, copy):
    target = copy(converted("digits_cnn", "--precision=FP16"))
    _scale_weights(target, 1.001)
    loose = "--thresholds=serving_default/probabilities:snr_db>=10,cosine>=0.5"
    # With the bounds of an output that nobody set, test_a_model_that_answers_otherwise_fails_and_names_the_output.
    assert tftrt("verify", zoo_model("digits_cnn"), target, loose).returncode == 0
    assert tftrt("verify", zoo_model("digits_cnn"), target, loose + ",max_abs<=1e-30").returncode == 3


def test_a_lost_signature_fails(tftrt, zoo_model, converted, copy):
    target = copy(converted("ranker", "--precision=FP16"))
    proto = protos.read(target)
    del proto.meta_graphs[0].signature_def["item_embedding"]
    (target / "saved_model.pb").write_bytes(proto.SerializeToString())
    done = tftrt("verify", zoo_model("ranker"), target)
    assert done.returncode == 3 and "signature 'item_embedding' is missing" in done.stdout


def test_a_model_without_its_native_segments_cannot_be_run_here(tftrt, zoo_model, converted, copy):
    target = copy(converted("digits_cnn", "--precision=FP16"))
    proto = protos.read(target)
    library = proto.meta_graphs[0].graph_def.library
    kept = [function for function in library.function if "native_segment" not in function.signature.name]
    del library.function[:]
    library.function.extend(kept)
    (target / "saved_model.pb").write_bytes(proto.SerializeToString())
    assert_clear(tftrt("verify", zoo_model("digits_cnn"), target), 1, "has no native segment any more")


def test_engines_that_this_tensorrt_does_not_load_are_named_where_none_runs(tftrt, zoo_model, built_once, copy):
    model = copy(built_once[0])
    same = tftrt("verify", zoo_model("digits_cnn"), model, "--json=-", "--nowrite")
    assert same.returncode == 0 and not any("TensorRT" in line for line in json.loads(same.stdout)["warnings"])
    manifest = passport.read(model, passport.MANIFEST)
    manifest["versions"]["tensorrt"] = "8.4.3"
    passport.write(model, passport.MANIFEST, manifest)
    done = tftrt("verify", zoo_model("digits_cnn"), model)
    assert done.returncode == 0, done.stdout + done.stderr
    said = passport.read(model, passport.VERIFY)
    (line,) = (line for line in said["warnings"] if "TensorRT" in line)
    assert line.startswith(
        f"the engines of {model} were built for TensorRT 8.4.3, and {tensorrt_versions()[1]} is here"
    )
    assert f"`tftrt build {model} --shapes=…`" in line and "loads none of them" in " ".join(done.stdout.split())


def test_data_from_a_function(tftrt, zoo_model, converted, tmp_path):
    (tmp_path / "my_data.py").write_text(
        "import numpy as np\n"
        "def calls():\n  yield {'image': np.full((1, 8, 8, 1), 0.5, np.float32)}\n"
        "  yield 'serving_default', {'image': np.ones((3, 8, 8, 1), np.float32)}\n"
        "def nothing():\n  return iter(())\n"
        "def ends():\n  raise SystemExit('no data here')\n"
    )
    pair = zoo_model("digits_cnn"), converted("digits_cnn", "--precision=FP16")
    done = tftrt("verify", *pair, "--data=my_data:calls", "--json=-", "--nowrite", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["shapes"] == [
        "serving_default(image 1x8x8x1)",
        "serving_default(image 3x8x8x1)",
    ]
    assert_clear(tftrt("verify", *pair, "--data=my_data:nothing", cwd=tmp_path), 2, "yields nothing")
    assert_clear(tftrt("verify", *pair, "--data=my_data:absent", cwd=tmp_path), 2, "absent")
    assert_clear(
        tftrt("verify", *pair, "--data=my_data:ends", cwd=tmp_path), 2, "SystemExit: no data here (my_data.py:8)"
    )


@pytest.fixture(scope="module")
def bad_data(tmp_path_factory):
    """A folder of files that are no data for digits_cnn."""
    folder = tmp_path_factory.mktemp("bad")
    good = np.zeros((4, 8, 8, 1), np.float32)
    np.savez(folder / "name.npz", picture=good)
    np.savez(folder / "shape.npz", image=good[:, :7])
    np.savez(folder / "text.npz", image=np.array(["a", "b"]))
    np.savez(folder / "nan.npz", image=good * np.nan)
    np.savez(folder / "empty.npz", image=good[:0])
    np.save(folder / "objects.npy", np.array([{}, None], object), allow_pickle=True)
    (folder / "garbage.npz").write_bytes(b"PK\x03\x04 garbage")
    np.save(folder / "labels.npy", np.zeros(2, np.int64))
    np.savez(folder / "good.npz", image=good)
    return folder


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("nothing.npz", "no such file"),
        ("name.npz", "'picture' that is no input"),
        ("shape.npz", "has shape [4,7,8,1]"),
        ("text.npz", "takes float32"),
        ("nan.npz", "holds NaN or Inf"),
        ("empty.npz", "is empty"),
        ("objects.npy", "no readable"),
        ("garbage.npz", "no readable"),
    ],
)
def test_bad_data_is_one_clear_line(tftrt, zoo_model, converted, bad_data, file, says):
    pair = zoo_model("digits_cnn"), converted("digits_cnn", "--precision=FP16")
    assert_clear(tftrt("verify", *pair, f"--data={bad_data / file}"), 2, says)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--shapes=image:1x9x9x1",), "refuses"),
        (("--thresholds=snr>=3",), "--thresholds"),
        (("--signature_keys=none",), "no signature"),
        (("--thresholds=serving_default/nothing:snr_db>=3",), "no output"),
        (("--ranges=image:3:1",), "LOW has to be below HIGH"),
        (("--ranges=image:3",), "of the form INPUT:LOW:HIGH"),
        (("--ranges=imag:0:1",), "no input 'imag'"),
        (("--labels=x.npy",), "--labels needs --data"),
        (("--thresholds=serving_default/probabilities:mismatches<=0",), "does not apply"),
    ],
)
def test_bad_flags_are_one_clear_line(tftrt, zoo_model, converted, flags, says):
    done = tftrt("verify", zoo_model("digits_cnn"), converted("digits_cnn", "--precision=FP16"), *flags, "--nowrite")
    assert_clear(done, 2, says)


def test_labels_that_do_not_fit(tftrt, zoo_model, converted, bad_data):
    pair = zoo_model("digits_cnn"), converted("digits_cnn", "--precision=FP16")
    done = tftrt("verify", *pair, f"--data={bad_data / 'good.npz'}", f"--labels={bad_data / 'labels.npy'}", "--nowrite")
    assert_clear(done, 2, "2 int64 values for 4 rows")


@pytest.mark.parametrize(
    "labels, rows, dropped, said",
    [
        (np.zeros(4, int), 4, 0, ""),
        (np.zeros(4, int), 3, 1, ""),
        (np.zeros(5, int), 4, 0, "5 int64 values for 4 rows"),
        (np.zeros(9, int), 6, 2, "9 int64 values for 6 rows and at most 2 that fill no batch"),
        (np.int64(3), 4, 0, "1 int64 values for 4 rows"),
    ],
)
def test_more_labels_than_rows_belong_to_other_data(labels, rows, dropped, said):
    with pytest.raises(errors.UsageError, match=said) if said else contextlib.nullcontext():
        label_reader.check_count(label_reader.Labels({"": np.asarray(labels)}), rows, dropped)


def test_swapped_arguments_are_noticed(tftrt, zoo_model, converted):
    done = tftrt("verify", converted("digits_cnn", "--precision=FP16"), zoo_model("digits_cnn"))
    assert_clear(done, 2, "is a converted model itself")
    assert_clear(tftrt("verify", zoo_model("digits_cnn")), 2, "usage: tftrt verify ORIGINAL CONVERTED")


def test_a_keras_file_behind_its_converted_model_is_noticed(tftrt, converted, tmp_path):
    (tmp_path / "m.keras").write_text("")
    done = tftrt("verify", converted("digits_cnn"), tmp_path / "m.keras")
    assert_clear(done, 2, "is the converted model, and")
    assert f"`tftrt verify {tmp_path}/m.keras" in done.stderr


def test_models_that_do_not_go_together(tftrt, zoo_model, converted):
    done = tftrt("verify", zoo_model("ranker"), converted("digits_cnn", "--precision=FP16"), "--nowrite")
    assert_clear(done, 3, "no signature takes the same inputs in both models")


def test_an_output_of_another_type_fails(tftrt, zoo_model, converted, copy):
    target = copy(converted("digits_cnn", "--precision=FP16"))
    proto = protos.read(target)
    proto.meta_graphs[0].signature_def["serving_default"].outputs["probabilities"].dtype = 2
    (target / "saved_model.pb").write_bytes(proto.SerializeToString())
    done = tftrt("verify", zoo_model("digits_cnn"), target)
    assert (
        done.returncode == 3
        and "output 'probabilities' of 'serving_default' became float64, it was float32" in done.stdout
    )


def test_models_of_unknown_shape_ask_for_one(tftrt, zoo_model, converted):
    done = tftrt("verify", zoo_model("bert_encoder"), converted("bert_encoder", "--precision=FP16"), "--nowrite")
    assert_clear(done, 2, "unknown dimensions")


def test_a_native_abort_is_an_error_message(tmp_path):
    """The child dies of SIGABRT as TensorFlow does; the parent says so and goes on."""
    (tmp_path / "dying.py").write_text(
        "import os\ndef job(request):\n  print('last words', flush=True)\n  os.abort()\n"
        "def leave(request):\n  os._exit(7)\n"
    )
    code = (
        "from tftrt_tools.base.process import child\n"
        "for name in ('job', 'leave'):\n"
        f"  try:\n    child.run('dying:' + name, {{}}, env={{'PYTHONPATH': {str(tmp_path)!r}}})\n"
        "  except child.ChildDied as death:\n    print(death.cause, '|', 'last words' in death.mend)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "native code ended the process (SIGABRT) | True",
        "the process ended with exit code 7 and no answer | False",
    ]
