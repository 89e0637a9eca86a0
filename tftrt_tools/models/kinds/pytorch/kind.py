"""The kind "PyTorch program", the parent's side. PyTorch is not imported here."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds.model import Arithmetic, Contents, Overview
from tftrt_tools.models.kinds.pytorch import program
from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.models.sources.source import Source

INSTALL = f"{errors.install('export-torch')}, on Python 3.10 to 3.13"
ENV = {"CUDA_VISIBLE_DEVICES": "-1"}
_SUFFIX = ".pt2"
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
# {module:function: the program that it returned}, while it is open.
_open: dict[str, str] = {}


@jobs.job
def answer() -> Callable[[run.Request], run.Answer]:
    """Runs calls on a program, in PyTorch."""
    from tftrt_tools.models.kinds.pytorch import runner_job

    return runner_job.job


@jobs.job
def under_load() -> Callable[[run.LoadRequest], run.Indexed]:
    """Makes calls on a program, for load in process."""
    from tftrt_tools.models.kinds.pytorch import runner_job

    return runner_job.make


@dataclasses.dataclass(frozen=True, kw_only=True)
class FunctionRequest(records.Record):
    """A function of the user's to call. function: "module:function". output: the file that its module goes to."""

    function: str
    output: str


@jobs.job
def call_function() -> Callable[[FunctionRequest], None]:
    """Call a function that returns a module with example inputs, and save the module as a program. Raises: UsageError, TftrtError."""
    from tftrt_tools.models.kinds.pytorch import function_job

    return function_job.job


def is_function(path: str) -> bool:
    """Whether a path is module:function, and no file."""
    return bool(_FUNCTION.fullmatch(path)) and not os.path.exists(path)


class PyTorch:
    """The kind, with the members of model.Kind."""

    name = program.FORM
    forms = (f"a PyTorch program ({_SUFFIX})", "a function that returns a PyTorch module (module:function)")
    runtime = run.Runtime(
        job=answer, jobs="tftrt_tools.models.kinds.pytorch.runner_job", under_load=under_load, env=ENV, package="torch"
    )
    named_signatures = False
    unconverted = (
        "TF-TRT converts TensorFlow models",
        "`tftrt export` makes an ONNX file of it, which TensorRT builds",
    )

    alone, of_tensorflow = False, False

    def onnx(self, path: str) -> str:
        """As model.Kind.onnx."""
        return ""

    def weights(self, path: str) -> tuple[str, ...]:
        """As model.Kind.weights."""
        return ()

    def arithmetic(self, path: str) -> Arithmetic:
        """As model.Kind.arithmetic."""
        return Arithmetic("FP32", "float32 of PyTorch on the CPU")

    def takes(self, path: str) -> bool:
        """Whether the name ends in .pt2, or is module:function."""
        return path.lower().endswith(_SUFFIX) and not os.path.isdir(path) or is_function(path)

    def check(self, source: Source, as_it_is: bool) -> None:
        """As model.Kind.check."""
        for flag in ("inputs", "outputs", "custom_objects"):
            if getattr(source, flag):
                raise errors.UsageError(f"--{flag} has no effect: {source} is a {self.name}", "leave it out")
        if is_function(source.path):
            if as_it_is:
                raise errors.UsageError(f"{source} is no file", f"give the file that {program.MADE_BY} writes")
        else:
            _checked(source)
        if importlib.util.find_spec("torch") is None:
            raise errors.TftrtError(f"PyTorch, which runs {source}, is not installed", INSTALL)

    @contextlib.contextmanager
    def _made(self, source: Source, log_file: str | None) -> Iterator[str]:
        if source.path in _open:
            yield _open[source.path]
            return
        with scratch.folder("export") as folder:
            path = f"{folder}/model{_SUFFIX}"
            call_function.run(FunctionRequest(function=source.path, output=path), env=ENV, log_file=log_file)
            _open[source.path] = path
            try:
                yield path
            finally:
                del _open[source.path]

    def opened(self, source: Source, log_file: str | None) -> AbstractContextManager[str]:
        """As model.Kind.opened: the file itself, or the program that a function returned; it is called once for all that is open."""
        return self._made(source, log_file) if is_function(source.path) else contextlib.nullcontext(source.path)

    def contents(self, paths: Sequence[str]) -> list[Contents]:
        """As model.Kind.contents."""
        return [_contents(program.read(path, unsafe=True)) for path in paths]

    def overview(self, path: str) -> Overview:
        """As model.Kind.overview."""
        if is_function(path):
            raise errors.UsageError(
                f"{path} is a function, which has to be called first", f"give the file that {program.MADE_BY} writes"
            )
        return program.overview(path)

    def digest(self, path: str) -> str:
        """As model.Kind.digest; of a function, of what it returned."""
        return files.digest(_open.get(path, path))

    def document(self, path: str, name: str) -> dict[str, Any] | None:
        """None: a program carries no passport."""
        return None

    def keep(self, path: str, name: str, document: Mapping[str, Any]) -> bool:
        """False: a program carries no passport."""
        return False


def _checked(source: Source) -> None:
    """Refuse a program that cannot be run here. Raises: UsageError, TftrtError."""
    exported = program.read(source.path, source.unsafe)
    if exported.changed:
        raise errors.UsageError(
            f"{source} changes its buffers ({exported.changed[0]}) in each call",
            "export module.eval(); if it changes them then, too, leave that part out",
        )
    if exported.training:
        raise errors.UsageError(
            f"{source} is a module in training: its {', '.join(exported.training)} computes as there",
            "export module.eval()",
        )
    if exported.devices - {"cpu"}:
        others = ", ".join(sorted(exported.devices - {"cpu"}))
        raise errors.UsageError(
            f"{source} was exported for another device ({others}), and the source runs on the CPU",
            "export module.cpu()",
        )


def _contents(found: program.Program) -> Contents:
    return Contents(
        signatures={DEFAULT: found.signature}, facts={"producer": f"PyTorch {found.torch}"} if found.torch else {}
    )


PYTORCH = PyTorch()
