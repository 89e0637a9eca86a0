"""usage: tftrt tune MODEL --data=FILE --accuracy=GOAL --shapes=SHAPES [--flags]

Searches for the fastest conversion of a model that keeps an accuracy goal, on this machine's GPU. It varies the precision, the
calibration method, the nodes that stay in a higher precision, the minimum segment size and the profile strategy. Each trial is built,
watched for fallbacks, scored on all of --data against the original, and timed. At the end the best trials and the original are timed in
turns in one process. INT8 needs --calibration_data (other rows than --data) or --calibration_table.

Plans of TensorRT itself are tried, too: the model is exported with the precision written into the ONNX file, and built. A model that
cannot be exported is a failed trial. TensorFlow Serving runs no plans, so by default plans are only compared. With --server=triton or
--backend=tftrt,tensorrt a plan may win. The table shows latency, rows per second, accuracy, SNR, build time, size, and which server
runs each model. MODEL may be an ONNX file in FP32, or a plan directory with such a file: only plans are tried then.

goals: METRIC:threshold=X, METRIC:max-degradation=X (below the original's), METRIC:percent-max-degradation=X. Metrics are those of
`tftrt verify`. top1, auc, rmse, mean_iou, map and others compare with --labels if these fit, else with the original's answers. A metric
may also be module:function, called as function(outputs, labels, reference) with {name: array}; it returns a number, and higher is
better.

Trials are kept in --work_dir: the same command continues an interrupted search. Exit 3: no trial keeps the goal; best.flags in that
folder has the flags of the nearest one. `tftrt bench --tune_batching` searches how a server should batch requests to the result.

examples:
  tftrt tune resnet --data=images.npz --labels=labels.npy --accuracy=top1:max-degradation=0.01 --shapes='image:1x224x224x3,8x224x224x3' \\
      --calibration_data=training/ --image_scale=1/255 --output_flagfile=resnet.flags
  tftrt tune resnet --data=images.npz --labels=labels.npy --accuracy=top1:max-degradation=0.01 --shapes='image:1x224x224x3' \\
      --server=triton --output=resnet_tuned
  tftrt tune resnet.onnx --data=images.npz --labels=labels.npy --accuracy=top1:max-degradation=0.01 --shapes='image:1x224x224x3' \\
      --output=resnet_plan
  tftrt tune encoder --data=texts.npz --accuracy=snr_db:threshold=30 --shapes='ids:8x128;mask:8x128' --precision=FP32,FP16
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import shlex
from typing import TYPE_CHECKING, Literal, cast

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.choices import (
    CALIBRATION_METHODS,
    PRECISIONS,
    SERVER_TITLES,
    SERVERS,
    CalibrationMethod,
    Precision,
    Server,
)
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.process import environment, progress
from tftrt_tools.base.stack import bindings, local_gpus
from tftrt_tools.command_line.commands import (
    _building,
    _calibration_flags,
    _data_flags,
    _flags,
    _fleet,
    _judging_flags,
    _next,
    _output,
    _source_flags,
)
from tftrt_tools.command_line.commands import convert as convert_command
from tftrt_tools.studies import backends
from tftrt_tools.studies.tuning import space
from tftrt_tools.tftrt.calibration.methods import AUTO
from tftrt_tools.tftrt.conversion.settings import Settings, checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tftrt_tools.models.inputs.options import DataOptions
    from tftrt_tools.models.sources.source import Source
    from tftrt_tools.studies.tuning.latency import Latency
    from tftrt_tools.studies.tuning.tried import Trial, Tuning
    from tftrt_tools.studies.tuning.tune import Found, Options
    from tftrt_tools.tensorrt.exporting import export

# Flags of `tftrt convert` with the same meaning here; the others are searched, or make no sense in a search.
_CONVERT_FLAGS = (
    "signature_keys",
    "tags",
    "minimum_segment_size",
    "max_workspace_size_bytes",
    "max_engines",
    "keep_native_ops",
    "keep_native_nodes",
    "freeze",
    "calibrator",
    "calibration_percentile",
)

# Flags of `tftrt export` with the same meaning here.
_EXPORT_FLAGS = (
    "data",
    "data_rows",
    "batch_size",
    "output_kind",
    "allow_constant_outputs",
    "allow_unsafe_deserialization",
    "custom_objects",
    "inputs",
    "outputs",
    "op_library",
    "freeze",
)

OUTPUTS = ("plot", "html", "output_flagfile")
URLS = ("on",)
# Who makes plans.
_PLANS = "tensorrt"


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("data", "", f"rows to score: {_data_flags.KINDS}", **text)
    _data_flags.define_labels(values, "or what your metric takes")
    flags.DEFINE_string(
        "accuracy",
        "",
        "the goal, e.g. top1:max-degradation=0.01, snr_db:threshold=30 or module:metric:threshold=0.9",
        **text,
    )
    flags.DEFINE_string(
        "metric_direction", "", "higher or lower: which values of a metric of your own are better [higher]", **text
    )
    flags.DEFINE_string(
        "accuracy_output",
        "",
        "SIGNATURE/OUTPUT of the goal; by default the classes for top1, else the worst output",
        **text,
    )
    flags.DEFINE_string("shapes", "", "shapes to build for and to time, as in `tftrt convert`", **text)
    flags.DEFINE_string(
        "objective_shape", "", "the one of --shapes whose latency is minimized, by default the last", **text
    )
    flags.DEFINE_integer(
        "batch_size",
        0,
        "rows of a call with --data, one of the batch sizes in --shapes; by default the largest, smaller "
        "ones for the rest",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_list("precision", list(PRECISIONS), "precisions to try, in this order", **text)
    flags.DEFINE_list(
        "backend",
        None,
        "who makes the engines that are tried: tftrt (SavedModels with TF-TRT's engines), tensorrt "
        "(plan directories; alone it also takes an ONNX file or a plan directory as the model), or both; by default both, as --server says",
        **text,
    )
    flags.DEFINE_enum(
        "server",
        None,
        SERVERS,
        "what has to serve the winner: TensorFlow Serving, which runs no plans, or Triton. By default tensorflow; for `tftrt tune` with "
        "--backend, anything. What it does not run is tried for comparison alone",
        **text,
    )
    flags.DEFINE_integer("max_trials", 12, "trials, at most", lower_bound=1, **text)
    flags.DEFINE_float("max_minutes", 60, "no trial begins after so many minutes of trials", lower_bound=0, **text)
    flags.DEFINE_float(
        "max_trial_minutes",
        0,
        "a trial that takes longer to build, score and time is ended and counts as failed; 0 for no limit",
        lower_bound=0,
        **text,
    )
    _fleet.define_local(values)
    flags.DEFINE_string("work_dir", None, "folder of the trials, by default tune-MODEL in the current one", **text)
    flags.DEFINE_boolean("retry_failed", False, "repeat trials that failed in an earlier run", **text)
    flags.DEFINE_boolean(
        "allow_quantization_changes",
        False,
        "accept that TF-TRT quantizes otherwise than the quantization-aware model or --precision says",
        **text,
    )
    flags.DEFINE_list(
        "calibration_method",
        list(CALIBRATION_METHODS),
        "how the toolkit finds INT8 ranges; auto takes the method that "
        "harms the outputs least in simulation; where the first misses the goal, those that promise less noise on --data "
        "are tried",
        **text,
    )
    flags.DEFINE_string("calibration_table", "", "INT8: a calibration file to use in place of data", **text)
    flags.DEFINE_string(
        "output_flagfile", None, "write the winner's flags for `tftrt convert --flagfile=…` to this file", **text
    )
    flags.DEFINE_string("output", None, "make the winner in this directory, a SavedModel or a plan directory", **text)
    flags.DEFINE_boolean("overwrite", False, "replace a SavedModel or plan directory that is at --output", **text)
    flags.DEFINE_string("plot", None, "write the plot of latency against accuracy to this file (SVG)", **text)
    flags.DEFINE_string("html", None, "write a report with the plot to this file", **text)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow and TensorRT log in this file", **text)
    _judging_flags.define(values)
    _source_flags.define(values)
    _calibration_flags.define(values)
    _data_flags.define_reading(values)
    convert_command.define_cache(values)
    _building.define(values)
    scratch = flags.FlagValues()
    convert_command.define_settings(scratch)
    convert_command.define_calibrator(scratch)
    for name in _CONVERT_FLAGS:
        flags.DEFINE_flag(scratch[name], values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Searched:
    """A finished search: of which model, what was found, and how it was asked for. env: environment variables under which it ran."""

    model: Source
    found: Found
    options: Options
    env: Mapping[str, str]

    @property
    def done(self) -> Tuning:
        """What is printed."""
        return self.found.tuning


def result(values: flags.FlagValues, positional: list[str]) -> Tuning:
    """Tune, and write the files. Raises: also CheckFailed where no trial keeps the goal, with the Tuning."""
    searched = _searched(values, positional)
    try:
        with errors.translated():
            _write_search(searched, values)
            if searched.done.winner:
                _write_made(searched, values)
    except errors.Ending as error:
        error.result = searched.done
        raise
    return searched.done


def show(done: Tuning, values: flags.FlagValues) -> None:
    """Print the trials and the winner."""
    _print(done, values.json)


def write(done: Tuning, values: flags.FlagValues) -> None:
    """Nothing: `result` has written the files, for which it needs more than the Tuning."""


def failure(done: Tuning, values: flags.FlagValues) -> errors.TftrtError | None:
    """CheckFailed where no trial keeps the goal."""
    return None if done.winner else _none_keeps(done)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Tune. Returns: the exit code."""
    searched = _searched(values, positional)
    show(searched.done, values)
    _write_search(searched, values)
    if wrong := failure(searched.done, values):
        raise wrong
    _write_made(searched, values)
    model = searched.model.path
    if values.output:
        _next.show_verify(values, model, values.output, *_next.scored(values))
    elif values.output_flagfile:
        made = f"--output={_next.sibling(model, 'tuned')}"
        _next.show(values, ["convert", f"--flagfile={values.output_flagfile}", made])
    return errors.EXIT_DONE


def _searched(values: flags.FlagValues, positional: list[str]) -> _Searched:
    named = _source_flags.read(values, _flags.one_argument("tune", positional, "MODEL"))
    from tftrt_tools.studies.tuning import given

    place = _fleet.read_local(values, "tune")
    tried = _tried(values, named)
    given.check_kind(named, tried.backends)
    settings = _settings(values)
    options = _options(values, named, tried)
    if values.plot and pathlib.Path(values.plot).suffix.lower() != ".svg":
        raise errors.UsageError(f"--plot={values.plot}: the plot is written as SVG", "name it FILE.svg")
    model = given.model(named, options.backends)
    if values.output:
        from tftrt_tools.models.savedmodel import staging

        staging.check_target(values.output, values.overwrite, [model, named])
    from tftrt_tools.fleet import beside
    from tftrt_tools.studies.tuning import tune

    if said := given.note(named):
        progress.note(said)
        options = dataclasses.replace(options, notes=(*options.notes, said))
    gpus = _fleet.side_by_side() if place else ()
    where = beside.Where(place=place, live=_fleet.live) if place and gpus else None
    # Also for the winner: it is built on a GPU on which it was tried.
    env = local_gpus.variables(gpus) if gpus else {}
    try:
        with environment.variables(env), progress.on_terminal():
            found = tune.tune(model, settings, options, where)
    except KeyboardInterrupt:
        raise errors.Interrupted(
            mend=f"the finished trials are in {options.work_dir}; the same command goes on from there"
        ) from None
    if found.tuning.winner or found.tuning.best:
        found = dataclasses.replace(
            found, tuning=dataclasses.replace(found.tuning, recipe=_recipe(model, found, values, options))
        )
    return _Searched(model=model, found=found, options=options, env=env)


def _write_search(searched: _Searched, values: flags.FlagValues) -> None:
    """Write what there is of every search."""
    from tftrt_tools.studies.tuning import tune

    done, options = searched.done, searched.options
    _output.write_json(done, values.json)
    whole_file.write_text(pathlib.Path(options.work_dir) / "tuning.json", _json(done))
    if done.winner or done.best:
        text = tune.flag_file(searched.model, searched.found)
        whole_file.write_text(pathlib.Path(options.work_dir) / "best.flags", text)
    _reports(done, values)


def _write_made(searched: _Searched, values: flags.FlagValues) -> None:
    """Write the winner, where there is one: its flags, and the model that they make."""
    from tftrt_tools.studies.tuning import tune

    if values.output_flagfile:
        whole_file.write_text(values.output_flagfile, tune.flag_file(searched.model, searched.found))
    if values.output:
        with environment.variables(searched.env):
            _write_winner(searched.model, searched.found, values, searched.options)


def _settings(values: flags.FlagValues) -> Settings:
    """The settings that the search leaves alone."""
    given = {name: values[name].value for name in (*_CONVERT_FLAGS, "shapes", "allow_quantization_changes")}
    given = {name: tuple(filter(None, value)) if isinstance(value, list) else value for name, value in given.items()}
    # Flags of INT8's calibration are accepted if the search tries INT8.
    highest: Precision = "INT8" if "INT8" in _precisions(values) else "FP16"
    percentile, methods = given.pop("calibration_percentile"), _methods(values)
    if values["calibration_percentile"].present and (highest != "INT8" or not {AUTO, "percentile"} & set(methods)):
        raise errors.UsageError(
            "--calibration_percentile has no effect where the method percentile is not tried",
            "add percentile or auto to --calibration_method, or leave it out",
        )
    settings = Settings(precision_mode=highest, **given)
    first = [checked(space.with_method(settings, method, percentile)) for method in methods][0]
    return dataclasses.replace(first, precision_mode=Settings().precision_mode)


def _methods(values: flags.FlagValues) -> tuple[CalibrationMethod, ...]:
    """Calibration methods to try, in order: the given ones, or all that the calibrator has. Without INT8 only the default one."""
    int8, toolkit = "INT8" in _precisions(values), values.calibrator == "toolkit"
    if not values["calibration_method"].present:
        return CALIBRATION_METHODS if int8 and toolkit else (AUTO,)
    methods = tuple(dict.fromkeys(one.strip().lower() for one in values.calibration_method if one.strip()))
    unknown = [one for one in methods if one not in CALIBRATION_METHODS]
    if unknown or not methods:
        raise errors.UsageError(
            f"--calibration_method: {unknown[0] if unknown else 'nothing'} is no method",
            "known: " + ", ".join(CALIBRATION_METHODS),
        )
    if values.calibration_table:
        raise errors.UsageError(
            "--calibration_table and --calibration_method exclude each other: a table has its scales",
            "give one of them",
        )
    if not toolkit and not set(methods) <= {AUTO, "entropy"}:
        raise errors.UsageError(
            "--calibration_method are the toolkit's: TensorRT calibrates by entropy only",
            "leave them out, or use --calibrator=toolkit",
        )
    if not int8:
        raise errors.UsageError(
            "--calibration_method has no effect where INT8 is not tried", "leave it out, or add INT8 to --precision"
        )
    return cast("tuple[CalibrationMethod, ...]", methods)


def _options(values: flags.FlagValues, model: Source, tried: _Tried | None = None) -> Options:
    from tftrt_tools.accuracy import goal
    from tftrt_tools.studies.tuning.budget import Budget
    from tftrt_tools.studies.tuning.tune import Options

    tried = tried or _tried(values, model)
    for name, what in (
        ("data", "the rows to score"),
        ("accuracy", "the goal"),
        ("shapes", "the shapes whose speed counts"),
    ):
        if not values[name].value:
            raise errors.UsageError(f"--{name} is missing: {what}", "`tftrt tune --help` shows examples")
    precisions = _precisions(values)
    unknown = [one for one in precisions if one not in PRECISIONS]
    if unknown or not precisions:
        raise errors.UsageError(
            f"--precision: {unknown[0] if unknown else 'nothing'} is no precision", "known: " + ", ".join(PRECISIONS)
        )
    reading, calibration = _data_flags.reading_beside(values, _calibration(values))
    warnings: tuple[str, ...] = ()
    if "INT8" in precisions and not calibration and not values.calibration_table:
        if not values["precision"].using_default_value:
            raise errors.UsageError(
                "INT8 needs ranges, and neither --calibration_data nor --calibration_table is given",
                "give one of them, or leave INT8 out of --precision",
            )
        precisions = tuple(one for one in precisions if one != "INT8")
        warnings = ("INT8 was not tried: neither --calibration_data nor --calibration_table is given",)
    return Options(
        data=values.data,
        reading=reading,
        data_rows=values.data_rows,
        label_column=values.label_column,
        classes=values.classes,
        goal=goal.parse(values.accuracy, values.metric_direction),
        labels=values.labels,
        output=values.accuracy_output,
        work_dir=values.work_dir or "tune-" + pathlib.Path(model).absolute().name,
        batch_size=values.batch_size,
        objective_shape=values.objective_shape,
        precisions=cast("tuple[Precision, ...]", precisions),
        backends=tried.backends,
        compared=tried.compared,
        server=tried.server,
        budget=Budget(values.max_trials, values.max_minutes, values.max_trial_minutes),
        calibration=calibration if "INT8" in precisions else None,
        calibration_table=values.calibration_table,
        methods=_methods(values)[1:] if calibration else (),
        percentile=values.calibration_percentile,
        cache=convert_command.read_cache(values),
        build_minutes=_building.minutes(values),
        retry_failed=values.retry_failed,
        log_file=values.log_file,
        warnings=warnings,
        **_judging_flags.read(values),
    )


@dataclasses.dataclass(frozen=True)
class _Tried:
    """Who makes what is tried. compared: those whose models the server does not run."""

    backends: tuple[str, ...]
    compared: tuple[str, ...] = ()
    server: Server | Literal[""] = ""


def _tried(values: flags.FlagValues, model: Source) -> _Tried:
    """By --backend, --server and the kind of the model. Raises: UsageError."""
    named = _backends(values)
    if not named:
        if not _of_tensorflow(model):
            named = (_PLANS,)
        elif values.server == "triton":
            named = (backends.default().name, _PLANS)
        else:
            default = backends.default().name
            # Without TensorRT's Python package there is nothing to compare with.
            return _Tried((default,), (_PLANS,) if bindings.installed() else (), "tensorflow")
    server: Server | Literal[""] = values.server or ""
    if not server:
        return _Tried(named)
    run = tuple(one for one in named if server in backends.servers(one))
    if not run:
        title = SERVER_TITLES[server]
        if not _of_tensorflow(model):
            able = [one for name in named for one in backends.servers(name)]
            raise errors.UsageError(
                f"--server={server}: {title} runs nothing that {' and '.join(named)} makes of {backends.described(model.path)}",
                f"--server={able[0]}, or leave --server out" if able else "leave --server out",
            )
        others = [one for one in backends.names() if server in backends.servers(one)]
        raise errors.UsageError(
            f"--server={server}: {title} runs nothing that --backend={','.join(named)} makes",
            f"--backend={others[0]}, or leave --server out" if others else "leave --server out",
        )
    return _Tried(run, tuple(one for one in named if one not in run), server)


def _of_tensorflow(model: Source) -> bool:
    """Whether TF-TRT could take it; a path that names nothing is refused elsewhere."""
    from tftrt_tools.models.kinds import table

    kind = table.kind(model.path)
    return kind.of_tensorflow or not kind.onnx(model.path)


def _backends(values: flags.FlagValues) -> tuple[str, ...]:
    """As they were named; () for none. Raises: UsageError."""
    if values.backend is None:
        return ()
    named = tuple(dict.fromkeys(one.strip().lower() for one in values.backend if one.strip()))
    wrong = [one for one in named if one not in backends.names()]
    if wrong or not named:
        raise errors.UsageError(
            f"--backend: {wrong[0] if wrong else 'nothing'} is no backend", "known: " + ", ".join(backends.names())
        )
    return named


def _precisions(values: flags.FlagValues) -> tuple[str, ...]:
    return tuple(one.strip().upper() for one in values.precision if one.strip())


def _calibration(values: flags.FlagValues) -> DataOptions | None:
    given = bool(values.calibration_data or values.calibrate_on_random_data)
    if given and values.calibration_table:
        raise errors.UsageError("--calibration_table and calibration data exclude each other", "give one of them")
    return _calibration_flags.read(values) if given else None


def _json(done: Tuning) -> str:
    import json

    return json.dumps(done.to_dict(), indent=2) + "\n"


def _reports(done: Tuning, values: flags.FlagValues) -> None:
    from tftrt_tools.command_line.report import html

    if values.plot:
        whole_file.write_text(values.plot, html.tuning_plot(done))
    if values.html:
        html.write_tuning(done, values.html)


def _none_keeps(done: Tuning) -> errors.CheckFailed:
    from tftrt_tools.studies.tuning import tried

    nobody = tried.nobody(done.server, done.compares)
    if done.best is None:
        first = done.trials[0].measured.failure if done.trials else done.ended
        return errors.CheckFailed(
            f"{nobody} gave a model: {first}", "the table names each trial's reason; --log_file keeps the log"
        )
    return errors.CheckFailed(
        f"{nobody} keeps {done.goal_text}; nearest is trial {done.best.number} ({done.best.text}) with "
        f"{_value(done.best.measured.accuracy)}",
        f"the search ended: {done.ended}; the notes above say what was left out, and best.flags in --work_dir has "
        "the nearest trial's flags",
    )


def _recipe(model: Source, found: Found, values: flags.FlagValues, options: Options) -> tuple[str, ...]:
    """The commands that make the winner, or the best, once more."""
    flag_file = (
        values.output_flagfile if values.output_flagfile and found.tuning.winner else f"{options.work_dir}/best.flags"
    )
    made = f"--output={values.output or _next.sibling(model.path, 'tuned')}"
    words = [["convert", f"--flagfile={flag_file}", made]]
    if found.maker and (exported := found.exported):
        words.insert(0, _export(model, found.maker.source(found.chosen.settings).path, exported, values, options))
    return tuple(shlex.join(["tftrt", *one]) for one in words)


def _export(model: Source, path: str, made: export.Options, values: flags.FlagValues, options: Options) -> list[str]:
    """The words of the export that a plan began with."""
    from tftrt_tools.models.inputs.options import image_flags

    asked, names = made.precision, list(_EXPORT_FLAGS)
    if asked.precision == "INT8":
        names += ["calibration_table", *_calibration_flags.names()]
    elif image_flags(options.reading):
        names += _calibration_flags.image_names()
    keys = [f"--signature_keys={one}" for one in made.signature_keys]
    words = [
        "export",
        model.path,
        f"--output={path}",
        f"--target={made.target}",
        *keys,
        f"--precision={asked.precision}",
        *_next.given(values, names),
    ]
    words += [f"--fp32_nodes={_flags.listed(asked.fp32_nodes)}"] if asked.fp32_nodes else []
    if asked.precision == "INT8" and not asked.table:
        words += [f"--calibration_method={asked.method}", f"--calibration_percentile={asked.percentile:g}"]
    return words if made.judge_precision else [*words, "--nojudge_precision"]


def _write_winner(model: Source, found: Found, values: flags.FlagValues, options: Options) -> None:
    from tftrt_tools.models.savedmodel import staging
    from tftrt_tools.studies.tuning import tune

    try:
        staging.check_target(values.output, values.overwrite)
    except errors.UsageError as error:
        # It was free, or a model, when the search began.
        flags_file = pathlib.Path(options.work_dir) / "best.flags"
        raise errors.UsageError(
            f"the winner was not written, for something appeared meanwhile: {error.cause}",
            f"`tftrt convert --flagfile={flags_file} --output=…` writes it elsewhere",
        ) from None
    with progress.on_terminal():
        made = tune.write_winner(model, values.output, found, options, values.overwrite)
    _output.console(values.json).print(made.text()[-1], soft_wrap=True)


def _print(done: Tuning, json_path: str | None) -> None:
    console = _output.console(json_path)
    columns = [
        ">trial",
        "model",
        *(f">{one}" for one in done.headings),
        ">rows/s",
        f">{done.goal.metric}",
        *([">SNR dB"] if done.goal.metric != "snr_db" else []),
        "goal kept",
        ">build s",
        ">MB",
        "served by",
        "",
    ]
    rows = [
        (
            one.trial or "",
            one.what,
            *_latencies(one.latencies, done.calls),
            f"{one.rows_per_second:.5g}" if one.rows_per_second else "",
            _value(one.accuracy),
            *([_value(one.snr_db, 4)] if done.goal.metric != "snr_db" else []),
            "" if one.kept is None else "yes" if one.kept else "failed" if one.failure else "NO",
            "" if one.build_seconds is None else f"{one.build_seconds:.1f}",
            f"{one.model_bytes / 1e6:.1f}" if one.model_bytes else "",
            one.served_by,
            one.remark,
        )
        for one in done.table
    ]
    console.print(
        _output.table(f"Trials for {done.goal_text} ({done.data['rows']} rows), on {done.gpu}", columns, rows)
    )
    for one in done.trials:
        if one.measured.failure:
            console.print(f"  trial {one.number} failed: {one.measured.failure}", soft_wrap=True)
    for text in (*done.notes, *(f"warning: {one}" for one in done.warnings)):
        console.print(f"  {text}", soft_wrap=True)
    console.print(f"{done.legend}. The search ended: {done.ended}", soft_wrap=True)
    if done.winner:
        console.print(_winner_text(done, done.winner), soft_wrap=True)
    for text in done.hints:
        console.print(f"  {text}", soft_wrap=True)
    if len(done.recipe) > 1:
        for line in ("made by:", *(f"  {one}" for one in done.recipe)):
            console.print(line, soft_wrap=True)


def _winner_text(done: Tuning, winner: Trial) -> str:
    ms, factors = done.winner_speed()
    text = f"winner: trial {winner.number}, {winner.text}: {ms:.3f} ms at {done.objective}, "
    text += ", ".join(factors)
    high = f"\n  kept in a higher precision: {', '.join(winner.high)}" if winner.high else ""
    return text + high


def _latencies(found: Mapping[str, Latency], calls: Sequence[str]) -> list[str]:
    return [f"{found[call].ms:.3f} ± {found[call].mad_ms:.3f}" if call in found else "" for call in calls]


def _value(value: float | None, digits: int = 6) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}g}" if math.isfinite(value) else str(value)
