"""A signature after the pass: its INT8 tables, and the pass again, without nodes that TensorRT refused."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel.job import graph
from tftrt_tools.models.savedmodel.preparation import stands_for
from tftrt_tools.tftrt.calibration.job import tensorrt
from tftrt_tools.tftrt.conversion import pass_log
from tftrt_tools.tftrt.conversion.job import finishing, graph_pass, int8, loop_flops, patterns, refused
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.models.savedmodel.shapes import Call, InputSpec
    from tftrt_tools.tftrt.calibration.file import EngineTable
    from tftrt_tools.tftrt.calibration.methods import Method
    from tftrt_tools.tftrt.conversion.job.finishing import Made, Work
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen
    from tftrt_tools.tftrt.conversion.job.int8 import Measured, Source
    from tftrt_tools.tftrt.conversion.quantization import Problem, Quantization
    from tftrt_tools.tftrt.conversion.settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Divided:
    """A signature's graph in engines and the rest. graph_def: `frozen` after the pass; prefix: of its engines' names; calls: those that
    get engines."""

    frozen: Frozen
    graph_def: graph_pb2.GraphDef
    prefix: str
    specs: Sequence[InputSpec]
    calls: Sequence[Call]


def measured(
    divided: Divided, result: SignatureResult, settings: Settings, source: Source, folder: str
) -> tuple[Divided, SignatureResult, Measured]:
    """As int8.measured. A node that TensorRT refuses by name while it calibrates (--calibrator=tensorrt) stays in TensorFlow, if
    --leave_refused_nodes is set.

    Returns: (Divided, SignatureResult, Measured): the first two are new ones then. Raises: as int8.measured.
    """
    first = divided.prefix
    for number in itertools.count(1):
        try:
            found = int8.measured(
                result.name, divided.frozen, divided.graph_def, divided.specs, settings, source, folder
            )
            break
        except tensorrt.NoTable as error:
            known = divided.frozen.thrown[settings.dynamic]
            foreseen = (node for one in result.findings if one.about == error.engine for node in one.nodes)
            named = filter(None, (error.node, *foreseen))
            nodes = {node: f"{pass_log.REFUSED} ({error.reason})" for node in named if node not in known}
            if not nodes or not settings.leave_refused_nodes or number > refused.MOST_REPEATS:
                raise
            progress.say(f"converting signature {result.name} without the nodes that TensorRT refuses")
            try:
                divided, result = _passed(divided, result, nodes, settings, f"{first}_c{number}")
            except refused.NotLeft:
                raise error from None
    return divided, result, found


def written(
    divided: Divided, settings: Settings, tables: Sequence[EngineTable], method: Method
) -> tuple[EngineTable, ...]:
    """Tables as they fit the calls of a signature, written onto its engine ops."""
    fitted = int8.for_build(
        divided.frozen, divided.graph_def, divided.specs, settings, divided.calls, tables, method.name
    )
    int8.write(divided.graph_def, fitted)
    return fitted


def departure(quantization: Quantization, settings: Settings) -> Problem | None:
    """The first departure of TF-TRT from the quantization that nobody accepted."""
    if not quantization.aware or settings.allow_quantization_changes:
        return None
    return next(iter(quantization.problems), None)


class Again:
    """Converts a signature again, without nodes that TensorRT refused: refused.Again."""

    def __init__(self, divided: Divided, work: Work, method: Method, folder: str, source: Source) -> None:
        """Args: method: that of the tables, which stays. source: of the tables."""
        self._divided, self._work, self._method, self._folder = divided, work, method, folder
        self._source = dataclasses.replace(source, compare=False)

    def __call__(self, made: Made, nodes: Mapping[str, str], number: int) -> Made:
        settings, before = self._work.settings, self._divided
        divided, result = _passed(before, made.result, nodes, settings, f"{before.prefix}_{number}")
        if self._source.given:
            graph_def = divided.graph_def
            int8.without_floats_to_fp16(graph_def, settings)
            wanted = int8.wanting_tables(graph_def)
            tables = int8.split(before.graph_def, made.tables, graph_def, wanted, settings, self._method.name)
        else:
            fixed = dataclasses.replace(
                settings, calibration_method=self._method.name, calibration_percentile=self._method.percentile
            )
            divided, result, found = measured(divided, result, fixed, self._source, self._folder)
            tables = found.tables(self._method)
        if not result.engines:
            return finishing.Made(result=result)
        tables = written(divided, settings, tables, self._method)
        made = finishing.finished(
            divided.frozen, divided.graph_def, result, self._work, divided.calls, self._folder, tables, made.record
        )
        self._divided = divided
        return made


def _passed(
    divided: Divided, before: SignatureResult, nodes: Mapping[str, str], settings: Settings, prefix: str
) -> tuple[Divided, SignatureResult]:
    """Run the pass again. Args: before: the result so far. nodes: {node that stays in TensorFlow: why}. prefix: of the new engines' names.
    Raises: refused.NotLeft where TF-TRT would depart from the model's quantization."""
    frozen = divided.frozen
    nodes = _with_parts(frozen, nodes)
    frozen.thrown[settings.dynamic].update(nodes)
    passed = graph_pass.run(frozen, settings, patterns.Patterns())
    if problem := departure(passed.quantization, settings):
        raise refused.NotLeft(f"{problem.name} ({problem.op}) {problem.text}")
    finishing.unique_names(passed.graph_def, prefix)
    flops = loop_flops.count(frozen, passed.graph_def, divided.specs, divided.calls)
    own = [finding for finding in before.findings if finding.about == before.name]
    result = dataclasses.replace(
        SignatureResult.of(before.name, divided.specs, passed, flops),
        other_mode=before.other_mode,
        refused_nodes=refused.noted(before.refused_nodes, passed.left_out, nodes),
        findings=(*own, *graph_pass.never_built(frozen, passed.graph_def, divided.calls)),
    )
    return dataclasses.replace(divided, graph_def=passed.graph_def, prefix=prefix), result


def _with_parts(frozen: Frozen, nodes: Mapping[str, str]) -> dict[str, str]:
    """{node: why it stays in TensorFlow}, with all parts of the nodes that were written as several. TensorRT would refuse these one after
    the other, each in a build of its own, and half of such a node is worth nothing in an engine."""
    apart = frozen.preparation.apart
    of = {whole: reason for node, reason in nodes.items() for whole in stands_for(node, apart)}
    parts = {
        node.name: of[whole]
        for node in (frozen.graph_def.node if of else ())
        for whole in stands_for(node.name, of)
        if node.op not in graph.PASSIVE_OPS
    }
    return {**parts, **nodes}
