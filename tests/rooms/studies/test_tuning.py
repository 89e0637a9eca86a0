"""The search of `tftrt tune`: goals, the order of the trials, the budget, the journal. Speed and accuracy come from a formula here; real
trials are in test_gpu_tune.py."""

import dataclasses
import json
import math
import os
import re
import time
import xml.etree.ElementTree

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.command_line import assert_clear
from tests.prepared_models import unet_with_conditionals
from tests.trial_worker import worker
from tftrt_tools.accuracy import goal as goals
from tftrt_tools.accuracy import score
from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.accuracy.harm import Effect, Kept, Node, SignatureHarm
from tftrt_tools.accuracy.labels import Labels
from tftrt_tools.base import errors
from tftrt_tools.base.process import signals
from tftrt_tools.command_line.commands import _flags
from tftrt_tools.command_line.commands import convert as convert_command
from tftrt_tools.command_line.commands import tune as tune_command
from tftrt_tools.command_line.report import html
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.studies.tuning import final, journal, measure_job, measuring, ranking, search, space, tune, turns_job
from tftrt_tools.studies.tuning.budget import Budget
from tftrt_tools.studies.tuning.latency import DRIFT, Latency
from tftrt_tools.studies.tuning.measuring import InTurns, Original, Request, Scored, Scoring, Timed
from tftrt_tools.studies.tuning.trial import ENV, Task, Trials
from tftrt_tools.studies.tuning.tried import Measured, Tuning
from tftrt_tools.tftrt.calibration import file as calibration_file
from tftrt_tools.tftrt.conversion.plan import Plan, SignaturePlan, SizeResult
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult, Unbuilt

CALL = "serving_default(image 8x8x8x1)"
TOP1 = Goal("top1", "max-degradation", 0.01, True)
SCORING = Scoring(goal=TOP1)
BASE = Settings(shapes="image:1x8x8x1,8x8x8x1")


class Synthetic:
    """A model whose speed and accuracy follow from the settings: every node kept high costs time and gives accuracy back."""

    def __init__(self, losses, costs, factors=None, speeds=None, sizes=None, strategies=None, first=1, methods=None):
        """Args: losses: of accuracy by INT8, node by node, the worst first; costs: of time of keeping a node high; factors: of time by
        precision; speeds: accuracy lost by the others; sizes, strategies: factors of time; first: nodes to keep high first;
          methods: factors of what INT8 loses, by calibration method."""
        self.first, self.methods = first, methods or {}
        self.losses, self.costs = losses, costs
        self.factors = {"FP32": 4.0, "FP16": 2.0, "INT8": 1.0} | (factors or {})
        self.speeds = {"FP32": 0.0, "FP16": 0.001} | (speeds or {})
        self.sizes, self.strategies = sizes or {}, strategies or {}
        self.names = [f"node{number}" for number in range(len(losses))]
        self.done = []

    def __call__(self, settings):
        self.done.append(settings)
        return self.measured(settings)

    def measured(self, settings):
        high = [
            name for name in self.names if name in (settings.high_precision_nodes or settings.fp32_nodes).split("|")
        ]
        lost = self.speeds.get(settings.precision_mode)
        if lost is None:
            lost = sum(loss for name, loss in zip(self.names, self.losses, strict=True) if name not in high)
            lost *= self.methods.get(settings.calibration_method, 1.0)
        elif high:
            lost = lost * (1 - len(high) / len(self.names))
        ms = self.factors[settings.precision_mode] + sum(
            cost for name, cost in zip(self.names, self.costs, strict=True) if name in high
        )
        ms *= self.sizes.get(settings.minimum_segment_size, 1.0) * self.strategies.get(
            settings.strategy or "implicit", 1.0
        )
        return Measured(accuracy=0.98 - lost, latencies={CALL: Latency(ms, 0.0, 500)}, seconds=60.0)

    def space(self, **changes):
        return space.Space(
            base=BASE,
            sizes=tuple(self.sizes),
            strategies=tuple(self.strategies),
            **{"methods": {"tftrt": tuple(self.methods)}, **changes},
        )

    def search(self, budget=Budget(1000, 1e9), goal=TOP1, drift=0.0, evaluate=None, snr_db=None, **changes):  # noqa: B008
        return search.search(
            {"tftrt": self.means(evaluate, snr_db)}, self.space(**changes), CALL, goal, 0.98, budget, drift
        )

    def means(self, evaluate=None, snr_db=None):
        return search.Means(
            evaluate=evaluate or self,
            rank=lambda settings: search.Ranked(tuple(self.names), self.first),
            snr_db=snr_db or self.snr_db,
        )

    def snr_db(self, settings):
        """Promises of the methods: a factor of ten of what is lost is 10 dB."""
        return -10 * math.log10(max(self.methods.get(settings.calibration_method, 1.0), 1e-9))

    def every(self):
        """All settings of the space."""
        for precision in self.factors:
            plain = space.with_precision(BASE, precision)
            kept = (
                [plain]
                if precision == "FP32"
                else [plain] + [space.with_high(plain, self.names[: k + 1]) for k in range(len(self.names))]
            )
            if precision == "INT8":
                kept += [space.with_method(one, method, 99.9) for one in kept for method in self.methods]
            for one in kept:
                for size in (3, *self.sizes):
                    for strategy in ("Optimal", *self.strategies):
                        other = dataclasses.replace(one, minimum_segment_size=size)
                        yield other if strategy == "Optimal" else space.with_strategy(other, strategy)


positive = st.floats(0.001, 0.5)


@st.composite
def models(draw):
    losses = sorted(draw(st.lists(st.floats(0.0, 0.05), min_size=1, max_size=20)), reverse=True)
    costs = [draw(positive) for _ in losses]
    factors = {name: draw(st.floats(0.5, 5.0)) for name in ("FP32", "FP16", "INT8")}
    sizes = {size: draw(st.floats(0.5, 2.0)) for size in draw(st.sets(st.sampled_from([1, 5, 10, 20]), max_size=3))}
    strategies = {name: draw(st.floats(0.5, 2.0)) for name in draw(st.sets(st.sampled_from(["Range", "implicit"])))}
    # Methods that promise a little less noise are not tried.
    methods = {
        name: draw(st.floats(0.01, 0.79) | st.floats(1.0, 2.0))
        for name in draw(st.sets(st.sampled_from(["percentile", "mse", "max"])))
    }
    return Synthetic(
        losses,
        costs,
        factors,
        {"FP16": draw(st.floats(0.0, 0.02))},
        sizes,
        strategies,
        draw(st.integers(1, 25)),
        methods,
    )


@given(models(), st.floats(0.0, 0.05), st.integers(1, 12))
def test_a_model_that_misses_the_goal_is_never_the_winner(model, loss, trials):
    goal = dataclasses.replace(TOP1, value=loss)
    found = model.search(Budget(trials, 1e9), goal, drift=DRIFT)
    right = [one for one in found.trials if one.measured.accuracy >= 0.98 - loss - 1e-6]
    if right:
        assert found.winner in right and found.best is None
    else:
        assert found.winner is None and found.best.measured.accuracy == max(
            one.measured.accuracy for one in found.trials
        )
    assert all(one.kept == (one.measured.accuracy >= goal.bound(0.98) - 1e-9) for one in found.trials)


@given(models(), st.floats(0.0, 0.05))
def test_the_fastest_is_found_where_more_nodes_high_are_slower_and_nearer(model, loss):
    goal = dataclasses.replace(TOP1, value=loss)
    found = model.search(goal=goal)
    able = [one for one in map(model.measured, model.every()) if goal.kept(one.accuracy, 0.98)]
    if not able:
        assert found.winner is None
    else:
        assert found.winner.latency(CALL).ms == pytest.approx(min(one.latencies[CALL].ms for one in able))


@given(models(), st.integers(1, 12), st.floats(0.5, 12))
def test_the_budget_is_kept_and_no_settings_are_tried_twice(model, trials, minutes):
    found = model.search(Budget(trials, minutes), drift=DRIFT)
    assert len(model.done) == len(found.trials) <= trials
    assert len(set(model.done)) == len(model.done)
    # A trial takes a minute here, and one that has begun is finished.
    assert len(found.trials) <= math.ceil(minutes)
    if len(found.trials) in (trials, math.ceil(minutes)):
        assert "--max" in found.ended or found.ended == "everything was tried"


@given(models(), st.integers(0, 11))
def test_an_interrupted_search_ends_as_one_that_was_not(model, after):
    kept = {}

    def evaluate(settings):
        if settings not in kept:
            if len(kept) == limit:
                raise KeyboardInterrupt
            kept[settings] = model.measured(settings)
        return kept[settings]

    whole = model.search(Budget(12, 1e9), drift=DRIFT)
    limit = after
    assume(after < len(whole.trials))
    with pytest.raises(KeyboardInterrupt):
        model.search(Budget(12, 1e9), evaluate=evaluate, drift=DRIFT)
    assert len(kept) == after
    limit = None
    assert model.search(Budget(12, 1e9), evaluate=evaluate, drift=DRIFT) == whole


def test_a_spent_budget_says_what_it_kept_from_being_tried():
    model = Synthetic([0.03, 0.01, 0.001], [0.1, 0.1, 0.1], sizes={10: 0.9})
    whole = model.search()
    for count in range(1, len(whole.trials)):
        found, following = model.search(Budget(count, 1e9)), whole.trials[count]
        assert (
            found.ended
            == f"--max_trials={count} are done; next would be {space.text(following.settings, following.high)}"
        )
    assert whole.ended == model.search(Budget(len(whole.trials), 1e9)).ended == "everything was tried"
    assert model.search(Budget(9, 0)).ended == "--max_minutes=0 are over; next would be FP32, Optimal"


def trial(number, ms, accuracy, high=(), mad=0.0, calls=500, kept=True):
    return search.Trial(
        number=number,
        settings=dataclasses.replace(BASE, max_engines=number),
        high=high,
        measured=Measured(accuracy=accuracy, latencies={CALL: Latency(ms, mad, calls)}),
        kept=kept,
    )


def test_of_two_that_are_equally_fast_the_more_accurate_is_taken_then_the_one_with_fewer_nodes_high():
    assert search.choose([trial(1, 1.00, 0.97), trial(2, 1.01, 0.98)], CALL, TOP1).number == 2
    assert search.choose([trial(1, 1.00, 0.97, ("a", "b")), trial(2, 1.01, 0.97, ("a",))], CALL, TOP1).number == 2
    assert search.choose([trial(1, 1.01, 0.97), trial(2, 1.00, 0.97)], CALL, TOP1).number == 2
    assert search.choose([trial(1, 1.00, 0.97), trial(2, 1.05, 0.98)], CALL, TOP1).number == 1


def test_latencies_that_spread_more_are_harder_to_tell_apart():
    quiet, noisy = [
        [trial(1, 1.00, 0.97, mad=mad, calls=25), trial(2, 1.05, 0.98, mad=mad, calls=25)] for mad in (0.001, 0.2)
    ]
    assert [search.choose(one, CALL, TOP1).number for one in (quiet, noisy)] == [1, 2]


@given(models(), st.randoms(use_true_random=False))
def test_noise_never_makes_a_winner_of_what_misses_the_goal(model, random):
    def evaluate(settings):
        plain = model.measured(settings)
        ms = plain.latencies[CALL].ms * random.uniform(0.9, 1.1)
        return dataclasses.replace(plain, latencies={CALL: Latency(ms, 0.05 * ms, 30)})

    found = model.search(Budget(12, 1e9), evaluate=evaluate, drift=DRIFT)
    right = [one for one in found.trials if one.measured.accuracy >= 0.97 - 1e-6]
    assert found.winner in (right or [None])


def test_the_fewest_nodes_are_found_by_doubling_and_bisection():
    model = Synthetic([0.01] * 6 + [0.0] * 10, [0.01] * 16)
    found = model.search(goal=dataclasses.replace(TOP1, value=0.005))
    tried = [len(one.high) for one in found.trials if one.settings.precision_mode == "INT8"]
    assert tried == [0, 1, 2, 4, 8, 6, 5]
    assert len(found.winner.high) == 6 and found.winner.high == tuple(model.names[:6])


def test_another_calibration_method_that_keeps_the_goal_is_taken_before_nodes_are_kept_high():
    found = Synthetic([0.03, 0.001], [0.1, 0.1], methods={"percentile": 0.8, "mse": 0.1, "max": 0.05}).search(
        percentile=99.5,
        snr_db=lambda settings: {"auto": 1, "percentile": 9, "mse": 8, "max": 7}[settings.calibration_method],
    )
    assert [space.text(one.settings, one.high) for one in found.trials] == [
        "FP32, Optimal",
        "FP16, Optimal",
        "INT8, Optimal",
        "INT8 by percentile, Optimal",
        "INT8 by mse, Optimal",
    ]
    assert [one.settings.calibration_percentile for one in found.trials[2:]] == [
        Settings().calibration_percentile,
        99.5,
        Settings().calibration_percentile,
    ]
    assert found.winner == found.trials[-1]
    assert found.notes == ("INT8 by auto misses the goal; mse keeps the goal",)


def test_calibration_methods_are_tried_by_what_they_promise():
    def search(model, **promises):
        def snr_db(settings):
            return {"auto": 20.0, **promises}[settings.calibration_method]

        found = model.search(snr_db=snr_db)
        return [
            one.settings.calibration_method
            for one in found.trials
            if one.settings.precision_mode == "INT8" and not one.high
        ], found.notes

    model = Synthetic([0.03, 0.02], [0.1, 0.1], methods={"percentile": 0.9, "mse": 0.8, "max": 0.95})
    assert search(model, percentile=22.0, mse=21.1, max=20.9)[0] == ["auto", "percentile", "mse"]
    assert search(model, percentile=math.nan, mse=-math.inf, max=math.inf)[0] == ["auto", "max"]
    methods, notes = search(model, percentile=20.5, mse=19.0, max=-3.0)
    assert methods == ["auto"]
    assert (
        notes[0]
        == "no other calibration method promises a fifth less noise: percentile 20.5 dB, mse 19.0 dB, max -3.0 dB, auto 20.0 dB"
    )

    def unknown(settings):
        raise errors.TftrtError("it draws random numbers")

    found = model.search(snr_db=unknown)
    assert [one.settings.calibration_method for one in found.trials[2:6]] == ["auto", "percentile", "mse", "max"]
    assert found.notes[0] == "the calibration methods could not be simulated: it draws random numbers"


def test_nodes_are_kept_high_with_the_most_accurate_calibration_method():
    model = Synthetic([0.05, 0.04], [0.1, 0.1], methods={"percentile": math.nan, "mse": 0.5, "max": 0.7})
    found = model.search()
    assert found.winner.settings.calibration_method == "mse" and found.winner.high == ("node0", "node1")
    assert {one.settings.calibration_method for one in found.trials if one.high} == {"mse"}
    assert found.notes[0] == "INT8 by auto misses the goal; mse is the most accurate, and misses it too"

    def fails(settings):
        return Measured(failure="no range") if settings.calibration_method != "auto" else model.measured(settings)

    found = model.search(evaluate=fails)
    assert found.winner.settings.calibration_method == "auto" and found.winner.high
    # Where INT8 keeps the goal, is no faster, or FP16 misses it too, the other methods are of no use.
    for other in (
        Synthetic([0.0], [0.1], methods={"mse": 0.5}),
        Synthetic([0.1], [0.1], {"INT8": 9.0}, methods={"mse": 0.1}),
        Synthetic([0.1], [0.1], speeds={"FP32": 0.1, "FP16": 0.1}, methods={"mse": 0.1}),
    ):
        assert all(one.settings.calibration_method == "auto" for one in other.search().trials)


def test_fp16_that_misses_gets_its_worst_nodes_into_fp32():
    model = Synthetic([0.5] * 4, [0.1] * 4, speeds={"FP16": 0.04})
    found = model.search(precisions=("FP32", "FP16"))
    assert found.winner.settings.fp32_nodes == "node0|node1|node2" and found.winner.settings.precision_mode == "FP16"


def test_int8_that_is_slower_than_what_keeps_the_goal_gets_no_nodes_kept_high():
    found = Synthetic([0.1], [0.1], {"INT8": 2.5}).search()
    assert [one.settings.precision_mode for one in found.trials] == ["FP32", "FP16", "INT8"]
    assert "no faster" in found.notes[0] and found.winner.settings.precision_mode == "FP16"


def test_a_failed_trial_is_no_winner_and_does_not_stop_the_search():
    model = Synthetic([0.1, 0.0], [0.1, 0.1])

    def evaluate(settings):
        broken = (
            settings.precision_mode == "FP16"
            or settings.minimum_segment_size == 5
            or settings.high_precision_nodes == "node0"
        )
        return Measured(failure="native code ended the process (SIGABRT)") if broken else model.measured(settings)

    model.sizes = {5: 0.1, 10: 0.9}
    found = model.search(evaluate=evaluate)
    assert len(found.winner.high) == 2 and found.winner.settings.minimum_segment_size == 10
    assert sum(bool(one.measured.failure) for one in found.trials) == 3


def test_without_a_trial_that_keeps_the_goal_the_nearest_is_named():
    found = Synthetic([0.1], [0.1], speeds={"FP16": 0.02}).search(
        goal=Goal("top1", "threshold", 0.99, True), precisions=("FP16", "INT8")
    )
    assert found.winner is None and found.best.settings.precision_mode == "FP16" and found.best.high == ("node0",)


def test_where_the_precision_above_misses_the_goal_too_no_nodes_are_kept_high():
    found = Synthetic([0.1] * 4, [0.1] * 4, speeds={"FP32": 0.02, "FP16": 0.02}).search()
    assert [one.settings.precision_mode for one in found.trials] == ["FP32", "FP16", "INT8"] and found.best.number == 1
    assert found.notes[0] == "FP16 misses the goal, and so does FP32: no nodes were kept in a higher precision"


@pytest.mark.parametrize(
    "first, counts",
    [(1, [1, 2, 4, 8, 6, 5]), (5, [5, 2, 3, 4]), (6, [6, 3, 4, 5]), (3, [3, 6, 4, 5]), (30, [20, 10, 5, 2, 3, 4])],
)
def test_the_search_for_the_fewest_nodes_begins_with_what_the_simulation_suggests(first, counts):
    found = Synthetic([0.03] * 5 + [0.0] * 15, [0.01] * 20, first=first).search()
    assert [len(one.high) for one in found.trials if one.high] == counts and len(found.winner.high) == 5


def test_nodes_that_cannot_be_ranked_are_a_note():
    def refuse(settings):
        raise errors.TftrtError("nothing to simulate", "")

    model = Synthetic([0.1], [0.1])
    found = search.search(
        {"tftrt": search.Means(evaluate=model, rank=refuse, snr_db=refuse)}, model.space(), CALL, TOP1, 0.98
    )
    assert "nothing to simulate" in found.notes[0] and found.winner.settings.precision_mode == "FP16"


# Goals.


@pytest.mark.parametrize(
    "text, original, bound",
    [
        ("top1:threshold=0.97", 0.98, 0.97),
        ("top1:max-degradation=0.01", 0.98, 0.97),
        ("top1:percent-max-degradation=10", 0.98, 0.882),
        ("snr_db:threshold=30", math.inf, 30),
        ("rmse:threshold=0.02", 0.0, 0.02),
        ("rmse:max-degradation=0.02", 0.0, 0.02),
        ("mine:f1:threshold=0.9", 0.95, 0.9),
        ("mine:f1:percent-max-degradation=1", -2.0, -2.02),
        (" my.own:f1 : Max-Degradation = 1e-3", 0.5, 0.499),
    ],
)
def test_goals_say_what_has_to_be_kept(text, original, bound):
    goal = goals.parse(text)
    assert goal.bound(original) == pytest.approx(bound)
    assert Goal.from_dict(json.loads(json.dumps(goal.to_dict()))) == goal
    better, worse = (bound + 0.1, bound - 0.1) if goal.higher else (bound - 0.1, bound + 0.1)
    assert (
        goal.kept(bound, original)
        and goal.kept(better, original)
        and not goal.kept(worse, original)
        and not goal.kept(math.nan, original)
    )


def test_a_metric_of_your_own_may_be_one_of_which_less_is_better():
    goal = goals.parse("mine:loss:max-degradation=0.1", "lower")
    assert (
        goal.bound(1.0) == 1.1
        and goal.kept(1.05, 1.0)
        and not goal.kept(1.2, 1.0)
        and goal.merit(1.0) > goal.merit(2.0)
    )


@pytest.mark.parametrize(
    "text, direction, words",
    [
        ("top1", "", "is no goal"),
        ("top1:0.97", "", "is no goal"),
        (":threshold=1", "", "is no goal"),
        ("top1:limit=1", "", "'limit' is no kind"),
        ("top1:threshold=high", "", "'high' is no number"),
        ("top1:threshold=nan", "", "no number"),
        ("top1:max-degradation=-1", "", "negative"),
        ("top7:threshold=0.9", "", "no metric 'top7'"),
        ("top1:threshold=97", "", "between 0 and 1"),
        ("a:b:c:threshold=1", "", "no module:function"),
        ("snr_db:max-degradation=3", "", "no meaning"),
        ("max_rel:percent-max-degradation=1", "", "no meaning"),
        ("top1:threshold=0.9", "lower", "no function"),
        ("a:b:threshold=1", "down", "--metric_direction=down is unknown"),
    ],
)
def test_goals_that_cannot_work_are_refused(text, direction, words):
    with pytest.raises(errors.UsageError, match=words):
        goals.parse(text, direction)


@pytest.mark.parametrize("original", [math.inf, 0.0])
def test_nothing_can_be_taken_from_an_original_without_a_value(original):
    with pytest.raises(errors.UsageError, match="^mine:f1:percent-max-degradation=1: mine:f1 of the original is"):
        goals.parse("mine:f1:percent-max-degradation=1").bound(original)


# Scores.

REFERENCE = [
    {"probabilities": np.array([[0.9, 0.1], [0.2, 0.8]], "float32")},
    {"probabilities": np.array([[0.6, 0.4]], "float32")},
]
ANSWERS = [
    {"probabilities": np.array([[0.8, 0.2], [0.6, 0.4]], "float32")},
    {"probabilities": np.array([[0.6, 0.4]], "float32")},
]
CALLS = ["serving_default"] * 2


def own_metric(outputs, labels, reference):
    assert outputs["probabilities"].shape == reference["probabilities"].shape == (3, 2)
    return float(np.sum(labels)) + outputs["probabilities"][0, 0]


def endless_metric(outputs, labels, reference):
    time.sleep(600)


def broken_metric(outputs, labels, reference):
    return outputs["logits"]


def test_top1_is_the_accuracy_with_labels_and_the_agreement_without():
    labels = Labels({"": np.array([0, 0, 1, 7])})
    assert score.score(goals.parse("top1:threshold=0.9"), CALLS, REFERENCE, ANSWERS).value == pytest.approx(2 / 3)
    assert score.score(goals.parse("top1:threshold=0.9"), CALLS, REFERENCE, ANSWERS, labels).value == pytest.approx(
        2 / 3
    )
    assert score.score(goals.parse("top1:threshold=0.9"), CALLS, REFERENCE, REFERENCE, labels).value == pytest.approx(
        1 / 3
    )


def test_the_worst_output_counts_unless_one_is_named():
    reference = [{"a": np.ones((2, 3), "float32"), "b": np.ones((2, 3), "float32"), "n": np.arange(2)}]
    answers = [{"a": np.full((2, 3), 1.5, "float32"), "b": np.full((2, 3), 1.25, "float32"), "n": np.arange(2)}]
    goal = goals.parse("rmse:threshold=1")
    assert score.score(goal, ["s"], reference, answers).value == 0.5
    assert score.score(goal, ["s"], reference, answers, output="s/b").value == 0.25
    with pytest.raises(errors.UsageError, match="does not apply to s/n"):
        score.score(goal, ["s"], reference, answers, output="s/n")
    with pytest.raises(errors.UsageError, match="s/c is no output"):
        score.score(goal, ["s"], reference, answers, output="s/c")


def test_a_function_of_your_own_gets_all_rows_the_labels_and_the_reference():
    goal = goals.parse("tests.rooms.studies.test_tuning:own_metric:threshold=1")
    assert score.score(goal, CALLS, REFERENCE, ANSWERS, Labels({"": np.array([1, 2, 3, 99])})).value == pytest.approx(
        6.8
    )


def test_a_function_of_your_own_judges_a_signature_whose_output_has_slashes():
    """Outputs of ONNX files often have."""
    reference, answers = (
        [{"head/scores:0": array, "probabilities": array} for array in (one["probabilities"] for one in side)]
        for side in (REFERENCE, ANSWERS)
    )
    goal = goals.parse("tests.rooms.studies.test_tuning:own_metric:threshold=1")
    labels = Labels({"": np.array([1, 2, 3, 99])})
    assert score.score(goal, CALLS, reference, answers, labels, f"{CALLS[0]}/head/scores:0").value == pytest.approx(6.8)


@pytest.mark.parametrize(
    "name, words",
    [("broken_metric", "KeyError: 'logits'"), ("nowhere", "no attribute 'nowhere'"), ("CALL", "no function")],
)
def test_a_function_that_fails_is_named_with_its_reason(name, words):
    with pytest.raises(errors.UsageError, match=words):
        score.score(goals.parse(f"tests.rooms.studies.test_tuning:{name}:threshold=1"), CALLS, REFERENCE, ANSWERS)


def test_an_interrupt_in_a_function_of_your_own_is_no_failure_of_it():
    with pytest.raises(errors.Interrupted), signals.limit(0.1):
        score.score(
            goals.parse("tests.rooms.studies.test_tuning:endless_metric:threshold=1"), CALLS, REFERENCE, ANSWERS
        )


def test_answers_that_are_no_numbers_are_counted():
    bad = [{"probabilities": ANSWERS[0]["probabilities"] * np.nan}, ANSWERS[1]]
    assert score.score(goals.parse("snr_db:threshold=1"), CALLS, REFERENCE, bad).nonfinite == 4
    assert score.score(goals.parse("snr_db:threshold=1"), CALLS, bad, bad).nonfinite == 0


# Settings.


def test_flags_of_settings_read_back_as_the_settings():
    settings = Settings(
        precision_mode="INT8",
        minimum_segment_size=7,
        shapes="image:1x8x8x1,8x8x8x1",
        use_dynamic_shape=False,
        keep_native_ops=("Cumsum", "Softmax"),
        high_precision_nodes=space.with_high(Settings(precision_mode="INT8"), ["a/b.c", "a-d"]).high_precision_nodes,
    )
    values, _ = _flags.parse("convert", convert_command, space.flag_lines(settings))
    assert convert_command.read_settings(values) == settings


def test_a_frozen_input_is_in_the_flags_of_the_winner_and_a_table_is_of_its_graph(tmp_path):
    values, _ = _flags.parse("tune", tune_command, [*NEEDED, "--freeze=training:false", "--max_build_minutes=3"])
    settings = tune_command._settings(values)
    assert "--freeze=training:false" in space.flag_lines(settings)
    with trials(tmp_path) as measure:
        plain = dataclasses.replace(settings, freeze="")
        assert (
            measure.calibration_path(settings)
            != measure.calibration_path(plain)
            == measure.calibration_path(dataclasses.replace(plain))
        )


@pytest.mark.parametrize("precision", ["FP32", "FP16", "INT8"])
def test_how_int8_is_calibrated_may_be_said_and_is_in_the_flags_of_int8_alone(precision):
    values, _ = _flags.parse(
        "tune", tune_command, [*NEEDED, "--calibration_method=percentile,mse", "--calibration_percentile=99.9"]
    )
    tried = space.with_precision(tune_command._settings(values), precision)
    read, _ = _flags.parse("convert", convert_command, space.flag_lines(tried))
    assert convert_command.read_settings(read) == tried
    assert tried.calibration_percentile == (99.9 if precision == "INT8" else Settings().calibration_percentile)


@pytest.mark.parametrize(
    "shapes, expected",
    [
        ("image:1x8x8x1,8x8x8x1", ("Range", "implicit")),
        ("image:8x8x8x1", ("implicit",)),
        ("image:min=1x8x8x1,opt=4x8x8x1,max=8x8x8x1", ("Range", "implicit")),
        ("ids:1x64,8x128", ("Range",)),
    ],
)
def test_strategies_are_those_that_can_serve_the_shapes(shapes, expected):
    from tftrt_tools.models.savedmodel import shapes as grammar

    parsed = grammar.parse(shapes)
    calls = {
        "s": [
            {key[1]: shape for key in parsed for shape in [parsed[key][number]]}
            for number in range(len(next(iter(parsed.values()))))
        ]
    }
    assert space.strategies(Settings(shapes=shapes), calls) == expected


def test_without_implicit_batch_mode_it_is_not_tried(monkeypatch):
    monkeypatch.setattr(space.stack, "tensorrt_major", lambda: 10)
    calls = {"s": [{"x": (1, 8)}, {"x": (8, 8)}]}
    assert space.strategies(Settings(shapes="x:1x8,8x8"), calls) == ("Range",)


def test_segment_sizes_are_those_that_make_other_segments_and_leave_an_engine():
    rows = tuple(
        SizeResult(low=low, high=high, engines=engines, inside=inside, coverage=inside / 20, smallest=smallest)
        for low, high, engines, inside, smallest in (
            (1, 2, 3, 20, 2),
            (3, 5, 2, 18, 5),
            (6, 9, 1, 12, 12),
            (10, None, 0, 0, None),
        )
    )
    plan = Plan(
        model="model",
        tags=("serve",),
        settings=Settings(),
        tensorflow="2.14.1",
        signatures=(SignaturePlan(name="s", inputs=(), sizes=rows),),
    )
    assert space.sizes(plan, 3) == (6, 1) and space.sizes(plan, 4) == (6, 1) and space.sizes(plan, 8) == (3, 1)


def test_nodes_are_ranked_by_the_harm_that_they_do_alone():
    def signature(**noises):
        nodes = tuple(
            Node(
                name=name,
                op="Conv2D",
                engine="e",
                effects=(
                    Effect(output="y", noise=noise, top1=None, nonfinite=0),
                    Effect(output="z", noise=0.0, top1=None, nonfinite=0),
                ),
            )
            for name, noise in noises.items()
        )
        return SignatureHarm(
            name="s",
            rows=8,
            nodes=nodes,
            total=(Effect(output="y", noise=1.0, top1=None, nonfinite=0),),
            kept=kept,
            unrounded=(),
            other_nodes=0,
            fidelity_db=100.0,
        )

    kept = ()
    two = [signature(a=0.1, b=0.01, c=0.0), signature(d=math.inf, a=0.05)]
    assert ranking.ranked(two) == search.Ranked(("d", "a", "b"), 1)
    kept = (
        Kept(1, (Effect(output="y", noise=0.1, top1=None, nonfinite=0),)),
        Kept(2, (Effect(output="y", noise=0.01, top1=None, nonfinite=0),)),
    )
    two = [signature(a=0.1, b=0.01, c=0.0), signature(d=math.inf, a=0.05)]
    assert ranking.ranked(two) == search.Ranked(("d", "a", "b"), 3)


# The journal.

MEASURED = Measured(
    accuracy=math.inf,
    latencies={CALL: Latency(1.0, 0.1, 30)},
    build_seconds=2.0,
    cached=1,
    engine_bytes=1000,
    engines=1,
    coverage=0.5,
    seconds=3.0,
)


def test_a_precision_that_tensorrt_did_not_take_is_told_once():
    """By the names of the kernels, which a trial keeps; a journal of before has none."""
    took = {"FP32": {"TF32": 3.0}, "FP16": {"FP16": 1.0, "other": 1.0}, "INT8": {"FP16": 1.0, "other": 3.0}}
    model = Synthetic([0.02, 0.01], [0.1, 0.1], {"FP32": 3.0, "FP16": 2.0, "INT8": 1.0}, {"FP16": 0.0})

    def evaluate(settings):
        return dataclasses.replace(model.measured(settings), kernels=took[settings.precision_mode])

    found = model.search(evaluate=evaluate)
    told = [note for note in found.notes if "not taken" in note]
    assert len(told) == 1 and sum(one.settings.precision_mode == "INT8" for one in found.trials) > 1
    assert told[0].startswith(
        "trial 3: INT8 was asked for and not taken: no kernel that ran says that it computes in INT8 (of the kernels' "
        "time: FP16 25 %, names that do not tell 75 %)"
    )
    assert not any("not taken" in note for note in model.search().notes)
    kept = found.trials[2].measured
    assert Measured.from_dict(json.loads(json.dumps(kept.to_dict()))) == kept
    assert (
        Measured.from_dict({name: value for name, value in MEASURED.to_dict().items() if name != "kernels"}) == MEASURED
    )


def test_trials_are_kept_and_found_again(tmp_path):
    first = journal.Journal(tmp_path / "work")
    key = journal.key(settings=BASE.to_dict(), model="sha256:0")
    assert first.get(key) is None
    assert first.put(key, BASE, MEASURED, "tftrt").name == "trial-0001.json"
    again = journal.Journal(tmp_path / "work")
    assert again.get(key) == MEASURED and again.get(journal.key(settings=BASE.to_dict(), model="sha256:1")) is None
    assert again.put("other", BASE, Measured(failure="no"), "tensorrt").name == "trial-0002.json"
    json.loads((tmp_path / "work/trial-0001.json").read_text(), parse_constant=pytest.fail)


def test_what_is_expensive_is_made_once(tmp_path):
    made = []
    for _ in range(2):
        assert journal.Journal(tmp_path).fact("original", "sha256:12", lambda: made.append(1) or 0.5) == 0.5
    assert made == [1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 1, "key": "k", "measured": {}}'])
def test_a_damaged_trial_is_named(tmp_path, text):
    (tmp_path / "trial-0003.json").write_text(text)
    with pytest.raises(errors.TftrtError, match="trial-0003.json is damaged"):
        journal.Journal(tmp_path)


# Trials, with a worker that does what the trial's settings name.

INT8 = dataclasses.replace(BASE, precision_mode="INT8")
DATA = DataOptions(source="rows.npz")
TIMED = Timed(
    call=CALL,
    signature="serving_default",
    shapes={"image": (8, 8, 8, 1)},
    specs=(InputSpec("image", "float32", (None, 8, 8, 1)),),
)


def trials(tmp_path, task=None, **options):
    # Names as `tune` gives them: no key may trip over one.
    task = task or Task(
        model="model",
        timed=(),
        scoring=SCORING,
        facts={"model": "sha256:0", "data": "sha256:1", "metric": "top1", "timed": [CALL], "name": "a GPU"},
    )
    return Trials(task, journal.Journal(tmp_path / "work"), job=worker, **options)


def native_nodes(what, settings=BASE):
    return dataclasses.replace(settings, keep_native_nodes=what)


def test_trials_share_a_worker_and_one_that_dies_costs_its_own_trial_only(tmp_path):
    with trials(tmp_path) as measure:
        first, second = measure(native_nodes("a")), measure(native_nodes("b"))
        died, third = measure(native_nodes("abort")), measure(native_nodes("c"))
    assert first.accuracy == second.accuracy != third.accuracy
    assert "SIGABRT" in died.failure and died.accuracy is None and third.seconds > 0
    assert len(list((tmp_path / "work").glob("trial-*.json"))) == 4
    assert not list((tmp_path / "work").glob(".trial-*")), "what a dead worker leaves is removed"


def test_a_work_folder_serves_one_search_at_a_time(tmp_path):
    with trials(tmp_path), pytest.raises(errors.TftrtError, match="another tune works in"), trials(tmp_path):
        pass
    with trials(tmp_path) as measure:
        assert measure(native_nodes("a")).failure == ""


@pytest.mark.parametrize("what, words", [("error", "no segment"), ("bug", "internal error: ZeroDivisionError: a slip")])
def test_an_error_in_a_trial_is_its_failure(tmp_path, what, words):
    with trials(tmp_path) as measure:
        assert measure(native_nodes(what)).failure == words
        assert measure(native_nodes("a")).failure == ""


def test_what_is_done_is_not_done_again_unless_it_failed_and_that_is_asked_for(tmp_path):
    with trials(tmp_path) as measure:
        first, failed = measure(native_nodes("a")), measure(native_nodes("error"))
    with trials(tmp_path) as measure:
        assert (measure(native_nodes("a")), measure(native_nodes("error"))) == (first, failed) and measure.reused == 2
    with trials(tmp_path, retry_failed=True) as measure:
        measure(native_nodes("a")), measure(native_nodes("error"))
        assert measure.reused == 1
    with trials(tmp_path, Task(model="model", timed=(), scoring=SCORING, facts={"model": "sha256:another"})) as measure:
        assert measure(native_nodes("a")).accuracy != first.accuracy and measure.reused == 0


def test_a_trial_that_takes_too_long_is_ended_and_done_again_under_a_longer_limit(tmp_path):
    def failure(what, minutes):
        with trials(tmp_path, trial_minutes=minutes) as measure:
            return measure(native_nodes(what)).failure, measure.reused

    assert failure("endless", 0.01) == ("took longer than --max_trial_minutes=0.01", 0)
    assert failure("endless", 0.01) == failure("endless", 0.005) == ("took longer than --max_trial_minutes=0.01", 1)
    assert failure("endless", 0.02) == ("took longer than --max_trial_minutes=0.02", 0)
    assert "SIGABRT" in failure("abort", 5)[0] and failure("error", 5) == ("no segment", 0)


def test_engines_that_are_not_ready_in_time_fail_their_trial_and_end_the_worker(tmp_path):
    def measured(minutes, *names):
        task = Task(model="model", timed=(), scoring=SCORING, build_minutes=minutes)
        with trials(tmp_path, task) as measure:
            return [measure(native_nodes(name)) for name in names], measure.reused

    (first, late, second, whole, third), _ = measured(0.5, "a", "late", "b", "late, all", "c")
    assert late.failure == "E_1 was not ready when --max_build_minutes=0.5 were over"
    assert whole.failure == "none of the 2 engines was ready within --max_build_minutes=0.5"
    assert len({first.accuracy, second.accuracy, third.accuracy}) == 3, (
        "the build that was given up goes on in the worker"
    )
    assert measured(0.5, "late") == measured(0.25, "late") == ([late], 1)
    (again,), reused = measured(1, "late")
    assert again.failure.endswith("--max_build_minutes=1 were over") and reused == 0
    (done,), reused = measured(None, "late")
    assert not done.failure and reused == 0


def test_a_trial_names_the_engines_that_were_not_ready_or_refused():
    def result(*unbuilt):
        return SignatureResult(
            name="s", inputs=(), converted=True, coverage=1.0, engines=(), left_out=(), native_ops={}, unbuilt=unbuilt
        )

    assert measure_job._missing([result(), result(Unbuilt(name="E_3", reason="no declared shape reaches it"))]) == ""
    late = result(Unbuilt.late("E_0", 2), Unbuilt(name="E_1", reason="no declared shape reaches it"))
    found = measure_job._missing(
        [late, result(Unbuilt(name="E_2", reason="it did not build: no kernel", refused=True))]
    )
    assert found == "E_0: not ready when --max_build_minutes=2 were over (and 1 more)"


def test_a_frozen_input_is_timed_and_scored_with_its_value(tmp_path):
    model = unet_with_conditionals(tmp_path / "unet")
    spec = (InputSpec("volume", "float32", (None, 8, 8, 8, 1)), InputSpec("training", "bool", ()))
    timed = Timed(call="c", signature="s", shapes={"volume": (2, 8, 8, 8, 1), "training": ()}, specs=spec)
    for value in (False, True):
        feed = measure_job._inputs(dataclasses.replace(timed, frozen={"training": value}))
        assert feed["training"].dtype == "bool" and bool(feed["training"]) is value
    np.savez(tmp_path / "rows.npz", volume=np.ones((4, 8, 8, 8, 1), np.float32))
    settings = Settings(shapes="volume:2x8x8x8x1;training:scalar", freeze="training:false")
    options = tune.Options(data=str(tmp_path / "rows.npz"), goal=TOP1, work_dir=str(tmp_path / "work"))
    with opening.opened(model) as (opened,):
        specs, walked = tune._specs(opened, settings)
        maker = tune._maker(settings, options, specs, walked)
        given = maker.given(tmp_path / "given")
        cut = tune._scored(maker, given, settings, options, None)
        found = tune._prepare(opened, settings, options, specs, maker, given, cut, None, tmp_path)
    assert found.timed[0].frozen == {"training": False}
    assert [bool(np.load(one.inputs)["training"]) for one in found.scoring.calls] == [False, False]


def test_rows_of_a_signature_that_is_not_tuned_are_left_aside(tmp_path):
    np.savez(tmp_path / "rows.npz", a=np.ones((4, 2), np.float32), b=np.ones((4, 2), np.float32))
    specs = {"one": [InputSpec("a", "float32", (None, 2))], "two": [InputSpec("b", "float32", (None, 2))]}
    options = tune.Options(data=str(tmp_path / "rows.npz"), goal=TOP1, work_dir=str(tmp_path / "work"))
    maker = tune._maker(Settings(shapes="one/a:4x2"), options, specs, signatures.Once.of(["one"]))
    read = maker.given(tmp_path / "given")
    assert list(maker.cut(read, (4,))[0]) == ["one"] and read.notes == (
        "arrays of signatures that were not asked for were left aside: b",
    )


def test_an_interruption_is_no_result(tmp_path):
    with trials(tmp_path) as measure, pytest.raises(errors.Interrupted), signals.limit(1.0):
        measure(native_nodes("endless"))
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["lock"]


def test_a_table_is_made_once_for_each_choice_of_segments_and_given_to_the_trials(tmp_path):
    task = Task(
        model="model",
        timed=(),
        scoring=SCORING,
        data=DATA,
        facts={"model": "sha256:0"},
        data_facts={"model": "sha256:0"},
    )
    with trials(tmp_path, task) as measure:
        variants = [INT8, space.with_high(INT8, ["a"]), space.with_strategy(INT8, "Range")]
        assert [measure(one).engines for one in variants] == [1, 1, 1] and measure(BASE).engines == 0
        assert len(list((tmp_path / "work").glob("calibration-*.json"))) == 1
        for one in (dataclasses.replace(INT8, minimum_segment_size=10), space.with_strategy(INT8, "implicit")):
            assert measure(one).engines == 1
        assert len(list((tmp_path / "work").glob("calibration-*.json"))) == 3
        assert calibration_file.read(measure.calibration_path(INT8)).engines[0].table.scales == {"x": 0.5}


def trial_of(number, settings):
    return search.Trial(number=number, settings=settings, high=(), measured=Measured(), kept=True)


def test_the_best_are_timed_in_a_process_of_their_own_once(tmp_path):
    best, timed = [trial_of(3, native_nodes("a")), trial_of(5, native_nodes("b", INT8))], TIMED
    with trials(tmp_path) as measure:
        one = measure(native_nodes("a"))
        found = measure.in_turns(best, timed)
        assert found.numbers == (3, 5) and found.latencies[3].ms / 1e3 not in (one.accuracy, os.getpid())
        with pytest.raises(errors.TftrtError, match="internal error: ZeroDivisionError: a slip"):
            measure.in_turns([trial_of(1, native_nodes("bug"))], timed)
        assert measure(native_nodes("c")).failure == ""
    with trials(tmp_path) as measure:
        assert measure.in_turns(best, timed) == found
        assert measure.in_turns(best[:1], timed).latencies[3] != found.latencies[3]


@pytest.mark.slow
def test_what_is_simulated_is_what_sensitivity_says_of_the_same_ranges(zoo_model, images, tftrt, tmp_path):
    model = str(zoo_model("digits_cnn"))
    rows = np.load(images / "held_back.npz")["image"][:64]
    np.savez(tmp_path / "rows.npz", image=rows)
    data = DataOptions(source=str(images / "calibration.npz"), batch_size=64)
    one = Scored(signature="serving_default", rows=len(rows), inputs=str(tmp_path / "rows.npz"), reference="")
    task = Task(
        model=model,
        timed=(),
        scoring=dataclasses.replace(SCORING, calls=(one,)),
        data=data,
        facts={"model": "sha256:0"},
        data_facts={"model": "sha256:0"},
    )
    kept = journal.Journal(tmp_path / "work")
    settings = Settings(precision_mode="INT8", shapes="image:8x8x8x1")
    with Trials(task, kept) as measure:
        simulated = ranking.Ranking(task, kept, measure)
        levels = {
            method: simulated.snr_db(space.with_method(settings, method, 99.0)) for method in ("entropy", "percentile")
        }
        assert simulated(settings).names
    for method, percentile in (("entropy", ()), ("percentile", ("--calibration_percentile=99",))):
        done = tftrt(
            "sensitivity",
            model,
            f"--data={tmp_path / 'rows.npz'}",
            f"--calibration_data={images / 'calibration.npz'}",
            "--calibration_batch_size=64",
            "--precision=INT8",
            "--use_dynamic_shape",
            f"--calibration_method={method}",
            *percentile,
            "--json=-",
        )
        said = json.loads(done.stdout)["signatures"][0]
        assert levels[method] == pytest.approx(said["snr_db"], abs=1e-6)
    assert abs(levels["entropy"] - levels["percentile"]) > 0.01


# The last comparison.


def test_what_is_timed_in_turns_is_the_winner_what_is_nearly_as_fast_and_fp16():
    listed = [
        trial(1, 9.0, 0.98),
        trial(2, 4.0, 0.98),
        trial(3, 1.0, 0.5, kept=False),
        trial(4, 1.09, 0.97, ["a"]),
        trial(5, 1.0, 0.97, ["a", "b"]),
        trial(6, 1.05, 0.97, ["c"]),
        trial(7, 1.2, 0.97, ["d"]),
    ]
    plain = dataclasses.replace(listed[1], settings=space.with_precision(BASE, "FP16"))
    listed[1] = plain
    assert [one.number for one in final.finalists(listed, listed[4], CALL)] == [5, 6, 4, 2]
    assert [one.number for one in final.finalists(listed, listed[5], CALL)] == [6, 5, 4, 2]
    assert [one.number for one in final.finalists([plain], plain, CALL)] == [2]
    # FP16 that misses the goal is there for the factor, and never wins.
    missing = dataclasses.replace(
        plain, kept=False, measured=dataclasses.replace(plain.measured, latencies={CALL: Latency(0.5, 0.0, 500)})
    )
    assert [one.number for one in final.finalists([missing, listed[4]], listed[4], CALL)] == [5, 2]
    assert final.chosen(final.final(CALL, [0, 2, 5], turns(9.0, 0.5, 1.0)), [missing, listed[4]], TOP1).number == 5
    failed = dataclasses.replace(missing, measured=Measured(failure="no"))
    assert [one.number for one in final.finalists([failed, listed[4]], listed[4], CALL)] == [5]


def turns(*factors, noise=0.001, seed=0):
    """Seconds as of turns_job.in_turns of calls that take 1 ms by these factors on a machine that becomes slower meanwhile."""
    random = np.random.default_rng(seed)
    return [
        [
            [1e-3 * factor * (1 + 0.05 * number) * (1 + noise * random.normal()) for _ in range(10)]
            for number in range(turns_job.ROUNDS)
        ]
        for factor in factors
    ]


def test_a_drift_of_the_machine_is_in_no_factor():
    found = final.final(CALL, [0, 1, 2], turns(2.5, 1.0, 1.25))
    assert found.faster(1).times == pytest.approx(2.5, rel=0.002) and found.faster(1, 2).times == pytest.approx(
        1.25, rel=0.002
    )
    for one, other, true in ((1, 0, 2.5), (1, 2, 1.25), (2, 1, 0.8)):
        faster = found.faster(one, other)
        assert faster.low <= true <= faster.high and faster.high / faster.low < 1.01
    assert found.latencies[2].calls == 200 and found.latencies[2].mad_ms > 0.1, "the spread over time stays to be seen"
    again = final.Final.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert again == found and again.to_dict()["times_as_fast_as_tensorflow"]["1"]["times"] == found.faster(1).times


def test_the_interval_of_a_factor_misses_it_as_rarely_as_it_says():
    missed = 0
    for seed in range(100):
        found = final.final(CALL, [0, 1], turns(1.3, 1.0, noise=0.2, seed=seed)).faster(1)
        missed += not found.low <= 1.3 <= found.high
    assert missed <= 10


@pytest.mark.parametrize(
    "factor, noise, number", [(1.001, 0.001, 2), (1.015, 0.001, 2), (1.05, 0.001, 1), (1.03, 0.001, 1), (1.03, 0.2, 2)]
)
def test_of_two_that_the_turns_cannot_tell_apart_the_more_accurate_wins(factor, noise, number):
    listed = [trial(1, 1.0, 0.97, ["a"]), trial(2, 1.0, 0.98, ["a", "b"]), trial(3, 5.0, 0.99)]
    found = final.final(CALL, [0, 1, 2], turns(3.0, 1.0, factor, noise=noise, seed=1))
    assert final.chosen(found, listed, TOP1).number == number


def test_blocks_alternate_and_their_first_calls_do_not_count():
    called = []
    found = turns_job.in_turns([lambda: called.append(0) or time.sleep(0.03), lambda: called.append(1)])
    assert [len(one) for one in found] == [turns_job.ROUNDS] * 2 and {
        len(block) for one in found for block in one
    } <= set(range(3, 201))
    counts = [len(one[0]) for one in found]
    order = [number for at, number in enumerate(called[2:]) if at == 0 or number != called[2:][at - 1]]
    assert order == [0, *[1, 0] * (turns_job.ROUNDS // 2)], "A B, B A: neighbours of two rounds are one model's"
    assert called.count(0) == 1 + turns_job.ROUNDS * (2 + counts[0]) and called.count(1) == 1 + turns_job.ROUNDS * (
        2 + counts[1]
    )


def test_the_original_is_timed_by_tensorflow_and_what_has_no_engine_is_refused(zoo_model, tmp_path):
    model = str(zoo_model("digits_cnn"))
    asked = InTurns(original=Original(path=model, tags=("serve",)), folder=str(tmp_path), timed=TIMED)
    found = measuring.measure.run(Request(final=asked), env=ENV).result.final
    assert (
        found.numbers == ()
        and found.latencies[0].ms > 0
        and len(found.rounds[0]) == turns_job.ROUNDS
        and not list(tmp_path.iterdir())
    )
    task = Task(model=model, timed=(TIMED,), scoring=SCORING)
    with Trials(task, journal.Journal(tmp_path / "work")) as measure, pytest.raises(errors.TftrtError):
        measure.in_turns([trial_of(4, Settings(precision_mode="FP32"))], TIMED)
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["lock"]


# The result.


def tuning(model=None, winner=True, goal=TOP1, timed=None):
    found = (model or Synthetic([0.03, 0.01, 0.001], [0.1, 0.1, 0.1], sizes={10: 0.9})).search(goal=goal)
    assert bool(found.winner) == winner
    return Tuning(
        model="/models/digits",
        goal=goal,
        original=0.98,
        calls=(CALL,),
        objective=CALL,
        native={CALL: Latency(9.0, 0.1, 60)},
        trials=found.trials,
        winner=found.winner,
        best=found.best,
        ended=found.ended,
        notes=found.notes,
        gpu="GPU",
        tensorrt="8.5.3",
        data={"source": "data.npz", "rows": 400, "dropped": 0, "digest": ""},
        final=timed and timed(found),
    )


def test_the_plot_names_every_trial_the_goal_and_the_winner(tmp_path):
    done = tuning()
    text = html.tuning_plot(done)
    xml.etree.ElementTree.fromstring(text)
    assert text.count("size 10") >= 1 and "goal: top1 ≥ 0.97" in text and "winner" in text
    html.write_tuning(done, tmp_path / "tuning.html")
    page = (tmp_path / "tuning.html").read_text()
    assert "times as fast as TensorFlow" in page and page.count("<tr") == len(done.trials) + 2
    assert (
        done.winner.high and "times as fast as FP16" in page and re.search(r"tftrt-tools \S+; 20\d\d-\d\d-\d\dT", page)
    )
    assert page.count("<details") == sum(bool(one.high) for one in done.trials) and page.count("<details open>") == 1
    html.write_tuning(tuning(Synthetic([0.0], [0.1], factors={"INT8": 3.0})), tmp_path / "fp16.html")
    assert "times as fast as FP16" not in (tmp_path / "fp16.html").read_text()


def test_factors_come_from_the_turns_with_their_interval(tmp_path, capsys):
    def timed(found):
        fp16 = next(one.number for one in found.trials if one.settings.precision_mode == "FP16")
        return final.final(CALL, [0, found.winner.number, fp16], turns(8.0, 1.0, 1.6))

    done = tuning(timed=timed)
    tune_command._print(done, None)
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"winner: trial \d+, .* 1\.\d+ ms at .*, 8\.0\d times as fast as TensorFlow \(95 %: (7.9|8.0)\d to 8\.\d\d\), "
        r"1\.(60|59|61) times as fast as FP16 \(95 %: 1\.\d\d to 1\.\d\d\)",
        said,
    ), said
    html.write_tuning(done, tmp_path / "tuning.html")
    page = (tmp_path / "tuning.html").read_text()
    assert "times as fast as FP16 (95 %: 1." in page and "Timed in turns, in one process" in page
    assert json.loads(json.dumps(done.to_dict(), allow_nan=False))["final"]["call"] == CALL


def test_a_result_without_a_winner_can_be_shown_and_is_plain_json(tmp_path):
    done = tuning(
        Synthetic([0.1], [0.1], speeds={"FP32": 0.02, "FP16": 0.03}),
        winner=False,
        goal=Goal("top1", "threshold", 0.99, True),
    )
    html.write_tuning(done, tmp_path / "tuning.html")
    assert "no trial keeps the goal" in (tmp_path / "tuning.html").read_text()
    said = json.loads(json.dumps(done.to_dict()), parse_constant=pytest.fail)
    assert said["winner"] is None and said["best"] and len(said["trials"]) == len(done.trials)


# The command, on a machine without a GPU.

NEEDED = ("--data=data.npz", "--accuracy=top1:threshold=0.9", "--shapes=image:8x8x8x1")


@pytest.mark.parametrize(
    "flags, words",
    [
        (NEEDED[1:], "--data is missing"),
        (NEEDED[:2], "--shapes is missing"),
        ((NEEDED[0], NEEDED[2]), "--accuracy is missing"),
        ((*NEEDED, "--precision=FP8"), "FP8 is no precision"),
        ((*NEEDED, "--precision=INT8"), "INT8 needs ranges"),
        ((*NEEDED, "--calibration_table=a", "--calibration_data=b"), "exclude each other"),
        ((*NEEDED, "--max_trials=0"), "max_trials"),
        ((*NEEDED, "--precision=FP16", "--calibration_method=mse"), "no effect where INT8 is not tried"),
        (
            (*NEEDED, "--precision=FP16", "--calibration_percentile=99"),
            "no effect where the method percentile is not tried",
        ),
        (
            (*NEEDED, "--calibration_method=mse,max", "--calibration_percentile=99"),
            "no effect where the method percentile is not tried",
        ),
        ((*NEEDED, "--calibration_method=mse,mes"), "mes is no method"),
        ((*NEEDED, "--calibration_method="), "nothing is no method"),
        ((*NEEDED, "--calibration_percentile=20"), "not between 50 and 100"),
        ((*NEEDED, "--calibrator=tensorrt", "--calibration_method=mse"), "TensorRT calibrates by entropy only"),
        ((*NEEDED, "--calibration_table=a", "--calibration_method=mse"), "exclude each other"),
        ((*NEEDED, "--precision=FP17"), "FP17"),
        ((*NEEDED, "--plot=plot.png"), "written as SVG"),
    ],
)
def test_wrong_flags_are_told_at_once(flags, words):
    with pytest.raises(errors.UsageError, match=words):
        values, positional = _flags.parse("tune", tune_command, ["model", *flags])
        tune_command.run(values, positional)


def test_without_a_gpu_the_reason_is_told_and_nothing_is_left(tftrt, zoo_model, tmp_path):
    np.savez(tmp_path / "data.npz", image=np.zeros((8, 8, 8, 1), "float32"))
    done = tftrt("tune", zoo_model("digits_cnn"), *NEEDED, cwd=tmp_path, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert_clear(done, 1, "tune measures speed, and engines cannot be built here")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.npz"]


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        (
            "--accuracy_output=serving_default/probabilites",
            "--accuracy_output=serving_default/probabilites is no output of the model\n"
            "  did you mean 'serving_default/probabilities'?",
        ),
        ("--accuracy_output=probabilities", "--accuracy_output=probabilities is no output of the model"),
        ("--accuracy_output=other/probabilities", "--accuracy_output=other/probabilities is no output of the model"),
        ("--accuracy_output=serving_default/", "--accuracy_output=serving_default/ is no output of the model"),
        ("--work_dir=data.npz", "data.npz is no folder"),
        ("--work_dir=data.npz/work", "data.npz is no folder"),
    ],
)
def test_what_the_model_and_the_disk_refuse_is_told_before_a_gpu_is_looked_for(tftrt, zoo_model, tmp_path, flag, says):
    np.savez(tmp_path / "data.npz", image=np.zeros((8, 8, 8, 1), "float32"))
    assert_clear(
        tftrt("tune", zoo_model("digits_cnn"), *NEEDED, flag, cwd=tmp_path, env={"CUDA_VISIBLE_DEVICES": "-1"}), 2, says
    )
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


def test_the_outputs_of_a_detector_are_one_output_of_the_goal():
    outputs = {"detect": ["boxes", "scores", "class/0"], "other": ["scores"]}
    for said in ("", "detect/boxes", "detect/class/0", "detect/boxes+scores+class/0", "other/scores"):
        tune.check_output(said, outputs)
    with pytest.raises(errors.UsageError, match="other/boxes is no output"):
        tune.check_output("other/boxes", outputs)


def _kept(folder, **changes):
    (folder / "in").mkdir(parents=True)
    (folder / "original").mkdir()
    (folder / "in" / "0.npz").touch()
    (folder / "original" / "0.npz").touch()
    one = {"signature": "s", "rows": 3, "inputs": "in/0.npz", "reference": "original/0.npz", **changes}
    (folder / "calls.json").write_text(json.dumps([one]))
    return folder / "calls.json", one


def test_the_calls_of_a_work_folder_are_its_own(tmp_path):
    path, one = _kept(tmp_path / "good")
    assert [kept.to_dict() for kept in tune._kept_calls(path)] == [one]
    for number, name in enumerate(("../x.npz", "/etc/passwd", "in/../../x.npz", "in", "in/sub/0.npz", "calls.json")):
        path, _ = _kept(tmp_path / str(number), inputs=name)
        with pytest.raises(errors.TftrtError, match="outside its folder"):
            tune._kept_calls(path)
    path, _ = _kept(tmp_path / "linked")
    (tmp_path / "elsewhere.npz").touch()
    (path.parent / "original" / "0.npz").unlink()
    (path.parent / "original" / "0.npz").symlink_to(tmp_path / "elsewhere.npz")
    with pytest.raises(errors.TftrtError, match="outside its folder"):
        tune._kept_calls(path)


@pytest.mark.parametrize(
    "text", ["{", "3", "[1]", "[{}]", '{"a": 1}', '[{"signature": "s", "rows": "x", "inputs": "a", "reference": "b"}]']
)
def test_damaged_calls_of_a_work_folder_are_one_line(text, tmp_path):
    (tmp_path / "calls.json").write_text(text)
    with pytest.raises(errors.TftrtError, match="is damaged"):
        tune._kept_calls(tmp_path / "calls.json")


def test_a_trial_is_known_by_names_that_renamed_flags_do_not_change():
    """A work folder that was begun with --precision_mode and --calibration_ranges goes on."""
    kept = {"precision_mode": "INT8", "calibration_method": "entropy", "signature_keys": ["serve"]}
    assert (
        kept.items()
        <= Settings(precision_mode="INT8", calibration_method="entropy", signature_keys=("serve",)).to_dict().items()
    )
    drawn = {"ranges": "x:0,1", "seed": 3, "batch_size": 2}
    assert drawn.items() <= DataOptions(source="", **drawn).to_dict().items()
