"""Runs the user's data function; the child's side of `data.from_function`."""

import importlib
import pathlib
import sys

import numpy as np

from tftrt_tools import errors, progress


def job(request):
    """Save what module:function yields.

    It yields {input: array} for a model's only or default signature, or (signature, {input: array}).

    Args: request: {"function": "module:function", "folder": directory}.
    Returns: [[signature or "", .npz path], …]. Raises: UsageError.
    """
    folder = pathlib.Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for number, item in enumerate(_function(request["function"])()):
        progress.say("reading data", number)
        signature, arrays = item if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) else ("", item)
        if not isinstance(arrays, dict):
            raise errors.UsageError(f"{request['function']} yields {type(arrays).__name__}", "yield {input name: array} for each call")
        path = folder / f"{number}.npz"
        np.savez(path, **{name: np.asarray(value) for name, value in arrays.items()})
        saved.append([signature, str(path)])
    if not saved:
        raise errors.UsageError(f"{request['function']} yields nothing", "yield {input name: array} for each call")
    return saved


def _function(reference):
    module_name, _, attribute = reference.partition(":")
    sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise errors.UsageError(f"--data={reference}: {error}", "the module must be importable from here") from None
    if not callable(function):
        raise errors.UsageError(f"--data={reference} is no function", "name a function without arguments that yields calls")
    return function
