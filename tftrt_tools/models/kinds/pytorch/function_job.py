"""Calls the user's function that returns a PyTorch module with example inputs, and saves the module as a program; in a child process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from tftrt_tools.base import errors
from tftrt_tools.base.process import interpreter, progress
from tftrt_tools.models.kinds.pytorch import refusals_job
from tftrt_tools.models.kinds.pytorch.kind import FunctionRequest

_FORM = "return (module, inputs) or (module, inputs, dynamic_shapes): as torch.export.export takes them, a tuple, or a dict by name"


def job(request: FunctionRequest) -> None:
    """The job kind.call_function."""
    name = request.function
    progress.say(f"calling {name}")
    module, positional, named, shapes = _returned(name, _function(name))
    progress.say("exporting the module")
    try:
        with torch.no_grad():
            exported = torch.export.export(module.eval(), positional, named, dynamic_shapes=shapes)
        torch.export.save(exported, request.output)
    except Exception as error:  # PyTorch, and the user's module, raise whatever they do
        why, mend = refusals_job.told(error)
        raise errors.TftrtError(f"torch.export.export cannot export the module of {name}: {why}", mend) from None


def _function(name: str) -> Callable[[], object]:
    where, _, attribute = name.partition(":")
    try:
        function: Callable[[], object] = getattr(interpreter.own_module(where), attribute)
        return function
    except (ImportError, AttributeError) as error:
        raise errors.UsageError(
            f"{name}: {error}", "the module must be importable from here, with that function in it"
        ) from None
    except Exception as error:
        raise errors.TftrtError(
            f"{name}: its module cannot be imported: {_line(error)}", "import it in Python"
        ) from None


def _returned(
    name: str, function: Callable[[], object]
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any], Any]:
    """(module, positional inputs, inputs by name, dynamic shapes)."""
    try:
        model = function()
    except Exception as error:
        raise errors.TftrtError(f"{name}() fails: {_line(error)}", "call it in Python; it takes no arguments") from None
    if not isinstance(model, tuple) or len(model) not in (2, 3) or not isinstance(model[0], torch.nn.Module):
        raise errors.UsageError(f"{name}() returns no PyTorch module with inputs", _FORM)
    module, inputs = model[:2]
    positional = (inputs,) if isinstance(inputs, torch.Tensor) else () if isinstance(inputs, dict) else tuple(inputs)
    named = inputs if isinstance(inputs, dict) else {}
    return module, positional, named, model[2] if len(model) == 3 else _open_batch(inputs if named else positional)


def _open_batch(inputs: object) -> object:
    """Dynamic shapes with the first dimension of every input open, as far as the module allows that."""

    def one(leaf: object) -> dict[int, object] | None:
        return {0: torch.export.Dim.AUTO} if isinstance(leaf, torch.Tensor) and leaf.ndim else None

    return _pytree.tree_map(one, inputs)


def _line(error: Exception) -> str:
    return errors.first_line(str(error)) or type(error).__name__
