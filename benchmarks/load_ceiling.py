"""The load generator's own ceiling: how fast it drives a server that does nothing, beside perf_analyzer on the same cores.

Both drive the same null server (a gRPC server in Python that answers a constant; it has a core of its own, and is the limit where the
client is faster than it) in turn, round by round and each first in every other one, in a closed loop, pinned to one other core.
perf_analyzer sends float_val, which has as many bytes as the tensor_content that the generator sends. The client's processor time for a
request depends little on the server and on what else the machine does; perf_analyzer's is an estimate, since it does not say how many
requests it sent outside its windows.
"""

import argparse
import os
import pathlib
import resource
import statistics
import sys

import numpy as np

from benchmarks import _models, _perf_analyzer, _report
from tests import mock_server
from tftrt_tools.servers import client
from tftrt_tools.servers.load import generator, load_plan, payload

NEEDS_GPU = False
# Floats of a request: 1 KB and 600 KB (an image of 224 x 224 x 3).
SIZES = (256, 150_528)
COLUMNS = [
    ("client", "client"),
    ("kb", "KB"),
    ("concurrency", "under way"),
    ("rate", "requests/s"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("cpu_us", "client CPU us/request"),
]


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load_ceiling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 8])
    parser.add_argument(
        "--channels", type=int, default=load_plan.Target.channels, help="connections of the generator at most"
    )
    parser.add_argument(
        "--first",
        action="store_true",
        help="both clients and the server go before what else the machine does; needs root",
    )
    parser.add_argument(
        "--perf_analyzer", type=pathlib.Path, default=_models.ROOT / "build/perf_analyzer", help="fetched there once"
    )
    parser.add_argument("--json", type=pathlib.Path, default=_models.ROOT / "build/bench/load_ceiling.json")
    options = parser.parse_args(argv)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("it needs two cores: one for the client, one for the server")
        return 1
    try:
        other = _perf_analyzer.fetched(options.perf_analyzer)
    except _perf_analyzer.Missing as missing:
        print(f"without perf_analyzer: {missing}")
        other = None
    results = _report.Results(options.json, "load_ceiling")
    if options.first:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    results.note("first", options.first)
    with mock_server.MockServer(null=True, cores={cores[1]}) as server:
        os.sched_setaffinity(0, {cores[0]})
        for floats in SIZES:
            for concurrency in options.concurrency:
                rounds = [
                    _round(number, server, other, floats, concurrency, options) for number in range(options.rounds)
                ]
                for name in rounds[0]:
                    results.add(
                        client=name,
                        kb=round(floats * 4 / 1000),
                        concurrency=concurrency,
                        **{key: _median(one[name][key] for one in rounds) for key, _ in COLUMNS[3:]},
                    )
                if other:
                    _compare(results, rounds, floats, concurrency)
    print(_report.table(COLUMNS, [row for row in results.rows if "client" in row]))
    return 0


def _round(number, server, other, floats, concurrency, options):
    ways = {"load": lambda: _ours(server, floats, concurrency, options)}
    if other:
        ways["perf_analyzer"] = lambda: _theirs(other, server, floats, concurrency, options)
    # The second of a round finds a warmer machine: each is the second in every other round.
    measured = {name: ways[name]() for name in (ways if number % 2 == 0 else reversed(ways))}
    return {name: measured[name] for name in ways}


def _ours(server, floats, concurrency, options):
    load = payload.Payload(client.PREDICT, (_request(floats),))
    rule = load_plan.WarmUpRule(at_most_s=2.0)
    plan = load_plan.Plan(kind="closed", concurrency=concurrency, seconds=options.seconds, warm_up=rule)
    before = _children_cpu()
    own = os.times()
    found = generator.run(load_plan.Target(address=server.address, channels=options.channels), load, plan)
    used = _children_cpu() - before + sum(os.times()[:2]) - sum(own[:2])
    assert found.ok.all(), found.errors
    return {
        "rate": found.rate(),
        "p50_ms": found.percentile(0.5).value / 1e6,
        "p99_ms": float(np.percentile(found.latency_ns, 99)) / 1e6,
        "cpu_us": 1e6 * used / (found.sent_ns.size + found.warm_up.requests),
    }


def _theirs(other, server, floats, concurrency, options):
    before = _children_cpu()
    (row,) = other.run(
        server.address,
        mock_server.MODEL,
        "--shape",
        f"{mock_server.INPUT}:{floats}",
        f"--concurrency-range={concurrency}",
        # Three windows, its fewest; any spread of theirs is accepted.
        "-p",
        str(int(1000 * options.seconds / 3)),
        "-r",
        "3",
        "-s",
        "999",
        "--max-threads",
        "16",
    )
    used = _children_cpu() - before
    rate = float(row["Inferences/Second"])
    return {
        "rate": rate,
        "p50_ms": float(row["p50 latency"]) / 1e3,
        "p99_ms": float(row["p99 latency"]) / 1e3,
        "cpu_us": 1e6 * used / (rate * options.seconds),
    }


def _request(floats):
    """The PredictRequest, on the wire."""
    array = np.random.default_rng(0).standard_normal(floats).astype(np.float32)
    return client.request_bytes(mock_server.MODEL, {mock_server.INPUT: array})


def _compare(results, rounds, floats, concurrency):
    row = {
        "compared": "load / perf_analyzer, median of the rounds' ratios",
        "kb": round(floats * 4 / 1000),
        "concurrency": concurrency,
    }
    for key in ("rate", "p50_ms", "p99_ms", "cpu_us"):
        row[key] = _median(one["load"][key] / one["perf_analyzer"][key] for one in rounds)
    results.add(**row)


def _children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _median(values):
    return round(statistics.median(values), 4)


if __name__ == "__main__":
    sys.exit(main())
