"""TF-TRT as a back end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base.choices import Precision, Server
from tftrt_tools.models.backends.protocol import Changes, Evidence, Given, Made, Work
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.sources.source import Source
from tftrt_tools.tftrt.conversion import settings as settings_module
from tftrt_tools.tftrt.conversion.settings import Settings


class TfTrt:
    """TF-TRT SavedModels."""

    name = "tftrt"
    about = "tftrt makes a TF-TRT SavedModel"
    makes = "TF-TRT"
    title = ""
    settings = Settings
    convert_flags = frozenset({"layer_precisions"})
    build_flags = frozenset(
        {
            "strip",
            "repeat",
            "dynamic_shape_profile_strategy",
            "allow_build_at_runtime",
            "leave_refused_nodes",
            "tags",
            "layer_precisions",
            "op_library",
        }
    )
    suffix = ""
    keeps_high: Mapping[Precision, str] = settings_module.KEEPS_HIGH
    has_segments = True
    needs_gpu = True
    servers: tuple[Server, ...] = ("tensorflow", "triton")
    always_builds = False
    resumes = True

    def versions(self) -> dict[str, str]:
        """Of TensorRT alone, which every work folder tells apart."""
        return {}

    def takes(self, source: Source) -> None:
        """Refuse all models but SavedModels, Keras files, frozen graphs and checkpoints. Raises: UsageError."""
        from tftrt_tools.models.kinds import opening

        opening.check(source, to_convert=True)

    def check(self, settings: Settings, given: Given) -> Settings:
        """Check the settings, as settings.checked, and the text of --shapes. Raises: UsageError."""
        settings = settings_module.checked(settings)
        if settings.shapes:
            shape_grammar.parse(settings.shapes)
        return settings

    def make(self, work: Work[Settings]) -> Made:
        """Convert the model. Raises: as pipeline.convert."""
        from tftrt_tools.tftrt.conversion import pipeline

        return pipeline.convert(
            work.source,
            work.output,
            work.settings,
            overwrite=work.overwrite,
            dry_run=work.output is None,
            flag_file=work.flag_file,
            log_file=work.log_file,
            data=work.data,
            cache=work.cache,
            layers=work.layers,
            build_minutes=work.build_minutes,
        )

    def made(self, model: str) -> bool:
        """Whether a path is a SavedModel with the metadata of a conversion."""
        manifest = passport.read(model, passport.MANIFEST) if files.is_saved_model(model) else None
        return bool(manifest) and not files.is_plan(model)

    def rebuild(self, model: str, changes: Changes, work: Work[Settings]) -> Made:
        """Build the engines, or take them away where no shapes are given. Raises: as build.build."""
        from tftrt_tools.tftrt.conversion import build

        return build.build(
            model,
            work.output,
            build.Options(
                shapes=changes.shapes, max_workspace_size_bytes=changes.max_workspace_size_bytes, **changes.options
            ),
            overwrite=work.overwrite,
            cache=work.cache,
            log_file=work.log_file,
            layers=work.layers,
            build_minutes=work.build_minutes,
        )

    def evidence(self, model: str) -> Evidence:
        """The Evidence that the conversion's manifest gives."""
        with passport.understood(model, passport.MANIFEST):
            manifest: Any = passport.read(model, passport.MANIFEST) or {}
            built = [engine for signature in manifest["signatures"] for engine in signature.get("built", ())]
            return Evidence(
                build_seconds=math.fsum(engine["seconds"] for engine in built),
                engine_bytes=sum(engine["bytes"] for engine in built),
                engines=manifest["engine_count"],
                coverage=manifest["coverage"],
                cached=sum(bool(engine.get("cached")) for engine in built),
            )


TFTRT = TfTrt()
