"""models.config while labels move: edited in place, with its earlier state beside it.

models.config           what the server was given last
models.config.previous  each model's entry before its last promotion; `tftrt rollback` goes back to it
models.config.pending   there only while a change runs: the whole file from before it
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.wire import config_messages
from tftrt_tools.servers.serving.configuration import config_check, model_config, text_places
from tftrt_tools.servers.serving.configuration.model_config import Model
from tftrt_tools.servers.serving.configuration.text_places import Field

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types


_EDITED = ("model_version_policy", "version_labels")


class ConfigFile:
    """The text of a models.config and the message in it."""

    def __init__(self, path: str | pathlib.Path, text: str) -> None:
        """Raises: UsageError for a text that the server would refuse, with the line."""
        self.path, self.text = pathlib.Path(path), text
        checked = config_check.check_text(str(path), text, config_messages.MODELS, on_disk=False)
        wrong = next((problem for problem in checked.problems if problem.level == "error"), None)
        if wrong:
            raise errors.UsageError(f"{path}:{wrong.line}: {wrong.text}", wrong.mend)
        self.config = checked.message

    @classmethod
    def read(cls, path: str | pathlib.Path) -> ConfigFile:
        """Raises: UsageError, OSError."""
        if not pathlib.Path(path).is_file():
            raise errors.UsageError(
                f"no such file: {path}", "give the file that the server's --model_config_file names"
            )
        try:
            return cls(path, pathlib.Path(path).read_text())
        except UnicodeDecodeError:
            raise errors.UsageError(f"{path} is no text", "give a text-form ModelServerConfig") from None

    @property
    def previous(self) -> pathlib.Path:
        """Path of the file with the entries before."""
        return self.path.with_name(self.path.name + ".previous")

    @property
    def pending(self) -> pathlib.Path:
        """Path of the file that is there while a change runs."""
        return self.path.with_name(self.path.name + ".pending")

    def models(self) -> dict[str, Model]:
        """{name: Model} of all models."""
        return {proto.name: model_config.Model.of(proto) for proto in self.config.model_config_list.config}

    def model(self, name: str) -> Model:
        """One Model. Raises: UsageError."""
        models = self.models()
        if name not in models:
            raise errors.UsageError(f"{self.path} lists no model {name!r}", "it lists " + ", ".join(models))
        return models[name]

    def with_model(self, model: Model) -> ConfigFile:
        """A ConfigFile with the version policy and the labels of Model `model`; the rest of the text stays, comments too."""
        new = type(self.config)()
        new.CopyFrom(self.config)
        index = next(index for index, proto in enumerate(new.model_config_list.config) if proto.name == model.name)
        model_config.fill(new.model_config_list.config[index], model)
        if new == self.config:
            return self
        root = text_places.scan(self.text)
        field = [config for outer in root.all("model_config_list") for config in outer.all("config")][index]
        edited = ConfigFile(self.path, _edited(self.text, field, _only(new.model_config_list.config[index])))
        assert edited.config == new, "the edited text says something else"
        return edited

    def write(self) -> None:
        """Put the text into the file, whole or not at all. Raises: OSError."""
        whole_file.write_text(self.path, self.text)

    def write_previous(self, name: str) -> None:
        """Keep this text as the state before model `name` changed; the entries of other models in the file `previous` stay. Raises:
        OSError."""
        kept = self
        if self.previous.is_file():
            with contextlib.suppress(errors.UsageError):  # a damaged one is replaced
                for other, model in ConfigFile.read(self.previous).models().items():
                    if other != name and other in self.models():
                        kept = kept.with_model(model)
        whole_file.write_text(self.previous, kept.text)


def _only(proto: config_types.ModelConfig) -> config_types.ModelConfig:
    """Only the edited fields."""
    part = type(proto)()
    for name in _EDITED:
        for field, value in proto.ListFields():
            if field.name == name and name == "version_labels":
                for label, version in value.items():
                    part.version_labels[label] = version
            elif field.name == name:
                getattr(part, name).CopyFrom(value)
    return part


def _edited(text: str, field: Field, part: config_types.ModelConfig) -> str:
    """`text`, with the fields of the config `field` replaced by those of message `part`."""
    start, end = field.body
    for span in sorted({span.span for name in _EDITED for span in field.all(name)}, reverse=True):
        cut = _whole_lines(text, *span)
        text, end = text[: cut[0]] + text[cut[1] :], end - (cut[1] - cut[0])
    body = text[start:end]
    closing = body.rpartition("\n")[2] if "\n" in body else ""
    if "\n" not in body or closing.strip():
        from google.protobuf import text_format

        return f"{text[:start]}{body.rstrip()} {text_format.MessageToString(part, as_one_line=True)} {text[end:]}"
    rendered = config_messages.render(part, indent=len(closing.expandtabs()) + 2)
    return text[:start] + body[: len(body) - len(closing)] + rendered + closing + text[end:]


def _whole_lines(text: str, start: int, end: int) -> tuple[int, int]:
    """A span, widened to its lines where nothing else is on them."""
    before, after = start, end
    while before and text[before - 1] in " \t":
        before -= 1
    while after < len(text) and text[after] in " \t,;":
        after += 1
    if (not before or text[before - 1] == "\n") and text[after : after + 1] == "\n":
        return before, after + 1
    return start, end


@contextlib.contextmanager
def locked(path: str | pathlib.Path) -> Iterator[None]:
    """Lock the file's folder against other promotions. Raises: TftrtError if one is under way, UsageError without the folder."""
    folder = pathlib.Path(path).absolute().parent
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        raise errors.UsageError(
            f"no such file: {path}", "give the file that the server's --model_config_file names"
        ) from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.TftrtError(
                f"another promotion or rollback is at work on {folder}", "run the command again when that is over"
            ) from None
        yield
    finally:
        os.close(fd)
