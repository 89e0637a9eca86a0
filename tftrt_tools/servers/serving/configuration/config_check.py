"""Finds errors in configuration files, line by line, without a server."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import documents
from tftrt_tools.base.wire import config_messages
from tftrt_tools.servers.serving.configuration import (
    batching_file,
    engine_batch_sizes,
    model_config,
    model_config_rules,
    monitoring_file,
    text_places,
    unbatched,
)
from tftrt_tools.servers.serving.configuration.config_problem import ERROR, Problem

# The rules of each kind of file: a function of the message and of the text's outermost Field.
_RULES: dict[config_messages.Kind, Callable[..., Iterator[Problem]]] = {
    config_messages.MODELS: model_config_rules.problems,
    config_messages.BATCHING: batching_file.problems,
    config_messages.MONITORING: monitoring_file.problems,
}


@dataclasses.dataclass(frozen=True)
class Checked:
    """One file. kind: "models", "batching", "monitoring", or None if its content does not tell; problems: Problems by line; message: the
    parsed one, None if it could not be parsed."""

    file: str
    kind: config_messages.Kind | None
    problems: tuple[Problem, ...]
    message: Any = None

    @property
    def passed(self) -> bool:
        """Whether the file has no error; warnings do not count."""
        return not any(one.level == ERROR for one in self.problems)

    # Not a Record: the message is not written.
    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "kind": self.kind,
            "passed": self.passed,
            "problems": [problem.to_dict() for problem in self.problems],
        }


@dataclasses.dataclass(frozen=True)
class Check(records.Record):
    """The result of `tftrt configure --check_files`."""

    document: ClassVar = "configuration_check"
    written_too: ClassVar = ("passed",)

    files: tuple[Checked, ...]

    @property
    def passed(self) -> bool:
        """Whether every file passed."""
        return all(one.passed for one in self.files)


def check(paths: Iterable[str | pathlib.Path]) -> Check:
    """Check files. Returns: Check. Raises: UsageError for a file that is not there, OSError."""
    files = [check_text(str(path), _read(path)) for path in paths]
    batched = any(file.kind == config_messages.BATCHING and file.message is not None for file in files)
    return Check(
        tuple(
            _with_batching(file)
            if batched and file.kind == config_messages.MODELS and file.message is not None
            else file
            for file in files
        )
    )


def _with_batching(file: Checked) -> Checked:
    """Check a models.config for a server that batches, with the models that it cannot batch."""
    models = [model_config.Model.of(config) for config in file.message.model_config_list.config]
    covered = engine_batch_sizes.covered([path for model in models for path in model_config.version_paths(model)])
    more = [Problem(1, ERROR, f"{model.path}: {line}", unbatched.MEND) for model in covered for line in model.unbatched]
    return dataclasses.replace(file, problems=(*file.problems, *more))


def _read(path: str | pathlib.Path) -> str:
    path = pathlib.Path(path)
    if not path.is_file():
        raise errors.UsageError(f"no such file: {path}", "give files of a TensorFlow Serving's configuration")
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise errors.UsageError(f"{path} is no text", "the server reads text-form protobufs") from None


def check_text(name: str, text: str, kind: config_messages.Kind | None = None, on_disk: bool = True) -> Checked:
    """Check the text of one file. Args: name: of the file. kind: None finds out. on_disk: look at base paths too. Returns: Checked."""
    try:
        documents.check_levels(text)
    except documents.NoMessage as problem:
        return Checked(
            name, kind, (Problem(problem.line or 1, ERROR, str(problem), "the server would not read it, either"),)
        )
    root = text_places.scan(text)
    kind = kind or config_messages.kind_of([field.name for field in root.fields]) or _by_name(name)
    if kind is None:
        examples = "model_config_list, prometheus_config, max_batch_size, allowed_batch_sizes, …"
        return Checked(
            name,
            None,
            (
                Problem(
                    root.fields[0].line if root.fields else 1,
                    ERROR,
                    "no field says which file this is",
                    f"outermost fields are {examples}",
                ),
            ),
        )
    try:
        message = config_messages.parse(kind, text)
    except config_messages.SyntaxProblem as problem:
        return Checked(name, kind, (Problem(problem.line, ERROR, problem.text, problem.mend),))
    more = {"on_disk": on_disk} if kind == config_messages.MODELS else {}
    problems = sorted(_RULES[kind](message, root, **more), key=lambda entry: entry.line)
    return Checked(name, kind, tuple(problems), message)


def _by_name(name: str) -> config_messages.Kind | None:
    names = {file: kind for kind, file in config_messages.FILE_NAMES.items()}
    return names.get(pathlib.Path(name).name)
