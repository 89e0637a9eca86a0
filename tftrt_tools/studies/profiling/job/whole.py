"""Whole calls of a SavedModel's signature, in TensorFlow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import tensorflow as tf

from tftrt_tools.base.process import native_log
from tftrt_tools.models.execution import trace
from tftrt_tools.models.execution.job import profiling
from tftrt_tools.models.execution.runner import Arrays
from tftrt_tools.models.kinds.savedmodel import runner_job
from tftrt_tools.studies.profiling.job.whole_calls import WholeCalls
from tftrt_tools.studies.profiling.traces import CALL, INPUT, OUTPUT, RUN

if TYPE_CHECKING:
    pass


class Whole(WholeCalls):
    """Args: runner: of runner_job.load."""

    def __init__(self, runner: runner_job.Loaded, signature: str, inputs: Arrays) -> None:
        super().__init__(inputs)
        self._make, self._run, self._read = runner.stages(signature, inputs)

    def call(self) -> Arrays:
        """Make one call."""
        return self._read(self._run(self._make()))

    def timed(self) -> list[float]:
        """One call: [seconds of making tensors, of running, of reading the answer]."""
        start = time.perf_counter()
        feed = self._make()
        copied = time.perf_counter()
        answer = self._run(feed)
        ran = time.perf_counter()
        self._read(answer)
        return [copied - start, ran - copied, time.perf_counter() - ran]

    def marked(self, number: int, caller: int = 0) -> list[float]:
        """As `timed`, with marks for the trace."""
        start = time.perf_counter()
        with tf.profiler.experimental.Trace(CALL, number=number, caller=caller):
            with tf.profiler.experimental.Trace(INPUT):
                feed = self._make()
            copied = time.perf_counter()
            with tf.profiler.experimental.Trace(RUN):
                answer = self._run(feed)
            ran = time.perf_counter()
            with tf.profiler.experimental.Trace(OUTPUT):
                self._read(answer)
            return [copied - start, ran - copied, time.perf_counter() - ran]

    def watched(self) -> tuple[Arrays, trace.CallTrace]:
        """As WholeCalls.watched."""
        with native_log.captured() as log:
            answers, counts = profiling.profiled(self.call)
        return answers, trace.combine(counts, log[0])
