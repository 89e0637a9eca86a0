"""Which batch sizes the engines of a model serve, read from its files; nothing is loaded or run. `covered` asks a child process."""

import dataclasses
import pathlib
from collections.abc import Sequence

from tftrt_tools import child, records
from tftrt_tools.savedmodel import files
from tftrt_tools.serving import version_directories
from tftrt_tools.serving.configuration import model_config
from tftrt_tools.serving.configuration.model_config import Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Covered(records.Record):
    """What a server can batch of a version."""

    # The version directory.
    path: str
    # Batch sizes that its engines serve, None for every size.
    sizes: tuple[int, ...] | None
    # False if the files do not tell; then `sizes` is ().
    known: bool
    # The source of this, one line.
    reason: str
    # {signature: why the server cannot batch it}, and those of them that the version's warm-up asks for: it does not load with batching.
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    refused_warm_up: tuple[str, ...] = ()


def covered(paths: Sequence[str | pathlib.Path]) -> list[Covered]:
    """Covered for each SavedModel directory. Raises: TftrtError, UsageError."""
    models = [str(path) for path in paths]
    if not models:
        return []
    found = child.run("tftrt_tools.serving.configuration.engine_batch_sizes_job:job", {"models": models}).result
    return [Covered.from_dict(one) for one in found]


def readable(model: Model) -> list[pathlib.Path]:
    """The version directories of a model that a server would serve and that can be read here."""
    listed = [] if model_config.is_uri(model.base_path) else version_directories.listing(model.base_path)
    there = {one.number: one.path for one in listed}
    return [there[number] for number in model.served(there) if files.is_saved_model(there[number])]


def refusals(found: Sequence[Covered]) -> list[tuple[str, bool]]:
    """(a line, whether the version does not load with batching) for each signature that batching refuses."""
    return [(f"{one.path}: batching refuses signature {name!r}: {why}", name in one.refused_warm_up)
            for one in found for name, why in one.refused.items()]


REFUSED_MEND = "serve this model without batching (a server batches all of its models, so give it one of its own), or leave that tensor out"


def common(found: Sequence[Covered]) -> tuple[tuple[int, ...] | None, bool]:
    """The sizes that all of `found` cover. Returns: (sizes or None for every size, whether all are known)."""
    limited = [set(one.sizes) for one in found if one.known and one.sizes is not None]
    return (tuple(sorted(set.intersection(*limited))) if limited else None), all(one.known for one in found)
