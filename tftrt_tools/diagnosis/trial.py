"""Applies the mends of a diagnosis, one at a time, and times what each gives."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence

from tftrt_tools import errors, scratch
from tftrt_tools.diagnosis import in_turns
from tftrt_tools.diagnosis.finding import Diagnosis, Finding, Trial
from tftrt_tools.inputs import calls as inputs
from tftrt_tools.savedmodel import shapes as shape_grammar

_FORMS, _OUTPUT = "--forms=", "--output_saved_model_dir="
# Commands that make a model. The others only tell.
_MAKES = ("build", "convert", "wrap")
# Runs a command as a user would type it, without "tftrt". Returns: its exit code.
Run = Callable[[Sequence[str]], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How to try."""

    # Of the command line.
    run: Run
    # {Finding.call: (its signature, its shapes)}.
    shapes: Mapping[str, tuple[str, shape_grammar.Call]]
    # For the mended models; None to throw them away.
    folder: str | os.PathLike[str] | None = None
    # Of drawn inputs, as in inputs.calls.Asked.
    ranges: str = ""
    seed: int = 0


def tried(diagnosis: Diagnosis, options: Options) -> Diagnosis:
    """The diagnosis with a Trial for each finding whose mend makes a model. A command that several findings propose runs once."""
    with scratch.folder("mends") as temporary:
        folder = pathlib.Path(options.folder or temporary)
        made: dict[tuple[str, ...], str] = {}
        findings = [dataclasses.replace(one, trial=_trial(one, diagnosis, options, folder, made)) if one.command[:1] and
                    one.command[0] in _MAKES else one for one in diagnosis.findings]
    return dataclasses.replace(diagnosis, findings=tuple(findings))


def _trial(finding: Finding, diagnosis: Diagnosis, options: Options, folder: pathlib.Path, made: dict[tuple[str, ...], str]) -> Trial:
    target = str(folder / f"{len(made) + 1}-{finding.cause}")
    command = tuple(_OUTPUT + target if word.startswith(_OUTPUT) else word for word in finding.command)
    key = finding.command
    try:
        if key not in made:
            code = options.run(command)
            if code not in (errors.EXIT_DONE, errors.EXIT_CHECK) or not os.path.isdir(target):
                return Trial(command=command, problem=f"the command ended with {code}")
            made[key] = target
        return _timed(made[key], finding, diagnosis, options, command)
    except errors.TftrtError as error:
        return Trial(command=command, problem=str(error))
    finally:
        if options.folder is None and made.get(key) != target:
            shutil.rmtree(target, ignore_errors=True)


def _timed(mended: str, finding: Finding, diagnosis: Diagnosis, options: Options, command: tuple[str, ...]) -> Trial:
    """Both models in turns, at the finding's call."""
    signature, shapes = options.shapes[finding.call]
    added = next((word.removeprefix(_FORMS) for word in finding.command if word.startswith(_FORMS)), "")

    def asked(name: str) -> inputs.Asked:
        flag = shape_grammar.flag_text(name, [shapes])
        return inputs.Asked(shapes=flag, ranges=options.ranges, seed=options.seed)

    pair = in_turns.timed([in_turns.Asked(diagnosis.model, signature, asked(signature)),
                           in_turns.Asked(mended, added or signature, asked(added or signature))])
    return Trial(command=command, before=pair.before, after=pair.after, low=pair.low, high=pair.high)
