"""`tftrt convert` on real models, without a GPU: what it keeps, what it writes, what it refuses."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import saved_models
from tests import command_here, stacks
from tests.command_line import FLAGS, assert_clear, processes_marked
from tests.conftest import ROOT
from tests.zoo import trained, zoo_inputs
from tftrt_tools.models.savedmodel import describe, files, passport


def convert(tftrt, source, target, *flags, **more):
    return tftrt("convert", f"--model={source}", f"--output={target}", *flags, **more)


def manifest(path):
    return passport.read(path, passport.MANIFEST)


@pytest.mark.parametrize("name", saved_models.NAMES)
def test_every_sample_model_keeps_its_signatures_names_shapes_and_assets(name, zoo_model, converted):
    before, after = describe.describe(zoo_model(name), converted(name, "--precision=FP16", *FLAGS[name]))
    assert after.inputs == before.inputs
    assert after.outputs == before.outputs
    assert after.tags == before.tags
    assert after.engines and {engine.precision for engine in after.engines} == {"FP16"}
    kept = {path.name for path in (zoo_model(name) / "assets").glob("*")}
    assert kept <= {path.name for path in (converted(name, "--precision=FP16", *FLAGS[name]) / "assets").glob("*")}


def test_helper_functions_and_tables_survive_and_the_v1_loader_serves_the_model(converted, zoo_model, tmp_path):
    import tensorflow as tf

    from tftrt_tools.models.execution.job import native_copy

    native_copy.write(converted("ranker", "--precision=FP16"), tmp_path / "native")
    root = tf.saved_model.load(str(tmp_path / "native"))
    assert root.prep(tf.constant(["  User_1 "])).numpy().tolist() == [b"user_1"]
    inputs = zoo_inputs("ranker", batch=5)["serving_default"]
    original = tf.saved_model.load(str(zoo_model("ranker"))).signatures["serving_default"]
    expected = original(**{name: tf.constant(value) for name, value in inputs.items()})
    # TensorFlow Serving loads through a session, with the tables' initializers in the main op.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path / "native"))
        signature = meta.signature_def["serving_default"]
        feed = {signature.inputs[name].name: value for name, value in inputs.items()}
        got = session.run({name: info.name for name, info in signature.outputs.items()}, feed)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value.numpy(), rtol=1e-5)


def test_fp16_leaves_large_integers_whole(zoo_model, converted, tmp_path):
    """TF-TRT's own FP16 mode sends int32 2049 through half to 2048 and 100000 to inf, in the whole graph."""
    import tensorflow as tf

    from tftrt_tools.models.execution.job import native_copy

    native_copy.write(converted("ranker", "--precision=FP16"), tmp_path / "native")
    inputs = zoo_inputs("ranker", batch=6)["serving_default"]
    inputs["price_cents"][:3] = [2049, 100000, 65535]
    feed = {name: tf.constant(value) for name, value in inputs.items()}
    models = [tf.saved_model.load(str(path)) for path in (zoo_model("ranker"), tmp_path / "native")]
    want, got = (model.signatures["serving_default"](**feed)["expected_revenue"].numpy() for model in models)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert np.isfinite(got).all()


def test_the_manifest_says_what_was_done(zoo_model, converted):
    source, target = zoo_model("ranker"), converted("ranker", "--precision=FP16")
    said = manifest(target)
    assert said["schema_version"] == 1 and said["kind"] == "conversion"
    assert said["source_digest"] == files.digest(source)
    assert said["settings"]["precision_mode"] == "FP16" and said["gpu"] is None
    assert said["versions"]["tensorflow"] == stacks.here().tensorflow
    assert said["versions"]["tensorrt"].startswith(stacks.here().loaded)
    by_name = {one["name"]: one for one in said["signatures"]}
    assert set(by_name) == {"serving_default", "user_embedding", "item_embedding"}
    (described,) = describe.describe(target)
    in_manifest = {engine["name"] for one in by_name.values() for engine in one["engines"]}
    assert in_manifest == {engine.name for engine in described.engines}
    assert said["engine_count"] == len(in_manifest)
    reasons = {left["op"]: left["reason"] for left in by_name["serving_default"]["left_out"]}
    assert "LookupTableFindV2" in reasons and all(reasons.values())


def test_engine_names_are_unique_within_and_between_models(zoo_model, converted):
    models = describe.describe(
        converted("ranker", "--precision=FP16"), converted("ranker"), converted("digits_cnn", "--precision=FP16")
    )
    names = [engine.name for model in models for engine in model.engines]
    assert len(set(names)) == len(names)


def test_the_flag_file_repeats_the_conversion(tftrt, zoo_model, tmp_path):
    source, target = zoo_model("ranker"), tmp_path / "out"
    flags = (
        "--precision=FP16",
        "--minimum_segment_size=4",
        "--signature_keys=user_embedding,item_embedding",
        "--noallow_build_at_runtime",
        "--keep_native_nodes=.*item3.*|.*MatMul_5",
    )
    assert convert(tftrt, source, target, *flags[:-1]).returncode == 0
    first, first_files = manifest(target), files.digest(target)
    flag_file = target / "assets.extra/tftrt/convert.flags"
    again = tftrt("convert", f"--flagfile={flag_file}", "--overwrite", cwd="/")
    assert again.returncode == 0, again.stderr
    second = manifest(target)
    for said in (first, second):
        del said["created"], said["seconds"]
    assert second == first
    assert flag_file.read_text() and first_files


@pytest.mark.parametrize("words", [["ranker", "out"], ["--input_saved_model_dir=ranker", "--output=file:out"]])
def test_the_flag_file_names_whole_paths(tftrt, zoo_model, tmp_path, words):
    (tmp_path / "ranker").symlink_to(zoo_model("ranker"))
    words = [word.replace("file:", f"file://{tmp_path}/") for word in words]
    assert tftrt("convert", *words, cwd=tmp_path).returncode == 0
    lines = (tmp_path / "out/assets.extra/tftrt/convert.flags").read_text().splitlines()
    assert {f"--model={tmp_path}/ranker", f"--output={tmp_path}/out"} <= set(lines)


def test_signatures_that_were_not_asked_for_stay_as_they_were(tftrt, zoo_model, tmp_path):
    done = convert(tftrt, zoo_model("ranker"), tmp_path / "out", "--signature_keys=user_embedding", "--json=-")
    assert done.returncode == 0, done.stderr
    said = {one["name"]: one for one in json.loads(done.stdout)["signatures"]}
    assert [name for name, one in said.items() if one["converted"]] == ["user_embedding"]
    before, after = describe.describe(zoo_model("ranker"), tmp_path / "out")
    assert after.inputs == before.inputs and after.outputs == before.outputs
    assert tftrt("verify", zoo_model("ranker"), tmp_path / "out").returncode == 0


def test_forbidding_builds_at_runtime_keeps_the_output_names(tftrt, zoo_model, converted):
    target = converted("ranker", "--noallow_build_at_runtime")
    before, after = describe.describe(zoo_model("ranker"), target)
    assert after.outputs == before.outputs
    assert after.engines and not any(engine.allow_build_at_runtime for engine in after.engines)
    assert not any(
        engine["allow_build_at_runtime"] for one in manifest(target)["signatures"] for engine in one["engines"]
    )


def test_settings_reach_every_engine_op(converted):
    target = converted(
        "digits_cnn",
        "--max_workspace_size_bytes=33554432",
        "--maximum_cached_engines=3",
        "--use_dynamic_shape",
        "--dynamic_shape_profile_strategy=range+optimal",
    )
    for engine in describe.describe(target)[0].engines:
        assert (engine.workspace_size_bytes, engine.maximum_cached_engines) == (33554432, 3)
        assert not engine.implicit_batch and engine.profile_strategy.lower() == "range+optimal"


def test_named_nodes_go_to_fp32_engines(tftrt, converted):
    target = converted("digits_cnn", "--precision=FP16", "--fp32_nodes=.*/(MatMul|Softmax)")
    engines = describe.describe(target)[0].engines
    assert {engine.precision for engine in engines} == {"FP16", "FP32"}
    high = [engine for engine in engines if engine.precision == "FP32"]
    assert all("Conv2D" not in engine.ops for engine in high) and any("MatMul" in engine.ops for engine in high)


def test_named_nodes_and_ops_stay_native(converted):
    flag = f"--keep_native_nodes=.*/{stacks.node('conv1/Conv2D')}"
    by_node = manifest(converted("digits_cnn", flag))["signatures"][0]
    assert "kept native by --keep_native_nodes" in {left["reason"] for left in by_node["left_out"]}
    by_op = manifest(converted("digits_cnn", "--keep_native_ops=Softmax,MaxPool"))["signatures"][0]
    assert {left["op"]: left["reason"] for left in by_op["left_out"]}["Softmax"] == "kept native by --keep_native_ops"


def test_the_largest_segments_are_kept(converted):
    few = manifest(converted("dynamic_segmenter", "--max_engines=1"))["signatures"][0]
    many = manifest(converted("dynamic_segmenter"))["signatures"][0]
    assert len(few["engines"]) == 1 < len(many["engines"])
    assert sum(few["engines"][0]["ops"].values()) == max(sum(engine["ops"].values()) for engine in many["engines"])
    assert any("max_engines" in left["reason"] for left in few["left_out"])


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_keras_files_are_exported_on_the_way(tftrt, tmp_path_factory, tmp_path, suffix):
    model = trained(tmp_path_factory) / f"model{suffix}"
    done = convert(tftrt, model, tmp_path / "out", "--precision=FP16")
    assert done.returncode == 0, done.stderr
    assert manifest(tmp_path / "out")["source_digest"] == files.digest(model)
    assert describe.describe(tmp_path / "out")[0].engines


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_layers_that_run_code_need_consent(tftrt, tmp_path, suffix):
    from tensorflow.keras import Sequential, layers

    path = tmp_path / f"model{suffix}"
    twice = layers.Lambda(lambda x: x * 2, name="twice")
    Sequential([layers.Input((8,)), layers.Dense(16, activation="relu"), twice, layers.Dense(4)]).save(path)
    refused = convert(tftrt, path, tmp_path / "out")
    assert refused.returncode == 2 and "twice" in refused.stderr and "--allow_unsafe_deserialization" in refused.stderr
    assert not (tmp_path / "out").exists()
    assert convert(tftrt, path, tmp_path / "out", "--allow_unsafe_deserialization").returncode == 0


def test_custom_layers_are_named_by_custom_objects(tftrt, tmp_path):
    from tensorflow.keras import Sequential, layers

    (tmp_path / "my_layers.py").write_text(
        "import tensorflow as tf\nclass Twice(tf.keras.layers.Layer):\n  def call(self, x):\n    return x * 2.0\nCUSTOM = {'Twice': Twice}\n"
    )

    class Twice(layers.Layer):
        def call(self, x):
            return x * 2.0

    Sequential([layers.Input((8,)), layers.Dense(16, activation="relu"), Twice(), layers.Dense(4)]).save(
        tmp_path / "model.h5"
    )
    refused = convert(tftrt, "model.h5", "out", cwd=tmp_path)
    assert refused.returncode == 1 and "--custom_objects" in refused.stderr
    assert convert(tftrt, "model.h5", "out", "--custom_objects=my_layers:CUSTOM", cwd=tmp_path).returncode == 0
    missing = convert(tftrt, "model.h5", "out2", "--custom_objects=no_such_module:CUSTOM", cwd=tmp_path)
    assert missing.returncode == 2 and "no_such_module" in missing.stderr


def test_tags_are_kept(tftrt, zoo_model, tmp_path):
    from tftrt_tools.models.savedmodel.job import protos

    source = tmp_path / "source"
    shutil.copytree(zoo_model("digits_cnn"), source)
    proto = protos.read(source)
    proto.meta_graphs[0].meta_info_def.tags.append("gpu")
    (source / "saved_model.pb").write_bytes(proto.SerializeToString())
    assert convert(tftrt, source, tmp_path / "out", "--tags=serve,gpu").returncode == 0
    assert describe.describe(tmp_path / "out")[0].tags == ("serve", "gpu")
    wrong = convert(tftrt, source, tmp_path / "out2", "--tags=train")
    assert wrong.returncode == 2 and "serve,gpu" in wrong.stderr


def test_warm_up_requests_and_other_extras_come_along(tftrt, zoo_model, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(zoo_model("digits_cnn"), source)
    (source / "assets.extra" / "tftrt").mkdir(parents=True)
    (source / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"warm")
    (source / "assets.extra" / "tftrt" / "verify.json").write_text("{}")
    assert convert(tftrt, source, tmp_path / "out").returncode == 0
    extras = tmp_path / "out" / "assets.extra"
    assert (extras / "tf_serving_warmup_requests").read_bytes() == b"warm"
    assert sorted(path.name for path in (extras / "tftrt").iterdir()) == ["convert.flags", "manifest.json"]


def test_a_dry_run_writes_nothing(tftrt, zoo_model, tmp_path):
    done = tftrt("convert", f"--model={zoo_model('digits_cnn')}", "--dry_run", "--json=-", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["engine_count"] >= 1
    assert not list(tmp_path.iterdir())


def test_a_model_without_a_segment_is_no_quiet_copy(tftrt, zoo_model, tmp_path):
    flags = ("--minimum_segment_size=10000",)
    done = convert(tftrt, zoo_model("digits_cnn"), tmp_path / "out", *flags)
    assert done.returncode == 3 and "no segment is worth an engine" in done.stderr and not (tmp_path / "out").exists()
    done = convert(tftrt, zoo_model("digits_cnn"), tmp_path / "out", *flags, "--allow_no_engines")
    assert done.returncode == 0 and manifest(tmp_path / "out")["engine_count"] == 0


def test_a_model_of_loops_without_a_segment_is_pointed_to_plans(tftrt, zoo_model, tmp_path):
    done = convert(tftrt, zoo_model("lstm_tagger"), tmp_path / "out", "--minimum_segment_size=10000")
    assert_clear(done, 3, "no segment is worth an engine")
    assert "cannot run in TF-TRT's engines" in done.stderr and "--backend=tensorrt" in done.stderr


def test_a_converted_model_is_not_converted_again(tftrt, converted, tmp_path):
    done = convert(tftrt, converted("digits_cnn"), tmp_path / "out")
    assert done.returncode == 2 and "converted already" in done.stderr and not (tmp_path / "out").exists()


def test_shapes_without_a_gpu_are_refused(tftrt, zoo_model, tmp_path):
    done = convert(
        tftrt, zoo_model("digits_cnn"), tmp_path / "out", "--shapes=image:1x8x8x1", env={"CUDA_VISIBLE_DEVICES": "-1"}
    )
    assert done.returncode == 1 and "need a GPU" in done.stderr and not (tmp_path / "out").exists()


def _truncated(path):
    data = (path / "saved_model.pb").read_bytes()
    (path / "saved_model.pb").write_bytes(data[: len(data) // 2])


BREAKS = {
    "truncated pb": (_truncated, 1, "truncated"),
    "empty pb": (lambda path: (path / "saved_model.pb").write_bytes(b""), 1, "truncated"),
    "no variables": (lambda path: shutil.rmtree(path / "variables"), 1, "variables"),
    "no shard": (lambda path: next((path / "variables").glob("*data*")).unlink(), 1, "variables are missing"),
    "truncated shard": (lambda path: os.truncate(next((path / "variables").glob("*data*")), 100), 1, "variables"),
    "no pb": (lambda path: (path / "saved_model.pb").unlink(), 2, "no saved_model.pb"),
}


@pytest.mark.parametrize("case", BREAKS)
def test_broken_models_are_one_clear_line(tftrt, zoo_model, tmp_path, case):
    breaking, code, says = BREAKS[case]
    source = tmp_path / "source"
    shutil.copytree(zoo_model("digits_cnn"), source)
    breaking(source)
    done = convert(tftrt, source, tmp_path / "out")
    assert_clear(done, code, says)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


FLAGS_REFUSED = {
    "unknown flag": (("--precison_mode=FP16",), "Did you mean: precision ?"),
    "INT8": (("--precision=INT8",), "INT8"),
    "unknown precision": (("--precision=FP8",), "FP8"),
    "no integer": (("--minimum_segment_size=three",), "minimum_segment_size"),
    "too small": (("--minimum_segment_size=0",), "too small"),
    "workspace": (("--max_workspace_size_bytes=99999999999999999999",), "max_workspace_size_bytes"),
    "strategy": (("--use_dynamic_shape", "--dynamic_shape_profile_strategy=Best"), "Range+Optimal"),
    "strategy alone": (("--dynamic_shape_profile_strategy=Range",), "--use_dynamic_shape"),
    "regex": (("--keep_native_nodes=(",), "regular expression"),
    "regex without match": (("--keep_native_nodes=nothing",), "matches no node"),
    "unknown op": (("--keep_native_ops=Conv3DD",), "did you mean Conv3D?"),
    "fp32 of fp32": (("--fp32_nodes=.*",), "no effect"),
    "signature": (("--signature_keys=serve",), "serving_default"),
    "shapes": (("--shapes=image:1by8",), "no shape"),
    "missing flag file": (("--flagfile=/nothing",), "flagfile"),
    "stray argument": (("model",), "unexpected argument"),
}


@pytest.mark.parametrize("case", FLAGS_REFUSED)
def test_flags_that_can_never_work(tftrt, zoo_model, tmp_path, case):
    flags, says = FLAGS_REFUSED[case]
    done = convert(tftrt, zoo_model("digits_cnn"), tmp_path / "out", *flags)
    assert_clear(done, 2, says)
    assert not list(tmp_path.iterdir())


def test_paths_that_can_never_work(tftrt, zoo_model, tmp_path):
    source = zoo_model("digits_cnn")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    (tmp_path / "text.keras").write_text("no model")
    for given, target, code, says in (
        (tmp_path / "nothing", "out", 2, "no such file"),
        (ROOT / "setup.cfg", "out", 2, "is a file"),
        (source, "full", 2, "exists"),
        (source, source / "out", 2, "inside one another"),
        (tmp_path / "text.keras", "out", 1, "not a Keras model file"),
    ):
        assert_clear(convert(tftrt, given, tmp_path / target, cwd=tmp_path), code, says)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "text.keras"]
    for flags, says in (((), "MODEL and OUTPUT are missing"), ((source,), "OUTPUT is missing")):
        assert_clear(tftrt("convert", *flags), 2, says)


def test_overwrite_replaces_the_model(tftrt, zoo_model, tmp_path):
    assert convert(tftrt, zoo_model("digits_cnn"), tmp_path / "out").returncode == 0
    assert convert(tftrt, zoo_model("digits_cnn"), tmp_path / "out", "--precision=FP16", "--overwrite").returncode == 0
    assert manifest(tmp_path / "out")["settings"]["precision_mode"] == "FP16"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_leaves_the_target_as_it_was(tftrt, zoo_model, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    try:
        assert convert(tftrt, zoo_model("digits_cnn"), disk / "out").returncode == 0
        before = files.digest(disk / "out")
        left = shutil.disk_usage(disk).free
        (disk / "ballast").write_bytes(bytes(left - 100_000))
        done = convert(tftrt, zoo_model("digits_cnn"), disk / "out", "--precision=FP16", "--overwrite")
        assert_clear(done, 1, "space")
        assert files.digest(disk / "out") == before and sorted(path.name for path in disk.iterdir()) == [
            "ballast",
            "out",
        ]
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0, 0.4, 1.3])
def test_an_interrupt_leaves_the_target_as_it_was_and_no_child(zoo_model, converted, tmp_path, number, seconds):
    shutil.copytree(converted("digits_cnn"), tmp_path / "out")
    before = files.digest(tmp_path / "out")
    command = [
        sys.executable,
        "-m",
        "tftrt_tools",
        "convert",
        f"--model={zoo_model('resnet50')}",
        f"--output={tmp_path / 'out'}",
        "--overwrite",
    ]
    running = subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TFTRT_TEST_MARK": str(tmp_path)},
    )
    while not catches(running.pid, signal.SIGTERM):
        time.sleep(0.01)
    time.sleep(seconds)
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    if running.returncode == 0:
        pytest.skip("the conversion was done before the signal came")
    assert running.returncode == 1 and "Traceback" not in said and "tftrt: error:" in said
    assert files.digest(tmp_path / "out") == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not processes_marked(str(tmp_path))


def catches(process_id, number):
    """Has the process a handler for this signal? `tftrt` sets its own right at its start, Python has one for SIGINT before."""
    (caught,) = (line for line in open(f"/proc/{process_id}/status") if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> number - 1 & 1)


@pytest.mark.slow
def test_a_graph_over_2_gib_is_refused_before_it_is_frozen(tftrt, tmp_path):
    import tensorflow as tf

    class Big(tf.Module):
        def __init__(self):
            self.weights = [tf.Variable(tf.zeros([16_400, 16_400])) for _ in range(2)]

        @tf.function(input_signature=[tf.TensorSpec((None, 16_400), tf.float32, name="x")])
        def call(self, x):
            return {"y": tf.nn.relu(tf.matmul(tf.nn.relu(tf.matmul(x, self.weights[0])), self.weights[1]))}

    made = Big()
    tf.saved_model.save(made, str(tmp_path / "big"), signatures=made.call)
    del made
    gc.collect()
    with command_here.unshared():  # no child keeps the memory
        done = convert(tftrt, tmp_path / "big", tmp_path / "out")
    shutil.rmtree(tmp_path / "big")
    assert_clear(done, 1, "ends at 2 GiB")


def test_a_signature_that_changes_variables_is_refused_and_can_be_left_out(tftrt, tmp_path):
    import tensorflow as tf

    class Counting(tf.Module):
        def __init__(self):
            self.n, self.w = tf.Variable(0.0), tf.Variable(tf.ones([8, 8]))

        @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
        def count(self, x):
            self.n.assign_add(1.0)
            return {"y": tf.matmul(x, self.w) + self.n}

        @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, name="x")])
        def plain(self, x):
            return {"y": tf.nn.relu(tf.matmul(tf.nn.relu(tf.matmul(x, self.w)), self.w))}

    made = Counting()
    tf.saved_model.save(made, str(tmp_path / "model"), signatures={"count": made.count, "plain": made.plain})
    assert_clear(convert(tftrt, tmp_path / "model", tmp_path / "out"), 1, "changes variables")
    assert convert(tftrt, tmp_path / "model", tmp_path / "out", "--signature_keys=plain").returncode == 0
    from tftrt_tools.models.execution.job import native_copy

    native_copy.write(tmp_path / "out", tmp_path / "native")
    root = tf.saved_model.load(str(tmp_path / "native"))
    answers = [root.signatures["count"](x=tf.ones([1, 8]))["y"].numpy()[0, 0] for _ in range(2)]
    assert answers == [9.0, 10.0]
