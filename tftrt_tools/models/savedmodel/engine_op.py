"""What a TRTEngineOp is, as data. No TensorFlow here; `graph` reads these from protos."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Literal

from tftrt_tools.base import records
from tftrt_tools.base.choices import Precision

ENGINE_OP = "TRTEngineOp"
# How the names of a native segment's inputs and outputs begin.
INPUT, OUTPUT = "TensorRTInputPH_", "TensorRTOutputPH_"
# Behind the names of engine ops that got further outputs.
MARKED = "_marked"
# Ops that hold or pass on values: neither TensorRT nor TensorFlow spends time in them.
PASSIVE_OPS = frozenset(
    {
        "Const",
        "Placeholder",
        "PlaceholderWithDefault",
        "Identity",
        "IdentityN",
        "NoOp",
        "_Arg",
        "_Retval",
        "ReadVariableOp",
        "VarHandleOp",
        "StopGradient",
        "EnsureShape",
        "Snapshot",
    }
)
_LOWEST_FIRST: tuple[Precision, ...] = ("INT8", "FP16", "FP32")

# The shape of a tensor: None for an unknown dimension, and None in place of the tuple for an unknown rank.
Shape = tuple[int | None, ...] | None


def unmarked(name: str) -> str:
    """The name of an engine op before it got further outputs."""
    return name.partition(MARKED)[0]


def lowest_precision(precisions: Iterable[Precision]) -> Precision | Literal[""]:
    """The lowest of some engines' precisions, "" for none."""
    given = set(precisions)
    return next((one for one in _LOWEST_FIRST if one in given), "")


@dataclasses.dataclass(frozen=True)
class Tensor(records.Record):
    """A tensor at an engine's border. dtype: as NumPy names it."""

    dtype: str
    shape: Shape


_TABLE = re.compile(r"TRT-([0-9]{4}|[0-9]{6})-\w+")


def table_tensorrt(header: str) -> str:
    """The TensorRT of a calibration table's first line, such as "8.5.3"; "" for another text."""
    found = _TABLE.fullmatch(header)
    if not found:
        return ""
    digits = found[1]
    # Up to 9: major, minor, two digits of patch. From 10 on: two digits each.
    parts = (digits[0], digits[1], digits[2:]) if len(digits) == 4 else (digits[:2], digits[2:4], digits[4:])
    return ".".join(str(int(part)) for part in parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOp(records.Record):
    """One TRTEngineOp: what TensorRT was given."""

    # The name under which TF-TRT caches its engines: the last part of the node's name.
    name: str
    precision: Precision
    # The tensors at its border, in the order of the op's inputs and outputs.
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    # {op: how many} of the native segment's nodes; {} where the segment was removed.
    ops: dict[str, int]
    # Name of the function that runs if no engine does, "" if it was removed.
    native_segment: str
    # Whether the batch size is TensorRT's implicit dimension, else engines have optimization profiles.
    implicit_batch: bool
    # How profiles are made, one of choices.STRATEGIES; "" in implicit batch mode.
    profile_strategy: str
    # GPU memory in bytes that an engine may use for scratch.
    workspace_size_bytes: int
    # Engines kept in implicit batch mode.
    maximum_cached_engines: int
    # Whether a request whose shape has no engine may build one.
    allow_build_at_runtime: bool
    # Whether INT8 takes its ranges from a calibration.
    use_calibration: bool
    # Whether the op has a calibration table.
    calibrated: bool
    # Whether the ranges are those of quantization nodes in the segment.
    explicit_precision: bool
    # The TensorRT that its table is for, such as "8.5.3"; "" without a table.
    table_tensorrt: str = ""

    @property
    def compute_ops(self) -> int:
        """Ops of the segment that compute something."""
        return sum(count for op, count in self.ops.items() if op not in PASSIVE_OPS)
