"""The process of rank_guard."""

from __future__ import annotations

import functools

from tftrt_tools.servers.serving.local import loader, rank_guard
from tftrt_tools.servers.serving.local.servable import Runs


def run(request: rank_guard.Request) -> rank_guard.Answer:
    """Run a model once. See rank_guard.GuardedSession."""
    return rank_guard.answered(request, _session(request.model))


@functools.lru_cache(1)
def _session(model: rank_guard.Model) -> Runs:
    return loader.session(model.path, model.tags, model.config)
