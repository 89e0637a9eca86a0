"""usage: tftrt data MODEL SOURCE --output=FILE.npz [--flags]

Writes input rows in the model's form, for --data, --labels and --calibration_data of the other commands. SOURCE is pictures, TFRecords of
tf.train.Example, .npz or .npy files, tables, text, a folder or glob of one of these, or module:function that yields batches.

--output_labels gets the classes: from the folder of each picture, from a feature of the TFRecords, or from the file that --labels names.
--output_calibration gets other rows: no row is in both files. If you ask for fewer rows than there are, pictures are spread evenly
over all files, and other sources give their first rows.

examples:
  tftrt data resnet validation/ --image_scale=1/255 --output=scored.npz --output_labels=labels.npy
  tftrt data resnet pictures/ --data_rows=2000 --output=scored.npz --output_calibration=calibration.npz --calibration_rows=500
  tftrt data resnet images.npz --labels=classes.npy --output=scored.npz --output_labels=labels.npy --output_calibration=calibration.npz
  tftrt data ranker 'day-*.tfrecord' --data_rows=1000 --output=scored.npz --label_feature=clicked --output_labels=labels.npy
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _calibration_flags, _flags, _next, _output, _source_flags
from tftrt_tools.models.savedmodel import passport

if TYPE_CHECKING:
    from tftrt_tools.models.inputs.export import Wanted, Written

OUTPUTS = ("output", "output_labels", "output_calibration")
_CLASSES, _FAILED = 12, 5


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("output", None, "the .npz to write, an array for each input", **text)
    flags.DEFINE_string(
        "output_labels",
        None,
        "the .npy for the rows' classes: of pictures the folder directly below SOURCE, counted "
        "from 0 in alphabetical order",
        **text,
    )
    flags.DEFINE_string("output_calibration", None, "another .npz, with --calibration_rows other rows", **text)
    flags.DEFINE_integer(
        "data_rows", 0, "rows of --output, of pictures spread over all files; 0 for all", lower_bound=0, **text
    )
    flags.DEFINE_integer(
        "calibration_rows",
        None,
        "rows of --output_calibration; by default 500, without --data_rows a quarter of all if that is less",
        lower_bound=1,
        **text,
    )
    flags.DEFINE_string(
        "labels",
        "",
        "the right answer of each row of SOURCE, as --labels of `tftrt verify` takes them: --output_labels "
        "gets those of the rows in --output",
        **text,
    )
    flags.DEFINE_string(
        "label_column", "", "the column of a .csv of --labels, by its name or its number from 1", **text
    )
    flags.DEFINE_string(
        "classes",
        "",
        "a text file with a folder's name in each line, or of --labels a class's, in the order of the "
        "model's classes, for --output_labels",
        **text,
    )
    flags.DEFINE_string("label_feature", "", "the feature of TFRecords that is the class, an integer", **text)
    flags.DEFINE_string(
        "signature_keys", "", "the signature that the rows are for, by default serving_default or the only one", **text
    )
    flags.DEFINE_string(
        "shapes",
        "",
        "the length of the rows of TFRecords if the signature does not say it, as in `tftrt convert`",
        **text,
    )
    flags.DEFINE_boolean("overwrite", False, "replace files that are there", **text)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow logs in this file", **text)
    _calibration_flags.define_images(values)
    _source_flags.define(values)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Write. Returns: the exit code."""
    model, source = _flags.arguments("data", positional, ["MODEL", "SOURCE"])
    wanted = _wanted(values, source)
    from tftrt_tools.models.inputs import export

    with progress.on_terminal():
        done = export.export(_source_flags.read(values, model), wanted, values.log_file, values.overwrite)
    _print(done, values.json)
    _output.write_json(done, values.json)
    _show_next(values, model)
    return errors.EXIT_DONE


def _show_next(values: flags.FlagValues, model: str) -> None:
    data = [f"--data={values.output}", *([f"--labels={values.output_labels}"] if values.output_labels else [])]
    if passport.read(model, passport.MANIFEST):
        if original := _next.original(model):
            _next.show_verify(values, original, model, *data)
        return
    calibration = [f"--calibration_data={values.output_calibration}"] if values.output_calibration else []
    convert = _next.convert(values, model, "INT8" if calibration else "FP16", *calibration, settings=False)
    _next.show(values, convert, _next.verify(values, model, _next.output_of(convert), *data))


def _wanted(values: flags.FlagValues, source: str) -> Wanted:
    from tftrt_tools.models.inputs import labels, options
    from tftrt_tools.models.inputs.export import Wanted

    if not source:
        raise errors.UsageError("SOURCE is empty", "name a file, a folder, a glob or module:function")
    if not values.output:
        raise errors.UsageError("--output is missing", "name the .npz to write")
    for flag, ending in (("output", ".npz"), ("output_labels", ".npy"), ("output_calibration", ".npz")):
        path = values[flag].value
        if path and pathlib.Path(path).suffix.lower() != ending:
            raise errors.UsageError(f"--{flag}={path}: {ending} is what is written", f"name it FILE{ending}")
        if path and pathlib.Path(path).exists() and not values.overwrite:
            raise errors.UsageError(f"{path} is there", "name another file, or add --overwrite")
    if values.label_column and not values.labels:
        raise errors.UsageError("--label_column has no effect without --labels", "leave it out")
    if values["calibration_rows"].present and not values.output_calibration:
        raise errors.UsageError(
            "--calibration_rows has no effect without --output_calibration", "name that file, or leave it out"
        )
    given = options.checked(
        options.DataOptions(source=source, shapes=values.shapes, **_calibration_flags.images(values))
    )
    return Wanted(
        options=given,
        output=values.output,
        signature=values.signature_keys,
        rows=values.data_rows,
        labels=values.output_labels or "",
        calibration=values.output_calibration or "",
        calibration_rows=values.calibration_rows or 0,
        label_feature=values.label_feature,
        classes=labels.class_names(values.classes),
        answers=values.labels,
        label_column=values.label_column,
    )


def _print(done: Written, json_path: str | None) -> None:
    console = _output.console(json_path)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    wanted = done.wanted
    inputs = ", ".join(f"{name} {shape}" for name, shape in done.inputs.items())
    say(
        f"{wanted.output}: {terminal.counted(done.rows, 'row')} for {wanted.signature}: {inputs}, {done.bytes / 1e6:.3g} MB"
    )
    if done.classes:
        named = ", ".join(
            " ".join(filter(None, (str(one.index), one.name, f"({one.rows})"))) for one in done.classes[:_CLASSES]
        )
        say(
            f"{wanted.labels}: {len(done.classes)} classes (rows): {named}{', …' if len(done.classes) > _CLASSES else ''}"
        )
    if wanted.calibration:
        say(f"{wanted.calibration}: {terminal.counted(done.calibration_rows, 'other row')}")
    if done.in_both:
        say(
            f"  warning: {terminal.counted(done.in_both, 'row')} equal to one that is scored: left out of the calibration"
        )
    if done.failed:
        say(
            f"  warning: {terminal.counted(len(done.failed), 'picture')} could not be decoded: "
            + ", ".join(done.failed[:_FAILED])
            + (", …" if len(done.failed) > _FAILED else "")
        )
