"""What is wrong with configuration files, line by line, without a server."""

import dataclasses
import pathlib

from tftrt_tools import errors
from tftrt_tools.serving import batching_parameters, configuration_protos, configuration_text, model_config_rules, monitoring
from tftrt_tools.serving.configuration_problem import ERROR, Problem

_RULES = {configuration_protos.MODELS: model_config_rules.problems, configuration_protos.BATCHING: batching_parameters.problems,
          configuration_protos.MONITORING: monitoring.problems}


@dataclasses.dataclass(frozen=True)
class Checked:
    """One file. kind: "models", "batching", "monitoring", or None where nothing in it says; problems: Problems by line; message: what was
    read, None where it could not be."""

    file: str
    kind: str | None
    problems: tuple
    message: object = None

    @property
    def passed(self):
        """No error; warnings do not count."""
        return not any(one.level == ERROR for one in self.problems)

    def to_dict(self):
        return {"file": self.file, "kind": self.kind, "passed": self.passed, "problems": [one.to_dict() for one in self.problems]}


@dataclasses.dataclass(frozen=True)
class Check:
    """The result of `tftrt configure --check`: Checked files."""

    files: tuple

    @property
    def passed(self):
        """Whether every file did."""
        return all(one.passed for one in self.files)

    def to_dict(self):
        return {"kind": "configuration_check", "passed": self.passed, "files": [one.to_dict() for one in self.files]}


def check(paths):
    """Check files. Returns: Check. Raises: UsageError for a file that is not there, OSError."""
    return Check(tuple(check_text(str(path), _read(path)) for path in paths))


def _read(path):
    path = pathlib.Path(path)
    if not path.is_file():
        raise errors.UsageError(f"no such file: {path}", "give files of a TensorFlow Serving's configuration")
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise errors.UsageError(f"{path} is no text", "the server reads text-form protobufs") from None


def check_text(name, text, kind=None, on_disk=True):
    """Check the text of one file. Args: name: of the file. kind: None finds out. on_disk: look at base paths too. Returns: Checked."""
    root = configuration_text.scan(text)
    kind = kind or configuration_protos.kind_of(root.fields) or _by_name(name)
    if kind is None:
        known = "model_config_list, prometheus_config, max_batch_size, allowed_batch_sizes, …"
        return Checked(name, None, (Problem(root.fields[0].line if root.fields else 1, ERROR, "no field says which file this is",
                                            f"outermost fields are {known}"),))
    try:
        message = configuration_protos.parse(kind, text)
    except configuration_protos.SyntaxProblem as problem:
        return Checked(name, kind, (Problem(problem.line, ERROR, problem.text, problem.mend),))
    more = {"on_disk": on_disk} if kind == configuration_protos.MODELS else {}
    found = sorted(_RULES[kind](message, root, **more), key=lambda one: one.line)
    return Checked(name, kind, tuple(found), message)


def _by_name(name):
    names = {file: kind for kind, file in configuration_protos.FILE_NAMES.items()}
    return names.get(pathlib.Path(name).name)
