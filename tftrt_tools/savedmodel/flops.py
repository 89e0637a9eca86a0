"""How much of a signature's computation is in its engines, as data. No TensorFlow here; `flop_count` counts."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Flops:
    """Floating point operations of the convolutions and matrix products of one call: two for a multiplication with its addition. Unknown
    batch sizes count as 1.

    inside: of those in engines; total: of all. unknown: names of nodes whose sizes are not known, which are in neither. loops: names of
    nodes in loops, each counted for the first round."""

    inside: int = 0
    total: int = 0
    unknown: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()

    @property
    def share(self) -> float | None:
        """Of the computation that is in engines, 0 to 1; None where it is not known, or where there is none."""
        return None if self.unknown or not self.total else self.inside / self.total

    def text(self) -> str:
        """Such as "98% of 8.18 G"."""
        if self.unknown:
            return "not known"
        return f"{self.share:.0%} of {_short(self.total)}" if self.total else "none to do"

    def note(self) -> str:
        """What a reader of `text` has to know as well, or ""."""
        if self.unknown:
            return f"FLOPs are not known: the sizes of {_nodes(self.unknown)} are open"
        return f"FLOPs of {_nodes(self.loops)} in loops are those of the first round" if self.loops else ""

    def to_dict(self) -> dict[str, object]:
        share = self.share
        return {"inside": self.inside, "total": self.total, "share": None if share is None else round(share, 4),
                "unknown": list(self.unknown), "loops": list(self.loops)}

    @classmethod
    def from_dict(cls, data: dict[str, object] | None) -> "Flops | None":
        """From `to_dict`; None from None, of an older manifest."""
        return cls(data["inside"], data["total"], tuple(data["unknown"]), tuple(data["loops"])) if data else None


def together(counts: list[Flops | None]) -> Flops | None:
    """The sum of several signatures' Flops, of those that were counted; None where none was."""
    counts = [one for one in counts if one]
    if not counts:
        return None
    return Flops(sum(one.inside for one in counts), sum(one.total for one in counts), tuple(name for one in counts for name in one.unknown),
                 tuple(name for one in counts for name in one.loops))


def _nodes(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} nodes"


def _short(count: int) -> str:
    """Such as "8.18 G"."""
    for unit, least in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= least:
            return f"{count / least:.3g} {unit}"
    return str(count)
