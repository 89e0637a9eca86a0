"""Runs the steps in their order: each with the time that is left, each kept, so that the same command goes on where it was interrupted."""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.choices import StepState
from tftrt_tools.base.files import documents
from tftrt_tools.base.process import signals
from tftrt_tools.base.version import __version__
from tftrt_tools.studies.optimizing import known as knowledge
from tftrt_tools.studies.optimizing import steps as order
from tftrt_tools.studies.optimizing import story as stories
from tftrt_tools.studies.optimizing.asked import Asked
from tftrt_tools.studies.optimizing.journal import Journal
from tftrt_tools.studies.optimizing.known import Known
from tftrt_tools.studies.optimizing.step import Command, LeftOut, Step, StepResult
from tftrt_tools.studies.optimizing.story import Story

# No step begins with less.
_LEAST_SECONDS = 5.0
# How much more time is worth doing a step again that was cut short.
_MORE = 1.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doing:
    """What a run needs from the command."""

    # Runs a command from its words, and returns its exit code. Raises: TftrtError.
    call: Callable[[Sequence[str]], int]
    # Shows a line to the user.
    say: Callable[[str], None]
    # Whether a model that is at the output, and that no step made, may be replaced.
    overwrite: bool = False
    # Looks at the labels, once it is known which rows are scored and before what takes long. Raises: UsageError.
    check: Callable[[Known], None] = lambda known: None
    # Minutes of the run.
    max_minutes: float
    # The command itself, to be repeated, as words without `tftrt`.
    command: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Done:
    """A run that came to an end. story: Story; known: the results of its steps, for plots."""

    story: Story
    known: Known


def run(asked: Asked, doing: Doing, entries: Sequence[Step] = order.ORDER) -> Done:
    """Run the steps. Returns: Done. Raises: UsageError of a step that can never work; TftrtError; Interrupted, which says how to go on."""
    return _Run(asked, doing, Journal(asked.work_dir)).whole(entries)


class _Run:
    def __init__(self, asked: Asked, doing: Doing, journal: Journal) -> None:
        self._doing, self._journal, self._known = doing, journal, Known(asked)
        self._begun = time.monotonic()
        self._for_gpu: list[str] = []

    def whole(self, entries: Sequence[Step]) -> Done:
        for step in entries:
            try:
                ended = self._step(step)
                if step.name == knowledge.DATA and not ended:
                    self._doing.check(self._known)
            except KeyboardInterrupt as error:
                raise self._interrupted(step, error) from None
            if ended is not None:
                return Done(self._story(ended.cause or f"{ended.name} failed", ended.mend), self._known)
        return Done(self._story(), self._known)

    def _step(self, step: Step) -> StepResult | None:
        """Do a step. Returns: its result where the run ends with it, else None. Raises: UsageError."""
        commands = step.commands(self._known)
        if isinstance(commands, LeftOut):
            self._add(step, _without(step, "left out", commands.reason))
            return None
        if step.of_gpu and not self._known.gpu:
            self._for_gpu.append(step.name)
        if step.needs_gpu and not self._known.gpu:
            self._add(step, _without(step, "for a GPU", "it needs a GPU"))
            return None
        for command in commands:
            result = self._command(step, command, len(commands))
            if step.needed and result.state != "done":
                return result
        return None

    @property
    def _left(self) -> float:
        """Seconds."""
        return 60 * self._doing.max_minutes - (time.monotonic() - self._begun)

    def _command(self, step: Step, command: Command, count: int) -> StepResult:
        key = self._journal.key(command, self._facts(step))
        minutes = self._left * step.share / 60 / count
        kept = None if step.always else self._journal.get(command, key)
        if (
            kept
            and kept[0].exit_code != errors.EXIT_UNSURE
            and not (step.cut(kept[1]) and minutes > _MORE * kept[0].minutes)
        ):
            result = dataclasses.replace(kept[0], before=True)
            self._doing.say(f"$ tftrt {shlex.join(result.words)}\n  done before, in {result.seconds:.1f} s")
            return self._add(step, result, kept[1])
        if self._left < _LEAST_SECONDS:
            spent = f"the {self._doing.max_minutes:g} minutes were used up before {step.name}"
            return self._add(step, dataclasses.replace(_without(step, "out of time", spent), mend="more --max_minutes"))
        result, document = self._ran(step, command, minutes)
        result = self._add(step, result, document)
        if result.state == "done" and not step.always:
            self._journal.put(command, key, result)
        return result

    def _ran(self, step: Step, command: Command, minutes: float) -> tuple[StepResult, dict[str, Any] | None]:
        path = self._journal.document(command.name)
        words = [*self._words(command), *step.limits(self._known, minutes), f"--json={path}"]
        self._doing.say(f"$ tftrt {shlex.join(words)}")
        pathlib.Path(path).unlink(missing_ok=True)
        self._journal.changed(command.outputs)
        error: errors.TftrtError | None = None
        start, code = time.monotonic(), errors.EXIT_DONE
        with signals.limit(60 * minutes) as limit:
            try:
                with errors.translated():
                    code = self._doing.call(words)
            except KeyboardInterrupt as interrupted:
                if not limit.over:
                    raise
                error = errors.TftrtError(f"its {minutes:.1f} minutes were over", "more --max_minutes")
                error.__cause__ = interrupted
            except errors.TftrtError as failed:
                if step.strict and isinstance(failed, errors.UsageError):
                    raise
                error, code = failed, failed.exit_code
        document = _document(path)
        state: StepState = (
            "out of time"
            if limit.over and error
            else "done"
            if document is not None and code != errors.EXIT_FAILED
            else "failed"
        )
        result = StepResult(
            step=step.name,
            name=command.name,
            question=step.question,
            state=state,
            words=tuple(words),
            exit_code=code,
            seconds=time.monotonic() - start,
            minutes=minutes,
            file=path if document is not None else "",
            cause=error.cause if error else "",
            mend=error.mend if error else "",
        )
        if state != "done":
            self._doing.say(f"  {state}: {result.cause or f'exit code {code}'}")
        return result, document

    def _words(self, command: Command) -> list[str]:
        """The words of a command; without --overwrite where what is at the output is not the run's own to replace."""
        output = self._known.asked.output
        if output not in command.outputs or self._doing.overwrite or self._journal.made(output):
            return list(command.words)
        return [word for word in command.words if word != "--overwrite"]

    def _add(self, step: Step, result: StepResult, document: Mapping[str, Any] | None = None) -> StepResult:
        """Make a result known; what it gave is told from its document. Returns: the StepResult."""
        known = self._known
        documents = {**known.documents, result.name: document} if document is not None else known.documents
        known = Known(known.asked, (*known.results, result), documents)
        if document is not None and result.state == "done":
            result = dataclasses.replace(result, gave=step.gave(known, document))
            known = Known(known.asked, (*known.results[:-1], result), documents)
        self._known = known
        return result

    def _facts(self, step: Step) -> dict[str, Any]:
        """What a result depends on beside the words and the files."""
        if step.always:
            return {}
        machine = self._known.machine
        versions = [__version__, machine.tensorflow, machine.tensorrt_linked, machine.tensorrt_loaded]
        gpu = [machine.driver, self._known.gpu_name] if step.of_gpu and self._known.gpu else []
        return {"versions": versions, "gpu": gpu}

    def _story(self, ended: str = "", mend: str = "") -> Story:
        known, asked = self._known, self._known.asked
        said, verdict = stories.outcome(known)
        made = (
            {"model": asked.output}
            if known.done(knowledge.BUILD if known.documents and known.repeated else knowledge.CONVERT)
            else {}
        )
        return Story(
            asked=asked,
            outcome=said,
            verdict=verdict,
            gpu=known.gpu_name if known.documents else "",
            steps=known.results,
            mends=known.mend_words if known.done(knowledge.INSPECT) else (),
            command=self._doing.command,
            remarks=tuple(stories.remarks(known)) if known.done(knowledge.INSPECT) else (),
            made=made,
            left=tuple(self._for_gpu),
            seconds=time.monotonic() - self._begun,
            max_minutes=self._doing.max_minutes,
            ended=ended,
            mend=mend,
        )

    def _interrupted(self, step: Step, error: BaseException) -> errors.Interrupted:
        cause = error.cause if isinstance(error, errors.Interrupted) else "interrupted"
        return errors.Interrupted(
            f"{cause} in step {step.name}",
            f"the steps that are done are kept in {self._journal.folder}; the same "
            f"command goes on from there: tftrt {shlex.join(self._doing.command)}",
        )


def _without(step: Step, state: StepState, cause: str) -> StepResult:
    """Of a step without a command."""
    return StepResult(step=step.name, name=step.name, question=step.question, state=state, cause=cause)


def _document(path: str) -> dict[str, Any] | None:
    try:
        return documents.read(path)
    except (OSError, ValueError):
        return None
