"""The weights of an earlier export of the same name, which the file that takes its place does not name. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable

from tftrt_tools.base import errors
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.onnx.kind import TOOL

WEIGHTS = ".data"
_SUFFIX = ".onnx"


@dataclasses.dataclass(frozen=True)
class Weights:
    """A file of weights beside an ONNX file. own: an export of this package made it. stat: what tells it from a later file of its name."""

    path: str
    own: bool
    stat: os.stat_result

    def is_there(self) -> bool:
        """Whether it is still this file: an export beside this one may have put another in its place."""
        try:
            return os.path.samestat(self.stat, os.stat(self.path))
        except OSError:
            return False


def weights(path: str) -> Weights | None:
    """The file with the weights of the ONNX file at `path`; None unless that names one as an export does."""
    beside = path + WEIGHTS
    if any(os.path.islink(one) or not os.path.isfile(one) for one in (path, beside)):
        return None
    try:
        found, stat = onnx_file.overview(path), os.stat(beside)
    except (errors.TftrtError, OSError):
        return None
    return (
        Weights(beside, TOOL in found.facts, stat)
        if os.path.basename(beside) in [one.name for one in found.files]
        else None
    )


def cleared(left: Iterable[Weights]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove files of weights that nothing names any more. Args: left: of `weights`, before their ONNX files were replaced. Returns: (those
    that were removed; a line for each that stays)."""
    removed, stay = [], []
    for one in left:
        if not one.is_there():
            continue
        try:
            user = _user(one.path)
            if user:
                stay.append(f"{one.path} stays: {user}")
            elif not one.own:
                stay.append(
                    f"{one.path} stays, which held the weights of the file that was replaced: another tool wrote it"
                )
            else:
                os.unlink(one.path)
                removed.append(one.path)
        except OSError as error:  # what was asked for is done
            stay.append(f"{one.path} stays, which held the weights of the file that was replaced: {error.strerror}")
    return tuple(removed), tuple(stay)


def _user(path: str) -> str:
    """Which ONNX file in the folder needs the file, or may need it, in words; "" if none does. Copies such as m.onnx.old, and what another
    export is about to give its name, are looked at, too. Raises: OSError."""
    for one in sorted(pathlib.Path(path).parent.iterdir()):
        named = one.suffix.lower() == _SUFFIX
        if _SUFFIX not in one.name.lower() or not one.is_file() or os.path.samefile(one, path):
            continue
        try:
            if any(os.path.samefile(path, held) for held in onnx_file.outside(str(one))):
                return f"{one.name} needs it"
        except (errors.TftrtError, OSError):
            if named:
                return f"{one.name} may need it, and cannot be read"
    return ""
