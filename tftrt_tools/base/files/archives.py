"""Zip archives that others may have written: what they unpack to is bounded before it is unpacked."""

from __future__ import annotations

import os
import zipfile

# Deflate packs zeros 1032 times smaller, weights and rows hardly ever 10 times.
_MOST_RATIO = 100
_UNPACKED_BYTES = 1 << 30


def check(archive: zipfile.ZipFile) -> None:
    """Refuse an archive that unpacks to far more than it holds. zipfile itself reads no more of a member than the archive declares.

    Raises: ValueError.
    """
    file = archive.fp
    held = file.seek(0, os.SEEK_END) if file is not None else 0
    unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > max(_UNPACKED_BYTES, _MOST_RATIO * held):
        raise ValueError(f"it is {held / 1e6:.3g} MB, and would unpack to {unpacked / 1e9:.3g} GB")


def read(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A member that is read as a whole. Args: most: bytes that it may have. Raises: ValueError; KeyError where there is none."""
    size = archive.getinfo(name).file_size
    if size > most:
        raise ValueError(f"its {name} has {size / 1e6:.3g} MB, more than the {most / 1e6:.3g} MB that are read")
    return archive.read(name)
