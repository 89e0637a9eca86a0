"""Builds a model for several kinds of GPU, each on a machine of a fleet that has one. No TensorFlow here, and no Ray until it begins.

An engine belongs to the kind of GPU that built it. So each kind is a task that needs no other: the model travels there, and comes back
with its engines, beside those of the other kinds: OUTPUT/T4, OUTPUT/L4. Each is put in its place whole as it comes. Where a kind fails,
what an earlier run left there goes to OUTPUT/.before, so that nobody takes it for a new one.
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
from tftrt_tools.base.process import jobs
from tftrt_tools.fleet import content, placing, running, session, stack
from tftrt_tools.fleet.place import SECONDS, Place
from tftrt_tools.fleet.task import Given, Outcome, Row, Status, Task, Where
from tftrt_tools.models.backends.protocol import Changes
from tftrt_tools.models.savedmodel import files, passport, staging

# `publish` takes no name with a dot for a kind.
BEFORE = ".before"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(records.Record):
    """What a machine is asked. backend: its name. shapes, max_workspace_size_bytes, options: of Changes."""

    backend: str
    shapes: str = ""
    max_workspace_size_bytes: int | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    build_minutes: float | None = None


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
    machine said of it. before: where the model of an earlier run is now that was in its place, "" for none."""

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

    written_too: typing.ClassVar[tuple[str, ...]] = ("complete",)

    @property
    def complete(self) -> bool:
        """Whether it is there with all its engines."""
        return bool(self.output and self.built and self.built.complete)


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
        return (
            *(f"{one.gpu_type}: {one.cause or one.status}" for one in self.kinds),
            *self.of_before(),
            self.summary(),
        )

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

    Args: output: directory for those of all kinds. gpu_types: by default those that the fleet has. changed, place_seconds: as running.run.

    Returns: FleetBuild; a kind that failed is a part of it. Raises: UsageError, TftrtError; Interrupted, which says what is written.
    """
    began = time.monotonic()
    if pathlib.Path(model).is_dir():
        files.check_links(model)
    for kind in gpu_types:
        _checked(output, kind, overwrite, model)
    packed = content.pack(model)
    kinds: dict[str, KindBuilt] = {}
    with _told(output, kinds), session.opened(place) as fleet:
        machines = fleet.nodes().values()
        types = tuple(dict.fromkeys(gpu_types)) or placing.gpu_types(machines)
        if not types:
            if not any(one.get("GPU") for one in machines):
                raise errors.TftrtError(
                    f"{place.text()} has no GPU", "give --on=ray://HEAD:10001 of a cluster that has one"
                )
            raise errors.TftrtError(
                f"{place.text()} has no GPU of a kind that Ray knows",
                "name them: --gpu_types=T4,L4, as `ray status` lists them",
            )
        targets = {kind: _checked(output, kind, overwrite, model) for kind in types}
        tasks = [Task(name=kind, job=build, request=asked.to_dict(), content=packed, gpu_type=kind) for kind in types]
        wanted = stack.here()
        with contextlib.closing(running.run(fleet, tasks, wanted, changed, place_seconds)) as outcomes:
            for outcome in outcomes:
                kind = outcome.task.name
                kinds[kind] = _placed(outcome, targets[kind], overwrite)
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


def asked(backend: str, changes: Changes, build_minutes: float | None) -> Asked:
    """What a machine is asked for these Changes."""
    return Asked(
        backend=backend,
        shapes=changes.shapes,
        max_workspace_size_bytes=changes.max_workspace_size_bytes,
        options=records.plain(dict(changes.options)),
        build_minutes=build_minutes,
    )


def _checked(output: str, kind: str, overwrite: bool, model: str) -> pathlib.Path:
    """Where the model of a kind goes. Raises: UsageError."""
    placing.check_type(kind)
    return staging.check_target(pathlib.Path(output, kind), overwrite, [model])


def _placed(outcome: Outcome, target: pathlib.Path, overwrite: bool) -> KindBuilt:
    """Put what came back in its place."""
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
            with staging.staged(target, overwrite) as stage:
                content.unpack(outcome.output, stage)
            return dataclasses.replace(facts, output=str(target))
        except OSError as refused:
            error = errors.from_os_error(refused)
        except errors.TftrtError as refused:
            error = refused
        facts = dataclasses.replace(facts, status="failed")
    before = _moved(target) if overwrite else ""
    if overwrite and not before and _is_model(target):
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


@contextlib.contextmanager
def _told(output: str, kinds: Mapping[str, KindBuilt]) -> typing.Iterator[None]:
    """On Ctrl-C, SIGTERM and where the fleet goes, say what is written."""
    try:
        yield
    except (KeyboardInterrupt, errors.TftrtError) as error:
        written = [one.output for one in kinds.values() if one.output]
        if not written:
            raise
        cause = error.cause if isinstance(error, errors.Ending) else "interrupted"
        kind = errors.Interrupted if isinstance(error, KeyboardInterrupt) else errors.TftrtError
        raise kind(cause, f"written: {', '.join(written)}; --gpu_types names the others for the next run") from error
