"""Names of files are bytes: what lies in a model may have any, and what TensorFlow cannot take is one clear line."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file
from tftrt_tools.models.savedmodel import files, staging
from tftrt_tools.models.sources.source import Source

BAD = os.fsdecode(b"caf\xe9")


def test_the_digest_takes_names_that_are_no_text_in_the_order_of_their_bytes(tmp_path):
    (tmp_path / "saved_model.pb").write_text("x")
    first = files.digest(tmp_path)
    (tmp_path / BAD).write_text("y")
    (tmp_path / "café").write_text("z")
    assert files.digest(tmp_path) != first
    assert files.listing(tmp_path) == ["café", BAD, "saved_model.pb"]


def test_the_digest_of_usual_names_is_that_of_the_version_before(tmp_path):
    (tmp_path / "saved_model.pb").write_text("x")
    (tmp_path / "é").write_text("y")
    import hashlib

    whole = hashlib.sha256(b"saved_model.pb\x001\x00x" + "é".encode() + b"\x001\x00y")
    assert files.digest(tmp_path) == "sha256:" + whole.hexdigest()


@pytest.mark.parametrize(
    "take", [lambda path: Source(path=path), lambda path: staging.check_target(path, False), whole_file.check_named]
)
def test_a_path_that_tensorflow_cannot_take_is_refused_by_its_bytes(take, tmp_path):
    with pytest.raises(errors.UsageError, match=r"caf\\xe9/model is no UTF-8"):
        take(f"{tmp_path}/{BAD}/model")


def test_a_text_with_such_a_name_is_written_with_its_bytes(tmp_path):
    whole_file.write_text(tmp_path / "a", f"é {BAD}")
    assert (tmp_path / "a").read_bytes() == "é ".encode() + b"caf\xe9"
    whole_file.write_text(tmp_path / "a", "\ud800")
    assert (tmp_path / "a").read_bytes() == b"\\ud800"


def test_a_name_that_a_library_cannot_take_ends_in_one_line():
    with pytest.raises(errors.UsageError, match=r"'caf\\xe9' is no UTF-8|caf\\xe9 is no UTF-8"), errors.translated():
        BAD.encode()
    with pytest.raises(UnicodeEncodeError), errors.translated():
        "é".encode("ascii")


# (words of a command, exit code); {model} holds a file with a bad name, {bad} is a model in a folder with one.
COMMANDS = [
    (["inspect", "{bad}"], 2),
    (["verify", "{model}", "{bad}"], 2),
    (["export", "{model}", f"--output={BAD}.onnx"], 2),
    (["convert", "--model={model}", f"--output={BAD}"], 2),
    (["convert", "--model={bad}", "--output=out"], 2),
    (["publish", "{model}", "--model_name=m", f"--base_path={BAD}"], 2),
    (["log", f"{BAD}.log"], 2),
    (["table", "show", BAD], 2),
    (["data", "{model}", BAD, "--output=rows.npz"], 2),
    (["build", "{bad}", "--shapes=x:1"], 2),
    (["calibrate", "{bad}", "--calibrate_on_random_data", "--output=t"], 2),
]


@pytest.mark.parametrize("words, code", COMMANDS, ids=[words[0] for words, _ in COMMANDS])
def test_flags_and_arguments_that_are_no_text_end_in_one_clear_line(words, code, tftrt, zoo_model, tmp_path):
    model, bad = tmp_path / "model", tmp_path / BAD / "model"
    shutil.copytree(zoo_model("digits_cnn"), model)
    (model / BAD).touch()
    bad.mkdir(parents=True)
    done = tftrt(*(word.format(model=model, bad=bad) for word in words), cwd=tmp_path)
    assert done.returncode == code and "Traceback" not in done.stderr and done.stderr.startswith("tftrt: error: "), (
        done.stderr
    )
    assert not (tmp_path / "out").exists()


def test_a_model_with_such_a_file_in_it_is_published_with_it(tftrt, zoo_model, tmp_path):
    shutil.copytree(zoo_model("digits_cnn"), tmp_path / "model")
    (tmp_path / "model" / BAD).write_text("x")
    done = tftrt("publish", "model", "--model_name=m", "--base_path=models", "--nowarmup", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "models" / "m" / "1" / BAD).read_text() == "x"


# A locale whose names Python would read in another way than TensorFlow.
ASCII = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def ascii_tftrt(*words, cwd):
    return subprocess.run(
        [sys.executable, "-m", "tftrt_tools", *words],
        capture_output=True,
        cwd=cwd,
        timeout=120,
        env={**ASCII, "PYTHONPATH": str(ROOT)},
    )


def test_a_locale_that_is_not_utf8_reads_names_as_utf8_and_prints_what_it_can(tmp_path):
    lines = tmp_path / "modèle.log"
    lines.write_text("2024-01-01 00:00:00.000000: E tensorflow/core/x.cc:1] prédire\n")
    done = ascii_tftrt("log", lines, "--json=résultat.json", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.isascii() and b"Traceback" not in done.stderr, done
    assert (tmp_path / "résultat.json").is_file()
    missing = ascii_tftrt("inspect", "modèle", cwd=tmp_path)
    assert missing.returncode == 2 and b"mod\\xe8le" in missing.stderr, missing


def test_signatures_are_printed_where_stdout_has_not_their_letters(tmp_path, saved_with_signature):
    model = saved_with_signature("prédire")
    done = ascii_tftrt("verify", model, model, "--nowrite", "--allow_constant_outputs", cwd=tmp_path)
    assert done.returncode == 0 and rb"pr\xe9dire" in done.stdout, done


@pytest.fixture
def saved_with_signature(zoo_model, tmp_path):
    from tftrt_tools.models.savedmodel.job import protos

    def made(name):
        path = tmp_path / "modèle"
        shutil.copytree(zoo_model("digits_cnn"), path)
        proto = protos.read(path)
        signatures = protos.meta_graph(proto).signature_def
        signatures[name].CopyFrom(signatures["serving_default"])
        pathlib.Path(path / protos.FILE).write_bytes(proto.SerializeToString())
        return path

    return made
