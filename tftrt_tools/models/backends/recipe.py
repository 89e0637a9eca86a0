"""The recipe of a model: what is wanted of whoever builds it. Each back end's settings are a Recipe with options of its own.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Settings(recipe.Recipe):
        threads: int = records.field(default=1, help="threads that the build may use")

Fields with `help` become flags of the commands that build (command_line/commands/_record_flags.py).
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final, TypeVar

from tftrt_tools.base import choices, errors, records
from tftrt_tools.base.choices import CalibrationMethod, Precision

# The calibration method that harms the outputs least in the simulation of INT8; and the percentile of |x| for "percentile".
AUTO: Final = "auto"
PERCENTILE = 99.99
# The fields that say where INT8's ranges are from; they have no effect in another precision.
RANGES = ("calibration_table", "calibration_method", "calibration_percentile")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(records.Record):
    """What the user wants of a model, for any back end."""

    precision_mode: Precision = records.field(
        default="FP32", flag="precision", help="precision of the engines: FP32 (TF32 on Ampere and later), FP16 or INT8"
    )
    # () for all of them.
    signature_keys: tuple[str, ...] = records.field(
        default=(), help="signatures to convert, by default all; the others are kept as they are"
    )
    # "" builds for no shape.
    shapes: str = records.field(
        default="",
        help="shapes to build engines for (GPU): 'x:1x224x224x3,8x224x224x3'; several inputs "
        "'ids:1x128,8x128;mask:1x128,8x128'; SIGNATURE/INPUT picks one signature; 'scalar' for rank 0",
    )
    freeze: str = records.field(
        default="",
        help="inputs that become constants, such as training:false; several separated by ';'; SIGNATURE/INPUT:VALUE for one signature",
    )
    # 0 for as much as there is.
    max_workspace_size_bytes: int = records.field(
        default=0, help="scratch GPU memory of an engine; by default no limit"
    )
    # Of node names; "" keeps none.
    fp32_nodes: str = records.field(
        default="", help="regular expression: matching nodes go to FP32 engines, the rest follows --precision"
    )
    # Path; "" to calibrate.
    calibration_table: str = records.field(
        default="",
        help="INT8: a calibration file to reuse (of `tftrt calibrate`, `tftrt table`, or a converted model) in place of data",
    )
    calibration_method: CalibrationMethod = records.field(
        default=AUTO,
        help="the toolkit's method: entropy (as TensorRT's), percentile, mse or max; auto takes the one with the smallest "
        "error when INT8 is simulated on part of the calibration data",
    )
    # In (50, 100].
    calibration_percentile: float = records.field(default=PERCENTILE, help="of |x|, for the method percentile")


Settings = TypeVar("Settings", bound=Recipe)


def recast(settings: Recipe, kind: type[Settings]) -> Settings:
    """The recipe of another back end's settings; what is a default there is one here.

    Args: kind: the settings to make. Returns: them, with defaults for the options of their own.
    """
    if type(settings) is kind:
        return settings
    default = type(settings)()
    given = {field.name: getattr(settings, field.name) for field in dataclasses.fields(Recipe)}
    return kind(**{name: value for name, value in given.items() if value != getattr(default, name)})


def options(kind: type[Recipe]) -> tuple[str, ...]:
    """Names of the fields that a back end has beside the recipe's."""
    shared = {one.name for one in dataclasses.fields(Recipe)}
    return tuple(one.name for one in dataclasses.fields(kind) if one.name not in shared)


def checked(settings: Settings) -> Settings:
    """`settings` with the precision in capitals. Raises: UsageError for what can never work in the recipe; options are their back end's."""
    precision = next((word for word in choices.PRECISIONS if word == settings.precision_mode.upper()), None)
    if precision is None:
        raise errors.UsageError(
            f"--precision={settings.precision_mode.upper()} is unknown", "use one of " + ", ".join(choices.PRECISIONS)
        )
    settings = dataclasses.replace(settings, precision_mode=precision)
    _check_method(settings)
    if precision != "INT8":
        check_unused(settings, RANGES, f"--precision={precision}", "use --precision=INT8, or leave it out")
    check_expression("fp32_nodes", settings.fp32_nodes)
    return settings


def _check_method(settings: Recipe) -> None:
    if settings.calibration_method not in choices.CALIBRATION_METHODS:
        raise errors.UsageError(
            f"--calibration_method={settings.calibration_method} is unknown",
            "use one of " + ", ".join(choices.CALIBRATION_METHODS),
        )
    if not 50 < settings.calibration_percentile <= 100:
        raise errors.UsageError(
            f"--calibration_percentile={settings.calibration_percentile:g} is not between 50 and 100", "e.g. 99.99"
        )
    if settings.calibration_percentile != PERCENTILE and settings.calibration_method not in (AUTO, "percentile"):
        raise errors.UsageError(
            f"--calibration_percentile has no effect with --calibration_method={settings.calibration_method}",
            "add --calibration_method=percentile, or leave it out",
        )


def check_unused(settings: Recipe, names: tuple[str, ...], beside: str, fix: str) -> None:
    """Refuse fields that have no effect. Args: beside: what makes them so, as a flag. Raises: UsageError."""
    default = type(settings)()
    for name in names:
        if getattr(settings, name) != getattr(default, name):
            raise errors.UsageError(f"--{name} has no effect with {beside}", fix)


def check_expression(name: str, pattern: str) -> None:
    """Raise UsageError for what is no regular expression. Args: name: of the flag."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise errors.UsageError(
            f"--{name}={pattern} is no regular expression: {error}", "see Python's `re` syntax"
        ) from None
