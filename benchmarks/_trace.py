"""What runs while a function is called, on the GPU and on the host, from TensorFlow's profiler."""

import collections
import pathlib
import tempfile


def events(function):
    """Call `function` under the profiler. Returns: {plane, as "/device:GPU:0" or "/host:CPU": [(event, start, end in seconds)]}."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=1)
    found = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, options)
        try:
            function()
        finally:
            tf.profiler.experimental.stop()
        for path in pathlib.Path(folder).rglob("*.xplane.pb"):
            space = xplane_pb2.XSpace()
            space.ParseFromString(path.read_bytes())
            for plane in space.planes:
                found[plane.name] += _of_plane(plane)
    return dict(found)


def _of_plane(plane):
    for line in plane.lines:
        for event in line.events:
            start = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
            yield plane.event_metadata[event.metadata_id].name, start, start + event.duration_ps * 1e-12


def is_gpu(plane):
    """Whether a plane of `events` is a GPU's."""
    return plane.startswith("/device:GPU")


def is_copy(event):
    """Whether an event of a GPU copies or fills memory; all others are kernels."""
    return event.lower().startswith(("memcpy", "memset"))


def kernels(found, calls, top=40):
    """The kernels of `events` that take longest: [{"kernel", "ms": of all its runs in a call, "runs": in a call}], the longest first."""
    seconds, runs = collections.Counter(), collections.Counter()
    for plane, listed in found.items():
        for name, start, end in listed if is_gpu(plane) else ():
            if not is_copy(name):
                seconds[name] += end - start
                runs[name] += 1
    return [{"kernel": name, "ms": 1e3 * total / calls, "runs": runs[name] / calls} for name, total in seconds.most_common(top)]
