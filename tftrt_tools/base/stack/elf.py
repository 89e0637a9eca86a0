"""Reads what a shared library asks of the loader: its search path (RUNPATH) and the libraries it needs."""

import dataclasses
import os
import struct
import typing

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _STRSZ, _RPATH, _RUNPATH = 1, 5, 10, 15, 29


@dataclasses.dataclass(frozen=True)
class Wants:
    """runpath: directories, `$ORIGIN` resolved. needed: sonames. opens: whether it asks for others while it runs (dlopen)."""

    runpath: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    opens: bool = False


class _Segment(typing.NamedTuple):
    """A program header: numbers of bytes."""

    kind: int
    flags: int
    offset: int  # in the file
    address: int
    physical_address: int
    size: int  # in the file


def read(path: str | os.PathLike[str]) -> Wants:
    """The Wants of a 64-bit little-endian ELF file; an empty one for anything else."""
    try:
        with open(path, "rb") as file:
            return _read(file, os.path.dirname(os.path.abspath(path)))
    except (OSError, struct.error, ValueError, KeyError):
        return Wants()


def _read(file: typing.BinaryIO, origin: str) -> Wants:
    header = file.read(64)
    if header[:6] != b"\x7fELF\x02\x01":
        return Wants()
    offset, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
    file.seek(offset)
    segments = [_Segment(*struct.unpack_from("<IIQQQQ", file.read(size))) for _ in range(count)]
    entries = _dynamic(file, next(segment for segment in segments if segment.kind == _DYNAMIC))
    values = dict(entries)
    table = next(
        segment
        for segment in segments
        if segment.kind == _LOAD and segment.address <= values[_STRTAB] < segment.address + segment.size
    )
    file.seek(values[_STRTAB] - table.address + table.offset)
    strings = file.read(values[_STRSZ])

    def string(at: int) -> str:
        return strings[at : strings.index(b"\0", at)].decode()

    paths = [string(value) for tag, value in entries if tag in (_RPATH, _RUNPATH)]
    folders = [folder for path in paths for folder in path.split(":") if folder]
    resolved = (folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for folder in folders)
    needed = tuple(string(value) for tag, value in entries if tag == _NEEDED)
    return Wants(tuple(dict.fromkeys(resolved)), needed, b"\0dlopen\0" in strings)


def _dynamic(file: typing.BinaryIO, segment: _Segment) -> list[tuple[int, int]]:
    """(tag, value) pairs."""
    file.seek(segment.offset)
    return [(tag, value) for tag, value in struct.iter_unpack("<QQ", file.read(segment.size // 16 * 16))]
