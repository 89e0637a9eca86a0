"""A plan out of the engine cache, or built and kept there."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable
from typing import TypeVar

from tftrt_tools.base.process import progress
from tftrt_tools.base.stack import probe_job
from tftrt_tools.models.engine_cache import key as keys
from tftrt_tools.models.engine_cache import plan_key
from tftrt_tools.models.engine_cache.entry import Hit
from tftrt_tools.models.engine_cache.plan_key import PlanKey
from tftrt_tools.models.engine_cache.store import Store
from tftrt_tools.models.execution.job import device
from tftrt_tools.models.kinds.onnx.kind import ONNX
from tftrt_tools.models.savedmodel import files
from tftrt_tools.tensorrt.plans.building import Gpu, Request

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Made:
    """seconds: of TensorRT's build, by whichever process. cached: whether the plan came from the cache."""

    seconds: float
    cached: bool


def key(request: Request, tensorrt: str, gpu: Gpu, held: int = 0) -> PlanKey:
    """What the plan of a request depends on. Args: tensorrt: the version that is loaded. held: layers that the file holds in FP32."""
    settings = request.settings
    profiles = (one.inputs for one in request.profiles)
    ranges = json.dumps(sorted(request.ranges.items())) if request.ranges else ""
    return PlanKey(
        onnx=ONNX.digest(request.onnx),
        profiles=tuple({name: (one.min, one.opt, one.max) for name, one in inputs.items()} for inputs in profiles),
        precision=settings.precision_mode,
        max_workspace_size_bytes=settings.max_workspace_size_bytes,
        strongly_typed=settings.strongly_typed,
        tf32=settings.tf32,
        tactic_sources=tuple(sorted(set(settings.tactic_sources))),
        sparse_weights=settings.sparse_weights,
        version_compatible=settings.version_compatible,
        refit=settings.refit,
        plugins=tuple(map(files.digest, settings.plugins)),
        ranges_digest=keys.digest_of_text(ranges),
        held=held,
        tensorrt=tensorrt,
        compute_capability=gpu.compute_capability,
        gpu=gpu.name,
        multiprocessors=device.multiprocessors(),
        cudnn=probe_job.version_of_loaded("libcudnn.so.8", "libcudnn.so.9"),
        cublas=probe_job.version_of_loaded("libcublas.so.11", "libcublas.so.12", "libcublas.so.13"),
        environment=keys.environment(names=plan_key.ENVIRONMENT),
    )


def made(
    kept: Store | None,
    wanted: Callable[[], PlanKey],
    request: Request,
    driver: str,
    build: Callable[[], float],
    load: Callable[[], T],
) -> tuple[Made, T]:
    """Copy the plan of a request from the cache, or build it. Of several processes that want the same plan one builds it.

    Args: kept: the engine cache, None for none. wanted: makes the plan's key, which reads the model. driver: the GPU's, for the record.
      build: writes the plan to request.plan; returns its seconds. load: reads it there; what it raises keeps the plan out of the cache.
    Returns: (Made, what `load` returned). Raises: what `build` and `load` raise.
    """
    if kept is None:
        return Made(build(), cached=False), load()
    one, path = wanted(), pathlib.Path(request.plan)
    with kept.lock(one):
        found = kept.get(one, path)
        if isinstance(found, Hit):
            progress.say("the plan comes from the engine cache")
            # In the cache a file is for its user alone, and servers of others read the directory's.
            os.chmod(path, 0o644)
            return Made(found.record.build_seconds or 0.0, cached=True), load()
        seconds = build()
        loaded = load()
        kept.put(one, path, seconds, request.origin, driver)
        return Made(seconds, cached=False), loaded
