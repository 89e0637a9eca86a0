"""The engine cache (GPU): seconds of `tftrt convert` with an empty cache, and of the same conversion again.

ResNet-50, one profile for each batch size, whole command: process start, freezing, the pass, engines, saving, and the check of each
shape in a fresh process. The second model's engine files must be the first's.
"""

import argparse
import json
import pathlib
import shutil
import sys

from benchmarks import _models, _report

NEEDS_GPU = True
TARGET = 0.10


def main(argv=None):
    options = _options(argv)
    options.workdir.mkdir(parents=True, exist_ok=True)
    native = _models.native(options.workdir, options.size)
    folder = options.workdir / "engine_cache"
    shutil.rmtree(folder, ignore_errors=True)
    results = _report.Results(options.json, "engine_cache")
    for name in ("first", "second"):
        seconds, said = _convert(native, folder, name, options)
        engines = [engine for signature in said["signatures"] for engine in signature["built"]]
        results.add(
            conversion=name,
            seconds=round(seconds, 1),
            engines=len(engines),
            cached=sum(one["cached"] for one in engines),
            megabytes=round(sum(one["bytes"] for one in engines) / 1e6, 1),
        )
    same = _assets(folder / "first") == _assets(folder / "second")
    ratio = results.rows[1]["seconds"] / results.rows[0]["seconds"]
    print(
        f"second over first: {ratio:.3f} (target {TARGET:.2f}); the engines are {'the same' if same else 'NOT the same'}"
    )
    return 0 if same and ratio <= TARGET else 1


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine_cache",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--precision", default="FP16")
    parser.add_argument("--batches", type=lambda text: [int(one) for one in text.split(",")], default=[1, 8, 32, 128])
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/engine_cache.json")
    options = parser.parse_args(argv)
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "engine_cache.json").absolute()
    return options


def _convert(native, folder, name, options):
    """Returns: (seconds of the whole command, the manifest)."""
    shapes = f"{_models.INPUT}:" + ",".join(f"{batch}x{options.size}x{options.size}x3" for batch in options.batches)
    seconds = _models.command(
        "-m",
        "tftrt_tools",
        "convert",
        f"--model={native}",
        f"--output={folder / name}",
        f"--precision={options.precision}",
        f"--shapes={shapes}",
        f"--engine_cache_dir={folder / 'cache'}",
        gpu=True,
    )
    return seconds, json.loads((folder / name / "assets.extra/tftrt/manifest.json").read_text())


def _assets(model):
    return {path.name: path.read_bytes() for path in (model / "assets").glob("trt-serialized-engine*")}


if __name__ == "__main__":
    sys.exit(main())
