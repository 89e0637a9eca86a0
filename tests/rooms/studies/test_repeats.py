"""`tftrt build --repeat`: the choice among builds, what is said of it, and its passport. Builds themselves need a GPU (test_gpu_build_repeat.py);
here the builds are conversions without engines, which are timed for real, on the CPU."""

import dataclasses
import json
import random
import shutil

import numpy as np
import pytest

from tests import model_jobs
from tests.command_line import assert_clear
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import build as command
from tftrt_tools.models.execution import run
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies.tuning import repeats
from tftrt_tools.studies.tuning.repeats import Repeats
from tftrt_tools.tftrt.conversion import build as builds
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

CALLS = ("s(x 1x8)", "s(x 8x8)")


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Blocks of 20 calls, and not of up to 200: the rounds are as many as ever."""

    class Short(repeats.Timed):
        def __init__(self, worker, side):
            super().__init__(worker, side)
            self.counts = [min(one, 20) for one in self.counts]

    monkeypatch.setattr(repeats, "Timed", Short)


@pytest.mark.parametrize("from_host", [False, True])
def test_a_model_lives_as_long_as_its_process_for_its_engines_die_with_it(from_host, zoo_model, tmp_path):
    model = zoo_model("digits_cnn")
    saved = run.save_calls([run.Call("serving_default", {"image": np.zeros((1, 8, 8, 1), np.float32)})], tmp_path)
    found = model_jobs.held.run(repeats.Load(model=str(model), calls=tuple(saved), from_host=from_host)).result
    assert found.loaded == 1 and len(found.seconds) == 2


def rounds(factors, noise=0.0, seed=0, base=(1.0, 4.0)):
    """{number: medians of each call in each round}: a build takes `base` by its factor."""
    rng = random.Random(seed)
    return {
        number: [[ms * factor * rng.lognormvariate(0, noise) for ms in base] for _ in range(repeats.ROUNDS)]
        for number, factor in factors.items()
    }


def judged(choosing, judging, made=None):
    return repeats.judged(CALLS, (choosing, judging), made or {number: (60.0, 0) for number in judging})


def test_the_fastest_is_kept_and_its_lead_is_that_of_other_rounds():
    found = judged(rounds({1: 1.3, 2: 1.0, 3: 1.1}), rounds({1: 1.2, 2: 1.0, 3: 1.02}, noise=0.002))
    assert found.kept == 2 and found.told_apart and found.slowest.number == 1
    slowest = found.slowest.kept_is
    assert slowest.times == pytest.approx(1.2, abs=0.01) and 1.15 < slowest.low < slowest.high < 1.25
    assert found.text().startswith("build 2 is kept: it is 1.20 times as fast as build 1, the slowest (95 %: 1.")
    assert found.builds[1].kept_is is None and found.builds[1].ms == pytest.approx(
        {CALLS[0]: 1.0, CALLS[1]: 4.0}, rel=0.01
    )
    assert found.builds[1].mean_ms == pytest.approx(2.0, rel=0.01)


def test_builds_that_cannot_be_told_apart_are_said_to_be():
    found = judged(rounds({1: 1.01, 2: 1.0}), rounds({1: 1.0, 2: 1.0}, noise=0.1, seed=3))
    assert found.kept == 2 and not found.told_apart and "but the builds cannot be told apart" in found.text()


def test_luck_in_the_choice_does_not_become_a_lead():
    """Of equal builds the one that was lucky is kept. In how many of many runs is it called faster? At 95 %, in a few of a hundred."""
    called = 0
    for seed in range(60):
        found = judged(
            rounds(dict.fromkeys(range(1, 4), 1.0), 0.05, seed),
            rounds(dict.fromkeys(range(1, 4), 1.0), 0.05, 1000 + seed),
        )
        called += any(one.told_apart for one in found.builds)
    assert called <= 12, called


def test_a_factor_counts_the_same_at_each_shape():
    # Build 1 is twice as slow in the short call, build 2 half as slow again in the long one, which takes a hundred times as long.
    choosing = {1: [[2.0, 100.0]] * 10, 2: [[1.0, 150.0]] * 10}
    assert judged(choosing, choosing).kept == 2
    choosing = {1: [[1.2, 100.0]] * 10, 2: [[1.0, 150.0]] * 10}
    assert judged(choosing, choosing).kept == 1


def test_a_build_that_is_not_whole_is_no_candidate():
    found = judged(rounds({2: 1.0, 3: 1.1}), rounds({2: 1.0, 3: 1.1}), {1: (10.0, 1), 2: (60.0, 0), 3: (61.0, 0)})
    assert [one.unbuilt for one in found.builds] == [1, 0, 0] and found.builds[0].ms == {} and found.slowest.number == 3
    alone = judged(rounds({2: 1.0}), rounds({2: 1.0}), {1: (10.0, 1), 2: (60.0, 0)})
    assert alone.text() == "build 2 is kept: there was no other to compare it with" and not alone.told_apart


def test_the_record_is_read_as_it_was_written():
    found = judged(rounds({1: 1.3, 2: 1.0}), rounds({1: 1.2, 2: 1.0}, noise=0.01), {1: (60.126, 0), 2: (61.0, 0)})
    written = json.loads(json.dumps(found.to_dict()))
    back = Repeats.from_dict(written)
    assert (
        written["told_apart"]
        and written["builds"][0]["build_seconds"] == 60.13
        and back.kept == 2
        and back.calls == CALLS
    )
    assert back.builds[0].kept_is == found.builds[0].kept_is


@pytest.mark.parametrize(("factor", "unlike"), [(1.0, False), (1.001, False), (2.0, True)])
def test_a_build_that_answers_something_else_is_told(factor, unlike):
    """Nobody says of it that it is only slower or faster."""
    call = run.Call("s", {"x": np.zeros((1, 2), np.float32)})
    values = np.array([[1.0, -2.0]], np.float32)
    times = repeats.Times(
        calls=[call],
        rounds=(rounds({1: 1.3, 2: 1.0}), rounds({1: 1.3, 2: 1.0})),
        answers={1: [{"y": values * np.float32(factor)}], 2: [{"y": values}]},
        precisions=("FP16",),
    )
    found = repeats.compared(judged(*times.rounds), times)
    assert [bool(one.unlike) for one in found.builds] == [unlike, False] and found.kept == 2
    assert ("; but the answers of build 1 differ from its own (s/y: " in found.text()) == unlike
    assert Repeats.from_dict(json.loads(json.dumps(found.to_dict()))).text() == found.text()


class Copies:
    """Stands for conversion.build.build: each build is a copy of a conversion, with shapes that engines might have been built for."""

    def __init__(self, model, unbuilt=(), slow=()):
        self.model, self.unbuilt, self.slow, self.asked = model, unbuilt, slow, []

    def __call__(self, model, output, options, **flags):
        self.asked.append(flags)
        number = len(self.asked)
        shutil.copytree(self.model, output)
        manifest = passport.read(output, passport.MANIFEST)
        manifest["signatures"][0]["calls"] = [{"image": [1, 8, 8, 1]}, {"image": [8, 8, 8, 1]}]
        manifest["build"] = {"shapes": options.shapes, "number": number}
        passport.write(output, passport.MANIFEST, manifest)
        signature = SignatureResult.from_dict(manifest["signatures"][0])
        left = tuple(
            {"name": "E", "reason": "not ready", "refused": False, "mend": ""} for _ in range(number in self.unbuilt)
        )
        signature = dataclasses.replace(
            signature, unbuilt=SignatureResult.from_dict({**signature.to_dict(), "unbuilt": left}).unbuilt
        )
        return builds.Build(
            model=str(model),
            output=str(output),
            model_digest="sha256:x",
            shapes=options.shapes,
            strategy=None,
            versions={},
            gpu=None,
            signatures=(signature,),
            cache_problem="",
            seconds=10.0 + number,
        )


@pytest.mark.slow
def test_builds_are_timed_in_turns_and_the_kept_one_carries_the_times_of_all(converted, tmp_path):
    model = converted("digits_cnn", "--precision=FP16")
    copies = Copies(model, unbuilt=(2,))
    done = repeats.fastest(
        str(model),
        tmp_path / "out",
        builds.Options(shapes="image:1x8x8x1,8x8x8x1"),
        3,
        log_file=str(tmp_path / "log"),
        build=copies,
    )
    assert [one["cache"] for one in copies.asked] == [None] * 3
    assert [one["log_file"] for one in copies.asked] == [str(tmp_path / name) for name in ("log", "log.2", "log.3")]
    found = done.repeats
    assert found.calls == ("serving_default(image 1x8x8x1)", "serving_default(image 8x8x8x1)") and found.kept in (1, 3)
    assert [bool(one.ms) for one in found.builds] == [True, False, True] and all(
        ms > 0 for ms in found.builds[0].ms.values()
    )
    said = passport.read(tmp_path / "out", passport.MANIFEST)["build"]
    assert (
        said["number"] == found.kept
        and said["repeats"] == json.loads(json.dumps(found.to_dict()))
        and said["shapes"] == "image:1x8x8x1,8x8x8x1"
    )
    assert (
        done.build.output == str(tmp_path / "out")
        and done.build.seconds == 36.0
        and done.to_dict()["repeats"]["kept"] == found.kept
    )


@pytest.mark.slow
def test_a_slower_build_is_found_by_its_process(converted, tmp_path):
    model = converted("digits_cnn", "--precision=FP16")
    other = tmp_path / "slower"
    shutil.copytree(model, other)
    for path in (model, other):
        assert repeats.timed({1: str(path)}, (), str(tmp_path / path.name)).calls
    timed = repeats.Timed.medians
    slow = {"left": 0}

    def medians(self, counts):
        found = timed(self, counts)
        slow["left"] += 1
        # A B, B A: the first of two. On a busy machine one process was 2.3 times as slow as another.
        return [20 * one for one in found] if slow["left"] % 4 in (1, 0) else found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats.Timed, "medians", medians)
        times = repeats.timed({1: str(model), 2: str(other)}, (), str(tmp_path))
    assert repeats.judged(times.texts, times.rounds, {1: (1.0, 0), 2: (1.0, 0)}).kept == 2


def test_the_target_stays_as_it_was_where_a_build_fails(converted, tmp_path):
    model = converted("digits_cnn", "--precision=FP16")

    def fails(*_, **__):
        raise errors.TftrtError("out of GPU memory", "smaller shapes")

    with pytest.raises(errors.TftrtError, match="out of GPU memory"):
        repeats.fastest(str(model), tmp_path / "out", builds.Options(shapes="image:1x8x8x1"), 2, build=fails)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "flags, code, says",
    [
        (("--strip", "--repeat=2"), 2, "--repeat builds engines, and --strip takes them away"),
        (("--shapes=image:1x8x8x1", "--repeat=0"), 2, "repeat"),
        (("--shapes=image:1x8x8x1", "--repeat=17"), 2, "repeat"),
        (("--repeat=3",), 2, "--shapes is missing"),
        (("--shapes=image:1x8x8x1", "--repeat=2", "--engine_cache"), 2, "--engine_cache has no effect with --repeat"),
        (
            ("--shapes=image:1x8x8x1", "--repeat=2", "--engine_cache_dir=x"),
            2,
            "--engine_cache_dir has no effect with --repeat",
        ),
        (("--shapes=image:1x8x8x1", "--repeat=2", "--noengine_cache"), 1, "needs a GPU"),
        (("--shapes=image:1x8x8x1", "--repeat=2"), 1, "needs a GPU"),
    ],
)
def test_flags_that_do_not_go_together_and_no_gpu(tftrt, converted, tmp_path, flags, code, says):
    model = converted("digits_cnn", "--precision=FP16")
    assert_clear(tftrt("build", model, f"--output={tmp_path / 'out'}", *flags), code, says)
    assert list(tmp_path.iterdir()) == []


def test_the_table_names_each_build(capsys, monkeypatch, tmp_path):
    made = judged(
        rounds({1: 1.3, 2: 1.0}), rounds({1: 1.2, 2: 1.0}, noise=0.01), {1: (60.0, 0), 2: (61.0, 0), 3: (9.0, 1)}
    )
    built = builds.Build(
        model="m",
        output=str(tmp_path),
        model_digest="",
        shapes="x",
        strategy=None,
        versions={},
        gpu=None,
        signatures=(),
        cache_problem="",
        seconds=121.0,
    )
    monkeypatch.setattr(repeats, "fastest", lambda *_, **__: repeats.Repeated(built, made))
    from tftrt_tools.command_line.commands import _flags

    values, positional = _flags.parse("build", command, ["m", "--shapes=x:1x8", "--repeat=3"])
    assert command.run(values, positional) == 0
    said = capsys.readouterr().out
    assert (
        "Builds, timed in turns" in said
        and "not whole" in said
        and "60.0 s" in said
        and "build 2 is kept: it is 1.20 times as fast" in said
    )
