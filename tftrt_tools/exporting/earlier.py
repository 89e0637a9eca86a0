"""The weights of an earlier export of the same name, which the file that takes its place does not name. No runtime is imported here."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable

from tftrt_tools import errors
from tftrt_tools.models.onnx import file as onnx_file

WEIGHTS = ".data"
_OWN = "tftrt.tool"


def weights(path: str) -> tuple[str, bool]:
    """(the file with the weights of the ONNX file at `path`, if that names one as an export does, else ""; whether an export of this
    package made it)."""
    beside = path + WEIGHTS
    if any(os.path.islink(one) or not os.path.isfile(one) for one in (path, beside)):
        return "", False
    try:
        found = onnx_file.overview(path)
    except errors.TftrtError:
        return "", False
    return (beside, _OWN in found.facts) if os.path.basename(beside) in [one.name for one in found.files] else ("", False)


def cleared(left: Iterable[tuple[str, bool]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove files of weights that nothing names any more. Args: left: of `weights`, before their ONNX files were replaced. Returns: (those
    that were removed; a line for each that stays)."""
    removed, stay = [], []
    for path, own in left:
        user = _user(path)
        if user:
            stay.append(f"{path} stays: {user}")
        elif not own:
            stay.append(f"{path} stays, which held the weights of the file that was replaced: another tool wrote it")
        else:
            os.unlink(path)
            removed.append(path)
    return tuple(removed), tuple(stay)


def _user(path: str) -> str:
    """Which ONNX file in the folder needs the file, or may need it, in words; "" if none does."""
    for one in sorted(pathlib.Path(path).parent.iterdir()):
        if one.suffix.lower() != ".onnx" or not one.is_file():
            continue
        try:
            if os.path.abspath(path) in map(os.path.abspath, onnx_file.outside(str(one))):
                return f"{one.name} needs it"
        except (errors.TftrtError, OSError):
            return f"{one.name} may need it, and cannot be read"
    return ""
