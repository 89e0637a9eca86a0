"""An ONNX model in another opset, by onnx's converter, with what the converter lacks: adapters of ops that did not change for the node, and
facts of the file that it drops."""

from __future__ import annotations

import re

import onnx
from onnx import version_converter

from tftrt_tools.base import errors
from tftrt_tools.tensorrt.exporting.job.graph_facts import all_nodes

_NO_ADAPTER = re.compile(r"No Adapter (?:To|From) Version \$\d+ for (\w+)")
# Where nodes stand while the converter passes by: it leaves ops of other domains as they are.
_ASIDE = "tftrt.aside"
# Names of the domain of ONNX's own ops.
OWN = ("", "ai.onnx")
# Ops that mean something else in another version although a node may look the same, and ops whose inner graphs have to be converted.
_CHANGED = frozenset(
    {"GroupNormalization", "GridSample", "Upsample", "Softmax", "LogSoftmax", "Hardmax", "If", "Loop", "Scan"}
)


def of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own ops in a model."""
    return next((one.version for one in model.opset_import if one.domain in OWN), 1)


def converted(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A copy in the opset. Where the converter has no adapter for an op, but both versions of the op take the node as it is, it stays as it
    is. Raises: TftrtError for an op that cannot be converted, and for a model that is too large for the converter."""
    given = onnx.ModelProto()
    given.CopyFrom(model)
    given.opset_import.add(domain=_ASIDE, version=1)
    aside: set[str] = set()
    while True:
        try:
            made = version_converter.convert_version(given, opset)
            break
        except Exception as error:  # the converter raises RuntimeError, its bindings others for what is too large
            lacking = _NO_ADAPTER.search(str(error))
            if lacking is None or lacking[1] in aside or not _set_aside(given, lacking[1], opset):
                raise errors.TftrtError(
                    f"onnx {onnx.__version__} cannot convert it from opset {of(model)} to {opset}: {_cause(error)}"
                ) from None
            aside.add(lacking[1])
    for node in all_nodes(made.graph):
        if node.domain == _ASIDE:
            node.domain = ""
    imports = [one for one in made.opset_import if one.domain != _ASIDE]
    del made.opset_import[:], made.metadata_props[:]
    made.opset_import.extend(imports)
    made.metadata_props.extend(model.metadata_props)
    made.producer_name, made.producer_version, made.domain = model.producer_name, model.producer_version, model.domain
    made.model_version, made.doc_string = model.model_version, model.doc_string
    # Of domains of others onnx knows no versions.
    made.ir_version = onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True)
    return made


def _cause(error: Exception) -> str:
    return errors.first_line(str(error).rpartition("failed: ")[2]) or type(error).__name__


def _set_aside(model: onnx.ModelProto, op: str, opset: int) -> int:
    """Put the nodes of an op aside that hold in the opset as they are. Returns: how many."""
    found = [
        node for node in all_nodes(model.graph) if node.op_type == op and node.domain in OWN and _holds(node, opset)
    ]
    for node in found:
        node.domain = _ASIDE
    return len(found)


def _holds(node: onnx.NodeProto, opset: int) -> bool:
    """Whether an op of the opset takes a node as it is."""
    if node.op_type in _CHANGED or not onnx.defs.has(node.op_type, opset, ""):
        return False
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    return (
        all(one.name in schema.attributes for one in node.attribute)
        and schema.min_input <= len(node.input) <= schema.max_input
        and schema.min_output <= len(node.output) <= schema.max_output
    )
