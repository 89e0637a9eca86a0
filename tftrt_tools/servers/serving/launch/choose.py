"""Chooses the backend: the named one, or the first that is available."""

from tftrt_tools.base import errors
from tftrt_tools.servers.serving.launch.backend import Backend
from tftrt_tools.servers.serving.launch.binary import Binary
from tftrt_tools.servers.serving.launch.docker import Docker
from tftrt_tools.servers.serving.launch.local import Local

NAMES = ("auto", "binary", "docker", "local")


def choose(name: str, image: str = "") -> tuple[Backend, str]:
    """A Backend and why. Args: name: one of NAMES; image: of Docker, "" for the usual ones.

    Returns: (Backend, reason in one line).

    Raises: TftrtError if the named one is not available.
    """
    passed: list[str] = []
    for launcher in (Binary(), Docker(image), Local()):
        if name not in ("auto", launcher.name):
            continue
        usable, reason = launcher.available()
        if usable:
            return launcher, "; ".join([reason, *passed])
        passed.append(reason)
    mends = {
        "binary": "install it, or use --launch=docker or --launch=local",
        "docker": "fix that, or use --launch=local for the development server",
    }
    raise errors.TftrtError(f"--launch={name}: {passed[0]}", mends[name])
