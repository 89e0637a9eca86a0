"""What TF-TRT would do with a SavedModel: segments, nodes left out, other sizes, advice. No TensorFlow here; `planner` fills these in."""

import collections
import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from tftrt_tools.base import records, results, terminal
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.models.savedmodel.flops import Flops
from tftrt_tools.models.savedmodel.inspection import Finding
from tftrt_tools.models.savedmodel.preparation import Preparation
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.conversion.pass_log import LeftOut
from tftrt_tools.tftrt.conversion.quantization import Quantization
from tftrt_tools.tftrt.conversion.settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment(records.Record):
    """A future engine."""

    # Its place in the signature, which ends its engine's name.
    number: int
    # Its dtypes, shapes and ops.
    engine: EngineOp
    # Names of its nodes.
    nodes: tuple[str, ...]
    # Names of the tensors that enter it, in the order of engine.inputs.
    feeds: tuple[str, ...]
    # Names of the tensors that leave it, in the order of engine.outputs.
    results: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Written in its own form: each tensor of the border is one object, with its name, dtype and shape."""
        plain = self.engine.to_dict()
        border = {
            key: [{"tensor": name} | entry for name, entry in zip(names, plain[key], strict=True)]
            for key, names in (("inputs", self.feeds), ("outputs", self.results))
        }
        return {
            "number": self.number,
            "compute_ops": self.engine.compute_ops,
            **border,
            "nodes": list(self.nodes),
            "engine": plain,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Segment":
        feeds, results = (tuple(entry["tensor"] for entry in data[key]) for key in ("inputs", "outputs"))
        return cls(
            number=data["number"],
            engine=EngineOp.from_dict(data["engine"]),
            nodes=tuple(data["nodes"]),
            feeds=feeds,
            results=results,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SizeResult(records.Record):
    """The result of each --minimum_segment_size from `low` to `high`."""

    low: int
    # None: any larger one.
    high: int | None
    # The number of engines.
    engines: int
    # Computing ops in the engines.
    inside: int
    # Their share of all computing ops, 0 to 1.
    coverage: float = records.field(digits=4)
    # Computing ops of the smallest engine, None without engines.
    smallest: int | None

    def holds(self, size: int) -> bool:
        """Whether this is what `size` gives."""
        return self.low <= size and (self.high is None or size <= self.high)

    def text(self) -> str:
        """The sizes in words, such as "3 to 5"."""
        if self.high is None:
            return f"{self.low} and more"
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


@dataclasses.dataclass(frozen=True)
class Outcome(records.Record):
    """What a batch mode gives. dynamic: with optimization profiles, else implicit batch; engines: how many; coverage: 0 to 1."""

    dynamic: bool
    engines: int
    coverage: float = records.field(digits=4)


@dataclasses.dataclass(frozen=True)
class Advice(records.Record):
    """minimum_segment_size: the recommended one; use_dynamic_shape: whether the other batch mode would be clearly better (its value
    there), None for no opinion; reasons: sentences for people."""

    minimum_segment_size: int
    use_dynamic_shape: bool | None
    reasons: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignaturePlan(records.Record):
    """What TF-TRT would do with one signature."""

    name: str
    inputs: tuple[InputSpec, ...]
    segments: tuple[Segment, ...] = ()
    # Each computing node that stays in TensorFlow.
    left_out: tuple[LeftOut, ...] = ()
    # Upwards.
    sizes: tuple[SizeResult, ...] = ()
    # What the other batch mode gives.
    other: Outcome | None = records.field(key="other_batch_mode", default=None)
    advice: Advice | None = None
    # {"kind", "cause", "mend"} of a signature that cannot be converted, whose other fields are then empty.
    problem: dict[str, Any] | None = None
    # The quantization of a quantization-aware signature.
    quantization: Quantization | None = None
    # Findings on segments that no GPU can build.
    findings: tuple[Finding, ...] = ()
    # How its graph would be rewritten before the pass.
    preparation: Preparation = Preparation()
    # How much of the computation would be in engines, None if not counted.
    flops: Flops | None = None
    # Further names of the same function.
    twins: tuple[str, ...] = ()

    written_too: typing.ClassVar = ("ops_in_tensorrt", "ops")
    written_digits: typing.ClassVar = {"coverage": 4}

    @property
    def label(self) -> str:
        """The signature's names, for tables."""
        return signatures.label(self.name, self.twins)

    @property
    def ops_in_tensorrt(self) -> int:
        """Computing ops that would run in TensorRT."""
        return sum(one.engine.compute_ops for one in self.segments)

    @property
    def ops(self) -> int:
        """All computing ops."""
        return self.ops_in_tensorrt + len(self.left_out)

    @property
    def coverage(self) -> float:
        """Share of the computing ops that would run in TensorRT, 0 to 1."""
        return self.ops_in_tensorrt / self.ops if self.ops else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Plan(records.Record, results.Result):
    """The plan for a SavedModel that is not converted yet."""

    # Absolute path of its directory.
    model: str
    # Tags of its MetaGraph.
    tags: tuple[str, ...]
    # The settings of the trial.
    settings: Settings
    # The version that tried it.
    tensorflow: str
    signatures: tuple[SignaturePlan, ...]

    document: typing.ClassVar = "plan"
    written_too: typing.ClassVar = ("use_dynamic_shape",)

    def summary(self) -> str:
        """As Result.summary."""
        each = []
        for signature in self.signatures:
            count = len(signature.segments)
            share = f"{signature.coverage:.0%} of the ops in {terminal.counted(count, 'engine')}"
            each.append(f"{signature.name} {'cannot be converted' if signature.problem else share}")
        return f"{self.model}, not converted yet: {', '.join(each)}"

    @property
    def use_dynamic_shape(self) -> bool:
        """Whether engines would have optimization profiles."""
        return self.settings.dynamic


def grouped(left_out: Iterable[LeftOut]) -> list[tuple[str, str, list[str]]]:
    """LeftOut nodes that share op and reason: [(op, reason, [node, …])], the largest groups first."""
    groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for node in left_out:
        groups[node.op, node.reason].append(node.node)
    return [(op, reason, nodes) for (op, reason), nodes in sorted(groups.items(), key=lambda item: -len(item[1]))]
