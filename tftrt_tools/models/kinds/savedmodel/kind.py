"""The kind SavedModel, the parent's side. No TensorFlow here."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds import directory
from tftrt_tools.models.kinds.model import Contents, Engine, Signature
from tftrt_tools.models.savedmodel import describe, files
from tftrt_tools.models.sources import kinds, opened
from tftrt_tools.models.sources.source import Source


@jobs.job
def answer() -> Callable[[run.Request], run.Answer]:
    """Runs calls on a SavedModel, in TensorFlow."""
    from tftrt_tools.models.kinds.savedmodel import runner_job

    return runner_job.job


# Each time an engine runs, its name is written to the log.
RUNTIME = run.Runtime(
    job=answer,
    jobs="tftrt_tools.models.kinds.savedmodel.runner_job",
    env={"TF_CPP_VMODULE": "trt_engine_op=1", "TF_CPP_MIN_LOG_LEVEL": "0"},
)


def at(path: str | os.PathLike[str]) -> run.Placed:
    """A SavedModel directory, for execution.run.run."""
    return run.Placed(os.fspath(path), RUNTIME)


class SavedModel(directory.Directory):
    """The kind, with the members of model.Kind."""

    name = "SavedModel"
    forms = kinds.FORMS
    runtime = RUNTIME
    named_signatures = True
    unconverted = None

    alone, of_tensorflow = False, True

    def onnx(self, path: str) -> str:
        """As model.Kind.onnx."""
        return ""

    def weights(self, path: str) -> tuple[str, ...]:
        """As model.Kind.weights."""
        return ()

    def arithmetic(self, path: str) -> None:
        """As model.Kind.arithmetic: engines and the machine decide it."""

    def takes(self, path: str) -> bool:
        """Takes any path that no other kind takes: `check` says what is wrong with it."""
        return True

    def check(self, source: Source, as_it_is: bool) -> None:
        """As model.Kind.check."""
        if as_it_is:
            if os.path.isfile(source.path):
                raise errors.UsageError(
                    f"not a model that runs as it is: {source} is a {kinds.kind(source.path)}",
                    f"give the SavedModel that `tftrt convert {source} OUTPUT` makes of it",
                )
            files.check(source.path)
        opened.check(source)

    def opened(self, source: Source, log_file: str | None) -> AbstractContextManager[str]:
        """As model.Kind.opened: a SavedModel directory, to be read only."""
        return opened.opened(source, log_file)

    def contents(self, paths: Sequence[str]) -> list[Contents]:
        """As model.Kind.contents; one process reads them all."""
        return [_contents(one) for one in describe.describe(*paths)]

    def overview(self, path: str) -> None:
        """As model.Kind.overview: TF-TRT converts these models."""


def _contents(description: describe.Description) -> Contents:
    return Contents(
        signatures={
            name: Signature(tuple(inputs), tuple(description.outputs[name]))
            for name, inputs in description.inputs.items()
        },
        same=description.same,
        unnamed=description.unnamed,
        engines=tuple(Engine(engine.name, engine.precision) for engine in description.engines),
    )


SAVED_MODEL = SavedModel()
