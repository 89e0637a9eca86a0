"""`tftrt promote` and `tftrt rollback`: labels move on a running server, with models.config as the truth.

A TensorFlow Serving has no call that tells its configuration, and a reload unloads every model that it does not list. So each reload
sends the whole file, and file and server change together.
"""

import dataclasses
import pathlib
import time

from tftrt_tools import errors
from tftrt_tools.savedmodel import passport
from tftrt_tools.serving import management_client, management_transition, model_config, versions
from tftrt_tools.serving.management_file import ConfigFile, locked

PROMOTE, ROLLBACK = "promote", "rollback"


@dataclasses.dataclass(frozen=True)
class Options:
    """wait_seconds: for a version to load; deadline_seconds: of any other call; unload_previous: a version whose last label leaves goes;
    stale_seconds: see management_transition.Waiting. load_new_models: the file may list models that the server does not know.
    tls: client.Tls or None."""

    wait_seconds: float = 600
    deadline_seconds: float = 10
    unload_previous: bool = False
    stale_seconds: float = 10
    load_new_models: bool = False
    tls: object = None


@dataclasses.dataclass(frozen=True)
class Change:
    """What was done. before, after: Models; answers: {label: version that answered}; sent: the server was told
    something; notes: lines; seconds: wall time."""

    action: str
    address: str
    file: str
    before: object
    after: object
    answers: dict
    sent: bool
    notes: tuple
    seconds: float

    def to_dict(self):
        return {"kind": self.action, **passport.stamp(), "address": self.address, "model_config_file": self.file, "model": self.after.name,
                "sent": self.sent, "before": self.before.to_dict(), "after": self.after.to_dict(), "labels": self.answers,
                "notes": list(self.notes), "seconds": round(self.seconds, 2)}


def promote(address, path, name, label, version, options=Options()):
    """Move `label` of model `name` to `version`, which is loaded first.

    Args: address: HOST[:PORT]. path: the server's models.config. Returns: Change.
    Raises: UsageError; TftrtError where the version does not load in time, or the server refuses: file and server are then as before.
    """
    def wanted(file, states):
        old = file.model(name)
        serving = old.versions if old.policy == model_config.SPECIFIC else [one.version for one in states if one.state == "AVAILABLE"]
        labels = {**old.labels, label: version}
        left = old.labels.get(label)
        gone = {left} - set(labels.values()) if options.unload_previous else set()
        kept = {*serving, *labels.values()} - gone
        _check_folder(address, old, version, states)
        new = dataclasses.replace(old, policy=model_config.SPECIFIC, latest=1, versions=tuple(sorted(kept)), labels=labels)
        return new, set(labels.values())

    return _change(PROMOTE, address, path, name, wanted, options)


def rollback(address, path, name, options=Options()):
    """Give model `name` the versions and labels that it had before its last promotion, those loaded first; a second rollback undoes the
    first. Arguments, result and errors as for `promote`."""
    def wanted(file, _states):
        if not file.previous.is_file():
            raise errors.TftrtError(f"nothing to roll back: there is no {file.previous}", "`tftrt promote` makes it")
        before, old = ConfigFile.read(file.previous).model(name), file.model(name)
        new = dataclasses.replace(old, policy=before.policy, latest=before.latest, versions=before.versions, labels=before.labels)
        if new == old:
            raise errors.TftrtError(f"nothing to roll back: {file.previous} says the same of model {name!r}",
                                    "move the label with `tftrt promote`")
        return new, set(new.labels.values()) or set(new.versions)

    return _change(ROLLBACK, address, path, name, wanted, options)


def _change(action, address, path, name, wanted, options):
    start = time.monotonic()
    waiting = management_transition.Waiting(options.wait_seconds, options.stale_seconds)
    with locked(path), management_client.Client(address, options.deadline_seconds, options.tls) as client:
        ConfigFile.read(path).model(name)  # before the server is asked anything
        states = _states(client, path, name)
        notes = [note for note in [management_transition.recover(client, path)] if note]
        file = ConfigFile.read(path)
        old = file.model(name)
        notes += _differences(client, file, options.load_new_models)
        new, needed = wanted(file, states)
        differ, sent = bool(notes), new != old or bool(notes)
        if sent:
            management_transition.Transition(client, file, waiting).run(new, needed, resend=differ)
        answers = {label: client.version_of(name, label) for label in new.labels}
        notes += _notes(old, new)
        if sent:
            notes.append(f"the server was told to serve {', '.join(file.models())}, and nothing else")
        return Change(action, client.address, str(file.path), old, new, answers, sent, tuple(notes), time.monotonic() - start)


def _states(client, path, name):
    try:
        return client.status(name)
    except management_client.ServerError as error:
        if error.code != "NOT_FOUND":
            raise
        raise errors.TftrtError(f"the server at {client.address} has no model {name!r}: {error.text}",
                                f"is {path} the file of that server?") from None


def _differences(client, file, load_new_models):
    """Lines about labels that the server has elsewhere, and models that it does not know: another's file, or edited by hand.

    Raises: TftrtError for such a model where it is not to be loaded: the server would lose all those that another's file does not list.
    """
    for name, model in file.models().items():
        try:
            client.status(name)
        except management_client.ServerError as error:
            if error.code != "NOT_FOUND":
                raise
            if not load_new_models:
                raise errors.TftrtError(
                    f"{file.path} lists model {name!r}, which the server at {client.address} does not know: is it the file of that server? "
                    "Sent to another one it unloads every model that it does not list",
                    "name that server's file, or let it load the new model with --load_new_models") from None
            yield f"the server did not know model {name!r}, which {file.path} lists: it was told to load it"
            continue
        for label, version in model.labels.items():
            there = client.version_of(name, label)
            if there != version:
                yield (f"the label {label!r} of {name!r} was on {'no version' if there is None else f'version {there}'} of the server, and "
                       f"{file.path} said {version}")


def _check_folder(address, model, version, states):
    """A mistyped version shows at once where the server's folders are this machine's."""
    base = pathlib.Path(model.base_path)
    known = {one.version for one in states}
    if version in known or model_config.is_uri(model.base_path) or not management_client.is_here(management_client.target(address)):
        return
    there = [one.number for one in versions.listing(base)] if base.is_dir() else []
    if there and version not in there:
        raise errors.UsageError(f"{base} holds no version {version}", "it holds " + ", ".join(map(str, there)))


def _notes(old, new):
    if old.policy != new.policy:
        yield (f"the version policy was {', '.join(map(str, old.served_text()))}, and is now "
               f"{'versions ' if new.policy == model_config.SPECIFIC else ''}{', '.join(map(str, new.served_text()))}")
    unlabelled = sorted(set(new.versions) - set(new.labels.values())) if new.policy == model_config.SPECIFIC and new.labels else []
    if unlabelled:
        yield (f"loaded without a label: {', '.join(map(str, unlabelled))}, ready for `tftrt rollback`; `tftrt promote --unload_previous` "
               "unloads the version that its label leaves")
