"""Runs models in the Python of another environment: a plan of another TensorRT, a file in another ONNX Runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tftrt_tools.base import errors
from tftrt_tools.base.process import child, interpreter, jobs
from tftrt_tools.models.kinds.model import Model

_SECONDS = 300.0


@jobs.job
def seen() -> Callable[[Mapping[str, str]], Mapping[str, Mapping[str, str]]]:
    """Import what runs a model. No records: cattrs, which they need, may be what is missing there.

    Request: {"package": of the runtime, "jobs": Runtime.jobs}. Answer: {"missing": {module that does not load: why}, "found": {"python":
    its version, "version": of the package, where nothing is missing}}.
    """
    from tftrt_tools.models.execution import elsewhere_job

    return elsewhere_job.seen


def placed(model: Model, python: str, flag: str) -> tuple[Model, str]:
    """Let a model run in another environment. Args: python: its interpreter, as `flag` names it.

    Returns: (the model, what runs it there, for people: "tensorrt 10.3.0 of Python 3.12.4"). Raises: UsageError, TftrtError where it
    cannot run there.
    """
    runtime = model.kind.runtime
    if not runtime.package:
        raise errors.UsageError(
            f"--{flag}: {model.source} is a {model.kind.name}, which runs in this environment alone",
            "leave it out; plans, ONNX files and PyTorch models run in others",
        )
    path = interpreter.found(python, flag)
    try:
        answer = seen.run({"package": runtime.package, "jobs": runtime.jobs}, runtime.env, path, _SECONDS).result
    except child.ChildDied as error:
        raise errors.TftrtError(
            f"--{flag}={python} does not run tftrt-tools: {error.cause}",
            "give the Python, 3.10 or later, of an environment with numpy and " + runtime.package,
        ) from None
    missing, paths = answer["missing"], answer["found"]
    if missing:
        raise errors.TftrtError(
            f"--{flag}={python} does not load {', '.join(missing)}: {next(iter(missing.values()))}",
            f"{path} -m pip install {' '.join(missing)}, or give the Python of another environment",
        )
    return dataclasses.replace(model, python=path), f"{runtime.package} {paths['version']} of Python {paths['python']}"
