"""Records what the engines of a converted model tell of themselves (GPU): layers, kernels, clocks, a CUDA graph, several streams.

    python -m benchmarks.profile_recordings ENGINES_MODEL --output=DIR

DIR gets NAME.json.gz, from which `tftrt_tools.studies.profiling.engines` makes profiles without a GPU; the tests do. Each part runs in a
process of its own: one that fails leaves its reason and does not end the others. A model of `tftrt convert --layer_precisions` has the log
of its build, too.
"""

import argparse
import gzip
import json
import pathlib

from tftrt_tools.base.process import progress
from tftrt_tools.studies.profiling import engines, plan

NEEDS_GPU = True


def main(argv=None):
    options = _options(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    with progress.on_terminal():
        found = plan.recording(options.model, options.shapes, options.parts)
    for part, answer in found.parts.items():
        print(f"{part}: {_summary(answer)}")
    with gzip.open(options.output / f"{options.name or options.model.name}.json.gz", "wt") as file:
        json.dump(found.to_dict(), file, separators=(",", ":"))
    for profile in engines.profiles(found)[0]:
        print(
            profile.engine,
            profile.shapes,
            f"{1e3 * profile.layer_seconds:.4f} ms in {len(profile.layers)} layers",
            f"IProfiler over kernels: {profile.agreement}",
            *profile.notes,
            sep="\n    ",
        )


def _options(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="a SavedModel with saved engines")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder of the recordings")
    parser.add_argument("--name", help="of the file; the model's by default")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(plan.PARTS), help="all by default")
    parser.add_argument(
        "--shapes", type=json.loads, help="JSON, {engine: [[shape of each input]]}; else those that it was tuned for"
    )
    return parser.parse_args(argv)


def _summary(answer):
    if "error" in answer:
        return "failed: " + answer["error"].strip().splitlines()[-1][:300]
    failed = {f"{what}: {why}" for one in answer["answers"] for what, why in one.get("errors", {}).items()}
    return f"{len(answer['answers'])} answers" + "".join(f"\n    {one}" for one in sorted(failed)[:6])


if __name__ == "__main__":
    main()
