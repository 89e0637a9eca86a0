"""Which model is measured, as a running server or the model's files describe it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import calls
from tftrt_tools.models.kinds import model as kinds
from tftrt_tools.models.kinds import opening, table
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.sources.source import Source
from tftrt_tools.models.sources.source import of as source_of
from tftrt_tools.tftrt.wrapping import added

if TYPE_CHECKING:
    from tftrt_tools.servers.client import Client, TensorSpec, TritonClient

# A path, or a source.Source.
AnyModel: TypeAlias = str | os.PathLike[str] | Source
# {name: (inputs, outputs)}.
Signatures: TypeAlias = Mapping[str, tuple[Sequence[InputSpec], Sequence[InputSpec]]]


@dataclasses.dataclass(frozen=True)
class Model:
    """version: the one that answers, None without a server. signatures: {name: ((InputSpec of an input, …), (of an output, …))}. same: of
    twins.find, as far as files are at hand: {signature: the one that stands for it}."""

    version: int | None
    signatures: Signatures
    same: dict[str, str] = dataclasses.field(default_factory=dict)


class Asked(Protocol):
    """Which model of a server; as bench.options.Options has it."""

    @property
    def model_name(self) -> str: ...

    @property
    def model_version(self) -> int | None: ...

    @property
    def version_label(self) -> str: ...


def of_server(client: Client | TritonClient, options: Asked) -> Model:
    """The Model that a server answers with. Raises: ServingError; UsageError where it has no such model, with
    what it has."""
    from tftrt_tools.servers.client import ServingError, TritonClient
    from tftrt_tools.servers.client.kserve import askable

    try:
        found = client.metadata(options.model_name, options.model_version, options.version_label)
    except ServingError as error:
        if error.code not in ("NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION"):
            raise
        raise errors.UsageError(
            f"{client.address} serves no {_asked(options)}: {error.line}", _known(client, options)
        ) from None
    if isinstance(client, TritonClient):
        askable.config(client, options.model_name, options.model_version)
    signatures = {
        name: (_specs(one.inputs), _specs(one.outputs))
        for name, one in found.items()
        if not name.startswith("__saved_model_")
    }
    return Model(found.model.version, signatures)


@contextlib.contextmanager
def on_disk(named: Mapping[str, AnyModel]) -> Iterator[dict[str, kinds.Model]]:
    """{flag: model} of the models that flags name. Args: named: {flag: path, or source.Source}. Raises: TftrtError,
    UsageError."""
    with opening.opened(*named.values()) as models:
        yield dict(zip(named, models, strict=True))


def of_files(model: kinds.Model) -> Model:
    """The Model of a model on disk."""
    return Model(None, {name: (one.inputs, one.outputs) for name, one in model.signatures.items()}, model.contents.same)


def check_files(named: Mapping[str, kinds.Model], name: str, signatures: Signatures) -> None:
    """Refuse models that cannot be the one on the server.

    Args: named: as `on_disk` yields. name, signatures: of the served model, as in Model. Raises: UsageError.
    """
    for flag, model in named.items():
        other = _difference(of_files(model).signatures, signatures)
        if other:
            raise errors.UsageError(
                f"--{flag}={model.title} is another model than {name!r}, which is served: {other}",
                f"give the directory that {name!r} was published from",
            )


def same(paths: Sequence[AnyModel]) -> list[dict[str, str]]:
    """[`Model.same`] of the models in `paths`."""
    with opening.opened(*paths) as models:
        return [one.contents.same for one in models]


def inputs(paths: Sequence[AnyModel]) -> list[dict[str, tuple[InputSpec, ...]]]:
    """[{signature: its inputs}] of the models in `paths`, with the limits of their values."""
    with opening.opened(*paths) as models:
        return [one.inputs for one in models]


def takes(
    signature: str, signatures: Signatures, same: Sequence[Mapping[str, str]], converted: AnyModel
) -> calls.Takes:
    """The inputs of a signature that is called by its name, for the choice of calls.

    Args: signatures: as Model.signatures. same: [Model.same] of the models that are asked. converted: path of the converted model's files,
      or a source.Source; "" if they are not on this machine.
    """
    manifest = opening.document(converted, passport.MANIFEST) if converted else None
    found = calls.Takes.one(signature, {name: sides[0] for name, sides in signatures.items()}, *same, manifest=manifest)
    return found.with_pictures(added.pictures(source_of(converted).path)) if converted else found


def _difference(there: Signatures, served: Signatures) -> str:
    """The first difference between the server's signatures and the files', "" if there is none. Args: as Model.signatures."""
    for signature, sides in served.items():
        if signature not in there:
            return f"it has no signature {signature!r}"
        for kind, mine, theirs in zip(("inputs", "outputs"), there[signature], sides, strict=True):
            texts = [", ".join(sorted(f"{spec.name} {spec.dtype}" for spec in specs)) for specs in (mine, theirs)]
            # The server names a type that no request can have by its number only.
            if texts[0] != texts[1] and "DataType" not in texts[1]:
                return f"the {kind} of {signature!r} are {texts[0]}, and not {texts[1]}"
    return ""


def digests(path: AnyModel) -> tuple[str, str]:
    """(digest of the model's files, digest of its source by its manifest): "" for a part that is missing."""
    if not path:
        return "", ""
    manifest = passport.folder(path) / passport.MANIFEST
    source = opening.check(path)
    return table.kind(source.path).digest(source.path), files.digest(manifest) if manifest.is_file() else ""


def _asked(options: Asked) -> str:
    which = f", version {options.model_version}" if options.model_version is not None else ""
    return (
        f"model {options.model_name!r}"
        + which
        + (f", label {options.version_label!r}" if options.version_label else "")
    )


def _known(client: Client | TritonClient, options: Asked) -> str:
    """What the server has: the versions of that name, else the names on its own command line if that can be read."""
    from tftrt_tools.servers.client import ServingError, TritonClient, model_service
    from tftrt_tools.servers.client.kserve import askable

    if isinstance(client, TritonClient):
        return askable.known(client, options.model_name)
    with contextlib.suppress(ServingError):
        states = client.status(options.model_name)
        return model_service.known(states)
    from tftrt_tools.servers.serving.smoke import server_process, version_on_disk

    server, _ = server_process.find(client.address)
    names = version_on_disk.names(server) if server and server.known else []
    return (
        f"its command line names {', '.join(names)}"
        if names
        else "check --model_name; a server does not list its models"
    )


def _specs(tensors: Mapping[str, TensorSpec]) -> tuple[InputSpec, ...]:
    return tuple(InputSpec(alias, one.dtype, one.shape) for alias, one in tensors.items())
