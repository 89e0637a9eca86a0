"""Reads what a shared library asks of the loader: its search path (RUNPATH) and the libraries it needs."""

import dataclasses
import os
import struct

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _STRSZ, _RPATH, _RUNPATH = 1, 5, 10, 15, 29


@dataclasses.dataclass(frozen=True)
class Wants:
    """runpath: directories, `$ORIGIN` resolved. needed: sonames."""

    runpath: tuple = ()
    needed: tuple = ()


def read(path):
    """The Wants of a 64-bit little-endian ELF file; an empty one for anything else."""
    try:
        with open(path, "rb") as file:
            return _read(file, os.path.dirname(os.path.abspath(path)))
    except (OSError, struct.error, ValueError, KeyError):
        return Wants()


def _read(file, origin):
    header = file.read(64)
    if header[:6] != b"\x7fELF\x02\x01":
        return Wants()
    offset, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
    file.seek(offset)
    # A program header: type, flags, file offset, address, physical address, size in the file.
    segments = [struct.unpack_from("<IIQQQQ", file.read(size)) for _ in range(count)]
    entries = _dynamic(file, next(segment for segment in segments if segment[0] == _DYNAMIC))
    values = dict(entries)
    table = next(s for s in segments if s[0] == _LOAD and s[3] <= values[_STRTAB] < s[3] + s[5])
    file.seek(values[_STRTAB] - table[3] + table[2])
    strings = file.read(values[_STRSZ])

    def string(at):
        return strings[at:strings.index(b"\0", at)].decode()

    paths = [string(value) for tag, value in entries if tag in (_RPATH, _RUNPATH)]
    folders = [folder for path in paths for folder in path.split(":") if folder]
    resolved = (folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for folder in folders)
    return Wants(tuple(dict.fromkeys(resolved)), tuple(string(value) for tag, value in entries if tag == _NEEDED))


def _dynamic(file, segment):
    file.seek(segment[2])
    return list(struct.iter_unpack("<QQ", file.read(segment[5] // 16 * 16)))
