"""Calls drawn from a seed, for the shapes that are known or that a signature allows. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import inputs as random_inputs
from tftrt_tools.models.execution import run
from tftrt_tools.models.savedmodel import limits
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.shapes import InputSpec

# {input: concrete shape} of one call.
Shapes = dict[str, tuple[int, ...]]
Ranges = Mapping[str, tuple[float, float]]
# The batches if nothing says which ones a model gets.
_BATCHES = (1, 8)


def calls(
    signature: str, specs: Sequence[InputSpec], shapes: Sequence[Shapes], seed: int, ranges: Ranges | None = None
) -> list[run.Call]:
    """A call for each of `shapes`, each from a seed of its own, counted up from `seed`. Args: ranges: {input: (low, high)}."""
    return [
        called(signature, specs, random_inputs.random(specs, shape, seed + number, ranges))
        for number, shape in enumerate(shapes)
    ]


def called(signature: str, specs: Sequence[InputSpec], inputs: dict[str, npt.NDArray[Any]]) -> run.Call:
    """Make a run.Call from complete inputs; it also gets the number of their rows."""
    rows = shape_grammar.rows(specs, {name: array.shape for name, array in inputs.items()})
    return run.Call(signature, inputs, 1 if rows is None else rows, whole=rows is None)


def drew(specs: Sequence[InputSpec], shapes: Sequence[Shapes], others: Collection[str] = ()) -> tuple[str, ...]:
    """The inputs whose drawn values keep to what the model takes, a line each. Args: shapes: of the calls. others: names of inputs that
    have values from elsewhere, such as --ranges."""
    told = (
        limits.text(spec.name, spec.dtype, spec.limit, shapes)
        for spec in specs
        if spec.limit and spec.name not in others
    )
    return tuple(filter(None, told))


def ranges(text: str, specs: Mapping[str, Sequence[InputSpec]]) -> dict[str, tuple[float, float]]:
    """{input: (low, high)} of --ranges. Raises: UsageError, also for an input that no signature has."""
    parsed = random_inputs.parse_ranges(text)
    names = {spec.name for inputs in specs.values() for spec in inputs}
    for name in parsed:
        if name not in names:
            raise errors.UsageError(f"--ranges: no input {name!r}", "inputs here: " + ", ".join(sorted(names)))
    return parsed


def _to_fill(spec: InputSpec) -> str:
    """The shape of a row as --shapes has it, with … for each size that nobody knows."""
    if spec.shape is None:
        return "…"
    first, *others = spec.shape
    return "x".join(["1" if first is None else str(first), *("…" if dim is None else str(dim) for dim in others)])


def default_shapes(signature: str, specs: Sequence[InputSpec]) -> list[Shapes]:
    """Shapes if none are known: two batch sizes. Raises: UsageError where more than the batch is unknown."""
    found = [shapes_of_batch(signature, specs, batch) for batch in _BATCHES]
    return found if found[0] != found[1] else found[:1]


def shapes_of_batch(
    signature: str, specs: Sequence[InputSpec], batch: int, mend: str = "give --data, or {flag}"
) -> Shapes:
    """The shapes of a call with that batch size.

    Args: mend: the way out of unknown dimensions; {flag} in it becomes the --shapes to give.
    Raises: UsageError where more than the batch is unknown.
    """
    drawn = {}
    unknown = [spec for spec in specs if spec.shape is None or None in spec.shape[1:]]
    if unknown:
        raise errors.UsageError(
            f"input {unknown[0].name!r} of {signature!r} has unknown dimensions ({unknown[0].text()})",
            mend.format(flag=f"--shapes='{';'.join(f'{signature}/{spec.name}:{_to_fill(spec)}' for spec in unknown)}'"),
        )
    for spec in specs:
        drawn[spec.name] = tuple(batch if dim is None else dim for dim in spec.shape or ())
    return drawn


def with_batch(specs: Sequence[InputSpec], shapes: Mapping[str, tuple[int, ...]], batch: int) -> Shapes:
    """`shapes` of a call with another batch size, for inputs whose first dimension is open."""
    free = {spec.name for spec in specs if spec.shape is None or (spec.shape and spec.shape[0] is None)}
    return {name: (batch, *shape[1:]) if name in free and shape else shape for name, shape in shapes.items()}


def check_sendable(signature: str, specs: Sequence[InputSpec]) -> None:
    """Raise UsageError where an input has a type that no request can carry."""
    for spec in specs:
        if spec.dtype.startswith("DataType"):
            raise errors.UsageError(
                f"input {spec.name!r} of {signature!r} is of {spec.dtype}, which no request can carry",
                "choose other signatures with --signature_keys",
            )
