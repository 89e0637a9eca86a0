"""Runs a command on machines of a cluster, one for each kind of GPU, and puts what it wrote in its place: each file or folder whole, and
only after the command has ended. No TensorFlow here, and no Ray until it begins."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import scratch, whole_file
from tftrt_tools.base.process import jobs
from tftrt_tools.fleet import content, ending, running, session, stack
from tftrt_tools.fleet.place import SECONDS, Place
from tftrt_tools.fleet.task import Given, Outcome, Row, Status, Task, Where
from tftrt_tools.models.savedmodel import staging
from tftrt_tools.studies.elsewhere import bundle, request
from tftrt_tools.studies.elsewhere.request import Request, Response

# Of several commands the first of these counts: what repeating does not mend comes before what it may mend.
_WORST = (errors.EXIT_USAGE, errors.EXIT_CHECK, errors.EXIT_FAILED, errors.EXIT_UNSURE, errors.EXIT_DONE)


@jobs.job
def run_there() -> Callable[[Given], Response]:
    """Run a command among what has travelled."""
    from tftrt_tools.studies.elsewhere import request_job

    return request_job.job


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteRun(records.Record):
    """One run of the command. gpu_type: "" where any would do. exit_code: of the command, 1 where it came to no end; cause, mend: why.

    placed: absolute paths of what was written here; lost: a line for each that could not be; missing: what the flags name and the command
    has not written, though its exit code is 0. left, foreign: as Response. stdout, stderr: what it printed.
    """

    gpu_type: str
    status: Status
    exit_code: int
    where: Where | None = None
    tries: int = 1
    seconds: float = records.field(digits=2, default=0.0)
    cause: str = ""
    mend: str = ""
    placed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    stdout: str = ""
    stderr: str = ""

    @property
    def code(self) -> int:
        """The exit code, with regard to what could not be written here."""
        return self.exit_code or (errors.EXIT_FAILED if self.lost else errors.EXIT_DONE)

    def notes(self) -> tuple[str, ...]:
        """Lines about the run, which the command itself cannot know."""
        on = f"on {self.where.text()}" if self.where else "nowhere"
        again = f", in try {self.tries}" if self.tries > 1 else ""
        noted = [f"ran {on} for {self.seconds:.0f} s{again}: exit code {self.exit_code}"]
        if self.missing:
            noted.append(f"not written: {', '.join(self.missing)}")
        if self.left:
            noted.append(f"no flag names {', '.join(self.left)}: left on that machine")
        noted += [f"{path} names paths of that machine" for path in self.foreign]
        return tuple(noted)


def worst(codes: Sequence[int]) -> int:
    """The exit code of several runs: 2, 3, 1, 4, 0, the first one that there is."""
    return min(codes, key=lambda one: _WORST.index(one) if one in _WORST else _WORST.index(errors.EXIT_FAILED))


def run(
    requests: Mapping[str, Request],
    reads: Sequence[str],
    overwrite: bool,
    place: Place,
    changed: Callable[[Sequence[Row]], None] = lambda rows: None,
    ended: Callable[[RemoteRun], None] = lambda remote_run: None,
    place_seconds: float = SECONDS,
) -> tuple[RemoteRun, ...]:
    """Run requests side by side.

    Args: requests: {kind of GPU, "" for any: Request}; they write at different places. reads: absolute paths of all that they read.
      overwrite: whether models at their folders may be replaced. changed, place_seconds: as running.run. ended: is told each RemoteRun
      when its files are in their places.

    Returns: a RemoteRun for each, in the order of the requests. Raises: UsageError, TftrtError; Interrupted, which says what is written.
    """
    folders = {str(pathlib.Path(path).parent) for one in requests.values() for path in one.written()}
    folders |= {one.current for one in requests.values()}
    models = {model: bundle.state(model) for one in requests.values() for model in one.models}
    remote_runs: dict[str, RemoteRun] = {}
    # What is packed is read again when it is sent.
    written = ending.written_told(lambda: [path for one in remote_runs.values() for path in one.placed])
    with bundle.bundled(reads, folders) as root, written:
        packed = content.pack(root)
        tasks = [
            Task(name=kind or one.words[0], job=run_there, request=one.to_dict(), content=packed, gpu_type=kind)
            for kind, one in requests.items()
        ]
        with session.opened(place) as fleet:
            wanted = stack.here()
            with contextlib.closing(running.run(fleet, tasks, wanted, changed, place_seconds)) as outcomes:
                for outcome in outcomes:
                    kind = outcome.task.gpu_type
                    remote_runs[kind] = _remote_run(outcome, requests[kind], overwrite, models)
                    ended(remote_runs[kind])
    return tuple(remote_runs[kind] for kind in requests)


def _remote_run(outcome: Outcome, asked: Request, overwrite: bool, models: Mapping[str, bundle.State]) -> RemoteRun:
    facts = RemoteRun(
        gpu_type=outcome.task.gpu_type,
        status=outcome.status,
        exit_code=errors.EXIT_FAILED,
        where=outcome.where,
        tries=outcome.tries,
        seconds=outcome.seconds,
    )
    if outcome.error is not None:
        return dataclasses.replace(facts, cause=outcome.error.cause, mend=outcome.error.mend)
    assert outcome.output is not None
    ran: Response = outcome.answer
    facts = dataclasses.replace(facts, exit_code=ran.exit_code, left=ran.left, foreign=ran.foreign)
    try:
        with scratch.folder("back") as folder:
            came = content.unpack(outcome.output, pathlib.Path(folder, "came"))
            placed, lost = _placed(came / request.FILES, ran, asked, overwrite, models)
            out, err = ((came / name).read_text(errors="backslashreplace") for name in (request.STDOUT, request.STDERR))
    except OSError as error:
        refused = errors.from_os_error(error)
        return dataclasses.replace(facts, status="failed", cause=refused.cause, mend=refused.mend)
    # A folder is there if a file of it is.
    made = {*ran.made, *(str(folder) for path in ran.made for folder in pathlib.PurePosixPath(path).parents)}
    missing = () if ran.exit_code else tuple(one for one in asked.written() if not asked.came(one, made))
    return dataclasses.replace(facts, placed=tuple(placed), lost=tuple(lost), missing=missing, stdout=out, stderr=err)


def _placed(
    came: pathlib.Path, ran: Response, asked: Request, overwrite: bool, models: Mapping[str, bundle.State]
) -> tuple[list[str], list[str]]:
    """Put files and folders in their places. Returns: (their paths, a line for each that has none)."""
    placed: list[str] = []
    lost: list[str] = []
    # Before anything is written: a file of this run may lie in the model, too.
    changed = [model for model in asked.models if bundle.state(model) != models[model]]
    for folder in asked.folders:
        if request.below(came, folder).is_dir():
            _tried(folder, functools.partial(_put_folder, came, folder, overwrite), placed, lost)
    # What travelled is looked at again: a machine of the cluster may have another version, or no good intent.
    for path in ran.made:
        if not asked.may_write(path) or any(path.startswith(f"{folder}/") for folder in asked.folders):
            continue
        _tried(path, functools.partial(_put_file, came, path, asked.model_of(path), changed), placed, lost)
    return placed, lost


def _tried(path: str, put: Callable[[], None], placed: list[str], lost: list[str]) -> None:
    try:
        put()
        placed.append(path)
    except OSError as error:
        lost.append(errors.from_os_error(error).cause)
    except errors.TftrtError as error:
        lost.append(error.cause)


def _put_folder(came: pathlib.Path, folder: str, overwrite: bool) -> None:
    with staging.staged(os.path.realpath(folder), overwrite) as stage:
        for one in request.below(came, folder).iterdir():
            shutil.move(one, stage / one.name)


def _put_file(came: pathlib.Path, path: str, model: str | None, changed: Sequence[str]) -> None:
    """Args: model: in whose passport it goes; changed: models that are not those that were sent."""
    if model in changed:
        raise errors.TftrtError(f"{model} has changed meanwhile, so {os.path.basename(path)} was not kept with it")
    if model is not None:
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(request.below(came, path), "rb") as file, whole_file.replacing(path) as target:
        shutil.copyfileobj(file, target, 1 << 20)
