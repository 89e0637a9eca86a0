"""Runs a warm-up file through the published files, as a server does while it loads them. No TensorFlow in this process."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import child
from tftrt_tools.base.records import Record, field
from tftrt_tools.models.execution import coverage, npz, run
from tftrt_tools.models.execution.runner import Mode
from tftrt_tools.models.kinds.savedmodel import kind as saved_model
from tftrt_tools.models.savedmodel import shapes as shape_grammar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replayed(Record):
    """One request that ran."""

    signature: str
    # {input: shape}
    shapes: dict[str, tuple[int, ...]]
    # Seconds of the call, including engines that it built.
    seconds: float = field(digits=4)
    # Engines that were built inside it; None without a GPU.
    built: int | None
    # Engines that ran in TensorFlow instead; None without a GPU.
    native: int | None

    def text(self) -> str:
        """For people: serving_default(x 1x8)."""
        return f"{self.signature}({shape_grammar.call_text(self.shapes)})"


@dataclasses.dataclass(frozen=True)
class Replay(Record):
    """mode, gpu: as in execution.run.Run; misses: engines that did not run as built, a line each."""

    written_digits: ClassVar = {"seconds": 4}

    records: tuple[Replayed, ...]
    mode: Mode
    gpu: dict[str, Any] | None
    misses: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Of all calls."""
        return sum(replayed.seconds for replayed in self.records)


def replay(
    model: str | pathlib.Path, calls: Sequence[tuple[str, str]], hide_gpu: bool = False, log_file: str | None = None
) -> Replay:
    """Run the requests of a warm-up file, in their order.

    Args: model: SavedModel directory. calls: [(signature, .npz)], as warmup_file.read gives them. hide_gpu: run the engine ops through
      their native segments: for engines that this machine cannot load. log_file: where to keep TensorFlow's log.
    Returns: Replay. Raises: CheckFailed where a request fails or ends the process; a server would fail to load the version.
    """
    env = {"CUDA_VISIBLE_DEVICES": "-1"} if hide_gpu else None
    mend = "give real inputs (--warmup_data), other shapes (--warmup_shapes), warm other signatures (--signature_keys), or none: --nowarmup"
    with scratch.folder("warmup") as folder:
        try:
            done = run.run(saved_model.at(model), calls, folder, "the warm-up", trace=True, env=env, log_file=log_file)
        except child.ChildDied as death:
            raise errors.CheckFailed(f"the warm-up ends the process: {death.cause}", death.mend) from None
        except errors.TftrtError as error:
            raise errors.CheckFailed(f"the warm-up fails, and with it the load: {error.cause}", mend) from None
    ran: list[Replayed] = []
    misses: list[str] = []
    for (signature, path), seconds, trace in zip(calls, done.seconds, done.traces, strict=True):
        inputs = npz.load(path)
        built, native = (sum(trace.build.values()), sum(trace.fallback.values())) if trace else (None, None)
        shapes = {name: tuple(value.shape) for name, value in inputs.items()}
        ran.append(Replayed(signature=signature, shapes=shapes, seconds=seconds, built=built, native=native))
        # A warm-up is there to build engines, so an engine that it built is not a miss.
        misses += coverage.misses(run.Call(signature, inputs), dataclasses.replace(trace, build={})) if trace else []
    return Replay(tuple(ran), done.mode, done.gpu, tuple(misses))
