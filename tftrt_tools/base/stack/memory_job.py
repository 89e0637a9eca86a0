"""The memory that this process may still take."""

from __future__ import annotations

import pathlib

_MEMINFO, _GROUP = pathlib.Path("/proc/meminfo"), pathlib.Path("/sys/fs/cgroup")


def available() -> int | None:
    """Bytes that are free, by the system and by the container's limit; None where neither tells."""
    found = [told for told in (_system(), _container()) if told is not None]
    return min(found, default=None)


def _system() -> int | None:
    for line in _text(_MEMINFO).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def _container() -> int | None:
    limit, used = _text(_GROUP / "memory.max").strip(), _text(_GROUP / "memory.current").strip()
    return max(0, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else None


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
