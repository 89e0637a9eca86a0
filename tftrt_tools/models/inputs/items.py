"""The items that the user's module:function yields: for which signature one is, and which input gets what. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.shapes import InputSpec

MEND = "yield {input name: array}, a tuple in the signature's order, or one array for an only input"


def parts(item: object) -> tuple[str, object]:
    """(signature, the rest) of (signature, {input: array}); ("", item) of another item."""
    return (
        item
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], Mapping)
        else ("", item)
    )


def named(item: object, where: str, signature: str, specs: Sequence[InputSpec]) -> dict[str, Any]:
    """{input: value} of a mapping, a tuple or a list in the order of the signature's arguments, or one value. Args: where: the item, for
    messages. Raises: UsageError, also where the order is not known."""
    takes = f"{signature!r} takes " + ", ".join(f"{spec.name} {spec.text()}" for spec in specs)
    if isinstance(item, Mapping):
        return dict(item)
    if not isinstance(item, (tuple, list)):
        if len(specs) != 1:
            raise errors.UsageError(f"{where} is one {type(item).__name__}", f"{takes}; {MEND}")
        return {specs[0].name: item}
    if len(item) != len(specs):
        raise errors.UsageError(f"{where} has {len(item)} arrays in a {type(item).__name__}", f"{takes}; {MEND}")
    order = in_order(specs)
    if order is None:
        form = ", ".join(f"{spec.name!r}: array" for spec in specs)
        raise errors.UsageError(
            f"{where} is a {type(item).__name__}, and the model does not tell the order of its inputs",
            f"yield {{{form}}}",
        )
    return dict(zip(order, item, strict=True))


def in_order(specs: Sequence[InputSpec]) -> list[str] | None:
    """The names of the inputs in the order of the arguments, None where it is not known."""
    places = [spec.place for spec in specs]
    if len(specs) < 2:
        return [spec.name for spec in specs]
    sorted_places = [place for place in places if place is not None]
    return (
        [specs[number].name for number in sorted(range(len(specs)), key=lambda number: sorted_places[number])]
        if len(sorted_places) == len(specs)
        else None
    )


def array(value: object, name: str, where: str) -> npt.NDArray[Any]:
    """A value as an array. Args: name: of its input; where: the item, for messages. Raises: UsageError where it is none."""
    try:
        converted = np.asarray(value)
    except (ValueError, TypeError):
        converted = None
    if (
        converted is None
        or converted.dtype == object
        and not all(isinstance(element, (str, bytes)) for element in converted.reshape(-1))
    ):
        what = f"input {name!r} is" if name else "it is"
        raise errors.UsageError(f"{where}: {what} a {type(value).__name__} and no array", MEND)
    return converted
