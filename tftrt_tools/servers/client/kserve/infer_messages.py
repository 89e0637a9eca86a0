"""A ModelInferRequest's bytes from arrays, and arrays from a ModelInferResponse's bytes. Values go as raw contents alone."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base.wire import fields, varints
from tftrt_tools.servers.client import sendable
from tftrt_tools.servers.client.kserve import datatypes, shared_memory
from tftrt_tools.servers.client.kserve.model import SIGNATURE, asked, version_text
from tftrt_tools.servers.client.kserve.shared_memory import SharedMemory
from tftrt_tools.servers.client.model_spec import ModelSpec, text, text_field

INFER = "/inference.GRPCInferenceService/ModelInfer"
_NAME, _DATATYPE, _SHAPE, _CONTENTS = 1, 2, 3, 5
_IN_INPUTS, _IN_OUTPUTS, _IN_RAW = 5, 6, 7
_OUT_OUTPUTS, _OUT_RAW = 5, 6


def request_bytes(
    model: str,
    inputs: Mapping[str, npt.ArrayLike],
    signature: str = "",
    version: int | None = None,
    label: str = "",
    outputs: str | Iterable[str] = (),
    regions: Collection[SharedMemory] = (),
) -> bytes:
    """A ModelInferRequest on the wire.

    Args:
      model: its name. signature: "" or "serving_default": a model of Triton has no others. version: int. label: "": Triton has none.
      inputs: {name: ndarray, or what numpy.asarray takes}, batch first. Texts are arrays of str (sent as UTF-8) or of bytes.
      outputs: names of the wanted outputs, all where empty. regions: that the server has registered: inputs that lie in one are not sent.

    Returns: bytes. The values are copied once, into it. Raises: UsageError.
    """
    parts = asked(ModelSpec(model, version, label, signature))
    raw: list[Any] = []
    for name, value in sendable.pairs(inputs):
        array = sendable.array(name, value)
        try:
            array = sendable.texts(array) if array.dtype.kind in "SUO" else array
            datatype = datatypes.name_of(array.dtype)
        except ValueError as error:
            raise sendable.unsendable(name, error) from None
        sizes = varints.encode(np.array(array.shape, np.int64))
        shape = varints.delimited(_SHAPE, sizes) if array.shape else []
        there = shared_memory.place(regions, array) if regions else []
        parts += varints.delimited(
            _IN_INPUTS, *text_field(_NAME, name), *text_field(_DATATYPE, datatype), *shape, *there
        )
        raw += [] if there else varints.delimited(_IN_RAW, datatypes.content(array))
    for name in (outputs,) if isinstance(outputs, str) else outputs:
        parts += varints.delimited(_IN_OUTPUTS, *text_field(_NAME, name))
    return sendable.joined([*parts, *raw])


def response_arrays(raw: bytes) -> tuple[ModelSpec, dict[str, npt.NDArray[Any]]]:
    """The content of a ModelInferResponse.

    Args: raw: bytes of it, which nobody has checked.
    Returns: (ModelSpec of the model that answered, {output: ndarray}), in the order of the names. Arrays are read-only and lie in `raw`;
    texts are bytes in an object array. Raises: ValueError if the bytes are no ModelInferResponse, or visibly damaged.
    """
    name, version = "", ""
    described: list[memoryview] = []
    contents: list[memoryview] = []
    for field, wire_type, value in fields.walk(memoryview(raw)):
        if wire_type != fields.DELIMITED:
            continue
        if field == 1:
            name = text(value)
        elif field == 2:
            version = text(value)
        elif field == _OUT_OUTPUTS:
            described.append(value)
        elif field == _OUT_RAW:
            contents.append(value)
    if len(described) != len(contents):
        raise ValueError(f"there are {len(described)} outputs and the contents of {len(contents)}")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for description, content in zip(described, contents, strict=True):
        output, datatype, shape = tensor(description)
        try:
            arrays[output] = datatypes.array(datatype, shape, content)
        except ValueError as error:
            raise ValueError(f"output {output!r}: {error}") from None
    return ModelSpec(name, version_text(version), signature=SIGNATURE), dict(sorted(arrays.items()))


def tensor(raw: memoryview) -> tuple[str, str, tuple[int, ...]]:
    """(name, datatype, shape) of an InferInputTensor, an InferOutputTensor or a TensorMetadata. Raises: ValueError."""
    name = datatype = ""
    shape: list[int] = []
    for field, wire_type, value in fields.walk(raw):
        if field == _NAME and wire_type == fields.DELIMITED:
            name = text(value)
        elif field == _DATATYPE and wire_type == fields.DELIMITED:
            datatype = text(value)
        elif field == _SHAPE:
            packed = varints.decode(value) if wire_type == fields.DELIMITED else [value]
            shape += [fields.signed(int(size)) for size in packed]
    return name, datatype, tuple(shape)
