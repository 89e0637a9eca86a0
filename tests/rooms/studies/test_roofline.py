"""Peaks of GPUs against their data sheets, work of layers, what bounds them; memory, streams, kernels of layers by hand."""

import pytest

from tests.rooms.studies.test_fusion import graph, part
from tests.rooms.studies.test_layers import SMALL
from tftrt_tools.studies.profiling import cuda_graph, layers, layers_kernels, memory, peaks, roofline
from tftrt_tools.studies.profiling.engine_graph import Graph, Node
from tftrt_tools.studies.profiling.engine_graph import Tensor as Sized
from tftrt_tools.tftrt.conversion.layer_table import Built, Row, Tensor

# Of NVIDIA's data sheets: compute capability, multiprocessors, boost clock, memory clock by NVML, bus; then TFLOPS and GB/s, dense.
SHEETS = {
    "V100 SXM2": ("7.0", 80, 1530, 877, 4096, {"FP16": 125, "FP32": 15.7}, 898),
    "T4": ("7.5", 40, 1590, 5001, 256, {"FP16": 65, "FP32": 8.1, "INT8": 130}, 320),
    "A100 SXM4 40 GB": ("8.0", 108, 1410, 1215, 5120, {"FP16": 312, "TF32": 156, "FP32": 19.5, "INT8": 624}, 1555),
    "A10": ("8.6", 72, 1695, 6251, 384, {"FP16": 125, "TF32": 62.5, "FP32": 31.2, "INT8": 250}, 600),
    "L4": ("8.9", 58, 2040, 6251, 192, {"FP16": 121, "TF32": 60, "FP32": 30.3, "INT8": 242}, 300),
    "H100 SXM5": ("9.0", 132, 1830, 2619, 5120, {"FP16": 989.4, "TF32": 494.7, "INT8": 1978.9}, 3352),
}


@pytest.mark.parametrize("name", SHEETS)
def test_peaks_are_those_of_the_data_sheets(name):
    capability, count, clock, memory_clock, bus, tflops, bandwidth = SHEETS[name]
    found = peaks.of(capability, name, count, clock, False, memory_clock, bus)
    assert {arithmetic: found.of(arithmetic) / 1e12 for arithmetic in tflops} == pytest.approx(tflops, rel=0.01)
    assert (
        found.bytes_per_s / 1e9 == pytest.approx(bandwidth, rel=0.01)
        and found.source.startswith("NVIDIA")
        and not found.note
    )
    assert found.clock == "the highest that NVML names"


def test_what_is_not_known_of_a_gpu():
    assert peaks.of("6.1", "GTX 1080", 20, 1733, True, None, None) is None
    card = peaks.of("8.6", "NVIDIA GeForce RTX 3090", 82, 1695, True, None, None)
    assert (
        card.bytes_per_s is None
        and "half" in card.note
        and card.clock == "measured under this load"
        and card.of("FP64") is None
    )
    assert peaks.of("7.0", "V100", 80, 1530, True, None, None).of("TF32") is None


def test_work_is_counted_by_the_log_or_by_the_graph():
    known = Graph(
        "e",
        (
            Node(name="x", op="_Arg", inputs=(), outputs=(Sized("float32", (2, 10)),)),
            Node(name="w", op="Const", inputs=(), outputs=(Sized("float32", (10, 5)),)),
            Node(name="m", op="MatMul", inputs=("x", "w"), outputs=(Sized("float32", (2, 5)),), flops=200),
            Node(name="r", op="Relu", inputs=("m",), outputs=(Sized("float32", (2, 5)),)),
            Node(name="out", op="_Retval", inputs=("r",), outputs=()),
        ),
    )
    (layer,) = layers.of_names([f"{part('m', 'FULLY_CONNECTED')} + {part('r', 'ACTIVATION')}"], known)
    done = roofline.work(layer, known, {"m", "r"}, None, "FP16")
    assert done == roofline.Work(flops=200, activation_bytes=2 * (20 + 10), weight_bytes=2 * 50) and done.bytes == 160
    row = Row(
        name=layer.name,
        kind="x",
        tactic="0x0",
        inputs=(Tensor(name="x", type="Half", sizes=(2, 10, 1, 1), packed=8),),
        outputs=(Tensor(name="r", type="Float", sizes=(2, 5)),),
    )
    # Ten channels fill two packs of eight.
    assert roofline.work(layer, known, {"m", "r"}, row, "FP16").activation_bytes == 2 * 2 * 16 + 4 * 10
    (helper,) = layers.of_names([part("m-FULLY_CONNECTED-shuffle_0", "SHUFFLE")], known)
    assert roofline.work(helper, known, set(), None, "FP16").flops == 0
    assert roofline.tensor_bytes(Tensor(name="open", type="Half", sizes=(-1, 3))) is None


@pytest.mark.parametrize(
    ("flops", "size", "seconds", "bound"),
    [
        (int(1e12), 10, 2e-3, "compute"),
        (100, int(1e9), 1e-3, "memory"),
        (100, 100, 3e-6, "launch"),
        (int(1e9), 10**6, 1e-4, "neither"),
        (0, 0, 1e-3, None),
    ],
)
def test_what_bounds_a_layer(flops, size, seconds, bound):
    gpu = peaks.of("9.0", "H100", 132, 1830, True, 2619, 5120)
    roof = roofline.roof(roofline.Work(flops=flops, activation_bytes=size, weight_bytes=0), seconds, "FP16", gpu)
    assert roof.bound == bound
    if flops:
        assert roof.tflops == pytest.approx(flops / seconds / 1e12) and roof.gb_per_s == pytest.approx(
            size / seconds / 1e9
        )
    assert roofline.roof(roofline.Work(flops=1, activation_bytes=1, weight_bytes=0), 0.0, "FP16", gpu).bound is None


def test_activations_without_reuse_leave_out_what_takes_no_memory():
    def row(kind, source, target):
        return Row(
            name=target,
            kind=kind,
            tactic="0x0",
            inputs=(Tensor(name=source, type="Half", sizes=(10,)),),
            outputs=(Tensor(name=target, type="Half", sizes=(10,)),),
        )

    rows = (
        row("CaskConvolution", "in", "a"),
        row("NoOp", "a", "b"),
        row("PointWiseV2", "b", "c"),
        row("Reformat", "c", "out"),
    )
    told = {
        "bytes": 1000,
        "engine_bytes": 500,
        "context_bytes": 100,
        "device_memory_size": 30,
        "buffer_bytes": {"in": 40, "out": 4},
    }
    found = memory.of(
        told,
        {"copies_bytes": [[500, 90], [500, 80]]},
        None,
        Built(rows=rows, activation_bytes=(25,), scratch_bytes=(5,)),
        0,
        1 << 30,
    )
    assert found == memory.Memory(
        plan=1000,
        engine=500,
        context=100,
        activations_and_scratch=30,
        activations_of_profile=25,
        activations_without_reuse=40,
        workspace_asked=1 << 30,
        workspace_taken=5,
        inputs_and_outputs=44,
        next_engine=(500, 90),
    )
    assert found.reuse_saves == 15
    # Another process gave memory back while a copy was made.
    assert memory.of(told, {"copies_bytes": [[-14, 2], [500, 80]]}, None, None, 0, None).next_engine is None
    bare = memory.of({"bytes": 1000}, {}, graph(), None, 1, (1 << 63) - 513)
    assert bare.workspace_asked is None and bare.reuse_saves is None and bare.weights_in_model == SMALL.bytes()


def test_overlap_is_time_in_which_two_streams_run():
    assert cuda_graph.overlap([(0, 10, 1), (10, 20, 1)]) == 0 and cuda_graph.overlap([]) is None
    assert cuda_graph.overlap([(0, 10, 1), (5, 15, 2)]) == pytest.approx(5 / 15)
    assert cuda_graph.overlap([(0, 10, 1), (0, 10, 2), (20, 30, 1)]) == pytest.approx(0.5)
    assert cuda_graph.overlap([(0, 10, 1), (2, 4, 1)]) == 0  # one stream, two branches of a graph


def test_streams_and_graphs_that_failed_say_so():
    found = cuda_graph.streams(
        {"streams": [{"contexts": 1, "one_thread_calls_s": 10.0}]},
        {"streams": [{"contexts": 1, "errors": {"trace": "RuntimeError: x"}}]},
    )
    assert found[0].one_thread == 10 and found[0].overlap is None and cuda_graph.streams({}, {}) == ()
    failed = cuda_graph.measured({"errors": {"all": "CudaError: cudaStreamEndCapture: operation not permitted (900)"}})
    assert failed.saves is None and "could not be measured: CudaError" in failed.text()


def trace(kernels, ranges=()):
    """A trace of plan_cupti: kernels (name, start, end, launched at), ranges (name, start, end)."""
    names = sorted({name for name, *_ in (*kernels, *ranges)} | {"TensorRT"})
    return {
        "names": names,
        "copies": [],
        "kernels": [
            [names.index(name), start, end, 7, number, [2, 3, 1], [64, 1, 1], 0, 0, 0]
            for number, (name, start, end, _) in enumerate(kernels)
        ],
        "launches": [[number, at, at + 1, 1] for number, (_, _, _, at) in enumerate(kernels)],
        "ranges": [[names.index(name), start, end, 1, names.index("TensorRT")] for name, start, end in ranges],
    }


def test_a_kernel_belongs_to_the_innermost_range_of_its_launch():
    found = trace(
        [("k1", 100, 200, 5), ("k2", 210, 220, 15), ("k3", 1000, 1100, 905), ("k4", 1110, 1130, 915)],
        [
            ("all", 0, 30),
            ("a", 4, 8),
            ("b [profile 1]", 14, 18),
            ("all", 900, 930),
            ("a", 904, 908),
            ("b [profile 1]", 914, 918),
        ],
    )
    calls = layers_kernels.calls(found, 2)
    assert (
        [call.layers for call in calls] == [("a", "b"), ("a", "b")]
        and calls[0].kernels[0].blocks == 6
        and calls[0].kernels[0].threads == 64
    )
    assert calls[0].seconds == pytest.approx(120e-9) and calls[0].busy == pytest.approx(110e-9)
    how, by, others = layers_kernels.by_layer(calls, [("a", 1e-7), ("b", 1e-8), ("c", 0.0)])
    assert (
        how == "ranges"
        and others == 0
        and by["b"] == layers_kernels.OfLayer(names=("k2",), seconds=pytest.approx(15e-9))
        and "c" not in by
    )


def test_calls_of_different_kernels_are_not_taken_apart():
    assert layers_kernels.calls(trace([("k", 0, 1, 0), ("k", 2, 3, 2), ("k", 4, 5, 4)]), 2) == ()
    assert layers_kernels.calls(trace([]), 2) == () and layers_kernels.by_layer((), [("a", 1.0)]) == (None, {}, 0.0)


def test_alignment_gives_neighbours_to_the_layer_that_they_fit():
    calls = layers_kernels.calls(
        trace([("k1", 0, 5000, 0), ("k2", 6000, 8000, 1), ("k3", 9000, 10000, 2), ("k4", 11000, 15000, 3)]), 1
    )
    # Each layer that runs has 1 µs more than its kernels.
    how, by, others = layers_kernels.by_layer(
        calls, [("first", 6e-6), ("nothing", 0.0), ("second", 4e-6), ("third", 5e-6)]
    )
    assert how == "aligned" and {name: one.names for name, one in by.items()} == {
        "first": ("k1",),
        "second": ("k2", "k3"),
        "third": ("k4",),
    }
    assert others == 0
