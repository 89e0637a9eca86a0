"""`tftrt diagnose`: each cause is found where a profile shows it, and only there; a healthy model has none."""

import dataclasses
import gzip
import json
import pathlib
import shutil

import numpy as np
import pytest

from tests import diagnosed, engine_recordings
from tests.command_line import assert_clear
from tests.conformance.launch import LocalServer
from tests.conftest import ROOT
from tests.diagnosed import MS, call, op, profile, run, several, trace
from tests.gpu_commands import NO_GPU
from tests.rooms.servers.test_triton_publish import onnx_file, plan_directory
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _calling, _output
from tftrt_tools.command_line.commands import diagnose as diagnose_command
from tftrt_tools.fleet import beside
from tftrt_tools.models.execution import run as run_room
from tftrt_tools.models.inputs import calls
from tftrt_tools.studies.bench import breakdown
from tftrt_tools.studies.bench.gpu_watch import Use
from tftrt_tools.studies.diagnosis import diagnose, finding, in_turns, served, trial
from tftrt_tools.studies.diagnosis.causes import profile_range
from tftrt_tools.studies.diagnosis.finding import Diagnosis, Finding, Looked
from tftrt_tools.studies.profiling import layers, measure
from tftrt_tools.studies.profiling import stored as stored_profiles
from tftrt_tools.studies.profiling.profile import Profile
from tftrt_tools.studies.tuning import repeats


def told(found, **options):
    """{cause: Finding} of a profile; of several with one cause, the one that is worth most."""
    done = diagnose.diagnose(found, "converted", "original", **options)
    return {one.cause: one for one in reversed(done.findings)}


def recorded(name):
    """The Profile that an H100 recorded."""
    folder = ROOT / "tests/data/calls" / name
    facts, manifest = (
        json.loads(gzip.decompress((folder / f"{one}.json.gz").read_bytes())) for one in ("facts", "manifest")
    )
    return measure.of_recording(
        facts, folder, [measure.Named("m", "1"), measure.Named("o", "2")], manifest, True
    ).profile


# --- recorded on a GPU


def test_a_shape_without_an_engine_is_the_first_finding():
    done = diagnose.diagnose(recorded("digits_fp16"), "digits_fp16", "digits_cnn")
    first = done.findings[0]
    assert first.cause == "fallback" and "4x8x8x1" in first.call and first.basis == "estimate"
    assert first.worth == pytest.approx(0.7 * MS, rel=0.2) and "Engine retrieval" in first.evidence[0]
    assert first.command[0] == "build" and "4x8x8x1" in first.command[2] and "32x8x8x1" in first.command[2]


def stored(name):
    """The Profile that an H100 recorded, as `tftrt profile --json` wrote it."""
    return Profile.from_dict(json.loads(gzip.decompress((ROOT / f"tests/data/profiles/{name}.json.gz").read_bytes())))


def test_a_plan_is_told_what_a_cuda_graph_saves_and_nothing_of_tensorflow():
    found = stored("resnet50_plan_fp16")
    done = diagnose.diagnose(found, "resnet_plan", "resnet", least_share=0)
    by_call = {one.call: one for one in done.findings if one.cause == "launches"}
    one, many = by_call["serving_default(image 1x224x224x3)"], by_call["serving_default(image 32x224x224x3)"]
    # Whole calls gained 0.045 ms each on that GPU: a ceiling has to be above.
    assert (
        one.basis == many.basis == "ceiling"
        and 0.045 * MS < one.worth < 0.06 * MS
        and 0.045 * MS < many.worth < 0.14 * MS
    )
    assert "TFTRT_PLAN_CUDA_GRAPH=1" in one.mend and "69 kernels" in one.title
    pictures = [one for one in done.findings if one.cause == "inputs"]
    assert pictures and all(one.command == () and "tftrt wrap" in one.mend for one in pictures), (
        "no plan can be wrapped"
    )
    assert not any("manifest" in line for line in done.unknown)
    # TensorFlow captures no engine.
    assert not any(
        one.cause == "launches"
        for one in diagnose.diagnose(recorded("resnet50_fp16"), "a", "b", least_share=0).findings
    )


def test_the_kept_profile_of_a_plan_is_diagnosed_without_a_gpu(tmp_path, zoo_model, tftrt):
    plan = plan_directory(tmp_path / "plan")
    done = tftrt("diagnose", zoo_model("digits_cnn"), plan, env=NO_GPU)
    assert_clear(done, 1, "carries no profile")
    assert f"run `tftrt profile {plan}` on" in done.stderr, "a plan is profiled by itself"
    done = tftrt("diagnose", zoo_model("digits_cnn"), plan, "--shapes=image:2x8x8x1", "--seed=3", env=NO_GPU)
    assert f"run `tftrt profile {plan} --shapes=image:2x8x8x1 --seed=3` on" in done.stderr
    stored_profiles.keep(plan, stored("resnet50_plan_fp16"))
    done = tftrt("diagnose", zoo_model("digits_cnn"), plan, env=NO_GPU)
    assert done.returncode == 0 and "TFTRT_PLAN_CUDA_GRAPH=1" in done.stdout and "[launches]" in done.stdout, (
        done.stderr
    )
    assert_clear(tftrt("diagnose", plan, plan, env=NO_GPU), 2, "it is built already")
    done = tftrt("diagnose", onnx_file(tmp_path / "m.onnx"), plan, env=NO_GPU)
    assert done.returncode == 0 and "[launches]" in done.stdout, "a plan may be built from any file"


def test_float_pictures_are_the_first_finding_of_a_large_batch():
    done = diagnose.diagnose(recorded("resnet50_fp16"), "resnet_fp16", "resnet")
    assert done.findings[0].cause == "inputs" and "32x224x224x3" in done.findings[0].call
    assert 2 * MS < done.findings[0].worth < 6 * MS and done.findings[0].command[0] == "wrap"
    (small,) = [one for one in done.findings if one.cause == "small-batch"]
    assert "1x224x224x3" in small.call


def test_what_a_range_can_give_is_above_what_its_mend_gave_there():
    """72 layers whose kernels were chosen for 8192 rows, called with one; the model that was built for one row was 1.15 to 1.34 ms faster."""
    kept = stored("range_fp16")
    done = diagnose.diagnose(kept, "converted", "original")
    first = done.findings[0]
    assert first.cause == "range" and "features 1x64" in first.call and first.basis == "ceiling"
    assert 1.34 * MS < first.worth < 1.75 * MS and "take 1.75 ms" in first.rule
    # Of 370 layers 296 launch no kernel.
    assert all(profile_range.least(engine) <= engine.layer_seconds for engine in kept.engines)


def test_a_diagnosis_is_read_back_as_it_was_written():
    done = diagnose.diagnose(recorded("digits_fp16"), "digits_fp16", "digits_cnn")
    assert Diagnosis.from_dict(json.loads(json.dumps(done.to_dict()))).findings == done.findings


# --- one cause after the other


def test_nothing_is_wrong_with_a_healthy_model():
    done = diagnose.diagnose(
        profile(call(), original=[call(parts={("op", "GPU"): 3.0}, engines=())], declared=[(32, 64)]), "c", "o"
    )
    assert not done.findings and any("no setting of an engine" in one.text for one in done.remarks)


def test_what_a_fallback_costs_is_read_off_the_calls_around_it():
    low, high = (call((rows, 64), parts={("engine", "GPU"): ms}) for rows, ms in ((1, 1.0), (9, 3.0)))
    missed = call(
        (5, 64), parts={("op", "GPU"): 5.0}, engines=(), later=trace(fallback={"TRTEngineOp_0_0": 1}, engine={})
    )
    found = told(profile(low, missed, high, declared=[(1, 64), (9, 64)]))["fallback"]
    assert found.worth == pytest.approx(3 * MS) and "between batch 1" in found.rule


def test_a_fallback_without_any_call_that_ran_has_no_figure():
    missed = call(
        (5, 64), parts={("op", "GPU"): 5.0}, engines=(), later=trace(fallback={"TRTEngineOp_0_0": 1}, engine={})
    )
    done = diagnose.diagnose(profile(missed), "c", "o")
    assert [one.cause for one in done.findings] == ["fallback"] and done.findings[0].worth is None


def test_an_engine_that_the_build_left_native_is_no_fallback():
    from tftrt_tools.tftrt.conversion.signature_result import Unbuilt

    missed = call(parts={("op", "GPU"): 5.0}, engines=(), later=trace(fallback={"TRTEngineOp_0_0": 1}, engine={}))
    found = profile(missed)
    left = dataclasses.replace(found.signatures[0], unbuilt=(Unbuilt(name="TRTEngineOp_0_0", reason="refused"),))
    assert "fallback" not in told(dataclasses.replace(found, signatures=(left,)))


def test_ops_outside_of_engines_are_named_by_what_they_cost():
    parts = {("engine", "GPU"): 1.0, ("op", "GPU"): 2.0, ("op", "host"): 0.5}
    found = told(profile(call(parts=parts, ops=[op("Where", gpu=1.5), op("TopKV2", gpu=0.5)])))["coverage"]
    assert found.worth == pytest.approx(2.5 * MS) and found.evidence[0].index("Where") < found.evidence[0].index(
        "TopKV2"
    )


def test_engines_that_a_flag_cut_apart_are_one_finding_with_the_flag_in_its_mend():
    engines = [run(f"TRTEngineOp_0_{number}", gpu=0.1) for number in range(4)]
    parts = {("engine", "GPU"): 0.4, ("engine", "host"): 0.8, ("graph", "host"): 0.4, ("op", "GPU"): 0.2}
    found = told(profile(call(parts=parts, engines=engines), settings={"keep_native_ops": ["Relu"]}))
    assert found["many-engines"].worth == pytest.approx((1.2 * 3 / 4 + 0.2) * MS) and "coverage" not in found
    assert found["many-engines"].command[-1] == "--keep_native_ops="


def test_two_engines_by_themselves_are_not_many():
    engines = [run(f"TRTEngineOp_0_{number}", gpu=0.5) for number in range(2)]
    assert "many-engines" not in told(
        profile(call(parts={("engine", "GPU"): 1.0, ("engine", "host"): 0.2}, engines=engines))
    )


@pytest.mark.parametrize(
    ("strategy", "rows", "wanted"), [("Range", 1, True), ("Range", 32, False), ("Optimal", 1, False)]
)
def test_a_range_is_named_for_shapes_far_below_its_largest(strategy, rows, wanted):
    found = told(profile(call((rows, 64)), strategy=strategy, declared=[(1, 64), (64, 64)]))
    assert ("range" in found) == wanted
    assert not wanted or "--dynamic_shape_profile_strategy=Optimal" in found["range"].command


@pytest.mark.parametrize(
    ("asked", "arithmetic", "wanted"),
    [
        ("INT8", {"FP16": 1.0, "INT8": 0.1}, True),
        ("INT8", {"FP16": 0.1, "INT8": 1.0}, False),
        ("FP16", {"TF32": 1.0}, True),
        ("FP16", {"FP16": 1.0, "other": 3.0}, False),
        ("FP32", {"FP32": 1.0}, False),
        ("INT8", {"other": 1.0}, False),
    ],
)
def test_a_precision_that_was_not_taken(asked, arithmetic, wanted):
    found = told(
        profile(
            call(engines=[run(arithmetic=arithmetic)]), settings={"precision_mode": asked, "high_precision_nodes": ".*"}
        )
    )
    assert ("precision" in found) == wanted
    if wanted:
        assert (
            found["precision"].worth == pytest.approx(0.5 * MS)
            and "--high_precision_nodes=" in found["precision"].command
        )


@pytest.mark.parametrize(
    ("asked", "tensorrt", "wanted"), [("INT8", "8.5.3", True), ("INT8", "10.3.0", False), ("FP16", "8.5.3", False)]
)
def test_what_int8_gave_on_this_gpu_stands_beside_its_ceiling(asked, tensorrt, wanted):
    made = profile(call(engines=[run(arithmetic={"FP32": 1.0})]), settings={"precision_mode": asked})
    found = told(dataclasses.replace(made, machine=dataclasses.replace(made.machine, versions={"tensorrt": tensorrt})))[
        "precision"
    ]
    assert any("18 and 27 %" in line for line in found.evidence) == wanted


def test_layers_in_a_wider_type_are_named_where_the_engine_was_profiled():
    inside = dataclasses.replace(engine_recordings.profiles(engine_recordings.DIGITS)[2], engine="TRTEngineOp_0_0")
    found = dataclasses.replace(
        profile(call((32, 8, 8, 1), engines=[run(arithmetic={"TF32": 1.0})])), engines=(inside,)
    )
    assert any(
        line.startswith("layers: ") and "hidden/MatMul" in line and "TF32" in line
        for line in told(found)["precision"].evidence
    )


def test_moves_of_values_and_what_bounds_the_layers_are_told_where_the_engine_was_profiled():
    inside = dataclasses.replace(engine_recordings.profiles(engine_recordings.RESNET)[-1], engine="TRTEngineOp_0_0")
    moving = tuple(
        dataclasses.replace(layer, role="reformat") if number % 2 else dataclasses.replace(layer, bound="memory")
        for number, layer in enumerate(inside.layers)
    )
    found = dataclasses.replace(profile(call((32, 224, 224, 3))), engines=(dataclasses.replace(inside, layers=moving),))
    done = diagnose.diagnose(found, "c", "o")
    (reformat,) = (one for one in done.findings if one.cause == "reformat")
    assert reformat.worth == pytest.approx(sum(layer.seconds for layer in moving if layer.role in layers.MOVES))
    assert "layers: " in reformat.evidence[0]
    assert "memory-bound" in {one.cause for one in done.remarks}


def test_pictures_as_floats_cost_what_depends_on_their_size():
    small = call((1, 224, 224, 3), parts={("input", "host"): 0.1, ("engine", "GPU"): 1.0})
    large = call((11, 224, 224, 3), parts={("input", "host"): 0.6, ("input", "GPU"): 0.5, ("engine", "GPU"): 1.0})
    found = told(profile(small, large))["inputs"]
    assert found.worth == pytest.approx(0.75 * 1.1 * MS) and "11x224" in found.call


@pytest.mark.parametrize(
    ("shape", "dtype"), [((8, 64), "float32"), ((8, 56, 56, 64), "float32"), ((8, 224, 224, 3), "uint8")]
)
def test_other_inputs_that_take_long_are_a_remark(shape, dtype):
    done = diagnose.diagnose(
        profile(call(shape, dtype=dtype, parts={("input", "host"): 1.0, ("engine", "GPU"): 1.0})), "c", "o"
    )
    assert "inputs" not in {one.cause for one in done.findings} and "inputs" in {one.cause for one in done.remarks}


def test_few_rows_leave_the_gpu_idle_and_many_rows_that_wait_for_python_do_not_count_as_few():
    parts = {("call", "host"): 0.3, ("graph", "host"): 0.2, ("engine", "GPU"): 0.1}
    few, many = told(profile(call((1, 64), parts=parts))), told(profile(call((32, 64), parts=parts)))
    assert (
        few["small-batch"].worth == pytest.approx(0.5 * MS)
        and few["small-batch"].basis == "ceiling"
        and "calling" not in few
    )
    assert many["calling"].worth == pytest.approx(0.5 * MS) and "small-batch" not in many


def test_few_rows_are_worth_what_rows_cost_less_in_a_larger_call_of_the_profile():
    parts = {("call", "host"): 0.3, ("graph", "host"): 0.2, ("engine", "GPU"): 0.1}
    found = told(profile(call((2, 64), parts=parts), call((32, 64), parts={**parts, ("engine", "GPU"): 1.1})))[
        "small-batch"
    ]
    assert (
        found.worth == pytest.approx((0.6 - 2 * 1.6 / 32) * MS)
        and found.basis == "estimate"
        and "batch 32" in found.rule
    )


def test_several_callers_that_get_more_are_told_with_what_an_answer_costs():
    found = told(profile(call(callers=[several(1, 1000), several(2, 1900), several(4, 2000)])))["one-caller"]
    assert found.worth == pytest.approx(0.5 * MS) and "4 get 2000" in found.title
    assert "one-caller" not in told(profile(call(callers=[several(1, 1000), several(4, 1100)])))


def test_a_lowered_clock_is_worth_its_share_of_the_gpus_work():
    use = Use(
        gpu=0,
        name="GPU",
        samples=5,
        mean_utilization=90.0,
        max_utilization=99,
        max_memory_mib=1,
        mean_clock_mhz=990.0,
        min_clock_mhz=900,
        mean_power_w=300.0,
        max_temperature_c=80,
        slowed=("power cap",),
    )
    slow = call(callers=[dataclasses.replace(several(1, 1000), gpus=(use,))])
    found = told(profile(slow, gpus=[diagnosed.gpu(most_sm_mhz=1980)]))["gpu-state"]
    assert found.worth == pytest.approx(0.5 * MS) and "power cap" in found.evidence[0]
    assert "gpu-state" not in told(profile(slow, gpus=[diagnosed.gpu(most_sm_mhz=1000)]))


def test_other_processes_and_slices_of_the_gpu_are_named():
    done = diagnose.diagnose(
        profile(
            call(),
            gpus=[diagnosed.gpu(processes=2, mig=True, power_limit_w=300.0, default_power_limit_w=700.0)],
            cpus=2,
            load=9.0,
        ),
        "c",
        "o",
    )
    assert [one.cause for one in done.findings] == ["gpu-state"] and done.findings[0].worth is None
    assert [one.cause for one in done.remarks].count("gpu-state") == 3


@pytest.mark.parametrize("others", [0, 2])
def test_shapes_that_were_measured_beside_it_are_a_remark(others):
    ran = beside.Ran(host="h", gpu="GPU-a", others=others)
    done = diagnose.diagnose(profile(dataclasses.replace(call(), ran=ran)), "c", "o")
    told = [one.text for one in done.remarks if "measure" in one.text]
    assert len(told) == bool(others) and all("up to 2 other measurements" in one for one in told)


def test_an_original_that_is_fast_already_is_a_remark():
    native = call(parts={("op", "GPU"): 3.0}, engines=[run(arithmetic={"TF32": 3.0})])
    done = diagnose.diagnose(profile(call(), original=[native], xla=2), "c", "o")
    assert {"XLA" in one.text for one in done.remarks if one.cause == "native-fast"} == {True, False}


def test_a_slow_first_call_is_told_once():
    done = diagnose.diagnose(profile(call((1, 64), first=1.0), call((32, 64), first=2.0)), "c", "o")
    assert ["2.00 s" in one.text for one in done.remarks if one.cause == "cold"] == [True]


# --- the order, and what is left out


def test_the_most_worth_comes_first_and_what_has_no_figure_last():
    ordered = finding.ranked([Finding(cause="cold", title="", worth=worth) for worth in (None, 1.0, 3.0, 2.0)])
    assert [one.worth for one in ordered] == [3.0, 2.0, 1.0, None]


def test_what_lies_in_the_call_comes_after_what_a_change_to_the_model_mends():
    ordered = finding.ranked(
        [
            Finding(cause=cause, title="", worth=worth)
            for cause, worth in (
                ("calling", 9.0),
                ("small-batch", 8.0),
                ("fallback", None),
                ("range", 1.0),
                ("inputs", 2.0),
            )
        ]
    )
    assert [one.cause for one in ordered] == ["inputs", "range", "fallback", "calling", "small-batch"]


def test_a_ceiling_counts_half_as_much_as_an_estimate():
    ordered = finding.ranked(
        [
            Finding(cause=cause, title="", worth=worth, basis=basis)
            for cause, worth, basis in (
                ("calling", 8.0, "ceiling"),
                ("one-caller", 3.0, "estimate"),
                ("small-batch", 6.0, "estimate"),
            )
        ]
    )
    assert [one.cause for one in ordered] == ["small-batch", "calling", "one-caller"]


@pytest.mark.parametrize(
    ("low", "high", "told"), [(0.1, 0.3, True), (-0.3, -0.1, True), (-0.1, 0.3, False), (None, None, False)]
)
def test_a_trial_tells_nothing_where_its_interval_holds_zero(low, high, told):
    assert finding.Trial(command=("build",), before=1.0, after=0.8, saved=0.2, low=low, high=high).told == told


def test_a_trial_of_an_earlier_version_has_its_gain_from_the_medians():
    assert finding.Trial.from_dict({"command": ["build"], "before": 1.0, "after": 0.75}).gained == 0.25


def test_what_is_worth_little_of_its_call_is_left_out():
    calls = [Looked(call="a", rows=1, seconds=1.0, engine_seconds=0.0, gpu_seconds=0.0, unplaced_share=0.0)]
    kept = [
        finding.matters(Finding(cause="cold", title="", call="a", worth=worth), calls, 0.05)
        for worth in (0.04, 0.06, None)
    ]
    assert kept == [False, True, True]


def test_a_profile_says_what_it_cannot_tell():
    bare = dataclasses.replace(profile(call()), signatures=(), on_gpu=False)
    unknown = diagnose.diagnose(bare, "c", "").unknown
    assert len(unknown) == 3 and "without a GPU" in unknown[0]


def test_an_idle_gpu_is_no_finding_where_there_is_none():
    found = dataclasses.replace(
        profile(call((1, 64), parts={("call", "host"): 0.3, ("op", "host"): 0.3})), on_gpu=False
    )
    done = diagnose.diagnose(found, "c", "o")
    assert not done.findings and not done.remarks


# --- trying


def attempt(findings, code=0, makes=True, folder=None, causes=()):
    """(the tried findings, the commands that ran)."""
    ran = []

    def command(words):
        ran.append(tuple(words))
        if makes:
            pathlib.Path(words[-1].removeprefix("--output=")).mkdir(parents=True)
        return code

    options = trial.Options(run=command, shapes={"c": ("serving_default", {"x": (1, 2)})}, folder=folder, causes=causes)
    done = trial.tried(Diagnosis(model="m", original="o", profiled="", gpu="", findings=tuple(findings)), options)
    return done.findings, ran


def mend(*words):
    return Finding(
        cause="fallback", title="", call="c", worth=1.0, basis="estimate", command=(*words, "--output=beside")
    )


def test_a_mend_that_fails_is_said_and_does_not_end_the_others():
    found, ran = attempt([mend("build", "m"), mend("convert", "m")], code=1, makes=False)
    assert [one.trial.problem for one in found] == ["the command ended with 1"] * 2 and len(ran) == 2


@pytest.mark.parametrize("code", [0, 1])
def test_what_a_mend_says_stands_beside_the_diagnosis_only_where_it_fails(code, capsys, monkeypatch):
    def command(name, words):
        print(f"written by {name}: {words[0]}")
        return code

    monkeypatch.setattr(_calling, "call", command)
    assert diagnose_command._quietly(["build", "m", "--shapes=x:1x2;y:3"]) == code
    out, err = capsys.readouterr()
    assert (
        out == ""
        and "trying: tftrt build m '--shapes=x:1x2;y:3'" in err
        and ("written by build: m" in err) == (code == 1)
    )


@pytest.mark.parametrize("place", ["command", "timing"])
def test_an_interrupt_ends_all_trials(place, tmp_path, monkeypatch):
    def interrupted(*_):
        raise errors.Interrupted()

    ran = []

    def command(words):
        ran.append(words)
        (tmp_path / "1-fallback").mkdir()
        return interrupted() if place == "command" else 0

    monkeypatch.setattr(in_turns, "timed", interrupted)
    options = trial.Options(run=command, shapes={"c": ("serving_default", {"x": (1, 2)})}, folder=tmp_path)
    with pytest.raises(errors.Interrupted):
        trial.tried(
            Diagnosis(
                model="m", original="o", profiled="", gpu="", findings=(mend("build", "m"), mend("convert", "m"))
            ),
            options,
        )
    assert len(ran) == 1


def test_a_command_that_two_findings_propose_runs_once():
    found, ran = attempt([mend("build", "m"), mend("build", "m")])
    assert len(ran) == 1 and [one.trial.command for one in found] == ran * 2


def test_a_mended_model_and_its_own_are_timed_in_processes_of_their_own(zoo_model):
    """Both have engine ops of the same names, which do not fit into one process on a GPU."""
    model, loaded = str(zoo_model("digits_cnn")), []

    class Watched(repeats.Timed):
        def __init__(self, worker, side):
            loaded.append((worker, side.from_host))
            super().__init__(worker, side)

    asked = in_turns.Asked(model, "serving_default", calls.Asked(shapes="image:2x8x8x1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "Timed", Watched)
        pair = in_turns.timed(asked, asked)
    (first, _), (second, _) = loaded
    assert first is not second and all(from_host for _, from_host in loaded)
    assert pair.before > 0 and pair.after > 0 and pair.low <= pair.saved <= pair.high


CALL = ("serving_default", {"tokens": (2, 3)})


def tried_with(made, model, monkeypatch, **changes):
    """The Trial of a mend that makes `made` of `model`."""
    monkeypatch.setattr(in_turns, "ROUNDS", 6)

    def command(words):
        shutil.copytree(made, words[-1].removeprefix("--output="))
        return 0

    found = Diagnosis(model=str(model), original="o", profiled="", gpu="", findings=(mend("build", "m"),))
    done = trial.tried(found, trial.Options(run=command, shapes={"c": CALL}))
    return Diagnosis.from_dict(json.loads(json.dumps(done.to_dict()))).findings[0].trial


def test_the_answers_of_a_mended_model_are_compared_with_the_models(zoo_model, monkeypatch):
    model = zoo_model("lstm_tagger")
    same = tried_with(model, model, monkeypatch)
    assert same.alike is True and same.answers.startswith("like the model's: no float differs") and same.gained
    other = tried_with(zoo_model("lstm_tagger", seed=1), model, monkeypatch)
    assert other.alike is False and other.answers.startswith("not like the model's: serving_default/tag_logits: ")
    assert not other.better


def test_a_model_that_takes_something_else_is_timed_and_not_compared():
    pixels, floats = ({"image": np.zeros((1, 2), dtype)} for dtype in ("uint8", "float32"))
    asked = [run_room.Call("s", pixels), run_room.Call("s", floats)]
    alike, said = in_turns._compared((), asked, [{"y": floats["image"]}] * 2)
    assert alike is None
    assert said == "not compared with the model's: it takes image float32, and the model image uint8"
    others = [run_room.Call("s", {"image": floats["image"] + number}) for number in range(2)]
    alike, said = in_turns._compared((), others, [{"y": floats["image"]}] * 2)
    assert alike is None and said == "not compared with the model's: it got other random values"
    alike, said = in_turns._compared((), asked[:1] * 2, [{"y": pixels["image"]}, {"z": pixels["image"]}])
    assert alike is None and said == "not compared with the model's: its outputs are z"


def gained(saved, alike, **changes):
    """A Trial of 1 ms and more."""
    told = {"low": saved - 1e-5, "high": saved + 1e-5, **changes}
    answers = {True: "like the model's: SNR 50.0 dB", False: "not like the model's: y: snr_db is 3, wanted >= 30"}
    return finding.Trial(
        command=("convert", str(saved)),
        before=2e-3,
        after=1e-3,
        saved=saved,
        alike=alike,
        answers=answers.get(alike, ""),
        **told,
    )


@pytest.mark.parametrize(
    ("one", "better"),
    [
        (gained(1e-3, True), True),
        (gained(1e-3, False), False),
        (gained(1e-3, None), False),
        (gained(1e-3, True, low=-1e-3), False),
        (gained(-1e-3, True), False),
    ],
)
def test_a_mend_is_better_only_where_it_is_faster_and_answers_the_same(one, better):
    assert one.better is better


def test_a_mend_with_other_answers_is_not_called_one(capsys):
    found = dataclasses.replace(mend("build", "m"), trial=gained(1e-3, False))
    diagnose_command._print(
        _output.console(None), Diagnosis(model="m", original="o", profiled="", gpu="", findings=(found,))
    )
    said = capsys.readouterr().out
    assert "tried: no fix, because the answers change: it saves 1.000 ms" in said
    assert "its answers: not like the model's: y: snr_db is 3, wanted >= 30" in said


def test_the_shapes_of_a_build_are_those_of_all_signatures():
    missed = call(
        (5, 64), parts={("op", "GPU"): 5.0}, engines=(), later=trace(fallback={"TRTEngineOp_0_0": 1}, engine={})
    )
    found = profile(missed, declared=[(1, 64)])
    other = dataclasses.replace(found.signatures[0], name="other", calls=({"y": (2, 3)},))
    command = told(dataclasses.replace(found, signatures=(*found.signatures, other)))["fallback"].command
    assert "--shapes=serving_default/x:1x64,5x64;other/y:2x3" in command


def test_commands_that_only_tell_are_not_tried():
    found, ran = attempt([Finding(cause="coverage", title="", call="c", command=("inspect", "m"))])
    assert found[0].trial is None and not ran


def test_only_the_mends_of_chosen_causes_are_tried():
    found, ran = attempt(
        [mend("build", "m"), dataclasses.replace(mend("wrap", "m"), cause="inputs")],
        code=1,
        makes=False,
        causes=["inputs"],
    )
    assert [words[0] for words in ran] == ["wrap"] and found[0].trial is None and found[1].trial.problem


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--try_causes=range"], "--try_causes chooses what --try applies"),
        (["--try", "--try_causes=cold"], "--try_causes=cold: no flag of this toolkit fixes that"),
        (["--try", "--try_causes=rang"], "these have such fixes: fallback, inputs, many-engines"),
    ],
)
def test_causes_that_cannot_be_tried_are_told(given, says, tftrt):
    assert_clear(tftrt("diagnose", "m", "m", *given), 2, says)


def test_a_model_that_cannot_be_timed_leaves_its_reason(tmp_path):
    found, ran = attempt([mend("build", "m")], folder=tmp_path)
    assert "m" in found[0].trial.problem and found[0].trial.gained is None
    assert ran[0][-1].startswith(f"--output={tmp_path}")


# --- the command


def test_what_lies_in_the_call_alone_is_no_fault_of_the_model(capsys):
    from rich.console import Console

    done = diagnose.diagnose(recorded("digits_fp16"), "c", "o")
    alone = dataclasses.replace(
        done, findings=tuple(one for one in done.findings if one.cause in finding.OF_THE_CALLER)
    )
    diagnose_command._print(Console(width=200), alone)
    said = capsys.readouterr().out
    assert alone.findings and said.index("Nothing is wrong with the model") < said.index("In how it is called")


def test_a_stored_profile_is_diagnosed_without_a_gpu(tftrt, zoo_model, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(recorded("digits_fp16").to_dict()))
    model = str(zoo_model("digits_cnn"))
    done = tftrt("diagnose", model, model, f"--profile={path}", f"--json={tmp_path / 'd.json'}")
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert (
        said.index("[fallback]") < said.index("In how it is called") < said.index("[small-batch]")
        and "fix: build an engine" in said
    )
    assert "Nothing is wrong" not in said
    assert (
        f"this profile is of m, whose files differ from those of {model}, so the findings may be wrong; run `tftrt profile {model} --original="
        in done.stdout
    )
    assert json.loads((tmp_path / "d.json").read_text())["kind"] == "diagnosis"


def test_a_model_that_changed_after_its_profile_is_told_with_the_mend(tftrt, zoo_model, tmp_path):
    path = tmp_path / "profile.json"

    def ask(model):
        document = recorded("digits_fp16").to_dict()
        path.write_text(json.dumps({**document, "model": {**document["model"], "model": str(model)}}))
        return tftrt("diagnose", model, model, f"--profile={path}")

    model, other = zoo_model("digits_cnn"), zoo_model("bert_encoder")
    changed, mend = (
        "{0} has changed since this profile was measured",
        "run `tftrt profile {0} --original={0} --json=FILE` on a machine with a GPU",
    )
    done = ask(model)
    assert done.returncode == 0 and f"{changed}, so the findings may be wrong; {mend}\n".format(model) in done.stdout, (
        done.stderr
    )
    assert_clear(
        ask(other),
        errors.EXIT_USAGE,
        f"{changed}: serving_default(image 1x8x8x1) is no call of {{0}}\n  {mend}".format(other),
    )


def test_a_profile_of_a_model_with_other_inputs_is_refused(tftrt, zoo_model, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(recorded("digits_fp16").to_dict()))
    other = str(zoo_model("bert_encoder"))
    done = tftrt("diagnose", other, other, f"--profile={path}")
    assert_clear(
        done,
        errors.EXIT_USAGE,
        f"this profile is of m, whose files differ from those of {other}: serving_default(image 1x8x8x1) is no call of {other}",
    )
    done = tftrt(
        "diagnose",
        str(zoo_model("digits_cnn")),
        str(zoo_model("digits_cnn")),
        f"--profile={path}",
        "--shapes=image:7x8x8x1",
    )
    assert done.returncode == 0 and "--shapes was not looked at" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{model}"], "1 given"),
        (["{model}", "nowhere"], "no such"),
        (["{model}", "{model}", "--try", "--stored"], "measure nothing"),
        (["{model}", "{model}", "--work_dir=x"], "--try"),
        (["{model}", "{model}"], "carries no profile"),
        (["{model}", "{model}", "--profile=nowhere.json"], "no such file"),
        (["{model}", "{model}", "--rest=h:2"], "give --address"),
        (["{converted}", "{model}"], "was converted, and"),
        (["{model}", "{converted}", "--profile={model}"], "digits_cnn carries no profile"),
        (["{file}", "{model}"], "m.onnx is an ONNX file"),
        (["{model}", "{file}"], "m.onnx is an ONNX file"),
        (
            ["{model}", "{model}", "--address=triton://h:1", "--rest=h:2", "--model_name=m"],
            "is a Triton, which has not the counters",
        ),
    ],
)
def test_bad_input_is_one_line_with_the_mend(words, says, tftrt, zoo_model, converted, tmp_path):
    file = onnx_file(tmp_path / "m.onnx")
    names = {"model": zoo_model("digits_cnn"), "converted": converted("digits_cnn", "--precision=FP16"), "file": file}
    done = tftrt("diagnose", *(word.format(**names) for word in words))
    assert (
        done.returncode in (errors.EXIT_FAILED, errors.EXIT_USAGE)
        and says in done.stderr
        and "Traceback" not in done.stderr
    )


# --- a server


def served_document(**parts):
    """A bench's document with one breakdown; milliseconds."""
    named = {"wire": breakdown.MESSAGES, "queue": breakdown.QUEUE, "decoding": breakdown.DECODING, "ops": breakdown.OPS}
    return {
        "subject": {"address": "h:1", "request_bytes": 1000.0},
        "breakdowns": [
            {"total_ms": sum(parts.values()), "parts": [{"name": named[name], "ms": ms} for name, ms in parts.items()]}
        ],
    }


@pytest.mark.parametrize(
    ("parts", "causes"),
    [
        ({"wire": 6.0, "ops": 4.0}, ["wire"]),
        ({"wire": 1.0, "ops": 9.0}, []),
        ({"wire": 3.0, "queue": 4.0, "decoding": 3.0}, ["wire", "queue", "decoding"]),
    ],
)
def test_what_a_client_pays_is_told_from_a_quarter_on(parts, causes):
    found = list(served.look(served_document(**parts)))
    assert [one.cause for one in found] == causes and all(
        one.worth == pytest.approx(parts[one.cause] * MS) for one in found
    )


def test_a_running_server_is_looked_at(zoo_model, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(diagnose_command, "_SERVED_SECONDS", 1)
    model = zoo_model("digits_cnn")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "1").symlink_to(model)
    (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(recorded("digits_fp16").to_dict()))
    flags = (
        "--model_name=digits",
        f"--model_base_path={tmp_path / 'models'}",
        f"--monitoring_config_file={tmp_path / 'monitoring'}",
    )
    with LocalServer(flags, tmp_path / "log") as server:
        words = [
            str(model),
            str(model),
            f"--profile={path}",
            f"--server={server.grpc_address}",
            f"--rest={server.rest_address}",
            "--model_name=digits",
            "--shapes=image:1x8x8x1",
            f"--json={tmp_path / 'd.json'}",
        ]
        assert _calling.call("diagnose", words) == 0, capfd.readouterr().err
    found = json.loads((tmp_path / "d.json").read_text())["findings"]
    (wire,) = (one for one in found if one["cause"] == "wire")
    assert wire["worth"] > 0 and server.grpc_address in wire["call"], (
        "a request of 319 bytes to a model so small is mostly its way"
    )
