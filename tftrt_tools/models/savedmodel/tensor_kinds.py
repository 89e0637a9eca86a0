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
# Types of fewer than 16 bits, but for int8 and uint8.
_NARROW = ("int2", "uint2", "int4", "uint4", "float8_e5m2", "float8_e4m3fn", "float4_e2m1fn")
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
        if spec.dtype in _OUTPUTS:
            yield Finding(
                signature,
                f"input {spec.name!r} is {_OUTPUTS[spec.dtype][0]}: no request holds it",
                "let the signature take dense tensors (values, indices, shape) of other types, and export it again",
            )


def no_array(output: str, kind: str) -> errors.TftrtError:
    """The error for an output of such a kind."""
    what, mend = _OUTPUTS.get(kind, _OUTPUTS[OTHER])
    dense = kind in _NARROW or kind == UNKNOWN
    return errors.TftrtError(
        f"output {output!r} is {what}: "
        + ("it cannot be compared" if dense else "no server answers with it, and no array holds it"),
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
