"""The arrays of a batch: merged from those of its requests, padded, and divided again. Pure functions.

Rules and texts are those of TensorFlow Serving 2.14.1 (batching/batching_session.cc, batching_util.cc).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import grpc
import numpy as np
import numpy.typing as npt

from tftrt_tools.servers.serving.local import failure, tensor_text
from tftrt_tools.servers.serving.local.servable import Array

_PADDED_RANKS = range(1, 7)


def rows(feeds: Mapping[str, Array]) -> int:
    """Rows of a request: the 0th dimension that all its inputs share. Args: feeds: {tensor name: np.ndarray}. Raises: Failure
    INVALID_ARGUMENT without inputs, for a scalar, for unequal sizes."""
    if not feeds:
        raise failure.invalid("Batching Run() must have at least one input tensor")
    sizes: list[int] = []
    for array in feeds.values():
        if array.ndim == 0:
            raise failure.invalid("Batching Run() input tensors must have at least one dimension")
        if sizes and array.shape[0] != sizes[0]:
            raise failure.invalid("Batching Run() input tensors must have equal 0th-dimension size")
        sizes.append(array.shape[0])
    return sizes[0]


def merge(requests: Sequence[Mapping[str, Array]], padding: int, pad_variable_length: bool) -> dict[str, Array]:
    """The inputs of a batch.

    Args:
      requests: [{tensor name: np.ndarray}], at least one, all with the same names.
      padding: rows to add at the end, each a copy of the first row of the last request.
      pad_variable_length: pad every other dimension to the largest of the batch, at its end, with the request's first value.

    Returns: {tensor name: np.ndarray}.

    Raises: Failure: FAILED_PRECONDITION where shapes differ; INVALID_ARGUMENT for what cannot be padded; INTERNAL for mixed dtypes.
    """
    merged = {}
    for name in sorted(requests[0]):
        arrays = [request[name] for request in requests]
        arrays = _equalized(name, arrays) if pad_variable_length else _checked(name, arrays)
        for array in arrays[1:]:
            if array.dtype != arrays[0].dtype:
                raise failure.Failure(
                    grpc.StatusCode.INTERNAL,
                    "Tensor concat operation failed: INVALID_ARGUMENT: Cannot concatenate "
                    f"tensors that have different data types. Got {tensor_text.short_name(arrays[0])} and "
                    f"{tensor_text.short_name(array)}.",
                )
        last = arrays[-1]
        if padding:
            arrays = [*arrays, last[np.zeros(padding, int)]]
        merged[name] = np.concatenate(arrays) if len(arrays) > 1 else last
    return merged


def divide(outputs: Mapping[str, Array], sizes: Sequence[int], padding: int) -> list[dict[str, Array]]:
    """The outputs of each request, without the padding.

    Args: outputs: {tensor name: np.ndarray}, rows in front. sizes: rows of each request. padding: rows added behind them.
    Returns: [{tensor name: np.ndarray}], views of `outputs`. Raises: Failure FAILED_PRECONDITION for an output of other rows.
    """
    for array in outputs.values():
        if array.ndim == 0:
            raise failure.precondition("Batched output tensor has 0 dimensions")
        if array.shape[0] != sum(sizes) + padding:
            raise failure.precondition(
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the "
                "input tensors"
            )
    ends = np.cumsum(sizes)
    return [
        {name: array[end - size : end] for name, array in outputs.items()}
        for size, end in zip(sizes, ends, strict=True)
    ]


def _checked(name: str, arrays: list[Array]) -> list[Array]:
    if any(array.shape[1:] != arrays[0].shape[1:] for array in arrays):
        raise failure.precondition(
            f"Tensors with name '{name}' from different tasks have different shapes and padding is turned off. Set "
            "pad_variable_length_inputs to true, or ensure that all tensors with the same name have equal "
            "dimensions starting with the first dim."
        )
    return arrays


def _equalized(name: str, arrays: list[Array]) -> list[Array]:
    if any(array.ndim != arrays[0].ndim for array in arrays):
        # The real server writes past the end of an array here.
        raise failure.precondition(f"Tensors with name '{name}' from different tasks have different ranks")
    if arrays[0].ndim not in _PADDED_RANKS:
        raise failure.invalid("Only tensors with rank from 1 to 6 can be padded.")
    largest = np.max([array.shape[1:] for array in arrays], axis=0, initial=0)
    return [_padded(array, largest) for array in arrays]


def _padded(array: Array, largest: npt.NDArray[np.int64]) -> Array:
    shape = (array.shape[0], *map(int, largest))
    if array.size == np.prod(shape):
        return array.reshape(shape)
    if not array.size:
        raise failure.invalid("Got empty tensor in batch of non-empty tensors.")
    # Not np.pad: it takes its constant through an array of bytes, which drops the zero bytes at a string's end.
    padded = np.empty(shape, array.dtype)
    padded.fill(array.flat[0])
    padded[tuple(map(slice, array.shape))] = array
    return padded
