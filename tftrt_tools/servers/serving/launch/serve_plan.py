"""The plan of a start: the flags, read once into the models and addresses that the other steps need."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tftrt_tools.servers.serving import metric_names
from tftrt_tools.servers.serving.launch import config_files, readiness


@dataclasses.dataclass(frozen=True)
class Model:
    """A model by name; base_path as given (a path or a URI); specific: versions that the configuration names, () for the newest; labels:
    names of its version labels."""

    name: str
    base_path: str
    specific: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def local_path(self) -> pathlib.Path | None:
        """Its base path as a Path, or None for a URI such as gs://."""
        return None if "://" in self.base_path else pathlib.Path(self.base_path)


@dataclasses.dataclass(frozen=True)
class Plan:
    """One start. values: the server's flags by name, paths made absolute; host: the address to listen on, "" for the backend's own."""

    values: Mapping[str, Any]
    host: str
    models: tuple[Model, ...]

    @property
    def port(self) -> int:
        result: int = self.values["port"]
        return result

    @property
    def rest_port(self) -> int:
        result: int = self.values["rest_api_port"]
        return result

    @property
    def names(self) -> tuple[str, ...]:
        """The models' names."""
        return tuple(model.name for model in self.models)

    def probe(self, host: str) -> readiness.Probe:
        """A readiness.Probe for a server that listens on `host`."""
        values = self.values
        return readiness.Probe(
            host=readiness.reached_at(host),
            port=self.port,
            rest_port=self.rest_port,
            models=self.names,
            tls=bool(values["ssl_config_file"]),
            alts=bool(values["use_alts_credentials"]),
            socket_path=values["grpc_socket_path"],
            metrics_path=self._metrics_path(),
        )

    def _metrics_path(self) -> str:
        path = self.values["monitoring_config_file"]
        if not path or "://" in path or not self.rest_port:
            return ""
        config = config_files.read("monitoring_config_file", path).prometheus_config
        return (config.path or metric_names.PATH) if config.enable else ""


# Flags that name a file, in the order of the server's usage.
FILE_FLAGS = (
    "batching_parameters_file",
    "model_config_file",
    "tensorflow_session_config_file",
    "ssl_config_file",
    "platform_config_file",
    "monitoring_config_file",
    "thread_pool_factory_config_file",
)


def read(values: Mapping[str, Any], host: str = "") -> Plan:
    """A Plan from the flags. Args: values: flag name -> value; host: address to listen on.

    Raises: TftrtError for a configuration that cannot be read.
    """
    values = dict(values)
    for flag in (*FILE_FLAGS, "model_base_path", "grpc_socket_path"):
        if values[flag] and "://" not in values[flag]:
            # The server refuses relative base paths, and may run in another directory or a container.
            values[flag] = str(pathlib.Path(values[flag]).absolute())
    if not values["model_config_file"]:
        return Plan(values, host, (Model(values["model_name"], values["model_base_path"]),))
    config = config_files.read("model_config_file", values["model_config_file"])
    models = tuple(
        Model(
            model.name,
            model.base_path,
            tuple(model.model_version_policy.specific.versions),
            tuple(sorted(model.version_labels)),
        )
        for model in config.model_config_list.config
    )
    return Plan(values, host, models)
