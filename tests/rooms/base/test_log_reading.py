"""Logs as lines, heads and messages, and what they add up to: on recorded logs, and where lines of several processes are mixed."""

import gzip
import itertools
import json
import pathlib
import random
import re
from time import process_time

import pytest

from tests.command_here import run_tftrt
from tests.conftest import ROOT
from tests.trace_lines import BUILD, ENGINE, NAME, NATIVE, WHY
from tftrt_tools.base.logs import engine_layers, entries, heads, reading
from tftrt_tools.base.logs.known import MESSAGES
from tftrt_tools.base.logs.log_file import LONGEST_LINE, LogFile

RECORDED = ROOT / "tests/data/logs"
OP = "2026-11-24 07:44:43.{:06d}: {} tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:959] "
TRT = "2026-11-24 07:44:{}: I tensorflow/compiler/tf2tensorrt/utils/trt_logger.cc:79] DefaultLogger "
VERBOSE_8_5 = [
    (
        "10.000000",
        "*************** Autotuning format combination: Float(64,8,8,1) -> Float(4096,64,8,1) ***************",
    ),
    ("10.100000", "--------------- Timing Runner: conv1 + relu1 (CaskConvolution)"),
    ("10.300000", "conv1 + relu1 Set Tactic Name: sm80_xmma_fprop_implicit_gemm Tactic: 0x01"),
    ("10.600000", "Tactic: 0x0000000000000001 Time: 0.02"),
    ("11.000000", "Tactic: 0x0000000000000002 Time: 0.01"),
    (
        "11.000000",
        "Skipping tactic 3 due to insufficient memory on requested size of 3000000 detected for tactic 0x0000000000000003.",
    ),
    ("11.000000", "Fastest Tactic: 0x0000000000000002 Time: 0.01"),
    ("11.500000", "--------------- Timing Runner: conv1 + relu1 [profile 1] (CudnnConvolution)"),
    ("11.500000", "CudnnConvolution has no valid tactics for this config, skipping"),
    ("11.500000", ">>>>>>>>>>>>>>> Chose Runner Type: CaskConvolution Tactic: 0x0000000000000002"),
]


def read(tmp_path, *lines, name="a.log"):
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    return reading.read([str(tmp_path / name)], allow_empty=True)


def findings(summary):
    return {one.name: one for one in summary.findings}


@pytest.mark.parametrize(
    ("line", "source", "level", "thread", "place", "text"),
    [
        (
            "2026-11-22 11:22:13.391623: I tensorflow/trt_engine_op.cc:1115] text",
            "",
            "I",
            "",
            "tensorflow/trt_engine_op.cc:1115",
            "text",
        ),
        (
            "2026-11-24 07:20:22.167657: E   20888 tensorflow/port.cc:111] text",
            "",
            "E",
            "20888",
            "tensorflow/port.cc:111",
            "text",
        ),
        ("2026-11-24 07:17:07.435534: W tensorflow/segment.cc:970] ", "", "W", "", "tensorflow/segment.cc:970", ""),
        (
            "2026-11-24 10:00:00.000: E loading {name: m version: 1} failed: x",
            "",
            "E",
            "",
            "",
            "loading {name: m version: 1} failed: x",
        ),
        ("[11/24/2026-07:20:27] [TRT] [W] text", "", "W", "", "", "text"),
        ("[01/10/2024-21:52:52] [V] [TRT] text", "", "V", "", "", "text"),
        ("[01/10/2024-21:52:52] [I] === Model Options ===", "", "I", "", "", "=== Model Options ==="),
        ("[E] 3: text", "", "E", "", "", "3: text"),
        ("[TensorRT] VERBOSE: text", "", "V", "", "", "text"),
        ("[TensorRT] INTERNAL_ERROR: text", "", "F", "", "", "text"),
        ("[TRT]    text", "", "", "", "", "text"),
        ("ERROR: [TRT]: text", "", "E", "", "", "text"),
        ("WARNING:tensorflow:text", "", "W", "", "", "text"),
        ("I0127 01:35:26.525834 17 manager.cc:767] text", "", "I", "17", "manager.cc:767", "text"),
        ("W0000 00:00:1712345678.123456   4711 file.cc:12] text", "", "W", "4711", "file.cc:12", "text"),
        (
            "2023-08-21 17:24:59.358624197 [W:onnxruntime:Default, ep.h:75 log] [2023-08-21 15:24:59 WARNING] text",
            "",
            "W",
            "",
            "ep.h:75",
            "text",
        ),
        ("serving-1  | 2026-11-24 07:17:07.435534: W a.cc:1] text", "serving-1", "W", "", "a.cc:1", "text"),
        (
            "[pod/x-1/tfs] 2024-01-01T00:00:00.1Z 2026-11-24 07:17:07.435534: W a.cc:1] text",
            "pod/x-1/tfs",
            "W",
            "",
            "a.cc:1",
            "text",
        ),
        ("2024-01-01T00:00:00.1Z stderr F 2026-11-24 07:17:07.435534: W a.cc:1] text", "", "W", "", "a.cc:1", "text"),
        (
            "Nov 24 07:17:07 host tensorflow_model_server[77]: 2026-11-24 07:17:07.4: W a.cc:1] text",
            "host tensorflow_model_server[77]",
            "W",
            "",
            "a.cc:1",
            "text",
        ),
        (
            '{"log":"2026-11-24 07:17:07.435534: W a.cc:1] text\\n","stream":"stderr","time":"2024"}',
            "",
            "W",
            "",
            "a.cc:1",
            "text",
        ),
        ("\x1b[33m[01/10/2024-21:52:52] [W] [TRT] text\x1b[0m", "", "W", "", "", "text"),
    ],
)
def test_heads_of_all_programs_are_read(line, source, level, thread, place, text):
    around, rest = heads.split(line)
    head = heads.read(rest)
    assert (around, head.level, head.thread, head.place, head.text) == (source, level, thread, place, text)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Layer(NoOp): x",
        "To enable the following instructions: AVX2",
        "12 of 13",
        '{"log": 3',
        "Traceback (most recent call last):",
    ],
)
def test_other_lines_have_no_head(line):
    assert heads.read(heads.split(line)[1]) is None


def test_two_messages_in_one_line_are_told_apart():
    first, second = OP.format(1, "W") + "TF-TRT Warning: first", OP.format(2, "I") + "second"
    assert [one.text for one in entries.of([first + second])] == ["first", "second"]


def test_times_are_differences_in_seconds():
    assert heads.seconds("2026-11-23 23:59:59.5") == heads.seconds("2026-11-24 00:00:00.5") - 1
    assert heads.seconds("01/10/2024-21:52:52") == heads.seconds("2024-01-10 21:52:52") and heads.seconds("") is None


def test_lines_without_a_head_belong_to_the_error_before_them():
    found = list(entries.of([OP.format(1, "E") + "said", "  more", OP.format(2, "I") + "other", "alone"]))
    assert [(one.level, one.text, one.number) for one in found] == [
        ("E", "said\n  more", 1),
        ("I", "other", 3),
        ("", "alone", 4),
    ]


def test_a_message_without_an_end_is_cut():
    found = list(entries.of(itertools.chain([OP.format(1, "E") + "said"], ("x" * 100 for _ in range(10_000)))))
    assert len(found) == 1 and len(found[0].text) < 50_000


def test_a_recorded_build_adds_up():
    """The digits CNN in FP16 with three profiles, on an H100; most of the lines about kernels were taken out."""
    summary = reading.read([str(RECORDED / "build_fp16.log.gz")])
    (engine,) = summary.engines.engines
    assert (engine.runs, engine.native_runs, engine.collecting_runs, engine.fallbacks) == (1, 0, 3, ())
    (build,) = summary.engines.builds
    assert build.outcome == "built" and build.seconds == pytest.approx(60.4, abs=0.1) and build.shapes == "[[?,8,8,1]]"
    assert summary.context.tensorrt == {"8.5.3": 3} and list(summary.context.gpus) == ["NVIDIA H100 80GB HBM3, 9.0"]
    assert summary.builder.phases["Formats and tactics selection"] == (3, pytest.approx(48.82, abs=0.01))
    assert summary.builder.fusions["ConvScaleFusion"] == 4 and summary.builder.layer_counts["Original"] == 23
    (layers,) = summary.builder.engine_layers
    assert (layers.engine, layers.count, layers.products) == (engine.name, 18, {"FP32": 12})
    subnormal = findings(summary)["weights_subnormal_fp16"]
    assert len(subnormal.subjects) == 2 and all(
        name.endswith("Conv2D") or name.endswith("MatMul") for name in subnormal.subjects
    ), subnormal.subjects
    assert summary.unknown_count == 0


def test_a_recorded_build_that_was_ended_is_not_finished():
    summary = reading.read([str(RECORDED / "build_int8_unfinished.log.gz")])
    (build,) = summary.engines.builds
    assert (
        build.outcome == "not finished" and findings(summary)["range_taken"].count == 15 and summary.unknown_count == 0
    )
    assert [one.name for one in summary.findings if one.severity != "note"] == ["kernels_compiled_at_first_use"]


def test_a_recorded_fallback_is_told_by_engine_shape_and_count():
    """The digits CNN with engines for batches of 1, 8 and 32 was asked for 4, on an H100."""
    summary = reading.read([str(RECORDED / "fallback.log.gz")])
    (engine,) = summary.engines.engines
    (fallback,) = engine.fallbacks
    assert (engine.name, fallback.reason, fallback.shapes, fallback.warnings) == (
        "TRTEngineOp_65d45f244b_0_0",
        "no_engine_fits",
        "[[4,8,8,1]]",
        5,
    )
    assert not summary.engines.counted and list(summary.failed(["fallback"])) == ["fallback: no_engine_fits (5×)"]
    assert summary.unknown_count == 0


def test_a_recorded_server_says_what_it_could_not_load():
    summary = reading.read([str(RECORDED / "development_server.log.gz")])
    failed = findings(summary)["version_not_loaded"]
    assert failed.subjects == {
        "broken version 1: OUT_OF_RANGE: Read less bytes than requested": 2
    } and failed.mend.startswith("publish the model again")
    assert findings(summary)["no_version"].subjects == {"none": 3} and findings(summary)[
        "version_given_up"
    ].subjects == {"broken": 1}
    assert list(summary.failed(["load"])) and not list(summary.failed(["fallback", "build", "memory"]))


def test_a_recorded_conversion_says_what_stays_in_tensorflow():
    summary = reading.read([str(RECORDED / "conversion.log.gz")])
    assert summary.context.left["Placeholder"] == 3 and summary.unknown_count == 0
    because = summary.context.left_because
    assert because["Log1p: Op type Log1p is not supported."] == 6 and next(iter(because)).startswith(
        "Cast: Cast op is not supported - Allowed"
    )
    assert not [reason for reason in because if reason.startswith(("Placeholder", "NoOp", "Identity"))], (
        "they compute nothing"
    )
    assert not list(summary.failed(["error", "unknown"]))


def test_runs_are_counted_beyond_the_five_warnings(tmp_path):
    lines = [WHY.strip(), NATIVE.strip()] * 5 + [NATIVE.strip()] * 7 + [ENGINE.strip()] * 2
    summary = read(tmp_path, *lines)
    (engine,) = summary.engines.engines
    assert (engine.name, engine.runs, engine.native_runs, engine.warnings, engine.fell_back) == (
        NAME,
        2,
        12,
        5,
        12,
    ) and summary.engines.counted


def test_a_fallback_that_is_counted_alone_fails_the_check(tmp_path):
    assert list(read(tmp_path, NATIVE.strip(), NATIVE.strip()).failed(["fallback"])) == [
        f"fallback: {NAME} ran natively 2×"
    ]


def test_runs_that_are_meant_natively_are_no_fallback(tmp_path):
    collecting = OP.format(1, "I") + "Native segment is used during collecting shapes for profiles."
    calibrating = OP.format(2, "I") + f"Executing TRT calibration: {NAME}"
    summary = read(tmp_path, collecting, NATIVE.strip(), calibrating, NATIVE.strip(), calibrating, NATIVE.strip())
    (engine,) = summary.engines.engines
    assert (engine.native_runs, engine.collecting_runs, engine.calibration_runs) == (0, 1, 2) and not list(
        summary.failed(["fallback"])
    )


def test_builds_end_well_badly_or_not_at_all(tmp_path):
    began = OP.format(0, "I") + "Building a new TensorRT engine for {} with input shapes: [[{},8]]"
    summary = read(
        tmp_path,
        began.format("a/TRTEngineOp_1", 1),
        began.format("TRTEngineOp_2", 2),
        began.format("TRTEngineOp_3", 3),
        OP.format(500_000, "I") + "Added new engine to cache of a/TRTEngineOp_1. Cache size: 1",
        OP.format(600_000, "W")
        + "TF-TRT Warning: Engine creation for TRTEngineOp_2 failed. The native segment will be used instead. Reason: INTERNAL: why",
    )
    builds = {one.engine: (one.outcome, one.shapes, one.seconds, one.reason) for one in summary.engines.builds}
    assert builds == {
        "TRTEngineOp_1": ("built", "[[1,8]]", pytest.approx(0.5, abs=1e-4), ""),
        "TRTEngineOp_2": ("failed", "[[2,8]]", pytest.approx(0.6, abs=1e-4), "INTERNAL: why"),
        "TRTEngineOp_3": ("not finished", "[[3,8]]", None, ""),
    }


def test_kernels_are_counted_by_layer_and_runner(tmp_path):
    builder = read(tmp_path, *(TRT.format(time) + text for time, text in VERBOSE_8_5)).builder
    (layer,) = builder.layers
    assert (layer.layer, layer.timings, layer.fastest_ms, layer.runner, layer.tactic) == (
        "conv1 + relu1",
        2,
        0.01,
        "CaskConvolution",
        "0x0000000000000002",
    )
    assert layer.seconds == pytest.approx(1.0) and (layer.skipped, layer.wanted_bytes, builder.skipped_memory) == (
        1,
        3_000_000,
        1,
    )
    assert [(one.kind, one.timings, one.chosen) for one in builder.runners] == [("CaskConvolution", 2, 1)]


@pytest.mark.parametrize(
    "lines",
    [
        [
            "[TensorRT] VERBOSE: --------------- Timing Runner: conv1 (CaskConvolution)",
            "[TensorRT] VERBOSE: conv1 (scudnn) Set Tactic Name: volta_scudnn_128",
            "[TensorRT] VERBOSE: Tactic: -4787320710726427159 time 0.173056",
            "[TensorRT] VERBOSE: Tactic: -37215280111360163 time 0.134144",
            "[TensorRT] VERBOSE: Fastest Tactic: -37215280111360163 Time: 0.134144",
        ],
        [
            "[11/01/2024-10:32:48] [V] [TRT] --------------- Timing Runner: conv1 (CaskConvolution[0x80000009])",
            "[11/01/2024-10:32:48] [V] [TRT] Tactic Name: ampere_scudnn_128x64 Tactic: 0x5deb29b7a8e275f7 Time: 0.173056",
            "[11/01/2024-10:32:48] [V] [TRT] Tactic Name: sm80_xmma_fprop Tactic: 0xd828f024626fa982 Time: 0.134144",
            "[11/01/2024-10:32:48] [V] [TRT] conv1 (CaskConvolution[0x80000009]) profiling completed in 0.0813502 seconds. Fastest Tactic: 0xd828f024626fa982 Time: 0.134144",
        ],
    ],
)
def test_other_versions_of_tensorrt_are_understood(tmp_path, lines):
    (layer,) = read(tmp_path, *lines).builder.layers
    assert (layer.layer, layer.timings, layer.fastest_ms, layer.runner) == ("conv1", 2, 0.134144, "CaskConvolution")
    assert layer.seconds == (pytest.approx(0.0813502) if "2024" in lines[0] else None)


def test_lines_of_several_containers_are_told_apart(tmp_path):
    """Both build a layer of one name at the same time, and one says an error of two lines."""
    lines = []
    for time, text in VERBOSE_8_5:
        lines += [f"a-1  | {TRT.format(time)}{text}", f"b-1  | {TRT.format(time)}{text.replace('conv1', 'conv2')}"]
    error = (
        OP.format(1, "W")
        + "TF-TRT Warning: Engine creation for TRTEngineOp_1 failed. The native segment will be used instead. Reason: INTERNAL: x"
    )
    summary = read(
        tmp_path, *lines, f"a-1  | {error}", f"b-1  | {ENGINE.strip()}", "a-1  | \t failed to add TRT layer, at: node7"
    )
    assert {one.layer: one.timings for one in summary.builder.layers} == {"conv1 + relu1": 2, "conv2 + relu1": 2}
    assert summary.context.sources == {"a-1": 11, "b-1": 11} and findings(summary)["node_refused"].subjects == {
        "node7": 1
    }


def test_threads_are_told_apart_where_the_log_says_them(tmp_path):
    lines = []
    for time, text in VERBOSE_8_5:
        for thread, name in (("   77", "conv1"), ("   78", "conv2")):
            lines.append((TRT.format(time) + text).replace(": I ", f": I {thread} ").replace("conv1", name))
    summary = read(tmp_path, *lines)
    assert {one.layer: one.timings for one in summary.builder.layers} == {"conv1 + relu1": 2, "conv2 + relu1": 2}
    assert set(summary.context.sources) == {"thread 77", "thread 78"}


def test_logs_of_several_files_are_told_apart(tmp_path):
    """In each, an engine of one name is under way when the log ends; times are each log's own."""
    started = "2026-11-24 07:44:0{}.000000: I tensorflow/core/platform/cpu_feature_guard.cc:182] This TensorFlow binary is optimized to use"
    for name, time in (("b.log", 1), ("a.log", 2)):
        lines = [
            started.format(time),
            *(TRT.format(when) + text for when, text in VERBOSE_8_5[:4]),
            OP.format(time, "I") + BUILD.partition("] ")[2],
        ]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    paths = [str(tmp_path / name) for name in ("b.log", "a.log")]
    summary = reading.read(paths)
    assert summary.context.sources == dict.fromkeys(paths, 6)
    assert [one.first.partition(" ")[2] for one in summary.logs] == ["07:44:01.000000", "07:44:02.000000"]
    assert [one.starts for one in summary.logs] == [1, 1]
    assert [one.outcome for one in summary.engines.builds] == ["not finished"] * 2
    one_log = reading.read([str(tmp_path / "a.log")])
    assert one_log.context.sources == {"": 6}


def test_starts_are_counted_where_nothing_tells_processes_apart(tmp_path):
    started = "2026-11-24 07:44:01.000000: I {}tensorflow/core/platform/cpu_feature_guard.cc:182] This TensorFlow binary is optimized to use"
    assert read(tmp_path, started.format(""), started.format("")).logs[0].starts == 2
    assert read(tmp_path, *(f"{name}  | {started.format('')}" for name in ("a-1", "b-1"))).logs[0].starts == 0
    assert read(tmp_path, *(started.format(thread) for thread in ("   77 ", "   78 "))).logs[0].starts == 0


def test_weights_are_named_where_the_verbose_log_lists_them(tmp_path):
    overflow = "2026-11-24 07:38:26.5: W tensorflow/trt_logger.cc:83] TF-TRT Warning: DefaultLogger - 2 weights are affected by this issue: Detected finite FP32 values which would overflow in FP16 and converted them to the closest finite FP16 value."
    listed = (
        TRT.format("27.0")
        + "  List of affected weights: TRTEngineOp_1_0_0/a/Conv2D-conv:CONVOLUTION [profile 1].weight, TRTEngineOp_1_0_0/b/MatMul:FULLY_CONNECTED.weight"
    )
    found = findings(read(tmp_path, overflow, listed))["weights_overflow_fp16"]
    assert found.subjects == {"a/Conv2D": 1, "b/MatMul": 1} and found.severity == "error"


def test_a_recorded_build_of_two_engines_names_the_weights_that_fp16_rounds():
    """A BERT encoder in FP16, built on an H100, as one layer of Myelin's."""
    summary = reading.read([str(RECORDED / "build_two_engines.log.gz")])
    assert [(one.engine, one.shapes, one.outcome, one.seconds > 1) for one in summary.engines.builds] == [
        ("TRTEngineOp_0616caff03_0_0", "[[8,128]]", "built", True),
        ("TRTEngineOp_0616caff03_0_1", "[[8,128], [128,256], [8,1,1,128]]", "built", True),
    ]
    weights = findings(summary)["weights_subnormal_fp16"]
    assert (
        weights.count == 2 and weights.subjects["StatefulPartitionedCall/MatMul_7"] == 2 and len(weights.subjects) > 30
    )
    assert not [name for name in weights.subjects if "TRTEngineOp" in name or name.endswith("_constant")]
    assert summary.unknown_count == 0 and not list(summary.failed(["precision", "build", "fallback", "error"]))
    assert summary.builder.layers[0].layer.startswith("{ForeignNode[") and summary.builder.layers[0].runner == "Myelin"
    (layers,) = summary.builder.engine_layers
    assert (layers.engine, layers.kinds, layers.others) == ("TRTEngineOp_0616caff03_0_1", {"Myelin": 1}, {"FP16": 1})


def test_weights_are_named_where_the_line_before_names_them(tmp_path):
    """As TensorRT 8.4 and 8.6 write it."""
    heading, said = (
        "Weights [name=Conv_1 + PWN(PWN(Sigmoid_2), Mul_3).weight] had the following issues when converted to FP16:",
        " - Finite FP32 values which would overflow in FP16 detected.  Converting",
    )
    for form in ("[10/31/2022-11:31:08] [TRT] [W] ", "web-1  | [10/31/2022-11:31:08] [W] [TRT] "):
        found = findings(
            read(
                tmp_path,
                form + heading,
                form + " - Subnormal FP16 values detected.",
                form + said,
                form + heading.replace("_1", "_9"),
                form + said,
            )
        )
        assert found["weights_overflow_fp16"].subjects == {"Conv_1": 1, "Conv_9": 1}
        assert found["weights_subnormal_fp16"].subjects == {"Conv_1": 1}


@pytest.mark.parametrize(
    ("listed", "nodes"),
    [
        (
            "TRTEngineOp_1_0_0/a/Conv2D-conv:CONVOLUTION + PWN(PWN(s:ACTIVATION), m:ELEMENTWISE).bias, TRTEngineOp_1_0_0/b/MatMul:FULLY_CONNECTED [profile 2].weight",
            ["a/Conv2D", "b/MatMul"],
        ),
        (
            "TRTEngineOp_1_0_1/s/MatMul_1_FULLY_CONNECTED[kernel]_constant, TRTEngineOp_1_0_1/_tftrt_constant__54_CONSTANT_constant",
            ["s/MatMul_1", "_tftrt_constant__54"],
        ),
    ],
)
def test_names_of_weights_are_told_as_nodes(listed, nodes):
    assert engine_layers.owners(listed) == nodes


def test_unknown_errors_count_by_kind(tmp_path):
    lines = [
        f"2026-11-24 07:38:26.5: E tensorflow/new.cc:{place}] something new about 'x{number}' in {number} ms"
        for place in (1, 2)
        for number in range(5)
    ]
    summary = read(tmp_path, *lines, "2026-11-24 07:38:26.5: I tensorflow/new.cc:3] nobody minds")
    assert [(one.level, one.count, one.place) for one in summary.unknown] == [
        ("E", 5, "tensorflow/new.cc:1"),
        ("E", 5, "tensorflow/new.cc:2"),
    ]
    assert (summary.loud, summary.unknown_count) == (10, 10) and list(summary.failed(["unknown"])) == [
        "unknown: 10 errors that are not known here"
    ]


def test_an_unknown_error_behind_many_kinds_of_warnings_fails_the_check(tmp_path):
    warnings = [
        f"2026-11-24 07:38:26.5: W tensorflow/new.cc:1] the model {'x' * number} is new" for number in range(300)
    ]
    more = [one.replace("new.cc", f"new{place}.cc") for place in "abc" for one in warnings]
    summary = read(tmp_path, *warnings, *more, "2026-11-24 07:38:26.5: E tensorflow/new.cc:2] something new")
    assert summary.unknown_left_out and list(summary.failed(["unknown"])) == ["unknown: 1 error that is not known here"]


def test_a_summary_is_read_back(tmp_path):
    summary = read(
        tmp_path, BUILD.strip(), WHY.strip(), NATIVE.strip(), *(TRT.format(time) + text for time, text in VERBOSE_8_5)
    )
    assert summary.to_dict()["kind"] == "log"
    assert type(summary).from_dict(summary.to_dict()) == summary


def lines_of(path):
    with LogFile(str(path)) as log:
        return list(log), log


def test_bytes_that_are_no_text_do_not_stop_the_reading(tmp_path):
    (tmp_path / "a").write_bytes(
        b"\0" * 100_000 + WHY.encode() + b"\xff\xfe broken \xc3\n" + ENGINE.encode().replace(b"\n", b"\r\n")
    )
    lines, log = lines_of(tmp_path / "a")
    assert [lines[0].strip(), lines[-1], log.cut] == [WHY.strip(), ENGINE.strip(), 0] and len(lines) == 3


@pytest.mark.parametrize("zeros", [1, 4096, 100_000])
@pytest.mark.parametrize("place", [len(WHY) // 2, len(WHY)])
def test_zeros_in_a_log_are_no_part_of_it(tmp_path, zeros, place):
    """What a crash, or cutting a log off while the server writes, leaves in it."""
    text = (WHY + ENGINE + BUILD).encode()
    (tmp_path / "a").write_bytes(text[:place] + b"\0" * zeros + text[place:])
    lines, log = lines_of(tmp_path / "a")
    assert lines == text.decode().splitlines() and log.cut == 0
    assert read(tmp_path, text.decode(), name="b").engines == reading.read([str(tmp_path / "a")]).engines


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_logs_of_other_encodings_are_read(tmp_path, encoding):
    """PowerShell's `>` writes UTF-16."""
    (tmp_path / "a").write_bytes((WHY + ENGINE).encode(encoding))
    assert lines_of(tmp_path / "a")[0] == [WHY.strip(), ENGINE.strip()]


def test_a_line_without_an_end_is_cut(tmp_path):
    (tmp_path / "a").write_text("x" * (3 * LONGEST_LINE + 5) + "\n" + ENGINE)
    lines, log = lines_of(tmp_path / "a")
    assert [len(lines[0]), lines[1], log.cut, log.lines] == [LONGEST_LINE, ENGINE.strip(), 1, 2]


def test_a_line_that_repeats_the_words_of_a_message_is_read_fast(tmp_path):
    form = next(
        form
        for message in MESSAGES
        if message.name == "engine_of_other_tensorrt"
        for form in message.forms
        if len(form.literals) > 2
    )
    line = "2026-11-24 07:44:43.1: E x.cc:1] " + (" x ".join(form.literals[:-1]) + " y ") * 500
    before = process_time()
    assert len(line) > 50_000 and read(tmp_path, line, WHY.strip()).lines == 2
    assert process_time() - before < 5


def test_a_gzip_file_that_ends_in_the_middle_is_read_to_there(tmp_path):
    packed = gzip.compress(
        "".join(f"{ENGINE.strip()} {number:x}{hash(str(number))}\n" for number in range(20_000)).encode()
    )
    (tmp_path / "a.gz").write_bytes(packed[: len(packed) // 2])
    lines, log = lines_of(tmp_path / "a.gz")
    assert 5_000 < len(lines) < 15_000 and "end-of-stream" in log.damage


# Damaged lines


def _damaged(text, rng):
    """A log with one thing broken: bytes, numbers or dates changed, lines torn, joined or repeated."""
    lines = text.splitlines()
    for _ in range(rng.randrange(1, 8)):
        place = rng.randrange(len(lines))
        line, how = lines[place], rng.randrange(6)
        if how == 0 and line:
            at = rng.randrange(len(line))
            lines[place] = line[:at] + rng.choice("x.-:[](),9\x1bé²") + line[at + 1 :]
        elif how == 1:
            lines[place] = re.sub(
                r"\d+(\.\d+)?",
                lambda found: rng.choice([found[0], "99999999999999999999", "1.2.3", "-1", "nan", "½", ""]),
                line,
            )
        elif how == 2:
            lines[place] = line[: rng.randrange(len(line) + 1)]
        elif how == 3:
            lines[place] = line[: rng.randrange(len(line) + 1)] + lines[rng.randrange(len(lines))]
        elif how == 4:
            lines[place:place] = [lines[rng.randrange(len(lines))]] * 3
        else:
            lines[place] = re.sub(r"2026-\d\d-\d\d", "2026-02-30", line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.glob("*.log.gz")))
def test_a_damaged_line_costs_itself_alone(name, tmp_path):
    text = gzip.decompress((RECORDED / name).read_bytes()).decode(errors="replace")
    lines = text.splitlines()
    if len(lines) > 400:  # a part of a long log, another one each time
        lines = lines[:100] + lines[len(lines) // 2 : len(lines) // 2 + 200] + lines[-100:]
    rng, path = random.Random(name), tmp_path / "damaged.log"
    for _ in range(30):
        path.write_text(_damaged("\n".join(lines), rng))
        summary = reading.read([str(path)], allow_empty=True)
        json.dumps(summary.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "change",
    [
        ("2026-11-24", "2026-02-30"),
        ("2026-11-24", "2026-13-24"),
        ("[4,8,8,1]", "[4srv,8,8,1]"),
        ("completed in 1", "completed in 1.2.1"),
    ],
    ids=["a day", "a month", "a size", "seconds"],
)
@pytest.mark.parametrize("name", ["build_fp16", "resnet50_timing"])
def test_numbers_that_are_none_are_passed_over(name, change, tmp_path):
    text = gzip.decompress((RECORDED / f"{name}.log.gz").read_bytes()).decode(errors="replace")
    (tmp_path / "a.log").write_text(text.replace(*change))
    assert reading.read([str(tmp_path / "a.log")]).lines == len(text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "[MemUsageChange] Init builder kernel library: CPU +1, GPU +1, now: CPU {0}, GPU {0} (MiB)",
        "After vertical fusions: {0} layers",
        "Total Scratch Memory: {0}",
        "Skipping tactic 0x1 due to insufficient memory on requested size of {0} detected for tactic 0x2.",
        "Tactic: 5 scratch requested: {0}, available: 1",
        "--------------- Timing Runner: conv [profile {0}] (CaskConvolution)",
        "Layer(CaskConvolution): a, Tactic: 0x1, x (Float[{0},8,8]) -> y (Float[1,8])",
    ],
    ids=lambda text: text.split(":")[0],
)
def test_a_number_that_no_count_can_be_is_passed_over(text, tmp_path):
    """Python refuses to read thousands of digits."""
    summary = read(tmp_path, TRT.format("43.1") + text.format("9" * 5000), WHY.strip())
    assert summary.lines == 2 and "9" * 30 not in json.dumps(
        [summary.builder.layer_counts, summary.builder.memory, summary.builder.peak_cpu_mib]
    )


@pytest.mark.parametrize(
    "line",
    ['{"log":' + "[" * 60_000, '{"log":"2026-11-24 07:44:43.0: W x.cc:1] half a \\ud800 pair\\n"}'],
    ids=["deep", "half a character"],
)
def test_a_line_of_docker_that_is_none_costs_itself_alone(line, tmp_path):
    summary = read(tmp_path, line, WHY.strip())
    assert [one.name for one in summary.findings] == ["no_engine_fits"]
    json.dumps(summary.to_dict(), ensure_ascii=False).encode()


def test_warnings_of_a_process_that_does_not_count_its_runs_are_a_lower_bound(tmp_path):
    """One log counts each run, the other has five warnings, after which TF-TRT says nothing more."""
    for name in ("fallback", "build_fp16"):
        (tmp_path / f"{name}.log").write_bytes(gzip.decompress((RECORDED / f"{name}.log.gz").read_bytes()))
    both = [str(tmp_path / f"{name}.log") for name in ("fallback", "build_fp16")]
    assert not reading.read(both).engines.counted and reading.read(both[1:]).engines.counted
    said = run_tftrt("log", *both).stdout
    assert "at least 5" in said and "so there may be more" in said
    (tmp_path / "mixed.log").write_text("".join(pathlib.Path(one).read_text() for one in both))
    said = run_tftrt("log", tmp_path / "mixed.log").stdout
    assert "at least 5" in said and "so there may be more" in said
