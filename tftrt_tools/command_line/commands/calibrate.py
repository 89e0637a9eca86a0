"""usage: tftrt calibrate MODEL --calibration_data=DATA --output=FILE [--flags]
       tftrt calibrate MODEL --calibration_data=DATA --compare_methods [--output=FILE] [--flags]

Finds the range of every tensor in the INT8 engines that `tftrt convert` would make of MODEL. It runs the model on representative data and
writes the ranges to a calibration file for `tftrt convert --calibration_table`. It needs no GPU. `tftrt table` shows, compares, merges
and edits such files.

MODEL is a SavedModel or a Keras file (.keras, .h5): give the same flags as for the conversion, because they decide the engines. MODEL may
also be a converted model of any precision: its own engines are calibrated then.

--compare_methods prints the SNR of each output in INT8 for every calibration method. INT8 is simulated on batches of DATA that were not
used to find the ranges.

examples:
  tftrt calibrate resnet --calibration_data=images/ --image_scale=1/255 --output=resnet.calibration.json
  tftrt calibrate resnet --calibration_data=images/ --image_scale=1/255 --compare_methods
  tftrt calibrate encoder --calibration_data='day-*.npz' --use_dynamic_shape --output=encoder.calibration.json
  tftrt calibrate resnet_fp16 --calibration_data=my_data:batches --output=resnet.calibration.json --overwrite
  tftrt convert resnet resnet_int8 --precision=INT8 \\
      --calibration_table=resnet.calibration.json
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _calibration_flags, _comparison, _flags, _next, _output, _source_flags
from tftrt_tools.command_line.commands import convert as convert_command
from tftrt_tools.models.savedmodel import passport

if TYPE_CHECKING:
    from tftrt_tools.tftrt.conversion.pipeline import CalibrationRun

OUTPUTS = ("output",)


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("output", None, "the calibration file to write", **text)
    convert_command.define_settings(values)
    values.set_default("precision", "INT8")
    flags.DEFINE_string(
        "shapes",
        "",
        "the --shapes of the conversion: they choose dynamic shapes, and are those of random data; nothing is built",
        **text,
    )
    _calibration_flags.define(values)
    convert_command.define_calibrator(values)
    _source_flags.define(values)
    flags.DEFINE_boolean(
        "compare_methods",
        False,
        "print the SNR of each output in INT8 with every method; --output may be left out",
        **text,
    )
    flags.DEFINE_boolean("overwrite", False, "replace the file that is at --output", **text)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow and TensorRT log in this file", **text)


def result(values: flags.FlagValues, positional: list[str]) -> CalibrationRun:
    """Calibrate, and write the table."""
    model = _flags.one_argument("calibrate", positional, "MODEL")
    if not values.output and not values.compare_methods:
        raise errors.UsageError(
            "--output is missing", "name the file to write, or give --compare_methods to see the methods alone"
        )
    settings = convert_command.read_settings(values)
    if settings.precision_mode != "INT8":
        raise errors.UsageError(
            f"--precision={settings.precision_mode} needs no calibration", "leave it out: tables are for INT8"
        )
    if values.compare_methods and settings.calibrator != "toolkit":
        raise errors.UsageError(
            "--compare_methods is for the toolkit's methods: TensorRT calibrates by entropy only",
            "leave out --calibrator, or --compare_methods",
        )
    data = _calibration_flags.read(values)
    from tftrt_tools.tftrt.conversion import pipeline

    with progress.on_terminal():
        return pipeline.calibrate(
            _source_flags.read(values, model),
            values.output,
            settings,
            data,
            overwrite=values.overwrite,
            log_file=values.log_file,
            compare=values.compare_methods,
        )


def show(done: CalibrationRun, values: flags.FlagValues) -> None:
    """Print what was calibrated."""
    console = _output.console(values.json)
    convert_command.print_calibration(console, done.calibration, None if values.compare_methods else _comparison.FEW)
    where = f"written: {done.output}" if done.output else "nothing was written: --output names no file"
    console.print(f"{where} ({done.seconds:.1f} s)", soft_wrap=True)


def write(done: CalibrationRun, values: flags.FlagValues) -> None:
    """Write --json."""
    _output.write_json(done, values.json)


def failure(done: CalibrationRun, values: flags.FlagValues) -> None:
    """A calibration has no check of its own."""


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Calibrate. Returns: the exit code."""
    done = result(values, positional)
    show(done, values)
    write(done, values)
    (model,) = positional
    # A converted model is calibrated with the flags of its conversion, which nobody gave here.
    if done.output and not passport.read(model, passport.MANIFEST):
        _next.show_convert(
            values,
            _next.convert(
                values,
                model,
                "INT8",
                f"--calibration_table={values.output}",
                without=(*convert_command.CALIBRATOR, *_calibration_flags.names()),
            ),
        )
    return errors.EXIT_DONE
