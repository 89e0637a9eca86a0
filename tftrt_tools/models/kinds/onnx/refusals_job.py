"""What ONNX Runtime says of a file that it does not load, in words that tell what to do. The messages are those of ONNX Runtime 1.23.2; one
that is not known is passed on."""

from __future__ import annotations

import re

from tftrt_tools.base import errors
from tftrt_tools.models.kinds.onnx import file

_AGAIN = "the exporter wrote a wrong file: export it again, with a newer exporter if there is one"
_UNIMPLEMENTED = r"Could not find an implementation for (\w+)\((\d+)\)"
# Types of which ONNX Runtime has few ops on a CPU, and whether TensorRT has it.
_RARE = {"float64": "TensorRT has no float64 either: ", "bfloat16": ""}
# (in ONNX Runtime's message, what it means, the mend); groups of the first fill the others.
_KNOWN = tuple(
    (re.compile(pattern, re.DOTALL), meaning, mend)
    for pattern, meaning, mend in (
        (
            r"Could not find an implementation for (ConvInteger)\(\d+\)",
            "it has no {0} of signed weights on a CPU",
            "quantize it with unsigned ones (weight_type=QuantType.QUInt8 of quantize_dynamic)",
        ),
        (_UNIMPLEMENTED, "it has no {0} of opset {1} for the types here on a CPU", "export it in float32"),
        (
            r"two nodes with same node name \((.*?)\)",
            "two nodes are called {0!r}",
            "give each node a name of its own, or none: " + _AGAIN,
        ),
        (
            r"Duplicate definition-site for \((.*?)\)|Duplicate definition of name \((.*?)\)",
            "two tensors are called {0!r}",
            _AGAIN,
        ),
        (
            r"No Op registered for (\S+) with domain_version of (-?\d+)",
            "opset {1} has no op {0}",
            "an op of one's own needs a domain, and no runtime here knows it; else the file names a wrong opset",
        ),
        (
            r"No opset import for domain '(.*?)'",
            "it uses ops of the domain {0!r}, which is not among its opsets",
            "write ops of your own apart into ONNX's ops when you export it",
        ),
        (
            r"(\S+) is not a registered function/op",
            "no op {0} is known",
            "write ops of your own apart into ONNX's ops when you export it",
        ),
        (r"graph is not acyclic", "its nodes wait for each other in a circle", _AGAIN),
        (
            r"model IR version: (\d+), max supported IR version: (\d+)",
            "its format is version {0}, and the newest that is known is {1}",
            "save it with ir_version={1}, or install a newer ONNX Runtime",
        ),
        (
            r"Opset (\d+) is under development",
            "its opset {0} is newer than those that are known",
            "export it for an older opset",
        ),
        (r"Node input '(.*?)' is not a graph input", "a node reads the tensor {0!r}, which nothing makes", _AGAIN),
        (r"Graph output \((.*?)\) does not exist", "nothing makes its output {0!r}", _AGAIN),
        (
            r"Deserialize tensor (\S+) failed",
            "the weights {0!r} are damaged: there are not as many bytes as their shape needs",
            "copy the file again, or export it again",
        ),
    )
)
_MEND = "check that the file is whole, with its weights beside it, and that ONNX Runtime knows its ops and its opset"


def refused(model: str | bytes, runtime: str, name: str, line: str, whole: str) -> errors.TftrtError:
    """The error for a file that was not loaded.

    Args: model: its path or content. runtime: "ONNX Runtime 1.23.2". name: of the file, for people. line: what the runtime said, short.
      whole: all that it said.
    """
    if isinstance(model, str):
        try:
            file.overview(model)
        except errors.TftrtError as error:  # a file that is cut, empty or none of ONNX
            return error
        rare = re.search(_UNIMPLEMENTED, whole)
        if rare and (dtype := _rare(model)):
            return errors.TftrtError(
                f"{runtime} cannot load {name}: it has no {rare[1]} of {dtype} on a CPU",
                f"{_RARE[dtype]}export the model in float32 (tf.cast(x, tf.float32), or .float() in PyTorch)",
            )
    for pattern, meaning, mend in _KNOWN:
        if matched := pattern.search(whole):
            groups = [group for group in matched.groups() if group is not None]
            return errors.TftrtError(f"{runtime} cannot load {name}: {meaning.format(*groups)}", mend.format(*groups))
    return errors.TftrtError(f"{runtime} cannot load {name}: {line}", _MEND)


def _rare(path: str) -> str:
    """A type of which there are few kernels, that a file's inputs or weights have; "" for none."""
    found = file.overview(path)
    dtypes = {*found.weights, *(spec.dtype for one in found.signatures.values() for spec in one.inputs)}
    return next((one for one in _RARE if one in dtypes), "")
