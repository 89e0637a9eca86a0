"""Tries the TF-TRT graph pass on a SavedModel's signatures, at several segment sizes and in both batch modes. Needs no GPU."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tftrt_tools.base import errors, stack
from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel import fixed_sizes, frozen_inputs, signatures, tensor_kinds
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.job import graph, inferred, loading
from tftrt_tools.tftrt.conversion import advice
from tftrt_tools.tftrt.conversion.job import graph_pass, loop_flops, patterns, prepare, tensorrt_here
from tftrt_tools.tftrt.conversion.plan import Outcome, Plan, Segment, SignaturePlan, SizeResult

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

    from tftrt_tools.models.savedmodel.engine_op import EngineOp
    from tftrt_tools.models.savedmodel.inspection import Finding
    from tftrt_tools.models.savedmodel.job.loading import Model
    from tftrt_tools.models.savedmodel.shapes import Call
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen, PassResult
    from tftrt_tools.tftrt.conversion.job.patterns import Patterns
    from tftrt_tools.tftrt.conversion.pass_log import PassLog
    from tftrt_tools.tftrt.conversion.settings import Settings

# Sizes to try if a model has too many different ones, or if they are not known beforehand.
_SIZES = (1, 2, 3, 5, 10, 20, 50, 100)


def plan(path: str | os.PathLike[str], settings: Settings) -> Plan:
    """Args: path: SavedModel directory. settings: Settings. Returns: Plan. Raises: UsageError, TftrtError."""
    tensorrt_here.check()
    progress.say("loading the model")
    model = loading.load(path, settings.tags)
    names = signatures.chosen(list(model.root.signatures), settings.signature_keys)
    specs = {name: model.specs(name) for name in names}
    walked = signatures.Once.of(names, model.same)
    calls = walked.merged(shape_grammar.calls(shape_grammar.parse(settings.shapes), specs)) if settings.shapes else {}
    frozen_inputs.check(
        settings.freeze, {name: loading.freezable(model.root.signatures[name]) for name in names}, walked.twins
    )
    fixed_sizes.check(settings.fix_sizes, {name: specs[name] for name in names}, walked.twins)
    gathered = patterns.Patterns()
    planned = [_signature(name, model, settings, calls.get(name, ()), gathered) for name in walked.names]
    gathered.check()
    planned = [
        dataclasses.replace(
            segment, twins=walked.twins[segment.name], findings=(*_of_model(model, segment.name), *segment.findings)
        )
        for segment in planned
    ]
    return Plan(
        model=str(pathlib.Path(path).absolute()),
        tags=model.tags,
        settings=settings,
        tensorflow=tf.__version__,
        signatures=tuple(planned),
    )


def _of_model(model: Model, signature: str) -> tuple[Finding, ...]:
    """Findings on the model before the conversion makes constants of its variables."""
    lost = (tensor_kinds.lost(model.lost),) if model.lost else ()
    return (*loading.findings(model, signature), *lost)


def _signature(
    name: str, model: Model, settings: Settings, calls: Sequence[Call], gathered: Patterns | None
) -> SignaturePlan:
    function, specs = model.root.signatures[name], tuple(model.specs(name))
    progress.say(f"trying signature {name}")
    try:
        frozen, passed = prepare.passed(name, function, settings, gathered)
    except errors.UsageError:
        raise
    except errors.TftrtError as error:
        # One signature that cannot be converted says nothing about the others.
        return SignaturePlan(name=name, inputs=specs, problem=error.to_dict())
    _check_calls(name, frozen, calls)
    if note := advice.before_the_wait(name, passed.left_out, passed.coverage):
        progress.note(note)
    segments = _segments(passed.graph_def, passed.engines)
    numbers = {segment.engine.name: segment.number for segment in segments}
    never = graph_pass.never_built(frozen, passed.graph_def, calls)
    findings = tuple(dataclasses.replace(finding, about=f"segment {numbers[finding.about]}") for finding in never)
    sizes = _sizes(name, frozen, settings, passed)
    other = other_mode(name, frozen, settings)
    told = advice.advise(
        sizes, settings, passed.coverage, len(passed.engines), other, passed.left_out, frozen.preparation.open_sizes
    )
    quantization = passed.quantization if passed.quantization.aware else None
    return SignaturePlan(
        name=name,
        inputs=specs,
        segments=segments,
        left_out=passed.left_out,
        sizes=sizes,
        other=other,
        advice=told,
        quantization=quantization,
        findings=findings,
        preparation=frozen.preparation,
        flops=loop_flops.count(frozen, passed.graph_def, specs, calls),
    )


def _check_calls(name: str, frozen: Frozen, calls: Sequence[Call]) -> None:
    """Refuse --shapes that the graph refuses, such as two batch sizes in one call. Raises: UsageError."""
    for call in calls:
        try:
            inferred.shapes(frozen.graph_def, frozen.fed(call))
        except ValueError as error:
            raise errors.UsageError(
                f"--shapes: {name!r} refuses {shape_grammar.call_text(call)}: {errors.first_line(str(error))}",
                "give shapes of one call that go together",
            ) from None


def _segments(graph_def: graph_pb2.GraphDef, engines: Sequence[EngineOp]) -> tuple[Segment, ...]:
    functions = graph.library(graph_def)
    nodes = list(graph.engine_nodes(graph_def))
    numbers = {graph.engine_name(node.name): number for number, node in enumerate(nodes)}
    return tuple(
        _segment(numbers, node, engine, functions[engine.native_segment])
        for node, engine in zip(nodes, engines, strict=True)
    )


def _segment(
    numbers: Mapping[str, int], node: node_def_pb2.NodeDef, engine: EngineOp, function: function_pb2.FunctionDef
) -> Segment:
    feeds = [_tensor(source, numbers) for source in node.input if not source.startswith("^")]
    results = [function.ret[argument.name].split(":")[0] for argument in function.signature.output_arg]
    number = numbers[engine.name]
    return Segment(
        number=number,
        engine=engine,
        nodes=tuple(inner.name for inner in function.node_def),
        feeds=tuple(feeds),
        results=tuple(results),
    )


def _tensor(source: str, numbers: Mapping[str, int]) -> str:
    """A tensor's name; another segment's as "segment 2:0", because engines get their names later."""
    name, _, port = source.partition(":")
    return f"segment {numbers[name]}:{port or 0}" if name in numbers else source


def _sizes(signature: str, frozen: Frozen, settings: Settings, passed: PassResult) -> tuple[SizeResult, ...]:
    """The result of each size, from a pass of its own. Only sizes at which a segment drops out are tried; between them nothing changes."""
    if settings.fp32_nodes:
        # The second precision's pass gets what the first one left, so nothing is known beforehand.
        rows: list[tuple[int, int | None]] = [(size, size) for size in sorted({*_SIZES, settings.minimum_segment_size})]
    else:
        rows = _ranges(graph_pass.clusters(frozen, settings), settings.minimum_segment_size)
    results = []
    for index, (low, high) in enumerate(rows):
        progress.say(f"trying segment sizes of {signature}", index, len(rows))
        given = low <= settings.minimum_segment_size <= (high or settings.minimum_segment_size)
        tried = (
            passed
            if given
            else graph_pass.run(frozen, dataclasses.replace(settings, minimum_segment_size=low), patterns.Patterns())
        )
        results.append(_result(low, high, tried))
    return tuple(results)


def _ranges(log: PassLog, current: int) -> list[tuple[int, int | None]]:
    """[(low, high)] of sizes that keep the same segments; the last has no high and keeps none. At most about ten."""
    ends = sorted({cluster.effective for cluster in log.clusters if cluster.effective})
    ranges = [(before + 1, end) for before, end in zip([0, *ends], ends, strict=False)]
    if len(ranges) > len(_SIZES):
        needed = {next((end for end in ends if end >= size), None) for size in (*_SIZES, current, ends[-1])}
        ranges = [(low, high) for low, high in ranges if high in needed]
    return [*ranges, (ends[-1] + 1 if ends else 1, None)]


def _result(low: int, high: int | None, passed: PassResult) -> SizeResult:
    ops = [engine.compute_ops for engine in passed.engines]
    return SizeResult(
        low=low, high=high, engines=len(ops), inside=sum(ops), coverage=passed.coverage, smallest=min(ops, default=None)
    )


def other_mode(name: str, frozen: Frozen, settings: Settings) -> Outcome | None:
    """The coverage of signature `name`, a graph_pass.Frozen, in the batch mode that `settings` do not ask for. Returns: plan.Outcome, None
    where TensorRT has one batch mode alone."""
    if settings.dynamic and not stack.has_implicit_batch():
        return None
    other = dataclasses.replace(settings, use_dynamic_shape=not settings.dynamic, dynamic_shape_profile_strategy=None)
    if frozen.preparation.of_one_mode:
        _, passed = prepare.passed(name, frozen.original, other, patterns.Patterns())
    else:
        passed = graph_pass.run(frozen, other, patterns.Patterns())
    return Outcome(other.dynamic, len(passed.engines), passed.coverage)
