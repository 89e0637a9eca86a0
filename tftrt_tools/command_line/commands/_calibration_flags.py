"""The flags of calibration data; every command that calibrates has them."""

from __future__ import annotations

import fractions
import math
from typing import TYPE_CHECKING, Any

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import options as options_module
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.tftrt.calibration import methods

if TYPE_CHECKING:
    from collections.abc import Sequence

_OF_PRESETS = ("image_scale", "image_mean", "image_std", "image_channels")


# Names of the flags of `define_method`.
METHOD = ("calibration_method", "calibration_percentile")
# Flags of random inputs.
OF_RANDOM = ("ranges", "seed")


def define(values: flags.FlagValues) -> None:
    """Define the flags on FlagValues `values`."""
    default = DataOptions()
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "calibration_data",
        default.source,
        "representative inputs: .npz (arrays named like inputs, or SIGNATURE/INPUT, "
        "rows in front), .npy (a signature's only input), TFRecords of tf.train.Example, pictures, .csv, .txt, a folder "
        "or glob of one of these, or module:function that yields batches",
        **text,
    )
    flags.DEFINE_integer("calibration_batch_size", default.batch_size, "rows of a batch", lower_bound=1, **text)
    flags.DEFINE_integer(
        "num_calibration_batches",
        default.batches,
        "batches to use, of pictures spread over all files; 0 for all",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_boolean(
        "calibrate_on_random_data",
        default.random,
        "calibrate on random inputs: shows that it works, and gives useless ranges",
        **text,
    )
    flags.DEFINE_string(
        "ranges",
        default.ranges,
        "ranges of random inputs, INPUT:LOW:HIGH;…; by default what the "
        "graph tells, else floats are standard normal and integers 0 or 1",
        **text,
    )
    flags.DEFINE_integer("seed", default.seed, "seed of random inputs", lower_bound=0, **text)
    define_images(values)


def define_method(values: flags.FlagValues) -> None:
    """Define the flags of the toolkit's calibration method on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "calibration_method",
        methods.AUTO,
        "the toolkit's method: entropy (as TensorRT's), percentile, mse or max; auto takes the one with the smallest "
        "error when INT8 is simulated on part of the calibration data",
        **text,
    )
    flags.DEFINE_float("calibration_percentile", methods.PERCENTILE, "of |x|, for the method percentile", **text)


def image_names() -> list[str]:
    """Names of the flags of `define_images`."""
    return [name for name in names() if name.startswith("image_")]


def define_images(values: flags.FlagValues) -> None:
    """Define the flags of pictures on FlagValues `values`."""
    default, text = DataOptions(), dict(flag_values=values)
    flags.DEFINE_string(
        "image_size", default.image_size, "HEIGHTxWIDTH of pictures, by default the signature's", **text
    )
    flags.DEFINE_enum(
        "image_resize",
        default.image_resize,
        options_module.IMAGE_RESIZE,
        "how pictures come to that size: stretched; "
        "resized to cover it and cropped in the middle; or fitted in and padded with black",
        **text,
    )
    flags.DEFINE_enum(
        "image_preset",
        None,
        list(options_module.IMAGE_PRESETS),
        "scale, mean, std and order of the channels as tf.keras.applications' preprocess_input has them in that mode",
        **text,
    )
    flags.DEFINE_string(
        "image_scale", "1", "factor on pixels (0 to 255), a number or a fraction, e.g. 1/255 or 1/127.5", **text
    )
    flags.DEFINE_list("image_mean", [], "subtracted after scaling; one value, or one a channel", **text)
    flags.DEFINE_list("image_std", [], "divided by last; one value, or one a channel", **text)
    flags.DEFINE_enum(
        "image_channels",
        default.image_channels,
        options_module.IMAGE_CHANNELS,
        "order of the channels that the model takes",
        **text,
    )
    flags.DEFINE_integer(
        "image_error_limit", default.image_error_limit, "pictures that may fail to decode", lower_bound=0, **text
    )


def names() -> list[str]:
    """Names of these flags."""
    known = flags.FlagValues()
    define(known)
    return list(known)


def given(values: flags.FlagValues, compares: bool = False) -> list[str]:
    """Names of these flags that the user gave; without those of pictures if --data takes them. Args: compares: whether the command compares
    on random inputs, too: then --ranges and --seed are not of the calibration alone."""
    known = [name for name in names() if not (compares and name in OF_RANDOM)]
    if "data_rows" in values:
        images = flags.FlagValues()
        define_images(images)
        known = [name for name in known if name not in images]
    return [name for name in known if name in values and values[name].present]


def read(values: flags.FlagValues, compares: bool = False) -> DataOptions:
    """DataOptions from the flags, with the text of --shapes if the command has it. Args: compares: as for `given`.

    Raises: UsageError, also if neither --calibration_data nor --calibrate_on_random_data is given.
    """
    is_random = values.calibrate_on_random_data
    return options_module.checked(
        DataOptions(
            source=values.calibration_data or "",
            batch_size=values.calibration_batch_size,
            batches=values.num_calibration_batches,
            seed=values.seed if is_random or not compares else 0,
            random=is_random,
            shapes=(values.shapes or "") if "shapes" in values else "",
            ranges=(values.ranges or "") if is_random or not compares else "",
            **images(values),
        )
    )


def images(values: flags.FlagValues) -> dict[str, Any]:
    """The fields of DataOptions that say how pictures are read. Raises: UsageError."""
    found: dict[str, Any] = {
        "image_size": values.image_size or "",
        "image_resize": values.image_resize,
        "image_scale": _number("image_scale", values.image_scale),
        "image_mean": _numbers("image_mean", values.image_mean),
        "image_std": _numbers("image_std", values.image_std),
        "image_channels": values.image_channels,
        "image_error_limit": values.image_error_limit,
    }
    if not values.image_preset:
        return found
    preset: Any = options_module.IMAGE_PRESETS[values.image_preset]
    for name in _OF_PRESETS:
        if values[name].present:
            raise errors.UsageError(
                f"--image_preset and --{name} exclude each other",
                f"{values.image_preset} is " + ", ".join(f"{key} {value}" for key, value in preset.items()),
            )
    return {**found, **preset}


def _numbers(flag: str, given: Sequence[str]) -> tuple[float, ...]:
    return tuple(_number(flag, part) for part in given if part)


def _number(flag: str, text: str) -> float:
    """A decimal number or a fraction such as 1/255 or 1/127.5."""
    try:
        above, _, below = text.partition("/")
        number = float(fractions.Fraction(above.strip()) / fractions.Fraction(below.strip() or 1))
    except (ValueError, ZeroDivisionError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise errors.UsageError(f"--{flag}: {text!r} is no number", "e.g. 0.5, 1e-3, 1/255 or 1/127.5")
    return number
