"""The commands of the toolkit that a model goes through, in order, and what of their results is kept."""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Iterator

from benchmarks.real_models import cases
from benchmarks.real_models import make as maker

_ERROR = re.compile(r"^tftrt: error: (.*(?:\n  .*)*)", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_LONGEST = 500  # characters of a message
_REASONS = 4  # that say why ops stay in TensorFlow


@dataclasses.dataclass(frozen=True)
class Step:
    """One command. kind: its name; column: what it is about, such as "FP16" or "INT8 mse"; batch: of `regress`; makes: what it writes, and
    needs: what another step has to have written; python: the interpreter, by default this one; module: what it runs."""

    kind: str
    column: str
    command: tuple[str, ...]
    batch: int = 0
    makes: pathlib.Path | None = None
    needs: pathlib.Path | None = None
    python: str = ""
    module: str = "tftrt_tools"

    @property
    def name(self) -> str:
        """Of this step among those of its model."""
        return " ".join(filter(None, (self.kind, self.column, f"batch {self.batch}" if self.batch else "")))


def steps(case: cases.Case, models: pathlib.Path, work: pathlib.Path, options) -> Iterator[Step]:
    """Of one model. Args: models: folder of the SavedModels and their rows; work: folder for what is converted; options: of the command
    line (gpu, precisions, methods, convert_flags, rounds, without, one_profile)."""
    yield from (step for step in _steps(case, models, work, options) if step.kind not in options.without)


def _steps(case, models, work, options):
    model = models / case.name
    batches = case.batches[-1:] if options.one_profile else case.batches
    calibration = f"--calibration_data={maker.part(models, case, 'calibration.npz')}"
    yield Step("inspect", "", ("inspect", str(model), "--use_dynamic_shape"))
    shapes = f"--shapes={case.shape(*batches)}" if options.gpu else "--use_dynamic_shape"
    if options.methods and not options.gpu:
        yield Step(
            "compare", "INT8", ("calibrate", str(model), calibration, "--compare_methods", "--use_dynamic_shape")
        )
    columns = [(precision, "") for precision in options.precisions] + [
        ("INT8", method) for method in options.methods if options.gpu
    ]
    for precision, method in columns:
        target = work / "-".join(filter(None, (case.name, precision, method)))
        flags = [calibration] if precision == "INT8" else []
        flags += [f"--calibration_method={method}"] if method else []
        column = f"{precision} {method}".strip()
        yield Step(
            "convert",
            column,
            (
                "convert",
                f"--model={model}",
                f"--output={target}",
                "--overwrite",
                f"--precision={precision}",
                shapes,
                *flags,
                *options.convert_flags,
            ),
            makes=target,
        )
        yield Step("verify", column, ("verify", str(model), str(target), *rows(case, models)), needs=target)
        for batch in batches if options.gpu else ():
            yield Step(
                "regress",
                column,
                (
                    "regress",
                    "--in_process",
                    f"--native={model}",
                    f"--candidate={target}",
                    "--allow_worse",
                    f"--data={maker.part(models, case, 'rows.npz')}",
                    f"--batch_size={batch}",
                    f"--rounds={options.rounds}",
                    f"--max_rounds={options.rounds}",
                ),
                batch=batch,
                needs=target,
            )
    if not options.gpu:
        yield Step(
            "export",
            "ONNX",
            (
                "export",
                str(model),
                f"--output={work / case.name}.onnx",
                *rows(case, models, labels=False),
                "--data_rows=8",
                "--allow_constant_outputs",
                *case.export,
            ),
        )


def rows(case: cases.Case, models: pathlib.Path, labels: bool = True) -> list[str]:
    """The flags of a model's rows, and of their labels where it has some."""
    flags = [f"--data={maker.part(models, case, 'rows.npz')}"]
    if not labels:
        return flags
    if case.labels:
        flags.append(f"--labels={maker.part(models, case, 'labels.npy')}")
    return flags + ([f"--label_output={case.label_output}"] if case.label_output else [])


def bench(models: Iterable[pathlib.Path], data: str, batch: int, rounds: int, needs: pathlib.Path) -> Step:
    """`tftrt bench` of models in turns in one process, whose rounds have the GPU alone. Args: data: the flag of the rows."""
    words = ["bench", *map(str, models), data, f"--batch_size={batch}", f"--rounds={rounds}", f"--max_rounds={rounds}"]
    return Step("bench", "", tuple(words), batch=batch, needs=needs, module="benchmarks._bench_alone")


def figures(kind: str, result: dict) -> dict:
    """What is kept of a command's JSON result. Without a result: nothing."""
    return _FIGURES[kind](result) if result else {}


def _inspected(result):
    signatures = result.get("signatures", [])
    return {
        "share": _share(signatures),
        "flops_share": _flops(result),
        "engines": sum(len(one["segments"]) for one in signatures),
        "other_share": _largest(
            one["other_batch_mode"]["coverage"] for one in signatures if one.get("other_batch_mode")
        ),
        "outside": _reasons(signatures),
        "problems": [one["problem"] for one in signatures if one.get("problem")],
    }


def _converted(result):
    signatures = result.get("signatures", [])
    built = [one["build_seconds"] for one in signatures if one.get("build_seconds")]
    return {
        "share": result.get("coverage"),
        "flops_share": _flops(result),
        "engines": result.get("engine_count"),
        "build_seconds": sum(built) if built else None,
        "native_ops": {
            op: count for one in signatures[:1] for op, count in list((one.get("native_ops") or {}).items())[:6]
        },
        **_compared(result),
    }


def _verified(result):
    compared = result.get("comparisons", [])
    accuracy = result.get("accuracy") or {}
    found = [one["snr_db"] for one in compared if one.get("snr_db") is not None]
    return {
        "passed": result.get("passed"),
        "snr_db": min(found, key=float) if found else None,
        "evidence": result.get("evidence"),
        "score": [accuracy.get(name) for name in ("original", "converted")] if accuracy else None,
        "metric": accuracy.get("metric", ""),
        "problems": result.get("problems", [])[:3],
        "warnings": result.get("warnings", [])[:3],
    }


def _regressed(result):
    judged = {one["metric"]: one for one in (result.get("verdict") or {}).get("judgements", ())}
    p50 = judged.get("p50") or {}
    speed = p50["native"] / p50["candidate"] if p50.get("native") and p50.get("candidate") else None
    return {
        "outcome": result.get("outcome"),
        "headline": result.get("headline"),
        "times_as_fast": speed,
        "native_ms": p50["native"] * 1000 if speed else None,
        "problems": [one["reason"] for one in result.get("checks", ()) if one["verdict"] == "fail"][:3],
    }


def _benched(result):
    """{name of a model: its median, and the ratio to the first model's with its interval}."""
    rows = {}
    for row in result.get("rows", ()):
        p50 = next((one["value"] for one in row["figures"] if one["metric"] == "p50"), None)
        judged = next((one for one in row["against_first"] if one["metric"] == "p50"), {})
        rows[row["name"]] = {
            "p50_ms": p50 and p50 * 1000,
            **{name: judged.get(name) for name in ("ratio", "low", "high", "verdict")},
            "failed": row["failed"],
            "answers": row["answers"],
        }
    return {"benched": rows}


def _exported(result):
    files = result.get("files", [])
    checked = [(file.get("precision") or {}).get("verification") or file.get("verification") or {} for file in files]
    compared = [one for each in checked for one in each.get("comparisons", ())]
    found = [one["snr_db"] for one in compared if one.get("snr_db") is not None]
    doubts = [one for file in files for one in file.get("findings", ())]
    said = {
        sure: [f"{one['op']}: {one['reason']}" for one in doubts if one["certain"] is sure] for sure in (True, False)
    }
    return {
        "passed": result.get("passed"),
        "snr_db": min(found, key=float) if found else None,
        "problems": list(dict.fromkeys([*said[True], *(one for each in checked for one in each.get("problems", ()))]))[
            :3
        ],
        "doubtful": list(dict.fromkeys(said[False])),
        "nodes": sum(file.get("nodes") or 0 for file in files),
        "rewritten": {one["name"]: one["nodes"] for file in files for one in file.get("rewrites", ()) if one["nodes"]},
    }


def _compared(result):
    """What calibration methods were compared: dB of the worst output, simulated, and the method that was taken."""
    calibration = result.get("calibration") or {}
    comparison = calibration.get("comparison") or {}
    return {"method": comparison.get("taken") or calibration.get("method"), "methods": comparison.get("worst_db")}


_FIGURES = {
    "inspect": _inspected,
    "convert": _converted,
    "verify": _verified,
    "regress": _regressed,
    "bench": _benched,
    "compare": _compared,
    "export": _exported,
}


def _share(signatures):
    inside, ops = (sum(one.get(name) or 0 for one in signatures) for name in ("ops_in_tensorrt", "ops"))
    return inside / ops if ops else None


def _flops(result):
    """The share of the computation in engines, of all signatures; None where it is not known."""
    counted = [one["flops"] for one in result.get("signatures", ()) if one.get("flops")]
    inside, total = (sum(one[name] for one in counted) for name in ("inside", "total"))
    return inside / total if total and not any(one["unknown"] for one in counted) else None


def _largest(values):
    return max(values, default=None)


def _reasons(signatures):
    """Why ops stay in TensorFlow, most of them first: "63 StridedSlice: …", of the first signature."""
    counts = {}
    for one in signatures[0]["left_out"] if signatures else ():
        key = (one["op"], one["reason"])
        counts[key] = counts.get(key, 0) + one.get("count", 1)
    ordered = sorted(counts.items(), key=lambda item: -item[1])[:_REASONS]
    return [f"{count} {op}: {reason}" for (op, reason), count in ordered]


def message(exit_code: int, output: str, kept: dict) -> str:
    """The tool's own words of why a step failed; "" where it did not. Args: kept: of `figures`."""
    if exit_code == 0:
        return ""
    found = _ERROR.findall(output)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if found:
        said = " ".join(part.strip() for part in found[-1].splitlines())
    elif _TRACEBACK in output:
        said = "Traceback: " + lines[-1]
    else:
        said = "; ".join(kept.get("problems") or [kept.get("headline") or (lines[-1] if lines else "no output")])
    return said[:_LONGEST]


def traceback(output: str) -> bool:
    """Whether a traceback was printed: a bug, whatever the exit code."""
    return _TRACEBACK in output
