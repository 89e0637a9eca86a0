"""The recorder on a machine whose memory holds traces of few calls only. Runs in a child process."""

from tftrt_tools.studies.profiling.job import record
from tftrt_tools.studies.profiling.recording import Request


class Calls:
    """Stands for whole.Whole: its calls leave an event each, and nothing of a model runs."""

    def __init__(self):
        self.tried = []

    def all_marked(self, count):
        import tensorflow as tf

        self.tried.append(count)
        for number in range(count):
            with tf.profiler.experimental.Trace(f"{number}" + "x" * 40_000):
                pass
        return [[0.0, 0.0, 0.0]] * count


def calls(request):
    """Trace 20 calls where memory holds the trace of `most`. Returns: {"tried": counts, "failed": why}."""
    from tftrt_tools.base.stack import memory_job

    asked = Request(models=(), folder=request["folder"], traced=20, callers=(), seconds=0.0)
    memory_job.available = lambda: record._TIMES_IN_MEMORY * (40_000 * request["most"] + 20_000)
    recorder, one = record._Recorder(asked), Calls()
    recorder._step("tracing", recorder._trace, one, {"model": "model", "number": 0})
    return {"tried": one.tried, "failed": recorder._found["failed"].get("tracing", {}).get("cause", "")}
