"""Jobs: typed calls of a child process."""

import os

import pytest

from tests import doubles
from tests.typed_jobs import Asked, Told, plain, work
from tftrt_tools.base import errors
from tftrt_tools.base.process import child, jobs, progress


def test_a_job_takes_and_gives_records_through_another_process():
    told = work.run(Asked("a", 3)).result
    assert told.asked == Asked("a", 3) and told.process != os.getpid() and told.share == float("inf")
    assert [one.asked.text for one in plain.run(None).result["all"]] == ["a", "b"]


def test_a_worker_answers_many_calls_and_goes_on_after_a_refusal():
    with work.worker() as worker:
        first = worker.call(Asked("a")).result
        with pytest.raises(errors.UsageError, match="no"):
            worker.call(Asked("refuse"))
        assert worker.alive and worker.call(Asked("b")).result.process == first.process


def test_a_process_runs_several_jobs_and_goes_on_after_a_refusal():
    with jobs.process() as process:
        first = process.call(work, Asked("a", 3)).result
        assert first.asked == Asked("a", 3) and first.process != os.getpid()
        with pytest.raises(errors.UsageError, match="no"):
            process.call(work, Asked("refuse"))
        told = process.call(plain, None).result["all"]
        assert [one.asked.text for one in told] == ["a", "b"] and {one.process for one in told} == {first.process}


def test_what_is_no_request_ends_in_the_child_with_its_traceback():
    with pytest.raises(child.ChildBug, match="text"):
        work.run({"text": 1})


def test_a_double_gets_and_gives_what_would_go_through_json(monkeypatch):
    requests = doubles.job(monkeypatch, work, lambda asked: Told(asked, 7))
    assert work.run(Asked("a")).result == Told(Asked("a"), 7) and requests == [Asked("a")]


def test_blocks_that_take_notes_end_in_any_order(capsys):
    heard = []
    first, second = progress.notes_to(heard.append), progress.notes_to(lambda text: heard.append(text.upper()))
    first.__enter__()
    second.__enter__()
    progress.note("a")
    first.__exit__(None, None, None)
    progress.note("b")
    second.__exit__(None, None, None)
    progress.note("c")
    assert heard == ["A", "B"] and capsys.readouterr().err == "c\n"


def test_a_note_of_the_child_reaches_the_user_at_once():
    heard = []
    with progress.listening(lambda text, done, total: heard.append(text)), progress.notes_to(heard.append):
        work.run(Asked("note"))
    assert heard == ["a step", "wait no longer"]
