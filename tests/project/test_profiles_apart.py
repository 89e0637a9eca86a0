"""benchmarks.profiles_apart with commands that stand for the builds. No time is asserted but the order of things."""

import json
import pathlib
import sys
import threading
import time
import types

import pytest

from benchmarks import _combine_timings, _models, build_time, profiles_apart
from tftrt_tools.models.engine_cache import timings

pytestmark = pytest.mark.bench

SHAPES = "x:1x8,4x8,16x8;m:1,4,16"


def test_each_profile_alone_has_its_shape_of_every_input():
    assert profiles_apart.alone(SHAPES) == ["x:1x8;m:1", "x:4x8;m:4", "x:16x8;m:16"]


@pytest.mark.parametrize("shapes", ["x:1x8", "x:min=1x8,max=4x8", "x:1x8,4x8;m:1"])
def test_what_has_no_profiles_to_take_apart_is_refused(shapes, tmp_path, capsys):
    with pytest.raises(SystemExit):
        profiles_apart._options([f"{tmp_path}={shapes}"])
    assert "give a list of two or more shapes" in capsys.readouterr().err


def test_mps_that_cannot_be_had_is_refused_only_where_it_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(profiles_apart.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit):
        profiles_apart._options(["--mps=yes"])
    with profiles_apart.mps("auto", tmp_path) as variables:
        assert variables == {}


def test_the_daemon_of_mps_is_started_and_ended(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(profiles_apart.shutil, "which", lambda _: "/usr/bin/control")
    monkeypatch.setattr(
        profiles_apart.subprocess,
        "run",
        lambda words, **more: calls.append((words, more.get("input"))) or types.SimpleNamespace(returncode=0),
    )
    with pytest.raises(KeyError), profiles_apart.mps("auto", tmp_path) as variables:
        assert pathlib.Path(variables["CUDA_MPS_PIPE_DIRECTORY"]).is_dir()
        raise KeyError
    assert calls == [(["/usr/bin/control", "-d"], None), (["/usr/bin/control"], "quit\n")]


@pytest.fixture
def commands(monkeypatch):
    """What stands for commands: builds write a timing cache, regress writes its document. Gives the list of the commands."""
    seen, lock = [], threading.Lock()

    def run(command, root, seconds, **changes):
        words = dict(word.removeprefix("--").partition("=")[::2] for word in command if word.startswith("--"))
        time.sleep(0.06)  # less would be 0.0 s
        with lock:
            seen.append((words, changes))
        if "benchmarks._combine_timings" in command:
            return json.dumps({"bytes": [3], "together": 9})
        cache = _combine_timings.At(pathlib.Path(words["engine_cache_dir"]), {}, name="here")
        cache.write(words["shapes"].encode())
        return ""

    def tftrt(words, end):
        file = next(word.partition("=")[2] for word in words if word.startswith("--json="))
        judged = {"metric": "p50", "ratio": 1.01, "low": 0.99, "high": 1.02}
        pathlib.Path(file).write_text(json.dumps({"headline": "PASS", "verdict": {"judgements": [judged]}}))
        return 0, ""

    monkeypatch.setattr(build_time, "run", run)
    monkeypatch.setattr(_models, "tftrt", tftrt)
    return seen


def test_profiles_are_built_alone_then_all_with_their_times(commands, tmp_path, capsys):
    model = tmp_path / "net"
    model.mkdir()
    words = [f"{model}={SHAPES}", "--mps=no", f"--workdir={tmp_path / 'work'}"]
    assert profiles_apart.main(words) == 0
    (row,) = json.loads((tmp_path / "work" / "profiles_apart.json").read_text())["rows"]
    whole, *singles, combining, final = commands
    assert whole[0]["shapes"] == final[0]["shapes"] == SHAPES and "dynamic_shape_profile_strategy" not in final[0]
    assert sorted(one["shapes"] for one, _ in singles) == sorted(profiles_apart.alone(SHAPES))
    assert all(one["dynamic_shape_profile_strategy"] == "Range" for one, _ in singles)
    assert all(changes == {"TFTRT_BUILD_TURNS": "0"} for _, changes in singles) and whole[1] == final[1] == {}
    caches = [one["engine_cache_dir"] for one, _ in (whole, *singles, final)]
    assert len(set(caches)) == 5 and not combining[0]
    assert (row["profiles"], row["at_once"], row["mps"]) == (3, profiles_apart.WITHOUT_MPS, False)
    assert row["speed"] == "1.01, 1.01, 1.01" and len(row["calls"]) == 3 and "problem" not in row
    assert "calls: apart over whole" in capsys.readouterr().out
    commands.clear()
    assert profiles_apart.main([*words, "--resume"]) == 0 and not commands


def test_a_build_that_fails_is_a_row_with_the_problem(commands, monkeypatch, tmp_path):
    monkeypatch.setattr(build_time, "run", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("no GPU\nnone here")))
    row = profiles_apart.measured(
        tmp_path, SHAPES, profiles_apart._options([f"--workdir={tmp_path / 'w'}"]), {"A": "b"}, float("inf")
    )
    assert row["problem"] == "none here" and row["mps"] and row["at_once"] == 3 and "ratio" not in row


def test_the_time_that_is_over_ends_the_run(commands, tmp_path, capsys):
    model = tmp_path / "net"
    model.mkdir()
    assert profiles_apart.main([f"{model}={SHAPES}", "--mps=no", "--budget=0", f"--workdir={tmp_path / 'w'}"]) == 0
    assert not commands and "--resume goes on" in capsys.readouterr().out


def test_timing_caches_are_put_into_one_under_the_name_of_their_conditions(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(_combine_timings, "combined", lambda contents: b"+".join(contents))
    conditions = {"gpu": "a GPU"}
    for name in ("one", "two"):
        timings.Timings(tmp_path / name, conditions).write(name.encode())
    _combine_timings.main(tmp_path / "all", tmp_path / "one", tmp_path / "two")
    assert timings.Timings(tmp_path / "all", conditions).read() == b"one+two"
    assert json.loads(capsys.readouterr().out) == {"bytes": [3, 3], "together": 7}
    timings.Timings(tmp_path / "other", {"gpu": "another"}).write(b"x")
    with pytest.raises(SystemExit, match="different conditions"):
        _combine_timings.main(tmp_path / "all", tmp_path / "one", tmp_path / "other")
    with pytest.raises(SystemExit, match="holds 0 timing caches"):
        _combine_timings.main(tmp_path / "all", tmp_path / "none")


@pytest.mark.parametrize("accepts", [True, False])
def test_tensorrt_combines_the_caches(monkeypatch, accepts):
    class Cache:
        def __init__(self, content):
            self.content = content

        def combine(self, other, ignore_mismatch):
            assert ignore_mismatch is False
            self.content += other.content
            return accepts

        def serialize(self):
            return memoryview(self.content)

    config = types.SimpleNamespace(create_timing_cache=Cache)
    stand_in = types.SimpleNamespace(
        Logger=type("Logger", (), {"ERROR": 0, "__init__": lambda self, level: None}),
        Builder=lambda _: types.SimpleNamespace(create_builder_config=lambda: config),
    )
    monkeypatch.setitem(sys.modules, "tensorrt", stand_in)
    if accepts:
        assert _combine_timings.combined([b"a", b"b"]) == b"ab"
    else:
        with pytest.raises(SystemExit, match="does not combine"):
            _combine_timings.combined([b"a", b"b"])
