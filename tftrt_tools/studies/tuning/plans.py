"""The plans that a search tries: the model as an ONNX file in a precision, and what TensorRT builds of it. Both stay in the work folder, so
that nothing is made twice, and that the winner can be made again from its file. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.backends import recipe
from tftrt_tools.models.backends.protocol import Evidence
from tftrt_tools.models.kinds import table
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.models.sources.source import Source
from tftrt_tools.studies.tuning import journal, makers
from tftrt_tools.tensorrt.exporting import export, precision, targets
from tftrt_tools.tensorrt.plans import convert, shaping
from tftrt_tools.tensorrt.plans import settings as plan_settings
from tftrt_tools.tensorrt.plans.backend import TENSORRT
from tftrt_tools.tftrt.conversion.settings import Settings

if TYPE_CHECKING:
    from tftrt_tools.studies.tuning.trial import Task

_PLAN, _ONNX = "plan", "model.onnx"


@dataclasses.dataclass(frozen=True)
class Plans:
    """Makes plans: exports the model in a precision once, and builds from that file, so that the winner can be made again from it."""

    asked: makers.Asked

    def onnx(self, settings: Settings) -> pathlib.Path:
        """Where the ONNX file of settings lies."""
        return self._place(settings) / _ONNX

    def plan(self, settings: Settings) -> pathlib.Path:
        """Where their plan directory lies."""
        return self._place(settings) / _PLAN

    def built_with(self, settings: Settings) -> plan_settings.Settings:
        """The settings of the build from the ONNX file, which has one signature without a name, and the precision written in."""
        names = next(iter(self.asked.names.values()), ())
        same = recipe.recast(settings, plan_settings.Settings)
        return plan_settings.checked(
            plan_settings.Settings(
                precision_mode=same.precision_mode,
                shapes=shaping.without_signature(same.shapes, names),
                max_workspace_size_bytes=same.max_workspace_size_bytes,
            )
        )

    def exported(self, settings: Settings) -> export.Options:
        """How the model is exported. The goal judges the precision, as it does with conversions."""
        asked, name = self.asked, next(iter(self.asked.names))
        # Of an ONNX file there is nothing to choose.
        keys = (name,) if table.kind(self.asked.source.path).named_signatures else ()
        with_table = dataclasses.replace(settings, calibration_table=asked.table)
        return export.Options(
            target=targets.here(),
            signature_keys=keys,
            precision=precision.Asked.of(with_table, asked.data),
            judge_precision=settings.precision_mode == "FP32",
            comparison=self.asked.comparison,
            log_file=asked.log_file,
        )

    def prepare(self, settings: Settings) -> None:
        """Export the model. Raises: as `export`."""
        self.export(settings)

    def source(self, settings: Settings) -> Source:
        """The ONNX file."""
        return Source(path=str(self.onnx(settings).absolute()))

    def data(self, settings: Settings) -> None:
        """The ranges are written into the ONNX file."""

    def ranks(self, task: Task, kept: journal.Journal) -> makers.Ranks:
        """By the simulation of the exported file."""
        from tftrt_tools.studies.tuning.plan_ranking import PlanRanking

        return PlanRanking(task, self, kept)

    def export(self, settings: Settings) -> pathlib.Path:
        """The ONNX file, made if it is not there. Raises: UsageError, TftrtError where the model cannot be exported so."""
        self._check(settings)
        path = self.onnx(settings)
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            done = export.export(self.asked.source, path, self.exported(settings))
            if not done.passed:
                raise convert.failed(self.asked.source, done)
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
                self.built_with(settings),
                cache=self.asked.cache,
                log_file=self._log(),
                build_minutes=minutes,
            )
        return target

    def evidence(self, model: pathlib.Path) -> Evidence:
        """Of a plan."""
        return TENSORRT.evidence(str(model))

    def _place(self, settings: Settings) -> pathlib.Path:
        return self.asked.place("plan", settings)

    def _check(self, settings: Settings) -> None:
        names = self.asked.names
        if len(names) > 1:
            raise errors.TftrtError(
                f"a plan has one signature, and {len(names)} are tuned: {', '.join(names)}",
                f"--signature_keys={DEFAULT if DEFAULT in names else next(iter(names))} names one",
            )
        if settings.freeze:
            raise errors.TftrtError(
                f"an export gives no input a constant value, as --freeze={settings.freeze} asks", "leave it out"
            )

    def _log(self) -> str | None:
        return f"{self.asked.log_file}.plan" if self.asked.log_file else None
