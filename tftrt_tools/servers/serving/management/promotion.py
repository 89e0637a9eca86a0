"""`tftrt promote` and `tftrt rollback`: labels move on a running server, with models.config as the truth.

TensorFlow Serving has no call that returns its configuration, and a reload unloads every model that it does not list. So each reload
sends the whole file, and file and server change together.
"""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.servers.client import Client, ServingError, Tls, VersionStatus, protocols
from tftrt_tools.servers.client.address import is_here, target
from tftrt_tools.servers.client.protocols import TENSORFLOW_SERVING
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.configuration import model_config
from tftrt_tools.servers.serving.configuration.model_config import Model
from tftrt_tools.servers.serving.management import managed_server, transition
from tftrt_tools.servers.serving.management.models_config_file import ConfigFile, locked

PROMOTE, ROLLBACK = "promote", "rollback"
# Takes the file and the server's state of the model; gives the new Model, and the versions that must be loaded for it.
Wanted = Callable[[ConfigFile, list[VersionStatus]], tuple[Model, set[int]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a label moves."""

    # Seconds for a version to load.
    wait_seconds: float = 600
    # Seconds of any other call.
    deadline_seconds: float = 10
    # Unload a version when its last label leaves it.
    unload_previous: bool = False
    # How long the error of an earlier load may stay listed.
    stale_seconds: float = 10
    # The file may list models that the server does not know.
    load_new_models: bool = False
    # None: a connection in the clear.
    tls: Tls | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """What was done."""

    # PROMOTE or ROLLBACK.
    action: str
    # The address of the server.
    address: str
    # Path of its models.config.
    file: str
    before: Model
    after: Model
    # {label: version that answered}
    answers: dict[str, int | None]
    # Whether the server got a new configuration.
    sent: bool
    # Notes, a line each.
    notes: tuple[str, ...]
    # Wall time.
    seconds: float

    # Not a Record: the document is called as the action, and its keys are not the fields.
    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.action,
            **passport.stamp(),
            "address": self.address,
            "model_config_file": self.file,
            "model": self.after.name,
            "sent": self.sent,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "labels": self.answers,
            "notes": list(self.notes),
            "seconds": round(self.seconds, 2),
        }


def promote(
    address: str, path: str | pathlib.Path, name: str, label: str, version: int, options: Options = Options()
) -> Change:
    """Move `label` of model `name` to `version`, which is loaded first.

    Args: address: HOST[:PORT]. path: the server's models.config. Returns: Change.
    Raises: UsageError; TftrtError where the version does not load in time, or the server refuses: file and server are then as before.
    """

    def wanted(file: ConfigFile, states: list[VersionStatus]) -> tuple[Model, set[int]]:
        old = file.model(name)
        serving = (
            old.versions
            if old.policy == model_config.SPECIFIC
            else [state.version for state in states if state.state == "AVAILABLE"]
        )
        labels = {**old.labels, label: version}
        left = old.labels.get(label)
        gone = {left} - set(labels.values()) if options.unload_previous else set()
        kept = {*serving, *labels.values()} - gone
        _check_folder(address, old, version, states)
        new = dataclasses.replace(
            old, policy=model_config.SPECIFIC, latest=1, versions=tuple(sorted(kept)), labels=labels
        )
        return new, set(labels.values())

    check_server(address)
    return _change(PROMOTE, address, path, name, wanted, options)


def rollback(address: str, path: str | pathlib.Path, name: str, options: Options = Options()) -> Change:
    """Give model `name` the versions and labels that it had before its last promotion, those loaded first; a second rollback undoes the
    first. Arguments, result and errors as for `promote`."""

    def wanted(file: ConfigFile, _states: list[VersionStatus]) -> tuple[Model, set[int]]:
        if not file.previous.is_file():
            raise errors.TftrtError(f"nothing to roll back: there is no {file.previous}", "`tftrt promote` makes it")
        before, old = ConfigFile.read(file.previous).model(name), file.model(name)
        new = dataclasses.replace(
            old, policy=before.policy, latest=before.latest, versions=before.versions, labels=before.labels
        )
        if new == old:
            raise errors.TftrtError(
                f"nothing to roll back: {file.previous} says the same of model {name!r}",
                "move the label with `tftrt promote`",
            )
        return new, set(new.labels.values()) or set(new.versions)

    check_server(address)
    return _change(ROLLBACK, address, path, name, wanted, options)


def check_server(address: str) -> None:
    """Refuse a server without labels. Raises: UsageError."""
    if protocols.of(address) is protocols.TRITON:
        raise errors.UsageError(
            f"{address} is a Triton, which has no labels to move",
            "publish the version that it shall serve: `tftrt publish --server=triton`",
        )


def _change(action: str, address: str, path: str | pathlib.Path, name: str, wanted: Wanted, options: Options) -> Change:
    start = time.monotonic()
    waiting = transition.Waiting(options.wait_seconds, options.stale_seconds)
    with locked(path), managed_server.connected(address, options.deadline_seconds, options.tls) as client:
        ConfigFile.read(path).model(name)  # before any request to the server
        states = _states(client, path, name)
        notes = [note for note in [transition.recover(client, path)] if note]
        file = ConfigFile.read(path)
        old = file.model(name)
        notes += _differences(client, file, options.load_new_models)
        new, needed = wanted(file, states)
        differ, sent = bool(notes), new != old or bool(notes)
        if sent:
            transition.Transition(client, file, waiting).run(new, needed, resend=differ)
        answers = {label: managed_server.version_of(client, name, label) for label in new.labels}
        notes += _notes(old, new)
        if sent:
            notes.append(f"the server was told to serve {', '.join(file.models())}, and nothing else")
        return Change(
            action=action,
            address=client.address,
            file=str(file.path),
            before=old,
            after=new,
            answers=answers,
            sent=sent,
            notes=tuple(notes),
            seconds=time.monotonic() - start,
        )


def _states(client: Client, path: str | pathlib.Path, name: str) -> list[VersionStatus]:
    try:
        return client.status(name)
    except ServingError as error:
        if error.code != "NOT_FOUND":
            raise
        raise errors.TftrtError(
            f"the server at {client.address} has no model {name!r}: {error.line}", f"is {path} the file of that server?"
        ) from None


def _differences(client: Client, file: ConfigFile, load_new_models: bool) -> Iterator[str]:
    """Lines about labels that the server has on other versions, and models that it does not know: the file may be another server's, or
    edited by hand.

    Raises: TftrtError for an unknown model, unless it is allowed: with another server's file, the server would lose all models that the
      file does not list.
    """
    for name, model in file.models().items():
        try:
            client.status(name)
        except ServingError as error:
            if error.code != "NOT_FOUND":
                raise
            if not load_new_models:
                raise errors.TftrtError(
                    f"{file.path} lists model {name!r}, which the server at {client.address} does not know: is it the file of that server? "
                    "Sent to another one it unloads every model that it does not list",
                    "name that server's file, or let it load the new model with --load_new_models",
                ) from None
            yield f"the server did not know model {name!r}, which {file.path} lists: it was told to load it"
            continue
        for label, version in model.labels.items():
            there = managed_server.version_of(client, name, label)
            if there != version:
                yield (
                    f"the label {label!r} of {name!r} was on {'no version' if there is None else f'version {there}'} of the server, and "
                    f"{file.path} said {version}"
                )


def _check_folder(address: str, model: Model, version: int, states: list[VersionStatus]) -> None:
    """Refuse a mistyped version at once, if the server's folders are on this machine."""
    base = pathlib.Path(model.base_path)
    served = {state.version for state in states}
    if version in served or model_config.is_uri(model.base_path) or not is_here(target(address, TENSORFLOW_SERVING)):
        return
    there = [directory.number for directory in version_directories.listing(base)] if base.is_dir() else []
    if there and version not in there:
        raise errors.UsageError(f"{base} holds no version {version}", "it holds " + ", ".join(map(str, there)))


def _notes(old: Model, new: Model) -> Iterator[str]:
    if old.policy != new.policy:
        yield (
            f"the version policy was {', '.join(map(str, old.served_text()))}, and is now "
            f"{'versions ' if new.policy == model_config.SPECIFIC else ''}{', '.join(map(str, new.served_text()))}"
        )
    # TensorFlow Serving answers them with the newest that is loaded, a canary too.
    newest = [max(one.versions, default=None) if one.policy == model_config.SPECIFIC else None for one in (old, new)]
    if None not in newest and newest[0] != newest[1]:
        yield f"requests that name neither a label nor a version now get version {newest[1]}, not {newest[0]}"
    unlabelled = (
        sorted(set(new.versions) - set(new.labels.values()))
        if new.policy == model_config.SPECIFIC and new.labels
        else []
    )
    if unlabelled:
        yield (
            f"loaded without a label: {', '.join(map(str, unlabelled))}, ready for `tftrt rollback`; `tftrt promote --unload_previous` "
            "unloads the version that its label leaves"
        )
