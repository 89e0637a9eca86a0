"""The runner of plans on a GPU of host memory: who gets which context, CUDA graphs, failing calls, memory that is out."""

import threading
import time

import numpy as np
import pytest

pytest.importorskip("tensorrt")
from tests.plan_device import Device, Engine
from tftrt_tools.base import errors
from tftrt_tools.models.execution.runner import Wanted
from tftrt_tools.models.kinds.plan import runner_job
from tftrt_tools.models.kinds.plan.job import pool as pools


@pytest.fixture
def load(monkeypatch):
    """load(graphs=…, **what Engine takes) gives (Loaded, Engine, Device)."""

    def loaded(graphs=False, **facts):
        engine, device = Engine(**facts), Device()
        monkeypatch.setattr(runner_job, "Engine", lambda path: engine)
        monkeypatch.setattr(runner_job, "Cuda", lambda: device)
        return runner_job.Loaded("plan", graphs), engine, device

    return loaded


def rows(batch, seed=0):
    return {"x": np.random.default_rng(seed).random((batch, 3), np.float32)}


def right(answers, inputs):
    return np.array_equal(answers["y"], 2 * inputs["x"] + 1)


def at_once(threads, work):
    """Run work(number) in as many threads. Returns: what failed."""
    failed = []

    def guarded(number):
        try:
            work(number)
        except Exception as error:
            failed.append(error)

    started = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(threads)]
    for one in started:
        one.start()
    end = time.monotonic() + 60
    for one in started:
        one.join(max(0.0, end - time.monotonic()))
    assert not any(one.is_alive() for one in started), "a thread waits for ever"
    return failed


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("by_values", [False, True])
def test_calls_of_several_shapes_answer_each_its_own_inputs(load, graphs, by_values):
    loaded, engine, device = load(graphs, by_values=by_values)
    inputs = [rows(batch, batch) for batch in (1, 8, 64, 1)]
    ready = [loaded.ready("serving_default", one) for one in inputs]
    for _ in range(3):
        assert all(right(call(), one) for call, one in zip(ready, inputs, strict=True))
    # A graph has its shapes to itself; an output whose shape depends on values cannot be in one.
    captured = 3 if graphs and not by_values else 0
    assert loaded.pool.captured == captured and loaded.pool.contexts == (3 if captured else 1 + (graphs and by_values))
    assert (device.launched > 0) == bool(captured) and not engine.clashes


def test_a_further_context_is_made_only_for_a_call_at_the_same_time(load):
    loaded, engine, _ = load()
    ready = loaded.ready("serving_default", rows(8))
    for _ in range(20):
        ready()
    assert loaded.pool.contexts == 1 and engine.copies == 1
    assert not at_once(4, lambda _: [ready() for _ in range(50)])
    assert 1 < loaded.pool.contexts <= 4 and engine.copies == loaded.pool.contexts and not engine.clashes


@pytest.mark.parametrize("graphs", [False, True])
def test_where_memory_is_out_calls_wait_for_a_context(load, graphs):
    loaded, engine, _ = load(graphs, most=2)
    inputs = [rows((1, 8, 64)[number % 3], number) for number in range(8)]

    def work(number):
        ready = loaded.ready("serving_default", inputs[number])
        for _ in range(100):
            assert right(ready(), inputs[number])

    assert not at_once(8, work)
    assert loaded.pool.contexts == 2 and not engine.clashes


def test_without_memory_for_one_context_the_error_says_so(load):
    loaded, _, _ = load(most=0)
    with pytest.raises(errors.TftrtError, match="no memory left for a context"):
        loaded.ready("serving_default", rows(1))()


def test_a_context_in_which_a_call_failed_is_given_up(load):
    loaded, engine, device = load(failing=[True])
    ready = loaded.ready("serving_default", rows(1))
    with pytest.raises(errors.TftrtError, match="TensorRT refuses"):
        ready()
    assert loaded.pool.contexts == 0 and not device.held
    assert right(ready(), rows(1)) and loaded.pool.contexts == 1 and len(engine.contexts) == 2


def test_a_graph_that_cannot_be_captured_is_said_and_calls_run_without(load, capsys):
    loaded, _, device = load(graphs=True)
    device.may_capture = False
    assert right(loaded.ready("serving_default", rows(1))(), rows(1))
    assert "run without a CUDA graph" in capsys.readouterr().err
    assert loaded.pool.captured == 0 and loaded.pool.contexts == 1


def test_the_first_shapes_get_graphs_and_the_others_run_without(load):
    loaded, _, _ = load(graphs=True)
    for batch in range(1, pools.MOST_GRAPHS + 4):
        assert right(loaded.ready("serving_default", rows(batch, batch))(), rows(batch, batch))
    assert loaded.pool.captured == pools.MOST_GRAPHS and loaded.pool.contexts == pools.MOST_GRAPHS + 1


def test_outputs_have_the_types_of_the_onnx_file(load):
    loaded, _, _ = load(out="float64")
    assert loaded.ready("serving_default", rows(1))()["y"].dtype == np.float64


# Calls of a server: each has inputs of its own


@pytest.mark.parametrize("graphs", [False, True])
def test_calls_with_inputs_of_their_own_keep_page_locked_memory(load, monkeypatch, graphs):
    loaded, engine, device = load(graphs)
    asked = []
    pinned = device.pinned
    monkeypatch.setattr(device, "pinned", lambda shape, dtype: asked.append(shape) or pinned(shape, dtype))
    for seed in range(5):
        for batch in (1, 8):
            assert right(loaded.answer(rows(batch, seed)), rows(batch, seed))
    # One for the inputs of each shape; those of outputs belong to contexts, a graph has one to itself, and they only grow.
    assert asked == [(1, 3), (12,), (8, 3), (96,)] and loaded.pool.contexts == (2 if graphs else 1)
    assert not at_once(4, lambda number: [_answered(loaded, number, seed) for seed in range(50)]) and not engine.clashes


def _answered(loaded, number, seed):
    inputs = rows(1 + number % 2, 100 * number + seed)
    assert right(loaded.answer(inputs), inputs)


def test_memory_is_kept_for_the_shapes_that_came_last(load, monkeypatch):
    monkeypatch.setattr(runner_job, "MOST_KEPT", 3)
    loaded, _, _ = load()
    for batch in (1, 2, 3, 1, 4, 5):
        loaded.answer(rows(batch))
    assert [key[0][1] for key in loaded._kept] == [(1, 3), (4, 3), (5, 3)]


def test_a_call_with_wrong_inputs_fails_alone(load):
    loaded, _, _ = load(failing=[True])
    for wrong, said in (
        ({}, "lacks the input 'x'"),
        (rows(65), "65"),
        ({"x": np.array([["a"] * 3], object)}, "strings came"),
    ):
        with pytest.raises(errors.TftrtError, match=said):
            loaded.answer(wrong)
    with pytest.raises(errors.TftrtError, match="TensorRT refuses the call"):
        loaded.answer(rows(1))
    assert right(loaded.answer(rows(1)), rows(1))


@pytest.mark.parametrize(
    ("said", "wanted", "graphs"),
    [("1", None, True), ("0", None, False), ("1", False, False), ("0", True, True), ("", True, True)],
)
def test_a_caller_that_says_whether_calls_are_graphs_is_not_overruled_by_the_environment(
    said, wanted, graphs, monkeypatch
):
    monkeypatch.setenv(runner_job.GRAPHS, said)
    monkeypatch.setattr(runner_job, "Loaded", lambda path, graphs: graphs)
    with runner_job.load("plan", Wanted(label="a plan", graphs=wanted)) as loaded:
        assert loaded is graphs
