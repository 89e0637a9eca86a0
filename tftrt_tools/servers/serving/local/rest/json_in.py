"""Predict requests in JSON to arrays, with the checks and messages of util/json_tensor.cc.

Functions that run in C check and convert whole lists; the walk over single values, which names the fault, runs only if they refuse.
"""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.rest import value_text
from tftrt_tools.servers.serving.local.servable import Array

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2


DEFAULT_SIGNATURE = "serving_default"
_INT64_MIN = -(2**63)
_FLOATS: dict[str, type[np.floating[Any]]] = {"float": np.float32, "double": np.float64}
_INT32 = (-(2**31), 2**31 - 1)
# dtype: (NumPy's, lowest, highest value that JSON may hold). The small types take any int32 and keep its low bits.
_INTS = {
    "int32": (np.int32, *_INT32),
    "int16": (np.int16, *_INT32),
    "int8": (np.int8, *_INT32),
    "uint8": (np.uint8, *_INT32),
    "int64": (np.int64, _INT64_MIN, 2**63 - 1),
    "uint32": (np.uint32, 0, 2**32 - 1),
    "uint64": (np.uint64, 0, 2**64 - 1),
}
_OTHERS = {
    "half": np.float16,
    "uint16": np.uint16,
    "complex64": np.complex64,
    "complex128": np.complex128,
}  # empty lists only
_LEAVES: dict[str, set[type]] = {"bool": {bool}, "string": {str}}
_MAX_RANK = 32  # NumPy's
_BASE64 = re.compile(r"([A-Za-z0-9+/]*)([=.]{0,2})")
_SPACE = re.compile(r"[ \t\n\v\f\r]+")


def signature_name(document: dict[str, Any]) -> str:
    """The request's "signature_name", "" where there is none. Raises: Failure INVALID_ARGUMENT."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise failure.invalid(
            f"JSON Value: {value_text.text(document)} not formatted correctly."
            " 'signature_name' key must be a string value."
        )
    return name


def tensors(document: dict[str, Any], inputs: Mapping[str, Any]) -> tuple[bool, dict[str, Array]]:
    """The arrays of a Predict request.

    Args:
      document: what parse.parse returned.
      inputs: dict of alias to TensorInfo, the inputs of the signature.
    Returns: (whether the request is in row form, dict of alias to array). Strings are object arrays of bytes.
    Raises: Failure INVALID_ARGUMENT, or UNIMPLEMENTED for a dtype that JSON cannot carry.
    """
    if not inputs:
        name = signature_name(document)
        raise failure.invalid(f"Failed to get input map for signature: {name or 'DEFAULT'}")
    dtypes = {alias: dtype_name(inputs[alias]) for alias in sorted(inputs)}
    if "instances" in document:
        return True, _rows(_instances(document), dtypes)
    if "inputs" in document:
        return False, _columns(document["inputs"], dtypes)
    raise failure.invalid("Missing 'inputs' or 'instances' key")


def dtype_name(info: meta_graph_pb2.TensorInfo) -> str:
    """TensorFlow's name of a TensorInfo's dtype, "float" or "half"."""
    values = info.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_number
    return values[info.dtype].name.removeprefix("DT_").lower() if info.dtype in values else "unknown dtype enum"


def as_bytes(text: str) -> bytes:
    """The bytes of a string value, including those that were not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def is_base64(value: object) -> TypeGuard[dict[str, str]]:
    """Whether a value is {"b64": "…"}."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def decode_base64(value: object) -> bytes:
    """The bytes of {"b64": "…"}: padding may be missing, white space is skipped. Raises: Failure INVALID_ARGUMENT."""
    if not is_base64(value):
        raise failure.invalid(f"JSON Value: {value_text.text(value)} not formatted correctly for base64 data")
    match = _BASE64.fullmatch(_SPACE.sub("", value["b64"]))
    missing = -len(match[1]) % 4 if match else 3
    if match is None or missing == 3 or len(match[2]) not in (0, missing):
        raise failure.invalid("Unable to base64 decode")
    return base64.b64decode(match[1] + "=" * missing)


def _instances(document: dict[str, Any]) -> list[Any]:
    value = document["instances"]
    problem = None
    if "inputs" in document:
        problem = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
    elif not isinstance(value, list):
        problem = "Expecting 'instances' to be an list/array"
    elif not value:
        problem = "No values in 'instances' array"
    if problem:
        raise failure.invalid(f"JSON Value: {value_text.text(document)} {problem}")
    result: list[Any] = value
    return result


def _columns(value: object, dtypes: Mapping[str, str]) -> dict[str, Array]:
    if not isinstance(value, dict) or is_base64(value):
        if len(dtypes) > 1:
            raise failure.invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per"
                " tensorinfo_map"
            )
        value = {next(iter(dtypes)): value}
    arrays = {}
    for alias, dtype in dtypes.items():
        if alias not in value:
            raise failure.invalid(f"Missing named input: {alias} in 'inputs' object.")
        array = dense(value[alias], dtype)
        arrays[alias] = walk(value[alias], dtype) if array is None else array
    return arrays


def _rows(instances: list[Any], dtypes: Mapping[str, str]) -> dict[str, Array]:
    if not isinstance(instances[0], dict) and len(dtypes) > 1:
        raise failure.invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per"
            " tensorinfo_map"
        )
    named = _is_object(instances[0])
    return (_named_rows if named else _plain_rows)(instances, dtypes) or _walk_rows(instances, dtypes, named)


def _plain_rows(instances: list[Any], dtypes: Mapping[str, str]) -> dict[str, Array] | None:
    """Rows that are values or lists, as one array. Returns: None where one of them needs a closer look."""
    alias, dtype = next(iter(dtypes.items()))
    array = dense(instances, dtype)
    return None if array is None else {alias: array}


def _named_rows(instances: list[Any], dtypes: Mapping[str, str]) -> dict[str, Array] | None:
    """Rows that are objects with one member for each input. Returns: None where one of them needs a closer look."""
    if set(map(type, instances)) != {type(instances[0])} or not all(row.keys() == dtypes.keys() for row in instances):
        return None
    if any(map(is_base64, instances)):
        return None
    arrays = {}
    for alias, dtype in dtypes.items():
        array = dense([row[alias] for row in instances], dtype)
        if array is None:
            return None
        arrays[alias] = array
    return arrays


def _walk_rows(instances: list[Any], dtypes: Mapping[str, str], named: bool) -> dict[str, Array]:
    """Rows one by one, as the server reads them; the first fault is raised."""
    columns: dict[str, list[tuple[list[Any], list[int]]]] = {}
    for i, row in enumerate(instances):
        if _is_object(row) != named:
            what = "Expecting object but got list" if named else "Expecting value/list but got object"
            raise failure.invalid(f"{what} at item {i} of input list")
        if not named:
            _add_row(columns, next(iter(dtypes)), row, dtypes, f"element: {i}")
            continue
        for alias, item in row.items():
            _add_row(columns, alias, item, dtypes, f"element: {i} key: {alias}")
        if row.keys() != dtypes.keys():
            raise failure.invalid(
                f"Failed to process element: {i} of 'instances' list. JSON object: {value_text.text(row)} keys must be"
                f" equal to: {','.join(dtypes)}"
            )
    return {
        alias: _array(
            list(itertools.chain.from_iterable(flat for flat, _ in rows)), [len(rows), *rows[0][1]], dtypes[alias]
        )
        for alias, rows in columns.items()
    }


def _add_row(
    columns: dict[str, list[tuple[list[Any], list[int]]]],
    alias: str,
    item: object,
    dtypes: Mapping[str, str],
    where: str,
) -> None:
    try:
        if alias not in dtypes:
            raise failure.invalid(f"JSON object: does not have named input: {alias}")
        row = _walked(item, dtypes[alias])
        rows = columns.setdefault(alias, [])
        if rows and len(rows[0][0]) != len(row[0]):
            raise failure.invalid(f"Expecting tensor size: {len(rows[0][0])} but got: {len(row[0])}")
        if rows and rows[0][1] != row[1]:
            raise failure.invalid(f"Expecting shape {_shape_text(rows[0][1])} but got: {_shape_text(row[1])}")
        rows.append(row)
    except failure.Failure as error:
        raise failure.invalid(f"Failed to process {where} of 'instances' list. Error: {error.to_text()}") from None


def _shape_text(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and not is_base64(value)


def dense(value: object, dtype: str) -> Array | None:
    """An array of a value or of regular nested lists, checked and converted without a loop over the values.

    Returns: array, equal to what `walk` returns; None where a value or a length is not as it should be.
    """
    shape = _shape(value)
    level: list[Any] = [value]
    for size in shape:
        if set(map(type, level)) != {list} or set(map(len, level)) != {size}:
            return None
        level = list(itertools.chain.from_iterable(level))
    kinds = set(map(type, level))
    if dtype in _FLOATS:
        fits = kinds <= {float, int}
    elif dtype in _INTS:
        fits = kinds <= {int} and (not level or _INTS[dtype][1] <= min(level) and max(level) <= _INTS[dtype][2])
    else:
        fits = kinds <= _LEAVES.get(dtype, set())
    if not fits:
        return None
    return _array(list(map(as_bytes, level)) if dtype == "string" else level, shape, dtype)


def floats(values: Sequence[float], dtype: type[np.floating[Any]]) -> Array:
    """Numbers as the server's threads convert them: rounded, infinite beyond the range, and 0 where they are denormal."""
    with np.errstate(over="ignore", under="ignore"):
        array = np.array(values, np.float64).astype(dtype)
    small = np.abs(array) < np.finfo(dtype).tiny
    array[small] = np.copysign(np.zeros((), dtype), array[small])
    return array


def walk(value: object, dtype: str) -> Array:
    """The same array value by value. Raises: Failure, of the first fault in the server's order."""
    flat, shape = _walked(value, dtype)
    return _array(flat, shape, dtype)


def _walked(value: object, dtype: str) -> tuple[list[Any], list[int]]:
    flat: list[Any] = []
    shape = _shape(value)
    _fill(value, 0, shape, dtype, flat)
    return flat, shape


def _shape(value: object) -> list[int]:
    """The lengths of the nested lists, down to the first value."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return shape


def _array(flat: list[Any], shape: Sequence[int], dtype: str) -> Array:
    if len(shape) > _MAX_RANK:
        raise failure.invalid(f"JSON value of {len(shape)} dimensions, and the local server takes at most {_MAX_RANK}")
    if dtype in _FLOATS:
        array = floats(flat, _FLOATS[dtype])
    elif dtype in _INTS:
        array = np.array(flat, np.uint64 if dtype == "uint64" else np.int64).astype(_INTS[dtype][0])
    elif dtype == "string":
        array = np.empty(len(flat), object)
        array[:] = flat
    else:
        array = np.array(flat, bool if dtype == "bool" else _OTHERS.get(dtype, np.float32))
    return array.reshape(shape)


def _fill(value: object, level: int, shape: Sequence[int], dtype: str, flat: list[Any]) -> None:
    rank = len(shape)
    if not isinstance(value, list):
        if level != rank:
            raise failure.invalid(
                f"JSON Value: {value_text.text(value)} found at incorrect level: {level + 1} in the JSON DOM."
                f" Expected at level: {rank}"
            )
        flat.append(_leaf(value, dtype))
        return
    if level >= rank:
        raise failure.invalid(f"Encountered list at unexpected level: {level} expected < {rank}")
    if len(value) != shape[level]:
        raise failure.invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: {shape[level]}"
        )
    for item in value:
        _fill(item, level + 1, shape, dtype, flat)


def _leaf(value: object, dtype: str) -> Any:
    """One value, checked. Returns: what `_array` takes."""
    if isinstance(value, dict):
        if dtype == "string":
            return decode_base64(value)
        raise _wrong_type(value, dtype)
    if dtype in _FLOATS:
        fits = type(value) in (int, float)
    elif dtype in _INTS:
        fits = type(value) is int and _INTS[dtype][1] <= value <= _INTS[dtype][2]
    elif dtype in ("bool", "string"):
        fits = type(value) is (bool if dtype == "bool" else str)
    else:
        raise failure.unimplemented(f"Conversion of JSON Value: {value_text.text(value)} to type: {dtype}")
    if not fits:
        raise _wrong_type(value, dtype)
    return as_bytes(value) if isinstance(value, str) else value


def _wrong_type(value: object, dtype: str) -> failure.Failure:
    return failure.invalid(
        f"JSON Value: {value_text.text(value)} Type: {value_text.type_name(value)} is not of expected type: {dtype}"
    )
