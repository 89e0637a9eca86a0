"""B8: what a server with batching answers. The parameters are those of models.py: batches of 2 or 4 rows, one thread, two waiting batches."""

import concurrent.futures
import re
import time

import grpc
import numpy as np
import pytest

from tests.conformance import models
from tests.conformance.address import assert_refused, assert_rest_refused, predict_request, refusal, tensor

ENDLESS = 10**9
FULL = models.MAX_BATCH_SIZE


def _refused(batching, model, inputs, code, message=None, *, pattern=None, **options):
    assert_refused(
        batching.prediction.Predict, predict_request(model, inputs, **options), code, message, pattern=pattern
    )


def _together(*calls):
    """What each of the calls, started at once, returned or raised."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [future.exception() or future.result() for future in futures]


def _slow(rows):
    return {"steps": tensor([ENDLESS] * rows, np.int64)}


@pytest.fixture
def empty_queue(batching):
    """Nothing waits: requests of the test before, whose clients have given up, are out of the queue of the model `slow`."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return batching.predict("slow", {"steps": tensor([1] * FULL, np.int64)})
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE and time.monotonic() < deadline, error
            time.sleep(0.1)


def test_every_request_gets_its_own_rows(batching):
    """B8."""

    def ask(value):
        return lambda: list(
            batching.predict("half_plus_two", {"x": np.full((1, 2), value, np.float32)}).outputs["y"].float_val
        )

    values = [float(value) for value in range(12)]
    assert _together(*map(ask, values)) == [[value / 2 + 2] * 2 for value in values]


def test_a_padded_batch_answers_only_the_rows_sent(batching):
    """B8: a batch of three is padded to the next allowed size, four; nobody sees the padding."""
    for rows in range(1, FULL + 1):
        answer = batching.predict(
            "half_plus_two", {"x": np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)}
        ).outputs["y"]
        assert [dim.size for dim in answer.tensor_shape.dim] == [rows, 2]
        assert list(answer.float_val) == [value / 2 + 2 for value in range(rows * 2)]


def test_an_output_filter_is_a_queue_of_its_own(batching):
    """B8: further queues are made for an output set that was not seen before."""
    inputs = {"a": [[1.0, 2.0]], "b": [[3.0, 4.0]], "c": tensor([5], np.int32)}
    for outputs in (["sum"], ["count", "sum"], ["scaled"]):
        assert sorted(batching.predict("several", inputs, output_filter=outputs).outputs) == sorted(outputs)


def test_an_input_without_dimensions_is_refused(batching):
    """B8."""
    message = "Batching Run() input tensors must have at least one dimension"
    _refused(batching, "half_plus_two", {"x": np.float32(1)}, "INVALID_ARGUMENT", message)
    assert_rest_refused(batching.rest_predict("half_plus_two", {"inputs": 1.0}), 400, message)


def test_inputs_of_unequal_0th_dimension_are_refused(batching):
    """B8."""
    _refused(
        batching,
        "several",
        {"a": [[1.0, 2.0]], "b": [[3.0, 4.0]], "c": tensor([5, 6], np.int32)},
        "INVALID_ARGUMENT",
        "Batching Run() input tensors must have equal 0th-dimension size",
    )


def test_a_request_larger_than_a_batch_is_refused(batching):
    """B8."""
    message = f"Task size {FULL + 1} is larger than maximum input batch size {FULL}"
    _refused(batching, "half_plus_two", {"x": np.zeros((FULL + 1, 1), np.float32)}, "INVALID_ARGUMENT", message)
    assert_rest_refused(batching.rest_predict("half_plus_two", {"instances": [1.0] * (FULL + 1)}), 400, message)


def test_an_output_that_lost_its_0th_dimension_is_a_failed_precondition(batching):
    """B8: a model that cannot be batched."""
    message = (
        "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input tensors"
    )
    _refused(batching, "reduced", {"x": [1.0, 2.0]}, "FAILED_PRECONDITION", message)
    assert_rest_refused(batching.rest_predict("reduced", {"instances": [1.0, 2.0]}), 400, message)


def test_an_output_without_dimensions_is_a_failed_precondition(batching):
    """B8."""
    _refused(
        batching,
        "reduced",
        {"x": [1.0, 2.0]},
        "FAILED_PRECONDITION",
        "Batched output tensor has 0 dimensions",
        signature="scalar",
    )


def test_rows_of_different_shapes_do_not_share_a_batch(batching):
    """B8: no padding of the other dimensions; the whole batch fails."""

    def ask(columns):
        return lambda: refusal(
            batching.prediction.Predict, predict_request("half_plus_two", {"x": np.ones((1, columns), np.float32)})
        )

    pattern = "Tensors with name '[^']+' from different tasks have different shapes and padding is turned off\\..*"
    for _ in range(5):  # two requests that start together nearly always meet in the time that a batch waits
        answers = _together(ask(2), ask(3))
        if not any(isinstance(answer, AssertionError) for answer in answers):
            break
    assert [answer[0] for answer in answers] == ["FAILED_PRECONDITION"] * 2, answers
    assert all(re.fullmatch(pattern, answer[1], re.DOTALL) for answer in answers), answers


def test_one_bad_request_fails_its_whole_batch(batching):
    """B8."""

    def ask(index):
        return lambda: refusal(
            batching.prediction.Predict, predict_request("fragile", {"index": tensor([index], np.int32)})
        )

    for _ in range(5):
        answers = _together(ask(0), ask(7))
        if not any(isinstance(answer, AssertionError) for answer in answers):
            break
    assert [answer[0] for answer in answers] == ["INVALID_ARGUMENT"] * 2, answers
    assert all("= 7 is not in [0, 3)" in answer[1] for answer in answers)


def test_a_bad_request_does_not_fail_the_next_batch(batching):
    """B8."""
    refusal(batching.prediction.Predict, predict_request("fragile", {"index": tensor([7], np.int32)}))
    assert list(batching.predict("fragile", {"index": tensor([2], np.int32)}).outputs["value"].float_val) == [30.0]


@pytest.fixture
def blocked(batching, empty_queue):
    """Function (seconds) -> (calls of whole batches that fill the threads and the queue of the model `slow` for so long, a call that was
    turned away)."""
    running = []

    def fill(seconds):
        data = predict_request("slow", _slow(FULL))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            future = batching.prediction.Predict.future(data, timeout=deadline - time.monotonic())
            running.append(future)
            time.sleep(0.1)
            ended = [one for one in running if one.done()]
            if ended:
                assert {one.exception().code() for one in ended} == {grpc.StatusCode.UNAVAILABLE}, [
                    one.exception() for one in ended
                ]
                return [one for one in running if one not in ended], ended[0]
        raise AssertionError([future.exception() for future in running])

    yield fill
    for future in running:
        future.cancel()


def test_a_full_queue_is_unavailable(batching, blocked):
    """B8: what comes while one batch runs and two wait is turned away at once; over REST it is 503."""
    full = (
        r"The batch scheduling queue to which this task was submitted is full; currently \d+ batches enqueued and "
        rf"max_enqueued_batches is {models.MAX_ENQUEUED_BATCHES}"
    )
    waiting, refused = blocked(8)
    assert len(waiting) >= models.MAX_ENQUEUED_BATCHES
    assert re.fullmatch(full, refused.exception().details())
    assert_rest_refused(batching.rest_predict("slow", {"instances": [ENDLESS] * FULL}, timeout=30), 503, pattern=full)


def test_a_request_whose_time_passes_in_the_queue_is_resource_exhausted(batching, blocked):
    """B8: a gRPC client has given up by itself by then, over REST the answer is seen: 429."""
    blocked(4 * models.REST_TIMEOUT_MS / 1000)  # the threads are taken for longer than REST waits
    answer = batching.rest_predict("half_plus_two", {"instances": [1.0] * FULL}, timeout=30)
    assert_rest_refused(answer, 429, "Run() timeout exceeded while waiting in batching queue")


def test_a_batch_runs_until_the_latest_deadline_of_its_members(batching, empty_queue):
    """B8: the one with the shorter deadline is answered with the other's success or has given up; none fails the other."""

    def ask(timeout):
        return lambda: batching.predict("slow", {"steps": tensor([1, 1], np.int64)}, timeout=timeout)

    answers = _together(ask(5), ask(30))
    assert [list(answer.outputs["done"].float_val) for answer in answers] == [[1.0, 1.0]] * 2


def test_the_last_allowed_size_has_to_be_the_largest_batch(models_folder, tmp_path_factory, request):
    """B8: else the load fails, and with it the start of the server."""
    from tests.conformance import launch

    if request.config.getoption("server", default=None):
        pytest.skip("starts a server of its own")
    folder = tmp_path_factory.mktemp("bad_sizes")
    (folder / "parameters.txt").write_text(
        "max_batch_size { value: 8 }\nallowed_batch_sizes: 2\nallowed_batch_sizes: 4\n"
    )
    server = launch.LocalServer(
        [
            f"--model_base_path={models_folder / 'half_plus_two'}",
            "--model_name=half_plus_two",
            "--enable_batching=true",
            f"--batching_parameters_file={folder / 'parameters.txt'}",
            "--max_num_load_retries=0",
        ],
        folder / "log.txt",
    )
    with pytest.raises(AssertionError, match="no server"):
        server.start(timeout=60)
    assert server.process.returncode not in (0, -9)
    assert (
        "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4, expected 8"
        in (folder / "log.txt").read_text()
    )


def test_the_defaults_of_absent_parameters():
    """B8, in process: no answer shows them."""
    import os

    from tftrt_tools.servers.serving.local import batching_parameters

    found = batching_parameters.BatchingParameters()
    assert (found.max_batch_size, found.batch_timeout_micros, found.max_enqueued_batches) == (1000, 0, 10)
    assert found.num_batch_threads == len(os.sched_getaffinity(0)) and not found.allowed_batch_sizes
