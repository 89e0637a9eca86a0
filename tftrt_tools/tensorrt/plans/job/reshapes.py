"""Reshapes that TensorRT reads otherwise than they are (base.logs.engine_layers.misread): such a plan is built again, with them in FP32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.base.logs import engine_layers
from tftrt_tools.models.kinds.plan import layer_information
from tftrt_tools.tensorrt.plans.job import mixed

if TYPE_CHECKING:
    import tensorrt

# Between the names of layers that TensorRT made one of.
_AND = " + "


def misread(information: Mapping[str, object]) -> tuple[str, ...]:
    """Their names in a built plan. Args: information: the inspector's JSON of all layers."""
    return engine_layers.misread(layer_information.rows(information))


def built(
    build: Callable[[], float], look: Callable[[], Mapping[str, object]], hold: Callable[[tuple[str, ...]], int]
) -> float:
    """Build a plan, and once more where it has such reshapes.

    Args: build: writes the plan; returns its seconds. look: what the inspector says of the plan. hold: takes names of layers, and
      constrains them for the next build; returns how many.
    Returns: seconds of all builds. Raises: what the first build and `look` raise.
    """
    seconds = build()
    found = misread(look())
    if found and hold(found):
        try:
            seconds += build()
        except errors.TftrtError:
            return seconds  # the first plan is still there, and its reshapes will be named
    return seconds


def hold(
    trt: ModuleType, network: tensorrt.INetworkDefinition, config: tensorrt.IBuilderConfig, names: tuple[str, ...]
) -> int:
    """Constrain layers to FP32. Args: names: as the inspector gives them. Returns: how many."""
    wanted = {part.strip() for name in names for part in name.split(_AND)}
    # What is held already would make the same plan again.
    layers = [
        layer
        for layer in map(network.get_layer, range(network.num_layers))
        if layer.name in wanted and not layer.precision_is_set
    ]
    count = sum(mixed.constrain(trt, layer) for layer in layers)
    if count:
        config.set_flag(trt.BuilderFlag.__members__[mixed.FLAG])
    return count
