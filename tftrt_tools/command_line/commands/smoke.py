"""usage: tftrt smoke ADDRESS --model_name=NAME [--flags]

Sends requests to a running TensorFlow Serving (the binary, the image or the development server) and checks the answers. It says whether
the TF-TRT engines ran there, how certain that is, and what would make it certain. ADDRESS is HOST:PORT of the gRPC port, or
triton://HOST:PORT of a Triton, which reports what runs the model.

With --original the answers are compared with those of the original model (a SavedModel, or an ONNX file in ONNX Runtime), by the metrics
and bounds of `tftrt verify`. Without it only their form is checked. Shapes come from --shapes, else from the metadata of the served
version, else from the signature with batch 1. On the server's own machine, `smoke` finds the files of the version, the server's
environment and its GPU memory through the process. Elsewhere --model_dir names the files.

Exit code 3: an answer is wrong, or a request was refused; with --require_engines also if the engines did not run, certainly or likely, in
every call.

examples:
  tftrt smoke localhost:8500 --model_name=resnet --original=resnet
  tftrt smoke gpu7:8500 --model_name=resnet --model_dir=/models/resnet --shapes='image:1x224x224x3,8x224x224x3' --require_engines
  tftrt smoke localhost:8500 --model_name=resnet --native_model_name=resnet_native --server_log=server.log
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import (
    _data_flags,
    _flags,
    _judging_flags,
    _next,
    _output,
    _places,
    _source_flags,
    _tls_flags,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from tftrt_tools.accuracy.judgement import Judgement
    from tftrt_tools.servers.serving.smoke.engine_evidence import Verdict
    from tftrt_tools.servers.serving.smoke.smoke_result import Smoke
    from tftrt_tools.servers.serving.smoke.version_on_disk import Model

# Addresses may have a scheme.
URLS = (_places.ARGUMENTS,)


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("model_name", None, "name of the model, as requests call it", **text)
    flags.DEFINE_integer(
        "model_version", None, "version to ask for; by default the one that the server answers with", **text
    )
    flags.DEFINE_string("version_label", "", "label to ask for, instead of a version", **text)
    flags.DEFINE_string(
        "original",
        "",
        "the model before conversion, or an ONNX file of it: the answers are compared with its own",
        **text,
    )
    flags.DEFINE_string(
        "model_dir",
        "",
        "directory of the served version, or the base path above it; on the server's machine it is found without",
        **text,
    )
    flags.DEFINE_string(
        "shapes", "", "shapes to send, as in `tftrt convert`; by default those of the metadata, else batch 1", **text
    )
    flags.DEFINE_string(
        "data",
        "",
        "inputs: arrays, pictures, TFRecords, .csv, .txt or module:function, as --data of `tftrt verify`; by "
        "default they are random",
        **text,
    )
    _data_flags.define_reading(values)
    flags.DEFINE_string(
        "ranges",
        "",
        "ranges of random inputs, INPUT:LOW:HIGH;…; by default what the graph tells, else floats are "
        "standard normal and integers 0 or 1",
        **text,
    )
    flags.DEFINE_integer(
        "batch_size",
        0,
        "rows of a request with --data; by default those of --shapes or the metadata, else at most 32",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_integer("seed", 0, "seed of random inputs", lower_bound=0, **text)
    flags.DEFINE_list("signature_keys", [], "signatures to ask, by default all", **text)
    flags.DEFINE_string(
        "thresholds", "", "bounds, as in `tftrt verify`; they replace the defaults of the same metric", **text
    )
    flags.DEFINE_string(
        "native_model_name", "", "name under which the same server has the original: both are timed in turn", **text
    )
    flags.DEFINE_string("server_log", "", "the server's log: smoke reads what TF-TRT writes to it meanwhile", **text)
    flags.DEFINE_integer(
        "server_pid",
        0,
        "id of the server's process, where its port does not lead to it (a published container port)",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_integer(
        "requests",
        20,
        "requests of each shape after the first; as many rounds of four against --native_model_name",
        lower_bound=2,
        **text,
    )
    flags.DEFINE_float(
        "timeout_seconds",
        60.0,
        "seconds for one request; one that builds engines takes minutes",
        lower_bound=0.001,
        **text,
    )
    flags.DEFINE_boolean("require_engines", False, "exit with 3 unless the engines ran, certainly or likely", **text)
    _judging_flags.define(values)
    _tls_flags.define(values)
    _source_flags.define(values)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Ask. Returns: the exit code."""
    address = _flags.one_argument("smoke", positional, "ADDRESS")
    if not values.model_name:
        raise errors.UsageError("--model_name is missing", "give the name that the server knows the model by")
    if values.model_version is not None and values.version_label:
        raise errors.UsageError("--model_version and --version_label exclude each other", "give one of them")
    from tftrt_tools.servers.client import protocols

    if protocols.of(address) is protocols.TRITON:
        for name, what in (
            ("model_dir", "is the directory of a SavedModel"),
            ("server_pid", "names a TensorFlow Serving"),
        ):
            if values[name].value:
                raise errors.UsageError(
                    f"--{name} {what}, and triton:// a Triton", "leave it out: the model's platform says what runs it"
                )
    from tftrt_tools.servers.serving.smoke import smoke

    options = smoke.Options(
        model_version=values.model_version,
        version_label=values.version_label,
        model_dir=values.model_dir,
        **_source_flags.read_given(values, "original"),
        data=values.data,
        shapes=values.shapes,
        ranges=values.ranges,
        thresholds=values.thresholds,
        batch_size=values.batch_size,
        seed=values.seed,
        signature_keys=tuple(filter(None, values.signature_keys)),
        repeats=values.requests,
        native_model_name=values.native_model_name,
        log_file=values.server_log,
        server_pid=values.server_pid,
        timeout=values.timeout_seconds,
        require_engines=values.require_engines,
        tls=_tls_flags.read(values),
        reading=_data_flags.reading(values),
        data_rows=values.data_rows,
        **_judging_flags.read(values),
    )
    with progress.on_terminal():
        done = smoke.smoke(address, values.model_name, options)
    _print(done, values.json)
    _output.write_json(done, values.json)
    if done.passed:
        _next.show(
            values,
            [
                "bench",
                address,
                *_next.given(values, ("model_name", "model_version", "version_label", *_tls_flags.NAMES)),
                *_inputs(values, done),
            ],
        )
    return errors.EXIT_DONE if done.passed else errors.EXIT_CHECK


def _inputs(values: flags.FlagValues, done: Smoke) -> list[str]:
    """The flags of `bench` that send to a signature what was sent to it here."""
    from tftrt_tools.models.savedmodel import shapes, signatures
    from tftrt_tools.servers.serving.smoke import plan

    asked = list(dict.fromkeys(one.signature for one in done.calls))
    signature = signatures.DEFAULT if signatures.DEFAULT in asked else asked[0]
    named = [] if signature == signatures.DEFAULT else [f"--signature_keys={signature}"]
    if values.data:
        return [*named, *_next.given(values, ("data", "data_rows", *_next.of_pictures(values)))]
    drawn = done.shapes_from[signature] in plan.OF_SIGNATURE
    if values.shapes or not drawn and (done.model is None or _next.open_input(str(done.model.path))):
        sent = [one.shapes for one in done.calls if one.signature == signature]
        named.append(f"--shapes={shapes.flag_text(signature, sent)}")
    return [*named, *_next.given(values, ("ranges",))]


def _print(done: Smoke, json_path: str | None) -> None:
    from tftrt_tools.models.savedmodel import shapes, signatures
    from tftrt_tools.servers.serving.smoke import answer_check

    console = _output.console(json_path)

    def say(label: str, text: str) -> None:
        console.print(f"{label:<11}{text}", soft_wrap=True)

    say(
        "server",
        f"{done.address}, {done.server_version or 'version not known'}"
        + (f" (pid {done.server.pid})" if done.server else f"; its process is not seen: {done.unseen}"),
    )
    say(
        "model",
        f"{done.model_name}, version {done.model_version}"
        + (_files(done.model) if done.model else "; its files are not seen"),
    )
    for source in dict.fromkeys(done.shapes_from.values()):
        named = (
            signatures.label(name, done.twins.get(name, ())) for name, one in done.shapes_from.items() if one == source
        )
        say("shapes", f"{', '.join(named)}: {source}")
    rows = [
        (
            one.signature,
            shapes.call_text(one.shapes),
            one.requests,
            _ms(one.first_seconds),
            _ms(one.p50_seconds),
            "refused" if one.refused else "yes",
            one.engines.text(),
            f"{one.native.value:.2f}" if one.native else "",
        )
        for one in done.calls
    ]
    columns = ["signature", "shapes", ">requests", ">first ms", ">p50 ms", "answered", "engines ran"]
    with_native = any(one.native for one in done.calls)
    console.print(
        _output.table(
            "Requests",
            columns + ([">times native"] if with_native else []),
            rows if with_native else [row[:-1] for row in rows],
        )
    )
    if done.judged:
        _print_comparisons(console, done, done.judged)
    else:
        say("answers", answer_check.FORM_ONLY if not done.original else "none to compare")
    _print_engines(say, done.engines)
    for warning in done.judged.warnings if done.judged else ():
        say("note", warning)
    for line in done.drew:
        say("random", line)
    if done.dropped:
        say("note", f"{done.dropped} rows of the data were left out: no batch size fits them")
    for problem in done.problems:
        console.print(f"  failed: {problem}", soft_wrap=True)
    console.print(done.verdict, style="bold green" if done.passed else "bold red")


def _files(model: Model) -> str:
    plain = model.to_dict()
    engines = terminal.counted(plain["engine_ops"], "engine op") + (
        f" ({', '.join(plain['precisions'])})" if plain["precisions"] else ""
    )
    built = f", built for compute capability {', '.join(model.built_for)}" if model.built_for else ""
    return f": {model.path}, {engines}{built}, {terminal.counted(model.warmup_records, 'warm-up record')}"


def _print_comparisons(console: Console, done: Smoke, judged: Judgement) -> None:
    from tftrt_tools.accuracy import metrics
    from tftrt_tools.command_line.commands import _answers

    _answers.show(
        console,
        "Answers against the original's",
        judged.comparisons,
        judged.bounds,
        {miss.output for miss in judged.misses},
        [name for name in metrics.shown(short=True) if not metrics.METRICS[name].of_classes],
    )
    for name, value in judged.functions.items():
        console.print(f"{name}: {value:.6g}")
    console.print(f"{'bounds':<11}{done.arithmetic[0]}: {done.arithmetic[1]}", soft_wrap=True)


def _print_engines(say: Callable[[str, str], None], verdict: Verdict) -> None:
    sure = f" ({verdict.certainty})" if verdict.certainty else ""
    say("engines", f"did they run? {verdict.answer}{sure}: {verdict.reason}")
    shown: dict[tuple[str, str, str, str], list[str]] = {}
    for one in verdict.evidence:
        shown.setdefault((one.source, one.seen, one.speaks, one.weight), []).append(one.call)
    for (source, seen, speaks, weight), calls in shown.items():
        if seen == verdict.reason:
            continue
        where = f" [{', '.join(calls)}]" if all(calls) and len(verdict.calls) > len(calls) else ""
        say("", f"{source}: {seen}{where} -> " + ("says nothing" if speaks == "nothing" else f"{speaks}, {weight}"))
    for line in verdict.settle:
        say("to settle", line)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.2f}"
