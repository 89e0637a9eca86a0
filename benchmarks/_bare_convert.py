"""The few lines that a user writes without this toolkit: python -m benchmarks._bare_convert SOURCE OUTPUT PRECISION [--start_up]

With --start_up it ends after its imports, so that what they cost can be taken away.
"""

import sys
import time

from tensorflow.python.compiler.tensorrt import trt_convert
from tensorflow.python.framework import ops


def convert(source, output, precision):
    """Convert SavedModel `source` with TensorFlow's own API, on a machine with or without a GPU."""
    converter = trt_convert.TrtGraphConverterV2(input_saved_model_dir=source, precision_mode=precision)
    with _no_gpu_asked():
        converter.convert()
    converter.save(output)


class _no_gpu_asked:  # noqa: N801 - reads as a function
    """convert() asks where an empty tensor lies and refuses a CPU; nothing after that needs a GPU. Only its question is answered."""

    def __enter__(self):
        self._zeros, asked = trt_convert.array_ops.zeros, []
        zeros = self._zeros

        def answer(shape, *arguments, **keywords):
            if shape == [] and not asked and not ops.inside_function():
                asked.append(True)
                return type("Anywhere", (), {"device": "/job:localhost/replica:0/task:0/device:GPU:0"})()
            return zeros(shape, *arguments, **keywords)

        trt_convert.array_ops.zeros = answer

    def __exit__(self, *_):
        trt_convert.array_ops.zeros = self._zeros


if __name__ == "__main__":
    start = time.perf_counter()
    if "--start_up" not in sys.argv:
        convert(*sys.argv[1:4])
    print(f"SECONDS {time.perf_counter() - start:.4f}", flush=True)
