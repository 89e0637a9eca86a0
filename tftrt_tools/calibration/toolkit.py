"""INT8 tables without a GPU: the native segments run here, and each tensor that TensorRT will ask for gets a scale from its values."""

from tftrt_tools import progress
from tftrt_tools.calibration import collect, pooling, scales, tensor_names
from tftrt_tools.calibration.file import NO_RANGE, NOT_MEASURED
from tftrt_tools.calibration.table import Table, header
from tftrt_tools.savedmodel import graph, inline


def tables(frozen, graph_def, engines, batches, settings, tensorrt):
    """Make the tables of a signature's INT8 engines.

    Args:
      frozen: graph_pass.Frozen; graph_def: its converted graph. engines: names of the engine ops.
      batches: iterable of {input: np.ndarray}. settings: Settings (calibration_method, calibration_percentile, dynamic).
      tensorrt: version that will read the tables, such as "8.5.3".

    Returns: {engine: (table.Table, ((tensor, reason), …) left out, {tensor: {"min", "max"}})}. Raises: TftrtError.
    """
    inlined, inner = inline.inline_segments(graph_def)
    native, named = graph.native_segments(graph_def), {}
    for engine in engines:
        progress.say(f"naming the tensors of {engine}")
        one = native[engine]
        named[engine] = pooling.measured(tensor_names.names(one.function, settings.dynamic, one.shapes), one.function)
    wanted = [inner[engine][one.tensor] for engine in engines for one in named[engine] if one.tensor]
    histograms = collect.collect(frozen, inlined, wanted, batches)
    progress.say("computing scales")
    found = {}
    return {engine: _table(named[engine], inner[engine], histograms, settings, tensorrt, found) for engine in engines}


def by_tensor(graph_def, inner, tables, dynamic):
    """The scales of tables as those of tensors of the graph: of what the tables' names stand for.

    Args: graph_def: converted graph. inner: {engine: {tensor of the segment: tensor of the graph}} of inline.inline_segments.
      tables: {engine: table.Table}. dynamic: explicit batch mode.

    Returns: {tensor of the inlined graph: float > 0}. Names that stand for no tensor are left out.
    """
    native, found = graph.native_segments(graph_def), {}
    for engine, table in tables.items():
        for one in tensor_names.names(native[engine].function, dynamic, native[engine].shapes):
            if one.tensor and one.name in table.scales:
                found.setdefault(inner[engine][one.tensor], table.scales[one.name])
    return found


def _table(named, inner, histograms, settings, tensorrt, found):
    """found: {id of a histogram: its scale}, shared by the tensors that share a histogram."""
    made, left_out, ranges = {}, [], {}
    for one in named:
        histogram = histograms.get(inner[one.tensor]) if one.tensor else None
        if histogram is None:
            left_out.append((one.name, NOT_MEASURED))
            continue
        if id(histogram) not in found:
            found[id(histogram)] = scales.scale(histogram, settings.calibration_method, settings.calibration_percentile)
        if found[id(histogram)] is None:
            left_out.append((one.name, NO_RANGE))
            continue
        made[one.name] = found[id(histogram)]
        ranges[one.name] = {"min": float(histogram.minimum), "max": float(histogram.maximum)}
    return Table(header(tensorrt), made), tuple(left_out), ranges
