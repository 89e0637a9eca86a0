"""What reaches each engine op for given calls of the signature: the shapes that its engines are built for."""

import tensorflow as tf

from tftrt_tools import errors, tf_private
from tftrt_tools.engine_cache.key import Fed
from tftrt_tools.execution import inputs as random_inputs
from tftrt_tools.savedmodel import graph, inline, loading
from tftrt_tools.savedmodel import shapes as shape_grammar


def of_calls(frozen, graph_def, specs, calls):
    """Find the inputs of every engine op of the main graph.

    Shapes come from TensorFlow's shape inference; where it does not know them, or an input may be a shape tensor, whose values count,
    the graph is run natively on random inputs (seed 0).

    Args: frozen: graph_pass.Frozen. graph_def: its converted graph. specs: [InputSpec]. calls: [{input: shape}].
    Returns: {engine: ((Fed, …) of each call)}; an engine op inside a function is missing: its shapes can differ from run to run.
    Raises: TftrtError for a call that the model refuses.
    """
    inlined, _ = inline.inline_segments(graph_def)
    sources = {graph.engine_name(node.name): [_with_port(one) for one in node.input if not one.startswith("^")]
               for node in graph_def.node if node.op == graph.ENGINE_OP}
    wanted = list(dict.fromkeys(name for names in sources.values() for name in names))
    known = [_inferred(frozen, inlined, wanted, call) for call in calls]
    unknown = [name for name in wanted if any(fed[name] is None for fed in known)]
    if unknown:
        function = tf_private.fetching(inlined, frozen, unknown)
        for fed, call in zip(known, calls, strict=True):
            arrays = random_inputs.random(specs, call, seed=0)
            try:
                values = function(*(tf.constant(arrays[name]) for name in frozen.input_names))
            except tf.errors.OpError as error:
                raise _refused(call, error) from None
            fed.update({name: Fed.of(value.numpy()) for name, value in zip(unknown, values, strict=True)})
    return {engine: tuple(tuple(fed[name] for name in names) for fed in known) for engine, names in sources.items()}


def _with_port(source):
    return source if ":" in source else source + ":0"


def _inferred(frozen, inlined, wanted, call):
    """{tensor: Fed, or None where only running the graph tells}."""
    shapes = dict(zip(frozen.inputs, (call[name] for name in frozen.input_names), strict=True))
    with tf.Graph().as_default() as scratch:
        dtypes = {node.name: node.attr["dtype"].type for node in inlined.node if node.op == "Placeholder"}
        feeds = {name: tf.compat.v1.placeholder(dtypes[name.split(":")[0]], shape) for name, shape in shapes.items()}
        try:
            tf.graph_util.import_graph_def(inlined, input_map=feeds, name="")
        except ValueError as error:
            raise _refused(call, error) from None
        tensors = {name: feeds[name] if name in feeds else scratch.get_tensor_by_name(name) for name in wanted}
    return {name: _fed(tensor) for name, tensor in tensors.items()}


def _refused(call, error):
    return errors.TftrtError(f"the model fails at the declared shapes {shape_grammar.call_text(call)}: {loading.first_line(error)}",
                             "check --shapes")


def _fed(tensor):
    if not tensor.shape.is_fully_defined():
        return None
    shape = tuple(tensor.shape.as_list())
    may_be_shape_tensor = tensor.dtype == tf.int32 and len(shape) <= 1
    return None if may_be_shape_tensor else Fed(shape)
