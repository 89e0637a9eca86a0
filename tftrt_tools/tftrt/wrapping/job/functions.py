"""Functions of TensorFlow as FunctionDefs with names of their own, and the function that calls three of them in a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from tftrt_tools.models.savedmodel.job import graph
from tftrt_tools.models.savedmodel.shapes import InputSpec


@dataclasses.dataclass(frozen=True)
class Traced:
    """A traced function. name: of its FunctionDef; outputs: their names, in the order in which it returns them; definitions: its
    FunctionDef and those that it calls; dtypes: DataType numbers of the outputs."""

    name: str
    outputs: tuple[str, ...]
    definitions: tuple[function_pb2.FunctionDef, ...]
    dtypes: tuple[int, ...]


def traced(
    function: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]], specs: Sequence[InputSpec], name: str
) -> Traced:
    """Trace a function of {input: tensor}. Args: specs: of its arguments, in order. name: prefix of all names, which no other function of
    the model has. Raises: what the function raises."""

    def positional(*tensors: tf.Tensor) -> list[tf.Tensor]:
        found = function({spec.name: tensor for spec, tensor in zip(specs, tensors, strict=True)})
        names[:] = sorted(found)  # tf.saved_model.load takes the results of a function in this order
        return [tf.identity(found[name]) for name in names]

    names: list[str] = []
    signature = [tf.TensorSpec(spec.shape, spec.dtype, name=f"argument_{number}") for number, spec in enumerate(specs)]
    concrete = tf.function(positional, autograph=False).get_concrete_function(*signature)
    whole = graph_pb2.GraphDef()
    whole.library.CopyFrom(concrete.graph.as_graph_def().library)
    whole.library.function.add().CopyFrom(concrete.function_def)
    renamed = {
        library_function.signature.name: f"{name}_{number}"
        for number, library_function in enumerate(whole.library.function)
    }
    graph.rename(whole, {}, renamed)
    definitions = tuple(whole.library.function)
    return Traced(
        definitions[-1].signature.name,
        tuple(names),
        definitions,
        tuple(argument.type for argument in definitions[-1].signature.output_arg),
    )


def call(
    name: str, function: str, inputs: Sequence[str], taken: Sequence[int], given: Sequence[int]
) -> node_def_pb2.NodeDef:
    """A call of a function. Args: name: of the node. inputs: references. taken, given: DataType numbers."""
    node = node_def_pb2.NodeDef(name=name, op="StatefulPartitionedCall", input=inputs)
    node.attr["Tin"].list.type.extend(taken)
    node.attr["Tout"].list.type.extend(given)
    node.attr["Tin"].list.SetInParent()
    node.attr["f"].func.name = function
    for key in ("config", "config_proto", "executor_type"):
        node.attr[key].s = b""
    return node


def in_a_row(
    name: str,
    first: Traced,
    inner: function_pb2.FunctionDef,
    last: Traced,
    arguments: Mapping[str, int],
    shapes: Sequence[Any],
    fed: Sequence[str],
    returned: Mapping[str, int],
) -> function_pb2.FunctionDef:
    """A function that calls `first`, the wrapped signature's function, and `last`.

    Args: arguments: {input: DataType number} of `first`; shapes: their TensorShapeProtos. inner: takes `fed`, by the names of `first`'s
      outputs, and then its captures. returned: {output of the wrapped signature: its place among the results of `inner`}, of those that
      `last` takes first, in order; what else `last` takes comes from `first`.
    """
    function = function_pb2.FunctionDef()
    function.signature.name = name
    function.signature.is_stateful = True
    own = {key: f"argument_{number}" for number, key in enumerate(arguments)}
    for number, ((key, dtype), shape) in enumerate(zip(arguments.items(), shapes, strict=True)):
        function.signature.input_arg.add(name=own[key], type=dtype)
        function.arg_attr[number].attr["_output_shapes"].list.shape.add().CopyFrom(shape)
        function.arg_attr[number].attr["_user_specified_name"].s = key.encode()
    held = []
    for number, captured in enumerate(inner.signature.input_arg[len(fed) :]):
        held.append(f"captured_{number}")
        function.signature.input_arg.add(name=held[-1], type=captured.type)
        function.arg_attr[len(own) + number].CopyFrom(inner.arg_attr[len(fed) + number])
    before = {key: f"before:output:{place}" for place, key in enumerate(first.outputs)}
    inner_types = [argument.type for argument in inner.signature.output_arg]
    function.node_def.append(call("before", first.name, list(own.values()), list(arguments.values()), first.dtypes))
    function.node_def.append(
        call(
            "wrapped",
            inner.signature.name,
            [*(before[key] for key in fed), *held],
            [argument.type for argument in inner.signature.input_arg],
            inner_types,
        )
    )
    beside = [key for key in first.outputs if key not in fed]
    kinds = dict(zip(first.outputs, first.dtypes, strict=True))
    function.node_def.append(
        call(
            "behind",
            last.name,
            [*(f"wrapped:output:{place}" for place in returned.values()), *(before[key] for key in beside)],
            [*(inner_types[place] for place in returned.values()), *(kinds[key] for key in beside)],
            last.dtypes,
        )
    )
    # Without a control edge from a call TensorFlow does not inline a function that reads variables.
    function.node_def.add(name="done", op="NoOp", input=["^before", "^wrapped", "^behind"])
    for place, dtype in enumerate(last.dtypes):
        result = function.node_def.add(name=f"answer_{place}", op="Identity", input=[f"behind:output:{place}", "^done"])
        result.attr["T"].type = dtype
        function.signature.output_arg.add(name=f"result_{place}", type=dtype)
        function.ret[f"result_{place}"] = f"answer_{place}:output:0"
    function.control_ret["done"] = "done"
    function.signature.control_output.append("done")
    return function
