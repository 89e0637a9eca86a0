"""Plans as far as they go without a GPU: profiles, plan.json, the guard, flags, and what is refused before a build."""

import dataclasses
import itertools
import json
import math
import pathlib
import struct

import numpy as np
import pytest
from onnx import helper

import tftrt_tools
from tests import onnx_files, stacks
from tests.command_line import assert_clear
from tests.gpu_commands import NO_GPU
from tftrt_tools.base import errors
from tftrt_tools.base.stack import bindings
from tftrt_tools.command_line import cli
from tftrt_tools.command_line.report import tensors_plot
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.kinds import opening, table
from tftrt_tools.models.kinds.plan import document, profiles
from tftrt_tools.models.kinds.plan.document import PlanFile, Plugin, Tensor
from tftrt_tools.models.kinds.plan.job import differences, guard
from tftrt_tools.models.kinds.plan.kind import PLAN
from tftrt_tools.models.kinds.plan.profiles import Profile, Range
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.studies.regression import models
from tftrt_tools.tensorrt.plans import settings, shaping, tensor_files, tensors_job
from tftrt_tools.tensorrt.plans.job import network
from tftrt_tools.tensorrt.plans.result import Built
from tftrt_tools.tensorrt.plans.tensors import Inner, Tensors

IMAGE = InputSpec("image", "float32", (None, 8, 8, 1))
HERE = {"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "driver": "550.90"}


@pytest.fixture(autouse=True)
def with_the_python_package(monkeypatch):
    """What is refused before a build asks TensorRT nothing, and is the same without its Python package."""
    monkeypatch.setattr(bindings, "installed", lambda: True)


def ranged(name, least, opt, most):
    return Profile({name: Range(least, opt, most)})


def exact(name, *shape):
    return ranged(name, shape, shape, shape)


# Which profile serves a call -------------------------------------------------------------------------------------------------------------

THREE = (ranged("x", (1, 4), (8, 4), (32, 4)), exact("x", 8, 4), ranged("x", (16, 4), (64, 4), (128, 4)))


@pytest.mark.parametrize(
    ("shape", "number"),
    [
        ((8, 4), 0),  # its opt, and the first of two that have it
        ((64, 4), 2),
        ((1, 4), 0),
        ((32, 4), 2),
        ((17, 4), 0),
        ((128, 4), 2),
        ((129, 4), None),
        ((8, 5), None),
        ((8,), None),
        ((0, 4), None),
    ],
)
def test_the_profile_of_a_call(shape, number):
    assert profiles.choose(THREE, {"x": shape}) == number


def test_a_profile_holds_a_call_only_with_all_of_its_inputs():
    both = Profile({"a": Range((1,), (2,), (4,)), "b": Range((1,), (2,), (4,))})
    assert both.holds({"a": (1,), "b": (4,)}) and not both.holds({"a": (1,), "b": (5,)}) and not both.holds({"a": (1,)})


@pytest.mark.parametrize(
    ("shape", "nearest"), [((129, 4), "x 16x4 to 128x4"), ((0, 4), "x 1x4 to 32x4"), ((9, 5), "x 8x4")]
)
def test_the_nearest_profile_is_named(shape, nearest):
    cause, mend = profiles.refusal((*THREE[::2], THREE[1]), {"x": shape})
    assert (
        cause.startswith(f"the plan has no profile for x {'x'.join(map(str, shape))}; the nearest is ")
        and "--shapes" in mend
    )
    assert cause.endswith(nearest) or shape == (9, 5)


def test_a_call_of_another_rank_is_refused_too():
    assert "the nearest is x" in profiles.refusal(THREE, {"x": (8,)})[0]


# Profiles from --shapes -------------------------------------------------------------------------------------------------------------------


def test_each_shape_and_each_range_becomes_a_profile():
    found = shaping.profiles(
        "image:1x8x8x1,4x8x8x1|image:min=5x8x8x1,opt=8x8x8x1,max=32x8x8x1|image:min=40x8x8x1,max=64x8x8x1", [IMAGE]
    )
    assert found == (
        exact("image", 1, 8, 8, 1),
        exact("image", 4, 8, 8, 1),
        ranged("image", (5, 8, 8, 1), (8, 8, 8, 1), (32, 8, 8, 1)),
        ranged("image", (40, 8, 8, 1), (64, 8, 8, 1), (64, 8, 8, 1)),
    )


def test_inputs_that_are_not_named_follow_the_batch():
    found = shaping.profiles(
        "ids:min=1x16,max=8x16", [InputSpec("ids", "int32", (None, 16)), InputSpec("weight", "float32", (None, 2))]
    )
    assert found == (Profile({"ids": Range((1, 16), (8, 16), (8, 16)), "weight": Range((1, 2), (8, 2), (8, 2))}),)


def test_a_model_without_open_dimensions_has_one_profile():
    assert shaping.profiles("", [InputSpec("x", "float32", (2, 4)), InputSpec("n", "int32", ())]) == (
        Profile({"x": Range((2, 4), (2, 4), (2, 4)), "n": Range((), (), ())}),
    )


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("", "these inputs have open dimensions: image float32[?,8,8,1]"),
        ("image:1x9x8x1", "refuses image:1x9x8x1"),
        ("other:1x8x8x1", "no input 'other'"),
        ("image:min=8x8x8x1,opt=4x8x8x1,max=16x8x8x1", "min of input 'image' is larger than its opt"),
        ("image:1x8x8x1|", "--shapes is empty"),
        ("image:min=1x8x8x1,max=2x8x8x1,min=3x8x8x1", "does not belong into a range"),
    ],
)
def test_shapes_that_cannot_be(flag, says):
    with pytest.raises(errors.UsageError, match=says.replace("[", r"\[").replace("?", r"\?")):
        shaping.profiles(flag, [IMAGE])


@pytest.mark.parametrize(
    ("flag", "first"),
    [
        ("", ""),
        ("image:1x8x8x1,4x8x8x1", "image:1x8x8x1"),
        ("serve/image:min=2x8x8x1,max=4x8x8x1|serve/image:9x8x8x1", "serve/image:2x8x8x1"),
        ("a:1x2,3x2;n:scalar", "a:1x2;n:scalar"),
    ],
)
def test_the_call_on_which_an_export_is_compared(flag, first):
    assert shaping.first_call(flag) == first


# plan.json and the guard ------------------------------------------------------------------------------------------------------------------


def header(version, capability):
    """The first bytes of a plan, as TensorRT 8.5.3.1 writes them."""
    parts = b"".join(b"\x02\x80\x01\x00" + bytes([number]) for number in version)
    numbers = b"".join(b"\x07\x80\x01\x00" + struct.pack("<i", number) for number in capability)
    return b"ptrt" + bytes(20) + parts + b"\x12\x80\x01\x00" + bytes(4) + numbers


@pytest.fixture
def plan(tmp_path):
    """A plan directory whose plan nothing can run, with a library of plugins."""
    folder = tmp_path / "plan"
    (folder / "plugins").mkdir(parents=True)
    (folder / "plugins/own.so").write_bytes(b"library")
    (folder / "model.plan").write_bytes(header((8, 5, 3, 1), (9, 0)) + b"rest")
    onnx_files.product(folder / "model.onnx")
    write(
        folder,
        PlanFile(
            tensorrt="8.5.3.1",
            compute_capability="9.0",
            gpu=HERE["name"],
            precision="FP16",
            inputs=(Tensor("x", "float32", (None, 4), "float32"),),
            outputs=(Tensor("y", "int64", (None, 3), "int32"),),
            profiles=THREE,
            builder_flags=("FP16", "TF32"),
            plugins=(Plugin("plugins/own.so", files.digest(folder / "plugins/own.so"), ("Own 1",)),),
            bytes=(folder / "model.plan").stat().st_size,
            digest=files.digest(folder / "model.plan"),
        ),
    )
    return folder


def write(folder, plan):
    (folder / "plan.json").write_text(json.dumps(plan.to_dict()))


def test_plan_json_is_read_as_it_was_written(plan):
    said = document.read(plan)
    assert said.profiles == THREE and said.dynamic and said.plugins[0].creators == ("Own 1",)
    assert PlanFile.from_dict(json.loads(json.dumps(said.to_dict()))) == said


def test_a_plan_that_fits_passes_the_guard(plan):
    guard.check(plan, document.read(plan), "8.5.3.1", HERE)


@pytest.mark.parametrize(
    ("changes", "tensorrt", "gpu", "says"),
    [
        ({}, "8.6.0.12", HERE, "was built by TensorRT 8.5.3.1, and here it is 8.6.0.12"),
        ({"tensorrt": "8.4.1.5"}, "8.5.3.1", HERE, "was built by TensorRT 8.4.1.5"),
        # plan.json was changed, and the plan says otherwise.
        ({"tensorrt": "8.6.0.12"}, "8.6.0.12", HERE, "was built by TensorRT 8.5.3.1"),
        (
            {"compute_capability": "8.0"},
            "8.5.3.1",
            {**HERE, "compute_capability": "8.0"},
            "was built for compute capability 9.0",
        ),
        ({}, "8.5.3.1", {**HERE, "compute_capability": "8.6"}, "was built for compute capability 9.0"),
        ({}, "8.5.3.1", None, "no GPU is visible here"),
        ({"version_compatible": True}, "8.4.1.5", HERE, None),
        ({"version_compatible": True, "tensorrt": "9.0.0.1"}, "8.5.3.1", HERE, "was built by TensorRT 9.0.0.1"),
    ],
)
def test_a_plan_from_elsewhere_does_not_pass(plan, changes, tensorrt, gpu, says):
    said = dataclasses.replace(document.read(plan), **changes)
    if says is None:
        guard.check(plan, said, tensorrt, gpu)
        return
    with pytest.raises(errors.TftrtError, match=says) as raised:
        guard.check(plan, said, tensorrt, gpu)
    assert raised.value.mend


def test_plugins_have_to_be_those_of_the_build(plan):
    said = document.read(plan)
    (plan / "plugins/own.so").write_bytes(b"another")
    with pytest.raises(errors.TftrtError, match="is not the library that the plan was built with"):
        guard.check(plan, said, "8.5.3.1", HERE)
    (plan / "plugins/own.so").unlink()
    with pytest.raises(errors.TftrtError, match="needs the plugins of plugins/own.so, which is not there"):
        guard.check(plan, said, "8.5.3.1", HERE)


def _truncated(plan):
    (plan / "model.plan").write_bytes(b"ptrt")


def _no_plan(plan):
    (plan / "model.plan").unlink()


def _no_document(plan):
    (plan / "plan.json").unlink()


def _no_object(plan):
    (plan / "plan.json").write_text("[]")


def _a_field_short(plan):
    said = json.loads((plan / "plan.json").read_text())
    del said["tensorrt"]
    (plan / "plan.json").write_text(json.dumps(said))


def _a_wrong_field(plan):
    said = json.loads((plan / "plan.json").read_text())
    (plan / "plan.json").write_text(json.dumps({**said, "precision": "FP4"}))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_truncated, "is truncated or another one"),
        (_no_plan, "is no whole plan directory: it has no model.plan"),
        (_no_document, "is no whole plan directory: it has no plan.json"),
        (_no_object, "plan.json is damaged"),
        (_a_field_short, "plan.json is damaged: it has no 'tensorrt'"),
        (_a_wrong_field, "plan.json is damaged: precision"),
    ],
)
def test_a_directory_that_is_not_whole_is_told(plan, tftrt, harm, says):
    harm(plan)
    for command in (("inspect", plan), ("verify", plan / "model.onnx", plan)):
        done = tftrt(*command)
        assert says in done.stderr and done.returncode in (1, 2) and "Traceback" not in done.stderr


@stacks.needs_bindings
def test_a_plan_without_a_gpu_is_one_line(plan, tftrt):
    # Its output is an integer, so that the comparison with the file would end earlier: it is compared with itself.
    said = dataclasses.replace(document.read(plan), outputs=(Tensor("y", "float32", (None, 3), "float32"),))
    write(plan, said)
    done = tftrt("verify", plan / "model.onnx", plan, "--shapes=x:8x4", env=NO_GPU)
    assert_clear(done, 1, f"is a plan for {HERE['name']}, and no GPU is visible here")
    # In process it is a worker of the load generator that finds that out.
    done = tftrt("bench", f"--in_process={plan}", "--shapes=x:8x4", "--duration_seconds=0.3", env=NO_GPU)
    assert (
        done.returncode == 1
        and f"tftrt: error: {plan} is a plan for {HERE['name']}, and no GPU is visible here\n" in done.stderr
    ), done.stderr
    assert "run it on a machine with that GPU" in done.stderr and "job" not in done.stderr
    done = tftrt("bench", plan, "--shapes=x:8x4", env=NO_GPU)
    assert_clear(done, 1, HERE["name"])


@stacks.needs_bindings
def test_a_plan_is_not_loaded_without_a_gpu(plan, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(errors.TftrtError, match="no GPU is visible here; run it on a machine with that GPU"):
        tftrt_tools.load(plan)


# The kind ---------------------------------------------------------------------------------------------------------------------------------


def test_commands_open_a_plan_as_other_models(plan):
    assert table.kind(str(plan)) is PLAN
    with opening.opened(plan) as (model,):
        assert model.inputs == {"serving_default": (InputSpec("x", "float32", (None, 4)),)}
        assert model.outputs == {"serving_default": (InputSpec("y", "int64", (None, 3)),)}
        assert [(one.name, one.precision) for one in model.engines] == [("plan", "FP16")] and model.kind.arithmetic(
            model.path
        ) is None
        digest = model.digest()
    assert opening.keep(plan, passport.VERIFY, {"passed": True}) and opening.document(plan, passport.VERIFY)["passed"]
    with opening.opened(plan) as (model,):
        assert model.digest() == digest
    (plan / "model.plan").write_bytes((plan / "model.plan").read_bytes()[:-1] + b"!")
    assert PLAN.digest(str(plan)) != digest


def test_the_manifest_has_the_calls_that_a_plan_was_tuned_for_under_both_names(plan):
    said = document.read(plan)
    done = Built(
        source="/m",
        source_digest="sha256:0",
        output=str(plan),
        settings=settings.Settings(signature_keys=("score",), precision_mode="FP16"),
        versions={"tensorrt": "8.5.3.1"},
        gpu=HERE,
        plan=said,
        seconds=3.0,
        parse_seconds=0.5,
        build_seconds=2.0,
        known_timings=0,
    )
    passport.write(plan, passport.MANIFEST, done.to_dict())
    manifest = passport.read(plan, passport.MANIFEST)
    calls = [{"x": (8, 4)}, {"x": (8, 4)}, {"x": (64, 4)}]
    assert (
        inputs.built_for(manifest) == {"serving_default": calls, "score": calls} and manifest["backend"] == "tensorrt"
    )
    read = models.of(opening_model(plan), "candidate")
    assert (read.precision, read.engine_ops, read.build_seconds, read.engine_bytes) == ("FP16", 1, 2.0, said.bytes)


def opening_model(plan):
    with opening.opened(plan) as (model,):
        return model


def test_inspect_tells_what_plan_json_and_the_layers_say(plan, tftrt):
    layers = {
        "Layers": [
            {"Name": "a", "LayerType": "CaskConvolution"},
            {"Name": "b", "LayerType": "Reformat"},
            {"Name": "c", "LayerType": "CaskConvolution"},
        ]
    }
    passport.write(plan, document.LAYER_INFORMATION, layers)
    done = tftrt("inspect", plan, "--json=-")
    seen = json.loads(done.stdout)
    assert seen["ops"] == {"CaskConvolution": 2, "Reformat": 1} and seen["format"] == "TensorRT plan"
    assert (
        seen["facts"]["TensorRT"] == "8.5.3.1" and seen["facts"]["profile 0"] == "x 1x4 to 32x4; fastest with x at 8x4"
    )
    assert seen["facts"]["types"] == "y int64 as int32" and "Own 1" in seen["facts"]["plugins"]
    assert {one["name"] for one in seen["files"]} == {"model.plan", "model.onnx", "plugins/own.so"}


def test_a_plan_is_not_converted_again(plan, tftrt):
    assert_clear(tftrt("convert", f"--model={plan}", "--output=x"), 2, "is a plan directory")
    assert_clear(
        tftrt("convert", "--backend=tensorrt", f"--model={plan}", "--output=x"), 2, "is a plan directory already"
    )
    assert_clear(tftrt("export", plan, "--output=x.onnx"), 2, "is a plan directory")


@stacks.needs_bindings
def test_overwrite_replaces_plan_directories(plan, tmp_path, tftrt):
    source = onnx_files.product(tmp_path / "m.onnx")
    told = ["convert", "--backend=tensorrt", f"--model={source}", f"--output={plan}", "--shapes=x:8x4"]
    assert_clear(tftrt(*told, env=NO_GPU), 2, "the output directory exists")
    before = {path: path.read_bytes() for path in plan.rglob("*") if path.is_file()}
    assert_clear(tftrt(*told, "--overwrite", env=NO_GPU), 1, "no GPU is visible here")
    assert before == {path: path.read_bytes() for path in plan.rglob("*") if path.is_file()}


# What is refused before a build -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ("--backend=tensorrt", "--minimum_segment_size=5"),
            "--minimum_segment_size has no effect with --backend=tensorrt: it is for TF-TRT",
        ),
        (("--backend=tensorrt", "--calibration_data=x.npz"), "--calibration_data has no effect"),
        (("--backend=tensorrt", "--use_dynamic_shape"), "--use_dynamic_shape has no effect"),
        (("--plugins=x.so",), "--plugins is for plans"),
        (("--refit",), "--refit is for plans"),
        (("--notf32",), "--notf32 is for plans"),
        (("--backend=tensorrt", "--precision=FP8"), "--precision=FP8 is unknown"),
        (("--backend=tensorrt", "--tactic_sources=CUBLAS,OWN"), "--tactic_sources=OWN is unknown"),
        (
            ("--backend=tensorrt", "--calibration_table=t.json"),
            "--calibration_table has no effect with --precision=FP32",
        ),
        (("--backend=tensorrt", "--signature_keys=a,b"), "a plan has one signature"),
        (("--backend=tensorrt", "--signature_keys=a"), "is an ONNX file, which has no signatures"),
        (("--backend=tensorrt", "--plugins=/nowhere.so"), "--plugins=/nowhere.so: no such file"),
        (("--backend=tensorrt",), "these inputs have open dimensions: x float32[?,4]"),
        (("--backend=tensorrt", "--shapes=x:min=8x4,opt=2x4,max=16x4"), "min of input 'x' is larger than its opt"),
        (("--backend=tensorrt", "--shapes=z:8x4"), "no input 'z'"),
        (
            ("--backend=tensorrt", "--shapes=x:8x4", "--max_workspace_size_bytes=-1"),
            "--max_workspace_size_bytes=-1 is too small",
        ),
        (("--backend=tensorrt", "--shapes=x:8x4", "--max_build_minutes=0"), "is no time"),
        (("--backend=other",), "backend"),
    ],
)
def test_flags_that_cannot_work_are_told_before_the_work(flags, says, tmp_path, tftrt):
    source = onnx_files.product(tmp_path / "m.onnx")
    done = tftrt("convert", f"--model={source}", f"--output={tmp_path / 'plan'}", *flags)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "plan").exists()


def _nothing(path):
    return str(path)


def _text(path):
    path.write_text("not a model")
    return str(path)


def _cut(path):
    onnx_files.product(path)
    path.write_bytes(path.read_bytes()[:-40])
    return str(path)


def _lost_weights(path):
    onnx_files.product(path, outside=True)
    pathlib.Path(f"{path}.data").unlink()
    return str(path)


def _strings(path):
    return onnx_files.write(
        path,
        [helper.make_node("Identity", ["x"], ["y"])],
        onnx_files.values(("x", "string", (2,))),
        onnx_files.values(("y", "string", (2,))),
    )


def _two_names(path):
    return onnx_files.write(
        path,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        onnx_files.values(("x", "float32", (2,)), ("x", "float32", (2,))),
        onnx_files.values(("y", "float32", (2,))),
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_nothing, "no such file"),
        (_text, "is no ONNX file"),
        (_cut, "is truncated or damaged"),
        (_lost_weights, "which is not beside it"),
        (_strings, "input 'x' of"),
        (_two_names, "has two inputs of one name, 'x'"),
    ],
)
def test_files_that_become_no_plan(make, says, tmp_path, tftrt):
    done = tftrt(
        "convert",
        "--backend=tensorrt",
        f"--model={make(tmp_path / 'm.onnx')}",
        f"--output={tmp_path / 'plan'}",
        "--shapes=x:8x4",
        env=NO_GPU,
    )
    assert_clear(done, done.returncode, says)
    assert done.returncode in (1, 2) and not (tmp_path / "plan").exists()


@stacks.needs_bindings
def test_without_a_gpu_a_build_is_one_line_and_nothing_is_written(tmp_path, zoo_model, tftrt):
    source = onnx_files.product(tmp_path / "m.onnx", outside=True)
    for model, shapes in ((source, "x:8x4"), (zoo_model("digits_cnn"), "image:2x8x8x1")):
        done = tftrt(
            "convert",
            "--backend=tensorrt",
            f"--model={model}",
            f"--output={tmp_path / 'plan'}",
            f"--shapes={shapes}",
            env=NO_GPU,
        )
        assert_clear(done, 1, "no GPU is visible here, and TensorRT builds a plan on the kind of GPU that will run it")
        assert not (tmp_path / "plan").exists()


def test_a_signature_has_to_be_chosen_where_none_is_the_default(tmp_path, zoo_model, tftrt):
    done = tftrt(
        "convert", "--backend=tensorrt", f"--model={zoo_model('ranker')}", f"--output={tmp_path / 'plan'}", env=NO_GPU
    )
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr and not (tmp_path / "plan").exists()


# Inner tensors ----------------------------------------------------------------------------------------------------------------------------


def chain(path, second=1.0):
    """x -> a -> b -> y with a constant in each; the second is another where it is asked for. n is no float, and only one file has it."""
    constants = {f"c{number}": np.full((4,), value, np.float32) for number, value in enumerate((2.0, second, 0.5))}
    nodes = [
        helper.make_node("Mul", ["x", "c0"], ["a"], name="first"),
        helper.make_node("Add", ["a", "c1"], ["b"], name="second"),
        helper.make_node("Mul", ["b", "c2"], ["y"], name="third"),
        helper.make_node("Shape", ["b"], ["n"], name="sizes"),
    ]
    return onnx_files.write(
        path,
        nodes,
        onnx_files.values(("x", "float32", ("batch", 4))),
        onnx_files.values(("y", "float32", ("batch", 4))),
        constants,
    )


def test_the_first_tensor_that_departs_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tftrt_tools.tensorrt.plans.tensors.CHUNK", 1)
    one, other = chain(tmp_path / "one.onnx"), chain(tmp_path / "other.onnx", second=1.5)
    assert (
        cli.main(
            [
                "verify",
                one,
                other,
                "--tensors=all",
                f"--json={tmp_path / 'said.json'}",
                f"--html={tmp_path / 'said.html'}",
                f"--plot={tmp_path / 'said.svg'}",
            ]
        )
        == errors.EXIT_CHECK
    )
    printed, said = capsys.readouterr().out, json.loads((tmp_path / "said.json").read_text())
    assert "first departs: b (Add second) with" in printed and "behind a with inf dB" in printed
    assert [one["tensor"] for one in said["inners"]] == ["a", "b", "y"] and said["chunks"] == 3 and not said["passed"]
    assert said["inners"][0]["snr_db"] == "inf" and 0 < said["inners"][1]["snr_db"] < 60
    drawn, page = (tmp_path / "said.svg").read_text(), (tmp_path / "said.html").read_text()
    for text in (drawn, page):
        assert "first departs: b" in text and ">departs<" in text and "the bound, 60 dB (FP32)" in text
    assert page.count('<tr><td class="n">') == 3 and "Add second" in page


@pytest.mark.parametrize("changed", ["one", "other"])
def test_infinities_and_nan_in_one_of_two_models_depart(tmp_path, capsys, changed):
    """The level is of finite values: what overflows in FP16 has none left."""

    def overflowing(path, limit):
        # h is x * 1e6, and 1e38 * 1e6 is beyond float32; y is 0 of both.
        nodes = [
            helper.make_node("Mul", ["x", "big"], ["h"], name="scale"),
            helper.make_node("Mul", ["h", "nothing"], ["z"], name="rest"),
            helper.make_node("Greater", ["z", "big"], ["g"]),
            helper.make_node("Cast", ["g"], ["y"], to=1, name="answer"),
        ]
        return onnx_files.write(
            path,
            nodes,
            onnx_files.values(("x", "float32", ("batch", 4))),
            onnx_files.values(("y", "float32", ("batch", 4))),
            {"big": np.array([limit], np.float32), "nothing": np.zeros(1, np.float32)},
        )

    limits = {"one": 1e6, "other": 1e6, changed: 3e38}
    files = [overflowing(tmp_path / f"{name}.onnx", limits[name]) for name in ("one", "other")]
    np.savez(tmp_path / "x.npz", x=np.full((4, 4), 100, np.float32))
    words = ["--tensors=all", f"--data={tmp_path / 'x.npz'}"]
    assert cli.main(["verify", *files, *words]) == errors.EXIT_CHECK
    assert "first departs: h (Mul scale) with infinities or NaN of its own" in capsys.readouterr().out
    assert cli.main(["verify", files[0], files[0], *words]) == errors.EXIT_DONE, "the same infinities are no difference"
    assert "all tensors are equal bit for bit" in capsys.readouterr().out


def test_tensors_that_an_export_put_into_fp16_are_found(tmp_path, capsys):
    source, half = chain(tmp_path / "one.onnx", second=1e-3), str(tmp_path / "half.onnx")
    assert cli.main(["export", source, f"--output={half}", "--precision=FP16", "--shapes=x:3x4"]) == 0
    assert cli.main(["verify", source, half, "--tensors=all", f"--json={tmp_path / 'said.json'}"]) == 0
    said = json.loads((tmp_path / "said.json").read_text())
    # The bound is that of FP16, and what the export joined is not asked for.
    assert said["arithmetic"] == "FP16" and {"a", "y"} <= {one["tensor"] for one in said["inners"]} and said["passed"]
    assert 40 < min(one["snr_db"] for one in said["inners"] if one["snr_db"] != "inf") < 90, "it was rounded"
    capsys.readouterr()


def test_graphs_of_other_names_and_other_shapes(tmp_path, capsys):
    one = chain(tmp_path / "one.onnx")
    nodes = [helper.make_node("Mul", ["x", "c"], ["inside"]), helper.make_node("Add", ["inside", "c"], ["y"])]
    ends = [onnx_files.values((name, "float32", ("batch", 4))) for name in "xy"]
    other = onnx_files.write(tmp_path / "other.onnx", nodes, *ends, {"c": np.ones(4, np.float32)})
    assert cli.main(["verify", one, other, "--tensors=all"]) == errors.EXIT_USAGE
    assert "the graphs have no inner tensor of the same name" in capsys.readouterr().err
    short = onnx_files.product(tmp_path / "short.onnx")
    whole = onnx_files.write(
        tmp_path / "whole.onnx",
        [helper.make_node("Neg", ["x"], ["z"])],
        *(onnx_files.values((name, "int64", ("batch", 4))) for name in "xz"),
    )
    for first, second, asked in ((whole, short, "all"), (whole, whole, "all"), (short, whole, "y")):
        assert cli.main(["verify", first, second, f"--tensors={asked}"]) == errors.EXIT_USAGE
        assert "the graphs compute no tensor of floats of the same name" in capsys.readouterr().err
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["a"], axis=1),
        helper.make_node("ReduceSum", ["a"], ["s"], keepdims=1),
        helper.make_node("Add", ["s", "c"], ["y"]),
    ]
    wide = onnx_files.write(tmp_path / "wide.onnx", nodes, *ends, {"c": np.ones(4, np.float32)})
    assert cli.main(["verify", one, wide, "--tensors=a", "--shapes=x:3x4"]) == errors.EXIT_CHECK
    assert "first departs: a (Concat) with shape [3, 8] in place of [3, 4]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mine", "theirs", "asked", "shared"),
    [
        (["a", "b"], ["a/fp16", "b"], [], [("a", "a", "a/fp16"), ("b", "b", "b")]),
        (["a/fp16", "b"], ["a", "b"], [], [("a", "a/fp16", "a"), ("b", "b", "b")]),
        (["a/fp16", "b"], ["a/fp16/fp16", "b"], [], [("a/fp16", "a/fp16", "a/fp16/fp16"), ("b", "b", "b")]),
        (["a/fp16", "b"], ["a/fp16", "b"], ["a/fp16"], [("a/fp16", "a/fp16", "a/fp16")]),
        (["a", "b"], ["a/fp16", "b"], ["a/fp16"], [("a", "a", "a/fp16")]),
        (["a", "b"], ["a", "a/fp16", "b"], [], [("a", "a", "a"), ("b", "b", "b")]),
    ],
    ids=str,
)
def test_tensors_of_two_graphs_are_matched_by_names_that_may_end_as_those_in_fp16(
    mine, theirs, asked, shared, tmp_path
):
    for path, names in ((tmp_path / "m.onnx", mine), (tmp_path / "t.onnx", theirs)):
        nodes = [helper.make_node("Relu", [before], [name]) for before, name in itertools.pairwise(["x", *names, "y"])]
        onnx_files.write(path, nodes, *(onnx_files.values((name, "float32", (2,))) for name in "xy"))
    files = (str(tmp_path / "m.onnx"), str(tmp_path / "t.onnx"))
    request = tensor_files.Request(files=files, names=tuple(asked), folder=str(tmp_path), chunk=9)
    (found,) = tensors_job.job(request).chunks
    assert [(one.tensor, one.first, one.second) for one in found.tensors if one.tensor != "y"] == shared


def test_chosen_tensors_and_bounds(tmp_path, tftrt):
    one, other = chain(tmp_path / "one.onnx"), chain(tmp_path / "other.onnx", second=1.5)
    assert tftrt("verify", one, other, "--tensors=a").returncode == 0
    assert tftrt("verify", one, other, "--tensors=all", "--thresholds=snr_db>=1").returncode == 0
    assert_clear(
        tftrt("verify", one, other, "--tensors=a,gone"), 2, "'gone' is no tensor of floats that both graphs compute"
    )
    assert_clear(
        tftrt("verify", one, other, "--tensors=all", "--labels=x.npy"), 2, "--labels has no effect with --tensors"
    )
    assert_clear(tftrt("verify", one, other, "--tensors=all", "--plot=x.gif"), 2, "--plot=x.gif is of no known kind")
    assert_clear(tftrt("verify", one, other, "--plot=x.png"), 2, "--plot draws inner tensors, and --tensors names none")


@pytest.mark.parametrize(
    ("levels", "marked", "drawn"),
    [
        ([math.inf, 70, 50, -math.inf], "first departs: t3", 4),
        ([math.inf, 70, 35], "farthest: t2", 3),
        ([math.inf], "farthest: t0", 1),
        ([31 - 0.1 * number for number in range(60)], "first departs: t11", 60),
    ],
)
def test_the_plot_of_inner_tensors_marks_one_by_name(levels, marked, drawn):
    inners = tuple(Inner(f"t{number}", f"Add n{number}", float(level)) for number, level in enumerate(levels))
    done = Tensors(
        original="/a.onnx",
        converted="/b",
        runtimes={},
        bound=30.0,
        arithmetic="FP16",
        inners=inners,
        computed=len(inners),
        calls=1,
        chunks=1,
    )
    text = tensors_plot.line(done).decode()
    assert marked in text and f"n{marked.rsplit('t', 1)[1]}, " in text
    # Few tensors have their names below the axis.
    assert (f">t{drawn - 1}<" in text) == (drawn < 41) and (f"the {drawn} tensors" in text) == (drawn > 40)
    assert (">departs<" in text) == ("departs" in marked)
    assert tensors_plot.line(done, "png").startswith(b"\x89PNG")


def test_only_graphs_have_inner_tensors(tmp_path, zoo_model, tftrt):
    one = chain(tmp_path / "one.onnx")
    assert_clear(tftrt("verify", zoo_model("digits_cnn"), one, "--tensors=all"), 2, "the models are of two kinds")
    assert_clear(tftrt("verify", one, zoo_model("digits_cnn"), "--tensors=all"), 2, "two kinds")


# The network and the configuration --------------------------------------------------------------------------------------------------------


class Release:
    """The names of a release of TensorRT that `differences` asks for."""

    def __init__(self, version, builder_flags, network_flags):
        self.__version__ = version
        self.BuilderFlag = type("BuilderFlag", (), {"__members__": {name: name for name in builder_flags}})
        self.NetworkDefinitionCreationFlag = type("Flags", (), {"__members__": network_flags})


OLD = Release("8.5.3.1", ("FP16", "INT8", "REFIT"), {"EXPLICIT_BATCH": 0, "EXPLICIT_PRECISION": 1})
MIDDLE = Release("10.1.0", ("FP16", "INT8", "REFIT", "VERSION_COMPATIBLE"), {"EXPLICIT_BATCH": 0, "STRONGLY_TYPED": 1})
NEW = Release("11.4.0", ("REFIT", "VERSION_COMPATIBLE"), {"STRONGLY_TYPED": 0})


@pytest.mark.parametrize(
    ("release", "typed", "flags"),
    [(OLD, False, 1), (MIDDLE, False, 1), (MIDDLE, True, 3), (NEW, False, 0), (NEW, True, 0)],
)
def test_the_flags_of_a_network_in_each_release(release, typed, flags):
    assert differences.network_flags(release, typed) == flags


def test_what_a_release_lacks_is_one_line():
    with pytest.raises(errors.TftrtError, match="--strongly_typed: TensorRT 8.5.3.1 has no such flag"):
        differences.network_flags(OLD, True)
    with pytest.raises(errors.TftrtError, match="--version_compatible: TensorRT 8.5.3.1 has no such flag") as raised:
        differences.flag(OLD, "version_compatible")
    assert "8.6" in raised.value.mend
    assert differences.flag(NEW, "version_compatible") == "VERSION_COMPATIBLE" and not differences.weakly_typed(NEW)


def test_the_installed_release_has_the_names_that_are_used():
    trt = pytest.importorskip("tensorrt")
    assert differences.network_flags(trt, False) == 1 and differences.weakly_typed(trt)
    for name in ("FP16", "INT8", "TF32", "SPARSE_WEIGHTS", "REFIT"):
        assert differences.flag(trt, "any", name) is trt.BuilderFlag.__members__[name]
    assert set(settings.TACTIC_SOURCES) == set(trt.TacticSource.__members__)
    for kind, names in (
        (
            trt.IBuilderConfig,
            (
                "set_memory_pool_limit",
                "set_tactic_sources",
                "create_timing_cache",
                "set_timing_cache",
                "profiling_verbosity",
                "add_optimization_profile",
            ),
        ),
        (trt.ITensor, ("get_dimension_name", "set_dimension_name")),
        (trt.OnnxParser, ("parse_from_file", "get_error", "num_errors")),
        (trt.Builder, ("build_serialized_network",)),
        (
            trt.ICudaEngine,
            (
                "num_io_tensors",
                "get_tensor_name",
                "get_tensor_mode",
                "get_tensor_dtype",
                "get_tensor_shape",
                "num_optimization_profiles",
                "create_engine_inspector",
                "create_execution_context",
            ),
        ),
        (
            trt.IExecutionContext,
            (
                "set_input_shape",
                "set_tensor_address",
                "infer_shapes",
                "get_tensor_shape",
                "set_output_allocator",
                "execute_async_v3",
                "set_optimization_profile_async",
                "active_optimization_profile",
            ),
        ),
        (trt.IOutputAllocator, ("reallocate_output", "notify_shape")),
    ):
        assert [name for name in names if not hasattr(kind, name)] == []


class Graph:
    """A network of tensors, as `set_ranges` walks it."""

    def __init__(self, *names):
        self.tensors = [Named(name) for name in names]
        self.num_inputs, self.num_layers = 1, len(names) - 1

    def get_input(self, index):
        return self.tensors[index]

    def get_layer(self, index):
        return type("Layer", (), {"num_outputs": 1, "get_output": lambda _, number: self.tensors[index + 1]})()


class Named:
    def __init__(self, name):
        self.name, self.range = name, None

    def set_dynamic_range(self, low, high):
        self.range = (low, high)


def test_ranges_go_to_the_tensors_of_their_names():
    graph = Graph("x", "a", "b", "y")
    assert network.set_ranges(graph, {"x": 1.0, "b": 2.5, "gone": 3.0}) == 2
    assert [one.range for one in graph.tensors] == [(-1.0, 1.0), None, (-2.5, 2.5), None]


def test_ranges_of_another_graph_are_refused():
    with pytest.raises(
        errors.TftrtError,
        match="the calibration is of another graph: 2 of its 3 tensors are not in this one, such as 'p'",
    ):
        network.set_ranges(Graph("x", "y"), {"x": 1.0, "p": 2.0, "q": 3.0})


def test_the_quantized_file_of_the_tests_is_near_the_product(tmp_path):
    """What the GPU's test of INT8 takes is a graph that ONNX Runtime runs, too."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        onnx_files.quantized(tmp_path / "q.onnx"), providers=["CPUExecutionProvider"]
    )
    x = np.random.default_rng(1).uniform(-4, 4, (8, 64)).astype(np.float32)
    found = session.run(None, {"x": x})[0]
    weights = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    assert np.corrcoef(found.ravel(), (x @ weights).ravel())[0, 1] > 0.999


def test_help_of_convert_tells_of_plans(capsys):
    assert cli.main(["convert", "--help"]) == 0
    assert "--backend" in capsys.readouterr().out
