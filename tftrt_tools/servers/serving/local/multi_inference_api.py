"""PredictionService.MultiInference: several Classify and Regress signatures of one model on the same examples, in one run.

Checks, their order and their texts are those of TensorFlow Serving 2.14.1 (servables/tensorflow/multi_inference.cc). Signatures with
different input tensors are answered too: each of these is fed the examples.
"""

from __future__ import annotations

from typing import Any

from tensorflow_serving.apis import inference_pb2, model_pb2

from tftrt_tools.servers.serving.local import classify_api, examples, failure, model_specs, regress_api
from tftrt_tools.servers.serving.local.servable import AnyServable

_SERVICES: dict[str, Any] = {classify_api.METHOD: classify_api, regress_api.METHOD: regress_api}


def model_spec(request: inference_pb2.MultiInferenceRequest) -> model_pb2.ModelSpec:
    """The ModelSpec that chooses the servable: the first task's; an empty one without tasks."""
    return request.tasks[0].model_spec if request.tasks else model_pb2.ModelSpec()


def multi_inference(
    servable: AnyServable,
    request: inference_pb2.MultiInferenceRequest,
    timeout_ms: int = 0,
    check_method_name: bool = False,
) -> inference_pb2.MultiInferenceResponse:
    """Answer a MultiInferenceRequest; its tasks' outputs come from one run of the graph.

    Args: as for `classify_api.classify`. Returns: MultiInferenceResponse, one result a task, in the order of the tasks.
    Raises: Failure: INVALID_ARGUMENT for tasks of several models, a signature twice or unknown, and all of
      `classify_api.classify`; UNIMPLEMENTED for a task of another method.
    """
    input_names, output_names = _tensors(servable, request, check_method_name)
    rows = examples.serialized(request.input)
    feeds = dict.fromkeys(input_names, rows)
    outputs = dict(zip(output_names, servable.run(feeds, output_names, timeout_ms), strict=True))
    response = inference_pb2.MultiInferenceResponse()
    for task in request.tasks:
        signature = servable.signatures[model_specs.signature_name(task.model_spec)]
        result = _SERVICES[task.method_name].result(signature, len(rows), outputs)
        added = response.results.add(model_spec=model_specs.answered(task.model_spec, servable.version))
        (added.classification_result if task.method_name == classify_api.METHOD else added.regression_result).CopyFrom(
            result
        )
    return response


def _tensors(
    servable: AnyServable, request: inference_pb2.MultiInferenceRequest, check_method_name: bool
) -> tuple[list[str], list[str]]:
    """(sorted input tensor names, sorted output tensor names) of all tasks together."""
    model = ""
    inputs: set[str] = set()
    signatures: set[str] = set()
    outputs: set[str] = set()
    for task in request.tasks:
        if not task.model_spec.name:
            raise failure.invalid("Found ModelSpec with an empty model name.")
        model = model or task.model_spec.name
        if task.model_spec.name != model:
            raise failure.invalid("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        name = model_specs.signature_name(task.model_spec)
        if name in signatures:
            raise failure.invalid(f"Duplicate evaluation of signature: {name}")
        signatures.add(name)
        if name not in servable.signatures:
            raise failure.invalid(f"Requested signature not found in model graph: {name}")
        if task.method_name not in _SERVICES:
            raise failure.unimplemented(f"Unsupported signature method_name: {task.method_name}")
        fed, fetched = _SERVICES[task.method_name].tensors(servable.signatures[name], check_method_name)
        inputs.add(fed)
        outputs.update(fetched)
    return sorted(inputs), sorted(outputs)
