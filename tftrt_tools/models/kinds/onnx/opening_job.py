"""A session of ONNX Runtime, also of a file that its default options do not load: without the fusion that fails, or that crashes.

ONNX Runtime 1.23.2 ends the process on some graphs while it optimizes them. So a graph with FP16, and any small one, is first opened in a
fork of this process, which may end.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import time
from typing import Any

import onnxruntime

from tftrt_tools.base import errors

_PROVIDER = "CPUExecutionProvider"
# A fusion that fails names the node that it makes. SimplifiedLayerNormFusion of 1.23.2 does so in some FP16 graphs.
_FAILED = re.compile(r"GetIndexFromName.*/(\w+Fusion)/", re.DOTALL)
# 1.32.0 folds a constant of some Q/DQ graphs a second time, behind the fusions that make integer ops, under the name that it has then.
_FOLDED_TWICE, _FOLDING = "AddInitializedOrtValue Attempt to replace the existing tensor", "ConstantFolding"
# Fusions that have crashed: MatmulTransposeFusion does so where MatMul of FP16 reads a Transpose of its batch.
_CRASHED = ("MatmulTransposeFusion",)
# From a Cast's attribute on: to=FLOAT16, in the bytes of onnx.proto. In large files other bytes may look so, which costs a fork.
_HALF = re.compile(rb"\x0a\x02to[^\x0a]{0,4}\x18\x0a")
# Graphs up to this size are opened twice.
_SMALL_BYTES = 32_000_000
_SEARCHED_BYTES = 1 << 22
# That a fork may take, and between two looks at it.
_FORK_SECONDS, _LOOK_SECONDS = 120.0, 0.005


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Optimized:
    """How much of a graph is optimized. level: of ONNX Runtime; without: names of optimizers that are off."""

    level: str = "ORT_ENABLE_ALL"
    without: tuple[str, ...] = ()

    def text(self) -> str:
        """The session options that load such a file elsewhere."""
        return f"disabled_optimizers={list(self.without)}" if self.without else f"graph_optimization_level={self.level}"


# Where all optimizations together crash, the first of these that does not is taken.
_FEWER = (
    *(_Optimized(without=(name,)) for name in _CRASHED),
    *(_Optimized(level=level) for level in ("ORT_ENABLE_EXTENDED", "ORT_ENABLE_BASIC", "ORT_DISABLE_ALL")),
)


@dataclasses.dataclass(frozen=True)
class Opened:
    """A session. remark: why the file does not load by default, and with what it does; "" where it does."""

    session: Any
    remark: str = ""


def opened(model: str | bytes, name: str, optimized: bool) -> Opened:
    """Open a file, or a file's content. Args: name: for people. Raises: TftrtError where it crashes in any case; else what ONNX Runtime
    raises."""
    if not optimized:
        return Opened(_session(model, _Optimized(level="ORT_DISABLE_ALL")))
    runtime = f"ONNX Runtime {onnxruntime.__version__}"
    crash = _crash(model, _Optimized()) if _is_risky(model) else ""
    if not crash:
        return _without_failed(model, runtime, name)
    for fewer in _FEWER:
        if not _crash(model, fewer):
            return Opened(
                _session(model, fewer),
                f"{runtime} crashes ({crash}) where it loads {name} with its default options; it was "
                f"loaded with {fewer.text()}, and others need that, too",
            )
    raise errors.TftrtError(
        f"{runtime} crashes ({crash}) where it loads {name}, also without optimizations",
        "another release of ONNX Runtime may load it; `tftrt convert --backend=tensorrt` does not need one",
    )


def _without_failed(model: str | bytes, runtime: str, name: str) -> Opened:
    """A session; without fusions that fail themselves. Raises: what ONNX Runtime raises."""
    optimized = _Optimized()
    while True:
        try:
            session = _session(model, optimized)
            break
        except Exception as error:  # ONNX Runtime's own errors have no base of their own
            failed = _failed(str(error))
            if not failed or failed in optimized.without:
                raise
            optimized = _Optimized(without=(*optimized.without, failed))
    left_out = " and ".join(optimized.without)
    return Opened(
        session,
        f"{runtime} does not load {name} with its default options, because its {left_out} fails; it was loaded with "
        f"{optimized.text()}, and others need that, too"
        if left_out
        else "",
    )


def _failed(said: str) -> str:
    """The optimizer that an error is of; "" if it is of something else."""
    fusion = _FAILED.search(said)
    return fusion[1] if fusion else _FOLDING if _FOLDED_TWICE in said else ""


def _session(model: str | bytes, optimized: _Optimized) -> Any:
    options = onnxruntime.SessionOptions()
    # Products of 8 bits are exact also on processors whose instruction for them is not (AVX2 without VNNI).
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, optimized.level)
    more = {"disabled_optimizers": list(optimized.without)} if optimized.without else {}
    return onnxruntime.InferenceSession(model, options, providers=[_PROVIDER], **more)


def _is_risky(model: str | bytes) -> bool:
    """Whether a graph is first opened in a fork: a small one, and one with a cast to FP16."""
    if isinstance(model, bytes):
        return len(model) <= _SMALL_BYTES or bool(_HALF.search(model[:_SEARCHED_BYTES]))
    try:
        with open(model, "rb") as file:
            return os.path.getsize(model) <= _SMALL_BYTES or bool(_HALF.search(file.read(_SEARCHED_BYTES)))
    except OSError:  # ONNX Runtime reports what is wrong
        return False


def _crash(model: str | bytes, optimized: _Optimized) -> str:
    """The signal that ends a process which opens the model; "" where none does, and where it has not ended in time: a fork of a process
    with other threads may wait for a lock that one of them held."""
    end = time.monotonic() + _FORK_SECONDS
    child = os.fork()
    if not child:
        try:
            _session(model, optimized)
        finally:
            os._exit(0)
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return ""
        time.sleep(_LOOK_SECONDS)
    status = ended[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else ""
