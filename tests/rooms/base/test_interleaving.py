"""The order of turns, held against drifts of known forms; and the looks at the data."""

import collections
import itertools
import math

import numpy as np
import pytest

from tftrt_tools.base.statistics import interleaving, ratios


def places(order, power=1):
    """{name: sum of the places of its blocks, each to a power}."""
    return {name: sum(at**power for at, one in enumerate(order) if one == name) for name in order}


def alike(sums):
    return len(set(sums.values())) == 1


@pytest.mark.parametrize(
    "names, number, blocks, order",
    [
        ("AB", 0, 1, "AB"),
        ("AB", 1, 1, "BA"),
        ("ABC", 0, 1, "ABC"),
        ("ABC", 1, 1, "CBA"),
        ("ABC", 2, 1, "ABC"),
        ("AB", 0, 2, "ABBA"),
        ("AB", 1, 2, "BAAB"),
        ("AB", 0, 4, "ABBABAAB"),
        ("AB", 1, 4, "BAABABBA"),
        ("AB", 2, 4, "ABBABAAB"),
        ("ABC", 0, 2, "ABCCBA"),
        ("ABC", 1, 2, "BCAACB"),
        ("ABC", 0, 4, "ABCCBAABCCBA"),
        ("A", 3, 4, "AAAA"),
    ],
)
def test_the_order_of_a_round(names, number, blocks, order):
    assert "".join(interleaving.order(names, number, blocks)) == order


@pytest.mark.parametrize("count", range(1, 7))
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_each_has_as_many_blocks_and_a_linear_drift_is_shared(count, blocks):
    names = range(count)
    rounds = [interleaving.order(names, number, blocks) for number in range(2 * count)]
    assert all(collections.Counter(one) == dict.fromkeys(names, blocks) for one in rounds)
    assert alike(places(itertools.chain(*rounds[:2]))), "over two rounds"
    if blocks > 1:
        assert all(alike(places(one)) for one in rounds), "within each round"
        assert set(collections.Counter(one[0] for one in rounds).values()) == {2}, "all begin equally often"


def test_four_blocks_of_two_share_a_quadratic_drift():
    for number in range(2):
        order = interleaving.order("AB", number, 4)
        assert all(alike(places(order, power)) for power in (0, 1, 2))


class Machine:
    """It becomes slower from one block to the next, and its candidates take seconds by their own factors."""

    def __init__(self, factors, drift):
        self.factors, self.drift, self.done = factors, drift, 0

    def block(self, name):
        self.done += 1
        return self.factors[name] * (1 + self.drift * self.done)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_drift_of_the_machine_is_not_in_the_ratio(blocks):
    machine = Machine({"slow": 2.0, "fast": 1.0}, drift=0.02)
    found = interleaving.in_turns(("slow", "fast"), range(20), machine.block, blocks)
    slow, fast = (np.reshape(found[name], (-1, blocks)).mean(axis=1) for name in ("slow", "fast"))
    ratio = ratios.of_rounds(np.log(slow / fast), 0.05, 0)
    assert ratio.value == pytest.approx(2.0, rel=0.002) and ratio.low <= 2.0 <= ratio.high
    # One after the other the same machine shows another ratio.
    machine = Machine({"slow": 2.0, "fast": 1.0}, drift=0.02)
    first, second = ([machine.block(name) for _ in range(20 * blocks)] for name in ("slow", "fast"))
    assert np.mean(first) / np.mean(second) < 1.7


def test_figures_are_in_the_order_of_time_and_of_the_names():
    said = itertools.count()
    found = interleaving.in_turns("AB", (0, 1), lambda name: f"{name}{next(said)}", 2)
    assert found == {"A": ["A0", "A3", "A5", "A6"], "B": ["B1", "B2", "B4", "B7"]} and list(found) == ["A", "B"]


def test_a_block_of_fast_calls_has_many_and_its_first_ones_do_not_count():
    assert interleaving.calls_of_block(1.0, 4, 256) == 4 and interleaving.calls_of_block(0.0, 4, 256) == 256
    assert interleaving.calls_of_block(1e-2, 4, 256) == 10 and interleaving.calls_of_block(1e-2, 4, 256, 0.25) == 25
    numbers = itertools.count()
    assert interleaving.block(lambda: next(numbers), 3) == [interleaving.LEAD + at for at in range(3)]


@pytest.mark.parametrize("rounds, most", [(30, 90), (30, 31), (12, 12), (5, 3)])
def test_the_looks_have_all_rounds_once(rounds, most):
    looks = interleaving.looks(rounds, most)
    assert [*itertools.chain(*looks)] == list(range(most)) and len(looks) == math.ceil(most / rounds)
    assert all(len(one) == rounds for one in looks[:-1])


def run(decides_at=None, late_after=None):
    """(rounds that were done, rounds that were known at each look, whether the time was over)."""
    done, looked = [], []

    def decided():
        looked.append(len(done))
        return len(done) == decides_at

    late = interleaving.until_decided(
        interleaving.looks(3, 8), done.append, decided, lambda: late_after is not None and len(done) >= late_after
    )
    return done, looked, late


def test_rounds_end_where_a_look_decides_where_the_time_is_over_and_where_there_are_no_more():
    assert run() == (list(range(8)), [3, 6, 8], False)
    assert run(decides_at=6) == (list(range(6)), [3, 6], False)
    assert run(late_after=4) == (list(range(4)), [3], True)
    assert run(decides_at=3, late_after=3) == (list(range(3)), [], True)
