"""Keras files that another Keras wrote: what the command says where this one cannot load them."""

import json
import zipfile

import pytest
import tensorflow as tf

from tftrt_tools.base import errors
from tftrt_tools.base.stack import installed
from tftrt_tools.models.sources import keras_job
from tftrt_tools.models.sources.job import keras_file
from tftrt_tools.models.sources.opened import KerasRequest

HERE = installed.version_of("keras")
MAJOR = HERE.partition(".")[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("keras") / "m.keras"
    inputs = tf.keras.Input((4,), name="x")
    tf.keras.Model(inputs, tf.keras.layers.Dense(2, name="y")(inputs)).save(path)
    return path


def written(saved, path, version, old="", new=""):
    """The same file, as if another Keras had written it."""
    with zipfile.ZipFile(saved) as given, zipfile.ZipFile(path, "w") as made:
        for name in given.namelist():
            content = given.read(name)
            if name == "metadata.json":
                content = json.dumps(json.loads(content) | {"keras_version": version}).encode()
            made.writestr(
                name, content.replace(old.encode(), new.encode()) if name == "config.json" and old else content
            )
    return path


def refused(path, tmp_path):
    with pytest.raises(errors.TftrtError) as told:
        keras_job.job(KerasRequest(source=str(path), output=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
    return told.value


NEWER = f"{MAJOR}.999.0"


@pytest.mark.parametrize(
    ("old", "new"),
    [('"class_name": "Dense"', '"class_name": "LaterDense"'), ('"use_bias": true', '"use_bias": true, "later": 1')],
    ids=["a layer", "an argument"],
)
def test_what_a_newer_keras_has_is_no_reason_to_trust_the_file(old, new, saved, tmp_path):
    told = refused(written(saved, tmp_path / "m.keras", NEWER, old, new), tmp_path)
    assert told.exit_code == errors.EXIT_FAILED and "unsafe" not in told.mend and "custom_objects" not in told.mend
    assert told.cause.endswith(f"m.keras was written by Keras {NEWER}; this Keras is {HERE}, which cannot read it")


def test_a_newer_file_that_loads_is_taken(saved, tmp_path):
    path = written(saved, tmp_path / "m.keras", NEWER)
    assert keras_job.job(KerasRequest(source=str(path), output=str(tmp_path / "out"))).parameters == 10


def test_a_module_of_others_needs_consent_whoever_wrote_the_file(saved, tmp_path):
    path = written(saved, tmp_path / "m.keras", NEWER, '"module": "keras.layers"', '"module": "others"')
    assert "--allow_unsafe_deserialization" in refused(path, tmp_path).mend


def test_own_layers_of_the_same_version_are_asked_for(saved, tmp_path):
    change = '"class_name": "Dense"', '"class_name": "Mine"'
    told = refused(written(saved, tmp_path / "m.keras", HERE, *change), tmp_path)
    assert "--custom_objects" in told.mend


@pytest.mark.skipif(MAJOR == "2", reason="it needs Keras 3")
def test_a_file_of_keras_2(saved, tmp_path):
    change = '"module": "keras.src.models.functional"', '"module": "keras.src.engine.functional"'
    told = refused(written(saved, tmp_path / "m.keras", "2.14.0", *change), tmp_path)
    assert "was written by Keras 2.14.0; this Keras is 3." in told.cause and "model.save('DIR')" in told.mend


@pytest.mark.parametrize(
    ("written_by", "here", "explains"),
    [
        ("2.14.0", "3.15.1", True),
        ("3.16.0", "3.15.1", True),
        ("3.15.0", "3.15.1", False),
        ("3.2.0", "3.15.1", False),
        ("", "3.15.1", False),
        ("3.15.1", None, False),
    ],
)
def test_which_version_explains_a_failure(written_by, here, explains, tmp_path, monkeypatch):
    monkeypatch.setattr(installed, "version_of", lambda name: here)
    assert (keras_file.of_another(tmp_path / "m.keras", written_by) is not None) == explains
