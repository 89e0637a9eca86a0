"""A model in a real tritonserver, in its Python backend, asked by `tftrt bench`: without and with CUDA graphs where it is a plan.

    python -m benchmarks.triton_plan MODEL [--rows ROWS.npz] [--concurrency 1,4,8]

MODEL is a plan directory, which needs a GPU, or an ONNX file, which ONNX Runtime runs on the CPU. Callers ask for one row each; the server
joins their requests where the plan has a profile for each batch up to --max_batch_size. `make triton` fetches the server.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from benchmarks import _models, _report
from tests.triton_server import TritonServer

NEEDS_GPU = True
COLUMNS = [
    ("graphs", "graphs"),
    ("concurrency", "callers"),
    ("rate", "answers/s"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("server_ms", "in the server, ms"),
    ("model_ms", "in the model, ms"),
    ("batch", "rows a batch"),
    ("problem", "problem"),
]


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.triton_plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", type=pathlib.Path, nargs="?", default=_models.ROOT / "build/bench/plans/resnet50-plan-fp16"
    )
    parser.add_argument("--rows", help="an .npz file of inputs; by default they are drawn")
    parser.add_argument("--concurrency", default="1,4,8")
    parser.add_argument("--max_batch_size", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args(argv)
    results = _report.Results(options.json, "triton_plan")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        code, said = _models.tftrt(
            [
                "publish",
                options.model,
                "--server=triton",
                "--model_name=m",
                f"--base_path={folder / 'repository'}",
                "--triton_backend=python",
                "--unverified",
                f"--triton_max_batch_size={options.max_batch_size}",
            ]
        )
        if code:
            results.add(problem=said.strip().splitlines()[-1][:300])
        else:
            for graphs in (False, True) if options.model.is_dir() else (False,):
                for row in _measured(folder, graphs, options):
                    results.add(graphs="yes" if graphs else "no", **row)
    print(_report.table(COLUMNS, results.rows))
    return 1 if any(row.get("problem") for row in results.rows) else 0


def _measured(folder, graphs, options):
    """Rows of one server."""
    with TritonServer(folder / "repository", folder, environment={"TFTRT_PLAN_CUDA_GRAPH": str(int(graphs))}) as server:
        words = [
            "bench",
            server.address,
            "--model_name=m",
            f"--concurrency={options.concurrency}",
            "--json=-",
            f"--duration_seconds={options.seconds}",
            *([f"--data={options.rows}"] if options.rows else []),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "tftrt_tools", *words],
            cwd=_models.ROOT,
            env=_models.environment(True),
            text=True,
            capture_output=True,
            errors="replace",
            check=False,
        )
        ran = [line for line in server.log.read_text().splitlines() if line.startswith("tftrt: ")]
    if not done.stdout.startswith("{"):
        said = [
            line for line in done.stderr.splitlines() if line.startswith("tftrt: error: ")
        ] or done.stderr.strip().splitlines()[-1:]
        return [{"problem": (said or ["it said nothing"])[0][:300]}]
    if options.model.is_dir() and not all("model.plan" in line for line in ran):
        return [{"problem": f"the server does not run the plan: {ran}"}]
    return [_row(one) for one in json.loads(done.stdout)["rows"]]


def _row(one):
    response, counted = one["response"]["percentiles"], one["server"]
    return {
        "concurrency": one["point"]["concurrency"],
        "rate": one["throughput"],
        "p50_ms": response["p50"],
        "p99_ms": response["p99"],
        "server_ms": counted["request_ms"],
        "model_ms": counted["runtime_ms"],
        "batch": counted["processed_rows"],
        "problem": f"{one['wrong']} wrong answers" if one["wrong"] else "",
    }


if __name__ == "__main__":
    sys.exit(main())
