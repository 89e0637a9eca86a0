"""Why torch.export.export takes no module, in a line, of the page that it says; a pure function over text."""

from __future__ import annotations

import re

from tftrt_tools.base import errors

_CONSTRAINTS = "Constraints violated ("
_ONE_SIZE = re.compile(r"You marked (\S+) as dynamic but your code specialized it to be a constant \((\d+)\)")
_FIXES = re.compile(r"^Suggested fixes:\n((?:  .+\n?)+)", re.MULTILINE)
_ON_VALUES = "Could not guard on data-dependent expression"
_PLACE = re.compile(r'^  File "(.+)", line (\d+), in .+\n\s*(.+)', re.MULTILINE)
_TRY = "try torch.export.export(module, inputs) in Python; its message names the line of the module"


def told(error: BaseException) -> tuple[str, str]:
    """(why, what to do)."""
    said = str(error)
    if said.startswith(_CONSTRAINTS):
        return _of_sizes(said)
    if said.startswith(_ON_VALUES):
        if place := _PLACE.findall(said):
            file, line, code = place[-1]
            return (
                f"a condition depends on what a tensor holds: {code.strip()} ({file}:{line})",
                "say it with torch.where, or torch.cond, or leave it out of the module",
            )
    return errors.first_line(said) or type(error).__name__, _TRY


def _of_sizes(said: str) -> tuple[str, str]:
    """Of dimensions that were to be open."""
    fixed = _ONE_SIZE.findall(said)
    fixes = _FIXES.search(said)
    wanted = "; ".join(line.strip() for line in fixes[1].splitlines()) if fixes else ""
    mend = f"the dynamic shapes have to say so: {wanted}" if wanted else _TRY
    if fixed:
        names = ", ".join(f"{name} (always {size})" for name, size in fixed)
        return (
            f"the module, or an op in it such as LSTM, takes dimensions at one size that are to be open: {names}",
            "leave them out of the dynamic shapes, and export with the size that is needed",
        )
    reasons = [line.strip().removeprefix("- ") for line in said.splitlines()[1:] if line.startswith("  - ")]
    return (reasons[0] if reasons else errors.first_line(said)), mend
