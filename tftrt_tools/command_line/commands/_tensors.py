"""`tftrt verify --tensors`: inner tensors in place of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _output

if TYPE_CHECKING:
    from absl import flags

    from tftrt_tools.models.inputs.calls import Asked
    from tftrt_tools.tensorrt.plans.tensors import Tensors

# Rows of the table.
_ROWS = 12


def result(values: flags.FlagValues, original: str, converted: str, names: Sequence[str], asked: Asked) -> Tensors:
    """Compare."""
    for name in ("labels", "rename", "label_output", "output_kind"):
        if name in values and values[name].present:
            raise errors.UsageError(f"--{name} has no effect with --tensors, which compares no answers", "leave it out")
    keys = [key for key in values.signature_keys if key]
    if len(keys) > 1:
        raise errors.UsageError("--tensors is about one signature", f"such as --signature_keys={keys[0]}")
    from tftrt_tools.command_line.report import pictures
    from tftrt_tools.tensorrt.plans import tensors

    if values.plot:
        pictures.check(values.plot)
    with progress.on_terminal():
        return tensors.compare(
            original,
            converted,
            names,
            asked,
            values.thresholds,
            values.batch_size,
            values.log_file,
            keys[0] if keys else "",
        )


def write(done: Tensors, values: flags.FlagValues) -> None:
    """Write the report and the picture."""
    from tftrt_tools.command_line.report import tensors as report

    if values.html:
        report.write_page(done, values.html)
    if values.plot:
        report.write_picture(done, values.plot)


def show(done: Tensors, values: flags.FlagValues) -> None:
    """Print the tensors that depart, or those that are farthest."""
    console = _output.console(values.json)
    shown = done.departed or sorted(done.inners, key=lambda one: one.snr_db)
    title = "Tensors below the bound, in the order of the graph" if done.departed else "The tensors that are farthest"
    rows = [(one.tensor, one.node, one.problem or f"{one.snr_db:.1f}") for one in shown[:_ROWS]]
    console.print(_output.table(title, ["tensor", "node", ">SNR dB"], rows))
    if len(done.departed) > _ROWS:
        console.print(f"  and {len(done.departed) - _ROWS} more; --json has them all")
    console.print(
        f"{len(done.inners)} of {done.computed} tensors of floats, {terminal.counted(done.calls, 'call')}, in "
        f"{terminal.counted(done.chunks, 'run')}: {done.runtimes['original']} and {done.runtimes['converted']}; bound "
        f"{done.bound:g} dB ({done.arithmetic})",
        soft_wrap=True,
    )
    console.print(done.text(), soft_wrap=True)
    if done.fallbacks:
        console.print(
            f"native segments ran in place of {', '.join(done.fallbacks)}: their tensors say nothing of TensorRT",
            soft_wrap=True,
        )
    console.print(done.verdict, style="bold green" if done.passed else "bold red")
