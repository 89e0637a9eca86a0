"""The table of the SNR that INT8 keeps with each calibration method; `convert`, `calibrate` and `sensitivity` print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tftrt_tools.command_line.commands import _output
from tftrt_tools.tftrt.calibration.comparison import LIMIT_DB, Comparison

if TYPE_CHECKING:
    from rich.console import Console

# The most outputs in a table that the user did not ask for.
FEW = 6


def show(console: Console, comparison: Comparison | None, most: int | None = None) -> None:
    """Print it. Args: comparison: None prints nothing. most: outputs to list, None for all."""
    if comparison is None:
        return

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    if comparison.outputs:
        levels = {
            f"{signature}/{output}": {
                method: comparison.level(method, signature, output) for method in comparison.methods
            }
            for signature, output in comparison.outputs
        }
        say(f"INT8 simulated on {comparison.rows_text()}, dB against float32:")
        table(console, None, levels, comparison.taken, most)
    for problem in comparison.problems:
        say(f"  not simulated: {problem}")
    for line in comparison.nothing_shown:
        say(f"  warning: calibration data: {line}; is this the data that the model is for, scaled as in training?")
    if comparison.outputs and not comparison.blind:
        reason = f"{comparison.reason}; the worst output keeps {kept(comparison.worst(comparison.taken))}"
    else:
        reason = comparison.reason
    say(f"calibration method {comparison.taken}: {reason}")


def table(
    console: Console, title: str | None, levels: Mapping[str, Mapping[str, float]], taken: str, most: int | None = None
) -> None:
    """Print {output: {method: dB}}, the worst of several first. Args: taken: the method to mark."""
    methods = list(next(iter(levels.values())))
    rows = [(output, *(text(found[method]) for method in methods)) for output, found in list(levels.items())[:most]]
    if len(levels) > 1:
        rows.insert(
            0, ("the worst output", *(text(min(found[method] for found in levels.values())) for method in methods))
        )
    console.print(
        _output.table(
            title, ["output", *(f">{method}{' (taken)' if method == taken else ''}" for method in methods)], rows
        )
    )
    if most is not None and len(levels) > most:
        console.print(f"  and {len(levels) - most} more outputs (--json)")


def kept(level: float) -> str:
    """What an output keeps, for people."""
    return "every bit" if level >= LIMIT_DB else "nothing" if level <= -LIMIT_DB else f"{level:.1f} dB"


def text(level: float) -> str:
    """dB in a table."""
    return f"{level:.1f}" if abs(level) < LIMIT_DB else "exact" if level > 0 else "nothing"
