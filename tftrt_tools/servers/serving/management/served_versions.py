"""`tftrt versions`: what a running server serves. A server cannot list its labels, so the likely ones are tried."""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from tftrt_tools.base import errors, records
from tftrt_tools.servers.client import Client, ServingError, Tls, TritonClient, VersionStatus
from tftrt_tools.servers.serving.configuration.model_config import Model
from tftrt_tools.servers.serving.management import managed_server
from tftrt_tools.servers.serving.management.models_config_file import ConfigFile

LIKELY = ("stable", "canary")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelVersions:
    """One model."""

    name: str
    # The newest first.
    versions: tuple[VersionStatus, ...]
    # {label: version} that answered.
    labels: dict[str, int]
    # The version that answers if a request names none, or None.
    default: int | None
    # The server's words if it does not know the model.
    error: str = ""

    def labels_of(self, version: int) -> list[str]:
        """Labels on a version."""
        return [label for label, on in self.labels.items() if on == version]

    # Not a Record: each version is written with its labels.
    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "default": self.default,
            "labels": self.labels,
            "error": self.error,
            "versions": [
                dataclasses.asdict(version) | {"labels": self.labels_of(version.version)} for version in self.versions
            ],
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Versions(records.Record):
    """All requested models. asked: the labels that were tried; notes: differences between the server and its file."""

    document: ClassVar = "versions"

    address: str
    models: tuple[ModelVersions, ...]
    asked: tuple[str, ...] = records.field(key="asked_labels")
    notes: tuple[str, ...]


def versions(
    address: str,
    names: Iterable[str] = (),
    path: str | pathlib.Path | None = None,
    labels: Iterable[str] = (),
    deadline_seconds: float = 10,
    tls: Tls | None = None,
) -> Versions:
    """Ask a server.

    Args: names: models, by default those of the file. path: its models.config, or None. labels: to try besides the file's and LIKELY.
      tls: client.Tls or None.
    Returns: Versions. Raises: UsageError, ServingError; TftrtError where it knows none of the models.
    """
    file = ConfigFile.read(path) if path else None
    listed = file.models() if file else {}
    names = tuple(names) or tuple(listed)
    models: list[ModelVersions] = []
    labels_asked: list[str] = []
    with managed_server.asked(address, deadline_seconds, tls) as client:
        triton = isinstance(client, TritonClient)
        if triton and (path or tuple(labels)):
            raise errors.UsageError("a Triton has neither a models.config nor version labels", "leave those flags out")
        names = names or (tuple(client.names()) if isinstance(client, TritonClient) else ())
        if not names:
            raise (
                errors.UsageError("which models? The repository is empty", "publish one")
                if triton
                else errors.UsageError(
                    "which models? A server does not list them",
                    "name them with --model_name, or give its --model_config_file",
                )
            )
        for name in names:
            label_versions = listed[name].labels if name in listed else {}
            candidates = [] if triton else list(dict.fromkeys([*label_versions, *labels, *LIKELY]))
            labels_asked += [label for label in candidates if label not in labels_asked]
            models.append(_of_model(client, name, candidates))
    if all(model.error for model in models):
        raise errors.UsageError(
            f"the server at {client.address} knows no such model: {models[0].error}",
            "check --model_name; the server's flag or its model_config_file gives the names",
        )
    return Versions(
        address=client.address,
        models=tuple(models),
        asked=tuple(labels_asked),
        notes=tuple(_notes(file, models, listed)),
    )


def _of_model(client: Client | TritonClient, name: str, labels: Iterable[str]) -> ModelVersions:
    try:
        states = client.status(name)
    except ServingError as error:
        if error.code != "NOT_FOUND":
            raise
        return ModelVersions(name=name, versions=(), labels={}, default=None, error=error.line)
    version_of = {label: managed_server.version_of(client, name, label) for label in labels}
    labels_on = {label: on for label, on in version_of.items() if on is not None}
    return ModelVersions(
        name=name, versions=tuple(states), labels=labels_on, default=managed_server.version_of(client, name)
    )


def _notes(file: ConfigFile | None, models: Iterable[ModelVersions], listed: Mapping[str, Model]) -> Iterator[str]:
    if file is None:
        return
    if file.pending.is_file():
        yield f"a promotion is under way, or was cut off: {file.pending} is there; the next `tftrt promote` or `tftrt rollback` undoes it"
    for model in models:
        if model.name not in listed:
            yield f"{file.path} does not list model {model.name!r}: the next promotion with that file unloads it"
            continue
        for label, version in listed[model.name].labels.items():
            there = model.labels.get(label)
            if there != version and not model.error:
                yield (
                    f"{file.path} has the label {label!r} of {model.name!r} on version {version}, the server on "
                    f"{'none' if there is None else there}"
                )
