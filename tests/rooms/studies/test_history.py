"""Steps in synthetic series, and the history that `tftrt regress` keeps."""

import dataclasses
import json

import numpy as np
import pytest

from tests.regress_results import MACHINE, WORKLOAD, regression
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _flags
from tftrt_tools.command_line.commands import history as command
from tftrt_tools.studies.regression import baseline, history, steps


def series(*levels, each=20, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(level, noise, each) for level in levels])


def places(values, **options):
    return [one.first for one in steps.levels(values, **options)][1:]


def test_a_step_is_found_where_it_is():
    found = steps.levels(series(10, 15))
    assert [one.first for one in found] == [0, 20] and found[-1].last == 39
    assert found[0].value == pytest.approx(10, abs=0.6) and found[1].value == pytest.approx(15, abs=0.6)


def test_up_and_down_again_are_two_steps():
    assert places(series(10, 16, 10)) == [20, 40]


def test_noise_alone_has_few_steps():
    rng = np.random.default_rng(0)
    draws = [rng.normal(0, 1, 30) for _ in range(60)] + [rng.laplace(0, 1, 30) for _ in range(60)]
    assert sum(bool(places(one)) for one in draws) <= 4


def test_outliers_are_no_steps_however_wild():
    values = series(10, each=30)
    values[[7, 8, 20]] = 1e6, -1e6, 1e5
    assert places(values) == []
    stepped = series(10, 16)
    stepped[[5, 30]] = 1e4
    assert places(stepped) == [20]


def test_a_slow_drift_smaller_than_the_noise_is_no_step():
    assert places(series(10, each=40) + np.linspace(0, 1, 40)) == []


def test_steps_below_the_smallest_are_not_told():
    values = series(10, 15)
    assert places(values, smallest=4.0) == [20] and places(values, smallest=8.0) == []


def test_short_and_even_series():
    assert steps.levels([]) == () and steps.levels([3.0]) == (steps.Level(0, 0, 3.0),)
    assert len(steps.levels([1.0, 2.0])) == 1 and len(steps.levels([4.0] * 12)) == 1
    assert places([1.0] * 6 + [2.0] * 6) == [6]
    with pytest.raises(ValueError):
        steps.levels([1.0, float("nan")])


def test_the_levels_are_the_best_ones():
    values = series(0, 3, each=5, seed=2)
    penalty = steps.PENALTY * steps.noise(values) * np.log(len(values))

    def loss(cuts):
        parts = np.split(values, cuts)
        return sum(np.abs(part - np.median(part)).sum() for part in parts) + penalty * len(cuts)

    every = [(), *((one,) for one in range(3, 8)), *((one, two) for one in range(3, 8) for two in range(one + 3, 8))]
    assert loss(places(values)) == pytest.approx(min(map(loss, every)))


def test_noise_is_the_mean_deviation_whatever_the_steps():
    assert steps.noise(series(0, 50, 7, each=200)) == pytest.approx(np.sqrt(2 / np.pi), rel=0.1)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A history of 24 results: half of the native model's time, then 0.6 of it."""
    path = tmp_path_factory.mktemp("history")
    folder = baseline.place(path, MACHINE, "net_fp16", WORKLOAD)
    for number in range(24):
        ratio = 0.5 if number < 12 else 0.6
        done = regression(ratio=ratio, seed=number, rounds=20, created=f"2026-01-{number + 1:02d}T00:00:00+00:00")
        baseline.save(done.to_dict(), folder)
    return path


def run(*arguments):
    values, positional = _flags.parse("history", command, list(map(str, arguments)))
    return command.run(values, positional)


def test_the_list_names_the_step(kept, capsys):
    assert run(f"--history_dir={kept}", f"--json={kept / 'out.json'}") == 0
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if "from here on" in line]
    assert len(lines) == 1 and "slower from here on" in lines[0] and lines[0].split()[0] == "13" and "-16." in lines[0]
    (found,) = json.loads((kept / "out.json").read_text())["series"]
    assert [one["number"] for one in found["entries"]] == list(range(1, 25)) and found["steps"][0]["worse"] is True
    assert found["steps"][0]["before"] == pytest.approx(2.0, rel=0.02) and found["machine"]["cpu"] == "A CPU"


def test_a_last_step_to_the_worse_can_fail_a_pipeline(kept, tmp_path):
    with pytest.raises(errors.CheckFailed, match="net_fp16 on machine [0-9a-f]+: speed_up is -16.*% since number 13"):
        run(f"--history_dir={kept}", "--fail_on_step", f"--json={tmp_path / 'h.json'}")
    assert json.loads((tmp_path / "h.json").read_text())["series"], "what was found is written all the same"
    folder = baseline.place(tmp_path, MACHINE, "net", WORKLOAD)
    for number, ratio in enumerate([0.6] * 8 + [0.5] * 8):
        baseline.save(regression(ratio=ratio, seed=number, rounds=20).to_dict(), folder)
    assert run(f"--history_dir={tmp_path}", "--fail_on_step") == 0


@pytest.mark.parametrize("show, worse", [("p50", True), ("throughput", True)])
def test_other_values_have_their_own_good_direction(kept, show, worse):
    (found,) = history.read(kept, shown=show).series
    assert [one.worse for one in found.steps] == [worse] and (found.steps[0].change > 0) == (show == "p50")


@pytest.mark.parametrize("name, start", [("h.svg", b"<svg"), ("h.png", b"\x89PNG")])
def test_plots(kept, name, start, capsys):
    assert run(f"--history_dir={kept}", f"--plot={kept / name}") == 0
    data = (kept / name).read_bytes()
    assert data.startswith(start) and (name.endswith("png") or b"-16." in data or "−16.".encode() in data)


def test_a_file_that_is_no_result_is_left_out_and_named(tmp_path, capsys):
    folder = baseline.place(tmp_path, MACHINE, "net", WORKLOAD)
    baseline.save(regression(rounds=12).to_dict(), folder)
    (folder / "0099.json").write_text("{")
    assert run(f"--history_dir={tmp_path}") == 0
    assert "left out" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["x", -1, 0])
def test_a_damaged_figure_takes_only_its_own_result_out_of_the_list(tmp_path, wrong):
    folder = baseline.place(tmp_path, MACHINE, "net", WORKLOAD)
    good, bad = regression().to_dict(), regression().to_dict()
    bad["verdict"]["judgements"][0]["candidate"] = wrong
    baseline.save(good, folder), baseline.save(bad, folder)
    (found,) = history.read(tmp_path).series
    assert [one.number for one in found.entries] == [1] and found.skipped[0].endswith("0002.json")


def test_no_results_yet_is_no_mistake(tmp_path, capsys):
    assert run(f"--history_dir={tmp_path / 'none'}", f"--json={tmp_path / 'h.json'}") == errors.EXIT_DONE
    said = capsys.readouterr().out
    assert f"no results yet in {tmp_path / 'none'}: `tftrt regress" in said and "--save_baseline=auto" in said
    assert json.loads((tmp_path / "h.json").read_text())["series"] == []
    for flag in ("--fail_on_step", f"--plot={tmp_path / 'x.svg'}"):
        with pytest.raises(errors.TftrtError, match="there are no results") as told:
            run(f"--history_dir={tmp_path / 'none'}", flag)
        assert told.value.exit_code == errors.EXIT_FAILED, "without results nobody knows of a step"
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--name=other"], "no history of other"),
        (["--machine=ffff"], "no history"),
        (["--plot=x.jpg"], "no known kind"),
        (["net"], "flags only"),
    ],
)
def test_mistakes(kept, arguments, text):
    with pytest.raises(errors.UsageError, match=text):
        run(f"--history_dir={kept}", *arguments)


def test_numbers_go_on_and_two_that_save_at_once_keep_both(tmp_path):
    document = regression().to_dict()
    assert [baseline.save(document, tmp_path).name for _ in range(3)] == ["0001.json", "0002.json", "0003.json"]
    (tmp_path / "0002.json").unlink()
    assert baseline.save(document, tmp_path).name == "0004.json"


def latest(path, name, machine=MACHINE, **workload):
    return baseline.Latest(path, name).found(machine, {"native": regression().native}, {**WORKLOAD, **workload})


def test_latest_is_the_newest_of_this_machine_that_was_asked_in_this_way(kept):
    assert latest(kept, "net_fp16").source.endswith("0024.json")
    with pytest.raises(errors.UsageError, match="driver: none, now 550.1"):
        latest(kept, "net_fp16", dataclasses.replace(MACHINE, driver="550.1"))
    with pytest.raises(errors.UsageError, match="no baseline of other"):
        latest(kept, "other")
    for changed in ({"shapes": ["x 8x8"]}, {"through": "in process"}, {"backend": "docker"}, {"gate_closed": True}):
        with pytest.raises(errors.UsageError, match="way of serving; others are in .*net_fp16@"):
            latest(kept, "net_fp16", **changed)
    with pytest.raises(errors.UsageError, match="the values that are sent: .* and they are others"):
        latest(kept, "net_fp16", digest="fff")


def test_a_result_that_failed_is_kept_for_the_history_and_is_no_baseline(tmp_path):
    folder = baseline.place(tmp_path, MACHINE, "net", WORKLOAD)
    for ratio in (0.5, 1.3):
        baseline.save(regression(ratio=ratio).to_dict(), folder)
    (folder / "0003.json").touch()  # of a run that was killed
    assert latest(tmp_path, "net").source.endswith("0001.json")
    assert [one.outcome for one in history.read(tmp_path).series[0].entries] == ["pass", "fail"]


def test_other_ways_of_asking_are_other_series(tmp_path):
    for rows in (1, 32):
        changed = {**WORKLOAD, "shapes": [f"x {rows}x8"]}
        baseline.save(regression(workload=changed).to_dict(), baseline.place(tmp_path, MACHINE, "team/net", changed))
    found = history.read(tmp_path, name="team-net").series
    assert sorted(one.asked for one in found) == [
        f"server (local), serving_default x {rows}x8, 1 at a time" for rows in (1, 32)
    ]
    assert [len(one.entries) for one in found] == [1, 1]


def test_where_the_history_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert baseline.directory() == tmp_path / "tftrt" / "regressions"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert baseline.directory() == tmp_path / ".local" / "state" / "tftrt" / "regressions"
    assert baseline.directory("x").name == "x"
    assert baseline.series_name("/models/my net/") == "my-net" and baseline.series_name("..") == "model"


def test_the_help_is_there():
    values, _ = _flags.parse("history", command, ["--help"])
    assert values is None
