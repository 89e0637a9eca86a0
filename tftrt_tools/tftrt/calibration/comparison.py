"""How much of a model's answers each calibration method keeps in the simulation of INT8, as data, and which method is best. No TensorFlow.

The level of an output is 10 log10(sum r^2 / sum (a - r)^2) dB over all elements and rows, a with everything in INT8 rounded and r with
nothing rounded; a method's level is that of its worst output.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from tftrt_tools.base import records

# Beyond this level, in dB, all are equally good (no noise) or equally bad (nothing but noise).
LIMIT_DB = 200.0
# If the worst outputs of methods differ by no more than this, the mean over the outputs decides.
TIE_DB = 0.5
# The method if nothing can be compared: it has the least squared error in the tensors themselves.
FALLBACK = "mse"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared(records.Record):
    """The levels of one signature."""

    signature: str
    # The number of rows that were compared.
    rows: int
    # Whether the ranges came from other rows.
    apart: bool
    # {method: {float output: dB}}, methods as methods.Method.text gives them.
    levels: Mapping[str, Mapping[str, float]] = records.field(digits=2)
    # Why nothing could be compared, or "".
    problem: str = ""
    # {output: why its answers show nothing, in words}; such outputs are not in `levels`.
    nothing_shown: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        signature: str,
        rows: int,
        apart: bool,
        levels: Mapping[str, Mapping[str, float]],
        nothing: Mapping[str, str],
    ) -> "Compared":
        """Args: nothing: the outputs of `levels` that show nothing."""
        left = {
            method: {output: level for output, level in levels_of.items() if output not in nothing}
            for method, levels_of in levels.items()
        }
        return cls(
            signature=signature,
            rows=rows,
            apart=apart,
            levels=left if any(left.values()) else {},
            nothing_shown=nothing,
        )


@dataclasses.dataclass(frozen=True)
class Comparison(records.Record):
    """The comparison of all signatures. taken: the chosen method; reason: why, in words; signatures: Compared of each that has a table."""

    written_digits: ClassVar[Mapping[str, int]] = {"worst_db": 2}
    written_first: ClassVar[tuple[str, ...]] = ("taken", "reason", "worst_db")

    taken: str
    reason: str
    signatures: tuple[Compared, ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that were compared, () if none."""
        return tuple(dict.fromkeys(method for one in self.signatures for method in one.levels))

    @property
    def outputs(self) -> tuple[tuple[str, str], ...]:
        """(signature, output) of every output that was compared."""
        return tuple(
            (one.signature, output) for one in self.signatures for output in next(iter(one.levels.values()), ())
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """The reasons why signatures were not compared."""
        return tuple(f"{one.signature}: {one.problem}" for one in self.signatures if one.problem)

    @property
    def nothing_shown(self) -> tuple[str, ...]:
        """The outputs whose answers show nothing, a line each."""
        return tuple(
            f"{signature.signature}/{output} shows nothing: it is {why}"
            for signature in self.signatures
            for output, why in signature.nothing_shown.items()
        )

    @property
    def blind(self) -> bool:
        """Whether nothing tells the methods apart because the answers show nothing, or no method changes any."""
        return not self.outputs and bool(self.nothing_shown) or self._unchanged

    @property
    def _unchanged(self) -> bool:
        return bool(self.outputs) and all(
            self.level(method, *output) >= LIMIT_DB for method in self.methods for output in self.outputs
        )

    def level(self, method: str, signature: str, output: str) -> float:
        """The level in dB of one output by one method."""
        return next(one for one in self.signatures if one.signature == signature).levels[method][output]

    def worst(self, method: str) -> float:
        """The level in dB of the worst output of all signatures."""
        return min(self.level(method, *output) for output in self.outputs)

    @property
    def worst_db(self) -> dict[str, float]:
        """{method: dB of the worst output}."""
        return {method: self.worst(method) for method in self.methods}

    def rows_text(self) -> str:
        """The rows that were compared, in words."""
        compared = [signature for signature in self.signatures if signature.levels]
        rows = max((signature.rows for signature in compared), default=0)
        return f"{rows} rows of the calibration data " + (
            "(each with the ranges of other rows)"
            if all(signature.apart for signature in compared)
            else "(the ranges come from them too: there is one batch)"
        )


def limited(noise: float) -> float:
    """The level in dB of a noise (a ratio of powers, 0 to inf), within LIMIT_DB."""
    if math.isnan(noise) or math.isinf(noise):
        return -LIMIT_DB
    return LIMIT_DB if noise <= 0 else max(min(-10 * math.log10(noise), LIMIT_DB), -LIMIT_DB)


def of(signatures: Sequence[Compared], asked: str = "") -> Comparison:
    """The Comparison, with the method that harms the outputs least: the one with the best worst output; among those within TIE_DB of it,
    the one with the best mean. Args: asked: the method that the user asks for, which is then taken in any case."""
    comparison = Comparison("", "", tuple(signatures))
    if asked:
        return dataclasses.replace(comparison, taken=asked, reason="as asked")
    if comparison.blind:
        why = (
            "no method changes the answers to these rows"
            if comparison.outputs
            else "the answers to these rows show nothing"
        )
        return dataclasses.replace(comparison, taken=FALLBACK, reason=f"nothing tells the methods apart: {why}")
    if not comparison.outputs:
        return dataclasses.replace(
            comparison,
            taken=FALLBACK,
            reason="nothing could be compared; of all methods it has the least squared error in the tensors",
        )
    best = max(map(comparison.worst, comparison.methods))
    tied = [method for method in comparison.methods if comparison.worst(method) >= best - TIE_DB]
    taken = max(tied, key=lambda method: sum(comparison.level(method, *output) for output in comparison.outputs))
    return dataclasses.replace(comparison, taken=taken, reason="harms the outputs least")
