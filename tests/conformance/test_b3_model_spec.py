"""B3: how a ModelSpec is resolved, the same for every RPC but GetModelStatus."""

import pytest

from tests.conformance.address import assert_refused, assert_rest_refused, predict_request, spec


def _predict(model_spec):
    request = predict_request("", {"x": [1.0]})
    return _with(request, model_spec)


def _classify(model_spec):
    from tensorflow_serving.apis import classification_pb2

    return _with(classification_pb2.ClassificationRequest(), model_spec)


def _regress(model_spec):
    from tensorflow_serving.apis import regression_pb2

    return _with(regression_pb2.RegressionRequest(), model_spec)


def _metadata(model_spec):
    from tensorflow_serving.apis import get_model_metadata_pb2

    return _with(get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"]), model_spec)


def _multi(model_spec):
    from tensorflow_serving.apis import inference_pb2

    request = inference_pb2.MultiInferenceRequest()
    _with(request.tasks.add(method_name="tensorflow/serving/classify"), model_spec)
    return request


def _with(request, model_spec):
    request.ClearField("model_spec")
    if model_spec is not None:
        request.model_spec.CopyFrom(model_spec)
    return request


REQUESTS = {
    "Predict": _predict,
    "Classify": _classify,
    "Regress": _regress,
    "GetModelMetadata": _metadata,
    "MultiInference": _multi,
}
every_rpc = pytest.mark.parametrize("rpc", REQUESTS)


def _refused(server, rpc, model_spec, code, message):
    assert_refused(getattr(server.prediction, rpc), REQUESTS[rpc](model_spec), code, message)


@pytest.mark.parametrize("rpc", [rpc for rpc in REQUESTS if rpc != "MultiInference"])
def test_a_request_without_model_spec_is_refused(server, rpc):
    """B3."""
    _refused(server, rpc, None, "INVALID_ARGUMENT", "Missing ModelSpec")


def test_a_multi_inference_without_tasks_or_model_spec_has_no_name(server):
    """B3; it takes the ModelSpec of its first task, and an empty one where there is none."""
    from tensorflow_serving.apis import inference_pb2

    for request in (inference_pb2.MultiInferenceRequest(), _multi(None)):
        assert_refused(
            server.prediction.MultiInference, request, "INVALID_ARGUMENT", "ModelSpec has no name specified."
        )


@every_rpc
def test_an_empty_name_is_refused(server, rpc):
    """B3."""
    _refused(server, rpc, spec(""), "INVALID_ARGUMENT", "ModelSpec has no name specified.")


@every_rpc
def test_an_empty_name_is_refused_before_its_label_is_looked_up(server, rpc):
    """B3."""
    _refused(server, rpc, spec("", label="stable"), "INVALID_ARGUMENT", "ModelSpec has no name specified.")


@every_rpc
def test_an_unknown_model_is_not_found(server, rpc):
    """B3."""
    _refused(server, rpc, spec("nobody"), "NOT_FOUND", "Servable not found for request: Latest(nobody)")


@every_rpc
def test_an_unknown_version_is_not_found(server, rpc):
    """B3; version 3 is on disk and not among the versions that the configuration names."""
    for version in (3, 99, 0, -1, 2**63 - 1):
        _refused(
            server,
            rpc,
            spec("versions", version),
            "NOT_FOUND",
            f"Servable not found for request: Specific(versions, {version})",
        )


@every_rpc
def test_a_version_of_an_unknown_model_is_not_found(server, rpc):
    """B3."""
    _refused(server, rpc, spec("nobody", 1), "NOT_FOUND", "Servable not found for request: Specific(nobody, 1)")


@every_rpc
def test_an_unknown_label_is_refused(server, rpc):
    """B3."""
    _refused(
        server,
        rpc,
        spec("versions", label="nightly"),
        "INVALID_ARGUMENT",
        "Unrecognized servable version label: nightly",
    )


@every_rpc
def test_a_label_of_an_unknown_model_is_an_unknown_label(server, rpc):
    """B3: the label is looked up first."""
    _refused(
        server, rpc, spec("nobody", label="stable"), "INVALID_ARGUMENT", "Unrecognized servable version label: stable"
    )


def test_without_a_version_the_largest_loaded_one_answers(server):
    """B3."""
    answer = server.predict("versions", {"x": [1.0]})
    assert answer.model_spec.version.value == 2 and list(answer.outputs["y"].float_val) == [3.0]


@pytest.mark.parametrize("version", [1, 2])
def test_a_version_is_answered_by_itself(server, version):
    """B3."""
    answer = server.predict("versions", {"x": [1.0]}, version=version)
    assert answer.model_spec.version.value == version and list(answer.outputs["y"].float_val) == [1.0 + version]


@pytest.mark.parametrize("label, version", [("stable", 1), ("canary", 2)])
def test_a_label_is_answered_by_its_version(server, label, version):
    """B3."""
    answer = server.predict("versions", {"x": [1.0]}, label=label)
    assert answer.model_spec.version.value == version and list(answer.outputs["y"].float_val) == [1.0 + version]


def test_the_answer_names_the_model_the_version_and_the_signature(server):
    """B3: the effective version, the default signature filled in, no label."""
    answer = server.predict("versions", {"x": [1.0]}, label="canary").model_spec
    assert answer == spec("versions", 2, signature="serving_default")


def test_the_answer_names_the_signature_that_was_asked_for(server):
    """B3."""
    answer = server.predict("several", {"a": [[1.0, 2.0]], "b": [[3.0, 4.0]]}, signature="only_sum")
    assert answer.model_spec == spec("several", 1, signature="only_sum")


def test_the_readiness_probe_of_clients_reads_servable_in_the_message(server):
    """B3: clients wait for a model by this word."""
    from tests.conformance.address import refusal

    assert "Servable" in refusal(server.prediction.Predict, predict_request("nobody", {"x": [1.0]}))[1]


REST_BODIES = {
    "predict": {"instances": [1.0]},
    "classify": {"examples": [{"x": 1.0}]},
    "regress": {"examples": [{"x": 1.0}]},
}


@pytest.mark.parametrize("method", REST_BODIES)
def test_over_rest_an_unknown_model_is_404(server, method):
    """B3, REST."""
    answer = server.rest("POST", f"/v1/models/nobody:{method}", REST_BODIES[method])
    assert_rest_refused(answer, 404, "Servable not found for request: Latest(nobody)")


@pytest.mark.parametrize("method", REST_BODIES)
def test_over_rest_an_unknown_version_is_404(server, method):
    """B3, REST."""
    answer = server.rest("POST", f"/v1/models/versions/versions/9:{method}", REST_BODIES[method])
    assert_rest_refused(answer, 404, "Servable not found for request: Specific(versions, 9)")


@pytest.mark.parametrize("method", REST_BODIES)
def test_over_rest_an_unknown_label_is_400(server, method):
    """B3, REST."""
    answer = server.rest("POST", f"/v1/models/versions/labels/nightly:{method}", REST_BODIES[method])
    assert_rest_refused(answer, 400, "Unrecognized servable version label: nightly")


def test_over_rest_metadata_resolves_in_the_same_way(server):
    """B3, REST."""
    assert_rest_refused(
        server.rest("GET", "/v1/models/nobody/metadata"), 404, "Servable not found for request: Latest(nobody)"
    )
    assert_rest_refused(
        server.rest("GET", "/v1/models/versions/versions/9/metadata"),
        404,
        "Servable not found for request: Specific(versions, 9)",
    )
    assert_rest_refused(
        server.rest("GET", "/v1/models/versions/labels/nightly/metadata"),
        400,
        "Unrecognized servable version label: nightly",
    )


@pytest.mark.parametrize(
    "path, expected",
    [("", 3.0), ("/versions/1", 2.0), ("/versions/2", 3.0), ("/labels/stable", 2.0), ("/labels/canary", 3.0)],
)
def test_over_rest_versions_and_labels_are_parts_of_the_path(server, path, expected):
    """B3, REST."""
    answer = server.rest("POST", f"/v1/models/versions{path}:predict", {"instances": [1.0]})
    assert (answer.status, answer.json()) == (200, {"predictions": [expected]})
