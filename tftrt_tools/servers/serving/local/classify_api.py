"""PredictionService.Classify: tf.train.Examples in, labels and scores out.

Checks, their order and their texts are those of TensorFlow Serving 2.14.1 (servables/tensorflow/classifier.cc).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tensorflow_serving.apis import classification_pb2

from tftrt_tools.servers.serving.local import examples, failure, model_specs, tensor_text
from tftrt_tools.servers.serving.local.servable import AnyServable, Array

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2


METHOD = "tensorflow/serving/classify"
INPUTS, CLASSES, SCORES = "inputs", "classes", "scores"


def classify(
    servable: AnyServable,
    request: classification_pb2.ClassificationRequest,
    timeout_ms: int = 0,
    check_method_name: bool = False,
) -> classification_pb2.ClassificationResponse:
    """Answer a ClassificationRequest.

    Args:
      servable: Servable.
      request: ClassificationRequest; its model_spec chose the servable.
      timeout_ms: limit of the run in milliseconds, 0 for none.
      check_method_name: refuse a signature whose method_name is not that of Classify (`--enable_signature_method_name_check`).

    Returns: ClassificationResponse.

    Raises: Failure: INVALID_ARGUMENT for an unknown or unfit signature, an empty input or unfit outputs; those of the run.
    """
    signature, count, outputs = examples.run(servable, request, tensors, timeout_ms, check_method_name)
    return classification_pb2.ClassificationResponse(
        model_spec=model_specs.answered(request.model_spec, servable.version), result=result(signature, count, outputs)
    )


def tensors(signature: meta_graph_pb2.SignatureDef, check_method_name: bool = False) -> tuple[str, list[str]]:
    """What to feed and to fetch. Args: signature: SignatureDef. Returns: (input tensor name, output tensor names). Raises: Failure
    INVALID_ARGUMENT where the signature is none for Classify."""
    if check_method_name and signature.method_name != METHOD:
        raise failure.invalid(
            f"Expected classification signature method_name to be {METHOD}. Was: {signature.method_name}"
        )
    if len(signature.inputs) != 1:
        raise failure.invalid("Expected one input Tensor.")
    if len(signature.outputs) not in (1, 2):
        raise failure.invalid(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if INPUTS not in signature.inputs:
        raise failure.invalid(f"No classification inputs found in SignatureDef: {signature}")
    names = [signature.outputs[alias].name for alias in (CLASSES, SCORES) if alias in signature.outputs]
    if not names:
        raise failure.invalid(
            f'Expected classification signature outputs to contain at least one of "{CLASSES}" or "{SCORES}". '
            f"Signature was: {signature}"
        )
    return signature.inputs[INPUTS].name, names


def result(
    signature: meta_graph_pb2.SignatureDef, count: int, outputs: Mapping[str, Array]
) -> classification_pb2.ClassificationResult:
    """The answer's result.

    Args: signature: SignatureDef. count: examples asked about. outputs: {tensor name: np.ndarray}, both of shape [count, classes]:
      classes of bytes, scores of float32; either may be missing.
    Returns: ClassificationResult. Raises: Failure INVALID_ARGUMENT for another shape or dtype.
    """
    classes, scores = (
        outputs.get(signature.outputs[alias].name) if alias in signature.outputs else None
        for alias in (CLASSES, SCORES)
    )
    if classes is not None:
        _check(classes, CLASSES, "DT_STRING", count)
    if scores is not None:
        _check(scores, SCORES, "DT_FLOAT", count)
    if classes is not None and scores is not None and classes.shape[1] != scores.shape[1]:
        raise failure.invalid(
            f"Tensors class and score should match in dim_size(1). Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    columns = next((array.shape[1] for array in (classes, scores) if array is not None), 0)
    answer = classification_pb2.ClassificationResult()
    for row in range(count):
        classified = answer.classifications.add()
        for column in range(columns):
            item = classified.classes.add()
            if classes is not None:
                # The field is text: what is no UTF-8 cannot be put there from Python.
                item.label = classes[row, column].decode("utf-8", "replace")
            if scores is not None:
                item.score = scores[row, column]
    return answer


def _check(array: Array, alias: str, dtype: str, count: int) -> None:
    if array.ndim != 2:
        raise failure.invalid(f"Expected Tensor shape: [batch_size num_classes] but got {tensor_text.shape(array)}")
    if tensor_text.enum_name(array) != dtype:
        raise failure.invalid(f"Expected {alias} Tensor of {dtype}. Got: {tensor_text.enum_name(array)}")
    if array.shape[0] != count:
        raise failure.invalid(f"Expected {alias} output batch size of {count}. Got: {array.shape[0]}")
