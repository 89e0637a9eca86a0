"""Calls that the user's module:function yields. No TensorFlow in this process."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from tftrt_tools import child, errors
from tftrt_tools.execution import npz, run
from tftrt_tools.inputs import cutting
from tftrt_tools.inputs.value_ranges import Integers
from tftrt_tools.savedmodel import signatures
from tftrt_tools.savedmodel.shapes import InputSpec

# In place of an array that the function does not yield.
_NONE = np.zeros(0)


def calls(reference: str, specs: Mapping[str, Sequence[InputSpec]], folder: str | pathlib.Path, said: str = "--data",
          walked: signatures.Once | None = None, optional: Mapping[str, frozenset[str]] | None = None,
          integers: Integers | None = None) -> dict[str, list[run.Call]]:
    """Run the function in a child, and keep the yielded arrays in `folder`.

    Args:
      reference: module:function. It yields {input: array}, or (signature, {input: array}); without a signature the arrays are for
        serving_default, or else for the first of `specs`.
      specs: {signature: InputSpecs}.
      said: the flag that named the function, for messages.
      walked: a call of a twin counts for the signature that stands for it.
      optional: {signature: inputs that may be left out}.
      integers: notes float inputs that get integers.

    Returns: {signature: its calls}. Raises: UsageError.
    """
    default = signatures.DEFAULT if signatures.DEFAULT in specs else next(iter(specs))
    found: dict[str, list[run.Call]] = {}
    for signature, path in _yielded(reference, folder, said):
        name = walked.leader(signature) if walked and signature else signature or default
        if name not in specs:
            raise errors.UsageError(f"{said}={reference} yields for signature {name!r}", "signatures here: " + ", ".join(specs))
        arrays = npz.load(path)
        rows = max((len(array) for array in arrays.values() if array.ndim), default=1)
        named = {f"{name}/{key}": value for key, value in arrays.items()}
        wanted = cutting.without((optional or {}).get(name, frozenset()), specs[name], arrays)
        if integers is not None:
            for spec in wanted:
                integers.add(arrays.get(spec.name, _NONE), spec)
        one, _ = cutting.calls_of_arrays(named, {name: wanted}, (rows,))
        found.setdefault(name, []).extend(one[name])
    return found


def _yielded(reference: str, folder: str | pathlib.Path, said: str) -> list[tuple[str, str]]:
    """[(signature or "", path of an .npz)]."""
    request = {"function": reference, "folder": str(folder), "said": said}
    return [(signature, path) for signature, path in child.run("tftrt_tools.inputs.user_calls_job:job", request).result]
