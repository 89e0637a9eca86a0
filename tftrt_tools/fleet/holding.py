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
# Between two looks at whether whoever waits is in a hurry; and what it waits on then.
_POLL_SECONDS = 0.2
GRACE_SECONDS = 3.0


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
            with self._reached():
                self._sent[digest] = self._ray.put(data)
        return self._sent[digest]

    def ask(
        self,
        each: Sequence[Mapping[str, Any] | None],
        contents: Sequence[Any] = (),
        seconds: float = _ANSWER_SECONDS,
        hurry: Callable[[], bool] = lambda: False,
        grace: float = GRACE_SECONDS,
    ) -> list[Said | errors.TftrtError | None]:
        """Call the function of each post at once. A post that is lost is ended.

        Args: each: facts, None for a post that is not asked. contents: bytes, or what `kept` gave, for each. seconds: for all answers.
          hurry: asked again and again meanwhile; from when it says so, only `grace` seconds are left. Returns: for each what it said, the
          error that it raised, or Lost; None where it was not asked. Raises: TftrtError where the fleet has gone.
        """
        with self._reached():
            asked = self._called(each, contents)
            begun = time.monotonic()
            late = self._late([one for one in asked if one is not None], seconds, hurry, grace)
            waited = time.monotonic() - begun
            # What is here is read in any case, however large it is.
            return [
                None if one is None else self._said(number, _silent(waited) if one in late else _got(self._ray, one))
                for number, one in enumerate(asked)
            ]

    def tell(self, each: Sequence[Mapping[str, Any] | None]) -> None:
        """As `ask`, but no answer is waited for."""
        with self._reached():
            self._called(each)

    def trip(
        self,
        number: int,
        clock: Callable[[], int],
        seconds: float = _ANSWER_SECONDS,
        hurry: Callable[[], bool] = lambda: False,
    ) -> tuple[int, int, int] | Lost:
        """(the instant here before, that of the post in between, the instant here after), ns, of one round trip. Args: seconds, hurry: as
        of `ask`."""
        with self._reached():
            before = clock()
            asked = self._actors[number].clock.remote()
            begun = time.monotonic()
            late = self._late([asked], seconds, hurry, GRACE_SECONDS)
            there = _silent(time.monotonic() - begun) if late else _got(self._ray, asked)
            return self._ended(number, there) if isinstance(there, Lost) else (before, there, clock())

    def _called(self, each: Sequence[Mapping[str, Any] | None], contents: Sequence[Any] = ()) -> list[Any]:
        given = contents or [b""] * len(each)
        return [
            None if facts is None else self._actors[number].call.remote(dict(facts), given[number])
            for number, facts in enumerate(each)
        ]

    def _late(self, asked: list[Any], seconds: float, hurry: Callable[[], bool], grace: float) -> list[Any]:
        """What has no answer when the time is over."""
        until, hurried = time.monotonic() + seconds, False
        while asked:
            left = min(_POLL_SECONDS, until - time.monotonic())
            _, asked = self._ray.wait(asked, num_returns=len(asked), timeout=max(0.0, left))
            if time.monotonic() >= until:
                break
            if hurry() and not hurried:
                hurried, until = True, min(until, time.monotonic() + grace)
        return asked

    def _ended(self, number: int, why: Lost) -> Lost:
        _ended(self._ray, [self._actors[number]])
        return why

    def _said(self, number: int, told: Any) -> Said | errors.TftrtError:
        if isinstance(told, Lost):
            return self._ended(number, told)
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
        except self._ray.exceptions.RayError as error:
            raise errors.TftrtError(f"{self._fleet.place.text()}: {_first(error)}") from error


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
    # Only a cluster counts processors.
    late = "no processor was free there" if fleet.grows else "a process did not start"
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
            facts = _got(ray, ref, max(0.1, until - time.monotonic()), late)
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


def _got(ray: Any, ref: Any, seconds: float | None = None, late: str = "") -> Any:
    """What an actor answers, or Lost. Args: seconds: None where it has answered. late: what it means that nothing came in time."""
    raised = ray.exceptions
    try:
        return ray.get(ref, timeout=seconds)
    except raised.GetTimeoutError:
        return _silent(seconds or 0.0, late)
    except raised.RaySystemError:
        # The fleet itself; `session.gone` tells it.
        raise
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
    except raised.RayError as error:
        return Lost(_first(error), "look at that machine, and at its memory")


def _silent(seconds: float, late: str = "it did not answer") -> Lost:
    return Lost(f"{late} within {seconds:.0f} s", "look at that machine, and at what else runs there")


def _first(error: Exception) -> str:
    """Such as "OutOfMemoryError: a task was ended"."""
    return f"{type(error).__name__}: {errors.first_line(str(error).strip())}".rstrip(": ")


def _ended(ray: Any, actors: Sequence[Any]) -> None:
    """End actors. A fleet that is gone cannot be told to end."""
    if not ray.is_initialized():
        return
    for one in actors:
        with contextlib.suppress(Exception):
            ray.kill(one)
