"""Two profiles of engines, layer by layer: what the same nodes take in each, and where they are fused otherwise."""

from __future__ import annotations

import collections
import dataclasses
import typing
from collections.abc import Iterable, Sequence

from tftrt_tools.base import records
from tftrt_tools.studies.profiling import layers
from tftrt_tools.studies.profiling.engine_profile import EngineProfile, LayerProfile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side(records.Record):
    """The layers that hold the nodes of a row in one of the two engines."""

    # TensorRT's names of the layers, and "INT8", "FP16"… of those that compute.
    layers: tuple[str, ...]
    precisions: tuple[str, ...]
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(records.Record):
    """The smallest group of nodes that is whole in both: a layer of each, or several where they are fused otherwise."""

    # Of TensorFlow or of an ONNX file; () for the layers that only move values, which are one row.
    nodes: tuple[str, ...]
    one: Side
    other: Side

    written_too: typing.ClassVar[tuple[str, ...]] = ("fused_otherwise",)

    @property
    def fused_otherwise(self) -> bool:
        """Whether the nodes are more layers in one engine than in the other."""
        return bool(self.nodes and self.one.layers and self.other.layers) and len(self.one.layers) != len(
            self.other.layers
        )

    @property
    def difference(self) -> float:
        """Seconds that the other takes longer."""
        return self.other.seconds - self.one.seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(records.Record):
    """Two engines."""

    # Of the first and of the other: engine and shapes of its inputs and outputs.
    one: str
    other: str
    one_shapes: dict[str, tuple[int, ...]]
    other_shapes: dict[str, tuple[int, ...]]
    # The largest difference first.
    rows: tuple[Row, ...]
    # Nodes that only one of them has.
    only_one: tuple[str, ...] = ()
    only_other: tuple[str, ...] = ()


def compare(one: EngineProfile, other: EngineProfile) -> Comparison:
    """Compare two engines, such as one model in FP16 and in INT8, or with two drivers, or at two shapes."""
    ours, its = _places(one), _places(other)
    groups = _groups(one, other)
    rows = [
        _row(
            nodes,
            one,
            other,
            {ours[node] for node in nodes if node in ours},
            {its[node] for node in nodes if node in its},
        )
        for nodes in groups
    ]
    rows.append(_row((), one, other, _without(one, ours), _without(other, its)))
    return Comparison(
        one=one.engine,
        other=other.engine,
        one_shapes=one.shapes,
        other_shapes=other.shapes,
        rows=tuple(sorted(rows, key=lambda row: -abs(row.difference))),
        only_one=tuple(node for node in ours if node not in its),
        only_other=tuple(node for node in its if node not in ours),
    )


def pairs(ones: Sequence[EngineProfile], others: Sequence[EngineProfile]) -> list[tuple[EngineProfile, EngineProfile]]:
    """Which engines of two models to compare: those that share most of their nodes, at the same shapes where both have them."""
    groups = []
    for layer in ones:
        own = set(_places(layer))
        best = max(
            others,
            default=None,
            key=lambda other: (
                _shared(own, set(_places(other))),
                _sizes(layer) == _sizes(other),
                layer.profile == other.profile,
            ),
        )
        if best is not None and _shared(own, set(_places(best))) > 0:
            groups.append((layer, best))
    return groups


def _sizes(engine: EngineProfile) -> list[tuple[int, ...]]:
    return list(engine.shapes.values())


def _shared(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0


def _places(engine: EngineProfile) -> dict[str, int]:
    """{node: place of the layer that computes it}: of several, the slowest that does not only move values."""
    counts: dict[str, int] = {}
    for place, layer in enumerate(engine.layers):
        for node in layer.nodes:
            if node not in counts or _weight(layer) > _weight(engine.layers[counts[node]]):
                counts[node] = place
    return counts


def _weight(layer: LayerProfile) -> tuple[bool, float]:
    return layer.role not in layers.MOVES, layer.seconds


def _without(engine: EngineProfile, places: dict[str, int]) -> set[int]:
    """Places of the layers that compute no node."""
    return set(range(len(engine.layers))) - set(places.values())


def _groups(one: EngineProfile, other: EngineProfile) -> list[tuple[str, ...]]:
    """Nodes that are in one layer of either engine belong together, and so on."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for engine in (one, other):
        first: dict[int, str] = {}
        for node, place in _places(engine).items():
            parent[root(node)] = root(first.setdefault(place, node))
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for node in list(parent):
        groups[root(node)].append(node)
    return [tuple(nodes) for nodes in groups.values()]


def _row(
    nodes: tuple[str, ...], one: EngineProfile, other: EngineProfile, mine: Iterable[int], its: Iterable[int]
) -> Row:
    return Row(nodes=nodes, one=_side(one, mine), other=_side(other, its))


def _side(engine: EngineProfile, places: Iterable[int]) -> Side:
    chosen = [engine.layers[place] for place in sorted(places)]
    precisions = dict.fromkeys(
        layer.precision for layer in chosen if layer.precision and layer.role not in layers.MOVES
    )
    return Side(
        layers=tuple(layer.name for layer in chosen),
        precisions=tuple(precisions),
        seconds=sum(layer.seconds for layer in chosen),
    )
