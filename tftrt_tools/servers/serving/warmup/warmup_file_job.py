"""The file of warm-up requests: a TFRecord of PredictionLog messages, written and read back; runs in a child process."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import input_pb2, model_pb2, predict_pb2, prediction_log_pb2

from tftrt_tools.base import errors
from tftrt_tools.models.execution import npz
from tftrt_tools.models.savedmodel import signatures as known
from tftrt_tools.models.savedmodel.job import graph, protos
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.serving.warmup import warmup_requests
from tftrt_tools.servers.serving.warmup.warmup_file import ToRead, ToWrite

# (signature, {input: array})
_Request = tuple[str, dict[str, npt.NDArray[Any]]]
_MEND = "make a new one with --replace_warmup, or publish without any: --nowarmup"


def write(file: ToWrite) -> int:
    """See warmup_file.write."""
    path = pathlib.Path(file.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for signature, inputs in file.calls:
                spec = model_pb2.ModelSpec(name=file.model_name, signature_name=signature)
                request = predict_pb2.PredictRequest(model_spec=spec)
                for name, value in npz.load(inputs).items():
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
                log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
                writer.write(log.SerializeToString())
    except tf.errors.OpError as error:  # TensorFlow's file system raises its own error, not OSError, for a full disk
        raise errors.TftrtError(
            f"{path} cannot be written: {error.message}", "free space on that disk; nothing was published"
        ) from None
    return path.stat().st_size


def read(file: ToRead) -> tuple[tuple[str, str], ...]:
    """See warmup_file.read."""
    folder = pathlib.Path(file.folder)
    folder.mkdir(parents=True, exist_ok=True)
    definitions = known.definitions(protos.meta_graph(protos.read(file.model)))
    signatures = {name: graph.specs(definition.inputs) for name, definition in definitions.items()}
    requests: list[tuple[str, str]] = []
    for number, record in enumerate(_records(file.path), 1):
        if number > warmup_requests.MOST_RECORDS:
            raise _refused(f"it holds more than {warmup_requests.MOST_RECORDS} records")
        for signature, inputs in _requests(record, number, signatures):
            if signature not in signatures:
                raise _refused(f"record {number} is for signature {signature!r}, which the model does not have")
            defaults = {name: tf.make_ndarray(value) for name, value in definitions[signature].defaults.items()}
            inputs = {**defaults, **inputs}
            _check(number, signature, inputs, signatures[signature])
            target = folder / f"{len(requests)}.npz"
            npz.save(target, inputs)
            requests.append((signature, str(target)))
    return tuple(requests)


def _refused(why: str) -> errors.CheckFailed:
    return errors.CheckFailed(f"a server fails to load the model's warm-up file: {why}", _MEND)


def _records(path: str) -> Iterator[bytes]:
    try:
        for record in tf.data.TFRecordDataset([path]):
            yield record.numpy()
    except tf.errors.OpError:
        raise _refused("it is no TFRecord file, or damaged") from None


def _requests(record: bytes, number: int, signatures: Mapping[str, Sequence[InputSpec]]) -> list[_Request]:
    """[(signature, {input: array})] of a serialized PredictionLog."""
    try:
        log = prediction_log_pb2.PredictionLog.FromString(record)
    except DecodeError:
        raise _refused(f"record {number} is no PredictionLog") from None
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        request = log.predict_log.request
        return [(_signature(request.model_spec), _tensors(request.inputs, number))]
    if kind in ("classify_log", "regress_log"):
        request = getattr(log, kind).request
        return [_examples(request.model_spec, request.input, number, signatures)]
    if kind == "multi_inference_log":
        request = log.multi_inference_log.request
        return [_examples(task.model_spec, request.input, number, signatures) for task in request.tasks]
    raise _refused(f"record {number} is of a kind that it does not replay ({kind or 'none'})")


def _check(number: int, signature: str, inputs: Mapping[str, npt.NDArray[Any]], specs: Sequence[InputSpec]) -> None:
    spec_of = {spec.name: spec for spec in specs}
    for name in inputs:
        if name not in spec_of:
            raise _refused(f"record {number} has an input {name!r} that signature {signature!r} does not have")
    for name, spec in spec_of.items():
        if name not in inputs:
            raise _refused(f"record {number} lacks the input {name!r} of signature {signature!r}")
        value = inputs[name]
        dtype = "string" if value.dtype == object else value.dtype.name
        if dtype != spec.dtype or not spec.accepts(value.shape):
            given = f"{dtype}[{','.join(map(str, value.shape))}]"
            raise _refused(
                f"record {number} gives {name!r} as {given}, and signature {signature!r} takes {spec.text()}"
            )


def _signature(spec: model_pb2.ModelSpec) -> str:
    return spec.signature_name or "serving_default"


def _tensors(inputs: Mapping[str, tensor_pb2.TensorProto], number: int) -> dict[str, npt.NDArray[Any]]:
    try:
        return {name: tf.make_ndarray(tensor) for name, tensor in inputs.items()}
    except (TypeError, ValueError) as error:
        raise _refused(f"record {number} has a tensor that does not decode ({' '.join(str(error).split())})") from None


def _examples(
    spec: model_pb2.ModelSpec, given: input_pb2.Input, number: int, signatures: Mapping[str, Sequence[InputSpec]]
) -> _Request:
    """The request of a record with tf.Examples: they are the signature's only input, whatever its name."""
    examples = list(given.example_list.examples)
    if given.WhichOneof("kind") == "example_list_with_context":
        listed, examples = given.example_list_with_context, []
        for example in listed.examples:
            whole = type(example)()
            whole.CopyFrom(listed.context)
            whole.MergeFrom(example)
            examples.append(whole)
    signature = _signature(spec)
    names = [spec.name for spec in signatures.get(signature, [])]
    if len(names) > 1:
        raise _refused(f"record {number} holds tf.Examples, and signature {signature!r} has {len(names)} inputs")
    if not examples:
        raise _refused(f"record {number} holds no tf.Example")
    return signature, {
        name: np.array([record.SerializeToString() for record in examples], dtype=object) for name in names
    }
