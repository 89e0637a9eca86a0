"""Requests a second that a server answers with a tiny model, asked by perf_analyzer and by the load generator, in turn.

The development server is asked, and beside it, where they are named, that of another checkout (--before) and any other server that
serves the same model (--server). Rounds: each server and client comes in each round, in another order every time, so that other load on
the machine meets all. The ratios are medians of the rounds' ratios.
"""

import argparse
import contextlib
import pathlib
import statistics
import sys
import tempfile

import numpy as np

from benchmarks import _models, _perf_analyzer, _report
from benchmarks.serving_overhead import MODEL, save_echo
from tests.conformance.launch import LocalServer
from tftrt_tools.servers import client
from tftrt_tools.servers.load import generator, load_plan, payload

NEEDS_GPU = False
_FLOATS = 64
COLUMNS = [
    ("server", "server"),
    ("concurrency", "under way"),
    ("client", "client"),
    ("rate", "requests/s"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
]


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_rate", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--before", type=pathlib.Path, help="a checkout of the project, whose server is asked too")
    parser.add_argument("--server", help="HOST:PORT of a server that serves the model `echo` of --model")
    parser.add_argument(
        "--model", type=pathlib.Path, help="where the model goes, for --server; by default a temporary folder"
    )
    parser.add_argument(
        "--perf_analyzer", type=pathlib.Path, default=_models.ROOT / "build/perf_analyzer", help="fetched there once"
    )
    parser.add_argument("--json", type=pathlib.Path, default=_models.ROOT / "build/bench/serving_rate.json")
    options = parser.parse_args(argv)
    try:
        other = _perf_analyzer.fetched(options.perf_analyzer)
    except _perf_analyzer.Missing as missing:
        print(f"without perf_analyzer: {missing}")
        return 1
    results = _report.Results(options.json, "serving_rate")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = options.model or folder / MODEL
        if not model.exists():
            save_echo(model / "1")
        flags = [f"--model_name={MODEL}", f"--model_base_path={model}"]
        addresses = {"now": stack.enter_context(LocalServer(flags, folder / "now.txt")).grpc_address}
        if options.before:
            before = LocalServer(flags, folder / "before.txt", root=options.before.absolute())
            addresses["before"] = stack.enter_context(before).grpc_address
        if options.server:
            addresses["other"] = options.server
        for concurrency in options.concurrency:
            rounds = [
                _round(number, addresses, other, concurrency, options.seconds) for number in range(options.rounds)
            ]
            for server, client_name in rounds[0]:
                row = {key: _median(one[server, client_name][key] for one in rounds) for key, _ in COLUMNS[3:]}
                results.add(server=server, concurrency=concurrency, client=client_name, **row)
            _compare(results, rounds, concurrency)
    print(_report.table(COLUMNS, [row for row in results.rows if "client" in row]))
    return 0


def _round(number, addresses, other, concurrency, seconds):
    """{(server, client): {"rate", "p50_ms", "p99_ms"}}."""
    ways = [(server, client_name) for server in addresses for client_name in ("load", "perf_analyzer")]
    turned = [ways[(place + number) % len(ways)] for place in range(len(ways))]
    found = {}
    for server, client_name in turned:
        if client_name == "load":
            found[server, client_name] = _ours(addresses[server], concurrency, seconds)
        else:
            found[server, client_name] = _theirs(other, addresses[server], concurrency, seconds)
    return {way: found[way] for way in ways}


def _ours(address, concurrency, seconds):
    array = np.random.default_rng(0).standard_normal((1, _FLOATS)).astype(np.float32)
    load = payload.Payload(client.PREDICT, (client.request_bytes(MODEL, {"x": array}),))
    plan = load_plan.Plan(
        kind="closed", concurrency=concurrency, seconds=seconds, warm_up=load_plan.WarmUpRule(at_most_s=2.0)
    )
    found = generator.run(load_plan.Target(address=address), load, plan)
    assert found.ok.all(), found.errors
    return {
        "rate": found.rate(),
        "p50_ms": found.percentile(0.5).value / 1e6,
        "p99_ms": float(np.percentile(found.latency_ns, 99)) / 1e6,
    }


def _theirs(other, address, concurrency, seconds):
    (row,) = other.run(
        address,
        MODEL,
        "--shape",
        f"x:1,{_FLOATS}",
        f"--concurrency-range={concurrency}",
        "-p",
        str(int(1000 * seconds / 3)),
        "-r",
        "3",
        "-s",
        "999",
        "--max-threads",
        "16",
    )
    return {
        "rate": float(row["Inferences/Second"]),
        "p50_ms": float(row["p50 latency"]) / 1e3,
        "p99_ms": float(row["p99 latency"]) / 1e3,
    }


def _compare(results, rounds, concurrency):
    for server in dict.fromkeys(server for server, _ in rounds[0]):
        results.add(
            compared=f"{server}: load / perf_analyzer",
            concurrency=concurrency,
            rate=_median(one[server, "load"]["rate"] / one[server, "perf_analyzer"]["rate"] for one in rounds),
        )
        if server != "now":
            for client_name in ("load", "perf_analyzer"):
                results.add(
                    compared=f"now / {server}, by {client_name}",
                    concurrency=concurrency,
                    rate=_median(one["now", client_name]["rate"] / one[server, client_name]["rate"] for one in rounds),
                )


def _median(values):
    return round(statistics.median(values), 4)


if __name__ == "__main__":
    sys.exit(main())
