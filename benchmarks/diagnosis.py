"""Does `tftrt diagnose` find a cause that was provoked, and is its estimate what the mend gives (GPU)?

Each case is a small model, converted so that one thing is wrong with it; the last one has nothing wrong. `tftrt diagnose --try` should name
the provoked cause first, and its estimate should be near what the mend gave. Batch 1 has no flag as its mend: there both batches are
timed once more, in turns, and what a row costs less in the larger one is what the mend gave. "Of shares": the estimate's share of the
profiled call over the gain's share of the timed call, because the host's part of a call differs from process to process.

--make builds the models, with the engines of their mends in the engine cache, so that a later run builds nothing; --jobs makes several
at once. Then the cases run one after the other, or --lanes at once.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import json
import pathlib
import shutil
import subprocess
import sys
import time

from benchmarks import _models, _report

NEEDS_GPU = True
COLUMNS = [
    ("case", "case"),
    ("wanted", "provoked"),
    ("first", "first finding"),
    ("place", "place"),
    ("call_ms", "call ms"),
    ("worth_ms", "worth ms"),
    ("basis", "basis"),
    ("before_ms", "timed ms"),
    ("gave_ms", "mend gave ms"),
    ("interval", "95 %"),
    ("ratio", "worth / gave"),
    ("shares", "of shares"),
    ("problem", "problem"),
]


@dataclasses.dataclass(frozen=True)
class Case:
    """name: of the case. wanted: the provoked cause, "" for none. maker: of MAKERS. flags: of `tftrt convert`. shapes: to diagnose. about:
    the call that it is about, a part of its name. calibrate: whether the conversion needs data."""

    name: str
    wanted: str
    maker: str
    flags: tuple[str, ...]
    shapes: str
    about: str = ""
    calibrate: bool = False


CASES = (
    Case(
        "fallback",
        "fallback",
        "products",
        ("--precision=FP16", "--shapes=features:1024x64,8192x64"),
        "features:1024x64,4096x64,8192x64",
        "4096x64",
    ),
    Case(
        "many engines",
        "many-engines",
        "long_chain",
        ("--precision=FP16", "--shapes=features:256x256", "--keep_native_ops=Relu", "--minimum_segment_size=1"),
        "features:256x256",
    ),
    Case(
        "range",
        "range",
        "many_products",
        ("--precision=FP16", "--shapes=features:min=1x64,max=8192x64"),
        "features:1x64",
    ),
    Case(
        "batch 1",
        "small-batch",
        "chain",
        ("--precision=FP16", "--shapes=features:1x256,256x256"),
        "features:1x256,256x256",
        "(features 1x256)",
    ),
    Case(
        "float input",
        "inputs",
        "pictures",
        ("--precision=FP16", "--shapes=image:1x224x224x3,32x224x224x3"),
        "image:1x224x224x3,32x224x224x3",
        "32x224x224x3",
    ),
    Case(
        "precision",
        "precision",
        "products",
        ("--precision=INT8", "--shapes=features:8192x64", "--high_precision_nodes=.*"),
        "features:8192x64",
        calibrate=True,
    ),
    Case("healthy", "", "products", ("--precision=FP16", "--shapes=features:8192x64"), "features:8192x64"),
)


def main(argv=None):
    options = _options(argv)
    options.workdir.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.budget
    chosen = [case for case in CASES if not options.cases or case.name in options.cases]
    if options.make:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for case, problem in zip(
                chosen, pool.map(lambda case: _guarded(_make, case, options, end), chosen), strict=True
            ):
                print(f"{case.name}: {problem or 'made'}", flush=True)
        return 0
    results = _report.Results(options.json, "diagnosis")
    with concurrent.futures.ThreadPoolExecutor(options.lanes) as pool:
        for case, row in zip(chosen, pool.map(lambda case: _row(case, options, end), chosen), strict=True):
            results.add(case=case.name, wanted=case.wanted or "none", **row)
    print(_report.table(COLUMNS, results.rows))
    return 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.diagnosis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help="by default all: " + ", ".join(case.name for case in CASES))
    parser.add_argument("--make", action="store_true", help="make the models and the engines of their mends, and leave")
    parser.add_argument("--jobs", type=int, default=1, help="of --make, at once")
    parser.add_argument("--lanes", type=int, default=1, help="cases at once")
    parser.add_argument("--budget", type=float, default=570, help="seconds")
    parser.add_argument("--case_budget", type=float, default=150, help="seconds of one case's diagnosis")
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench/diagnosis")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/diagnosis.json")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.cases if name not in {case.name for case in CASES}]:
        parser.error(f"no case {unknown[0]!r}; there are: {', '.join(case.name for case in CASES)}")
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "diagnosis.json").absolute()
    return options


# The models -----------------------------------------------------------------------------------------------------------------------------


def save(maker, path):
    """Write the SavedModel of a maker below, with random weights."""
    import tensorflow as tf

    made = []

    def weights(*shape):
        seed, scale = [len(made), len(shape)], (2 / shape[-2]) ** 0.5 / max(1, len(shape) - 1)
        made.append(tf.Variable(tf.random.stateless_normal(shape, seed, stddev=scale)))
        return made[-1]

    spec, layers = MAKERS[maker](tf, weights)
    module = tf.Module()
    module.weights = made

    @tf.function(input_signature=[spec])
    def serve(value):
        for layer in layers:
            value = layer(value)
        return {"scores": value}

    tf.saved_model.save(module, path, signatures={"serving_default": serve})


def _chain(tf, weights, width=256, layers=8):
    own = [weights(width, width) for _ in range(layers)]
    return tf.TensorSpec((None, width), name="features"), [
        lambda value, one=one: tf.nn.relu(tf.matmul(value, one)) for one in own
    ]


def _products(tf, weights, width=2048, layers=24):
    """Little comes in and goes out, and much is computed: all layers have the same weights, so that the file stays small."""
    first, middle, last = weights(64, width), weights(width, width), weights(width, 10)
    return tf.TensorSpec((None, 64), name="features"), [
        lambda value: tf.nn.relu(tf.matmul(value, first)),
        *[lambda value: tf.nn.relu(tf.matmul(value, middle))] * layers,
        lambda value: tf.matmul(value, last),
    ]


def _pictures(tf, weights):
    own = weights(14 * 14 * 3, 100)
    return tf.TensorSpec((None, 224, 224, 3), name="image"), [
        lambda value: tf.matmul(tf.reshape(tf.nn.avg_pool2d(value, 16, 16, "VALID"), (-1, 14 * 14 * 3)), own)
    ]


MAKERS = {
    "chain": _chain,
    "long_chain": functools.partial(_chain, layers=24),
    "products": _products,
    "many_products": functools.partial(_products, layers=72),
    "pictures": _pictures,
}


# Making and diagnosing ------------------------------------------------------------------------------------------------------------------


def _folder(case, options):
    return options.workdir / case.name.replace(" ", "-")


def _guarded(function, *arguments):
    """ "" or why it failed."""
    try:
        function(*arguments)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return str(error)[-500:]
    return ""


def _make(case, options, end):
    """The model, its conversion, and, in the engine cache, the engines of its mend."""
    folder = _folder(case, options)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _models.command(
        "-c",
        f"from benchmarks import diagnosis; diagnosis.save({case.maker!r}, {str(folder / 'original')!r})",
        gpu=False,
    )
    if case.calibrate:
        code = (
            f"import numpy; numpy.savez({str(folder / 'rows.npz')!r}, features=numpy.random.default_rng(0).normal(size=(8192, 64))"
            ".astype('float32'))"
        )
        _models.command("-c", code, gpu=False)
    calibration = [f"--calibration_data={folder / 'rows.npz'}", "--calibration_method=max"] if case.calibrate else []
    _tftrt(
        end, "convert", f"--model={folder / 'original'}", f"--output={folder / 'converted'}", *case.flags, *calibration
    )
    again = f"--flagfile={folder / 'converted/assets.extra/tftrt/convert.flags'}"
    # As the diagnosis proposes it: the shapes that have engines, then the one that has none.
    mended = {
        "fallback": ("build", str(folder / "converted"), "--shapes=features:1024x64,8192x64,4096x64"),
        "range": (
            "build",
            str(folder / "converted"),
            "--shapes=features:1x64,8192x64",
            "--dynamic_shape_profile_strategy=Optimal",
        ),
        "many-engines": ("convert", again, "--keep_native_ops="),
        "precision": ("convert", again, "--high_precision_nodes="),
    }.get(case.wanted)
    if mended:
        _tftrt(end, *mended, f"--output={folder / 'mended'}")


def _tftrt(end, *words):
    """What the command said. Raises: RuntimeError: it failed, or the time was over, with its last lines."""
    code, said = _models.tftrt(words, end)
    if code not in (0, 3):
        raise RuntimeError(f"tftrt {' '.join(words)} ended with {code}:\n" + "\n".join(said.splitlines()[-8:]))
    return said


def _row(case, options, end):
    """The figures of a case, or {"problem"}."""
    from tftrt_tools.studies.diagnosis import trial

    folder, end = _folder(case, options), min(end, time.monotonic() + options.case_budget)
    tried = ["--try", f"--try_causes={case.wanted}"] if case.wanted in trial.CAUSES else []
    try:
        said = _tftrt(
            end,
            "diagnose",
            str(folder / "original"),
            str(folder / "converted"),
            f"--shapes={case.shapes}",
            f"--json={folder / 'diagnosis.json'}",
            *tried,
        )
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return {"problem": str(error)[-800:].replace("\n", " ")}
    (folder / "said.txt").write_text(said)
    batched = _batched(str(folder / "converted"), case.shapes) if case.wanted == "small-batch" else None
    return figures(json.loads((folder / "diagnosis.json").read_text()), case.wanted, case.about, batched)


def _batched(model, shapes):
    """A trial whose mend is the second of two shapes: what the rows of the first cost there. Both are timed in turns."""
    from tftrt_tools.models.inputs import calls
    from tftrt_tools.studies.diagnosis import in_turns

    name, both = shapes.split(":")
    few, many = both.split(",")
    pair = in_turns.timed(
        *(in_turns.Asked(model, "serving_default", calls.Asked(shapes=f"{name}:{one}")) for one in (few, many))
    )
    rows = [int(one.split("x")[0]) for one in (few, many)]
    return {"before": pair.before, "saved": pair.before - pair.after * rows[0] / rows[1]}


def figures(diagnosis, wanted, about, trial=None):
    """What a diagnosis says of the provoked cause.

    Args: diagnosis: its document. wanted: the cause, "" for none. about: a part of the name of the call that it is about, "" for any.
      trial: of `_batched`, where no flag is the mend.
    """
    findings = diagnosis["findings"]
    calls = {one["call"]: one for one in diagnosis["calls"]}
    found = {"first": findings[0]["cause"] if findings else "nothing"}
    number = next(
        (place for place, one in enumerate(findings, 1) if one["cause"] == wanted and about in one["call"]), None
    )
    if number is None:
        return found
    one = findings[number - 1]
    found |= {"place": number, "basis": one["basis"], "worth_ms": _ms(one["worth"])}
    seconds = calls[one["call"]]["seconds"] if one["call"] in calls else None
    trial = trial or one.get("trial") or {}
    gained, before = trial.get("saved"), trial.get("before")
    found |= {
        "call_ms": _ms(seconds),
        "before_ms": _ms(before),
        "gave_ms": _ms(gained),
        "problem": trial.get("problem", ""),
    }
    if trial.get("low") is not None:
        found["interval"] = f"{_ms(trial['low'])} to {_ms(trial['high'])}"
    if not gained or one["worth"] is None:
        return found
    ratio = one["worth"] / gained
    return found | {
        "ratio": round(ratio, 2),
        "shares": round(ratio * before / seconds, 2) if seconds and before else None,
    }


def _ms(seconds):
    return None if seconds is None else round(1e3 * seconds, 3)


if __name__ == "__main__":
    sys.exit(main())
