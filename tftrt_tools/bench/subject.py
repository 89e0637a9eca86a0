"""Which model is measured: as a running server tells it, or as its files do."""

import contextlib
import dataclasses

from tftrt_tools import errors
from tftrt_tools.savedmodel import describe, files, passport
from tftrt_tools.savedmodel.shapes import InputSpec
from tftrt_tools.sources.opened import check, opened


@dataclasses.dataclass(frozen=True)
class Model:
    """version: that answers, None without a server. signatures: {name: ((InputSpec of an input, …), (of an output, …))}."""

    version: int | None
    signatures: dict


def of_server(client, options):
    """The Model that a server answers with. Args: client: client.Client. Raises: ServingError; UsageError where it has no such model, with
    what it has."""
    from tftrt_tools.client import ServingError

    try:
        found = client.metadata(options.model_name, options.model_version, options.version_label)
    except ServingError as error:
        if error.code not in ("NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION"):
            raise
        raise errors.UsageError(f"{client.address} serves no {_asked(options)}: {error.message}", _known(client, options)) from None
    signatures = {name: (_specs(one.inputs), _specs(one.outputs)) for name, one in found.items() if not name.startswith("__saved_model_")}
    return Model(found.model.version, signatures)


def of_files(path):
    """The Model of what a path, or a source.Source, names. Raises: TftrtError, UsageError."""
    return _of_models([path])[0]


def _of_models(paths):
    """The Model of each; one process reads them all."""
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(opened(path)) for path in paths]
        return [Model(None, {name: (inputs, one.outputs[name]) for name, inputs in one.inputs.items()
                             if not name.startswith("__saved_model_")}) for one in describe.describe(*folders)]


def check_files(named, name, signatures):
    """Refuse models that cannot be the one that a server has.

    Args: named: {flag: path, or source.Source, that it names}. name, signatures: of the served model, as in Model.
    Raises: UsageError, TftrtError.
    """
    for (flag, path), there in zip(named.items(), _of_models(list(named.values())) if named else (), strict=True):
        other = _difference(there.signatures, signatures)
        if other:
            raise errors.UsageError(f"--{flag}={path} is another model than {name!r}, which is served: {other}",
                                    f"give the directory that {name!r} was published from")


def _difference(there, served):
    """Which served signature files do not have as it is, "" where they have all. Args: as Model.signatures."""
    for signature, sides in served.items():
        if signature not in there:
            return f"it has no signature {signature!r}"
        for kind, mine, theirs in zip(("inputs", "outputs"), there[signature], sides, strict=True):
            texts = [", ".join(sorted(f"{spec.name} {spec.dtype}" for spec in specs)) for specs in (mine, theirs)]
            # A type that no request can have is told by number alone.
            if texts[0] != texts[1] and "DataType" not in texts[1]:
                return f"the {kind} of {signature!r} are {texts[0]}, and not {texts[1]}"
    return ""


def digests(path):
    """(digest of the model's files, digest of what its passport's manifest was made from): "" for a part that is not there."""
    if not path:
        return "", ""
    manifest = passport.folder(path) / passport.MANIFEST
    return files.digest(check(path)), files.digest(manifest) if manifest.is_file() else ""


def _asked(options):
    which = f", version {options.model_version}" if options.model_version is not None else ""
    return f"model {options.model_name!r}" + which + (f", label {options.version_label!r}" if options.version_label else "")


def _known(client, options):
    """What the server knows: the versions of that name, else the names that its own command line gives, where that can be seen."""
    from tftrt_tools.client import ServingError

    with contextlib.suppress(ServingError):
        states = client.status(options.model_name)
        return "it knows: " + ", ".join(f"version {one.version} {one.state}" + (f" ({one.error_text()})" if one.error_text() else "")
                                        for one in states)
    from tftrt_tools.serving.smoke import model, process

    server, _ = process.find(client.address)
    names = model.names(server) if server and server.known else []
    return f"its command line names {', '.join(names)}" if names else "check --model_name; a server does not list its models"


def _specs(tensors):
    return tuple(InputSpec(alias, one.dtype, one.shape) for alias, one in tensors.items())
