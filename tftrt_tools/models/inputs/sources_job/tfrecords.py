"""TFRecord files of tf.train.Example; imports TensorFlow while reading."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.inputs.labels import LABEL
from tftrt_tools.models.inputs.sources_job.batching import Tally
from tftrt_tools.models.inputs.sources_job.request import Request
from tftrt_tools.models.inputs.sources_job.row_shapes import row_shapes
from tftrt_tools.models.savedmodel.shapes import InputSpec

if TYPE_CHECKING:
    import tensorflow as tf

_GZIP = b"\x1f\x8b"
_PICTURES = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM")


def source(request: Request) -> Callable[[Tally], Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]]:
    """Reads one record after the other; each is a row.

    A feature named INPUT or SIGNATURE/INPUT holds an input's row as a flat list of integers or floats, as one string with the row's
    bytes in the input's dtype (little-endian, in C order), or, for string inputs, as a list of strings. Other features are skipped.
    """
    rows = row_shapes(request, "a TFRecord holds flat lists: give --shapes='INPUT:8x128', or the data as .npz")
    if None in rows.values():
        name = next(name for name, row in rows.items() if row is None)
        raise errors.UsageError(
            f"input {name!r} of {request.signature!r} is a scalar, and each record is a row",
            "give the data as .npz or by module:function",
        )
    present = {name: row for name, row in rows.items() if row is not None}
    return lambda tally: _chunks(request, present)


def _chunks(request: Request, rows: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in request.files:
        for number, record in enumerate(_records(path)):
            where = f"record {number} (counted from 0) of {path}"
            features = _features(record, where)
            arrays = {spec.name: _row(features, spec, rows[spec.name], where, request)[None] for spec in request.specs}
            label = {LABEL: _label(features, request.label_feature, where)} if request.label_feature else {}
            yield where, arrays | label


def _records(path: str) -> Iterator[bytes]:
    import tensorflow as tf

    number = 0
    try:
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            yield record
            number += 1
    except tf.errors.DataLossError:
        with open(path, "rb") as file:
            packed = number == 0 and file.read(2) == _GZIP
        raise errors.UsageError(
            f"record {number} (counted from 0) of {path} is damaged or no TFRecord",
            "the file looks like gzip: unpack it" if packed else "write the file again, or leave it out",
        ) from None
    except (tf.errors.NotFoundError, tf.errors.PermissionDeniedError) as error:
        raise errors.UsageError(f"{path} cannot be read: {error.message}", "check its permissions") from None


def _features(record: bytes, where: str) -> Mapping[str, tf.train.Feature]:
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        features: Mapping[str, tf.train.Feature] = tf.train.Example.FromString(record).features.feature
        return features
    except DecodeError:
        raise errors.UsageError(
            f"{where} is no tf.train.Example", "write tf.train.Example messages, or use module:function"
        ) from None


def _row(
    features: Mapping[str, tf.train.Feature], spec: InputSpec, shape: tuple[int, ...], where: str, request: Request
) -> npt.NDArray[Any]:
    name = next((path for path in request.paths(spec.name) if path in features), spec.name)
    if name not in features:
        raise errors.UsageError(
            f"{where} has no feature {spec.name!r}; it has {', '.join(sorted(features)) or 'none'}",
            f"{request.signature!r} takes {spec.name} {spec.text()}",
        )
    kind = features[name].WhichOneof("kind")
    values = getattr(features[name], kind).value if kind else ()
    count = math.prod(shape)
    if kind == "bytes_list" and spec.dtype != "string":
        return _raw(values, spec, shape, name, where)
    if len(values) != count:
        raise errors.UsageError(
            f"feature {name!r} of {where} has {len(values)} values, and a row of {spec.text()} has {count}",
            "write each row as a flat list of that length",
        )
    dtype = {"int64_list": np.int64, "float_list": np.float32}.get(kind, object)
    flat = np.empty(count, dtype)
    flat[:] = values
    return flat.reshape(shape)


def _label(features: Mapping[str, tf.train.Feature], name: str, where: str) -> int:
    values: Sequence[int] = features[name].int64_list.value if name in features else ()
    if len(values) != 1:
        there = "no feature" if name not in features else "no single integer in feature"
        raise errors.UsageError(
            f"{where} has {there} {name!r}; it has {', '.join(sorted(features)) or 'none'}",
            "--label_feature names a feature that holds one integer, the class",
        )
    return int(values[0])


def _raw(values: Sequence[bytes], spec: InputSpec, shape: tuple[int, ...], name: str, where: str) -> npt.NDArray[Any]:
    """A row from its bytes."""
    dtype = np.dtype(spec.dtype).newbyteorder("<")
    size = dtype.itemsize * math.prod(shape)
    if len(values) == 1 and len(values[0]) == size:
        return np.frombuffer(values[0], dtype).reshape(shape)
    mend = f"write the row as np.asarray(row, '{spec.dtype}').tobytes(), or as a list of numbers"
    if len(values) == 1 and values[0].startswith(_PICTURES):
        mend = "it looks like an encoded picture: unpack the pictures into a folder, or decode them in module:function"
    got = f"{len(values[0])} bytes" if len(values) == 1 else f"{len(values)} strings"
    raise errors.UsageError(f"feature {name!r} of {where} has {got}, and a row of {spec.text()} has {size} bytes", mend)
