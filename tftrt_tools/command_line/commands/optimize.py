"""usage: tftrt optimize MODEL --data=ROWS --accuracy=GOAL --output=DIR [--flags]

Does the whole way in one command. It inspects the model and uses the flags that `inspect` recommends, sets rows aside for calibration,
simulates INT8, searches for the fastest settings that keep the accuracy goal, converts, verifies and compares the speed. One page shows
what was tried, what each step gave, what was left out, and the verdict with its certainty.

It runs the other commands as you would type them, and prints each one before it runs. Results are kept in --work_dir: the same command
continues where it was interrupted. Without a GPU it does what needs none, and says which steps need the same command on a GPU.

The accuracy goal is one of `tftrt tune`: METRIC:threshold=X, METRIC:max-degradation=X or METRIC:percent-max-degradation=X. --slo adds
the SLO of a service, as in `tftrt bench`, at --rate requests a second.

Exit codes: 0 done, and the goal is kept as far as this machine can tell; 3 the goal is not kept, and the nearest model was written; 4 the
result is uncertain; 1 it ended early.

examples:
  tftrt optimize resnet --data=validation/ --image_scale=1/255 --labels=folders --accuracy=top1:max-degradation=0.01 --batch_size=1,32 \\
      --output=resnet_best --output_flagfile=resnet.flags
  tftrt optimize encoder --data=texts.npz --accuracy=snr_db:threshold=30 --shapes='ids:1x128,8x128;mask:1x128,8x128' \\
      --slo='p99<20ms' --rate=200 --max_minutes=90 --output=encoder_best --publish=models/encoder
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import sys
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.choices import PRECISIONS
from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.commands import (
    _calibration_flags,
    _calling,
    _data_flags,
    _engine_cache,
    _flags,
    _judging_flags,
    _next,
    _optimize_asked,
    _output,
    _source_flags,
)
from tftrt_tools.command_line.commands import build as build_command
from tftrt_tools.command_line.commands import convert as convert_command
from tftrt_tools.command_line.commands import tune as tune_command
from tftrt_tools.models.kinds import table
from tftrt_tools.studies.optimizing.asked import REPORT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tftrt_tools.studies.optimizing.known import Known
    from tftrt_tools.studies.optimizing.run import Done
    from tftrt_tools.studies.optimizing.step import StepResult
    from tftrt_tools.studies.optimizing.story import Story

OUTPUTS = ("html", "output_flagfile")
CHECKS_ITS_PLACES = True
# Flags of other commands with the same meaning here.
_OF_CONVERT = (
    "signature_keys",
    "tags",
    "freeze",
    "minimum_segment_size",
    "max_workspace_size_bytes",
    "keep_native_ops",
    "keep_native_nodes",
)
_OF_CALIBRATION = ("calibration_data", "calibration_batch_size", "num_calibration_batches")
URLS = ("on",)
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("data", "", f"rows to score: {_data_flags.KINDS}", **text)
    _data_flags.define_labels(values, "or what your metric takes")
    flags.DEFINE_string(
        "accuracy",
        "",
        "what the model has to keep, e.g. top1:max-degradation=0.01, snr_db:threshold=30 or "
        "module:metric:threshold=0.9",
        **text,
    )
    flags.DEFINE_string(
        "shapes", "", "shapes to optimize for, as in `tftrt convert`; by default those of --batch_size", **text
    )
    flags.DEFINE_list(
        "batch_size", ["1", "32"], "batch sizes to optimize for, if only the batch dimension is open", **text
    )
    flags.DEFINE_list(
        "precision",
        list(PRECISIONS),
        "precisions to choose from; without INT8 no rows are set aside for calibration",
        **text,
    )
    flags.DEFINE_integer(
        "repeat",
        1,
        "number of builds, of which the fastest is kept, as in `tftrt build`",
        lower_bound=1,
        upper_bound=build_command.MOST_BUILDS,
        **text,
    )
    flags.DEFINE_string("slo", "", "the SLO of a service, e.g. 'p99<20ms', as in `tftrt bench`", **text)
    flags.DEFINE_float(
        "rate",
        0.0,
        "requests a second at which --slo has to be kept; by default the highest is searched",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_float("max_minutes", 60.0, "the time budget of this run; each step gets what is left of it", **text)
    flags.DEFINE_string("work_dir", None, "folder of the results, by default optimize-MODEL in the current one", **text)
    flags.DEFINE_string("output", None, "directory to make", **text)
    flags.DEFINE_boolean("overwrite", False, "replace a SavedModel that is at --output", **text)
    flags.DEFINE_string(
        "output_flagfile", None, "write the model's flags for `tftrt convert --flagfile=…` to this file", **text
    )
    flags.DEFINE_string("publish", "", "BASE_PATH/MODEL_NAME: also publish it there, as `tftrt publish` does", **text)
    flags.DEFINE_string("html", None, "write the report to this file, too; it is always in --work_dir", **text)
    _source_flags.define(values)
    _judging_flags.define(values)
    flags.DEFINE_boolean("engine_cache", True, "take engines from the engine cache, and keep new ones there", **text)
    _engine_cache.define(values)
    for define_all, names in (
        (convert_command.define_settings, _OF_CONVERT),
        (_calibration_flags.define, _OF_CALIBRATION),
        (tune_command.define, _optimize_asked.OF_TUNE),
    ):
        scratch = flags.FlagValues()
        define_all(scratch)
        for name in names:
            flags.DEFINE_flag(scratch[name], values)
    _data_flags.define_reading(values)


def result(values: flags.FlagValues, positional: list[str]) -> Story:
    """Run the steps, and write the files."""
    done = _ran(values, positional)
    try:
        with errors.translated():
            _write(done, values)
    except errors.Ending as error:
        error.result = done.story
        raise
    return done.story


def show(done: Story, values: flags.FlagValues) -> None:
    """Print what each step gave."""
    made = {**done.made, "report": done.asked.path(REPORT)}
    _print(done, made, _output.console(values.json))


def write(done: Story, values: flags.FlagValues) -> None:
    """Nothing: `result` has written the files, for which it needs more than the Story."""


def failure(done: Story, values: flags.FlagValues) -> errors.TftrtError | None:
    """What the outcome is, where the goal is not kept as far as it was seen."""
    kind = {errors.EXIT_CHECK: errors.CheckFailed, errors.EXIT_UNSURE: errors.Unsure}.get(
        done.exit_code, errors.TftrtError
    )
    if done.ended:
        # A step's own exit code says no more than that it failed.
        kind = errors.CheckFailed if done.exit_code == errors.EXIT_CHECK else errors.TftrtError
        page = done.asked.path(REPORT)
        return kind(
            f"the run ended early: {done.ended}", done.mend or f"see {page}; the same command goes on from there"
        )
    if done.exit_code == errors.EXIT_DONE:
        return None
    return kind(f"{done.outcome}: {done.verdict}", f"the model is written all the same; see {done.asked.path(REPORT)}")


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Optimize. Returns: the exit code."""
    done = _ran(values, positional)
    made = _write(done, values)
    _print(done.story, made, _output.console(values.json))
    wrong = failure(done.story, values)
    if wrong and done.story.ended:
        raise wrong
    _show_next(values, done.story)
    return _calling.exit_code(wrong)


def _ran(values: flags.FlagValues, positional: list[str]) -> Done:
    from tftrt_tools.studies.optimizing import run as running

    asked = _optimize_asked.asked(values, _flags.one_argument("optimize", positional, "MODEL"), OUTPUTS)
    console = _output.console(values.json)

    def call(words: Sequence[str]) -> int:
        # What the commands print is for people, and stdout may be for JSON.
        with contextlib.redirect_stdout(sys.stderr if values.json == "-" else sys.stdout):
            return _calling.call(words[0], words[1:])

    def say(line: str) -> None:
        console.print(f"\n{line}", soft_wrap=True, style="bold")

    def check(known: Known) -> None:
        if asked.labels:
            _optimize_asked.check_labels(known)

    command = ("optimize", *positional, *_given(values))
    return running.run(
        asked,
        running.Doing(
            call=call, say=say, check=check, overwrite=values.overwrite, max_minutes=values.max_minutes, command=command
        ),
    )


def _given(values: flags.FlagValues) -> list[str]:
    """The words of all flags that were given, by name."""
    return [
        word
        for name in sorted(values)
        if values[name].present and values[name].name == name and name not in ("help", "json")
        for word in _flags.words(values[name])
    ]


def _write(done: Done, values: flags.FlagValues) -> dict[str, str]:
    """Write what was made. Returns: {what: path}."""
    from tftrt_tools.command_line.report import optimize as report
    from tftrt_tools.models.savedmodel import passport

    made = {**done.story.made, "report": done.story.asked.path(REPORT)}
    report.write_page(done, made["report"])
    if values.html:
        report.write_page(done, values.html)
    lines = pathlib.Path(passport.folder(done.story.asked.output)) / passport.FLAGS
    if values.output_flagfile and "model" in made and lines.is_file():
        kept = [
            line
            for line in lines.read_text().splitlines()
            if line.lstrip("-").partition("=")[0] not in ("output", "output_saved_model_dir")
        ]
        whole_file.write_text(values.output_flagfile, "\n".join(kept) + "\n")
        made["flags"] = values.output_flagfile
    _output.write_json(done.story, values.json)
    return made


_STYLES = {"kept": "bold green", "not kept": "bold red"}


def _print(story: Story, made: dict[str, str], console: Console) -> None:
    rows = [
        (one.name, _time(one), one.gave or (one.cause if one.state == "left out" else f"{one.state}: {one.cause}"))
        for one in story.steps
    ]
    console.print()
    console.print(_output.table(f"{story.asked.model}: {story.asked.goal}", ["step", ">time", "what it gave"], rows))
    for line in story.remarks:
        console.print(f"  {line}", soft_wrap=True)
    console.print(f"{story.outcome.upper()}: {story.verdict}", style=_STYLES.get(story.outcome, "bold"), soft_wrap=True)
    if story.left:
        console.print(
            f"left for a machine with a GPU: {', '.join(story.left)}; there, the same command goes on", soft_wrap=True
        )
    for what, path in made.items():
        console.print(f"the {what}: {path}", soft_wrap=True)


def _time(one: StepResult) -> str:
    return f"{one.seconds:.1f} s{' (earlier)' if one.before else ''}" if one.words else ""


def _show_next(values: flags.FlagValues, story: Story) -> None:
    if story.left:
        _next.show_on_gpu(values, story.command)
    elif story.outcome != "kept":
        return  # the report says what mends it
    elif not story.asked.publish:
        _next.show(values, _next.publish(values, story.asked.output))
    elif table.kind(story.asked.output).of_tensorflow:
        base_path = pathlib.Path(story.asked.publish)
        _next.show(values, _next.serve(values, base_path.name, str(base_path)))
    else:
        _next.show(values, _next.smoke_triton(pathlib.Path(story.asked.publish).name))
