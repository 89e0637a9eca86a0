"""A version directory to a servable: engines checked, session made, batching around it, warm-up run."""

import dataclasses
import logging
import pathlib
import time

from tftrt_tools import errors, scratch
from tftrt_tools.serving.local import batching, batching_parameters, failure, replay
from tftrt_tools.serving.local.servable import Servable

_log = logging.getLogger("tftrt.serving")


@dataclasses.dataclass(frozen=True)
class LoadSettings:
    """tags: of the meta graph. config: serialized ConfigProto. batching: BatchingParameters, or None: requests run one by one.
    per_model_batching: the version's own batching_params.pbtxt counts. warmup: run the warm-up requests. warmup_iterations: of each."""

    tags: tuple = ("serve",)
    config: bytes = b""
    batching: object = None
    per_model_batching: bool = False
    warmup: bool = True
    warmup_iterations: int = 0


class Loader:
    """Called by the manager's threads, by several at a time.

    Args: settings: LoadSettings; services: replay.Services; scheduler: batch_scheduler.Scheduler or None; metrics: metrics.Metrics.
    """

    def __init__(self, settings, services, scheduler, metrics):
        self._settings, self._services, self._scheduler, self._metrics = settings, services, scheduler, metrics

    def __call__(self, name, version, path):
        """Load one version. Returns: an object with the interface of Servable. Raises: Failure."""
        start = time.monotonic()
        try:
            found = self._load(name, version, path)
        except failure.Failure as error:
            self._metrics.load_attempt(path, error.code.name, time.monotonic() - start)
            raise
        self._metrics.load_attempt(path, "OK", time.monotonic() - start)
        return found

    def _load(self, name, version, path):
        servable = self._plain(name, version, path)
        try:
            parameters = batching_parameters.of_version(path, self._settings.batching, self._settings.per_model_batching)
            if self._scheduler and parameters:
                servable = batching.BatchingServable(servable, parameters, self._scheduler, self._metrics.batching_hooks())
            if self._settings.warmup:
                replay.replay(servable, self._services, self._settings.warmup_iterations, self._metrics.warmup)
        except BaseException:
            servable.close()
            raise
        return servable

    def _plain(self, name, version, path):
        from tftrt_tools.serving.local.session import Session

        with scratch.folder("serving") as folder:
            try:
                place = _runnable(path, pathlib.Path(folder) / "model")
            except errors.TftrtError as error:
                # The real server dies here by a segmentation fault.
                raise failure.precondition(f"{error.cause}; {error.mend}") from None
            return Servable(name, version, path, Session(place, self._settings.tags, self._settings.config))


def _runnable(path, folder):
    """The directory to load: `path`, or a copy whose engine ops call their native segments where no GPU is. Raises: TftrtError."""
    proto = pathlib.Path(path) / "saved_model.pb"
    if not proto.is_file() or b"TRTEngineOp" not in proto.read_bytes():
        return path
    from tftrt_tools.execution import gpu, guard, native_copy

    guard.refuse_foreign_engines(path)
    if gpu.seen():
        return path
    replaced = native_copy.write(path, folder)
    _log.warning("no GPU here: %d TF-TRT engine%s of %s run natively", len(replaced), "s"[:len(replaced) != 1], path)
    return folder
