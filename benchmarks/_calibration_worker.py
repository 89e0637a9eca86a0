"""One pass over random images in a process of its own: python -m benchmarks._calibration_worker MODEL BATCH BATCHES collect|forward

collect: every tensor inside the engines is counted; forward: the same graph answers and nothing is counted.
"""

import sys
import time

import numpy as np
import tensorflow as tf

from benchmarks import _models
from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.job import inline
from tftrt_tools.tftrt.calibration.job import collect, scales
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings


def main(model, batch, batches, mode):
    root = tf.saved_model.load(model)
    signature = root.signatures["serving_default"]
    frozen = graph_pass.freeze("serving_default", signature)
    graph_def, tensors = inline.inline_segments(graph_pass.run(frozen, Settings()).graph_def)
    constants = {node.name for node in graph_def.node if node.op == "Const"}
    wanted = sorted(
        {
            name
            for inner in tensors.values()
            for name in inner.values()
            if name.endswith(":0") and name[:-2] not in constants
        }
    )
    size = signature.structured_input_signature[1][_models.INPUT].shape[1]
    images = _images(batch, batches, size)
    start = time.perf_counter()
    if mode == "collect":
        _collected(collect.collect(frozen, graph_def, wanted, images))
    else:
        function = tf_private.rebuild(graph_def, frozen)
        for image in images:
            function(**{name: tf.constant(value) for name, value in image.items()})
    print(f"SECONDS {time.perf_counter() - start:.3f}")


def _images(batch, batches, size):
    rng = np.random.default_rng(0)
    for _ in range(batches):
        yield {_models.INPUT: rng.random((batch, size, size, 3), np.float32)}


def _collected(histograms):
    values = {id(histogram): histogram.count for histogram in histograms.values()}
    print(f"TENSORS {len(histograms)}")
    print(f"VALUES {sum(values.values())}")
    start = time.perf_counter()
    for histogram in histograms.values():
        scales.scale(histogram)
    print(f"SCALES {time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
