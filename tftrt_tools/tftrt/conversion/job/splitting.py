"""A converted signature whose engine ops are split at nodes that TensorRT refused, and built again."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.models.savedmodel.job import graph, inline
from tftrt_tools.tftrt.conversion.job import finishing, graph_pass, int8, loop_flops, quantization_aware, refused, split

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.base import choices
    from tftrt_tools.models.savedmodel.shapes import Call
    from tftrt_tools.tftrt.calibration.file import EngineTable
    from tftrt_tools.tftrt.conversion.job.finishing import Made, Work
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen
    from tftrt_tools.tftrt.conversion.job.split import Split
    from tftrt_tools.tftrt.conversion.signature_result import SignatureResult


class Again:
    """Splits the engine ops of a converted signature that hold refused nodes, and builds the parts: refused.Again. Other engines are
    kept."""

    def __init__(
        self,
        frozen: Frozen,
        graph_def: graph_pb2.GraphDef,
        work: Work,
        calls: Sequence[Call],
        folder: str,
        prefix: str,
        method: choices.Method,
    ) -> None:
        """Args: frozen, graph_def, work, calls, folder: as of finishing.finished. prefix: of engine names. method: of the constants of INT8
        tables."""
        self._frozen, self._graph_def, self._work, self._calls = frozen, graph_def, work, calls
        self._folder, self._prefix, self._method = folder, prefix, method

    @functools.cached_property
    def _whole(self) -> graph_pb2.GraphDef:
        """The graph without engine ops."""
        return inline.inline_segments(self._graph_def, own_names=True)[0]

    def __call__(self, made: Made, nodes: Mapping[str, str], number: int) -> Made:
        settings = self._work.settings
        of_engine: dict[str, list[str]] = collections.defaultdict(list)
        for one in made.result.unbuilt:
            if own := [node for node in one.nodes if node in nodes]:
                of_engine[one.name] += own
        done = split.split(self._frozen, self._graph_def, of_engine, nodes, settings, f"{self._prefix}_{number}")
        if not graph.engine_ops(done.graph_def):
            raise refused.NotLeft("no other part of it is worth an engine")
        result = self._result(made.result, done, of_engine)
        tables = self._tables(made.tables, done.graph_def, result)
        self._graph_def = done.graph_def
        return finishing.finished(
            self._frozen,
            done.graph_def,
            result,
            self._work,
            self._calls,
            self._folder,
            tables,
            made.record,
            made.result,
        )

    def _tables(
        self, made: Sequence[EngineTable], graph_def: graph_pb2.GraphDef, result: SignatureResult
    ) -> tuple[EngineTable, ...]:
        """The tables of the graph after the split, written onto its engine ops. Those of engines that stay are not changed."""
        settings, method = self._work.settings, self._method
        before = {engine.name for engine in graph.engine_ops(self._graph_def)}
        int8.without_floats_to_fp16(graph_def, settings)
        wanted = [engine for engine in int8.wanting_tables(graph_def) if engine not in before]
        new = int8.split(self._graph_def, made, graph_def, wanted, settings, method)
        new = int8.for_build(self._frozen, graph_def, result.inputs, settings, self._calls, new, method, earlier=True)
        int8.write(graph_def, new)
        there = {engine.name for engine in graph.engine_ops(graph_def)}
        return (*(one for one in made if one.engine in there), *new)

    def _result(self, before: SignatureResult, done: Split, of_engine: Mapping[str, Sequence[str]]) -> SignatureResult:
        """The result for the graph after the split. Raises: refused.NotLeft where TF-TRT would depart from the model's quantization."""
        settings = self._work.settings
        left_out = (*before.left_out, *done.left_out)
        engines = tuple(graph.engine_ops(done.graph_def))
        native_ops = graph.compute_counts(done.graph_def.node)
        inside = sum(engine.compute_ops for engine in engines)
        result = dataclasses.replace(
            before,
            engines=engines,
            left_out=left_out,
            native_ops=native_ops,
            coverage=inside / max(1, inside + sum(native_ops.values())),
            refused_nodes=refused.noted(before.refused_nodes, done.left_out, set(done.nodes.values())),
            findings=tuple(finding for finding in before.findings if finding.about not in of_engine),
        )
        whole = dataclasses.replace(self._frozen, graph_def=self._whole)
        new = {engine.name for engine in engines} - {engine.name for engine in before.engines}
        found = graph_pass.never_built(whole, done.graph_def, self._calls)
        result = dataclasses.replace(
            result, findings=(*result.findings, *(finding for finding in found if finding.about in new))
        )
        if before.flops:
            flops = loop_flops.count(whole, done.graph_def, before.inputs, self._calls)
            result = dataclasses.replace(result, flops=flops)
        if before.quantization:
            statements = quantization_aware.statements(
                self._whole, done.graph_def, settings.precision_mode, dynamic=settings.dynamic, left_out=left_out
            )
            known = {problem.text for problem in before.quantization.problems}
            if new_problem := next((one for one in statements.problems if one.text not in known), None):
                raise refused.NotLeft(f"{new_problem.name} ({new_problem.op}) {new_problem.text}")
            result = dataclasses.replace(result, quantization=statements)
        return result
