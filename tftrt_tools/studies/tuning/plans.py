"""The plans that a search tries: the model as an ONNX file in a precision, and what TensorRT builds of it. Both stay in the work folder, so
that nothing is made twice, and that the winner can be made again from its file. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.backends import recipe
from tftrt_tools.models.backends.protocol import Evidence, Work
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds import table
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.models.sources.source import Source
from tftrt_tools.studies.tuning import journal, makers
from tftrt_tools.studies.tuning.space import Int8As, with_int8_as
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
        """The settings of the build: from the ONNX file, which has one signature without a name, and the precision written in; of an
        Int8As from the model itself."""
        names = next(iter(self.asked.names.values()), ())
        same = recipe.recast(settings, plan_settings.Settings)
        if isinstance(settings, Int8As):
            changed = dataclasses.replace(same, int8_as=settings.int8_as, signature_keys=self._keys())
            return plan_settings.checked(changed)
        return plan_settings.checked(
            plan_settings.Settings(
                precision_mode=same.precision_mode,
                shapes=shaping.without_signature(same.shapes, names),
                max_workspace_size_bytes=same.max_workspace_size_bytes,
            )
        )

    def exported(self, settings: Settings) -> export.Options | None:
        """How the model is exported first; None of an Int8As, whose build exports it."""
        return None if isinstance(settings, Int8As) else self._export(settings)

    def _keys(self) -> tuple[str, ...]:
        # Of an ONNX file there is nothing to choose.
        return (next(iter(self.asked.names)),) if table.kind(self.asked.source.path).named_signatures else ()

    def _export(self, settings: Settings) -> export.Options:
        """How the model is exported. The goal judges the precision, as it does with conversions."""
        asked = self.asked
        with_table = dataclasses.replace(settings, calibration_table=asked.table)
        return export.Options(
            target=targets.here(),
            signature_keys=self._keys(),
            freeze=settings.freeze,
            precision=precision.Asked.of(with_table, asked.data),
            judge_precision=settings.precision_mode == "FP32",
            comparison=self.asked.comparison,
            log_file=asked.log_file,
        )

    def prepare(self, settings: Settings) -> None:
        """Export the model. Raises: as `export`."""
        if not isinstance(settings, Int8As):
            self.export(settings)

    def source(self, settings: Settings) -> Source:
        """The ONNX file; of an Int8As the model that the user named."""
        if isinstance(settings, Int8As):
            return dataclasses.replace(self.asked.source, path=str(pathlib.Path(self.asked.source.path).absolute()))
        return Source(path=str(self.onnx(settings).absolute()))

    def data(self, settings: Settings) -> DataOptions | None:
        """None: the ranges are written into the ONNX file. Of an Int8As the calibration's, on which its build finds them."""
        return self.asked.data if isinstance(settings, Int8As) else None

    def variants(self, settings: Settings) -> tuple[Settings, ...]:
        """Of INT8: only in the nodes that TensorRT would choose for it. That needs data, and exact shapes."""
        if settings.precision_mode != "INT8" or isinstance(settings, Int8As) or not self.asked.data:
            return ()
        return () if shape_grammar.is_range(settings.shapes) else (with_int8_as(settings),)

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
            done = export.export(self.asked.source, path, self._export(settings))
            if not done.passed:
                raise convert.failed(self.asked.source, done)
        return path

    def there(self, settings: Settings) -> bool:
        """Whether the plan is built already."""
        return self.plan(settings).is_dir()

    def made(self, settings: Settings, minutes: float | None = None) -> pathlib.Path:
        """The plan directory, made if it is not there. Args: minutes: for its build; None for no bound. Raises: as `export`; TftrtError
        where TensorRT does not build it."""
        if isinstance(settings, Int8As):
            return self._chosen(settings, minutes)
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

    def _chosen(self, settings: Int8As, minutes: float | None) -> pathlib.Path:
        """The plan directory of an Int8As."""
        self._check(settings)
        target = self.plan(settings)
        if not target.is_dir():
            target.parent.mkdir(exist_ok=True)
            progress.say("building the plan, after one that shows where INT8 is chosen")
            work = Work(
                source=self.source(settings),
                output=str(target),
                settings=self.built_with(settings),
                data=self.data(settings),
                cache=self.asked.cache,
                log_file=self._log(),
                build_minutes=minutes,
            )
            TENSORRT.make(work)
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

    def _log(self) -> str | None:
        return f"{self.asked.log_file}.plan" if self.asked.log_file else None
