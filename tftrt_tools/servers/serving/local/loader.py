"""Turns a version directory into a servable: checks engines, makes the session, adds batching, runs the warm-up."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import time
from collections.abc import Sequence

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.models.execution.job import gpu
from tftrt_tools.servers.serving.local import batching_parameters, batching_servable, failure, rank_guard, warmup_replay
from tftrt_tools.servers.serving.local.batch_scheduler import Scheduler
from tftrt_tools.servers.serving.local.metrics_page import Metrics
from tftrt_tools.servers.serving.local.servable import AnyServable, Runs, Servable

_log = logging.getLogger("tftrt.serving")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """How the versions of a server are loaded."""

    # Tags of the meta graph.
    tags: tuple[str, ...] = ("serve",)
    # Serialized ConfigProto.
    config: bytes = b""
    # None: requests run one by one.
    batching: batching_parameters.BatchingParameters | None = None
    # The version's own batching_params.pbtxt counts.
    per_model_batching: bool = False
    # Run the warm-up requests.
    warmup: bool = True
    # How often each is run.
    warmup_iterations: int = 0


class Loader:
    """Loads a version. Several of the manager's threads call it at a time. Args: services: None without warm-up. scheduler: None where
    nothing is batched."""

    def __init__(
        self,
        settings: LoadSettings,
        services: warmup_replay.Services | None,
        scheduler: Scheduler | None,
        metrics: Metrics,
    ) -> None:
        self._settings, self._services, self._scheduler, self._metrics = settings, services, scheduler, metrics

    def __call__(self, name: str, version: int, path: str) -> AnyServable:
        """Load one version. Raises: Failure."""
        start = time.monotonic()
        try:
            servable = self._load(name, version, path)
        except failure.Failure as error:
            self._metrics.load_attempt(path, error.code.name, time.monotonic() - start)
            raise
        self._metrics.load_attempt(path, "OK", time.monotonic() - start)
        return servable

    def _load(self, name: str, version: int, path: str) -> AnyServable:
        servable: AnyServable = self._plain(name, version, path)
        try:
            parameters = batching_parameters.of_version(
                path, self._settings.batching, self._settings.per_model_batching
            )
            if self._scheduler and parameters:
                servable = batching_servable.BatchingServable(
                    servable, parameters, self._scheduler, self._metrics.batching_hooks()
                )
            if self._settings.warmup and self._services:
                warmup_replay.replay(servable, self._services, self._settings.warmup_iterations, self._metrics.warmup)
        except BaseException:
            servable.close()
            raise
        return servable

    def _plain(self, name: str, version: int, path: str) -> Servable:
        tags, config = self._settings.tags, self._settings.config
        loaded = session(path, tags, config)
        if rank_guard.needed(path) and not gpu.seen():
            loaded = rank_guard.GuardedSession(loaded, path, tags, config)
        return Servable(name, version, path, loaded)


def session(path: str, tags: Sequence[str], config: bytes) -> Runs:
    """The model of a version directory, loaded. Args: as of session.Session. Raises: Failure."""
    from tftrt_tools.servers.serving.local.session import Session

    with scratch.folder("serving") as folder:
        try:
            place = _runnable(path, pathlib.Path(folder) / "model")
        except errors.TftrtError as error:
            # The real server dies here by a segmentation fault.
            raise failure.precondition(f"{error.cause}; {error.mend}") from None
        return Session(place, tags, config)


def _runnable(path: str, folder: pathlib.Path) -> str | pathlib.Path:
    """The directory to load: `path`, or without a GPU a copy whose engine ops call their native segments. Raises: TftrtError."""
    proto = pathlib.Path(path) / "saved_model.pb"
    if not proto.is_file() or b"TRTEngineOp" not in proto.read_bytes():
        return path
    from tftrt_tools.models.execution.job import guard, native_copy

    guard.refuse_foreign_engines(path)
    if gpu.seen():
        return path
    replaced = native_copy.write(path, folder)
    which = f"engine of {path} runs" if len(replaced) == 1 else f"engines of {path} run"
    _log.warning("no GPU here: %d TF-TRT %s natively", len(replaced), which)
    if other := guard.other_tensorrt(path):
        _log.warning(
            "engines of another TensorRT: %s has those of %s, and %s is here, which loads none of them on any GPU",
            path,
            *other,
        )
    return folder
