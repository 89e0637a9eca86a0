"""`tftrt publish --server=triton` of a folder with a model for each kind of GPU. With a real tritonserver: test_triton_server.py."""

import json
import os
import shutil

import pytest

import tftrt_tools as tftrt_api
from tests.command_line import assert_clear
from tests.rooms.servers.test_triton_publish import plan_directory
from tftrt_tools.base import errors
from tftrt_tools.base.files import renaming
from tftrt_tools.base.wire import triton_config
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving.publishing import several as kinds_of
from tftrt_tools.servers.serving.triton import config, publish, several

L4 = {"compute_capability": "8.9", "gpu": "NVIDIA L4"}
T4 = {"compute_capability": "7.5", "gpu": "Tesla T4"}
H100 = {"compute_capability": "9.0", "gpu": "NVIDIA H100 80GB HBM3"}
NARROW, WIDE = ((1, 4), (8, 4), (16, 4)), ((1, 4), (8, 4), (32, 4))


def plans(folder, **kinds):
    """As `tftrt build --on` leaves plans: a directory for each kind. Args: kinds: what plan_directory is asked for each."""
    folder.mkdir()
    for kind, facts in (kinds or {"T4": T4, "L4": L4}).items():
        plan_directory(folder / kind, **facts)
    return folder


def published(model, folder, **options):
    return several.publish_all(str(model), "m", str(folder / "repository"), publish.Options(**options))


def one(model, folder, **options):
    return publish.publish(str(model), "m", str(folder / "repository"), publish.Options(**options))


def written(folder):
    return triton_config.parse((folder / "repository/m/config.pbtxt").read_text())


def named(folder):
    return {entry.key: entry.value for entry in written(folder).cc_model_filenames}


def versions(folder):
    return sorted(path.name for path in (folder / "repository/m").iterdir() if path.is_dir())


# What it writes


def test_plans_become_one_version_with_a_whole_model_for_each_kind(tmp_path):
    built = plans(tmp_path / "built")
    done = published(built, tmp_path)
    version = tmp_path / "repository/m/1"
    assert done.version == 1 and done.path == str(version) and done.evidence.valid
    assert sorted(path.name for path in version.iterdir()) == ["L4", "T4", "assets.extra"]
    for kind in ("L4", "T4"):
        assert files.digest(version / kind) == files.digest(built / kind)
        assert passport.read(version / kind, passport.VERIFY)["passed"]
    assert named(tmp_path) == {"7.5": "T4/model.plan", "8.9": "L4/model.plan"}
    assert all((version / path).is_file() for path in named(tmp_path).values())
    made = written(tmp_path)
    assert (made.platform, made.max_batch_size) == ("tensorrt_plan", 32) and len(made.model_warmup) == 2
    # A GPU of no kind would get it, built for another one.
    assert "default_model_filename" not in (tmp_path / "repository/m/config.pbtxt").read_text()
    said = passport.read(version, passport.PUBLISH)
    assert [(kind["gpu_type"], kind["compute_capability"], kind["evidence"]["valid"]) for kind in said["kinds"]] == [
        ("L4", "8.9", True),
        ("T4", "7.5", True),
    ]
    assert said["kinds"][0]["node_selector"] == {"nvidia.com/gpu.product": "NVIDIA-L4"}
    assert [kind["digest"] for kind in said["kinds"]] == [files.digest(built / kind) for kind in ("L4", "T4")]


def test_capabilities_are_in_the_order_of_their_numbers(tmp_path):
    built = plans(tmp_path / "built", B200={**H100, "compute_capability": "10.0"}, T4=T4, H100=H100)
    published(built, tmp_path)
    assert list(named(tmp_path)) == ["7.5", "9.0", "10.0"]


def test_the_python_backend_gets_the_folders_and_a_model_py_that_chooses(tmp_path):
    done = published(plans(tmp_path / "built"), tmp_path, backend="python")
    version = tmp_path / "repository/m/1"
    assert sorted(path.name for path in version.iterdir()) == ["L4", "T4", "__pycache__", "assets.extra", "model.py"]
    assert named(tmp_path) == {} and written(tmp_path).backend == "python"
    assert not any("ONNX files" in note for note in done.notes)


def test_onnx_files_that_differ_are_told_where_a_cpu_may_run_one(tmp_path):
    built = plans(tmp_path / "built")
    (built / "T4/model.onnx").write_bytes((built / "T4/model.onnx").read_bytes() + b"\n\x00")
    for backend, told in (("python", True), ("tensorrt", False)):
        done = published(built, tmp_path / backend, backend=backend, unverified=True)
        assert (
            any(note == "the ONNX files of the kinds differ; on a CPU that of L4 runs" for note in done.notes) == told
        )


@pytest.fixture
def saved(converted, tmp_path):
    """SavedModels for two kinds, which say for what they were built."""
    for kind, gpu in (("L4", L4), ("T4", T4)):
        model = shutil.copytree(converted("digits_cnn", "--precision=FP16"), tmp_path / "built" / kind)
        manifest = passport.read(model, passport.MANIFEST)
        manifest["gpu"] = {"name": gpu["gpu"], "compute_capability": gpu["compute_capability"]}
        passport.write(model, passport.MANIFEST, manifest)
    return tmp_path / "built"


def test_saved_models_are_named_by_their_folders(saved, tmp_path):
    done = published(saved, tmp_path, unverified=True, max_batch_size=4)
    assert named(tmp_path) == {"7.5": "T4", "8.9": "L4"} and written(tmp_path).platform == "tensorflow_savedmodel"
    assert all(files.is_saved_model(tmp_path / "repository/m/1" / kind) for kind in ("L4", "T4"))
    assert not done.evidence.valid and [kind.gpu for kind in done.kinds] == ["NVIDIA L4", "Tesla T4"]


def test_a_saved_model_that_does_not_say_for_what_it_was_built_is_refused(saved, tmp_path):
    manifest = passport.read(saved / "T4", passport.MANIFEST)
    del manifest["gpu"]
    passport.write(saved / "T4", passport.MANIFEST, manifest)
    with pytest.raises(errors.UsageError, match="^T4: the model does not say for which compute capability"):
        published(saved, tmp_path, unverified=True)
    assert not (tmp_path / "repository").exists()


def test_remarks_on_one_kind_name_it_and_those_on_all_do_not(tmp_path):
    plugin = [{"file": "plugins/libx.so", "digest": "sha256:0"}]
    built = plans(tmp_path / "built", T4={**T4, "plugins": plugin}, L4={**L4, "tensorrt": "8.5.3.1"})
    notes = published(built, tmp_path).notes
    assert [note for note in notes if "8.5.3.1" in note] == [
        "it runs only in a Triton with TensorRT 8.5.3.1; known here: 23.03; --triton_release compares"
    ]
    assert "T4: Triton has to load the plugins: LD_PRELOAD=T4/plugins/libx.so (in the version's directory)" in notes


# What it refuses


def refused(model, folder, kind, told, **options):
    with pytest.raises(kind, match=told) as caught:
        published(model, folder, **options)
    assert "\n" not in caught.value.cause and caught.value.mend
    assert not (folder / "repository").exists()
    return caught.value


def test_two_kinds_of_one_compute_capability_are_refused(tmp_path):
    built = plans(tmp_path / "built", L4=L4, RTX4090={**L4, "gpu": "NVIDIA GeForce RTX 4090"}, T4=T4)
    told = refused(built, tmp_path, errors.UsageError, "^L4 and RTX4090 both are for compute capability 8.9")
    assert f"tftrt publish {built / 'RTX4090'} --server=triton" in told.mend


@pytest.mark.parametrize(
    ("t4", "told"),
    [
        ({"shape": (None, 5), "profiles": (((1, 5), (8, 5), (32, 5)),)}, r"inputs is x FP32\[4\] for L4, and x FP32\[5\] for T4"),
        ({"profiles": (NARROW,)}, "max_batch_size is 32 for L4, and 16 for T4"),
        ({"profiles": (((1, 4), (16, 4), (32, 4)),)}, "preferred batches is 8, 32 for L4, and 16, 32 for T4"),
        ({"profiles": (((2, 4), (8, 4), (32, 4)),)}, "whether Triton joins requests is yes for L4, and no for T4"),
        ({"profiles": (NARROW, WIDE)}, "list of profiles is empty for L4, and 0, 1 for T4"),
    ],
)  # fmt: skip
def test_kinds_that_need_another_configuration_are_refused(t4, told, tmp_path):
    built = plans(tmp_path / "built", L4={**L4, "profiles": (WIDE,)}, T4={**T4, **t4})
    assert "the same --shapes" in refused(built, tmp_path, errors.UsageError, told).mend


_LONG, _SHORT = ((1, 4), (8, 128), (32, 512)), ((1, 4), (8, 128), (32, 128))


@pytest.mark.parametrize(
    ("l4", "t4", "told"),
    [
        ([((1, 4), (8, 8), (32, 8))], [((1, 8), (8, 8), (32, 8))], "x 1x4 to 32x8, tuned for 8x8 for L4, and x 1x8 to 32x8"),
        ([_LONG], [_SHORT], "x 1x4 to 32x512, tuned for 8x128 for L4, and x 1x4 to 32x128, tuned for 8x128 for T4"),
        ([((1, 4), (8, 16), (32, 64))], [((1, 4), (8, 32), (32, 64))], "tuned for 8x16 for L4, and x 1x4 to 32x64, tuned for 8x32 for T4"),
        (
            [((1, 4), (8, 4), (16, 4)), ((9, 4), (32, 4), (32, 4))],
            [((1, 4), (8, 4), (16, 4)), ((17, 4), (32, 4), (32, 4))],
            "16x4, tuned for 8x4 and x 9x4 to 32x4, tuned for 32x4 for L4, and .* and x 17x4 to 32x4, tuned for 32x4 for T4",
        ),
    ],
    ids=["min", "max", "opt", "two profiles"],
)  # fmt: skip
@pytest.mark.parametrize("backend", ["tensorrt", "python"])
def test_kinds_with_other_profiles_are_refused_though_their_configurations_are_alike(backend, l4, t4, told, tmp_path):
    open_ = {"shape": (None, None)}
    built = plans(tmp_path / "built", L4={**L4, **open_, "profiles": l4}, T4={**T4, **open_, "profiles": t4})
    error = refused(
        built, tmp_path, errors.UsageError, f"the list of profiles is .*{told}", warm_up=False, backend=backend
    )
    assert "the same --shapes" in error.mend


def test_a_row_of_one_number_is_not_a_row_of_one_column(tmp_path):
    """Both are FP32[1] in config.pbtxt, and one of them has a reshape."""

    def y(shape):
        return {"outputs": [{"name": "y", "dtype": "float32", "shape": shape, "engine_dtype": ""}]}

    built = plans(tmp_path / "built", L4={**L4, **y([None])}, T4={**T4, **y([None, 1])})
    told = r"the list of outputs is y FP32\[1\] reshaped to \[\] for L4, and y FP32\[1\] for T4"
    refused(built, tmp_path, errors.UsageError, told)
    one(built / "L4", tmp_path)
    told = r"the list of outputs is y FP32\[1\] reshaped to \[\] there, and y FP32\[1\] here"
    with pytest.raises(errors.UsageError, match=told):
        one(built / "T4", tmp_path)


def test_another_dtype_or_output_of_a_kind_is_refused(tmp_path):
    y = [{"name": "z", "dtype": "float32", "shape": [None, 4], "engine_dtype": ""}]
    built = plans(tmp_path / "built", L4=L4, T4={**T4, "outputs": y})
    refused(built, tmp_path, errors.UsageError, r"the list of outputs is y FP32\[4\] for L4, and z FP32\[4\] for T4")


def test_flags_that_make_the_configurations_the_same_make_one_version(tmp_path):
    built = plans(tmp_path / "built", L4={**L4, "profiles": (WIDE,)}, T4={**T4, "profiles": (NARROW,)})
    done = published(built, tmp_path, max_batch_size=16, warmup_shapes="x:8x4,16x4", preferred_batch_sizes=(8, 16))
    assert done.max_batch_size == 16 and versions(tmp_path) == ["1"]


def test_a_kind_without_valid_evidence_is_refused_unless_the_user_says_so(tmp_path):
    built = plans(tmp_path / "built", L4=L4, T4={**T4, "verified": False})
    told = refused(built, tmp_path, errors.CheckFailed, "^T4: not published: it was never verified")
    assert str(built / "T4") in told.mend
    done = published(built, tmp_path, unverified=True)
    assert [kind.evidence.valid for kind in done.kinds] == [True, False]
    assert not done.evidence.valid and done.evidence.problem.startswith("T4: it was never verified")
    assert [note for note in done.notes if "NOT VERIFIED" in note] == [
        "T4: NOT VERIFIED: it was never verified against its original"
    ]


def test_the_release_is_held_against_each_kind(tmp_path):
    built = plans(tmp_path / "built", L4=L4, T4={**T4, "tensorrt": "10.0.1.6"})
    told = refused(
        built,
        tmp_path,
        errors.CheckFailed,
        "^T4: not published: the plan was built by TensorRT 10.0.1.6",
        release="23.03",
    )
    assert "24.05" in told.mend
    refused(built, tmp_path, errors.CheckFailed, "^L4: .* 8.5.3.1, and Triton 24.05", release="24.05")


def test_a_compute_capability_has_to_be_that_of_a_kind(tmp_path):
    built = plans(tmp_path / "built")
    refused(
        built,
        tmp_path,
        errors.CheckFailed,
        "compute capability 8.6, and no kind was built for it: L4 is for 8.9, T4 is for 7.5",
        compute_capability="8.6",
    )
    assert published(built, tmp_path, compute_capability="7.5").version == 1


def test_a_folder_whose_engines_are_for_another_gpu_than_its_passport_says_is_refused(saved, tmp_path, monkeypatch):
    from tftrt_tools.models.savedmodel import engine_assets

    monkeypatch.setattr(engine_assets, "read", lambda path: [path])
    monkeypatch.setattr(engine_assets, "origin", lambda asset, manifest: ("8.6.1", "8.9"))
    refused(
        saved,
        tmp_path,
        errors.CheckFailed,
        "^T4: not published: the model was built for compute capability 8.9, and the server has 7.5",
        unverified=True,
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"backend": "onnxruntime"}, "runs the ONNX file, which is for no kind of GPU"),
        ({"settings": config.Settings(instance_kind="cpu")}, "has models for GPUs alone"),
        ({"backend": "tensorflow"}, "^L4: --triton_backend=tensorflow does not run a plan directory"),
        ({"signature": "other"}, "^L4: --signature_keys has no effect"),
    ],
)
def test_what_kinds_cannot_have_is_one_clear_line(options, told, tmp_path):
    refused(plans(tmp_path / "built"), tmp_path, errors.UsageError, told, **options)


@pytest.mark.parametrize("name", ["model.py", "assets.extra", "__pycache__", "model.plan", "model.savedmodel"])
def test_a_kind_with_a_name_that_the_version_has_for_itself_is_refused(name, tmp_path):
    built = plans(tmp_path / "built", **{"L4": L4, name: T4})
    refused(built, tmp_path, errors.UsageError, f"has a kind {name}, a name that a version")


def test_a_damaged_kind_is_named(tmp_path):
    built = plans(tmp_path / "built")
    (built / "T4/model.plan").write_bytes(b"pl")
    refused(built, tmp_path, errors.TftrtError, "T4/model.plan is truncated")


def test_a_base_path_inside_the_folder_is_refused(tmp_path):
    built = plans(tmp_path / "built")
    with pytest.raises(errors.UsageError, match="lies inside the model"):
        published(built, built)


def test_kinds_of_two_forms_are_refused_and_both_are_named(tmp_path, zoo_model):
    built = plans(tmp_path / "built", L4=L4)
    assert kinds_of.kinds(str(built)) == {"L4": str(built / "L4")}
    assert kinds_of.kinds(str(built / "L4")) == {}
    shutil.copytree(zoo_model("digits_cnn"), built / "T4")
    with pytest.raises(errors.UsageError, match="has the plan directory L4, .*, and T4 there is the SavedModel"):
        kinds_of.kinds(str(built))


def test_one_saved_model_in_a_repository_is_no_kind(tmp_path, zoo_model):
    one(zoo_model("digits_cnn"), tmp_path, max_batch_size=4)
    assert kinds_of.kinds(str(tmp_path / "repository/m/1")) == {}


@pytest.mark.parametrize("backend", ["tensorrt", "python"])
def test_a_version_of_kinds_can_be_published_again(backend, tmp_path):
    built = plans(tmp_path / "built")
    published(built, tmp_path, backend=backend)
    done = published(tmp_path / "repository/m/1", tmp_path / "again", backend=backend)
    version = tmp_path / "again/repository/m/1"
    assert done.evidence.valid and done.path == str(version)
    assert sorted(os.listdir(version)) == sorted(os.listdir(tmp_path / "repository/m/1"))
    assert [kind.digest for kind in done.kinds] == [files.digest(built / kind) for kind in ("L4", "T4")]


def test_a_version_of_kinds_is_told_to_who_asks_for_one_model(tmp_path, tftrt, saved):
    published(saved, tmp_path, unverified=True, max_batch_size=4)
    published(plans(tmp_path / "plans"), tmp_path / "of_plans")
    for version in (tmp_path / "repository/m/1", tmp_path / "of_plans/repository/m/1"):
        done = tftrt("inspect", version)
        assert_clear(done, 2, f"{version} is a version with several models, one for each kind of GPU: L4, T4")
        assert f"give one of its folders, such as {version}/L4" in done.stderr


def test_a_version_of_one_saved_model_is_not_called_one_of_kinds(tmp_path, zoo_model):
    one(zoo_model("digits_cnn"), tmp_path, max_batch_size=4)
    with pytest.raises(errors.UsageError, match="holds no saved_model.pb") as caught:
        files.check(tmp_path / "repository/m/1")
    assert caught.value.mend == f"did you mean {tmp_path / 'repository/m/1/model.savedmodel'}?"


# All kinds or none


def test_a_kind_that_cannot_be_copied_leaves_nothing(tmp_path, monkeypatch):
    built, copy = plans(tmp_path / "built"), publish.copy_folder

    def full(read, target):
        if target.name == "T4":
            raise OSError(28, "No space left on device")
        copy(read, target)

    (tmp_path / "repository").mkdir()
    monkeypatch.setattr(publish, "copy_folder", full)
    with pytest.raises(OSError, match="No space"):
        published(built, tmp_path)
    assert not any((tmp_path / "repository").iterdir())
    monkeypatch.undo()
    published(built, tmp_path)
    before = (tmp_path / "repository/m/config.pbtxt").read_text()
    monkeypatch.setattr(publish, "copy_folder", full)
    with pytest.raises(OSError, match="No space"):
        published(built, tmp_path, replace_config=True, max_batch_size=8)
    assert versions(tmp_path) == ["1"] and (tmp_path / "repository/m/config.pbtxt").read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["built", "repository"]


def test_a_kind_that_changes_while_it_is_copied_is_not_published(tmp_path, monkeypatch):
    built, copy = plans(tmp_path / "built"), files.copy

    def changed(source, target, *more):
        copy(source, target, *more)
        if target.name == "T4":
            (target / "model.plan").write_bytes(b"else")

    monkeypatch.setattr(files, "copy", changed)
    with pytest.raises(errors.TftrtError, match="built/T4 changed while it was copied"):
        published(built, tmp_path)
    assert not (tmp_path / "repository").exists()


def test_all_kinds_appear_in_a_repository_with_one_rename(tmp_path, monkeypatch):
    built, seen, rename = plans(tmp_path / "built"), [], renaming.new
    (tmp_path / "repository").mkdir()

    def watched(source, target, **said):
        seen.append(os.listdir(tmp_path / "repository"))
        rename(source, target, **said)

    monkeypatch.setattr(renaming, "new", watched)
    published(built, tmp_path)
    assert seen and not any(seen) and sorted(os.listdir(tmp_path / "repository/m/1")) == ["L4", "T4", "assets.extra"]


# Later versions


def test_a_later_version_of_the_same_kinds_keeps_the_configuration(tmp_path):
    built = plans(tmp_path / "built")
    published(built, tmp_path)
    path = tmp_path / "repository/m/config.pbtxt"
    # A GPU of another capability takes the same file, because the user says so.
    path.write_text(path.read_text() + 'cc_model_filenames { key: "8.6" value: "L4/model.plan" }\n')
    mine = path.read_text()
    done = published(built, tmp_path)
    assert done.version == 2 and done.config_kept and path.read_text() == mine
    path.write_text(mine.replace("L4/model.plan", "A10/model.plan"))
    with pytest.raises(errors.UsageError, match="8.6 A10/model.plan, 8.9 A10/model.plan there, and 7.5 T4"):
        published(built, tmp_path)
    path.write_text(mine + 'cc_model_filenames { key: "8.0" value: "A100/model.plan" }\n')
    with pytest.raises(errors.UsageError, match="8.0 A100/model.plan"):
        published(built, tmp_path)
    assert versions(tmp_path) == ["1", "2"]
    told = (
        "the new config.pbtxt names no file for compute capability 8.6 (L4/model.plan), 8.0 (A100/model.plan), as the one that "
        "was there did"
    )
    assert published(built, tmp_path, replace_config=True).notes[-1] == told
    assert named(tmp_path) == {"7.5": "T4/model.plan", "8.9": "L4/model.plan"}
    assert not any("names no file" in note for note in published(built, tmp_path, replace_config=True).notes)


@pytest.mark.parametrize("first", ["one", "several"])
def test_one_model_over_several_and_several_over_one_are_refused_or_replace_it(first, tmp_path):
    built = plans(tmp_path / "built")
    ways = {"one": lambda **options: one(built / "L4", tmp_path, **options), "several": lambda **options: published(built, tmp_path, **options)}  # fmt: skip
    before, after = ways[first], ways["several" if first == "one" else "one"]
    before()
    names = "7.5 T4/model.plan, 8.9 L4/model.plan"
    told = f"is {names} there, and empty here" if first == "several" else f"is empty there, and {names} here"
    with pytest.raises(errors.UsageError, match=f"the file for each compute capability, {told}") as caught:
        after()
    assert "--triton_replace_config writes it anew" in caught.value.mend and versions(tmp_path) == ["1"]
    done = after(replace_config=True)
    assert done.version == 2 and named(tmp_path) == ({} if first == "several" else {"7.5": "T4/model.plan", "8.9": "L4/model.plan"})  # fmt: skip
    lost = "model.plan" if first == "several" else "L4/model.plan and no T4/model.plan"
    assert done.notes[-1] == (
        f"version 1 does not fit the new config.pbtxt: no {lost} there; Triton cannot go back to it"
    )
    # And back again: the version that was published first fits once more.
    assert before(replace_config=True).notes[-1].startswith("version 2 does not fit the new config.pbtxt")


def test_a_further_kind_needs_another_configuration_and_older_versions_that_lack_it_are_named(tmp_path):
    published(plans(tmp_path / "two"), tmp_path)
    published(tmp_path / "two", tmp_path)
    three = plans(tmp_path / "three", H100=H100, L4=L4, T4=T4)
    with pytest.raises(
        errors.UsageError, match="8.9 L4/model.plan there, and 7.5 T4/model.plan, 8.9 L4/model.plan, 9.0 H100"
    ):
        published(three, tmp_path)
    note = published(three, tmp_path, replace_config=True).notes[-1]
    assert note.startswith("versions 1, 2 do not fit the new config.pbtxt: no H100/model.plan there")
    with pytest.raises(errors.UsageError, match="9.0 H100/model.plan there"):
        published(tmp_path / "two", tmp_path)


def several_versions(count):
    return {"replace_config": True, "settings": config.Settings(versions=count)}


def test_a_version_that_does_not_fit_is_refused_where_triton_would_serve_it(tmp_path):
    """Triton loads the versions that it serves all or none."""
    built = plans(tmp_path / "built")
    one(built / "L4", tmp_path)
    before = (tmp_path / "repository/m/config.pbtxt").read_text()
    with pytest.raises(errors.UsageError) as caught:
        published(built, tmp_path, **several_versions(2))
    assert caught.value.cause == (
        "version 1 does not fit the new config.pbtxt: no L4/model.plan and no T4/model.plan there, and Triton, which serves the latest "
        "2, loads all that it serves or none"
    )
    assert caught.value.mend == "leave --triton_versions out, or remove version 1"
    assert versions(tmp_path) == ["1"] and (tmp_path / "repository/m/config.pbtxt").read_text() == before
    # Without the flag the version is out of what is served.
    assert published(built, tmp_path, replace_config=True).notes[-1].startswith("version 1 does not fit")
    assert published(built, tmp_path, **several_versions(2)).notes[-1].startswith("version 1 does not fit")
    with pytest.raises(errors.UsageError, match="version 1 does not fit"):
        published(built, tmp_path, **several_versions(4))
    shutil.rmtree(tmp_path / "repository/m/1")
    assert published(built, tmp_path, **several_versions(4)).version == 4


def test_all_that_have_to_go_are_named_at_once(tmp_path):
    built = plans(tmp_path / "built")
    one(built / "L4", tmp_path)
    one(built / "L4", tmp_path)
    published(built, tmp_path, replace_config=True)
    # Without version 2 the latest three would be 1, 3 and 4.
    with pytest.raises(errors.UsageError, match="^versions 1, 2 do not fit") as caught:
        published(built, tmp_path, **several_versions(3))
    assert caught.value.mend.endswith("or remove versions 1, 2")


def test_an_older_version_that_would_not_be_served_does_not_stop_the_one_that_is(tmp_path):
    built = plans(tmp_path / "built")
    one(built / "L4", tmp_path, version=5)
    older = {"version": 4, "allow_older_version": True}
    with pytest.raises(
        errors.UsageError, match="^version 5 does not fit .* serves the latest version, loads"
    ) as caught:
        published(built, tmp_path, replace_config=True, **older)
    assert caught.value.mend == "leave --model_version out, or remove version 5"
    with pytest.raises(errors.UsageError, match="^version 5 does not fit") as caught:
        published(built, tmp_path, **several_versions(2), **older)
    assert caught.value.mend == "leave --model_version and --triton_versions out, or remove version 5"
    assert versions(tmp_path) == ["5"]


def test_a_version_that_appears_meanwhile_is_looked_at_before_anything_is_put_in_place(tmp_path, monkeypatch):
    built, fill = plans(tmp_path / "built"), several._fill
    published(built, tmp_path)
    before = (tmp_path / "repository/m/config.pbtxt").read_text()

    def slow(*arguments):
        fill(*arguments)
        (tmp_path / "repository/m/2").mkdir()

    monkeypatch.setattr(several, "_fill", slow)
    with pytest.raises(errors.UsageError, match="^version 2 does not fit"):
        published(built, tmp_path, **several_versions(2))
    assert versions(tmp_path) == ["1", "2"] and (tmp_path / "repository/m/config.pbtxt").read_text() == before


def test_what_triton_takes_for_no_version_is_passed_over(tmp_path):
    built = plans(tmp_path / "built")
    published(built, tmp_path)
    (tmp_path / "repository/m/007").mkdir()
    (tmp_path / "repository/m/6").write_text("a file")
    done = published(built, tmp_path, **several_versions(3))
    assert done.version == 8 and not any("not fit" in note for note in done.notes)


def test_kinds_that_changed_their_names_do_not_fit_though_the_files_are_there(tmp_path):
    """config.pbtxt would send the plan for one GPU to the other."""
    published(plans(tmp_path / "first", ada=L4, old=T4), tmp_path)
    swapped = plans(tmp_path / "swapped", ada=T4, old=L4)
    with pytest.raises(
        errors.UsageError, match="^version 1 does not fit the new config.pbtxt: ada for 8.9 and old for 7.5 there"
    ):
        published(swapped, tmp_path, **several_versions(2))
    note = published(swapped, tmp_path, replace_config=True).notes[-1]
    assert (
        note
        == "version 1 does not fit the new config.pbtxt: ada for 8.9 and old for 7.5 there; Triton cannot go back to it"
    )
    (passport.folder(tmp_path / "repository/m/1") / passport.PUBLISH).write_text("{")
    assert not any("does not fit" in note for note in published(swapped, tmp_path, replace_config=True).notes)


def test_the_python_backend_takes_versions_of_one_model_and_of_several(tmp_path):
    """model.py looks into the version; config.pbtxt says nothing of it."""
    built = plans(tmp_path / "built")
    published(built, tmp_path, backend="python")
    done = one(built / "L4", tmp_path, backend="python")
    assert done.version == 2 and done.config_kept and not any("does not fit" in note for note in done.notes)
    assert published(built, tmp_path, backend="python").config_kept and versions(tmp_path) == ["1", "2", "3"]


# The command


def test_the_command_prints_each_kind_and_the_nodes(tmp_path, tftrt):
    built = plans(tmp_path / "built")
    flags = ("publish", built, "--server=triton", "--model_name=m", f"--base_path={tmp_path / 'repository'}")
    done = tftrt(*flags, "--triton_release=23.03", f"--json={tmp_path / 'done.json'}")
    assert done.returncode == 0, done.stderr
    for line in (
        f"published: {tmp_path / 'repository/m/1'}",
        "L4          for compute capability 8.9; verified on 2026: engines watched",
        "T4          for compute capability 7.5; verified on 2026: engines watched",
        "nodes       nvidia.com/gpu.product: NVIDIA-L4 or Tesla-T4",
    ):
        assert line in done.stdout.splitlines(), done.stdout
    assert "tftrt smoke triton://localhost:8001 --model_name=m" in done.stdout
    said = json.loads((tmp_path / "done.json").read_text())
    assert said["kind"] == "triton publication" and [kind["gpu_type"] for kind in said["kinds"]] == ["L4", "T4"]
    assert_clear(tftrt(*flags, "--compute_capability=8.6"), 3, "no kind was built for it: L4 is for 8.9, T4 is for 7.5")
    assert_clear(
        tftrt(*flags, "--triton_release=24.05"), 3, "L4: not published: the plan was built by TensorRT 8.5.3.1"
    )
    assert_clear(
        tftrt("publish", built, "--model_name=m", f"--base_path={tmp_path / 'models'}"), 2, "serves SavedModels"
    )
    assert versions(tmp_path) == ["1"] and not (tmp_path / "models").exists()


def test_kinds_that_need_no_evidence_are_not_called_unverified(tmp_path, tftrt, zoo_model):
    for kind, gpu in (("L4", L4), ("T4", T4)):
        model = shutil.copytree(zoo_model("digits_cnn"), tmp_path / "built" / kind)
        said = {"name": gpu["gpu"], "compute_capability": gpu["compute_capability"]}
        passport.write(model, passport.MANIFEST, {"gpu": said})
    flags = ("--server=triton", "--model_name=m", f"--base_path={tmp_path / 'repository'}")
    done = tftrt("publish", tmp_path / "built", *flags)
    assert done.returncode == 0, done.stderr
    assert "L4          for compute capability 8.9" in done.stdout.splitlines() and "verified" not in done.stdout


def test_from_python(tmp_path):
    done = tftrt_api.publish(
        plans(tmp_path / "built"), model_name="m", base_path=tmp_path / "repository", server="triton"
    )
    assert [kind.gpu_type for kind in done.kinds] == ["L4", "T4"] and "for L4, T4" in done.summary()
