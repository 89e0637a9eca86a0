"""What a TRTEngineOp is, as data. No TensorFlow here; `graph` reads these from protos."""

import dataclasses

ENGINE_OP = "TRTEngineOp"
# Ops that hold or pass on values: neither TensorRT nor TensorFlow spends time in them.
PASSIVE_OPS = frozenset({"Const", "Placeholder", "PlaceholderWithDefault", "Identity", "IdentityN", "NoOp", "_Arg", "_Retval",
                         "ReadVariableOp", "VarHandleOp", "StopGradient", "Snapshot"})
_LOWEST_FIRST = ("INT8", "FP16", "FP32")


def lowest_precision(precisions):
    """The lowest of some engines' precisions, "" for none."""
    return next((one for one in _LOWEST_FIRST if one in precisions), "")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor at an engine's border. dtype: as NumPy names it; shape: None for an unknown rank or unknown dimensions."""

    dtype: str
    shape: tuple | None

    def to_dict(self):
        return {"dtype": self.dtype, "shape": None if self.shape is None else list(self.shape)}

    @classmethod
    def from_dict(cls, data):
        return cls(data["dtype"], None if data["shape"] is None else tuple(data["shape"]))


@dataclasses.dataclass(frozen=True)
class EngineOp:
    """One TRTEngineOp: what TensorRT was given. nodes: of its native segment, {} where that was removed; calibrated: has a table."""

    name: str
    precision: str
    inputs: tuple
    outputs: tuple
    ops: dict
    native_segment: str
    implicit_batch: bool
    profile_strategy: str
    workspace_size_bytes: int
    maximum_cached_engines: int
    allow_build_at_runtime: bool
    use_calibration: bool
    calibrated: bool
    explicit_precision: bool

    @property
    def compute_ops(self):
        """Ops of the segment that compute something."""
        return sum(count for op, count in self.ops.items() if op not in PASSIVE_OPS)

    def to_dict(self):
        plain = dataclasses.asdict(self)
        return plain | {"inputs": [one.to_dict() for one in self.inputs], "outputs": [one.to_dict() for one in self.outputs]}

    @classmethod
    def from_dict(cls, data):
        tensors = {key: tuple(map(Tensor.from_dict, data[key])) for key in ("inputs", "outputs")}
        return cls(**{**data, **tensors})
