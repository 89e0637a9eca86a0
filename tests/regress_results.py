"""Results of `tftrt regress` for tests, made of synthetic rounds."""

import dataclasses

import numpy as np

from tftrt_tools.base.stack.fingerprint import Fingerprint
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies.regression import comparison, models, verdict

MACHINE = Fingerprint(
    cpu="A CPU",
    cores=2,
    quota_cores=None,
    memory_gib=24,
    system="A system",
    kernel="6.1",
    python="3.10.1",
    gpus=(),
    driver="",
    tensorflow="2.14.1",
    tensorrt="",
)
WORKLOAD = {
    "through": "server",
    "backend": "local",
    "gate_closed": False,
    "signature": "serving_default",
    "shapes": ["x 1x8"],
    "values": "random, seed 0",
    "timed": 16,
    "compared": 16,
    "concurrency": 1,
    "digest": "0123456789abcdef",
}


def regression(ratio=1.0, noise=0.01, rounds=30, seed=0, created="", **changes):
    """A comparison.Regression of a candidate that takes `ratio` times as long as the native model's 2 ms."""
    rng = np.random.default_rng(seed)
    sides = [
        [factor * 2e-3 * np.exp(rng.normal(0, noise)) * rng.uniform(0.95, 1.05, 40) for _ in range(rounds)]
        for factor in (1.0, ratio)
    ]
    rates = [np.array([1 / one.mean() for one in side]) for side in sides]
    found = verdict.judge(*sides, verdict.DEFAULT_METRICS, native_rates=rates[0], candidate_rates=rates[1])
    figures = comparison.PerRound(
        *(tuple(float(np.median(one)) for one in side) for side in sides), *(tuple(map(float, one)) for one in rates)
    )
    stamp = passport.stamp() | ({"created": created} if created else {})
    made = comparison.Regression(
        stamp=stamp,
        native=models.Model(path="/models/net", name="model-native", version=1, digest="sha256:" + "a" * 64),
        candidate=models.Model(path="/models/net_fp16", name="model-tested", version=1, digest="sha256:" + "b" * 64),
        server={"address": "127.0.0.1:1", "backend": "local", "reason": "because"},
        workload=WORKLOAD,
        settings={"thresholds": ""},
        fingerprint=MACHINE,
        verdict=found,
        rounds=figures,
        requests=40,
        failed={"native": 0, "candidate": 0},
        errors={"native": [], "candidate": []},
        seconds=1.5,
    )
    return dataclasses.replace(made, **changes)
