"""Runs the user's data function; the child's side of `user_calls`."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import npz, user_function
from tftrt_tools.models.inputs import items
from tftrt_tools.models.inputs.user_calls import Item, Request

# A function that yields more is taken for one that never ends.
MOST_ITEMS = 100_000
# Space that stays free on the disk.
_SPARE_BYTES = 1 << 30


def job(request: Request) -> list[Item]:
    """The job user_calls.save."""
    folder = pathlib.Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    saved: list[Item] = []
    held = 0
    for number, item in enumerate(user_function.items(request.function, request.said)):
        progress.say(f"reading data, item {number + 1}")
        _check_end(number, held, folder, request)
        signature, content = items.parts(item)
        path = folder / f"{number}.npz"
        npz.save(path, _arrays(content, f"item {number + 1} of {request.function}"))
        held += path.stat().st_size
        saved.append(
            Item(
                signature=signature, path=str(path), form="" if isinstance(content, Mapping) else type(content).__name__
            )
        )
    if not saved:
        raise errors.UsageError(f"{request.function} yields nothing", f"{items.MEND}, for each call")
    return saved


def _check_end(number: int, held: int, folder: pathlib.Path, request: Request) -> None:
    """Refuse a function that seems never to end. Args: held: bytes of its first `number` items. Raises: UsageError."""
    # Later, all items are in memory at the same time.
    most = min(
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2,
        shutil.disk_usage(folder).free + held - _SPARE_BYTES,
    )
    if number == MOST_ITEMS or held > most:
        raise errors.UsageError(
            f"{request.said}={request.function} yields too much: {number} items of {held / 1e9:.3g} GB, and it goes on",
            "let it end, as by itertools.islice(items, 1000)",
        )


def _arrays(content: object, where: str) -> dict[str, Any]:
    if isinstance(content, Mapping):
        return {str(name): items.array(value, str(name), where) for name, value in content.items()}
    if isinstance(content, (tuple, list)):
        return {str(number): items.array(value, f"number {number}", where) for number, value in enumerate(content)}
    if content is None or isinstance(content, (str, bytes)) and not content:
        raise errors.UsageError(f"{where} is {content!r}", items.MEND)
    return {"": np.asarray(items.array(content, "", where))}
