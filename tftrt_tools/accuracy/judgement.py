"""Are answers like the original's? The comparison, its bounds, and whether the answers show anything, for every command that judges
answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from tftrt_tools.accuracy import kinds, metrics, score, thresholds
from tftrt_tools.accuracy.labels import Labels
from tftrt_tools.base import errors
from tftrt_tools.models.execution import constancy

if TYPE_CHECKING:
    from tftrt_tools.accuracy.metrics.comparison import Pair

ACCEPT = "accept it with --allow_constant_outputs"


class Asked(Protocol):
    """The part of a command's Options that the judgement needs: texts of the flags."""

    @property
    def thresholds(self) -> str:
        """The text of --thresholds."""

    @property
    def output_kind(self) -> Iterable[str]:
        """The text of --output_kind."""

    @property
    def allow_constant_outputs(self) -> bool:
        """The value of --allow_constant_outputs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """How answers are judged."""

    # What thresholds.parse returned.
    bounds: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    # What kinds.parse returned.
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    # Floor of the divisor of max_rel, in the output's own unit.
    epsilon: float = 1e-3
    # Accept NaN and Inf where the original has the same.
    allow_matching_nonfinite: bool = False
    # Accept answers that show nothing.
    allow_constant_outputs: bool = False

    @classmethod
    def of(cls, options: Asked) -> Rules:
        """Make the Rules from a command's Options, which have the texts of the flags. Raises: UsageError."""
        given = {
            name: getattr(options, name) for name in ("epsilon", "allow_matching_nonfinite") if hasattr(options, name)
        }
        bounds = thresholds.parse(options.thresholds)
        if thresholds.LABELS in bounds and not getattr(options, "labels", ""):
            raise errors.UsageError(
                f"--thresholds: bounds behind {thresholds.LABELS}: are for the score against --labels",
                "give --labels, where the command has it, or leave them out",
            )
        return cls(
            bounds=bounds,
            kinds=kinds.parse(options.output_kind),
            allow_constant_outputs=options.allow_constant_outputs,
            **given,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result of a comparison."""

    # A Comparison for each output.
    comparisons: tuple[metrics.Comparison, ...]
    # {output: {metric: bound}}.
    bounds: dict[str, dict[str, float]]
    misses: tuple[thresholds.Miss, ...]
    # Other differences, in words.
    problems: tuple[str, ...]
    # A line for each signature of which no output shows anything, () where that was accepted.
    nothing_shown: tuple[str, ...] = ()
    # Warnings, a line each.
    warnings: tuple[str, ...] = ()
    # {module:function: its value} of the user's functions that have bounds.
    functions: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def all_problems(self) -> tuple[str, ...]:
        """The reasons why the answers are wrong or show nothing, a line each."""
        return (*self.problems, *(miss.text() for miss in self.misses), *self.nothing_shown)


def judge(
    pairs: Iterable[Pair],
    arithmetic: str,
    own_data: Iterable[str],
    rules: Rules,
    labels: Labels | None = None,
    own_arithmetic: Mapping[str, str] = MappingProxyType({}),
) -> Judgement:
    """Compare answers and check them against their bounds.

    Args: pairs: (run.Call, {output: array} of the original, {output: array} of the other). arithmetic: key of thresholds.DEFAULTS.
      own_data: names of the signatures whose inputs are the user's. rules: Rules. labels: of the rows, for the user's functions.
      own_arithmetic: {signature: its arithmetic, where it is another}.
    Returns: Judgement. Raises: UsageError for bounds that fit no output.
    """
    watch, own_data = constancy.Watch(), set(own_data)
    functions_wanted = thresholds.functions(rules.bounds)
    kept: list[Pair] = []
    compared, broken = metrics.compare(
        _keeping(pairs, kept) if functions_wanted else pairs, rules.epsilon, watch, rules.kinds
    )
    functions = (
        {} if broken else {function.metric: _value(function.metric, kept, labels) for function in functions_wanted}
    )
    broken += [
        f"{function.metric} is {functions[function.metric]:.6g}, wanted {function.text(0.0).partition(' ')[2]}"
        for function in functions_wanted
        if function.metric in functions and not function.kept(functions[function.metric], 0.0)
    ]
    bounds = {
        comparison.name: thresholds.bounds(
            comparison,
            own_arithmetic.get(comparison.signature, arithmetic),
            comparison.signature in own_data,
            rules.bounds,
        )
        for comparison in compared
    }
    unknown = [name for name in rules.bounds if name not in ("", thresholds.LABELS, thresholds.FUNCTIONS, *bounds)]
    if unknown:
        raise errors.UsageError(f"--thresholds: no output {unknown[0]!r}", "outputs here: " + ", ".join(bounds))
    misses = [
        miss
        for comparison in compared
        for miss in thresholds.misses(comparison, bounds[comparison.name], rules.allow_matching_nonfinite)
    ]
    nothing, warnings = _shown(watch, own_data, rules)
    idle = [
        f"--thresholds: {metric} applies to no output here, and bounds nothing"
        for metric in thresholds.unused(rules.bounds, compared)
    ]
    return Judgement(
        comparisons=tuple(compared),
        bounds=bounds,
        misses=tuple(misses),
        problems=tuple(broken),
        nothing_shown=nothing,
        warnings=(*warnings, *idle),
        functions=functions,
    )


def _keeping(pairs: Iterable[Pair], kept: list[Pair]) -> Iterator[Pair]:
    """The same pairs, kept for functions that take all answers at once."""
    for pair in pairs:
        kept.append(pair)
        yield pair


def _value(function: str, kept: list[Pair], labels: Labels | None) -> float:
    calls, reference, answers = zip(*((call.signature, before, after) for call, before, after in kept), strict=True)
    return score.own(function, list(calls), list(reference), list(answers), labels, "", "--thresholds")


def _shown(watch: constancy.Watch, own_data: set[str], rules: Rules) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(nothing_shown, warnings) of a Judgement."""
    nothing, beside = watch.findings()
    beside = (*beside, *watch.hints(own_data - set(nothing)))
    if rules.allow_constant_outputs:
        return (), (*(f"{text} (accepted)" for text in nothing.values()), *beside)
    return tuple(f"{text}; {mend(signature in own_data)}" for signature, text in nothing.items()), beside


def mend(own_data: bool) -> str:
    """The mend if nothing was shown."""
    return f"give {'other ' if own_data else ''}--data for which the model answers something, or {ACCEPT}"
