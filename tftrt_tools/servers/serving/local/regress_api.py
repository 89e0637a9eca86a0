"""PredictionService.Regress: tf.train.Examples in, one value each out.

Checks, their order and their texts are those of TensorFlow Serving 2.14.1 (servables/tensorflow/regressor.cc).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tensorflow_serving.apis import regression_pb2

from tftrt_tools.servers.serving.local import examples, failure, model_specs, tensor_text
from tftrt_tools.servers.serving.local.servable import AnyServable, Array

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2


METHOD = "tensorflow/serving/regress"
INPUTS, OUTPUTS = "inputs", "outputs"


def regress(
    servable: AnyServable,
    request: regression_pb2.RegressionRequest,
    timeout_ms: int = 0,
    check_method_name: bool = False,
) -> regression_pb2.RegressionResponse:
    """Answer a RegressionRequest. Args: as for `classify_api.classify`. Returns: RegressionResponse. Raises: Failure, as there."""
    signature, count, outputs = examples.run(servable, request, tensors, timeout_ms, check_method_name)
    return regression_pb2.RegressionResponse(
        model_spec=model_specs.answered(request.model_spec, servable.version), result=result(signature, count, outputs)
    )


def tensors(signature: meta_graph_pb2.SignatureDef, check_method_name: bool = False) -> tuple[str, list[str]]:
    """What to feed and to fetch. Args: signature: SignatureDef. Returns: (input tensor name, output tensor names). Raises: Failure
    INVALID_ARGUMENT where the signature is none for Regress."""
    if check_method_name and signature.method_name != METHOD:
        raise failure.invalid(f"Expected regression signature method_name to be {METHOD}. Was: {signature.method_name}")
    if len(signature.inputs) != 1:
        raise failure.invalid("Expected one input Tensor.")
    if len(signature.outputs) != 1:
        raise failure.invalid("Expected one output Tensor.")
    if INPUTS not in signature.inputs:
        raise failure.invalid(f"No regression inputs found in SignatureDef: {signature}")
    if OUTPUTS not in signature.outputs:
        raise failure.invalid(f"No regression outputs found in SignatureDef: {signature}")
    return signature.inputs[INPUTS].name, [signature.outputs[OUTPUTS].name]


def result(
    signature: meta_graph_pb2.SignatureDef, count: int, outputs: Mapping[str, Array]
) -> regression_pb2.RegressionResult:
    """The answer's result.

    Args: signature: SignatureDef. count: examples asked about. outputs: {tensor name: np.ndarray}, float32 of shape [count] or
      [count, 1].
    Returns: RegressionResult. Raises: Failure INVALID_ARGUMENT for another shape or dtype.
    """
    values = outputs[signature.outputs[OUTPUTS].name]
    if not (values.ndim == 1 or values.ndim == 2 and values.shape[1] == 1):
        raise failure.invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{tensor_text.shape(values)}"
        )
    if values.shape[0] != count:
        raise failure.invalid(f"Input batch size did not match output batch size: {count} vs. {values.shape[0]}")
    if tensor_text.enum_name(values) != "DT_FLOAT":
        raise failure.invalid(f"Expected output Tensor of DT_FLOAT.  Got: {tensor_text.enum_name(values)}")
    return regression_pb2.RegressionResult(
        regressions=[regression_pb2.Regression(value=value) for value in values.reshape(-1)]
    )
