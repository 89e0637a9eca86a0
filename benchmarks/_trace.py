"""Which kernels take the GPU's time, from TensorFlow's profiler."""

import collections

from tftrt_tools.models.execution import kernels as kernel_names


def kernels(found, calls, top=40):
    """The kernels of `profiling.events` that take longest: [{"kernel", "ms": of all its runs in a call, "runs": in a call}], the
    longest first. Args: calls: how many calls the trace is of."""
    seconds, runs = collections.Counter(), collections.Counter()
    for name, start, end in kernel_names.runs(found):
        seconds[name] += end - start
        runs[name] += 1
    return [
        {"kernel": name, "ms": 1e3 * total / calls, "runs": runs[name] / calls}
        for name, total in seconds.most_common(top)
    ]
