"""Warm-up inside a load of the local server: what is run, counted, refused and logged."""

import logging
import types

import grpc
import numpy as np
import pytest

from tests.classify_requests import SavedModelServable, classification, example, export, refused, regression, tasks
from tftrt_tools.servers.serving.local import (
    batch_scheduler,
    batching_servable,
    classify_api,
    multi_inference_api,
    regress_api,
    warmup_replay,
)
from tftrt_tools.servers.serving.local.batching_parameters import BatchingParameters

CODE = grpc.StatusCode


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return export(tmp_path_factory.mktemp("warm_model") / "7")


@pytest.fixture
def servable(model, tmp_path):
    """The model's graph with a version directory of this test, for its warm-up file."""
    one = SavedModelServable(model)
    one.path = str(tmp_path)
    yield one
    one.close()


def predict(servable, request):
    """A Predict without its checks: the real one is another module's."""
    signature = servable.signatures[request.model_spec.signature_name]
    feeds = {
        signature.inputs[alias].name: [example(1, 2).SerializeToString()] * len(tensor.string_val)
        for alias, tensor in request.inputs.items()
    }
    return servable.run(
        {name: np.array(value, object) for name, value in feeds.items()},
        [info.name for info in signature.outputs.values()],
    )


SERVICES = warmup_replay.Services(
    predict, classify_api.classify, regress_api.regress, multi_inference_api.multi_inference
)


def prediction():
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "any", "predict"
    request.inputs["inputs"].string_val.extend([b"", b""])
    return request


def logs(**requests):
    """A PredictionLog for each kind=request."""
    from tensorflow_serving.apis import prediction_log_pb2

    found = []
    for kind, request in requests.items():
        log = prediction_log_pb2.PredictionLog()
        getattr(log, f"{kind}_log").request.CopyFrom(request)
        found.append(log.SerializeToString())
    return found


def stored(folder, records):
    """Write the warm-up file. Returns: its path."""
    import tensorflow as tf

    path = folder / warmup_replay.FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


class TestReplay:
    def test_each_kind_of_request_is_run_once_in_order(self, servable, tmp_path, caplog):
        rows = [(1, 2)] * 3
        path = stored(
            tmp_path,
            logs(
                predict=prediction(),
                classify=classification((1, 2), model="another"),
                regress=regression(*rows),
                multi_inference=tasks(("regress", regress_api.METHOD), rows=[(1, 2)] * 4),
            ),
        )
        with caplog.at_level(logging.INFO, "tftrt.serving"):
            found = warmup_replay.replay(servable, SERVICES)
        assert [list(feeds.values())[0][0] for feeds, _, _ in servable.runs] == [2, 1, 3, 4]
        assert found.records == 4 and found.to_dict() == {"records": 4, "microseconds": found.microseconds}
        assert caplog.messages[-1] == (
            f"Finished reading warmup data for model at {path}. Number of warmup records read: 4. "
            f"Elapsed time (microseconds): {found.microseconds}."
        )

    @pytest.mark.parametrize("iterations, runs", [(0, 1), (1, 1), (3, 3)])
    def test_iterations_repeat_each_request_and_count_it_once(self, servable, tmp_path, iterations, runs):
        stored(tmp_path, logs(regress=regression((1, 2)), classify=classification((1, 2))))
        assert warmup_replay.replay(servable, SERVICES, iterations).records == 2
        names = [fetches[0] for _, fetches, _ in servable.runs]
        assert len(names) == 2 * runs and len(set(names[:runs])) == len(set(names[runs:])) == 1

    def test_no_file_is_no_fault(self, servable, tmp_path, caplog):
        with caplog.at_level(logging.INFO, "tftrt.serving"):
            assert warmup_replay.replay(servable, SERVICES).records == 0
        assert caplog.messages == [f"No warmup data file found at {tmp_path / warmup_replay.FILE}"]

    def test_empty_file_and_record_without_a_request(self, servable, tmp_path):
        stored(tmp_path, [])
        assert warmup_replay.replay(servable, SERVICES).records == 0
        stored(tmp_path, [b""])
        assert warmup_replay.replay(servable, SERVICES).records == 1
        assert not servable.runs

    def test_requests_go_through_batching_where_it_is_on(self, servable, tmp_path):
        stored(tmp_path, logs(regress=regression((1, 2))))
        scheduler = batch_scheduler.Scheduler(1)
        batched = batching_servable.BatchingServable(
            servable, BatchingParameters(max_batch_size=4, allowed_batch_sizes=(4,)), scheduler
        )
        assert warmup_replay.replay(batched, SERVICES).records == 1
        assert servable.runs[0][0] == {"examples:0": (4,)}
        scheduler.stop()

    def test_latency_is_recorded(self, servable, tmp_path):
        stored(tmp_path, logs(regress=regression((1, 2))))
        seen = []
        found = warmup_replay.replay(servable, SERVICES, record_latency=lambda *values: seen.append(values))
        assert seen == [(str(tmp_path), "OK", found.microseconds)]


class TestFaults:
    def test_record_1001_is_run_and_then_too_many(self, tmp_path):
        path = stored(tmp_path, logs(regress=regression((1, 2))) * 1002)
        seen = []
        nothing = warmup_replay.Services(
            **dict.fromkeys(("predict", "classify", "multi_inference")), regress=lambda *request: seen.append(request)
        )
        message = refused(warmup_replay.replay, types.SimpleNamespace(path=str(tmp_path)), nothing)
        assert message == f"Number of warmup records exceeds the maximum (1000) at {path}"
        assert len(seen) == 1001

    def test_a_thousand_records_are_fine(self, tmp_path):
        stored(tmp_path, logs(regress=regression((1, 2))) * 1000)
        nothing = warmup_replay.Services(
            **dict.fromkeys(("predict", "classify", "multi_inference")), regress=lambda *request: None
        )
        assert warmup_replay.replay(types.SimpleNamespace(path=str(tmp_path)), nothing).records == 1000

    def test_file_that_is_no_tfrecord(self, servable, tmp_path):
        path = stored(tmp_path, [])
        path.write_bytes(b"this is text, and a long one at that")
        seen = []
        message = refused(
            warmup_replay.replay,
            servable,
            SERVICES,
            code=CODE.DATA_LOSS,
            record_latency=lambda *values: seen.append(values),
        )
        assert message == (
            "corrupted record at 0 (Is this even a TFRecord file?). Please verify your warmup data is in TFRecord format."
        )
        assert seen[0][1] == "DATA_LOSS: corrupted record at 0 (Is this even a TFRecord file?)"

    def test_truncated_file_fails_after_the_records_before(self, servable, tmp_path):
        path = stored(tmp_path, logs(regress=regression((1, 2))) * 2)
        path.write_bytes(path.read_bytes()[:-3])
        message = refused(warmup_replay.replay, servable, SERVICES, code=CODE.DATA_LOSS)
        assert message.startswith("truncated record at ") and message.endswith(
            ". Please verify your warmup data is in TFRecord format."
        )
        assert len(servable.runs) == 1

    def test_folder_in_place_of_the_file(self, servable, tmp_path):
        (tmp_path / warmup_replay.FILE).mkdir(parents=True)
        assert "Is a directory" in refused(warmup_replay.replay, servable, SERVICES, code=CODE.FAILED_PRECONDITION)

    def test_record_that_is_no_prediction_log(self, servable, tmp_path):
        path = stored(tmp_path, [b"\xff" * 10_000])
        message = refused(warmup_replay.replay, servable, SERVICES)
        assert (
            message.startswith("Failed to parse warmup record: ")
            and message.endswith(f" from {path}")
            and len(message) < 1024
        )

    @pytest.mark.parametrize("kind, number", [("session_run", 5), ("predict_streamed", 7)])
    def test_logs_that_are_no_warmup(self, servable, tmp_path, kind, number):
        from tensorflow_serving.apis import prediction_log_pb2

        log = prediction_log_pb2.PredictionLog()
        getattr(log, f"{kind}_log").SetInParent()
        stored(tmp_path, [log.SerializeToString()])
        message = refused(warmup_replay.replay, servable, SERVICES, code=CODE.UNIMPLEMENTED)
        assert message == f"Unsupported log_type for warmup: {number}"

    def test_failing_request_fails_the_load_and_stops_it(self, servable, tmp_path):
        stored(tmp_path, logs(classify=classification((1, 2), signature="none"), regress=regression((1, 2))))
        seen = []
        message = refused(warmup_replay.replay, servable, SERVICES, record_latency=lambda *values: seen.append(values))
        assert message == "No signature was found with the name: none"
        assert not servable.runs and not seen
