"""Predict: checks, texts and their order as TensorFlow Serving 2.14.1 has them (servables/tensorflow/predict_util.cc)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tftrt_tools.base.wire import tensor, varints
from tftrt_tools.servers.serving.local import failure, model_specs
from tftrt_tools.servers.serving.local.servable import AnyServable, Array

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow_serving.apis import predict_pb2

    from tftrt_tools.servers.serving.local.plain_request import PlainRequest


_METHODS = ("tensorflow/serving/predict", "tensorflow/serving/classify", "tensorflow/serving/regress")


def predict(
    servable: AnyServable,
    request: predict_pb2.PredictRequest | PlainRequest,
    timeout_ms: int = 0,
    check_method_name: bool = False,
) -> list[bytes | memoryview]:
    """Answer a PredictRequest whose servable is found.

    Args: servable: Servable; request: PredictRequest or PlainRequest; timeout_ms: 0 for none; check_method_name: refuse signatures of
      other methods.
    Returns: the PredictResponse's bytes in parts, numbers in the typed fields. Raises: Failure.
    """
    name = model_specs.signature_name(request.model_spec)
    signature = _signature(servable, name, check_method_name)
    feeds = _feeds(signature, request.inputs)
    aliases = _outputs(signature, request.output_filter)
    arrays = servable.run(feeds, [signature.outputs[alias].name for alias in aliases], timeout_ms)
    spec = model_specs.answered_bytes(request.model_spec.name, name, servable.version)
    # The real server writes the map in no fixed order. So a client that takes its bytes as they come is found here, too.
    return _response(spec, random.sample([*zip(aliases, arrays, strict=True)], len(aliases)))


def predict_arrays(
    servable: AnyServable,
    arrays: Mapping[str, Array],
    name: str = "",
    timeout_ms: int = 0,
    check_method_name: bool = False,
) -> tuple[dict[str, Array], str]:
    """The same for inputs that are arrays already, as REST has them.

    Args: arrays: {alias: ndarray}, each of the signature's inputs; name: of the signature, "" for the default one.
    Returns: ({alias: ndarray}, name of the signature). Raises: Failure.
    """
    name = name or model_specs.DEFAULT_SIGNATURE
    signature = _signature(servable, name, check_method_name)
    aliases = sorted(signature.outputs)
    feeds = {signature.inputs[alias].name: array for alias, array in arrays.items()}
    values = servable.run(feeds, [signature.outputs[alias].name for alias in aliases], timeout_ms)
    return dict(zip(aliases, values, strict=True)), name


def _signature(servable: AnyServable, name: str, check_method_name: bool) -> meta_graph_pb2.SignatureDef:
    signature = servable.signatures.get(name)
    if signature is None:
        raise failure.precondition(f'Serving signature key "{name}" not found.')
    if check_method_name and signature.method_name not in _METHODS:
        raise failure.Failure(
            failure.INTERNAL,
            f"Expected prediction signature method_name to be one of {{{', '.join(_METHODS)}}}. "
            f"Was: {signature.method_name}",
        )
    return signature


def _feeds(signature: meta_graph_pb2.SignatureDef, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """{tensor name: ndarray} of a request's inputs and the signature's defaults."""
    defaults = signature.defaults
    if len(inputs) > len(signature.inputs) or len(inputs) < len(signature.inputs) and not defaults:
        sent, expected = set(inputs), set(signature.inputs)
        raise failure.invalid(
            f"input size does not match signature: {len(inputs)}!={len(signature.inputs)} len({{{_listed(sent)}}}) != "
            f"len({{{_listed(expected)}}}). Sent extra: {{{_listed(sent - expected)}}}. "
            f"Missing but required: {{{_listed(expected - sent)}}}."
        )
    feeds: dict[str, Array] = {}
    used: set[str] = set()
    for alias in sorted(signature.inputs):
        feed = signature.inputs[alias].name
        if alias in inputs:
            message = inputs[alias]
            used.add(alias)
        elif alias in defaults:
            message = defaults[alias]
        else:
            raise failure.invalid(
                f"Signature input alias: {alias}(feed name: {feed}) not found in request and no default value provided. "
                f"Inputs expected to be in the request {{{_listed(inputs)}}}, or default input alias set: "
                f"{_listed(defaults)}"
            )
        try:
            feeds[feed] = message if isinstance(message, np.ndarray) else tensor.decode(message)
        except ValueError:
            raise failure.invalid(f"tensor parsing error: {alias}") from None
    if len(used) != len(inputs):
        raise failure.invalid(
            f"Inputs contains invalid name. Used request inputs: {_listed(used)}, request input: {_listed(inputs)}"
        )
    return feeds


def _outputs(signature: meta_graph_pb2.SignatureDef, output_filter: Iterable[str]) -> list[str]:
    """Aliases to fetch."""
    seen: list[str] = []
    for alias in output_filter:
        if alias not in signature.outputs:
            raise failure.invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set "
                f"{{{_listed(signature.outputs)}}}."
            )
        if alias in seen:
            raise failure.invalid(f"duplicate output tensor alias: {alias}")
        seen.append(alias)
    return seen or sorted(signature.outputs)


def _listed(names: Iterable[str]) -> str:
    return ",".join(sorted(names))


def _response(model_spec: bytes, outputs: Iterable[tuple[str, Array]]) -> list[bytes | memoryview]:
    """PredictResponse as it goes over the wire: outputs = 1, a map of alias = 1 to TensorProto = 2, and model_spec = 2."""
    parts: list[bytes | memoryview] = []
    for alias, array in outputs:
        entry = [*varints.delimited(1, alias.encode()), *varints.delimited(2, *_encoded(alias, array))]
        parts += varints.delimited(1, *entry)
    return [*parts, *varints.delimited(2, model_spec)]


def _encoded(alias: str, array: Array) -> list[Any]:
    try:
        return tensor.encode(array)
    except ValueError as error:
        raise failure.unimplemented(f"output {alias}: {error}") from None
