"""The whole of `tftrt build PLAN`: a plan directory built anew from the model.onnx and the settings that it keeps. Its plan is not read, so
one of another TensorRT or GPU does no harm, nor does a damaged one. No runtime is imported here."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.savedmodel import files, passport, staging
from tftrt_tools.tensorrt.plans import convert, making, shaping
from tftrt_tools.tensorrt.plans import settings as settings_module
from tftrt_tools.tensorrt.plans.result import Built
from tftrt_tools.tensorrt.plans.settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to change; None and "" keep what the directory says."""

    # Text of --shapes.
    shapes: str = ""
    # Scratch GPU memory of the build.
    max_workspace_size_bytes: int | None = None


def build(
    plan: str | os.PathLike[str],
    output: str | os.PathLike[str] | None,
    options: Options,
    *,
    overwrite: bool = False,
    cache: Mapping[str, Any] | None = None,
    log_file: str | None = None,
    build_minutes: float | None = None,
) -> Built:
    """Build a plan directory anew, for the GPU and the TensorRT of this machine.

    Args: plan: the directory. output: directory to make; None replaces `plan` by the result, in one step. options: Options. overwrite:
      replace a plan directory or SavedModel at `output`. cache, log_file, build_minutes: as in convert.convert.

    Returns: Built. Raises: UsageError, TftrtError; the target is then as it was.
    """
    start = time.monotonic()
    convert.check_installed()
    shaping.groups(options.shapes)
    manifest = _manifest(plan)
    settings = _settings(plan, manifest, options)
    target = staging.check_target(plan, True) if output is None else staging.check_target(output, overwrite, [plan])
    files.check_links(plan)
    kept = pathlib.Path(plan) / document.ONNX
    before = files.digest(plan)
    with contextlib.ExitStack() as stack:
        stage = stack.enter_context(staging.staged(target, overwrite or output is None))
        for path in (str(kept), *onnx_file.outside(str(kept))):
            place = stage / os.path.relpath(path, plan)
            place.parent.mkdir(parents=True, exist_ok=True)
            plain_file.copy(path, place)
        task = making.Task(
            name=str(kept),
            source=manifest["source"],
            source_digest=manifest["source_digest"],
            before=before,
            output=target,
            settings=settings,
            ranges=_ranges(plan, settings),
            notes=tuple(manifest["notes"]),
            flag_file=_flag_file(plan, options),
            log_file=log_file,
            cache=cache,
            build_minutes=build_minutes,
            start=start,
        )
        return making.made(stage, task)


def _manifest(plan: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest. Raises: UsageError, TftrtError where the directory has not what a build needs."""
    if not (pathlib.Path(plan) / document.ONNX).is_file():
        raise errors.UsageError(
            f"{plan} has no {document.ONNX}, from which its plan could be built", "copy it again, or convert the model"
        )
    found: dict[str, Any] | None = passport.read(plan, passport.MANIFEST)
    if found is None:
        raise errors.UsageError(
            f"{plan} has no {files.PASSPORT}/{passport.MANIFEST}, which says how its plan was built",
            f"give the file to `tftrt convert --backend=tensorrt {plan}/{document.ONNX}`",
        )
    return found


def _settings(plan: str | os.PathLike[str], manifest: Mapping[str, Any], options: Options) -> Settings:
    """The settings of the first build with the changes of the options, and the libraries of plugins that the directory keeps."""
    with passport.understood(plan, passport.MANIFEST):
        base = Settings.from_dict(manifest["settings"])
        [manifest[name] for name in ("source", "source_digest", "notes")]
    plugins = [pathlib.Path(plan).absolute() / document.PLUGINS / pathlib.Path(path).name for path in base.plugins]
    for path in plugins:
        if not path.is_file():
            raise errors.UsageError(
                f"{plan} needs the plugins of {path}, which is not there", "copy the directory again"
            )
    workspace = options.max_workspace_size_bytes
    changed = dataclasses.replace(
        base,
        plugins=tuple(map(str, plugins)),
        shapes=options.shapes or base.shapes,
        max_workspace_size_bytes=base.max_workspace_size_bytes if workspace is None else workspace,
    )
    return settings_module.checked(changed)


def _ranges(plan: str | os.PathLike[str], settings: Settings) -> dict[str, float]:
    """The ranges of the first build; of a directory that does not keep them, those of the table that it names."""
    kept = passport.read(plan, document.RANGES)
    if kept is None:
        return convert.ranges(settings.calibration_table)
    with passport.understood(plan, document.RANGES):
        return {str(name): float(most) for name, most in kept["ranges"].items()}


def _flag_file(plan: str | os.PathLike[str], options: Options) -> str:
    """The text that repeats the conversion, with the shapes of this build."""
    path = passport.folder(plan) / passport.FLAGS
    lines = path.read_text().splitlines() if path.is_file() else []
    if options.shapes:
        lines = [*(line for line in lines if not line.startswith("--shapes=")), f"--shapes={options.shapes}"]
    return "".join(f"{line}\n" for line in lines)
