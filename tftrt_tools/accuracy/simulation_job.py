"""The child's side of `sensitivity`: a converted model's engines run natively, with INT8's or FP16's rounding switched on node by node
(calibration.job.rounded says what is simulated)."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tftrt_tools.accuracy import harm, metrics, studying_job
from tftrt_tools.accuracy.simulating import Simulated, SimulateRequest
from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import constancy, npz
from tftrt_tools.models.execution.job import gpu as gpu_module
from tftrt_tools.models.execution.run import Call
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import inline, loading, rounding, rounding_sites
from tftrt_tools.tftrt.calibration.job import rounded, toolkit
from tftrt_tools.tftrt.conversion.job import int8, patterns, prepare, tensorrt_here

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.accuracy.harm import SignatureHarm
    from tftrt_tools.accuracy.metrics.comparison import Accumulator, Comparison
    from tftrt_tools.models.savedmodel.job.loading import Model
    from tftrt_tools.models.savedmodel.job.rounding import Rounded
    from tftrt_tools.models.savedmodel.job.rounding_sites import Site
    from tftrt_tools.tftrt.calibration.file import EngineTable
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen
    from tftrt_tools.tftrt.conversion.job.int8 import Decision, Measured, Source
    from tftrt_tools.tftrt.conversion.job.patterns import Patterns
    from tftrt_tools.tftrt.conversion.settings import Settings

K = TypeVar("K", bound=Hashable)


def job(request: SimulateRequest) -> Simulated:
    """Round each node of a model alone, all together, and all but the worst; INT8 with each calibration method. Raises: UsageError,
    TftrtError."""
    tensorrt_here.check()
    settings = request.settings
    # The reference should be the best float32 answer.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    progress.say("loading the model")
    model = loading.load(pathlib.Path(request.model), settings.tags)
    harms: list[SignatureHarm] = []
    tables: list[EngineTable] = []
    gathered = patterns.Patterns()
    with scratch.folder("engines") as folder:
        walked = signatures.Once.of(request.calls, model.same)
        specs = {name: model.specs(name) for name in model.root.signatures}
        source = int8.Source.of_model(request.int8, walked, specs)
        passed = (
            _passed(name, model, settings, source, paths, folder, gathered) for name, paths in request.calls.items()
        )
        for signature, measured, decision in int8.each_decided(passed, settings, source):
            simulated = (
                _fp16(signature)
                if settings.precision_mode == "FP16"
                else _int8(signature, measured, decision, settings, source)
            )
            alone = _chosen(signature.name, simulated.sites, request.nodes, settings, gathered)
            harms.append(studying_job.studied(simulated, alone, settings.precision_mode))
            tables += simulated.tables
    gathered.check()
    return Simulated(signatures=tuple(harms), tables=tuple(tables), method=decision.said, gpu=gpu_module.seen())


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Passed:
    """A signature after the pass."""

    name: str
    frozen: Frozen
    graph_def: graph_pb2.GraphDef
    # The graph with native segments inlined.
    inlined: graph_pb2.GraphDef
    # {engine: tensors} of inline_segments, of the engines in the precision to study.
    inner: Mapping[str, dict[str, str]]
    # The .npz paths of its inputs, one for each call.
    paths: tuple[str, ...]


def _passed(
    name: str, model: Model, settings: Settings, source: Source, paths: Iterable[str], folder: str, gathered: Patterns
) -> tuple[_Passed, Measured]:
    """Returns: (_Passed, int8.Measured)."""
    progress.say(f"converting signature {name}")
    frozen, passed = prepare.passed(name, model.root.signatures[name], settings, gathered)
    if not passed.engines:
        raise errors.TftrtError(
            f"no segment of signature {name!r} is worth an engine: nothing would run in {settings.precision_mode}",
            "`tftrt inspect` names each op and the reason",
        )
    if passed.quantization.aware:
        raise errors.UsageError(
            f"signature {name!r} is quantization-aware: its own nodes say what is rounded and how",
            "study the model as it was before they were put in",
        )
    graph_def, measured = passed.graph_def, int8.NOTHING
    if settings.precision_mode == "INT8":
        if source.options or source.given:
            measured = int8.measured(name, frozen, graph_def, model.specs(name), settings, source, folder)
        else:  # there is no other data
            measured = int8.of_batches(name, frozen, graph_def, settings, list(map(npz.load, paths)))
    inlined, inner = inline.inline_segments(graph_def)
    of_precision = {engine.name for engine in passed.engines if engine.precision == settings.precision_mode}
    return _Passed(
        name=name,
        frozen=frozen,
        graph_def=graph_def,
        inlined=inlined,
        inner={engine: tensors for engine, tensors in inner.items() if engine in of_precision},
        paths=tuple(paths),
    ), measured


def _fp16(one: _Passed) -> _Simulation:
    sites = rounding_sites.fp16_sites(one.inlined, one.inner)
    return _Simulation(one, sites, rounding.add_fp16(one.inlined, sites), {"": {}}, "", int8=False)


def _int8(
    signature: _Passed, measured: Measured, decision: Decision, settings: Settings, source: Source
) -> _Simulation:
    """The _Simulation with the chosen method, and also with the others if the toolkit chooses."""
    tables = measured.tables(decision.method)
    named = toolkit.names(signature.graph_def, signature.inner, settings.dynamic)

    def of(made: Iterable[EngineTable]) -> tuple[tuple[Site, ...], tuple[str, ...], dict[str, float]]:
        tables = {each.engine: each.table for each in made}
        return rounded.with_scales(
            signature.inlined,
            signature.inner,
            toolkit.by_tensor(signature.inner, named, tables),
            toolkit.left_out(signature.inner, named, tables),
        )

    sites, unrounded, ranges = of(tables)
    scales = {decision.said: ranges}
    if settings.calibrator == "toolkit" and not source.given:
        for method in (other for other in settings.candidates if other.text != decision.said):
            scales[method.text] = {**ranges, **of(measured.tables(method, settled=False))[2]}
    return _Simulation(
        signature, sites, rounding.add_int8(signature.inlined, sites), scales, decision.said, tables, unrounded
    )


def _chosen(name: str, sites: Sequence[Site], nodes: str | None, settings: Settings, gathered: Patterns) -> list[int]:
    """Indices of the sites to round alone. Raises: UsageError, TftrtError."""
    if not sites:
        raise errors.TftrtError(
            f"no node of signature {name!r} would be rounded to {settings.precision_mode}: its engines hold no "
            "convolution, matrix product or other node with a range",
            "`tftrt inspect --all` lists the engines' ops",
        )
    if nodes is None:
        return []
    matching = patterns.matching(
        "nodes", nodes, [site.name for site in sites], gathered, f" that {settings.precision_mode} rounds"
    )
    return [number for number, site in enumerate(sites) if not nodes or site.name in matching]


class _Simulation:
    """A signature whose nodes can be rounded, over the inputs to score.

    sites: rounding_sites.Sites; method: the one in force, "" for FP16; methods: all that can be simulated; tables: EngineTables; unrounded:
    names of nodes without ranges.
    """

    def __init__(
        self,
        signature: _Passed,
        sites: tuple[Site, ...],
        put_in: Rounded,
        scales: Mapping[str, Mapping[str, float]],
        method: str,
        tables: tuple[EngineTable, ...] = (),
        unrounded: tuple[str, ...] = (),
        int8: bool = True,
    ) -> None:
        """Args: signature: _Passed. put_in: rounding.Rounded. scales: {method: {tensor: scale}}."""
        self.name, self.sites, self.method, self.tables, self.unrounded = (
            signature.name,
            sites,
            method,
            tables,
            unrounded,
        )
        self._paths, self._int8 = signature.paths, int8
        self._watch, self._watched = constancy.Watch(), False
        self._simulated = rounded.Simulated(signature.name, signature.frozen, put_in)
        self._scales = {name: self._simulated.vector(scale_of) for name, scale_of in scales.items()}
        if not self._simulated.floats:
            raise errors.TftrtError(
                f"signature {signature.name!r} has no float output, and noise is measured on floats",
                "study a signature that gives scores or features, not only classes or strings",
            )

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self._scales)

    @property
    def nothing_shown(self) -> str:
        return self._watch.nothing(self.name)

    def all_rounded(self) -> npt.NDArray[np.bool_]:
        return np.ones(len(self.sites), bool)

    def alone(self, number: int) -> npt.NDArray[np.bool_]:
        result: npt.NDArray[np.bool_] = np.arange(len(self.sites)) == number
        return result

    def without(self, kept: Sequence[int]) -> npt.NDArray[np.bool_]:
        """--high_precision_nodes removes the ranges of a node's inputs, so other nodes that read them are not INT8 either."""
        if self._int8:
            high = {tensor for number in kept for tensor in self.sites[number].tensors}
            return np.array([not high & set(site.tensors) for site in self.sites])
        return np.array([number not in kept for number in range(len(self.sites))])

    def sweep(
        self, runs_wanted: Mapping[K, npt.NDArray[np.bool_]], text: str, methods: Mapping[K, str] = MappingProxyType({})
    ) -> tuple[dict[K, tuple[Comparison, ...]], float, int]:
        """Run all of the data once for each of `runs_wanted`, {key: bool vector}, batch by batch.

        Args: methods: {key: one of `methods`} where it is not the one in force.

        Returns: ({key: metrics.Comparisons of the float outputs against nothing rounded}, SNR in dB of the simulation with nothing
          rounded against the model, rows).
        """
        compared = {key: self._accumulators() for key in runs_wanted}
        own, rows, done = self._accumulators(), 0, 0
        off = np.zeros_like(next(iter(runs_wanted.values())))
        all_runs: list[tuple[K | None, npt.NDArray[np.bool_]]] = [(None, off), *runs_wanted.items()]
        for path in self._paths:
            inputs = npz.load(path)
            feed = {name: tf.constant(value) for name, value in inputs.items()}
            original = self._simulated.original(feed)
            if not self._watched:
                self._watch.add(
                    Call(self.name, inputs), {output: original[output] for output in self._simulated.floats}
                )
            plain: dict[str, npt.NDArray[Any]] = {}
            for key, gates in all_runs:
                progress.say(text, done, len(self._paths) * (len(runs_wanted) + 1))
                answer = self._simulated.answers(
                    gates, self._scales[self.method if key is None else methods.get(key, self.method)], feed
                )
                plain = answer if key is None else plain
                into = own if key is None else compared[key]
                for output in self._simulated.floats:
                    into[output].add(original[output] if key is None else plain[output], answer[output])
                done += 1
            rows += max((value.shape[0] for value in feed.values() if value.shape.rank), default=1)
        self._watched = True
        fidelity = min(accumulator.result().snr_db for accumulator in own.values())
        return (
            {key: tuple(accumulator.result() for accumulator in all_of.values()) for key, all_of in compared.items()},
            fidelity,
            rows,
        )

    def _accumulators(self) -> dict[str, Accumulator]:
        return {
            output: metrics.Accumulator(self.name, output, wanted=harm.METRICS) for output in self._simulated.floats
        }
