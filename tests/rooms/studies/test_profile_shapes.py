"""`tftrt profile --on=local`: each shape is recorded on a GPU of its own, and what the recorders left is put together. The real recorder runs on
GPUs that are counted and are none, on the processor."""

import dataclasses
import functools
import gzip
import json

import pytest

from tests.rooms.studies.test_profile import DATA
from tests.rooms.studies.test_regress_sizes import began, interrupted, keys, needs_ray, on_counted_gpus
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _flags
from tftrt_tools.command_line.commands import profile as command
from tftrt_tools.fleet import beside
from tftrt_tools.fleet.task import Given, Outcome, Where
from tftrt_tools.models.execution.run import NamedCall
from tftrt_tools.studies.profiling import measure, spread, spread_job
from tftrt_tools.studies.profiling.recording import Recorded, Request

RAN = beside.Ran(host="h", gpu="GPU-a", others=1)
CALLS = tuple(NamedCall(signature="serving_default", inputs=f"{number}.npz") for number in range(3))
REQUEST = Request(
    models=(
        Recorded(name="model", path="m", calls=CALLS),
        Recorded(name="original", path="o", calls=(CALLS[0], None, CALLS[2])),
    ),
    folder="/traces",
    traced=4,
    callers=(1, 2),
    seconds=0.1,
)


def facts_of(name):
    return json.loads(gzip.decompress((DATA / name / "facts.json.gz").read_bytes()))


def test_each_shape_has_both_models_and_the_number_that_it_has_among_all():
    one = spread.one(REQUEST, 1)
    assert [model.calls for model in one.models] == [(None, CALLS[1], None), (None, None, None)]
    assert one.folder == "/traces/shape-2"
    shapes = [spread.one(REQUEST, number) for number in range(3)]
    for place, model in enumerate(REQUEST.models):
        found = [next(filter(None, one.models[place].calls), None) for one in shapes]
        assert tuple(found) == model.calls, "nothing is left out, and nothing is measured twice"


@pytest.mark.parametrize("name", ["resnet50_fp16", "digits_fp16"])
def test_recordings_apart_give_the_profile_that_they_give_together(name, tmp_path):
    """A recording of an H100, cut by its shapes."""
    facts = facts_of(name)
    numbers = sorted({call["number"] for call in facts["calls"]})
    parts = []
    for number in numbers:
        (tmp_path / f"shape-{number + 1}").symlink_to(DATA / name)
        mine = [call for call in facts["calls"] if call["number"] == number]
        parts.append(spread.ran({**facts, "calls": mine}, RAN, f"shape-{number + 1}"))
    whole = spread.together(parts, {}, facts["machine"]["load"])
    named = [measure.Named(name, "sha256:1"), measure.Named("original", "sha256:2")]
    found = measure.of_recording(whole, tmp_path, named, None, True)
    before = measure.of_recording(facts, DATA / name, named, None, True)
    assert len(numbers) == 2 and set(found.traces) == set(before.traces)

    def without_place(side):
        calls = tuple(dataclasses.replace(call, ran=None, notes=call.notes[1:]) for call in side.calls)
        return dataclasses.replace(side, calls=calls)

    for side in ("model", "original"):
        mine, wanted = getattr(found.profile, side), getattr(before.profile, side)
        assert all(call.ran == RAN and call.notes[0] == RAN.note() for call in mine.calls)
        assert without_place(mine) == wanted
    assert found.profile.machine == before.profile.machine and found.profile.notes == before.profile.notes


def use(gpu, slowed=()):
    return {"gpu": gpu, "name": "L4", "slowed": list(slowed)}


def test_a_gpu_that_is_busy_with_another_shape_is_not_told_of_this_one():
    """NVML tells of all GPUs of the machine; a diagnosis would take the neighbour's lowered clock for this call's."""
    facts = facts_of("digits_fp16")
    call = {**facts["calls"][0], "callers": [{"callers": 1, "gpu": [use(0), use(1, ["power cap"])]}]}
    one = {"machine": {"gpus": [{"index": 1, "uuid": "b"}]}, "models": {}, "calls": [call], "failed": {}}
    assert spread.ran(one, RAN, "shape-1")["calls"][0]["callers"][0]["gpu"] == [use(1, ["power cap"])]
    # Without NVML's numbers nothing is known to be of others.
    unknown = {**one, "machine": {}}
    assert len(spread.ran(unknown, RAN, "shape-1")["calls"][0]["callers"][0]["gpu"]) == 2


def test_the_machine_is_as_it_was_before_with_the_gpus_of_all_shapes():
    parts = [
        {
            "machine": {"load": load, "gpus": [{"index": gpu, "uuid": str(gpu), "processes": gpu}]},
            "models": {},
            "calls": [],
            "failed": {},
        }
        for gpu, load in ((1, 9.0), (0, 12.0), (1, 20.0))
    ]
    machine = spread.together(parts, {}, 0.5)["machine"]
    assert machine["load"] == 0.5, "the other shapes' load is not what the machine had before"
    assert [gpu["index"] for gpu in machine["gpus"]] == [0, 1]


def test_a_shape_that_failed_is_a_note_and_the_others_count():
    facts = facts_of("digits_fp16")
    parts = [spread.ran(facts, RAN, ".")]
    found = spread.together(parts, {"shape 3": errors.TftrtError("out of memory", "")}, 0.0)
    named = [measure.Named("m", "d"), measure.Named("o", "d")]
    assert (
        "shape 3: out of memory" in measure.of_recording(found, DATA / "digits_fp16", named, None, True).profile.notes
    )


class Fleet:
    width = 2


def outcomes(monkeypatch, *found):
    """beside.run gives these: facts or errors."""

    def run(fleet, tasks):
        for make, answer in zip(tasks.values(), found, strict=True):
            facts = {"error": answer} if isinstance(answer, Exception) else {"answer": answer}
            where = Where(node="n", host="h", gpus="GPU-a")
            status = "failed" if isinstance(answer, Exception) else "done"
            yield beside.Done(outcome=Outcome(task=make(1), status=status, tries=1, where=where, **facts), others=1)

    monkeypatch.setattr(beside, "run", run)
    return spread.record(Fleet(), REQUEST, False, None, 0.0)


def test_a_mistake_of_the_users_ends_it_and_where_nothing_was_recorded_the_first_error_does(monkeypatch):
    facts = {"machine": {}, "models": {}, "calls": [], "failed": {}}
    with pytest.raises(errors.UsageError, match="no such"):
        outcomes(monkeypatch, facts, errors.UsageError("no such input", ""), facts)
    lost = [errors.TftrtError(text, "") for text in "abc"]
    with pytest.raises(errors.TftrtError, match="a"):
        outcomes(monkeypatch, *lost)
    assert list(outcomes(monkeypatch, facts, *lost[1:])["failed"]) == ["shape 2", "shape 3"]


@pytest.mark.parametrize("others", [0, 1])
def test_a_step_that_fails_beside_others_is_a_failure_and_alone_a_remark(monkeypatch, tmp_path, others):
    stale = tmp_path / "shape" / "facts.json"
    stale.parent.mkdir()
    stale.touch()
    facts = {"calls": [], "failed": {"tracing the model at shape 1": errors.UsageError("out of memory", "").to_dict()}}

    def recorded(request, plan, log_file):
        assert not stale.exists(), "what an earlier try has left would count for this one's"
        return facts

    monkeypatch.setattr(spread_job.measure, "recorded", recorded)
    request = dataclasses.replace(REQUEST, folder=str(stale.parent))
    given = Given(request=spread.Asked(request=request, plan=False, others=others).to_dict())
    if others:
        with pytest.raises(errors.TftrtError, match="tracing the model at shape 1: out of memory") as raised:
            spread_job.job(given)
        assert not isinstance(raised.value, errors.UsageError), "it is to be tried again"
    else:
        assert spread_job.job(given) == facts


def test_a_wrong_place_is_refused():
    values, positional = _flags.parse("profile", command, ["model", "--on=here"])
    with pytest.raises(errors.UsageError, match="is no place"):
        command.run(values, positional)


def test_without_a_gpu_it_changes_nothing(monkeypatch):
    asked, notes = [], []
    monkeypatch.setattr(command._fleet.session, "check", lambda: None)
    monkeypatch.setattr(command._fleet.local_gpus, "alike", lambda: ("GPU-a", "GPU-b"))
    monkeypatch.setattr(
        measure, "measure", lambda options, folder, where: asked.append(where) or pytest.skip("measured")
    )
    values, positional = _flags.parse("profile", command, ["model", "--on=local", "--without_gpu"])
    with progress.notes_to(notes.append), pytest.raises(pytest.skip.Exception):
        command.run(values, positional)
    assert asked == [None] and "changes nothing: without a GPU" in notes[0]


# --- through Ray

FLAGS = ("--shapes=image:1x8x8x1,4x8x8x1", "--callers=1,2", "--traced_calls=4", "--json=p.json")


def started(model, tmp_path, *flags, mark=""):
    return on_counted_gpus(tmp_path, "profile", model, *FLAGS, *flags, mark=mark)


def profiled(model, tmp_path, *flags):
    one = started(model, tmp_path, *flags)
    out, error = one.communicate(timeout=400)
    assert one.returncode == 0, out + error
    return json.loads((tmp_path / "p.json").read_text()), out, error


@needs_ray
@pytest.mark.slow
def test_two_shapes_run_beside_each_other_and_give_what_they_give_in_turn(zoo_model, tmp_path):
    model = zoo_model("digits_cnn")
    files = (f"--original={model}", "--html=p.html", "--trace=t.json")
    found, out, _ = profiled(model, tmp_path, "--on=local", "--log_file=log", *files)
    assert [began(tmp_path, f"shape {number}") for number in (1, 2)] in ([["0"], ["1"]], [["1"], ["0"]])
    titles = {
        one["args"]["name"]
        for one in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        if one["name"] == "process_name"
    }
    assert len(titles) == 4, "a timeline of each model at each shape"
    assert out.count("up to 1 other measurement ran") == 2
    assert (tmp_path / "p.html").read_text().count("up to 1 other measurement ran") == 2
    in_turn, _, _ = profiled(model, tmp_path, "--without_gpu", *files)
    for side in ("model", "original"):
        assert [call["shapes"]["image"][0] for call in found[side]["calls"]] == [1, 4]
        for call, other in zip(found[side]["calls"], in_turn[side]["calls"], strict=True):
            assert [call["ran"]["gpu"]] == began(tmp_path, f"shape {1 if call['shapes']['image'][0] == 1 else 2}")
            assert call["ran"]["others"] == 1 and other["ran"] is None
            assert keys({**call, "ran": None}) == keys(other)
    assert {path.name for path in tmp_path.glob("log*")} == {"log.shape-1", "log.shape-2"}
    assert not list((tmp_path / "tmp").iterdir())


@needs_ray
@pytest.mark.slow
def test_what_fails_beside_others_is_measured_once_more_alone_and_named(zoo_model, tmp_path):
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults/fail shape 2").write_text("1")
    (tmp_path / "faults/kill shape 1").touch()
    found, out, error = profiled(zoo_model("digits_cnn"), tmp_path, "--on=local")
    assert "shape 2: out of memory; it is measured once more, alone" in error
    one, two = (call["ran"] for call in found["model"]["calls"])
    assert (two["others"], two["before"]) == (0, "out of memory") and (one["others"], one["before"]) == (1, "")
    assert "measured alone" in out and len(began(tmp_path, "shape 1")) == 2


@needs_ray
@pytest.mark.slow
def test_ctrl_c_leaves_no_process_and_no_file(zoo_model, tmp_path):
    model = zoo_model("digits_cnn")
    interrupted(tmp_path, ("shape 1", "shape 2"), functools.partial(started, model, tmp_path, "--on=local"))
