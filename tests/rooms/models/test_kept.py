"""Models that stay loaded in a child process: when they are opened, and when they are closed."""

import contextlib
import types

import pytest

from tftrt_tools.models.execution import held, held_job, kept_job, load_job, run, runner

WHERE = runner.Where(mode="cpu", runtime="none", version="0")


@pytest.fixture
def said(monkeypatch):
    """What happened, in order; models of other tests are out of the way."""
    with contextlib.ExitStack() as stack:
        monkeypatch.setattr(kept_job, "_OPEN", stack)
        monkeypatch.setattr(held_job, "_held", {})
        lines = []
        monkeypatch.setattr(
            held_job.importlib, "import_module", lambda name: types.SimpleNamespace(load=loading(lines))
        )
        yield lines


def loading(lines):
    @contextlib.contextmanager
    def load(path, wanted):
        lines.append(f"open {path}")
        yield types.SimpleNamespace(where=WHERE)
        lines.append(f"close {path}")

    return load


def test_a_model_takes_the_place_of_the_one_before_or_stays_beside_it(said):
    load = loading(said)
    for path, beside in (("a", False), ("b", True), ("c", False)):
        kept_job.kept(load, path, runner.Wanted(label=path), beside)
    assert said == ["open a", "open b", "close b", "close a", "open c"], "closed before the next one needs memory"


def test_a_model_that_does_not_load_leaves_none_open(said):
    load = loading(said)
    kept_job.kept(load, "a", runner.Wanted(label="a"))
    with pytest.raises(ZeroDivisionError):
        kept_job.kept(lambda path, wanted: 1 / 0, "b", runner.Wanted(label="b"))
    assert said == ["open a", "close a"]


def test_a_held_model_is_loaded_once_and_lets_go_for_the_next(said):
    for path, token in (("a", "1"), ("a", "1"), ("b", "2")):
        assert held_job.call(held.Asked(path=path, loader="any", label=path, token=token)) == WHERE
    assert said == ["open a", "close a", "open b"]


def test_models_under_load_are_open_beside_each_other(said):
    for path in "ab":
        load_job.made(run.LoadRequest(model=path, calls=()), loading(said))
    assert said == ["open a", "open b"]
