"""INT8 tables for the engines of one converted signature: made from data, or taken from a file, and written onto the engine ops."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorflow.core.framework import graph_pb2

from tftrt_tools.base import errors, tf_private
from tftrt_tools.models.inputs.sources_job import batching
from tftrt_tools.models.savedmodel import engine_op, signatures
from tftrt_tools.models.savedmodel.engine_op import PASSIVE_OPS
from tftrt_tools.models.savedmodel.job import graph, inferred, segment, segments
from tftrt_tools.tftrt.calibration import comparison, file, methods, table
from tftrt_tools.tftrt.calibration.comparison import Compared, Comparison
from tftrt_tools.tftrt.calibration.job import choosing, data, fitting, numbering, parts, tensor_names, toolkit
from tftrt_tools.tftrt.calibration.record import DataRecord
from tftrt_tools.tftrt.conversion.converting import TablesFrom
from tftrt_tools.tftrt.conversion.job import engine_inputs, refused
from tftrt_tools.tftrt.conversion.settings import Settings

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import function_pb2

    from tftrt_tools.base import choices
    from tftrt_tools.models.savedmodel.engine_op import Shape
    from tftrt_tools.models.savedmodel.shapes import Call, InputSpec
    from tftrt_tools.tftrt.calibration.job.data import Batches
    from tftrt_tools.tftrt.calibration.job.toolkit import Ranges
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen

# The toolkit's result for an engine: its table, (tensor, reason) of tensors without a scale, and the known ranges.
_Made = tuple[table.Table, tuple[tuple[str, str], ...], dict[str, dict[str, float]] | None]
_NO_DATA = (
    "INT8 needs ranges, and neither --calibration_data nor --calibration_table is given",
    "give one of them; --calibrate_on_random_data shows that it works, with useless ranges",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source(TablesFrom):
    """Where the tables of a model come from. twins: {signature: other names of its function}, by which the data may name inputs;
    elsewhere: {signature: what the data may hold for others}."""

    twins: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    elsewhere: dict[str, data.Elsewhere] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_model(cls, source: TablesFrom, walked: signatures.Once, specs: Mapping[str, Sequence[InputSpec]]) -> Source:
        """`source` for a model. Args: walked: the signatures that are calibrated. specs: {signature: InputSpecs} of all."""
        requested = list(walked.with_twins(dict.fromkeys(walked.names)))
        return cls(
            options=source.options,
            given=source.given,
            compare=source.compare,
            twins=walked.twins,
            elsewhere={
                name: data.Elsewhere.of((name, *twins), requested, specs) for name, twins in walked.twins.items()
            },
        )


@dataclasses.dataclass(frozen=True)
class Decision:
    """The method of a model's tables. method: methods.Method, for constants too; said: its text in a calibration file; comparison:
    Comparison, or None if nothing was compared."""

    method: methods.Method
    said: str
    comparison: Comparison | None = None


class Measured:
    """A signature whose INT8 tables can be written as soon as the method is chosen.

    record: record.DataRecord, or None where no data was read. compared: Compared, or None where nothing was to be compared.
    """

    def __init__(
        self,
        graph_def: graph_pb2.GraphDef,
        settings: Settings,
        made: Callable[[methods.Method], dict[str, file.EngineTable]],
        record: DataRecord | None = None,
        compared: Compared | None = None,
    ) -> None:
        """Args: made: gives {engine: its table} by a method."""
        self._graph_def, self._settings, self._made = graph_def, settings, made
        self.record, self.compared = record, compared

    def tables(self, method: methods.Method, settled: bool = True) -> tuple[file.EngineTable, ...]:
        """The tables of every INT8 engine that needs one, by that method. Args: settled: apply numbering.settled, which takes time and
        which a simulation does not need. Raises: UsageError for a pattern that matches no node."""
        graph_def, settings, table_of = self._graph_def, self._settings, self._made(method)
        for engine, native in graph.native_segments(graph_def).items() if settled else ():
            if engine in table_of and table_of[engine].segment:
                table_of[engine] = _settled(table_of[engine], native.function, native.shapes, method.name, settings)
        excluded = _excluded(graph_def, table_of, settings)
        return tuple(_without(one, excluded.get(engine, ())) for engine, one in table_of.items())


# The Measured of a signature without an engine.
NOTHING = Measured(graph_pb2.GraphDef(), Settings(), lambda method: {})


def measured(
    name: str,
    frozen: Frozen,
    graph_def: graph_pb2.GraphDef,
    specs: Sequence[InputSpec],
    settings: Settings,
    source: Source,
    folder: str,
) -> Measured:
    """Find the ranges of every INT8 engine of a signature that needs a table.

    Args: name: of the signature; frozen, graph_def: as conversion.job.engines takes them; specs: [InputSpec]; source: Source; folder: for
      temporary files.

    Engines without a float tensor between their inputs and outputs have nothing to compute in INT8: they become FP16, in place.

    Raises: UsageError, TftrtError.
    """
    digests = segments.engine_digests(graph_def, names=True)
    without_floats_to_fp16(graph_def, settings)
    digest_of = {engine: digests[engine] for engine in wanting_tables(graph_def)}
    if not digest_of:
        return NOTHING
    if source.given:
        reused = _reused(name, graph_def, settings, source.given, digest_of)
        return Measured(graph_def, settings, lambda method: dict(reused))
    if not source.options:
        raise errors.UsageError(*_NO_DATA)
    rest = functools.partial(_takes, frozen, specs) if settings.calibrator == "toolkit" else batching.none
    batches = data.open(
        source.options,
        name,
        specs,
        source.twins.get(name, ()),
        rest,
        alike=settings.calibrator == "tensorrt",
        elsewhere=source.elsewhere.get(name, data.Elsewhere()),
    )
    if settings.calibrator == "tensorrt":
        from tftrt_tools.tftrt.calibration.job import tensorrt

        texts = tensorrt.tables(frozen, graph_def, batches, settings.dynamic, folder)
        tables = _named({engine: _of_tensorrt(engine, text) for engine, text in texts.items()}, name, digest_of)
        return Measured(graph_def, settings, lambda method: dict(tables), batches.record)
    of_toolkit = of_batches(name, frozen, graph_def, settings, batches, source.compare)
    of_toolkit.record = batches.record
    return of_toolkit


def _takes(frozen: Frozen, specs: Sequence[InputSpec], rows: int) -> bool:
    """Whether a signature takes so many rows, by its inputs and by the shapes that follow from them."""
    if not all(not spec.shape or spec.shape[0] in (None, rows) for spec in specs):
        return False
    shapes = {spec.name: (rows, *spec.shape[1:]) if spec.shape else spec.shape for spec in specs}
    try:
        inferred.shapes(frozen.graph_def, frozen.fed(shapes))
    except ValueError:
        return False
    return True


def of_batches(
    name: str,
    frozen: Frozen,
    graph_def: graph_pb2.GraphDef,
    settings: Settings,
    batches: Batches | Sequence[dict[str, npt.NDArray[Any]]],
    compare: bool = False,
) -> Measured:
    """As `measured`, by the toolkit, from batches. Args: compare: compare the methods even where the settings name one."""
    digest_of = {
        engine: digest
        for engine, digest in segments.engine_digests(graph_def, names=True).items()
        if engine in wanting_tables(graph_def)
    }
    judged = settings.candidates if compare or settings.calibration_method == methods.AUTO else ()
    ranges = toolkit.measure(
        frozen, graph_def, digest_of, batches, settings.dynamic, tf_private.tensorrt_versions()[1], judged
    )
    compared = None
    if judged:
        compared = _compared(name, frozen, graph_def, settings, ranges, digest_of)
    return Measured(graph_def, settings, lambda method: _named(ranges.tables(method), name, digest_of), None, compared)


def _compared(
    name: str,
    frozen: Frozen,
    graph_def: graph_pb2.GraphDef,
    settings: Settings,
    ranges: Ranges,
    wanted: Mapping[str, str],
) -> Compared:
    excluded = _excluded(graph_def, wanted, settings)

    def tables(made: Mapping[str, _Made]) -> dict[str, table.Table]:
        return {
            engine: _without(one, excluded.get(engine, ())).table for engine, one in _named(made, name, wanted).items()
        }

    judged = [
        {method: tables(ranges_of) for method, ranges_of in ranges.tables_to_judge(judging).items()}
        for judging in ranges.judging
    ]
    return choosing.compared(name, frozen, ranges, judged)


def _named(table_of: Mapping[str, _Made], signature: str, digest_of: Mapping[str, str]) -> dict[str, file.EngineTable]:
    """{engine: file.EngineTable} of {engine: what toolkit.Ranges.tables gives}. Args: digest_of: {engine: digest of its segment}."""
    tables: dict[str, file.EngineTable] = {}
    for engine, digest in digest_of.items():
        scales, left_out, ranges = table_of[engine]
        tables[engine] = file.EngineTable(
            segment=digest, signature=signature, engine=engine, table=scales, left_out=left_out, ranges=ranges
        )
    return tables


def each_decided(
    signatures: Iterable[tuple[Any, Measured]], settings: Settings, source: Source
) -> Iterator[tuple[Any, Measured, Decision]]:
    """Choose the method of a model's tables. If methods are compared, all signatures are measured first, because one method serves all.

    Args: signatures: (anything, Measured of a signature), made one by one. settings: Settings; source: Source.
    Yields: each of them, with the Decision.
    """
    compares = (
        not source.given
        and settings.calibrator == "toolkit"
        and settings.precision_mode == "INT8"
        and (source.compare or settings.calibration_method == methods.AUTO)
    )
    if compares:
        signatures = list(signatures)
    decision = decided(
        [signature_measured for _, signature_measured in signatures] if compares else [], settings, source
    )
    for signature, found in signatures:
        yield signature, found, decision


def decided(found: Sequence[Measured], settings: Settings, source: Source) -> Decision:
    """As `each_decided`, for Measured alone."""
    if source.given:
        return Decision(methods.Method(method_of(source.given)), source.given.method)
    if settings.calibrator == "tensorrt":
        return Decision(methods.Method("entropy"), settings.table_method)
    compared = [signature_measured.compared for signature_measured in found if signature_measured.compared]
    requested = "" if settings.calibration_method == methods.AUTO else settings.table_method
    judged = comparison.of(compared, requested) if compared else None
    method = requested or (judged.taken if judged else comparison.FALLBACK)
    return Decision(next(candidate for candidate in settings.candidates if candidate.text == method), method, judged)


def for_build(
    frozen: Frozen,
    graph_def: graph_pb2.GraphDef,
    specs: Sequence[InputSpec],
    settings: Settings,
    calls: Sequence[Call],
    made: Sequence[file.EngineTable],
    method: choices.Method,
    earlier: bool = False,
) -> tuple[file.EngineTable, ...]:
    """Tables with the names that the engines for `calls` will ask for.

    Tables are made for the declared shapes, and TF-TRT may build the network for others (tensor_names.build_shapes); then the numbers of
    layers can differ.

    Args: frozen, graph_def, specs, settings, calls: as conversion.job.engines.build takes them. made: EngineTables; method: of constants.
      earlier: the tables may be of an earlier build, with other shapes than the declared ones.
    Returns: (EngineTable, …).
    """
    if not made or not settings.dynamic or not (len(calls) == 1 or earlier):
        return tuple(made)
    # Several calls become several profiles.
    inputs = engine_inputs.of_calls(frozen, graph_def, specs, calls).feeds if len(calls) == 1 else {}
    native, fitted = graph.native_segments(graph_def), []
    for engine_table in made:
        profiles = [[fed.shape for fed in call] for call in inputs.get(engine_table.engine, ())]
        shapes = tensor_names.build_shapes(native[engine_table.engine].shapes, profiles, True, settings.strategy)
        function = native[engine_table.engine].function
        named_anew = fitting.fitted(engine_table, function, True, shapes, method)
        fitted.append(_settled(named_anew, function, shapes, method, settings))
    return tuple(fitted)


def _settled(
    made: file.EngineTable,
    function: function_pb2.FunctionDef,
    shapes: Sequence[Shape],
    method: choices.Method,
    settings: Settings,
) -> file.EngineTable:
    """A table for every build of an engine, without the inputs of --high_precision_nodes, whatever numbers they have there."""
    pattern, dynamic = settings.high_precision_nodes, settings.dynamic
    excluded = _inputs_of(function, pattern, dynamic, shapes) if pattern else set()
    return numbering.settled(_without(made, excluded), function, dynamic, shapes, method, excluded)


def write(graph_def: graph_pb2.GraphDef, made: Iterable[file.EngineTable]) -> None:
    """Put the tables onto their engine ops, in place. Args: made: EngineTables."""
    texts = {engine_table.engine: engine_table.table.text() for engine_table in made}
    for node in graph.engine_nodes(graph_def):
        name = graph.engine_name(node.name)
        if name in texts:
            graph.set_attributes(node, use_calibration=True, calibration_data=texts[name])


def wanting_tables(graph_def: graph_pb2.GraphDef) -> list[str]:
    """Names of the engines that need a table: those with explicit quantization nodes carry their ranges themselves."""
    return [
        engine.name
        for engine in graph.engine_ops(graph_def)
        if engine.precision == "INT8" and engine.use_calibration and not engine.explicit_precision
    ]


def check_calibrator(settings: Settings, source: TablesFrom, gpu: Mapping[str, str] | None) -> None:
    """Raise TftrtError where `settings.calibrator` cannot work here. Args: gpu: of execution.job.gpu.seen."""
    if source.options and settings.calibrator == "tensorrt" and gpu is None:
        raise errors.TftrtError(
            "--calibrator=tensorrt calibrates on a GPU; none is visible here",
            "use --calibrator=toolkit, which needs none, or run on a machine with a GPU",
        )


def _reused(
    name: str, graph_def: graph_pb2.GraphDef, settings: Settings, given: file.Calibration, wanted: Mapping[str, str]
) -> dict[str, file.EngineTable]:
    """{engine: EngineTable} of a calibration file, fitted to this build."""
    native, tables, tensorrt = graph.native_segments(graph_def), {}, tf_private.tensorrt_versions()[1]
    for engine, engine_table in file.for_segments(given, wanted, tensorrt).items():
        engine_table = dataclasses.replace(engine_table, table=engine_table.table.for_tensorrt(tensorrt))
        build = native[engine].function, settings.dynamic, native[engine].shapes
        if engine_table.segment:
            engine_table = fitting.fitted(engine_table, *build, method_of(given))
        elif not fitting.knows(engine_table.table, *build):
            raise errors.TftrtError(
                f"the table has no node of {engine} ({name}): it was made for another graph",
                "give the table of this model, or calibrate it",
            )
        tables[engine] = dataclasses.replace(engine_table, segment=wanted[engine], signature=name, engine=engine)
    return tables


def without_floats_to_fp16(graph_def: graph_pb2.GraphDef, settings: Settings) -> None:
    """Turn INT8 engines without floats into FP16: without a table they would calibrate in production, for ever."""
    native, ends = graph.native_segments(graph_def), (engine_op.INPUT, engine_op.OUTPUT)
    empty = {
        engine
        for engine in wanting_tables(graph_def)
        if all(
            name.name.startswith(ends)
            for name in tensor_names.names(native[engine].function, settings.dynamic, native[engine].shapes)
        )
    }
    for node in graph.engine_nodes(graph_def):
        if graph.engine_name(node.name) in empty:
            graph.set_attributes(node, precision_mode="FP16", use_calibration=False)


def method_of(given: file.Calibration) -> choices.Method:
    """The method that gives constants a scale: the calibration's, if it is known."""
    said = [given.method, *(step.get("method") for step in reversed(given.provenance))]
    names = (one.split()[0] for one in said if one)
    return next((one for one in names if one in methods.METHODS), "entropy")


def _of_tensorrt(engine: str, text: str) -> _Made:
    """What toolkit.Ranges.tables gives for an engine, of TensorRT's own table."""
    read, zeros = table.read(text, f"the table of {engine}")
    return read, file.without_range(zeros), None


def _excluded(graph_def: graph_pb2.GraphDef, made: Iterable[str], settings: Settings) -> dict[str, set[str]]:
    """{engine: names in its table of the inputs of --high_precision_nodes}."""
    if not settings.high_precision_nodes:
        return {}
    native = graph.native_segments(graph_def)
    return {
        engine: _inputs_of(
            native[engine].function, settings.high_precision_nodes, settings.dynamic, native[engine].shapes
        )
        for engine in made
    }


def _inputs_of(function: function_pb2.FunctionDef, pattern: str, dynamic: bool, shapes: Sequence[Shape]) -> set[str]:
    """The table's names of the inputs of the segment's matching nodes."""
    body, arguments = segment.to_graph(function)
    fed = {
        _tensor(source, arguments)
        for node in body.node
        if re.fullmatch(pattern, node.name) and node.op not in PASSIVE_OPS
        for source in node.input
    }
    return tensor_names.holding(fed, function, dynamic, shapes)


def _tensor(source: str, arguments: Mapping[str, str]) -> str:
    name, _, port = source.partition(":")
    return f"{arguments[name]}:0" if name in arguments else f"{name}:{port or 0}"


def split(
    before: graph_pb2.GraphDef,
    made: Sequence[file.EngineTable],
    after: graph_pb2.GraphDef,
    wanted: Sequence[str],
    settings: Settings,
    method: choices.Method,
) -> tuple[file.EngineTable, ...]:
    """Tables for engines of a graph after some engines were split. Args: before: the graph whose engines have the tables `made`. after: the
    new one; wanted: its engines that need tables. method: of constants. Raises: refused.NotLeft where a part's ranges are not known."""
    if not wanted:
        return ()
    if not made:
        raise refused.NotLeft("no calibration file of the model has its ranges; calibrate it again")
    try:
        tables = parts.tables(before, made, after, wanted, dynamic=settings.dynamic, method=method)
    except errors.TftrtError as error:
        raise refused.NotLeft(f"{error.cause}; {error.mend}") from None
    # Without such nodes they are settled.
    native = graph.native_segments(after) if settings.high_precision_nodes else {}
    return tuple(
        _settled(one, native[one.engine].function, native[one.engine].shapes, method, settings) if native else one
        for one in tables
    )


def _without(made: file.EngineTable, excluded: Collection[str]) -> file.EngineTable:
    """An EngineTable without some tensors."""
    gone = sorted(made.table.scales.keys() & set(excluded))
    if not gone:
        return made
    kept = {name: scale for name, scale in made.table.scales.items() if name not in excluded}
    left_out = (*made.left_out, *((name, "--high_precision_nodes") for name in gone))
    return dataclasses.replace(made, table=table.Table(made.table.header, kept), left_out=left_out)
