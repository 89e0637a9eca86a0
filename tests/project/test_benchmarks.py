"""The benchmarks' arithmetic and tables, and their TensorRT side against a stand-in for the GPU. Nothing here asserts a time."""

import importlib
import io
import json
import struct
import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from benchmarks import (
    _loop,
    _plans_table,
    _process,
    _report,
    _stats,
    calibration,
    call_ways,
    convert_overhead,
    engine_efficiency,
    fleet_overhead,
    latency,
    precision,
    tuning,
    tuning_fleet,
    wire,
)

pytestmark = pytest.mark.bench


def test_quantile_is_a_measured_value():
    assert _stats.quantile([4, 1, 3, 2], 0.5) == 2
    assert _stats.quantile(range(1, 101), 0.99) == 99
    assert _stats.quantile([7], 0.01) == 7


def test_summary_is_in_milliseconds_and_leaves_p99_out_of_few_samples():
    few = _stats.summary([0.001, 0.003, 0.002])
    assert few["p50_ms"] == pytest.approx(2) and few["p99_ms"] is None and few["n"] == 3
    assert _stats.summary([0.001] * 99 + [1.0])["p99_ms"] == pytest.approx(1)


def test_ratios_pair_the_rounds():
    found = _stats.ratios([2, 6, 4], [1, 2, 4])
    assert (found["median"], found["min"], found["max"], found["of_medians"], found["n"]) == (2, 1, 3, 2, 3)


def test_union_of_spans_counts_overlap_once():
    assert _stats.union_seconds([(0, 2), (1, 3), (5, 6), (5.2, 5.8)]) == pytest.approx(4)
    assert _stats.union_seconds([]) == 0


def test_results_are_whole_on_disk_after_each_row(tmp_path, capsys):
    results = _report.Results(tmp_path / "deep" / "r.json", "x")
    results.add(section="a", p50_ms=1.5, error=None)
    results.note("built", {"s": 3})
    again = _report.Results(tmp_path / "deep" / "r.json", "x", resume=True)
    assert again.rows == [{"section": "a", "p50_ms": 1.5, "error": None}] and again.data["built"] == {"s": 3}
    assert again.data["machine"]["cpus"] and "p50_ms 1.5" in capsys.readouterr().out


def test_table_aligns_numbers_and_leaves_missing_cells_empty():
    text = _report.table(
        [("way", "way"), ("ms", "ms")], [{"way": "long name", "ms": 12345.6}, {"way": "b", "ms": None}]
    )
    assert text.splitlines() == ["way           ms", "---------  -----", "long name  12346", "b"]


def test_closed_loop_counts_every_call_of_every_caller():
    calls, lock = [0, 0], threading.Lock()

    def caller(index):
        def call():
            with lock:
                calls[index] += 1

        return call

    measured = _loop.measure([caller(0), caller(1)], batch=8, seconds=0.01, least=120)
    assert measured["workers"] == 2 and measured["n"] >= 240 and measured["images_s"] > 0
    assert sum(calls) >= measured["n"] + 2 * _loop.WARM_CALLS


def test_closed_loop_raises_what_a_caller_raises():
    def fail():
        raise ValueError("no engine")

    with pytest.raises(ValueError, match="no engine"):
        _loop.measure([lambda: None, fail], 1, 0.01)


def test_efficiency_compares_equal_ways_only():
    one = {"batch": 1, "way": "NumPy to NumPy", "workers": 1}
    rows = [
        {**one, "section": "trt", "model": "TensorRT alone", "p50_ms": 0.5, "images_s": 2000},
        {**one, "section": "tftrt", "model": "TF-TRT FP16", "p50_ms": 1.0, "images_s": 1000},
        {**one, "section": "tftrt", "model": "TF-TRT FP16", "workers": 2, "p50_ms": 1.0, "images_s": 9},
        {"batch": 1, "section": "tftrt", "model": "TF-TRT FP16", "way": "refused", "error": "no"},
    ]
    assert engine_efficiency.efficiency(rows) == [{**one, "latency": 0.5, "throughput": 0.5}]


def test_the_table_of_plans_has_one_line_a_variant():
    one, call = (
        {"case": "m", "variant": "plan FP16 as a CUDA graph"},
        {"way": "whole calls", "p50_ms": 0.5, "p99_ms": 0.75, "workers": 1},
    )
    rows = [
        {**one, "way": "answers", "batch": 32, "snr_db": 40.04, "top1_same": 0.97},
        {**one, **call, "batch": 1, "images_s": 2000},
        *({**one, **call, "batch": 128, "workers": count, "images_s": 1e4 * count} for count in (1, 2)),
        *(
            {**one, "way": "in turns", "batch": batch, "ratio": 1.25, "ratio_low": 1.0, "ratio_high": 1.5}
            for batch in (1, 128)
        ),
        {"case": "m", "variant": "TF-TRT FP16", "problem": "not made"},
    ]
    machine = dict.fromkeys(("gpu", "tensorflow", "tensorrt", "time"), "-")
    *_, measured, missing = _plans_table.markdown({"machine": machine, "rows": rows}).splitlines()
    assert (
        measured
        == "| m: plan FP16, graphs | 0.5 (0.75) |  | 10,000, 20,000 | 1.250 (1.000 to 1.500) | 0.800 | 40 | 97% |"
    )
    assert missing.startswith("| m: TF-TRT FP16 | not made |")


def test_latency_table_has_one_line_a_batch_size():
    rows = [
        {"model": label, "batch": batch, "n": 100, "p50_ms": ms, "speedup": 6 / ms, "largest_difference": 0.0}
        for batch in (1, 8)
        for label, ms in (("TensorFlow", 6.0), ("TF-TRT FP16", 1.0))
    ]
    lines = latency.summary(rows).splitlines()
    assert len(lines) == 4 and "TF-TRT FP16 x" in lines[0] and lines[2].split()[:3] == ["1", "6", "1"]


def test_the_winners_flags_become_a_tuned_column(tmp_path):
    flags = tuning.flags_of("--model=/m\n--precision=INT8\n--high_precision_nodes=a/b c|d\\.e\n--shapes=x:32x8\n")
    (tmp_path / "tuned.flags").write_text(f"--tuned=digits_cnn:{flags}\n")
    options = precision.parse(["--precision=tuned", "--models=digits_cnn", f"@{tmp_path / 'tuned.flags'}"])
    ((_, (column,)),) = precision._chosen(options)
    settings = precision.cases.settings(column, "x:1x8")
    assert (settings.precision_mode, settings.high_precision_nodes, settings.shapes) == ("INT8", "a/b c|d\\.e", "x:1x8")
    assert tuning.flags_of("--nouse_dynamic_shape\n").startswith("--precision=FP32 ")


def test_the_table_of_a_search_names_the_winner_and_what_failed():
    settings = {"precision_mode": "INT8", "use_dynamic_shape": True, "dynamic_shape_profile_strategy": "Optimal"}
    trial = {
        "backend": "tftrt",
        "settings": settings,
        "high_precision": ["n"],
        "latencies": {"call": {"ms": 2.0}},
        "accuracy": 0.9,
        "kept": True,
        "build_seconds": 7.0,
        "failure": "",
        "number": 1,
    }
    found = {
        "native": {"call": {"ms": 6.0}},
        "objective": "call",
        "original": 1.0,
        "winner": 1,
        "trials": [
            trial,
            {**trial, "number": 2, "latencies": {}, "accuracy": None, "kept": False, "failure": "no memory"},
            {**trial, "number": 3, "backend": "tensorrt"},
        ],
    }
    native, winner, failed, plan = tuning.trials("digits_cnn", found)
    assert (native["ms"], winner["times"], winner["winner"]) == (6.0, 3.0, "winner")
    assert plan["what"] == "plan, INT8, 1 node high"
    assert winner["what"] == "INT8, 1 node high, Optimal" and (failed["ms"], failed["winner"], failed["kept"]) == (
        None,
        "no memory",
        "no",
    )


def _varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def test_engines_are_read_out_of_a_saved_model(tmp_path):
    tensorrt_side = pytest.importorskip("benchmarks._tensorrt")
    engine, shape = b"plan" * 100, b"\x12\x02\x08\x01"
    message = b"\x0a" + _varint(len(shape)) + shape + b"\x12" + _varint(len(engine)) + engine
    record = struct.pack("<Q", len(message)) + b"crc_" + message + b"crc_"
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "trt-serialized-engine.TRTEngineOp_0").write_bytes(record * 2)
    assert tensorrt_side.saved_engines(tmp_path) == [engine, engine]


class FakeCuda:
    """Pointers are numbers; copies and waits do nothing; a call takes a millisecond by the events."""

    def __init__(self):
        self.made = 0

    def malloc(self, size):
        self.made += 1
        return self.made

    def stream(self):
        return self.malloc(0)

    event = stream

    def pinned(self, shape, dtype):
        return np.zeros(shape, dtype)

    def wait(self, stream):
        pass

    record = to_device = to_host = lambda self, *_: None

    def seconds_between(self, first, last):
        return 1e-3

    def captured(self, enqueue, stream):
        raise RuntimeError("no capture here")


class FakeContext:
    device_memory = 0

    def __init__(self, engine):
        self._engine, self.calls = engine, 0

    def set_optimization_profile_async(self, profile, stream):
        return True

    def set_input_shape(self, name, shape):
        return True

    def set_tensor_address(self, name, address):
        return address > 0

    def get_tensor_shape(self, name):
        return (1, 10)

    def execute_async_v3(self, stream):
        self.calls += 1
        return True


class FakeEngine:
    """One input, one output; two profiles where `dynamic`."""

    num_io_tensors, num_optimization_profiles, device_memory_size = 2, 2, 64

    def __init__(self, trt, dynamic):
        self._trt, self._dynamic = trt, dynamic

    def get_tensor_name(self, index):
        return ("in", "out")[index]

    def get_tensor_mode(self, name):
        return self._trt.TensorIOMode.INPUT if name == "in" else self._trt.TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        return self._trt.float32

    def get_tensor_shape(self, name):
        return (-1 if self._dynamic else 1, 4, 4, 3)

    def get_tensor_profile_shape(self, name, profile):
        batch = (8, 1)[profile]
        return [(batch, 4, 4, 3)] * 3

    def create_execution_context(self):
        return FakeContext(self)

    create_execution_context_without_device_memory = create_execution_context


@pytest.mark.parametrize("converted", [True, False])
def test_tensorrt_section_writes_every_row(tmp_path, monkeypatch, converted):
    side = pytest.importorskip("benchmarks._tensorrt")
    from benchmarks import _trt_worker

    monkeypatch.setattr(side, "cuda", FakeCuda)
    monkeypatch.setattr(_trt_worker.plan_context, "load", lambda data: FakeEngine(side.trt, data == b"saved"))
    monkeypatch.setattr(side, "saved_engines", lambda model: [b"saved"])
    (tmp_path / "alone-fp16-1.plan").write_bytes(b"alone")
    request = {
        "json": str(tmp_path / "r.json"),
        "benchmark": "engine_efficiency",
        "workdir": str(tmp_path),
        "precision": "FP16",
        "batches": [1],
        "seconds": 0.01,
        "workers": [1, 2],
        "size": 4,
        "onnx": "",
        "converted": "model" if converted else "",
    }
    _trt_worker.main(request)
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert {row["model"] for row in rows} == (
        {_trt_worker.ALONE}
        if not converted
        else {_trt_worker.ALONE, _trt_worker.TAKEN_OUT, _trt_worker.TAKEN_OUT + ", shape and scratch set in each call"}
    )
    assert [row for row in rows if "error" in row and "capture" in row["error"]]
    assert {row["way"] for row in rows if row.get("workers") == 2} >= {"NumPy to NumPy"}
    assert np.load(tmp_path / "answer-trt.npy").shape == (1, 10)


def test_a_shape_without_a_profile_is_refused():
    side = pytest.importorskip("benchmarks._tensorrt")
    with pytest.raises(RuntimeError, match="no profile"):
        side.Context(FakeCuda(), FakeEngine(side.trt, True), (2, 4, 4, 3))
    with pytest.raises(RuntimeError, match="takes"):
        side.Context(FakeCuda(), FakeEngine(side.trt, False), (2, 4, 4, 3))


def test_every_benchmark_says_what_it_is_and_what_it_needs(capsys):
    from benchmarks import __main__ as listing

    assert listing.main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in listed] == listing.names()
    assert {"calibration", "convert_overhead", "engine_cache", "engine_efficiency", "latency", "precision"} <= set(
        listing.names()
    )
    assert all(len(line) > 30 for line in listed)


def test_benchmarks_without_a_gpu_are_skipped_with_the_reason(monkeypatch, capsys):
    from benchmarks import __main__ as listing

    monkeypatch.setattr(listing._report, "gpu", lambda: None)
    monkeypatch.setattr(listing, "_ran", lambda name: not importlib.import_module(f"benchmarks.{name}").NEEDS_GPU)
    wanted = sum(importlib.import_module(f"benchmarks.{name}").NEEDS_GPU for name in listing.names())
    assert listing.main([]) == 0 and wanted >= 5
    assert "latency: " in (out := capsys.readouterr().out) and out.count("[skipped: it needs an NVIDIA GPU") == wanted


def test_overhead_ratios_pair_the_two_sides_of_a_round():
    rows = [
        {
            f"{side}_{key}": value * (1.5 if side == "tftrt" else 1)
            for side in convert_overhead.SIDES
            for key in ("wall_s", "cpu_s", "largest_mb", "tree_mb")
        }
        | {"bare_inside_s": 1.0, "tftrt_steps": {"saving": 2.0}}
        for value in (2.0, 4.0)
    ]
    ratios = convert_overhead.summarize(rows)
    assert ratios["time"]["median"] == 1.5 and ratios["largest process"]["bare"] == 3.0
    assert "saving 2.00" in convert_overhead.summary(ratios, rows)


def test_calibration_tells_histograms_from_the_forward_pass():
    row = {
        "batch": 10,
        "images": 500,
        "tensors": 178,
        "values": 500 * 37_000_000,
        "collect_s": 70.0,
        "forward_s": 14.0,
        "scales_s": 1.0,
        "collect_mb": 3000.0,
        "forward_mb": 3200.0,
    }
    last = calibration.summary([row]).splitlines()[-1].split()
    assert last == ["10", "500", "178", "37", "70", "14", "55", "1", "3000", "3200"]


def test_steps_last_until_the_next_one_begins():
    assert convert_overhead._steps([["start", 0.0], ["loading", 1.0], ["loading", 1.5], ["end", 4.0]]) == {
        "start": 1.0,
        "loading": 3.0,
    }


def test_a_process_tree_is_measured_whole(tmp_path):
    import sys

    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(60 << 20); import time; time.sleep(0.3)'])"
    done = _process.run([sys.executable, "-c", code], tmp_path, None)
    assert done["largest_mb"] > 60 and done["tree_mb"] > 60 and done["wall_s"] > 0 and done["cpu_s"] > 0
    with pytest.raises(RuntimeError, match="ended with 3"):
        _process.run([sys.executable, "-c", "raise SystemExit(3)"], tmp_path, None)


def test_build_times_are_compared_with_the_baseline():
    from benchmarks import build_time

    rows = [
        {"model": "/a/net", "case": case, "side": side, "seconds": seconds}
        for case, side, seconds in (("cold", "now", 60.0), ("cold", "baseline", 120.0), ("cached", "now", 9.0))
    ] + [{"model": "/a/net", "case": "beside", "side": "now", "problem": "not done after 300 s"}]
    assert build_time._summary(rows) == "net: cold 60.0 s (0.50 of 120.0), cached 9.0 s"


def test_build_times_refuse_what_is_no_model_or_case(tmp_path):
    from benchmarks import build_time

    for given in (["nothing=x:1x2"], [f"{tmp_path}"], ["--cases=cold,warm"]):
        with pytest.raises(SystemExit):
            build_time._options(given)
    assert build_time._options([f"{tmp_path}=x:1x2;y:3"]).models == [(tmp_path, "x:1x2;y:3")]


def test_tensorrt_alone_gets_the_profiles_of_the_shapes():
    from benchmarks import _trt_profiles

    assert _trt_profiles.profiles("x:1x2,8x2;s/y:1,8", ["x", "y"]) == [
        {"x": (1, 2), "y": (1,)},
        {"x": (8, 2), "y": (8,)},
    ]
    with pytest.raises(RuntimeError, match="ONNX has the inputs z"):
        _trt_profiles.profiles("x:1x2", ["z"])


def test_the_forms_of_a_request_hold_the_same_pictures():
    from PIL import Image

    files = wire.files(3)
    sent = {form: predict_pb2.PredictRequest.FromString(wire.requests(form, files, 2)[1]) for form in wire.FORMS}
    assert {form: one.model_spec.signature_name for form, one in sent.items()} == wire.FORMS
    floats, pixels, strings = (tf.make_ndarray(sent[form].inputs["image"]) for form in wire.FORMS)
    assert floats.dtype == np.float32 and pixels.dtype == np.uint8 and floats.shape == pixels.shape == (2, 224, 224, 3)
    assert np.array_equal((floats * 255).round(), pixels) and strings.tolist() == files[1:]
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(strings[0]))), pixels[0])


def test_the_figures_of_a_form_are_medians_of_the_rounds():
    rounds = [
        {"rate": rate, "p50_ms": 1.0, "p99_ms": 2.0, "client_ms": 0.5, "server_ms": None} for rate in (10.0, 30.0, 20.0)
    ]
    assert wire.summary(8, rounds) == {
        "rate": 20.0,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
        "client_ms": 0.5,
        "server_ms": None,
        "pictures": 160.0,
    }


def test_rows_of_foreign_onnx_files_are_as_their_inputs_want_them():
    from benchmarks import onnx_files

    for one in onnx_files.FILES:
        if one.batched:
            rows, again, others = (one.rows(2, seed) for seed in (1, 1, 2))
            for name, shape in one.shapes.items():
                assert rows[name].shape == (2, *shape) and rows[name].dtype == (np.int32 if one.bytes else np.float32)
                assert np.array_equal(rows[name], again[name]) and not np.array_equal(rows[name], others[name])
    named = {one.name: one for one in onnx_files.FILES}
    assert (
        named["320n"].shape_flag(8) == "images:8x3x320x320"
        and named["silero_vad"].shape_flag(8) == "input:1x576;state:2x1x128"
    )


def test_call_ways_times_every_way_of_a_model_in_turns(tmp_path, capsys):
    file = tmp_path / "ways.json"
    assert call_ways.main(["--rounds=3", "--calls=2", f"--json={file}"]) == 0
    rows = json.loads(file.read_text())["rows"]
    ways = [row["way"] for row in rows]
    assert ways[0] == call_ways.FIRST and len(ways) == len(set(ways)) == 8
    assert {row["n"] for row in rows} == {6} and {row["only"] for row in rows} == {"CPU: overhead alone"}
    assert rows[0]["ratio"] == rows[0]["ratio_min"] == 1 and "CPU: overhead alone" in capsys.readouterr().out


def test_call_ways_goes_round_and_ends_when_the_time_is_up():
    seen = []
    ways = {call_ways.FIRST: lambda: seen.append("a"), "other": lambda: seen.append("b")}
    call_ways.in_turns(ways, rounds=2, calls=1, end=float("inf"))
    assert seen == ["a", "b", "a", "b", "b", "a"]
    assert {way: len(times) for way, times in call_ways.in_turns(ways, 9, 1, end=0).items()} == {
        call_ways.FIRST: 1,
        "other": 1,
    }


def test_call_ways_holds_the_input_in_the_session_and_computes_each_time(tmp_path):
    array = np.ones((1, 64), np.float32)
    sessions = call_ways.Sessions(call_ways.save_small(tmp_path / "small"), array, "/CPU:0")
    held = sessions.ways()["callable, held"]
    first = held()
    with sessions._holding.graph.as_default():
        (variable,) = (one for one in sessions._holding.graph.get_operations() if one.name == "held_input")
        sessions._holding.run(tf.raw_ops.AssignVariableOp(resource=variable.outputs[0], value=2 * array))
    np.testing.assert_allclose(held(), 2 * first, rtol=1e-6)
    sessions.close()


def test_call_ways_refuses_a_way_with_other_answers():
    with pytest.raises(SystemExit, match="other answers otherwise"):
        call_ways.check({call_ways.FIRST: lambda: np.ones(2), "other": lambda: np.zeros(2)})


def test_call_ways_gives_ratios_of_the_same_round():
    found = call_ways.rows({call_ways.FIRST: [[0.002], [0.004], [0.005]], "other": [[0.001], [0.001], [0.002]]})[
        "other"
    ]
    assert (found["ratio"], found["ratio_min"], found["ratio_max"]) == (0.4, 0.25, 0.5)
    assert (found["p50_ms"], found["less_ms"], found["n"]) == (1, 3, 3)


def test_what_a_task_of_a_fleet_costs_is_told_per_round():
    rows = [{"child_s": 0.1, "task_s": 0.5}, {"child_s": 0.2, "task_s": 0.7}, {"child_s": 0.1, "task_s": 0.4}]
    said = fleet_overhead.summary(rows)
    assert said == "a task takes 0.50 s, a plain child 0.10 s: 0.40 s more (4.00 times, 3.50 to 5.00, 3 rounds)"


def test_searches_on_one_gpu_and_on_all_are_compared_by_time_and_winner():
    def search(seconds, winner, times=None):
        trials = [
            {
                "number": number,
                "backend": "tftrt",
                "settings": {
                    "precision_mode": precision,
                    "minimum_segment_size": 3,
                    "dynamic_shape_profile_strategy": None,
                },
            }
            for number, precision in enumerate(("FP16", "INT8"), 1)
        ]
        return {
            "seconds": seconds,
            "winner": winner,
            "trials": trials,
            "final": times and {"times_as_fast_as_tensorflow": times},
        }

    near, far = ({"1": {"low": 2.0, "high": high}, "2": {"low": 2.5, "high": 3.0}} for high in (2.6, 2.4))
    rows = tuning_fleet.table(
        {
            ("a", "one"): search(100.0, 1),
            ("a", "all"): search(55.0, 1),
            ("b", "one"): search(100.0, 1),
            ("b", "all"): search(60.0, 2, near),
            ("c", "one"): search(100.0, 1),
            ("c", "all"): search(60.0, 2, far),
            ("d", "one"): search(100.0, 1),
        }
    )
    assert [(row["model"], row["ratio"], row["winners"]) for row in rows] == [
        ("a", 0.55, "the same"),
        ("b", 0.6, "within the interval"),
        ("c", 0.6, "tftrt FP16 3 None / tftrt INT8 3 None"),
        ("d", None, "none"),
    ]
