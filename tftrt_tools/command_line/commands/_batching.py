"""`tftrt bench --tune_batching`: its flags, its table, its files."""

from __future__ import annotations

import functools
import json
import os
import pathlib
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.commands import _data_flags, _next, _older, _output, _source_flags

if TYPE_CHECKING:
    from rich.console import Console

    from tftrt_tools.studies.batching.options import Options
    from tftrt_tools.studies.batching.trial import Trial
    from tftrt_tools.studies.batching.tuned import Tuned
    from tftrt_tools.studies.batching.turns import Side, Turns

_RESULT, _PLOT = "batching.json", "batching.png"
_OWN = ("launch", "server_image", "max_trials", "max_minutes", "work_dir")
# Flags of a running server, of other loads, and of files that a single benchmark has.
_FOREIGN = (
    "model_name",
    "model_version",
    "version_label",
    "in_process",
    "rest",
    "metrics_url",
    "model_dir",
    "concurrency",
    "rate",
    "schedule_file",
    "csv",
    "requests_csv",
    "hdr",
    "html",
    "plot",
    "breakdown",
    "on",
    "generators",
    "tls",
    "tls_root",
    "tls_certificate",
    "tls_key",
    "tls_server_name",
)


def define(values: flags.FlagValues) -> None:
    """Define the flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "tune_batching",
        "",
        "a SavedModel directory: search the batching parameters with which a server keeps the "
        "percentile of --slo at the highest rate; a server is started for each trial",
        **text,
    )
    flags.DEFINE_enum(
        "launch",
        "local",
        ["auto", "binary", "docker", "local"],
        "with --tune_batching: what serves, as in `tftrt serve`",
        **text,
    )
    flags.DEFINE_string("server_image", "", "with --tune_batching: image of --launch=docker", **text)
    flags.DEFINE_integer("max_trials", 20, "with --tune_batching: trials, at most", lower_bound=1, **text)
    flags.DEFINE_float(
        "max_minutes",
        60,
        "with --tune_batching: no trial begins after so many minutes of trials",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_string(
        "work_dir",
        None,
        "with --tune_batching: folder of the trials and results, by default batching-MODEL in the current one",
        **text,
    )


def check_absent(values: flags.FlagValues) -> None:
    """Refuse the flags of the search where nothing is searched. Raises: UsageError."""
    given = next((name for name in _OWN if values[name].present), None)
    if given:
        raise errors.UsageError(
            f"--{given} has no effect without --tune_batching", "leave it out, or give --tune_batching=MODEL"
        )


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Search. Returns: the exit code."""
    options, done = _searched(values, positional)
    _print(done, values.json)
    lost = _write(options, done, values)
    plot, saved = options.work_dir / _PLOT, options.work_dir / _RESULT
    console = _output.console(values.json)
    for path in (*done.files.values(), str(plot), str(saved)):
        console.print(f"written: {path}" if path not in lost else path, soft_wrap=True)
    for line in lost:
        console.print(f"  not written: {line}", soft_wrap=True)
    if wrong := failure(done):
        raise wrong
    if "parameters" in done.files and (commands := _serve(values, options.model, done.files["parameters"])):
        _next.show(values, *commands)
    return errors.EXIT_FAILED if lost else errors.EXIT_DONE


def result(values: flags.FlagValues, positional: list[str]) -> tuple[Tuned, list[str]]:
    """Search, and write the files. Returns: the result, and a line for each file that could not be written."""
    options, done = _searched(values, positional)
    return done, _write(options, done, values)


def show(done: Tuned, values: flags.FlagValues) -> None:
    """Print what was found."""
    _print(done, values.json)


def failure(done: Tuned) -> errors.TftrtError | None:
    """Why there is no winner, None where there is one."""
    if done.best is None:
        return _none_keeps(done)
    return None if done.winner else _missed_in_turns(done)


def _searched(values: flags.FlagValues, positional: list[str]) -> tuple[Options, Tuned]:
    options = _options(values, positional)
    from tftrt_tools.studies.batching import tune
    from tftrt_tools.studies.bench import live

    try:
        with live.view() as view:
            return options, tune.tune(options, view)
    except KeyboardInterrupt:
        raise errors.Interrupted(
            mend=f"the finished trials are in {options.work_dir}; the same command goes on from there"
        ) from None


def _write(options: Options, done: Tuned, values: flags.FlagValues) -> list[str]:
    """Returns: a line for each file that could not be written."""
    from tftrt_tools.command_line.report import batching_plot

    plot, saved = options.work_dir / _PLOT, options.work_dir / _RESULT
    _output.write_json(done, values.json)
    return whole_file.write_each(
        (
            (str(plot), lambda: whole_file.write_bytes(plot, batching_plot.bars(done))),
            (str(saved), lambda: whole_file.write_text(saved, json.dumps(done.to_dict(), indent=2) + "\n")),
        )
    )


def _options(values: flags.FlagValues, positional: list[str]) -> Options:
    """Raises: UsageError."""
    from tftrt_tools.studies.batching import turns
    from tftrt_tools.studies.batching.options import Options
    from tftrt_tools.studies.batching.server import MODEL_NAME
    from tftrt_tools.studies.bench import goal, options, points, summary
    from tftrt_tools.studies.tuning.budget import Budget

    foreign = (
        f"ADDRESS {positional[0]}"
        if positional
        else next((f"--{name}" for name in _FOREIGN if name in values and values[name].present), None)
    )
    if foreign:
        raise errors.UsageError(
            f"{foreign} does not go with --tune_batching, which starts its own servers", "leave it out"
        )
    if values["scenario"].present and values.scenario != points.OPEN:
        raise errors.UsageError(
            f"--scenario={values.scenario} does not go with --tune_batching: it searches in the open loop",
            "leave it out",
        )
    if len(values.batch_size) > 1:
        raise errors.UsageError("--tune_batching takes one --batch_size", "--batch_size=1 is one row in each request")
    promise = goal.parse(values.slo)
    if promise is None or not promise.percentiles or promise.percentiles[0] not in summary.PERCENTILES:
        known = ", ".join(map(summary.name, summary.PERCENTILES))
        raise errors.UsageError(
            f"--tune_batching needs a promised percentile, one of {known}", "such as --slo='p99<20ms'"
        )
    values.scenario, values.model_name = points.OPEN, MODEL_NAME
    load = options.from_flags(
        "", values, _source_flags.read_given(values, "original") | {"in_process": ""}, None, _data_flags.reading(values)
    )
    limit = next(bound.limit for bound in promise.bounds if bound.percentile is not None)
    if values.duration_seconds < turns.TIMES_THE_PROMISE * limit:
        raise errors.UsageError(
            f"probes of {values.duration_seconds:g} s are too short for --slo={values.slo}: a backlog could grow and "
            "still keep it",
            f"--duration_seconds={turns.TIMES_THE_PROMISE * limit:g}, or more",
        )
    name = pathlib.Path(os.path.abspath(values.tune_batching))
    folder = values.work_dir or f"batching-{name.parent.name if name.name.isdecimal() else name.name}"
    return Options(
        model=values.tune_batching,
        backend=values.launch,
        image=values.server_image,
        load=load,
        budget=Budget(values.max_trials, values.max_minutes),
        work_dir=pathlib.Path(folder),
        renamed=_older.names("bench", values),
    )


def _serve(values: flags.FlagValues, model: str, parameters: str) -> list[list[str]]:
    """The commands that serve the model with the winner's file: a version directory as it is, another folder published first. None for a
    converted model that has to be verified before it is published."""
    from tftrt_tools.models.savedmodel import passport
    from tftrt_tools.servers.serving.configuration import generation

    path, name = pathlib.Path(os.path.abspath(model)), _next.model_name(model)
    batching = [
        "--enable_batching",
        f"--batching_parameters_file={parameters}",
        f"--grpc_max_threads={generation.GRPC_THREADS}",
    ]
    if path.name.isdecimal():
        return [_next.serve(values, path.parent.name, str(path.parent), *batching)]
    verified = _next.document(model, passport.VERIFY) or {}
    if _next.document(model, passport.MANIFEST) and not verified.get("passed"):
        return []
    return [_next.publish(values, model), _next.serve(values, name, f"models/{name}", *batching)]


def _none_keeps(done: Tuned) -> errors.CheckFailed:
    from tftrt_tools.studies.batching import search

    near = search.nearest(done.trials)
    seen = (
        f"the nearest is {done.percentile} {near.nearest_ms:.4g} ms at {near.nearest_rate:g}/s with {search.described(near)}"
        if near
        else "no probe had enough answers for that percentile"
    )
    return errors.CheckFailed(
        f"no trial keeps {done.goal}: {seen}",
        "allow more time, or give --lowest_rate; the journal keeps the trials of this SLO",
    )


def _missed_in_turns(done: Tuned) -> errors.TftrtError:
    """The best trial is no winner."""
    from tftrt_tools.studies.batching import search

    assert done.best and done.turns
    side, rate = done.turns.winner, done.turns.rate
    seen = f"{side.share:.2%} of {side.requests} requests in time at {rate:g}/s{_unanswered(side)}"
    said = f"no winner: {search.described(done.best)} "
    if done.kept is None:
        return errors.Unsure(
            f"{said}may keep {done.goal} in turns, or miss it: {seen}",
            "run it on a quieter machine, in another --work_dir",
        )
    return errors.CheckFailed(
        f"{said}does not keep {done.goal} in turns: {seen}",
        "search with longer probes (--duration_seconds): the trials' were too short to show it; or allow more time",
    )


def _unanswered(one: Side) -> str:
    return f", {one.failed} without an answer ({one.why or 'no reason told'})" if one.failed else ""


def _print(done: Tuned, json_path: str | None) -> None:
    from tftrt_tools.studies.batching import trial

    console = _output.console(json_path)
    say = functools.partial(_say, console)
    say("model", f"{done.model}; batch sizes of its engines: {done.sizes} ({done.source})")
    say("machine", f"{done.machine.text()}; {done.backend} server")
    rows = [
        (
            one.number,
            trial.text(one.settings),
            _rate(one),
            "" if one.ms is None else f"{one.ms:.2f}",
            f"{one.seconds:.0f}",
            _mark(one, done),
        )
        for one in done.trials
    ]
    console.print(
        _output.table(
            f"Highest rate that keeps {done.goal}",
            [">trial", "batching parameters", ">requests/s", f">{done.percentile} ms", ">took s", ""],
            rows,
        )
    )
    for one in done.trials:
        if one.failure:
            console.print(f"  trial {one.number} failed: {one.failure}", soft_wrap=True)
    limited = [one.number for one in done.trials if one.limited]
    if limited:
        say(
            "seen",
            f"in {terminal.counted(len(limited), 'trial')} the load generator may have been the limit: with a machine of its own or "
            "more --processes it may find higher rates",
        )
    say("ended", done.ended)
    if done.best and not done.best.settings:
        say("winner", f"no batching: no parameters kept a higher rate than {done.best.rate:g}/s")
    if done.best and not done.winner:
        say("winner", "none: the best trial did not keep the SLO in turns")
    if done.best and done.best.settings and done.winner:
        gain = f", {done.gain:.2f} times as many as without batching" if done.gain else ", and without batching none"
        say("winner", f"{trial.text(done.best.settings)}: {done.best.rate:g} requests a second{gain}")
    if done.turns:
        _print_turns(console, done.turns, done)


def _mark(one: Trial, done: Tuned) -> str:
    if one.number == done.winner:
        return "winner"
    missed = done.best is not None and one.number == done.best.number
    return "not kept in turns" if missed else "failed" if one.failure else ""


def _say(console: Console, label: str, text: str) -> None:
    console.print(f"{label:<10}{text}", soft_wrap=True)


def _print_turns(console: Console, turns: Turns, done: Tuned) -> None:
    def side(one: Side) -> str:
        kept = {True: "kept", False: "missed", None: "not decided"}[one.kept]
        ms = f", {done.percentile} {one.ms:.2f} ms" if one.ms is not None else ""
        return f"{one.share:.2%} of {one.requests} in time{ms}{_unanswered(one)}: {kept}"

    say = functools.partial(_say, console)
    best = "winner" if done.winner else "best trial"
    lower = f", because the {best} did not keep the SLO at {turns.wanted:g}/s" if turns.rate < turns.wanted else ""
    say("in turns", f"{turns.rounds} rounds at {turns.rate:g}/s{lower}")
    say("", f"{best:<12}{side(turns.winner)}")
    say("", f"no batching {side(turns.without)}")
    judged = turns.judgement
    # A percentile without an answer has no time, so there is no ratio of two times.
    interval = (
        ""
        if judged.ratio is None or judged.judged_interval is None or turns.winner.ms is None or turns.without.ms is None
        else f": its {judged.metric} is {judged.ratio:.2f} of the other's "
        f"({judged.judged_interval[0]:.2f} to {judged.judged_interval[1]:.2f})"
    )
    say("", f"{_compared(turns, best)}{interval}; {judged.reason}")
    for line in turns.notes:
        console.print(f"  {line}", soft_wrap=True)


def _compared(turns: Turns, best: str) -> str:
    if turns.certain:
        return "the winner is better"
    if best == "winner":
        return (
            "NO BATCHING is better at this rate"
            if turns.judgement.verdict == "worse"
            else "NOT CERTAIN that the winner is better"
        )
    return (
        f"the {best} missed its SLO, whatever the other did"
        if turns.winner.kept is False
        else f"NOT CERTAIN that the {best} keeps its SLO"
    )


def _rate(one: Trial) -> str:
    if one.rate is not None:
        return f"{one.rate:.4g}"
    if one.failure:
        return ""
    return f"below {one.floor:.4g}" if one.floor else "none"
