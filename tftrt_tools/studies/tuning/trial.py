"""The parent's side of trials: the worker that runs many, the journal that keeps them, the INT8 tables that they share."""

import contextlib
import dataclasses
import fcntl
import pathlib
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import child, jobs, progress
from tftrt_tools.models.engine_cache.store import Place
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.studies import backends
from tftrt_tools.studies.tuning import journal as journal_module
from tftrt_tools.studies.tuning import measuring, space
from tftrt_tools.studies.tuning.final import Final
from tftrt_tools.studies.tuning.latency import Latency
from tftrt_tools.studies.tuning.makers import Maker
from tftrt_tools.studies.tuning.measuring import Answer, Converting, Original, Request, Scoring, Timed
from tftrt_tools.studies.tuning.tried import Measured, Trial
from tftrt_tools.tftrt.calibration import file as calibration_file
from tftrt_tools.tftrt.calibration.file import Calibration
from tftrt_tools.tftrt.conversion.settings import Settings

# The settings that decide the segments, and so which table an engine needs; nodes in a higher precision only remove entries.
_OF_SEGMENTS = (
    "signature_keys",
    "tags",
    "minimum_segment_size",
    "max_engines",
    "keep_native_ops",
    "keep_native_nodes",
    "calibrator",
    "calibration_method",
    "calibration_percentile",
    "allow_quantization_changes",
)
# The last comparison says when it loads a model, and nothing during its rounds.
_TURNS_WITHIN = child.Silence(3600, 3600)
_TOO_LONG = "took longer than --max_trial_minutes="
# As an engine that was not ready in time is told of.
_LATE = re.compile(r"--max_build_minutes=([0-9.e+]+)")
# Only the segmenter's log is read here. The engine op would log in every call, while the time is taken.
ENV = {"TF_CPP_VMODULE": "segment=2", "TF_CPP_MIN_LOG_LEVEL": "0"}
Part = TypeVar("Part")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shared(records.Record):
    """The facts that all trials share."""

    # Path of the SavedModel.
    model: str
    timed: Sequence[Timed]
    scoring: Scoring
    # The calibration's data, or a table to use in its place.
    data: DataOptions | None = None
    table: Calibration | None = None
    # {"folder", "max_bytes"} of the engine cache, None for none.
    cache: Mapping[str, Any] | None = None
    # Minutes for the engines of a trial; None for no bound.
    build_minutes: float | None = None
    # For the journal: the facts besides the settings that measurements depend on (model, data, machine); and the same for calibration.
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data_facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The path that the user named, "" where it is `model`.
    given: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(Shared):
    """The same, with what makes their models. makers: {back end: Maker}, of those that are tried beside TF-TRT."""

    makers: Mapping[str, Maker] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, shared: Shared, makers: Mapping[str, Maker]) -> "Task":
        """With these makers."""
        return cls(**_fields(shared), makers=makers)

    @property
    def shared(self) -> Shared:
        """Without makers, as it is sent to another process."""
        return Shared(**_fields(self))

    @property
    def named(self) -> str:
        """The model's path for people and evidence."""
        return self.given or self.model

    def original(self, settings: Settings) -> Original:
        """The model. Args: settings: of one of its conversions."""
        return Original(path=self.model, tags=settings.tags)

    def conversion(
        self, settings: Settings, table: Calibration | None = None, data: DataOptions | None = None
    ) -> Converting:
        """A conversion of it. Args: table, data: of INT8."""
        return Converting(
            source=self.model,
            settings=settings,
            data=data,
            table=table,
            cache=Place.from_dict(self.cache) if self.cache else None,
            build_minutes=self.build_minutes,
        )


def _fields(shared: Shared) -> dict[str, Any]:
    return {field.name: getattr(shared, field.name) for field in dataclasses.fields(Shared)}


class Trials:
    """Measures settings; a context that holds the work folder for itself and ends the worker."""

    def __init__(
        self,
        task: Task,
        journal: journal_module.Journal,
        log_file: str | None = None,
        retry_failed: bool = False,
        trial_minutes: float = 0,
        job: jobs.Job[Request, Answer] | None = None,
    ) -> None:
        """Args: task: Task; journal: journal.Journal. retry_failed: do failed trials of an earlier run again. trial_minutes: a trial is
        ended after this time, 0 for never. job: of the worker; measuring.measure by default."""
        self._task, self._journal, self._log_file, self._retry_failed = task, journal, log_file, retry_failed
        self._job = job or measuring.measure
        self.minutes = trial_minutes
        self._stack, self._started = contextlib.ExitStack(), 0
        self._worker: jobs.Worker[Request, Answer] | None = None
        self.reused = 0
        # Keys of what others have done for this run.
        self._given: set[str] = set()

    def __enter__(self) -> "Trials":
        self._lock = open(self._journal.folder / "lock", "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise errors.TftrtError(
                f"another tune works in {self._journal.folder}", "wait for it, or take another --work_dir"
            ) from None
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self.rest()
        finally:
            self._lock.close()

    def rest(self) -> None:
        """End the worker, which lets go of the GPU; the next trial starts another one."""
        self._stack.close()
        # A worker that was killed in a trial could not remove its model.
        for path in self._journal.folder.glob(".trial-*"):
            shutil.rmtree(path, ignore_errors=True)

    def score(self, scoring: Scoring) -> float:
        """The goal's metric of the original's own answers. Raises: as child.Worker.call."""
        return _present(self._ask(Request(score=scoring)).score)

    def native(self, settings: Settings) -> Mapping[str, Latency]:
        """{call: Latency} of the original. Args: settings: of one of its conversions. Raises: as child.Worker.call."""
        asked = measuring.OfOriginal(original=self._task.original(settings), timed=tuple(self._task.timed))
        return _present(self._ask(Request(native=asked)).native)

    def _ask(self, request: Request, seconds: float | None = None, silence: child.Silence | None = None) -> Answer:
        """Call the job in the worker for `seconds` at most, and without progress as long as `silence` says; start a worker if there is
        none. Raises: as child.Worker.call."""
        if self._worker is None or not self._worker.alive:
            self.rest()
            self._started += 1
            log_file = self._log_file and self._log_file + (f".{self._started}" if self._started > 1 else "")
            self._worker = self._stack.enter_context(self._job.worker(ENV, log_file))
        return self._worker.call(request, seconds, silence).result

    def __call__(self, settings: Settings) -> Measured:
        """Measure one conversion, or take what the journal has. Returns: Measured; a conversion that fails is a Measured too."""
        start = time.monotonic()
        progress.say("trial: " + space.text(settings))
        failure, table = "", None
        try:
            table = self.calibration(settings)
        except errors.TftrtError as error:
            failure = f"calibration failed: {error.cause}"
        return self._once(
            self._key(settings, table),
            settings,
            backends.default().name,
            start,
            lambda: Measured(failure=failure) if failure else self._measured(settings, table),
        )

    def made(self, settings: Settings, backend: str) -> Measured:
        """As a call, for what Task.makers make with these settings."""
        start = time.monotonic()
        progress.say("trial: " + space.text(settings, backend=backend))
        return self._once(
            self._key_of_made(settings, backend),
            settings,
            backend,
            start,
            lambda: self._tried(lambda limit: self._of_made(settings, backend, limit)),
        )

    def kept_as(self, settings: Settings, backend: str) -> str:
        """The key under which the journal keeps a trial; "" where it depends on a calibration that is not done."""
        if backend in self._task.makers:
            return self._key_of_made(settings, backend)
        if not self._calibrates(settings):
            return self._key(settings, self._task.table if settings.precision_mode == "INT8" else None)
        path = self.calibration_path(settings)
        with contextlib.suppress(errors.TftrtError):  # one that is damaged: the trial says so
            return self._key(settings, calibration_file.read(path)) if path.is_file() else ""
        return ""

    def has(self, settings: Settings, backend: str) -> bool:
        """Whether the journal has this trial, and it is not to be done again; or has its model, which an earlier run has made."""
        key, maker = self.kept_as(settings, backend), self._task.makers.get(backend)
        return bool(key and self._found(key) or maker and maker.there(settings))

    def _key(self, settings: Settings, table: Calibration | None) -> str:
        return journal_module.key(settings=settings.to_dict(), tables=_digest(table), **self._task.facts)

    def _key_of_made(self, settings: Settings, backend: str) -> str:
        return journal_module.key(
            backend=backend,
            settings=settings.to_dict(),
            tables=_digest(self._task.table),
            calibration=self._task.data_facts,
            **backends.versions(backend),
            **self._task.facts,
        )

    def keep(self, key: str, settings: Settings, measured: Measured, backend: str, where: str) -> None:
        """Keep a trial that was done elsewhere. Args: where: for people."""
        self._journal.put(key, settings, dataclasses.replace(measured, where=where), backend)
        self._given.add(key)

    def _found(self, key: str) -> Measured | None:
        """What the journal has, if that is not to be done again."""
        found = self._journal.get(key)
        if not found or key in self._given:
            return found
        again = found.failure and (self._retry_failed or self._has_longer(found.failure))
        return None if again else found

    def _once(
        self, key: str, settings: Settings, backend: str, start: float, measure: Callable[[], Measured]
    ) -> Measured:
        """What the journal has, or what `measure` gives, which is kept. Args: start: of the trial, by time.monotonic."""
        if found := self._found(key):
            self.reused += 1
            return found
        measured = measure()
        seconds = round(time.monotonic() - start, 2)
        measured = dataclasses.replace(measured, seconds=seconds, began=round(time.time() - seconds, 1))
        self._journal.put(key, settings, measured, backend)
        return measured

    def _measured(self, settings: Settings, table: Calibration | None) -> Measured:
        task = self._task
        asked = measuring.OfConversion(
            convert=task.conversion(settings, table),
            folder=str(self._journal.folder.absolute()),
            timed=tuple(task.timed),
            scoring=task.scoring,
        )
        return self._tried(lambda limit: _present(self._ask(Request(trial=asked), limit).measured))

    def _of_made(self, settings: Settings, backend: str, limit: float | None) -> Measured:
        """Prepare, build, measure. What comes before the build takes the time that it needs. Args: limit: seconds."""
        task, begun = self._task, time.monotonic()
        maker, by_whom = task.makers[backend], backends.named(backend)
        maker.prepare(settings)
        left = limit and max(limit - (time.monotonic() - begun), 1.0)
        minutes = min((one for one in (task.build_minutes, left and left / 60) if one), default=None)
        path = maker.made(settings, minutes)
        said = maker.evidence(path)
        asked = measuring.OfMade(
            path=str(path.absolute()),
            title=by_whom.title or backend,
            facts=Measured(**dataclasses.asdict(said)),
            timed=tuple(task.timed),
            scoring=task.scoring,
        )
        answer = self._ask(Request(made=asked), limit and max(limit - (time.monotonic() - begun), 1.0))
        return _present(answer.measured)

    def _tried(self, measure: Callable[[float | None], Measured]) -> Measured:
        """What `measure` gives, with the seconds that a trial may take; what it raises is the trial's failure."""
        limit = 60 * self.minutes or None
        start = time.monotonic()
        try:
            return self._without_builds(measure(limit))
        except errors.TftrtError as error:
            if limit and time.monotonic() - start >= limit:
                return Measured(failure=f"{_TOO_LONG}{self.minutes:g}")
            return self._without_builds(Measured(failure=error.cause))
        except child.ChildBug as bug:
            # Go on with the other trials instead of showing this one's traceback.
            return Measured(failure=_told(bug))

    def _without_builds(self, measured: Measured) -> Measured:
        """The same. A build that was given up goes on in the worker, and would take the GPU from the next trial: it ends here."""
        if _LATE.search(measured.failure):
            self.rest()
        return measured

    def in_turns(self, trials: Sequence[Trial], timed: Timed) -> Final:
        """Time what was tried and the original in turns, or take what the journal has.

        It runs in a new process: engines are cached in their process by name, and the old process may still have the trials' engines.

        Args: timed: the one of Task.timed. Returns: final.Final. Raises: TftrtError.
        """
        task = self._task
        converted = {one.number: one.settings for one in trials if one.backend not in task.makers}
        others = [one for one in trials if one.backend in task.makers]
        tables = {number: self.calibration(one) for number, one in converted.items()}
        made = {one.number: task.makers[one.backend].made(one.settings) for one in others}
        asked = measuring.InTurns(
            original=task.original(trials[0].settings),
            timed=timed,
            folder=str(self._journal.folder.absolute()),
            converts={number: task.conversion(one, tables[number]) for number, one in converted.items()},
            made={number: str(path.absolute()) for number, path in made.items()},
            without_engines=tuple(one.number for one in others if not one.measured.engines),
        )
        # The task's facts are one entry: their own names could collide with names in this key. So are the trials of back ends; those of
        # TensorRT have had the name "plans", and no versions of their own.
        plans: dict[int, Any] = {}
        versioned: dict[str, dict[int, Any]] = {}
        for trial in others:
            entry = versioned.setdefault(trial.backend, {}) if backends.versions(trial.backend) else plans
            entry[trial.number] = trial.settings.to_dict()
        key = journal_module.key(
            timed=timed.call,
            settings={number: one.to_dict() for number, one in converted.items()},
            tables={number: _digest(one) for number, one in tables.items()},
            task=self._task.facts,
            **({"plans": plans} if plans else {}),
            **({"made": {n: [backends.versions(n), trials] for n, trials in versioned.items()}} if versioned else {}),
        )
        progress.say("loading the best once more")
        return Final.from_dict(self._journal.fact("final", key, lambda: self._alone(Request(final=asked)).to_dict()))

    def _alone(self, request: Request) -> Final:
        self.rest()
        try:
            return _present(self._ask(request, silence=_TURNS_WITHIN).final)
        except child.ChildBug as bug:
            raise errors.TftrtError(_told(bug)) from bug

    @staticmethod
    def ran_out_of_time(failure: str) -> bool:
        """Whether a trial was ended by a limit of the user's."""
        return bool(_LATE.search(failure)) or failure.startswith(_TOO_LONG)

    def _has_longer(self, failure: str) -> bool:
        """Whether a trial was ended by a shorter limit than the present one."""
        if late := _LATE.search(failure):
            return self._task.build_minutes is None or self._task.build_minutes > float(late[1])
        if not failure.startswith(_TOO_LONG):
            return False
        return not self.minutes or self.minutes > float(failure.removeprefix(_TOO_LONG))

    def calibration(self, settings: Settings) -> Calibration | None:
        """The Calibration for INT8 settings, made once for each choice of segments and kept in the journal's folder; None for others."""
        task = self._task
        if not self._calibrates(settings):
            return task.table if settings.precision_mode == "INT8" else None
        path = self.calibration_path(settings)
        if path.is_file():
            return calibration_file.read(path)
        plain = dataclasses.replace(
            settings,
            shapes="",
            use_dynamic_shape=settings.dynamic,
            dynamic_shape_profile_strategy=None,
            high_precision_nodes="",
        )
        progress.say("calibrating")
        answer = self._ask(Request(calibrate=task.conversion(plain, data=task.data)))
        found = _present(answer.calibrated)
        made = found.calibration(settings.calibrator, task.named, task.facts.get("model", ""))
        made.write(path)
        return made

    def _calibrates(self, settings: Settings) -> bool:
        """Whether a conversion with these settings needs a table that is made of data."""
        return settings.precision_mode == "INT8" and self._task.table is None and self._task.data is not None

    def calibration_path(self, settings: Settings) -> pathlib.Path:
        """Where the Calibration of INT8 settings lies."""
        plain = settings.to_dict()
        segments = {name: plain[name] for name in _OF_SEGMENTS} | (
            {"freeze": settings.freeze} if settings.freeze else {}
        )
        key = journal_module.key(dynamic=settings.dynamic, **segments, **self._task.data_facts)
        return self._journal.folder / f"calibration-{key.removeprefix('sha256:')[:16]}.json"


def _present(value: Part | None) -> Part:
    """The part of an answer that was asked for."""
    assert value is not None
    return value


def _told(bug: child.ChildBug) -> str:
    """The line of a child.ChildBug with the error."""
    return "internal error: " + str(bug).strip().splitlines()[-1]


def _digest(table: Calibration | None) -> str:
    return "" if table is None else journal_module.key(engines=[one.to_dict() for one in table.engines])
