"""Who makes the models that a search tries, beside TF-TRT, whose conversions the process of the trials makes itself. What they make stays
in the work folder, so that nothing is made twice. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tftrt_tools.accuracy import verify
from tftrt_tools.base import errors, records
from tftrt_tools.base.process import progress
from tftrt_tools.models.backends import recipe
from tftrt_tools.models.backends.protocol import AnyBackend, Evidence, Given, Ranked, Simulates, Work
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.sources.source import Source
from tftrt_tools.studies import backends
from tftrt_tools.studies.tuning import journal
from tftrt_tools.tensorrt.exporting import export
from tftrt_tools.tftrt.conversion.settings import Settings

if TYPE_CHECKING:
    from tftrt_tools.studies.tuning.trial import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(records.Record):
    """What a maker is told."""

    # As the user named the model.
    source: Source
    # {signature that is tuned: all of its names}.
    names: Mapping[str, tuple[str, ...]]
    # Where what is made is kept.
    folder: pathlib.Path
    # The rows on which a model in FP32 has to answer like the original.
    comparison: verify.Options
    # Of INT8: the calibration's data, or the path of a table in its place.
    data: DataOptions | None = None
    table: str = ""
    # {"folder", "max_bytes"} of the engine cache; None for none.
    cache: Mapping[str, Any] | None = None
    log_file: str | None = None
    # What a model depends on besides the settings (original, data, calibration, machine), for its place.
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def place(self, title: str, settings: Settings) -> pathlib.Path:
        """Where what is made with settings lies. Args: title: of the back end."""
        key = journal.key(settings=settings.to_dict(), **self.facts).removeprefix("sha256:")[:16]
        return self.folder / f"{title}-{settings.precision_mode.lower()}-{key}"


class Maker(Protocol):
    """Makes models of a search's settings: of these the recipe counts."""

    def prepare(self, settings: Settings) -> None:
        """What is made before a build, without its time bound. Raises: UsageError, TftrtError where the model cannot be made."""

    def there(self, settings: Settings) -> bool:
        """Whether the model is made already."""

    def made(self, settings: Settings, minutes: float | None = None) -> pathlib.Path:
        """The model, made if it is not there. Args: minutes: for its build; None for no bound. Raises: UsageError, TftrtError."""

    def evidence(self, model: pathlib.Path) -> Evidence:
        """Of a model that was made."""

    def source(self, settings: Settings) -> Source:
        """The model from which the build makes it, by its absolute path."""

    def data(self, settings: Settings) -> DataOptions | None:
        """What that build calibrates on; None where its settings or its source have the ranges."""

    def built_with(self, settings: Settings) -> recipe.Recipe:
        """The back end's settings of that build."""

    def exported(self, settings: Settings) -> export.Options | None:
        """How the model is exported first; None where the build takes it as it is."""

    def ranks(self, task: Task, kept: journal.Journal) -> Ranks:
        """What ranks the nodes of its models. Args: kept: where what was simulated is kept."""

    def variants(self, settings: Settings) -> tuple[Settings, ...]:
        """Other settings to try where these gave a model."""


class Ranks(Protocol):
    """Ranks nodes before anything is built."""

    def __call__(self, settings: Settings) -> Ranked:
        """Raises: TftrtError where nothing can be simulated."""

    def snr_db(self, settings: Settings) -> float:
        """The SNR in dB that a simulation of INT8 promises. Raises: TftrtError."""


@dataclasses.dataclass(frozen=True)
class Direct:
    """Makes models by a back end's own `make`, from the model that the user named."""

    backend: AnyBackend
    asked: Asked

    def prepare(self, settings: Settings) -> None:
        """Check it all. Raises: UsageError, TftrtError."""
        self.backend.takes(self.asked.source)
        self.built_with(settings)

    def there(self, settings: Settings) -> bool:
        """As Maker.there."""
        return self._target(settings).exists()

    def _target(self, settings: Settings) -> pathlib.Path:
        return self._place(settings) / f"model{self.backend.suffix}"

    def made(self, settings: Settings, minutes: float | None = None) -> pathlib.Path:
        """As Maker.made."""
        asked, place, target = self.asked, self._place(settings), self._target(settings)
        if target.exists():
            return target
        place.mkdir(parents=True, exist_ok=True)
        progress.say(f"building with {self.backend.name}")
        self.backend.make(
            Work(
                source=asked.source,
                output=str(target),
                settings=self.built_with(settings),
                data=self.data(settings),
                cache=asked.cache,
                log_file=f"{asked.log_file}.{self.backend.name}" if asked.log_file else None,
                build_minutes=minutes,
            )
        )
        return target

    def _place(self, settings: Settings) -> pathlib.Path:
        facts = {**self.asked.facts, **backends.versions(self.backend.name)}
        return dataclasses.replace(self.asked, facts=facts).place(self.backend.name, settings)

    def evidence(self, model: pathlib.Path) -> Evidence:
        """As Maker.evidence."""
        return self.backend.evidence(str(model))

    def source(self, settings: Settings) -> Source:
        """The model that the user named."""
        return dataclasses.replace(self.asked.source, path=str(pathlib.Path(self.asked.source.path).absolute()))

    def data(self, settings: Settings) -> DataOptions | None:
        """The calibration's, of INT8."""
        return self.asked.data if settings.precision_mode == "INT8" and not self.asked.table else None

    def built_with(self, settings: Settings) -> recipe.Recipe:
        """The recipe with the back end's own defaults. Raises: UsageError."""
        table = self.asked.table if settings.precision_mode == "INT8" else ""
        changed = dataclasses.replace(recipe.recast(settings, self.backend.settings), calibration_table=table)
        checked: recipe.Recipe = self.backend.check(changed, Given(data=self.data(settings)))
        return checked

    def exported(self, settings: Settings) -> None:
        """Not by itself."""

    def ranks(self, task: Task, kept: journal.Journal) -> Ranks:
        """Those of the back end, if it simulates."""
        from tftrt_tools.studies.tuning.simulated import Simulated

        return Simulated(self, task, kept) if isinstance(self.backend, Simulates) else NoRanking(self.backend)

    def variants(self, settings: Settings) -> tuple[Settings, ...]:
        """None: the options of a back end are its own."""
        return ()


class NoRanking:
    """Of a back end that simulates nothing."""

    def __init__(self, backend: AnyBackend) -> None:
        self._name = backend.name

    def __call__(self, settings: Settings) -> Ranked:
        """Raises TftrtError."""
        raise errors.TftrtError(f"{self._name} ranks no nodes")

    def snr_db(self, settings: Settings) -> float:
        """Raises TftrtError."""
        raise errors.TftrtError(f"{self._name} simulates no precision")
