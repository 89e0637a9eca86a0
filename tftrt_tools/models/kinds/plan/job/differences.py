"""Everything in which the Python packages of TensorRT from 8.5 to 11 differ: names that come and go.

No other file uses a name that one of them lacks (tests/project/test_tensorrt_names.py). docs/dev/stack.md says where each stands.
"""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import TYPE_CHECKING, Any

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


def creators(registry: tensorrt.IPluginRegistry) -> Any:
    """The plugin creators of a registry: of all kinds, which release 10 tells apart."""
    return getattr(registry, "all_creators", None) or registry.plugin_creator_list


# Engines ----------------------------------------------------------------------------------------------------------------------------------


def implicit_batch(engine: tensorrt.ICudaEngine) -> bool:
    """Whether it has an implicit batch, which ended with release 10: there the question is deprecated, and later gone."""
    return hasattr(engine, "num_bindings") and bool(engine.has_implicit_batch_dimension)


@dataclasses.dataclass(frozen=True)
class Binding:
    """An input or output of an engine, or of one of its profiles. shape: without an implicit batch."""

    name: str
    is_input: bool
    dtype: tensorrt.DataType
    shape: tuple[int, ...]


def bindings(engine: tensorrt.ICudaEngine) -> list[Binding]:
    """The inputs and outputs by their numbers, which an implicit batch has to be called by. Only before release 10."""
    return [
        Binding(
            engine.get_binding_name(index),
            bool(engine.binding_is_input(index)),
            engine.get_binding_dtype(index),
            tuple(engine.get_binding_shape(index)),
        )
        for index in range(engine.num_bindings)
    ]


def call_implicit(context: tensorrt.IExecutionContext, batch: int, addresses: list[int], stream: int) -> bool:
    """Put a call of an engine with an implicit batch on a stream. Only before release 10. Args: addresses: of all bindings."""
    return bool(context.execute_async(batch, addresses, stream))


def profile_values(engine: tensorrt.ICudaEngine, profile: int, name: str) -> list[list[int]]:
    """The least, best and largest values of an input whose values are shapes; [] where the profile has none."""
    if hasattr(engine, "get_tensor_profile_values"):
        # Release 10 names the two the other way around; what it takes is a number, then a text.
        return [list(values) for values in engine.get_tensor_profile_values(profile, name)]
    each = engine.num_bindings // max(1, engine.num_optimization_profiles)
    found = engine.get_profile_shape_input(profile, profile * each + engine.get_binding_index(name))
    return [list(values) for values in found]


def context_memory(engine: tensorrt.ICudaEngine) -> int:
    """Bytes that a context of the engine needs for activations and scratch."""
    if hasattr(engine, "device_memory_size_v2"):
        # Since release 10.1 the other name is deprecated.
        return int(engine.device_memory_size_v2)
    return int(engine.device_memory_size)
