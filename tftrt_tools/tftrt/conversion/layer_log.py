"""The precision in which each layer of a built engine computes, read from TensorRT's verbose log.

The engine itself does not say: TF-TRT builds with TensorRT's default profiling verbosity, which keeps only the names of its layers.
The log of the build lists the chosen layers (`layer_table` reads the list), and, for INT8, the layers that lacked a range.
Form of the lines: TensorRT 8.5.3 under TensorFlow 2.14.1, seen on an H200 (tests/data/engine_layers.log.gz).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import records
from tftrt_tools.base.choices import Precision
from tftrt_tools.base.logs import engine_layers
from tftrt_tools.base.logs.engine_layers import Layer, Row
from tftrt_tools.base.logs.known import calibration
from tftrt_tools.tftrt.conversion import layer_table, pass_log

if TYPE_CHECKING:
    from tftrt_tools.tftrt.calibration.file import EngineTable
    from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

# The environment of a child whose log is verbose, which makes it about ten times as long.
_VERBOSE = {**pass_log.ENV, "TF_CPP_VMODULE": pass_log.VMODULE + ",trt_logger=4"}
(_REFUSED,), (_RANGE,) = calibration.REJECTED.forms, calibration.RANGE.forms
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Found(records.Record):
    """What a log says of built engines. layers: as `parse`, unused_ranges: as `unused_ranges` returns them; both {} if not requested."""

    layers: dict[str, tuple[Layer, ...]] = dataclasses.field(default_factory=dict)
    unused_ranges: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, text: str, signatures: Iterable[SignatureResult], tables: Iterable[EngineTable]) -> Found:
        """Read a log. Args: signatures: SignatureResults; tables: EngineTables, as they are on the engine ops."""
        return cls(
            parse(text, [engine.name for one in signatures for engine in one.engines]), unused_ranges(text, tables)
        )

    def text(self, signatures: Iterable[SignatureResult]) -> Iterator[str]:
        """For people, a line each. Args: signatures: as in `of`."""
        precisions = {engine.name: engine.precision for signature in signatures for engine in signature.engines}
        for engine, layers in self.layers.items():
            yield from lines(engine, layers, precisions[engine])
            if engine in self.unused_ranges:
                yield f"  warning: {unused_text(engine, self.unused_ranges[engine])}"


def env(layers: bool, kept: bool) -> dict[str, str]:
    """The environment of a child that builds engines. Its log is verbose, because the progress and the layers that stay with the model come
    from it, but not where it is kept in a file and nobody asked for the layers. Args: layers: print the layers. kept: in a file."""
    return _VERBOSE if layers or not kept else pass_log.ENV


def unused_text(engine: str, names: Sequence[str]) -> str:
    """For people: ranges that an engine did not take."""
    count = "a range" if len(names) == 1 else f"{len(names)} ranges"
    return (
        f"the table of {engine} has {count} of tensors that TensorRT does not have here, first {names[0]}: many of them mean that it "
        "is the table of another network, whose layers stay out of INT8"
    )


def parse(text: str, engines: Sequence[str]) -> dict[str, tuple[Layer, ...]]:
    """Read the log of a build.

    Args: text: the log. engines: names of engine ops.
    Returns: {engine: (Layer, …)}, of each engine's last build; an engine of which the log lists nothing is missing.
    """
    return {
        engine: _layers(engine_layers.rows(block), _without_range(before), f"{engine}/")
        for engine, before, block in layer_table.builds(text, engines)
    }


def unused_ranges(text: str, tables: Iterable[EngineTable]) -> dict[str, tuple[str, ...]]:
    """The ranges of tensors that the built network does not have: the table may have the numbers of another network.

    Args: text: the log. tables: calibration.file.EngineTables as they were on the engine ops.
    Returns: {engine: (name, …)} where there are some; an engine that the log says nothing of is missing.
    """
    scales = {table.engine: table.table.scales for table in tables}
    used = {engine: set(_RANGE.all(before, "tensor")) for engine, before, _ in layer_table.builds(text, list(scales))}
    unused = {engine: tuple(name for name in scales[engine] if name not in names) for engine, names in used.items()}
    return {engine: names for engine, names in unused.items() if names}


def _without_range(text: str) -> dict[str, set[str]]:
    """{TensorRT's layer: {tensor}} of the layers that could not be INT8."""
    refused: dict[str, set[str]] = collections.defaultdict(set)
    for layer, tensor in _REFUSED.pattern.findall(text):
        refused[layer].add(tensor)
    return refused


def _layers(rows: Sequence[Row], refused: Mapping[str, set[str]], prefix: str) -> tuple[Layer, ...]:
    lines_of = []
    for row in rows:
        if layer := engine_layers.computes(row, prefix):
            missing = {tensor for refusal, tensors in refused.items() if refusal in row.name for tensor in tensors}
            lines_of.append(dataclasses.replace(layer, without_range=tuple(sorted(missing))))
    return tuple(lines_of)


def lines(engine: str, layers: Sequence[Layer], asked: Precision) -> Iterator[str]:
    """For people: the precisions of an engine's layers, a line each, profile by profile. Args: asked: the engine op's precision."""
    profiles = sorted({layer.profile for layer in layers}) or [0]
    for profile in profiles:
        label = f"{engine}, profile {profile + 1} of {len(profiles)}" if len(profiles) > 1 else engine
        yield from _lines(label, [layer for layer in layers if layer.profile == profile], asked)


def _lines(label: str, layers: Sequence[Layer], precision: Precision) -> Iterator[str]:
    fused = [layer for layer in layers if layer.kind == engine_layers.FUSED]
    products = [layer for layer in layers if layer.multiplies]
    parts = [
        _counted(products, "convolution or matrix product", "convolutions and matrix products"),
        _counted(
            [layer for layer in layers if not layer.multiplies and layer not in fused], "other layer", "other layers"
        ),
        _counted(fused, "fused graph", "fused graphs", " of its inputs; what it multiplies in is not told"),
    ]
    yield f"{label}, asked for {precision}: " + ("; ".join(filter(None, parts)) or "no layer that computes")
    others = sorted(
        (layer for layer in products if layer.precision != precision), key=lambda layer: not layer.without_range
    )
    for layer in others[:_SHOWN]:
        reason = f" (no range for {layer.without_range[0]})" if precision == "INT8" and layer.without_range else ""
        yield f"  in {layer.precision}: {layer.node}{reason}"
    if len(others) > _SHOWN:
        yield f"  and {len(others) - _SHOWN} more that are not in {precision}"


def _counted(layers: Sequence[Layer], one: str, many: str, note: str = "") -> str:
    """ "4 MANY (1 in INT8, 3 in FP32)", "" for none."""
    counts = collections.Counter(layer.precision or "other types" for layer in layers)
    inside = ", ".join(f"{counts[name]} in {name}" for name in ("INT8", "FP16", "FP32", "other types") if counts[name])
    return f"{len(layers)} {one if len(layers) == 1 else many} ({inside}{note})" if layers else ""
