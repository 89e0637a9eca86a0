"""usage: tftrt regress NATIVE CANDIDATE [--flags]

Is the candidate slower than the native model, faster, or the same, or is the result uncertain? Both models run in one process, with the
runtime of TensorFlow Serving and without a server, so the ratio is that of the models alone. They get the same requests in interleaved
rounds. The verdict needs three things to agree: a rank test, a bootstrap interval and a minimum effect. The answers are compared, too.

--batch_size=1,8,32 compares the models at each of these sizes, with a verdict for each; all have to pass. With --on=local they run side by
side, each on a GPU of its own.

With --address=HOST:PORT (or triton://HOST:PORT), NATIVE and CANDIDATE are names of models on a running server. --native_address and
--candidate_address name two servers, which may be of different kinds. --launch starts one server with both models. binary and docker
are the real server. local is the development server: it shows the behaviour, not the speed.

It adds rounds until the outcome is certain, up to --max_rounds. The candidate passes if every metric of --metrics is as good as before,
within --min_effect; if those of --must_decide are decided; if the answers keep the bounds of `tftrt verify` (or --accuracy); and if
every goal is kept. Goals are flags, or lines of a TOML file (--goals); flags override the file. Without a GPU, engine ops run as
TensorFlow ops, and there is no verdict on speed.

--save_baseline keeps the result. --baseline compares this run with a kept result that passed; both need the same kind of machine,
versions, native model and requests. `tftrt history` shows the kept results.

Exit codes: 0 everything holds; 3 something does not; 4 uncertain: the measurement is too noisy; 1 it ended early (the files are
written, and marked).

examples:
  tftrt regress resnet resnet_fp16
  tftrt regress resnet resnet_fp16 --speed_up_at_least=1.5 --no_engine_fallback --junit=regress.xml
  tftrt regress resnet resnet_fp16 --goals=goals.toml --baseline=latest --save_baseline=auto --html=regress.html
  tftrt regress resnet resnet_fp16 --address=gpu7:8500 --shapes='image:8x224x224x3'
  tftrt regress resnet resnet_fp16 --launch=binary --concurrency=4
  tftrt regress resnet resnet_fp16 --batch_size=1,8,32 --on=local
  tftrt regress resnet_plan resnet_plan10 --candidate_python=trt10/bin/python
  tftrt regress resnet resnet --native_signature=serving_default --candidate_signature=encoded --data=photos
  tftrt regress resnet resnet --native_address=gpu7:8500 --candidate_address=triton://gpu7:8001
  tftrt regress resnet resnet --address=gpu7:8500 --native_label=stable --candidate_label=canary
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from typing import TYPE_CHECKING, Any

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import (
    _calling,
    _data_flags,
    _fleet,
    _judging_flags,
    _next,
    _output,
    _source_flags,
    _tls_flags,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tftrt_tools.studies.regression.baseline import Baseline, Latest
    from tftrt_tools.studies.regression.comparison import Regression
    from tftrt_tools.studies.regression.regress import Options
    from tftrt_tools.studies.regression.several import Regressions

# Addresses may have a scheme.
URLS = ("address", "candidate_address", "native_address", "on")
OUTPUTS = ("junit", "html")
ARGUMENTS = ("native", "candidate")
_NUMBERS = {
    "speed_up_at_least": "goal: at least this many times as fast as native, by the median request time",
    "p50_ms_at_most": "goal: milliseconds of the candidate's median request",
    "p99_ms_at_most": "goal: milliseconds of the candidate's p99",
    "throughput_at_least": "goal: the candidate's answers a second",
    "build_seconds_at_most": "goal: seconds to build the candidate's engines, from its metadata",
    "engine_mib_at_most": "goal: MiB of the candidate's engines, from its metadata",
    "gpu_mib_at_most": "goal: MiB of GPU memory to build the candidate's engines, from its metadata",
}


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("native", None, "the model before conversion; with --address its name there", **text)
    flags.DEFINE_string("candidate", None, "model to judge; with --address its name there", **text)
    flags.DEFINE_string("address", "", "HOST:PORT of a running server that has both models", **text)
    for side, what in (("native", "native model"), ("candidate", "candidate")):
        flags.DEFINE_string(
            f"{side}_address",
            "",
            f"HOST:PORT or triton://HOST:PORT of a running server that has the {what}; by default "
            "--address; --tls holds for both",
            **text,
        )
        flags.DEFINE_integer(
            f"{side}_version", None, f"with --address: version of the {what}; by default the one that answers", **text
        )
        flags.DEFINE_string(
            f"{side}_label", "", f"with --address: label of the {what}'s version, in place of its number", **text
        )
    _tls_flags.define(values)
    _source_flags.define(values)
    flags.DEFINE_boolean(
        "in_process",
        None,
        "both models in one process of the same runtime, without a server; that is the default "
        "without --address and --launch",
        **text,
    )
    for side, what in (("native", "native model"), ("candidate", "candidate")):
        flags.DEFINE_string(
            f"{side}_python",
            "",
            f"in process: the Python of another environment, which runs the {what}: a plan of "
            "another TensorRT, a file in another ONNX Runtime",
            **text,
        )
    flags.DEFINE_enum(
        "launch",
        None,
        ["auto", "binary", "docker", "local"],
        "start a server that has both, as in `tftrt serve`: binary "
        "and docker are the real one; local is for its behaviour, not its speed",
        **text,
    )
    flags.DEFINE_string("server_image", "", "image of --launch=docker", **text)
    flags.DEFINE_string(
        "log_file", None, "keep the log of the server that is started, or of the process, in this file", **text
    )
    flags.DEFINE_string("native_dir", "", "with --address: files of the native model, for its digest", **text)
    flags.DEFINE_string(
        "candidate_dir", "", "with --address: files of the candidate, for its digest and its metadata", **text
    )
    _define_requests(text)
    _define_measurement(text)
    _fleet.define_local(values)
    for name, what in _NUMBERS.items():
        flags.DEFINE_float(name, None, what, **text)
    flags.DEFINE_boolean(
        "no_engine_fallback", False, "goal: the candidate's engines ran, as `tftrt smoke` finds out", **text
    )
    flags.DEFINE_string("goals", "", "TOML file of goals: the flags above and --accuracy, by their names", **text)
    flags.DEFINE_boolean("allow_worse", False, "accept a slower candidate; only the goals count", **text)
    flags.DEFINE_string(
        "save_baseline", "", "keep the result: in this file where it passed, or with auto in --history_dir", **text
    )
    flags.DEFINE_string(
        "baseline",
        "",
        "compare this run with a result: a file, or latest for the newest in --history_dir that passed",
        **text,
    )
    flags.DEFINE_string(
        "history_dir", "", "where results are kept; by default tftrt/regressions in $XDG_STATE_HOME", **text
    )
    flags.DEFINE_string("history_name", "", "name of the series in it; by default the candidate's last part", **text)
    flags.DEFINE_string("junit", None, "write the checks as JUnit XML to this file", **text)
    flags.DEFINE_string("html", None, "write a report with a plot to this file", **text)


def _define_requests(text: dict[str, flags.FlagValues]) -> None:
    flags.DEFINE_string(
        "signature_keys", "", "the signature to ask; by default serving_default, or the only one", **text
    )
    for side in ("native", "candidate"):
        flags.DEFINE_string(
            f"{side}_signature",
            "",
            f"signature of the {side} model, if the two are asked by different ones; each gets "
            "the rows of --data in its own form",
            **text,
        )
    flags.DEFINE_string(
        "shapes", "", "shapes to send, as in `tftrt convert`; by default batch 1, as the signature allows", **text
    )
    flags.DEFINE_string(
        "data",
        "",
        "inputs: arrays, pictures, TFRecords, .csv, .txt or module:function, as --data of `tftrt verify`; by "
        "default they are random",
        **text,
    )
    _data_flags.define_reading(text["flag_values"])
    flags.DEFINE_string("ranges", "", "ranges of random inputs, INPUT:LOW:HIGH;…", **text)
    flags.DEFINE_integer("seed", 0, "seed of random inputs, and of the bootstrap", lower_bound=0, **text)
    flags.DEFINE_list("batch_size", [], "rows of a request; of several each is compared by itself, 1,8,32", **text)
    flags.DEFINE_integer("distinct", 16, "number of different requests that are timed", lower_bound=1, **text)
    _data_flags.define_labels(text["flag_values"], "for --accuracy=top1:… and other metrics of labels")
    flags.DEFINE_string(
        "accuracy",
        "",
        "goals on the answers, METRIC:threshold=…, METRIC:max-degradation=… or "
        "METRIC:percent-max-degradation=…, divided by ;, as in `tftrt tune`; they replace --thresholds",
        **text,
    )
    flags.DEFINE_string("accuracy_output", "", "SIGNATURE/OUTPUT of --accuracy and --labels", **text)
    flags.DEFINE_string(
        "thresholds", "", "bounds of the answers, as in `tftrt verify`, in place of its defaults", **text
    )
    _judging_flags.define(text["flag_values"])
    flags.DEFINE_boolean("compare", True, "compare the answers", **text)
    flags.DEFINE_float(
        "timeout_seconds",
        60.0,
        "seconds for one request; in process a call that takes longer hangs, and ends the run (the first "
        "ones of a shape may build engines, and have half an hour)",
        lower_bound=0.001,
        **text,
    )


def _define_measurement(text: dict[str, flags.FlagValues]) -> None:
    flags.DEFINE_integer(
        "rounds", 30, "rounds before the first look at the data, and between two looks", lower_bound=1, **text
    )
    flags.DEFINE_integer(
        "max_rounds", 90, "the most rounds; with more looks each look is stricter", lower_bound=1, **text
    )
    flags.DEFINE_integer(
        "requests",
        0,
        "requests to each model in a round; by default as many as take about 0.4 s",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_integer("concurrency", 1, "requests under way at a time", lower_bound=1, **text)
    flags.DEFINE_float(
        "max_seconds",
        600.0,
        "no further round begins after this many seconds; from then on a request without an answer ends the run",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_list(
        "rename",
        [],
        "inputs and outputs that have another name in the candidate, NATIVE=CANDIDATE each; in process",
        **text,
    )
    flags.DEFINE_list(
        "metrics", ["p50", "p99", "throughput"], "what is judged: p50, p90, p95, p99, p99.9, throughput", **text
    )
    flags.DEFINE_list(
        "must_decide",
        ["p50"],
        "metrics that have to be decided; the others fail a run if they are worse, and are only shown otherwise",
        **text,
    )
    flags.DEFINE_float(
        "min_effect",
        0.03,
        "the smallest difference that counts, as a fraction",
        lower_bound=0.001,
        upper_bound=10,
        **text,
    )


def result(values: flags.FlagValues, positional: list[str]) -> Regression | Regressions:
    """Compare; at several batch sizes each by itself."""
    if positional:
        raise errors.UsageError(
            f"unexpected argument {positional[0]!r}", "usage: tftrt regress NATIVE CANDIDATE [--flags]"
        )
    for name in ("native", "candidate"):
        if not values[name].value:
            raise errors.UsageError(
                f"{name.upper()} is missing", "give the path of a model, or with --address its name there"
            )
    from tftrt_tools.studies.regression import baseline, regress, sizes

    place, listed = _fleet.read_local(values, "regress"), _sizes(values)
    kept = values.save_baseline if values.save_baseline != baseline.AUTO else ""
    whole_file.check_places(path for path in (values.json, values.junit, values.html, kept) if path and path != "-")
    if values.save_baseline == baseline.AUTO:
        # Where there is no place for it, nothing is measured.
        whole_file.check_folder(baseline.directory(values.history_dir), "--history_dir")
    options = _options(values, _baseline(values, _series(values)))
    if place and not options.in_process:
        raise errors.UsageError(
            "--on does not go with a server: it measures in processes of its own", "leave out --on, or the server"
        )
    regress.check(options)
    if len(listed) < 2:
        if place:
            progress.note(f"--on={values.on} changes nothing: there is one batch size; --batch_size=1,8 names several")
        options = dataclasses.replace(options, batch_size=listed[0] if listed else None)
        with progress.on_terminal():
            return regress.regress(options)
    with _fleet.beside_each_other(place) as where, progress.on_terminal():
        return sizes.regress_each(options, listed, where)


def _sizes(values: flags.FlagValues) -> list[int]:
    """The batch sizes, each once. Raises: UsageError."""
    from tftrt_tools.studies.bench import points
    from tftrt_tools.studies.regression import baseline

    found = list(dict.fromkeys(points.integers("batch_size", values.batch_size)))
    if values["batch_size"].present and not found:
        raise errors.UsageError("--batch_size is empty", "such as --batch_size=1,8")
    for flag, word in (("baseline", baseline.LATEST), ("save_baseline", baseline.AUTO)):
        if len(found) > 1 and values[flag].value not in ("", word):
            raise errors.UsageError(
                f"--{flag}={values[flag].value} is one file, and each of several batch sizes has a result of its own",
                f"--{flag}={word} (not on a cluster), or one --batch_size",
            )
    return found


def show(done: Regression | Regressions, values: flags.FlagValues) -> None:
    """Print the verdict, and what it rests on."""
    from tftrt_tools.studies.regression.several import Regressions

    if not isinstance(done, Regressions):
        _print(done, values.json)
        return
    console = _output.console(values.json)
    for one in done.parts:
        console.print(f"batch size {one.batch_size}", style="bold")
        if one.regression:
            _print(one.regression, values.json)
        else:
            console.print(f"not measured: {one.cause}{f'; {one.mend}' if one.mend else ''}", soft_wrap=True)
        console.print()
    console.print(done.headline, style=_STYLES.get(done.outcome, "bold yellow"), soft_wrap=True)


def write(done: Regression | Regressions, values: flags.FlagValues) -> None:
    """Write every file that the flags name. Raises: TftrtError with a line for each that could not be written."""
    if lost := _write(done, values, _series(values)):
        raise errors.TftrtError("; ".join(lost))


def failure(done: Regression | Regressions, values: flags.FlagValues) -> errors.TftrtError | None:
    """What the outcome is, where it is not that everything holds. Raises: Interrupted where the user ended it."""
    from tftrt_tools.studies.regression import regress
    from tftrt_tools.studies.regression.several import Regressions

    if isinstance(done, Regressions):
        return _of_several(done)
    if done.ended == regress.INTERRUPTED:
        raise errors.Interrupted(
            mend=f"{len(done.rounds.native_p50)} rounds were measured; what was written is marked as incomplete"
        )
    if done.ended:
        return errors.TftrtError(f"the run ended early: {done.ended}", "what was written is marked as incomplete")
    kinds = {errors.EXIT_CHECK: errors.CheckFailed, errors.EXIT_UNSURE: errors.Unsure}
    kind = kinds.get(done.exit_code)
    return kind(done.headline, "the result has every check") if kind else None


def _of_several(done: Regressions) -> errors.TftrtError | None:
    """As `failure`."""
    from tftrt_tools.studies.regression import regress

    whole = sum(bool(one.regression and one.regression.complete) for one in done.parts)
    if done.ended == regress.INTERRUPTED:
        raise errors.Interrupted(
            mend=f"{whole} of {len(done.parts)} batch sizes were measured; what was written is marked as incomplete"
        )
    if done.exit_code == errors.EXIT_FAILED:
        mend = next((one.mend for one in done.parts if one.mend), "run the command again")
        return errors.TftrtError(done.headline, f"{mend}; what was written is marked as incomplete")
    kinds = {errors.EXIT_CHECK: errors.CheckFailed, errors.EXIT_UNSURE: errors.Unsure}
    kind = kinds.get(done.exit_code)
    return kind(done.headline, "the result has every check of every batch size") if kind else None


def _series(values: flags.FlagValues) -> str:
    """The name of the series of results that this one belongs to."""
    from tftrt_tools.studies.regression import baseline

    return str(values.history_name or baseline.series_name(values.candidate))


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Compare. Returns: the exit code."""
    from tftrt_tools.studies.regression import baseline, comparison

    done, name = result(values, positional), _series(values)
    show(done, values)
    lost = _write(done, values, name)
    if values.save_baseline == baseline.AUTO and not lost and done.complete:
        _next.show(values, ["history", f"--history_name={name}", *_next.given(values, ("history_dir",))])
    for line in lost:
        print(f"tftrt: error: {line}", file=sys.stderr)
    wrong = failure(done, values)
    if wrong and done.outcome == comparison.ENDED:
        raise wrong
    # A file that could not be written does not change the verdict.
    return _calling.exit_code(wrong) or (errors.EXIT_FAILED if lost else errors.EXIT_DONE)


def _baseline(values: flags.FlagValues, name: str) -> Baseline | Latest | None:
    from tftrt_tools.studies.regression import baseline

    if values.baseline == baseline.LATEST:
        return baseline.Latest(baseline.directory(values.history_dir), name)
    return baseline.read(values.baseline) if values.baseline else None


def _options(values: flags.FlagValues, kept: Baseline | Latest | None) -> Options:
    from tftrt_tools.studies.regression import goals, regress

    given = {name: values[name].value for name in (*_NUMBERS, "accuracy", "no_engine_fallback") if values[name].present}
    wanted = goals.read(values.goals, given)
    metrics = [one.strip() for one in values.metrics if one.strip()]
    for name, metric in (
        ("speed_up_at_least", "p50"),
        ("p50_ms_at_most", "p50"),
        ("p99_ms_at_most", "p99"),
        ("throughput_at_least", "throughput"),
    ):
        if getattr(wanted, name) is not None and metric not in metrics:
            metrics.append(metric)
    models: dict[str, Any] = {name: values[name].value for name in ("native", "candidate")}
    if not (values.address or values.native_address or values.candidate_address):
        models = _source_flags.read_given(values, *models)
    same = (
        "native_version",
        "native_label",
        "candidate_version",
        "candidate_label",
        "native_python",
        "candidate_python",
        "log_file",
        "native_dir",
        "candidate_dir",
        "shapes",
        "data",
        "ranges",
        "seed",
        "distinct",
        "data_rows",
        "thresholds",
        "labels",
        "label_column",
        "classes",
        "accuracy_output",
        "compare",
        "native_signature",
        "candidate_signature",
        "rounds",
        "requests",
        "concurrency",
        "min_effect",
        "allow_worse",
        "max_seconds",
    )
    return regress.Options(
        **models,
        **{name: values[name].value for name in same},
        server=values.address,
        native_server=values.native_address,
        candidate_server=values.candidate_address,
        in_process=_in_process(values),
        backend=values.launch or "local",
        image=values.server_image,
        timeout=values.timeout_seconds,
        metrics=tuple(dict.fromkeys(metrics)),
        goals=wanted,
        baseline=kept,
        signature_name=values.signature_keys,
        tls=_tls_flags.read(values),
        reading=_data_flags.reading(values),
        **_judging_flags.read(values),
        max_rounds=values.max_rounds if values["max_rounds"].present else max(90, values.rounds),
        must_decide=tuple(one.strip() for one in values.must_decide if one.strip()),
        rename=tuple(values.rename),
    )


def _in_process(values: flags.FlagValues) -> bool:
    """Whether no server is asked: by default, where no flag names one."""
    if values.in_process is not None:
        return bool(values.in_process)
    return not (
        values.address or values.native_address or values.candidate_address or values.launch or values.server_image
    )


def _write(done: Regression | Regressions, values: flags.FlagValues, name: str) -> list[str]:
    """Write every file that the flags name, each whole or not at all. One that fails does not stop the others. Returns: a line for each
    file that could not be written."""
    from tftrt_tools.command_line.report import regress as report
    from tftrt_tools.studies.regression import junit

    jobs: tuple[tuple[str | None, Callable[[], object]], ...] = (
        (values.json, lambda: _output.write_json(done, values.json)),
        (values.junit, lambda: whole_file.write_text(values.junit, junit.text(done))),
        (values.html, lambda: report.write_page(done, values.html)),
        *((values.save_baseline, functools.partial(_save, one, values, name)) for one in _each(done)),
    )
    return whole_file.write_each(jobs)


def _each(done: Regression | Regressions) -> list[Regression]:
    from tftrt_tools.studies.regression.several import Regressions

    return [one.regression for one in done.parts if one.regression] if isinstance(done, Regressions) else [done]


def _save(done: Regression, values: flags.FlagValues, name: str) -> None:
    from tftrt_tools.studies.regression import baseline, comparison

    if done.ended:
        return
    if values.save_baseline == baseline.AUTO:
        # The history keeps all results; only those that passed become a baseline.
        series = baseline.place(baseline.directory(values.history_dir), done.fingerprint, name, done.workload)
        kept = str(baseline.save(done.to_dict(), series))
    elif done.outcome != comparison.PASS:
        kept = ""
    else:
        whole_file.write_text(values.save_baseline, json.dumps(done.to_dict(), indent=1) + "\n")
        kept = values.save_baseline
    said = (
        f"kept: {kept}" if kept else f"not kept as a baseline: {values.save_baseline} (the outcome is {done.outcome})"
    )
    _output.console(values.json).print(said, soft_wrap=True)


_STYLES = {"pass": "bold green", "fail": "bold red"}


def _print(done: Regression, json_path: str | None) -> None:
    from tftrt_tools.command_line.report.regress import shown

    console = _output.console(json_path)

    def say(label: str, text: str) -> None:
        console.print(f"{label:<11}{text}", soft_wrap=True)

    say("native", done.native.title)
    say("candidate", done.candidate.title)
    say(
        "measured",
        f"{done.server['backend']} ({done.server['reason']})" if done.server["backend"] else done.server["address"],
    )
    say(
        "requests",
        f"{done.workload['signature']} {'; '.join(done.workload['shapes'])}, {done.workload['values']}; "
        f"{len(done.rounds.native_p50)} rounds of {done.requests} to each model, {done.workload['concurrency']} at a time",
    )
    if done.verdict:
        rows = [
            (
                one.metric,
                shown(one.metric, one.native),
                shown(one.metric, one.candidate),
                "" if one.ratio is None else f"{one.ratio:.3f}",
                "{:.3f} to {:.3f}".format(*one.judged_interval) if one.judged_interval else "",
                "" if one.p is None else f"{one.p:.2g}",
                one.direction or "none shown",
                one.verdict,
            )
            for one in done.verdict.judgements
        ]
        columns = ["metric", ">native", ">candidate", ">ratio", ">interval", ">p of U", "direction", "verdict"]
        console.print(_output.table("Speed, candidate / native", columns, rows))
    checks = [(one.name, one.what, one.found, one.verdict) for one in done.checks]
    console.print(_output.table("Checks", ["check", "wanted", "found", "verdict"], checks))
    for one in done.checks:
        if one.verdict != "pass" and one.reason:
            console.print(f"  {one.name}: {one.reason}", soft_wrap=True)
    for text in done.notes:
        console.print(f"  {text}", soft_wrap=True)
    console.print(done.headline, style=_STYLES.get(done.outcome, "bold yellow"), soft_wrap=True)
