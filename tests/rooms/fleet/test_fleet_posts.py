"""Posts that are asked, with a stand-in of Ray: each answers, hangs or raises as a test wants it."""

import time
import types

import pytest

from tests import fleet_jobs
from tftrt_tools.base import errors
from tftrt_tools.fleet import holding
from tftrt_tools.fleet.place import Place
from tftrt_tools.fleet.stack import Stack
from tftrt_tools.fleet.task import Post, Where


class _Raised:
    class RayError(Exception):
        pass

    class RaySystemError(RayError):
        pass

    class RayTaskError(RayError):
        pass

    class RayActorError(RayError):
        pass

    class GetTimeoutError(RayError):
        pass

    class OutOfMemoryError(RayError):
        pass


HANGS = object()


class Ray:
    """As the package. killed: actors."""

    exceptions = _Raised

    def __init__(self):
        self.killed = []

    def is_initialized(self):
        return True

    def kill(self, actor):
        self.killed.append(actor)

    def wait(self, refs, num_returns, timeout):
        late = [ref for ref in refs if ref[1] is HANGS]
        if late:
            time.sleep(min(timeout, 0.02))
        return [ref for ref in refs if ref not in late], late

    def get(self, ref, timeout):
        if isinstance(ref[1], Exception):
            raise ref[1]
        return ref[1]

    def put(self, data):
        raise _Raised.OutOfMemoryError("no room\nfurther lines")


class Actor:
    def __init__(self, says):
        self.calls = []
        self.call = types.SimpleNamespace(remote=lambda facts, content: self.calls.append(facts) or (self, says))
        self.clock = types.SimpleNamespace(remote=lambda: (self, says))


FINE = {"answer": {"calls": 1}, "content": b""}


def posts(*says):
    ray, actors = Ray(), [Actor(one) for one in says]
    fleet = types.SimpleNamespace(ray=ray, place=Place("local"))
    known = [Post(where=Where(node="n", host="h"), boot="b", cores=1, process=1)] * len(actors)
    return holding.Posts(fleet, actors, known), ray, actors


def test_one_that_hangs_is_lost_and_ended_and_the_others_are_heard():
    held, ray, actors = posts(FINE, HANGS)
    fine, lost = held.ask([{}, {}], seconds=0.3)
    assert fine.facts == {"calls": 1} and isinstance(lost, holding.Lost) and ray.killed == [actors[1]]
    assert isinstance(held.trip(1, time.perf_counter_ns, 0.3), holding.Lost)


def test_who_is_in_a_hurry_waits_for_the_grace_alone():
    held, _, _ = posts(FINE, HANGS)
    # With the time of the call itself this would take as long as a day.
    fine, lost = held.ask([{}, {}], seconds=86400, hurry=lambda: True, grace=0.1)
    assert fine.facts and isinstance(lost, holding.Lost)


def test_what_is_told_is_not_waited_for():
    held, ray, actors = posts(HANGS, HANGS)
    held.tell([{"do": "stop"}, None])
    assert [actor.calls for actor in actors] == [[{"do": "stop"}], []] and not ray.killed


def test_whatever_ray_raises_of_one_is_a_loss_with_its_first_line():
    held, _, _ = posts(FINE, _Raised.OutOfMemoryError("a worker was ended: memory\nfurther lines"))
    _, lost = held.ask([{}, {}])
    assert isinstance(lost, holding.Lost) and lost.cause == "OutOfMemoryError: a worker was ended: memory"


def test_bytes_for_which_the_store_has_no_room_are_an_error_of_one_line():
    held, _, _ = posts(FINE)
    with pytest.raises(errors.TftrtError, match="this machine: OutOfMemoryError: no room$"):
        held.kept(b"x")


def test_a_fleet_that_is_gone_is_no_lost_post():
    held, _, _ = posts(_Raised.RaySystemError("gone"))
    with pytest.raises(errors.TftrtError) as raised:
        held.ask([{}])
    assert not isinstance(raised.value, holding.Lost)


@pytest.mark.parametrize(("grows", "says"), [(True, "no processor was free there"), (False, "a process did not start")])
def test_what_did_not_start_in_time_waits_for_a_processor_only_in_a_cluster(grows, says):
    ray, made = Ray(), Actor(_Raised.GetTimeoutError("late"))
    made.about = types.SimpleNamespace(remote=lambda wanted: (made, _Raised.GetTimeoutError("late")))
    ray.remote = lambda kind: types.SimpleNamespace(options=lambda **_: types.SimpleNamespace(remote=lambda _: made))
    fleet = types.SimpleNamespace(ray=ray, place=Place("local"), grows=grows, nodes=lambda: {"n": {"CPU": 2.0}})
    with pytest.raises(holding.Lost, match=says):
        with holding.held(fleet, fleet_jobs.kept, 1, Stack(), place_seconds=1):
            pass
    assert ray.killed == [made]
