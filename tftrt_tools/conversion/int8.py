"""INT8 tables for the engines of one converted signature: made from data, or taken from a file, and written onto the engine ops."""

import dataclasses
import re

from tftrt_tools import errors, tf_private
from tftrt_tools.calibration import data, file, fitting, numbering, scales, table, tensor_names, toolkit
from tftrt_tools.conversion import engine_inputs
from tftrt_tools.savedmodel import graph, segment, segments
from tftrt_tools.savedmodel.engine_op import PASSIVE_OPS

_NO_DATA = ("INT8 needs ranges, and neither --calibration_data nor --calibration_table is given",
            "give one of them; --calibrate_on_random_data shows that it works, with useless ranges")


@dataclasses.dataclass(frozen=True)
class Source:
    """Where tables come from. options: data.DataOptions, or None; given: file.Calibration to reuse, or None."""

    options: object
    given: object

    def to_dict(self):
        return {"options": self.options.to_dict() if self.options else None, "given": self.given.to_dict() if self.given else None}

    @classmethod
    def from_dict(cls, plain):
        options, given = plain["options"], plain["given"]
        return cls(data.DataOptions.from_dict(options) if options else None, file.Calibration.from_dict(given) if given else None)

    def method(self, settings):
        """With which method constants get a scale."""
        return method_of(self.given) if self.given else settings.calibration_method


def tables(name, frozen, graph_def, specs, settings, source, folder):
    """Tables for every INT8 engine of a signature that wants one.

    Args: name: of the signature; frozen, graph_def: as conversion.engines takes them; specs: [InputSpec]; source: Source; folder: for
      temporary files.

    Engines without a float tensor between their inputs and outputs have nothing that INT8 could compute: they become FP16, in place.

    Returns: ((file.EngineTable, …), record.DataRecord or None where the tables are reused). Raises: UsageError, TftrtError.
    """
    digests = segments.engine_digests(graph_def, names=True)
    _without_floats_to_fp16(graph_def, settings)
    wanted = {engine: digests[engine] for engine in wanting_tables(graph_def)}
    if not wanted:
        return (), None
    if source.given:
        made, record = _reused(name, graph_def, settings, source.given, wanted), None
    elif source.options:
        made, record = _calibrated(name, frozen, graph_def, specs, settings, source.options, wanted, folder)
    else:
        raise errors.UsageError(*_NO_DATA)
    method = source.method(settings)
    for engine, one in graph.native_segments(graph_def).items():
        if engine in made and made[engine].segment:
            made[engine] = numbering.settled(made[engine], one.function, settings.dynamic, one.shapes, method)
    excluded = _excluded(graph_def, made, settings)
    return tuple(_without(made[engine], excluded.get(engine, ())) for engine in wanted), record


def for_build(frozen, graph_def, specs, settings, calls, made, method, earlier=False):
    """Tables with the names that the engines for `calls` will ask for.

    Tables are made for the declared shapes, and TF-TRT may make the network of others (tensor_names.build_shapes): static and unknown
    dimensions can give other numbers of layers.

    Args: frozen, graph_def, specs, settings, calls: as conversion.engines.build takes them. made: EngineTables; method: of constants.
      earlier: the tables may be of an earlier build, with other shapes than the declared ones.
    Returns: (EngineTable, …).
    """
    if not made or not settings.dynamic or not (len(calls) == 1 or earlier):
        return tuple(made)
    # Several calls are several profiles.
    inputs = engine_inputs.of_calls(frozen, graph_def, specs, calls) if len(calls) == 1 else {}
    native, fitted = graph.native_segments(graph_def), []
    for one in made:
        profiles = [[fed.shape for fed in call] for call in inputs.get(one.engine, ())]
        shapes = tensor_names.build_shapes(native[one.engine].shapes, profiles, True, settings.strategy)
        fitted.append(_fitted(one, native[one.engine].function, shapes, method))
    return tuple(fitted)


def _fitted(made, function, shapes, method):
    return numbering.settled(fitting.fitted(made, function, True, shapes, method), function, True, shapes, method)


def write(graph_def, made):
    """Put the tables onto their engine ops, in place. Args: made: EngineTables."""
    texts = {one.engine: one.table.text() for one in made}
    for node in graph.engine_nodes(graph_def):
        name = graph.engine_name(node.name)
        if name in texts:
            graph.set_attributes(node, use_calibration=True, calibration_data=texts[name])


def wanting_tables(graph_def):
    """Names of the engines that need a table: those with explicit quantization nodes carry their ranges themselves."""
    return [engine.name for engine in graph.engine_ops(graph_def)
            if engine.precision == "INT8" and engine.use_calibration and not engine.explicit_precision]


def check_calibrator(settings, source, gpu):
    """Raise TftrtError where `settings.calibrator` cannot work here. Args: source: Source; gpu: of execution.gpu.seen."""
    if source.options and settings.calibrator == "tensorrt" and gpu is None:
        raise errors.TftrtError("--calibrator=tensorrt calibrates on a GPU; none is visible here",
                                "use --calibrator=toolkit, which needs none, or run on a machine with a GPU")


def _reused(name, graph_def, settings, given, wanted):
    """{engine: EngineTable} of a calibration file, fitted to this build."""
    native, found = graph.native_segments(graph_def), {}
    for engine, one in file.for_segments(given, wanted, tf_private.tensorrt_versions()[1]).items():
        build = native[engine].function, settings.dynamic, native[engine].shapes
        if one.segment:
            one = fitting.fitted(one, *build, method_of(given))
        elif not fitting.knows(one.table, *build):
            raise errors.TftrtError(f"the table speaks of no node of {engine} ({name}): it was made for another graph",
                                    "give the table of this model, or calibrate it")
        found[engine] = dataclasses.replace(one, segment=wanted[engine], signature=name, engine=engine)
    return found


def _without_floats_to_fp16(graph_def, settings):
    """Without a table an INT8 engine would calibrate in production, for ever."""
    native, ends = graph.native_segments(graph_def), (segment.INPUT, segment.OUTPUT)
    empty = {engine for engine in wanting_tables(graph_def) if all(
        one.name.startswith(ends) for one in tensor_names.names(native[engine].function, settings.dynamic, native[engine].shapes))}
    for node in graph.engine_nodes(graph_def):
        if graph.engine_name(node.name) in empty:
            graph.set_attributes(node, precision_mode="FP16", use_calibration=False)


def method_of(given):
    """With which method constants get a scale: that of the calibration, as far as it is known."""
    said = [given.method, *(step.get("method") for step in reversed(given.provenance))]
    names = (one.split()[0] for one in said if one)
    return next((one for one in names if one in scales.METHODS), "entropy")


def _calibrated(name, frozen, graph_def, specs, settings, options, wanted, folder):
    batches = data.open(options, name, specs)
    if settings.calibrator == "tensorrt":
        from tftrt_tools.calibration import tensorrt

        texts = tensorrt.tables(frozen, graph_def, batches, settings.dynamic, folder)
        found = {engine: _of_tensorrt(engine, text) for engine, text in texts.items()}
    else:
        found = toolkit.tables(frozen, graph_def, list(wanted), batches, settings, tf_private.tensorrt_versions()[1])
    made = {engine: file.EngineTable(wanted[engine], name, engine, *found[engine]) for engine in wanted}
    return made, batches.record


def _of_tensorrt(engine, text):
    """What toolkit.tables returns for an engine, of TensorRT's own table."""
    read, zeros = table.read(text, f"the table of {engine}")
    return read, file.without_range(zeros), None


def _excluded(graph_def, made, settings):
    """{engine: names of the table's tensors that go to nodes of --high_precision_nodes}."""
    if not settings.high_precision_nodes:
        return {}
    native = graph.native_segments(graph_def)
    found = {engine: _inputs_of(native[engine].function, settings.high_precision_nodes, settings.dynamic, native[engine].shapes)
             for engine in made}
    if not any(found.values()):
        names = [node.name for function in graph_def.library.function for node in function.node_def if node.op not in PASSIVE_OPS]
        raise errors.UsageError(f"--high_precision_nodes={settings.high_precision_nodes} matches no node of an INT8 engine (the whole "
                                "name must match)", "names look like " + ", ".join(names[:3]))
    return found


def _inputs_of(function, pattern, dynamic, shapes):
    """Names under which a table holds what feeds the segment's nodes that match."""
    body, arguments = segment.to_graph(function)
    fed = {_tensor(source, arguments) for node in body.node if re.fullmatch(pattern, node.name) and node.op not in PASSIVE_OPS
           for source in node.input}
    return tensor_names.holding(fed, function, dynamic, shapes)


def _tensor(source, arguments):
    name, _, port = source.partition(":")
    return f"{arguments[name]}:0" if name in arguments else f"{name}:{port or 0}"


def _without(made, excluded):
    """An EngineTable without some tensors."""
    gone = sorted(excluded & made.table.scales.keys()) if excluded else []
    if not gone:
        return made
    kept = {name: scale for name, scale in made.table.scales.items() if name not in excluded}
    left_out = (*made.left_out, *((name, "--high_precision_nodes") for name in gone))
    return dataclasses.replace(made, table=table.Table(made.table.header, kept), left_out=left_out)
