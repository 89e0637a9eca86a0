"""usage: tftrt log FILE… [--flags]

Explains logs of TF-TRT, TensorRT, TensorFlow Serving and trtexec: engines that did not run, and their shapes; builds that failed, and
why; precision and calibration; memory; versions; loads and requests; the kernels that TensorRT timed. Each known message is shown with
its meaning and its fix; the others are counted. FILE may be compressed with gzip; `-` is stdin. It needs neither TensorFlow nor a GPU,
and little memory even for a very long log.

--fail_on makes it a check: exit code 3 if there are warnings or errors of these kinds:
  build        engines and networks that were not built        calibration   INT8 calibration and ranges
  fallback     engines that TensorFlow computed instead        precision     weights and layers that lose in FP16 or INT8
  memory       out of memory                                   conversion    what TF-TRT left in TensorFlow
  version      what does not fit together                      input         models and files that a parser did not take
  load         models that a server could not load             speed         kernels not tried, measurements that vary
  request      requests that failed                            machine       libraries that are missing
  device       the GPU, CUDA, and processes that ended         error         any error that is known here
                                                               unknown       any error that is not

examples:
  tftrt log server.log
  tftrt log build.log.gz --layers --top=20 --json=build.json
  tftrt log server-*.log --fail_on=fallback,build,memory
"""

from __future__ import annotations

import difflib

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _log_tables, _output


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_list(
        "fail_on",
        [],
        "exit with 3 where the logs have warnings or errors of these kinds, such as fallback,build; "
        "`tftrt log --help` lists them",
        **text,
    )
    flags.DEFINE_integer("top", 10, "rows of each table", lower_bound=1, **text)
    flags.DEFINE_boolean(
        "layers",
        False,
        "what TensorRT did with each layer: times, kernels, fusions, and the layers of built engines",
        **text,
    )
    flags.DEFINE_boolean("notes", False, "also show harmless messages, and what TF-TRT left in TensorFlow", **text)
    flags.DEFINE_boolean(
        "allow_empty",
        False,
        "accept a log that is empty or has no known line, such as the last minutes of a running log",
        **text,
    )


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Read. Returns: the exit code."""
    if not positional:
        raise errors.UsageError(
            "usage: tftrt log FILE… [--flags]; no file given", "`-` is stdin: `… 2>&1 | tftrt log -`"
        )
    if positional.count("-") > 1:
        raise errors.UsageError("stdin can be read once", "give `-` once")
    from tftrt_tools.base.logs import reading
    from tftrt_tools.base.logs.summary import CHECKS

    if values["fail_on"].present and not values.fail_on:
        raise errors.UsageError("--fail_on is empty, so nothing would be checked", f"some of {', '.join(CHECKS)}")
    for check in values.fail_on:
        if check not in CHECKS:
            near = difflib.get_close_matches(check.lower(), CHECKS, 1)
            raise errors.UsageError(
                f"--fail_on={check}: there is no such kind of messages",
                f"did you mean {near[0]}?" if near else f"one of {', '.join(CHECKS)}",
            )
    with progress.on_terminal():
        summary = reading.read(positional, values.allow_empty)
    _log_tables.show(_output.console(values.json), summary, values.top, layers=values.layers, notes=values.notes)
    _output.write_json(summary, values.json)
    if summary.interrupted:
        raise errors.Interrupted(
            f"interrupted after {terminal.counted(summary.lines, 'line')}", "what is said above is of those alone"
        )
    if broken := list(summary.failed(values.fail_on)):
        raise errors.CheckFailed("; ".join(broken), "the tables above say what each means and what to do")
    if damaged := next((log for log in summary.logs if log.damage), None):
        raise errors.TftrtError(
            f"{damaged.name} ends in the middle, behind line {damaged.lines}: {damaged.damage}",
            "copy it again, whole; what is said above is of the lines that are there",
        )
    return errors.EXIT_DONE
