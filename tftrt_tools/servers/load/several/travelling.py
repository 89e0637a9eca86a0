"""What goes to a generator on another machine, and what comes back: plain values, and bytes beside them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tftrt_tools.base import records
from tftrt_tools.servers.load import assignment, frames
from tftrt_tools.servers.load.limits import Sign
from tftrt_tools.servers.load.load_plan import Plan, Target, Tls, WarmUpRule
from tftrt_tools.servers.load.payload import Payload
from tftrt_tools.servers.load.request_entries import Entries
from tftrt_tools.servers.load.run_record import Failures, Records, WarmUp
from tftrt_tools.servers.load.workers import UnequalAnswer

_TARGET = ("address", "timeout_s", "channels", "connect_s", "unordered")
# The columns of a run, as `entries` takes them; beside them `earlier_ns` travels.
_COLUMNS = ("scheduled_ns", "sent_ns", "done_ns", "code", "payload", "flags")
_ARRAYS = len(_COLUMNS) + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begin(records.Record):
    """Begin a run; beside it the schedule, int64 ns. plan: a Plan without it; number, of: the Share."""

    plan: Mapping[str, Any]
    number: int
    of: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look(records.Record):
    """How a run is; beside it the latencies of the answers since the last look, int64 ns. phase, seconds, ended, failed: of the
    Progress; ready: for the start; done: whether it has come to its end; partial: why that was early."""

    phase: str
    seconds: float
    ended: int
    failed: int
    ready: bool
    done: bool
    partial: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A generator's part of a run: its Records, and the answers that nobody has judged yet, their instants from the start. processes:
    of its load."""

    records: Records
    answers: tuple[UnequalAnswer, ...]
    processes: int


def load(target: Target, payload: Payload) -> bytes:
    """A server and the requests for it."""
    tls = target.tls
    return assignment.packed(
        assignment.Assignment(
            head={
                **{name: getattr(target, name) for name in _TARGET},
                "method": payload.method,
                "server_name": tls.server_name if tls else "",
            },
            requests=payload.requests,
            expected=payload.expected,
            offsets=np.zeros(0, np.int64),
            tls=(tls.root_certificates, tls.private_key, tls.certificate_chain) if tls else None,
        )
    )


def read_load(data: bytes) -> tuple[Target, Payload]:
    """What `load` wrote. The payload judges nothing: unequal answers are judged where they go."""
    work = assignment.unpacked(data)
    head = work.head
    tls = Tls(*work.tls, head["server_name"]) if work.tls else None
    target = Target(tls=tls, **{name: head[name] for name in _TARGET})
    return target, Payload(head["method"], tuple(work.requests), tuple(work.expected))


def begin(plan: Plan, number: int, of: int) -> tuple[Begin, bytes]:
    """A Begin, and what goes beside it."""
    plain = {
        field.name: records.plain(getattr(plan, field.name))
        for field in dataclasses.fields(plan)
        if field.name not in ("schedule", "warm_up")
    }
    plain["warm_up"] = dataclasses.asdict(plan.warm_up) if plan.warm_up else None
    return Begin(plan=plain, number=number, of=of), plan.scheduled.tobytes()


def plan_of(asked: Begin, schedule: bytes) -> Plan:
    """The Plan of a Begin."""
    facts = dict(asked.plan)
    warm_up = facts.pop("warm_up")
    return Plan(
        schedule=np.frombuffer(schedule, np.int64) if facts["kind"] == "open" else None,
        warm_up=WarmUpRule(**warm_up) if warm_up else None,
        **facts,
    )


def part(found: Part) -> tuple[dict[str, Any], bytes]:
    """A Part as (plain values, bytes)."""
    run = found.records
    facts = {
        "kind": run.kind,
        "length_ns": run.length_ns,
        "errors": records.plain(tuple(run.errors.values())),
        "unfinished": run.unfinished,
        "unsent": run.unsent,
        "limits": [[one.of, one.text] for one in run.limits],
        "warm_up": run.warm_up.to_dict(),
        "partial": run.partial,
        "cpu_share": run.cpu_share,
        "started_monotonic_ns": run.started_monotonic_ns,
        "answers": [[one.request, one.sent_ns] for one in found.answers],
        "processes": found.processes,
    }
    columns = [np.ascontiguousarray(getattr(run, name), np.int64).tobytes() for name in _COLUMNS]
    return facts, frames.joined([*columns, run.earlier_ns.tobytes(), *(one.answer for one in found.answers)])


def read_part(facts: Mapping[str, Any], content: bytes) -> Part:
    """What `part` wrote. Its Records lack what the entries tell: `merging` counts anew."""
    parts = [one or b"" for one in frames.cut(content)]
    scheduled, sent, done, code, payload, flags, earlier = (np.frombuffer(data, np.int64) for data in parts[:_ARRAYS])
    failures = [Failures.from_dict(one) for one in facts["errors"]]
    run = Records(
        scheduled_ns=scheduled,
        sent_ns=sent,
        done_ns=done,
        code=code,
        payload=payload,
        flags=flags,
        kind=facts["kind"],
        length_ns=facts["length_ns"],
        errors={one.code: one for one in failures},
        unfinished=facts["unfinished"],
        unsent=facts["unsent"],
        limits=tuple(Sign(of, text) for of, text in facts["limits"]),
        warm_up=WarmUp.from_dict(facts["warm_up"]),
        partial=facts["partial"],
        cpu_share=facts["cpu_share"],
        started_monotonic_ns=facts["started_monotonic_ns"],
        earlier_ns=earlier,
    )
    answers = zip(facts["answers"], parts[_ARRAYS:], strict=True)
    return Part(
        records=run,
        answers=tuple(UnequalAnswer(request, sent, answer) for (request, sent), answer in answers),
        processes=facts["processes"],
    )


def entries(run: Records) -> Entries:
    """The requests of Records as Entries, their instants from the start."""
    columns: Sequence[Any] = [getattr(run, name) for name in _COLUMNS]
    return Entries.of_columns(columns)
