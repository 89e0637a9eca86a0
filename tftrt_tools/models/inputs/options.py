"""What calibration data to read and how; the values of the flags. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from tftrt_tools.base import errors, records

IMAGE_RESIZE = ("stretch", "crop", "pad")
IMAGE_CHANNELS = ("RGB", "BGR")
# The modes of tf.keras.applications.imagenet_utils.preprocess_input (Keras 2.14): how each changes pixels from 0 to 255.
IMAGE_PRESETS = {
    "tf": {"image_scale": 1 / 127.5, "image_mean": (1.0,)},
    "caffe": {"image_mean": (103.939, 116.779, 123.68), "image_channels": "BGR"},
    "torch": {"image_scale": 1 / 255, "image_mean": (0.485, 0.456, 0.406), "image_std": (0.229, 0.224, 0.225)},
}


# {field: its flag}, where that has another name.
_FLAGS = {
    "source": "calibration_data",
    "batch_size": "calibration_batch_size",
    "batches": "num_calibration_batches",
    "random": "calibrate_on_random_data",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions(records.Record):
    """What data to read and how."""

    # Path, glob or module:function.
    source: str = ""
    # Rows of a batch, and the most batches to read, 0 for all.
    batch_size: int = 8
    batches: int = 0
    # Draw from `seed` instead of reading, at `shapes` and from `ranges`.
    seed: int = 0
    random: bool = False
    # Texts of --shapes and --ranges; `shapes` also says how long the rows of TFRecords are where the signature does not.
    shapes: str = ""
    ranges: str = ""
    # The size of pictures: "HxW" in pixels, "" for the signature's.
    image_size: str = ""
    # "stretch", "crop" (cover the size, cut the middle out) or "pad" (fit into the size, black borders).
    image_resize: str = "stretch"
    # A pixel becomes (x * image_scale - image_mean) / image_std, with one value or one a channel.
    image_scale: float = 1.0
    image_mean: tuple[float, ...] = ()
    image_std: tuple[float, ...] = ()
    # The order of the channels.
    image_channels: str = "RGB"
    # Files that may fail to decode.
    image_error_limit: int = 0

    def flag_lines(self) -> list[str]:
        """The flags of calibration data that differ from their defaults, one a line, for a flag file. `shapes` is another flag's."""
        lines = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value == field.default or field.name == "shapes":
                continue
            text = ",".join(map(repr, value)) if isinstance(value, tuple) else value
            flag = _FLAGS.get(field.name, field.name)
            lines.append(f"--{flag}" if value is True else f"--{flag}={text}")
        return lines


def checked(options: DataOptions) -> DataOptions:
    """The options, if they can work. Raises: UsageError."""
    if options.source and options.random:
        raise errors.UsageError(
            "--calibration_data and --calibrate_on_random_data exclude each other", "give one of them"
        )
    if not options.source and not options.random:
        raise errors.UsageError(
            "--calibration_data is missing",
            "name representative inputs; --calibrate_on_random_data does without, with useless ranges",
        )
    if options.ranges and not options.random:
        raise errors.UsageError("--ranges is about random data, and --calibration_data is given", "leave it out")
    for flag, value, least in (
        ("calibration_batch_size", options.batch_size, 1),
        ("num_calibration_batches", options.batches, 0),
    ):
        if value < least:
            raise errors.UsageError(f"--{flag} is {value}", f"give {least} or more")
    return checked_images(options)


def checked_images(options: DataOptions) -> DataOptions:
    """The options, if those for pictures can work. Raises: UsageError."""
    if options.image_error_limit < 0:
        raise errors.UsageError(f"--image_error_limit is {options.image_error_limit}", "give 0 or more")
    for flag, value, words in (
        ("image_resize", options.image_resize, IMAGE_RESIZE),
        ("image_channels", options.image_channels, IMAGE_CHANNELS),
    ):
        if value not in words:
            raise errors.UsageError(f"--{flag}={value} is unknown", "known: " + ", ".join(words))
    for flag, values in (("image_mean", options.image_mean), ("image_std", options.image_std)):
        if len(values) not in (0, 1, 3):
            raise errors.UsageError(f"--{flag} has {len(values)} values", "give one, or one for each channel")
    if 0 in options.image_std:
        raise errors.UsageError(
            "--image_std holds 0", "it is divided by: give the standard deviation of the training images"
        )
    size(options)
    return options


def size(options: DataOptions) -> tuple[int, int] | None:
    """(height, width) of --image_size, or None. Raises: UsageError."""
    if not options.image_size:
        return None
    match = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", options.image_size)
    if not match:
        raise errors.UsageError(
            f"--image_size={options.image_size} is no size", "write --image_size=HEIGHTxWIDTH, e.g. 224x224"
        )
    return int(match[1]), int(match[2])


def image_flags(options: DataOptions) -> list[str]:
    """The flags of images that differ from their defaults."""
    return [
        "--" + field.name
        for field in dataclasses.fields(DataOptions)
        if field.name.startswith("image_") and getattr(options, field.name) != field.default
    ]


def without_images(options: DataOptions) -> DataOptions:
    """The options, with the defaults for pictures."""
    plain: dict[str, Any] = {
        field.name: field.default for field in dataclasses.fields(DataOptions) if field.name.startswith("image_")
    }
    return dataclasses.replace(options, **plain)


def check_image_flags(options: DataOptions, kind: str) -> None:
    """Raise UsageError if flags for pictures are given with data of another kind (of find.Found)."""
    flags = image_flags(options)
    if flags and kind != "images":
        raise errors.UsageError(
            f"{flags[0]} is about picture files, and the data is {kind}", "leave it out, or prepare the data so"
        )
