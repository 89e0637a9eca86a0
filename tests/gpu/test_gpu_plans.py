"""Plans on a GPU: built, verified, guarded, called from several threads, captured as CUDA graphs. `make gpu-test`."""

import json
import shutil

import numpy as np
import pytest

from tests import onnx_files, stacks
from tests.command_line import assert_clear
from tests.conftest import run_tftrt
from tests.gpu_commands import report, verify
from tftrt_tools.base.process import child
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.kinds.plan import kind as plan_kind
from tftrt_tools.models.savedmodel import passport

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(380), stacks.needs_bindings]
SHAPES = "--shapes=image:1x8x8x1|image:min=2x8x8x1,opt=8x8x8x1,max=32x8x8x1"
GRAPH = {"TFTRT_PLAN_CUDA_GRAPH": "1"}


def build(source, target, *flags, cache=None):
    """Returns: the manifest."""
    where = [f"--engine_cache_dir={cache}"] if cache else ["--noengine_cache"]
    done = run_tftrt(
        "convert", "--backend=tensorrt", f"--model={source}", f"--output={target}", *flags, *where, timeout=370
    )
    assert done.returncode == 0, done.stderr
    return passport.read(target, passport.MANIFEST)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def plan(zoo_model, tmp_path_factory, cache):
    """digits_cnn in FP16: batch 1, and 2 to 32."""
    path = tmp_path_factory.mktemp("plan") / "digits"
    build(zoo_model("digits_cnn"), path, "--precision=FP16", SHAPES, cache=cache)
    return path


@pytest.fixture(scope="module")
def chooser(tmp_path_factory):
    """(ONNX file, plan) whose outputs have shapes that depend on values."""
    folder = tmp_path_factory.mktemp("chooser")
    source = onnx_files.chosen(folder / "chosen.onnx")
    build(source, folder / "plan", "--shapes=x:min=1,opt=16,max=64")
    return source, folder / "plan"


def answers(plan, folder, *calls, env=None):
    """[{output: array}] of calls, {input: array} each, in one process."""
    saved = run.save_calls([run.Call("serving_default", one) for one in calls], folder / "in")
    done = run.run(plan_kind.at(str(plan)), saved, folder / "out", "the plan", trace=True, env=env)
    assert done.where.runtime == "TensorRT" and done.gpu
    assert all(one.engine == {"plan": 1} and not one.fallback for one in done.traces)
    return [done.answer(index) for index in range(len(calls))]


def images(*batches):
    return [{"image": np.random.default_rng(batch).random((batch, 8, 8, 1)).astype(np.float32)} for batch in batches]


def test_a_plan_directory_is_whole(plan):
    assert {"model.plan", "model.onnx", "plan.json", "assets.extra"} == {path.name for path in plan.iterdir()}
    said = document.read(plan)
    assert said.tensorrt == "8.5.3.1" and said.precision == "FP16" and "FP16" in said.builder_flags and not said.plugins
    assert [one.text() for one in said.profiles] == ["image 1x8x8x1", "image 2x8x8x1 to 32x8x8x1"]
    assert said.profiles[1].opt == {"image": (8, 8, 8, 1)}
    layers = passport.read(plan, document.LAYER_INFORMATION)
    assert layers["Layers"] and all("LayerType" in one for one in layers["Layers"])
    assert (plan / "assets.extra/tftrt" / document.TIMING_CACHE).stat().st_size > 0
    manifest = passport.read(plan, passport.MANIFEST)
    assert manifest["gpu"]["name"] == said.gpu and manifest["signatures"][0]["calls"] == [
        {"image": [1, 8, 8, 1]},
        {"image": [8, 8, 8, 1]},
    ]
    assert "--backend=tensorrt" in (plan / "assets.extra/tftrt/convert.flags").read_text()


def test_a_second_build_begins_with_the_times_of_the_first_and_a_third_one_comes_from_the_cache(
    plan, zoo_model, tmp_path, cache
):
    first = passport.read(plan, passport.MANIFEST)
    # The plans go, TensorRT's times stay.
    assert run_tftrt("cache", "clear", f"--engine_cache_dir={cache}", "--engine_cache_max_bytes=0").returncode == 0
    second, third = (
        build(zoo_model("digits_cnn"), tmp_path / name, "--precision=FP16", SHAPES, cache=cache)
        for name in ("again", "third")
    )
    assert first["known_timings"] == 0 and not first["cached"] and second["known_timings"] > 0 and not second["cached"]
    assert third["cached"] and third["build_seconds"] == second["build_seconds"] and third["known_timings"] == 0
    plans = [tmp_path / name / document.PLAN for name in ("again", "third")]
    assert (
        plans[0].read_bytes() == plans[1].read_bytes()
        and document.read(tmp_path / "third").digest == document.read(tmp_path / "again").digest
    )
    assert passport.read(tmp_path / "third", document.LAYER_INFORMATION) == passport.read(
        tmp_path / "again", document.LAYER_INFORMATION
    )
    code, said, stderr = verify(tmp_path / "third/model.onnx", tmp_path / "third", "--shapes=image:1x8x8x1,5x8x8x1")
    assert code == 0 and said["passed"], stderr
    report(
        test="plan, engine cache",
        model="digits_cnn, two profiles",
        first_s=first["build_seconds"],
        second_s=second["build_seconds"],
        third_whole_s=third["seconds"],
        passed=True,
    )


def test_a_plan_that_is_not_ready_in_time_is_not_written_and_one_of_the_cache_is(plan, zoo_model, tmp_path, cache):
    bound = "--max_build_minutes=0.0001"
    source, target = zoo_model("digits_cnn"), tmp_path / "none"
    words = (f"--model={source}", f"--output={target}", "--precision=FP16", SHAPES, bound, "--noengine_cache")
    done = run_tftrt("convert", "--backend=tensorrt", *words, timeout=370)
    assert_clear(done, 1, "the plan was not ready when --max_build_minutes=0.0001 were over")
    assert not target.exists()
    taken = build(source, tmp_path / "taken", "--precision=FP16", SHAPES, bound, cache=cache)
    assert taken["cached"] and (tmp_path / "taken" / document.PLAN).read_bytes() == (plan / document.PLAN).read_bytes()


def test_a_plan_answers_like_the_model_and_like_its_onnx_file(plan, zoo_model):
    code, said, stderr = verify(zoo_model("digits_cnn"), plan)
    assert code == 0 and said["passed"], stderr
    assert said["evidence"].startswith("engines watched on ") and said["arithmetic"] == "FP16" and said["mode"] == "gpu"
    assert said["engine_runs"] == {"plan": said["calls"]}
    assert passport.read(plan, passport.VERIFY)["passed"]
    code, said, stderr = verify(plan / "model.onnx", plan, "--shapes=image:1x8x8x1,5x8x8x1,32x8x8x1")
    assert code == 0 and said["passed"] and said["runtimes"]["original"].startswith("ONNX Runtime"), stderr


def test_a_shape_outside_all_profiles_is_refused_and_the_nearest_is_named(plan, zoo_model):
    done = run_tftrt("verify", zoo_model("digits_cnn"), plan, "--shapes=image:33x8x8x1")
    assert_clear(done, 1, "the plan has no profile for image 33x8x8x1; the nearest is image 2x8x8x1 to 32x8x8x1")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("tensorrt", "8.6.1.6", "was built by TensorRT 8.6.1.6, and here it is 8.5.3.1"),
        ("compute_capability", "5.2", "was built for compute capability 5.2"),
    ],
)
def test_a_plan_from_elsewhere_is_not_loaded(plan, tmp_path, field, value, says):
    copy = shutil.copytree(plan, tmp_path / "copy")
    text = json.loads((copy / "plan.json").read_text())
    (copy / "plan.json").write_text(json.dumps({**text, field: value}))
    assert_clear(run_tftrt("verify", copy / "model.onnx", copy), 1, says)


def test_a_plan_whose_plugins_are_gone_or_others_is_not_loaded(plan, tmp_path):
    copy = shutil.copytree(plan, tmp_path / "copy")
    text = json.loads((copy / "plan.json").read_text())
    wanted = [{"file": "plugins/own.so", "digest": "sha256:0", "creators": ["Own 1"]}]
    (copy / "plan.json").write_text(json.dumps({**text, "plugins": wanted}))
    assert_clear(
        run_tftrt("verify", copy / "model.onnx", copy), 1, "needs the plugins of plugins/own.so, which is not there"
    )
    (copy / "plugins").mkdir()
    (copy / "plugins/own.so").write_bytes(b"another")
    assert_clear(run_tftrt("verify", copy / "model.onnx", copy), 1, "is not the library that the plan was built with")


def test_a_cut_plan_is_not_loaded(plan, tmp_path):
    copy = shutil.copytree(plan, tmp_path / "copy")
    raw = (copy / "model.plan").read_bytes()
    (copy / "model.plan").write_bytes(raw[: len(raw) // 2])
    assert_clear(run_tftrt("verify", copy / "model.onnx", copy), 1, "is truncated or another one")


def test_a_cuda_graph_answers_as_plain_calls_do(plan, tmp_path):
    calls = images(1, 8, 1, 3, 32, 8)
    plain = answers(plan, tmp_path / "plain", *calls)
    graphs = answers(plan, tmp_path / "graph", *calls, env=GRAPH)
    for one, other in zip(plain, graphs, strict=True):
        assert np.array_equal(one["probabilities"], other["probabilities"])


@pytest.mark.parametrize("graph", [False, True])
def test_calls_at_a_time_have_contexts_of_their_own_and_answer_right(plan, graph):
    done = child.run(
        "tests.plan_jobs:at_once",
        {
            "plan": str(plan),
            "input": "image",
            "shapes": [[1, 8, 8, 1], [8, 8, 8, 1], [32, 8, 8, 1]],
            "threads": 4,
            "calls": 60,
            "graph": graph,
        },
    ).result
    assert not done["failed"] and not done["wrong"]
    assert done["contexts"] >= 2 and (done["captured"] >= 3) == graph
    report(
        test="plan, calls at a time",
        model="digits_cnn",
        graph=graph,
        contexts=done["contexts"],
        captured=done["captured"],
        passed=True,
    )


def test_outputs_whose_shapes_depend_on_values(chooser, tmp_path):
    source, plan = chooser
    said = document.read(plan)
    assert [(one.dtype, one.engine_dtype) for one in said.outputs] == [("int64", "int32"), ("float32", "float32")]
    rows = [np.array(one, np.float32) for one in ([1, -1, 2], [-1, -2], [3, 4, 5, 6, 0, 7], np.arange(64))]
    for env in (None, GRAPH):
        for row, found in zip(
            rows, answers(plan, tmp_path / str(bool(env)), *({"x": row} for row in rows), env=env), strict=True
        ):
            assert found["places"].dtype == np.int64 and found["places"].tolist() == [np.flatnonzero(row > 0).tolist()]
            assert np.array_equal(found["values"], row[row > 0])
    code, checked, stderr = verify(source, plan, "--shapes=x:5,64")
    assert code == 0 and checked["passed"], stderr


def test_int8_takes_the_scales_of_the_graph(tmp_path):
    source = onnx_files.quantized(tmp_path / "quantized.onnx")
    build(source, tmp_path / "plan", "--precision=INT8", "--shapes=x:64x64")
    code, said, stderr = verify(source, tmp_path / "plan", "--shapes=x:64x64")
    assert code == 0 and said["arithmetic"] == "INT8", stderr
    layers = passport.read(tmp_path / "plan", document.LAYER_INFORMATION)
    assert "Int8" in json.dumps(layers)


def test_inner_tensors_are_compared(plan, tmp_path):
    done = run_tftrt(
        "verify",
        plan / "model.onnx",
        plan,
        "--tensors=all",
        "--shapes=image:8x8x8x1",
        f"--json={tmp_path / 'tensors.json'}",
        timeout=370,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said = json.loads((tmp_path / "tensors.json").read_text())
    assert len(said["inners"]) > 5 and said["runtimes"]["converted"].startswith("TensorRT 8.5.3")
    assert any(one["snr_db"] != "inf" for one in said["inners"])


def test_a_plan_is_benched_and_compared_in_process(plan, zoo_model, tmp_path):
    done = run_tftrt(
        "bench",
        f"--in_process={plan}",
        f"--original={zoo_model('digits_cnn')}",
        "--duration_seconds=1",
        "--concurrency=1,2",
        f"--json={tmp_path / 'bench.json'}",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "bench.json").read_text())["rows"]
    done = run_tftrt(
        "regress",
        "--in_process",
        f"--native={zoo_model('digits_cnn')}",
        f"--candidate={plan}",
        "--rounds=12",
        "--max_rounds=12",
        "--allow_worse",
        f"--json={tmp_path / 'regress.json'}",
    )
    assert done.returncode in (0, 3, 4) and (tmp_path / "regress.json").is_file(), done.stderr
    assert json.loads((tmp_path / "regress.json").read_text())["answers"], done.stderr


def test_what_the_parser_refuses_is_named_and_nothing_is_written(tmp_path):
    from onnx import helper

    source = onnx_files.write(
        tmp_path / "odd.onnx",
        [helper.make_node("Mish", ["x"], ["y"], name="the_odd_one")],
        onnx_files.values(("x", "float32", (2, 4))),
        onnx_files.values(("y", "float32", (2, 4))),
        opset=18,
    )
    done = run_tftrt("convert", "--backend=tensorrt", f"--model={source}", f"--output={tmp_path / 'plan'}")
    assert_clear(done, 1, "the_odd_one")
    assert not (tmp_path / "plan").exists()


def test_a_plan_is_built_anew_for_this_machine_and_with_other_shapes(plan, zoo_model, tmp_path, cache):
    copy = shutil.copytree(plan, tmp_path / "copy")
    said = json.loads((copy / "plan.json").read_text())
    (copy / "plan.json").write_text(json.dumps({**said, "tensorrt": "8.6.1.6", "compute_capability": "5.2"}))
    (copy / "model.plan").write_bytes(b"of another machine")
    done = run_tftrt("build", copy, f"--engine_cache_dir={cache}", timeout=370)
    assert done.returncode == 0 and "next: tftrt verify" in done.stdout, done.stderr
    manifest = passport.read(copy, passport.MANIFEST)
    assert document.read(copy).profiles == document.read(plan).profiles and manifest["before"] and manifest["cached"]
    assert verify(zoo_model("digits_cnn"), copy)[1]["passed"]
    done = run_tftrt(
        "build",
        copy,
        "--shapes=image:4x8x8x1",
        f"--output={tmp_path / 'four'}",
        f"--engine_cache_dir={cache}",
        timeout=370,
    )
    assert done.returncode == 0 and [one.text() for one in document.read(tmp_path / "four").profiles] == [
        "image 4x8x8x1"
    ], done.stderr
    four = passport.read(tmp_path / "four", passport.MANIFEST)
    assert (
        four["known_timings"] > 0
        and not four["cached"]
        and verify(zoo_model("digits_cnn"), tmp_path / "four")[1]["passed"]
    )
