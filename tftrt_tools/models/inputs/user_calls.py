"""Calls that the user's module:function yields: each item is one, in its own shapes. No TensorFlow in this process."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution import npz, run
from tftrt_tools.models.inputs import cutting, items
from tftrt_tools.models.inputs.value_ranges import Integers
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.shapes import InputSpec

# Stands for an array that the function does not yield.
_NONE = np.zeros(0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """A function to run."""

    # "module:function". It yields {input: array}, a tuple or one array for a model's only or default signature, or (signature, {input:
    # array}).
    function: str
    # The folder for the items.
    folder: str
    # The flag that named the function, for messages.
    said: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item(records.Record):
    """An item that the function yielded."""

    # "" where it names none.
    signature: str
    # The .npz of its arrays.
    path: str
    # "" where its arrays have names, else the item's type: then they are numbered, or the only one is called "".
    form: str


@jobs.job
def save() -> Callable[[Request], Sequence[Item]]:
    """Save what the user's function yields. Raises: UsageError."""
    from tftrt_tools.models.inputs import user_calls_job

    return user_calls_job.job


@dataclasses.dataclass(frozen=True)
class Yielded:
    """calls: {signature: its calls}; aside: names of signatures for which there are items, and that nobody asked for."""

    calls: dict[str, list[run.Call]]
    aside: tuple[str, ...]


def calls(
    reference: str,
    specs: Mapping[str, Sequence[InputSpec]],
    folder: str | pathlib.Path,
    said: str = "--data",
    walked: signatures.Once | None = None,
    optional: Mapping[str, frozenset[str]] | None = None,
    others: Mapping[str, Sequence[InputSpec]] | None = None,
    integers: Integers | None = None,
) -> Yielded:
    """Run the function in a child, and keep the yielded arrays in `folder`.

    Args:
      reference: module:function. It yields {input: array}, a tuple in the order of the signature's arguments, one array for an only input,
        or (signature, {input: array}); without a signature the arrays are for serving_default, or else for the first of `specs`.
      specs: {signature: InputSpecs}.
      said: the flag that named the function, for messages.
      walked: a call of a twin counts for the signature that stands for it.
      optional: {signature: inputs that may be left out}.
      others: {signature: InputSpecs} of the model's other signatures, whose items are left aside.
      integers: notes float inputs that get integers.

    Returns: Yielded. Raises: UsageError.
    """
    default = signatures.DEFAULT if signatures.DEFAULT in specs else next(iter(specs))
    by_signature: dict[str, list[run.Call]] = {}
    aside: dict[str, None] = {}
    items_saved = save.run(Request(function=reference, folder=str(folder), said=said)).result
    for number, item in enumerate(items_saved, 1):
        name, arrays = item.signature, npz.load(item.path)
        name = walked.leader(name) if walked and name else name or _meant(default, arrays, specs, others or {})
        if name in (others or {}):
            aside[name] = None
            continue
        if name not in specs:
            raise errors.UsageError(
                f"{said}={reference} yields for signature {name!r}", "signatures here: " + ", ".join(specs)
            )
        where = f"item {number} of {reference}"
        inputs = list(specs[name])
        if not item.form or len(arrays) < len(inputs):
            inputs = cutting.without((optional or {}).get(name, frozenset()), inputs, () if item.form else arrays)
        values = items.named(_content(item.form, arrays), where, name, inputs)
        if integers is not None:
            for spec in inputs:
                integers.add(values.get(spec.name, _NONE), spec)
        by_signature.setdefault(name, []).append(cutting.whole(name, values, inputs))
    if not by_signature:
        raise errors.UsageError(
            f"{said}={reference} yields nothing for {', '.join(specs)}, but for {', '.join(aside)}",
            "name the signatures that the items are for in --signature_keys",
        )
    return Yielded({name: _counted(calls) for name, calls in by_signature.items()}, tuple(aside))


def _counted(calls: Sequence[run.Call]) -> list[run.Call]:
    """The calls of a signature, all counted the same way: where any item has inputs of unlike rows, each is one item, even if its
    rows happen to be equally many."""
    items_alone = any(call.whole for call in calls)
    return [dataclasses.replace(call, count=1, whole=True) if items_alone else call for call in calls]


def _meant(
    default: str,
    arrays: Mapping[str, Any],
    specs: Mapping[str, Sequence[InputSpec]],
    others: Mapping[str, Sequence[InputSpec]],
) -> str:
    """The signature of an item that names none: `default`, unless its arrays fit only another signature."""
    names = set(arrays)
    takers = [name for name, inputs in {**specs, **others}.items() if names == {spec.name for spec in inputs}]
    fits_default = names <= {spec.name for spec in specs[default]}
    return default if fits_default or len(takers) != 1 or takers[0] not in others else takers[0]


def _content(form: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """An item as it was yielded. Args: form: of Item."""
    if not form:
        return arrays
    if "" in arrays:
        return arrays[""]
    listed = [arrays[str(number)] for number in range(len(arrays))]
    return listed if form == "list" else tuple(listed)
