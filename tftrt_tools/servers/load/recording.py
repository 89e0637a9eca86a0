"""From the entries of requests to the Records of a run, as pure functions: for one generator, and for several together."""

import typing
from collections.abc import Callable, Iterable

import numpy as np

from tftrt_tools.servers.load import request_entries, run_record
from tftrt_tools.servers.load.load_plan import Kind
from tftrt_tools.servers.load.payload import Payload
from tftrt_tools.servers.load.request_entries import Entries
from tftrt_tools.servers.load.run_record import Failures, Records, WrongAnswer
from tftrt_tools.servers.load.workers import UnequalAnswer

_WRONG_SHOWN = 5
# Gives (its name, its first different messages) of a status code.
Told: typing.TypeAlias = Callable[[int], tuple[str, list[str]]]


def records(
    ended: Entries, *, start: int, end: int, kind: Kind, messages: Told, wrong: list[WrongAnswer], **facts: typing.Any
) -> Records:
    """The Records of a run.

    Args: ended: its requests, in the order of their sends. start, end: of the measured stretch, ns on the clock of the entries. messages:
      gives (name, [messages]) of a status code. wrong: all wrong answers. facts: fields of Records that the entries do not tell.
    """
    held = (ended.flags & request_entries.HELD) != 0
    compared = (ended.flags & request_entries.CHECKED) != 0
    unjudged = ((ended.flags & request_entries.DIFFERS) != 0) & ~compared
    codes, counts = np.unique(ended.code[~ended.ok], return_counts=True)
    failures = {
        code: Failures(code, messages(code)[0], count, tuple(messages(code)[1][:3]))
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
    }
    return Records(
        scheduled_ns=ended.scheduled_ns - start,
        sent_ns=ended.sent_ns - start,
        done_ns=ended.done_ns - start,
        code=ended.code.copy(),
        payload=ended.payload.copy(),
        flags=ended.flags.copy(),
        kind=kind,
        length_ns=max(0, end - start),
        errors=failures,
        late=late(ended, kind),
        held=int(held.sum()),
        checked=int(compared.sum()),
        wrong=len(wrong),
        wrong_answers=tuple(wrong[:_WRONG_SHOWN]),
        unjudged=int(unjudged.sum()),
        **facts,
    )


def late(ended: Entries, kind: Kind) -> int:
    """Requests of an open loop that went out more than LATE_NS after their instant, though nothing held them back."""
    held = (ended.flags & request_entries.HELD) != 0
    waited = ended.sent_ns - ended.scheduled_ns > run_record.LATE_NS
    return int((waited & ~held).sum()) if kind == "open" else 0


def wrong_answers(
    answers: Iterable[UnequalAnswer], payload: Payload | None, start: int, end: float
) -> list[WrongAnswer]:
    """The wrong ones of the answers that differ, sent in [start, end), in the order of their sends. Equal answers are judged once."""
    messages: dict[tuple[int, bytes], str] = {}
    wrong = []
    for answer in answers:
        judged = answer.request, answer.answer
        if judged not in messages:
            messages[judged] = payload.wrong(*judged) if payload else ""
        if messages[judged] and start <= answer.sent_ns < end:
            wrong.append(WrongAnswer(answer.request, answer.sent_ns - start, messages[judged]))
    return sorted(wrong, key=lambda wrong_answer: wrong_answer.sent_ns)
