"""What TF-TRT makes of a quantization-aware model, as data. No TensorFlow here; `quantization_aware` finds it out."""

import dataclasses

# What becomes of a quantization node.
EXPLICIT_INT8 = "explicit INT8"
DYNAMIC_RANGE = "dynamic range"
NO_EFFECT = "no effect"
STAYS_NATIVE = "stays native"
REMOVED = "removed"


@dataclasses.dataclass(frozen=True)
class QuantizationNode:
    """A quantization node and what becomes of it.

    weights: whether it quantizes constants; kind: one of the constants above; text: that in a sentence.
    """

    name: str
    op: str
    weights: bool
    kind: str
    text: str

    def to_dict(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data):
        return cls(**data)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something that TF-TRT does otherwise than the model or the caller asks. name: of a node or an engine; mend: may be ""."""

    name: str
    op: str
    text: str
    mend: str = ""

    def to_dict(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data):
        return cls(**data)


_PROBLEMS = ("unbuildable", "lost", "altered", "downgraded", "upgraded")


@dataclasses.dataclass(frozen=True)
class Quantization:
    """The quantization of one signature after the pass.

    nodes: QuantizationNodes, in graph order; () for a model that is not quantization-aware.
    explicit: TF-TRT used its explicit mode, in which quantization nodes become TensorRT's and nothing else is INT8.
    unbuildable: Problems of nodes and engines with which TensorRT or TF-TRT is expected to fail when it builds.
    lost: Problems of convolutions and products that no engine takes because of their quantized (or unquantized) weights.
    altered: Problems of quantization nodes that TensorRT computes with other numbers than the model.
    downgraded: Problems of engines, and of convolutions in them, that compute in a higher precision than INT8, which was asked for.
    upgraded: Problems of engines that are INT8 although FP32 or FP16 was asked for.
    """

    nodes: tuple
    explicit: bool
    unbuildable: tuple = ()
    lost: tuple = ()
    altered: tuple = ()
    downgraded: tuple = ()
    upgraded: tuple = ()

    @property
    def aware(self):
        """Whether the model is quantization-aware."""
        return bool(self.nodes)

    @property
    def problems(self):
        """All Problems."""
        return tuple(problem for name in _PROBLEMS for problem in getattr(self, name))

    def to_dict(self):
        return {"nodes": [node.to_dict() for node in self.nodes], "explicit": self.explicit,
                **{name: [problem.to_dict() for problem in getattr(self, name)] for name in _PROBLEMS}}

    @classmethod
    def from_dict(cls, data):
        problems = {name: tuple(map(Problem.from_dict, data[name])) for name in _PROBLEMS}
        return cls(tuple(map(QuantizationNode.from_dict, data["nodes"])), data["explicit"], **problems)
