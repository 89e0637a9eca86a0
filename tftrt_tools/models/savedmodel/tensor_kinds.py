"""Inputs and outputs of signatures that are no dense tensors, or of a type that no array has. A request and an answer hold dense tensors
alone, and so does an array. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.inspection import Finding
from tftrt_tools.models.savedmodel.shapes import InputSpec

# {kind, an InputSpec's dtype: (what an output of it is, what makes it dense)}.
RAGGED, SPARSE, SLICES, OPTIONAL, OTHER = "ragged", "sparse", "indexed slices", "optional", "composite"
UNKNOWN = "unknown type"
# Types that TensorFlow has and NumPy's files have not.
_NARROW = ("int2", "uint2", "int4", "uint4", "float8_e5m2", "float8_e4m3fn", "float4_e2m1fn")
_TYPES = (*_NARROW, UNKNOWN)
# As outputs these come as integers, and as inputs nothing makes them.
_QUANTIZED = ("qint8", "quint8", "qint16", "quint16", "qint32")
_OUTPUTS = {
    RAGGED: ("a ragged tensor", "give .to_tensor() of it"),
    SPARSE: ("a sparse tensor", "give tf.sparse.to_dense of it"),
    SLICES: ("IndexedSlices", "give tf.convert_to_tensor of it"),
    OPTIONAL: ("an optional", "give .get_value() of it"),
    "variant": ("a variant", "give the tensors that it holds"),
    "resource": ("a resource", "give the value that it holds"),
    OTHER: ("several tensors under one name", "give each of them a name of its own"),
    **{name: (f"of {name}, which no file of NumPy holds", "give tf.cast of it to int8 or float16") for name in _NARROW},
    UNKNOWN: ("of a type that this TensorFlow does not know", "give tf.cast of it to another type"),
}
# The words of TypeSpecProto.type_spec_class_name.
_CLASSES = {
    "RaggedTensorSpec": RAGGED,
    "SparseTensorSpec": SPARSE,
    "IndexedSlicesSpec": SLICES,
    "OptionalSpec": OPTIONAL,
}


def of_class(name: str) -> str:
    """The kind of a composite tensor. Args: name: of its TypeSpec's class."""
    return _CLASSES.get(name, OTHER)


def findings(signature: str, inputs: Iterable[InputSpec], outputs: Iterable[InputSpec]) -> Iterator[Finding]:
    """Findings on the inputs and outputs of a signature, each about the signature."""
    for output in outputs:
        if output.dtype in _OUTPUTS:
            told = no_array(output.name, output.dtype)
            yield Finding(signature, told.cause, told.mend)
    for spec in inputs:
        if spec.dtype in _TYPES or spec.dtype in _QUANTIZED:
            what = (
                _OUTPUTS[spec.dtype][0] if spec.dtype in _OUTPUTS else f"of {spec.dtype}, which no array of NumPy holds"
            )
            yield Finding(
                signature,
                f"input {spec.name!r} is {what}",
                "let the signature take int8 or float16 and cast inside, and export it again",
            )
        elif spec.dtype in _OUTPUTS:
            yield Finding(
                signature,
                f"input {spec.name!r} is {_OUTPUTS[spec.dtype][0]}: no request holds it",
                "let the signature take its parts as dense tensors (values, indices, shape), and export it again",
            )


def no_array(output: str, kind: str) -> errors.TftrtError:
    """The error for an output of such a kind."""
    what, mend = _OUTPUTS.get(kind, _OUTPUTS[OTHER])
    return errors.TftrtError(
        f"output {output!r} is {what}: "
        + ("it cannot be compared" if kind in _TYPES else "no server answers with it, and no array holds it"),
        f"{mend} in the model, and export it again",
    )


def lost(variables: Sequence[str]) -> Finding:
    """The Finding on variables of session_load.lost."""
    more = f" (and of {len(variables) - 1} more)" if len(variables) > 1 else ""
    return Finding(
        variables[0],
        f"TensorFlow Serving does not find the value of this variable{more}, only tf.saved_model.load does",
        "let the exported object hold the tf.Variables themselves (of Keras 3: [one.value for one in model.variables]), or "
        "export it with model.export",
    )


def check(signature: str, inputs: Iterable[InputSpec], outputs: Iterable[InputSpec]) -> None:
    """Raise TftrtError for the first finding."""
    for finding in findings(signature, inputs, outputs):
        raise errors.TftrtError(
            f"signature {signature!r}: {finding.text}",
            f"{finding.mend}; or name other signatures with --signature_keys",
        )
