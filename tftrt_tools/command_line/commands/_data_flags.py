"""The flags that say how --data is read, which every command with --data has; and the flags of labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.command_line.commands import _calibration_flags
from tftrt_tools.models.inputs import find, options
from tftrt_tools.models.inputs.options import DataOptions

if TYPE_CHECKING:
    from tftrt_tools.models.inputs.calls import Asked

KINDS = (
    ".npz (arrays named like inputs, or SIGNATURE/INPUT, rows in front), .npy (a signature's only input), pictures, TFRecords, .csv "
    "(columns named like inputs), .txt (a row a line, for inputs that take strings), a folder or glob of one of these, or "
    "module:function that yields {input: array} or (signature, {input: array})"
)


def define_reading(values: flags.FlagValues) -> None:
    """Define the flags that say how files of --data become rows, on FlagValues `values`, unless the flags of calibration data have
    defined them."""
    if "image_size" not in values:
        _calibration_flags.define_images(values)
    flags.DEFINE_integer(
        "data_rows",
        0,
        "rows of --data to read, of pictures spread over all files; 0 for all",
        lower_bound=0,
        flag_values=values,
    )


def define_labels(values: flags.FlagValues, what: str) -> None:
    """Define --labels and its further flags. Args: what: the purpose of the labels, the end of the help."""
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "labels",
        "",
        "the right answer of each row of --data, classes, numbers, masks or texts: .npy, .csv (a column, or "
        "rows FILE,LABEL for pictures), .txt (one a line), the word folders where each class of pictures has a folder, or "
        f"an .npz with boxes and classes (docs/judging.md); {what}",
        **text,
    )
    flags.DEFINE_string(
        "label_column",
        "",
        "the column of a .csv of --labels, by its name or its number from 1; by default the one called "
        "label, class, target or the like, else the last",
        **text,
    )
    flags.DEFINE_string(
        "classes",
        "",
        "a text file with a class's name in each line, in the model's order, for --labels that are "
        "names; by default the names that occur, sorted",
        **text,
    )


def reading(values: flags.FlagValues) -> DataOptions:
    """How files of --data are read. Raises: UsageError."""
    return options.checked_images(
        DataOptions(shapes=(values.shapes or "") if "shapes" in values else "", **_calibration_flags.images(values))
    )


def reading_beside(values: flags.FlagValues, calibration: DataOptions | None) -> tuple[DataOptions, DataOptions | None]:
    """How --data and the calibration data are read: if only one of them is pictures, the flags of pictures apply to that one.

    Args: calibration: of the flags of calibration data, or None. Returns: (of --data, of the calibration). Raises: UsageError.
    """
    asked = reading(values)
    if not options.image_flags(asked) or not values.data or not calibration or not calibration.source:
        return asked, calibration
    kinds = [find.find(values.data, "--data").kind, find.find(calibration.source).kind]
    if kinds.count("images") != 1:
        return asked, calibration
    return (
        (asked, options.without_images(calibration))
        if kinds[0] == "images"
        else (options.without_images(asked), calibration)
    )


def asked(values: flags.FlagValues, read: DataOptions | None = None) -> Asked:
    """What calls are made of, by --data, --data_rows, --shapes, --ranges and --seed. Args: read: how files are read, by default as
    `reading` says. Raises: UsageError."""
    from tftrt_tools.models.inputs.calls import Asked

    return Asked(
        data=values.data,
        reading=reading(values) if read is None else read,
        data_rows=values.data_rows,
        shapes=values.shapes,
        ranges=values.ranges,
        seed=values.seed,
    )
