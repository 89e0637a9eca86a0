"""Holds processes on machines of a fleet, for work that goes on together: each keeps a job's function between calls.

    with holding.held(fleet, work, 4, stack.Stack(tools=version)) as posts:
        answers = posts.ask([{"do": "begin", "number": number} for number in range(4)])

A task (`running`) needs no other and is tried again. A post is part of a whole: one that is gone is told, and nobody takes its place.
"""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs
from tftrt_tools.fleet import content, keeper, placing, session, stack
from tftrt_tools.fleet.place import SECONDS
from tftrt_tools.fleet.session import Fleet
from tftrt_tools.fleet.task import Post, Said, Where

# That a post may take for an answer; its calls are short.
_ANSWER_SECONDS = 60.0


class Lost(errors.TftrtError):
    """A post that does not answer any more: its process or its machine is gone."""


class Posts:
    """Posts that are held; made by `held`. posts: what is known of each."""

    def __init__(self, fleet: Fleet, actors: Sequence[Any], posts: Sequence[Post]) -> None:
        self._fleet, self._ray, self._actors = fleet, fleet.ray, actors
        self.posts = tuple(posts)
        self._sent: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.posts)

    def kept(self, data: bytes) -> Any:
        """Bytes in the store of the fleet, to be given as the content of asks: they are sent once."""
        digest = content.digest(data)
        if digest not in self._sent:
            self._sent[digest] = self._ray.put(data)
        return self._sent[digest]

    def ask(
        self, each: Sequence[Mapping[str, Any] | None], contents: Sequence[Any] = (), seconds: float = _ANSWER_SECONDS
    ) -> list[Said | errors.TftrtError | None]:
        """Call the function of each post at once. Args: each: facts, None for a post that is not asked. contents: bytes, or what `kept`
        gave, for each. seconds: for all answers. Returns: for each what it said, the error that it raised, or Lost; None where it was not
        asked. Raises: TftrtError where the fleet has gone."""
        given = contents or [b""] * len(each)
        with self._reached():
            asked = [
                None if facts is None else self._actors[number].call.remote(dict(facts), given[number])
                for number, facts in enumerate(each)
            ]
            until = time.monotonic() + seconds
            return [None if one is None else self._said(one, until) for one in asked]

    def trip(self, number: int, clock: Callable[[], int]) -> tuple[int, int, int] | Lost:
        """(the instant here before, that of the post in between, the instant here after), ns, of one round trip."""
        with self._reached():
            before = clock()
            there = _got(self._ray, self._actors[number].clock.remote(), _ANSWER_SECONDS)
            return there if isinstance(there, Lost) else (before, there, clock())

    def _said(self, ref: Any, until: float) -> Said | errors.TftrtError:
        told = _got(self._ray, ref, max(0.1, until - time.monotonic()))
        if isinstance(told, Lost):
            return told
        if "error" in told:
            return errors.from_dict(told["error"])
        if "bug" in told:
            return errors.TftrtError(f"a bug: {told['bug'].strip().splitlines()[-1]}", told["bug"])
        return Said(told["answer"], told["content"])

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (ConnectionError, self._ray.exceptions.RaySystemError) as error:
            raise session.gone(self._fleet.place) from error


@contextlib.contextmanager
def held(
    fleet: Fleet, job: jobs.Job[Said, Said], count: int, wanted: stack.Stack, place_seconds: float = SECONDS
) -> Iterator[Posts]:
    """Hold `count` posts: on different machines where there are as many, and a processor each of a cluster's count.

    Args: job: its function is loaded with the first call, and keeps what it likes. wanted: the stack that a machine has to have.
      place_seconds: how long a cluster may take to have a processor free. Yields: Posts. They have ended when the context is left.
    Raises: TftrtError where not all can be held.
    """
    ray = fleet.ray
    actors: list[Any] = []
    try:
        yield Posts(fleet, actors, _placed(fleet, job, count, wanted, place_seconds, actors))
    except ray.exceptions.RaySystemError as error:
        raise session.gone(fleet.place) from error
    finally:
        _ended(ray, actors)


def _placed(
    fleet: Fleet, job: jobs.Job[Said, Said], count: int, wanted: stack.Stack, seconds: float, actors: list[Any]
) -> list[Post]:
    """Put actors where they can be. A machine that refuses gets none, and another is asked. Args: actors: gets them, in the order of the
    posts."""
    ray = fleet.ray
    made = ray.remote(keeper.Keeper)
    refusals: dict[str, str] = {}
    found: list[Post] = []
    while len(found) < count:
        nodes = fleet.nodes()
        taken = collections.Counter(post.where.node for post in found)
        places = placing.spread(nodes, count - len(found), taken, refusals, counted=fleet.grows)
        if not places:
            raise _no_place(fleet, nodes, refusals, count)
        asked = [
            made.options(**placing.on(node), num_cpus=1 if fleet.grows else 0, num_gpus=0, max_restarts=0).remote(
                job.target
            )
            for node in places
        ]
        actors += asked
        told = [one.about.remote(wanted.to_dict()) for one in asked]
        until = time.monotonic() + max(seconds, 1.0)
        for node, actor, ref in zip(places, asked, told, strict=True):
            facts = _got(ray, ref, max(0.1, until - time.monotonic()), "no processor was free there")
            if isinstance(facts, Lost):
                raise facts
            if facts["refused"]:
                refusals[node] = f"{facts['where']['host']} has {facts['refused']}"
                actors.remove(actor)
                _ended(ray, [actor])
                continue
            found.append(
                Post(
                    where=Where.from_dict(facts["where"]),
                    boot=facts["boot"],
                    cores=facts["cores"],
                    process=facts["process"],
                )
            )
    return found


def _no_place(
    fleet: Fleet, nodes: Mapping[str, Mapping[str, float]], refusals: Mapping[str, str], count: int
) -> errors.TftrtError:
    told = "; ".join(dict.fromkeys(refusals[node] for node in nodes if node in refusals))
    if told:
        return errors.TftrtError(told, "install the same there, or run the command where the stack is that one")
    room = int(sum(one.get("CPU", 0) for one in nodes.values()))
    return errors.TftrtError(
        f"{fleet.place.text()} has {room} processors, fewer than {count}", "ask for fewer, or add a machine"
    )


def _got(ray: Any, ref: Any, seconds: float, late: str = "it did not answer") -> Any:
    """What an actor answers, or Lost. Args: late: what it means that nothing came in time."""
    raised = ray.exceptions
    try:
        return ray.get(ref, timeout=seconds)
    except raised.GetTimeoutError:
        return Lost(f"{late} within {seconds:.0f} s", "look at that machine, and at what else runs there")
    except (raised.RayTaskError, raised.RayActorError) as error:
        if isinstance(error, raised.RayTaskError):
            why = errors.first_line(str(error).strip().splitlines()[-1])
            return Lost(
                f"a worker cannot run this package: {why}", "install the same tftrt-tools on each machine of the fleet"
            )
        return Lost(
            "its process or its machine is gone",
            "run the command again; where it goes each time, look at that machine's memory",
        )


def _ended(ray: Any, actors: Sequence[Any]) -> None:
    """End actors. A fleet that is gone cannot be told to end."""
    if not ray.is_initialized():
        return
    for one in actors:
        with contextlib.suppress(Exception):
            ray.kill(one)
