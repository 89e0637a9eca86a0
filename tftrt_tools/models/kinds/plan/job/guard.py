"""Whether a plan may be deserialized here: TensorRT ends the process on some plans of another version, GPU or set of plugins. No runtime is
imported here."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

from tftrt_tools.base import errors
from tftrt_tools.models.kinds.plan.document import ONNX, PLAN, PlanFile
from tftrt_tools.models.savedmodel import engine_assets, files


def check(path: str | os.PathLike[str], plan: PlanFile, tensorrt: str, gpu: Mapping[str, str] | None) -> None:
    """Compare a plan directory with this process. Nothing is loaded.

    Args: tensorrt: the version that is loaded here. gpu: of execution.job.device.seen.
    Raises: TftrtError, with the mend.
    """
    folder = pathlib.Path(path)
    again = f"build it anew here: `tftrt build {folder}`"
    if gpu is None:
        raise errors.TftrtError(
            f"{path} is a plan for {plan.gpu}, and no GPU is visible here",
            f"run it on a machine with that GPU; ONNX Runtime runs {folder / ONNX} on a CPU",
        )
    built = engine_assets.header(folder / PLAN)
    for version in filter(None, (plan.tensorrt, built[0])):
        if not engine_assets.same_release(version, tensorrt) and not (
            plan.version_compatible and _major(version) <= _major(tensorrt)
        ):
            raise errors.TftrtError(f"{path} was built by TensorRT {version}, and here it is {tensorrt}", again)
    for capability in filter(None, (plan.compute_capability, built[1])):
        if capability != gpu["compute_capability"]:
            raise errors.TftrtError(
                f"{path} was built for compute capability {capability} ({plan.gpu}), and {gpu['name']} has "
                f"{gpu['compute_capability']}",
                again,
            )
    for plugin in plan.plugins:
        library = folder / plugin.file
        if not library.is_file():
            raise errors.TftrtError(
                f"{path} needs the plugins of {plugin.file}, which is not there",
                f"copy the directory again, or {again}",
            )
        if files.digest(library) != plugin.digest:
            raise errors.TftrtError(
                f"{library} is not the library that the plan was built with: its digest differs",
                f"put that one there, or {again}",
            )


def _major(version: str) -> int:
    return int(version.partition(".")[0])
