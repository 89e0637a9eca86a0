"""`tftrt publish --server=triton` without a server: what it writes, how it batches, what it refuses, what is left when it is stopped."""

import dataclasses
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys

import onnx
import pytest
from onnx import TensorProto, helper, save_model

from tests import onnx_files
from tests.command_line import assert_clear
from tftrt_tools.base import errors
from tftrt_tools.base.files import renaming
from tftrt_tools.base.wire import triton_config
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving.triton import (
    backends,
    batching,
    config,
    growing,
    preflight,
    publish,
    releases,
    servable,
)


def onnx_file(path, shape=(None, 4), dtype=TensorProto.FLOAT, outputs=(None, 4)):
    """An ONNX file that gives its input x back as y."""
    x, y = (
        helper.make_tensor_value_info(name, dtype, [one if one is not None else "n" for one in dims])
        for name, dims in (("x", shape), ("y", outputs))
    )
    save_model(
        helper.make_model(
            helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y]),
            opset_imports=[helper.make_opsetid("", 16)],
            ir_version=8,
        ),
        str(path),
    )
    return path


def plan_directory(
    folder, profiles=(((1, 4), (8, 4), (32, 4)),), tensorrt="8.5.3.1", shape=(None, 4), verified=True, **more
):
    """The files of a plan directory, with a few bytes for the plan: publishing reads only what is said about it."""
    folder.mkdir()
    (folder / "model.plan").write_bytes(b"plan")
    onnx_file(folder / "model.onnx", shape)
    tensors = [{"name": name, "dtype": "float32", "shape": list(shape), "engine_dtype": ""} for name in ("x", "y")]
    (folder / "plan.json").write_text(
        json.dumps(
            {
                "kind": "plan",
                "tensorrt": tensorrt,
                "compute_capability": "9.0",
                "gpu": "H100",
                "precision": "FP16",
                "inputs": tensors[:1],
                "outputs": tensors[1:],
                "bytes": 4,
                "digest": "sha256:1",
                "profiles": [{"inputs": {"x": dict(zip(("min", "opt", "max"), one, strict=True))}} for one in profiles],
                **more,
            }
        )
    )
    if verified:
        passport.write(
            folder,
            passport.VERIFY,
            {
                "passed": True,
                "converted_digest": files.digest(folder),
                "sources": {"serving_default": "x"},
                "created": "2026",
                "evidence": "engines watched",
            },
        )
    return folder


def published(model, folder, **options):
    return publish.publish(str(model), "m", str(folder / "repository"), publish.Options(**options))


def written(folder):
    return triton_config.parse((folder / "repository/m/config.pbtxt").read_text())


# What it writes


def test_a_plan_becomes_a_version_with_its_passport_and_its_profiles(tmp_path):
    plan = plan_directory(tmp_path / "plan")
    done = published(plan, tmp_path, release="23.03", compute_capability="9.0")
    version = pathlib.Path(done.path)
    assert (
        done.version == 1
        and version == tmp_path / "repository/m/1"
        and done.release.tensorrt == "8.5.3"
        and done.notes == ()
    )
    assert (version / "model.plan").read_bytes() == b"plan" and (version / "plan.json").is_file()
    assert (
        passport.read(version, passport.VERIFY)["passed"]
        and passport.read(version, passport.PUBLISH)["digest"] == done.digest
    )
    made = written(tmp_path)
    assert (made.name, made.platform, made.max_batch_size, made.version_policy.latest.num_versions) == (
        "m",
        "tensorrt_plan",
        32,
        1,
    )
    assert list(made.dynamic_batching.preferred_batch_size) == [8, 32] and list(made.input[0].dims) == list(
        made.output[0].dims
    ) == [4]
    assert [(one.batch_size, one.inputs[0].value.random_data) for one in made.model_warmup] == [(8, True), (32, True)]


def test_an_onnx_file_becomes_a_version_with_the_files_beside_it(tmp_path, tftrt):
    source = onnx_file(tmp_path / "net.onnx")
    done = tftrt(
        "publish",
        source,
        "--server=triton",
        "--model_name=m",
        f"--base_path={tmp_path / 'repository'}",
        f"--json={tmp_path / 'done.json'}",
    )
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "done.json").read_text())
    assert (said["kind"], said["backend"], said["max_batch_size"], said["joined"]) == (
        "triton publication",
        "onnxruntime",
        0,
        False,
    )
    assert (tmp_path / "repository/m/1/model.onnx").read_bytes() == source.read_bytes()
    made = written(tmp_path)
    assert (
        made.platform == "onnxruntime_onnx"
        and list(made.input[0].dims) == [-1, 4]
        and not made.HasField("dynamic_batching")
    )
    assert said["command"].startswith("tftrt publish /") and "--server=triton" in said["command"]


def test_the_files_of_the_models_that_are_not_python_have_no_model_py(tmp_path):
    published(onnx_file(tmp_path / "m.onnx"), tmp_path, backend="python")
    done = published(onnx_file(tmp_path / "m.onnx"), tmp_path, backend="onnxruntime", replace_config=True)
    assert sorted(one.name for one in pathlib.Path(done.path).iterdir()) == ["assets.extra", "model.onnx"]
    assert (tmp_path / "repository/m/1/model.py").read_text().startswith('"""model.py of Triton')


def test_python_leaves_no_bytecode_beside_model_py(tmp_path):
    """A Triton that polls would load the version again."""
    version = pathlib.Path(published(onnx_file(tmp_path / "m.onnx"), tmp_path, backend="python").path)
    before = sorted(version.iterdir())
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    (version / "other.py").write_text("")
    subprocess.run([sys.executable, "-c", "import other"], cwd=version, env=environment, check=True)
    assert sorted(version.iterdir()) == sorted([*before, version / "other.py"])
    assert (version / "__pycache__").is_file()


def test_a_saved_model_goes_to_the_tensorflow_backend(tmp_path, tftrt, zoo_model):
    done = tftrt(
        "publish",
        zoo_model("digits_cnn"),
        "--server=triton",
        "--model_name=m",
        f"--base_path={tmp_path / 'repository'}",
        "--triton_release=24.05",
        "--triton_max_batch_size=4",
    )
    assert done.returncode == 0, done.stderr
    assert (
        files.is_saved_model(tmp_path / "repository/m/1/model.savedmodel")
        and written(tmp_path).platform == "tensorflow_savedmodel"
    )
    again = tftrt(
        "publish",
        zoo_model("digits_cnn"),
        "--server=triton",
        "--model_name=m",
        f"--base_path={tmp_path / 'repository'}",
        "--triton_release=26.02",
        "--triton_tensorrt=10.13",
    )
    assert_clear(again, 3, "Triton 26.02 has no TensorFlow backend")


def test_what_nothing_has_shown_of_the_engines_of_a_saved_model_is_a_note(tmp_path, converted):
    model = tmp_path / "model"
    shutil.copytree(converted("digits_cnn"), model)
    manifest = passport.read(model, passport.MANIFEST)
    manifest["signatures"][0]["refused_nodes"] = [{"node": "crop", "op": "StridedSlice", "reason": "refused"}]
    passport.write(model, passport.MANIFEST, manifest)
    read = dataclasses.replace(servable.read(model), precisions=("FP16", "INT8"))

    def notes(read, mode, evidence, digest=read.digest):
        said = {"passed": True, "converted_digest": digest, "sources": {"serving_default": "data"}}
        passport.write(model, passport.VERIFY, {**said, "mode": mode, "evidence": evidence})
        return publish._evidence_notes(read, publish._judged(read, publish.Options(unverified=True)))

    left = "node crop (StridedSlice) stays in TensorFlow: refused"
    assert notes(read, "gpu", "engines watched on a GPU") == [left]
    first, second, third = notes(read, "native segments", "graph rewrite only, no engine arithmetic")
    assert "nothing is known of the engines themselves" in first and "the INT8 ranges" in second and third == left
    (first, _) = notes(read, "native segments", "INT8 simulated, no engine ran")
    assert "verified without a GPU (INT8 simulated, no engine ran)" in first
    fp16 = dataclasses.replace(read, precisions=("FP16",))
    assert len(notes(fp16, "native segments", "graph rewrite only, no engine arithmetic")) == 2
    changed, _ = notes(read, "native segments", "graph rewrite only, no engine arithmetic", "sha256:0")
    assert changed.startswith("NOT VERIFIED")
    assert servable.read(model).precisions
    (passport.folder(model) / passport.MANIFEST).write_text("{")
    assert "nothing is known" in notes(fp16, "native segments", "INT8 simulated, no engine ran")[0]


def test_the_configuration_that_is_there_holds_for_all_versions(tmp_path):
    source = onnx_file(tmp_path / "m.onnx")
    published(source, tmp_path, max_batch_size=8)
    path = tmp_path / "repository/m/config.pbtxt"
    path.write_text(path.read_text() + "response_cache { enable: true }\n")
    mine = path.read_text()
    done = published(source, tmp_path, max_batch_size=16)
    assert done.version == 2 and done.config_kept and path.read_text() == mine and "stays as it is" in done.notes[-1]
    for model, options, told in (
        (source, {}, "max_batch_size is 8 there, and 0 here"),
        (source, {"backend": "python", "max_batch_size": 8}, "the backend is onnxruntime_onnx there, and python here"),
        (
            onnx_file(tmp_path / "o.onnx", (None, 5), outputs=(None, 5)),
            {"max_batch_size": 8},
            r"list of inputs is x FP32\[4\] there, and x FP32\[5\] here",
        ),
    ):
        with pytest.raises(errors.UsageError, match=told):
            published(model, tmp_path, **options)
    assert (
        published(source, tmp_path, max_batch_size=16, replace_config=True).version == 3
        and written(tmp_path).max_batch_size == 16
    )
    path.write_text("max_batch_size: many")
    with pytest.raises(errors.UsageError, match="cannot be read"):
        published(source, tmp_path)


@pytest.mark.parametrize(
    ("backend", "file", "fits"),
    [
        ("tensorrt", "model.plan", True),
        ("tensorrt", "L4/model.plan", False),
        ("onnxruntime", "model.onnx", True),
        ("onnxruntime", "model.plan", False),
        ("python", "anything", True),
    ],
)
def test_a_line_for_a_gpu_that_names_the_models_own_file_fits(tmp_path, backend, file, fits):
    """Triton's Python backend does not read it."""
    model = plan_directory(tmp_path / "plan")
    published(model, tmp_path, backend=backend)
    path = tmp_path / "repository/m/config.pbtxt"
    path.write_text(path.read_text() + f'cc_model_filenames {{ key: "9.0" value: "{file}" }}\n')
    mine = path.read_text()
    if fits:
        assert published(model, tmp_path, backend=backend).config_kept and path.read_text() == mine
    else:
        with pytest.raises(errors.UsageError, match=f"is 9.0 {file} there, and empty here"):
            published(model, tmp_path, backend=backend)


def test_a_reshape_that_changes_nothing_fits(tmp_path):
    model = plan_directory(tmp_path / "plan")
    published(model, tmp_path)
    path = tmp_path / "repository/m/config.pbtxt"
    path.write_text(path.read_text().replace("dims: [4]", "dims: [4]\n  reshape { shape: [4] }"))
    assert "reshape" in path.read_text() and published(model, tmp_path).config_kept


def test_flags_that_the_configuration_that_is_there_keeps_from_an_effect_are_named(tmp_path, tftrt):
    source = onnx_file(tmp_path / "m.onnx")
    first = (
        "publish",
        source,
        "--server=triton",
        "--model_name=m",
        f"--base_path={tmp_path / 'repository'}",
        "--triton_max_batch_size=8",
    )
    assert tftrt(*first, "--triton_instances=2", "--triton_versions=2").returncode == 0
    assert "no effect" not in tftrt(*first).stdout, "what was not asked for is not missed"
    assert (
        "no effect"
        not in tftrt(*first, "--triton_instances=2", "--triton_versions=2", "--triton_instance_kind=auto").stdout
    )
    said = tftrt(
        *first[:-1],
        "--triton_max_batch_size=16",
        "--triton_instances=1",
        "--triton_versions=3",
        "--triton_queue_delay_us=100",
        "--triton_instance_kind=cpu",
        "--triton_preferred_batch_sizes=4,8",
        "--warmup_shapes=x:2x4",
    ).stdout
    (note,) = (line for line in said.splitlines() if "stays as it is" in line)
    for told in (
        "--triton_versions=3 (it has 2)",
        "--triton_instances=1 (it has 2)",
        "--triton_instance_kind=cpu (it has auto)",
        "--triton_max_batch_size=16 (it has 8)",
        "--triton_queue_delay_us=100 (it has 0)",
        "--triton_preferred_batch_sizes=4,8 (it has none)",
        "--warmup_shapes=x:2x4 (it has calls of x 1x4, x 8x4)",
    ):
        assert told in note, note
    assert "Give --triton_replace_config" in note and "at most 8;" in said and "2 calls in each instance" in said
    assert "--nowarmup (it has calls of x 1x4, x 8x4)" in tftrt(*first, "--nowarmup").stdout
    path = tmp_path / "repository/m/config.pbtxt"
    path.write_text(
        'backend: "onnxruntime" platform: "onnxruntime_onnx" max_batch_size: 8 version_policy { specific { versions: [1, 4] } } '
        "instance_group [{ count: 1 kind: KIND_GPU }, { kind: KIND_CPU }] "
        + "".join(
            f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: [4] }} '
            for kind, name in (("input", "x"), ("output", "y"))
        )
    )
    said = tftrt(
        *first, "--triton_versions=1", "--triton_instances=1", "--triton_instance_kind=gpu", "--triton_queue_delay_us=5"
    ).stdout
    for told in (
        "--triton_versions=1 (it has versions 1,4)",
        "--triton_instances=1 (it has 1 and 1)",
        "--triton_queue_delay_us=5 (it has no batching)",
        "--triton_instance_kind=gpu (it has gpu and cpu)",
        "at most 8; requests are not joined",
    ):
        assert told in said, said
    assert (
        tftrt(*first, "--triton_versions=1", "--triton_replace_config").returncode == 0
        and written(tmp_path).version_policy.latest.num_versions == 1
    )


def test_another_signature_than_the_configuration_names_is_refused(tmp_path):
    """Triton would go on asking each version for the old one."""
    source = onnx_file(tmp_path / "m.onnx")
    published(source, tmp_path)
    path = tmp_path / "repository/m/config.pbtxt"
    path.write_text(path.read_text() + 'parameters { key: "TF_SIGNATURE_DEF" value { string_value: "other" } }\n')
    with pytest.raises(errors.UsageError, match="the signature is other there, and serving_default here"):
        published(source, tmp_path)


def test_what_no_triton_could_load_is_not_published(tmp_path):
    scalar, empty = (
        onnx_file(tmp_path / "scalar.onnx", (), outputs=()),
        onnx_file(tmp_path / "empty.onnx", (0, 4), outputs=(0, 4)),
    )
    bf16 = onnx_file(tmp_path / "bf16.onnx", dtype=TensorProto.BFLOAT16)
    twice = onnx.load(onnx_file(tmp_path / "twice.onnx"))
    twice.graph.output.append(twice.graph.output[0])
    save_model(twice, str(tmp_path / "twice.onnx"))
    clash = onnx.load(onnx_files.product(tmp_path / "p.onnx"))
    save_model(clash, str(tmp_path / "clash.onnx"), save_as_external_data=True, location="model.onnx", size_threshold=0)
    for source, options, said in (
        (scalar, {}, "'x' is a scalar, and Triton wants a dimension"),
        (empty, {}, r"'x' is float32\[0,4\], and Triton has no dimension of 0"),
        (bf16, {"backend": "python"}, "which Triton's Python backend has not"),
        (tmp_path / "twice.onnx", {}, "two outputs of one name, 'y'"),
        (tmp_path / "clash.onnx", {}, "has weights in model.onnx, a name that a version"),
    ):
        with pytest.raises(errors.UsageError, match=said):
            published(source, tmp_path, **options)
    assert not (tmp_path / "repository").exists()
    assert published(bf16, tmp_path).version == 1, "ONNX Runtime of the container may take it"


@pytest.mark.parametrize(
    ("profiles", "largest", "warmed"),
    [
        ([(1, 1, 1), (32, 32, 32), (128, 128, 128)], 32, [1, 32]),
        ([(1, 8, 64)], 16, [8, 16]),
        ([(1, 8, 64)], None, [8, 64]),
        ([(1, 64, 64)], 16, [16]),
    ],
)
def test_no_warm_up_is_larger_than_tritons_largest_batch(tmp_path, profiles, largest, warmed):
    """Triton refuses to load a model with one that is (seen with tritonserver 2.51.0)."""
    plan = plan_directory(tmp_path / "plan", [tuple((size, 4) for size in one) for one in profiles])
    published(plan, tmp_path, max_batch_size=largest)
    assert [one.batch_size for one in written(tmp_path).model_warmup] == warmed


def test_a_configuration_of_more_profiles_than_the_plan_has_is_refused(tmp_path):
    """No instance can be made of a profile that the plan has not."""
    two = plan_directory(tmp_path / "two", (((1, 4),) * 3, ((2, 4), (8, 4), (32, 4))))
    one = plan_directory(tmp_path / "one", (((1, 4), (8, 4), (32, 4)),))
    published(two, tmp_path)
    assert list(written(tmp_path).instance_group[0].profile) == ["0", "1"]
    with pytest.raises(errors.UsageError, match="does not fit it: the list of profiles is 0, 1 there, and 0 here"):
        published(one, tmp_path)
    assert published(one, tmp_path, replace_config=True).version == 2
    # The other way round an instance serves some of the profiles.
    assert published(two, tmp_path).version == 3


def test_a_queue_that_is_not_there_is_told(tmp_path):
    source = onnx_file(tmp_path / "net.onnx")
    done = published(source, tmp_path, settings=config.Settings(queue_delay=100))
    assert any(note.startswith("--triton_queue_delay_us has no effect") for note in done.notes)
    done = published(source, tmp_path / "joined", settings=config.Settings(queue_delay=100), max_batch_size=8)
    assert not any("queue_delay" in note for note in done.notes)


def test_a_model_without_inputs_is_not_warmed_up(tmp_path):
    path = onnx_files.write(
        tmp_path / "m.onnx",
        [helper.make_node("Constant", [], ["y"], value_floats=[1.0, 2.0])],
        [],
        onnx_files.values(("y", "float32", (2,))),
    )
    done = published(path, tmp_path)
    assert done.warm_up == 0 and any("takes no input" in note for note in done.notes) and not written(tmp_path).input


def test_integers_are_warmed_up_with_zeros_and_open_shapes_not_at_all(tmp_path):
    published(onnx_file(tmp_path / "m.onnx", dtype=TensorProto.INT64), tmp_path, max_batch_size=4)
    assert [(one.batch_size, one.inputs[0].value.zero_data) for one in written(tmp_path).model_warmup] == [
        (1, True),
        (4, True),
    ]
    source = onnx_file(tmp_path / "open.onnx", (None, None), outputs=(None, None))
    done = published(source, tmp_path / "open", max_batch_size=4)
    assert done.warm_up == 0 and "--warmup_shapes names some" in done.notes[-1]
    done = published(source, tmp_path / "named", max_batch_size=4, warmup_shapes="x:2x7,4x9")
    assert [(one.batch_size, list(one.inputs[0].value.dims)) for one in written(tmp_path / "named").model_warmup] == [
        (2, [7]),
        (4, [9]),
    ]
    for text, told in (
        ("x:8x7", "a batch of 8 is larger"),
        ("z:1x7", "no input 'z'"),
        ("x:1", "does not take 1"),
        ("x:", "^--warmup_shapes: ''"),
    ):
        with pytest.raises(errors.UsageError, match=told):
            published(source, tmp_path / "named", max_batch_size=4, warmup_shapes=text)


def test_instances_versions_and_the_queue_are_the_users(tmp_path):
    settings = config.Settings(instances=3, instance_kind="cpu", versions=2, queue_delay=700)
    published(
        onnx_file(tmp_path / "m.onnx"), tmp_path, max_batch_size=8, preferred_batch_sizes=(8, 4), settings=settings
    )
    made = written(tmp_path)
    assert (made.instance_group[0].count, made.instance_group[0].kind, made.version_policy.latest.num_versions) == (
        3,
        2,
        2,
    )
    assert (
        list(made.dynamic_batching.preferred_batch_size) == [4, 8]
        and made.dynamic_batching.max_queue_delay_microseconds == 700
    )


# Batching


def servable_of(folder, *profiles, shape=(None, 4)):
    return servable.read(plan_directory(folder, profiles, shape=shape))


def test_profiles_with_a_hole_are_not_joined(tmp_path):
    whole = batching.choose(servable_of(tmp_path / "a", ((1, 4), (1, 4), (8, 4)), ((9, 4), (16, 4), (32, 4))), None, ())
    assert whole == batching.Batching(32, True, (8, 16, 32), "")
    listed = batching.choose(servable_of(tmp_path / "b", *(((n, 4),) * 3 for n in (1, 8))), None, ())
    assert (listed.largest, listed.joined) == (8, False) and "no profile of the plan takes a batch of 2" in listed.why
    late = batching.choose(servable_of(tmp_path / "c", ((4, 4), (8, 4), (8, 4))), None, ())
    assert not late.joined and "a batch of 1," in late.why
    assert batching.choose(servable_of(tmp_path / "d", ((1, 4), (8, 4), (32, 4))), 16, ()) == batching.Batching(
        16, True, (8,), ""
    )
    assert batching.choose(servable_of(tmp_path / "e", ((1, 4), (1, 4), (1, 4))), None, ()) == batching.Batching(
        1, False, (), ""
    )


def test_a_model_without_an_open_batch_is_whole(tmp_path):
    fixed = batching.choose(servable_of(tmp_path / "a", ((2, 4),) * 3, shape=(2, 4)), None, ())
    assert fixed.largest == 0 and "its first dimension is not open" in fixed.why
    with pytest.raises(errors.UsageError, match="cannot batch this model"):
        batching.choose(servable_of(tmp_path / "b", ((2, 4),) * 3, shape=(2, 4)), 8, ())


def test_a_row_of_one_number_gets_a_dimension_that_triton_takes_away(tmp_path):
    flat = servable.read(onnx_file(tmp_path / "flat.onnx", (None,), outputs=(None,)))
    assert batching.choose(flat, None, ()).largest == 0
    batched = batching.choose(flat, 8, ())
    made = config.make(
        "flat", flat, backends.choose("", flat), batched, config.Settings(), [{one.name: (8,) for one in flat.inputs}]
    )
    for one in (*made.input, *made.output):
        assert list(one.dims) == [1] and one.HasField("reshape") and list(one.reshape.shape) == []
    assert all(list(one.dims) == [1] for warm in made.model_warmup for one in [entry.value for entry in warm.inputs])
    whole = config.make("flat", flat, backends.choose("", flat), batching.choose(flat, None, ()), config.Settings(), [])
    assert list(whole.input[0].dims) == [-1] and not whole.input[0].HasField("reshape")


@pytest.mark.parametrize(
    "wanted, preferred, told",
    [(64, (), "the largest profile of the plan has 32"), (None, (64,), "64 is not from 1 to 32")],
)
def test_batches_that_no_profile_takes_are_refused(tmp_path, wanted, preferred, told):
    with pytest.raises(errors.UsageError, match=told):
        batching.choose(servable_of(tmp_path / "p", ((1, 4), (8, 4), (32, 4))), wanted, preferred)


# The release


def test_a_plan_of_another_tensorrt_is_refused_with_the_release_that_fits(tmp_path, tftrt):
    plan = plan_directory(tmp_path / "plan")
    done = tftrt(
        "publish",
        plan,
        "--server=triton",
        "--model_name=m",
        f"--base_path={tmp_path / 'repository'}",
        "--triton_release=24.05",
    )
    assert_clear(done, 3, "built by TensorRT 8.5.3.1, and Triton 24.05 has 10.0.1.6")
    assert "--triton_release=23.03 fits" in done.stderr and not (tmp_path / "repository").exists()
    assert (
        tftrt(
            "publish",
            plan,
            "--server=triton",
            "--model_name=m",
            f"--base_path={tmp_path / 'repository'}",
            "--triton_release=24.05",
            "--triton_backend=python",
        ).returncode
        == 0
    ), "that TensorRT is of the Python backend's own Python"


def test_every_release_has_a_source_and_one_of_its_own():
    assert len({one.name for one in releases.RELEASES}) == len(releases.RELEASES) and all(
        one.source for one in releases.RELEASES
    )
    assert list(releases.RELEASES) == sorted(releases.RELEASES, key=lambda one: one.name)
    assert [one.name for one in releases.RELEASES if one.tensorflow is None] == ["25.06"]


@pytest.mark.parametrize(
    "name, tensorrt, told", [("24.13", "", "is none"), ("latest", "", "is none"), ("25.01", "", "is not known here")]
)
def test_a_release_that_is_none_or_not_known_is_told(name, tensorrt, told):
    with pytest.raises(errors.UsageError, match=told):
        releases.release(name, tensorrt)


def test_the_user_may_say_what_is_not_known():
    assert releases.release("25.01", "10.8.0.43").text() == "Triton 25.01: TensorRT 10.8.0.43"


def checked(tmp_path, backend="tensorrt", release="23.03", capability="", **more):
    model = servable.read(plan_directory(tmp_path / "p", **more))
    return preflight.check(
        model, backends.choose(backend, model), releases.release(release) if release else None, capability
    )


def test_a_version_compatible_plan_goes_forward_and_not_back(tmp_path):
    assert not checked(tmp_path, release="24.05", tensorrt="10.0.1.6").obstacles
    (tmp_path / "b").mkdir()
    assert not checked(tmp_path / "b", release="24.08", tensorrt="10.0.1.6", version_compatible=True).obstacles
    (tmp_path / "c").mkdir()
    assert checked(tmp_path / "c", release="24.05", tensorrt="10.3.0.26", version_compatible=True).obstacles


def test_another_gpu_is_refused_and_an_unknown_one_noted(tmp_path):
    assert "compute capability 9.0, and the server has 8.6" in checked(tmp_path, capability="8.6").obstacles[0].text
    (tmp_path / "b").mkdir()
    noted = checked(tmp_path / "b", release="", plugins=[{"file": "plugins/libx.so", "digest": "sha256:0"}]).notes
    assert [one for one in noted if "23.03" in one] and [one for one in noted if "LD_PRELOAD=plugins/libx.so" in one]


@pytest.mark.parametrize(
    ("implicit", "release", "refused"), [(True, "24.04", False), (True, "24.05", True), (False, "24.05", False)]
)
def test_an_implicit_batch_goes_to_no_release_with_tensorrt_10(implicit, release, refused):
    model = servable.Servable(
        kind="savedmodel",
        path="m",
        digest="",
        signature="serving_default",
        inputs=(),
        outputs=(),
        converted=True,
        implicit_batch=implicit,
    )
    found = preflight.check(model, backends.choose("", model), releases.release(release), "").obstacles
    assert bool(found) == refused
    assert all("which TensorRT 10.0.1.6 of Triton 24.05 does not have" in one.text for one in found)


# What it refuses


@pytest.mark.parametrize(
    "flags, code, told",
    [
        (("--server_image=local",), 2, "--server_image has no effect with --server=triton"),
        (("--warmup_data=x.npz",), 2, "--warmup_data has no effect"),
        (("--triton_backend=tensorrt",), 2, "does not run an ONNX file"),
        (("--triton_tensorrt=10.0",), 2, "without --triton_release"),
        (("--triton_preferred_batch_sizes=a",), 2, "are no numbers"),
        (("--model_name=a b",), 2, "Triton cannot name that"),
        (("--base_path=s3://bucket/x",), 2, "no path on this machine"),
        (("--model_version=0",), 2, "a version is a number from 1"),
        (("--triton_max_batch_size=99999999999",), 2, "--triton_max_batch_size=99999999999"),
        (("--triton_versions=99999999999",), 2, "--triton_versions=99999999999"),
        (("--triton_instances=99999999999",), 2, "--triton_instances=99999999999"),
        (("--triton_queue_delay_us=99999999999",), 2, "--triton_queue_delay_us=99999999999"),
        (("--warmup_shapes=x:9999999999999999999999x4",), 2, "does not take 9999999999999999999999x4"),
        (("--signature_keys=a,b",), 2, "names several signatures"),
        (("--signature_keys=a",), 2, "--signature_keys has no effect"),
    ],
)
def test_flags_that_do_not_fit_are_one_clear_line(tmp_path, tftrt, flags, code, told):
    source = onnx_file(tmp_path / "m.onnx")
    assert_clear(
        tftrt("publish", source, "--server=triton", "--model_name=m", f"--base_path={tmp_path / 'repository'}", *flags),
        code,
        told,
    )
    assert not (tmp_path / "repository").exists()


def test_flags_of_triton_need_triton(tmp_path, tftrt):
    done = tftrt("publish", tmp_path, "--model_name=m", "--base_path=models", "--triton_release=24.05")
    assert_clear(done, 2, "--triton_release has no effect without --server=triton")


def test_files_that_are_no_whole_model_are_told(tmp_path):
    (tmp_path / "alone.plan").write_bytes(b"plan")
    (tmp_path / "cut.onnx").write_bytes(onnx_file(tmp_path / "m.onnx").read_bytes()[:40])
    plan = plan_directory(tmp_path / "plan")
    (plan / "model.plan").write_bytes(b"pl")
    (tmp_path / "text").write_text("no model")
    lost = plan_directory(tmp_path / "lost")
    (lost / "plan.json").unlink()
    (tmp_path / "empty").mkdir()
    for path, told in (
        ("alone.plan", "a plan alone"),
        ("cut.onnx", "truncated or damaged"),
        ("plan", "truncated or another one"),
        ("lost", "no plan.json"),
        ("none.onnx", "no such file"),
        ("text", "a file of no kind taken here"),
        ("nowhere", "nowhere is not there"),
        ("empty", "holds neither plan.json nor saved_model.pb"),
    ):
        with pytest.raises(errors.TftrtError, match=told):
            published(tmp_path / path, tmp_path)
    assert not (tmp_path / "repository").exists()


def test_a_plan_without_evidence_is_refused(tmp_path):
    plan = plan_directory(tmp_path / "plan", verified=False)
    with pytest.raises(errors.CheckFailed, match="never verified"):
        published(plan, tmp_path)
    assert "NOT VERIFIED" in published(plan, tmp_path, unverified=True).notes[0]


def test_a_version_that_exists_and_a_folder_that_cannot_be_written_are_told(tmp_path, monkeypatch):
    source = onnx_file(tmp_path / "m.onnx")
    published(source, tmp_path)
    with pytest.raises(errors.UsageError, match="version 1 exists"):
        published(source, tmp_path, version=1)
    monkeypatch.setattr(
        os, "access", lambda path, mode: False
    )  # the user of the tests may be root, who may write everywhere
    with pytest.raises(errors.UsageError, match="cannot be written to"):
        published(source, tmp_path)
    assert stat.S_ISDIR((tmp_path / "repository/m/1").stat().st_mode)


def test_a_publication_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    source = onnx_file(tmp_path / "m.onnx")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(renaming, "new", full)
    with pytest.raises(OSError, match="No space"):
        published(source, tmp_path)
    assert not (tmp_path / "repository").exists()
    (tmp_path / "repository").mkdir()
    with pytest.raises(OSError, match="No space"):
        published(source, tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.onnx", "repository"] and not any(
        (tmp_path / "repository").iterdir()
    )
    monkeypatch.undo()
    published(source, tmp_path, max_batch_size=4)
    before = (tmp_path / "repository/m/config.pbtxt").read_text()
    monkeypatch.setattr(renaming, "new", full)
    with pytest.raises(OSError, match="No space"):
        published(source, tmp_path, max_batch_size=8, replace_config=True)
    assert (tmp_path / "repository/m/config.pbtxt").read_text() == before
    assert sorted(one.name for one in (tmp_path / "repository/m").iterdir()) == ["1", "config.pbtxt"]


def test_a_new_model_appears_in_a_repository_with_one_rename(tmp_path, monkeypatch):
    """A Triton that starts takes every directory there for a model, and ends with one that is not whole."""
    source, repository = onnx_file(tmp_path / "m.onnx"), tmp_path / "repository"
    repository.mkdir()
    seen, rename = [], renaming.new

    def watched(one, other, **said):
        seen.append(sorted(path.relative_to(repository).as_posix() for path in repository.rglob("*")))
        rename(one, other, **said)

    monkeypatch.setattr(renaming, "new", watched)
    published(source, tmp_path)
    assert len(seen) >= 2 and not any(seen), seen
    assert sorted(one.name for one in (repository / "m").iterdir()) == ["1", "config.pbtxt"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.onnx", "repository"]


def test_a_new_model_that_another_publisher_was_faster_with_is_told(tmp_path, monkeypatch):
    source, repository = onnx_file(tmp_path / "m.onnx"), tmp_path / "repository"
    repository.mkdir()
    fill = publish._fill

    def slow(*arguments):
        monkeypatch.setattr(publish, "_fill", fill)
        published(source, tmp_path)
        fill(*arguments)

    monkeypatch.setattr(publish, "_fill", slow)
    with pytest.raises(errors.TftrtError, match="appeared there meanwhile"):
        published(source, tmp_path)
    assert sorted(one.name for one in (repository / "m").iterdir()) == ["1", "config.pbtxt"]


def test_what_a_killed_publisher_left_long_ago_is_removed(tmp_path):
    source, left = onnx_file(tmp_path / "m.onnx"), tmp_path / ".tftrt-new-model-0"
    (tmp_path / "repository").mkdir()
    left.mkdir()
    published(source, tmp_path)
    assert left.is_dir(), "it may be at work"
    os.utime(left, (0, 0))
    publish.publish(str(source), "n", str(tmp_path / "repository"), publish.Options())
    assert not left.exists()


@pytest.mark.parametrize("link", [False, True], ids=["a directory", "a link to it"])
def test_a_later_version_and_a_new_configuration_appear_with_a_rename_each(tmp_path, monkeypatch, link):
    """Anything that grows in the model's directory makes a Triton that polls load the served version again."""
    source, repository = onnx_file(tmp_path / "m.onnx"), tmp_path / "repository"
    if link:
        (tmp_path / "elsewhere/store").mkdir(parents=True)
        repository.symlink_to(tmp_path / "elsewhere/store")
    published(source, tmp_path, max_batch_size=4)
    seen = set()

    def watched(function):
        def call(*arguments):
            seen.update(path.relative_to(repository / "m").as_posix() for path in (repository / "m").rglob("*"))
            return function(*arguments)

        return call

    before = {path.relative_to(repository / "m").as_posix() for path in (repository / "m").rglob("*")}
    for name in ("rename", "replace", "fsync"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    done = published(source, tmp_path, max_batch_size=8, replace_config=True)
    monkeypatch.undo()
    # The directory is flushed after the rename: all that is seen more is the whole version.
    assert {one.split("/")[0] for one in seen - before} == {"2"} and not any("grew" in note for note in done.notes)
    assert sorted(one.name for one in (repository / "m").iterdir()) == ["1", "2", "config.pbtxt"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["elsewhere"] * link + ["m.onnx", "repository"]
    assert "max_batch_size: 8" in (repository / "m/config.pbtxt").read_text()


@pytest.mark.parametrize("mounted", ["repository", "repository/m"])
def test_a_version_grows_in_the_model_of_a_repository_that_is_a_volume_and_says_what_that_costs(
    tmp_path, monkeypatch, mounted
):
    folder = tmp_path / "a volume"
    folder.mkdir()
    source = onnx_file(folder / "m.onnx")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 254:1 / / rw - ext4 /dev/vda rw\n"
        f"36 22 254:1 /there {str(folder / mounted).replace(' ', chr(92) + '040')} rw - ext4 /dev/vda rw\n"
    )
    monkeypatch.setattr(growing, "_MOUNTS", mounts)
    assert not any("grew" in note for note in published(source, folder).notes), "no Triton serves the model yet"
    assert "in a folder of its volume" in published(source, folder).notes[-1]
    assert sorted(one.name for one in (folder / "repository/m").iterdir()) == ["1", "2", "config.pbtxt"]
    mounts.unlink()
    assert not any("grew" in note for note in published(source, folder).notes)


def test_what_an_earlier_release_left_in_the_model_is_removed(tmp_path):
    """It grew versions there."""
    source = onnx_file(tmp_path / "m.onnx")
    published(source, tmp_path)
    (tmp_path / "repository/m/.tftrt-publish-0badc0de/model").mkdir(parents=True)
    published(source, tmp_path)
    assert sorted(one.name for one in (tmp_path / "repository/m").iterdir()) == ["1", "2", "config.pbtxt"]
