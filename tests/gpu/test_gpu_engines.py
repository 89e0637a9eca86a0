"""Engines on a GPU: completed, cached, stripped, guarded. `make gpu-test`."""

import concurrent.futures
import json
import re
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

from tests import keras_layers, stacks
from tests import signature_models as models
from tests.command_line import assert_clear
from tests.conftest import run_tftrt
from tests.engine_models import Characters, Steps, saved
from tests.gpu_commands import EXACT, NO_GPU, build, convert, engines_of, report, verify
from tests.saved_inputs import saved_inputs
from tftrt_tools.models.savedmodel import engine_assets, passport

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]


@pytest.fixture(scope="module")
def portable(zoo_model, tmp_path_factory):
    """digits_cnn in FP16, converted where no GPU is seen, with dynamic shapes."""
    path = tmp_path_factory.mktemp("portable") / "model"
    convert(zoo_model("digits_cnn"), path, "--precision=FP16", "--use_dynamic_shape", env=NO_GPU)
    return path


def engines_unbuilt(path):
    """The manifest's entries of engine ops without an engine."""
    return [one for signature in passport.read(path, passport.MANIFEST)["signatures"] for one in signature["unbuilt"]]


def answers(model, data, folder):
    """The model's answers to an .npz of images, as one array."""
    from tftrt_tools.models.execution import run
    from tftrt_tools.models.kinds.savedmodel import kind as saved_model

    with np.load(data) as arrays:
        call = run.Call("serving_default", {name.rsplit("/")[-1]: arrays[name] for name in arrays.files})
    done = run.run(
        saved_model.at(model), run.save_calls([call], folder / "in"), folder / "out", "the model", trace=True
    )
    assert not done.traces[0].build and not done.traces[0].fallback
    return next(iter(done.answer(0).values()))


def test_a_model_from_another_machine_is_completed_and_its_engines_are_reused(portable, zoo_model, tmp_path):
    data = saved_inputs(tmp_path / "data.npz", "digits_cnn", batch=8)
    start = time.monotonic()
    first = build(portable, EXACT, f"--output={tmp_path / 'one'}", cache=tmp_path / "cache")
    middle = time.monotonic()
    second = build(portable, EXACT, f"--output={tmp_path / 'two'}", cache=tmp_path / "cache")
    end = time.monotonic()
    assert not any(one["cached"] for one in engines_of(first)) and all(one["cached"] for one in engines_of(second))
    assert all(one["seconds"] > 0 and one["peak_memory_bytes"] > 0 for one in engines_of(first))
    said = passport.read(tmp_path / "one", passport.MANIFEST)
    assert said["gpu"]["driver"] and said["gpu"]["compute_capability"]
    assert said["versions"]["tensorrt"] in stacks.here().loaded
    assert [list(one["shapes"].values()) for one in said["shapes_served"]] == [[[1, 8, 8, 1]], [[8, 8, 8, 1]]]
    assert np.array_equal(
        answers(tmp_path / "one", data, tmp_path / "a"), answers(tmp_path / "two", data, tmp_path / "b")
    )
    assert verify(zoo_model("digits_cnn"), tmp_path / "two")[0] == 0
    report(
        test="engine cache",
        model="digits_cnn, two shapes, built",
        seconds=middle - start,
        engine_seconds=engines_of(first)[0]["seconds"],
        peak_memory_mb=engines_of(first)[0]["peak_memory_bytes"] / 1e6,
        passed=True,
    )
    report(test="engine cache", model="digits_cnn, two shapes, from the cache", seconds=end - middle, passed=True)


def test_a_conversion_takes_the_engine_that_a_build_made(portable, zoo_model, tmp_path):
    build(portable, EXACT, f"--output={tmp_path / 'one'}", cache=tmp_path / "cache")
    said = convert(
        zoo_model("digits_cnn"), tmp_path / "two", "--precision=FP16", EXACT, f"--engine_cache_dir={tmp_path / 'cache'}"
    )
    assert all(one["cached"] for one in engines_of(said))
    assert verify(zoo_model("digits_cnn"), tmp_path / "two")[0] == 0


def test_a_corrupt_entry_is_built_again(portable, zoo_model, tmp_path):
    build(portable, EXACT, f"--output={tmp_path / 'one'}", cache=tmp_path / "cache")
    (engine,) = (tmp_path / "cache").glob("*/engine")
    raw = bytearray(engine.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    engine.write_bytes(raw)
    again = build(portable, EXACT, f"--output={tmp_path / 'two'}", cache=tmp_path / "cache")
    assert not any(one["cached"] for one in engines_of(again))
    assert verify(zoo_model("digits_cnn"), tmp_path / "two")[0] == 0


def test_of_two_processes_one_builds(portable, tmp_path):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        said = list(
            pool.map(
                lambda name: build(
                    portable, "--shapes=image:2x8x8x1", f"--output={tmp_path / name}", cache=tmp_path / "cache"
                ),
                ("one", "two"),
            )
        )
    assert sorted(one["cached"] for each in said for one in engines_of(each)) == [False, True]


def test_a_range_serves_every_shape_in_it_and_no_other(portable, zoo_model, tmp_path):
    said = build(portable, "--shapes=image:min=1x8x8x1,opt=8x8x8x1,max=16x8x8x1", f"--output={tmp_path / 'out'}")
    assert said["dynamic_shape_profile_strategy"] == "Range+Optimal"
    assert verify(zoo_model("digits_cnn"), tmp_path / "out", "--shapes=image:1x8x8x1,3x8x8x1,8x8x8x1,16x8x8x1")[0] == 0
    code, result, _ = verify(zoo_model("digits_cnn"), tmp_path / "out", "--shapes=image:17x8x8x1")
    assert code == 3 and "ran natively" in result["engine_problems"][0]


def test_in_implicit_batch_mode_a_range_of_batches_needs_two_engines(zoo_model, tmp_path):
    convert(zoo_model("digits_cnn"), tmp_path / "model", "--precision=FP16", env=NO_GPU)
    said = build(tmp_path / "model", "--shapes=image:min=1x8x8x1,opt=4x8x8x1,max=16x8x8x1")
    assert sorted(one["shapes"][0][0] for one in engines_of(said)) == [4, 16]
    assert (
        verify(zoo_model("digits_cnn"), tmp_path / "model", "--shapes=image:1x8x8x1,4x8x8x1,9x8x8x1,16x8x8x1")[0] == 0
    )


def test_all_signatures_are_completed(zoo_model, tmp_path):
    convert(zoo_model("ranker"), tmp_path / "model", "--precision=FP16", env=NO_GPU)
    said = build(tmp_path / "model", "--shapes=user:8;user_features:8x8;visits:8x4;item:8;price_cents:8")
    assert all(signature["built"] for signature in said["signatures"]) and len(said["shapes_served"]) == 3
    code, result, error = verify(zoo_model("ranker"), tmp_path / "model")
    assert code == 0, (result or {}).get("problems", error)


def test_foreign_engines_are_refused_before_loading_and_can_be_replaced(portable, zoo_model, tmp_path):
    """An engine says in its head for which GPU it is; here another is written there, as an engine of that GPU would have it."""
    build(portable, EXACT, f"--output={tmp_path / 'model'}")
    (asset,) = (tmp_path / "model" / "assets").glob(engine_assets.PREFIX + "*")
    (before,) = engine_assets.read_file(asset)
    manifest = passport.read(tmp_path / "model", passport.MANIFEST)
    assert before.tensorrt in stacks.here().heads
    assert engine_assets.same_release(before.tensorrt, manifest["versions"]["tensorrt"])
    assert before.compute_capability == manifest["gpu"]["compute_capability"]
    plan = next(serialized for _, serialized in engine_assets.plans(asset))
    raw = bytearray(asset.read_bytes())
    raw[raw.index(plan) + engine_assets._HEAD.match(plan).start(5)] = 7
    asset.write_bytes(raw)
    (passport.folder(tmp_path / "model") / passport.MANIFEST).unlink()
    assert_clear(run_tftrt("verify", zoo_model("digits_cnn"), tmp_path / "model"), 1, "compute capability 7.0")
    build(tmp_path / "model", EXACT)
    assert verify(zoo_model("digits_cnn"), tmp_path / "model")[0] == 0


def test_an_engine_that_no_gpu_builds_is_named_with_the_reason_and_its_mend_builds(tmp_path):
    source = keras_layers.build("conv1d", tmp_path / "source")
    flags = (
        f"--model={source}",
        f"--output={tmp_path / 'out'}",
        f"--shapes={keras_layers.INPUT}:4x24x16",
        "--keep_native_ops=FusedBatchNormV3",
        "--noengine_cache",
        "--noleave_refused_nodes",
    )
    done = run_tftrt("convert", *flags, timeout=550)
    assert (
        done.returncode == 3 and "it did not build: INVALID_ARGUMENT: Channel dimension must be static" in done.stdout
    ), done.stderr
    assert [one["refused"] for one in engines_unbuilt(tmp_path / "out")] == [True]
    pattern = re.search(r"--keep_native_nodes='(.+)'", done.stdout)[1]
    done = run_tftrt("convert", *flags, "--overwrite", f"--keep_native_nodes={pattern}", timeout=550)
    assert done.returncode == 0, done.stderr
    np.savez(tmp_path / "data.npz", **keras_layers.inputs("conv1d", 4))
    code, said, error = verify(source, tmp_path / "out", f"--data={tmp_path / 'data.npz'}", "--batch_size=4")
    report(
        test="open channels",
        model="conv1d",
        engine_runs=said and said["engine_runs"],
        problems=said and said["problems"],
        passed=code == 0,
    )
    assert code == 0 and said["engine_runs"] and not said["builds"], error


def test_the_layers_of_an_engine_say_in_what_they_compute(portable, tmp_path):
    """Two profiles: the log lists the layers of both."""
    done = build(portable, EXACT, f"--output={tmp_path / 'model'}", "--layer_precisions")
    (layers,) = passport.read(tmp_path / "model", passport.MANIFEST)["layers"].values()
    report(
        test="layers",
        model="digits_cnn, two profiles",
        layers=[(one["node"], one["precision"]) for one in layers if one["multiplies"]],
        passed=True,
    )
    assert {one["precision"] for one in layers} <= {"FP16", "FP32"}
    for profile in (0, 1):
        assert sum(one["multiplies"] for one in layers if one["profile"] == profile) == 4
    assert all(not engine["cached"] for signature in done["signatures"] for engine in signature["built"])


def test_a_stripped_model_builds_on_its_first_request(portable, zoo_model, tmp_path):
    build(portable, EXACT, f"--output={tmp_path / 'model'}")
    build(tmp_path / "model", "--strip")
    assert not list((tmp_path / "model" / "assets").glob(engine_assets.PREFIX + "*"))
    code, result, error = verify(
        zoo_model("digits_cnn"), tmp_path / "model", "--shapes=image:8x8x8x1", "--allow_builds"
    )
    assert code == 0, (result or {}).get("problems", error)
    assert sum(result["builds"].values()) == 1


def test_a_cache_that_cannot_be_used_does_not_stop_a_build(portable, tmp_path):
    (tmp_path / "file").write_text("")
    done = run_tftrt(
        "build",
        portable,
        "--shapes=image:1x8x8x1",
        f"--output={tmp_path / 'out'}",
        "--json=-",
        env={"XDG_CACHE_HOME": str(tmp_path / "file")},
        timeout=550,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cache_problem"]


@pytest.mark.gpu_alone
def test_too_little_gpu_memory_is_a_clear_error_and_leaves_the_model_as_it_was(zoo_model, portable, tmp_path):
    shutil.copytree(portable, tmp_path / "model")
    before = sorted((path.relative_to(tmp_path), path.stat().st_size) for path in (tmp_path / "model").rglob("*"))
    with GpuMemoryTaken(leave_mb=300):
        done = run_tftrt("build", tmp_path / "model", "--shapes=image:65536x8x8x1", "--noengine_cache", timeout=550)
    report(
        test="bad input",
        model="too little GPU memory",
        code=done.returncode,
        says=done.stderr.strip().splitlines()[0][:200],
        passed=True,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr and done.stderr.startswith("tftrt: error:"), (
        done.stderr
    )
    assert (
        sorted((path.relative_to(tmp_path), path.stat().st_size) for path in (tmp_path / "model").rglob("*")) == before
    )


def steps(folder):
    """A model of three engines, each with weights of its own, and rows for it."""
    model = saved(Steps(), folder / "source")
    np.savez(folder / "data.npz", x=np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32))
    return model, f"--data={folder / 'data.npz'}"


def entries(cache):
    return sorted(path for path in cache.iterdir() if len(path.name) == 64)


def test_what_is_not_ready_in_time_stays_native_and_is_built_later(tmp_path):
    model, data = steps(tmp_path)
    cache, shapes = f"--engine_cache_dir={tmp_path / 'cache'}", "--shapes=x:8x8"
    none = run_tftrt(
        "convert",
        f"--model={model}",
        f"--output={tmp_path / 'none'}",
        shapes,
        cache,
        "--max_build_minutes=0.0001",
        timeout=550,
    )
    assert_clear(none, 3, "none of the 3 engines was ready within --max_build_minutes=0.0001")
    assert not (tmp_path / "none").exists()
    convert(model, tmp_path / "whole", "--precision=FP16", shapes, cache)
    shutil.rmtree(entries(tmp_path / "cache")[0])
    said = convert(model, tmp_path / "part", "--precision=FP16", shapes, cache, "--max_build_minutes=0.0001")
    (signature,) = said["signatures"]
    (left,) = signature["unbuilt"]
    assert [one["cached"] for one in signature["built"]] == [True, True]
    code, result, error = verify(model, tmp_path / "part", data, "--batch_size=8")
    report(
        test="bounded build", model="three engines", left=left, problems=result and result["problems"], passed=code == 0
    )
    assert code == 0 and any(left["name"] in text for text in result["warnings"]), error
    assert left["name"] not in result["engine_runs"] and not result["builds"]
    again = build(tmp_path / "part", shapes, cache=tmp_path / "cache")
    assert not again["signatures"][0]["unbuilt"] and sum(one["cached"] for one in engines_of(again)) == 2
    assert verify(model, tmp_path / "part", data, "--batch_size=8")[0] == 0


def test_the_second_process_knows_what_the_first_timed(portable, zoo_model, tmp_path):
    """The engines are taken away, the timing cache stays. Its effect on the time is the benchmark's business."""
    build(portable, EXACT, f"--output={tmp_path / 'one'}", cache=tmp_path / "cache")
    (timings,) = (tmp_path / "cache" / ".timings").iterdir()
    before = timings.read_bytes()
    for entry in entries(tmp_path / "cache"):
        shutil.rmtree(entry)
    start = time.monotonic()
    again = build(portable, EXACT, f"--output={tmp_path / 'two'}", cache=tmp_path / "cache")
    report(
        test="timing cache",
        model="digits_cnn, two shapes",
        megabytes=len(before) / 1e6,
        seconds=time.monotonic() - start,
        engine_seconds=engines_of(again)[0]["seconds"],
        passed=True,
    )
    assert not any(one["cached"] for one in engines_of(again)) and len(timings.read_bytes()) >= len(before) > 0
    assert verify(zoo_model("digits_cnn"), tmp_path / "two")[0] == 0


def test_two_processes_with_caches_of_their_own_take_turns_and_both_build(portable, zoo_model, tmp_path):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        said = list(
            pool.map(
                lambda name: build(portable, EXACT, f"--output={tmp_path / name}", cache=tmp_path / f"cache {name}"),
                ("one", "two"),
            )
        )
    assert not any(one["cached"] for each in said for one in engines_of(each))
    assert all(verify(zoo_model("digits_cnn"), tmp_path / name)[0] == 0 for name in ("one", "two"))


def test_engines_inside_loops_are_built_and_found_again(tmp_path):
    """With dynamic shapes; in implicit batch mode TF-TRT takes nothing of such loops."""
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Input((12, 8), name="x"), layers.LSTM(16, return_sequences=True), layers.GRU(8), layers.Dense(4)]
    )
    tf.saved_model.save(model, str(tmp_path / "source"))
    flags = [
        "--precision=FP16",
        f"--shapes={keras_layers.INPUT}:2x12x8,4x12x8",
        f"--engine_cache_dir={tmp_path / 'cache'}",
    ]
    first = convert(tmp_path / "source", tmp_path / "one", *flags)
    assert engines_of(first) and not any(signature["unbuilt"] for signature in first["signatures"])
    second = convert(tmp_path / "source", tmp_path / "two", *flags)
    assert all(one["cached"] for one in engines_of(second))
    assert verify(tmp_path / "source", tmp_path / "two")[0] == 0


def test_an_input_that_nothing_reads_is_no_matter(tmp_path):
    said = convert(
        models.with_unread_input(tmp_path / "source"),
        tmp_path / "out",
        "--precision=FP16",
        "--shapes=x:1x8,4x8;training:scalar,scalar",
    )
    assert engines_of(said) and verify(tmp_path / "source", tmp_path / "out")[0] == 0


def test_an_engine_whose_shapes_follow_the_texts_stays_native_and_is_named(tmp_path):
    """No declared shapes cover it: the number of characters in all texts is its batch."""
    source = saved(Characters(), tmp_path / "source")
    said = convert(source, tmp_path / "out", "--precision=FP16", "--shapes=text:4,16")
    (signature,) = said["signatures"]
    assert signature["built"] and [
        "depend on what the inputs hold" in one["reason"] for one in signature["unbuilt"]
    ] == [True]
    np.savez(
        tmp_path / "rows.npz",
        text=np.array([word.encode() for word in "some texts of other lengths than those that were drawn".split()] * 4),
    )
    code, result, error = verify(source, tmp_path / "out", f"--data={tmp_path / 'rows.npz'}", "--batch_size=16")
    assert code == 0, error or result["problems"]


class GpuMemoryTaken:
    """Holds the GPU's free memory, but for some, in a process of its own."""

    CODE = """
import ctypes, sys, pathlib, nvidia.cuda_runtime
cuda = ctypes.CDLL(str(next(pathlib.Path(next(iter(nvidia.cuda_runtime.__path__))).glob("lib/libcudart.so*"))))
free, total, held = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
assert cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
assert cuda.cudaMalloc(ctypes.byref(held), ctypes.c_size_t(free.value - (int(sys.argv[1]) << 20))) == 0
print("held", flush=True)
sys.stdin.read()
"""

    def __init__(self, leave_mb):
        self._leave = leave_mb

    def __enter__(self):
        import subprocess
        import sys

        self._process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, str(self._leave)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout.readline() == "held\n"

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()
