"""A frozen graph (GraphDef), or a checkpoint with its MetaGraph, exported to a SavedModel in a child process (`job`)."""

import pathlib

import tensorflow as tf
from google.protobuf import message, text_format

from tftrt_tools.base import errors, op_libraries
from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel.job import loading
from tftrt_tools.models.sources import kinds
from tftrt_tools.models.sources.job import cut, graph_ends
from tftrt_tools.models.sources.job.graph_ends import Ends
from tftrt_tools.models.sources.opened import GraphExported, GraphRequest

_v1 = tf.compat.v1
_VARIABLES = ("VariableV2", "Variable", "VarHandleOp", "TemporaryVariable")
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def job(request: GraphRequest) -> GraphExported:
    """The job opened.export_graph."""
    op_libraries.load()
    source = request.source
    flags = graph_ends.Flags.of(request.inputs, request.outputs)
    if request.kind == kinds.GRAPH:
        graph_def = _read(source)
        ends = graph_ends.of(_imported(source, cut.portable(graph_def)), flags, source, several=True)
        graph_def = cut.cut(graph_def, ends)
        _check_frozen(source, graph_def)
    else:
        graph_def, ends = _restored(source, flags)
        graph_def = cut.cut(graph_def, ends)
    _check_read(graph_def, ends)
    progress.say("exporting the graph")
    _save(source, graph_def, ends, request.output)
    return GraphExported(
        inputs=tuple(end.text() for end in ends.inputs),
        outputs=tuple(output.text() for output in ends.outputs),
        chosen=not flags.complete,
    )


def _read(path: str) -> tf.compat.v1.GraphDef:
    """The GraphDef of a file, in binary form or as text. Raises: TftrtError."""
    graph_def, data = _v1.GraphDef(), pathlib.Path(path).read_bytes()
    try:
        if pathlib.Path(path).suffix.lower() == ".pbtxt":
            text_format.Parse(data, graph_def)
        else:
            graph_def.ParseFromString(data)
    except (message.DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise errors.TftrtError(
            f"{path} is no graph: {' '.join(str(error).split())[:200]}", _other_proto(data)
        ) from None
    if not graph_def.node:
        raise errors.TftrtError(f"{path} is no graph: it has no node", _other_proto(data))
    return graph_def


def _other_proto(data: bytes) -> str:
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        if saved_model_pb2.SavedModel.FromString(data).meta_graphs:
            return "it is the proto of a SavedModel: put it into a directory, as saved_model.pb, with the folder `variables` beside it"
    except message.DecodeError:
        pass
    return "copy it again, or give a SavedModel directory"


def _imported(source: str, graph_def: tf.compat.v1.GraphDef) -> tf.Graph:
    with tf.Graph().as_default() as graph:
        try:
            tf.import_graph_def(graph_def, name="")
        except (ValueError, TypeError, KeyError, tf.errors.OpError) as error:
            raise loading.unreadable(source, error) from None
    return graph


def _check_frozen(source: str, graph_def: tf.compat.v1.GraphDef) -> None:
    names = [node.name for node in graph_def.node if node.op in _VARIABLES]
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise errors.TftrtError(
            f"{source} is not frozen: it has variables ({names[0]}{more}), and their values are not in the file",
            "give the checkpoint's prefix, with its .meta file beside it, or a SavedModel directory",
        )


def _restored(source: str, flags: graph_ends.Flags) -> tuple[tf.compat.v1.GraphDef, Ends]:
    """(GraphDef with the checkpoint's values as constants, its inputs and outputs)."""
    prefix = source + "/" if pathlib.Path(source).is_dir() else source
    _check_complete(source, prefix)
    meta = _meta_graph(prefix + ".meta")
    # Collections (queues, summaries) are not read: the graph and the names of its restoring nodes are enough.
    graph = _imported(prefix + ".meta", cut.portable(meta.graph_def))
    ends = graph_ends.of(graph, flags, source, several=False)
    with graph.as_default():
        with _v1.Session(graph=graph) as session:
            progress.say("restoring the checkpoint")
            try:
                if meta.saver_def.restore_op_name:
                    _v1.train.Saver(saver_def=meta.saver_def).restore(session, prefix)
                whole = graph.as_graph_def()
                nodes = cut.kept(whole, [output.tensor.node for output in ends.outputs])
                frozen = _v1.graph_util.convert_variables_to_constants(session, whole, nodes)
            except (ValueError, tf.errors.OpError) as error:
                raise errors.TftrtError(
                    f"the checkpoint {source} cannot be restored: {loading.first_line(error)}",
                    "copy all of its files again: .index, .data-… and .meta are of one step",
                ) from None
    return frozen, ends


def _meta_graph(path: str) -> tf.compat.v1.MetaGraphDef:
    meta = _v1.MetaGraphDef()
    try:
        meta.ParseFromString(pathlib.Path(path).read_bytes())
    except message.DecodeError as error:
        raise errors.TftrtError(
            f"{path} is truncated or damaged ({' '.join(str(error).split())})", "copy it again"
        ) from None
    return meta


def _check_complete(source: str, prefix: str) -> None:
    if not pathlib.Path(prefix + ".meta").is_file():
        weights = _OBJECT_GRAPH in _variables(source, prefix)
        signature = (
            "build the model in Python, load them (model.load_weights or tf.train.Checkpoint), and give what model.save(DIR) writes"
            if weights
            else f"copy {prefix}.meta as well, which tf.train.Saver writes, or restore it in Python and give a SavedModel"
        )
        raise errors.TftrtError(
            f"the checkpoint {source} holds weights only: the graph, {prefix}.meta, is not beside it", signature
        )


def _variables(source: str, prefix: str) -> list[str]:
    try:
        return [name for name, _ in tf.train.list_variables(prefix)]
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise errors.TftrtError(
            f"the checkpoint {source} is damaged: {loading.first_line(error)}", "copy all of its files again"
        ) from None


def _check_read(graph_def: tf.compat.v1.GraphDef, ends: Ends) -> None:
    there = {node.name for node in graph_def.node}
    for end, name in cut.fed(ends):
        if name.split(":")[0] not in there:
            raise errors.UsageError(
                f"--inputs: the outputs do not depend on {end.tensor.flag}", "leave it out of --inputs"
            )


def _save(source: str, graph_def: tf.compat.v1.GraphDef, ends: Ends, output: str) -> None:
    graph = _imported(source, graph_def)
    with graph.as_default():
        infos = [
            {end.key: _v1.saved_model.build_tensor_info(graph.get_tensor_by_name(name)) for end, name in pairs}
            for pairs in (cut.fed(ends), cut.fetched(ends))
        ]
        signature = _v1.saved_model.build_signature_def(
            *infos, method_name=_v1.saved_model.signature_constants.PREDICT_METHOD_NAME
        )
        tables = [graph.get_operation_by_name(name) for name in cut.initializers(graph_def)]
        with _v1.Session(graph=graph) as session:
            builder = _v1.saved_model.Builder(output)
            builder.add_meta_graph_and_variables(
                session, ["serve"], {"serving_default": signature}, main_op=tf.group(*tables)
            )
            builder.save()
