"""Arrays of every dtype that a request carries, and when two are the same."""

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

DTYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
    "complex64",
    "complex128",
    "string",
]
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def random(dtype, shape, seed):
    """Array of any bit pattern of the dtype."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype == "string":
        return np.array([None, *(rng.bytes(int(rng.integers(0, 40))) for _ in range(count))], object)[1:].reshape(shape)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    return np.frombuffer(rng.bytes(count * np.dtype(kind).itemsize), kind).reshape(shape)


def same(left, right):
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and ((left == right).all() if left.dtype == object else left.tobytes() == right.tobytes())
    )
