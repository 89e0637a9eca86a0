"""`tftrt publish` of a folder with a model for each kind of GPU."""

import errno
import json
import shutil

import pytest

import tftrt_tools as tftrt_api
from tests.command_line import assert_clear
from tftrt_tools.base import errors
from tftrt_tools.base.process import child
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving.publishing import publish, several

NO_WARMUP = publish.Options(warm_up=False, unverified=True)
GPUS = {"L4": ("NVIDIA L4", "8.9"), "T4": ("Tesla T4", "7.5")}


@pytest.fixture
def built(converted, tmp_path):
    """As `tftrt build --on` leaves it, but for the engines: a model for each of two kinds, which says for what it was built."""
    for kind, (name, capability) in GPUS.items():
        model = shutil.copytree(converted("digits_cnn", "--precision=FP16"), tmp_path / "built" / kind)
        manifest = passport.read(model, passport.MANIFEST)
        manifest["gpu"] = {"name": name, "compute_capability": capability}
        passport.write(model, passport.MANIFEST, manifest)
    return tmp_path / "built"


def test_each_kind_gets_a_base_path_and_all_get_one_number(built, tmp_path):
    base = tmp_path / "models"
    done = several.publish_all(str(built), "digits", str(base), NO_WARMUP)
    assert done.version == 1 and [one.gpu_type for one in done.kinds] == ["L4", "T4"]
    assert [one.node for one in done.kinds] == ["nvidia.com/gpu.product: NVIDIA-L4", "nvidia.com/gpu.product: Tesla-T4"]
    assert all((base / kind / "digits" / "1" / "saved_model.pb").is_file() for kind in GPUS)
    assert [one.publication.target.compute_capabilities for one in done.kinds] == [("8.9",), ("7.5",)]
    # The next number that no kind has.
    (base / "T4" / "digits" / "7").mkdir()
    done = several.publish_all(str(built), "digits", str(base), NO_WARMUP)
    assert done.version == 8 and {one.publication.version for one in done.kinds} == {8}


def test_a_number_that_one_kind_has_is_refused_before_anything_is_published(built, tmp_path):
    (tmp_path / "models" / "T4" / "digits" / "3").mkdir(parents=True)
    with pytest.raises(errors.UsageError, match="version 3 exists"):
        several.publish_all(
            str(built), "digits", str(tmp_path / "models"), publish.Options(version=3, warm_up=False, unverified=True)
        )
    assert not (tmp_path / "models" / "L4").exists()


def test_a_base_path_inside_the_folder_is_refused(built):
    with pytest.raises(errors.UsageError, match="lies inside the model"):
        several.publish_all(str(built), "digits", str(built / "models"), NO_WARMUP)
    assert several.kinds(str(built)).keys() == GPUS.keys()


def test_the_kind_that_is_refused_is_named_with_those_before_it(built, tmp_path):
    (built / "T4" / "saved_model.pb").write_bytes(b"\x00" * 10)
    with pytest.raises(errors.TftrtError, match="^T4: .*; published already: L4"):
        several.publish_all(str(built), "digits", str(tmp_path / "models"), NO_WARMUP)
    assert (tmp_path / "models/L4/digits/1").is_dir() and not (tmp_path / "models/T4/digits/1").exists()


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (child.ChildDied("it died", "look", "its log", "SIGSEGV"), errors.TftrtError, "it died"),
        (OSError(errno.ENOSPC, "No space left on device", "x"), errors.TftrtError, "No space left on device"),
        (errors.CheckFailed("refused", "fix it"), errors.CheckFailed, "refused"),
    ],
)
def test_whatever_ends_a_kind_is_one_line_with_its_exit_code(error, kind, says, built, monkeypatch, tmp_path):
    def fails(*_):
        raise error

    monkeypatch.setattr(publish, "publish", fails)
    with pytest.raises(kind, match=f"^L4: .*{says}") as told:
        several.publish_all(str(built), "digits", str(tmp_path / "models"), NO_WARMUP)
    assert type(told.value) is kind


def test_one_model_is_no_folder_of_kinds(built, tmp_path):
    assert several.kinds(str(built)) == {kind: str(built / kind) for kind in GPUS}
    assert several.kinds(str(built / "T4")) == several.kinds(str(tmp_path / "gone")) == {}
    (built / ".tftrt-stage").mkdir()
    assert several.kinds(str(built)).keys() == GPUS.keys()
    for version in ("assets.extra", "__pycache__"):
        (built / version).mkdir()
    (built / "model.py").write_text("of a version")
    assert several.kinds(str(built)).keys() == GPUS.keys()
    (tmp_path / "empty").mkdir()
    assert several.kinds(str(tmp_path / "empty")) == {}


@pytest.mark.parametrize("server", ["tensorflow", "triton"])
@pytest.mark.parametrize("name", ["build.log", "lost+found"])
def test_what_is_no_model_beside_the_kinds_is_named(built, tftrt, tmp_path, name, server):
    if name == "build.log":
        (built / name).write_text("mine")
    else:
        (built / name).mkdir(mode=0)
    done = tftrt("publish", built, "--model_name=m", f"--base_path={tmp_path / 'models'}", f"--server={server}")
    assert_clear(done, 2, f"{built} has the SavedModel L4, as for a kind of GPU, and {name} there is no model")
    assert f"move {name} elsewhere, or give one model, such as {built / 'L4'}" in done.stderr
    assert not (tmp_path / "models").exists()


def test_a_folder_that_may_not_be_read_is_no_model(built, monkeypatch):
    (built / "lost+found").mkdir()
    real = files.is_saved_model

    def denied(path):
        if path.name == "lost+found":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(files, "is_saved_model", denied)
    with pytest.raises(errors.UsageError, match=r"lost\+found there is no model"):
        several.kinds(str(built))


def test_the_command_names_the_nodes_and_the_next_step(built, tftrt, tmp_path):
    base = tmp_path / "models"
    done = tftrt(
        "publish",
        built,
        "--model_name=digits",
        f"--base_path={base}",
        "--unverified",
        "--nowarmup",
        f"--json={tmp_path / 'p.json'}",
    )
    assert done.returncode == 0, done.stderr
    for kind, node in (("L4", "NVIDIA-L4"), ("T4", "Tesla-T4")):
        assert f"published: {base / kind / 'digits' / '1'}" in done.stdout
        assert f"nvidia.com/gpu.product: {node}" in done.stdout
    assert f"--model_base_path={base / 'L4' / 'digits'}" in done.stdout.replace("\n", " ")
    said = json.loads((tmp_path / "p.json").read_text())
    assert said["kind"] == "publications" and [one["node_selector"] for one in said["kinds"]] == [
        {"nvidia.com/gpu.product": "NVIDIA-L4"},
        {"nvidia.com/gpu.product": "Tesla-T4"},
    ]
    flags = ("--model_name=digits", f"--base_path={base}")
    assert_clear(tftrt("publish", built, *flags), 3, "L4: not published")
    assert_clear(tftrt("publish", built, *flags, "--server=triton"), 3, "L4: not published: it was never verified")


def test_from_python(built, tmp_path):
    done = tftrt_api.publish(built, model_name="digits", base_path=tmp_path / "models", unverified=True, warmup=False)
    assert done.version == 1 and len(done.kinds) == 2
