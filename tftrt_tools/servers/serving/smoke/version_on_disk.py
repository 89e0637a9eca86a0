"""The directory of the served version: its engine ops, its passport, its warm-up; and whether the server really serves these files."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.choices import Precision
from tftrt_tools.base.process import jobs
from tftrt_tools.models.inputs.drawing import Shapes
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.smoke.served_model import Served
from tftrt_tools.servers.serving.smoke.server_process import Process


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engine(records.Record):
    """An engine op."""

    name: str
    precision: Precision
    # How its fallback can pass the closed gate, in words, or "".
    hole: str
    # Whether it certainly runs natively, and logs nothing.
    silent: bool
    # Why it was left native, by passport.left_native, or "".
    left: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature(records.Record):
    """A signature by the version's files."""

    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]
    # {"inputs/ALIAS" or "outputs/ALIAS": name of the graph's tensor}
    tensors: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents(records.Record):
    """What lies in a version directory. The fields are those of Model."""

    engines: dict[str, tuple[Engine, ...]]
    signatures: dict[str, Signature]
    warmup_records: int
    twins: dict[str, str]
    built_for: tuple[str, ...] = ()


@jobs.job
def contents() -> Callable[[str], Contents]:
    """The Contents of a version directory. Raises: TftrtError, UsageError."""
    from tftrt_tools.servers.serving.smoke import version_on_disk_job

    return version_on_disk_job.read


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """The files of a served version."""

    # The version directory.
    path: pathlib.Path
    # Whether the server's own command line names it.
    same: bool
    # {signature: its engine ops}
    engines: Mapping[str, tuple[Engine, ...]]
    # By name.
    signatures: Mapping[str, Signature]
    # The number of warm-up requests of the version.
    warmup_records: int
    # The twins of twins.find: {signature: the one that stands for it}
    twins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The compute capabilities that its saved engines name, such as ("7.5",).
    built_for: tuple[str, ...] = ()

    def not_for(self, capabilities: Iterable[str]) -> str:
        """Why GPUs of these compute capabilities are not those of its engines; "" where one is, or where nothing is known."""
        here = sorted(set(capabilities))
        if not here or not self.built_for or set(here) & set(self.built_for):
            return ""
        return (
            f"its engines are for compute capability {', '.join(self.built_for)}, and the GPU of this machine has {', '.join(here)}: the "
            "server was given the files of another kind of GPU"
        )

    def engines_of(self, signature: str) -> tuple[Engine, ...]:
        """The Engines that a signature runs."""
        return self.engines.get(signature, ())

    @property
    def precisions(self) -> set[Precision]:
        """The precisions of all engines."""
        return {engine.precision for engines in self.engines.values() for engine in engines}

    # Not a Record: engines are counted, and signatures are not written.
    def to_dict(self) -> dict[str, Any]:
        names = {engine.name for engines in self.engines.values() for engine in engines}
        return {
            "path": str(self.path),
            "named_by_server": self.same,
            "engine_ops": len(names),
            "precisions": sorted(self.precisions),
            "warmup_records": self.warmup_records,
            "built_for": list(self.built_for),
        }


def locate(model_dir: str, served: Served, server: Process | None) -> tuple[pathlib.Path | None, bool]:
    """The place of the served version's files.

    Args: model_dir: text of --model_dir, "" to use the server's command line.
    Returns: (pathlib.Path or None, whether the server's command line names it). Raises: UsageError if --model_dir is another version's.
    """
    own = _of_server(server, served) if server and server.known else None
    if not model_dir:
        return own, own is not None
    given = pathlib.Path(model_dir)
    if not files.is_saved_model(given):
        listed = (
            {version.number: version.path for version in version_directories.listing(given)} if given.is_dir() else {}
        )
        if served.version not in listed:
            files.check(given)  # it says what exists instead
            raise errors.UsageError(
                f"--model_dir={model_dir} has no version {served.version}, which the server serves",
                "versions there: " + ", ".join(map(str, listed)),
            )
        given = listed[served.version]
    number = version_directories.parse(given.resolve().name)
    if number is not None and number != served.version:
        raise errors.UsageError(
            f"--model_dir={model_dir} is version {number}, and version {served.version} of {served.name} answers",
            "give the base path, or ask for that version: --model_version",
        )
    if own and not os.path.samefile(own, given) and files.digest(own) != files.digest(given):
        raise errors.UsageError(
            f"the server serves {own}, and {model_dir} is another model",
            "give the directory that it was published from",
        )
    return given, own is not None


def _of_server(server: Process, served: Served) -> pathlib.Path | None:
    return of_server(server, served.name, served.version)


def of_server(server: Process, name: str, version: int | None) -> pathlib.Path | None:
    """The directory of a version of a model by the server's command line, or None."""
    try:
        base = _base_paths(server).get(name)
        if not base or "://" in base:
            return None
        listed = {version.number: version.path for version in version_directories.listing(server.path(base))}
    except OSError:
        return None
    path = listed.get(version) if version is not None else None
    return path if path and files.is_saved_model(path) else None


def names(server: Process) -> list[str]:
    """Names of the models that a server was started with, as far as its command line and configuration file say. Never raises."""
    return list(_base_paths(server))


def _base_paths(server: Process) -> dict[str, str]:
    """{name: base path} by the server's command line."""
    config = server.flag("model_config_file")
    if not config:
        return {server.flag("model_name") or "default": server.flag("model_base_path")}
    from tftrt_tools.base.wire import config_messages

    try:
        parsed = config_messages.parse(config_messages.MODELS, server.path(config).read_text())
    except (config_messages.SyntaxProblem, OSError, UnicodeDecodeError):
        return {}
    return {model.name: model.base_path for model in parsed.model_config_list.config}


def declared_shapes(path: pathlib.Path) -> tuple[dict[str, list[Shapes]], str]:
    """The shapes that the passport of a version names: those engines were built for, else those that it warms up with.

    Returns: ({signature: [{input: shape}]}, which document in words); ({}, "") without any. Raises: TftrtError.
    """
    manifest = passport.read(path, passport.MANIFEST) or {}
    declared = {
        name: _tuples(signature["calls"])
        for name, signature in passport.signatures(manifest).items()
        if signature.get("calls")
    }
    if declared:
        return declared, "the shapes that engines were built for (manifest.json)"
    published = passport.read(path, passport.PUBLISH) or {}
    shapes_of: dict[str, list[Shapes]] = {}
    for record in (published.get("warmup") or {}).get("records", ()):
        (shapes,) = _tuples([record["shapes"]])
        if shapes not in shapes_of.setdefault(record["signature"], []):
            shapes_of[record["signature"]].append(shapes)
    return shapes_of, f"the shapes that it warms up with ({passport.PUBLISH})" if shapes_of else ""


def _tuples(calls: Iterable[Mapping[str, Iterable[int]]]) -> list[Shapes]:
    return [{name: tuple(shape) for name, shape in call.items()} for call in calls]


def of(path: pathlib.Path, same: bool, found: Contents) -> Model:
    """The Model of what `contents` found in `path`."""
    return Model(
        path=path,
        same=same,
        engines=found.engines,
        signatures=found.signatures,
        warmup_records=found.warmup_records,
        twins=found.twins,
        built_for=found.built_for,
    )


def check_same(model: Model, served: Served) -> None:
    """Refuse files whose signatures differ from the server's. Raises: UsageError."""
    for name, served_signature in served.signatures.items():
        own = model.signatures.get(name)
        if (
            own is None
            or own.tensors != served_signature.tensors
            or {spec.name: spec.dtype for spec in own.inputs}
            != {spec.name: spec.dtype for spec in served_signature.inputs}
        ):
            raise errors.UsageError(
                f"{model.path} is not what the server serves: signature {name!r} differs",
                "give the directory of the served version",
            )
