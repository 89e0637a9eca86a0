"""A PyTorch program in PyTorch, on the CPU; the child's side."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch.utils import _pytree

from tftrt_tools.base import errors
from tftrt_tools.models.execution import load_job, run_job, runner
from tftrt_tools.models.execution.run import Indexed, LoadRequest
from tftrt_tools.models.kinds.pytorch import program

if TYPE_CHECKING:
    from tftrt_tools.models.execution.run import Answer, Request
    from tftrt_tools.models.execution.runner import Arrays, Ready, Wanted
    from tftrt_tools.models.execution.trace import CallTrace

# Libraries that add ops to PyTorch when they are imported.
_LIBRARIES = ("torchvision",)


def job(request: Request) -> Answer:
    """The job run_job.answer, for PyTorch programs."""
    return run_job.answer(request, load)


def make(request: LoadRequest) -> Indexed:
    """The job load_job.made, for PyTorch programs."""
    return load_job.made(request, load)


def exported(path: str) -> torch.export.ExportedProgram:
    """The ExportedProgram of a file. Raises: TftrtError."""
    with_ops(program.read(path, unsafe=True).ops)
    try:
        return torch.export.load(path)
    except Exception as error:  # a program of another PyTorch makes it raise nearly anything
        raise errors.TftrtError(
            f"PyTorch {torch.__version__} cannot load {path}: {errors.first_line(str(error)) or type(error).__name__}",
            "export it again with this PyTorch, or use the one that wrote it (`tftrt inspect` names it)",
        ) from None


def with_ops(ops: Iterable[str]) -> None:
    """Load the libraries that bring ops to PyTorch. Args: ops: "aten.relu.default". Raises: TftrtError for one that is not installed."""
    for name in ops:
        library, op = name.split(".")[:2] if "." in name else ("", "")
        if library not in _LIBRARIES:
            continue
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise errors.TftrtError(
                f"its op {op} is one of {library}, which cannot be imported: {errors.first_line(str(error))}",
                f"pip install {library}, in the release that belongs to PyTorch {torch.__version__}",
            ) from None


@contextlib.contextmanager
def load(path: str, wanted: Wanted) -> Iterator[Loaded]:
    """Load a PyTorch program, as runner.Load."""
    yield Loaded(exported(path), program.read(path, unsafe=True))


class Loaded:
    """The runner.Runner of a program."""

    def __init__(self, loaded: torch.export.ExportedProgram, said: program.Program) -> None:
        self._said, self._tree = said, loaded.call_spec.in_spec
        # Guards are code that the file holds; PyTorch's checks of shapes stay.
        self._module = loaded.module(check_guards=False)
        self._examples = _pytree.tree_leaves(loaded.example_inputs) if not all(said.fed) else []
        self.where = runner.Where(mode="cpu", runtime="PyTorch", version=torch.__version__)

    def ready(self, signature: str, inputs: Arrays) -> Ready:
        """As Runner.ready."""
        feed = iter([torch.from_numpy(inputs[spec.name].copy()) for spec in self._said.signature.inputs])
        leaves = [next(feed) if fed else self._examples[place] for place, fed in enumerate(self._said.fed)]
        positional, named = _pytree.tree_unflatten(leaves, self._tree)

        def call() -> Arrays:
            try:
                with torch.no_grad():
                    outputs = _pytree.tree_leaves(self._module(*positional, **named))
            except Exception as error:  # operators raise whatever they do
                raise runner.failed(signature, inputs, errors.first_line(str(error)) or type(error).__name__) from None
            return {spec.name: value.numpy() for spec, value in zip(self._said.signature.outputs, outputs, strict=True)}

        return call

    def watched(self, ready: Ready) -> tuple[Arrays, CallTrace | None]:
        """As Runner.watched: there are no engines."""
        return ready(), None

    def kernels(self, calls: Iterable[Ready]) -> dict[str, float]:
        """As Runner.kernels: no GPU computes."""
        return {}
