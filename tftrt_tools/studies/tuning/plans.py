"""The plans that a search tries: the model as an ONNX file in a precision, and what TensorRT builds of it. Both stay in the work folder, so
that nothing is made twice, and that the winner can be made again from its file. No runtime is imported here."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tftrt_tools.accuracy import verify
from tftrt_tools.base import errors
from tftrt_tools.base.choices import Backend
from tftrt_tools.base.process import progress
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds import table
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.models.sources.source import Source
from tftrt_tools.studies.tuning import journal
from tftrt_tools.studies.tuning.tried import Measured
from tftrt_tools.tensorrt.exporting import export, precision, targets
from tftrt_tools.tensorrt.plans import convert, shaping
from tftrt_tools.tensorrt.plans import settings as plan_settings
from tftrt_tools.tftrt.conversion.settings import Settings

BACKEND: Backend = "tensorrt"
_PLAN, _ONNX = "plan", "model.onnx"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plans:
    """Makes plans of settings, of which the precision, the shapes, the workspace, the calibration and the nodes in FP32 count."""

    # As the user named the model.
    source: Source
    # {signature that is tuned: all of its names}.
    names: Mapping[str, tuple[str, ...]]
    # Where the files are kept.
    folder: pathlib.Path
    # The rows on which the file in FP32 has to answer like the model.
    comparison: verify.Options
    # Of INT8: the calibration's data, or the path of a table in its place.
    data: DataOptions | None = None
    table: str = ""
    # {"folder", "max_bytes"} of the engine cache, where plans and the times of kernels are kept; None for none.
    cache: Mapping[str, Any] | None = None
    log_file: str | None = None
    # What the files depend on besides the settings (model, data, calibration, machine), for their place.
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def onnx(self, settings: Settings) -> pathlib.Path:
        """Where the ONNX file of settings lies."""
        return self._place(settings) / _ONNX

    def plan(self, settings: Settings) -> pathlib.Path:
        """Where their plan directory lies."""
        return self._place(settings) / _PLAN

    def built_with(self, settings: Settings) -> plan_settings.Settings:
        """The settings of the build from the ONNX file, which has one signature without a name."""
        names = next(iter(self.names.values()), ())
        return plan_settings.Settings(
            precision_mode=settings.precision_mode,
            shapes=shaping.without_signature(settings.shapes, names),
            max_workspace_size_bytes=settings.max_workspace_size_bytes
            if settings.max_workspace_size_bytes != Settings().max_workspace_size_bytes
            else 0,
        )

    def options(self, settings: Settings) -> export.Options:
        """How the model is exported. The goal judges the precision, as it does with conversions."""
        name, int8 = next(iter(self.names)), settings.precision_mode == "INT8"
        # Of an ONNX file there is nothing to choose.
        keys = (name,) if table.kind(self.source.path).named_signatures else ()
        asked = precision.Asked(
            precision=settings.precision_mode,
            data=self.data if int8 and not self.table else None,
            table=self.table if int8 else "",
            method=settings.calibration_method,
            percentile=settings.calibration_percentile,
            # A comma in a name would end an expression of --fp32_nodes.
            fp32_nodes=tuple(filter(None, (settings.fp32_nodes.replace(",", "."),))),
        )
        return export.Options(
            target=targets.here(),
            signature_keys=keys,
            precision=asked,
            judge_precision=settings.precision_mode == "FP32",
            comparison=self.comparison,
            log_file=self.log_file,
        )

    def export(self, settings: Settings) -> pathlib.Path:
        """The ONNX file, made if it is not there. Raises: UsageError, TftrtError where the model cannot be exported so."""
        self._check(settings)
        path = self.onnx(settings)
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            done = export.export(self.source, path, self.options(settings))
            if not done.passed:
                raise convert.failed(self.source, done)
        return path

    def made(self, settings: Settings, minutes: float | None = None) -> pathlib.Path:
        """The plan directory, made if it is not there. Args: minutes: for its build; None for no bound. Raises: as `export`; TftrtError
        where TensorRT does not build it."""
        path, target = self.export(settings), self.plan(settings)
        if not target.is_dir():
            progress.say("building the plan")
            convert.convert(
                str(path),
                target,
                plan_settings.checked(self.built_with(settings)),
                cache=self.cache,
                log_file=self._log(),
                build_minutes=minutes,
            )
        return target

    def facts_of(self, plan: pathlib.Path) -> Measured:
        """What the build of a plan tells."""
        manifest = passport.read(plan, passport.MANIFEST) or {}
        return Measured(
            build_seconds=manifest["build_seconds"],
            engine_bytes=document.read(plan).bytes,
            engines=1,
            coverage=1.0,
            cached=int(manifest.get("cached", False)),
        )

    def _place(self, settings: Settings) -> pathlib.Path:
        key = journal.key(settings=settings.to_dict(), **self.facts).removeprefix("sha256:")[:16]
        return self.folder / f"plan-{settings.precision_mode.lower()}-{key}"

    def _check(self, settings: Settings) -> None:
        if len(self.names) > 1:
            raise errors.TftrtError(
                f"a plan has one signature, and {len(self.names)} are tuned: {', '.join(self.names)}",
                f"--signature_keys={DEFAULT if DEFAULT in self.names else next(iter(self.names))} names one",
            )
        if settings.freeze:
            raise errors.TftrtError(
                f"an export gives no input a constant value, as --freeze={settings.freeze} asks", "leave it out"
            )

    def _log(self) -> str | None:
        return f"{self.log_file}.plan" if self.log_file else None
