"""Results to JSON, laid out as RapidJSON's PrettyWriter does it under util/json_tensor.cc."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.rest import decimals, value_text
from tftrt_tools.servers.serving.local.servable import Array

if TYPE_CHECKING:
    from tensorflow_serving.apis import classification_pb2, regression_pb2


_DTYPES = {
    "float16": "half",
    "uint16": "uint16",
    "complex64": "complex64",
    "complex128": "complex128",
    "bfloat16": "bfloat16",
}
_INDENT = "    "


def outputs(arrays: Mapping[str, Array], rows: bool) -> bytes:
    """The answer to a Predict request.

    Args:
      arrays: dict of alias to array; strings are object arrays of bytes.
      rows: whether the request was in row form ("predictions"), else "outputs".
    Returns: bytes. Several outputs are ordered by name.
    Raises: Failure INVALID_ARGUMENT: in row form an output without or with another batch size; a dtype that JSON cannot carry.
    """
    if not arrays:
        raise failure.invalid("Cannot convert empty tensor map to JSON")
    arrays = {alias: np.asarray(arrays[alias]) for alias in sorted(arrays)}
    return _encoded((_predictions if rows else _outputs)(arrays))


def classification(result: classification_pb2.ClassificationResult) -> bytes:
    """The answer to a Classify request. Args: result: ClassificationResult. Returns: bytes. Raises: Failure INVALID_ARGUMENT."""
    if not result.classifications:
        raise failure.invalid("Cannot convert empty ClassificationResults to JSON")
    examples = []
    for classes in result.classifications:
        scores = decimals.texts(np.array([each.score for each in classes.classes], np.float32))
        pairs = zip((value_text.quoted(each.label) for each in classes.classes), scores, strict=True)
        examples.append("[" + ", ".join(f"[{label}, {score}]" for label, score in pairs) + "]")
    return _encoded('{\n    "results": [' + ", ".join(examples) + "\n    ]\n}")


def regression(result: regression_pb2.RegressionResult) -> bytes:
    """The answer to a Regress request. Args: result: RegressionResult. Returns: bytes. Raises: Failure INVALID_ARGUMENT."""
    if not result.regressions:
        raise failure.invalid("Cannot convert empty RegressionResults to JSON")
    values = decimals.texts(np.array([each.value for each in result.regressions], np.float32))
    return _encoded('{\n    "results": [' + ", ".join(values) + "]\n}")


def error(message: str) -> bytes:
    """The body of a failed request, bytes."""
    return _encoded('{\n    "error": ' + value_text.quoted(message) + "\n}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _predictions(arrays: Mapping[str, Array]) -> str:
    size = None
    for alias, array in arrays.items():
        if not array.ndim:
            raise failure.invalid(f"Tensor name: {alias} has no shape information ")
        if size not in (None, len(array)):
            raise failure.invalid(f"Tensor name: {alias} has inconsistent batch size: {len(array)} expecting: {size}")
        size = len(array)
    if not size:
        return '{\n    "predictions": []\n}'
    level = 2 if len(arrays) == 1 else 3
    columns = [_rows(_tokens(alias, array, level + array.ndim - 1), array.shape) for alias, array in arrays.items()]
    if len(arrays) == 1:
        return '{\n    "predictions": [' + ", ".join(columns[0]) + "\n    ]\n}"
    keys = [f"\n{_INDENT * 3}{value_text.quoted(alias)}: " for alias in arrays]
    rows = (",".join(map("".join, zip(keys, row, strict=True))) for row in zip(*columns, strict=True))
    return (
        '{\n    "predictions": [' + ",".join(f"\n{_INDENT * 2}{{{row}\n{_INDENT * 2}}}" for row in rows) + "\n    ]\n}"
    )


def _outputs(arrays: Mapping[str, Array]) -> str:
    level = 1 if len(arrays) == 1 else 2
    texts = {
        alias: _column(_tokens(alias, array, level + array.ndim), array.shape, level) for alias, array in arrays.items()
    }
    if len(arrays) == 1:
        return '{\n    "outputs": ' + next(iter(texts.values())) + "\n}"
    members = ",".join(f"\n{_INDENT * 2}{value_text.quoted(alias)}: {text}" for alias, text in texts.items())
    return '{\n    "outputs": {' + members + "\n    }\n}"


def _rows(tokens: list[str], shape: tuple[int, ...]) -> list[str]:
    """The text of each row, lists on one line."""
    tokens, inner = _emptied(tokens, shape)
    for size in reversed(inner[1:]):
        tokens = ["[" + ", ".join(tokens[at : at + size]) + "]" for at in range(0, len(tokens), size)]
    return tokens


def _column(tokens: list[str], shape: tuple[int, ...], level: int) -> str:
    """The text of a whole array, one value a line. level: how many lists and objects are open around it."""
    tokens, inner = _emptied(tokens, shape)
    for axis in reversed(range(len(inner))):
        size = inner[axis]
        begin, end = "\n" + _INDENT * (level + axis + 1), "\n" + _INDENT * (level + axis) + "]"
        tokens = ["[" + begin + ("," + begin).join(tokens[at : at + size]) + end for at in range(0, len(tokens), size)]
    return tokens[0]


def _emptied(tokens: list[str], shape: tuple[int, ...]) -> tuple[list[str], tuple[int, ...]]:
    """If a dimension is 0: its lists as tokens, and the dimensions before it."""
    if 0 not in shape:
        return tokens, shape
    inner = shape[: shape.index(0)]
    return ["[]"] * math.prod(inner), inner


def _tokens(alias: str, array: Array, level: int) -> list[str]:
    """Each value of an array as text. level: how many lists and objects are open around a value."""
    if not array.size:
        return []
    kind = array.dtype.kind
    if array.dtype in (np.float32, np.float64):
        return decimals.texts(array)
    if kind in "iu" and array.dtype != np.uint16:
        return list(map(str, array.ravel().tolist()))
    if kind == "b":
        return ["true" if value else "false" for value in array.ravel().tolist()]
    if kind in "OSU":
        values = [value.encode() if isinstance(value, str) else bytes(value) for value in array.ravel().tolist()]
        if not alias.endswith("_bytes"):
            return [value_text.quoted(value.decode("utf-8", "surrogateescape")) for value in values]
        begin, end = "{\n" + _INDENT * (level + 1) + '"b64": "', '"\n' + _INDENT * level + "}"
        return [begin + base64.b64encode(value).decode() + end for value in values]
    raise failure.invalid(
        f"Failed to write JSON value for tensor type: {_DTYPES.get(array.dtype.name, array.dtype.name)}"
    )
