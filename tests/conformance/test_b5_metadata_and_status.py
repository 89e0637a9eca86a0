"""B5: GetModelMetadata and GetModelStatus."""

import pytest

from tests.conformance.address import assert_refused, assert_rest_refused, spec

AVAILABLE = 30


def _metadata(model_spec, fields=("signature_def",)):
    from tensorflow_serving.apis import get_model_metadata_pb2

    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    if model_spec is not None:
        request.model_spec.CopyFrom(model_spec)
    return request


def _status(model_spec):
    from tensorflow_serving.apis import get_model_status_pb2

    return get_model_status_pb2.GetModelStatusRequest(model_spec=model_spec)


def _signatures(answer):
    from tensorflow_serving.apis import get_model_metadata_pb2

    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    return signatures.signature_def


def test_metadata_without_a_field_is_refused(server):
    """B5."""
    assert_refused(
        server.prediction.GetModelMetadata,
        _metadata(spec("dtypes"), ()),
        "INVALID_ARGUMENT",
        "GetModelMetadataRequest must specify at least one metadata_field",
    )


def test_metadata_other_than_the_signatures_is_not_supported(server):
    """B5."""
    assert_refused(
        server.prediction.GetModelMetadata,
        _metadata(spec("dtypes"), ["signature_def", "graph_def"]),
        "INVALID_ARGUMENT",
        pattern="Metadata field (graph_def|%s) is not supported(graph_def)?",
    )


def test_metadata_fields_are_checked_before_the_model(server):
    """B5."""
    assert_refused(
        server.prediction.GetModelMetadata,
        _metadata(spec("nobody"), ()),
        "INVALID_ARGUMENT",
        "GetModelMetadataRequest must specify at least one metadata_field",
    )


def test_metadata_names_the_model_and_its_version_but_no_signature(server):
    """B5."""
    for model_spec, version in (
        (spec("versions"), 2),
        (spec("versions", 1), 1),
        (spec("versions", label="stable", signature="x"), 1),
    ):
        answer = server.prediction.GetModelMetadata(_metadata(model_spec), timeout=30)
        assert answer.model_spec == spec("versions", version)


def test_metadata_is_one_map_of_signatures_in_an_any(server):
    """B5."""
    answer = server.prediction.GetModelMetadata(_metadata(spec("several")), timeout=30)
    assert list(answer.metadata) == ["signature_def"]
    assert answer.metadata["signature_def"].type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    signatures = _signatures(answer)
    assert set(signatures) - {"__saved_model_init_op"} == {"serving_default", "only_sum"}
    inputs = signatures["serving_default"].inputs
    assert sorted(inputs) == ["a", "b", "c"] and inputs["c"].dtype == 3
    assert [dim.size for dim in inputs["a"].tensor_shape.dim] == [-1, 2]
    assert sorted(signatures["serving_default"].outputs) == ["count", "scaled", "sum"]
    assert signatures["serving_default"].method_name == "tensorflow/serving/predict"


def test_the_same_field_twice_answers_it_once(server):
    """B5."""
    answer = server.prediction.GetModelMetadata(_metadata(spec("several"), ["signature_def"] * 2), timeout=30)
    assert list(answer.metadata) == ["signature_def"]


def test_over_rest_metadata_is_one_object(server):
    """B5, REST: field names as in the protocol, 64-bit numbers as strings."""
    answer = server.rest("GET", "/v1/models/several/metadata")
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert list(body) == ["model_spec", "metadata"]
    assert body["model_spec"] == {"name": "several", "signature_name": "", "version": "1"}
    signatures = body["metadata"]["signature_def"]["signature_def"]
    assert signatures["serving_default"]["inputs"]["a"]["dtype"] == "DT_FLOAT"
    shape = signatures["serving_default"]["inputs"]["a"]["tensor_shape"]
    assert [dim["size"] for dim in shape["dim"]] == ["-1", "2"] and shape["unknown_rank"] is False


def test_over_rest_metadata_of_a_version_and_a_label(server):
    """B5, REST."""
    for path, version in (("", "2"), ("/versions/1", "1"), ("/labels/canary", "2")):
        assert server.rest("GET", f"/v1/models/versions{path}/metadata").json()["model_spec"]["version"] == version


def test_status_lists_every_configured_version(server):
    """B5."""
    answer = server.model.GetModelStatus(_status(spec("versions")), timeout=30)
    assert {
        each.version: (each.state, each.status.error_code, each.status.error_message)
        for each in answer.model_version_status
    } == {1: (AVAILABLE, 0, ""), 2: (AVAILABLE, 0, "")}


def test_status_of_one_version(server):
    """B5."""
    answer = server.model.GetModelStatus(_status(spec("versions", 1)), timeout=30)
    assert [(each.version, each.state) for each in answer.model_version_status] == [(1, AVAILABLE)]


def test_status_ignores_the_label(server):
    """B5: all versions come, even for a label that nobody gave."""
    for label in ("stable", "nosuch"):
        answer = server.model.GetModelStatus(_status(spec("versions", label=label)), timeout=30)
        assert sorted(each.version for each in answer.model_version_status) == [1, 2]


@pytest.mark.parametrize("name", ["nobody", ""])
def test_status_of_an_unknown_or_empty_name_is_not_found(server, name):
    """B5: NOT_FOUND for the empty name too, which is INVALID_ARGUMENT elsewhere."""
    assert_refused(
        server.model.GetModelStatus, _status(spec(name)), "NOT_FOUND", f"Could not find any versions of model {name}"
    )


@pytest.mark.parametrize("name, version", [("versions", 3), ("versions", 99), ("nobody", 1)])
def test_status_of_an_unknown_version_is_not_found(server, name, version):
    """B5."""
    assert_refused(
        server.model.GetModelStatus,
        _status(spec(name, version)),
        "NOT_FOUND",
        f"Could not find version {version} of model {name}",
    )


def test_over_rest_status_is_an_object_of_version_states(server):
    """B5, REST."""
    answer = server.rest("GET", "/v1/models/versions/versions/1")
    assert (answer.status, answer.json()) == (
        200,
        {
            "model_version_status": [
                {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
            ]
        },
    )
    assert answer.headers["content-type"] == "application/json"
    assert {each["version"] for each in server.rest("GET", "/v1/models/versions").json()["model_version_status"]} == {
        "1",
        "2",
    }


def test_over_rest_the_label_is_ignored_for_the_status(server):
    """B5, REST."""
    for label in ("stable", "nosuch"):
        body = server.rest("GET", f"/v1/models/versions/labels/{label}").json()
        assert {each["version"] for each in body["model_version_status"]} == {"1", "2"}


def test_over_rest_an_unknown_model_or_version_has_no_status(server):
    """B5, REST."""
    assert_rest_refused(server.rest("GET", "/v1/models/nobody"), 404, "Could not find any versions of model nobody")
    assert_rest_refused(
        server.rest("GET", "/v1/models/versions/versions/9"), 404, "Could not find version 9 of model versions"
    )
