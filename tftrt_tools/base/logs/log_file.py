"""A log as lines: a file, plain or gzip, or stdin, read once and in a stream."""

from __future__ import annotations

import codecs
import gzip
import io
import pathlib
import re
import sys
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from tftrt_tools.base import errors

STDIN = "-"
# Characters of a line that are kept.
LONGEST_LINE = 64 * 1024
_BEGINNING = 8192
_GZIP = b"\x1f\x8b"
# How files begin that have to be unpacked first: {first bytes: (what it is, what unpacks it)}.
_PACKED = {
    b"\x28\xb5\x2f\xfd": ("a zstd archive", "zstd -dc"),
    b"BZh": ("a bzip2 archive", "bzip2 -dc"),
    b"\xfd7zXZ\x00": ("an xz archive", "xz -dc"),
    b"PK\x03\x04": ("a zip archive", "unzip -p"),
}
_ZEROS = re.compile(rb"\0+")
# Bytes that no UTF-8 text contains.
_NO_TEXT = re.compile("[\x01-\x08\x0b\x0e-\x1a\x1c-\x1f\ufffd]")
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What a damaged gzip file raises.
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
MEND = (
    "give the file that the process wrote its stderr to (`… 2> FILE`, `docker logs NAME > FILE 2>&1`), or pipe it: "
    "`… 2>&1 | tftrt log -`"
)


class LogFile:
    """A log file, a context manager. Iterating over it gives its lines, once."""

    def __init__(self, path: str) -> None:
        """Args: path: of a file, or STDIN."""
        self.path = path
        # Lines read so far.
        self.lines = 0
        # Lines of which only the beginning was kept.
        self.cut = 0
        # Why the end is missing, "" where it is not.
        self.damage = ""
        self._text: io.TextIOWrapper | None = None

    @property
    def name(self) -> str:
        """The log's name as messages show it."""
        return name(self.path)

    def __enter__(self) -> LogFile:
        """Raises: UsageError or TftrtError for what can be no log."""
        if self.path == STDIN and sys.stdin.isatty():
            raise errors.UsageError("stdin is a terminal, so no log comes from it", "pipe one: `… 2>&1 | tftrt log -`")
        binary = sys.stdin.buffer if self.path == STDIN else _open(pathlib.Path(self.path))
        beginning = binary.peek(_BEGINNING)[:_BEGINNING] if isinstance(binary, io.BufferedReader) else b""
        if beginning.startswith(_GZIP):
            unpacked = gzip.GzipFile(fileobj=binary)
            try:
                beginning = unpacked.peek(_BEGINNING)[:_BEGINNING]
            except _DAMAGED as error:
                raise errors.TftrtError(
                    f"{self.name} is a damaged gzip file: {error}", "copy it again; none of it can be read"
                ) from None
            self._wrap(unpacked, beginning)
        else:
            self._wrap(binary, beginning)
        return self

    def __exit__(self, *_: object) -> None:
        if self._text is not None and self.path != STDIN:
            self._text.close()

    def __iter__(self) -> Iterator[str]:
        """The lines, without their ends."""
        assert self._text is not None, "enter it first"
        readline = self._text.readline
        try:
            while line := readline(LONGEST_LINE):
                while "\0" in line:
                    line = line.replace("\0", "")
                    if not line.endswith("\n"):
                        line += readline(LONGEST_LINE - len(line))
                self.lines += 1
                if len(line) == LONGEST_LINE and line[-1] != "\n":
                    self.cut += 1
                    while (rest := readline(LONGEST_LINE)) and rest[-1] != "\n":
                        pass
                yield line.rstrip("\r\n")
        except _DAMAGED as error:
            self.damage = str(error)

    def _wrap(self, binary: BinaryIO | gzip.GzipFile, beginning: bytes) -> None:
        _check(self.name, beginning)
        encoding = "utf-16" if beginning.startswith(_WIDE) else "utf-8-sig"
        self._text = io.TextIOWrapper(binary, encoding=encoding, errors="replace", newline="\n")


def name(path: str) -> str:
    """For people: how a log is called. Args: path: of a file, or STDIN."""
    return "stdin" if path == STDIN else path


def _open(path: pathlib.Path) -> io.BufferedReader:
    if path.is_dir():
        raise errors.UsageError(f"{path} is a directory", f"give the logs in it: {path}/*")
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise errors.UsageError(f"{path}: there is no such file", "check the path; `-` is stdin") from None


def _check(called: str, beginning: bytes) -> None:
    """Raises: UsageError where the first bytes are those of no text."""
    for mark, (what, command) in _PACKED.items():
        if beginning.startswith(mark):
            raise errors.UsageError(f"{called} is {what}", f"unpack it into the command: {command} … | tftrt log -")
    if not beginning.startswith(_WIDE) and _binary(beginning):
        raise errors.UsageError(f"{called} is no text, so it is no log", MEND)


def _binary(beginning: bytes) -> bool:
    """Whether a file that begins so is no text. A log may hold zeros, from where it was cut off while a process went on writing, or the
    machine stopped: few, and with text around them. Those of a program or of a model are many, or what is around them is no text."""
    zeros, text = len(_ZEROS.findall(beginning.strip(b"\0"))), beginning.replace(b"\0", b"")
    if not zeros:
        return sum(byte < 9 for byte in text) > len(text) // 10
    strange = len(_NO_TEXT.findall(text.decode(errors="replace")))
    return zeros > text.count(b"\n") + 1 or strange > len(text) // 20
