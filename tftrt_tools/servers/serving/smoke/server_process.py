"""Finds the server's process by the socket that it listens on, if it runs on this machine and permissions allow it."""

import dataclasses
import os
import pathlib
import re
import socket
from collections.abc import Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.stack import sockets

SERVING, LOCAL, TRITON = "tensorflow_model_server", "development server", "tritonserver"
_LOCAL_MODULE = "tftrt_tools.servers.serving.local"


@dataclasses.dataclass(frozen=True)
class Process:
    """program: SERVING, LOCAL, or the command's name for another (a proxy, a tunnel). environ: as it was started with, None where this user
    may not read it."""

    pid: int
    program: str
    argv: tuple[str, ...]
    environ: dict[str, str] | None

    @property
    def known(self) -> bool:
        """Whether this is a known server program; a proxy proves nothing."""
        return self.program in (SERVING, LOCAL)

    def flag(self, name: str) -> str:
        """Value of the server's flag `name`, the last that was given, or ""."""
        value = ""
        for index, word in enumerate(self.argv):
            if word.startswith(f"--{name}="):
                value = word.partition("=")[2]
            elif word == f"--{name}" and index + 1 < len(self.argv):
                value = self.argv[index + 1]
        return value

    def path(self, text: str) -> pathlib.Path:
        """A path of the server as seen from this process: it takes the server's root (a container's) and working directory into account."""
        base = pathlib.Path(f"/proc/{self.pid}")
        absolute = (
            pathlib.PurePosixPath(text)
            if text.startswith("/")
            else pathlib.PurePosixPath(os.readlink(base / "cwd")) / text
        )
        root = os.readlink(base / "root")
        return pathlib.Path(absolute) if root == "/" else base / "root" / absolute.relative_to("/")

    # Not a Record: a command line and an environment may hold secrets.
    def to_dict(self) -> dict[str, Any]:
        return {"pid": self.pid, "program": self.program}


def find(target: str) -> tuple[Process | None, str]:
    """The Process that listens at a gRPC target of this machine.

    Args: target: "HOST:PORT" or "unix:PATH". Returns: (Process or None, why there is none).
    """
    if target.startswith("unix:"):
        sockets_found = sockets.on_unix(os.path.realpath(target.removeprefix("unix:").removeprefix("//")))
    else:
        host, _, port = target.rpartition(":")
        if not is_here(host.strip("[]")):
            return None, f"{host} is another machine"
        sockets_found = sockets.on_tcp(int(port))
    if not sockets_found:
        return (
            None,
            "no process of this network namespace listens there: a container publishes the port, or another machine",
        )
    holders = [process for process in map(_read, sockets.holders(sockets_found)) if process]
    identified = [holder for holder in holders if holder.known]
    if not holders:
        return None, "the process that listens there belongs to another user"
    return (identified or holders)[0], ""


def of_id(pid: int) -> Process:
    """The Process with this id, for a port that another process publishes. Raises: UsageError if it is not a known server program."""
    process = _read(pid)
    if process is None or not process.known:
        what = f"is {process.program}" if process else "does not run, or belongs to another user"
        raise errors.UsageError(
            f"--server_pid={pid} {what}", "give the id of the tensorflow_model_server, as this machine counts"
        )
    return process


def is_here(host: str) -> bool:
    """Whether a host name or address is this machine's: one that a socket can be bound to."""
    try:
        addresses = socket.getaddrinfo(host or "localhost", 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return any(_binds(*address) for address in addresses)


def _binds(
    family: int,
    kind: int,
    protocol: int,
    _name: str,
    address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
) -> bool:
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
        return True
    except OSError:
        return False


def _read(pid: int) -> Process | None:
    folder = pathlib.Path(f"/proc/{pid}")
    try:
        argv = tuple((folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0"))
    except OSError:
        return None
    return Process(pid, _program(argv), argv, _environ(folder / "environ"))


def _program(argv: Sequence[str]) -> str:
    if any(word == "-m" and following == _LOCAL_MODULE for word, following in zip(argv, argv[1:], strict=False)):
        return LOCAL
    name = os.path.basename(argv[0])
    return SERVING if re.match(r"tensorflow_model_server", name) else name


def _environ(path: pathlib.Path) -> dict[str, str] | None:
    try:
        pairs = path.read_bytes().decode(errors="surrogateescape").split("\0")
    except OSError:
        return None
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
