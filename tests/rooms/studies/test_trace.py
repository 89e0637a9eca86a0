"""Who ran, told from the log of TF-TRT. The log lines are those of TF 2.14.1 on an H100."""

from tests.trace_lines import BUILD, ENGINE, NAME, NATIVE, WHY
from tftrt_tools.models.execution import coverage, trace
from tftrt_tools.models.execution.run import Call


def call():
    import numpy as np

    return Call("serving_default", {"image": np.zeros((4, 8, 8, 1), np.float32)})


def test_an_engine_that_ran_is_named_without_its_scope():
    found = trace.combine({"engine": 1}, ENGINE)
    assert found.engine == {NAME: 1} and not coverage.misses(call(), found)


def test_a_fallback_is_named_with_its_shape_and_reason():
    found = trace.combine({"fallback": 1}, WHY + NATIVE)
    (miss,) = coverage.misses(call(), found)
    assert miss.startswith(f"{NAME} ran natively in serving_default(image 4x8x8x1) (TF-TRT Warning: Engine retrieval")


def test_a_build_inside_a_call_is_a_miss_although_the_engine_ran():
    found = trace.combine({"build": 1, "engine": 1}, BUILD + ENGINE)
    assert coverage.misses(call(), found) == [f"{NAME} was built inside the call in serving_default(image 4x8x8x1)"]


def test_what_the_profiler_counts_and_the_log_does_not_name_is_kept():
    found = trace.combine({"fallback": 3, "engine": 1}, NATIVE)
    assert found.fallback == {NAME: 1, "?": 2} and found.engine == {"?": 1}
    assert len(coverage.misses(call(), found)) == 2


def test_what_the_log_names_and_the_profiler_missed_is_kept():
    assert trace.combine({}, NATIVE).fallback == {NAME: 1}


def test_a_trace_crosses_the_process_border_whole():
    found = trace.combine({"fallback": 1}, WHY + NATIVE)
    assert trace.CallTrace.from_dict(found.to_dict()) == found


def test_the_profiler_is_read_without_a_gpu():
    """No engine op runs here, so it counts none; that the trace file is found and parsed is what is tested."""
    import tensorflow as tf

    from tftrt_tools.models.execution.job import profiling

    result, counts = profiling.profiled(lambda: tf.reduce_sum(tf.ones([3])).numpy())
    assert result == 3.0 and counts == {}
