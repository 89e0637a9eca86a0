"""What measures engines, as far as it goes without a GPU: names of libraries' functions, records of CUPTI, segments with sizes."""

import ast
import ctypes
import dataclasses
import inspect
import time
import types

import numpy as np
import pytest

trt = pytest.importorskip("tensorrt")
from tests import plan_device  # noqa: E402
from tftrt_tools.base import errors  # noqa: E402
from tftrt_tools.models.engine_cache.timings import Timings  # noqa: E402
from tftrt_tools.models.execution.job import cuda_libraries, cudart  # noqa: E402
from tftrt_tools.models.execution.job.cudart import HostArray  # noqa: E402
from tftrt_tools.models.kinds.plan.job import context as plan_call  # noqa: E402
from tftrt_tools.models.savedmodel import describe  # noqa: E402
from tftrt_tools.studies.profiling import engines, plan  # noqa: E402
from tftrt_tools.studies.profiling.apart import Request, SegmentsRequest, Sized  # noqa: E402
from tftrt_tools.studies.profiling.job import plan_context, plan_cupti, plan_graph, plan_job  # noqa: E402
from tftrt_tools.tensorrt.plans import build_job  # noqa: E402
from tftrt_tools.tensorrt.plans import building as plans_building  # noqa: E402
from tftrt_tools.tensorrt.plans.settings import Settings  # noqa: E402


def test_the_libraries_have_the_functions():
    runtime, cupti = ctypes.CDLL(cuda_libraries.runtime()), ctypes.CDLL(cuda_libraries.cupti())
    for name in cudart._ARGUMENTS:
        assert getattr(runtime, name)
    called = {
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(plan_cupti)))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("cuptiActivity")
        and " " not in node.value
        and ":" not in node.value
    }
    assert len(called) == 4
    for name in (
        *called,
        "cuptiActivityGetNextRecord",
        "cuptiGetResultString",
        "cuptiGetTimestamp",
        "InitializeInjectionNvtx2",
    ):
        assert getattr(cupti, name)


def test_tensorrt_has_what_is_asked_of_it():
    """`engine.x` and `self.context.x`: names are checked when they are used, and here nothing can be used."""
    engine, context = set(), set()
    for node in ast.walk(ast.parse(inspect.getsource(plan_context) + inspect.getsource(plan_job))):
        if isinstance(node, ast.Attribute):
            before = ast.unparse(node.value)
            engine |= {node.attr} if before in ("engine", "self.engine", "one.engine") else set()
            context |= {node.attr} if before in ("self.context", "context.context", "one.context.context") else set()
    context -= {
        "context",
        "close",
        "call",
        "enqueue",
        "shapes",
        "stream",
        "buffer_bytes",
        "context_bytes",
    }  # those of plan_context.Context
    assert len(engine) > 10 and len(context) > 8
    assert not [name for name in engine if not hasattr(trt.ICudaEngine, name)]
    assert not [name for name in context if not hasattr(trt.IExecutionContext, name)]


def test_every_part_has_its_measurement():
    assert [*plan.PARTS, *plan.OF_A_PLAN] == list(plan_job.MEASURES)


def test_a_model_without_engines_is_said_to_have_none(tmp_path):
    assert plan.measure(tmp_path) == (
        (),
        ("the model carries no engines: `tftrt build` makes them, and only saved ones can be taken apart",),
    )


def test_a_machine_without_a_gpu_leaves_a_reason_for_each_part(tmp_path):
    found = plan._part(Request(model=str(tmp_path), part="told"))
    assert "answers" not in found and found["error"].strip().splitlines()[-1].split(": ")[1].startswith("cuda")


class Record:
    """A record of CUPTI in memory, with values at offsets."""

    def __init__(self, kind, **values):
        self.buffer = ctypes.create_string_buffer(256)
        self.address = ctypes.addressof(self.buffer)
        self.kind, self._texts = kind, []
        ctypes.c_uint32.from_address(self.address).value = kind
        for key, value in values.items():
            offset = int(key.rpartition("_")[2])
            if isinstance(value, str):
                self._texts.append(ctypes.create_string_buffer(value.encode()))
                value = ctypes.addressof(self._texts[-1])
            (ctypes.c_uint64 if key.startswith(("u64", "text")) else ctypes.c_uint32).from_address(
                self.address + offset
            ).value = value


def test_records_of_cupti_become_kernels_launches_and_ranges():
    records = [
        Record(12, u32_4=2, u64_8=50, u32_16=1, u32_28=77, text_40="layer", text_48="TensorRT"),
        Record(5, u64_8=60, u64_16=70, u32_28=77, u32_32=9),
        Record(5, u64_8=60, u64_16=70, u32_28=77, u32_32=1234),
        Record(
            10,
            u64_16=100,
            u64_24=140,
            u32_48=13,
            u32_52=2,
            u32_56=3,
            u32_60=4,
            u32_64=64,
            u32_68=1,
            u32_72=1,
            u32_76=16,
            u32_80=32,
            u32_92=9,
            text_104="_Z3fooIfEvT_i",
            u64_144=5,
        ),
        Record(1, u32_4=8, u64_8=4096, u64_16=150, u64_24=160, u32_40=13, u32_44=10),
        Record(2, u64_8=64, u64_16=170, u64_24=171, u32_40=13, u32_44=11),
        Record(12, u32_4=4, u64_8=90, u32_16=1, u32_28=77),
        Record(12, u32_4=4, u64_8=95, u32_16=3, u32_28=77),
    ]
    found = plan_cupti._parsed((one.kind, one.address) for one in records)
    assert (
        found["kernels"] == [[0, 100, 140, 13, 9, [2, 3, 4], [64, 1, 1], 0, 48, 5]]
        and found["names"][0] == "void foo<float>(float, int)"
    )
    assert found["copies"] == [["memcpy 8", 150, 160, 13, 10, 4096], ["memset", 170, 171, 13, 11, 64]]
    # Calls that launched nothing are left out, and so is an end without a begin.
    assert found["launches"] == [[9, 60, 70, 77]]
    ((name, start, end, thread, domain),) = found["ranges"]
    assert (found["names"][name], start, end, thread, found["names"][domain]) == ("layer", 50, 90, 77, "TensorRT")


@pytest.fixture(scope="module")
def digits(converted):
    return converted("digits_cnn", "--precision=FP16")


def test_segments_have_the_sizes_of_the_call(digits):
    engine = describe.describe(digits)[0].engines[0].name
    sized = (Sized(engine, {"TensorRTInputPH_0": (4, 8, 8, 1)}), Sized("other", {}))
    found, none = plan_graph.describe(SegmentsRequest(model=str(digits), engines=sized))
    assert none.nodes == () and found.engine == engine
    assert found.by_name["TensorRTInputPH_0"].outputs[0].shape == (4, 8, 8, 1)
    products = {node.name.rsplit("/", 2)[-2]: node.flops for node in found.nodes if node.flops}
    assert products == {
        "conv1": 2 * 9 * 32 * 64 * 4,
        "conv2": 2 * 9 * 32 * 64 * 64 * 4,
        "hidden": 2 * 1024 * 64 * 4,
        "probabilities": 2 * 64 * 10 * 4,
    }
    order = list(found.by_name)
    assert all(order.index(source) < order.index(node.name) for node in found.nodes for source in node.inputs)
    # An input that the engine does not have keeps its declared shape.
    (open_batch,) = plan_graph.describe(SegmentsRequest(model=str(digits), engines=(Sized(engine, {}),)))
    assert open_batch.by_name["TensorRTInputPH_0"].outputs[0].elements is None and any(
        node.flops is None for node in open_batch.nodes
    )


class Ranged:
    """What an engine says of its profiles: a stand-in, because no engine can be loaded here. profiles: [(least, best, largest batch)]."""

    has_implicit_batch_dimension = False

    def __init__(self, *profiles):
        self._profiles, self.num_optimization_profiles, self.num_bindings = profiles, len(profiles), 2 * len(profiles)
        self.num_io_tensors = 2

    def get_tensor_name(self, index):
        return ("x", "y")[index]

    def get_tensor_mode(self, name):
        return trt.TensorIOMode.INPUT if name == "x" else trt.TensorIOMode.OUTPUT

    def is_shape_inference_io(self, name):
        return False

    def get_tensor_profile_shape(self, name, profile):
        return [(batch, 64) for batch in self._profiles[profile]]


@pytest.mark.parametrize(
    ("profiles", "rows", "wanted"),
    [
        ([(1, 32, 32)], 1, 0),
        ([(1, 32, 32)], 8, 0),
        ([(1, 32, 32)], 32, None),
        ([(1, 32, 32)], 64, None),
        ([(1, 1, 1), (2, 32, 32)], 8, 1),
        ([(1, 1, 1), (1, 32, 32)], 1, None),
    ],
)
def test_the_profile_that_serves_a_batch_which_none_was_tuned_for(profiles, rows, wanted):
    assert plan_context.serving(Ranged(*profiles), rows) == wanted


def test_what_was_measured_at_a_batch_stands_beside_what_was_measured_at_the_best_one():
    answers = [{"engine": "e", "record": 0, "profile": 0, "rows": rows} for rows in (0, 8)] + [
        {"engine": "e", "record": 0, "profile": 1}
    ]
    found, failed = engines.sorted_answers({"told": {"answers": answers}})
    assert list(found) == [("e", 0, 0, 0), ("e", 0, 0, 8), ("e", 0, 1, 0)] and not failed


class Places:
    """An engine that answers the places of what is above 0 in x, and its own context, as TensorRT 8.5.3 was seen to behave on an H100: before
    the first call the output's shape is (1, -1); later it is that of the last call, whatever the shape of x. `tells`: whether it tells the
    output's shape to the allocator."""

    num_io_tensors, active_optimization_profile, tells = 2, 0, True

    def __init__(self):
        self._addresses, self._x, self._last = {}, (), (1, -1)

    def create_execution_context(self):
        return self

    def get_tensor_name(self, index):
        return ("x", "places")[index]

    def get_tensor_mode(self, name):
        return trt.TensorIOMode.INPUT if name == "x" else trt.TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        return trt.float32 if name == "x" else trt.int32

    def get_tensor_shape(self, name):
        return (-1,) if name == "x" else self._last

    def set_input_shape(self, name, shape):
        self._x = shape
        return True

    def infer_shapes(self):
        return []

    def set_tensor_address(self, name, address):
        self._addresses[name] = address
        return True

    def set_output_allocator(self, name, allocator):
        self._allocator = allocator
        return True

    def execute_async_v3(self, stream):
        x = np.frombuffer(ctypes.string_at(self._addresses["x"], 4 * self._x[0]), np.float32)
        found = np.flatnonzero(x > 0).astype(np.int32)
        address = self._allocator.reallocate_output("places", 0, 512, 256)
        ctypes.memmove(address, found.ctypes.data, found.nbytes)
        self._last = (1, len(found))
        if self.tells:
            self._allocator.notify_shape("places", self._last)
        return True


def called(context, *rows):
    array = np.array(rows, np.float32)
    context.shaped({"x": array.shape})
    return context.call({"x": HostArray.of(array)})["places"].tolist()


def test_an_output_whose_shape_depends_on_values_has_the_shape_of_its_own_call():
    context = plan_call.Context(plan_device.Device(), Places(), 0)
    for rows in ([1, -1, 2], [-1, -2], [3, 4, 5, 6, 0, 7], [-1, -2], [-1, -2], [5, 5], [0]):
        assert called(context, *rows) == [np.flatnonzero(np.array(rows) > 0).tolist()]
    context.close()


def test_an_output_whose_shape_is_not_told_is_an_error_and_not_the_answer_of_the_call_before():
    engine = Places()
    context = plan_call.Context(plan_device.Device(), engine, 0)
    assert called(context, 1, -1, 2) == [[0, 2]]
    engine.tells = False
    with pytest.raises(plan_call.Refused, match="the shape of places"):
        called(context, 1, -1)


def test_the_bound_is_that_of_tensorrts_build_alone(tmp_path, monkeypatch):
    """A plan that came from the engine cache was lost before, and times of kernels were dropped, where reading took as long as the bound."""
    times = types.SimpleNamespace(serialize=lambda: b"times")
    config = types.SimpleNamespace(
        create_timing_cache=lambda known: times, set_timing_cache=lambda *_: True, get_timing_cache=lambda: times
    )
    builder = types.SimpleNamespace(build_serialized_network=lambda *_: time.sleep(0.4) or b"plan")
    monkeypatch.setattr(build_job.gpu, "identity", lambda: "a GPU")
    request = plans_building.Request(
        onnx="",
        plan=str(tmp_path / "model.plan"),
        timing_cache=str(tmp_path / "times"),
        profiles=(),
        settings=Settings(),
        ranges={},
        cache=None,
        origin="",
        verbose=False,
        minutes=0.1 / 60,
    )

    def work(asked):
        return build_job._Work(builder, None, config, asked, Timings(None, {}))

    with pytest.raises(errors.TftrtError, match="not ready when --max_build_minutes=0.00166667 were over"):
        work(request)._once()
    assert not list(tmp_path.iterdir())
    assert work(dataclasses.replace(request, minutes=1.0))._once() > 0.3
    assert {path.name for path in tmp_path.iterdir()} == {"model.plan", "times"}
