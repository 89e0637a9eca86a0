"""Timelines of calls made by hand, as `profiling.traces` reads them."""

from tftrt_tools.studies.profiling import traces
from tftrt_tools.studies.profiling.traces import Event, Track

ENGINE = "TRTEngineOp_0_0"
US = 1e-6


def event(name, start, end, **facts):
    """An Event; times in microseconds."""
    return Event(name=name, start=start * US, end=end * US, **facts)


def track(*events, gpu=False, name="thread"):
    """A Track with its events in order."""
    return Track(name, gpu, tuple(sorted(events, key=lambda one: (one.start, -one.end))))


def call(start=0.0, number=0, late=0.0):
    """The tracks of one call of 100 us (and `late`) with one engine and one op outside: python thread, executor thread, GPU.

    0-10 input (copy 4-8 on the GPU), 10-80 run: Python 10-15, graph 15-78, engine op 20-30 launches two kernels (25-40 and 50-60), op 30-34
    launches one (60-65); 80-100 output: copy back 85-90.
    """
    at, base = start, 10 * number
    python = [
        event(traces.CALL, at, at + 100 + late, number=number),
        event(traces.INPUT, at, at + 10),
        event("cudaMemcpyAsync", at + 2, at + 3, launch=base + 1),
        event(traces.RUN, at + 10, at + 80),
        event("EagerExecute", at + 12, at + 79),
        event("FunctionRun", at + 15, at + 78),
        event(traces.OUTPUT, at + 80, at + 98),
        event("cudaMemcpyAsync", at + 82, at + 83, launch=base + 5),
    ]
    executor = [
        event("ExecutorState::Process", at + 18, at + 36),
        event(f"PartitionedCall/{ENGINE}:TRTEngineOp", at + 20, at + 30),
        event("TRTEngineOp::ExecuteTrtEngine", at + 21, at + 29),
        event("cudaLaunchKernel", at + 22, at + 23, launch=base + 2),
        event("cudaLaunchKernel", at + 26, at + 27, launch=base + 3),
        event("model/dense/MatMul:MatMul", at + 30, at + 34),
        event("cudaLaunchKernel", at + 31, at + 32, launch=base + 4),
    ]
    gpu = [
        event("MemcpyH2D", at + 4, at + 8, launch=base + 1, bytes=400),
        event("sm80_xmma_fprop_f16f16", at + 25, at + 40, launch=base + 2),
        event("sm80_xmma_fprop_f16f16", at + 50, at + 60, launch=base + 3),
        event("ampere_sgemm_128x64", at + 60, at + 65, launch=base + 4),
        event("MemcpyD2H", at + 85, at + 90, launch=base + 5, bytes=40),
    ]
    return python, executor, gpu


def tracks(*calls):
    """The three tracks of several `call`s."""
    python, executor, gpu = (sum((one[place] for one in calls), []) for place in range(3))
    return (
        track(*python, name="python"),
        track(*executor, name="tf_Compute"),
        track(*gpu, gpu=True, name="Stream #14"),
    )
