"""Adds a signature to the objects of a SavedModel, from which `tf.saved_model.load` makes its functions. Works on protos alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorflow.core.protobuf import meta_graph_pb2

from tftrt_tools.models.savedmodel.job import graph
from tftrt_tools.tftrt.wrapping.job import functions, main_graph
from tftrt_tools.tftrt.wrapping.job.main_graph import Whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.protobuf import saved_object_graph_pb2, struct_pb2

    from tftrt_tools.models.savedmodel.shapes import InputSpec
    from tftrt_tools.tftrt.wrapping.added import Added
    from tftrt_tools.tftrt.wrapping.job.functions import Traced


def add(
    meta: meta_graph_pb2.MetaGraphDef, added: Added, first: Traced, last: Traced, dtypes: Mapping[str, int], name: str
) -> Whole | None:
    """Add the signature's function, in place; a model without objects (a TF1 export) has none. Args: as of main_graph.add; name: of the
    new function. Returns: the function."""
    objects = meta.object_graph_def
    if not objects.nodes:
        return None
    held = signature_map(meta)
    wrapped = objects.nodes[next(child.node_id for child in held.children if child.local_name == added.of)]
    bare = wrapped.bare_concrete_function
    saved = objects.concrete_functions[bare.concrete_function_name]
    inner = graph.library(meta.graph_def)[bare.concrete_function_name]
    order = sorted(saved.output_signature.dict_value.fields)  # as TensorFlow flattens a dict
    names = [*added.answers.kept, *filter(None, [added.answers.scores])]
    shapes = [main_graph.shape(spec) for spec in added.takes()]
    whole = functions.in_a_row(
        name, first, inner, last, dtypes, shapes, list(bare.argument_keywords), {key: order.index(key) for key in names}
    )
    meta.graph_def.library.function.append(whole)
    concrete = objects.concrete_functions[name]
    concrete.bound_inputs.extend(saved.bound_inputs)
    taken = concrete.canonicalized_input_signature.tuple_value
    taken.values.add().tuple_value.SetInParent()
    fields = taken.values.add().dict_value.fields
    for spec in added.takes():
        _spec(fields[spec.name], spec, dtypes[spec.name])
    kinds = dict(zip(last.outputs, last.dtypes, strict=True))
    for spec in added.gives():
        _spec(concrete.output_signature.dict_value.fields[spec.name], spec, kinds[spec.name])
    held.children.add(node_id=len(objects.nodes), local_name=added.name)
    function = objects.nodes.add().bare_concrete_function
    function.concrete_function_name = name
    function.argument_keywords.extend(dtypes)
    function.allowed_positional_arguments = len(dtypes)
    return Whole(whole, bare.concrete_function_name, len(bare.argument_keywords))


def signature_map(meta: meta_graph_pb2.MetaGraphDef) -> saved_object_graph_pb2.SavedObject:
    """The object that holds the signatures."""
    objects = meta.object_graph_def
    return objects.nodes[next(child.node_id for child in objects.nodes[0].children if child.local_name == "signatures")]


def rename(meta: meta_graph_pb2.MetaGraphDef, old: str, new: str) -> None:
    """Give a signature another name, for servers and for tf.saved_model.load."""
    meta.signature_def[new].CopyFrom(meta.signature_def[old])
    del meta.signature_def[old]
    if meta.object_graph_def.nodes:
        for child in signature_map(meta).children:
            child.local_name = new if child.local_name == old else child.local_name


def _spec(value: struct_pb2.StructuredValue, spec: InputSpec, dtype: int) -> None:
    value.tensor_spec_value.name = spec.name
    value.tensor_spec_value.shape.CopyFrom(main_graph.shape(spec))
    value.tensor_spec_value.dtype = dtype


def unused_name(meta: meta_graph_pb2.MetaGraphDef, name: str) -> str:
    """A name that begins so, and with which no function's name begins."""
    taken = [function.signature.name for function in meta.graph_def.library.function]
    while any(name_taken.startswith(name) for name_taken in taken):
        name += "_"
    return name
