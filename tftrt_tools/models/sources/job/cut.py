"""A GraphDef cut to what lies between its inputs and outputs. Nodes are edited as protos."""

import tensorflow as tf

from tftrt_tools.models.sources.job.graph_ends import End, Ends

_TABLE_INITIALIZERS = (
    "InitializeTable",
    "InitializeTableV2",
    "InitializeTableFromTextFile",
    "InitializeTableFromTextFileV2",
    "LookupTableImport",
    "LookupTableImportV2",
)


def portable(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """A copy without devices and without shapes that were inferred elsewhere."""
    copy = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    for node in copy.node:
        node.device = ""
        for name in ("_output_shapes", "_class"):
            node.attr.pop(name, None)
    return copy


def cut(graph_def: tf.compat.v1.GraphDef, ends: Ends) -> tf.compat.v1.GraphDef:
    """The part of the graph that the outputs need, without what comes before the inputs: these become placeholders of the requested
    shapes."""
    replaced = _with_placeholders(portable(graph_def), ends.inputs)
    return _extracted(replaced, kept(replaced, [name.split(":")[0] for _, name in fetched(ends)]))


def kept(graph_def: tf.compat.v1.GraphDef, outputs: list[str]) -> list[str]:
    """Names of the nodes whose ancestors are all needed: the outputs, and the nodes that fill the tables they read."""
    needed = {node.name for node in _extracted(graph_def, outputs).node}
    filled = (node.name for node in graph_def.node if node.op in _TABLE_INITIALIZERS and _node(node.input[0]) in needed)
    return list(dict.fromkeys([*outputs, *filled]))


def fed(ends: Ends) -> list[tuple[End, str]]:
    """(input, name of the tensor that is fed after the cut) of each."""
    return [(one, one.tensor.name if one.placeholder else f"{_stand_in(one)}:0") for one in ends.inputs]


def fetched(ends: Ends) -> list[tuple[End, str]]:
    """(output, name of the tensor that is fetched after the cut) of each. A tensor that is fed as well is fetched from its placeholder."""
    names = {one.tensor.name: name for one, name in fed(ends)}
    return [(one, names.get(one.tensor.name, one.tensor.name)) for one in ends.outputs]


def initializers(graph_def: tf.compat.v1.GraphDef) -> list[str]:
    """Names of the nodes that fill lookup tables."""
    return [node.name for node in graph_def.node if node.op in _TABLE_INITIALIZERS]


def _extracted(graph_def: tf.compat.v1.GraphDef, names: list[str]) -> tf.compat.v1.GraphDef:
    return tf.compat.v1.graph_util.extract_sub_graph(graph_def, list(dict.fromkeys(names)))


def _node(reference: str) -> str:
    return reference.lstrip("^").split(":")[0]


def _stand_in(end: End) -> str:
    return f"tftrt_input/{end.tensor.node}/{end.tensor.port}"


def _with_placeholders(graph_def: tf.compat.v1.GraphDef, inputs: tuple[End, ...]) -> tf.compat.v1.GraphDef:
    """The graph, changed: each input is a placeholder of its shape, and what reads it reads that."""
    nodes = {node.name: node for node in graph_def.node}
    references = {}
    for end in inputs:
        if end.placeholder:
            placeholder = nodes[end.tensor.node]
        else:
            placeholder = graph_def.node.add(name=_stand_in(end), op="Placeholder")
            placeholder.attr["dtype"].type = tf.as_dtype(end.dtype).as_datatype_enum
            references[end.tensor.name] = placeholder.name
        if not end.placeholder or end.tensor.shape is not None:
            placeholder.attr["shape"].shape.CopyFrom(tf.TensorShape(end.shape).as_proto())
    for node in graph_def.node if references else ():
        _redirect(node, references)
    return graph_def


def _redirect(node: tf.compat.v1.NodeDef, references: dict[str, str]) -> None:
    """Let a node read {tensor: node that replaces it}, and drop its control inputs from nodes that are cut off."""
    cut_off = {name.split(":")[0] for name in references}
    new = []
    for source in node.input:
        if source.startswith("^"):
            new += [] if source[1:] in cut_off else [source]
        else:
            new.append(references.get(source if ":" in source else source + ":0", source))
    del node.input[:]
    node.input.extend(new)
