"""Records what the engines of a converted model tell of themselves (GPU): layers, kernels, clocks, a CUDA graph, several streams.

    python -m benchmarks.profile_recordings ENGINES_MODEL --output=DIR

DIR gets NAME.json.gz with one answer for each part, engine and profile, and NAME.graph.pb.gz with the model's graph without its weights.
--build_log keeps what the log of `tftrt convert --layers --log_file=FILE` says of the layers, as NAME.layers.log.gz. Each part runs in a
process of its own: one that fails leaves its reason and does not end the others.
"""

import argparse
import gzip
import json
import pathlib
import re
import time

from tftrt_tools.profiling import plan
from tftrt_tools.savedmodel.job import protos

NEEDS_GPU = True
_OF_ENGINES = re.compile(r"Layer\(|Engine Layer Information|Total Host Persistent|Total Device Persistent|Total Scratch|Activation Memory|"
                         r"Weights Memory|emory usage|orkspace|Fus(?:ing|ion)|fused|Rejecting some int8|missing int8|"
                         r"(?:After|Before|before|after) .*layers|Building a new TensorRT engine|Engine generation completed|peak memory")
_LARGE = 256  # bytes of a constant that are not kept


def main(argv=None):
    options = _options(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    name = options.name or options.model.name
    found = {"model": name, "manifest": _manifest(options.model), "shapes": options.shapes, "parts": {}}
    for part in options.parts:
        start = time.monotonic()
        found["parts"][part] = plan.record(options.model, part, options.shapes)
        found["parts"][part]["seconds"] = round(time.monotonic() - start, 2)
        print(f"{name} {part}: {found['parts'][part]['seconds']} s, {_summary(found['parts'][part])}", flush=True)
        with gzip.open(options.output / f"{name}.json.gz", "wt") as file:
            json.dump(found, file, separators=(",", ":"))
    if options.build_log:
        _keep_layers(options.build_log, options.output / f"{name}.layers.log.gz")
    _keep_graph(options.model, options.output / f"{name}.graph.pb.gz")


def _options(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="a SavedModel with saved engines")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder of the recordings")
    parser.add_argument("--build_log", type=pathlib.Path, help="the log of its build, of --layers --log_file")
    parser.add_argument("--name", help="of the files; the model's by default")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(plan.PARTS), help="all by default")
    parser.add_argument("--shapes", type=json.loads, help='JSON, {engine: [[shape of each input]]}; else those that it was tuned for')
    return parser.parse_args(argv)


def _summary(part):
    if "error" in part:
        return "failed: " + part["error"].strip().splitlines()[-1][:300]
    failed = {f"{what}: {why}" for answer in part["answers"] for what, why in answer.get("errors", {}).items()}
    return f"{len(part['answers'])} answers" + "".join(f"\n    {one}" for one in sorted(failed)[:6])


def _manifest(model):
    path = model / "assets.extra" / "tftrt" / "manifest.json"
    return json.loads(path.read_text()) if path.is_file() else None


def _keep_layers(log, target):
    """The lines of a build's log that speak of the built engines, not of the tactics that were tried."""
    text = log.read_text(errors="replace").splitlines(keepends=True)
    with gzip.open(target, "wt") as file:
        file.writelines(line for line in text if _OF_ENGINES.search(line))


def _keep_graph(model, target):
    """The model's graph; constants of more than a few bytes lose their values and keep type and shape."""
    proto = protos.read(model)
    for meta in proto.meta_graphs:
        for nodes in (meta.graph_def.node, *(one.node_def for one in meta.graph_def.library.function)):
            for node in nodes:
                if node.op == "Const" and node.attr["value"].tensor.ByteSize() > _LARGE:
                    tensor = node.attr["value"].tensor
                    dtype, shape = tensor.dtype, tensor.tensor_shape
                    node.attr["value"].tensor.CopyFrom(type(tensor)(dtype=dtype, tensor_shape=shape))
                if node.op == "TRTEngineOp":
                    node.attr["serialized_segment"].s = b""
    with gzip.open(target, "wb") as file:
        file.write(proto.SerializeToString())


if __name__ == "__main__":
    main()
