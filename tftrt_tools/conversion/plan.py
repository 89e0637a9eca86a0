"""What TF-TRT would do with a SavedModel: segments, what stays out, other sizes, advice. No TensorFlow here; `planner` fills these in."""

import collections
import dataclasses

from tftrt_tools.conversion.pass_log import LeftOut
from tftrt_tools.conversion.quantization import Quantization
from tftrt_tools.conversion.settings import Settings
from tftrt_tools.savedmodel import signatures
from tftrt_tools.savedmodel.engine_op import EngineOp
from tftrt_tools.savedmodel.flops import Flops
from tftrt_tools.savedmodel.inspection import Finding
from tftrt_tools.savedmodel.preparation import Preparation
from tftrt_tools.savedmodel.shapes import InputSpec


@dataclasses.dataclass(frozen=True)
class Segment:
    """A future engine. number: its place in the signature, which ends its engine's name; engine: dtypes, shapes and ops; nodes: names
    of its nodes; feeds, results: names of the tensors that enter and leave it, in the order of engine.inputs and engine.outputs."""

    number: int
    engine: EngineOp
    nodes: tuple
    feeds: tuple
    results: tuple

    def to_dict(self):
        plain = self.engine.to_dict()
        border = {key: [{"tensor": name} | one for name, one in zip(names, plain[key], strict=True)]
                  for key, names in (("inputs", self.feeds), ("outputs", self.results))}
        return {"number": self.number, "compute_ops": self.engine.compute_ops, **border, "nodes": list(self.nodes), "engine": plain}

    @classmethod
    def from_dict(cls, data):
        feeds, results = (tuple(one["tensor"] for one in data[key]) for key in ("inputs", "outputs"))
        return cls(data["number"], EngineOp.from_dict(data["engine"]), tuple(data["nodes"]), feeds, results)


@dataclasses.dataclass(frozen=True)
class SizeResult:
    """What each --minimum_segment_size from `low` to `high` (None: any larger) gives. inside: computing ops in the engines; coverage:
    their share, 0 to 1; smallest: computing ops of the smallest engine, None without engines."""

    low: int
    high: int | None
    engines: int
    inside: int
    coverage: float
    smallest: int | None

    def holds(self, size):
        """Whether this is what `size` gives."""
        return self.low <= size and (self.high is None or size <= self.high)

    def text(self):
        """Such as "3 to 5"."""
        if self.high is None:
            return f"{self.low} and more"
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"

    def to_dict(self):
        return dataclasses.asdict(self) | {"coverage": round(self.coverage, 4)}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Engines and coverage in a batch mode. dynamic: with optimization profiles, else implicit batch."""

    dynamic: bool
    engines: int
    coverage: float

    def to_dict(self):
        return dataclasses.asdict(self) | {"coverage": round(self.coverage, 4)}

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> "Outcome":
        """From `to_dict`."""
        return cls(**data)


@dataclasses.dataclass(frozen=True)
class Advice:
    """minimum_segment_size: the recommended one; use_dynamic_shape: whether the other batch mode would be clearly better (its value
    there), None for no opinion; reasons: sentences for people."""

    minimum_segment_size: int
    use_dynamic_shape: bool | None
    reasons: tuple

    def to_dict(self):
        return dataclasses.asdict(self) | {"reasons": list(self.reasons)}

    @classmethod
    def from_dict(cls, data):
        return cls(data["minimum_segment_size"], data["use_dynamic_shape"], tuple(data["reasons"]))


@dataclasses.dataclass(frozen=True)
class SignaturePlan:
    """One signature. left_out: LeftOut of each computing node that stays in TensorFlow; sizes: SizeResults, upwards; other: Outcome of
    the other batch mode; problem: {"kind", "cause", "mend"} of one that cannot be converted, whose other fields are then empty;
    quantization: of a quantization-aware signature, else None; findings: Findings on segments that no GPU can build;
    preparation: what would be done to its graph before; flops: how much of the computation would be in engines, None where that was not
    counted; twins: further names of the same function."""

    name: str
    inputs: tuple
    segments: tuple = ()
    left_out: tuple = ()
    sizes: tuple = ()
    other: Outcome | None = None
    advice: Advice | None = None
    problem: dict | None = None
    quantization: Quantization | None = None
    findings: tuple = ()
    preparation: Preparation = Preparation()
    flops: Flops | None = None
    twins: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Its names, for tables."""
        return signatures.label(self.name, self.twins)

    @property
    def inside(self):
        """Computing ops that would run in TensorRT."""
        return sum(one.engine.compute_ops for one in self.segments)

    @property
    def coverage(self):
        """Their share of all computing ops, 0 to 1."""
        total = self.inside + len(self.left_out)
        return self.inside / total if total else 0.0

    def to_dict(self):
        return {"name": self.name, "inputs": [one.to_dict() for one in self.inputs], "problem": self.problem,
                "ops_in_tensorrt": self.inside, "ops": self.inside + len(self.left_out), "coverage": round(self.coverage, 4),
                "segments": [one.to_dict() for one in self.segments], "left_out": [one.to_dict() for one in self.left_out],
                "sizes": [one.to_dict() for one in self.sizes], "other_batch_mode": self.other.to_dict() if self.other else None,
                "advice": self.advice.to_dict() if self.advice else None,
                "quantization": self.quantization.to_dict() if self.quantization else None,
                "findings": [one.to_dict() for one in self.findings], "preparation": self.preparation.to_dict(),
                "flops": self.flops.to_dict() if self.flops else None, "twins": list(self.twins)}

    @classmethod
    def from_dict(cls, data):
        return cls(data["name"], tuple(map(InputSpec.from_dict, data["inputs"])), tuple(map(Segment.from_dict, data["segments"])),
                   tuple(LeftOut(**one) for one in data["left_out"]), tuple(SizeResult(**one) for one in data["sizes"]),
                   Outcome(**data["other_batch_mode"]) if data["other_batch_mode"] else None,
                   Advice.from_dict(data["advice"]) if data["advice"] else None, data["problem"],
                   Quantization.from_dict(data["quantization"]) if data["quantization"] else None,
                   tuple(Finding(**one) for one in data["findings"]), Preparation.from_dict(data["preparation"]),
                   Flops.from_dict(data.get("flops")), tuple(data.get("twins", ())))


@dataclasses.dataclass(frozen=True)
class Plan:
    """A SavedModel that TF-TRT has not seen yet. settings: with which it was tried; tensorflow: the version that did it."""

    model: str
    tags: tuple
    settings: Settings
    tensorflow: str
    signatures: tuple

    def to_dict(self):
        return {"kind": "plan", "model": self.model, "tags": list(self.tags), "settings": self.settings.to_dict(),
                "use_dynamic_shape": self.settings.dynamic, "tensorflow": self.tensorflow,
                "signatures": [one.to_dict() for one in self.signatures]}

    @classmethod
    def from_dict(cls, data):
        return cls(data["model"], tuple(data["tags"]), Settings.from_dict(data["settings"]), data["tensorflow"],
                   tuple(map(SignaturePlan.from_dict, data["signatures"])))


def grouped(left_out):
    """LeftOut nodes that share op and reason: [(op, reason, [node, …])], the largest groups first."""
    groups = collections.defaultdict(list)
    for one in left_out:
        groups[one.op, one.reason].append(one.node)
    return [(op, reason, nodes) for (op, reason), nodes in sorted(groups.items(), key=lambda item: -len(item[1]))]
