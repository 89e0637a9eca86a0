"""What TF-TRT makes of a quantization-aware model, as data. No TensorFlow here; `quantization_aware` finds it out."""

import dataclasses
from typing import Final

from tftrt_tools.base import records
from tftrt_tools.base.choices import NodeFate

# What happens to a quantization node.
EXPLICIT_INT8: Final = "explicit INT8"
DYNAMIC_RANGE: Final = "dynamic range"
NO_EFFECT: Final = "no effect"
STAYS_NATIVE: Final = "stays native"
REMOVED: Final = "removed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizationNode(records.Record):
    """A quantization node and what happens to it."""

    name: str
    op: str
    # Whether it quantizes constants.
    weights: bool
    kind: NodeFate
    # `kind` in a sentence, with the engine and the range.
    text: str


@dataclasses.dataclass(frozen=True)
class Problem(records.Record):
    """A departure of TF-TRT from what the model or the caller asks. name: of a node or an engine; mend: may be ""."""

    name: str
    op: str
    text: str
    mend: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantization(records.Record):
    """The quantization of one signature after the pass."""

    # In graph order; () for a model that is not quantization-aware.
    nodes: tuple[QuantizationNode, ...]
    # Whether TF-TRT used its explicit mode, in which quantization nodes become TensorRT's and nothing else is INT8.
    explicit: bool
    # Nodes and engines that are expected to make TensorRT or TF-TRT fail in a build.
    unbuildable: tuple[Problem, ...] = ()
    # Convolutions and products that no engine takes because of their quantized (or unquantized) weights.
    lost: tuple[Problem, ...] = ()
    # Quantization nodes that TensorRT computes with other numbers than the model.
    altered: tuple[Problem, ...] = ()
    # Engines, and convolutions in them, that compute in a higher precision although INT8 was asked for.
    downgraded: tuple[Problem, ...] = ()
    # Engines that are INT8 although FP32 or FP16 was asked for.
    upgraded: tuple[Problem, ...] = ()

    @property
    def aware(self) -> bool:
        """Whether the model is quantization-aware."""
        return bool(self.nodes)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All Problems."""
        return (*self.unbuildable, *self.lost, *self.altered, *self.downgraded, *self.upgraded)
