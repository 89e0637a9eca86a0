"""Every private name of TensorFlow that this package uses, in one place.

Checked by running against the CHECKED_VERSIONS. `tests/rooms/base/test_tf_private.py` fails on any other version until someone has checked
these again: the names' existence says nothing about what they do.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import keyword
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf
from tensorflow.compiler.tf2tensorrt import _pywrap_py_utils
from tensorflow.compiler.tf2tensorrt.ops import gen_trt_ops
from tensorflow.core.function.polymorphism import function_type as function_types
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.compiler.tensorrt import trt_convert
from tensorflow.python.eager import wrap_function
from tensorflow.python.framework import convert_to_constants, function_def_to_graph, op_def_registry
from tensorflow.python.framework import ops as ops  # for a test
from tensorflow.python.grappler import cluster, tf_optimizer
from tensorflow.python.util import nest
from tensorflow.tsl.profiler.protobuf import xplane_pb2 as xplane_pb2  # for execution.trace

from tftrt_tools.base import tensorrt_rule

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, op_def_pb2


CHECKED_VERSIONS = ("2.14.1", "2.15.1", "2.16.2", "2.17.1")
# TensorFlow renames a placeholder whose name ends with a slash or begins with an underscore.
_NODE_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*(?<!/)")


class GraphPass(trt_convert.TrtGraphConverterV2):  # type: ignore[misc]
    """TrtGraphConverterV2 without its own loading: one model, loaded once, serves all its signatures."""

    def __init__(self, **parameters: Any) -> None:
        with _own_version_rule():
            super().__init__(**parameters)

    def run(self, meta_graph: meta_graph_pb2.MetaGraphDef) -> graph_pb2.GraphDef:
        """Run grappler with the TensorRT optimizer. Args: meta_graph: MetaGraphDef. Returns: GraphDef."""
        return self._run_conversion(meta_graph)

    def _run_conversion(self, meta_graph_def: meta_graph_pb2.MetaGraphDef) -> graph_pb2.GraphDef:
        # Like the original, without grappler's "layout" optimizer: it acts only where a GPU is visible, and its NCHW convolutions would
        # make the result depend on the converting machine. TensorRT chooses layouts itself when it builds.
        config = config_pb2.ConfigProto()
        rewrite = trt_convert._get_tensorrt_rewriter_config(
            conversion_params=self._conversion_params,
            is_dynamic_op=True,
            use_implicit_batch=not self._use_dynamic_shape,
            profile_strategy=self._profile_strategy,
        )
        kept = [name for name in rewrite.optimizers if name != "layout"]
        del rewrite.optimizers[:]
        rewrite.optimizers.extend(kept)
        config.graph_options.rewrite_options.CopyFrom(rewrite)
        return tf_optimizer.OptimizeGraph(config, meta_graph_def, graph_id=b"tf_graph")


@contextlib.contextmanager
def _own_version_rule() -> Iterator[None]:
    """TensorFlow's check of the loaded TensorRT, less where the user allows an older patch of it."""
    linked, loaded = _versions()
    check = trt_convert._check_trt_version_compatibility
    if tensorrt_rule.stands_in(loaded, linked):
        trt_convert._check_trt_version_compatibility = lambda: None
    try:
        yield
    finally:
        trt_convert._check_trt_version_compatibility = check


def registered_converters() -> set[str]:
    """Op types for which this TensorFlow has a TensorRT converter."""
    return set(_pywrap_py_utils.get_registered_op_converters())


def op_def(name: str) -> op_def_pb2.OpDef:
    """The OpDef of op type `name`. Raises: KeyError for one that this TensorFlow does not know."""
    definition = op_def_registry.get(name)
    if definition is None:
        raise KeyError(name)
    return definition


def tensorrt_versions() -> tuple[str, str]:
    """(linked, loaded) as "8.5.3". Aborts the process where libnvinfer is missing."""
    linked, loaded = (".".join(map(str, version)) for version in _versions())
    return linked, loaded


def tensorrt_loaded() -> str | None:
    """As "8.5.3", None where TensorFlow can load none."""
    return tensorrt_versions()[1] if _pywrap_py_utils.is_tensorrt_enabled() else None


def tensorrt_is_usable() -> bool:
    """Whether TensorFlow can load TensorRT with all that it needs, in a version that goes with it."""
    if not _pywrap_py_utils.is_tensorrt_enabled():
        return False
    linked, loaded = _versions()
    return tensorrt_rule.goes_with(loaded, linked)


def _versions() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(linked, loaded), as tensorrt_versions."""
    return _pywrap_py_utils.get_linked_tensorrt_version(), _pywrap_py_utils.get_loaded_tensorrt_version()


def clear_collections(function: tf.types.experimental.ConcreteFunction) -> None:
    """Empty the collections of a signature's graph: those of a TF1 export name initializers that it does not hold, and grappler would
    refuse it."""
    for name in list(function.graph.collections):
        function.graph.clear_collection(name)


def freeze(
    function: tf.types.experimental.ConcreteFunction, graph_def: graph_pb2.GraphDef | None = None
) -> tuple[graph_pb2.GraphDef, list[str], list[str], dict[str, Any]]:
    """The graph of a function with constants in place of its variables, and its calls inlined.

    Args:
      function: a ConcreteFunction of a loaded SavedModel.
      graph_def: its graph, changed by the caller; None for its own.
    Returns: (GraphDef, input tensor names, output tensor names, {placeholder: captured resource}).
    """
    clear_collections(function)
    # convert_variables_to_constants_v2 would wrap the graph into a function, which takes most of its time, and we would unwrap it.
    with graph_in_place(function.graph, graph_def):
        data = convert_to_constants._FunctionConverterDataInEager(
            func=function, lower_control_flow=True, aggressive_inlining=False
        )
    graph_def, converted = convert_to_constants._replace_variables_by_constants(data)
    gone = {function.graph.internal_captures[index].name for index in converted}
    remaining = [tensor for tensor in function.inputs if tensor.name not in gone]
    # The remaining captures are lookup tables; no caller could feed them as plain inputs.
    tables = {tensor.name for tensor in remaining if tensor.dtype == tf.resource}
    captures = {inner.name.split(":")[0]: outer for outer, inner in function.graph.captures if inner.name in tables}
    for node in graph_def.node:
        node.device = ""
    inputs = [tensor.name for tensor in remaining if tensor.name not in tables]
    return graph_def, inputs, [tensor.name for tensor in function.outputs], captures


@contextlib.contextmanager
def graph_in_place(graph: tf.Graph, graph_def: graph_pb2.GraphDef | None) -> Iterator[None]:
    """Let a function's graph return `graph_def` as its own."""
    if graph_def is not None:
        graph.as_graph_def = lambda *_, **__: graph_def
    try:
        yield
    finally:
        if graph_def is not None:
            del graph.as_graph_def


def meta_graph(graph_def: graph_pb2.GraphDef, preserved: Sequence[str]) -> meta_graph_pb2.MetaGraphDef:
    """A MetaGraphDef of `graph_def` in which grappler keeps `preserved` (node or tensor names) as they are."""
    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    meta.collection_def["train_op"].node_list.value.extend(preserved)
    return meta


def function_body(function: function_pb2.FunctionDef) -> tuple[graph_pb2.GraphDef, dict[str, str]]:
    """A FunctionDef's body as (GraphDef with a Placeholder for each argument, {reference inside the function: tensor "node:port"})."""
    result: tuple[graph_pb2.GraphDef, dict[str, str]] = function_def_to_graph.function_def_to_graph_def(function)
    return result


def optimized_as_on_gpu(graph_def: graph_pb2.GraphDef, optimizer: str, fetched: Sequence[str]) -> graph_pb2.GraphDef:
    """One grappler optimizer ("layout", "constfold") on a graph, as TF-TRT runs it when it builds an engine on a GPU. Needs no GPU.

    The virtual GPU is older than Volta: only for those "layout" turns NHWC into NCHW by itself; TF-TRT asks for that on every GPU.

    TF-TRT's optimizers know the shapes of a segment's arguments (_output_shapes of its _Arg nodes). Python erases that attribute on the
    way there, and the optimizers do not believe a Placeholder's shape. So an op with a known output shape replaces the argument.

    Args: graph_def: left as it is; fetched: nodes whose results must stay.
    Returns: GraphDef, with a device on every node.
    """
    device = device_properties_pb2.NamedDevice(name="/job:localhost/replica:0/task:0/device:GPU:0")
    device.properties.type = "GPU"
    device.properties.environment["architecture"] = "6.0"
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.optimizers.append(optimizer)
    rewrite.min_graph_nodes = -1
    rewrite.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    rewrite.fail_on_optimizer_errors = True
    rewrite.experimental_disable_folding_quantization_emulation = True
    meta = meta_graph(graph_def, fetched)
    arguments = {}
    for node in meta.graph_def.node:
        node.device = device.name
        if node.op == "_Arg" and "_output_shapes" in node.attr and node.attr["_output_shapes"].list.shape:
            arguments[node.name] = copy.deepcopy(node)
            _source_of_shape(node)
    try:
        optimized = tf_optimizer.OptimizeGraph(config, meta, cluster=cluster.Cluster(devices=[device]))
    except tf.errors.InvalidArgumentError:
        # "layout" fails on a SelectV2 of a scalar, for example. Grappler then keeps the graph, unless it is told to fail.
        optimized = meta.graph_def
    for node in optimized.node:
        if node.name in arguments:
            node.CopyFrom(arguments[node.name])
    # The optimizer keeps the order of the nodes and adds new ones at the end; only the way back to Python sorts them.
    places = {node.name: place for place, node in enumerate(graph_def.node)}
    optimized.node.sort(key=lambda node: places.get(node.name, len(places)))
    return optimized


def _source_of_shape(node: node_def_pb2.NodeDef) -> None:
    """Turn the _Arg into an op that gives a tensor of its shape, and that no optimizer folds or feeds."""
    dtype, shape = node.attr["T"].type, node.attr["_output_shapes"].list.shape[0]
    node.op = "ImmutableConst"
    node.attr.clear()
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(shape)
    node.attr["memory_region_name"].s = b"argument"


def argument_names(function: tf.types.experimental.ConcreteFunction) -> tuple[str, ...]:
    """The names of a signature's inputs, as its SignatureDef has them, in the order of the ConcreteFunction's arguments.

    structured_input_signature will not do: it turns names into Python's ("input.1" into "input_1"), and has another order.
    """
    return tuple(map(tf.compat.as_str, function._arg_keywords))


def call(function: tf.types.experimental.ConcreteFunction, feed: Mapping[str, Any]) -> dict[str, Any]:
    """Call a signature. Args: function: ConcreteFunction. feed: {input: tensor}, by argument_names. Returns: what the function does."""
    names = argument_names(function)
    if len(set(map(function_types.sanitize_arg_name, names))) == len(names):
        answers: dict[str, Any] = function(**feed)
        return answers
    # TensorFlow gives "input.1" and "input/1" the same name, and then cannot tell the two apart.
    result: dict[str, Any] = function._call_flat([feed[name] for name in names], function.captured_inputs)
    return result


def session_callable(session: Any, feeds: Sequence[str], fetches: Sequence[str]) -> Any:
    """Session::RunCallable of a tf.compat.v1.Session: a function of NumPy arrays for the tensors `feeds` that returns those of `fetches`.

    Python hands over arrays of the host alone, so feed_devices and fetch_devices have no use here. Session.make_callable with a feed_list
    is Session.run.
    """
    return session._make_callable_from_options(config_pb2.CallableOptions(feed=feeds, fetch=fetches))


@contextlib.contextmanager
def names_that_can_be_saved(functions: Mapping[str, Any]) -> Iterator[dict[str, dict[str, str]]]:
    """Rename, for a while, inputs that TensorFlow cannot save: names that no node may have ("x:0", "a b"), two names that TensorFlow
    makes equal, and words of Python ("class"), which 2.17 refuses.

    Args: functions: {signature: ConcreteFunction}. Those with such inputs have other names inside the context.
    Yields: {signature: {name to save it with: its name}}.
    """
    renamed: dict[str, dict[str, str]] = {}
    # Signatures may share a function.
    for signature, names in {signature: argument_names(function) for signature, function in functions.items()}.items():
        sanitized = set(map(function_types.sanitize_arg_name, names))
        possible = all(_NODE_NAME.fullmatch(name) and not keyword.iskeyword(name) for name in names)
        if len(sanitized) < len(names) or not possible:
            renamed[signature] = {f"argument_{number}": name for number, name in enumerate(names)}
            functions[signature]._arg_keywords = list(renamed[signature])
    try:
        yield renamed
    finally:
        for signature, saved_as in renamed.items():
            functions[signature]._arg_keywords = list(saved_as.values())


class FrozenSignature(Protocol):
    """The part of a conversion.job.graph_pass.Frozen that `rebuild` reads."""

    @property
    def original(self) -> Any: ...
    @property
    def inputs(self) -> list[str]: ...
    @property
    def outputs(self) -> list[str]: ...
    @property
    def captures(self) -> dict[str, Any]: ...
    @property
    def input_names(self) -> tuple[str, ...]: ...


def rebuild(graph_def: graph_pb2.GraphDef, frozen: FrozenSignature) -> Any:
    """A ConcreteFunction over `graph_def` with the signature and names of `frozen`.

    It takes its inputs by name, or as tensors in the order of `frozen`.input_names.
    """
    original = frozen.original
    function = wrap_function.function_from_graph_def(graph_def, frozen.inputs, frozen.outputs, frozen.captures)
    with function.graph.as_default():  # a ragged tensor of rows that are equally long computes how many there are
        function.graph.structured_outputs = nest.pack_sequence_as(
            original.graph.structured_outputs, function.graph.structured_outputs, expand_composites=True
        )
    # This list has the names and the order of the arguments; without a structured signature TensorFlow reads nothing else for them.
    function._arg_keywords = list(frozen.input_names)
    function._num_positional_args = len(frozen.input_names)
    function.graph.structured_input_signature = None
    function._function_type = function_types.FunctionType((), return_annotation=original.function_type.output)
    return function


def running(graph_def: graph_pb2.GraphDef, inputs: Sequence[str], node: str) -> Any:
    """A function that takes tensors for `inputs` ("node:0"), runs the op `node` and returns nothing."""
    return wrap_function.function_from_graph_def(graph_def, list(inputs), [node])


def serialize_engines(name: str, path: str | os.PathLike[str]) -> bool:
    """Write the built engines of engine op `name` to `path` and drop them from memory. Returns: False where none was built."""
    try:
        gen_trt_ops.serialize_trt_resource(
            resource_name=name, filename=os.fspath(path), delete_resource=True, save_gpu_specific_engines=True
        )
    except tf.errors.NotFoundError:
        return False
    return True


def calibration_table(name: str) -> bytes | None:
    """End the calibration of engine op `name`, which builds its engine too. Returns: TensorRT's table (bytes); None where there is none."""
    try:
        result: bytes | None = gen_trt_ops.get_calibration_data_op(name).numpy()
        return result
    except (tf.errors.UnknownError, tf.errors.NotFoundError):
        return None


def engine_resource(name: str, path: str | os.PathLike[str], maximum_cached_engines: int) -> Any:
    """The trackable object that makes a SavedModel carry the engines in `path`."""
    return trt_convert._TRTEngineResource(name, os.fspath(path), maximum_cached_engines)


_REGISTRY = "_ZN10tensorflow8tensorrt7convert22GetTimingCacheRegistryEv"
_STRING = "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_LOOK_UP = f"_ZN10tensorflow8tensorrt7convert19TimingCacheRegistry6LookUpE{_STRING}PN8nvinfer114IBuilderConfigE"
_UPSERT = f"_ZN10tensorflow8tensorrt7convert19TimingCacheRegistry6UpsertE{_STRING}PN8nvinfer112ITimingCacheE"
# Machine code of the virtual calls inside these two functions: createTimingCache in one, serialize, size and data in the other.
_LOOK_UP_CALLS = (b"\xff\x90\x60\x01\x00\x00",)
_UPSERT_CALLS = (b"\xff\x50\x10", b"\xff\x50\x18", b"\xff\x50\x08")
_LOOK_UP_BYTES, _UPSERT_BYTES = 0x1C0, 0x270
_CREATE_TIMING_CACHE, _SLOTS = 0x160 // 8, 64
_DEFAULT_CACHE = b"default_cache"


class TimingCache:
    """The cache of kernel times that TF-TRT keeps in this process and hands to TensorRT in every build.

    TF-TRT has no Python interface to it, but its library exports the registry that holds it. The registry's functions take objects of
    TensorRT. They get objects made here, whose virtual tables hold only the functions that are called. This fits only the wheel of
    CHECKED_VERSIONS, so the machine code of both functions is compared first.
    """

    def __init__(self) -> None:
        """Raises: RuntimeError if this TensorFlow has no such registry, or a different one."""
        self._library = ctypes.CDLL(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2"))
        if tf.__version__ not in CHECKED_VERSIONS or not all(
            hasattr(self._library, name) for name in (_REGISTRY, _LOOK_UP, _UPSERT)
        ):
            raise RuntimeError("this TensorFlow's timing cache is not known")
        for name, size, calls in ((_LOOK_UP, _LOOK_UP_BYTES, _LOOK_UP_CALLS), (_UPSERT, _UPSERT_BYTES, _UPSERT_CALLS)):
            address = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0
            if not all(call in ctypes.string_at(address, size) for call in calls):
                raise RuntimeError("this TensorFlow's timing cache has another form")
        self._registry = self._function(_REGISTRY, ctypes.c_void_p)()

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, name)
        function.restype, function.argtypes = result, arguments
        return function

    def read(self) -> bytes:
        """The serialized cache (bytes); b"" where nothing was built yet."""
        names = []

        def create_timing_cache(_: int | None, data: int | None, size: int) -> None:
            names.append(ctypes.string_at(data, size) if data else b"")

        create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(
            create_timing_cache
        )
        name, config, result = _String(_DEFAULT_CACHE), _Object({_CREATE_TIMING_CACHE: create}), (ctypes.c_void_p * 8)()
        look_up = self._function(
            _LOOK_UP, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
        )
        look_up(ctypes.addressof(result), self._registry, name.address, config.address)
        return names[0] if names else b""

    def write(self, content: bytes) -> None:
        """Replace the cache by a serialized one (bytes).

        This TensorRT must have written it for this GPU: if TensorRT refuses it, TF-TRT ends the process.
        """
        held = ctypes.create_string_buffer(content, len(content))
        pointer = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        size = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(lambda _: len(content))
        nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
        memory = _Object({2: pointer(lambda _: ctypes.addressof(held)), 3: size}, own={0: nothing, 1: nothing})
        name, cache = _String(_DEFAULT_CACHE), _Object({2: pointer(lambda _: memory.address)})
        upsert = self._function(_UPSERT, None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        upsert(self._registry, name.address, cache.address)


class _Object:
    """An object with TensorRT's interface: its own virtual table (the destructors), and an implementation with a virtual table, {slot:
    function}."""

    def __init__(self, implementation: Mapping[int, Any], own: Mapping[int, Any] | None = None) -> None:
        # What C reads has to stay alive as long as this object.
        self._functions = own, implementation
        self._tables = self._table(own or {}), self._table(implementation)
        self._implementation = (ctypes.c_void_p * 1)(ctypes.addressof(self._tables[1]))
        self._object = (ctypes.c_void_p * 2)(ctypes.addressof(self._tables[0]), ctypes.addressof(self._implementation))
        self.address = ctypes.addressof(self._object)

    @staticmethod
    def _table(functions: Mapping[int, Any]) -> ctypes.Array[ctypes.c_void_p]:
        table = (ctypes.c_void_p * _SLOTS)()
        for slot, function in functions.items():
            table[slot] = ctypes.cast(function, ctypes.c_void_p).value
        return table


class _String:
    """A std::string of GNU's library, for reading."""

    def __init__(self, text: bytes) -> None:
        self._text = ctypes.create_string_buffer(text)
        self._object = (ctypes.c_uint64 * 4)(ctypes.addressof(self._text), len(text), len(text), 0)
        self.address = ctypes.addressof(self._object)
