"""Opens the models that the user named, of whatever kind. No runtime is imported here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.models.kinds import table
from tftrt_tools.models.kinds.model import Contents, Model, Overview
from tftrt_tools.models.kinds.plan import document as plan_document
from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.sources import kinds
from tftrt_tools.models.sources.source import Source, of


def check(model: str | os.PathLike[str] | Source, as_it_is: bool = False, to_convert: bool = False) -> Source:
    """Refuse a path that cannot be a model, before any work.

    Args: as_it_is: also refuse a file that would have to be exported first. to_convert: also refuse a kind that TF-TRT does not convert.
    Returns: its Source. Raises: UsageError, TftrtError.
    """
    source = of(model)
    if to_convert:
        check_converted(source)
    try:
        table.kind(source.path).check(source, as_it_is)
    except kinds.UnknownFile as error:
        raise errors.UsageError(
            f"not a model: {source} is a file of no kind taken here", f"give {table.forms(as_it_is, to_convert)}"
        ) from error
    return source


def check_readable(model: str | os.PathLike[str] | Source) -> Source:
    """As `check`, for who reads what a model carries, such as a profile, and does not run it: of a plan that takes no TensorRT."""
    source = of(model)
    if not files.is_plan(source.path):
        return check(source)
    plan_document.read(source.path)
    return source


def check_converted(model: str | os.PathLike[str] | Source) -> None:
    """Refuse a model of a kind that TF-TRT does not convert; nothing is opened. Raises: UsageError."""
    source = of(model)
    kind = table.kind(source.path)
    if kind.unconverted:
        why, mend = kind.unconverted
        raise errors.UsageError(f"{source} cannot be converted ({kind.name}): {why}", mend)


def overview(model: str | os.PathLike[str] | Source) -> Overview | None:
    """The Overview of a model, as Kind.overview; None also for a model that is not whole."""
    source = of(model)
    try:
        return table.kind(source.path).overview(source.path)
    except errors.TftrtError:
        return None


def document(model: str | os.PathLike[str] | Source, name: str) -> dict[str, Any] | None:
    """The document `name` of a model's passport, None if there is none. Raises: TftrtError."""
    source = of(model)
    return table.kind(source.path).document(source.path, name)


def keep(model: str | os.PathLike[str] | Source, name: str, document: Mapping[str, Any]) -> bool:
    """Put a document into the passport of a model.

    Returns: whether its kind has passports. Raises: NotKept where the model's files cannot be written.
    """
    source = of(model)
    try:
        return table.kind(source.path).keep(source.path, name, document)
    except OSError as error:
        raise errors.NotKept(
            f"the result was not kept with the model: {errors.from_os_error(error).cause}",
            "make the model writable, or add --nowrite, which leaves it as it is",
        ) from error


@contextlib.contextmanager
def opened(*models: str | os.PathLike[str] | Source, log_file: str | None = None) -> Iterator[tuple[Model, ...]]:
    """The models that the user named; one process reads all models of a kind.

    Args: models: paths or Sources. log_file: where to keep what a runtime logs during an export.
    Yields: a Model of each. Raises: UsageError, TftrtError.
    """
    sources = [check(model) for model in models]
    kind_of_each = [table.kind(source.path) for source in sources]
    with contextlib.ExitStack() as stack:
        paths = [
            stack.enter_context(kind.opened(source, log_file))
            for kind, source in zip(kind_of_each, sources, strict=True)
        ]
        contents: dict[int, Contents] = {}
        for kind in dict.fromkeys(kind_of_each):
            places = [place for place, other in enumerate(kind_of_each) if other is kind]
            contents.update(zip(places, kind.contents([paths[place] for place in places]), strict=True))
        yield tuple(
            Model(kind=kind, source=source, path=path, contents=contents[place])
            for place, (kind, source, path) in enumerate(zip(kind_of_each, sources, paths, strict=True))
        )
