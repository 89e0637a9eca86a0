"""A model of TensorRT's network, to predict the names of its tensors: how many layers there are, and what each of their outputs holds.

Shapes are TensorRT's: tuples with -1 for what is unknown; without the batch in implicit batch mode, where constants keep theirs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

# The dims of a tensor in TensorRT's form; also of a tensor that holds sizes.
Dims = tuple[int, ...]


class UnknownLayersError(Exception):
    """Raised for an op whose converter makes an unknown number of layers."""


@dataclasses.dataclass(eq=False, kw_only=True)
class Tensor:
    """A tensor of the network."""

    # The tensor's name, which changes as TF-TRT renames it; None where it is not known.
    name: str | None
    # None for an unknown rank.
    dims: Dims | Any
    dtype: str
    # The tf.Tensor with the same values, by name, or None.
    source: str | None
    # Whether the name is certain; False for a guess.
    sure: bool = True
    # Of a tensor that holds the sizes of another, as far as TensorRT knows them: ints, -1 for unknown ones, a single one for a scalar;
    # else None.
    sizes: Dims | None = None
    # Whether TensorRT's tables have it.
    listed: bool = True


@dataclasses.dataclass(frozen=True)
class Weights:
    """A constant that is not a tensor of the network yet. dims: with the batch in both modes."""

    dims: Dims
    dtype: str
    source: str


# An input of a node after conversion.
Value = Tensor | Weights


class Network:
    """TensorRT's network while the nodes are converted. tensors: the layers' outputs in order; layers: how many there are; None after
    the first op of which it is not known."""

    def __init__(self, implicit: bool) -> None:
        self.implicit = implicit
        self.tensors: list[Tensor] = []
        self.layers: int | None = 0

    def input(self, name: str, tensor: tf.Tensor) -> Tensor:
        """Add an engine input."""
        dims = None if tensor.shape.rank is None else self.dims(tensor)
        self.tensors.append(Tensor(name=name, dims=dims, dtype=tensor.dtype.name, source=tensor.name))
        return self.tensors[-1]

    def add(self, kind: str, dims: Dims, dtype: str, source: str | None = None) -> Tensor:
        """Add a layer; `kind` as TensorRT writes it into default names. Returns: its first output."""
        name = None
        if self.layers is not None:
            name = f"(Unnamed Layer* {self.layers}) [{kind}]_output"
            self.layers += 1
        self.tensors.append(Tensor(name=name, dims=dims, dtype=dtype, source=source))
        return self.tensors[-1]

    def add_output(self, tensor: tf.Tensor) -> Tensor:
        """A further output of the layer added last, or one of an unknown layer."""
        dims = None if tensor.shape.rank is None else self.dims(tensor)
        self.tensors.append(
            Tensor(name=None, dims=dims, dtype=tensor.dtype.name, source=tensor.name, sure=self.layers is not None)
        )
        return self.tensors[-1]

    def shapes(self, *kinds: str) -> Tensor:
        """Add layers that compute shapes: int32, never calibrated. Returns: the last one's output."""
        for kind in kinds:
            last = self.add(kind, (-1,), "int32")
        return last

    def dims(self, tensor: tf.Tensor) -> Dims:
        """TensorRT's dims of a tf.Tensor. Raises: UnknownLayersError for an unknown rank."""
        if tensor.shape.rank is None:
            raise UnknownLayersError
        dims = tuple(-1 if size is None else size for size in tensor.shape)
        return dims[1:] if self.implicit else dims

    def result(self, kind: str, tensor: tf.Tensor) -> Tensor:
        """Add the layer that computes tf.Tensor `tensor`."""
        return self.add(kind, self.dims(tensor), tensor.dtype.name, tensor.name)

    def transpose(self, value: Value, permutation: Sequence[int]) -> Tensor:
        """A transposition; `permutation` counts the batch."""
        order = [axis - 1 for axis in permutation[1:]] if self.implicit else permutation
        return self.add("Shuffle", tuple(value.dims[axis] for axis in order), value.dtype, value.source)

    def shaped(self, value: Value, dims: Dims) -> Tensor:
        """`value` with `dims`: a reshape where they differ, a constant layer for weights. 0 in dims keeps the input's."""
        if isinstance(value, Weights):
            return self.add("Constant", tuple(dims), value.dtype, value.source)
        if tuple(dims) == value.dims:
            return value
        sizes = tuple(value.dims[index] if size == 0 else size for index, size in enumerate(dims))
        return self.add("Shuffle", sizes, value.dtype, value.source)

    def tensor(self, value: Value) -> Tensor:
        """`value` as a tensor: a constant layer for weights."""
        return self.shaped(value, value.dims)

    def reshaped_dynamically(self, value: Value, dims: Dims, slices: int, added: Dims = ()) -> Tensor:
        """A reshape to a shape that is made at run time of `slices` parts of the input's shape and of `added` (-1: none there) sizes."""
        self.shapes("Shape")
        for index in range(max(slices, len(added))):
            if index < len(added) and added[index] >= 0:
                self.shapes("Constant")
            if index < slices:
                self.shapes("Slice")
        self.shapes("Concatenation")
        return self.add("Shuffle", dims, value.dtype, value.source)

    def broadcast_dims(self, left: Value, right: Value) -> list[Dims]:
        """Both operands' dims, with leading 1s up to the same rank."""

        def rank(value: Value) -> int:
            return len(value.dims) + (self.implicit and isinstance(value, Tensor))

        total = max(rank(left), rank(right))
        padded = [(1,) * (total - len(value.dims)) + value.dims for value in (left, right)]
        return [dims[1:] if self.implicit else dims for dims in padded]
