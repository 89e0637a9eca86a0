"""`tftrt inspect` of a model that TF-TRT does not convert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.base import errors, terminal
from tftrt_tools.command_line.commands import _help, _output
from tftrt_tools.models.savedmodel.inspection import bytes_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from absl import flags
    from rich.console import Console

    from tftrt_tools.models.kinds.model import Kind, Overview
    from tftrt_tools.models.savedmodel.shapes import InputSpec

# Flags that mean something for such a model.
_FLAGS = ("all", "json", "help")
# Ops without --all.
_ROWS = 12
# Characters of a fact.
_LENGTH = 120


def check_flags(values: flags.FlagValues, kind: Kind, model: str) -> None:
    """Refuse flags about a conversion. Raises: UsageError."""
    for name in _help.own(values):
        if values[name].present and values[name].name not in _FLAGS:
            why, _ = kind.unconverted or ("", "")
            raise errors.UsageError(
                f"--{name} has no effect: {model} is not converted ({kind.name}; {why})", "leave it out"
            )


def show(seen: Overview, console: Console, everything: bool) -> None:
    """Print it."""
    _say(console, f"{seen.model}: {seen.form}, {bytes_text(seen.bytes)}")
    if len(seen.files) > 1:
        _say(console, "  files: " + ", ".join(f"{file.name} {bytes_text(file.bytes)}" for file in seen.files))
    if seen.opsets:
        _say(console, "  opset: " + ", ".join(f"{domain} {version}" for domain, version in seen.opsets.items()))
    for name, text in seen.facts.items():
        _say(console, f"  {_one_line(name)}: {_one_line(text)}")
    rows = [(name, _specs(one.inputs), _specs(one.outputs)) for name, one in seen.signatures.items()]
    console.print(_output.table(None, ["signature", "inputs", "outputs"], rows))
    ops = list(seen.ops.items())
    shown = ops if everything else ops[:_ROWS]
    console.print(_output.table(terminal.counted(sum(seen.ops.values()), "op"), ["op", ">nodes"], shown))
    if len(shown) < len(ops):
        _say(console, f"  and {len(ops) - len(shown)} more kinds of ops: --all lists them\n")
    if seen.weights:
        _say(console, "constants: " + ", ".join(f"{count:,} {dtype}" for dtype, count in seen.weights.items()))
    for line in seen.unasked:
        _say(console, f"not told: {line}")


def _one_line(text: str) -> str:
    """A fact for a terminal: a file's maker may have put whole tables and control characters into it."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= _LENGTH else f"{line[:_LENGTH]}… ({len(text):,} characters: --json has all)"


def _specs(specs: Iterable[InputSpec]) -> str:
    return "\n".join(f"{one.name} {one.text()}" for one in specs)


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)
