"""Keeps requests of an unusual rank away from oneDNN, whose convolutions end the process on them (`tensor_format.h: Check failed`).

Without oneDNN TensorFlow answers such a request, mostly with an error. So it runs in a process of its own, where oneDNN is off; the first
one waits some seconds for that process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import threading
from collections.abc import Callable, Mapping, Sequence

from tftrt_tools.base import records
from tftrt_tools.base.process import child, jobs
from tftrt_tools.base.wire import tensor, tensor_bytes
from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.servable import Array, Runs

_SWITCH = "TF_ENABLE_ONEDNN_OPTS"
_CONVOLUTIONS = (b"Conv2D", b"Conv3D", b"DepthwiseConv2dNative")


@dataclasses.dataclass(frozen=True)
class Model(records.Record):
    """What loader.session takes."""

    path: str
    tags: tuple[str, ...]
    config: bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """A request to the process without oneDNN."""

    model: Model
    # TensorProtos.
    feeds: dict[str, bytes]
    fetches: tuple[str, ...]
    timeout_ms: int


@dataclasses.dataclass(frozen=True)
class Refusal(records.Record):
    """What failure.from_number takes."""

    number: int
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(records.Record):
    """Its answer: TensorProtos, or why there are none."""

    outputs: tuple[bytes, ...] = ()
    refused: Refusal | None = None


@jobs.job
def run() -> Callable[[Request], Answer]:
    """Run a model once; it stays loaded for the next request."""
    from tftrt_tools.servers.serving.local import rank_guard_job

    return rank_guard_job.run


def needed(path: str | os.PathLike[str]) -> bool:
    """Whether a model without a GPU has a convolution that oneDNN may run. Args: path: of the SavedModel."""
    proto = pathlib.Path(path) / "saved_model.pb"
    if os.environ.get(_SWITCH, "1").lower() in ("0", "false") or not proto.is_file():
        return False
    content = proto.read_bytes()
    return any(name in content for name in _CONVOLUTIONS)


class GuardedSession:
    """`session`, with requests of another rank than the signatures declare answered by a process without oneDNN. Where they declare none, a
    rank that went well there once is usual from then on.

    Args: path, tags, config: as of loader.session, for that process.
    """

    def __init__(self, session: Runs, path: str, tags: Sequence[str], config: bytes) -> None:
        self.signatures = session.signatures
        self._session = session
        self._model = Model(path, tuple(tags), config)
        self._declared: dict[str, int] = {}
        for signature in session.signatures.values():
            for info in signature.inputs.values():
                if not info.tensor_shape.unknown_rank:
                    self._declared[info.name] = len(info.tensor_shape.dim)
        self._proven: set[tuple[tuple[str, int], ...]] = set()
        self._lock = threading.Lock()
        self._process = contextlib.ExitStack()
        self._worker: jobs.Worker[Request, Answer] | None = None

    def run(self, feeds: Mapping[str, Array], fetches: Sequence[str], timeout_ms: int = 0) -> list[Array]:
        """As Session.run."""
        declared = self._declared
        if all(declared.get(name, -1) == array.ndim for name, array in feeds.items()):
            return self._session.run(feeds, fetches, timeout_ms)
        ranks = tuple((name, array.ndim) for name, array in feeds.items())
        if ranks in self._proven:
            return self._session.run(feeds, fetches, timeout_ms)
        answers = self._elsewhere(feeds, fetches, timeout_ms)
        if not any(name in declared for name in feeds):
            self._proven.add(ranks)
        return answers

    def close(self) -> None:
        """Free the model, and end the process."""
        with self._lock:
            self._process.close()
            self._worker = None
        self._session.close()

    def _elsewhere(self, feeds: Mapping[str, Array], fetches: Sequence[str], timeout_ms: int) -> list[Array]:
        request = Request(
            model=self._model,
            feeds={name: b"".join(tensor.encode(array)) for name, array in feeds.items()},
            fetches=tuple(fetches),
            timeout_ms=timeout_ms,
        )
        with self._lock:
            if self._worker is None or not self._worker.alive:
                self._process.close()
                self._worker = self._process.enter_context(run.worker({_SWITCH: "0"}))
            try:
                answer = self._worker.call(request).result
            except child.ChildDied as error:
                raise failure.Failure(
                    failure.INTERNAL, f"this request ended the process that ran it: {error.cause}"
                ) from None
        if answer.refused:
            raise failure.from_number(answer.refused.number, answer.refused.message)
        return [tensor_bytes.read(memoryview(output))[0] for output in answer.outputs]


def answered(request: Request, session: Runs) -> Answer:
    """What the process answers."""
    feeds = {name: tensor_bytes.read(memoryview(raw))[0] for name, raw in request.feeds.items()}
    try:
        answers = session.run(feeds, request.fetches, request.timeout_ms)
    except failure.Failure as error:
        return Answer(refused=Refusal(error.number, error.message))
    return Answer(outputs=tuple(b"".join(tensor.encode(array)) for array in answers))
