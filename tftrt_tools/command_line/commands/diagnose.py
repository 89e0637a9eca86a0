"""usage: tftrt diagnose ORIGINAL CONVERTED [--flags]

Why is the converted model (a SavedModel or a plan directory) not faster? Lists what costs time in a call, the most expensive first. Each
finding has its evidence, the most that its fix can gain, and the command that fixes it. Costs that come from the way the model is called
are the same for the original, and come last.

It profiles both models (or only a plan) on this machine's GPU, at --shapes or at the shapes that engines were built for. Without a GPU it
reads the profile that is kept with CONVERTED, or with --profile=FILE one that `tftrt profile --json` wrote, and says what it cannot know.

--address=HOST:PORT with --model_name and --rest also looks at a server that serves CONVERTED, with `tftrt bench --breakdown`: what do its
clients pay beside the model's own work?

--try applies the fixes that are flags of this toolkit, one at a time. It times each fixed model and CONVERTED in turns and compares their
answers, so the real gain stands beside the estimate. This builds engines and takes minutes; --try_causes chooses the fixes.

examples:
  tftrt diagnose resnet resnet_fp16
  tftrt diagnose resnet resnet_fp16 --shapes='image:1x224x224x3,4x224x224x3,32x224x224x3' --try
  tftrt diagnose resnet resnet_fp16 --profile=profile_of_the_server.json
  tftrt diagnose resnet resnet_fp16 --address=localhost:8500 --rest=localhost:8501 --model_name=resnet
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.files import documents, scratch
from tftrt_tools.base.process import progress
from tftrt_tools.base.stack import fingerprint
from tftrt_tools.command_line.commands import _flags, _next, _output, _source_flags

if TYPE_CHECKING:
    from rich.console import Console

    from tftrt_tools.studies.diagnosis.finding import Diagnosis, Finding, Looked
    from tftrt_tools.studies.profiling.profile import Profile, Side

_SHARE, _SERVED_SECONDS = 5.0, 3

# Addresses may have a scheme.
URLS = ("address", "rest")
# Flags of a profile that is measured. --shapes are those of requests to a server, too.
_MEASURING = ("signature_keys", "ranges", "seed", "log_file")


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "shapes", "", "shapes to look at, as in `tftrt convert`; by default those that engines were built for", **text
    )
    flags.DEFINE_list(
        "signature_keys", [], "signatures to look at; by default all, or those that --shapes names", **text
    )
    flags.DEFINE_string("ranges", "", "ranges of random inputs, INPUT:LOW:HIGH;…", **text)
    flags.DEFINE_integer("seed", 0, "seed of random inputs", lower_bound=0, **text)
    flags.DEFINE_string("profile", "", "read this profile, of `tftrt profile --json=FILE`, and measure nothing", **text)
    flags.DEFINE_boolean("stored", False, "read the profile that is kept with CONVERTED, and measure nothing", **text)
    flags.DEFINE_string("address", "", "HOST:PORT of a server that serves CONVERTED: look at its requests, too", **text)
    flags.DEFINE_string("rest", "", "with --address: HOST:PORT of its REST port, where its counters are read", **text)
    flags.DEFINE_string("model_name", "", "with --address: the model's name there", **text)
    flags.DEFINE_boolean("try", False, "apply each fix that is a flag, and time what it gives (GPU)", **text)
    flags.DEFINE_list(
        "try_causes",
        [],
        "--try the fixes of these causes alone: fallback, inputs, many-engines, precision, range",
        **text,
    )
    flags.DEFINE_string("work_dir", None, "keep the fixed models of --try in this folder", **text)
    flags.DEFINE_float(
        "least_percent",
        _SHARE,
        "leave out findings that cost less than this percentage of their call",
        lower_bound=0,
        upper_bound=100,
        **text,
    )
    flags.DEFINE_string("log_file", None, "keep what TensorFlow logs in this file", **text)
    _source_flags.define(values)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Diagnose. Returns: the exit code."""
    original, converted = _flags.arguments("diagnose", positional, ["ORIGINAL", "CONVERTED"])
    if values["try"].value and (values.profile or values.stored):
        raise errors.UsageError("--try measures, and --profile and --stored measure nothing", "leave one of them out")
    if values.work_dir and not values["try"].value:
        raise errors.UsageError("--work_dir keeps the models of --try", "give --try, too")
    _check_causes(values)
    if values.address and not (values.rest and values.model_name):
        raise errors.UsageError(
            "--address needs --rest and --model_name", "give its REST port, for the counters, and the model's name"
        )
    if not values.address and (values.rest or values.model_name):
        raise errors.UsageError(
            "--rest and --model_name are about the server of --address", "give --address=HOST:PORT, too"
        )
    from tftrt_tools.servers.client import protocols
    from tftrt_tools.studies.diagnosis import diagnose, finding

    if values.address and protocols.of(values.address) is protocols.TRITON:
        raise errors.UsageError(
            f"--address={values.address} is a Triton, which has not the counters that are read here",
            f"`tftrt bench {values.address}` shows what it counts: its queue, and the model",
        )
    _check_models(values, original, converted)
    profile = _profile(values, original, converted)
    done = diagnose.diagnose(profile, converted, original, values.least_percent / 100)
    if values["try"].value:
        done = _tried(values, profile, done)
    if values.address:
        done = dataclasses.replace(done, findings=finding.ranked([*done.findings, *_served(values, converted)]))
    _print(_output.console(values.json), done)
    _output.write_json(done, values.json)
    return errors.EXIT_DONE


def _check_models(values: flags.FlagValues, original: str, converted: str) -> None:
    """Refuse, before any work, what is no conversion and its original. Of a plan alone the original may be of any framework."""
    from tftrt_tools.models.kinds import opening, table
    from tftrt_tools.studies import backends

    sources = [opening.check_readable(source) for source in _source_flags.read_each(values, original, converted)]
    first, second = (table.kind(source.path) for source in sources)
    if first.alone:
        opening.check_converted(sources[0])
    if second.alone:
        return
    for source, kind in zip(sources, (first, second), strict=True):
        if kind.unconverted:
            raise errors.UsageError(
                f"diagnose explains a converted SavedModel, or a plan directory, and {source} is {backends.described(source.path)}",
                "give a TensorFlow model and its conversion, or as CONVERTED a plan directory; `tftrt bench ORIGINAL CONVERTED` says how "
                "fast models of any kind are",
            )
    if backends.of_made(original) and not backends.of_made(converted):
        raise errors.UsageError(
            f"{original} was converted, and {converted} was not", "give the original first, then the converted model"
        )


def _check_causes(values: flags.FlagValues) -> None:
    if not values.try_causes:
        return
    from tftrt_tools.studies.diagnosis import trial

    if not values["try"].value:
        raise errors.UsageError("--try_causes chooses what --try applies", "give --try, too")
    for name in values.try_causes:
        if name not in trial.CAUSES:
            raise errors.UsageError(
                f"--try_causes={name}: no flag of this toolkit fixes that",
                "these have such fixes: " + ", ".join(trial.CAUSES),
            )


def _profile(values: flags.FlagValues, original: str, converted: str) -> Profile:
    """Measured now, or before. Raises: TftrtError where there is none."""
    from tftrt_tools.command_line.commands import profile as profile_command
    from tftrt_tools.models.inputs import calls as inputs
    from tftrt_tools.models.kinds import table
    from tftrt_tools.studies.profiling import measure, plan, stored

    # A plan is called without TensorFlow, and not in turns with a model that needs it.
    alone = table.kind(converted).alone
    if not (values.profile or values.stored) and fingerprint.gpu_here():
        first, second = _source_flags.read_each(values, original, converted)
        options = measure.Options(
            model=second,
            original=None if alone else first,
            signature_keys=tuple(filter(None, values.signature_keys)),
            log_file=values.log_file,
            parts=plan.OF_A_PLANS_CALL if alone else plan.OF_A_CALL,
            asked=inputs.Asked(shapes=values.shapes, ranges=values.ranges, seed=values.seed),
        )
        with scratch.folder("diagnosis") as folder, progress.on_terminal():
            found = measure.measure(options, folder).profile
        try:
            stored.keep(converted, found)
        except errors.NotKept as error:
            _output.console(values.json).print(error.cause, soft_wrap=True)
        return found
    kept = stored.read(values.profile or converted)
    beside = [] if alone else [f"--original={original}"]
    again = shlex.join(["tftrt", "profile", converted, *beside, *_next.measured(values, ("shapes", *_MEASURING))])
    if kept is None:
        here = "" if fingerprint.gpu_here() else ", and there is no GPU here to measure one"
        raise errors.TftrtError(
            f"{values.profile or converted} carries no profile{here}", f"run `{again}` on a machine with a GPU"
        )
    said, measured = list(kept.said), kept.profile.model
    if values.profile and table.kind(converted).digest(converted) != measured.digest:
        differs = f"{converted} has changed since this profile was measured"
        if os.path.abspath(measured.model) != os.path.abspath(converted):
            differs = f"this profile is of {measured.model}, whose files differ from those of {converted}"
        mend = f"run `{again} --json=FILE` on a machine with a GPU"
        _check_same_inputs(measured, converted, differs, mend)
        said.append(f"{differs}, so the findings may be wrong; {mend}")
    for line in (
        *said,
        *profile_command.not_looked_at(values, _MEASURING if values.address else ("shapes", *_MEASURING), kept.profile),
    ):
        _output.console(values.json).print(line, soft_wrap=True)
    return kept.profile


def _check_same_inputs(measured: Side, converted: str, differs: str, mend: str) -> None:
    """Refuse a profile whose calls the model does not take: what it advises would not fit. Args: differs: how the models do; mend: what to
    do. Raises: UsageError."""
    from tftrt_tools.models.kinds import opening

    with opening.opened(converted) as (model,):
        inputs = {name: {one.name for one in listed} for name, listed in model.inputs.items()}
    for call in measured.calls:
        if inputs.get(call.signature) != set(call.shapes):
            raise errors.UsageError(f"{differs}: {call.text()} is no call of {converted}", mend)


def _tried(values: flags.FlagValues, profile: Profile, done: Diagnosis) -> Diagnosis:
    from tftrt_tools.studies.diagnosis import trial

    options = trial.Options(
        run=_quietly,
        folder=values.work_dir,
        ranges=values.ranges,
        causes=tuple(values.try_causes),
        seed=values.seed,
        shapes={one.text(): (one.signature, one.shapes) for one in profile.model.calls},
    )
    return trial.tried(done, options)


def _quietly(words: Sequence[str]) -> int:
    """Run a command. What it says of its model is shown only where it fails: the model is gone afterwards. Returns: its exit code."""
    import contextlib
    import io
    import shlex
    import sys

    from tftrt_tools.command_line.commands import _calling

    progress.note(f"trying: {shlex.join(['tftrt', *words])}")
    said, code = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(said):
            code = _calling.call(words[0], words[1:])
    finally:
        if code not in (errors.EXIT_DONE, errors.EXIT_CHECK):
            print(said.getvalue(), end="", file=sys.stderr, flush=True)
    return code


def _served(values: flags.FlagValues, converted: str) -> list[Finding]:
    """What `tftrt bench --breakdown` tells of the server's requests. Raises: TftrtError where it cannot be measured."""
    import contextlib
    import sys

    from tftrt_tools.command_line.commands import _calling
    from tftrt_tools.studies.diagnosis import served

    with scratch.folder("served") as folder:
        path = f"{folder}/bench.json"
        words = [
            values.address,
            f"--model_name={values.model_name}",
            f"--rest={values.rest}",
            f"--model_dir={converted}",
            "--breakdown",
            f"--duration_seconds={_SERVED_SECONDS}",
            f"--json={path}",
            *([f"--shapes={values.shapes}"] if values.shapes else []),
        ]
        with contextlib.redirect_stdout(sys.stderr):
            _calling.call("bench", words)
        return list(served.look(documents.read(path)))


def _print(console: Console, done: Diagnosis) -> None:
    from tftrt_tools.studies.diagnosis.finding import OF_THE_CALLER

    console.print(
        _output.table(
            "The calls", ["call", ">ms", ">original ms", ">GPU busy ms", ">engines ms"], map(_call, done.calls)
        )
    )
    of_the_caller = False
    if all(one.cause in OF_THE_CALLER for one in done.findings):
        _say(console, "Nothing is wrong with the model that this profile shows.\n" if done.gpu else "No findings.")
    for number, finding in enumerate(done.findings, 1):
        if finding.cause in OF_THE_CALLER and not of_the_caller:
            of_the_caller = True
            _say(console, "In how it is called, which costs the original as much:\n")
        _finding(console, number, finding)
    for remark in done.remarks:
        _say(console, f"{remark.cause}: {remark.call + ': ' if remark.call else ''}{remark.text}")
    for line in done.unknown:
        _say(console, f"not known: {line}")


def _call(one: Looked) -> tuple[str, ...]:
    return (one.call, _ms(one.seconds), _ms(one.original_seconds), _ms(one.gpu_seconds), _ms(one.engine_seconds))


def _finding(console: Console, number: int, one: Finding) -> None:
    import shlex

    worth = (
        "cannot be told"
        if one.worth is None
        else ("at most " if one.basis == "ceiling" else "about ") + f"{_ms(one.worth)} ms"
    )
    _say(console, f"{number}. {one.title} [{one.cause}]")
    _say(console, f"   worth {worth}" + (f" of {one.call}" if one.call else "") + (f": {one.rule}" if one.rule else ""))
    for line in one.evidence:
        _say(console, f"   {line}")
    if one.mend:
        _say(console, f"   fix: {one.mend}")
    if one.command:
        _say(console, f"   {shlex.join(['tftrt', *one.command])}")
    if one.trial:
        _say(console, f"   tried: {_gained(one)}")
        if one.trial.answered:
            _say(console, f"   its answers: {one.trial.answered}")
    console.print()


def _gained(one: Finding) -> str:
    trial = one.trial
    if trial is None or trial.gained is None:
        return trial.problem if trial else ""
    what = f"{'saves' if trial.gained >= 0 else 'costs'} {_ms(abs(trial.gained))} ms"
    if trial.alike is False:
        what = f"no fix, because the answers change: it {what}"
    elif not trial.told:
        what = f"whether it helps cannot be told: it {what}"
    return f"{what} ({_ms(trial.before)} became {_ms(trial.after)}; 95 %: {_ms(trial.low)} to {_ms(trial.high)} saved)"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3f}"


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)
