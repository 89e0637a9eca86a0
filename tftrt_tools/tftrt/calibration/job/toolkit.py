"""INT8 tables without a GPU: the native segments run here, and each tensor that TensorRT will ask for gets a scale from its values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel.job import graph, inline
from tftrt_tools.tftrt.calibration.file import NO_RANGE, NOT_MEASURED
from tftrt_tools.tftrt.calibration.job import collect, pooling, tensor_names
from tftrt_tools.tftrt.calibration.job.frozen import Frozen
from tftrt_tools.tftrt.calibration.job.histogram import Histogram
from tftrt_tools.tftrt.calibration.job.kept_back import Batch
from tftrt_tools.tftrt.calibration.job.passing import Judging, passed, scales_of
from tftrt_tools.tftrt.calibration.methods import Method
from tftrt_tools.tftrt.calibration.table import Table, header

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

# What `Ranges.tables` gives for an engine: (table, ((tensor, reason), …) left out, {tensor: {"min", "max"}}).
Made = tuple[Table, tuple[tuple[str, str], ...], dict[str, dict[str, float]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranges:
    """The result of one pass over calibration data, for a signature's INT8 engines."""

    # The results of inline.inline_segments.
    inlined: Any
    inner: Mapping[str, dict[str, str]]
    # {engine: the names in its table, with their tensors}.
    named: Mapping[str, Sequence[tensor_names.NamedTensor]]
    # The same, with the pooled tensors in place of the outputs of max poolings.
    measured: Mapping[str, Sequence[tensor_names.NamedTensor]]
    # {tensor of the inlined graph: its Histogram}.
    histograms: Mapping[str, Histogram]
    # The version of TensorRT that will read the tables.
    tensorrt: str
    # The data that judges the methods; () where nothing is compared.
    judging: tuple[Judging, ...]

    def tables(self, method: Method) -> dict[str, Made]:
        """{engine: its table, left-out tensors and ranges} by one method."""
        return self._tables(scales_of(self.histograms, method))

    def tables_to_judge(self, judging: Judging) -> dict[Method, dict[str, Made]]:
        """The same by each method, to be judged with the batches of a Judging."""
        return {method: self._tables(found) for method, found in judging.scales.items()}

    def by_tensor(self, tables: Mapping[str, Table]) -> dict[str, float]:
        """The scales by tensor, as toolkit.by_tensor."""
        return by_tensor(self.inner, self.named, tables)

    def left_out(self, tables: Mapping[str, Table]) -> set[str]:
        """The tensors without a scale, as toolkit.left_out."""
        return left_out(self.inner, self.named, tables)

    def _tables(self, found: Mapping[int, float | None]) -> dict[str, Made]:
        return {
            engine: _table(named, self.inner[engine], self.histograms, found, self.tensorrt)
            for engine, named in self.measured.items()
        }


def measure(
    frozen: Frozen,
    graph_def: graph_pb2.GraphDef,
    engines: Iterable[str],
    batches: Iterable[Batch],
    dynamic: bool,
    tensorrt: str,
    methods: Sequence[Method] = (),
) -> Ranges:
    """Measure the ranges of a signature's INT8 engines, in one pass over the data.

    Args:
      frozen: graph_pass.Frozen; graph_def: its converted graph. engines: names of the engine ops.
      batches: {input: np.ndarray} each. dynamic: explicit batch mode. tensorrt: version that will read the tables, such as "8.5.3".
      methods: those to judge. Some batches are kept back for that (kept_back) and counted last, so that they are in the final ranges
        too. With little data each half is judged with the ranges of the other.

    Raises: TftrtError.
    """
    inlined, inner = inline.inline_segments(graph_def)
    named, native = names(graph_def, engines, dynamic), graph.native_segments(graph_def)
    measured = {engine: pooling.measured(listed, native[engine].function) for engine, listed in named.items()}
    collector = collect.Collector(
        frozen,
        inlined,
        [inner[engine][tensor.tensor] for engine, listed in measured.items() for tensor in listed if tensor.tensor],
    )
    judging = passed(collector, batches, methods)
    return Ranges(
        inlined=inlined,
        inner=inner,
        named=named,
        measured=measured,
        histograms=collector.histograms,
        tensorrt=tensorrt,
        judging=judging,
    )


def names(
    graph_def: graph_pb2.GraphDef, engines: Iterable[str], dynamic: bool
) -> dict[str, list[tensor_names.NamedTensor]]:
    """{engine: [tensor_names.NamedTensor]} for the declared shapes."""
    native = graph.native_segments(graph_def)
    named: dict[str, list[tensor_names.NamedTensor]] = {}
    for engine in engines:
        progress.say(f"naming the tensors of {engine}")
        named[engine] = tensor_names.names(native[engine].function, dynamic, native[engine].shapes)
    return named


def by_tensor(
    inner: Mapping[str, Mapping[str, str]],
    named: Mapping[str, Sequence[tensor_names.NamedTensor]],
    tables: Mapping[str, Table],
) -> dict[str, float]:
    """The scales of tables, for the tensors of the graph that the tables' names stand for.

    Args: inner: {engine: {tensor of the segment: tensor of the graph}} of inline.inline_segments. named: of `names`. tables: by engine.

    Returns: {tensor of the inlined graph: float > 0}. Names that stand for no tensor are left out.
    """
    ranges: dict[str, float] = {}
    for engine, table in tables.items():
        for tensor in named[engine]:
            if tensor.tensor and tensor.name in table.scales:
                ranges.setdefault(inner[engine][tensor.tensor], table.scales[tensor.name])
    return ranges


def left_out(
    inner: Mapping[str, Mapping[str, str]],
    named: Mapping[str, Sequence[tensor_names.NamedTensor]],
    tables: Mapping[str, Table],
) -> set[str]:
    """The tensors of the graph that have a name of their own in the engine, and no scale in its table: no layer takes them in INT8, even if
    they only pass on values that have a scale. Args: as of `by_tensor`."""
    scaled = by_tensor(inner, named, tables)
    return {
        tensor
        for engine in tables
        for line in named[engine]
        if line.tensor and (tensor := inner[engine][line.tensor]) not in scaled
    }


def _table(
    named: Sequence[tensor_names.NamedTensor],
    inner: Mapping[str, str],
    histograms: Mapping[str, Histogram],
    found: Mapping[int, float | None],
    tensorrt: str,
) -> Made:
    """found: {id of a histogram: its scale}."""
    scales: dict[str, float] = {}
    left_out: list[tuple[str, str]] = []
    ranges: dict[str, dict[str, float]] = {}
    for tensor in named:
        histogram = histograms.get(inner[tensor.tensor]) if tensor.tensor else None
        if histogram is None:
            left_out.append((tensor.name, NOT_MEASURED))
            continue
        scale = found[id(histogram)]
        if scale is None:
            left_out.append((tensor.name, NO_RANGE))
            continue
        scales[tensor.name] = scale
        ranges[tensor.name] = {"min": float(histogram.minimum), "max": float(histogram.maximum)}
    return Table(header(tensorrt), scales), tuple(left_out), ranges
