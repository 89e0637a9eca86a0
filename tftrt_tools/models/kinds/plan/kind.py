"""The kind "TensorRT plan", the parent's side. TensorRT is not imported here."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs
from tftrt_tools.base.stack import bindings
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds import directory
from tftrt_tools.models.kinds.model import Contents, Engine, File, Overview, Signature
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.kinds.plan.profiles import Profile
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.models.sources.source import Source


@jobs.job
def answer() -> Callable[[run.Request], run.Answer]:
    """Runs calls on a plan, in TensorRT."""
    from tftrt_tools.models.kinds.plan import runner_job

    return runner_job.job


@jobs.job
def under_load() -> Callable[[run.LoadRequest], run.Indexed]:
    """Makes calls on a plan, for load in process."""
    from tftrt_tools.models.kinds.plan import runner_job

    return runner_job.make


RUNTIME = run.Runtime(
    job=answer, jobs="tftrt_tools.models.kinds.plan.runner_job", under_load=under_load, package="tensorrt"
)
_UNASKED = (
    "what TF-TRT would take of it: it is an engine of TensorRT itself",
    "whether it runs here: `tftrt verify ORIGINAL PLAN` runs it",
)


def at(path: str) -> run.Placed:
    """A plan directory, for execution.run.run."""
    return run.Placed(path, RUNTIME)


class Plan(directory.Directory):
    """The kind, with the members of model.Kind."""

    name = "TensorRT plan"
    forms = ("a plan directory",)
    runtime = RUNTIME
    named_signatures = False
    unconverted = ("it is built already", "give the model that it was made from")

    alone, of_tensorflow = True, False

    def onnx(self, path: str) -> str:
        """As model.Kind.onnx."""
        return os.path.join(path, document.ONNX)

    def weights(self, path: str) -> tuple[str, ...]:
        """As model.Kind.weights."""
        return ()

    def arithmetic(self, path: str) -> None:
        """As model.Kind.arithmetic: engines and the machine decide it."""

    def takes(self, path: str) -> bool:
        """Whether it is a directory with a plan or with a plan.json."""
        return files.is_plan(path)

    def check(self, source: Source, as_it_is: bool) -> None:
        """As model.Kind.check."""
        said = document.read(source.path)
        if not bindings.installed():
            raise bindings.missing(f"{source}, a plan of TensorRT {said.tensorrt}, does not run here", said.tensorrt)

    def opened(self, source: Source, log_file: str | None) -> AbstractContextManager[str]:
        """As model.Kind.opened: the directory itself."""
        return contextlib.nullcontext(source.path)

    def contents(self, paths: Sequence[str]) -> list[Contents]:
        """As model.Kind.contents, from plan.json."""
        return [_with_file(path, _contents(document.read(path))) for path in paths]

    def overview(self, path: str) -> Overview:
        """As model.Kind.overview."""
        plan, folder = document.read(path), pathlib.Path(path)
        layers = passport.read(path, document.LAYER_INFORMATION) or {}
        ops: dict[str, int] = {}
        for layer in layers.get("Layers", ()):
            kind = str(layer.get("LayerType", "?")) if isinstance(layer, dict) else "?"
            ops[kind] = ops.get(kind, 0) + 1
        inside = [name for name in files.listing(path) if name != document.DOCUMENT]
        return Overview(
            model=str(folder.absolute()),
            form="TensorRT plan",
            signatures=_contents(plan).signatures,
            opsets={},
            ops=dict(sorted(ops.items(), key=lambda item: (-item[1], item[0]))),
            weights={},
            files=tuple(File(name, (folder / name).stat().st_size) for name in inside),
            facts=_facts(plan),
            unasked=_UNASKED,
        )


def _contents(plan: document.PlanFile) -> Contents:
    signature = Signature(*(tuple(one.spec for one in side) for side in (plan.inputs, plan.outputs)))
    return Contents(
        signatures={DEFAULT: signature}, engines=(Engine(document.ENGINE, plan.precision),), facts=_facts(plan)
    )


def _with_file(path: str, contents: Contents) -> Contents:
    """The same with what the ONNX file beside the plan tells: the limits of inputs, which inputs have a value for good, and which outputs
    were kept."""
    from tftrt_tools.models.kinds.onnx import index_limits  # importing it loads NumPy

    signature = contents.signatures[DEFAULT]
    inputs = index_limits.limited(f"{path}/{document.ONNX}", signature.inputs)
    return dataclasses.replace(
        contents,
        signatures={DEFAULT: dataclasses.replace(signature, inputs=inputs)},
        facts={**contents.facts, **_of_file(path)},
    )


def _of_file(path: str) -> dict[str, str]:
    """What the ONNX file of a plan directory says of its inputs and outputs: which have a value for good, and which were kept."""
    try:
        facts = onnx_file.overview(os.path.join(path, document.ONNX)).facts
    except errors.TftrtError:  # the plan runs without the ONNX file
        return {}
    return {name: facts[name] for name in ("tftrt.freeze", "tftrt.outputs") if name in facts}


def _facts(plan: document.PlanFile) -> dict[str, str]:
    facts = {
        "TensorRT": plan.tensorrt,
        "GPU": f"{plan.gpu}, compute capability {plan.compute_capability}",
        "precision": plan.precision + (", strongly typed" if plan.strongly_typed else ""),
    }
    facts |= {f"profile {number}": text(profile) for number, profile in enumerate(plan.profiles)}
    narrowed = [
        f"{tensor.name} {tensor.dtype} as {tensor.engine_dtype}"
        for tensor in (*plan.inputs, *plan.outputs)
        if tensor.dtype != tensor.engine_dtype
    ]
    facts |= {
        "types": ", ".join(narrowed),
        "builder flags": ", ".join(plan.builder_flags),
        "plugins": ", ".join(
            f"{plugin.file} ({', '.join(plugin.creators) or 'no creator'})" for plugin in plan.plugins
        ),
    }
    return {name: value for name, value in facts.items() if value}


def text(profile: Profile) -> str:
    """A profile for people, with what it was tuned for if that is neither end."""
    tuned = [
        f"{name} at {'x'.join(map(str, bounds.opt))}"
        for name, bounds in profile.inputs.items()
        if bounds.opt not in (bounds.min, bounds.max)
    ]
    return profile.text() + (f"; fastest with {', '.join(tuned)}" if tuned else "")


PLAN = Plan()
