"""Records whole calls of a model for the analysis in tests: traces of a few calls, times without a trace, several callers, facts.

It runs the recorder of `tftrt profile` and keeps what that throws away: the profiler's own trace files. Runs on a CPU too, where engine ops
run as TensorFlow ops.
"""

import argparse
import json
import pathlib
import shutil
import sys
import time

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import child, progress
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies.profiling import recording

NEEDS_GPU = True


def main(argv=None):
    options = _options(argv)
    if not options.model:
        from benchmarks import _models

        options.model = str(_models.native(_models.ROOT / "build/bench"))
    options.output.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    try:
        with (
            progress.on_terminal(),
            opening.opened(*filter(None, [options.model, options.original])) as models,
            scratch.folder("recording") as folder,
        ):
            found = _record(options, models, folder)
    except errors.TftrtError as error:
        print(f"error: {error}")
        return 1
    print(summary(found, options.output))
    print(f"{time.monotonic() - start:.0f} s")
    return 0


def _record(options, models, folder):
    """Run the recorder. Returns: its facts, those that are there where its process died."""
    manifest = models[0].document(passport.MANIFEST)
    if manifest:
        (options.output / "manifest.json").write_text(json.dumps(manifest))
    keys = [options.signature] if options.signature else []
    takes = inputs.Takes.of(models[0].inputs, models[0].contents.same, keys=keys, manifest=manifest)
    chosen = inputs.choose(takes, inputs.Asked(shapes=options.shapes, ranges=options.ranges), folder, sizes=(1,))
    named = run.named(run.save_calls(chosen.all, f"{folder}/in"))
    sides = tuple(
        recording.Recorded(
            name=name,
            path=str(model.path),
            calls=tuple(one if one.signature in model.inputs else None for one in named),
        )
        for name, model in zip(("model", "original"), models, strict=False)
    )
    request = recording.Request(
        models=sides,
        folder=str(options.output),
        traced=options.calls,
        callers=tuple(options.callers),
        seconds=options.seconds,
        raw=True,
    )
    try:
        return recording.saved_models.run(request, log_file=options.output / "log.txt").result
    except (errors.TftrtError, child.ChildBug) as error:
        print(f"the recorder ended: {error}")
        facts = options.output / "facts.json"
        return (
            json.loads(facts.read_text()) if facts.exists() else {"calls": [], "failed": {"all": {"cause": str(error)}}}
        )
    finally:
        _packed(options.output / "log.txt")


def _packed(log):
    """The log is kept as far as its end."""
    if log.exists():
        log.write_text(log.read_text(errors="replace")[-100_000:])


def summary(found, output):
    """What was recorded, a line each."""
    lines = []
    for call in found["calls"]:
        whole = sorted(sum(parts) for turn in call["untraced"] for parts in turn)
        traced = sorted(sum(parts) for parts in call.get("traced", []))
        each = [f"{one['callers']}: {len(one['seconds']) / one['wall']:.1f}/s" for one in call["callers"]]
        lines.append(
            f"{call['model']} {call['shapes']}: p50 {_middle(whole)} ms of {len(whole)}, "
            f"traced {_middle(traced)} ms of {len(traced)}, "
            f"first {call.get('first_seconds', float('nan')):.2f} s; callers {', '.join(each)}; engines {call.get('second', {})}; "
            f"{call.get('complaints')}"
        )
    size = sum(path.stat().st_size for path in output.iterdir() if path.is_file())
    failed = [f"FAILED {step}: {why['cause']}" for step, why in found["failed"].items()]
    return "\n".join([*lines, *failed, f"{size / 1e6:.2f} MB in {output}"])


def _middle(seconds):
    return f"{1e3 * seconds[len(seconds) // 2]:.3f}" if seconds else "?"


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.call_recordings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", nargs="?", help="default: ResNet-50, which is built")
    parser.add_argument("--original", default="")
    parser.add_argument(
        "--shapes", default="", help="as for tftrt convert; default: those that the engines were built for"
    )
    parser.add_argument("--ranges", default="")
    parser.add_argument("--signature", default="")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build/call_recordings"))
    parser.add_argument("--calls", type=int, default=6, help="in a trace")
    parser.add_argument("--callers", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=0.7, help="of each number of callers")
    options = parser.parse_args(argv)
    options.output = options.output.absolute()
    shutil.rmtree(options.output, ignore_errors=True)
    return options


if __name__ == "__main__":
    sys.exit(main())
