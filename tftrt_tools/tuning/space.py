"""The settings that are tried: precision, nodes kept high, segment size, profile strategy. And how settings are written for people."""

import dataclasses
import re

from tftrt_tools.calibration.methods import AUTO
from tftrt_tools.conversion.settings import CALIBRATION, KEEPS_HIGH, Settings
from tftrt_tools.savedmodel import shapes as shape_grammar

IMPLICIT = "implicit"


@dataclasses.dataclass(frozen=True)
class Space:
    """What a search may try. base: Settings of everything that is not searched; precisions: in the order to try; sizes: minimum segment
    sizes that give other segments than the base's; strategies: profile strategies besides the base's, "implicit" for implicit batch;
    methods: calibration methods besides the base's, in the order to try; percentile: of the method of that name."""

    base: Settings
    precisions: tuple = ("FP32", "FP16", "INT8")
    sizes: tuple = ()
    strategies: tuple = ()
    methods: tuple = ()
    percentile: float = Settings().calibration_percentile


def with_precision(base, precision):
    """Settings of the base in a precision, no nodes kept high; how INT8 is calibrated stays in INT8's alone."""
    default = Settings()
    reset = {} if precision == "INT8" else {name: getattr(default, name) for name in CALIBRATION}
    return dataclasses.replace(base, precision_mode=precision, high_precision_nodes="", fp32_nodes="", **reset)


def with_method(settings, method, percentile):
    """INT8 settings with another calibration method. Args: percentile: of the methods "percentile" and "auto"; the others have none."""
    return dataclasses.replace(settings, calibration_method=method,
                               calibration_percentile=percentile if method in (AUTO, "percentile") else Settings().calibration_percentile)


def with_high(settings, nodes):
    """Settings that keep `nodes` (names) in the next higher precision: of INT8 in the same engines, of FP16 in FP32 engines."""
    return dataclasses.replace(settings, **{KEEPS_HIGH[settings.precision_mode]: "|".join(re.escape(name) for name in sorted(nodes))})


def with_strategy(settings, name):
    """Settings with another profile strategy, or "implicit"."""
    if name == IMPLICIT:
        return dataclasses.replace(settings, use_dynamic_shape=False, dynamic_shape_profile_strategy=None)
    return dataclasses.replace(settings, use_dynamic_shape=None, dynamic_shape_profile_strategy=name)


def strategies(settings, calls):
    """The strategies besides that of `settings` which can serve its shapes.

    Args: calls: {signature: [{input: shape}]} of --shapes. Implicit batch needs inputs whose shapes differ in the first dimension only.
    """
    ranged = shape_grammar.is_range(settings.shapes)
    found = ["Range", "Range+Optimal"] if ranged else ["Optimal", "Range"]
    if all(_only_batch_differs(listed) for listed in calls.values()):
        found.append(IMPLICIT)
    several = any(len(listed) > 1 for listed in calls.values())
    return tuple(name for name in found if name != (settings.strategy or IMPLICIT) and (several or name == IMPLICIT))


def _only_batch_differs(calls):
    tails = {tuple((name, shape[1:]) for name, shape in sorted(call.items())) for call in calls}
    return len(tails) == 1 and all(shape for call in calls for shape in call.values())


def sizes(plan, current):
    """Minimum segment sizes that make other segments than `current` and leave at least one engine, larger ones first upwards.

    Args: plan: conversion.plan.Plan of the model at `current`.
    """
    found = set()
    for signature in plan.signatures:
        here = next((one for one in signature.sizes if one.holds(current)), None)
        found |= {one.low for one in signature.sizes if one.engines and one is not here}
    return tuple(sorted(size for size in found if size > current)) + tuple(sorted((size for size in found if size < current), reverse=True))


def text(settings, high=()):
    """The searched settings for people: "INT8 by mse, 2 nodes high, size 10, Range"."""
    by = "" if settings.calibration_method == Settings().calibration_method else f" by {settings.calibration_method}"
    parts = [settings.precision_mode + by]
    if high:
        parts.append(f"{len(high)} node{'' if len(high) == 1 else 's'} high")
    if settings.minimum_segment_size != Settings().minimum_segment_size:
        parts.append(f"size {settings.minimum_segment_size}")
    parts.append(settings.strategy or IMPLICIT)
    return ", ".join(parts)


def flag_lines(settings):
    """The flags of `tftrt convert` that give these settings, one a line; defaults are left out."""
    default = Settings()
    return [_line(field.name, getattr(settings, field.name)) for field in dataclasses.fields(Settings)
            if getattr(settings, field.name) != getattr(default, field.name)]


def _line(name, value):
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no{name}"
    return f"--{name}={','.join(value) if isinstance(value, tuple) else value}"
