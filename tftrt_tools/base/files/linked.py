"""Folders through links."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator


def walk(top: str | os.PathLike[str]) -> Iterator[tuple[pathlib.Path, list[str], list[str]]]:
    """As os.walk, also through links to folders; one that leads to a folder above it is named, and not gone into. A folder to which
    several links lead comes once for each. Yields: (folder, names of folders in it, names of files in it)."""
    for folder, names, found in os.walk(top, followlinks=True):
        place = pathlib.Path(folder)
        above = {os.path.realpath(one) for one in (place, *place.parents)}
        yield place, list(names), found
        names[:] = [name for name in names if os.path.realpath(place / name) not in above]
