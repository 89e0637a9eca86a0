"""Refuses parts of a ModelServerConfig as TensorFlow Serving does, with its texts."""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from tftrt_tools.servers.serving.local import failure

if TYPE_CHECKING:
    from tensorflow_serving.apis import model_management_pb2

    from tftrt_tools.base.wire import config_types


_LOG = logging.getLogger("tftrt.serving")
LIST = "model_config_list"
PLATFORM = "tensorflow"
_TENSORFLOW = 1  # ModelType.TENSORFLOW
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9.]*://")


def check(request: model_management_pb2.ReloadConfigRequest) -> None:
    """Refuse a ReloadConfigRequest without a list of models. Raises: Failure INVALID_ARGUMENT."""
    if request.config.WhichOneof("config") != LIST:
        raise failure.invalid(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported"
        )


def check_transition(old: config_types.ModelServerConfig, new: config_types.ModelServerConfig) -> None:
    """Refuse a configuration without a list of models if the present one has a list. Args: ModelServerConfigs. Raises: Failure
    FAILED_PRECONDITION."""
    before = old.WhichOneof("config")
    if before and (before, new.WhichOneof("config")) != (LIST, LIST):
        raise failure.precondition(
            "Cannot transition to requested config. It is only legal to transition from one ModelConfigList to another."
        )


def check_list(models: Collection[config_types.ModelConfig]) -> None:
    """Check that names differ and that base paths are absolute. Args: ModelConfigs. Raises: Failure INVALID_ARGUMENT."""
    names: set[str] = set()
    for model in models:
        if model.name in names:
            raise failure.invalid(f"Illegal to list model {model.name} multiple times in config list")
        names.add(model.name)
    for model in models:
        if not _URI.match(model.base_path) and not posixpath.isabs(model.base_path):
            raise failure.invalid(
                f"Expected model {model.name} to have an absolute path or URI; got base_path()={model.base_path}"
            )


def platform(model: config_types.ModelConfig) -> str:
    """A ModelConfig's platform. Raises: Failure INVALID_ARGUMENT."""
    if not model.model_type:
        if not model.model_platform:
            raise failure.invalid(
                "Illegal setting neither ModelServerConfig::model_type (deprecated) "
                "nor ModelServerConfig::model_platform."
            )
        given: str = model.model_platform
        return given
    _LOG.warning("model %s sets the deprecated model_type: use model_platform", model.name)
    if model.model_platform:
        raise failure.invalid(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and ModelServerConfig::model_platform."
        )
    if model.model_type != _TENSORFLOW:
        raise failure.invalid(f"ModelServerConfig::model_type choice {model.model_type} not supported.")
    return PLATFORM


def check_same_platforms(old: Iterable[config_types.ModelConfig], new: Iterable[config_types.ModelConfig]) -> None:
    """Check that no model changes its platform. Args: ModelConfigs. Raises: Failure INVALID_ARGUMENT."""
    before = {model.name: platform(model) for model in old}
    for model in new:
        if model.name in before and platform(model) != before[model.name]:
            raise failure.invalid(
                f"Illegal to change a model's platform. For model {model.name} platform was {before[model.name]} "
                f"and new platform requested is {platform(model)}"
            )


def check_platforms(models: Iterable[config_types.ModelConfig]) -> None:
    """Check that all platforms are TensorFlow. Args: ModelConfigs. Raises: Failure INVALID_ARGUMENT."""
    for model in models:
        if platform(model) != PLATFORM:
            raise failure.invalid(f"Model {model.name} requests unsupported platform {platform(model)}")
