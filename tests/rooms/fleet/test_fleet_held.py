"""Processes that are held on the machines of a cluster of Ray's own test tools."""

import importlib.util
import time

import pytest

from tests import fleet_jobs, fleets
from tftrt_tools.base import errors, version
from tftrt_tools.fleet import holding, session
from tftrt_tools.fleet.place import parse
from tftrt_tools.fleet.stack import Stack

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"),
    pytest.mark.slow,
]
HERE = Stack(tools=version.__version__)


@pytest.fixture(scope="module")
def fleet():
    """A head with two processors, and two machines with one each."""
    with fleets.cluster("accelerator_type:T4", "accelerator_type:T4") as (_, address, _):
        with session.opened(parse(address)) as opened:
            yield opened


def test_each_is_on_a_machine_of_its_own_keeps_what_it_knows_and_sees_no_gpu(fleet):
    with holding.held(fleet, fleet_jobs.kept, 3, HERE) as posts:
        assert {post.where.node for post in posts.posts} == set(fleet.nodes())
        assert len({post.process for post in posts.posts}) == len(posts) == 3
        first = posts.ask([{}, {}, None], [b"abc", b"xyz", b""])
        assert [one and one.content for one in first] == [b"cba", b"zyx", None]
        again = posts.ask([{}, {}, {}], [posts.kept(b"abc")] * 3)
        assert [one.facts["calls"] for one in again] == [2, 2, 1] and {one.content for one in again} == {b"cba"}
        assert {one.facts["visible"] for one in again} == {""}
        assert [one.facts["process"] for one in again] == [post.process for post in posts.posts]
    # They have ended with the block: each machine has room again.
    with holding.held(fleet, fleet_jobs.kept, 4, HERE) as posts:
        assert len({post.where.node for post in posts.posts}) == 3


def test_an_error_is_told_as_it_is_and_one_that_dies_is_lost_and_the_others_are_not(fleet):
    with holding.held(fleet, fleet_jobs.kept, 3, HERE) as posts:
        refused, broken, fine = posts.ask([{"refuse": True}, {"break": True}, {}])
        assert isinstance(refused, errors.UsageError) and refused.mend == "ask for something else"
        assert broken.cause == "a bug: ValueError: broken" and fine.facts["calls"] == 1
        died, other, third = posts.ask([{"die": True}, {}, {}])
        assert isinstance(died, holding.Lost) and (other.facts["calls"], third.facts["calls"]) == (2, 2)
        lost, other = posts.ask([{}, {}, None])[:2]
        assert isinstance(lost, holding.Lost) and other.facts["calls"] == 3
        assert isinstance(posts.trip(0, time.perf_counter_ns), holding.Lost)


def test_a_trip_reads_the_clock_there_between_two_readings_here(fleet):
    with holding.held(fleet, fleet_jobs.kept, 1, HERE) as posts:
        before, there, after = posts.trip(0, time.perf_counter_ns)
        # One machine in truth, and so one clock.
        assert before < there < after


def test_where_all_machines_have_another_stack_one_line_says_so(fleet):
    with pytest.raises(errors.TftrtError, match="not 0.0.0") as raised:
        with holding.held(fleet, fleet_jobs.kept, 2, Stack(tools="0.0.0")):
            pass
    assert "\n" not in raised.value.cause and "install the same there" in raised.value.mend


def test_more_than_there_are_processors_are_refused_at_once(fleet):
    with pytest.raises(errors.TftrtError, match="has 4 processors, fewer than 5"):
        with holding.held(fleet, fleet_jobs.kept, 5, HERE):
            pass


def test_a_cluster_that_others_use_is_waited_for_and_told(fleet):
    with holding.held(fleet, fleet_jobs.kept, 4, HERE):
        with pytest.raises(errors.TftrtError, match="no processor was free there within 1 s"):
            with holding.held(fleet, fleet_jobs.kept, 1, HERE, place_seconds=1):
                pass
