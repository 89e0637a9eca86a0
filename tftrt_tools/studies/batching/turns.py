"""The last comparison: the server with the winning parameters and one without batching, under the same load, in turns.

The trials are measured minutes apart, and the machine changes meanwhile; and the highest of several rates is partly the luckiest. So here
both servers are up, and both get requests at the winner's rate, in short blocks in turns (base.statistics.interleaving). If the winner
does not keep the promise over all blocks, all is repeated at lower rates. The promised percentile of both is judged as `tftrt regress`
judges it, with more rounds if the first ones do not decide. A request without an answer is slower than every other, in the figures as
in the judgement.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors, records
from tftrt_tools.base.statistics import interleaving
from tftrt_tools.servers.load import latency_statistics, load_plan, schedule
from tftrt_tools.servers.load.run_record import Records
from tftrt_tools.servers.serving.configuration.batching_file import Settings
from tftrt_tools.studies.batching import server
from tftrt_tools.studies.batching.options import Options
from tftrt_tools.studies.bench import live, measure, subject, summary, targets, workload
from tftrt_tools.studies.regression import verdict

# Rounds before the first look at the data, and between two looks; and the most looks.
ROUNDS, LOOKS = 12, 3
_LEAST_SECONDS = 1.0
_DIGITS = 4
# A block, and a probe of the search, lasts so many times the promised time: in a shorter one a backlog can grow and still keep it.
TIMES_THE_PROMISE = 10
# The blocks of a server before the first look have, together, so many times the requests that the percentile needs.
_REQUESTS = 2
# Where the winner does not keep the promise at its rate, this share of it is tried next, and so on, so many times.
_LOWER, _STEPS = 0.85, 4
# So many rounds are done at every rate: a neighbour's work may spoil one of them.
_FEWEST = 5
_WARM_UP = load_plan.WarmUpRule(window_s=0.1, at_most_s=0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side(records.Record):
    """One of the two servers, over all blocks."""

    # Requests that were due, and those answered within the promised time.
    requests: int
    within: int
    # Whether the promised percentile was kept, None where the requests do not decide it.
    kept: bool | None
    # Milliseconds of that percentile, None where there are too few requests, or where it is a request without an answer.
    ms: float | None
    # Requests without an answer, and the commonest reason.
    failed: int = 0
    why: str = ""

    @property
    def share(self) -> float:
        """Of the requests that were answered in time."""
        return self.within / self.requests if self.requests else 0.0

    def unanswered(self, share: float) -> bool:
        """Whether a percentile is a request without an answer. Args: share: of the percentile, such as 0.99."""
        return self.failed > (1 - share) * self.requests


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turns(records.Record):
    """Both servers at the same rate."""

    # The winner's rate by the search, in requests a second.
    wanted: float
    # Requests a second that were due: `wanted`, or less where the winner did not keep the promise there; and the seconds of a block.
    rate: float
    seconds: float
    rounds: int
    # The server without batching, and the one with the winning parameters.
    without: Side
    winner: Side
    # The promised percentile: the winner's beside that without batching.
    judgement: verdict.Judgement
    # Whether the load generator may have been the limit, a line each.
    notes: tuple[str, ...] = ()

    @property
    def certain(self) -> bool:
        """Whether the winner keeps the promise and is better for sure."""
        return self.judgement.verdict == verdict.BETTER and self.winner.kept is True


def turns(options: Options, settings: Settings, wanted: float, lowest: float, view: live.Lines) -> Turns:
    """Compare.

    Args: settings: of the winner. wanted: its requests a second. lowest: rate below which nothing is compared. Returns: Turns at the
      highest rate at which the winner kept the promise, or at the last one. Raises: TftrtError, errors.Interrupted.
    """
    share = (options.bound.percentile or 0.0) / 100
    first, *later = interleaving.looks(ROUNDS, LOOKS * ROUNDS)
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(_asked(options, parameters)) for parameters in (None, settings)]
        for step in range(_STEPS):
            rate = float(f"{wanted * _LOWER**step:.{_DIGITS}g}")
            seconds = max(
                _LEAST_SECONDS,
                TIMES_THE_PROMISE * options.bound.limit,
                _REQUESTS * latency_statistics.min_samples(share) / ROUNDS / rate,
            )
            if step == 0:
                for side in both:
                    side.block(rate, seconds, 0)  # the first of a server is not counted: it warms up
            last = step == _STEPS - 1 or rate * _LOWER < lowest
            rounds = _Rounds(options, both, wanted, rate, seconds, view)
            for number in first:
                rounds.add(number)
                if not last and rounds.count >= _FEWEST and rounds.kept is False:
                    break
            if last or rounds.count == ROUNDS and rounds.kept:
                break
        if not rounds.decided():
            interleaving.until_decided(later, rounds.add, rounds.decided)
        return rounds.found


class _Rounds:
    """The rounds of the server without batching and the winner's at one rate. Args: both: the two servers. wanted: as of Turns. rate,
    seconds: of a block. Attributes: found: both compared, at the last look."""

    found: Turns

    def __init__(
        self, options: Options, both: Sequence["_Asked"], wanted: float, rate: float, seconds: float, view: live.Lines
    ) -> None:
        self._options, self._both, self._view = options, both, view
        self._wanted, self._rate, self._seconds = wanted, rate, seconds
        self._blocks: tuple[list[Records], list[Records]] = ([], [])

    def add(self, number: int) -> None:
        """Do the round of this number."""
        self._view.note(f"in turns, round {number + 1}: {self._rate:g}/s to each")
        done = interleaving.in_turns(
            (0, 1), (number,), lambda at: self._both[at].block(self._rate, self._seconds, number)
        )
        for at, blocks in done.items():
            self._blocks[at].extend(blocks)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._blocks[1])

    @property
    def kept(self) -> bool | None:
        """Whether the winner keeps the promise, as Side.kept."""
        return _side(self._blocks[1], self._options).kept

    def decided(self) -> bool:
        """Look at the blocks so far. Returns: whether the judgement is sure."""
        self.found = compared(*self._blocks, self._wanted, self._rate, self._seconds, self._options)
        return self.found.judgement.verdict != verdict.UNSURE


def compared(
    without: list[Records], winner: list[Records], wanted: float, rate: float, seconds: float, options: Options
) -> Turns:
    """The Turns of the blocks of both servers, in their order."""
    sides = [_side(side, options) for side in (without, winner)]
    times = [[_seconds(block, options.load.timeout) for block in blocks] for blocks in (without, winner)]
    judged = verdict.judge(
        times[0], times[1], (summary.name(options.bound.percentile or 0.0),), looks=LOOKS, seed=options.load.seed
    )
    judgement = judged.judgements[0]
    if all(side.unanswered((options.bound.percentile or 0.0) / 100) for side in sides):
        # Both have the deadline there, which would be "the same".
        judgement = dataclasses.replace(
            judgement,
            verdict=verdict.UNSURE,
            ratio=None,
            reason=f"the {judgement.metric} of both is a request without an answer",
        )
    notes = (
        f"{name}: the load generator was the limit: {block.why}"
        for name, blocks in (("no batching", without), ("winner", winner))
        for block in blocks
        if block.why
    )
    return Turns(
        wanted=wanted,
        rate=rate,
        seconds=seconds,
        rounds=len(winner),
        without=sides[0],
        winner=sides[1],
        judgement=judgement,
        notes=tuple(dict.fromkeys(notes))[:2],
    )


def _within(block: Records, options: Options) -> int:
    """How many requests were answered within the promised time."""
    return sum(map(options.bound.kept, (block.latency_ns / 1e9).tolist()))


def _due(block: Records) -> int:
    return int(block.sent_ns.size) + block.unsent + block.unfinished


def _side(blocks: list[Records], options: Options) -> Side:
    share = (options.bound.percentile or 0.0) / 100
    due, within = sum(map(_due, blocks)), sum(_within(block, options) for block in blocks)
    answered = np.concatenate([block.latency_ns for block in blocks])
    missing = due - answered.size
    value = latency_statistics.percentile(np.concatenate([answered / 1e6, np.full(missing, math.inf)]), share).value
    return Side(
        requests=due,
        within=within,
        kept=latency_statistics.decided(due - within, due, share),
        ms=value if value is not None and math.isfinite(value) else None,
        failed=missing,
        why=_commonest(blocks),
    )


def _commonest(blocks: list[Records]) -> str:
    """The commonest reason of requests without an answer, one line; "" without any."""
    counts: dict[str, int] = {}
    for failure in (failure for block in blocks for failure in block.errors.values()):
        text = ": ".join([failure.name, *(" ".join(message.split()) for message in failure.messages[:1])])
        counts[text] = counts.get(text, 0) + failure.count
    return max(counts, key=lambda text: counts[text], default="")


def _seconds(block: Records, deadline: float) -> npt.NDArray[np.float64]:
    """The response times of a block, in seconds; the deadline for each request without an answer."""
    answered = block.latency_ns / 1e9
    return np.concatenate([answered, np.full(_due(block) - answered.size, deadline)])


class _Asked:
    """A running server and the requests for it."""

    def __init__(self, options: Options, target: targets.Server, sent: targets.Sent) -> None:
        self._options, self._target, self._sent = options, target, sent

    def block(self, rate: float, seconds: float, number: int) -> Records:
        """Send at `rate` for `seconds`. Args: number: of the block, for the seed of its arrivals."""
        load = self._options.load
        due = (
            schedule.poisson(rate, seconds, load.seed + number)
            if load.distribution == "poisson"
            else schedule.constant(rate, seconds)
        )
        plan = load_plan.Plan(
            kind="open",
            schedule=due,
            warm_up=_WARM_UP,
            check_every=0,
            processes=load.processes or measure.processes_for(math.inf),
        )
        run_records = self._target.run(self._sent, plan, lambda moment: None)
        if run_records.partial:
            raise (
                errors.Interrupted
                if run_records.partial == measure.INTERRUPTED
                else errors.TftrtError(run_records.partial)
            )
        return run_records


@contextlib.contextmanager
def _asked(options: Options, settings: Settings | None) -> Iterator[_Asked]:
    """Yields: _Asked of a new server."""
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(server.started(options, settings))
        load = dataclasses.replace(options.load, address=running.address)
        client = targets.client(load)
        stack.enter_context(client)
        model = subject.of_server(client, load)
        signature = workload.choose_signature(model.signatures, load.signature_name)
        takes = subject.takes(signature, model.signatures, [model.same], "").limited_by(
            *subject.inputs([options.model])
        )
        (sent,) = workload.workloads(takes, load.batch_sizes, load.asked, load.distinct)
        target = targets.Server(client, load, signature)
        yield _Asked(options, target, target.prepare(sent, lambda first: None))
