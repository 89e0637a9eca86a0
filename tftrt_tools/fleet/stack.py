"""The stack of a machine, as far as engines and measurements depend on it, and why a worker with another one refuses a task."""

from __future__ import annotations

import dataclasses

from tftrt_tools.base import errors, records, version
from tftrt_tools.base.process import child
from tftrt_tools.base.stack import installed, probes

_SECONDS = 30
_TITLES = {
    "tools": "tftrt-tools",
    "python": "Python",
    "tensorflow": "TensorFlow",
    "tensorrt": "TensorRT",
    "driver": "NVIDIA's driver",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stack(records.Record):
    """Versions; "" for what is not there. Of what is asked for, "" asks for nothing."""

    tools: str = ""
    # Major and minor alone.
    python: str = ""
    tensorflow: str = ""
    tensorrt: str = ""
    driver: str = ""

    def refusal(self, other: Stack) -> str:
        """Why a worker with the stack `other` refuses what asks for this one, in one line; "" where it takes it."""
        pairs = ((title, getattr(self, name), getattr(other, name)) for name, title in _TITLES.items())
        told = [
            f"{title} {there or 'is missing'}, not {asked}" for title, asked, there in pairs if asked not in ("", there)
        ]
        return "; ".join(told)

    def unlike(self, now: Stack) -> str:
        """In what this one is not `now`, in one line; "" where they are the same."""
        pairs = ((title, getattr(self, name), getattr(now, name)) for name, title in _TITLES.items())
        told = [
            f"{title} {there or 'of any version'}, not {asked or 'of any'}"
            for title, there, asked in pairs
            if there != asked
        ]
        return "; ".join(told)


def here(driver: bool = True) -> Stack:
    """The Stack of this machine, without loading any of it. Args: driver: whether to ask for NVIDIA's, in a child process."""
    import sys

    tensorflow, packages = installed.tensorflow(), installed.tensorrt_packages()
    # PyPI has an empty package of this name.
    old = packages.pop("nvidia-tensorrt", "")
    return Stack(
        tools=version.__version__,
        python="{}.{}".format(*sys.version_info[:2]),
        tensorflow=(tensorflow.version or "") if tensorflow else "",
        tensorrt=next(iter(packages.values()), old),
        driver=_driver() if driver else "",
    )


def _driver() -> str:
    try:
        return probes.driver.run(None, timeout=_SECONDS).result.driver or ""
    except (errors.TftrtError, child.ChildBug):
        return ""
