"""Where a request's time goes: what a trace is split into, and how the parts of a request are put together."""

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from tests.command_here import run_program
from tests.rooms.studies.test_bench import CLOSED, records
from tftrt_tools.models.execution import run, timeline
from tftrt_tools.studies.bench import breakdown, in_process, measurements, server_metrics, summary

DECODER = """
import sys
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([None], tf.string, "jpeg")])
def decode(jpeg):
    read = lambda text: tf.image.resize(tf.image.decode_jpeg(text, channels=3), [64, 64])
    pixels = tf.map_fn(read, jpeg, fn_output_signature=tf.TensorSpec([64, 64, 3], tf.float32))
    return {"pixels": tf.nn.conv2d(pixels, tf.ones([3, 3, 3, 8]), 1, "SAME")}


module = tf.Module()
module.decode = decode
tf.saved_model.save(module, sys.argv[1], signatures={"serving_default": decode})
"""
SPLIT = timeline.Split(calls=4, seconds=0.004, engine=0.001, decoding=0.002, ops=0.0005)
ALONE = breakdown.Alone(
    encoding_ms=0.5, reading_ms=0.25, empty_call_ms=1.0, plain_ms=5.0, split=SPLIT, here=True, engine_ops=True
)


def row(request_ms=7.0, runtime_ms=6.0, queuing_ms=1.0, call_ms=10.0, target=measurements.SERVER):
    server = server_metrics.ServerSide(
        requests={"OK": 100},
        request_ms=request_ms,
        runtime_ms=runtime_ms,
        queuing_ms=queuing_ms,
        input_rows=None,
        processed_rows=None,
        padding_rows=None,
        batches={},
        graph_runs=100,
    )
    return summary.row(target, CLOSED, records([call_ms] * 100), [1], server=server)


def parts(taken):
    return {part.name: part.ms for part in taken.parts}


# --- the trace


def events(*host, gpu=()):
    return {"/host:CPU": list(host), "/device:GPU:0": list(gpu)}


def test_time_side_by_side_counts_once_and_engines_come_first():
    found = timeline.split(
        events(
            ("SessionRun", 0.0, 10.0),
            ("ExecutorState::Process", 0.0, 10.0),
            ("a/map/while/DecodeJpeg:DecodeJpeg", 1.0, 4.0),
            ("b:DecodeJpeg", 2.0, 5.0),
            ("c:ResizeBilinear", 4.5, 5.5),
            ("d:Conv2D", 5.0, 7.0),
            ("TRTEngineOp_0:TRTEngineOp", 6.0, 6.2),
            ("TRTEngineOp::ExecuteTrtEngine", 6.0, 6.1),
            gpu=[("xmma", 6.0, 8.0), ("MemcpyD2H", 8.0, 8.5)],
        ),
        launches=[(6.0, 8.0)],
    )
    assert dataclasses.astuple(found) == pytest.approx((1, 10.0, 2.0, 4.5, 0.5 + 0.5))
    assert found.between == pytest.approx(10.0 - 2.0 - 4.5 - 1.0)


def test_only_what_runs_inside_a_call_counts_and_the_mean_is_of_a_call():
    found = timeline.split(
        events(
            ("SessionRun", 1.0, 2.0),
            ("SessionRun", 4.0, 6.0),
            ("a:MatMul", 0.0, 1.5),
            ("b:MatMul", 1.8, 5.0),
            ("c:MatMul", 9.0, 9.5),
        )
    )
    assert (
        found.calls == 2 and found.seconds == pytest.approx(1.5) and found.ops == pytest.approx((0.5 + 0.2 + 1.0) / 2)
    )


def test_ops_that_stand_for_others_are_left_out_and_records_are_decoded_too():
    found = timeline.split(
        events(
            ("SessionRun", 0.0, 10.0),
            ("x:StatefulPartitionedCall", 0.0, 9.0),
            ("y:While", 0.0, 9.0),
            ("p:ParseExampleV2", 1.0, 2.0),
            ("q:DecodeProtoV2", 3.0, 4.0),
            ("d:DatasetToSingleElement", 5.0, 9.0),
            ("ToSingleElementOp::DoCompute", 5.5, 8.0),
            ("m:DecodeImage", 6.0, 7.0),
        )
    )
    assert (found.decoding, found.ops) == (3.5, 1.0)


def test_a_trace_without_a_call_is_an_error():
    with pytest.raises(ValueError, match="no call"):
        timeline.split(events(("a:MatMul", 0.0, 1.0)))


def test_a_model_that_decodes_is_traced(tmp_path):
    run_program(DECODER, tmp_path / "model")
    picture = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (200, 300, 3), np.uint8)).save(picture, "JPEG")
    saved = run.save_calls(
        [run.Call("serving_default", {"jpeg": np.array([picture.getvalue()] * rows, object)}) for rows in (2, 3)],
        tmp_path / "calls",
    )
    request = run.LoadRequest(model=str(tmp_path / "model"), calls=tuple(run.named(saved)))
    found = in_process.inside.run(request).result
    split = found.split
    assert split.calls % 2 == 0 and found.plain_seconds > 0
    assert split.decoding > 0 and split.ops > 0 and split.engine == 0 and split.decoding + split.ops <= split.seconds


def test_kernels_are_an_engine_s_if_it_launched_them():
    from tftrt_tools.base.tf_private import xplane_pb2
    from tftrt_tools.models.execution.job import profiling

    def plane(name, *listed):
        made = xplane_pb2.XPlane(name=name)
        made.stat_metadata[1].name = "correlation_id"
        line = made.lines.add(timestamp_ns=0)
        for number, (event, start, end, correlation) in enumerate(listed, 1):
            made.event_metadata[number].name = event
            one = line.events.add(
                metadata_id=number, offset_ps=int(start * 1e12), duration_ps=int((end - start) * 1e12)
            )
            if correlation:
                one.stats.add(metadata_id=1, uint64_value=correlation)
        return made

    host = plane(
        "/host:CPU",
        ("SessionRun", 0, 10, 0),
        ("TRTEngineOp::ExecuteTrtEngine", 2, 3, 0),
        ("cudaLaunchKernel", 1, 1.1, 7),
        ("cudaLaunchKernel", 2.1, 2.2, 8),
        ("cudaLaunchKernel", 2.3, 2.4, 9),
        ("cudaLaunchKernel", 4, 4.1, 10),
    )
    gpu = plane("/device:GPU:0", ("before", 1, 2, 7), ("first", 3, 5, 8), ("second", 5, 6, 9), ("after", 6, 6.5, 10))
    spans = profiling._engine_kernels([host, gpu])
    assert spans == [pytest.approx((3, 5)), pytest.approx((5, 6))]
    found = timeline.split(profiling._events([host, gpu]), spans)
    assert (found.engine, found.ops, found.between) == pytest.approx((4.0, 1.5, 4.5))


# --- the parts


def test_the_parts_of_a_request_add_up():
    taken = breakdown.of_row(row(), ALONE)
    assert list(parts(taken)) == [
        breakdown.ENCODING,
        breakdown.EMPTY_CALL,
        breakdown.MESSAGES,
        breakdown.QUEUE,
        breakdown.DECODING,
        breakdown.ENGINES,
        breakdown.OPS,
        breakdown.BETWEEN,
        breakdown.READING,
        breakdown.REST,
    ]
    assert list(parts(taken).values()) == pytest.approx([0.5, 1.0, 1.0, 1.0, 2.5, 1.25, 0.625, 0.625, 0.25, 2.0])
    assert (
        taken.total_ms == pytest.approx(10.75)
        and sum(map(taken.share, taken.parts)) == pytest.approx(1.0)
        and taken.notes == ()
    )
    assert [part.found for part in taken.parts] == ["measured"] * 2 + ["counted"] * 2 + ["inferred"] * 4 + [
        "measured",
        "inferred",
    ]
    assert breakdown.Breakdown.from_dict(taken.to_dict()) == taken


@pytest.mark.parametrize(
    "changed",
    [
        dict(request_ms=11.0),
        dict(request_ms=9.9),
        dict(runtime_ms=8.0),
        dict(queuing_ms=20.0),
        dict(queuing_ms=0.0),
        dict(request_ms=30.0, runtime_ms=25.0, queuing_ms=22.0),
    ],
)
def test_clocks_that_disagree_give_no_part_below_nothing(changed):
    taken = breakdown.of_row(row(**changed), ALONE)
    assert (
        min(parts(taken).values()) >= 0
        and sum(parts(taken).values()) == pytest.approx(taken.total_ms)
        and taken.total_ms == pytest.approx(10.75)
    )


def test_without_batching_there_is_no_queue_and_without_an_engine_none_is_shown():
    native = dataclasses.replace(ALONE, split=dataclasses.replace(SPLIT, engine=0.0), engine_ops=False)
    taken = breakdown.of_row(row(queuing_ms=None, runtime_ms=5.0), native)
    assert not {breakdown.QUEUE, breakdown.ENGINES} & set(parts(taken)) and taken.notes == ()


def test_what_makes_the_shares_uncertain_is_said():
    asleep = dataclasses.replace(ALONE, split=dataclasses.replace(SPLIT, engine=0.0), here=False, plain_ms=1.0)
    notes = breakdown.of_row(row(), asleep).notes
    assert [
        "no engine ran" in notes[0],
        "the server is another" in notes[1],
        "5.000 ms in the server and 1.000 ms in process" in notes[2],
    ] == [True] * 3


def test_a_row_that_cannot_be_taken_apart_says_why():
    assert breakdown.missing(row()) == "" and breakdown.of_row(row(target=measurements.IN_PROCESS), ALONE) is None
    without = dataclasses.replace(row(), server=None)
    assert "no time of its requests" in breakdown.missing(without) and breakdown.of_row(without, ALONE) is None
    assert "no time of its requests" in breakdown.missing(row(runtime_ms=None))
    assert "no request was answered" in breakdown.missing(
        summary.row(measurements.SERVER, CLOSED, records([], failed=3), [1])
    )
