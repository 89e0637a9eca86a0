"""Generators that are begun and ended together, without a fleet: each has a clock of its own, and fails as a test wants it."""

import contextlib
import itertools
import time

import numpy as np
import pytest

from tests.mock_server import METHOD, MockServer
from tftrt_tools.base import errors
from tftrt_tools.base.process import signals
from tftrt_tools.fleet.holding import Lost
from tftrt_tools.fleet.task import Post, Where
from tftrt_tools.servers.load import generator, payload, schedule
from tftrt_tools.servers.load.load_plan import Plan, Target, WarmUpRule
from tftrt_tools.servers.load.several import conducting

REQUESTS = tuple(b"%015d," % number for number in range(7))
ECHO = payload.Payload(METHOD, REQUESTS, REQUESTS)
SECOND = 10**9
# What a machine answers that stands still.
HANGS = "hangs"


class Machine:
    """A generator on a machine whose clock is ahead by `ahead_ns`. there_s, back_s: what messages about the clock take. fails: {what it is
    asked: what it answers}, from the first time on."""

    def __init__(self, ahead_ns=0, there_s=0.0, back_s=0.0, fails=None):
        self.ahead_ns, self.there_s, self.back_s, self.fails = ahead_ns, there_s, back_s, fails or {}
        self.generator, self.asked, self.starts = conducting.sending.load(), [], []

    def ask(self, facts, content):
        from tftrt_tools.fleet.task import Said

        self.asked.append(facts["do"])
        if facts["do"] in self.fails:
            return self.fails[facts["do"]]
        if facts["do"] == "start":
            # Its own clock says the instant; that of this process is behind it.
            self.starts.append(facts["instant"] - self.ahead_ns)
            facts = {**facts, "instant": self.starts[-1]}
        try:
            return self.generator(Said(facts, content))
        except errors.TftrtError as error:
            return error


class Posts:
    """As holding.Posts."""

    def __init__(self, *machines, cores=4):
        self.machines = machines
        self.posts = [
            Post(where=Where(node=f"n{number}", host=f"h{number}"), boot=str(number), cores=cores, process=1)
            for number in range(len(machines))
        ]

    def __len__(self):
        return len(self.machines)

    def kept(self, data):
        return data

    def ask(self, each, contents=(), seconds=60.0, hurry=lambda: False, grace=3.0):
        given = contents or [b""] * len(each)
        told = [
            None if facts is None else machine.ask(facts, content)
            for machine, facts, content in zip(self.machines, each, given, strict=True)
        ]
        if HANGS in told:
            until = time.monotonic() + seconds
            while not hurry() and time.monotonic() < until:
                time.sleep(0.05)
        return [Lost("it did not answer") if one is HANGS else one for one in told]

    def tell(self, each):
        for machine, facts in zip(self.machines, each, strict=True):
            if facts is not None and machine.fails.get("look") is not HANGS:
                machine.ask(facts, b"")

    def trip(self, number, clock, seconds=60.0, hurry=lambda: False):
        machine, before = self.machines[number], clock()
        time.sleep(machine.there_s)
        there = clock() + machine.ahead_ns
        time.sleep(machine.back_s)
        return machine.fails.get("clock") or (before, there, clock())


@pytest.fixture(scope="module")
def server():
    with MockServer() as started:
        yield started


def run(server, machines, plan, on_progress=None, **target):
    generators = conducting.Generators(Posts(*machines), 1)
    return generators.run(Target(address=server.address, **target), ECHO, plan, on_progress)


@pytest.mark.parametrize("kind", ["open", "closed"])
def test_machines_whose_clocks_are_days_apart_begin_at_one_instant(server, kind):
    server.program(delays_ms=[5])
    machines = Machine(3 * 86400 * SECOND), Machine(-86400 * SECOND), Machine()
    plan = (
        Plan(kind="open", schedule=schedule.constant(90, 1), warm_up=None)
        if kind == "open"
        else Plan(concurrency=3, seconds=0.5, warm_up=WarmUpRule(window_s=0.05, at_most_s=0.2))
    )
    found = run(server, machines, plan)
    assert not found.partial and found.ok.all()
    known = [one.clock_uncertainty_ms * 1e6 for one in found.generators]
    starts = [machine.starts[0] for machine in machines]
    for start, uncertainty in zip(starts, known, strict=True):
        assert abs(start - found.started_monotonic_ns) <= uncertainty
    for one, machine in zip(found.generators, machines, strict=True):
        assert abs(one.clock_offset_ms - machine.ahead_ns / 1e6) <= one.clock_uncertainty_ms
    # The server saw one load and not three after each other.
    received = np.array(server.report()["received_ns"])
    if kind == "open":
        assert found.scheduled_ns.size == received.size == 90
        assert received.max() - received.min() < 2 * SECOND


def test_a_clock_behind_unequal_ways_is_known_as_badly_as_it_is_told(server):
    server.program()
    machine = Machine(17 * SECOND, there_s=0.02)
    plan = Plan(kind="open", schedule=schedule.constant(50, 2), warm_up=None)
    (one,) = run(server, [machine], plan).generators
    assert one.clock_uncertainty_ms >= 10
    assert abs(one.clock_offset_ms - 17_000) <= one.clock_uncertainty_ms


def test_a_short_run_over_a_long_way_is_refused_and_nothing_is_sent(server):
    server.program()
    machines = Machine(), Machine(back_s=0.05)
    with pytest.raises(errors.TftrtError, match=r"the clock of generator 2 on h1 is known to ±"):
        run(server, machines, Plan(concurrency=2, seconds=0.5))
    assert not server.report()["requests"] and "begin" not in [*machines[0].asked, *machines[1].asked]


@pytest.mark.parametrize("asked", ["clock", "load", "begin", "start"])
def test_a_generator_that_is_gone_before_the_start_is_an_error_and_the_others_are_ended(server, asked):
    server.program()
    machines = Machine(), Machine(fails={asked: Lost("killed", "look there")})
    with pytest.raises(errors.TftrtError, match="generator 2 on h1: killed") as raised:
        run(server, machines, Plan(concurrency=2, seconds=30, warm_up=None))
    assert raised.value.mend == "look there"
    if asked in ("begin", "start"):
        assert machines[0].asked[-1] == "interrupt"


def test_records_that_do_not_come_are_missed(server):
    server.program(delays_ms=[10])
    machines = Machine(), Machine(fails={"part": Lost("killed")})
    found = run(server, machines, Plan(concurrency=2, seconds=0.3, warm_up=None))
    assert found.partial == "generator 2 on h1 is gone, and its requests are not in the row: killed"
    first, second = found.generators
    assert first.requests == found.sent_ns.size and (second.requests, second.ended) == (0, "killed")


def test_what_fails_in_the_middle_is_told_with_its_generator(server):
    server.program()
    machines = Machine(), Machine()

    def fail(moment):
        if moment.phase == "measure":
            machines[1].fails["look"] = errors.TftrtError("a bug: broken")

    with pytest.raises(errors.TftrtError, match="generator 2 on h1: a bug: broken"):
        run(server, machines, Plan(concurrency=2, seconds=30, warm_up=None), fail)
    assert machines[0].asked[-1] == "interrupt"


def test_a_listener_that_has_seen_enough_ends_all(server):
    server.program(delays_ms=[10])
    found = run(
        server,
        [Machine(), Machine()],
        Plan(concurrency=2, seconds=60, warm_up=None),
        lambda moment: moment.phase == "measure" and moment.seconds > 0.3,
    )
    assert found.partial == "stopped" and found.seconds < 30 and all(one.requests for one in found.generators)


def test_a_run_with_too_few_answers_ends_in_any_case(server):
    server.program(delays_ms=[200])
    plan = Plan(concurrency=2, seconds=0.1, min_queries=1000, max_seconds=1.0, warm_up=None)
    found = run(server, [Machine(), Machine()], plan)
    assert "of at least 1000 requests in 1 s" in found.partial and 0 < found.sent_ns.size < 1000


def test_a_load_is_sent_once_and_each_generator_has_its_processes(server):
    server.program()
    machines = Machine(), Machine()
    generators = conducting.Generators(Posts(*machines, cores=8))
    plan = Plan(kind="open", schedule=schedule.constant(50, 0.4), warm_up=None)
    runs = [generators.run(Target(address=server.address), ECHO, plan) for _ in range(2)]
    assert [machine.asked.count("load") for machine in machines] == [1, 1]
    assert {one.processes for found in runs for one in found.generators} == {4}, "half of the cores"


def test_generators_of_one_machine_share_its_cores(server):
    posts = Posts(Machine(), Machine(), cores=8)
    posts.posts = [Post(where=one.where, boot="same", cores=8, process=1) for one in posts.posts]
    generators = conducting.Generators(posts)
    assert generators.machines == {"same": ("h0", 2)}
    found = generators.run(
        Target(address=server.address), ECHO, Plan(kind="open", schedule=schedule.constant(50, 0.4), warm_up=None)
    )
    assert {one.processes for one in found.generators} == {2}


def test_a_warm_generator_goes_on_until_all_are_warm(server):
    """The second one is told to be slow. The first keeps its load on meanwhile."""
    server.program(delays_ms=[5])
    first, second = Machine(), Machine()
    plain, looks = second.ask, itertools.count()

    def late(facts, content):
        said = plain(facts, content)
        if facts["do"] == "look" and next(looks) < 10:
            from tftrt_tools.fleet.task import Said

            return Said({**said.facts, "ready": False}, said.content)
        return said

    second.ask = late
    told = []
    found = run(
        server, [first, second], Plan(concurrency=2, seconds=0.3, warm_up=WarmUpRule(0.05, at_most_s=0.1)), told.append
    )
    warm = [moment.ended for moment in told if moment.phase == "warm-up"]
    assert warm[-1] > warm[4] and not found.partial and found.generators[0].requests


@pytest.fixture
def noted(monkeypatch):
    """A signal, which a test makes come."""
    found = signals.Noted()
    monkeypatch.setattr(signals, "noted", lambda: contextlib.nullcontext(found))
    return found


def test_ctrl_c_shows_what_the_others_measured_where_one_hangs(server, noted):
    server.program(delays_ms=[5])
    machines = Machine(), Machine()

    def hang(moment):
        if moment.phase == "measure" and moment.seconds > 0.3:
            machines[1].fails["look"], noted.came = HANGS, True

    found = run(server, machines, Plan(concurrency=2, seconds=60, warm_up=None), hang)
    assert found.partial == generator.INTERRUPTED
    first, second = found.generators
    assert first.requests and (second.requests, second.ended) == (0, "it did not answer")


def test_ctrl_c_before_anything_is_measured_is_ctrl_c(server, noted):
    noted.came = True
    with pytest.raises(KeyboardInterrupt):
        run(server, [Machine(), Machine(fails={"begin": HANGS})], Plan(concurrency=2, seconds=60))


def test_the_others_are_told_the_end_while_one_hangs(server):
    server.program(delays_ms=[5])
    machines = Machine(), Machine()

    def hang(moment):
        if moment.phase == "measure":
            machines[1].fails["look"] = HANGS

    found = run(server, machines, Plan(concurrency=2, seconds=1, warm_up=None), hang)
    assert found.partial == "generator 2 on h1 is gone, and its requests are not in the row: it did not answer"
    ends = [do for do in machines[0].asked if do in ("enough", "stop", "look")]
    # The look at which the other is lost, told the end, and no look before it is lost.
    assert ends.count("enough") == 1 and ends.index("enough") < ends.index("stop") == ends.index("enough") + 1


def test_the_reason_of_a_row_is_that_of_the_generator_that_ended_it(server):
    server.program(delays_ms=[5])
    machines = Machine(), Machine()
    plain = machines[1].ask

    def ended(facts, content):
        from tftrt_tools.fleet.task import Said

        said = plain(facts, content)
        if facts["do"] == "look" and said.facts["phase"] == "measure" and "stop" not in machines[1].asked:
            return Said({**said.facts, "partial": "a worker process ended"}, said.content)
        return said

    machines[1].ask = ended
    found = run(server, machines, Plan(concurrency=2, seconds=60, warm_up=None))
    assert found.partial == "generator 2 on h1: a worker process ended"


def test_a_signal_while_results_come_ends_what_would_come_next(server, noted):
    server.program(delays_ms=[5])
    machines = Machine(), Machine()
    plain = machines[1].ask

    def ask(facts, content):
        noted.came = noted.came or facts["do"] == "part"
        return plain(facts, content)

    machines[1].ask = ask
    found = run(server, machines, Plan(concurrency=2, seconds=0.3, warm_up=None))
    assert found.partial == generator.INTERRUPTED and all(one.requests for one in found.generators)


def test_a_generator_for_which_chance_left_nothing_is_idle(server):
    server.program()
    machines = Machine(), Machine(), Machine()
    plan = Plan(kind="open", schedule=np.array([0, 300_000_000]), warm_up=None)
    found = run(server, machines, plan)
    assert not found.partial and [one.requests for one in found.generators] == [1, 1, 0]
    assert found.generators[2].ended == conducting.IDLE and "start" not in machines[2].asked
