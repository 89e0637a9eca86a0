"""A SavedModel in TensorFlow, with its TF-TRT engines watched; the child's side."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.base import tf_private
from tftrt_tools.base.files import scratch
from tftrt_tools.base.logs.known import versions
from tftrt_tools.base.process import native_log
from tftrt_tools.models.execution import run_job, runner, trace
from tftrt_tools.models.execution.job import gpu as gpu_module
from tftrt_tools.models.execution.job import guard, native_copy, profiling
from tftrt_tools.models.savedmodel.job import loading

if TYPE_CHECKING:
    from tftrt_tools.models.execution.run import Answer, Request
    from tftrt_tools.models.execution.runner import Arrays, Ready, Wanted, Where
    from tftrt_tools.models.execution.trace import CallTrace

_GATE = "TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION"


def job(request: Request) -> Answer:
    """The job run_job.answer, for SavedModels."""
    return run_job.answer(request, load)


@contextlib.contextmanager
def load(path: str, wanted: Wanted) -> Iterator[Loaded]:
    """As runner.Load. Without a GPU, engine ops are replaced by their native segments."""
    gpu = prepared(path, wanted)
    with contextlib.ExitStack() as stack:
        if gpu:
            yield Loaded(path, where(path, gpu), wanted.tags)
            return
        copy = str(pathlib.Path(stack.enter_context(scratch.folder("native"))) / "model")
        replaced = native_copy.write(path, copy)
        yield Loaded(copy if replaced else path, where(path, None, replaced), wanted.tags)


def prepared(path: str, wanted: Wanted) -> dict[str, str] | None:
    """Make this process ready to load a SavedModel. Returns: the GPU, None without one. Raises: TftrtError where its engines cannot be
    loaded there."""
    gpu: dict[str, str] | None = gpu_module.seen()
    tf.config.experimental.enable_tensor_float_32_execution(not wanted.exact)
    if gpu:
        guard.refuse_foreign_engines(path)
    return gpu


def where(path: str, gpu: dict[str, str] | None, replaced: Sequence[str] = ()) -> Where:
    """The Where of a SavedModel. Args: path: its own. gpu: None without one. replaced: engine ops that became their native segments."""
    mode: runner.Mode = "gpu" if gpu else "native segments" if replaced else "cpu"
    return runner.Where(
        mode=mode,
        gpu=gpu,
        replaced=tuple(replaced),
        runtime="TensorFlow",
        version=tf.__version__,
        remark=guard.unloadable(path) if replaced else "",
    )


class Loaded:
    """The runner.Runner of a SavedModel. Its engines die with it, so each function that makes a call keeps it."""

    def __init__(self, path: str, where: Where, tags: tuple[str, ...]) -> None:
        self._model, self.where = loading.load(path, tags), where

    def ready(self, signature: str, inputs: Arrays) -> Ready:
        """As Runner.ready; the inputs lie on the device."""
        function = self._model.root.signatures[signature]
        feed = self._told(
            signature, inputs, lambda: {name: tf.identity(tf.constant(array)) for name, array in inputs.items()}
        )

        def answers() -> Arrays:
            found: Arrays = loading.answers(function, feed)
            return found

        return lambda: self._told(signature, inputs, answers)

    def stages(
        self, signature: str, inputs: Arrays
    ) -> tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Arrays]]:
        """The stages of a whole call, from arrays on the host to arrays on the host: the function that makes the tensors, the function
        of these that calls the model, and the function of its answer that reads the arrays."""
        function = self._model.root.signatures[signature]

        def make() -> Any:
            return {name: tf.constant(array) for name, array in inputs.items()}

        def call(feed: Mapping[str, tf.Tensor]) -> Any:
            return tf_private.call(function, feed)

        def read(answer: Mapping[str, tf.Tensor]) -> Arrays:
            return {name: loading.array(name, tensor) for name, tensor in answer.items()}

        return (
            lambda: self._told(signature, inputs, make),
            lambda feed: self._told(signature, inputs, lambda: call(feed)),
            lambda answer: self._told(signature, inputs, lambda: read(answer)),
        )

    def watched(self, ready: Ready) -> tuple[Arrays, CallTrace | None]:
        """As Runner.watched, by TensorFlow's profiler and its log."""
        if not self.where.gpu:
            return ready(), None
        with native_log.captured() as log:
            answers, counts = profiling.profiled(ready)
        return answers, trace.combine(counts, log[0])

    def kernels(self, calls: Iterable[Ready]) -> dict[str, float]:
        """The seconds of the GPU's kernels, as Runner.kernels."""
        found: dict[str, float] = profiling.kernels_of(calls)
        return found

    def _told(self, signature: str, inputs: Arrays, function: Callable[[], Any]) -> Any:
        """Call the function; errors of TensorFlow become CallFailed. As a method it keeps the model referenced meanwhile."""
        try:
            return function()
        except tf.errors.OpError as error:
            closed = os.environ.get(_GATE, "").lower() in ("0", "false")
            mend = f"{_GATE} forbids native segments here" if closed else ""
            why = loading.first_line(error)
            if versions.CPU_KERNEL_ON_GPU.find(why):
                mend = versions.CPU_KERNEL_ON_GPU.mend
            raise runner.failed(signature, inputs, why, mend) from None
