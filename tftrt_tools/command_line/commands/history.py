"""usage: tftrt history [--flags]

Shows the results that `tftrt regress --save_baseline=auto` kept: a list for each candidate and each kind of machine. It names the
steps: the points at which the value moved to another level and stayed there.

examples:
  tftrt history
  tftrt history --history_name=resnet_fp16 --show=p99 --plot=p99.svg
  tftrt history --history_name=resnet_fp16 --fail_on_step
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tftrt_tools.studies.regression.history import History, Step

OUTPUTS = ("plot",)


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "history_dir", "", "where results are kept; by default tftrt/regressions in $XDG_STATE_HOME", **text
    )
    flags.DEFINE_string("history_name", "", "one series only", **text)
    flags.DEFINE_string("machine", "", "of one kind of machine only: the beginning of its digest", **text)
    flags.DEFINE_enum(
        "show", "speed_up", ["speed_up", "p50", "p99", "throughput"], "the value that is searched for steps", **text
    )
    flags.DEFINE_float("min_effect", 0.03, "the smallest step that counts, as a fraction", lower_bound=0, **text)
    flags.DEFINE_boolean(
        "fail_on_step", False, "exit with 3 if the last step of a series was a change for the worse", **text
    )
    flags.DEFINE_string("plot", None, "write a plot to this file (.svg or .png)", **text)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """List. Returns: the exit code."""
    if positional:
        raise errors.UsageError(
            f"tftrt history takes flags only; got {' '.join(positional)}", f"--history_name={positional[0]}?"
        )
    from tftrt_tools.command_line.report import pictures
    from tftrt_tools.command_line.report import regress as report
    from tftrt_tools.studies.regression import baseline, history

    if values.plot:
        pictures.check(values.plot)
    found = history.read(
        baseline.directory(values.history_dir), values.history_name, values.show, values.min_effect, values.machine
    )
    if not found.series:
        return _nothing(found, values)
    _print(found, values.json)
    _output.write_json(found, values.json)
    if values.plot:
        report.write_history(found, values.plot)
    if values.fail_on_step and (worse := list(_worse(found))):
        raise errors.CheckFailed(
            "; ".join(worse), "`tftrt history --plot=FILE.svg` draws it; a step to the better ends this"
        )
    return errors.EXIT_DONE


def _nothing(found: History, values: flags.FlagValues) -> int:
    """No result was kept yet. Returns: the exit code. Raises: TftrtError where a step or a plot was asked for."""
    begin = "`tftrt regress NATIVE CANDIDATE --save_baseline=auto` keeps the first one"
    if values.fail_on_step or values.plot:
        raise errors.TftrtError(f"there are no results in {found.directory}", begin)
    _output.write_json(found, values.json)
    _output.console(values.json).print(f"no results yet in {found.directory}: {begin}", soft_wrap=True)
    return errors.EXIT_DONE


def _worse(found: History) -> Iterator[str]:
    """A line for each series that is on a worse level than before."""
    for series in found.series:
        if series.steps and series.steps[-1].worse:
            last = series.steps[-1]
            yield f"{series.name} on machine {series.machine.digest}: {series.shown} is {last.change:+.1%} since number {last.number}"


def _print(found: History, json_path: str | None) -> None:
    from tftrt_tools.studies.regression.history import VALUES

    console = _output.console(json_path)
    for series in found.series:
        title, unit, _, _ = VALUES[series.shown]
        steps = {one.number: one for one in series.steps}
        rows = [
            (
                one.number,
                one.created,
                one.candidate_digest[7:19],
                f"{one.values[series.shown]:.4g}" if series.shown in one.values else "",
                one.outcome,
                _step(steps.get(one.number)),
            )
            for one in series.entries
        ]
        columns = [">number", "measured", "candidate", f">{title}{', ' + unit if unit else ''}", "outcome", "step"]
        console.print(
            _output.table(
                f"{series.name}: {series.asked}\non {series.machine.text()} ({series.machine.digest})", columns, rows
            )
        )
        for path in series.skipped:
            console.print(f"  left out, no result of tftrt regress: {path}", soft_wrap=True)


def _step(step: Step | None) -> str:
    return "" if step is None else f"{step.change:+.1%}, {'slower' if step.worse else 'faster'} from here on"
