"""`tftrt publish` on real models, without a GPU: what it writes, what it refuses, what is left when it is stopped."""

import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import stacks
from tests.command_line import assert_clear
from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.stack import installed, libraries
from tftrt_tools.command_line.commands import publish as command
from tftrt_tools.models.execution import npz
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.publishing import model_facts_job, publish, server_target
from tftrt_tools.servers.serving.warmup import warmup_file, warmup_file_job, warmup_requests

NO_WARMUP = publish.Options(warm_up=False)


@pytest.fixture(scope="module")
def verified_once(converted, zoo_model, tftrt, tmp_path_factory):
    """A converted model with real evidence."""
    model = shutil.copytree(
        converted("digits_cnn", "--precision_mode=FP16"), tmp_path_factory.mktemp("verified") / "digits"
    )
    assert tftrt("verify", zoo_model("digits_cnn"), model).returncode == 0
    return model


@pytest.fixture
def verified(verified_once, tmp_path):
    """A copy of it, to be changed."""
    return shutil.copytree(verified_once, tmp_path / "digits")


def said(version):
    return passport.read(version, passport.PUBLISH)


def records(version):
    """[PredictionLog] of a version's warm-up file."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    return [
        prediction_log_pb2.PredictionLog.FromString(one.numpy())
        for one in tf.data.TFRecordDataset([str(warmup_requests.path(version))])
    ]


# What it writes


def test_a_verified_model_becomes_a_version_with_a_warm_up_and_a_record(verified, tftrt, tmp_path):
    import tensorflow as tf

    done = tftrt(
        "publish",
        "digits",
        "--model_name=digits",
        "--base_path=models",
        "--warmup_shapes=image:1x8x8x1,32x8x8x1",
        f"--json={tmp_path / 'out.json'}",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    version = tmp_path / "models" / "digits" / "1"
    assert f"published: {version}\n" in done.stdout and "2 records (2 generated)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("next: tftrt serve --model_name=digits"), (
        "the result is in the file, and the screen is for people"
    )
    logs = records(version)
    assert [tf.make_ndarray(log.predict_log.request.inputs["image"]).shape for log in logs] == [
        (32, 8, 8, 1),
        (1, 8, 8, 1),
    ]
    assert {
        (log.predict_log.request.model_spec.name, log.predict_log.request.model_spec.signature_name) for log in logs
    } == {("digits", "serving_default")}
    record = said(version)
    assert record == json.loads((tmp_path / "out.json").read_text()) | {"schema_version": 1}
    assert (record["model_name"], record["version"], record["verified"], record["target"]["name"]) == (
        "digits",
        1,
        True,
        "local",
    )
    assert record["digest"] == files.digest(version) == record["evidence"]["said"]["converted_digest"]
    assert record["warmup"]["count"] == 2 and record["warmup"]["mode"] == "native segments"
    assert [one["shapes"] for one in record["warmup"]["records"]] == [{"image": [32, 8, 8, 1]}, {"image": [1, 8, 8, 1]}]
    # The warm-up is no part of what was verified: the version's evidence holds, and it can be published on.
    checked = tftrt("inspect", version, "--check")
    assert checked.returncode == 0, checked.stdout
    again = tftrt(*shlex.split(record["command"])[1:], cwd="/")
    assert again.returncode == 0, again.stderr
    assert (
        version_directories.latest(version.parent) == 2 and said(version.parent / "2")["command"] == record["command"]
    )


def test_a_native_model_with_strings_and_several_signatures_needs_no_evidence(zoo_model, tmp_path):
    done = publish.publish(
        zoo_model("ranker"), "ranker", str(tmp_path), publish.Options(target="tensorflow/serving:2.19.0")
    )
    assert not done.tftrt and not done.evidence.needed and any("no TF-TRT model" in note for note in done.notes)
    logs = records(done.path)
    assert {log.predict_log.request.model_spec.signature_name for log in logs} == {
        "serving_default",
        "user_embedding",
        "item_embedding",
    }
    first = logs[0].predict_log.request
    assert len(first.inputs["user"].string_val) == first.inputs["user"].tensor_shape.dim[0].size == 8
    assert done.warm_up.replay.mode == "cpu" and len(done.warm_up.replay.records) == len(logs) == 6


@stacks.needs_image
def test_a_model_with_engines_is_published_for_their_tensorrt_and_for_no_other(built_once, tmp_path):  # noqa: F811
    model, _ = built_once
    with pytest.raises(errors.CheckFailed, match="has 8.4.3: they end the server"):
        publish.publish(
            model, "m", str(tmp_path), publish.Options(unverified=True, target="tensorflow/serving:2.14.1-gpu")
        )
    assert list(tmp_path.iterdir()) == []
    done = publish.publish(
        model, "m", str(tmp_path), publish.Options(unverified=True, target="tftrt/serving", compute_capability="9.0")
    )
    assert (
        done.engine_files == 2
        and not done.evidence.valid
        and any("NOT VERIFIED: it was never" in note for note in done.notes)
    )
    assert said(done.path)["verified"] is False and said(done.path)["engines"] == 2
    # No GPU here and no such engines either: the requests ran through the native segments.
    assert done.warm_up.replay.mode == "native segments"


# This machine


def test_this_machine_is_asked_for_the_library_that_tensorflow_loads(monkeypatch, tmp_path):
    """Not for a wheel: another release, built here as a library, lies before it in the loader's path."""
    from tftrt_tools.base import tf_private

    here = server_target.machine()
    assert here.tftrt and here.tensorrt == tf_private.tensorrt_versions()[1]
    (name,) = (name for name, _ in libraries.needed(installed.tensorflow()) if libraries.stem(name) == "nvinfer")
    source = "int getInferLibVersion() { return 8999; }"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-o", tmp_path / name, "-xc", "-"], input=source.encode(), check=True
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert server_target.machine().tensorrt == "8.9.99"
    (tmp_path / name).write_text("no library")
    assert server_target.machine().tensorrt is None


# The gate


def test_without_valid_evidence_it_is_refused_and_nothing_is_left(verified, tftrt, tmp_path):
    (verified / "assets" / "more").parent.mkdir(exist_ok=True)
    (verified / "assets" / "more").write_text("x")
    refused = tftrt("publish", verified, "--model_name=m", f"--base_path={tmp_path / 'models'}")
    assert_clear(refused, 3, "its files have changed since they were verified")
    original = passport.read(verified, passport.MANIFEST)["source"]
    assert f"run `tftrt verify {original} {verified}` again" in refused.stderr
    assert "--unverified" in refused.stderr and not (tmp_path / "models").exists()
    (verified / "assets.extra" / "tftrt" / "manifest.json").unlink()
    refused = tftrt("publish", verified, "--model_name=m", f"--base_path={tmp_path / 'models'}")
    assert f"run `tftrt verify ORIGINAL {verified}` again" in refused.stderr


def test_what_inspect_finds_fault_with_is_refused(verified, tmp_path):
    manifest = passport.read(verified, passport.MANIFEST)
    manifest["signatures"][0]["engines"] = []
    passport.write(verified, passport.MANIFEST, manifest)
    with pytest.raises(errors.CheckFailed, match="the manifest does not list it"):
        publish.publish(verified, "m", str(tmp_path / "models"), NO_WARMUP)
    assert not (tmp_path / "models").exists()
    (verified / "more").write_text("x")
    done = publish.publish(verified, "m", str(tmp_path / "models"), publish.Options(unverified=True, warm_up=False))
    assert (
        not said(done.path)["verified"]
        and "changed" in said(done.path)["evidence"]["problem"]
        and said(done.path)["findings"]
    )
    assert all(
        any(words in note for note in done.notes) for words in ("NOT VERIFIED", "does not list it", "no warm-up")
    )


def test_what_the_build_left_to_tensorflow_is_a_note(verified, tmp_path):
    manifest = passport.read(verified, passport.MANIFEST)
    manifest["signatures"][0]["refused_nodes"] = [{"node": "crop", "op": "StridedSlice", "reason": "refused"}]
    name = manifest["signatures"][0]["engines"][0]["name"]
    manifest["signatures"][0]["unbuilt"] = [{"name": name, "reason": "not ready when --max_build_minutes=1 were over"}]
    passport.write(verified, passport.MANIFEST, manifest)
    done = publish.publish(verified, "m", str(tmp_path / "models"), NO_WARMUP)
    assert "node crop (StridedSlice) stays in TensorFlow: refused" in done.notes
    assert any(note.startswith(f"{name} has no engine and runs in TensorFlow: not ready") for note in done.notes)


@pytest.mark.parametrize(
    ("name", "base", "options", "words"),
    [
        ("a/b", "models", {}, "a request cannot name that"),
        ("a:b", "models", {}, "a request cannot name"),
        ("..", "models", {}, "a request cannot"),
        ("", "models", {}, "a request cannot"),
        ("m", "digits", {}, "lies inside the model"),
        ("m", "digits/variables", {}, "lies inside the model"),
        ("m", "digits/saved_model.pb", {}, "lies inside"),
        ("m", "file", {}, "is no directory"),
        ("m", "models", {"version": 0}, "from 1 to"),
        ("m", "there", {"version": 4}, "exists"),
        ("m", "there", {"version": 3}, "never loads it"),
        ("m", "models", {"target": "mine:1"}, "nothing is known"),
        ("m", "models", {"compute_capability": "x"}, "is none"),
    ],
)
def test_what_can_never_work_is_refused_at_once(name, base, options, words, verified, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "there" / "m" / "4").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(errors.UsageError, match=words):
        publish.publish(verified, name, str(tmp_path / base), publish.Options(**options))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "MODEL, --model_name and --base_path are missing"),
        (["m"], "--model_name and --base_path are missing"),
        (["m", "--model_name=m"], "--base_path is missing"),
        (["nowhere", "--model_name=m", "--base_path=b"], "no such file"),
        (["m", "--model_name=m", "--base_path=b", "--version=x"], "version"),
        (["m", "--model_name=m", "--base_path=b", "--nowarmup", "--warmup_shapes=x:1"], "exclude each other"),
        (["m", "--model_name=m", "--base_path=b", "--batching_parameters_file=nowhere"], "nowhere"),
        (["m.onnx", "--model_name=m", "--base_path=b"], "--server=triton publishes it"),
        (["plan", "--model_name=m", "--base_path=b"], "a plan directory\n  --server=triton publishes it"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments, says, tftrt, tmp_path):
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / files.PLAN_DOCUMENT).write_text("{}")
    assert_clear(tftrt("publish", *arguments, cwd=tmp_path), 2, says)
    assert not (tmp_path / "b").exists()


def test_the_command_that_repeats_it_has_every_flag_that_differs(tmp_path):
    from tftrt_tools.command_line.commands import _flags

    (tmp_path / "data.npz").write_text("x")
    values, positional = _flags.parse(
        "publish",
        command,
        [
            "a model",
            "--model_name=m",
            "--base_path=models",
            "--version=3",
            "--nowarmup",
            "--custom_ops=A,B",
            f"--warmup_data={tmp_path}/data.npz",
        ],
    )
    assert shlex.split(command._command(values, *positional)) == [
        "tftrt",
        "publish",
        os.path.abspath("a model"),
        f"--base_path={os.path.abspath('models')}",
        "--custom_ops=A,B",
        "--model_name=m",
        "--nowarmup",
        f"--warmup_data={tmp_path}/data.npz",
    ]


# Warm-up


def picky(path):
    """A model that refuses numbers below 5."""
    import tensorflow as tf

    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def serve(ids):
        with tf.control_dependencies([tf.debugging.assert_greater(ids, 4, message="too small")]):
            return {"y": ids + 1}

    tf.saved_model.save(module, str(path), signatures=serve.get_concrete_function())
    return path


def test_a_warm_up_that_fails_is_not_published_and_one_with_data_is_kept_on_the_way(tmp_path):
    model, base = picky(tmp_path / "m"), tmp_path / "models"
    with pytest.raises(errors.CheckFailed, match="the warm-up fails.*too small") as caught:
        publish.publish(model, "m", str(base))
    assert "--warmup_data" in caught.value.mend and not base.exists()
    np.savez(tmp_path / "data.npz", ids=np.array([5, 6, 7], np.int32))
    batching = publish.Options(
        requests=warmup_requests.Options(data=str(tmp_path / "data.npz"), batching=warmup_sizes(4))
    )
    first = publish.publish(model, "m", str(base), batching)
    assert [one.shapes for one in first.warm_up.replay.records] == [{"ids": (4,)}] and first.warm_up.sources == {
        "data": 1
    }
    # A version that is published on brings its warm-up along.
    with pytest.raises(errors.UsageError, match="brings its own warm-up"):
        publish.publish(first.path, "m", str(base), batching)
    second = publish.publish(first.path, "m", str(base))
    assert second.warm_up.kept and records(second.path) == records(first.path) and said(second.path)["version"] == 2


def warmup_sizes(largest):
    from tftrt_tools.servers.serving.warmup.allowed_batch_sizes import BatchSizes

    return BatchSizes(largest, True, ())


def predict_log(signature="", **inputs):
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    for name, value in inputs.items():
        log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return log


def bad_logs():
    from tensorflow_serving.apis import prediction_log_pb2

    image = np.zeros((1, 8, 8, 1), np.float32)
    session = prediction_log_pb2.PredictionLog()
    session.session_run_log.SetInParent()
    empty = prediction_log_pb2.PredictionLog()
    empty.classify_log.request.input.example_list.SetInParent()
    torn = predict_log(image=image)
    torn.predict_log.request.inputs["image"].tensor_content = b"xy"
    return {
        "does not have": predict_log("none", image=image),
        "lacks the input 'image'": predict_log(),
        "has an input 'x'": predict_log(image=image, x=1),
        r"gives 'image' as float64\[1,8,8,1\]": predict_log(image=image.astype(float)),
        r"as float32\[8\]": predict_log(image=np.zeros(8, np.float32)),
        "session_run_log": session,
        "holds no tf.Example": empty,
        "does not decode": torn,
    }


def warmed(path, model, folder):
    """[(signature, .npz)] of a warm-up file."""
    return warmup_file_job.read(warmup_file.ToRead(path=str(path), model=str(model), folder=str(folder)))


def test_a_warm_up_file_that_would_fail_the_load_is_named(verified_once, tmp_path):
    import tensorflow as tf

    def read(path):
        return warmed(path, verified_once, tmp_path / "out")

    path = tmp_path / "requests"
    good = predict_log(image=np.zeros((1, 8, 8, 1), np.float32))
    for words, log in bad_logs().items():
        with tf.io.TFRecordWriter(str(path)) as writer:
            writer.write(good.SerializeToString())
            writer.write(log.SerializeToString())
        with pytest.raises(errors.CheckFailed, match=words):
            read(path)
    path.write_bytes(b"there are no records in here, only words")
    with pytest.raises(errors.CheckFailed, match="no TFRecord file"):
        read(path)
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"\xff\xff")
    with pytest.raises(errors.CheckFailed, match="no PredictionLog"):
        read(path)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(warmup_requests.MOST_RECORDS):
            writer.write(good.SerializeToString())
    assert len(read(path)) == warmup_requests.MOST_RECORDS
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(warmup_requests.MOST_RECORDS + 1):
            writer.write(good.SerializeToString())
    with pytest.raises(errors.CheckFailed, match="more than 1000"):
        read(path)


def example_model(path):
    """A model whose only input is serialized tf.Examples."""
    import tensorflow as tf

    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def score(examples):
        parsed = tf.io.parse_example(examples, {"v": tf.io.FixedLenFeature([1], tf.float32)})
        return {"outputs": tf.reduce_sum(parsed["v"], axis=1)}

    tf.saved_model.save(module, str(path), signatures={"score": score})
    return path


def test_examples_of_classify_regress_and_multi_inference_are_read_as_the_server_sends_them(tmp_path):
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    model, path = example_model(tmp_path / "m"), tmp_path / "requests"
    logs = [prediction_log_pb2.PredictionLog() for _ in range(3)]
    requests = logs[0].classify_log.request, logs[1].regress_log.request, logs[2].multi_inference_log.request
    for request in requests[:2]:
        request.model_spec.signature_name = "score"
    for _ in range(2):
        requests[2].tasks.add().model_spec.signature_name = "score"
    for value in (1.0, 2.0):
        for request in (requests[0], requests[2]):
            request.input.example_list.examples.add().features.feature["v"].float_list.value.append(value)
    context = requests[1].input.example_list_with_context
    context.context.features.feature["v"].float_list.value.append(3.0)
    context.examples.add()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())
    loaded = tf.saved_model.load(str(model)).signatures["score"]
    answers = []
    for signature, inputs in warmed(path, model, tmp_path / "out"):
        arrays = npz.load(inputs)
        answers.append(
            (
                signature,
                loaded(**{name: tf.constant(array) for name, array in arrays.items()})["outputs"].numpy().tolist(),
            )
        )
    assert answers == [("score", [1.0, 2.0]), ("score", [3.0]), ("score", [1.0, 2.0]), ("score", [1.0, 2.0])]


def test_an_input_that_has_a_default_may_be_left_out(verified_once, tmp_path):
    import tensorflow as tf

    from tftrt_tools.models.savedmodel.job import protos

    model = shutil.copytree(verified_once, tmp_path / "m")
    proto = protos.read(model)
    image = np.full((2, 8, 8, 1), 0.5, np.float32)
    proto.meta_graphs[0].signature_def["serving_default"].defaults["image"].CopyFrom(tf.make_tensor_proto(image))
    (model / "saved_model.pb").write_bytes(proto.SerializeToString())
    with tf.io.TFRecordWriter(str(tmp_path / "requests")) as writer:
        writer.write(predict_log().SerializeToString())
    ((_, inputs),) = warmed(tmp_path / "requests", model, tmp_path / "out")
    assert np.array_equal(np.load(inputs)["image"], image)


# What the files say


def test_ops_that_tensorflow_does_not_have_are_found_and_calls_of_functions_are_none(
    verified_once, zoo_model, tmp_path
):
    from tftrt_tools.models.savedmodel.job import protos

    assert (
        model_facts_job.read(str(zoo_model("ranker"))).unknown_ops
        == model_facts_job.read(str(verified_once)).unknown_ops
        == ()
    )
    model = shutil.copytree(verified_once, tmp_path / "m")
    proto = protos.read(model)
    proto.meta_graphs[0].graph_def.node.add(name="n", op="SentencepieceOp")
    (model / "saved_model.pb").write_bytes(proto.SerializeToString())
    assert model_facts_job.read(str(model)).unknown_ops == ("SentencepieceOp",)


def test_an_int8_table_names_its_tensorrt(converted):
    found = model_facts_job.read(str(converted("digits_cnn", "--precision_mode=INT8", "--calibrate_on_random_data")))
    assert (
        found.tables
        and set(found.tables.values()) <= set(stacks.here().loaded)
        and set(found.tables) <= {one.name for one in found.seen.engines}
    )


# Stopped, or out of space


def test_two_commands_at_once_get_a_version_each(verified, tmp_path):
    warmup_requests.path(verified).write_text("a warm-up file of its own, which --nowarmup leaves out")
    arguments = [
        sys.executable,
        "-m",
        "tftrt_tools",
        "publish",
        str(verified),
        "--model_name=m",
        f"--base_path={tmp_path / 'models'}",
        "--nowarmup",
    ]
    running = [subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    outputs = [one.communicate(timeout=120) for one in running]
    assert [one.returncode for one in running] == [0, 0], outputs
    assert sorted(path.name for path in (tmp_path / "models" / "m").iterdir()) == ["1", "2"]
    for number in (1, 2):
        version = tmp_path / "models" / "m" / str(number)
        assert (said(version)["version"], said(version)["warmup"]) == (number, None) and not warmup_requests.path(
            version
        ).exists()


def test_a_full_disk_is_one_clear_line(verified, tmp_path, monkeypatch, capsys):
    from tftrt_tools.command_line import cli

    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")

    monkeypatch.setattr(shutil, "copyfile", full)
    code = cli.main(["publish", str(verified), "--model_name=m", f"--base_path={tmp_path / 'models'}", "--nowarmup"])
    assert (
        code == 1
        and "No space left on device\n  free space" in capsys.readouterr().err
        and not (tmp_path / "models").exists()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "written"), [(signal.SIGKILL, (0, 1, 4, 99)), (signal.SIGTERM, (0, 2))])
def test_the_command_stopped_at_any_moment_publishes_whole_versions_only(stop, written, verified, tmp_path):
    """Stopped when it has written so many files, or when it has ended."""

    def files():
        return sum(len(names) for _, _, names in os.walk(base))

    base = tmp_path / "models" / "m"
    arguments = [
        sys.executable,
        "-m",
        "tftrt_tools",
        "publish",
        str(verified),
        "--model_name=m",
        f"--base_path={base.parent}",
        "--warmup_shapes=image:1x8x8x1",
    ]
    complete = {path.relative_to(verified).as_posix() for path in verified.rglob("*") if path.is_file()}
    complete |= {warmup_requests.FILE, publish._RECORD}
    for count in written:
        before = files()
        running = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while running.poll() is None and files() < before + count:
            time.sleep(0.001)
        running.send_signal(stop)
        running.wait(timeout=60)
        for one in version_directories.listing(base):
            assert {path.relative_to(one.path).as_posix() for path in one.path.rglob("*") if path.is_file()} == complete
        if stop == signal.SIGTERM and base.exists():
            assert all(version_directories.parse(path.name) for path in base.iterdir()), "it did not clear up"
    before = version_directories.latest(base) or 0
    done = publish.publish(verified, "m", str(base.parent), NO_WARMUP)
    assert done.version == before + 1 and all(version_directories.parse(path.name) for path in base.iterdir())
