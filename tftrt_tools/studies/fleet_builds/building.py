"""Builds a model for several kinds of GPU, each on a machine of a fleet that has one. No TensorFlow here, and no Ray until it begins.

An engine belongs to the kind of GPU that built it. So each kind is a task that needs no other: the model travels there, and comes back
with its engines, beside those of the other kinds: OUTPUT/T4, OUTPUT/L4. Each is put in its place whole as it comes. What an earlier run
has built there of the same is taken over (`journal`). Where a kind is built in the place of another model and fails, that model goes to
OUTPUT/.before, so that nobody takes it for a new one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors, records, results
from tftrt_tools.base.files import documents
from tftrt_tools.base.process import jobs
from tftrt_tools.fleet import content, ending, placing, running, session, stack
from tftrt_tools.fleet.place import SECONDS, Place
from tftrt_tools.fleet.task import Given, Outcome, Row, Status, Task, Where
from tftrt_tools.models.backends.protocol import Changes
from tftrt_tools.models.savedmodel import files, passport, staging
from tftrt_tools.studies.fleet_builds import journal

BEFORE = ".before"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(records.Record):
    """What a machine is asked. backend: its name. shapes, max_workspace_size_bytes, options: of Changes. cache_max_bytes: the most that the
    engine cache of that machine may hold; None for no cache."""

    backend: str
    shapes: str = ""
    max_workspace_size_bytes: int | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    build_minutes: float | None = None
    cache_max_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built(records.Record):
    """What it answers. complete and text as of Made; made: the JSON of its result."""

    complete: bool
    text: tuple[str, ...]
    made: Mapping[str, Any]


@jobs.job
def build() -> Callable[[Given], Built]:
    """Build a model that has travelled."""
    from tftrt_tools.studies.fleet_builds import build_job

    return build_job.job


@dataclasses.dataclass(frozen=True, kw_only=True)
class KindBuilt(records.Record):
    """The build for one kind of GPU. output: its directory, "" where none was written. cause, mend: where it is not done. built: what the
    machine said of it. before: where the model of an earlier run is now that was in its place, "" for none. taken_over: whether an earlier
    run has built it; where, tries, seconds and built are of that run then."""

    gpu_type: str
    status: Status
    output: str = ""
    where: Where | None = None
    tries: int = 1
    seconds: float = records.field(digits=2, default=0.0)
    cause: str = ""
    mend: str = ""
    built: Built | None = None
    before: str = ""
    taken_over: bool = False

    written_too: typing.ClassVar[tuple[str, ...]] = ("complete",)

    @property
    def complete(self) -> bool:
        """Whether it is there with all its engines."""
        return bool(self.output and self.built and self.built.complete)

    @property
    def state(self) -> str:
        """What became of it, in a word or two."""
        return "taken over" if self.taken_over else self.status


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class FleetBuild(passport.Stamped, results.Result):
    """A model for several kinds of GPU. model, output: absolute paths. on: the fleet. content_digest: of what travelled. seconds: wall
    time. others: what else is in output, such as kinds of an earlier run that were not asked for."""

    model: str
    output: str
    on: str
    shapes: str
    content_digest: str
    kinds: tuple[KindBuilt, ...]
    seconds: float = records.field(digits=2, default=0.0)
    others: tuple[str, ...] = ()

    document: typing.ClassVar[str] = "fleet build"
    written_too: typing.ClassVar[tuple[str, ...]] = ("complete",)

    @property
    def complete(self) -> bool:
        """Whether every kind is there with all its engines."""
        return all(one.complete for one in self.kinds)

    def summary(self) -> str:
        """As Result.summary."""
        done = sum(one.complete for one in self.kinds)
        return f"{self.output}: built for {done} of {len(self.kinds)} kinds of GPU"

    def text(self) -> tuple[str, ...]:
        """Lines for people."""
        return (*(f"{one.gpu_type}: {one.cause or one.state}" for one in self.kinds), *self.of_before(), self.summary())

    def of_before(self) -> tuple[str, ...]:
        """A line for each model of an earlier run that was moved away, and one for what else is there."""
        moved = [f"{one.gpu_type}: the model of an earlier run is now {one.before}" for one in self.kinds if one.before]
        if self.others:
            moved.append(f"not of this run, and `tftrt publish {self.output}` takes them too: {', '.join(self.others)}")
        return tuple(moved)


def everywhere(
    model: str,
    output: str,
    asked: Asked,
    place: Place,
    gpu_types: Sequence[str] = (),
    overwrite: bool = False,
    changed: Callable[[Sequence[Row]], None] = lambda rows: None,
    place_seconds: float = SECONDS,
) -> FleetBuild:
    """Build a model that was made for each kind of GPU.

    Args: output: directory for those of all kinds; what an earlier run built of the same is taken over. gpu_types: by default those that
      the fleet has, and those that can be taken over. overwrite: build all, and replace what is there. changed, place_seconds: as
      running.run.

    Returns: FleetBuild; a kind that failed is a part of it. Raises: UsageError, TftrtError; Interrupted, which says what is written.
    """
    began = time.monotonic()
    if _is_model(pathlib.Path(output)):
        raise errors.UsageError(f"--output={output} is a model", "name a folder for the models of all kinds of GPU")
    if pathlib.Path(model).is_dir():
        files.check_links(model)
    named = {kind: _checked(output, kind, overwrite, model) for kind in gpu_types}
    packed, wanted = content.pack(model), stack.here()
    origin = journal.Origin(content=journal.identity(model), request=_compared(asked), stack=wanted)
    kinds: dict[str, KindBuilt] = {}
    goes_on = (
        "--gpu_types names the others for the next run"
        if overwrite
        else "the same command takes over those that are complete, and builds the others"
    )
    written = ending.written_told(lambda: [one.output for one in kinds.values() if one.output], goes_on)
    with written, contextlib.ExitStack() as held:
        fleet, targets = None, named
        if not named:
            fleet = held.enter_context(session.opened(place))
            targets = {kind: _checked(output, kind, overwrite, model) for kind in _types(fleet)}
        kept = held.enter_context(journal.held(output, overwrite))
        earlier = {} if overwrite else _earlier(kept, origin, output, targets, others=not named)
        kinds |= {kind: one for kind, one in earlier.items() if one.complete}
        types = (*targets, *(kind for kind in kinds if kind not in targets))
        tasks = [
            Task(name=kind, job=build, request=asked.to_dict(), content=packed, gpu_type=kind)
            for kind in targets
            if kind not in kinds
        ]
        if tasks:
            fleet = fleet or held.enter_context(session.opened(place))
            outcomes = running.run(fleet, tasks, wanted, changed, place_seconds, folder=os.path.abspath(output))
            with contextlib.closing(outcomes):
                for outcome in outcomes:
                    kind = outcome.task.name
                    kinds[kind] = _placed(outcome, targets[kind], overwrite or kind in earlier, kept, origin)
    return FleetBuild(
        model=str(pathlib.Path(model).absolute()),
        output=str(pathlib.Path(output).absolute()),
        on=place.address or place.kind,
        shapes=asked.shapes,
        content_digest=packed.digest,
        kinds=tuple(kinds[kind] for kind in types),
        seconds=time.monotonic() - began,
        others=_others(output, types),
    )


def asked(backend: str, changes: Changes, build_minutes: float | None, cache_max_bytes: int | None) -> Asked:
    """What a machine is asked for these Changes."""
    return Asked(
        backend=backend,
        shapes=changes.shapes,
        max_workspace_size_bytes=changes.max_workspace_size_bytes,
        options=records.plain(dict(changes.options)),
        build_minutes=build_minutes,
        cache_max_bytes=cache_max_bytes,
    )


def _types(fleet: session.Fleet) -> tuple[str, ...]:
    """The kinds of GPU that the fleet has. Raises: TftrtError where it has none."""
    machines, where = fleet.nodes().values(), fleet.place.text()
    if types := placing.gpu_types(machines):
        return types
    if not any(one.get("GPU") for one in machines):
        raise errors.TftrtError(f"{where} has no GPU", "give --on=ray://HEAD:10001 of a cluster that has one")
    raise errors.TftrtError(
        f"{where} has no GPU of a kind that Ray knows", "name them: --gpu_types=T4,L4, as `ray status` lists them"
    )


def _checked(output: str, kind: str, overwrite: bool, model: str) -> pathlib.Path:
    """Where the model of a kind goes. A model that is there is looked at later. Raises: UsageError."""
    placing.check_type(kind)
    target = pathlib.Path(output, kind)
    return staging.check_target(target, overwrite or _is_model(target), [model])


def _compared(asked: Asked) -> dict[str, Any]:
    """What decides a complete model, of what a machine is asked. A bound of time decides only whether it is complete, a cache how long it
    takes."""
    return {name: value for name, value in asked.to_dict().items() if name not in ("build_minutes", "cache_max_bytes")}


def _earlier(
    kept: journal.Journal, origin: journal.Origin, output: str, targets: Mapping[str, pathlib.Path], others: bool
) -> dict[str, KindBuilt]:
    """What an earlier run has built of the same, complete or not.

    Args: targets: {kind that is asked for: its place}. others: whether other kinds in the directory count, too. Raises: UsageError for
      another model in the place of a kind that is asked for; TftrtError, OSError.
    """
    there = {one.name: one for one in pathlib.Path(output).absolute().iterdir() if others and one.name in kept.kinds()}
    found = {}
    for kind, target in {**targets, **{kind: path for kind, path in there.items() if kind not in targets}}.items():
        if not _is_model(target):
            continue
        if why := kept.refused(kind, target, origin):
            if kind in targets:
                raise errors.UsageError(
                    f"the output directory exists: {target}; it is not taken over: {why}",
                    "add --overwrite to build all kinds anew, or choose another",
                )
            continue
        with documents.reading(kept.path, journal.MEND):
            one = KindBuilt.from_dict(kept.built(kind))
        found[kind] = dataclasses.replace(one, gpu_type=kind, output=str(target), before="", taken_over=True)
    return found


def _placed(
    outcome: Outcome, target: pathlib.Path, replace: bool, kept: journal.Journal, origin: journal.Origin
) -> KindBuilt:
    """Put what came back in its place. Args: replace: whether a model that is there may be replaced."""
    facts = KindBuilt(
        gpu_type=outcome.task.gpu_type,
        status=outcome.status,
        where=outcome.where,
        tries=outcome.tries,
        seconds=outcome.seconds,
        built=outcome.answer,
    )
    error = outcome.error
    if error is None:
        assert outcome.output is not None
        try:
            with staging.staged(target, replace) as stage:
                content.unpack(outcome.output, stage)
                done = dataclasses.replace(facts, output=str(target))
                kept.put(outcome.task.name, origin, stage, done.to_dict())
            return done
        except OSError as refused:
            error = errors.from_os_error(refused)
        except errors.TftrtError as refused:
            error = refused
        facts = dataclasses.replace(facts, status="failed")
    before = _moved(target) if replace else ""
    if replace and not before and _is_model(target):
        error = errors.TftrtError(f"{error.cause}; the model of an earlier run is still there: {target}", error.mend)
    return dataclasses.replace(facts, cause=error.cause, mend=error.mend, before=before)


def _moved(target: pathlib.Path) -> str:
    """Move the model of an earlier run away from the place of a kind that failed. It takes the place of the one that was moved before.
    Returns: where it is, "" where there is none or the system refuses."""
    if not _is_model(target):
        return ""
    place = target.parent / BEFORE / target.name
    try:
        place.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(place)
        os.rename(target, place)
    except OSError:
        return ""
    return str(place)


def _is_model(target: pathlib.Path) -> bool:
    return files.is_saved_model(target) or files.is_plan(target)


def _others(output: str, kinds: Sequence[str]) -> tuple[str, ...]:
    """What is in the directory beside these kinds."""
    folder = pathlib.Path(output)
    there = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    return tuple(sorted(one for one in there if not one.startswith(".") and one not in kinds))
