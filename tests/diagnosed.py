"""Profiles for tests of `tftrt diagnose`: made by hand, part by part."""

from tftrt_tools.models.execution.trace import CallTrace
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.studies.profiling.call_profile import Callers, CallProfile, Latency, Part
from tftrt_tools.studies.profiling.call_records import EngineRun, OpTime
from tftrt_tools.studies.profiling.profile import GpuState, Machine, Profile, Side
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

MS = 1e-3
ENGINE = "TRTEngineOp_0_0"


def trace(**kinds):
    """A CallTrace."""
    return CallTrace(**{"engine": {}, "fallback": {}, "build": {}, "calibration": {}, **kinds})


def run(name=ENGINE, gpu=1.0, arithmetic=None, gaps=0.0):
    """An EngineRun; milliseconds."""
    found = {kind: ms * MS for kind, ms in (arithmetic or {"FP16": gpu}).items()}
    return EngineRun(
        name=name,
        runs=1,
        host_seconds=0.1 * MS,
        gpu_seconds=gpu * MS,
        kernels=4,
        gap_seconds=gaps * MS,
        arithmetic=found,
    )


def call(
    shape=(32, 64), *, parts=None, engines=None, dtype="float32", name="x", ops=(), callers=(), later=None, first=0.01
):
    """A CallProfile. parts: {(group, device): milliseconds}; by default little but an engine of 1 ms."""
    parts = parts or {("call", "host"): 0.05, ("engine", "GPU"): 1.0, ("output", "host"): 0.02}
    engines = (run(gpu=parts.get(("engine", "GPU"), 0.0)),) if engines is None else engines
    seconds = sum(parts.values()) * MS
    made = tuple(
        Part(name=f"{group} {device}", group=group, device=device, seconds=ms * MS, traced_seconds=ms * MS)
        for (group, device), ms in parts.items()
    )
    size = 4
    for side in shape:
        size *= side
    arithmetic = {}
    for one in engines:
        for kind, spent in one.arithmetic.items():
            arithmetic[kind] = arithmetic.get(kind, 0.0) + spent
    return CallProfile(
        signature="serving_default",
        shapes={name: shape},
        dtypes={name: dtype},
        input_bytes={name: size},
        output_shapes={},
        output_dtypes={},
        output_bytes={},
        latency=Latency(p50=seconds, p90=seconds, rounds=(seconds,), calls=100, stages=(0.0, seconds, 0.0)),
        traced_seconds=seconds,
        counted=4,
        traced=6,
        host_factors={"input": 1.0, "rest": 1.0},
        gpu_factors={"input": 1.0, "rest": 1.0},
        parts=made,
        timeline=(),
        ops=tuple(ops),
        engines=tuple(engines),
        copies=(),
        arithmetic=arithmetic,
        callers=tuple(callers),
        first_seconds=first,
        first=trace(),
        later=later or trace(engine={one.name: 1 for one in engines}),
    )


def op(kind, gpu=0.0, host=0.0):
    """An OpTime; milliseconds."""
    return OpTime(
        name=f"model/{kind.lower()}", type=kind, runs=1, host_seconds=host * MS, gpu_seconds=gpu * MS, kernels=1
    )


def several(count, per_second):
    """Callers."""
    return Callers(callers=count, per_second=per_second, p50=count / per_second, p90=count / per_second)


def profile(*calls, original=(), settings=None, declared=(), strategy="Optimal", gpus=(), xla=0, cpus=16, load=0.0):
    """A Profile. declared: shapes that engines were built for."""
    engine = EngineOp(
        name=ENGINE,
        precision="FP16",
        inputs=(),
        outputs=(),
        ops={"MatMul": 4},
        native_segment="",
        implicit_batch=False,
        profile_strategy=strategy,
        workspace_size_bytes=0,
        maximum_cached_engines=1,
        allow_build_at_runtime=True,
        use_calibration=False,
        calibrated=False,
        explicit_precision=False,
    )
    signature = SignatureResult(
        name="serving_default",
        inputs=(InputSpec("x", "float32", (None, 64)),),
        converted=True,
        coverage=1.0,
        engines=(engine,),
        left_out=(),
        native_ops={},
        calls=tuple({"x": shape} for shape in declared),
    )
    side = Side(model="m", digest="sha256:1", load_seconds=1.0, calls=tuple(calls))
    other = (
        Side(model="o", digest="sha256:2", load_seconds=1.0, calls=tuple(original), xla_count=xla) if original else None
    )
    machine = Machine(
        cpu="",
        cpus=cpus,
        load=load,
        gpu={"name": "GPU", "compute_capability": "9.0", "driver": ""},
        gpus=tuple(gpus),
        versions={},
        tf32=True,
        inter_op=0,
        intra_op=0,
        jit="",
        environment={},
    )
    return Profile(
        model=side,
        original=other,
        machine=machine,
        on_gpu=True,
        signatures=(signature,),
        settings={"precision_mode": "FP16", **(settings or {})},
    )


def gpu(**facts):
    """A GpuState."""
    return GpuState(index=0, name="GPU", **facts)
