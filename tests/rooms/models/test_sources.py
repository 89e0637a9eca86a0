"""What `convert` takes, every command takes, with the same names; what nobody takes is told in a line, with the way from there."""

import importlib
import json
import pathlib
import sys
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tests import stacks
from tests.command_line import assert_clear
from tests.sources_command import run
from tftrt_tools.accuracy import verify
from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.models.savedmodel import describe, files, passport
from tftrt_tools.models.sources import kinds
from tftrt_tools.models.sources.opened import opened
from tftrt_tools.models.sources.source import Source
from tftrt_tools.servers.serving.publishing import publish
from tftrt_tools.tftrt.conversion import pipeline
from tftrt_tools.tftrt.conversion.settings import Settings


def small_model():
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(0)
    inputs = tf.keras.Input((8, 8, 3), name="pixels")
    x = layers.Conv2D(8, 3, activation="relu", padding="same")(inputs)
    return tf.keras.Model(inputs, layers.Dense(4, name="scores")(layers.GlobalAveragePooling2D()(x)))


@pytest.fixture(scope="module")
def keras(tmp_path_factory):
    """A Keras file, which is exported once for all tests of this module."""
    path = tmp_path_factory.mktemp("keras") / "model.h5"
    small_model().save(path)
    with opened(path):
        yield path


def test_a_session_finds_the_values_of_what_a_keras_file_becomes(tmp_path):
    """TensorFlow Serving loads so. Of Keras 3 the variables and the tables are not the model's own children."""
    layers = tf.keras.layers
    inputs = tf.keras.Input((1,), dtype=tf.string, name="text")
    x = layers.Embedding(9, 3)(layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=4)(inputs))
    looked_up = layers.StringLookup(vocabulary=["c"], output_mode="one_hot")(inputs)
    model = tf.keras.Model(inputs, layers.Dense(2)(layers.Concatenate()([layers.Flatten()(x), looked_up])))
    model.save(tmp_path / "model.keras")
    given = [["a b"], ["c"]]
    with opened(tmp_path / "model.keras") as folder, tf.compat.v1.Session(graph=tf.Graph()) as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
        signature = loaded.signature_def["serving_default"]
        (output,) = signature.outputs.values()
        found = session.run(output.name, {signature.inputs["text"].name: given})
    np.testing.assert_allclose(found, np.array(model(tf.constant(given))), rtol=1e-5, atol=1e-6)


SUBCLASSES = """
import tensorflow as tf


class Two(tf.keras.Model):
    def __init__(self, **more):
        super().__init__(**more)
        self.first, self.second = tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)

    def call(self, x):
        return self.second(self.first(x))


class Pair(Two):
    def call(self, x, y):
        return self.second(self.first(x) + y)


CUSTOM = {"Two": Two, "Pair": Pair}
"""


@pytest.fixture
def subclasses(tmp_path, monkeypatch):
    """A module of two subclasses of Model in the current folder, and `name.keras` of each, as it was called with 2 rows."""
    (tmp_path / "own_subclasses.py").write_text(SUBCLASSES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("own_subclasses")
    models = {"two": (module.Two(), [tf.ones((2, 4))]), "pair": (module.Pair(), [tf.ones((2, 4)), tf.ones((2, 3))])}
    for name, (model, given) in models.items():
        model(*given)
        model.save(tmp_path / f"{name}.keras")
    yield models
    del sys.modules["own_subclasses"]


@stacks.needs_keras_3
def test_a_session_finds_the_values_of_a_subclass_too(subclasses):
    model, (given,) = subclasses["two"]
    source = Source(path="two.keras", custom_objects="own_subclasses:CUSTOM")
    with opened(source) as folder, tf.compat.v1.Session(graph=tf.Graph()) as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
        signature = loaded.signature_def["serving_default"]
        (output,), (fed,) = signature.outputs.values(), signature.inputs.values()
        found = session.run(output.name, {fed.name: given.numpy()})
    np.testing.assert_allclose(found, np.array(model(given)), rtol=1e-5, atol=1e-6)


@stacks.needs_keras_3
def test_a_subclass_of_several_arguments_is_one_clear_line(subclasses):
    with pytest.raises(errors.TftrtError, match="Keras does not say what Pair of .*pair.keras takes: ") as raised:
        with opened(Source(path="pair.keras", custom_objects="own_subclasses:CUSTOM")):
            pass
    assert "model.export('DIR', input_signature=" in raised.value.mend and "\n" not in raised.value.cause


@pytest.fixture(scope="module")
def rows(keras):
    path = keras.with_name("rows.npz")
    np.savez(path, pixels=np.random.default_rng(0).random((16, 8, 8, 3), np.float32))
    return path


@pytest.fixture(scope="module")
def converted(keras):
    return pathlib.Path(pipeline.convert(keras, keras.with_name("converted"), Settings(precision_mode="FP16")).output)


def test_a_keras_file_is_exported_once_and_gone_afterwards(keras):
    with opened(str(keras)) as folder, opened(Source(path=keras)) as again:
        assert again == folder and files.is_saved_model(folder)
    with scratch.folder("x") as other:
        assert pathlib.Path(other).parent == pathlib.Path(folder).parents[1]


def test_a_saved_model_is_itself_and_stands_for_its_file(converted):
    with opened(converted / "saved_model.pb") as folder:
        assert folder == str(converted)
    assert files.digest(Source(path=converted / "saved_model.pb")) == files.digest(converted)


def test_the_verification_with_the_file_is_one_that_publish_accepts(keras, converted, tmp_path):
    (found,) = describe.describe(converted)
    assert {spec.name for spec in found.inputs["serving_default"]} == {"pixels"}
    assert {spec.name for spec in found.outputs["serving_default"]} == {"scores"}
    done = verify.verify(keras, converted, verify.Options())
    assert done.passed and done.original == str(keras) and done.original_digest == files.digest(keras)
    assert done.original_digest == passport.read(converted, passport.MANIFEST)["source_digest"]
    passport.write(converted, passport.VERIFY, done.to_dict())
    published = publish.publish(converted, "m", str(tmp_path), publish.Options(warm_up=False))
    assert published.evidence.valid and published.evidence.said["original"] == str(keras)


def test_a_keras_file_is_published_as_the_savedmodel_that_it_becomes(tftrt, keras, tmp_path):
    done = tftrt("publish", str(keras), "--model_name=m", f"--base_path={tmp_path}", "--warmup_shapes=pixels:1x8x8x3")
    assert done.returncode == 0, done.stderr
    (found,) = describe.describe(tmp_path / "m/1")
    assert {spec.name for spec in found.inputs["serving_default"]} == {"pixels"}
    record = passport.read(tmp_path / "m/1", passport.PUBLISH)
    assert record["model"] == str(keras) and record["warmup"]["count"] == 1 and f"publish {keras} " in record["command"]
    missing = tftrt("publish", str(keras.with_name("other.h5")), "--model_name=m", f"--base_path={tmp_path}")
    assert_clear(missing, 2, "other.h5")
    lambdas = keras.with_name("lambda.keras")
    tf.keras.Sequential([tf.keras.layers.Lambda(lambda x: x * 2, input_shape=(2,))]).save(lambdas)
    assert_clear(
        tftrt("publish", str(lambdas), "--model_name=m", f"--base_path={tmp_path}"), 2, "--allow_unsafe_deserialization"
    )
    assert sorted(path.name for path in (tmp_path / "m").iterdir() if path.is_dir()) == ["1"]


@pytest.mark.parametrize(
    "argv",
    [
        ["inspect", "MODEL"],
        ["sensitivity", "MODEL", "--data=ROWS", "--precision=FP16"],
        ["data", "MODEL", "ROWS", "--output=OUT.npz"],
        ["calibrate", "MODEL", "--calibration_data=ROWS", "--output=OUT.json"],
        ["bench", "--in_process=MODEL", "--original=MODEL", "--duration_seconds=1", "--warmup_seconds=0.5"],
        [
            "regress",
            "--in_process",
            "--native=MODEL",
            "--candidate=MODEL",
            "--rounds=20",
            "--max_rounds=20",
            "--requests=4",
            "--metrics=p50",
        ],
        pytest.param(
            [
                "regress",
                "--native=MODEL",
                "--candidate=MODEL",
                "--rounds=20",
                "--max_rounds=20",
                "--requests=4",
                "--metrics=p50",
            ],
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda argv: argv[0] + ("_in_process" if "--in_process" in argv else ""),
)
def test_every_command_takes_it_and_names_it(argv, keras, rows, tmp_path, capsys):
    names = {"MODEL": keras, "ROWS": rows, "OUT": tmp_path / "out"}
    for name, path in names.items():
        argv = [one.replace(name, str(path)) for one in argv]
    code = run(*argv, f"--json={tmp_path / 'result.json'}")
    printed = capsys.readouterr()
    assert code == errors.EXIT_DONE or argv[0] == "regress" and code == errors.EXIT_UNSURE, printed.err
    assert "tftrt-scratch" not in printed.out + printed.err + (tmp_path / "result.json").read_text()
    assert argv[0] == "data" or str(keras) in (tmp_path / "result.json").read_text()


def test_tune_looks_at_it(keras, rows, capsys):
    code = run("tune", keras, f"--data={rows}", "--accuracy=snr_db:threshold=30", "--shapes=pixels:8x8x8x3")
    assert code in (errors.EXIT_DONE, errors.EXIT_FAILED) and "not a SavedModel" not in capsys.readouterr().err


# What cannot be taken


def hdf5(path, **attributes):
    with h5py.File(path, "w") as file:
        file.create_group("weights")
        file.attrs.update(attributes)


def weights(path):
    """Weights alone, in a file whose name no Keras has chosen."""
    whole = path.with_name("whole.weights.h5")
    small_model().save_weights(whole)
    whole.rename(path)


def archive(path, version, config="{}"):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata.json", json.dumps({"keras_version": version}))
        file.writestr("config.json", config)


BROKEN = {
    "newer.keras": (
        lambda path: archive(path, f"{stacks.NEWER_KERAS}.3.3"),
        f"was written by Keras {stacks.NEWER_KERAS}.3.3; this Keras is {stacks.NEWER_KERAS - 1}.",
        "model.export('DIR')",
    ),
    "newer.h5": (
        lambda path: hdf5(path, model_config="{}", keras_version=f"{stacks.NEWER_KERAS}.0.5"),
        f"was written by Keras {stacks.NEWER_KERAS}.0.5",
        "model.export('DIR')",
    ),
    "weights.h5": (weights, "holds weights only, no architecture", "load_weights"),
    "other.hdf5": (hdf5, "is an HDF5 file, and no Keras model: it holds weights", "model.save('name.keras')"),
    "cut.h5": (
        lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100)),
        "is damaged or of another program",
        "copy it again",
    ),
    "cut.keras": (lambda path: path.write_bytes(b"PK\x03\x04"), "is damaged or of another program", "copy it again"),
    "empty.keras": (pathlib.Path.touch, "is damaged or of another program", "copy it again"),
    "no_config.keras": (
        lambda path: archive(path, "2.14.0", "no JSON"),
        "is damaged or of another program",
        "copy it again",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_keras_files_that_cannot_be_loaded_say_what_they_are(name, tmp_path, capsys):
    write, cause, mend = BROKEN[name]
    write(tmp_path / name)
    assert run("inspect", tmp_path / name) == errors.EXIT_FAILED
    first, second = capsys.readouterr().err.splitlines()
    assert cause in first and str(tmp_path / name) in first and mend in second


@pytest.mark.parametrize(
    ("name", "what", "way"),
    [
        ("a.onnx", "an ONNX model", "--backend=tensorrt"),
        ("a.tflite", "a TensorFlow Lite model", "it was made from"),
        ("a.pt2", "a PyTorch program", "`tftrt export`"),
        ("a.pt", "a PyTorch file", "torch.export.save"),
        ("a.pth", "a PyTorch file", "torch.export.save"),
        ("a.engine", "a TensorRT engine", "it was built from"),
        ("a.PLAN", "a TensorRT engine", "it was built from"),
        ("a.tar.gz", "an archive", "unpack it"),
        ("a.txt", "is a file", "SavedModel directory"),
        ("readme", "is a file", "SavedModel directory"),
    ],
)
def test_files_of_others_are_told_with_the_way_from_there(name, what, way, tmp_path):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(errors.UsageError, match=what) as refused:
        kinds.kind(kinds.resolved(str(tmp_path / name)))
    assert way in refused.value.mend


def test_a_file_that_needs_consent_is_refused_by_all_and_taken_with_it(tftrt, tmp_path, rows):
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((8,), name="x"),
            layers.Dense(16, activation="relu"),
            layers.Lambda(lambda x: x * 2, name="twice"),
            layers.Dense(4),
        ]
    )
    model.save(tmp_path / "model.keras")
    refused = tftrt("inspect", tmp_path / "model.keras")
    assert_clear(refused, errors.EXIT_USAGE, "--allow_unsafe_deserialization")
    assert "twice" in refused.stderr
    assert tftrt("inspect", tmp_path / "model.keras", "--allow_unsafe_deserialization").returncode == errors.EXIT_DONE


@pytest.mark.parametrize("name", ["no.h5", "no.keras", "no.pb"])
def test_a_file_that_is_not_there_is_a_model_file_all_the_same(tmp_path, name):
    with pytest.raises(errors.UsageError, match="no such file") as caught:
        kinds.kind(str(tmp_path / name))
    assert "Keras file" in caught.value.mend and "SavedModel directory" in caught.value.mend
