"""The input of Classify, Regress and MultiInference: tf.train.Examples, serialized for the graph that parses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.servers.serving.local import failure, model_specs
from tftrt_tools.servers.serving.local.servable import AnyServable, Array

if TYPE_CHECKING:
    from tensorflow_serving.apis import classification_pb2, input_pb2, regression_pb2


def serialized(request_input: input_pb2.Input) -> npt.NDArray[np.object_]:
    """The serialized examples of a request.

    Args: request_input: tensorflow_serving.apis.input_pb2.Input: `example_list`, or `example_list_with_context`, whose context is
      merged into each example (a feature that both have is the example's).
    Returns: np.ndarray of shape [examples], dtype object (bytes).
    Raises: Failure INVALID_ARGUMENT without any example.
    """
    kind = request_input.WhichOneof("kind")
    examples = getattr(request_input, kind).examples if kind else ()
    if not examples:
        raise failure.invalid("Input is empty.")
    context = (
        request_input.example_list_with_context.context.SerializeToString()
        if kind == "example_list_with_context"
        else b""
    )
    rows = np.empty(len(examples), object)
    # Two serialized messages in a row parse as their merge: protobuf's rule, which the real server uses too.
    rows[:] = [context + example.SerializeToString() for example in examples]
    return rows


def run(
    servable: AnyServable,
    request: classification_pb2.ClassificationRequest | regression_pb2.RegressionRequest,
    tensors: Callable[[Any, bool], tuple[str, list[str]]],
    timeout_ms: int,
    check_method_name: bool,
) -> tuple[Any, int, dict[str, Array]]:
    """Run a signature on a request's examples.

    Args: request: ClassificationRequest or RegressionRequest. tensors: function (SignatureDef, check_method_name) -> (input tensor name,
      output tensor names) that refuses an unfit signature. The others as for `classify_api.classify`.
    Returns: (SignatureDef, number of examples, {tensor name: ndarray}). Raises: Failure.
    """
    name = model_specs.signature_name(request.model_spec)
    if name not in servable.signatures:
        raise failure.invalid(f"No signature was found with the name: {name}")
    signature = servable.signatures[name]
    input_name, output_names = tensors(signature, check_method_name)
    rows = serialized(request.input)
    outputs = servable.run({input_name: rows}, output_names, timeout_ms)
    return signature, len(rows), dict(zip(output_names, outputs, strict=True))
