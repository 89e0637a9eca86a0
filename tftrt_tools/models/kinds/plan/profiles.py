"""Optimization profiles: which one serves a call. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tftrt_tools.base import records
from tftrt_tools.models.savedmodel.shapes import Call, call_text

Dims = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Range(records.Record):
    """The shapes of one input in a profile: from `min` to `max`, fastest at `opt`."""

    min: Dims
    opt: Dims
    max: Dims

    def holds(self, shape: Sequence[int]) -> bool:
        """Whether a shape lies in the range."""
        return len(shape) == len(self.opt) and all(
            low <= one <= high for low, one, high in zip(self.min, shape, self.max, strict=True)
        )

    def text(self) -> str:
        """For people: "1x224x224x3", or "1x224x224x3 to 32x224x224x3"."""
        least, most = ("x".join(map(str, one)) or "scalar" for one in (self.min, self.max))
        return least if least == most else f"{least} to {most}"


@dataclasses.dataclass(frozen=True)
class Profile(records.Record):
    """One optimization profile. inputs: {input: Range}."""

    inputs: dict[str, Range]

    @property
    def opt(self) -> Call:
        """The shapes of the call that it was tuned for."""
        return {name: one.opt for name, one in self.inputs.items()}

    def holds(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """Whether the profile serves a call."""
        return all(name in shapes and one.holds(shapes[name]) for name, one in self.inputs.items())

    def distance(self, shapes: Mapping[str, Sequence[int]]) -> float:
        """How far a call is from `opt`: the sum of |log2| of the ratios of sizes; infinite for another rank."""
        return sum(_apart(one.opt, shapes.get(name, ())) for name, one in self.inputs.items())

    def outside(self, shapes: Mapping[str, Sequence[int]]) -> float:
        """How far a call lies outside the profile, in the unit of `distance`."""
        return sum(
            _apart(_clamped(one, shapes.get(name, ())), shapes.get(name, ())) for name, one in self.inputs.items()
        )

    def text(self) -> str:
        """For people: "image 1x224x224x3 to 32x224x224x3"."""
        return ", ".join(f"{name} {one.text()}" for name, one in self.inputs.items())


def choose(profiles: Sequence[Profile], shapes: Mapping[str, Sequence[int]]) -> int | None:
    """The number of the profile for a call: the one whose `opt` it is; else of those that hold it the one whose `opt` is nearest; None
    where none holds it."""
    held = [(one.distance(shapes), number) for number, one in enumerate(profiles) if one.holds(shapes)]
    return min(held)[1] if held else None


def refusal(profiles: Sequence[Profile], shapes: Mapping[str, Sequence[int]]) -> tuple[str, str]:
    """(cause, mend) for a call that no profile holds; the nearest profile is named."""
    nearest = min(profiles, key=lambda profile: (profile.outside(shapes), profile.distance(shapes)))
    call = call_text({name: tuple(shape) for name, shape in shapes.items()})
    return (
        f"the plan has no profile for {call}; the nearest is {nearest.text()}",
        "send calls of its shapes, or build the plan with --shapes that hold this one",
    )


def _apart(wanted: Sequence[int], got: Sequence[int]) -> float:
    if len(wanted) != len(got):
        return math.inf
    return sum(abs(math.log2(max(one, 0.5) / max(other, 0.5))) for one, other in zip(wanted, got, strict=True))


def _clamped(held: Range, shape: Sequence[int]) -> Sequence[int]:
    if len(shape) != len(held.opt):
        return held.opt
    return [min(max(low, one), high) for low, one, high in zip(held.min, shape, held.max, strict=True)]
