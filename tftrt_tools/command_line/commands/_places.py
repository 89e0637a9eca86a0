"""Paths with a scheme://, in the flags and arguments of all commands: file:// is read as the path behind it, and others are refused: Python
would make a folder called `gs:` of them.

A command names in its URLS the flags that take a scheme, and ARGUMENTS where its arguments do.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors

if TYPE_CHECKING:
    from absl import flags

ARGUMENTS = ""
# How a file or a folder of each comes here, or goes there.
_COPY = {
    "gs": "gsutil cp -r",
    "s3": "aws s3 cp --recursive",
    "s3a": "aws s3 cp --recursive",
    "s3n": "aws s3 cp --recursive",
    "hdfs": "hdfs dfs -get (-put)",
    "viewfs": "hdfs dfs -get (-put)",
    "http": "curl -LO",
    "https": "curl -LO",
    "abfs": "azcopy copy",
    "abfss": "azcopy copy",
    "az": "azcopy copy",
    "wasb": "azcopy copy",
    "wasbs": "azcopy copy",
}
_LOCAL = "file"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)(.*)", re.DOTALL)


def make_local(values: flags.FlagValues, arguments: list[str], urls: Collection[str] = ()) -> None:
    """Check all texts of a command line, and put the path of each file:// in its place. Args: urls: as URLS. Raises: UsageError."""
    for name in values:
        flag = values[name]
        if name != flag.name:
            continue
        if name in urls:
            flag.value = local(flag.value) if isinstance(flag.value, str) and _is_file(flag.value) else flag.value
        elif isinstance(flag.value, str):
            flag.value = local(flag.value, f"--{name}=")
        elif isinstance(flag.value, list):
            flag.value = [local(one, f"--{name}=") if isinstance(one, str) else one for one in flag.value]
    if ARGUMENTS not in urls:
        arguments[:] = [local(one) for one in arguments]


def with_local_flagfile(argv: Sequence[str]) -> list[str]:
    """The words of a command line, with a --flagfile as `local` has it. Raises: UsageError."""
    return [
        f"--flagfile={local(word.partition('=')[2], '--flagfile=')}" if re.match("--?flagfile=", word) else word
        for word in argv
    ]


def check(values: flags.FlagValues, names: Sequence[str]) -> None:
    """Refuse schemes in flags that take them otherwise. Raises: UsageError."""
    for name in names:
        local(values[name].value or "", f"--{name}=")


def local(text: str, said: str = "") -> str:
    """The text, or the path of a file://. Args: said: before it in a message. Raises: UsageError for a place that is not here."""
    found = _URL.match(text)
    if not found:
        return text
    scheme, slashes, rest = found[1].lower(), found[2], found[3]
    if scheme == _LOCAL:
        return _path(slashes, rest, f"{said}{text}")
    if scheme not in _COPY and len(slashes) < 2:
        return text
    copy = f"`{_COPY[scheme]}` copies between there and here" if scheme in _COPY else "mount it, or copy it"
    raise errors.UsageError(f"{said}{text} is no path on this machine", f"{copy}: give the local path")


def is_storage(text: str) -> bool:
    """Whether a text names a file by file:// or in a storage that is known, and no server."""
    found = _URL.match(text)
    return found is not None and found[1].lower() in (_LOCAL, *_COPY)


def _is_file(text: str) -> bool:
    found = _URL.match(text)
    return found is not None and found[1].lower() == _LOCAL


def _path(slashes: str, rest: str, said: str) -> str:
    """The path of a file: URL, as RFC 8089 has it."""
    if len(slashes) == 2:
        host, slash, rest = rest.partition("/")
        if host != "localhost" or not slash:
            raise errors.UsageError(
                f"{said} names the machine {host!r}, and no path", "write file:///PATH, or the path alone"
            )
    path = f"/{rest}"
    return path if os.path.lexists(path) else urllib.parse.unquote(path)
