"""Generators on the machines of a cluster (two counted ones of this machine), against a server that tells what it was sent."""

import collections
import importlib.util
import os
import signal
import subprocess
import threading

import numpy as np
import pytest

from tests import fleets
from tests.conformance.launch import free_ports
from tests.mock_server import METHOD, MockServer
from tftrt_tools.base import errors
from tftrt_tools.fleet import session
from tftrt_tools.fleet.place import parse
from tftrt_tools.servers.load import generator, payload, schedule
from tftrt_tools.servers.load.load_plan import Plan, Target, Tls, WarmUpRule
from tftrt_tools.servers.load.several import conducting

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"),
    pytest.mark.slow,
]
REQUESTS = tuple(b"%015d," % number + bytes(number) for number in range(7))
ECHO = payload.Payload(METHOD, REQUESTS, REQUESTS)
RULE = WarmUpRule(window_s=0.05, at_most_s=0.3)
UNAVAILABLE = 14


@pytest.fixture(scope="module")
def server():
    with MockServer() as started:
        yield started


@pytest.fixture(scope="module")
def fleet():
    """A head with two processors, and two machines with one each."""
    with fleets.cluster("accelerator_type:T4", "accelerator_type:T4") as (_, address, _):
        with session.opened(parse(address)) as opened:
            yield opened


@pytest.fixture
def two(fleet):
    with conducting.opened(fleet, 2) as generators:
        yield generators


def run(generators, server, plan, load=ECHO, on_progress=None, **target):
    return generators.run(Target(address=server.address, **target), load, plan, on_progress)


def processes(generators):
    return [post.process for post in generators._posts.posts]


def interrupting(after):
    """A listener that presses Ctrl-C once, so many seconds into the measurement."""
    pressed = []

    def listen(moment):
        if moment.phase == "measure" and moment.seconds > after and not pressed:
            pressed.append(moment)
            os.kill(os.getpid(), signal.SIGINT)

    return listen


def counted(reported):
    """{index of the payload: how often the server got it}."""
    return collections.Counter(int(text[:15]) for text in reported["requests"])


@pytest.mark.parametrize("drawn", [schedule.constant(150, 1), schedule.poisson(150, 1, 7), np.zeros(31, np.int64)])
def test_every_request_of_a_schedule_is_sent_once_and_at_its_instant(two, server, drawn):
    server.program()
    found = run(two, server, Plan(kind="open", schedule=drawn, warm_up=None, check_every=1))
    reported = server.report()
    assert not found.partial and found.ok.all()
    assert np.array_equal(np.sort(found.scheduled_ns), drawn)
    # As often as one generator would have sent each, and none twice.
    assert counted(reported) == collections.Counter(number % len(REQUESTS) for number in range(len(drawn)))
    assert counted(reported) == collections.Counter(found.payload.tolist())
    assert (found.checked, found.wrong) == (len(drawn), 0)
    first, second = found.generators
    assert first.requests + second.requests == len(drawn) and abs(first.requests - second.requests) <= 1
    # Both clocks are this machine's in truth. So no request may come before it was sent, and the instants are one time line.
    received = np.sort(np.array(reported["received_ns"]) - found.started_monotonic_ns)
    unknown = max(one.clock_uncertainty_ms for one in found.generators) * 2e6
    assert (received >= np.sort(found.sent_ns) - unknown).all()
    for one in found.generators:
        assert abs(one.clock_offset_ms) <= one.clock_uncertainty_ms
        assert abs(one.clock_moved_ms) <= 20 * one.clock_uncertainty_ms


def test_they_are_on_different_machines_of_the_fleet(two, fleet):
    assert len({post.where.node for post in two._posts.posts}) == len(two) == 2
    assert [count for _, count in two.machines.values()] == [2], "which are one in truth"


def test_a_closed_loop_has_as_many_under_way_as_was_asked_for(two, server):
    server.program(delays_ms=[20])
    found = run(two, server, Plan(concurrency=5, seconds=1, warm_up=RULE, check_every=1))
    assert not found.partial and found.ok.all() and found.under_way == 5
    assert all(one.requests for one in found.generators)
    assert found.sent_ns.min() >= 0 and found.sent_ns.max() < found.length_ns
    assert sum(one.answered for one in found.generators) == found.latency_ns.size
    assert found.latency_ns.min() >= 20e6 and found.warm_up.requests


def test_a_closed_loop_lasts_until_all_have_sent_enough_together(two, server):
    server.program(delays_ms=[10])
    found = run(two, server, Plan(concurrency=2, seconds=0.2, min_queries=150, warm_up=None))
    assert not found.partial and found.sent_ns.size >= 150 and found.seconds > 0.2


def test_offline_sends_exactly_what_was_asked_for(two, server):
    server.program()
    found = run(two, server, Plan(kind="offline", concurrency=4, max_queries=101, min_queries=101, warm_up=None))
    assert found.sent_ns.size == len(server.report()["requests"]) == 101
    assert [one.requests for one in found.generators] == [51, 50]


def test_wrong_answers_and_failures_of_all_are_found_and_named(two, server):
    server.program(wrong_every=10, errors={"every": 7, "code": UNAVAILABLE, "message": "busy"})
    found = run(two, server, Plan(kind="open", schedule=schedule.constant(140, 1), warm_up=None, check_every=1))
    assert found.errors[UNAVAILABLE].count == 20 and found.errors[UNAVAILABLE].messages == ("busy",)
    assert found.wrong == 12 and "byte 0" in found.wrong_answers[0].why
    assert sum(one.answered for one in found.generators) == 120


def test_a_stall_is_in_the_percentiles_of_all(two, server):
    server.program(stall=[0.2, 0.7])
    found = run(two, server, Plan(kind="open", schedule=schedule.constant(100, 1), warm_up=None))
    # About fifty wait for the end of the stall, and half of them for more than a quarter of a second.
    assert found.percentile(0.8).value > 250e6


def test_a_second_load_and_other_requests_go_through_the_same_generators(two, server):
    server.program()
    plan = Plan(kind="open", schedule=schedule.constant(50, 0.4), warm_up=None)
    run(two, server, plan)
    server.program()
    other = payload.Payload(METHOD, (b"%015d," % 99,))
    assert run(two, server, plan, other).ok.all() and counted(server.report()) == {99: 20}


def test_progress_tells_all_answers_and_the_start_once(two, server):
    server.program(delays_ms=[5])
    told = []
    found = run(
        two, server, Plan(kind="open", schedule=schedule.constant(100, 1), warm_up=RULE), on_progress=told.append
    )
    phases = [moment.phase for moment in told]
    assert phases.count("start") == 1 and phases.index("start") < phases.index("measure")
    assert "warm-up" in phases and "warm-up" not in phases[phases.index("start") :]
    measured = [moment for moment in told if moment.phase == "measure"]
    # The last answers come with the records.
    assert 50 <= sum(moment.latency_ns.size for moment in measured) <= 100 == found.ok.sum()


def test_ctrl_c_shows_what_was_measured(two, server):
    server.program(delays_ms=[10])
    found = run(two, server, Plan(concurrency=2, seconds=60, warm_up=None), on_progress=interrupting(0.5))
    assert found.partial == generator.INTERRUPTED and found.ok.sum() > 20
    # They can be asked again: nothing is left of it.
    server.program()
    assert not run(two, server, Plan(concurrency=2, seconds=0.2, warm_up=None)).partial


def test_ctrl_c_gives_up_what_hangs(two, server):
    server.program(silent=True)
    found = run(
        two, server, Plan(concurrency=3, seconds=60, warm_up=None), on_progress=interrupting(0.3), timeout_s=600.0
    )
    assert (found.partial, found.unfinished) == (generator.INTERRUPTED, 3)


def test_a_second_ctrl_c_ends_it(two, server):
    server.program(delays_ms=[10])

    def press(moment):
        if moment.phase == "measure":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(two, server, Plan(concurrency=2, seconds=60, warm_up=None), on_progress=press)


@pytest.mark.parametrize("kind", ["closed", "open"])
def test_a_generator_that_is_killed_makes_the_row_a_part_that_says_so(two, server, kind):
    server.program(delays_ms=[10])

    def kill(moment):
        if moment.phase == "measure" and moment.seconds > 0.4:
            victim, _ = processes(two)
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass

    plan = (
        Plan(concurrency=2, seconds=30, warm_up=None)
        if kind == "closed"
        else Plan(kind="open", schedule=schedule.constant(100, 30), warm_up=None)
    )
    found = run(two, server, plan, on_progress=kill)
    assert (
        found.partial.startswith("generator 1 on ") and "is gone, and its requests are not in the row" in found.partial
    )
    first, second = found.generators
    assert first.ended and not first.requests and second.requests == found.sent_ns.size > 10
    assert found.seconds < 30
    # Nobody takes its place.
    with pytest.raises(errors.TftrtError, match="generator 1 on .*: its process or its machine is gone"):
        run(two, server, plan)


def test_a_generator_that_is_killed_in_the_warm_up_is_an_error(two, server):
    server.program(delays_ms=[10])

    def kill(moment):
        if threading.current_thread() is threading.main_thread() and moment.phase == "warm-up" and moment.ended:
            try:
                os.kill(processes(two)[1], signal.SIGKILL)
            except ProcessLookupError:
                pass

    rule = WarmUpRule(window_s=1, at_most_s=20)
    with pytest.raises(errors.TftrtError, match="generator 2 on .*: its process or its machine is gone"):
        run(two, server, Plan(concurrency=2, seconds=1, warm_up=rule), on_progress=kill)


def test_a_worker_of_a_generator_that_is_killed_is_told_with_the_generator(two, server):
    server.program(delays_ms=[10])

    def kill(moment):
        if moment.phase == "measure" and moment.seconds > 0.4:
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    line = open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()
                    command = open(f"/proc/{entry}/cmdline").read()
                except OSError:
                    continue
                if int(line[1]) == processes(two)[0] and "worker_job" in command:
                    os.kill(int(entry), signal.SIGKILL)

    found = run(two, server, Plan(concurrency=2, seconds=30, warm_up=None), on_progress=kill)
    assert found.partial.startswith("generator 1 on ") and "a worker process ended by itself (SIGKILL)" in found.partial
    # What it had told until then counts.
    assert found.generators[0].requests and found.generators[0].ended


def test_no_server_is_one_line_that_names_the_generator(two):
    (port,) = free_ports(1)
    target = Target(address=f"127.0.0.1:{port}", connect_s=0.5)
    with pytest.raises(
        errors.TftrtError, match=r"generator 1 on .*: no load on 127.0.0.1:\d+: no connection"
    ) as raised:
        two.run(target, ECHO, Plan(concurrency=2, seconds=1))
    assert "\n" not in raised.value.cause and raised.value.mend


def test_a_server_with_tls_is_asked_by_all_and_the_certificate_travels(two, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=models.test"
    subprocess.run([*made.split(), "-addext", "subjectAltName=DNS:models.test"], check=True, capture_output=True)
    with MockServer(tls=[str(key), str(certificate)]) as server:
        plan = Plan(kind="offline", concurrency=2, max_queries=20, min_queries=20, warm_up=None, check_every=1)
        found = run(two, server, plan, tls=Tls(certificate.read_bytes(), server_name="models.test"))
        assert (found.ok.sum(), found.checked) == (20, 20)
        with pytest.raises(errors.TftrtError, match="no connection"):
            run(two, server, plan, tls=Tls(None, server_name="models.test"), connect_s=0.5)


def test_more_generators_than_requests_under_way_are_refused_before_anything_is_sent(two, server):
    server.program()
    with pytest.raises(errors.UsageError, match="--generators=2: 1 request under way, fewer than one for each"):
        run(two, server, Plan(concurrency=1))
    assert not server.report()["requests"]


def test_a_run_that_is_shorter_than_the_clocks_are_known_is_refused_before_anything_is_sent(two, server):
    server.program()
    with pytest.raises(errors.TftrtError, match="too little to begin a run of 1e-06 s together"):
        run(two, server, Plan(concurrency=2, seconds=1e-6))
    assert not server.report()["requests"]


def test_late_sends_of_a_schedule_that_none_can_send_are_told_for_each(fleet, server):
    server.program()
    with conducting.opened(fleet, 2, processes=1) as generators:
        found = run(generators, server, Plan(kind="open", schedule=np.zeros(4000, np.int64) + 10**8, warm_up=None))
    assert found.late and found.late == sum(one.late for one in found.generators)
    assert found.limited_by_generator and "generator 1 on " in found.why and "went out more than 1 ms late" in found.why
