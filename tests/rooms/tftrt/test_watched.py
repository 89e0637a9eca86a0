"""Native work beside which the caller goes on."""

import threading

import pytest
import tensorflow as tf

from tftrt_tools.tftrt.conversion.job import watched


def test_the_caller_goes_on_while_a_native_op_runs():
    """TensorFlow holds Python's lock in no op: a matrix product that takes a while lets the clock tick."""
    ticks, matrix = [], tf.random.stateless_uniform((1500, 1500), [1, 2]) / 1500.0

    @tf.function
    def long(x):
        return tf.while_loop(lambda step, _: step < 40, lambda step, y: (step + 1, x @ y), (0, x))[1]

    long.get_concrete_function(matrix)
    got = watched.run(lambda: long(matrix), ticks.append, every=0.02)
    assert got.shape == (1500, 1500) and len(ticks) > 1 and ticks == sorted(ticks)


def test_what_the_work_raises_the_caller_gets():
    with pytest.raises(ZeroDivisionError):
        watched.run(lambda: 1 // 0, lambda _: None)


def test_work_that_is_not_ready_in_time_is_left():
    go_on, budget = threading.Event(), watched.Budget(0.001)
    assert not budget.over
    with pytest.raises(watched.NotReady):
        watched.run(go_on.wait, lambda _: None, budget.until(), every=0.01)
    assert budget.over
    go_on.set()


def test_without_a_bound_there_is_no_end():
    budget = watched.Budget()
    assert budget.until() is None and not budget.over
    assert watched.run(lambda: 7, lambda _: None, budget.until()) == 7
