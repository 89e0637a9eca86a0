"""How much of a signature's computation is in its engines, as data. No TensorFlow here; `flop_count` counts."""

import dataclasses
import typing
from collections.abc import Sequence

from tftrt_tools.base import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flops(records.Record):
    """Floating point operations of the convolutions and matrix products of one call: a multiplication with its addition counts as two.
    Unknown batch sizes count as 1."""

    # The operations of the nodes in engines.
    inside: int = 0
    # The operations of all nodes.
    total: int = 0
    # Names of nodes whose sizes are not known; neither number counts them.
    unknown: tuple[str, ...] = ()
    # Names of nodes in loops; each is counted only for the first round.
    loops: tuple[str, ...] = ()
    # Names of nodes in loops that are counted for each round of a call with drawn values.
    rounds: tuple[str, ...] = ()

    written_digits: typing.ClassVar = {"share": 4}

    @property
    def share(self) -> float | None:
        """The share of the computation in engines, 0 to 1; None if it is not known, or if there is no computation."""
        return None if self.unknown or not self.total else self.inside / self.total

    def text(self) -> str:
        """The share and the total as messages show them, such as "98% of 8.18 G"."""
        if self.unknown:
            return "not known"
        return f"{self.share:.0%} of {_short(self.total)}" if self.total else "none to do"

    def note(self) -> str:
        """A remark that readers of `text` need, or ""."""
        if self.unknown:
            return f"FLOPs are not known: the sizes of {_nodes(self.unknown)} are open"
        if self.loops:
            return f"FLOPs of {_nodes(self.loops)} in loops are those of the first round"
        return (
            f"FLOPs of {_nodes(self.rounds)} in loops are those of all rounds of a call with random values"
            if self.rounds
            else ""
        )


def together(counts: Sequence[Flops | None]) -> Flops | None:
    """The sum of the Flops that were counted, of several signatures; None if none was."""
    counted = [count for count in counts if count]
    if not counted:
        return None
    return Flops(
        inside=sum(count.inside for count in counted),
        total=sum(count.total for count in counted),
        unknown=tuple(name for count in counted for name in count.unknown),
        loops=tuple(name for count in counted for name in count.loops),
        rounds=tuple(name for count in counted for name in count.rounds),
    )


def _nodes(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} nodes"


def _short(count: int) -> str:
    """A number as messages show it, such as "8.18 G"."""
    for unit, least in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= least:
            return f"{count / least:.3g} {unit}"
    return str(count)
