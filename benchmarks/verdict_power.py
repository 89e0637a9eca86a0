"""The verdict of `tftrt regress`: how often it calls a model worse or better than itself, and how often it finds a slow-down.

Simulated runs are put together from recorded rounds: the development server with one model under both names, each request's time kept
(verdict_rounds_*.npz; verdict_rounds.txt says where they were recorded). A run takes stretches of neighbouring rounds from random
places, so that drift, bursts and outliers stay as they were, exchanges the two models by the toss of a coin, and multiplies the candidate's
times. It is then judged as the command does it: three looks, p50, p99 and throughput. Beside it, runs of rounds that are drawn from a model
of noise: a level that drifts, requests with a long tail, rounds that hang together, whole rounds that are off. The second table is of short
runs: 12 rounds of 16 requests, one look, p50 alone; there the drawn candidate also becomes slower as the run goes on, or in a burst.

Real runs start a server each and compare a model with itself by the command's own code.

usage: python -m benchmarks.verdict_power [--runs=1000] [--injected_runs=300] [--short_runs=2000] [--real=0] [--record=ROUNDS --output=FILE]
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import pathlib
import sys
import tempfile

import numpy as np

from benchmarks import _report
from tftrt_tools.studies.regression import verdict as verdicts

NEEDS_GPU = False
SAMPLES = {name: pathlib.Path(__file__).with_name(f"verdict_rounds_{name}.npz") for name in ("calm", "busy")}
LOOKS = (30, 60, 90)
# Share of runs of a model against itself that may be called worse or better.
PROMISED = 0.01
SLOWER = (0.05, 0.1, 0.2)
# Of a short run: rounds, requests of each model in a round, and what the candidate's times are multiplied by, less one.
SHORT_ROUNDS, SHORT_REQUESTS, SHORT_SLOWER = 12, 16, (0.2, 1.0, 10.0)
_MODEL = "digits_cnn"
_REQUESTS = 96
# Seconds are kept as thousandths of the natural logarithm of microseconds: to 0.1 %.
_SCALE = 1e-3
NOISES = {
    "drifting level": {},
    "neighbouring rounds hang together (0.3)": {"correlation": 0.3},
    "neighbouring rounds hang together (0.6)": {"correlation": 0.6},
    "a tenth of the rounds off by 40 %": {"off": 0.4},
}


def packed(seconds):
    """uint16 of an array of seconds."""
    return np.clip(np.log(np.asarray(seconds) * 1e6) / _SCALE, 0, 65535).round().astype(np.uint16)


def unpacked(values):
    """Seconds of what `packed` gave."""
    return np.exp(values.astype(float) * _SCALE) * 1e-6


def sample(name):
    """(latencies, rates) of one of SAMPLES: seconds (rounds, 2, requests), answers a second (rounds, 2)."""
    with np.load(SAMPLES[name]) as kept:
        return unpacked(kept["latencies"]), kept["rates"].astype(float)


def recorded_run(latencies, rates, rng, slower):
    """A run of LOOKS[-1] rounds from a recording. Returns: ((native latencies, candidate's), (native rates, candidate's))."""
    piece = LOOKS[0]
    # No round twice: the same noise in two stretches would look like a difference that lasts.
    first = int(rng.integers(piece))
    starts = first + piece * rng.permutation((len(latencies) - first) // piece)[: -(-LOOKS[-1] // piece)]
    places = np.concatenate([np.arange(start, start + piece) for start in starts])[: LOOKS[-1]]
    native = int(rng.integers(2))
    return (
        (latencies[places, native], latencies[places, 1 - native] * (1 + slower)),
        (rates[places, native], rates[places, 1 - native] / (1 + slower)),
    )


def drawn_run(rng, slower, correlation=0.0, off=0.0, rounds=LOOKS[-1], requests=_REQUESTS):
    """A run that is drawn: a level that wanders by 12 % and rises by 40 %, ratios that scatter by 5 %, one request of a hundred much
    slower."""
    level = _hanging(rounds, 0.8, 0.12, rng) + np.linspace(0, 0.4, rounds)
    gaps = _hanging(rounds, correlation, 0.05, rng) + (rng.random(rounds) < 0.1) * rng.normal(0, off, rounds)
    sides = []
    for sign in (-0.5, 0.5):
        typical = 1e-3 * np.exp(level + sign * gaps)[:, None]
        own = typical * (1 + rng.gamma(1, 0.15, (rounds, requests)))
        sides.append(own * (1 + (rng.random(own.shape) < 0.01) * rng.exponential(3, own.shape)))
    sides[1] *= 1 + slower
    return tuple(sides), tuple(1 / one.mean(axis=1) for one in sides)


def short_recorded_run(latencies, rng, slower):
    """SHORT_ROUNDS neighbouring rounds of a recording. Returns: (native latencies, candidate's)."""
    first, native = int(rng.integers(len(latencies) - SHORT_ROUNDS + 1)), int(rng.integers(2))
    places, kept = (
        slice(first, first + SHORT_ROUNDS),
        slice(int(rng.integers(latencies.shape[2] - SHORT_REQUESTS + 1)), None),
    )
    found = latencies[places, :, kept][:, :, :SHORT_REQUESTS]
    return found[:, native], found[:, 1 - native] * (1 + slower)


def short_drawn_run(rng, slower, correlation=0.0, off=0.0, drift=0.0, burst=0.0):
    """As `drawn_run`, short. drift: the candidate's ratio changes by so much (a logarithm) from the first round to the last, up or down
    around its mean; burst: a third of the rounds, together, has a ratio larger or smaller by so much. Both only where it is slower: of a
    model against itself they are a difference that is there."""
    (native, candidate), _ = drawn_run(rng, slower, correlation, off, SHORT_ROUNDS, SHORT_REQUESTS)
    if slower:
        gaps = rng.choice((-1, 1)) * np.linspace(-drift / 2, drift / 2, SHORT_ROUNDS)
        first = int(rng.integers(SHORT_ROUNDS - SHORT_ROUNDS // 3 + 1))
        gaps[first : first + SHORT_ROUNDS // 3] += rng.choice((-1, 1)) * burst
        candidate = candidate * np.exp(gaps)[:, None]
    return native, candidate


def short_judged(run):
    """As `judged`, of a short run."""
    (found,) = verdicts.judge(list(run[0]), list(run[1])).judgements
    return {"outcome": found.verdict, "rounds": SHORT_ROUNDS}


def _hanging(count, correlation, spread, rng):
    """A first-order autoregression."""
    steps = rng.normal(0, spread * np.sqrt(1 - correlation**2), count)
    values = np.empty(count)
    values[0] = rng.normal(0, spread)
    for place in range(1, count):
        values[place] = correlation * values[place - 1] + steps[place]
    return values


def judged(run):
    """{"outcome": "worse", "better", "same" or "cannot tell", "rounds"} as the command comes to it: the first look that decides."""
    (native, candidate), (native_rates, candidate_rates) = run
    for look in LOOKS:
        found = verdicts.judge(
            list(native[:look]),
            list(candidate[:look]),
            verdicts.DEFAULT_METRICS,
            looks=len(LOOKS),
            native_rates=native_rates[:look],
            candidate_rates=candidate_rates[:look],
        )
        each = [one.verdict for one in found.judgements]
        if verdicts.WORSE in each:
            return {"outcome": verdicts.WORSE, "rounds": look}
        if each[0] != verdicts.UNSURE:
            return {"outcome": verdicts.BETTER if verdicts.BETTER in each else each[0], "rounds": look}
    return {"outcome": verdicts.BETTER if verdicts.BETTER in each else verdicts.UNSURE, "rounds": look}


def rates_of(make, runs, judge=judged):
    """Shares of the outcomes of `runs` runs of function `make` of a generator, and the mean number of rounds."""
    with concurrent.futures.ProcessPoolExecutor() as pool:
        found = list(pool.map(functools.partial(_run, make, judge), range(runs), chunksize=10))
    counts = collections.Counter(one["outcome"] for one in found)
    names = (verdicts.WORSE, verdicts.BETTER, verdicts.SAME, verdicts.UNSURE)
    return {
        "runs": runs,
        **{name: counts[name] / runs for name in names},
        "rounds": float(np.mean([one["rounds"] for one in found])),
    }


def _run(make, judge, number):
    return judge(make(np.random.default_rng(number)))


def simulated(runs, injected_runs):
    """Rows of the table."""
    makers = {f"recorded, {name} machine": functools.partial(recorded_run, *sample(name)) for name in SAMPLES}
    makers |= {name: functools.partial(drawn_run, **noise) for name, noise in NOISES.items()}
    rows = []
    for name, make in makers.items():
        for slower in (0.0, *SLOWER):
            found = rates_of(functools.partial(make, slower=slower), injected_runs if slower else runs)
            rows.append({"noise": name, "slower": f"{slower:.0%}", **found})
            print(rows[-1], flush=True)
    return rows


def short(runs):
    """Rows of the table of short runs."""
    makers = {f"recorded, {name} machine": functools.partial(short_recorded_run, sample(name)[0]) for name in SAMPLES}
    noises = NOISES | {
        "the ratio drifts by a factor of 2.5": {"drift": np.log(2.5)},
        "a burst: a factor of 2.5": {"burst": np.log(2.5)},
    }
    makers |= {name: functools.partial(short_drawn_run, **noise) for name, noise in noises.items()}
    rows = []
    for name, make in makers.items():
        for slower in (0.0, *SHORT_SLOWER):
            found = rates_of(functools.partial(make, slower=slower), runs, short_judged)
            rows.append({"noise": name, "slower": f"{slower:.0%}", **found})
            print(rows[-1], flush=True)
    return rows


def record(rounds_wanted, output):
    """Record rounds of the development server with one model under both names."""
    from tftrt_tools.servers import client as clients
    from tftrt_tools.servers.load import load_plan, payload
    from tftrt_tools.studies.regression import pair, rounds

    with tempfile.TemporaryDirectory() as folder:
        model, rng = _model(folder), np.random.default_rng(0)
        images = [rng.random((1, 8, 8, 1), np.float32) for _ in range(16)]
        measured = rounds.Measured()
        with pair.served(model, model) as server:
            payloads = {
                name: payload.Payload(
                    clients.PREDICT, tuple(clients.request_bytes(served, {"image": one}) for one in images)
                )
                for name, served in ((rounds.NATIVE, server.native), (rounds.CANDIDATE, server.candidate))
            }
            with rounds.asking(dict.fromkeys(payloads, load_plan.Target(address=server.address)), payloads) as asker:
                asker.warm_up()
                for number in range(rounds_wanted):
                    asker.round(number, _REQUESTS // rounds.BLOCKS, measured)
        pairs = list(zip(measured.native, measured.candidate, strict=True))
        latencies = np.array([[one.seconds for one in both] for both in pairs])
        rates = np.array([[one.rate for one in both] for both in pairs])
    np.savez_compressed(output, latencies=packed(latencies), rates=rates.astype(np.float32))


def real(runs):
    """Outcomes of real runs of a model against itself, a server each, 20 rounds of 96 requests."""
    from tftrt_tools.studies.regression import regress

    found = []
    with tempfile.TemporaryDirectory() as folder:
        model = str(_model(folder))
        for number in range(runs):
            done = regress.regress(
                regress.Options(
                    native=model, candidate=model, rounds=20, max_rounds=20, requests=_REQUESTS, seed=number
                )
            )
            found.append(
                {
                    one.metric: (one.verdict, round(one.ratio, 4) if one.ratio else None)
                    for one in done.verdict.judgements
                }
            )
            print(json.dumps({"run": number, "outcome": done.outcome, **found[-1]}), flush=True)
    return found


def _model(folder):
    path = pathlib.Path(folder) / _MODEL
    import saved_models

    saved_models.build(_MODEL, path)
    return path


def main(argv=None):
    """Returns: 0 where no model was called worse or better than itself in more than 1 % of the simulated runs, and in none of the real
    ones."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict_power", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--runs", type=int, default=1000, help="simulated runs of a model against itself, for each kind of noise"
    )
    parser.add_argument("--injected_runs", type=int, default=300, help="simulated runs with a slow-down")
    parser.add_argument(
        "--short_runs", type=int, default=2000, help="simulated short runs, for each kind of noise and slow-down"
    )
    parser.add_argument("--real", type=int, default=0, help="real runs of a model against itself")
    parser.add_argument("--record", type=int, default=0, help="record so many rounds and leave")
    parser.add_argument("--output", default="verdict_rounds.npz", help="file of --record")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args(argv)
    if options.record:
        record(options.record, options.output)
        return 0
    rows = simulated(options.runs, options.injected_runs) if options.runs else []
    columns = [
        ("noise", "noise"),
        ("slower", "slower"),
        ("runs", "runs"),
        ("worse", "worse"),
        ("better", "better"),
        ("same", "same"),
        ("cannot tell", "cannot tell"),
        ("rounds", "mean rounds"),
    ]
    brief = short(options.short_runs) if options.short_runs else []
    for table in filter(None, (rows, brief)):
        print(_report.table(columns, table))
    found = real(options.real) if options.real else []
    alarms = sum(any(verdict in (verdicts.WORSE, verdicts.BETTER) for verdict, _ in one.values()) for one in found)
    if found:
        print(f"real runs: {len(found)}, called worse or better than itself: {alarms}")
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps({"simulated": rows, "short": brief, "real": found}, indent=1) + "\n"
        )
    loud = [one for one in (*rows, *brief) if one["slower"] == "0%" and one["worse"] + one["better"] > PROMISED]
    return 1 if loud or alarms else 0


if __name__ == "__main__":
    sys.exit(main())
