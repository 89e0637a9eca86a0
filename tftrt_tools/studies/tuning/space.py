"""The settings that are tried: precision, nodes in a higher precision, segment size, profile strategy. And how settings are written for
people."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from tftrt_tools.base import choices, records, stack, terminal
from tftrt_tools.models.backends.recipe import Recipe
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.studies import backends
from tftrt_tools.tftrt.calibration.methods import AUTO
from tftrt_tools.tftrt.conversion.plan import Plan
from tftrt_tools.tftrt.conversion.settings import CALIBRATION, Settings

# The back end that is meant where none is named.
DEFAULT = backends.default().name
IMPLICIT: Literal["implicit"] = "implicit"


# {signature: [{input: shape}]} of --shapes.
Calls = Mapping[str, Sequence[Mapping[str, tuple[int, ...]]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Space:
    """What a search may try."""

    # Everything that is not searched.
    base: Settings
    # In the order to try, with each back end.
    precisions: tuple[choices.Precision, ...] = choices.PRECISIONS
    # Names, in the order to try.
    backends: tuple[str, ...] = (DEFAULT,)
    # Those that are tried last and cannot win, because what has to serve the winner does not run what they make.
    compared: tuple[str, ...] = ()
    # Minimum segment sizes that give other segments than the base's.
    sizes: tuple[int, ...] = ()
    # Profile strategies besides the base's, "implicit" for implicit batch.
    strategies: tuple[str, ...] = ()
    # {back end: calibration methods besides the base's, in the order to try}.
    methods: Mapping[str, tuple[choices.CalibrationMethod, ...]] = dataclasses.field(default_factory=dict)
    # For the calibration method "percentile".
    percentile: float = Settings().calibration_percentile


def with_precision(base: Settings, precision: choices.Precision) -> Settings:
    """Settings of the base in a precision, without nodes in a higher one; only INT8 keeps the calibration settings."""
    default = Settings()
    reset = {} if precision == "INT8" else {name: getattr(default, name) for name in CALIBRATION}
    return dataclasses.replace(base, precision_mode=precision, high_precision_nodes="", fp32_nodes="", **reset)


def with_method(settings: Settings, method: choices.CalibrationMethod, percentile: float) -> Settings:
    """INT8 settings with another calibration method. Args: percentile: of the methods "percentile" and "auto"; the others have none."""
    return dataclasses.replace(
        settings,
        calibration_method=method,
        calibration_percentile=percentile if method in (AUTO, "percentile") else Settings().calibration_percentile,
    )


def with_high(settings: Settings, nodes: Iterable[str], backend: str = DEFAULT) -> Settings:
    """Settings that keep `nodes` (by the names that the back end ranks) in a higher precision, as it does that."""
    field = backends.named(backend).keeps_high[settings.precision_mode]
    kept: dict[str, Any] = {field: "|".join(re.escape(name) for name in sorted(nodes))}
    return dataclasses.replace(settings, **kept)


def with_strategy(settings: Settings, name: choices.Strategy | Literal["implicit"]) -> Settings:
    """Settings with another profile strategy, or "implicit"."""
    if name == IMPLICIT:
        return dataclasses.replace(settings, use_dynamic_shape=False, dynamic_shape_profile_strategy=None)
    return dataclasses.replace(settings, use_dynamic_shape=None, dynamic_shape_profile_strategy=name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Int8As(Settings):
    """Settings with the option of a plan that leaves INT8 out where TensorRT would not choose it."""

    int8_as: str = "auto"


def with_int8_as(settings: Settings) -> Int8As:
    """INT8 settings with --int8_as=auto."""
    fields = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return Int8As(**fields)


def strategies(settings: Settings, calls: Calls) -> tuple[str, ...]:
    """The strategies besides that of `settings` which can serve its shapes.

    Args: calls: {signature: [{input: shape}]} of --shapes. Implicit batch needs inputs whose shapes differ in the first dimension only, and
      a TensorRT that has it.
    """
    ranged = shape_grammar.is_range(settings.shapes)
    found = ["Range", "Range+Optimal"] if ranged else ["Optimal", "Range"]
    if stack.has_implicit_batch() and all(_only_batch_differs(listed) for listed in calls.values()):
        found.append(IMPLICIT)
    several = any(len(listed) > 1 for listed in calls.values())
    return tuple(name for name in found if name != (settings.strategy or IMPLICIT) and (several or name == IMPLICIT))


def _only_batch_differs(calls: Sequence[Mapping[str, tuple[int, ...]]]) -> bool:
    tails = {tuple((name, shape[1:]) for name, shape in sorted(call.items())) for call in calls}
    return len(tails) == 1 and all(shape for call in calls for shape in call.values())


def sizes(plan: Plan, current: int) -> tuple[int, ...]:
    """Minimum segment sizes that make other segments than `current` and leave at least one engine: first the larger ones, upwards.

    Args: plan: conversion.plan.Plan of the model at `current`.
    """
    found: set[int] = set()
    for signature in plan.signatures:
        here = next((one for one in signature.sizes if one.holds(current)), None)
        found |= {one.low for one in signature.sizes if one.engines and one is not here}
    return tuple(sorted(size for size in found if size > current)) + tuple(
        sorted((size for size in found if size < current), reverse=True)
    )


def text(settings: Settings, high: Sequence[str] = (), backend: str = DEFAULT) -> str:
    """The searched settings for people: "INT8 by mse, 2 nodes high, size 10, Range"; or "plan, INT8 by mse, 2 nodes high"."""
    by = "" if settings.calibration_method == Settings().calibration_method else f" by {settings.calibration_method}"
    by_whom = backends.named(backend)
    parts = [by_whom.title] * bool(by_whom.title) + [settings.precision_mode + by]
    if high:
        parts.append(f"{terminal.counted(len(high), 'node')} high")
    if isinstance(settings, Int8As):
        parts.append("only where TensorRT chooses INT8")
    if not by_whom.has_segments:
        return ", ".join(parts)
    if settings.minimum_segment_size != Settings().minimum_segment_size:
        parts.append(f"size {settings.minimum_segment_size}")
    parts.append(settings.strategy or IMPLICIT)
    return ", ".join(parts)


def flag_lines(settings: Recipe) -> list[str]:
    """The flags of `tftrt convert` that give these settings of a back end, one a line; defaults are left out."""
    default = type(settings)()
    return [
        _line(records.flag(field), getattr(settings, field.name))
        for field in dataclasses.fields(settings)
        if getattr(settings, field.name) != getattr(default, field.name)
    ]


def _line(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no{name}"
    return f"--{name}={','.join(value) if isinstance(value, tuple) else value}"
