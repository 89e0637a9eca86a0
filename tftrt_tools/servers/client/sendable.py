"""Arrays that can be sent, from what a caller gives; and the whole message, of a size that can be sent."""

from collections.abc import ItemsView, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors

LARGEST = (1 << 31) - 1  # bytes; protobuf's and the servers' own limit for one message
_TEXTS = {bytes, str, np.bytes_, np.str_}


def pairs(inputs: Mapping[str, npt.ArrayLike]) -> ItemsView[str, npt.ArrayLike]:
    """The items of the inputs. Raises: UsageError where they are no dict."""
    if not hasattr(inputs, "items"):
        raise errors.UsageError(f"the inputs are a {type(inputs).__name__}", "give a dict: {'x': array}")
    return inputs.items()


def array(name: str, value: npt.ArrayLike) -> npt.NDArray[Any]:
    """The ndarray of an input: numbers in this machine's byte order, bools, or texts (str, bytes, objects of them). Raises: UsageError."""
    try:
        converted = np.asarray(value)
        if converted.dtype.kind == "O":
            wrong = set(map(type, converted.ravel().tolist())) - _TEXTS
            if wrong:
                raise ValueError(f"it holds objects of type {', '.join(sorted(kind.__name__ for kind in wrong))}")
        elif not converted.dtype.isnative:
            converted = converted.astype(converted.dtype.newbyteorder("="))
        return converted
    except (ValueError, TypeError) as error:
        raise unsendable(name, error) from None


def unsendable(name: str, error: Exception) -> errors.UsageError:
    """The error of an input that no message can hold."""
    return errors.UsageError(f"input {name!r} cannot be sent: {error}", "give an array of numbers, bools, str or bytes")


def texts(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of texts as bytes in an object array."""
    return np.array(
        [None, *(one if isinstance(one, bytes) else str(one).encode() for one in values.ravel().tolist())], object
    )[1:].reshape(values.shape)


def joined(parts: Sequence[bytes | memoryview]) -> bytes:
    """The message of these pieces. Raises: UsageError where it is too large."""
    size = sum(map(len, parts))
    if size > LARGEST:
        raise errors.UsageError(
            f"the request has {size} bytes, and no message can have more than {LARGEST}", "send fewer rows at a time"
        )
    return b"".join(parts)
