"""Batching of the local server: batches, their errors and their ends, with real runs of a SavedModel."""

import concurrent.futures
import threading
import time

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.classify_requests import SavedModelServable, refused
from tftrt_tools.servers.serving.local import batch_scheduler, batch_tensors, batching_parameters, batching_servable
from tftrt_tools.servers.serving.local.batching_parameters import BatchingParameters
from tftrt_tools.servers.serving.local.failure import Failure

CODE = grpc.StatusCode
LONG = 3_600_000_000  # microseconds; no test waits that long, so what happens does not happen by a timeout
Y = ["y:0"]


def export(path):
    """A SavedModel on placeholders: x float [rows, columns], s string [rows]."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, None], "x")
        s = v1.placeholder(tf.string, [None], "s")
        y = tf.identity(x / 2 + 2, "y")
        tf.reduce_sum(x, 1, name="sums")
        tf.reduce_sum(x, name="total")
        tf.identity(x[1:], name="fewer")
        tf.strings.join([s, s], name="twice")
        tf.reduce_sum(tf.ensure_shape(x, [None, 2]), 1, name="two_columns")
        one = v1.saved_model.build_signature_def(
            {"x": v1.saved_model.build_tensor_info(x)}, {"y": v1.saved_model.build_tensor_info(y)}
        )
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": one})
        builder.save()
    return path


class Held(SavedModelServable):
    """The real servable; its runs are seen, and wait while it is held."""

    def __init__(self, path):
        super().__init__(path)
        self.fed, self.timeouts = [], []
        self.started = threading.Semaphore(0)
        self.free = threading.Event()
        self.free.set()

    def run(self, feeds, fetches, timeout_ms=0):
        self.fed.append(dict(feeds))
        self.timeouts.append(timeout_ms)
        self.started.release()
        assert self.free.wait(60)
        return super().run(feeds, fetches, timeout_ms)

    @property
    def sizes(self):
        return [next(iter(feeds.values())).shape[0] for feeds in self.fed]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return export(tmp_path_factory.mktemp("plain_model") / "1")


@pytest.fixture
def held(path):
    one = Held(path)
    yield one
    one.close()


@pytest.fixture
def batched(held):
    """A function (**parameters) -> BatchingServable over `held`, with a scheduler of its own; all are stopped at the end."""
    schedulers = []

    def make(hooks=None, **parameters):
        parameters = BatchingParameters(**{"num_batch_threads": 1, **parameters})
        schedulers.append(batch_scheduler.Scheduler(parameters.num_batch_threads))
        return batching_servable.BatchingServable(held, parameters, schedulers[-1], hooks)

    yield make
    held.free.set()
    for scheduler in schedulers:
        scheduler.stop()


@pytest.fixture
def later():
    """A function (call, arguments) -> future of the call in a thread of its own."""
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        yield pool.submit


def rows(*values, columns=1, dtype=np.float32):
    return {"x:0": np.repeat(np.array(values, dtype)[:, None], columns, 1)}


def blocked(held, servable, later):
    """Keep the only thread busy with a request; returns its future. Its output set has a queue of its own."""
    held.free.clear()
    future = later(servable.run, rows(0), ["sums:0"])
    assert held.started.acquire(timeout=60)
    return future


def waiting(servable, count):
    """Wait until `count` requests wait in the queues of y."""
    deadline = time.monotonic() + 60
    while (
        sum(
            len(batch.tasks)
            for key, queue in servable._queues.items()
            if "y:0" in key[1]
            for batch in list(queue._batches)
        )
        < count
    ):
        assert time.monotonic() < deadline
        time.sleep(0.001)


class TestBatches:
    def test_full_batch_goes_at_once_and_each_request_gets_its_rows(self, held, batched, later):
        servable = batched(max_batch_size=4, batch_timeout_micros=LONG)
        first, second = later(servable.run, rows(1, 2), Y), later(servable.run, rows(3, 4), Y)
        assert first.result(60)[0].tolist() == [[2.5], [3]] and second.result(60)[0].tolist() == [[3.5], [4]]
        assert held.sizes == [4]

    def test_without_timeout_a_lone_request_goes_as_soon_as_a_thread_is_free(self, held, batched):
        assert batched(max_batch_size=4).run(rows(1), Y)[0].tolist() == [[2.5]]
        assert held.sizes == [1]

    def test_open_batch_goes_by_its_timeout(self, held, batched):
        assert batched(max_batch_size=4, batch_timeout_micros=20_000).run(rows(1), Y)[0].tolist() == [[2.5]]

    def test_requests_gather_while_the_thread_is_busy(self, held, batched, later):
        servable = batched(max_batch_size=8)
        busy = blocked(held, servable, later)
        futures = [later(servable.run, rows(value), Y) for value in range(5)]
        waiting(servable, 5)
        held.free.set()
        assert [future.result(60)[0].tolist() for future in futures] == [[[value / 2 + 2]] for value in range(5)]
        busy.result(60)
        assert held.sizes == [1, 5]

    def test_padding_repeats_the_first_row_of_the_last_request(self, held, batched, later):
        servable = batched(max_batch_size=8, allowed_batch_sizes=(1, 8))
        busy = blocked(held, servable, later)
        first = later(servable.run, rows(1, 2), Y)
        waiting(servable, 1)
        second = later(servable.run, rows(3, 4), Y)
        waiting(servable, 2)
        held.free.set()
        assert first.result(60)[0].tolist() == [[2.5], [3]] and second.result(60)[0].tolist() == [[3.5], [4]]
        busy.result(60)
        assert held.fed[1]["x:0"].ravel().tolist() == [1, 2, 3, 4, 3, 3, 3, 3]

    def test_strings_are_batched_and_padded(self, held, batched):
        servable = batched(max_batch_size=4, allowed_batch_sizes=(4,))
        (found,) = servable.run({"s:0": np.array([b"a\0", b"bc"], object)}, ["twice:0"])
        assert found.tolist() == [b"a\0a\0", b"bcbc"]

    def test_outputs_come_in_the_order_asked_for(self, batched):
        servable = batched(max_batch_size=2)
        sums, y = servable.run(rows(1, columns=2), ["sums:0", "y:0"])
        assert sums.tolist() == [2] and y.tolist() == [[2.5, 2.5]]

    def test_each_set_of_outputs_has_a_queue_of_its_own(self, held, batched, later):
        servable = batched(max_batch_size=2, batch_timeout_micros=LONG)
        futures = [later(servable.run, rows(1), names) for names in (Y, ["sums:0"])]
        futures += [later(servable.run, rows(2), names) for names in (Y, ["sums:0"])]
        for future in futures:
            future.result(60)
        assert held.sizes == [2, 2]

    def test_models_share_one_pool_of_threads_and_take_turns(self, path, held, later):
        other, scheduler = Held(path), batch_scheduler.Scheduler(1)
        one, two = (
            batching_servable.BatchingServable(wrapped, BatchingParameters(max_batch_size=1), scheduler)
            for wrapped in (held, other)
        )
        order = []
        note = batching_servable.Hooks(processed_batch_size=lambda size: order.append("two"))
        two._hooks = note
        one._hooks = batching_servable.Hooks(processed_batch_size=lambda size: order.append("one"))
        busy = blocked(held, one, later)
        futures = [later(servable.run, rows(1), Y) for servable in (one, one, two)]
        waiting(one, 2)
        waiting(two, 1)
        held.free.set()
        for future in [busy, *futures]:
            future.result(60)
        assert order[0] == "one" and order.index("two") < 3  # not behind both of the other model
        scheduler.stop()
        other.close()

    def test_interface_of_the_wrapped_servable(self, held, batched):
        servable = batched()
        assert (servable.name, servable.version, servable.path, servable.signatures) == (
            held.name,
            held.version,
            held.path,
            held.signatures,
        )

    def test_hooks_see_requests_and_batches(self, held, batched):
        seen = []
        hooks = batching_servable.Hooks(
            **{
                name: lambda *values, name=name: seen.append((name, *values))
                for name in (
                    "input_batch_size",
                    "queuing_latency",
                    "processed_batch_size",
                    "padding_size",
                    "wrapped_run",
                )
            }
        )
        started = time.monotonic()
        batched(hooks, max_batch_size=4, allowed_batch_sizes=(4,), thread_pool_name="pool").run(rows(1, 2, 3), Y)
        whole = (time.monotonic() - started) * 1e6
        latency = next(values for values in seen if values[0] == "queuing_latency")
        assert latency[1] == "pool" and 0 < latency[2] < whole  # microseconds
        assert set(seen) - {latency} == {
            ("input_batch_size", 3),
            ("processed_batch_size", 4),
            ("padding_size", 1, 4),
            ("wrapped_run",),
        }


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_batched_answers_are_the_unbatched_ones_and_batches_keep_their_sizes(path, data):
    limit = data.draw(st.integers(1, 9))
    allowed = tuple(sorted({*data.draw(st.sets(st.integers(1, limit))), limit})) if data.draw(st.booleans()) else ()
    splitting = data.draw(st.booleans())
    parameters = BatchingParameters(
        max_batch_size=limit,
        allowed_batch_sizes=allowed,
        num_batch_threads=data.draw(st.integers(1, 4)),
        max_enqueued_batches=1000,
        batch_timeout_micros=data.draw(st.sampled_from([0, 500, 5000])),
        enable_large_batch_splitting=splitting,
        max_execution_batch_size=data.draw(st.none() | st.sampled_from(allowed or range(1, limit + 1)))
        if splitting
        else None,
    )
    requests = data.draw(
        st.lists(
            st.tuples(st.integers(1, limit), st.sampled_from([("y:0",), ("sums:0",), ("sums:0", "y:0")])),
            min_size=1,
            max_size=20,
        )
    )
    rng = np.random.default_rng(0)
    feeds = [{"x:0": rng.normal(size=(count, 3)).astype(np.float32)} for count, _ in requests]
    held, scheduler = Held(path), batch_scheduler.Scheduler(parameters.num_batch_threads)
    servable = batching_servable.BatchingServable(held, parameters, scheduler)
    try:
        with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
            answers = list(
                pool.map(lambda one: servable.run(one[0], list(one[1][1])), zip(feeds, requests, strict=True))
            )
        for feed, (_, fetches), answer in zip(feeds, requests, answers, strict=True):
            for found, wanted in zip(answer, SavedModelServable.run(held, feed, fetches), strict=True):
                np.testing.assert_array_equal(found, wanted)
        assert all(size in allowed if allowed else size <= parameters.execution_rows for size in held.sizes)
        assert max(held.sizes) <= limit
    finally:
        scheduler.stop()
        held.close()


class TestRefusedRequests:
    @pytest.mark.parametrize(
        "feeds, message",
        [
            ({}, "Batching Run() must have at least one input tensor"),
            ({"x:0": np.float32(1)}, "Batching Run() input tensors must have at least one dimension"),
            (
                {"x:0": np.ones((2, 1), np.float32), "s:0": np.array([b""], object)},
                "Batching Run() input tensors must have equal 0th-dimension size",
            ),
            (rows(*range(5)), "Task size 5 is larger than maximum input batch size 4"),
        ],
    )
    def test_inputs_that_cannot_be_batched(self, held, batched, feeds, message):
        assert refused(batched(max_batch_size=4).run, feeds, Y) == message
        assert not held.fed

    def test_full_queue(self, held, batched, later):
        servable = batched(max_batch_size=2, max_enqueued_batches=2)
        busy = blocked(held, servable, later)
        futures = []
        for count in (2, 1):
            futures.append(later(servable.run, rows(*range(count)), Y))
            waiting(servable, len(futures))
        message = refused(servable.run, rows(1, 2), Y, code=CODE.UNAVAILABLE)
        assert message == (
            "The batch scheduling queue to which this task was submitted is full; currently 2 batches enqueued and "
            "max_enqueued_batches is 2"
        )
        futures.append(later(servable.run, rows(1), Y))  # the open batch still has room for this one
        waiting(servable, 3)
        held.free.set()
        for future in [busy, *futures]:
            future.result(60)

    def test_no_rows_where_there_is_padding(self, held, batched):
        message = refused(batched(max_batch_size=2, allowed_batch_sizes=(1, 2)).run, rows(), Y)
        assert message.startswith("Batching Run() input tensors have no rows")
        assert not held.fed

    def test_no_rows_without_padding_answers_no_rows(self, batched, later):
        servable = batched(max_batch_size=2, batch_timeout_micros=1000)
        empty, full = later(servable.run, rows(), Y), later(servable.run, rows(1), Y)
        assert empty.result(60)[0].shape == (0, 1) and full.result(60)[0].tolist() == [[2.5]]


def together(held, servable, later, *feeds, fetches=Y, timeouts=None):
    """Run the requests in one batch. Returns: their futures, all done."""
    busy = blocked(held, servable, later)
    futures = []
    for number, feed in enumerate(feeds):
        queue = servable._queue(feed, fetches)
        futures.append(later(servable.run, feed, fetches, timeouts[number] if timeouts else 0))
        deadline = time.monotonic() + 60
        while len(queue._batches[-1].tasks) <= number:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    yield futures
    held.free.set()
    concurrent.futures.wait([busy, *futures], 60)


def run_together(*arguments, **named):
    steps = together(*arguments, **named)
    futures = next(steps)
    next(steps, None)
    return futures


def failures(futures):
    found = []
    for future in futures:
        with pytest.raises(Failure) as caught:
            future.result(60)
        found.append((caught.value.code, caught.value.message))
    return found


class TestFailedBatches:
    def test_one_bad_request_fails_its_whole_batch_and_no_other(self, held, batched, later):
        servable = batched(max_batch_size=4)
        (one, two) = failures(run_together(held, servable, later, rows(1), rows(1, columns=2)))
        assert (
            one
            == two
            == (
                CODE.FAILED_PRECONDITION,
                "Tensors with name 'x:0' from different tasks have different shapes and padding is "
                "turned off. Set pad_variable_length_inputs to true, or ensure that all tensors with the same name have equal "
                "dimensions starting with the first dim.",
            )
        )
        assert servable.run(rows(1), Y)[0].tolist() == [[2.5]]

    def test_mixed_dtypes(self, held, batched, later):
        found = failures(run_together(held, batched(), later, rows(1), rows(1, dtype=np.float64)))
        assert found == 2 * [
            (
                CODE.INTERNAL,
                "Tensor concat operation failed: INVALID_ARGUMENT: Cannot concatenate tensors that have "
                "different data types. Got float and double.",
            )
        ]

    @pytest.mark.parametrize(
        "output, message",
        [
            ("total:0", "Batched output tensor has 0 dimensions"),
            (
                "fewer:0",
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input tensors",
            ),
        ],
    )
    def test_output_of_other_rows(self, batched, output, message):
        assert refused(batched().run, rows(1, 2), [output], code=CODE.FAILED_PRECONDITION) == message

    def test_error_of_the_run_reaches_every_request(self, held, batched, later):
        futures = run_together(
            held, batched(), later, rows(1, columns=3), rows(2, columns=3), fetches=["two_columns:0"]
        )
        for future in futures:
            with pytest.raises(Exception, match="is not compatible with expected shape"):
                future.result(60)

    def test_a_servable_serves_on_after_a_failure(self, batched):
        servable = batched()
        with pytest.raises(Exception, match="nothing:0"):
            servable.run(rows(1), ["nothing:0"])
        assert servable.run(rows(1), Y)[0].tolist() == [[2.5]]


class TestVariableLengths:
    def test_shorter_requests_are_padded_with_their_first_value(self, held, batched, later):
        short, long = {"x:0": np.array([[7, 8]], np.float32)}, {"x:0": np.arange(6, dtype=np.float32).reshape(2, 3)}
        futures = run_together(held, batched(pad_variable_length_inputs=True), later, short, long)
        assert held.fed[1]["x:0"].tolist() == [[7, 8, 7], [0, 1, 2], [3, 4, 5]]
        assert futures[0].result(60)[0].tolist() == [
            [5.5, 6, 5.5]
        ]  # padded too: nothing knows that an output follows an input's length

    def test_strings_with_zero_bytes(self):
        merged = batch_tensors.merge(
            [{"s": np.array([[b"a\0"]], object)}, {"s": np.array([[b"b", b"c"]], object)}], 1, True
        )
        assert merged["s"].tolist() == [[b"a\0", b"a\0"], [b"b", b"c"], [b"b", b"c"]]

    @pytest.mark.parametrize(
        "shapes, message, code",
        [
            (((1, 0), (1, 2)), "Got empty tensor in batch of non-empty tensors.", CODE.INVALID_ARGUMENT),
            (((1,) * 7,), "Only tensors with rank from 1 to 6 can be padded.", CODE.INVALID_ARGUMENT),
            (
                ((1, 2), (1, 2, 3)),
                "Tensors with name 'x' from different tasks have different ranks",
                CODE.FAILED_PRECONDITION,
            ),
        ],
    )
    def test_what_cannot_be_padded(self, shapes, message, code):
        assert refused(batch_tensors.merge, [{"x": np.ones(shape)} for shape in shapes], 0, True, code=code) == message

    @given(
        st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4),
        st.integers(0, 3),
    )
    def test_every_value_is_in_its_place(self, shapes, padding):
        arrays = [np.random.default_rng(number).normal(size=shape) for number, shape in enumerate(shapes)]
        merged = batch_tensors.merge([{"x": array} for array in arrays], padding, True)["x"]
        assert merged.shape == (
            sum(shape[0] for shape in shapes) + padding,
            *np.max([shape[1:] for shape in shapes], axis=0),
        )
        start = 0
        for array in arrays:
            part = merged[start : start + len(array)]
            np.testing.assert_array_equal(part[:, : array.shape[1], : array.shape[2]], array)
            rest = np.ones(part.shape, bool)
            rest[:, : array.shape[1], : array.shape[2]] = False
            assert (part[rest] == array.flat[0]).all()
            start += len(array)
        assert (merged[start:] == merged[start - len(arrays[-1])]).all()


class TestDeadlines:
    def timed_out(self, held, servable, later, timeouts):
        steps = together(held, servable, later, *[rows(1)] * len(timeouts), timeouts=timeouts)
        futures = next(steps)
        time.sleep(0.02)
        next(steps, None)
        return futures

    def test_batch_whose_members_all_timed_out_in_the_queue_is_not_run(self, held, batched, later):
        found = failures(self.timed_out(held, batched(), later, [1, 2]))
        assert found == 2 * [(CODE.RESOURCE_EXHAUSTED, "Run() timeout exceeded while waiting in batching queue")]
        assert held.sizes == [1]

    def test_one_member_with_time_left_keeps_the_batch_alive(self, held, batched, later):
        for future in self.timed_out(held, batched(), later, [1, 60_000]):
            assert future.result(60)[0].tolist() == [[2.5]]

    def test_latest_deadline_counts(self, held, batched, later):
        self.timed_out(held, batched(), later, [600_000, 1_200_000])
        assert 600_000 < held.timeouts[1] < 1_200_000

    def test_member_without_a_deadline_lifts_it(self, held, batched, later):
        self.timed_out(held, batched(), later, [600_000, 0])
        assert held.timeouts[1] == 0


class TestSplitting:
    def test_large_request_is_split_and_put_together(self, held, batched):
        servable = batched(max_batch_size=10, enable_large_batch_splitting=True, max_execution_batch_size=4)
        (found,) = servable.run(rows(*range(10)), Y)
        assert found.ravel().tolist() == [value / 2 + 2 for value in range(10)]
        assert held.sizes == [4, 4, 2]

    def test_first_part_fills_the_open_batch(self, held, batched, later):
        servable = batched(max_batch_size=10, enable_large_batch_splitting=True, max_execution_batch_size=4)
        busy = blocked(held, servable, later)
        first = later(servable.run, rows(1), Y)
        waiting(servable, 1)
        second = later(servable.run, rows(*range(10, 18)), Y)
        waiting(servable, 4)
        held.free.set()
        assert first.result(60)[0].tolist() == [[2.5]]
        assert second.result(60)[0].ravel().tolist() == [value / 2 + 2 for value in range(10, 18)]
        busy.result(60)
        assert held.sizes == [1, 4, 4, 1]

    def test_full_queue(self, held, batched, later):
        servable = batched(
            max_batch_size=8, enable_large_batch_splitting=True, max_execution_batch_size=2, max_enqueued_batches=2
        )
        busy = blocked(held, servable, later)
        first = later(servable.run, rows(1), Y)
        waiting(servable, 1)
        assert refused(servable.run, rows(*range(4)), Y, code=CODE.UNAVAILABLE) == (
            "The batch scheduling queue to which this task was submitted is full; task size is 4 but scheduling capacity is only 3 "
            "(num_enqueued_batches=1, max_enqueued_batches=2, open_batch_size=1, max_execution_batch_size=2)"
        )
        held.free.set()
        busy.result(60)
        first.result(60)

    def test_larger_than_max_batch_size_is_refused_all_the_same(self, batched):
        servable = batched(max_batch_size=4, enable_large_batch_splitting=True, max_execution_batch_size=2)
        assert refused(servable.run, rows(*range(5)), Y) == "Task size 5 is larger than maximum input batch size 4"


class TestEnd:
    def test_close_runs_what_waits_then_refuses(self, path, later):
        held, scheduler = Held(path), batch_scheduler.Scheduler(1)
        servable = batching_servable.BatchingServable(held, BatchingParameters(batch_timeout_micros=LONG), scheduler)
        future = later(servable.run, rows(1), Y)
        while not servable._queues:
            time.sleep(0.001)
        waiting(servable, 1)
        servable.close()
        assert future.result(60)[0].tolist() == [[2.5]]
        refused(servable.run, rows(1), Y, code=CODE.UNAVAILABLE)
        assert "is closed" in refused(servable.run, rows(1), ["sums:0"], code=CODE.UNAVAILABLE)
        scheduler.stop()

    def test_stop_ends_all_threads(self, held, later):
        before = set(threading.enumerate())
        scheduler = batch_scheduler.Scheduler(3, "to_stop")
        servable = batching_servable.BatchingServable(
            held, BatchingParameters(max_batch_size=2, batch_timeout_micros=LONG), scheduler
        )
        future = later(servable.run, rows(1), Y)
        while not servable._queues:
            time.sleep(0.001)
        waiting(servable, 1)
        scheduler.stop()
        assert future.result(60)[0].tolist() == [[2.5]]
        assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("to_stop")]
        refused(servable.run, rows(1), Y, code=CODE.UNAVAILABLE)

    def test_closing_one_model_leaves_the_others_queues(self, path, held):
        other, scheduler = Held(path), batch_scheduler.Scheduler(1)
        one, two = (
            batching_servable.BatchingServable(wrapped, BatchingParameters(), scheduler) for wrapped in (other, held)
        )
        for servable in (one, two):
            servable.run(rows(1), Y)
        one.close()
        assert two.run(rows(1), Y)[0].tolist() == [[2.5]]
        scheduler.stop()

    def test_threads_wait_without_looking_where_nothing_is_due(self, held, batched, later):
        servable = batched(max_batch_size=2, batch_timeout_micros=LONG)
        scheduler = servable._scheduler
        assert scheduler._until_next() is None
        future = later(servable.run, rows(1), Y)
        while not servable._queues:
            time.sleep(0.001)
        waiting(servable, 1)
        assert scheduler._until_next() > 60
        servable.run(rows(2), Y)
        future.result(60)
        assert scheduler._until_next() is None


class TestParameters:
    def test_unset_fields_have_the_real_defaults(self):
        found = batching_parameters.parse("")
        assert (found.max_batch_size, found.batch_timeout_micros, found.max_enqueued_batches) == (1000, 0, 10)
        assert found.num_batch_threads >= 1 and not found.allowed_batch_sizes and not found.pad_variable_length_inputs
        found.check()

    def test_text_format(self, tmp_path):
        (tmp_path / "p").write_text("""
            max_batch_size { value: 8 }  # a comment
            batch_timeout_micros { value: 0 }
            num_batch_threads: { value: 3 }
            thread_pool_name { value: "pool" }
            allowed_batch_sizes: [2, 4] allowed_batch_sizes: 8
            pad_variable_length_inputs: true
            enable_large_batch_splitting { value: true } max_execution_batch_size { value: 4 }""")
        assert batching_parameters.read(tmp_path / "p") == BatchingParameters(
            max_batch_size=8,
            num_batch_threads=3,
            thread_pool_name="pool",
            allowed_batch_sizes=(2, 4, 8),
            pad_variable_length_inputs=True,
            enable_large_batch_splitting=True,
            max_execution_batch_size=4,
        )

    @pytest.mark.parametrize(
        "text", ["max_batch_size: 8", "max_batch { value: 8 }", "max_batch_size { value: x }", "{"]
    )
    def test_other_text_is_refused_with_its_place(self, text):
        message = refused(batching_parameters.parse, text, "/p")
        assert message.startswith("Invalid protobuf file: '/p' (1:") and "\n" not in message

    def test_unreadable_files(self, tmp_path):
        assert "No such file" in refused(batching_parameters.read, tmp_path / "none", code=CODE.NOT_FOUND)
        (tmp_path / "binary").write_bytes(b"\xff\xfe")
        assert "binary" in refused(batching_parameters.read, tmp_path / "binary")
        assert str(tmp_path) in refused(batching_parameters.read, tmp_path)

    @pytest.mark.parametrize(
        "parameters, message",
        [
            (
                {"allowed_batch_sizes": (2, 4), "max_batch_size": 8},
                "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4, expected 8",
            ),
            (
                {"allowed_batch_sizes": (4,)},
                "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4, expected 1000",
            ),
            (
                {"allowed_batch_sizes": (4, 2, 8), "max_batch_size": 8},
                "allowed_batch_sizes entries must be monotonically increasing",
            ),
            (
                {"allowed_batch_sizes": (4, 4), "max_batch_size": 4},
                "allowed_batch_sizes entries must be monotonically increasing",
            ),
            (
                {"allowed_batch_sizes": (0, 4), "max_batch_size": 4},
                "allowed_batch_sizes entries must be monotonically increasing",
            ),
            ({"num_batch_threads": 0}, "num_batch_threads must be positive; was 0"),
            ({"max_batch_size": 0}, "input_batch_size_limit must be positive; was 0"),
            ({"batch_timeout_micros": -1}, "batch_timeout_micros must be non-negative; was -1"),
            (
                {"max_enqueued_batches": 0, "enable_large_batch_splitting": True},
                "max_enqueued_batches must be positive; was 0",
            ),
            (
                {"max_batch_size": 4, "max_execution_batch_size": 8, "enable_large_batch_splitting": True},
                "When enable_large_batch_splitting is true, input_batch_size_limit must be greater than or equal to max_execution_batch_size, "
                "and that positive; they are 4 and 8",
            ),
        ],
    )
    def test_contradictions_fail_the_load(self, held, parameters, message):
        assert refused(batching_servable.BatchingServable, held, BatchingParameters(**parameters), None) == message

    def test_next_allowed_size(self):
        parameters = BatchingParameters(max_batch_size=8, allowed_batch_sizes=(2, 8))
        assert [parameters.padded(count) for count in (1, 2, 3, 8)] == [2, 2, 8, 8]
        assert BatchingParameters().padded(3) == 3

    def test_version_has_its_own_file_only_where_that_is_asked_for(self, tmp_path):
        common = BatchingParameters(max_batch_size=5)
        assert batching_parameters.of_version(tmp_path, common, per_model=True) is None
        (tmp_path / "batching_params.pbtxt").write_text("max_batch_size { value: 3 }")
        assert batching_parameters.of_version(tmp_path, common, per_model=True).max_batch_size == 3
        assert batching_parameters.of_version(tmp_path, common, per_model=False) is common
