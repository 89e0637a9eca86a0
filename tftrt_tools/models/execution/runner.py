"""The interface of a runner: a model that is loaded in a child process and answers arrays with arrays. Each kind of models has its own.

`run_job` asks a runner, whatever its kind. A runner also tells where it runs (`Where`) and, where its kind has engines, what they did in a
call (`trace.CallTrace`). Nothing here imports a runtime.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from tftrt_tools.base import errors, records
from tftrt_tools.models.savedmodel import shapes as shape_grammar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tftrt_tools.models.execution.trace import CallTrace

# {input or output: array}; strings are object arrays of bytes.
Arrays: TypeAlias = "dict[str, npt.NDArray[Any]]"
# A prepared call: its inputs lie where the model takes them. It can be made many times; when it returns, the answers are on the host.
Ready: TypeAlias = "Callable[[], Arrays]"
# "gpu": engines may run; "cpu": no engines run; "native segments": engine ops were replaced by their native segments.
Mode = Literal["gpu", "cpu", "native segments"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Where(records.Record):
    """Where a model ran."""

    mode: Mode
    # {"name", "compute_capability", "driver"} of the GPU, None without one.
    gpu: dict[str, str] | None = None
    # Engines that ran through their native segments.
    replaced: tuple[str, ...] = ()
    # The runtime, such as "ONNX Runtime", and its version.
    runtime: str
    version: str
    # The part of the runtime that ran the model, such as "CPUExecutionProvider"; "" for a runtime without such parts.
    provider: str = ""
    # A remark on how the runtime loaded it, "" for none.
    remark: str = ""

    def text(self) -> str:
        """The runtime as messages show it: "ONNX Runtime 1.23.2 (CPUExecutionProvider)"."""
        return f"{self.runtime} {self.version}" + (f" ({self.provider})" if self.provider else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """How to load a model."""

    # Its name in messages, such as "the original".
    label: str
    # Whether float32 is computed as exactly as the machine can, without TF32.
    exact: bool = False
    # Tags of the part of the model to load, for a kind whose models have several parts; () for the usual one.
    tags: tuple[str, ...] = ()
    # Whether calls are launched as CUDA graphs, by a runner that Captures; None: as the environment says.
    graphs: bool | None = None


class Runner(Protocol):
    """A loaded model."""

    @property
    def where(self) -> Where:
        """Where the model runs."""

    def ready(self, signature: str, inputs: Arrays) -> Ready:
        """A call with these inputs. Raises: errors.CallFailed, here or when the call is made, where the model does not answer it."""

    def watched(self, ready: Ready) -> tuple[Arrays, CallTrace | None]:
        """Make a call, and return what the engines did in it; None for a kind without engines, or on a machine without a GPU."""

    def kernels(self, calls: Iterable[Ready]) -> dict[str, float]:
        """{arithmetic: seconds of the GPU's kernels} of extra calls; {} if no GPU computes."""


@runtime_checkable
class Captures(Protocol):
    """A runner that can launch calls as CUDA graphs. captured: how many graphs it has captured so far."""

    @property
    def captured(self) -> int: ...


class Load(Protocol):
    """A function that loads a model; each kind has one for `run_job.answer`."""

    def __call__(self, path: str, wanted: Wanted) -> AbstractContextManager[Runner]:
        """The model, for as long as the context lasts. Raises: TftrtError."""


# The mend of a call that fails, where nothing is known of its values.
CHECK_INPUTS = "check the inputs: values and shapes must be what the model expects"


def failed(signature: str, inputs: Mapping[str, np.ndarray[Any, Any]], why: str, mend: str = "") -> errors.CallFailed:
    """The error for a call that a model does not answer. Args: why: the runtime's words, in one line."""
    shapes = shape_grammar.call_text({name: value.shape for name, value in inputs.items()})
    return errors.CallFailed(f"signature {signature!r} fails for {shapes}: {why}", mend or CHECK_INPUTS)
