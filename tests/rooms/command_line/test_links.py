"""A model's links that lead out of it are not followed where its files are copied: they may name any file of the machine."""

import os
import pathlib
import shutil

import numpy as np
import pytest

from tests.command_line import assert_clear
from tftrt_tools.base import errors
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.savedmodel.job import loading
from tftrt_tools.tensorrt.plans import build as plan_build


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "secret").write_text("of another user")
    return tmp_path / "secret"


@pytest.fixture
def model(zoo_model, tmp_path):
    shutil.copytree(zoo_model("digits_cnn"), tmp_path / "model")
    return tmp_path / "model"


def test_links_inside_the_model_are_copied_as_what_they_lead_to(tmp_path):
    model = tmp_path / "m"
    (model / "assets").mkdir(parents=True)
    (model / "assets" / "a").write_text("x")
    (model / "b").symlink_to("assets/a")
    (tmp_path / "out").mkdir()
    files.check_links(model)
    files.copy(model, tmp_path / "out", {"assets"})
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["b"] and (
        tmp_path / "out" / "b"
    ).read_text() == "x"


@pytest.mark.parametrize(
    "to, says",
    [
        ("../secret", "leads out"),
        ("{tmp}/secret", "leads out"),
        ("nowhere", "link to nothing"),
        ("..", "leads out"),
        ("assets", "link to a directory"),
        ("../m2/saved_model.pb", "leads out"),
    ],
)
def test_other_links_are_refused(to, says, tmp_path, secret):
    model = tmp_path / "m"
    (model / "assets").mkdir(parents=True)
    (tmp_path / "m2").mkdir()
    (tmp_path / "m2" / "saved_model.pb").touch()
    (model / "link").symlink_to(to.format(tmp=tmp_path))
    (tmp_path / "out").mkdir()
    with pytest.raises(errors.UsageError, match=says):
        files.copy(model, tmp_path / "out")
    files.copy(model, tmp_path / "out", {"link"})


def test_a_copy_has_the_permissions_of_new_files(tmp_path):
    (tmp_path / "m" / "assets").mkdir(parents=True)
    (tmp_path / "m" / "assets" / "a").touch(mode=0o400)
    (tmp_path / "m" / "assets").chmod(0o500)
    (tmp_path / "out").mkdir()
    files.copy(tmp_path / "m", tmp_path / "out")
    (tmp_path / "out" / "new").touch()
    assert (tmp_path / "out" / "assets" / "a").stat().st_mode == (tmp_path / "out" / "new").stat().st_mode
    (tmp_path / "m" / "assets").chmod(0o700)


@pytest.mark.parametrize(
    "words",
    [
        ["publish", "model", "--model_name=m", "--base_path=out", "--nowarmup"],
        ["publish", "model", "--model_name=m", "--base_path=out", "--nowarmup", "--server=triton"],
        ["convert", "--model=model", "--output=out/x", "--allow_no_engines"],
        ["wrap", "model", "--output=out/x", "--top_k=1"],
    ],
    ids=["publish", "triton", "convert", "wrap"],
)
@pytest.mark.parametrize("link", ["assets/words.txt", "assets.extra/words.txt", "assets.extra/dir"])
def test_no_command_copies_what_lies_outside(link, words, tftrt, model, secret, tmp_path):
    (model / link).parent.mkdir(exist_ok=True)
    (model / link).symlink_to(secret.parent if link.endswith("dir") else secret)
    done = tftrt(*words, cwd=tmp_path)
    assert_clear(done, 2, "leads out of the model")
    assert not (tmp_path / "out").exists()


def test_build_does_not_copy_either(model, secret, tftrt, tmp_path):
    (model / "assets.extra").mkdir(exist_ok=True)
    (model / "assets.extra" / "x").symlink_to(secret)
    assert_clear(tftrt("build", model, "--strip", cwd=tmp_path), 2, "leads out of the model")


def test_an_asset_that_the_graph_names_outside_the_model_is_not_read(model):
    from tftrt_tools.models.savedmodel.job import protos

    for name, old in (("../../secret", False), ("/etc/hosts", False), ("../../secret", True)):
        proto = protos.read(model)
        meta = protos.meta_graph(proto)
        asset = protos.meta_graph_pb2.AssetFileDef(filename=name)
        if old:
            meta.collection_def["saved_model_assets"].any_list.value.add().Pack(asset)
        else:
            meta.asset_file_def.append(asset)
        (model / protos.FILE).write_bytes(proto.SerializeToString())
        with pytest.raises(errors.TftrtError, match="lies outside the model"):
            loading.load(model)
        del meta.asset_file_def[:]
        meta.collection_def.pop("saved_model_assets", None)
        (model / protos.FILE).write_bytes(proto.SerializeToString())


def test_weights_of_an_onnx_file_are_not_read_through_a_link_that_leads_out(tmp_path):
    import onnx
    from onnx import helper, numpy_helper

    weights = numpy_helper.from_array(np.ones(4, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [4])],
        [helper.make_tensor_value_info("y", 1, [4])],
        [weights],
    )
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(
        helper.make_model(graph), folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    assert onnx_file.outside(str(folder / "m.onnx")) == [str(folder / "m.data")]
    (folder / "m.data").rename(tmp_path / "elsewhere")
    (folder / "m.data").symlink_to("../elsewhere")
    with pytest.raises(errors.UsageError, match="leads out of the model"):
        onnx_file.outside(str(folder / "m.onnx"))


def test_a_plan_directory_with_a_link_that_leads_out_is_not_built_anew(tmp_path, secret, monkeypatch):
    monkeypatch.setattr(plan_build.convert, "check_installed", lambda: None)
    monkeypatch.setattr(plan_build, "_manifest", lambda plan: {"settings": {}})
    monkeypatch.setattr(plan_build, "_settings", lambda *arguments: None)
    plan = tmp_path / "plan"
    (plan / "plugins").mkdir(parents=True)
    (plan / "plan.json").touch()
    (plan / "plugins" / "lib.so").symlink_to(secret)
    with pytest.raises(errors.UsageError, match="leads out of the model"):
        plan_build.build(plan, None, plan_build.Options())
    assert os.listdir(tmp_path) and pathlib.Path(plan / "plugins" / "lib.so").is_symlink()
