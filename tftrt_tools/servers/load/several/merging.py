"""One run of the parts of several generators. All instants of a part count from the common start, so requests are put beside each other as
they are, and a percentile is that of all of them."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tftrt_tools.fleet.task import Post
from tftrt_tools.servers.load import limits, recording
from tftrt_tools.servers.load.load_plan import Plan
from tftrt_tools.servers.load.payload import Payload
from tftrt_tools.servers.load.request_entries import Entries
from tftrt_tools.servers.load.run_record import Generator, Records, WarmUp
from tftrt_tools.servers.load.several import travelling
from tftrt_tools.servers.load.several.clocks import Clock
from tftrt_tools.servers.load.several.travelling import Part

# Fewer sends of one generator tell no share of 1 %.
_FEWEST_SENDS = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sender:
    """A generator and what it did. number: from 1. before, after: its clock before and after the run, None where it was not compared.
    part: None, and lost: why, where it is gone."""

    number: int
    post: Post
    part: Part | None
    before: Clock
    after: Clock | None = None
    lost: str = ""

    def text(self) -> str:
        """For messages."""
        return f"generator {self.number} on {self.post.where.host}"


def merged(
    senders: Sequence[Sender], plan: Plan, payload: Payload | None, *, length_ns: int, started: int, partial: str = ""
) -> Records:
    """The Records of the whole load.

    Args: plan: the whole one. payload: judges the answers. length_ns: from the common start to the common end, of a closed loop, and of a
      run that ended early; other ones tell their own. started: the start on this machine's clock. partial: why it ended early; else the
      first generator's reason counts.
    """
    senders = _judged(senders, plan)
    there = [(one, one.part) for one in senders if one.part]
    partial = partial or next(
        (f"{one.text()}: {part.records.partial}" for one, part in there if part.records.partial), ""
    )
    length = _length(plan, [part for _, part in there], length_ns, bool(partial))
    signs = list(_signs(there))
    kept = [_cut(part, plan, length) for _, part in there]
    found = _records(there, kept, plan, payload, length, partial, started)
    rows = tuple(_row(one, plan, length, started) for one in senders)
    return dataclasses.replace(found, limits=tuple(signs), generators=rows, generator=_whose(there, kept))


def _whose(there: Sequence[tuple[Sender, Part]], kept: Sequence[Entries]) -> npt.NDArray[np.int64]:
    """The number of the generator of each request, in the order of `Entries.by_sent`."""
    numbers = np.repeat(np.array([one.number for one, _ in there], np.int64), [len(own) for own in kept])
    sent = np.concatenate([np.zeros(0, np.int64), *(own.sent_ns for own in kept)])
    return numbers[np.argsort(sent, kind="stable")]


def _judged(senders: Sequence[Sender], plan: Plan) -> list[Sender]:
    """The senders; the lateness of one counts if it has enough sends for a share of them, or if the whole is late."""
    counts = {
        one.number: (recording.late(found, plan.kind), len(found))
        for one in senders
        if one.part
        for found in [travelling.entries(one.part.records)]
    }
    late, sent = (sum(pair[at] for pair in counts.values()) for at in (0, 1))
    few = [] if limits.lateness(late, sent) else [number for number, pair in counts.items() if pair[1] < _FEWEST_SENDS]
    return [_without_lateness(one, *counts[one.number]) if one.number in few else one for one in senders]


def _without_lateness(one: Sender, late: int, sent: int) -> Sender:
    assert one.part
    own = limits.lateness(late, sent)
    kept = tuple(sign for sign in one.part.records.limits if sign not in own)
    return dataclasses.replace(
        one, part=dataclasses.replace(one.part, records=dataclasses.replace(one.part.records, limits=kept))
    )


def _length(plan: Plan, parts: Sequence[Part], length_ns: int, early: bool) -> int:
    if plan.kind == "open" and not early:
        return schedule_ns(plan)
    if plan.kind == "offline" and not early:
        return max((part.records.length_ns for part in parts), default=0)
    return length_ns


def schedule_ns(plan: Plan) -> int:
    """The length of an open run: one mean gap after its last instant."""
    last, count = int(plan.scheduled[-1]), len(plan.scheduled)
    return last + (last // (count - 1) if count > 1 else 0)


def _cut(part: Part, plan: Plan, length_ns: int) -> Entries:
    """The requests of a part that count: of a closed loop those that were sent before the common end."""
    entries = travelling.entries(part.records)
    return entries[entries.sent_ns < length_ns] if plan.kind == "closed" else entries


def _records(
    there: Sequence[tuple[Sender, Part]],
    kept: Sequence[Entries],
    plan: Plan,
    payload: Payload | None,
    length_ns: int,
    partial: str,
    started: int,
) -> Records:
    runs = [part.records for _, part in there]
    earlier = np.concatenate([np.zeros(0, np.int64), *(run.earlier_ns for run in runs)])
    answers = [answer for _, part in there for answer in part.answers]
    last = length_ns if plan.kind == "closed" else math.inf
    return recording.records(
        Entries.joined(kept).by_sent(),
        start=0,
        end=length_ns,
        kind=plan.kind,
        messages=_messages(runs),
        wrong=recording.wrong_answers(answers, payload, 0, last),
        unfinished=sum(run.unfinished for run in runs),
        unsent=sum(run.unsent for run in runs),
        warm_up=_warm_up(runs),
        partial=partial,
        started_monotonic_ns=started,
        cpu_share=sum(run.cpu_share for run in runs),
        earlier_ns=np.sort(earlier[earlier < length_ns]),
    )


def _messages(runs: Sequence[Records]) -> recording.Told:
    found: dict[int, tuple[str, list[str]]] = {}
    for run in runs:
        for code, failures in run.errors.items():
            told = found.setdefault(code, (failures.name, []))[1]
            told += [one for one in failures.messages if one not in told]
    return lambda code: found.get(code, (f"code {code}", []))


def _warm_up(runs: Sequence[Records]) -> WarmUp:
    """That of the whole: the longest, of all requests, stable where each was."""
    stable = [run.warm_up.stable for run in runs if run.warm_up.stable is not None]
    return WarmUp(
        max((run.warm_up.seconds for run in runs), default=0.0),
        sum(run.warm_up.requests for run in runs),
        all(stable) if stable else None,
    )


def _signs(there: Sequence[tuple[Sender, Part]]) -> Iterator[limits.Sign]:
    """Each generator's own limits, and those of generators that share the processors of a machine."""
    for one, part in there:
        for sign in part.records.limits:
            yield dataclasses.replace(sign, text=f"{one.text()}: {sign.text}")
    machines: dict[str, list[tuple[Sender, Part]]] = {}
    for pair in there:
        machines.setdefault(pair[0].post.boot, []).append(pair)
    for beside in machines.values():
        if len(beside) > 1 and not any(sign.of == limits.RATE for _, part in beside for sign in part.records.limits):
            yield from limits.together(
                beside[0][0].post.where.host,
                [part.records.cpu_share for _, part in beside],
                sum(part.processes for _, part in beside),
                beside[0][0].post.cores,
            )


def _row(one: Sender, plan: Plan, length_ns: int, started: int) -> Generator:
    known = Generator(
        number=one.number,
        host=one.post.where.host,
        cores=one.post.cores,
        clock_offset_ms=one.before.offset_ns / 1e6,
        clock_uncertainty_ms=one.before.uncertainty_ns / 1e6,
        clock_moved_ms=None if one.after is None else (one.after.offset_ns - one.before.offset_ns) / 1e6,
    )
    if one.part is None:
        return dataclasses.replace(known, ended=one.lost)
    alone = _records([(one, one.part)], [_cut(one.part, plan, length_ns)], plan, None, length_ns, "", started)
    alone = dataclasses.replace(alone, limits=one.part.records.limits)
    return dataclasses.replace(
        known,
        processes=one.part.processes,
        requests=int(alone.sent_ns.size),
        answered=int(alone.ok.sum()),
        rate=alone.rate(),
        late=alone.late,
        held=alone.held,
        latest_ms=_latest(alone),
        cpu_share=alone.cpu_share,
        limited=alone.why,
        waits=alone.waits,
        ended=one.part.records.partial,
    )


def _latest(run: Records) -> float | None:
    """How late the latest send of an open loop was, ms."""
    if run.kind != "open" or not run.sent_ns.size:
        return None
    return float((run.sent_ns - run.scheduled_ns).max()) / 1e6
