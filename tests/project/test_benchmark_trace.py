"""What a trace says of a call: the profiler is real, the GPU's plane is written by hand."""

import pytest
import tensorflow as tf

from benchmarks import _tf_worker, _trace
from tftrt_tools.models.execution.job import profiling

pytestmark = pytest.mark.bench


def test_the_host_is_seen_and_no_gpu():
    found = profiling.events(lambda: tf.reduce_sum(tf.ones([3])).numpy())
    assert any(
        "Sum" in name for plane, listed in found.items() if plane.startswith("/host:CPU") for name, _, _ in listed
    )
    assert all(end >= start for listed in found.values() for _, start, end in listed)
    assert _trace.kernels(found, 1) == []


def test_kernels_are_summed_over_calls_and_copies_are_none():
    found = {
        "/device:GPU:0": [
            ("gemm", 0.0, 0.002),
            ("relu", 0.002, 0.003),
            ("gemm", 0.004, 0.006),
            ("MemcpyD2H", 0.006, 0.009),
        ],
        "/host:CPU": [("gemm", 0.0, 1.0)],
    }
    first, second = _trace.kernels(found, 2)
    assert first == {"kernel": "gemm", "ms": 2.0, "runs": 1.0} and second["kernel"] == "relu" and second["runs"] == 0.5
    assert [one["kernel"] for one in _trace.kernels(found, 2, top=1)] == ["gemm"]


def test_the_shares_of_a_call_leave_overlaps_out():
    events = [("gemm", 0.0, 0.002), ("relu", 0.001, 0.003), ("MemcpyD2H", 0.003, 0.004)]
    found = _tf_worker._gpu_shares(events, 1)
    assert round(found["gpu_kernels_ms_per_call"], 6) == 3.0 and found["gpu_kernels_per_call"] == 2
    assert round(found["gpu_first_to_last_ms"], 6) == 4.0
