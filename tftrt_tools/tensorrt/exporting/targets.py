"""What an exported file is for: its opset, and what is known of the parser that will read it."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Mapping

from tftrt_tools.tensorrt.exporting import operators


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parser:
    """What a parser takes."""

    # Where that was read, for people.
    source: str
    # {op: types of its first input}.
    ops: Mapping[str, frozenset[str]]
    # {dtype: the parser's name of the type that it becomes}; it refuses tensors of other dtypes.
    types: Mapping[str, str]
    # {op: (index, name) of the inputs that have to be constants}.
    constants: Mapping[str, tuple[tuple[int, str], ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """One value of --target."""

    # For people.
    title: str
    # The opset that is written, and the newest one that an ONNX file may keep.
    opset: int
    newest: int
    # None if ONNX Runtime reads the file: then the run is the check.
    parser: Parser | None = None
    # What to know about `parser`, or "".
    remark: str = ""

    @property
    def narrow(self) -> bool:
        """Whether INT64 becomes INT32."""
        return self.parser is not None and self.parser.types.get("int64") == "INT32"


_AXES = ((1, "axes"),)
_WEIGHTS = ((1, "W"), (2, "R"), (3, "B"))
_CONSTANTS = {
    "CumSum": ((1, "axis"),),
    "TopK": ((1, "K"),),
    "Slice": ((3, "axes"),),
    "Squeeze": _AXES,
    "Unsqueeze": _AXES,
    "Pad": ((3, "axes"),),
    "InstanceNormalization": ((1, "scale"), (2, "B")),
    "LSTM": _WEIGHTS,
    "GRU": _WEIGHTS,
    "RNN": _WEIGHTS,
}
_TYPES = {
    "float32": "FP32",
    "float64": "FP32",
    "float16": "FP16",
    "int8": "INT8",
    "uint8": "UINT8",
    "int32": "INT32",
    "bool": "BOOL",
}

# Restrictions of TensorRT 8.5: of its list, and of builtin_op_importers.cpp at the same tag.
_PARSER_8_5 = Parser(
    source="onnx-tensorrt's docs/operators.md at release/8.5-GA",
    ops=operators.OPS_8_5,
    types=_TYPES | {"int64": "INT32"},
    constants=_CONSTANTS,
)
_PARSER_10_1 = Parser(
    source="onnx-tensorrt's docs/operators.md at release/10.1-GA",
    ops=operators.OPS_10_1,
    types=_TYPES | {"int64": "INT64", "bfloat16": "BF16", "int4": "INT4", "float8_e4m3fn": "FP8"},
    # There a TopK takes any K, and a normalization any scale.
    constants={op: inputs for op, inputs in _CONSTANTS.items() if op not in ("TopK", "InstanceNormalization")}
    | {"OneHot": ((1, "depth"),)}
    | {op: _AXES for op in operators.OPS_10_1 if op.startswith("Reduce")},
)

# tf2onnx writes opset 18 at most; gelu's rewrite writes 20, and onnx-tensorrt's list for 10.1 ends there. What ONNX Runtime reads,
# the run shows. 8.5 has no LayerNormalization, which is there from 17 on.
TARGETS = {
    "8.5": Target(title="TensorRT 8.5", opset=16, newest=16, parser=_PARSER_8_5),
    "10": Target(
        title="TensorRT 10", opset=18, newest=20, parser=_PARSER_10_1, remark="held against the list of TensorRT 10.1"
    ),
    "11": Target(
        title="TensorRT 11",
        opset=18,
        newest=20,
        parser=_PARSER_10_1,
        remark="held against the list of TensorRT 10.1, because that of 11 is not known here",
    ),
    "onnxruntime": Target(title="ONNX Runtime", opset=18, newest=23),
}
OPSETS = (9, 18)
# {major version of TensorRT: its target}.
_BY_RELEASE = {"8": "8.5", "9": "10", "10": "10", "11": "11"}


def here() -> str:
    """The --target of `tftrt export` for the TensorRT that is installed; the oldest where there is none."""
    try:
        return _BY_RELEASE.get(importlib.metadata.version("tensorrt").partition(".")[0], "11")
    except importlib.metadata.PackageNotFoundError:
        return "8.5"
