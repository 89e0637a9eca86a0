"""INT8 in the nodes alone that TensorRT computes in INT8 where it may choose (--int8_as).

A plan whose INT8 comes from a calibration table leaves a layer in a wider type where that is faster; a file with QuantizeLinear nodes
leaves TensorRT no choice. So such a plan tells which nodes are worth to be rounded. No runtime is imported here.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.logs.engine_layers import Row
from tftrt_tools.models.kinds.plan import document, layer_information, layer_names
from tftrt_tools.models.savedmodel import passport

# In place of a plan: build one first.
AUTO = "auto"
_INT8 = "Int8"
# How the reason begins for which a node stays.
WHY = "--int8_as="
# What only changes a form, and carries the name of the layer beside it.
_MOVES = ("Reformat", "NoOp")
_WIDTHS = {"Float": "FP32", "Half": "FP16"}


@dataclasses.dataclass(frozen=True)
class Seen(records.Record):
    """A layer. name: TensorRT's; type: of what it reads, as the build's log says it, "Int8" if any input is that."""

    name: str
    type: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsPlan(records.Record):
    """What a plan's layers read, in the profile of the largest shapes. plan: what messages call it."""

    plan: str
    layers: tuple[Seen, ...]


def read(plan: str | os.PathLike[str], said: str = "") -> AsPlan:
    """The layers of a plan directory. Args: said: what messages call it, if not by its path. Raises: UsageError for one that does not tell
    where INT8 is worth it."""
    name = said or str(plan)
    if plan == AUTO:
        raise errors.UsageError(
            f"--int8_as={AUTO} builds a plan, and nothing is built here",
            f"name a plan directory, or use `tftrt convert --backend=tensorrt --int8_as={AUTO}`",
        )
    if not (pathlib.Path(plan) / document.DOCUMENT).is_file():
        raise errors.UsageError(
            f"--int8_as={name} is no plan directory", "`tftrt convert --backend=tensorrt` makes one"
        )
    manifest = passport.read(plan, passport.MANIFEST) or {}
    if not manifest.get("ranged"):
        why = (
            "its file has the INT8 written in"
            if manifest.get("settings", {}).get("precision_mode") == "INT8"
            else "it has no INT8"
        )
        raise errors.UsageError(
            f"--int8_as={name} does not tell where INT8 is worth it: {why}",
            "build it from the FP32 file, with --precision=INT8 and --calibration_table (TensorRT 8 and 9)",
        )
    layers = seen(passport.read(plan, document.LAYER_INFORMATION))
    if not layers:
        raise errors.UsageError(
            f"--int8_as={name} does not tell the types of its layers, as plans with ranges of shapes do not",
            "build it with exact shapes: --shapes=INPUT:1x…,32x…",
        )
    return AsPlan(plan=name, layers=layers)


def seen(said: Mapping[str, Any] | None) -> tuple[Seen, ...]:
    """The layers that compute something, in a type that is told, of the profile of the largest shapes: where profiles differ, a layer that
    is slower costs most there. Args: said: the inspector's, as of layer_information.rows."""
    told = [(row, kind) for row in layer_information.rows(said) if row.kind not in _MOVES and (kind := _type(row))]
    read: collections.Counter[int] = collections.Counter()
    for row, _ in told:
        read[row.profile] += sum(math.prod(one.sizes) for one in row.inputs)
    largest = max(read, key=lambda profile: read[profile], default=0)
    return tuple(Seen(row.name, kind) for row, kind in told if row.profile == largest)


def _type(row: Row) -> str:
    """The type that a layer reads; "" where it is not told."""
    types = [one.type for one in row.inputs]
    return _INT8 if _INT8 in types else next(filter(None, types), "")


def wider(asked: AsPlan, nodes: Sequence[str]) -> dict[str, str]:
    """{node: why it stays} of the nodes that the plan computes in INT8 in less than half of their layers.

    Args: nodes: that could be rounded. A node that no layer names is left out of the answer.
    Raises: UsageError where the plan is of another model, does not tell, or computes none of them in INT8.
    """
    found: dict[str, list[str]] = collections.defaultdict(list)
    known = frozenset(nodes)
    # Of a graph that TensorRT's compiler Myelin takes whole, only the ends are named, and no type inside is told.
    apart = [layer for layer in asked.layers if not layer.name.startswith(layer_names.FOREIGN)]
    for layer in apart:
        for node in layer_names.held(layer.name, known):
            found[node].append(layer.type)
    if not found and len(apart) < len(asked.layers):
        raise errors.UsageError(
            f"--int8_as={asked.plan}: TensorRT's compiler takes the model as one layer, and does not tell where that "
            "computes in INT8",
            "leave it out",
        )
    if not found:
        raise errors.UsageError(
            f"--int8_as={asked.plan} is a plan of another model: none of its layers has the name of a node of this one",
            "build it from what `tftrt export` writes of this model in FP32",
        )
    stay = {node: types for node, types in found.items() if 2 * types.count(_INT8) < len(types)}
    if len(stay) == len(found):
        raise errors.UsageError(
            f"--int8_as={asked.plan}: TensorRT computes no node of it in INT8, so INT8 is not worth it there",
            "take --precision=FP16",
        )
    return {node: f"{WHY}{asked.plan} has it in {_said(types)}, which was faster" for node, types in stay.items()}


def _said(types: Sequence[str]) -> str:
    """The commonest wider type."""
    kind, _ = collections.Counter(one for one in types if one != _INT8).most_common(1)[0]
    return _WIDTHS.get(kind, kind)
