"""Applies the mends of a diagnosis, one at a time, times what each gives, and compares the answers."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.studies.diagnosis import in_turns
from tftrt_tools.studies.diagnosis.finding import Cause, Diagnosis, Finding, Trial

_FORMS, _OUTPUT = "--forms=", "--output="
# Commands that make a model. The others only tell.
_MAKES = ("build", "convert", "wrap")
# Causes whose mend may be such a command.
CAUSES: tuple[Cause, ...] = ("fallback", "inputs", "many-engines", "precision", "range")
# Runs a command as a user would type it, without "tftrt". Returns: its exit code.
Run = Callable[[Sequence[str]], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How to try."""

    # Of the command line.
    run: Run
    # {Finding.call: (its signature, its shapes)}.
    shapes: Mapping[str, tuple[str, shape_grammar.Call]]
    # Only the mends of these causes; () for all.
    causes: Sequence[str] = ()
    # For the mended models; None to throw them away.
    folder: str | os.PathLike[str] | None = None
    # Of drawn inputs, as in inputs.calls.Asked.
    ranges: str = ""
    seed: int = 0


def tried(diagnosis: Diagnosis, options: Options) -> Diagnosis:
    """The diagnosis with a Trial for each finding whose mend makes a model. A command that several findings propose runs once."""
    with scratch.folder("mends") as temporary:
        mends = _Mends(diagnosis, options, pathlib.Path(options.folder or temporary))
        findings = [
            dataclasses.replace(finding, trial=mends.trial(finding)) if _wanted(finding, options) else finding
            for finding in diagnosis.findings
        ]
    return dataclasses.replace(diagnosis, findings=tuple(findings))


def _wanted(finding: Finding, options: Options) -> bool:
    return (
        bool(finding.command)
        and finding.command[0] in _MAKES
        and (not options.causes or finding.cause in options.causes)
    )


class _Mends:
    """Mended models. Args: folder: for them."""

    def __init__(self, diagnosis: Diagnosis, options: Options, folder: pathlib.Path) -> None:
        self._diagnosis, self._options, self._folder = diagnosis, options, folder
        # {command as it was proposed: (as it ran, the model that it made, why there is none or "")}.
        self._made: dict[tuple[str, ...], tuple[tuple[str, ...], str, str]] = {}

    def trial(self, finding: Finding) -> Trial:
        """What the mend of a finding gives."""
        if finding.command not in self._made:
            self._made[finding.command] = self._run(finding)
        command, target, problem = self._made[finding.command]
        if problem:
            return Trial(command=command, problem=problem)
        try:
            pair = self._timed(finding, target)
        except errors.TftrtError as error:
            return Trial(command=command, problem=str(error))
        return Trial(
            command=command,
            before=pair.before,
            after=pair.after,
            saved=pair.saved,
            low=pair.low,
            high=pair.high,
            alike=pair.alike,
            answers=pair.answers,
        )

    def _run(self, finding: Finding) -> tuple[tuple[str, ...], str, str]:
        target = str(self._folder / f"{len(self._made) + 1}-{finding.cause}")
        command = tuple(_OUTPUT + target if word.startswith(_OUTPUT) else word for word in finding.command)
        try:
            code = self._options.run(command)
        except errors.TftrtError as error:
            return command, target, str(error)
        converted = code in (errors.EXIT_DONE, errors.EXIT_CHECK) and os.path.isdir(target)
        return command, target, "" if converted else f"the command ended with {code}"

    def _timed(self, finding: Finding, mended: str) -> in_turns.Pair:
        """Both models in turns, at the finding's call."""
        signature, shapes = self._options.shapes[finding.call]
        added = next((word.removeprefix(_FORMS) for word in finding.command if word.startswith(_FORMS)), signature)
        return in_turns.timed(self._asked(self._diagnosis.model, signature, shapes), self._asked(mended, added, shapes))

    def _asked(self, model: str, signature: str, shapes: shape_grammar.Call) -> in_turns.Asked:
        flag = shape_grammar.flag_text(signature, [shapes])
        return in_turns.Asked(
            model, signature, inputs.Asked(shapes=flag, ranges=self._options.ranges, seed=self._options.seed)
        )
