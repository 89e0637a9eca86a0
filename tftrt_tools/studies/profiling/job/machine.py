"""Facts of this machine, this process and a model, on which a call's time depends."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.job import compiled, protos
from tftrt_tools.studies.profiling.job import host

# Of the names of functions.
_MOST_NAMES = 20


def machine() -> dict[str, Any]:
    """The document of a profile.Machine, without the GPU that ran the model."""
    build, threads = tf.sysconfig.get_build_info(), tf.config.threading
    versions = {
        "tensorflow": tf.__version__,
        "tensorrt": tf_private.tensorrt_versions()[1],
        "cuda": str(build.get("cuda_version", "")),
        "cudnn": str(build.get("cudnn_version", "")),
    }
    return host.machine(
        versions,
        tf32=tf.config.experimental.tensor_float_32_execution_enabled(),
        inter_op=threads.get_inter_op_parallelism_threads(),
        intra_op=threads.get_intra_op_parallelism_threads(),
        jit=str(tf.config.optimizer.get_jit()),
    )


def model(path: str) -> dict[str, Any]:
    """Which functions of a SavedModel's graph XLA compiles: {"xla_count", "xla_functions": some names}."""
    processes = sorted(
        {
            function.signature.name
            for meta in protos.read(path).meta_graphs
            for function in meta.graph_def.library.function
            if compiled.MARK in function.attr and function.attr[compiled.MARK].b
        }
    )
    return {"xla_count": len(processes), "xla_functions": processes[:_MOST_NAMES]}
