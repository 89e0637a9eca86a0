"""The flags of the engine cache, for every command that uses it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors

if TYPE_CHECKING:
    from tftrt_tools.models.engine_cache.store import Store

_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([a-z]*)", re.IGNORECASE)


def define(values: flags.FlagValues) -> None:
    """Define --engine_cache_dir and --engine_cache_max_bytes on FlagValues `values`."""
    flags.DEFINE_string(
        "engine_cache_dir",
        None,
        "folder of the engine cache; by default $XDG_CACHE_HOME/tftrt/engines or ~/.cache/tftrt/engines",
        flag_values=values,
    )
    flags.DEFINE_string(
        "engine_cache_max_bytes",
        "10GiB",
        "the most that the engine cache may hold, in bytes or as 500MB, 10GiB; 0 keeps nothing",
        flag_values=values,
    )


def store(values: flags.FlagValues) -> Store:
    """The engine cache that the flags ask for. Raises: UsageError for a folder that can never be a cache, and for a text that is not a
    size."""
    from tftrt_tools.models.engine_cache import folders
    from tftrt_tools.models.engine_cache.store import Store

    max_bytes = parse_bytes("engine_cache_max_bytes", values.engine_cache_max_bytes)
    given = values.engine_cache_dir
    if given is not None:
        if not given:
            raise errors.UsageError("--engine_cache_dir is empty", "name a folder, or leave the flag out")
        given = folders.check(given)
    return Store(given, max_bytes)


def parse_bytes(flag: str, text: str) -> int:
    """A size such as 1000, 500MB or 10GiB in bytes. Raises: UsageError."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2].lower() or "b") if match else None
    if not match or unit is None:
        raise errors.UsageError(
            f"--{flag}={text} is no size", "write bytes, or a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB: 10GiB"
        )
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
