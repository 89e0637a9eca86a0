"""Was the generator the limit? There are three signs that a faster generator would have measured something else: two for the rate, one
for the times.

Processor time (rate). A Python process runs its own code on one core at a time. If the workers used nearly all of their cores' time,
replies and sends queued inside them. If the same generator got more answers a second with more requests under way, it was not the limit
of the rate, although its own time is part of each round trip; see `acquitted`.

Late sends (rate). In an open loop a send may wait for nothing but the generator. If more than 1 % of the sends were over 1 ms late, the
load was not the requested one (perf_analyzer warns at the same share).

Lag (times). Each worker has a thread that should wake every 10 ms and records how late it woke. Like a reply, it waits for a core and
for the interpreter's lock, and not for the server. The lag counts if its 99th percentile is over a tenth of the 99th percentile of the
latencies, and over 1 ms: then the generator, not the server, may have caused the tail. It does not limit the rate if one reply in a
hundred waits.
"""

import dataclasses
import typing
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CPU_SHARE = 0.9
LATE_SHARE = 0.01
LAG_SHARE, LAG_NS = 0.1, 1_000_000
_FEWEST_BEATS = 20
# Rates that differ by less may be equal: equal runs differ by as much.
_MORE = 1.25
# A rate that grew by this share of the growth of the requests under way grew with them.
_PACE = 0.9
Of = typing.Literal["rate", "times"]
RATE: Of = "rate"
TIMES: Of = "times"


@dataclasses.dataclass(frozen=True)
class Sign:
    """of: RATE if the generator limited the answers a second, TIMES if it may have caused the tail of the times. text: why, one line."""

    of: Of
    text: str


def acquitted(rate: float, under_way: int | None, others: Sequence[tuple[int, float]]) -> tuple[int, float] | None:
    """A run that shows that the generator was not the limit of a closed loop's rate: it had more requests under way, and clearly more
    answers a second.

    Args: rate: answers a second. under_way: requests at a time; None for other loops. others: (under way, rate) of the other runs of the
      same requests, target and number of load processes at most.
    Returns: the best of them, (under way, rate); None where none shows it.
    """
    better = [
        (count, other)
        for count, other in others
        if under_way and count > under_way and rate > 0 and other >= _MORE * rate
    ]
    return max(better, key=lambda pair: pair[1], default=None)


def kept_pace(rate: float, under_way: int | None, others: Sequence[tuple[int, float]]) -> tuple[int, float] | None:
    """A run that shows that a closed loop's rate was still growing as fast as the requests under way, so nothing was the limit yet.

    Args: as of `acquitted`. Returns: the run with at most half as many under way, (under way, rate); None where none shows it.
    """
    fewer = [
        (count, other)
        for count, other in others
        if under_way and 2 * count <= under_way and other > 0 and rate >= _PACE * other * under_way / count
    ]
    return max(fewer, default=None)


def found(
    *,
    cpu_s: float,
    seconds: float,
    workers: int,
    cores: int,
    late: int,
    sent: int,
    lags_ns: npt.ArrayLike,
    latency_ns: npt.ArrayLike,
) -> tuple[Sign, ...]:
    """The signs of a run.

    Args: cpu_s: processor time of all workers over `seconds` of wall time. workers: processes; cores: that they may run on. late, sent:
      sends that were late though nothing held them, of all. lags_ns: [n]; latency_ns: [m], service times.

    Returns: () where the generator was not the limit.
    """
    signs: list[Sign] = []
    room = min(workers, cores)
    if seconds > 0 and cpu_s / seconds >= CPU_SHARE * room:
        more = "more processes or another machine" if workers < cores else "a machine with more cores"
        signs.append(
            Sign(
                RATE,
                f"its {workers} process{'es' * (workers > 1)} used {cpu_s / seconds:.2f} of {room} "
                f"core{'s' * (room > 1)}: give it {more}",
            )
        )
    signs += lateness(late, sent)
    lags, latencies = np.asarray(lags_ns), np.asarray(latency_ns)
    if lags.size >= _FEWEST_BEATS and latencies.size:
        lag, tail = np.percentile(lags, 99), np.percentile(latencies, 99)
        if lag > LAG_NS and lag > LAG_SHARE * tail:
            signs.append(
                Sign(
                    TIMES,
                    f"a thread of its own that does nothing else woke {lag / 1e6:.1f} ms late (p99), and so may have what "
                    f"reads the replies; the p99 from sending to answer is {tail / 1e6:.1f} ms: give it cores of its own",
                )
            )
    return tuple(signs)


def lateness(late: int, sent: int) -> tuple[Sign, ...]:
    """The sign of late sends, () where they are too few. Args: as of `found`."""
    if not sent or late <= LATE_SHARE * sent:
        return ()
    text = f"{late} of {sent} requests went out more than 1 ms late: lower the rate or give it more processes"
    return (Sign(RATE, text),)


def together(host: str, cpu_shares: Sequence[float], workers: int, cores: int) -> tuple[Sign, ...]:
    """The sign of generators that share a machine: none of them used its own cores up, and all together did.

    Args: cpu_shares: processor time of each, in shares of one core. workers: processes of all; cores: of the machine.
    """
    used, room = sum(cpu_shares), min(workers, cores)
    if used < CPU_SHARE * room:
        return ()
    return (
        Sign(
            RATE,
            f"the {len(cpu_shares)} generators on {host} used {used:.2f} of {room} core{'s' * (room > 1)} together: "
            "give each a machine of its own",
        ),
    )
