"""The result of a conversion, signature by signature."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tftrt_tools.base import records
from tftrt_tools.models.savedmodel import passport, signatures
from tftrt_tools.models.savedmodel.engine_op import EngineOp, Shape
from tftrt_tools.models.savedmodel.flops import Flops
from tftrt_tools.models.savedmodel.inspection import Finding, SignatureGraph
from tftrt_tools.models.savedmodel.preparation import Preparation
from tftrt_tools.models.savedmodel.shapes import Call, InputSpec
from tftrt_tools.tftrt.conversion.pass_log import LeftOut
from tftrt_tools.tftrt.conversion.plan import Outcome
from tftrt_tools.tftrt.conversion.quantization import Quantization

if TYPE_CHECKING:
    from tftrt_tools.tftrt.conversion.job.graph_pass import PassResult


# How the reason of an engine op begins whose engine was refused.
NOT_BUILT = "it did not build: "


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuiltEngine(records.Record):
    """An engine that was built."""

    # The name of its engine op.
    name: str
    # The shapes that it was built for, one an input.
    shapes: tuple[Shape, ...]
    # The size of the serialized engine.
    bytes: int
    # Time to build all engines of its engine op, on the machine that built it.
    seconds: float | None = None
    # Memory of the whole GPU during the build, above that in use before; None where not known.
    peak_memory_bytes: int | None = None
    # Whether the engine was taken from the engine cache.
    cached: bool = False
    # Names of slices that count from the beginning in it and from the end in the model: all its shapes have one size there.
    slices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unbuilt(records.Record):
    """An engine op that was left without an engine, and runs natively. name: of its engine; reason: in words; refused: whether TF-TRT or
    TensorRT refused to build it; mend: what the user can do then; node: the one that was refused, "" for none that is known; more_nodes:
    further ones that would be refused."""

    name: str
    reason: str
    refused: bool = False
    mend: str = ""
    node: str = ""
    more_nodes: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """All that keep it from being built, as far as they are known."""
        return tuple(filter(None, (self.node, *self.more_nodes)))

    @classmethod
    def late(cls, name: str, minutes: float) -> Unbuilt:
        """One that was not ready in time."""
        return cls(name=name, reason=f"not ready when {passport.OUT_OF_TIME}={minutes:g} were over")

    @property
    def is_late(self) -> bool:
        """Whether more time would have built it."""
        return passport.OUT_OF_TIME in self.reason


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignatureResult(records.Record):
    """The conversion's result for one signature."""

    name: str
    inputs: tuple[InputSpec, ...]
    # False for one that was kept as it was.
    converted: bool
    # Share of the computing ops in engines, 0 to 1.
    coverage: float = records.field(digits=4)
    # In graph order.
    engines: tuple[EngineOp, ...]
    # Nodes that compute something and stay in TensorFlow.
    left_out: tuple[LeftOut, ...]
    # {op: how many} of those nodes.
    native_ops: dict[str, int]
    # Declared shapes.
    calls: tuple[Call, ...] = ()
    # Engines that were built for them.
    built: tuple[BuiltEngine, ...] = ()
    # Seconds to build all of them, None if nothing was to be built.
    build_seconds: float | None = None
    # The quantization of a quantization-aware model.
    quantization: Quantization | None = None
    # Findings on its engine ops that no GPU can build.
    findings: tuple[Finding, ...] = ()
    # How its graph was rewritten before the pass.
    preparation: Preparation = Preparation()
    # How much of the computation is in engines, None where that was not counted.
    flops: Flops | None = None
    # Further names of the same function.
    twins: tuple[str, ...] = ()
    # Engine ops without an engine: it was not ready in time, it was refused, or no call reaches the op.
    unbuilt: tuple[Unbuilt, ...] = ()
    # Nodes that TensorRT refused while engines were built, and that stay in TensorFlow for that.
    refused_nodes: tuple[LeftOut, ...] = ()
    # The coverage of the other batch mode, None if it was not tried.
    other_mode: Outcome | None = None

    @classmethod
    def of(
        cls, name: str, inputs: Iterable[InputSpec], passed: PassResult, flops: Flops | None = None
    ) -> SignatureResult:
        """Make it from the result of the pass."""
        quantization = passed.quantization if passed.quantization.aware else None
        written = bool(passed.engines)
        # Without an engine the signature is written as it was, and nothing of this has happened to it.
        return cls(
            name=name,
            inputs=tuple(inputs),
            converted=written,
            coverage=passed.coverage,
            engines=passed.engines,
            left_out=passed.left_out,
            native_ops=passed.native_ops,
            quantization=quantization if written else None,
            preparation=passed.preparation if written else Preparation(),
            flops=flops,
        )

    @classmethod
    def of_graph(
        cls, seen: SignatureGraph, engines: Iterable[EngineOp], before: SignatureResult | None
    ) -> SignatureResult:
        """From the graph of a model that was converted earlier. Args: before: its entry in the manifest; None if it has no manifest."""
        if before:
            return dataclasses.replace(
                before, engines=tuple(engines), calls=(), built=(), unbuilt=(), build_seconds=None
            )
        ops = collections.Counter(node.op for node in seen.native)
        return cls(
            name=seen.name,
            inputs=seen.inputs,
            converted=True,
            coverage=seen.coverage,
            engines=tuple(engines),
            left_out=(),
            native_ops=dict(sorted(ops.items())),
        )

    @classmethod
    def untouched(cls, name: str, inputs: Iterable[InputSpec], twins: tuple[str, ...] = ()) -> SignatureResult:
        """A signature that was not requested."""
        return cls(
            name=name,
            inputs=tuple(inputs),
            converted=False,
            coverage=0.0,
            engines=(),
            left_out=(),
            native_ops={},
            twins=twins,
        )

    @property
    def label(self) -> str:
        """The signature's names, for tables."""
        return signatures.label(self.name, self.twins)

    @property
    def compute_ops(self) -> tuple[int, int]:
        """(ops in engines, all ops) that compute something."""
        inside = sum(engine.compute_ops for engine in self.engines)
        return inside, inside + sum(self.native_ops.values())


def refused_lines(results: Iterable[SignatureResult]) -> tuple[str, ...]:
    """Lines for people on the nodes that TensorRT refused, and that stay in TensorFlow."""
    return tuple(
        f"node {one.node} ({one.op}) stays in TensorFlow: {one.reason}"
        for result in results
        for one in result.refused_nodes
    )


def coverage(results: Iterable[SignatureResult]) -> float:
    """Share of the computing ops of all signatures that run in TensorRT, 0 to 1."""
    counts = [signature.compute_ops for signature in results]
    total = sum(whole for _, whole in counts)
    return sum(inside for inside, _ in counts) / total if total else 0.0
