"""One load shared out to several generators: the plans, the clocks, what travels, the merging. No fleet here."""

import dataclasses
import itertools
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.mock_server import METHOD, MockServer
from tftrt_tools.base import errors
from tftrt_tools.fleet.task import Post, Said, Where
from tftrt_tools.servers.load import drive_job, generator, latency_statistics, limits, load_plan, recording, schedule
from tftrt_tools.servers.load.load_plan import Plan, Share, Target, Tls, WarmUpRule
from tftrt_tools.servers.load.payload import Payload
from tftrt_tools.servers.load.request_entries import CHECKED, DIFFERS, HELD, Entries, clock
from tftrt_tools.servers.load.run_record import LATE_NS, Generator, WarmUp
from tftrt_tools.servers.load.several import clocks, generator_job, merging, splitting, travelling
from tftrt_tools.servers.load.several.clocks import Clock
from tftrt_tools.servers.load.several.merging import Sender
from tftrt_tools.servers.load.several.travelling import Part
from tftrt_tools.servers.load.workers import UnequalAnswer

REQUESTS = tuple(bytes([number]) * (number + 1) for number in range(5))
LOAD = Payload(METHOD, REQUESTS)
TARGET = Target(address="server:8500")
KNOWN = Clock(0, 1000)
instants = st.lists(st.integers(0, 10**10), min_size=1, max_size=60).map(sorted)


def sent(plan, shares):
    """[(instant, index of the request)] that the processes of these generators send, sorted."""
    found = []
    for part, share in shares:
        for work in generator.assignments(TARGET, LOAD, part, share):
            turns = drive_job.indices(work.head["process"], work.head["processes"], len(REQUESTS))
            found += zip(work.offsets.tolist(), itertools.islice(turns, len(work.offsets)), strict=True)
    return sorted(found)


@given(instants, st.integers(1, 6), st.integers(1, 4))
@example([0, 0, 0, 0], 2, 2)
def test_the_parts_of_a_schedule_are_the_schedule_and_each_request_is_the_one_that_a_generator_alone_sends(
    drawn, of, processes
):
    plan = Plan(kind="open", schedule=np.array(drawn, np.int64), processes=processes)
    if of > len(drawn):
        with pytest.raises(errors.UsageError, match=f"--generators={of}: the schedule has"):
            splitting.split(plan, of)
        return
    parts = splitting.split(plan, of)
    assert sorted(np.concatenate([part.schedule for part in parts]).tolist()) == drawn
    assert all(np.array_equal(part.schedule, plan.schedule[number::of]) for number, part in enumerate(parts))
    shares = [(part, Share(number, of)) for number, part in enumerate(parts)]
    assert sent(plan, shares) == sent(plan, [(plan, Share())])


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 300))
def test_requests_under_way_and_bounds_are_shared_out_and_each_has_one(concurrency, of, most):
    plan = Plan(kind="offline", concurrency=concurrency, max_queries=most, min_queries=most)
    if of > min(concurrency, most):
        with pytest.raises(errors.UsageError, match=f"--generators={of}: ") as raised:
            splitting.split(plan, of)
        assert raised.value.mend
        return
    parts = splitting.split(plan, of)
    for name in ("concurrency", "max_queries"):
        shares = [getattr(part, name) for part in parts]
        assert sum(shares) == getattr(plan, name) and max(shares) - min(shares) <= 1 <= min(shares)
    assert sum(part.max_outstanding for part in parts) == plan.max_outstanding


trips = st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=12)


@given(st.integers(-(10**18), 10**18), trips)
def test_a_clock_is_known_to_half_of_the_shortest_round_trip_whatever_the_ways_take(offset, ways):
    asked = 0
    made = []
    for there, back in ways:
        made.append((asked, asked + there + offset, asked + there + back))
        asked += there + back + 5
    found = clocks.of_trips(made)
    assert abs(found.offset_ns - offset) <= found.uncertainty_ns
    assert found.uncertainty_ns <= min(sum(way) for way in ways) / 2 + 2


def test_a_run_that_is_too_short_for_its_clocks_is_refused_with_a_length_that_is_not():
    plan = Plan(kind="open", schedule=schedule.constant(100, 1))
    clocks.check(plan, Clock(5, 20_000_000), "generator 2 on far")
    with pytest.raises(errors.TftrtError, match=r"the clock of generator 2 on far is known to ± 30.0 ms") as raised:
        clocks.check(plan, Clock(5, 30_000_000), "generator 2 on far")
    assert "1.2 s or more" in raised.value.mend
    clocks.check(Plan(seconds=1.21), Clock(5, 30_000_000), "x")
    # Nothing but its requests ends it.
    clocks.check(Plan(kind="offline", max_queries=10), Clock(5, 10**9), "x")


def test_that_the_order_of_a_schedule_is_not_known_is_said_where_it_is_not():
    assert "clocks are known to ± 3.0 ms, and requests are 1 ms apart" in clocks.apart(1000.0, 3_000_000)
    assert not clocks.apart(100.0, 3_000_000) and not clocks.apart(1e5, LATE_NS) and not clocks.apart(None, 10**9)


def test_a_load_and_a_plan_arrive_as_they_were():
    target = dataclasses.replace(
        TARGET, timeout_s=3.5, channels=2, unordered=True, tls=Tls(b"root", None, None, "name")
    )
    load = Payload(METHOD, REQUESTS, (b"x", None, b"", b"y", b"z"))
    there, payload = travelling.read_load(travelling.load(target, load))
    assert there == target and (payload.method, payload.requests, payload.expected) == (METHOD, REQUESTS, load.expected)
    for plan in (
        Plan(concurrency=3, seconds=2, min_queries=7, warm_up=None, judge_all=True),
        Plan(kind="open", schedule=schedule.poisson(100, 1, 4), warm_up=WarmUpRule(0.1, 2, 0.3, 1.5), max_seconds=9.0),
    ):
        begun, beside = travelling.begin(plan, 1, 3)
        begun = travelling.Begin.from_dict(begun.to_dict())
        found = travelling.plan_of(begun, beside)
        assert (begun.number, begun.of) == (1, 3)
        assert np.array_equal(found.scheduled, plan.scheduled)
        assert dataclasses.replace(found, schedule=plan.schedule) == plan


def run(rows, kind="closed", length=1000_000_000, **facts):
    """Records of rows (scheduled, sent, done, code, payload, flags), ns."""
    given = {
        "unfinished": 0,
        "unsent": 0,
        "limits": (),
        "partial": "",
        "cpu_share": 0.1,
        "warm_up": WarmUp(1.0, 5, True),
    }
    given["earlier_ns"] = np.array(facts.pop("earlier", []), np.int64)
    told = facts.pop("told", {})
    return recording.records(
        Entries.of(rows),
        start=0,
        end=length,
        kind=kind,
        messages=lambda code: told[code],
        wrong=[],
        started_monotonic_ns=77,
        **given | facts,
    )


def sender(number, records, answers=(), boot=None, **facts):
    post = Post(where=Where(node=f"n{number}", host=f"h{number}"), boot=boot or str(number), cores=4, process=1)
    part = records and Part(records=records, answers=tuple(answers), processes=1)
    return Sender(number=number, post=post, part=part, **{"before": KNOWN, "after": KNOWN, **facts})


def merged(*senders, plan=None, payload=None, length=1000_000_000, **facts):
    return merging.merged(senders, plan or Plan(seconds=1), payload, length_ns=length, started=5, **facts)


def closed(times_ns, at=0, code=0, flags=0):
    """Rows of requests that were sent one after the other, from `at`."""
    return [(at + n, at + n, at + n + int(ns), code, n % 5, flags) for n, ns in enumerate(times_ns)]


@given(st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=120), min_size=1, max_size=4), st.integers(0, 999))
def test_percentiles_are_those_of_all_requests(parts, seed):
    found = merged(*(sender(number + 1, run(closed(times))) for number, times in enumerate(parts)))
    every = np.array(list(itertools.chain(*parts)))
    assert sorted(found.latency_ns.tolist()) == sorted(every.tolist())
    share = (seed + 1) / 1001
    assert found.percentile(share) == latency_statistics.percentile(every, share)
    assert found.histogram().get_total_count() == every.size
    assert [one.requests for one in found.generators] == list(map(len, parts))
    assert (np.diff(found.sent_ns) >= 0).all()
    for number, times in enumerate(parts, 1):
        assert found.latency_ns[found.generator == number].tolist() == list(times)


def test_a_percentile_is_not_the_mean_of_the_generators_percentiles():
    fast, slow = [1_000_000] * 900, [100_000_000] * 100
    found = merged(sender(1, run(closed(fast))), sender(2, run(closed(slow))))
    assert found.percentile(0.5).value == 1_000_000 and found.percentile(0.95).value == 100_000_000


def test_a_closed_loop_ends_for_all_at_one_instant():
    """One generator is told later than the other. What it sent since does not count; its rate is that of the common stretch."""
    first, second = run(closed([5] * 10), earlier=[3, 9]), run(closed([5] * 40), length=2000, earlier=[7, 300])
    found = merged(sender(1, first), sender(2, second), length=20)
    assert found.length_ns == 20 and found.sent_ns.size == 10 + 20 and found.earlier_ns.tolist() == [3, 7, 9]
    assert [one.requests for one in found.generators] == [10, 20]
    assert sum(one.rate for one in found.generators) == pytest.approx(found.rate())


def test_an_open_loop_is_as_long_as_its_whole_schedule():
    plan = Plan(kind="open", schedule=schedule.constant(10, 1))
    parts = [[(at, at + 5, at + 9, 0, 0, 0) for at in part.schedule.tolist()] for part in splitting.split(plan, 3)]
    found = merged(*(sender(n + 1, run(rows, "open")) for n, rows in enumerate(parts)), plan=plan, length=99)
    assert found.length_ns == 1_000_000_000 and found.scheduled_ns.tolist() == plan.schedule.tolist()
    assert found.rate() == pytest.approx(10) and [one.requests for one in found.generators] == [4, 3, 3]
    assert sum(one.rate for one in found.generators) == pytest.approx(10)


def test_late_sends_are_told_for_all_and_for_each_and_held_ones_are_not_late():
    plan = Plan(kind="open", schedule=np.arange(4, dtype=np.int64))
    late, far = LATE_NS + 10, 3 * LATE_NS
    found = merged(
        sender(1, run([(0, 5, 9, 0, 0, 0), (1, late, late + 1, 0, 0, 0)], "open")),
        sender(2, run([(2, far, far + 1, 0, 0, HELD), (3, 9, 9, 0, 0, 0)], "open")),
        plan=plan,
    )
    assert (found.late, found.held) == (1, 1)
    assert [(one.late, one.held) for one in found.generators] == [(1, 0), (0, 1)]
    assert found.generators[0].latest_ms == pytest.approx((late - 1) / 1e6)


def test_failures_and_answers_are_counted_over_all_and_judged_once():
    judged = []

    def judge(index, answer):
        judged.append((index, answer))
        return "" if answer == b"fine" else f"request {index} is wrong"

    told = {14: ("UNAVAILABLE", ["gone", "away"])}, {14: ("UNAVAILABLE", ["gone", "later"])}
    first = run([*closed([5] * 3, flags=CHECKED), *closed([5] * 2, at=50, code=14)], told=told[0], unfinished=1)
    second = run(
        [*closed([5] * 2, flags=CHECKED | DIFFERS), *closed([5], at=50, code=14), *closed([5], at=60, flags=DIFFERS)],
        told=told[1],
        unsent=2,
    )
    found = merged(
        sender(1, first, [UnequalAnswer(1, 2, b"bad"), UnequalAnswer(2, 3, b"fine")]),
        sender(2, second, [UnequalAnswer(1, 1, b"bad"), UnequalAnswer(1, 5000, b"bad")]),
        payload=Payload(METHOD, REQUESTS, (b"x",) * 5, judge),
        length=1000,
    )
    assert found.errors[14].count == 3 and found.errors[14].messages == ("gone", "away", "later")
    assert (found.checked, found.unjudged, found.unfinished, found.unsent) == (5, 1, 1, 2)
    # The last one was sent after the common end.
    assert found.wrong == 2 and [one.sent_ns for one in found.wrong_answers] == [1, 2]
    assert sorted(judged) == [(1, b"bad"), (2, b"fine")]
    assert [one.answered for one in found.generators] == [3, 3]


def test_the_limit_of_one_generator_is_the_limit_of_the_whole_and_names_it():
    own = limits.Sign(limits.RATE, "its 1 process used 0.99 of 1 core")
    tail = limits.Sign(limits.TIMES, "a thread woke late")
    found = merged(sender(1, run(closed([5]))), sender(2, run(closed([5]), limits=(own, tail))))
    assert found.limited_by_generator and found.why == "generator 2 on h2: its 1 process used 0.99 of 1 core"
    assert found.waits == "generator 2 on h2: a thread woke late"
    assert [(one.limited, one.waits) for one in found.generators] == [("", ""), (own.text, tail.text)]
    assert not merged(sender(1, run(closed([5]))), sender(2, run(closed([5])))).limited_by_generator


def test_generators_that_use_up_a_machine_together_are_the_limit_though_none_of_them_is():
    def of(share, boots):
        return merged(*(sender(n + 1, run(closed([5]), cpu_share=share), boot=boot) for n, boot in enumerate(boots)))

    assert "the 3 generators on h1 used 2.85 of 3 cores together" in of(0.95, "aaa").why
    assert not of(0.8, "aaa").why and not of(0.95, "abc").why
    assert limits.together("h", [0.5] * 8, workers=8, cores=4) and not limits.together("h", [0.4] * 8, 8, 4)


def sends(count, late):
    return [(n, n + (late > n) * 2 * LATE_NS, n + 3 * LATE_NS, 0, 0, 0) for n in range(count)]


@pytest.mark.parametrize(
    ("few", "late", "many", "also_late", "limited"),
    [(15, 1, 285, 0, False), (15, 1, 285, 20, True), (15, 15, 285, 0, True), (150, 3, 285, 0, True)],
)
def test_one_late_send_of_a_few_is_no_limit(few, late, many, also_late, limited):
    """Each generator marks itself; the whole, or enough sends, have to bear it out."""
    parts = [(few, late), (many, also_late)]
    plan = Plan(kind="open", schedule=np.arange(few + many, dtype=np.int64))
    senders = [
        sender(number + 1, run(sends(*part), "open", limits=limits.lateness(part[1], part[0])))
        for number, part in enumerate(parts)
    ]
    found = merged(*senders, plan=plan)
    assert found.limited_by_generator == limited == bool(found.generators[0].limited)
    own = limits.Sign(limits.RATE, "its 1 process used 0.99 of 1 core")
    assert merged(sender(1, run(sends(15, 1), "open", limits=(own,))), senders[1], plan=plan).limited_by_generator


def test_a_generator_that_is_gone_is_in_the_result_and_makes_it_a_part():
    found = merged(sender(1, run(closed([5] * 4))), sender(2, None, lost="killed", after=None), partial="it is gone")
    assert found.partial == "it is gone" and found.sent_ns.size == 4
    assert [(one.requests, one.ended) for one in found.generators] == [(4, ""), (0, "killed")]
    assert found.generators[1].clock_moved_ms is None


def test_a_generator_that_ended_early_by_itself_makes_the_whole_a_part():
    found = merged(sender(1, run(closed([5]))), sender(2, run(closed([5]), partial="a worker process ended")))
    assert found.partial == "generator 2 on h2: a worker process ended"
    assert found.generators[1].ended == "a worker process ended"


def test_the_warm_up_of_the_whole_has_settled_where_each_has():
    parts = (sender(1, run(closed([5]))), sender(2, run(closed([5]), warm_up=WarmUp(2.0, 7, False))))
    assert merged(*parts).warm_up == WarmUp(2.0, 12, False)
    assert merged(parts[0]).warm_up.stable is True


def test_what_a_generator_sends_back_arrives_and_is_merged_as_it_was():
    told = {14: ("UNAVAILABLE", ["gone"])}
    records = run(
        [*closed([5] * 3, flags=CHECKED), *closed([9], at=50, code=14)],
        told=told,
        earlier=[2, 4],
        limits=(limits.Sign(limits.RATE, "why"),),
        partial="stopped",
        unfinished=3,
    )
    one = sender(1, records, [UnequalAnswer(2, 3, b"bytes"), UnequalAnswer(0, 1, b"")])
    there = dataclasses.replace(one, part=travelling.read_part(*travelling.part(one.part)))
    assert there.part.answers == one.part.answers
    assert merged(there).to_dict() == merged(one).to_dict()
    assert merged(there).generators == merged(one).generators


def test_what_a_generator_did_is_read_back_from_its_file():
    (one,) = merged(sender(1, run(closed([5])))).generators
    assert Generator.from_dict(one.to_dict()) == one


class Alone(generator.Together):
    """What tells one generator; at: its start, ns from when it is ready."""

    def __init__(self, at, enough_after=10**9):
        self.at, self.began, self.length, self.answers, self.ends = at, None, enough_after, [], False

    def ready(self):
        self.began = clock() + self.at

    def start(self):
        return self.began

    def enough(self):
        return clock() > self.began + self.length

    def interrupted(self):
        return self.ends

    def unequal(self, answers):
        self.answers += answers


@pytest.fixture(scope="module")
def server():
    with MockServer() as started:
        yield started


ECHO = Payload(
    METHOD, tuple(b"%015d," % number for number in range(7)), tuple(b"%015d," % number for number in range(7))
)


@pytest.mark.parametrize("kind", ["closed", "open", "offline"])
@pytest.mark.parametrize("rule", [None, WarmUpRule(window_s=0.05, at_most_s=0.3)])
def test_a_generator_begins_when_it_is_told_and_ends_when_it_is_told(server, kind, rule):
    server.program()
    together = Alone(150_000_000, 200_000_000)
    plan = Plan(
        kind=kind,
        concurrency=2,
        seconds=0.1,
        warm_up=rule,
        schedule=schedule.constant(100, 0.3) if kind == "open" else None,
    )
    found = generator.run(Target(address=server.address), ECHO, plan, together=together)
    assert not found.partial and found.started_monotonic_ns == together.began
    assert found.sent_ns.size and found.sent_ns.min() >= 0
    if kind != "open":
        assert found.length_ns >= 200_000_000


def test_a_start_that_is_told_late_is_no_start_of_a_schedule(server):
    plan = Plan(kind="open", schedule=schedule.constant(100, 0.3), warm_up=None)
    with pytest.raises(errors.TftrtError, match=r"the common start was told \d+ ms late"):
        generator.run(Target(address=server.address), ECHO, plan, together=Alone(-50_000_000))


def test_a_generator_that_is_interrupted_gives_up_what_is_outstanding(server):
    server.program(silent=True)
    together = Alone(10**8, 10**12)

    def progress(moment):
        together.ends = moment.phase == "measure" and moment.seconds > 0.2

    found = generator.run(
        Target(address=server.address), ECHO, Plan(concurrency=3, warm_up=None), progress, together=together
    )
    assert (found.partial, found.unfinished) == (generator.INTERRUPTED, 3)


def test_unequal_answers_are_handed_over_and_not_judged(server):
    server.program(wrong_every=4)
    together = Alone(10**8, 200_000_000)
    found = generator.run(Target(address=server.address), ECHO, Plan(warm_up=None, check_every=1), together=together)
    assert found.wrong == 0 and together.answers
    assert len(together.answers) == int(((found.flags & DIFFERS) != 0).sum())
    assert {one.sent_ns for one in together.answers} <= set(found.sent_ns.tolist())


def test_a_closed_loop_that_nobody_ends_ends_by_itself(server):
    server.program()
    assert splitting.split(Plan(seconds=4, concurrency=2), 2)[0].longest == 4 + splitting.UNTOLD_SECONDS
    assert splitting.split(Plan(seconds=4, concurrency=2, min_queries=9), 2)[0].longest == Plan(seconds=4).longest
    one = generator_job.Generator()
    one(Said({"do": "load"}, travelling.load(Target(address=server.address), ECHO)))
    begun, beside = travelling.begin(Plan(seconds=0.1, max_seconds=0.3, warm_up=None), 0, 1)
    one(Said({"do": "begin", "begin": begun.to_dict()}, beside))
    assert any(time.sleep(0.05) or one(Said({"do": "look"})).facts["ready"] for _ in range(600))
    one(Said({"do": "start", "instant": clock() + 10**9}))
    assert any(time.sleep(0.05) or one(Said({"do": "look"})).facts["done"] for _ in range(600))
    assert one(Said({"do": "part"})).facts["partial"] == ""


def test_numbers_are_shared_out_as_equally_as_can_be():
    assert load_plan.shared(10, 4) == [3, 3, 2, 2] and load_plan.shared(2, 3) == [1, 1, 0]
