"""B10: the metrics page, read as Prometheus reads it."""

import math

import pytest

from tests.conformance.address import predict_request, refusal, spec

PATH = "/monitoring/prometheus/metrics"
BOUNDS = [10 * 1.8**power for power in range(33)]


def _families(server):
    from prometheus_client import parser

    answer = server.rest("GET", PATH)
    assert answer.status == 200
    return {family.name: family for family in parser.text_string_to_metric_families(answer.body.decode())}


def _value(server, sample, **labels):
    """The value of one sample, 0 where there is none yet."""
    return sum(
        each.value
        for family in _families(server).values()
        for each in family.samples
        if each.name == sample and {key: each.labels.get(key) for key in labels} == labels
    )


def _requests(server, model, status):
    return sum(
        _value(server, name, model_name=model, status=status)
        for name in (":tensorflow:serving:request_count", ":tensorflow:serving:request_count_total")
    )


def _latencies(server, model):
    return _value(server, ":tensorflow:serving:request_latency_count", model_name=model)


def test_requests_are_counted_by_model_and_status(server):
    """B10."""
    before = _requests(server, "versions", "OK")
    server.predict("versions", {"x": [1.0]})
    server.rest_predict("versions", {"instances": [1.0]})
    assert _requests(server, "versions", "OK") == before + 2


def test_a_failed_request_is_counted_with_its_code(server):
    """B10."""
    before = _requests(server, "versions", "INVALID_ARGUMENT")
    refusal(server.prediction.Predict, predict_request("versions", {}))
    assert _requests(server, "versions", "INVALID_ARGUMENT") == before + 1


def test_the_requested_name_is_counted_even_of_a_model_that_is_unknown(server):
    """B10, derived: any client makes label values, and those are escaped."""
    name = 'un"known\\model'
    before = _requests(server, name, "NOT_FOUND")
    refusal(server.prediction.Predict, predict_request(name, {"x": [1.0]}))
    assert _requests(server, name, "NOT_FOUND") == before + 1


def test_only_successful_calls_enter_the_latency(server):
    """B10."""
    before = _latencies(server, "fragile")
    refusal(server.prediction.Predict, predict_request("fragile", {}))
    assert _latencies(server, "fragile") == before
    server.predict("uneven", {"x": [1.0]})
    assert _latencies(server, "uneven") >= 1


def test_latency_is_by_model_api_and_entrypoint(server):
    """B10."""
    server.predict("versions", {"x": [1.0]})
    server.rest_predict("versions", {"instances": [1.0]})
    family = _families(server)[":tensorflow:serving:request_latency"]
    samples = [
        each for each in family.samples if each.name.endswith("_count") and each.labels["model_name"] == "versions"
    ]
    assert all(set(each.labels) == {"model_name", "API", "entrypoint"} for each in samples)
    assert {(each.labels["API"].lower(), each.labels["entrypoint"]) for each in samples} >= {
        ("predict", "GRPC"),
        ("predict", "REST"),
    }


def test_runtime_latency_is_by_model_api_and_runtime(server):
    """B10."""
    server.predict("versions", {"x": [1.0]})
    family = _families(server)[":tensorflow:serving:runtime_latency"]
    counts = [
        each for each in family.samples if each.name.endswith("_count") and each.labels["model_name"] == "versions"
    ]
    assert [(each.labels["API"], each.labels["runtime"]) for each in counts] == [("Predict", "TF1")] and counts[
        0
    ].value >= 1


@pytest.mark.parametrize("name", ["request_latency", "runtime_latency"])
def test_latencies_are_histograms_of_33_buckets_ten_times_powers_of_1_8(server, name):
    """B10: microseconds; 10 x 1.8^n and +Inf, cumulative."""
    server.predict("versions", {"x": [1.0]})
    family = _families(server)[f":tensorflow:serving:{name}"]
    assert family.type == "histogram"
    buckets = [
        each for each in family.samples if each.name.endswith("_bucket") and each.labels["model_name"] == "versions"
    ]
    first = {key: value for key, value in buckets[0].labels.items() if key != "le"}
    buckets = [each for each in buckets if {key: value for key, value in each.labels.items() if key != "le"} == first]
    bounds = [float(each.labels["le"]) for each in buckets]
    assert bounds[-1] == math.inf and len(bounds) in (33, 34)
    assert bounds[:-1] == pytest.approx(BOUNDS[: len(bounds) - 1], rel=1e-5)
    counts = [each.value for each in buckets]
    assert counts == sorted(counts)
    count = next(each.value for each in family.samples if each.name.endswith("_count") and each.labels == first)
    assert counts[-1] == count


def test_latency_is_in_microseconds(server):
    """B10: a call of some milliseconds is some thousands."""
    import time

    model = "several"
    sum_name = ":tensorflow:serving:request_latency_sum"
    before, started = _value(server, sum_name, model_name=model), time.monotonic()
    from tests.conformance.test_b4_predict import _three

    server.predict(model, _three())
    elapsed = (time.monotonic() - started) * 1e6
    assert 10 < _value(server, sum_name, model_name=model) - before <= elapsed


def test_multi_inference_metadata_and_status_are_not_counted(server):
    """B10."""
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

    from tests.conformance.test_b4_classify_regress import CLASSIFY, _tasks

    def all_requests():
        return sum(
            each.value
            for family in _families(server).values()
            for each in family.samples
            if each.name.startswith(":tensorflow:serving:request_count")
        )

    before = all_requests()
    server.prediction.MultiInference(_tasks(("examples", None, CLASSIFY)), timeout=30)
    server.prediction.GetModelMetadata(
        get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec("several"), metadata_field=["signature_def"]),
        timeout=30,
    )
    server.model.GetModelStatus(get_model_status_pb2.GetModelStatusRequest(model_spec=spec("several")), timeout=30)
    assert all_requests() == before


def test_classify_and_regress_are_counted(server):
    """B10."""
    from tests.conformance.test_b4_classify_regress import _request

    before, latencies = _requests(server, "examples", "OK"), _latencies(server, "examples")
    server.prediction.Classify(_request("Classify"), timeout=30)
    server.prediction.Regress(_request("Regress", "regress"), timeout=30)
    assert _requests(server, "examples", "OK") == before + 2 and _latencies(server, "examples") == latencies + 2


def test_batching_has_its_own_metrics(batching):
    """B10: waiting time by thread pool, and the runs of the session inside."""
    batching.predict("half_plus_two", {"x": [1.0, 2.0]})
    families = _families(batching)
    queuing = families[":tensorflow:serving:batching_session:queuing_latency"]
    assert {key for each in queuing.samples for key in each.labels} <= {"thread_pool_name", "le"}
    assert any(name.startswith(":tensorflow:serving:batching_session:wrapped_run_count") for name in families)


def test_another_path_has_no_metrics(server):
    """B7, B10: /monitoring is not under /v1/."""
    assert server.rest("GET", "/monitoring/prometheus").status == 404
