"""Plans as candidates of `tftrt tune`: their place in the search, their files, their failures, what makes the winner again. A formula gives
speed and accuracy; real plans are in test_gpu_tune.py."""

import contextlib
import dataclasses
import json
import pathlib
import re
import shlex
import shutil
from html import unescape

import numpy as np
import onnx
import pytest
from hypothesis import given

from tests import plan_runner
from tests.command_here import run_tftrt
from tests.command_line import assert_clear
from tests.prepared_models import unet_with_conditionals
from tests.rooms.studies.test_tuning import BASE, CALL, SCORING, TIMED, TOP1, Synthetic, models, turns
from tests.trial_worker import worker
from tftrt_tools.accuracy import verify
from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.base import errors
from tftrt_tools.base.stack import bindings
from tftrt_tools.command_line.commands import _flags
from tftrt_tools.command_line.commands import optimize as optimize_command
from tftrt_tools.command_line.commands import tune as tune_command
from tftrt_tools.command_line.report import html
from tftrt_tools.models.backends.protocol import Evidence, Ranked
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds.onnx import runner_job
from tftrt_tools.models.sources.source import of
from tftrt_tools.studies import backends
from tftrt_tools.studies.optimizing import gave
from tftrt_tools.studies.tuning import (
    final,
    journal,
    makers,
    making,
    measure_job,
    measuring,
    search,
    space,
    tune,
    turns_job,
)
from tftrt_tools.studies.tuning.latency import Latency
from tftrt_tools.studies.tuning.measuring import InTurns, OfMade, Original, Request, Scored, Scoring
from tftrt_tools.studies.tuning.plans import Plans
from tftrt_tools.studies.tuning.trial import Task, Trials
from tftrt_tools.studies.tuning.tried import Measured, Tuning
from tftrt_tools.tensorrt.plans import shaping
from tftrt_tools.tftrt.conversion.settings import Settings

SHAPES = "image:1x8x8x1,8x8x8x1"


def unasked(settings):
    """What no search of the test may ask for."""
    raise AssertionError(f"nothing has to be simulated for {settings}")


def searched(plan, model=None, rank=unasked, snr_db=unasked, **changes):
    """A search in which plans are measured by `plan`, a function Settings -> Measured, and ranked by the others."""
    model = model or Synthetic([0.03, 0.001], [0.1, 0.1], sizes={10: 0.9}, strategies={"Range": 0.95})
    changes = {"backends": ("tftrt", "tensorrt"), **changes}
    return search.search(
        {"tftrt": model.means(), "tensorrt": search.Means(evaluate=plan, rank=rank, snr_db=snr_db)},
        model.space(**changes),
        CALL,
        TOP1,
        0.98,
        search.Budget(1000, 1e9),
        0.0,
    )


def plans_alone(model, **changes):
    """A search of the plans of a Synthetic, with what it has besides. Returns: search.Outcome."""
    changes = {"backends": ("tensorrt",), "methods": {"tensorrt": tuple(model.methods)}, **changes}
    return search.search(
        {"tensorrt": model.means()},
        dataclasses.replace(model.space(), sizes=(), strategies=(), **changes),
        CALL,
        TOP1,
        0.98,
        search.Budget(1000, 1e9),
        0.0,
    )


def measured(factor, lost=None):
    """A function Settings -> Measured: plans take `factor` times what conversions take, and lose accuracy by precision."""
    times, lost = {"FP32": 4.0, "FP16": 2.0, "INT8": 1.0}, lost or {}
    return lambda settings: Measured(
        accuracy=0.98 - lost.get(settings.precision_mode, 0.0),
        seconds=60.0,
        engines=1,
        latencies={CALL: Latency(factor * times[settings.precision_mode], 0.0, 500)},
    )


# The search.


def test_plans_are_tried_in_each_precision_and_one_may_win():
    found = searched(measured(0.4))
    assert [one.text for one in found.trials[3:6]] == ["plan, FP32", "plan, FP16", "plan, INT8"]
    assert found.winner.backend == "tensorrt" and found.winner.settings.precision_mode == "INT8"
    assert found.winner.to_dict()["backend"] == "tensorrt" and found.trials[0].to_dict()["backend"] == "tftrt"
    # Neither segments nor strategies could make TF-TRT's best as fast, and INT8 with nodes kept high is no faster than the plan.
    assert len(found.trials) == 6
    assert (
        "INT8 misses the goal and is no faster than what keeps it: no nodes were kept in a higher precision"
        in found.notes
    )
    assert "other segment sizes were not tried: a plan, which has none, is the best so far" in found.notes


def test_slower_plans_leave_the_search_as_it_was():
    model = Synthetic([0.03, 0.001], [0.1, 0.1], sizes={10: 0.9}, strategies={"Range": 0.95})
    alone, beside = model.search(), searched(measured(3.0), model)
    assert [one.text for one in beside.trials if one.backend == "tftrt"] == [one.text for one in alone.trials]
    assert (
        beside.winner.backend == "tftrt"
        and beside.winner.settings == alone.winner.settings
        and beside.notes == alone.notes
    )


def test_a_plan_that_misses_the_goal_does_not_keep_nodes_of_a_conversion_from_being_kept_high():
    found = searched(measured(3.0, {"FP32": 0.5, "FP16": 0.5, "INT8": 0.5}))
    assert any(one.high for one in found.trials) and found.winner.backend == "tftrt"
    assert (
        "INT8 as a plan misses the goal, and so does FP32 and FP16: no nodes were kept in a higher precision"
        in found.notes
    )
    assert not any(one.high for one in found.trials if one.backend == "tensorrt")


def test_a_plan_that_is_no_faster_than_a_conversion_keeps_no_nodes_high():
    found = searched(measured(3.0, {"INT8": 0.5}))
    assert (
        "INT8 as a plan misses the goal and is no faster than what keeps it: no nodes were kept in a higher precision"
        in found.notes
    )
    assert not any(one.high for one in found.trials if one.backend == "tensorrt")


def test_a_plan_in_int8_that_misses_the_goal_gets_other_ranges_those_that_promise_most_first():
    lost = {"auto": 0.5, "mse": 0.2, "max": 0.0, "entropy": 0.0}
    promised = {"auto": 20.0, "entropy": 20.5, "mse": 31.0, "max": 24.0}

    def plan(settings):
        known = measured(0.4, {"INT8": lost[settings.calibration_method]})
        return known(settings)

    found = searched(
        plan,
        snr_db=lambda settings: promised[settings.calibration_method],
        methods={"tensorrt": ("entropy", "mse", "max")},
    )
    assert [one.text for one in found.trials if one.backend == "tensorrt"] == [
        "plan, FP32",
        "plan, FP16",
        "plan, INT8",
        "plan, INT8 by mse",
        "plan, INT8 by max",
    ]
    assert (
        found.winner.text == "plan, INT8 by max"
        and "INT8 as a plan by auto misses the goal; max keeps the goal" in found.notes
    )
    # The conversions' methods are others: here none.
    assert not any(one.settings.calibration_method != "auto" for one in found.trials if one.backend == "tftrt")
    found = searched(
        plan,
        snr_db=lambda settings: 20.0,
        rank=lambda settings: search.Ranked(()),
        methods={"tensorrt": ("mse", "max")},
    )
    assert (
        "no other calibration method of plans promises a fifth less noise: mse 20.0 dB, max 20.0 dB, auto 20.0 dB"
        in found.notes
    )

    def refuse(settings):
        raise errors.TftrtError("nothing to simulate")

    found = searched(plan, snr_db=refuse, rank=refuse, methods={"tensorrt": ("mse", "max")})
    assert (
        "the calibration methods of plans could not be simulated: nothing to simulate" in found.notes
        and found.winner.text == "plan, INT8 by max"
    )


@pytest.mark.parametrize("precision", ["FP16", "INT8"])
def test_a_plan_that_misses_the_goal_keeps_the_fewest_of_its_own_nodes_in_fp32(precision):
    names = ("a, b", "c.d", "e", "f", "g")
    asked = []

    def plan(settings):
        high = settings.fp32_nodes.split("|") if settings.fp32_nodes else []
        known = measured(0.4, {precision: 0.5 if len(high) < 3 else 0.0})(settings)
        return dataclasses.replace(
            known, latencies={CALL: Latency(known.latencies[CALL].ms + 0.01 * len(high), 0.0, 500)}
        )

    found = searched(
        plan, rank=lambda settings: asked.append(settings) or search.Ranked(names, 1), precisions=("FP32", precision)
    )
    high = [one for one in found.trials if one.backend == "tensorrt" and one.high]
    assert [one.text for one in high] == [f"plan, {precision}, 1 node high"] + [
        f"plan, {precision}, {count} nodes high" for count in (2, 4, 3)
    ]
    assert [one.high for one in high] == [names[:count] for count in (1, 2, 4, 3)] and asked == [
        space.with_precision(BASE, precision)
    ]
    kept = high[-1].settings
    assert (kept.fp32_nodes, kept.high_precision_nodes) == (r"a,\ b|c\.d|e", "") and high[-1].kept
    assert found.winner == high[-1]


def test_nodes_of_a_plan_that_cannot_be_ranked_are_a_note():
    def refuse(settings):
        raise errors.TftrtError("no float32 output")

    found = searched(measured(0.4, {"INT8": 0.5}), rank=refuse)
    assert "INT8 as a plan misses the goal, and its nodes could not be ranked: no float32 output" in found.notes
    assert "FP16 as a plan misses the goal" not in " ".join(found.notes)


@given(models())
def test_plans_are_searched_as_conversions_are(model):
    """By themselves: the same trials, and the same notes, of a model that loses the same."""
    alone = dataclasses.replace(model.space(), sizes=(), strategies=())
    converted = search.search({"tftrt": model.means()}, alone, CALL, TOP1, 0.98, search.Budget(1000, 1e9), 0.0)
    found = plans_alone(model)

    def tried(outcome):
        return [
            (one.settings.precision_mode, one.settings.calibration_method, one.high, one.measured)
            for one in outcome.trials
        ]

    assert tried(found) == tried(converted) and all(one.backend == "tensorrt" for one in found.trials)
    assert [note.replace(" as a plan", "").replace(" of plans", "") for note in found.notes] == list(converted.notes)
    assert (found.winner or found.best).number == (converted.winner or converted.best).number


def test_plans_that_fail_are_trials_with_their_reason():
    found = searched(lambda settings: Measured(failure="Mish has no converter"))
    assert [one.measured.failure for one in found.trials if one.backend == "tensorrt"] == ["Mish has no converter"] * 3
    assert found.winner and found.winner.backend == "tftrt"


def test_plans_alone_can_be_searched():
    found = searched(measured(1.0, {"INT8": 0.5}), rank=lambda settings: search.Ranked(()), backends=("tensorrt",))
    assert [one.text for one in found.trials] == ["plan, FP32", "plan, FP16", "plan, INT8"] and found.winner.number == 2
    assert searched(measured(1.0), precisions=("FP16",), backends=("tensorrt",)).trials[0].backend == "tensorrt"


def test_the_budget_names_the_plan_that_would_be_next():
    model = Synthetic([0.0], [0.1])
    means = {"tftrt": model.means(), "tensorrt": search.Means(evaluate=measured(1.0), rank=unasked, snr_db=unasked)}
    found = search.search(
        means,
        model.space(precisions=("FP16",), backends=("tftrt", "tensorrt")),
        CALL,
        TOP1,
        0.98,
        search.Budget(1, 1e9),
        0.0,
    )
    assert found.ended == "--max_trials=1 are done; next would be plan, FP16"


def test_the_factor_of_fp16_is_that_of_tf_trt(tmp_path):
    found = searched(measured(0.4))
    fp16 = next(one for one in found.trials if one.settings.precision_mode == "FP16")
    assert [one.number for one in final.finalists(found.trials, found.winner, CALL)] == [
        found.winner.number,
        fp16.number,
    ]
    done = Tuning(
        model="/models/digits",
        goal=TOP1,
        original=0.98,
        calls=(CALL,),
        objective=CALL,
        native={CALL: Latency(9.0, 0.1, 60)},
        trials=found.trials,
        winner=found.winner,
        best=None,
        ended=found.ended,
        notes=found.notes,
        gpu="GPU",
        tensorrt="8.5.3",
        data={"source": "data.npz", "rows": 400, "dropped": 0, "digest": ""},
        recipe=("tftrt export a", "tftrt convert b"),
        final=final.final(CALL, [0, found.winner.number, fp16.number], turns(8.0, 1.0, 1.6)),
    )
    ms, factors = done.winner_speed()
    assert any("times as fast as TF-TRT's FP16 (95 %" in one for one in factors)
    html.write_tuning(done, tmp_path / "tuning.html")
    page = (tmp_path / "tuning.html").read_text()
    assert "plan, INT8" in page and "tftrt export a\ntftrt convert b" in page
    assert json.loads(json.dumps(done.to_dict()))["recipe"] == ["tftrt export a", "tftrt convert b"]


# What a plan is made of.


def plans(model, folder, data="", calibration="", names=None, **changes):
    asked = inputs.Asked(data=str(data))
    return Plans(
        makers.Asked(
            source=of(str(model)),
            names=names or {"serving_default": ("serving_default", "classify")},
            folder=folder,
            **changes,
            comparison=verify.Options(asked=asked),
            data=DataOptions(source=str(calibration)) if calibration else None,
        )
    )


def with_precision(precision):
    return space.with_precision(Settings(shapes="classify/" + SHAPES, calibration_method="mse"), precision)


def trials(tmp_path, made, **changes):
    work = journal.Journal(tmp_path)
    return Trials(
        Task(
            model="model",
            timed=(TIMED,),
            scoring=SCORING,
            facts={"model": "sha256:0"},
            makers={"tensorrt": made},
            **changes,
        ),
        work,
    )


def test_the_build_of_a_plan_gets_the_shapes_without_the_signatures_name(tmp_path):
    settings = plans("model", tmp_path).built_with(with_precision("INT8"))
    assert (settings.shapes, settings.precision_mode, settings.max_workspace_size_bytes) == (SHAPES, "INT8", 0)
    one = dataclasses.replace(with_precision("FP16"), max_workspace_size_bytes=1 << 28)
    assert plans("model", tmp_path).built_with(one).max_workspace_size_bytes == 1 << 28


@pytest.mark.parametrize(
    ("flag", "names", "without"),
    [
        ("serve/a:1x2,3x2;serve/b:1", ["serve"], "a:1x2,3x2;b:1"),
        ("a:1x2", ["serve", ""], "a:1x2"),
        ("serve/a:min=1,max=2|serve/a:4", ["serve"], "a:min=1,max=2|a:4"),
        ("preserve/a:1", ["serve"], "preserve/a:1"),
    ],
)
def test_shapes_for_a_file_without_signatures(flag, names, without):
    assert shaping.without_signature(flag, names) == without


def test_the_goal_judges_a_written_precision_and_the_usual_bounds_the_export_itself(tmp_path):
    made = plans("model", tmp_path, calibration="rows.npz")
    assert [made.exported(with_precision(one)).judge_precision for one in ("FP32", "FP16", "INT8")] == [
        True,
        False,
        False,
    ]
    int8, fp16 = (made.exported(with_precision(one)).precision for one in ("INT8", "FP16"))
    assert (int8.precision, int8.method, int8.data.source, int8.table) == (
        "INT8",
        "mse",
        "rows.npz",
        "",
    ) and fp16.data is None
    assert made.exported(with_precision("FP16")).signature_keys == ("serving_default",)
    table = (
        dataclasses.replace(made, asked=dataclasses.replace(made.asked, table="ranges.json"))
        .exported(with_precision("INT8"))
        .precision
    )
    assert table.table == "ranges.json" and table.data is None


def test_files_of_other_settings_or_another_model_have_other_places(tmp_path):
    one, other = plans("model", tmp_path, facts={"model": "a"}), plans("model", tmp_path, facts={"model": "b"})
    places = [
        made.onnx(settings).parent
        for made in (one, other)
        for settings in (with_precision("FP16"), with_precision("INT8"))
    ]
    assert len(set(places)) == 4 and one.plan(with_precision("FP16")).parent == places[0]


@pytest.mark.parametrize(
    ("changes", "settings", "says"),
    [
        (
            {"names": {"a": ("a",), "serving_default": ("serving_default",)}},
            {},
            "a plan has one signature, and 2 are tuned: a, serving_default",
        )
    ],
)
def test_what_no_plan_can_be_made_of_fails_its_trial_alone(tmp_path, changes, settings, says):
    one = dataclasses.replace(with_precision("FP16"), **settings)
    with trials(tmp_path, plans("model", tmp_path, **changes)) as measure:
        found = measure.made(one, "tensorrt")
        assert found.failure == says and measure.made(one, "tensorrt") == found and measure.reused == 1
    (document,) = (json.loads(path.read_text()) for path in tmp_path.glob("trial-*.json"))
    assert document["backend"] == "tensorrt"


def test_a_conversion_and_a_plan_of_the_same_settings_are_two_trials(tmp_path):
    task = Task(
        model="model",
        timed=(),
        scoring=SCORING,
        facts={"model": "sha256:0"},
        makers={"tensorrt": plans("model", tmp_path, names={"a": (), "b": ()})},
    )
    with Trials(task, journal.Journal(tmp_path), job=worker) as measure:
        assert measure(BASE).accuracy and measure.made(BASE, "tensorrt").failure
    assert len(list(tmp_path.glob("trial-*.json"))) == 2


def test_a_model_is_exported_in_the_precision_once_and_without_a_gpu_the_build_says_why_it_fails(
    zoo_model, images, tmp_path
):
    made = plans(
        zoo_model("digits_cnn"), tmp_path, images / "held_back.npz", names={"serving_default": ("serving_default",)}
    )
    settings = dataclasses.replace(with_precision("FP16"), shapes=SHAPES)
    with trials(tmp_path, made) as measure:
        found = measure.made(settings, "tensorrt")
    why = "no GPU is visible here" if bindings.installed() else errors.no_bindings()
    assert why in found.failure
    import onnx

    model = onnx.load(made.onnx(settings))
    assert (
        any(one.data_type == onnx.TensorProto.FLOAT16 for one in model.graph.initializer)
        and not made.plan(settings).exists()
    )
    before = made.onnx(settings).stat().st_mtime_ns
    with Trials(
        Task(model="m", timed=(), scoring=SCORING, makers={"tensorrt": made}),
        journal.Journal(tmp_path),
        retry_failed=True,
    ) as measure:
        assert why in measure.made(settings, "tensorrt").failure and made.onnx(settings).stat().st_mtime_ns == before


def test_what_cannot_be_exported_is_named(zoo_model, tmp_path):
    name = "user_embedding"
    with trials(tmp_path, plans(zoo_model("ranker"), tmp_path, names={name: (name,)})) as measure:
        found = measure.made(dataclasses.replace(with_precision("FP32"), shapes=""), "tensorrt")
    assert found.failure.startswith(f"signature '{name}' of ") and not list(tmp_path.rglob("*.onnx"))


# What measures a plan, with ONNX Runtime in TensorRT's place.


@pytest.fixture(scope="module")
def exported(onnx_model, tmp_path_factory):
    """A directory with digits_cnn as model.onnx."""
    folder = tmp_path_factory.mktemp("plan")
    shutil.copy(onnx_model("digits_cnn"), folder / "model.onnx")
    return folder


@pytest.fixture(scope="module")
def scoring(zoo_model, images, tmp_path_factory):
    """The scoring part of a request: the model's own answers to 40 rows."""
    from tftrt_tools.models.execution import run
    from tftrt_tools.models.kinds.savedmodel import kind

    folder = tmp_path_factory.mktemp("scoring")
    rows = np.load(images / "held_back.npz")["image"][:40]
    saved = run.save_calls([run.Call("serving_default", {"image": part}) for part in np.split(rows, 5)], folder / "in")
    answered = run.run(kind.at(str(zoo_model("digits_cnn"))), saved, folder / "out", "the original")
    calls = tuple(
        Scored(signature="serving_default", rows=8, inputs=path, reference=answer)
        for (_, path), answer in zip(saved, answered.answers, strict=True)
    )
    return Scoring(goal=Goal("snr_db", "threshold", 60.0, True), calls=calls)


def test_a_plan_is_scored_and_timed_as_a_conversion_is(exported, scoring):
    facts = Measured(build_seconds=3.0, engine_bytes=7, engines=1, coverage=1.0)
    asked = OfMade(path=str(exported), title="plan", facts=facts, timed=(TIMED,), scoring=scoring)
    found = plan_runner.measure.run(Request(made=asked)).result.measured
    assert (
        not found.failure and found.accuracy > 60 and found.latencies[CALL].ms > 0 and found.latencies[CALL].calls >= 30
    )
    assert (found.build_seconds, found.engine_bytes, found.kernels) == (3.0, 7, {})
    # A runner that says of no engine that it ran is no plan.
    none = measure_job.made(dataclasses.replace(asked, path=str(exported / "model.onnx")), runner_job.load)
    assert none.failure == f"no engine ran at {CALL}"


def test_the_original_and_a_plan_are_timed_in_turns(exported, zoo_model, tmp_path):
    original = Original(path=str(zoo_model("digits_cnn")), tags=("serve",))
    asked = InTurns(original=original, made={4: str(exported)}, folder=str(tmp_path), timed=TIMED)
    found = plan_runner.measure.run(Request(final=asked)).result.final
    assert found.numbers == (4,) and len(found.rounds[4]) == turns_job.ROUNDS and found.faster(4).low > 0


class Unbuilt(Plans):
    """Plans that are not built: a plan is the exported file, and ONNX Runtime runs it."""

    def made(self, settings, minutes=None):
        if isinstance(settings, space.Int8As):  # its two builds need a GPU
            return super().made(settings, minutes)
        return self.export(settings).parent

    def evidence(self, model):
        return Evidence(build_seconds=1.0, engine_bytes=1, engines=1, coverage=1.0)


@pytest.fixture(scope="module")
def ranges(onnx_model, images):
    """(the calibration method with the most noise in INT8, the one with the least). Training ends with other weights on another processor or
    stack, and then another method is the best."""
    done = run_tftrt(
        "sensitivity",
        onnx_model("digits_cnn"),
        f"--data={images / 'held_back.npz'}",
        "--data_rows=80",
        f"--calibration_data={images / 'calibration.npz'}",
        "--num_calibration_batches=8",
        "--json=-",
    )
    assert done.returncode == 0, done.stderr
    methods = sorted(json.loads(done.stdout)["signatures"][0]["methods"], key=lambda one: one["snr_db"])
    return tuple(methods[place]["method"].partition(" ")[0] for place in (0, -1))


@pytest.fixture(scope="module")
def tuned(zoo_model, images, ranges, tmp_path_factory):
    """(flags, Found) of a search of INT8 plans that all miss the goal."""
    model, folder = str(zoo_model("digits_cnn")), tmp_path_factory.mktemp("tuned")
    values, _ = _flags.parse(
        "tune",
        tune_command,
        [
            model,
            f"--data={images / 'held_back.npz'}",
            "--data_rows=80",
            f"--shapes={SHAPES}",
            "--accuracy=snr_db:threshold=90",
            "--precision=INT8",
            "--backend=tensorrt",
            f"--calibration_data={images / 'calibration.npz'}",
            "--num_calibration_batches=8",
            f"--calibration_method={','.join(ranges)}",
            f"--work_dir={folder / 'work'}",
            "--noengine_cache",
            "--max_trials=4",
        ],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tune, "_gpu", lambda: {"gpu": "none", "compute_capability": "", "driver": "", "tensorrt": "8.5.3"}
        )
        patch.setitem(making.MAKERS, "tensorrt", Unbuilt)
        patch.setattr(measuring, "measure", plan_runner.measure)
        return values, tune.tune(of(model), tune_command._settings(values), tune_command._options(values, of(model)))


@pytest.fixture(scope="module")
def studied(tuned, images):
    """What `tftrt sensitivity` says of the search's file in FP32 with the ranges of its last trial."""
    _, found = tuned
    file = found.maker.onnx(space.with_precision(found.tuning.trials[-1].settings, "FP32"))
    done = run_tftrt(
        "sensitivity",
        file,
        f"--data={images / 'held_back.npz'}",
        "--data_rows=80",
        f"--calibration_data={images / 'calibration.npz'}",
        "--num_calibration_batches=8",
        f"--calibration_method={found.tuning.trials[-1].settings.calibration_method}",
        "--json=-",
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["signatures"][0]


def test_other_ranges_are_tried_and_then_nodes_in_fp32_as_the_sensitivity_of_the_file_ranks_them(
    tuned, studied, ranges
):
    _, found = tuned
    first, second = ranges
    levels = {one["method"].partition(" ")[0]: one["snr_db"] for one in studied["methods"]}
    worst, trials = [one["name"] for one in studied["nodes"]], found.tuning.trials
    assert levels[second] >= levels[first] + 1, levels
    assert [one.text for one in trials] == [
        f"plan, INT8 by {first}",
        f"plan, INT8 by {first}, only where TensorRT chooses INT8",
        f"plan, INT8 by {second}",
        f"plan, INT8 by {second}, 1 node high",
    ]
    # That one needs two builds on a GPU.
    assert trials[1].measured.failure and not trials[1].kept
    trials = (trials[0], *trials[2:])
    assert (
        not any(one.measured.failure or one.kept for one in trials)
        and trials[1].measured.accuracy > trials[0].measured.accuracy
    )
    assert trials[2].high == (worst[0],) and trials[2].to_dict()["high_precision"] == worst[:1]
    assert (
        found.tuning.notes[0]
        == f"INT8 as a plan by {first} misses the goal; {second} is the most accurate, and misses it too"
    )
    assert found.tuning.ended == f"--max_trials=4 are done; next would be plan, INT8 by {second}, 2 nodes high"


def test_one_simulation_tells_of_all_methods_and_a_node_always_stays_in_int8(tuned, studied, tmp_path):
    values, found = tuned
    folder = pathlib.Path(values.work_dir)
    (noise,) = (json.loads(path.read_text())["value"] for path in folder.glob("plan-noise-*.json"))
    assert {name: float(level) for name, level in noise["levels"].items()} == pytest.approx(
        {one["method"]: one["snr_db"] for one in studied["methods"]}, abs=0.01
    )
    (ranked,) = (json.loads(path.read_text())["value"] for path in folder.glob("plan-ranked-*.json"))
    # With all of them in FP32 nothing would be left to quantize, and the export would be refused.
    assert ranked["names"] == [one["name"] for one in studied["nodes"]][:-1] and len(studied["nodes"]) == 4


def test_the_recipe_of_a_plan_with_nodes_in_fp32_makes_the_same_file(tuned, ranges, tmp_path):
    import onnx

    values, found = tuned
    last = found.tuning.trials[-1]
    found = dataclasses.replace(found, tuning=dataclasses.replace(found.tuning, best=last))
    source = found.maker.asked.source
    export, _ = (
        shlex.split(one)[1:]
        for one in tune_command._recipe(source, found, values, tune_command._options(values, source))
    )
    assert f"--calibration_method={ranges[1]}" in export and f"--fp32_nodes={re.escape(last.high[0])}" in export
    done = run_tftrt(
        *(f"--output={tmp_path / 'model.onnx'}" if word.startswith("--output=") else word for word in export)
    )
    assert done.returncode == 0, done.stderr
    made, before = onnx.load(tmp_path / "model.onnx"), onnx.load(found.maker.source(found.chosen.settings))
    assert made.graph == before.graph
    rounded = {output for one in made.graph.node if one.op_type == "DequantizeLinear" for output in one.output}
    quantized = {
        one.name: bool(rounded & set(one.input)) for one in made.graph.node if one.op_type in ("Conv", "MatMul")
    }
    assert sorted(quantized.values()) == [False, True, True, True] and not quantized[last.high[0]]


# What makes the winner again.


def winner(tmp_path, precision, made):
    found = searched(measured(0.4 if precision == "INT8" else 3.0))
    chosen = next(one for one in found.trials if one.backend == "tensorrt" and one.settings.precision_mode == precision)
    chosen = dataclasses.replace(chosen, settings=dataclasses.replace(chosen.settings, shapes=SHAPES))
    done = Tuning(
        model="m",
        goal=TOP1,
        original=0.98,
        calls=(CALL,),
        objective=CALL,
        native={},
        trials=(chosen,),
        winner=chosen,
        best=None,
        ended="",
        notes=(),
        gpu="",
        tensorrt="",
        data={},
    )
    return tune.Found(done, "", {"tensorrt": made})


def recipe(tmp_path, precision, *flags):
    rows, training = tmp_path / "rows.npz", tmp_path / "training.npz"
    for path in (rows, training):
        np.savez(path, image=np.zeros((2, 8, 8, 1), np.float32))
    values, _ = _flags.parse(
        "tune",
        tune_command,
        [
            "digits",
            f"--data={rows}",
            "--accuracy=top1:threshold=0.9",
            f"--shapes={SHAPES}",
            "--backend=tftrt,tensorrt",
            f"--work_dir={tmp_path}",
            f"--calibration_data={training}",
            *flags,
        ],
    )
    made = plans("digits", tmp_path, rows, training, names={"serve": ("serve",)})
    found = winner(tmp_path, precision, made)
    options = tune_command._options(values, of("digits"))
    return found, [shlex.split(one) for one in tune_command._recipe(of("digits"), found, values, options)]


def test_the_recipe_of_a_plan_names_the_export_and_the_build(tmp_path):
    found, (export, convert) = recipe(
        tmp_path, "INT8", "--image_scale=1/255", "--data_rows=50", "--output=tuned", "--custom_objects=own:made"
    )
    assert (
        export[:3] == ["tftrt", "export", "digits"]
        and export[3] == f"--output={found.maker.source(found.chosen.settings)}"
        and pathlib.Path(found.maker.source(found.chosen.settings)).is_absolute()
    )
    assert {
        "--precision=INT8",
        f"--calibration_data={tmp_path}/training.npz",
        f"--data={tmp_path}/rows.npz",
        "--data_rows=50",
        "--image_scale=1/255",
        "--target=8.5",
        "--nojudge_precision",
        "--signature_keys=serve",
        "--calibration_method=auto",
        "--custom_objects=own:made",
    } <= set(export)
    assert convert == ["tftrt", "convert", f"--flagfile={tmp_path}/best.flags", "--output=tuned"]
    assert tune.flag_file("digits", found).splitlines() == [
        "--backend=tensorrt",
        f"--model={found.maker.source(found.chosen.settings)}",
        "--precision=INT8",
        f"--shapes={SHAPES}",
    ]


@pytest.mark.parametrize("precision", ["FP32", "FP16", "INT8"])
def test_the_words_of_the_recipe_are_flags_of_those_commands(tmp_path, precision):
    from tftrt_tools.command_line.commands import convert as convert_command
    from tftrt_tools.command_line.commands import export as export_command

    found, (export, convert) = recipe(tmp_path, precision, "--image_scale=1/255")
    pathlib.Path(found.maker.source(found.chosen.settings)).parent.mkdir()
    values, positional = _flags.parse("export", export_command, export[2:])
    assert (
        positional == ["digits"]
        and values.precision_mode == precision
        and values.judge_precision == (precision == "FP32")
    )
    assert bool(values.calibration_data) == (precision == "INT8")
    (tmp_path / "best.flags").write_text(tune.flag_file("digits", found))
    values, _ = _flags.parse("convert", convert_command, convert[2:])
    assert (values.backend, values.precision_mode, values.shapes) == ("tensorrt", precision, SHAPES)


@pytest.mark.parametrize(
    ("flag", "says"), [("--backend=onnx", "onnx is no backend"), ("--backend=", "nothing is no backend")]
)
def test_backends_that_do_not_exist(flag, says):
    with pytest.raises(errors.UsageError, match=says):
        values, positional = _flags.parse(
            "tune", tune_command, ["model", "--data=a", "--accuracy=top1:threshold=1", "--shapes=a:1", flag]
        )
        tune_command.run(values, positional)


# --nojudge_precision of `tftrt export`.


def test_an_export_may_leave_the_judgement_of_a_precision_to_others(zoo_model, images, tmp_path):
    """Ranges of 0.01 cut everything off: the answers are far from the model's."""
    table = tmp_path / "table.txt"
    flags = (f"--data={images / 'held_back.npz'}", "--data_rows=64", "--precision=INT8")
    done = run_tftrt(
        "export",
        zoo_model("digits_cnn"),
        f"--output={tmp_path / 'a.onnx'}",
        *flags,
        f"--calibration_data={images / 'calibration.npz'}",
        f"--output_table={tmp_path / 'ranges.json'}",
        "--num_calibration_batches=2",
    )
    assert done.returncode == 0, done.stderr
    ranges = json.loads((tmp_path / "ranges.json").read_text())
    for engine in ranges["engines"]:
        engine["table"]["scales"] = dict.fromkeys(engine["table"]["scales"], 1e-5)
    table.write_text(json.dumps(ranges))
    refused = run_tftrt(
        "export", zoo_model("digits_cnn"), f"--output={tmp_path / 'b.onnx'}", *flags, f"--calibration_table={table}"
    )
    assert refused.returncode == 3 and not (tmp_path / "b.onnx").exists()
    written = run_tftrt(
        "export",
        zoo_model("digits_cnn"),
        f"--output={tmp_path / 'b.onnx'}",
        *flags,
        f"--calibration_table={table}",
        "--nojudge_precision",
    )
    assert written.returncode == 0 and (tmp_path / "b.onnx").exists(), written.stderr
    assert "its answers in INT8 were not judged (--nojudge_precision)" in written.stdout


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "FP32 is always judged"),
        (("--precision=FP16", "--labels=l.npy"), "--labels are about the answers in the written precision"),
    ],
)
def test_nothing_to_leave_unjudged(zoo_model, flags, says, tmp_path):
    done = run_tftrt(
        "export", zoo_model("digits_cnn"), f"--output={tmp_path / 'a.onnx'}", "--nojudge_precision", *flags
    )
    assert_clear(done, 2, says)


# Models that the server does not run, and the one table.


def compared(factor, lost=None, **changes):
    """A search in which plans are tried for comparison alone."""
    return searched(measured(factor, lost), backends=("tftrt",), compared=("tensorrt",), **changes)


def shown(found, **changes):
    """The Tuning of a search whose plans the server does not run."""
    return Tuning(
        **{
            "model": "model",
            "goal": TOP1,
            "original": 0.98,
            "calls": (CALL,),
            "objective": CALL,
            "native": {CALL: Latency(9.0, 0.1, 60)},
            "trials": found.trials,
            "winner": found.winner,
            "best": found.best,
            "ended": found.ended,
            "notes": found.notes,
            "gpu": "GPU",
            "tensorrt": "8.5.3",
            "data": {"source": "data.npz", "rows": 400, "dropped": 0, "digest": ""},
            "server": "tensorflow",
            "model_servers": ("tensorflow", "triton"),
            "model_bytes": 5_000_000,
            "objective_rows": 8,
            **changes,
        }
    )


def test_what_the_server_does_not_run_is_tried_last_and_never_wins():
    found, alone = compared(0.01), Synthetic([0.03, 0.001], [0.1, 0.1], sizes={10: 0.9}, strategies={"Range": 0.95})
    assert [one.text for one in found.trials[-2:]] == ["plan, FP16", "plan, INT8"]
    assert [one.text for one in found.trials[:-2]] == [one.text for one in alone.search().trials]
    assert all(one.kept and one.compared and not one.may_win for one in found.trials[-2:])
    assert found.winner == alone.search().winner


def test_nothing_that_is_compared_is_chosen_where_no_conversion_keeps_the_goal():
    failed = dataclasses.replace(
        Synthetic([0.0], [0.1]).means(), evaluate=lambda settings: Measured(failure="no segment is worth an engine")
    )
    plan = search.Means(evaluate=measured(0.1), rank=unasked, snr_db=unasked)
    room = space.Space(base=BASE, backends=("tftrt",), compared=("tensorrt",), precisions=("FP16",))
    found = search.search({"tftrt": failed, "tensorrt": plan}, room, CALL, TOP1, 0.98, search.Budget(9, 1e9), 0.0)
    assert [one.kept for one in found.trials] == [False, True]
    assert found.winner is None and found.best is None


def test_a_budget_that_is_spent_leaves_the_comparison_out():
    room = space.Space(base=BASE, backends=("tftrt",), compared=("tensorrt",), precisions=("FP16",))
    means = {
        "tftrt": Synthetic([0.0], [0.1]).means(),
        "tensorrt": search.Means(evaluate=unasked, rank=unasked, snr_db=unasked),
    }
    found = search.search(means, room, CALL, TOP1, 0.98, search.Budget(1, 1e9), 0.0)
    assert found.winner and found.ended.endswith("next would be plan, FP16")


def test_a_faster_model_that_the_server_does_not_run_is_named_with_what_runs_it():
    found = compared(0.1)
    (hint,) = shown(found).hints
    assert hint.startswith(
        f"trial {len(found.trials)} (plan, INT8) keeps the goal, too, and TensorFlow Serving does not run it"
    )
    assert hint.endswith("timed alone; Triton and a program run it: --server=triton")
    # One that is no faster, or misses the goal, is none.
    assert not shown(compared(9.0)).hints and not shown(compared(0.1, {"FP16": 0.5, "INT8": 0.5})).hints
    # Timed in turns, these decide.
    fastest = found.trials[-1]
    assert final.finalists(found.trials, found.winner, CALL)[-1] == fastest

    def turned(*factors):
        timed = final.final(CALL, [0, found.winner.number, fastest.number], turns(*factors))
        assert final.chosen(timed, found.trials, TOP1) == found.winner
        return shown(found, final=timed).hints

    (hint,) = turned(8.0, 2.0, 1.0)
    assert re.search(r"2\.0\d times as fast as the winner \(95 %: ", hint)
    assert not turned(8.0, 1.0, 1.0) and not turned(8.0, 1.0, 2.0)


def test_an_original_that_is_faster_than_the_winner_is_named(capsys):
    found = compared(9.0)
    native = {CALL: Latency(0.01, 0.0, 500)}
    (hint,) = shown(found, native=native).hints
    assert (
        hint.startswith("the original is faster than the winner") and "0.010 ms at " in hint and "timed alone" in hint
    )
    tune_command._print(shown(found, native=native), None)
    assert hint in " ".join(capsys.readouterr().out.split())
    assert hint in gave.tune(None, shown(found, native=native).to_dict())
    # One that cannot be told apart is none, and timed in turns these decide.
    assert not shown(found, native={CALL: found.winner.measured.latencies[CALL]}).hints
    numbers = [0, found.winner.number, found.trials[-1].number]

    def turned(*factors):
        return shown(found, native=native, final=final.final(CALL, numbers, turns(*factors))).hints

    (hint,) = turned(1.0, 2.0, 9.0)
    assert re.search(r"2\.0\d times as fast as the winner \(95 %: ", hint)
    assert not turned(1.0, 1.0, 9.0) and not turned(2.0, 1.0, 9.0)


def test_where_only_what_the_server_does_not_run_keeps_the_goal_no_sentence_says_that_nothing_does(tmp_path):
    def run(conversion):
        means = dataclasses.replace(Synthetic([], []).means(), evaluate=lambda settings: conversion, rank=no_node)
        plan = search.Means(evaluate=measured(0.1), rank=unasked, snr_db=unasked)
        room = space.Space(base=BASE, backends=("tftrt",), compared=("tensorrt",), precisions=("FP16",))
        return shown(
            search.search({"tftrt": means, "tensorrt": plan}, room, CALL, TOP1, 0.98, search.Budget(9, 1e9), 0.0)
        )

    def no_node(settings):
        return Ranked((), 1)

    done = run(Measured(accuracy=0.5, latencies={CALL: Latency(2.0, 0.0, 500)}))
    (hint,) = done.hints
    assert hint.startswith("trial 2 (plan, FP16) keeps the goal, and TensorFlow Serving does not run it")
    says = "no trial that TensorFlow Serving runs keeps top1 >= 0.97"
    assert str(tune_command._none_keeps(done)).startswith(f"{says}; nearest is trial 1")
    assert done.summary() == "model: none of 1 trials that TensorFlow Serving runs keeps top1 >= 0.97"
    assert gave.tune(None, done.to_dict()).startswith(f"{says}; nearest is FP16, trial 1")
    page = html.tuning_page(done)
    assert "no trial that TensorFlow Serving runs keeps the goal" in page and "plan, FP16, only compared" in page
    without = run(Measured(failure="no segment is worth an engine"))
    says = "no trial that TensorFlow Serving runs gave a model"
    assert str(tune_command._none_keeps(without)).startswith(f"{says}: no segment")
    assert gave.tune(None, without.to_dict()).startswith(says)


def test_the_flag_that_a_hint_names_lets_the_model_win(zoo_model):
    (hint,) = shown(compared(0.1)).hints
    model = of(zoo_model("digits_cnn"))
    values, _ = _flags.parse("tune", tune_command, [str(model), hint.rpartition(" ")[2]])
    assert tune_command._tried(values, model).backends == ("tftrt", "tensorrt")
    # The story of `tftrt optimize` repeats the hint.
    _flags.parse("optimize", optimize_command, ["model", hint.rpartition(" ")[2]])


def test_a_server_that_is_not_known_here_is_no_server_of_a_back_end():
    class Elsewhere:
        name, title, servers = "elsewhere", "thing", ("triton", "torchserve")

    with backends.register(Elsewhere()):
        assert backends.servers("elsewhere") == ("triton",)


def test_the_table_has_the_original_every_trial_and_its_graphs_with_what_serves_them(capsys, tmp_path):
    def plan(settings):
        graphs = {CALL: Latency(0.25, 0.0, 500)} if settings.precision_mode == "INT8" else {}
        return dataclasses.replace(measured(0.4)(settings), snr_db=41.5, model_bytes=2_000_000, graphs=graphs)

    found = searched(plan)
    done = shown(found, server="")
    rows = done.table
    assert [one.trial for one in rows] == [1, 2, 3, 4, 5, 6, 6, 0]
    winner, launched, native = rows[5], rows[6], rows[7]
    assert (winner.what, winner.remark, winner.served_by) == ("plan, INT8", "winner", "Triton")
    assert (launched.what, launched.remark) == ("plan, INT8, with CUDA graphs", "")
    assert (winner.rows_per_second, launched.rows_per_second) == (8 / 0.4e-3, 8 / 0.25e-3)
    assert (native.what, native.kept, native.served_by) == ("TensorFlow", None, "TF Serving, Triton")
    assert native.model_bytes == 5_000_000 and native.rows_per_second == pytest.approx(8 / 9e-3)
    (hint,) = done.hints
    assert hint.startswith(
        "the winner's calls take 0.250 ms as CUDA graphs, and 0.400 ms without, timed one after the other; TFTRT_PLAN_CUDA_GRAPH=1"
    )
    tune_command._print(done, None)
    said = " ".join(capsys.readouterr().out.split())
    assert "CUDA graphs" in said and hint in said and "rows/s are those of one caller" in said
    written = json.loads(json.dumps(done.to_dict(), allow_nan=False))
    assert [one["what"] for one in written["table"]] == [one.what for one in rows] and written["hints"] == [hint]
    html.write_tuning(done, tmp_path / "tuning.html")
    page = (tmp_path / "tuning.html").read_text()
    assert page.count("<tr") == len(rows) + 1 and page.count('class="winner"') == 1 and hint in unescape(page)
    html.write_tuning(shown(compared(0.1)), tmp_path / "compared.html")
    assert "only compared: TensorFlow Serving does not run it" in (tmp_path / "compared.html").read_text()


def test_a_graph_that_is_no_faster_is_no_hint():
    def plan(settings):
        return dataclasses.replace(measured(0.4)(settings), graphs={CALL: Latency(0.396, 0.0, 500)})

    assert not shown(searched(plan), server="").hints


def test_what_else_a_back_end_can_make_is_tried_where_the_plain_precision_gave_a_model():
    def variants(settings):
        return (space.with_int8_as(settings),) if settings.precision_mode == "INT8" else ()

    def plan(settings):
        plain = measured(0.4)(settings)
        return dataclasses.replace(plain, latencies={CALL: Latency(0.2, 0.0, 500)}) if is_chosen(settings) else plain

    def is_chosen(settings):
        return isinstance(settings, space.Int8As)

    model = Synthetic([0.03, 0.001], [0.1, 0.1])
    room = dataclasses.replace(model.space(), backends=("tftrt", "tensorrt"))

    def run(evaluate):
        plans = search.Means(evaluate=evaluate, rank=unasked, snr_db=unasked, variants=variants)
        return search.search(
            {"tftrt": model.means(), "tensorrt": plans}, room, CALL, TOP1, 0.98, search.Budget(99, 1e9), 0.0
        )

    found = run(plan)
    assert found.winner.text == "plan, INT8, only where TensorRT chooses INT8" == found.trials[6].text
    assert found.winner.to_dict()["settings"]["int8_as"] == "auto"
    assert "int8_as" not in found.trials[5].to_dict()["settings"]
    without = run(lambda settings: Measured(failure="no") if settings.precision_mode == "INT8" else plan(settings))
    assert not any(is_chosen(one.settings) for one in without.trials)


@pytest.mark.parametrize(
    ("settings", "data", "expected"),
    [
        ({"precision_mode": "INT8", "shapes": "x:1x8"}, DataOptions(source="rows.npz"), True),
        ({"precision_mode": "INT8", "shapes": "x:1x8"}, None, False),
        ({"precision_mode": "FP16", "shapes": "x:1x8"}, DataOptions(source="rows.npz"), False),
        ({"precision_mode": "INT8", "shapes": "x:min=1x8,max=9x8"}, DataOptions(source="rows.npz"), False),
    ],
)
def test_int8_as_tensorrt_chooses_it_needs_data_and_exact_shapes(zoo_model, tmp_path, settings, data, expected):
    made = plans(zoo_model("digits_cnn"), tmp_path)
    made = dataclasses.replace(made, asked=dataclasses.replace(made.asked, data=data))
    found = made.variants(Settings(**settings))
    assert bool(found) is expected
    if found:
        (one,) = found
        built = made.built_with(one)
        assert (built.int8_as, built.precision_mode, built.shapes) == ("auto", "INT8", "x:1x8")
        # It is made from the model and the data, in one command.
        assert made.exported(one) is None and made.data(one) == data and not made.variants(one)
        assert made.source(one).path == str(zoo_model("digits_cnn"))
        assert "--int8_as=auto" in space.flag_lines(built)


class Launched(plan_runner.Loaded):
    """A plan whose calls may be launched as graphs. graphs: what they answer otherwise is told by `wrong`."""

    graphs = False
    wrong = False
    captures = True
    captured = 0

    def ready(self, signature, inputs):
        ready, counted = super().ready(signature, inputs), []

        def call():
            answer = ready()
            if self.graphs and self.captures and not counted:
                counted.append(True)
                self.captured += 1
            return {name: array + 1 for name, array in answer.items()} if self.graphs and self.wrong else answer

        return call


def test_what_cannot_be_loaded_with_graphs_is_timed_without(exported, scoring):
    @contextlib.contextmanager
    def load(path, wanted):
        if wanted.graphs:
            raise errors.TftrtError("out of GPU memory", "")
        yield Launched(runner_job.opened(f"{path}/model.onnx"))

    asked = OfMade(path=str(exported), title="plan", facts=Measured(engines=1), timed=(TIMED,), scoring=scoring)
    found = measure_job.made(asked, load)
    assert not found.failure and found.latencies and found.graphs == {}


def test_what_does_not_fit_beside_the_others_in_the_last_turns_is_left_out():
    found, seen = compared(0.1), []

    class Full:
        def in_turns(self, best, timed):
            seen.append([one.compared for one in best])
            if any(seen[-1]):
                raise errors.TftrtError("out of GPU memory", "")
            return "final"

    best = final.finalists(found.trials, found.winner, CALL)
    assert tune._with_what_fits(Full(), best, TIMED) == "final" and seen[0][-1] and not any(seen[1])

    class Broken:
        def in_turns(self, best, timed):
            raise errors.TftrtError("no GPU any more", "")

    with pytest.raises(errors.TftrtError, match="no GPU any more"):
        tune._with_what_fits(Broken(), [found.winner], TIMED)


@pytest.mark.parametrize(("changes", "timed"), [({}, True), ({"wrong": True}, False), ({"captures": False}, False)])
def test_calls_are_timed_as_graphs_only_where_they_are_captured_and_answer_alike(exported, scoring, changes, timed):
    loads = []

    @contextlib.contextmanager
    def load(path, wanted):
        loads.append(wanted.graphs)
        loaded = Launched(runner_job.opened(f"{path}/model.onnx"))
        vars(loaded).update(changes, graphs=wanted.graphs)
        yield loaded

    asked = OfMade(path=str(exported), title="plan", facts=Measured(engines=1), timed=(TIMED,), scoring=scoring)
    found = measure_job.made(asked, load)
    assert loads == [False, True] and not found.failure and bool(found.graphs) is timed
    assert found.model_bytes >= (exported / "model.onnx").stat().st_size and found.snr_db > 60
    # A runner that cannot capture is loaded once.
    assert measure_job.made(asked, plan_runner.load).graphs == {}


@pytest.mark.parametrize(
    ("flags", "backends", "compared", "server"),
    [
        ((), ("tftrt",), ("tensorrt",), "tensorflow"),
        (("--server=tensorflow",), ("tftrt",), ("tensorrt",), "tensorflow"),
        (("--server=triton",), ("tftrt", "tensorrt"), (), "triton"),
        (("--backend=tftrt",), ("tftrt",), (), ""),
        (("--backend=tftrt,tensorrt",), ("tftrt", "tensorrt"), (), ""),
        (("--backend=tensorrt,tftrt", "--server=tensorflow"), ("tftrt",), ("tensorrt",), "tensorflow"),
    ],
)
def test_who_makes_what_is_tried_follows_the_server(zoo_model, flags, backends, compared, server, monkeypatch):
    monkeypatch.setattr(bindings, "installed", lambda: True)
    model = of(zoo_model("digits_cnn"))
    values, _ = _flags.parse("tune", tune_command, [str(model), *flags])
    found = tune_command._tried(values, model)
    assert (found.backends, found.compared, found.server) == (backends, compared, server)


def test_without_tensorrts_package_there_is_nothing_to_compare(zoo_model, monkeypatch):
    monkeypatch.setattr(bindings, "installed", lambda: False)
    values, _ = _flags.parse("tune", tune_command, ["model"])
    assert tune_command._tried(values, of(zoo_model("digits_cnn"))) == tune_command._Tried(("tftrt",), (), "tensorflow")


def test_a_comparison_that_can_only_fail_is_left_out_and_said():
    options = tune.Options(data="", goal=TOP1, work_dir="", compared=("tensorrt",))
    assert tune._comparable(options, ["a"]) == options
    found = tune._comparable(options, ["a", "b"])
    assert found.compared == () and found.notes[0].endswith("(--signature_keys=a names one)")


def test_a_frozen_input_is_read_by_no_node_of_the_file_of_a_plan(tmp_path):
    model = unet_with_conditionals(tmp_path / "unet")
    made = plans(model, tmp_path, names={"serving_default": ("serving_default",)})
    settings = Settings(shapes="volume:2x8x8x8x1;serving_default/training:scalar", freeze="training:false")
    settings = space.with_precision(settings, "FP32")
    file = onnx.load(made.export(settings))
    # As in a conversion, it stays an input, so that callers do not break.
    assert {one.name for one in file.graph.input} == {"volume", "training"}
    assert not any("training" in node.input or node.op_type == "If" for node in file.graph.node)
    assert made.built_with(settings).shapes == "volume:2x8x8x8x1;training:scalar"
    assert made.built_with(space.with_int8_as(settings)).freeze == "training:false"
