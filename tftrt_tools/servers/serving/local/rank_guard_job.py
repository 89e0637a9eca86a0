"""The process of rank_guard."""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from typing import Any

from tftrt_tools.servers.serving.local import loader, rank_guard
from tftrt_tools.servers.serving.local.servable import Runs


def job(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a model once. See rank_guard.GuardedSession."""
    return rank_guard.answered(request, _session(request["path"], tuple(request["tags"]), request["config"]))


@functools.lru_cache(1)
def _session(path: str, tags: tuple[str, ...], config: str) -> Runs:
    return loader.session(path, tags, base64.b64decode(config))
