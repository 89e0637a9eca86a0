"""The load generator against a server that tells what it did."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.conformance.launch import free_ports
from tests.conftest import ROOT
from tests.load_jobs import Clock, clock
from tests.mock_server import METHOD, MockServer
from tftrt_tools.base import errors
from tftrt_tools.servers import client
from tftrt_tools.servers.load import function_load, generator, limits, load_plan, payload, run_record, schedule, workers
from tftrt_tools.servers.load.load_plan import Plan, Target, WarmUpRule
from tftrt_tools.studies.bench import bench, points, summary

# More than any machine that is busy with other things holds a process up.
SLACK_MS = 400
REQUESTS = tuple(b"%015d," % number + bytes(number) for number in range(7))
ECHO = payload.Payload(METHOD, REQUESTS, REQUESTS)
UNAVAILABLE, DEADLINE_EXCEEDED, INVALID_ARGUMENT = 14, 4, 3


@pytest.fixture(autouse=True)
def processes_of_their_own(monkeypatch):
    """Its processes are looked at here, so none is a fork."""
    monkeypatch.setattr(workers, "subprocess", subprocess)


@pytest.fixture(scope="module")
def server():
    with MockServer() as started:
        yield started


def _run(server, plan, load=ECHO, **target):
    return generator.run(Target(address=server.address, **target), load, plan)


def _closed(**settings):
    return Plan(**{"kind": "closed", "seconds": 0.5, "warm_up": None, "check_every": 1, **settings})


def _open(instants, **settings):
    return Plan(kind="open", schedule=instants, **{"warm_up": None, "check_every": 1, **settings})


def test_latencies_are_those_that_the_server_made(server):
    server.program(delays_ms=[20, 40, 60, 80, 100, 150, 200, 250, 300, 350])
    found = _run(server, _closed(concurrency=40, processes=2, seconds=1, min_queries=200))
    reported = server.report()
    assert found.ok.all()
    assert found.sent_ns.size >= 200
    assert found.seconds >= 1
    # A closed loop: no more than 40 at a time, and 40 nearly always.
    served = np.sort(np.subtract(reported["answered_ns"], reported["received_ns"]))[: found.sent_ns.size] / 1e6
    for share in (0.5, 0.9):
        assert (
            served[int(share * served.size) - 1] - 60
            <= found.percentile(share).value / 1e6
            <= np.quantile(served, share) + SLACK_MS
        )
    assert found.latency_ns.min() >= 20e6
    assert np.array_equal(found.latency_ns, found.service_ns)


def test_every_request_meets_its_own_clock_and_its_own_answer(server):
    """Instants on the client's and the server's side are of one clock, whichever process took them."""
    server.program(delays_ms=[5, 1, 9])
    found = _run(server, _closed(concurrency=6, processes=3, seconds=60, max_queries=120))
    reported = server.report()
    assert found.sent_ns.size == 120
    assert (found.checked, found.wrong) == (120, 0)
    indices = [int(text[:15]) for text in reported["requests"]]
    received = np.array(reported["received_ns"]) - found.started_monotonic_ns
    for index in range(len(REQUESTS)):
        mine = np.sort(found.sent_ns[found.payload == index])
        theirs = np.sort(received[np.array(indices) == index])[: mine.size]
        assert mine.size and (theirs >= mine).all()


def test_an_open_loop_with_more_processes_than_its_warm_up_has_requests_begins(server):
    server.program()
    rule = WarmUpRule(window_s=0.1, at_most_s=0.3)
    found = _run(server, _open(schedule.constant(100, 0.3), processes=6, warm_up=rule, warm_up_concurrency=4))
    assert (found.partial, found.sent_ns.size) == ("", 30) and found.ok.all()


def test_an_open_loop_shows_a_stall_and_a_closed_one_hides_it(server):
    server.program(stall=[0.5, 1.5])
    found = _run(server, _open(schedule.constant(100, 2)))
    assert found.ok.all()
    assert found.sent_ns.size == 200
    slow = np.sort(found.latency_ns[found.latency_ns > 20e6])
    # 100 requests wait for the end of the stall: 1 s, 990 ms, 980 ms … down.
    assert slow.size >= 95
    assert np.quantile(found.latency_ns, 0.75) > 450e6
    assert abs(slow[-1] - 1e9) < SLACK_MS * 1e6
    server.program(stall=[0.5, 1.5])
    naive = _run(server, _closed(concurrency=1, seconds=2, min_queries=100))
    assert (naive.latency_ns > 800e6).sum() == 1
    assert naive.percentile(0.9).value < 450e6


def test_open_requests_are_sent_at_their_instants_whatever_is_outstanding(server):
    instants = schedule.poisson(200, 1, seed=4)
    server.program(delays_ms=[700])
    found = _run(server, _open(instants, processes=2))
    assert np.array_equal(np.sort(found.scheduled_ns), instants)
    assert (found.sent_ns >= found.scheduled_ns).all()
    # Most of them went out while every earlier one was still under way.
    assert (found.sent_ns < found.done_ns.min()).sum() > 80
    assert found.late == (found.sent_ns - found.scheduled_ns > run_record.LATE_NS).sum()
    assert np.array_equal(found.latency_ns, found.done_ns - found.scheduled_ns)


def test_the_bound_on_what_is_outstanding_holds_sends_and_says_so(server):
    server.program(delays_ms=[300])
    found = _run(server, _open(schedule.constant(100, 0.5), max_outstanding=10))
    assert found.sent_ns.size == 50
    # Under load some of them are late besides.
    assert found.held >= 10 and found.held + found.late >= 30
    moments = np.concatenate([found.sent_ns, found.done_ns])
    steps = np.concatenate([np.ones(50), -np.ones(50)])
    under_way = np.cumsum(steps[np.lexsort((steps, moments))])
    assert under_way.max() <= 10
    # The wait is the user's: it is in the latency, and it is not the generator's lateness.
    assert found.latency_ns.max() > 900e6
    assert found.latency_ns.max() > found.service_ns.max() + 300e6
    assert found.late + found.held <= 50


def test_offline_is_due_at_once_and_counts_from_the_start(server):
    server.program(delays_ms=[50])
    found = _run(server, Plan(kind="offline", concurrency=8, processes=2, max_queries=80, warm_up=None))
    assert found.sent_ns.size == 80
    assert (found.scheduled_ns == 0).all()
    assert found.latency_ns.max() >= 450e6
    assert found.rate() == pytest.approx(80 / found.latency_ns.max() * 1e9, rel=1e-6)
    assert found.partial == ""


def test_errors_are_counted_by_status_with_their_first_messages(server):
    server.program(errors={"every": 3, "code": INVALID_ARGUMENT, "message": "no such input"})
    found = _run(server, _closed(concurrency=3, seconds=60, max_queries=90, processes=2))
    failures = found.errors[INVALID_ARGUMENT]
    assert (failures.name, failures.count, failures.messages) == ("INVALID_ARGUMENT", 30, ("no such input",))
    assert found.ok.sum() == found.latency_ns.size == found.checked == 60
    assert list(found.errors) == [INVALID_ARGUMENT]


def test_wrong_answers_are_found_and_named(server):
    server.program(wrong_every=10)
    found = _run(server, _closed(concurrency=1, seconds=60, max_queries=100))
    assert (found.checked, found.wrong) == (100, 10)
    # One connection and one request at a time: request k is the server's k-th, and every tenth of those was answered wrongly.
    assert [one.payload for one in found.wrong_answers] == [number % 7 for number in (9, 19, 29, 39, 49)]
    assert found.wrong_answers[0].why.startswith("byte 0 of")
    accepting = payload.Payload(
        METHOD, REQUESTS, REQUESTS, same=lambda index, answer: "" if answer[1:] == REQUESTS[index][1:] else "no"
    )
    server.program(wrong_every=10)
    assert _run(server, _closed(concurrency=1, seconds=60, max_queries=100), accepting).wrong == 0


def test_answers_that_differ_are_counted_where_they_are_too_many_to_judge_and_all_judged_where_that_is_asked(server):
    for judge_all, judged in ((False, 256), (True, 400)):
        server.program(wrong_every=1)
        found = _run(server, _closed(concurrency=4, seconds=60, max_queries=400, judge_all=judge_all))
        assert (found.wrong, found.checked, found.unjudged) == (judged, judged, 400 - judged)


def test_answers_with_the_same_fields_in_another_order_are_equal_and_none_is_left_unjudged(server):
    outputs = {"boxes": np.arange(4, dtype=np.float32), "classes": np.arange(3), "scores": np.float32([0.5])}
    messages = tuple(client.request_bytes("m", {**outputs, "scores": np.float32([score])}) for score in (0.5, 0.25))
    load = payload.Payload(METHOD, messages, messages, same=lambda index, answer: "wrong")
    server.program(shuffled=True)
    found = _run(server, _closed(concurrency=4, seconds=60, max_queries=800), load, unordered=True)
    assert (found.checked, found.wrong, found.unjudged) == (800, 0, 0)
    # By their bytes they differ, and more than are judged beside the load.
    by_bytes = _run(server, _closed(concurrency=4, seconds=60, max_queries=800), load)
    assert by_bytes.wrong == 256 and by_bytes.unjudged > 256
    server.program(shuffled=True, wrong_every=8)
    assert _run(server, _closed(concurrency=4, seconds=60, max_queries=800), load, unordered=True).wrong == 100


def test_a_request_past_its_deadline_is_an_error_and_the_run_goes_on(server):
    server.program(delays_ms=[1, 1, 1, 5000])
    found = _run(server, _closed(concurrency=4, seconds=60, max_queries=40), timeout_s=0.8)
    assert found.errors[DEADLINE_EXCEEDED].count == 10
    assert found.sent_ns.size == 40
    slowest = (found.done_ns - found.sent_ns)[found.code == DEADLINE_EXCEEDED]
    assert (slowest >= 790e6).all()


def test_the_run_survives_a_server_that_dies_and_comes_back():
    with MockServer() as dying:
        life = ["young"]

        def fate(progress):
            if life == ["young"] and progress.ended >= 60:
                dying.kill()
                life.append("dead")
            elif life[-1] == "dead" and progress.failed >= 20:
                dying.start()
                life.append(progress.ended)
            # The answers after the second start come in here.
            return len(life) == 3 and progress.latency_ns.size and progress.ended > life[2] + 50

        found = generator.run(Target(address=dying.address), ECHO, _open(schedule.constant(100, 60), processes=2), fate)
    assert found.partial == "stopped"
    assert found.ok[:40].all()
    assert found.ok[-100:].any()
    assert found.errors[UNAVAILABLE].count >= 20
    assert found.errors[UNAVAILABLE].messages
    assert found.unsent == 6000 - found.sent_ns.size
    assert (found.checked, found.wrong) == (found.ok.sum(), 0)
    # It was sent at its instants all the time.
    assert np.array_equal(np.sort(found.scheduled_ns), schedule.constant(100, 60)[: found.sent_ns.size])


def test_a_closed_loop_does_not_storm_a_server_that_is_gone():
    with MockServer() as dying:
        dead = []

        def fate(progress):
            if progress.ended > 10 and not dead:
                dying.kill()
                dead.append(progress.seconds)

        found = generator.run(Target(address=dying.address), ECHO, _closed(concurrency=4, seconds=1.5), fate)
    assert 4 <= found.errors[UNAVAILABLE].count < 4 * 1.5 / 0.05 + 10
    assert found.ok[0]


def test_failures_whose_messages_never_came_are_counted_by_their_code(server, monkeypatch):
    server.program(errors={"every": 2, "code": INVALID_ARGUMENT, "message": "no such input"})
    event = workers.Team._event
    monkeypatch.setattr(
        workers.Team, "_event", lambda team, member, told: None if "error" in told else event(team, member, told)
    )
    found = _run(server, _closed(seconds=60, max_queries=20))
    assert found.errors[INVALID_ARGUMENT].to_dict() == {
        "code": INVALID_ARGUMENT,
        "name": "code 3",
        "count": 10,
        "messages": [],
    }
    server.program(errors={"every": 1, "code": INVALID_ARGUMENT, "message": "no such input"})
    with pytest.raises(errors.TftrtError, match="answered none of .* requests: code 3$"):
        _run(server, _closed(warm_up=WarmUpRule(at_most_s=1.5)))


def test_no_server_is_one_clear_line(server):
    with pytest.raises(errors.TftrtError, match="no connection within 0.3 s") as caught:
        generator.run(Target(address=f"127.0.0.1:{free_ports(1)[0]}", connect_s=0.3), ECHO, _closed())
    assert "check the address" in caught.value.mend


def test_a_server_that_refuses_everything_ends_the_warm_up_with_its_message(server):
    server.program(errors={"every": 1, "code": INVALID_ARGUMENT, "message": "no such input"})
    with pytest.raises(errors.TftrtError, match="answered none .*INVALID_ARGUMENT: no such input"):
        _run(server, _closed(warm_up=WarmUpRule(at_most_s=1.5)))


@pytest.mark.parametrize("kind", ["closed", "open", "offline"])
def test_warm_up_is_not_in_the_records(server, kind):
    server.program(delays_ms=[200] * 3 + [20] * 100_000)
    rule = WarmUpRule(window_s=0.2, tolerance=1.0, at_most_s=5)
    settings = {"schedule": schedule.constant(50, 0.5)} if kind == "open" else {"seconds": 0.5, "concurrency": 4}
    found = _run(server, Plan(kind=kind, warm_up=rule, **settings))
    assert found.warm_up.stable is True
    assert found.warm_up.requests >= 10
    assert found.sent_ns.min() >= 0
    assert len(server.report()["requests"]) >= found.warm_up.requests + found.sent_ns.size
    assert found.service_ns.max() < (100 + SLACK_MS) * 1e6


def test_the_rate_is_what_the_server_answered_meanwhile_warm_up_s_requests_included(server):
    server.program(delays_ms=list(range(200, 400, 13)))
    found = _run(server, _closed(concurrency=12, seconds=1, warm_up=WarmUpRule(window_s=0.2, at_most_s=0.8)))
    answered = np.array(server.report()["answered_ns"]) - found.started_monotonic_ns
    inside = ((answered >= 0) & (answered < found.length_ns)).sum()
    assert found.earlier_ns.size >= 10
    assert found.rate() * found.seconds == pytest.approx(inside, abs=3)


def test_a_slow_server_that_keeps_up_with_an_open_loop_answers_all_of_it(server):
    server.program(delays_ms=[500])
    found = _run(server, _open(schedule.constant(40, 1.5)))
    assert found.rate() == pytest.approx(40, rel=0.02)


def test_warm_up_that_never_settles_is_bounded_and_said(server):
    server.program(delays_ms=[1, 2, 4, 8])
    found = _run(server, _closed(warm_up=WarmUpRule(window_s=0.1, tolerance=0.0, at_most_s=0.6)))
    assert found.warm_up.stable is False
    assert found.ok.any()


def test_fewer_requests_than_asked_for_is_said(server):
    server.program(delays_ms=[100])
    found = _run(server, _closed(seconds=0.3, min_queries=1000, max_seconds=0.6))
    assert "of at least 1000 requests in 0.6 s" in found.partial


def test_a_rate_that_no_generator_can_send_is_called_the_generators_limit(server):
    server.program()
    found = _run(server, _open(schedule.constant(1_000_000, 0.002)))
    assert found.sent_ns.size == 2000
    assert found.limited_by_generator
    assert "went out more than 1 ms late" in found.why


def test_a_slow_server_is_not_the_generators_limit(server):
    server.program(delays_ms=[SLACK_MS])
    found = _run(server, _closed(concurrency=2, seconds=1.2, processes=2))
    assert not found.limited_by_generator, found.why


def test_twice_the_rate_with_twice_the_requests_under_way_acquits_the_generator(server):
    server.program(delays_ms=[20])
    busy = limits.Sign(limits.RATE, "its 1 process used 0.95 of 1 core: give it more processes")
    runs = {
        count: dataclasses.replace(_run(server, _closed(concurrency=count, seconds=0.5)), limits=(busy,))
        for count in (1, 2)
    }
    rows = [
        summary.row("server", points.Point(scenario=points.CLOSED, concurrency=count), records, np.ones(8))
        for count, records in runs.items()
    ]
    rows = [dataclasses.replace(row, throughput=rate) for row, rate in zip(rows, (48.0, 72.0), strict=True)]
    first, second = bench._acquitted(rows)
    assert rows[0].limited and not first.limited and second.limited == rows[1].limited
    assert re.search(
        r"own time \(its 1 process used 0.95 of 1 core\), and not the limit: 2 requests under way get [12]\.\d times",
        first.waits,
    )
    apart, _ = bench._acquitted([rows[0], dataclasses.replace(rows[1], target="in process")])
    assert apart.limited
    # Twice the rate with twice the requests: nothing is the limit yet, not at the last row either.
    assert not any(row.limited for row in bench._acquitted([rows[0], dataclasses.replace(rows[1], throughput=96.0)]))


def test_progress_tells_all_answers_once(server):
    server.program(delays_ms=[2])
    heard = []
    found = generator.run(Target(address=server.address), ECHO, _closed(concurrency=2, seconds=0.8), heard.append)
    assert [one.phase for one in heard] == ["start"] + ["measure"] * (len(heard) - 1)
    told = np.concatenate([one.latency_ns for one in heard])
    assert 0 < told.size <= found.latency_ns.size
    assert np.isin(told, found.latency_ns).all()
    assert heard[-1].ended == told.size


def test_ctrl_c_returns_what_was_measured_and_marks_it(server, tmp_path):
    server.program(delays_ms=[10])
    script = tmp_path / "run.py"
    script.write_text(
        "import sys\nfrom tftrt_tools.servers.load import generator, load_plan, payload\n"
        f"load = payload.Payload({METHOD!r}, (b'0123456789abcdef',))\n"
        "said = lambda progress: print('at', progress.ended, flush=True)\n"
        "plan = load_plan.Plan(kind='closed', concurrency=3, seconds=60, warm_up=None, processes=2)\n"
        "found = generator.run(load_plan.Target(address=sys.argv[1]), load, plan, said)\n"
        "print('end', found.partial, found.sent_ns.size, found.ok.sum(), found.unfinished, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, script, server.address],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    for line in process.stdout:
        if line.startswith("at") and int(line.split()[1]) > 50:
            break
    process.send_signal(signal.SIGINT)
    last = process.stdout.read().splitlines()[-1].split()
    assert process.wait(30) == 0
    assert last[:2] == ["end", "interrupted"]
    assert int(last[3]) > 50
    assert not _children_of(process.pid)


def test_requests_that_hang_are_given_up_when_the_run_is_interrupted(server):
    server.program(silent=True)

    def interrupt(progress):
        if progress.seconds > 0.5:
            os.kill(os.getpid(), signal.SIGINT)

    found = generator.run(Target(address=server.address), ECHO, _closed(concurrency=3, seconds=60), interrupt)
    assert found.partial == "interrupted"
    assert (found.sent_ns.size, found.unfinished) == (0, 3)


def test_a_worker_that_is_killed_ends_the_run_with_what_there_is(server):
    server.program(delays_ms=[5])
    killed = []

    def kill_one(progress):
        if progress.ended > 40 and not killed:
            killed.append(_workers()[0])
            os.kill(killed[0], signal.SIGKILL)

    found = generator.run(
        Target(address=server.address), ECHO, _closed(concurrency=4, seconds=60, processes=2), kill_one
    )
    assert "ended by itself (SIGKILL)" in found.partial
    assert found.ok.sum() > 40
    assert not _workers()


def test_the_workers_hold_no_tensorflow(server):
    """The parent may: its modules are not imported again, and the environment does not lead to it."""
    server.program()
    import tensorflow  # noqa: F401

    seen = []

    def look(progress):
        if not seen:
            seen.extend(pathlib.Path(f"/proc/{pid}/maps").read_text() for pid in _workers())

    generator.run(Target(address=server.address), ECHO, _closed(concurrency=2, processes=2), look)
    assert len(seen) == 2
    for maps in seen:
        assert "python" in maps and "cygrpc" not in maps
        assert "tensorflow" not in maps


def test_tls(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            certificate,
            "-days",
            "2",
            "-subj",
            "/CN=models.test",
            "-addext",
            "subjectAltName=DNS:models.test",
        ],
        check=True,
        capture_output=True,
    )
    with MockServer(tls=[str(key), str(certificate)]) as server:
        tls = load_plan.Tls(certificate.read_bytes(), server_name="models.test")
        found = _run(server, _closed(seconds=60, max_queries=20), tls=tls)
        assert (found.ok.sum(), found.checked) == (20, 20)
        with pytest.raises(errors.TftrtError, match="no connection"):
            _run(
                server,
                _closed(seconds=60, max_queries=20),
                tls=load_plan.Tls(None, server_name="models.test"),
                connect_s=0.5,
            )


def test_several_connections_of_a_process_are_all_used(server):
    server.program(delays_ms=[20])
    used = set()

    def look(progress):
        for pid in _workers():
            used.add(sum(os.readlink(link).startswith("socket:") for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()))

    one = generator.run(Target(address=server.address, channels=1), ECHO, _closed(concurrency=8), look)
    alone, used = max(used), set()
    three = generator.run(Target(address=server.address, channels=3), ECHO, _closed(concurrency=8), look)
    assert one.ok.all() and three.ok.all()
    assert max(used) == alone + 2


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "spiral"},
        {"concurrency": 0},
        {"kind": "open"},
        {"schedule": np.arange(3)},
        {"seconds": 0},
        {"max_queries": 5, "min_queries": 6},
        {"processes": -1},
    ],
)
def test_plans_that_cannot_be_run_are_refused(settings):
    with pytest.raises(errors.UsageError):
        Plan(**settings)


@pytest.mark.parametrize(
    "plan",
    [
        _closed(concurrency=3, seconds=60, max_queries=60),
        _open(schedule.constant(100, 0.6)),
        Plan(kind="offline", concurrency=4, max_queries=60, warm_up=None),
    ],
    ids=["closed", "open", "offline"],
)
def test_the_same_plan_against_a_function(plan):
    found = function_load.run(clock, Clock(seconds=0.02, failing=3), plan)
    assert found.sent_ns.size == 60
    assert (found.service_ns >= 20e6).all()
    assert found.errors[2].count == (found.payload == 3).sum() == 12
    assert found.errors[2].messages == ("ArithmeticError: overflow",)
    assert found.partial == ""


def test_what_is_to_be_known_before_the_first_request_can_end_the_run():
    def refuse():
        raise errors.CheckFailed("its answers are wrong")

    with pytest.raises(errors.CheckFailed):
        function_load.run(
            clock, Clock(seconds=0.02), _closed(), on_ready=refuse, on_progress=lambda one: pytest.fail("asked")
        )
    assert not _workers()


def test_a_function_that_cannot_be_made_is_one_clear_line():
    with pytest.raises(errors.TftrtError, match="^no such engine$") as caught:
        function_load.run(clock, Clock(refuse="no such engine"), _closed())
    assert caught.value.mend == "take another"
    with pytest.raises(errors.TftrtError, match="^the clock in process answered none of"):
        function_load.run(
            clock,
            Clock(seconds=0.02, failing="all"),
            _closed(warm_up=WarmUpRule(at_most_s=0.3)),
            name="the clock in process",
        )


def _workers():
    return [
        pid for pid, command in _children_of(os.getpid()) if workers.__name__.replace("workers", "worker") in command
    ]


def _children_of(pid):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
            if int(text.rpartition(")")[2].split()[1]) == pid:
                found.append((int(path.parent.name), (path.parent / "cmdline").read_text()))
        except OSError:
            continue  # it has ended meanwhile
    return found
