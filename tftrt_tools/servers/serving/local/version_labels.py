"""Version labels: names for versions, given by the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from tftrt_tools.servers.serving.local import failure

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types

# {model: {label: version}}
Labels: TypeAlias = Mapping[str, Mapping[str, int]]


def assign(
    models: Iterable[config_types.ModelConfig],
    old: Labels,
    is_available: Callable[[str, int], bool],
    allow_unavailable: bool,
) -> dict[str, dict[str, int]]:
    """The labels of a new configuration.

    A label may only be given to a loaded version; with `allow_unavailable` this does not hold for a new label, or for one that keeps its
    version.
    Args: models: ModelConfigs. old: {name: {label: version}}. is_available: function (name, version) -> bool.
    Returns: {name: {label: version}}. Raises: Failure FAILED_PRECONDITION.
    """
    new: dict[str, dict[str, int]] = {}
    for model in models:
        for label, version in sorted(model.version_labels.items()):
            stays_or_new = old.get(model.name, {}).get(label, version) == version
            if not (allow_unavailable and stays_or_new) and not is_available(model.name, version):
                raise failure.precondition(
                    f"Request to assign label to version {version} of model {model.name}, "
                    "which is not currently available for inference"
                )
            new.setdefault(model.name, {})[label] = version
    return new


def resolve(labels: Labels, name: str, label: str) -> int:
    """The version of a label. Raises: Failure INVALID_ARGUMENT, also where the model is unknown."""
    version = labels.get(name, {}).get(label)
    if version is None:
        raise failure.invalid(f"Unrecognized servable version label: {label}")
    return version
