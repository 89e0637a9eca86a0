"""Models that run in the Python of another environment: a plan of another TensorRT, a file in another ONNX Runtime."""

from __future__ import annotations

import dataclasses
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import child, interpreter
from tftrt_tools.models.kinds.model import Model

_SECONDS = 300.0


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
        said: Any = child.run(
            "tftrt_tools.models.execution.elsewhere_job:seen",
            {"package": runtime.package, "jobs": runtime.jobs},
            runtime.env,
            path,
            _SECONDS,
        ).result
    except child.ChildDied as error:
        raise errors.TftrtError(
            f"--{flag}={python} does not run tftrt-tools: {error.cause}",
            "give the Python, 3.10 or later, of an environment with numpy and " + runtime.package,
        ) from None
    if said["missing"]:
        raise errors.TftrtError(
            f"--{flag}={python} does not load {', '.join(said['missing'])}: {said['why']}",
            f"{path} -m pip install {' '.join(said['missing'])}, or give the Python of another environment",
        )
    return dataclasses.replace(model, python=path), f"{runtime.package} {said['version']} of Python {said['python']}"
