"""`tftrt build` as far as it goes without a GPU: engines taken away, errors, what is refused before TensorFlow loads."""

import json
import shutil
import types

import pytest

from tests.command_line import FLAGS, assert_clear
from tests.saved_inputs import saved_inputs
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _building
from tftrt_tools.models.savedmodel import describe, engine_assets, passport
from tftrt_tools.tftrt.conversion import build, settings


def snapshot(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def carries_engines(model, engine):
    """Give a converted model an engine file, and a manifest that says it was built on a GPU."""
    (model / "assets").mkdir(exist_ok=True)
    (model / "assets" / (engine_assets.PREFIX + engine)).write_bytes(b"no engine at all")
    said = passport.read(model, passport.MANIFEST)
    said["gpu"] = {"name": "a GPU", "compute_capability": "7.5", "driver": "1"}
    passport.write(model, passport.MANIFEST, said)


@pytest.mark.parametrize("name", ["ranker", "tf1_export"])
def test_a_stripped_model_answers_as_before_and_keeps_its_passport(name, converted, zoo_model, tftrt, tmp_path):
    model = shutil.copytree(converted(name, "--precision=FP16", *FLAGS[name]), tmp_path / "model")
    carries_engines(model, describe.describe(model)[0].engines[0].name)
    done = tftrt("build", model, "--strip", f"--output={tmp_path / 'out'}", "--json=-")
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "out" / "assets").glob(engine_assets.PREFIX + "*"))
    said, before = (passport.read(path, passport.MANIFEST) for path in (tmp_path / "out", model))
    assert (
        said["gpu"] is None
        and said["source_digest"] == before["source_digest"]
        and said["engine_count"] == before["engine_count"]
    )
    assert said["build"]["model_digest"] == json.loads(done.stdout)["model_digest"]
    assert (passport.folder(tmp_path / "out") / passport.FLAGS).read_text() == (
        passport.folder(model) / passport.FLAGS
    ).read_text()
    inspected = tftrt("inspect", tmp_path / "out", "--check")
    assert inspected.returncode == 0, inspected.stdout
    verified = tftrt("verify", zoo_model(name), tmp_path / "out", f"--data={saved_inputs(tmp_path / 'data.npz', name)}")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_in_place_the_model_is_replaced_in_one_step(converted, tftrt, tmp_path):
    model = shutil.copytree(converted("digits_cnn", "--precision=FP16"), tmp_path / "model")
    carries_engines(model, describe.describe(model)[0].engines[0].name)
    assert tftrt("build", model, "--strip").returncode == 0
    assert not list((model / "assets").glob(engine_assets.PREFIX + "*"))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_without_a_manifest_the_graph_says_what_is_needed(converted, tftrt, tmp_path):
    model = shutil.copytree(converted("digits_cnn", "--precision=FP16", "--use_dynamic_shape"), tmp_path / "model")
    shutil.rmtree(model / "assets.extra")
    done = tftrt("build", model, "--strip")
    assert done.returncode == 0, done.stderr
    said = passport.read(model, passport.MANIFEST)
    assert said["use_dynamic_shape"] and said["signatures"][0]["coverage"] == 1.0


def test_an_int8_table_stays_with_its_engine(converted, tftrt, tmp_path):
    model = shutil.copytree(
        converted("digits_cnn", "--precision=INT8", "--calibrate_on_random_data"), tmp_path / "model"
    )
    assert tftrt("build", model, "--strip", f"--output={tmp_path / 'out'}").returncode == 0
    assert describe.describe(tmp_path / "out")[0].engines[0].calibrated
    assert tftrt("table", "diff", model, tmp_path / "out", "--check").returncode == 0


def test_an_onnx_file_is_told_the_command_that_builds_it(tftrt):
    done = tftrt("build", "m.onnx", "--shapes=image:1x8x8x1")
    assert_clear(done, 2, "m.onnx is an ONNX file")
    assert "tftrt convert --backend=tensorrt m.onnx" in done.stderr


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ([], 2, "--shapes is missing"),
        (["--strip", "--shapes=image:1x8x8x1"], 2, "exclude each other"),
        (["--shapes=image:1x8x8x1"], 1, "none is visible here"),
        (["--shapes=image:1x8"], 1, "none is visible here"),
        (["--shapes=image:min=8x8x8x1,max=1x8x8x1"], 2, "min of input 'image' is larger"),
        (["--shapes=image:min=1x8x8x1,max=8x8x8x1", "--dynamic_shape_profile_strategy=Optimal"], 2, "strategy"),
        (["--strip", "--engine_cache_dir=/dev/null"], 2, "cannot be used"),
        (["--strip", "--output={model}/inside"], 2, "inside one another"),
    ],
)
def test_what_cannot_work_is_one_clear_line_and_changes_nothing(flags, code, says, converted, tftrt):
    model = converted("digits_cnn", "--precision=FP16")
    before = snapshot(model)
    assert_clear(
        tftrt("build", model, *(flag.format(model=model) for flag in flags), env={"CUDA_VISIBLE_DEVICES": "-1"}),
        code,
        says,
    )
    assert snapshot(model) == before


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ('"precision_mode": "FP16"', '"precision_mode": "FP15"', "precision_mode: 'FP15' is none of FP32, FP16, INT8"),
        (
            '"minimum_segment_size": 3',
            '"minimum_segment_size": "three"',
            "minimum_segment_size: 'three' is no whole number",
        ),
        ('"name": "serving_default"', '"nome": "serving_default"', "it has no 'name'"),
        ('"converted": true', '"converted": 1', "signatures[0].converted is no truth value"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_damaged(was, now, says, converted, tmp_path):
    model = shutil.copytree(converted("digits_cnn", "--precision=FP16"), tmp_path / "model")
    manifest = passport.folder(model) / passport.MANIFEST
    assert was in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(was, now))
    with pytest.raises(errors.TftrtError) as raised:
        build.build(model, None, build.Options(shapes=""))
    assert raised.value.cause == f"{manifest} is damaged: {says}"


def test_an_original_model_has_nothing_to_build(zoo_model, tftrt):
    assert_clear(tftrt("build", zoo_model("digits_cnn"), "--strip"), 2, "holds no engine ops")


@pytest.mark.parametrize(
    ("shapes", "strategy"),
    [
        ("", "Optimal"),
        ("x:1x2,8x2", "Optimal"),
        ("x:min=1x2,max=8x2", "Range"),
        ("x:min=1x2,opt=8x2,max=8x2", "Range"),
        ("x:min=1x2,opt=4x2,max=8x2", "Range+Optimal"),
    ],
)
def test_the_strategy_follows_from_the_shapes(shapes, strategy):
    assert settings.Settings(shapes=shapes, use_dynamic_shape=True).strategy == strategy


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--max_build_minutes=0", "--shapes=image:1x8x8x1"], "is no time"),
        (["--max_build_minutes=-1", "--shapes=image:1x8x8x1"], "is no time"),
        (["--max_build_minutes=inf", "--shapes=image:1x8x8x1"], "is no time"),
        (["--max_build_minutes=soon", "--shapes=image:1x8x8x1"], "soon"),
        (["--max_build_minutes=5", "--strip"], "none is built without --shapes"),
    ],
)
def test_a_bound_that_makes_no_sense_is_refused(flags, says, converted, tftrt):
    assert_clear(tftrt("build", converted("digits_cnn", "--precision=FP16"), *flags), 2, says)


def test_who_interrupts_a_build_hears_where_the_next_goes_on():
    values = types.SimpleNamespace(shapes="x:1x8")
    for given, cause in (
        (KeyboardInterrupt(), "interrupted"),
        (errors.Interrupted("ended by SIGTERM"), "ended by SIGTERM"),
    ):
        with (
            pytest.raises(errors.Interrupted) as raised,
            _building.resumable(values, {"folder": "cache", "max_bytes": 1}),
        ):
            raise given
        assert raised.value.cause == cause and "the same command goes on from there" in raised.value.mend
    with pytest.raises(KeyboardInterrupt), _building.resumable(values, None):
        raise KeyboardInterrupt
