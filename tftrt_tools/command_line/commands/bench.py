"""usage: tftrt bench MODEL [MODEL …] [--flags]
       tftrt bench ADDRESS --model_name=NAME [--flags]
       tftrt bench --in_process=MODEL_DIR [--flags]
       tftrt bench --tune_batching=MODEL_DIR --slo=SLO [--flags]

MODEL …: how fast are these models on this machine, without a server? Models may be SavedModels, ONNX files, plans or PyTorch programs.
All of them run in one process and get the same requests in interleaved rounds. Each model is compared with the first one, by the rule
of `tftrt regress`. `bench` adds rounds until every comparison is certain, up to --max_rounds.

ADDRESS: how fast does a running TensorFlow Serving (the binary, the image or the development server) answer Predict requests? ADDRESS is
HOST:PORT of its gRPC port, or triton://HOST:PORT of a Triton. Requests are serialised before the clock starts. Several different requests
are sent in turn.

--scenario=closed keeps --concurrency requests under way: each sender waits for an answer before it sends the next request.
--scenario=open sends at --rate, as users do, whether or not earlier requests were answered. The time of a request counts from the moment
at which it was due. --scenario=offline makes all requests due at once and measures how long they take. --concurrency, --rate and
--batch_size take lists: each combination is a row.

--slo='p99<20ms' with --scenario=open and no --rate searches for the highest rate that keeps the SLO. Otherwise every row has to keep it.
A percentile is shown only if enough requests were answered (130 for p95, 662 for p99, 6636 for p99.9).

--in_process sends the same requests to the same runtime without a server, in a process of its own. The difference is the cost of
serving. --rest reads the server's own counters before and after each row. --breakdown combines both with a trace of the model in
process, and shows where the time of a request goes. The parts add up to the whole.

--on=ray://HEAD:10001 --generators=4 lets four machines of a Ray cluster send the load. They share one schedule, or one number of requests
under way, and begin together: their clocks are compared. Percentiles are those of all requests.

--tune_batching searches the batching parameters for a model. Each trial starts a server (--launch) with other parameters and searches
for the highest rate that keeps the percentile of --slo. Batch sizes come from the engines. The trials are kept in --work_dir: the same
command continues an interrupted search. At the end the winner is compared with a server without batching, in turns.

Exit codes: 3 if --slo or --require_no_errors does not hold, or if answers are wrong; 1 if the server cannot be reached, stopped
answering, or failed every request.

examples:
  tftrt bench resnet resnet_fp16 resnet.onnx --shapes='image:8x224x224x3'
  tftrt bench localhost:8500 --model_name=resnet --concurrency=1,2,4,8 --rest=localhost:8501 --html=resnet.html
  tftrt bench localhost:8500 --model_name=resnet --scenario=open --rate=100,200 --distribution=poisson --duration_seconds=60
  tftrt bench localhost:8500 --model_name=resnet --scenario=open --slo='p99<20ms' --batch_size=1,8
  tftrt bench localhost:8500 --model_name=resnet --in_process=/models/resnet/1 --original=resnet --json=bench.json
  tftrt bench server:8500 --model_name=resnet --concurrency=64 --on=ray://head:10001 --generators=4
  tftrt bench --tune_batching=/models/resnet/1 --slo='p99<10ms' --launch=binary --distribution=poisson
  tftrt bench localhost:8500 --model_name=resnet --breakdown --rest=localhost:8501 --model_dir=/models/resnet/1 --plot=time.png
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.command_line.commands import (
    _batching,
    _calling,
    _data_flags,
    _flags,
    _fleet,
    _judging_flags,
    _output,
    _places,
    _side_by_side,
    _source_flags,
    _tls_flags,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table
    from typing_extensions import TypeIs

    from tftrt_tools.studies.batching.tuned import Tuned
    from tftrt_tools.studies.bench.breakdown import Breakdown
    from tftrt_tools.studies.bench.measurements import Bench, Row
    from tftrt_tools.studies.side_by_side.measured import SideBySide

# Addresses may have a scheme.
URLS = (_places.ARGUMENTS, "rest", "metrics_url", "on")
OUTPUTS = ("csv", "requests_csv", "hdr", "html", "plot")


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("model_name", "", "name of the model, as requests call it", **text)
    flags.DEFINE_integer(
        "model_version", None, "version to ask; by default the one that the server answers with", **text
    )
    flags.DEFINE_string("version_label", "", "label to ask, instead of a version", **text)
    flags.DEFINE_string(
        "signature_keys", "", "the signature to ask; by default serving_default, or the only one", **text
    )
    flags.DEFINE_string(
        "shapes",
        "",
        "shapes to send, as in `tftrt convert`, several in turn; by default batch 1, as the signature allows",
        **text,
    )
    flags.DEFINE_list("batch_size", [], "rows of a request; a list is swept", **text)
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
    flags.DEFINE_integer("seed", 0, "seed of random inputs and of Poisson arrivals", lower_bound=0, **text)
    flags.DEFINE_integer("distinct", 16, "number of different requests, sent in turn", lower_bound=1, **text)
    flags.DEFINE_string("scenario", "closed", "closed, open or offline", **text)
    flags.DEFINE_list(
        "concurrency", [], "requests under way at once, closed [1] and offline [4]; a list is swept", **text
    )
    flags.DEFINE_list("rate", [], "requests a second, open; a list is swept", **text)
    flags.DEFINE_enum("distribution", "constant", ["constant", "poisson"], "gaps between arrivals, open", **text)
    flags.DEFINE_string("schedule_file", "", "arrivals of the open loop: seconds from the start, one a line", **text)
    flags.DEFINE_float("duration_seconds", 10.0, "measured seconds of a row", lower_bound=0.001, **text)
    flags.DEFINE_integer(
        "min_queries",
        0,
        "a row lasts until this many requests were answered or failed, if that takes longer; offline "
        "sends exactly this many",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_float(
        "warmup_seconds",
        10.0,
        "seconds of warm-up before each row at most, not counted; it ends when three half seconds agree within 10 %",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_string("slo", "", "SLO, e.g. 'p99<20ms' or 'p99<20ms,p50<=5ms,errors<=0.1%'", **text)
    flags.DEFINE_float(
        "lowest_rate",
        0.0,
        "the rate at which the search for --slo begins, and below which it gives up; by default "
        "it begins at half of the rate that single requests in a row reach, and gives up at a 64th of that",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_float(
        "highest_rate", 0.0, "the highest rate that the search for --slo tries; 0 for no limit", lower_bound=0, **text
    )
    flags.DEFINE_float(
        "resolution",
        0.05,
        "precision of the search for --slo, as a fraction of the rate",
        lower_bound=0.001,
        upper_bound=1,
        **text,
    )
    flags.DEFINE_enum(
        "expected",
        "first",
        ["first", "none"],
        "what answers are compared with, on a sample: the first answer to the same request, or nothing",
        **text,
    )
    flags.DEFINE_string(
        "original",
        "",
        "the model before conversion: the first answers have to be like its own, by the metrics and "
        "bounds of `tftrt verify`",
        **text,
    )
    flags.DEFINE_string("thresholds", "", "bounds for --original, as in `tftrt verify`", **text)
    _judging_flags.define(values)
    flags.DEFINE_string("in_process", "", "model to measure without a server, beside the server or alone", **text)
    flags.DEFINE_string("rest", "", "HOST:PORT of the server's REST port, where its counters are read", **text)
    flags.DEFINE_string("metrics_url", "", "the page with the server's counters, instead of --rest", **text)
    flags.DEFINE_string("model_dir", "", "directory of the served version; the result keeps its digests", **text)
    flags.DEFINE_boolean(
        "breakdown", False, "show where a request's time goes; needs --rest, and --model_dir or --in_process", **text
    )
    flags.DEFINE_float("timeout_seconds", 60.0, "seconds for one request", lower_bound=0.001, **text)
    _tls_flags.define(values)
    _source_flags.define(values)
    flags.DEFINE_integer("channels", 1, "connections of each load process", lower_bound=1, **text)
    flags.DEFINE_integer(
        "processes",
        0,
        "load processes; 0 takes half of the cores, as the server may need the others",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_boolean("require_no_errors", False, "exit with 3 where any request failed", **text)
    _fleet.define_load(values)
    _batching.define(values)
    _side_by_side.define(values)
    flags.DEFINE_string("csv", None, "write a row for each point to this file", **text)
    flags.DEFINE_string("requests_csv", None, "write a row for each request to this file", **text)
    flags.DEFINE_string(
        "hdr", None, "write the response times of each row to this file, as an HdrHistogram log", **text
    )
    flags.DEFINE_string("html", None, "write a report with plots to this file", **text)
    flags.DEFINE_string("plot", None, "write the bars of --breakdown to this file, .svg or .png", **text)


def result(values: flags.FlagValues, positional: list[str]) -> Bench | Tuned | SideBySide:
    """Measure, and write the files: some of them get their rows meanwhile. Raises: also where a file could not be written."""
    done: Bench | Tuned | SideBySide
    lost: list[str] = []
    if values.tune_batching:
        done, lost = _batching.result(values, positional)
    elif models := _models(values, positional):
        done = _side_by_side.result(values, models)
    else:
        done, lost = _measured(values, positional)
    if lost:
        error = errors.TftrtError("not written: " + "; ".join(lost))
        error.result = done
        raise error
    return done


def show(done: Bench | Tuned | SideBySide, values: flags.FlagValues) -> None:
    """Print what was measured."""
    if _of_server(done):
        _print(done, values.json)
    elif _of_models(done):
        _side_by_side.show(done, values)
    else:
        _batching.show(done, values)


def write(done: Bench | Tuned | SideBySide, values: flags.FlagValues) -> None:
    """Write --json of models; `result` has written all files of others."""
    if _of_models(done):
        _output.write_json(done, values.json)


def failure(done: Bench | Tuned | SideBySide, values: flags.FlagValues) -> errors.TftrtError | None:
    """What ends the command with another exit code than 0."""
    if _of_models(done):
        return _side_by_side.failure(done, values)
    if not _of_server(done):
        return _batching.failure(done)
    kinds = {errors.EXIT_CHECK: errors.CheckFailed, errors.EXIT_FAILED: errors.TftrtError}
    kind = kinds.get(done.exit_code)
    unmeasured = done.ended or ("no request was answered" if done.complete else "a point was cut short")
    said = done.problems[0] if done.problems else unmeasured
    more = f" (and {len(done.problems) - 1} more)" if len(done.problems) > 1 else ""
    return kind(f"{said}{more}", "the result has every row") if kind else None


def _of_server(done: Bench | Tuned | SideBySide) -> TypeIs[Bench]:
    return done.document == "bench"


def _of_models(done: Bench | Tuned | SideBySide) -> TypeIs[SideBySide]:
    return done.document == "side by side"


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Measure. Returns: the exit code."""
    if values.tune_batching:
        return _batching.run(values, positional)
    if models := _models(values, positional):
        found = _side_by_side.result(values, models)
        _side_by_side.show(found, values)
        _output.write_json(found, values.json)
        return _calling.exit_code(_side_by_side.failure(found, values))
    done, lost = _measured(values, positional, shown=True)
    return errors.EXIT_FAILED if lost and not done.exit_code else done.exit_code


def _models(values: flags.FlagValues, positional: list[str]) -> list[str]:
    """The arguments where they are models on this machine; [] where there is none, or where one is a server's address.

    Raises: UsageError for what is neither, and for flags that do not go with the one or the other.
    """
    found = _side_by_side.models(values, positional)
    if not found:
        _batching.check_absent(values)
        _side_by_side.check_absent(values)
    return found


def _measured(values: flags.FlagValues, positional: list[str], shown: bool = False) -> tuple[Bench, list[str]]:
    """Measure a server, or a model with its loads. Args: shown: print the result before the files are written. Returns: (the result, a line
    for each file that could not be written)."""
    if positional or not values.in_process:
        address = _flags.one_argument("bench", positional, "MODEL… or ADDRESS")
        if not values.model_name:
            raise errors.UsageError("--model_name is missing", "give the name that the server knows the model by")
    else:
        address = ""
    if values.model_version is not None and values.version_label:
        raise errors.UsageError("--model_version and --version_label exclude each other", "give one of them")
    on = _fleet.read_load(values)
    from tftrt_tools.command_line.commands import _bench_outputs
    from tftrt_tools.command_line.report import pictures
    from tftrt_tools.studies.bench import bench, live, options

    if values.plot:
        pictures.check(values.plot)
    models = _source_flags.read_given(values, "original", "in_process")
    chosen = options.from_flags(address, values, models, _tls_flags.read(values), _data_flags.reading(values), on)
    files = _bench_outputs.Outputs(values.json, values.csv, values.requests_csv, values.html, values.hdr, values.plot)
    with files, live.view() as view:
        done = bench.bench(chosen, view, files)
    if shown:
        _print(done, values.json)
    lost = files.write(done, chosen.goal)
    for problem in lost if shown else ():
        _output.console(values.json).print(f"  not written: {problem}", soft_wrap=True)
    return done, lost


def _print(done: Bench, json_path: str | None) -> None:
    console = _output.console(json_path)

    def say(label: str, text: str) -> None:
        console.print(f"{label:<10}{text}", soft_wrap=True)

    asked = done.subject
    where = (
        f"{asked.address}, model {asked.model_name}, version {asked.model_version}"
        if asked.address
        else asked.model_dir
    )
    say(
        "asked",
        f"{where}, signature {asked.signature}; {terminal.counted(asked.requests, 'request')} in turn ({asked.values}), "
        f"{asked.request_bytes} bytes each{' on average' if len(asked.shapes) > 1 else ''}; {'; '.join(asked.shapes)}",
    )
    say("answers", asked.compared)
    say("machine", done.fingerprint.text())
    console.print(_points(done))
    if any(row.generators for row in done.rows):
        console.print(_generators(done))
    for one in done.searched:
        batch = f", batch {one.batch_size}" if one.batch_size is not None else ""
        say(
            "highest",
            f"{one.target}{batch}: "
            + (
                f"{one.rate:.5g} requests a second keep {done.goal}"
                if one.rate is not None
                else f"no rate was shown to keep {done.goal}"
            )
            + f"; {one.ended}",
        )
    for price in done.prices:
        if price.added_ms is not None:
            say(
                "price",
                f"{price.point.text()}: serving adds {price.added_ms:.3f} ms to a median of {price.in_process_ms:.3f} ms",
            )
    for taken in done.breakdowns:
        console.print(_breakdown(taken))
        for note in taken.notes:
            console.print(f"  {note}", soft_wrap=True)
    _say_what_was_seen(say, done)
    for problem in done.problems:
        console.print(f"  failed: {problem}", soft_wrap=True)
    if not done.complete:
        console.print(f"NOT COMPLETE: {done.ended or 'a point was cut short'}", style="bold red")
    elif done.goal or done.problems:
        console.print("FAILED" if done.problems else "PASSED", style="bold red" if done.problems else "bold green")


def _points(done: Bench) -> Table:
    several = len({row.target for row in done.rows}) > 1
    by_rows = any(row.rows_per_second != row.throughput for row in done.rows)
    names = list(done.rows[0].response.percentiles)
    rows = []
    for row in done.rows:
        cells: list[object] = [row.target] if several else []
        cells += [row.point.text(), row.answered, _failed(row), f"{row.throughput:.1f}"]
        cells += [f"{row.rows_per_second:.1f}"] if by_rows else []
        cells += [row.response.text(name) for name in names] + [
            "" if row.response.max_ms is None else f"{row.response.max_ms:.3f}"
        ]
        rows.append(cells + ([{True: "kept", False: "MISSED", None: "undecided"}[row.kept]] if done.goal else []))
    columns = (["target"] if several else []) + ["point", ">answered", ">failed", ">answers/s"]
    columns += [">rows/s"] if by_rows else []
    columns += [f">{name} ms" for name in names] + [">max ms"] + (["goal"] if done.goal else [])
    return _output.table("Response times", columns, rows)


def _generators(done: Bench) -> Table:
    rows = [
        (
            row.point.text(),
            f"{one.number}, {one.host}",
            one.answered,
            one.requests - one.answered or "",
            f"{one.rate:.1f}",
            one.late if row.offered is not None else "",
            f"{one.cpu_share:.2f} of {min(one.processes, one.cores)}",
            f"{one.clock_offset_ms:+.1f} ± {one.clock_uncertainty_ms:.1f}",
            "gone" if not one.processes else "the limit" if one.limited and row.limited else "",
        )
        for row in done.rows
        for one in row.generators
    ]
    columns = ["point", "generator", ">answered", ">failed", ">answers/s", ">late", ">cores used", ">clock ms", ""]
    return _output.table("Generators", columns, rows)


def _failed(row: Row) -> str:
    refused = f" ({row.refused} refused)" if row.refused else ""
    return f"{row.failed}{refused}" if row.failed else ""


def _breakdown(taken: Breakdown) -> Table:
    rows: list[tuple[str, ...]] = [
        (part.name, f"{part.ms:.3f}", f"{taken.share(part):.1%}", part.found) for part in taken.parts
    ]
    rows.append(("a request of the client", f"{taken.total_ms:.3f}", "100.0%", ""))
    return _output.table(f"Where the time goes: {taken.point.text()}, means", ["part", ">ms", ">share", "how"], rows)


def _say_what_was_seen(say: Callable[[str, str], None], done: Bench) -> None:
    for row in done.rows:
        lines = [f"{one.count} x {one.code}: {one.message}" for one in row.errors]
        lines += [one for one in (row.limited, row.waits, *row.notes) if one]
        lines += [f"each with 99 % confidence: {row.response.bounds()}"] if row.response.below else []
        lines += [f"the server counted {row.server.text()}"] if row.server else []
        lines += [use.text() for use in row.gpus]
        for number, line in enumerate(lines):
            say(
                "seen" if number == 0 else "",
                f"{row.target}, {row.point.text()}: {line}" if number == 0 else f"  {line}",
            )
