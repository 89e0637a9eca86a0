"""Runs the user's data function; the child's side of `user_calls`."""

from __future__ import annotations

import pathlib
from typing import Any

from tftrt_tools import errors, progress
from tftrt_tools.execution import npz, user_function


def job(request: dict[str, Any]) -> list[list[str]]:
    """Save what module:function yields.

    It yields {input: array} for a model's only or default signature, or (signature, {input: array}).

    Args: request: {"function": "module:function", "folder": directory, "said": the flag that named it}.
    Returns: [[signature or "", .npz path], …]. Raises: UsageError.
    """
    folder = pathlib.Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for number, item in enumerate(user_function.items(request["function"], request["said"])):
        progress.say("reading data", number)
        signature, arrays = item if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) else ("", item)
        if not isinstance(arrays, dict):
            raise errors.UsageError(f"{request['function']} yields {type(arrays).__name__}", "yield {input name: array} for each call")
        path = folder / f"{number}.npz"
        npz.save(path, arrays)
        saved.append([signature, str(path)])
    if not saved:
        raise errors.UsageError(f"{request['function']} yields nothing", "yield {input name: array} for each call")
    return saved
