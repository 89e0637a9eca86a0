"""TensorRT itself as a back end: plan directories."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tftrt_tools.base import errors
from tftrt_tools.base.choices import Precision, Server
from tftrt_tools.models.backends.protocol import Changes, Evidence, Given, Made, Work
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.sources.source import Source
from tftrt_tools.tensorrt.plans import settings as settings_module
from tftrt_tools.tensorrt.plans.settings import Settings

# Fields that say of the INT8 that is written into the ONNX file; they count with calibration data.
_WRITTEN = ("calibration_method", "calibration_percentile", "fp32_nodes", "int8_as")


class TensorRt:
    """Plan directories."""

    name = "tensorrt"
    about = "tensorrt builds a plan directory, which runs without TensorFlow (GPU)"
    makes = "plans"
    title = "plan"
    settings = Settings
    convert_flags = frozenset[str]()
    build_flags = frozenset[str]()
    suffix = ""
    keeps_high: Mapping[Precision, str] = {"FP16": "fp32_nodes", "INT8": "fp32_nodes"}
    has_segments = False
    needs_gpu = True
    servers: tuple[Server, ...] = ("triton",)
    always_builds = True
    resumes = False

    def versions(self) -> dict[str, str]:
        """Of TensorRT alone, which every work folder tells apart."""
        return {}

    def takes(self, source: Source) -> None:
        """ONNX files, and what can be exported to one. Raises: UsageError."""
        if files.is_plan(source.path):
            raise errors.UsageError(
                f"{source} is a plan directory already", f"`tftrt build {source}` builds it anew for this machine"
            )
        opening.check(source)

    def check(self, settings: Settings, given: Given) -> Settings:
        """As settings.checked; nothing is calibrated without data. Raises: UsageError."""
        idle = [*given.of_data, *(name for name in given.names if name in _WRITTEN)]
        if idle and given.data is None:
            raise errors.UsageError(
                f"--{idle[0]} has no effect with --backend=tensorrt where nothing is calibrated",
                "give --calibration_data with it, or leave it out",
            )
        return settings_module.checked(settings)

    def make(self, work: Work[Settings]) -> Made:
        """Export the model where it is no ONNX file, and build. Raises: as convert.convert."""
        from tftrt_tools.tensorrt.exporting import precision
        from tftrt_tools.tensorrt.plans import convert, shaping

        settings = work.settings
        asked = (
            precision.Asked.of(
                settings,
                data=dataclasses.replace(work.data, shapes=shaping.first_call(settings.shapes)),
                int8_as=settings.int8_as,
            )
            if work.data
            else None
        )
        return convert.convert(
            work.source,
            work.output,
            settings,
            overwrite=work.overwrite,
            flag_file=work.flag_file,
            log_file=work.log_file,
            cache=work.cache,
            build_minutes=work.build_minutes,
            asked=asked,
        )

    def made(self, model: str) -> bool:
        """A plan directory."""
        return files.is_plan(model)

    def rebuild(self, model: str, changes: Changes, work: Work[Settings]) -> Made:
        """Build a plan directory anew. Raises: as build.build."""
        from tftrt_tools.tensorrt.plans import build

        return build.build(
            model,
            work.output,
            build.Options(shapes=changes.shapes, max_workspace_size_bytes=changes.max_workspace_size_bytes),
            overwrite=work.overwrite,
            cache=work.cache,
            log_file=work.log_file,
            build_minutes=work.build_minutes,
        )

    def evidence(self, model: str) -> Evidence:
        """From the manifest and plan.json."""
        from tftrt_tools.models.kinds.plan import document

        with passport.understood(model, passport.MANIFEST):
            manifest = passport.read(model, passport.MANIFEST) or {}
            return Evidence(
                build_seconds=manifest["build_seconds"],
                engine_bytes=document.read(model).bytes,
                engines=1,
                coverage=1.0,
                cached=int(manifest.get("cached", False)),
            )


TENSORRT = TensorRt()
