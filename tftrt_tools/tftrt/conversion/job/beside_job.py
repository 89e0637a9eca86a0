"""A helper of a conversion: builds engine ops that it is given, each alone."""

import pathlib

from tensorflow.core.framework import graph_pb2

from tftrt_tools.base import errors
from tftrt_tools.models.execution.job import gpu as gpu_module
from tftrt_tools.models.savedmodel.job.lone_engine import LoneEngine
from tftrt_tools.tftrt.conversion.job import build_progress, engines
from tftrt_tools.tftrt.conversion.job.beside import Answer, Request
from tftrt_tools.tftrt.conversion.job.timing_cache import TimingCache


def job(request: Request) -> Answer:
    """Build one. Raises: TftrtError where it fails at these shapes, or this GPU is of another kind."""
    asked = request.asked
    if (here := gpu_module.seen()) is None or any(
        here[key] != asked.gpu[key] for key in ("name", "compute_capability")
    ):
        raise errors.TftrtError(f"a helper has {here['name'] if here else 'no GPU'}, not {asked.gpu['name']}")
    lone = LoneEngine(
        graph_pb2.GraphDef.FromString(pathlib.Path(request.graph).read_bytes()), request.node, request.inputs
    )
    gpu = gpu_module.identity()
    timings = TimingCache.of(asked.cache.store() if asked.cache else None, asked.versions, asked.gpu, gpu)
    try:
        built = engines.written(
            lone, asked.feeds, asked.dynamic, asked.path, gpu, timings, build_progress.Silent(), asked.what
        )
    except engines.Refused as error:
        return Answer(refused=str(error))
    return Answer(built=tuple(built))
