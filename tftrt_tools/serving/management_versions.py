"""`tftrt versions`: what a running server serves. Labels cannot be listed, so the likely ones are asked for."""

import dataclasses

from tftrt_tools import errors
from tftrt_tools.serving import management_client
from tftrt_tools.serving.management_file import ConfigFile

LIKELY = ("stable", "canary")


@dataclasses.dataclass(frozen=True)
class ModelVersions:
    """One model. versions: VersionStatuses, the newest first; labels: {label: version} that answered; default: the version that answers
    where a request names none, or None; error: the server's words where it does not know the model."""

    name: str
    versions: tuple
    labels: dict
    default: int | None
    error: str = ""

    def labels_of(self, version):
        """Labels on a version."""
        return [label for label, on in self.labels.items() if on == version]

    def to_dict(self):
        return {"name": self.name, "default": self.default, "labels": self.labels, "error": self.error,
                "versions": [dataclasses.asdict(one) | {"labels": self.labels_of(one.version)} for one in self.versions]}


@dataclasses.dataclass(frozen=True)
class Versions:
    """All models that were asked for. asked: labels that were; notes: where the server and its file differ."""

    address: str
    models: tuple
    asked: tuple
    notes: tuple

    def to_dict(self):
        return {"kind": "versions", "address": self.address, "asked_labels": list(self.asked), "notes": list(self.notes),
                "models": [one.to_dict() for one in self.models]}


def versions(address, names=(), path=None, labels=(), deadline_seconds=10, tls=None):
    """Ask a server.

    Args: names: models, by default those of the file. path: its models.config, or None. labels: to ask for beside the file's and LIKELY.
      tls: client.Tls or None.
    Returns: Versions. Raises: UsageError, ServerError; TftrtError where it knows none of the models.
    """
    file = ConfigFile.read(path) if path else None
    listed = file.models() if file else {}
    names = tuple(names) or tuple(listed)
    if not names:
        raise errors.UsageError("which models? A server does not list them", "name them with --model_name, or give its --model_config_file")
    models, asked = [], []
    with management_client.Client(address, deadline_seconds, tls) as client:
        for name in names:
            known = listed[name].labels if name in listed else {}
            mine = list(dict.fromkeys([*known, *labels, *LIKELY]))
            asked += [label for label in mine if label not in asked]
            models.append(_of_model(client, name, mine))
    if all(one.error for one in models):
        raise errors.TftrtError(f"the server at {client.address} knows no such model: {models[0].error}",
                                "check --model_name; the server's flag or its model_config_file gives the names")
    return Versions(client.address, tuple(models), tuple(asked), tuple(_notes(file, models, listed)))


def _of_model(client, name, labels):
    try:
        states = client.status(name)
    except management_client.ServerError as error:
        if error.code != "NOT_FOUND":
            raise
        return ModelVersions(name, (), {}, None, error.text)
    found = {label: client.version_of(name, label) for label in labels}
    return ModelVersions(name, tuple(states), {label: on for label, on in found.items() if on is not None}, client.version_of(name))


def _notes(file, models, listed):
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
                yield (f"{file.path} has the label {label!r} of {model.name!r} on version {version}, the server on "
                       f"{'none' if there is None else there}")
