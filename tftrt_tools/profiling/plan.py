"""Measures the engines that a model carries, each alone and outside TensorFlow, in children: raw facts part by part, then profiles."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools import child, errors, progress
from tftrt_tools.conversion import layer_table
from tftrt_tools.profiling import engines
from tftrt_tools.profiling.engine_graph import Graph
from tftrt_tools.profiling.engine_profile import EngineProfile
from tftrt_tools.savedmodel import describe, engine_assets, passport

# What is asked, each in a process of its own, and for people. Later parts may end their process.
PARTS = {"told": "sizes and names of the engines", "timed": "each layer", "traced": "each kernel", "graph": "a CUDA graph",
         "streams": "several streams", "overlap": "streams fed by CUDA graphs"}
# Those that say where a call's time goes.
OF_A_CALL = ("told", "timed", "traced")
_JOB, _GRAPHS = "tftrt_tools.profiling.job.plan_job:record", "tftrt_tools.profiling.job.plan_graph:describe"
# Seconds of a part, to begin with and for each engine and profile; it takes a few. A part that hangs is killed, and the others count.
_TO_BEGIN, _OF_A_PROFILE = 30.0, 15.0
# For the first part, which counts them.
_MOST_PROFILES = 20
_LOG_END = 4000

# {engine: batches}: an engine whose profile serves a range is measured at each of these, too, if no profile was tuned for it.
Rows = Mapping[str, Sequence[int]]


def measure(model: str | os.PathLike[str], shapes: Mapping[str, Sequence[Sequence[int]]] | None = None,
            parts: Sequence[str] = tuple(PARTS), rows: Rows | None = None) -> tuple[tuple[EngineProfile, ...], tuple[str, ...]]:
    """Take apart every engine and profile that SavedModel directory `model` carries.

    Args: shapes: {engine: shape of each of its inputs}; by default each profile runs at what it was tuned for. parts: of
      PARTS. rows: to measure, too.
    Returns: (EngineProfiles, remarks). A part that fails is a remark, and the others count. Raises: TftrtError for a damaged model.
    """
    if not engine_assets.read(model):
        return (), ("the model carries no engines: `tftrt build` makes them, and only saved ones can be taken apart",)
    return engines.profiles(recording(model, shapes, parts, rows))


def recording(model: str | os.PathLike[str], shapes: Mapping[str, Sequence[Sequence[int]]] | None = None,
              parts: Sequence[str] = tuple(PARTS), rows: Rows | None = None) -> engines.Recording:
    """What `measure` makes profiles of. Args: as of `measure`. Raises: TftrtError for a damaged model."""
    recorded: dict[str, dict[str, Any]] = {}
    for number, part in enumerate(parts):
        progress.say(f"measuring {PARTS[part]}", number, len(parts))
        counted = [len(one.get("answers", ())) for one in recorded.values()]
        recorded[part] = _part(model, part, shapes, rows, _TO_BEGIN + _OF_A_PROFILE * max(counted, default=_MOST_PROFILES))
    asked = [(engine, found) for (engine, *_), one in engines.sorted_answers(recorded)[0].items() if (found := engines.shapes(one))]
    graphs = child.run(_GRAPHS, {"model": str(model), "shapes": asked}).result if asked else []
    return engines.Recording(parts=recorded, ops=describe.describe(model)[0].engines, graphs=tuple(map(Graph.from_dict, graphs)),
                             built=_table(model))


def _part(model: str | os.PathLike[str], part: str, shapes: Mapping[str, Sequence[Sequence[int]]] | None,
          rows: Rows | None = None, seconds: float = _TO_BEGIN) -> dict[str, Any]:
    """{"answers": [facts of an engine and profile], "log": its end}, or {"error": why there are none, "log"}. Args: seconds: after which
    it is killed."""
    try:
        outcome = child.run(_JOB, {"model": str(model), "part": part, "shapes": shapes, "rows": rows}, timeout=seconds)
    except child.ChildDied as error:
        return {"error": str(error), "log": error.log[-_LOG_END:]}
    except (errors.TftrtError, child.ChildBug) as error:
        return {"error": str(error)[-_LOG_END:], "log": ""}
    return {"answers": outcome.result, "log": outcome.log[-_LOG_END:]}


def _table(model: str | os.PathLike[str]) -> dict[str, layer_table.Built]:
    document = passport.read(model, passport.LAYERS)
    if document is None:
        return {}
    with passport.understood(model, passport.LAYERS):
        return layer_table.Table.from_dict(document).engines
