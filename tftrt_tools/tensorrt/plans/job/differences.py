"""Everything in which the releases of TensorRT from 8.5 to 11 differ for building: flags that come and go."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from tftrt_tools.base import errors

if TYPE_CHECKING:
    import tensorrt

# {setting: (builder flag, since which release)}, of flags that 8.5 lacks.
_SINCE = {"version_compatible": ("VERSION_COMPATIBLE", "8.6"), "strongly_typed": ("STRONGLY_TYPED", "9")}


def network_flags(trt: ModuleType, strongly_typed: bool) -> int:
    """The flags of a network with explicit batch, the only mode from release 10 on. Raises: TftrtError."""
    known = trt.NetworkDefinitionCreationFlag.__members__
    wanted = ["EXPLICIT_BATCH"] if "EXPLICIT_BATCH" in known else []
    if strongly_typed and weakly_typed(trt):
        if "STRONGLY_TYPED" not in known:
            raise lacking(trt, "strongly_typed")
        wanted.append("STRONGLY_TYPED")
    return sum(1 << int(known[name]) for name in wanted)


def weakly_typed(trt: ModuleType) -> bool:
    """Whether builder flags choose the precision; since release 11 only the types of the graph do."""
    return "FP16" in trt.BuilderFlag.__members__


def typed(trt: ModuleType, strongly_typed: bool) -> bool:
    """Whether only the types of the graph choose the precision of a network. Args: strongly_typed: whether the user asks for that."""
    return strongly_typed or not weakly_typed(trt)


def flag(trt: ModuleType, setting: str, name: str = "") -> tensorrt.BuilderFlag:
    """The builder flag of a setting. Args: name: of the flag, if it is not in _SINCE. Raises: TftrtError where this release has none."""
    name = name or _SINCE[setting][0]
    if name not in trt.BuilderFlag.__members__:
        raise lacking(trt, setting)
    return trt.BuilderFlag.__members__[name]


def lacking(trt: ModuleType, setting: str) -> errors.TftrtError:
    """The error for a setting that this release does not have."""
    since = f"TensorRT {_SINCE[setting][1]} and later have it; " if setting in _SINCE else ""
    return errors.TftrtError(f"--{setting}: TensorRT {trt.__version__} has no such flag", f"{since}leave it out")


def parser_error(error: tensorrt.ParserError, names: list[str]) -> str:
    """An error of the ONNX parser for people. Args: names: of the nodes, by their numbers; may be []."""
    number = error.node()
    name = getattr(error, "node_name", lambda: "")() or (names[number] if 0 <= number < len(names) else "")
    where = f"node {name} " if name else f"node number {number} " if number >= 0 else ""
    return f"{where}({errors.first_line(error.desc())})"
