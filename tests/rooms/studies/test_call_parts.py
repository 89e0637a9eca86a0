"""A call taken apart: each instant counts once, whatever runs at the same time, and what runs is told by its owner."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import timelines
from tests.timelines import ENGINE, US, event
from tftrt_tools.models.execution import spans
from tftrt_tools.studies.profiling import call_parts, overlap, scaling, traces
from tftrt_tools.studies.profiling.call_records import Key

SPAN = st.tuples(st.integers(0, 60), st.integers(1, 30)).map(lambda one: (float(one[0]), float(one[0] + one[1])))
LAYERS = st.lists(st.lists(SPAN, max_size=6), max_size=6)
NAMES = st.sampled_from(
    [
        traces.INPUT,
        traces.RUN,
        traces.OUTPUT,
        "FunctionRun",
        "ExecutorState::Process",
        "a/b:MatMul",
        f"x/{ENGINE}:TRTEngineOp",
        "c:StatefulPartitionedCall",
        "TRTEngineOp::ExecuteTrtEngine",
        "TRTEngineOp::ExecuteNativeSegment",
        "cudaLaunchKernel",
    ]
)
HOST = st.lists(
    st.builds(lambda name, span, launch: event(name, *span, launch=launch), NAMES, SPAN, st.none() | st.integers(0, 5)),
    max_size=15,
)
GPU = st.lists(
    st.builds(
        lambda name, span, launch, op: event(name, *span, launch=launch, op=op),
        st.sampled_from(["kernel", "MemcpyH2D", "MemcpyD2H", "MemcpyD2D", "Memset"]),
        SPAN,
        st.none() | st.integers(0, 5),
        st.sampled_from(["", "d/e:Conv2D", f"{ENGINE}:TRTEngineOp"]),
    ),
    max_size=15,
)


# --- stretches of time


def instants(union):
    """Of stretches between whole numbers: the unit intervals that they cover."""
    return {at for start, end in union for at in range(int(start), int(end))}


@given(st.lists(SPAN, max_size=8), st.lists(SPAN, max_size=8))
def test_unions_are_sets_of_instants(first, second):
    one, other = spans.union(first), spans.union(second)
    assert instants(one) == instants(first)
    assert instants(spans.inside(one, other)) == instants(one) & instants(other)
    assert instants(spans.outside(one, other)) == instants(one) - instants(other)
    assert spans.length(one) == len(instants(one))


@given(st.lists(SPAN, max_size=8))
def test_several_at_once_are_counted_by_hand(found):
    counts = [sum(start <= at < end for start, end in found) for at in range(100)]
    assert instants(overlap.several(found)) == {at for at, count in enumerate(counts) if count >= 2}


# --- parts


@given(SPAN, LAYERS)
def test_an_instant_belongs_to_the_first_layer_that_covers_it(window, layers):
    found, rest = call_parts.partition([window], layers)
    covered = set()
    for shared, layer in zip(found, layers, strict=True):
        mine = instants(layer) & instants([window]) - covered
        assert instants(shared) == mine
        covered |= mine
    assert instants(rest) == instants([window]) - covered


@given(HOST, HOST, GPU, st.integers(1, 80))
def test_parts_are_never_negative_and_add_up_whatever_the_timeline(python, executor, gpu, length):
    mark = event(traces.CALL, 5, 5 + length)
    apart = call_parts.take_apart(
        (timelines.track(mark, *python), timelines.track(*executor), timelines.track(*gpu, gpu=True))
    )
    assert all(seconds >= 0 for seconds in apart.parts.values())
    assert sum(apart.parts.values()) == pytest.approx(length * US) and apart.seconds == pytest.approx(length * US)
    assert apart.timeline[0].start == 0 and apart.timeline[-1].end == pytest.approx(length * US)
    assert all(one.end == other.start for one, other in zip(apart.timeline, apart.timeline[1:], strict=False))


def test_a_call_with_an_engine_and_an_op_is_told_part_by_part():
    apart = call_parts.take_apart(timelines.tracks(timelines.call()))
    assert {key: round(seconds / US, 6) for key, seconds in apart.parts.items() if seconds} == {
        Key("engine", "GPU", ENGINE): 25,
        Key("op", "GPU"): 5,
        Key("input", "GPU"): 4,
        Key("output", "GPU"): 5,
        Key("engine", "host", ENGINE): 5,
        Key("input", "host"): 6,
        Key("output", "host"): 13,
        Key("graph", "host"): 5 + 10 + 13,
        Key("call", "host"): 5 + 2,
        Key("rest", ""): 2,
    }


def test_an_engine_op_is_told_with_its_kernels_its_gaps_and_their_arithmetic():
    apart = call_parts.take_apart(timelines.tracks(timelines.call()))
    (engine,) = apart.engines
    assert (engine.name, engine.runs, engine.kernels) == (ENGINE, 1, 2)
    assert engine.gpu_seconds == pytest.approx(25 * US) and engine.gap_seconds == pytest.approx(10 * US)
    assert engine.host_seconds == pytest.approx(10 * US) and list(engine.arithmetic) == ["FP16"]
    assert {name: round(seconds / US, 6) for name, seconds in apart.arithmetic.items()} == {"FP16": 25, "FP32": 5}


def test_an_engine_op_without_an_event_of_its_own_is_known_by_its_kernels():
    python, executor, gpu = timelines.call()
    executor = [one for one in executor if ":TRTEngineOp" not in one.name] + [
        event("TRTEngineOp::ComputeAsync", 20, 30)
    ]
    gpu = [
        dataclasses.replace(one, op=f"PartitionedCall/{ENGINE}:TRTEngineOp") if one.launch in (2, 3) else one
        for one in gpu
    ]
    (engine,) = call_parts.take_apart(timelines.tracks((python, executor, gpu))).engines
    assert (engine.name, engine.runs, engine.kernels) == (ENGINE, 1, 2) and engine.host_seconds == pytest.approx(
        10 * US
    )


def test_ops_and_copies_are_told_with_their_times_and_bytes():
    apart = call_parts.take_apart(timelines.tracks(timelines.call()))
    (op,) = apart.ops
    assert (op.name, op.type, op.runs, op.kernels) == ("model/dense/MatMul", "MatMul", 1, 1)
    assert (op.gpu_seconds, op.host_seconds) == pytest.approx((5 * US, 4 * US))
    assert [(one.kind, one.group, one.copies, one.bytes) for one in apart.copies] == [
        ("host to GPU", "input", 1, 400),
        ("GPU to host", "output", 1, 40),
    ]


def test_calls_in_which_a_thread_was_late_do_not_count():
    made = [
        timelines.call(start=1000 * number, number=number, late=late)
        for number, late in enumerate((0, 0, 0, 0, 500, 700))
    ]
    apart = call_parts.take_apart(timelines.tracks(*made))
    assert (apart.traced, apart.counted) == (6, 3) and apart.seconds == pytest.approx(100 * US)


def test_a_thread_that_an_earlier_call_left_waiting_hides_nothing():
    python, executor, gpu = timelines.call()
    late = (python, [event("ExecutorDoneCallback", -50, 150), *executor], gpu)
    assert (
        call_parts.take_apart(timelines.tracks(late)).parts
        == call_parts.take_apart(timelines.tracks(timelines.call())).parts
    )


def test_a_native_segment_is_told_by_the_name_of_its_engine():
    python, executor, gpu = timelines.call()
    executor = [
        event("TRTEngineOp::ExecuteNativeSegment", 21, 29) if one.name.startswith("TRTEngineOp::") else one
        for one in executor
    ]
    (engine,) = call_parts.take_apart(timelines.tracks((python, executor, gpu))).engines
    assert (engine.runs, engine.fallbacks, engine.builds) == (0, 1, 0)


def test_a_kernel_without_a_launch_belongs_to_the_op_that_the_profiler_names():
    python, executor, _ = timelines.call()
    gpu = [
        event("kernel", 40, 50, op="other/Conv2D:Conv2D"),
        event("kernel", 50, 55, op=f"{ENGINE}:TRTEngineOp"),
        event("kernel", 55, 56),
    ]
    apart = call_parts.take_apart(timelines.tracks((python, executor, gpu)))
    assert {one.name: one.kernels for one in apart.ops} == {"other/Conv2D": 1, "model/dense/MatMul": 0}
    assert apart.parts[Key("engine", "GPU", ENGINE)] == pytest.approx(5 * US) and apart.parts[
        Key("op", "GPU")
    ] == pytest.approx(11 * US)


def test_a_trace_without_a_call_cannot_be_taken_apart():
    with pytest.raises(ValueError, match="no call"):
        call_parts.take_apart((timelines.track(event("a:MatMul", 0, 1)),))


# --- scaling to the measured latency

PARTS = st.dictionaries(
    st.sampled_from(
        [Key("engine", "GPU", ENGINE), Key("op", "GPU"), Key("op", "host"), Key("call", "host"), Key("rest", "")]
    ),
    st.floats(0, 1e-2),
).filter(lambda parts: not parts or sum(parts.values()) > 1e-9)


def in_one_stage(parts, measured):
    return scaling.scaled({"input": {}, "rest": parts}, measured, {"input": 0.0, "rest": 1.0})


@given(PARTS, PARTS, st.floats(1e-6, 1e-1), st.floats(0, 1))
def test_scaled_parts_add_up_to_the_measured_latency_and_nothing_grows_but_the_rest(making, later, measured, share):
    fitted = scaling.scaled({"input": making, "rest": later}, measured, {"input": share, "rest": 1 - share})
    assert sum(fitted.parts.values()) == pytest.approx(measured) and min(fitted.parts.values()) >= 0
    assert all(
        seconds <= (making.get(key, 0) + later.get(key, 0)) * (1 + 1e-9)
        for key, seconds in fitted.parts.items()
        if key.group != "rest"
    )


def test_each_stage_is_scaled_for_itself():
    fitted = scaling.scaled(
        {"input": {Key("input", "host"): 2.0}, "rest": {Key("call", "host"): 6.0}}, 4.0, {"input": 0.25, "rest": 0.75}
    )
    assert fitted.parts == {
        Key("input", "host"): 1.0,
        Key("call", "host"): 3.0,
        Key("rest", ""): 0.0,
    } and fitted.host == {"input": 0.5, "rest": 0.5}


def test_the_host_shrinks_and_the_gpu_stays():
    fitted = in_one_stage({Key("engine", "GPU", ENGINE): 4.0, Key("call", "host"): 5.0, Key("rest", ""): 1.0}, 7.0)
    assert fitted.parts == {Key("engine", "GPU", ENGINE): 4.0, Key("call", "host"): 2.5, Key("rest", ""): 0.5}
    assert (fitted.host["rest"], fitted.gpu["rest"]) == (0.5, 1.0)


def test_a_longer_measured_call_cannot_be_placed():
    fitted = in_one_stage({Key("op", "GPU"): 4.0, Key("call", "host"): 5.0}, 10.0)
    assert fitted.parts[Key("rest", "")] == 1.0 and fitted.host["rest"] == 1.0


def test_a_gpu_that_was_slower_in_the_trace_is_scaled_too_and_said_so():
    fitted = in_one_stage({Key("op", "GPU"): 8.0, Key("call", "host"): 2.0}, 5.0)
    assert fitted.parts[Key("op", "GPU")] == 4.0 and fitted.gpu["rest"] == 0.5


# --- several callers


def test_overlap_is_told_from_the_timeline():
    marks = [event(traces.CALL, 0, 60, caller=0), event(traces.CALL, 40, 100, caller=1)]
    one = timelines.track(event("kernel", 10, 30), event("MemcpyD2H", 45, 55), gpu=True)
    other = timelines.track(event("kernel", 20, 50), gpu=True)
    found = overlap.of((timelines.track(marks[0]), timelines.track(marks[1]), one, other))
    assert found.calls_under_way == pytest.approx(1.2) and found.gpu_busy == pytest.approx(0.45) and found.streams == 2
    assert found.kernels_at_once == pytest.approx(10 / 45) and found.copies_beside_kernels == pytest.approx(0.5)
    assert overlap.of((one, other)) is None
