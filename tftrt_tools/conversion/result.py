"""What a conversion did, signature by signature."""

import collections
import dataclasses

from tftrt_tools.conversion.pass_log import LeftOut
from tftrt_tools.conversion.plan import Outcome
from tftrt_tools.conversion.quantization import Quantization
from tftrt_tools.savedmodel import signatures
from tftrt_tools.savedmodel.engine_op import EngineOp
from tftrt_tools.savedmodel.flops import Flops
from tftrt_tools.savedmodel.inspection import Finding
from tftrt_tools.savedmodel.preparation import Preparation
from tftrt_tools.savedmodel.shapes import InputSpec


@dataclasses.dataclass(frozen=True)
class BuiltEngine:
    """An engine that was built. shapes: of its inputs; bytes: of the serialized engine; seconds: that building all engines of its engine
    op took, there where it was built; peak_memory_bytes: of the whole GPU meanwhile, above what was in use before; None where not known;
    cached: it was taken from the engine cache."""

    name: str
    shapes: tuple
    bytes: int
    seconds: float | None = None
    peak_memory_bytes: int | None = None
    cached: bool = False

    def to_dict(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data):
        return cls(**{**data, "shapes": tuple(data["shapes"])})


@dataclasses.dataclass(frozen=True)
class Unbuilt:
    """An engine op that was left without an engine, and runs natively. name: of its engine; reason: in words."""

    name: str
    reason: str

    def to_dict(self) -> dict[str, str]:
        return dataclasses.asdict(self)


def coverage(results):
    """Share of the computing ops of SignatureResults that run in TensorRT, 0 to 1."""
    counts = [signature.compute_ops for signature in results]
    total = sum(whole for _, whole in counts)
    return sum(inside for inside, _ in counts) / total if total else 0.0


@dataclasses.dataclass(frozen=True)
class SignatureResult:
    """One signature. converted: False for one that was kept as it was; coverage: share of computing ops in engines, 0 to 1;
    calls: declared shapes, [{input: shape}]; built: engines that were built for them; unbuilt: engine ops for which there was none in time
    or no call; build_seconds: of all of them; quantization: of a
    quantization-aware model, else None; findings: Findings on its engine ops that no GPU can build; preparation: what was done to
    its graph before TF-TRT saw it; flops: how much of the computation is in engines, None where that was not counted;
    twins: further names of the same function; other_mode: what the other batch mode would take, None where that was not tried."""

    name: str
    inputs: tuple
    converted: bool
    coverage: float
    engines: tuple
    left_out: tuple
    native_ops: dict
    calls: tuple = ()
    built: tuple = ()
    build_seconds: float | None = None
    quantization: Quantization | None = None
    findings: tuple = ()
    preparation: Preparation = Preparation()
    flops: Flops | None = None
    twins: tuple[str, ...] = ()
    unbuilt: tuple[Unbuilt, ...] = ()
    other_mode: Outcome | None = None

    @classmethod
    def of(cls, name, inputs, passed, flops=None):
        """From a graph_pass.PassResult."""
        quantization = passed.quantization if passed.quantization.aware else None
        return cls(name, tuple(inputs), bool(passed.engines), passed.coverage, passed.engines, passed.left_out, passed.native_ops,
                   quantization=quantization, preparation=passed.preparation, flops=flops)

    @classmethod
    def of_graph(cls, seen, engines, before):
        """Of a model that was converted earlier. Args: seen: inspection.SignatureGraph. engines: EngineOps. before: the manifest's
        SignatureResult, or None where the model has no manifest."""
        if before:
            return dataclasses.replace(before, engines=tuple(engines), calls=(), built=(), unbuilt=(), build_seconds=None)
        ops = collections.Counter(node.op for node in seen.native)
        return cls(seen.name, tuple(seen.inputs), True, seen.coverage, tuple(engines), (), dict(sorted(ops.items())))

    @classmethod
    def untouched(cls, name, inputs, twins=()):
        """A signature that was not asked for."""
        return cls(name, tuple(inputs), False, 0.0, (), (), {}, twins=twins)

    @property
    def label(self) -> str:
        """Its names, for tables."""
        return signatures.label(self.name, self.twins)

    @property
    def compute_ops(self):
        """(ops in engines, all ops) that compute something."""
        inside = sum(engine.compute_ops for engine in self.engines)
        return inside, inside + sum(self.native_ops.values())

    def to_dict(self):
        return {"name": self.name, "inputs": [one.to_dict() for one in self.inputs], "converted": self.converted,
                "coverage": round(self.coverage, 4), "engines": [one.to_dict() for one in self.engines],
                "left_out": [one.to_dict() for one in self.left_out], "native_ops": self.native_ops,
                "calls": [{name: list(shape) for name, shape in call.items()} for call in self.calls],
                "built": [one.to_dict() for one in self.built], "unbuilt": [one.to_dict() for one in self.unbuilt],
                "build_seconds": self.build_seconds,
                "quantization": self.quantization.to_dict() if self.quantization else None,
                "findings": [one.to_dict() for one in self.findings], "preparation": self.preparation.to_dict(),
                "flops": self.flops.to_dict() if self.flops else None, "twins": list(self.twins),
                "other_mode": self.other_mode.to_dict() if self.other_mode else None}

    @classmethod
    def from_dict(cls, data):
        return cls(data["name"], tuple(map(InputSpec.from_dict, data["inputs"])), data["converted"], data["coverage"],
                   tuple(map(EngineOp.from_dict, data["engines"])), tuple(LeftOut(**one) for one in data["left_out"]), data["native_ops"],
                   tuple({name: tuple(shape) for name, shape in call.items()} for call in data["calls"]),
                   tuple(map(BuiltEngine.from_dict, data["built"])), data["build_seconds"],
                   Quantization.from_dict(data["quantization"]) if data.get("quantization") else None,
                   tuple(Finding(**one) for one in data.get("findings", ())), Preparation.from_dict(data.get("preparation")),
                   Flops.from_dict(data.get("flops")), tuple(data.get("twins", ())),
                   tuple(Unbuilt(**one) for one in data.get("unbuilt", ())),
                   Outcome.from_dict(data["other_mode"]) if data.get("other_mode") else None)
