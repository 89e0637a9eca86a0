"""TensorFlow Serving's configuration files, made from the models that they serve. The text is checked before anything is written."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.wire import config_messages
from tftrt_tools.base.wire.config_messages import Kind
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.servers.serving.configuration import (
    batching_file,
    config_check,
    engine_batch_sizes,
    model_config,
    monitoring_file,
    unbatched,
)
from tftrt_tools.servers.serving.configuration.batching_file import text_of
from tftrt_tools.servers.serving.configuration.config_problem import ERROR
from tftrt_tools.servers.serving.configuration.engine_batch_sizes import Covered
from tftrt_tools.servers.serving.configuration.model_config import Model

_MODELS_COMMENT = """\
# The models of a TensorFlow Serving. A reload unloads every model that is not listed here; the server cannot tell what it
# was given, so this file is the only place that says. `tftrt promote` and `tftrt rollback` change it and the server together.
"""
_LABELS_COMMENT = """\
# A server that starts with labels needs --allow_version_labels_for_unavailable_models: it reads them before it loads anything.
"""

# --grpc_max_threads of a server that gets many calls at once.
GRPC_THREADS = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The files to write."""

    # With base paths of this machine.
    models: tuple[Model, ...]
    # None: no such file is written.
    batching: batching_file.Settings | None = None
    # Write monitoring.config.
    monitoring: bool = False
    # (folder here, folder there) of the server's machine or container.
    mounts: tuple[tuple[str, str], ...] = ()
    # Batch sizes that no engine covers become a warning, not an error.
    allow_uncovered: bool = False
    # Replace files that exist.
    overwrite: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
    """Files that were written."""

    # {kind of file: path}
    files: dict[Kind, str]
    # With base paths as the server sees them.
    models: tuple[Model, ...]
    # None: no such file was written.
    batching: batching_file.Settings | None
    # The versions whose engines' sizes were read.
    covered: tuple[Covered, ...]
    # Warnings, a line each.
    warnings: tuple[str, ...]

    def server_flags(self) -> list[str]:
        """The server's flags for the files that were written."""
        flags = [f"--{config_messages.SERVER_FLAGS[kind]}={path}" for kind, path in self.files.items()]
        flags += ["--allow_version_labels_for_unavailable_models"] if any(model.labels for model in self.models) else []
        # A call that waits for its batch holds a thread, and with the server's default (4 a core) calls beyond that are refused.
        flags += (
            ["--enable_batching", f"--grpc_max_threads={GRPC_THREADS}"]
            if config_messages.BATCHING in self.files
            else []
        )
        return flags + (["--rest_api_port=8501"] if config_messages.MONITORING in self.files else [])

    # Not a Record: the stamp says when it is written.
    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "configuration",
            **passport.stamp(),
            "files": self.files,
            "models": [model.to_dict() for model in self.models],
            "batching": self.batching.to_dict() if self.batching else None,
            "covered": [model.to_dict() for model in self.covered],
            "server_flags": self.server_flags(),
            "warnings": list(self.warnings),
        }


def configure(folder: str | pathlib.Path, options: Options) -> Configuration:
    """Write the files into `folder`. Returns: Configuration.

    Raises: UsageError, before anything is written, for models that are listed twice, sizes that are not covered, labels on versions that
    are not served, and files that exist; TftrtError, OSError.
    """
    folder = pathlib.Path(folder).absolute()
    _check_names(options.models)
    warnings: list[str] = []
    covered: list[Covered] = []
    served = tuple(model.at(model_config.mounted(model.base_path, options.mounts)) for model in options.models)
    comment = _MODELS_COMMENT + (_LABELS_COMMENT if any(model.labels for model in served) else "")
    texts: dict[config_messages.Kind, str] = {
        config_messages.MODELS: comment + config_messages.render(model_config.to_proto(served))
    }
    batching = options.batching
    if batching is not None:
        covered, missing = _covered(options.models)
        sizes, are_known = engine_batch_sizes.common(covered)
        are_known = are_known and not missing
        batching = batching_file.chosen(batching, sizes, are_known)
        warnings += _refuses_batching(covered, options.allow_uncovered)
        warnings += _uncovered(batching, covered, missing, options.allow_uncovered)
        texts[config_messages.BATCHING] = batching_file.text(batching, sizes, are_known)
    if options.monitoring:
        texts[config_messages.MONITORING] = monitoring_file.text()
    paths = {kind: folder / config_messages.FILE_NAMES[kind] for kind in texts}
    warnings += _checked(texts, paths)
    _write(folder, texts, paths, options.overwrite)
    return Configuration(
        files={kind: str(path) for kind, path in paths.items()},
        models=served,
        batching=batching,
        covered=tuple(covered),
        warnings=tuple(warnings),
    )


def _check_names(models: Sequence[Model]) -> None:
    if not models:
        raise errors.UsageError("--model is missing", "write --model=NAME=BASE_PATH, once for each model")
    names = [model.name for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise errors.UsageError(
            f"--model={twice}=… is given twice", "give each model a name of its own; several versions: versions=1,2"
        )


def _covered(models: Sequence[Model]) -> tuple[list[Covered], list[str]]:
    """Returns: ([Covered] of the versions that will be served, [why a model cannot be read])."""
    paths: list[pathlib.Path] = []
    missing: list[str] = []
    for model in models:
        chosen = model_config.version_paths(model)
        paths += chosen
        if not chosen:
            missing.append(f"{model.base_path} holds no version of {model.name!r} that can be read here")
    return engine_batch_sizes.covered(paths), missing


def _refuses_batching(covered: Sequence[Covered], allowed: bool) -> list[str]:
    """Find signatures that a server with batching cannot answer. Returns: warnings. Raises: UsageError if that is not allowed."""
    remarks = [f"{model.path}: {line}" for model in covered for line in model.unbatched]
    if remarks and not allowed:
        raise errors.UsageError(
            f"a model that cannot be batched: {remarks[0]}; a version with such a warm-up request does not load",
            f"{unbatched.MEND}; --allow_uncovered writes the files for its other signatures",
        )
    return remarks


def _uncovered(
    batching: batching_file.Settings, found: Sequence[Covered], missing: Sequence[str], allowed: bool
) -> list[str]:
    """Find batch sizes that reach the engines and that no engine covers. Returns: warnings. Raises: UsageError if that is not allowed."""
    remarks = list(missing) + [f"{model.path}: {model.reason}" for model in found if not model.known]
    mend = "publish it with warm-up requests (`tftrt publish`), or add --allow_uncovered"
    for served in found:
        if not served.known or served.sizes is None:
            continue
        largest = batching.max_batch_size or batching_file.DEFAULT_MAX_BATCH_SIZE
        reaching = batching.allowed_batch_sizes or range(1, largest + 1)
        outside = tuple(size for size in reaching if size not in served.sizes)
        if outside:
            remarks.insert(
                0,
                f"the engines of {served.path} do not cover batches of {text_of(outside)}; they cover {text_of(served.sizes)}",
            )
            mend = f"give --allowed_batch_sizes among {text_of(served.sizes)}, convert with these --shapes, or add --allow_uncovered"
    if remarks and not allowed:
        raise errors.UsageError(f"batch sizes without an engine: {remarks[0]}", mend)
    return remarks


def _checked(texts: Mapping[Kind, str], paths: Mapping[Kind, pathlib.Path]) -> list[str]:
    """Check the texts as `--check_files` does. Returns: warnings. Raises: UsageError."""
    warnings: list[str] = []
    for kind, text in texts.items():
        for problem in config_check.check_text(str(paths[kind]), text, kind).problems:
            if problem.level == ERROR:
                raise errors.UsageError(f"{paths[kind].name}: {problem.text}", problem.mend)
            warnings.append(f"{paths[kind].name}: {problem.text}; {problem.mend}")
    return warnings


def _write(
    folder: pathlib.Path, texts: Mapping[Kind, str], paths: Mapping[Kind, pathlib.Path], overwrite: bool
) -> None:
    there = [path for path in paths.values() if path.exists()]
    if there and not overwrite:
        raise errors.UsageError(
            f"the file exists: {there[0]}", "add --overwrite to replace it; labels that were moved since are lost then"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in texts.items():
        whole_file.write_text(paths[kind], text, overwrite=overwrite)
