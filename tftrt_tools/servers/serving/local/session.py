"""A SavedModel, loaded and run as TensorFlow Serving does it: C++ loader, Session::Run, run options with a deadline."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tftrt_tools.base import op_libraries
from tftrt_tools.servers.serving.local import c_api, failure, tf_tensors
from tftrt_tools.servers.serving.local.servable import Array


class Session:
    """One loaded SavedModel.

    Args:
      path: directory of the SavedModel. tags: of the meta graph. config: serialized ConfigProto, or b"".

    Attributes:
      signatures: {name: SignatureDef}, all that the file has.

    Raises: Failure with TensorFlow's code and text.
    """

    def __init__(self, path: object, tags: Sequence[str] = ("serve",), config: bytes = b"") -> None:
        from tensorflow.core.protobuf import meta_graph_pb2

        _load_op_libraries()
        library = c_api.library()
        self._session: Any = None
        self._operations: dict[str, c_api.Output] = {}
        self._known: dict[tuple[str, ...], Any] = {}
        self._lock = threading.Lock()
        self._graph = library.TF_NewGraph()
        options, buffer = library.TF_NewSessionOptions(), library.TF_NewBuffer()
        try:
            if config:
                _checked(lambda status: library.TF_SetConfig(options, config, len(config), status))
            names = (ctypes.c_char_p * len(tags))(*(tag.encode() for tag in tags))
            self._session = _checked(
                lambda status: library.TF_LoadSessionFromSavedModel(
                    options, None, str(path).encode(), names, len(tags), self._graph, buffer, status
                )
            )
            content = c_api.Buffer.from_address(buffer)
            meta_graph = meta_graph_pb2.MetaGraphDef.FromString(ctypes.string_at(content.data, content.length))
        except failure.Failure:
            library.TF_DeleteGraph(self._graph)
            raise
        finally:
            library.TF_DeleteBuffer(buffer)
            library.TF_DeleteSessionOptions(options)
        self.signatures: Mapping[str, Any] = dict(meta_graph.signature_def)

    def run(self, feeds: Mapping[str, Array], fetches: Sequence[str], timeout_ms: int = 0) -> list[Array]:
        """Args: feeds: {tensor name: ndarray}; fetches: [tensor name]; timeout_ms: 0 for none.

        Returns: [ndarray], one for each fetch; strings are bytes in object arrays.
        Raises: Failure with TensorFlow's code and text.
        """
        quick = c_api.quick()
        handles: list[Any] = []
        inputs, outputs = self._places(tuple(feeds)), self._places(tuple(fetches))
        values = (ctypes.c_void_p * max(len(fetches), 1))()
        options = _run_options(timeout_ms) if timeout_ms else None
        try:
            for array in feeds.values():
                handles.append(tf_tensors.new(array))
            given = (ctypes.c_void_p * max(len(handles), 1))(*handles)
            run = c_api.library().TF_SessionRun
            _checked(
                lambda status: run(
                    self._session,
                    options,
                    inputs,
                    given,
                    len(handles),
                    outputs,
                    values,
                    len(fetches),
                    None,
                    0,
                    None,
                    status,
                )
            )
        finally:
            for tensor in handles:
                quick.TF_DeleteTensor(tensor)
            if options:
                quick.TF_DeleteBuffer(options)
        return [tf_tensors.read(value or 0) for value in values[: len(fetches)]]

    def _places(self, names: tuple[str, ...]) -> Any:
        """TF_Output array of these tensors, kept for the next run. Raises: Failure."""
        outputs = self._known.get(names)
        if outputs is None:
            outputs = self._known[names] = (c_api.Output * max(len(names), 1))(*map(self._output, names))
        return outputs

    def _output(self, name: str) -> c_api.Output:
        output = self._operations.get(name)
        if output is None:
            operation, _, index = name.partition(":")
            pointer = c_api.library().TF_GraphOperationByName(self._graph, operation.encode())
            if not pointer:
                raise failure.invalid(
                    f"Tensor {name}, specified in either feed_devices or fetch_devices was not found in the Graph"
                )
            output = self._operations[name] = c_api.Output(pointer, int(index or 0))
        return output

    def close(self) -> None:
        """Free the model. No run may be under way."""
        with self._lock:
            session, self._session = self._session, None
        if session:
            library = c_api.library()
            _checked(lambda status: library.TF_CloseSession(session, status))
            _checked(lambda status: library.TF_DeleteSession(session, status))
            library.TF_DeleteGraph(self._graph)


@functools.cache
def _load_op_libraries() -> None:
    """As op_libraries.load, into TensorFlow without Python. Raises: Failure."""
    for path in op_libraries.named():
        try:
            _checked(functools.partial(c_api.library().TF_LoadLibrary, path.encode()))
        except failure.Failure as error:
            unusable = op_libraries.unusable(path, str(error))
            raise failure.precondition(f"{unusable.cause}; {unusable.mend}") from None


def _run_options(timeout_ms: int) -> Any:
    # RunOptions.timeout_in_ms is field 2, a varint.
    from tftrt_tools.base.wire import varints

    content = b"\x10" + varints.encode_one(max(int(timeout_ms), 1))
    return c_api.quick().TF_NewBufferFromString(content, len(content))


def _checked(call: Callable[[Any], Any]) -> Any:
    """What `call(status)` returns. Raises: Failure where the status is not OK."""
    library = c_api.quick()
    status = library.TF_NewStatus()
    try:
        result = call(status)
        code = library.TF_GetCode(status)
        if code:
            raise failure.from_number(code, library.TF_Message(status).decode("utf-8", "replace"))
        return result
    finally:
        library.TF_DeleteStatus(status)
