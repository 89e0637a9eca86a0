"""Whether a port is free, and who may hold it."""

import contextlib
import errno
import pathlib
import socket

from tftrt_tools.base import errors
from tftrt_tools.base.stack import sockets


def check(host: str, port: int, flag: str) -> None:
    """Refuse a port that cannot be listened on. Args: host: address; port: number; flag: such as "--port". Raises: TftrtError."""
    if not 0 < port < 65536:
        raise errors.UsageError(f"{flag}={port} is no port", "choose one from 1024 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise _refused(error, host, port, flag) from None


def _refused(error: OSError, host: str, port: int, flag: str) -> errors.TftrtError:
    if error.errno == errno.EADDRINUSE:
        return errors.TftrtError(
            f"port {port} is taken" + (f" by {holder}" if (holder := _holder(port)) else ""),
            f"end that process, or choose another port: {flag}={port + 10}",
        )
    if error.errno == errno.EACCES:
        return errors.TftrtError(
            f"port {port} needs privileges that this user lacks", f"choose one above 1023: {flag}=…"
        )
    return errors.TftrtError(
        f"cannot listen on {host}:{port}: {error.strerror}", "is --host an address of this machine?"
    )


def _holder(port: int) -> str:
    """The holder of the port, such as "tensorflow_mode (pid 123)"; "" where this user may not see it."""
    for pid in sockets.holders(sockets.on_tcp(port)):
        with contextlib.suppress(OSError):
            return f"{pathlib.Path(f'/proc/{pid}/comm').read_text().strip()} (pid {pid})"
    return ""
