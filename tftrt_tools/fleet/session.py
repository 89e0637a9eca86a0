"""A fleet that is open: Ray on this machine for the time of a command, or a client of a cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import secrets
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import environment, starting
from tftrt_tools.fleet.place import Place

_LOOPBACK = "127.0.0.1"
_CONNECTS = 3
_TOKEN = "if that head has a token, set RAY_AUTH_MODE=token and copy its ~/.ray/auth_token to this machine"
# What Ray says then; the bound is in its code.
_SLOW = "timed out during startup"
_REACHED_SECONDS = 10
# Ray's own sockets lie below its folder: "/session_<date>_<pid>/sockets/plasma_store".
_SOCKET_BYTES, _RAYS_BYTES = 107, 70
# Before Ray is imported. Where its head has gone, each call would start another Ray on this machine. And it would replace 127.0.0.1 by the
# machine's own address and listen there, on every interface: in a fleet of this machine, which may follow in the same process.
_IMPORTED_WITH = {"RAY_ENABLE_AUTO_CONNECT": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
# Nothing is sent to Ray's makers, nothing of Ray's own is printed: it goes to stdout, where a result may go.
_LOCAL = {
    **_IMPORTED_WITH,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # Ray's workers, and so their children, would be the first that the system ends for want of memory, and the last that get a processor.
    "RAY_worker_oom_score_adjustment": "0",
    "RAY_worker_niceness": "0",
}


class _Slow(errors.TftrtError):
    """Ray's own bound of time for its start was over."""


class Fleet:
    """An open fleet; made by `opened`. ray: the package. grows: whether machines may still join."""

    def __init__(self, place: Place, ray: Any) -> None:
        self.place, self.ray = place, ray
        self.grows = place.kind == "cluster"

    def nodes(self) -> dict[str, dict[str, float]]:
        """{Ray's name of a living machine: its resources}. Raises: TftrtError where the fleet has gone."""
        try:
            return {node["NodeID"]: node["Resources"] for node in self.ray.nodes() if node["Alive"]}
        except (ConnectionError, self.ray.exceptions.RaySystemError) as error:
            raise gone(self.place) from error


def gone(place: Place) -> errors.TftrtError:
    """The error where the head does not answer any more."""
    return errors.TftrtError(
        f"the fleet at {place.text()} does not answer any more", "look at its head, and run the command again"
    )


@contextlib.contextmanager
def opened(place: Place) -> Iterator[Fleet]:
    """Open a fleet for the block. Yields: Fleet. Raises: TftrtError where Ray is not installed, does not start or does not answer."""
    with _local() if place.kind == "local" else _cluster(place) as ray:
        yield Fleet(place, ray)


@contextlib.contextmanager
def _local() -> Iterator[Any]:
    """Ray on this machine alone: on the loopback, with a token that nobody else has, in a folder that goes with it."""
    # The token is in the environment, and so in no file of the home folder.
    package = str(pathlib.Path(__file__).resolve().parents[2])
    values = {**_LOCAL, "RAY_AUTH_TOKEN": secrets.token_hex(32), "PYTHONPATH": starting.search_path(last=package)}
    # What its processes leave when they are ended goes with the folder.
    with scratch.folder("ray") as folder, environment.variables({**values, "TMPDIR": folder}):
        ray = _imported()
        short = len(os.fsencode(folder)) + _RAYS_BYTES <= _SOCKET_BYTES
        with contextlib.ExitStack() as stack:
            if not short:
                folder = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="tftrt-", dir="/tmp", ignore_cleanup_errors=True)
                )
            stack.callback(_ended, ray)
            _started_here(ray, folder)
            heard = [node["NodeManagerAddress"] for node in ray.nodes()]
            if heard != [_LOOPBACK]:
                raise errors.TftrtError(
                    f"Ray listens at {', '.join(heard)}, not on the loopback alone",
                    "import Ray after tftrt_tools, not before",
                )
            yield ray


def _started_here(ray: Any, folder: str) -> None:
    """Start Ray on the loopback, a second time where the machine was too busy for the first."""
    # With an address of its own it never joins a Ray that runs here already.
    options = dict(address="local", include_dashboard=False, _temp_dir=folder, _node_ip_address=_LOOPBACK)
    try:
        _started(ray, **options)
    except _Slow:
        _ended(ray)
        _started(ray, **options)


@contextlib.contextmanager
def _cluster(place: Place) -> Iterator[Any]:
    with environment.variables(_IMPORTED_WITH):
        ray = _imported()
    try:
        # Ray's client asks a head that is not there for 30 s.
        socket.create_connection(place.host_and_port(), _REACHED_SECONDS).close()
    except OSError as error:
        raise errors.TftrtError(
            f"no fleet answers at {place.address}: {errors.first_line(str(error))}",
            "give the address of a head that `ray start --head --ray-client-server-port=10001` started",
        ) from error
    try:
        _connected(ray, place)
    except ConnectionError as error:
        cause = f"{place.address} does not let this machine in: {errors.first_line(str(error))}"
        raise errors.TftrtError(cause, _TOKEN) from error
    try:
        yield ray
    finally:
        # The head ends what this client has started.
        _ended(ray)


def _connected(ray: Any, place: Place) -> None:
    """Connect. The head forks a process for each client, and now and then that process does not come up. Raises: ConnectionError."""
    for number in range(_CONNECTS):
        try:
            with warnings.catch_warnings():
                # That it waited is told by the error.
                warnings.simplefilter("ignore")
                return _started(ray, address=place.address)
        except ConnectionAbortedError:
            if number == _CONNECTS - 1:
                raise


def check() -> None:
    """Raise NeedsExtra where Ray is not installed; it is not imported."""
    if importlib.util.find_spec("ray") is None:
        raise _missing()


def _missing() -> errors.NeedsExtra:
    return errors.NeedsExtra("--on needs Ray, which is not installed", errors.install("fleet"))


def _imported() -> Any:
    try:
        import ray
    except ImportError:
        raise _missing() from None
    _read_anew()
    return ray


def _read_anew() -> None:
    """Let Ray read its settings and its token from the environment again. It keeps those of the first fleet of a process, and the second
    one would not know its own token. Ray's tests have no other way; where a release has other names, the second fleet says that it does
    not start."""
    with contextlib.suppress(ImportError, AttributeError):
        from ray._raylet import AuthenticationTokenLoader, Config

        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()


def _started(ray: Any, **options: Any) -> None:
    """ray.init, in a folder where no modules of others lie: its workers look for modules in this process's folder, before all libraries."""
    import logging

    with _undisturbed():
        before = starting.current_folder()
        os.chdir(starting.START)
        try:
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
        except (ConnectionError, errors.TftrtError):
            raise
        except Exception as error:
            if _SLOW in str(error):
                raise _Slow(
                    "Ray does not start within 30 s", "run the command again when the machine is less busy"
                ) from error
            raise errors.TftrtError(
                f"Ray does not start: {errors.first_line(str(error))}", "its log says more"
            ) from error
        finally:
            if before:
                os.chdir(before)


def _ended(ray: Any) -> None:
    with _undisturbed():
        ray.shutdown()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block is done: in the middle of a start nobody knows the processes that are there. Ray's own
    handler of SIGTERM goes with the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        if came:
            os.kill(os.getpid(), came[0])
