"""Measurements beside each other: what failed beside others is done once more alone, and only that counts. Without Ray: what a fleet answers
is made up."""

import contextlib
import os

import pytest

from tests import fleets
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _fleet
from tftrt_tools.fleet import beside, place, running
from tftrt_tools.fleet.task import Outcome, Where

WHERE = Where(node="n", host="h", gpus="GPU-acc98c76-442b-112d-b90b-dfeffcde2fd2")


class Fleet:
    def __init__(self, *gpus):
        self._gpus = gpus

    def nodes(self):
        return {str(number): {"GPU": count} for number, count in enumerate(self._gpus)}


@contextlib.contextmanager
def silent():
    yield lambda rows: None


@pytest.fixture
def runs(monkeypatch):
    """[names of the tasks] of each run, and the ends that are made up: {name: [answer or error of each try]}."""
    said, ends = [], {}

    def run(fleet, tasks, wanted, changed):
        said.append([one.name for one in tasks])
        for one in tasks:
            end = ends[one.name].pop(0) if one.name in ends else one.request["others"]
            failed = isinstance(end, errors.TftrtError)
            facts = {"error": end, "status": "failed"} if failed else {"answer": end, "status": "done"}
            yield Outcome(task=one, tries=1, where=WHERE, **facts)

    monkeypatch.setattr(running, "run", run)
    monkeypatch.setattr(beside.stack, "here", lambda: None)
    return said, ends


def done(*names, gpus=2):
    """({name: Done}, notes)."""
    notes = []
    opened = beside.Opened(fleet=Fleet(gpus), live=silent)
    tasks = {name: lambda others, name=name: fleets.task(name, others=others) for name in names}
    with progress.notes_to(notes.append):
        return {one.outcome.task.name: one for one in beside.run(opened, tasks)}, notes


@pytest.mark.parametrize("gpus, names, others", [(2, "abc", 1), (4, "abc", 2), (1, "abc", 0), (8, "a", 0)])
def test_each_task_hears_how_many_others_there_may_be(runs, gpus, names, others):
    found, notes = done(*names, gpus=gpus)
    assert runs[0] == [list(names)] and not notes
    for one in found.values():
        assert one.outcome.answer == others == one.others and one.before == ""
        assert (f"up to {others} other measurement" in one.ran().note()) == bool(others)
        assert WHERE.gpus in one.ran().note()


def test_what_failed_beside_others_is_done_once_more_alone(runs):
    said, ends = runs
    lost = errors.TftrtError("out of memory", "mend")
    ends |= {"b": [lost, "done alone"], "c": [lost, lost]}
    found, notes = done("a", "b", "c")
    assert said == [["a", "b", "c"], ["b"], ["c"]]
    assert notes == [f"{name}: out of memory; it is measured once more, alone" for name in "bc"]
    assert [found[name].outcome.task.request["others"] for name in "abc"] == [1, 0, 0], "the task knows it, too"
    assert (found["b"].outcome.answer, found["b"].others, found["b"].before) == ("done alone", 0, "out of memory")
    assert found["b"].ran().note().startswith("measured alone") and "out of memory" in found["b"].ran().note()
    wrong = found["c"].error()
    assert (
        wrong.cause == "out of memory (alone, after it had failed beside others: out of memory)"
        and wrong.mend == "mend"
    )


def test_a_mistake_of_the_users_and_what_had_no_others_is_not_done_again(runs):
    said, ends = runs
    ends |= {"a": [errors.UsageError("no such input", "")], "b": ["done"]}
    found, notes = done("a", "b")
    assert len(said) == 1 and not notes and isinstance(found["a"].error(), errors.UsageError)
    ends["a"] = [errors.TftrtError("out of memory", "")]
    found, notes = done("a", gpus=4)
    assert len(said) == 2 and not notes and found["a"].error().cause == "out of memory"


def test_if_the_reader_ends_what_runs_is_ended(runs, monkeypatch):
    ended = []

    def run(fleet, tasks, wanted, changed):
        try:
            for one in tasks:
                yield Outcome(task=one, tries=1, where=WHERE, status="done")
        finally:
            ended.append(True)

    monkeypatch.setattr(running, "run", run)
    opened = beside.Opened(fleet=Fleet(2), live=silent)
    tasks = {name: lambda others, name=name: fleets.task(name) for name in "ab"}
    with contextlib.closing(beside.run(opened, tasks)) as found:
        next(found)
    assert ended == [True]


def test_without_a_place_there_is_no_fleet():
    with beside.opened(None) as found:
        assert found is None


@pytest.mark.parametrize("alike", [("GPU-a", "GPU-b"), ("GPU-a",), ()])
def test_only_gpus_of_one_kind_are_seen_and_only_in_the_block(alike, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-c,GPU-a,GPU-b")
    monkeypatch.setattr(_fleet.local_gpus, "alike", lambda: alike)
    with progress.notes_to([].append), _fleet.beside_each_other(place.parse("local")) as where:
        assert bool(where) == (len(alike) > 1)
        seen = os.environ["CUDA_VISIBLE_DEVICES"]
    assert seen == (",".join(alike) if where else "GPU-c,GPU-a,GPU-b")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-c,GPU-a,GPU-b"


def test_without_on_nobody_asks_for_the_gpus(monkeypatch):
    monkeypatch.setattr(_fleet.local_gpus, "alike", lambda: pytest.fail("asked"))
    with _fleet.beside_each_other(None) as where:
        assert where is None
