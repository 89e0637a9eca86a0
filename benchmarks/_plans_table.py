"""The table of the benchmark `plans` as Markdown, a line for each variant of a model."""

from benchmarks import _report

_HEAD = (
    "model: variant",
    "batch 1, ms (p99)",
    "batch 32, ms",
    "batch 128, rows/s with 1, 2, 4 streams",
    "beside TensorRT alone: time at 1 (lowest to highest turn)",
    "rate at 128",
    "SNR dB",
    "top-1 same",
)


def markdown(data):
    """Args: data: a results file of `benchmarks.plans`. Returns: lines of a table; a variant without calls has its problem."""
    machine = data["machine"]
    found = {}
    for row in data["rows"]:
        found.setdefault((row["case"], row["variant"]), []).append(row)
    lines = [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
    lines += [f"| {' | '.join(_line(case, variant, rows))} |" for (case, variant), rows in found.items()]
    head = f"{machine['gpu']}, TensorFlow {machine['tensorflow']}, TensorRT {machine['tensorrt']}, {machine['time']}"
    return "\n".join([head, "", *lines])


def _line(case, variant, rows):
    name = f"{case}: {variant.replace(' as a CUDA graph', ', graphs')}"
    calls = {(row["batch"], row["workers"]): row for row in rows if row.get("way") == "whole calls"}
    problem = next((row["problem"] for row in rows if row.get("problem")), "")
    if not calls:
        return [name, problem or "not measured", *[""] * 6]
    turns = {row["batch"]: row for row in rows if row.get("way") == "in turns"}
    answers = next((row for row in rows if row.get("way") == "answers"), {})
    rates = [calls[key]["images_s"] for key in sorted(calls) if key[0] == 128]
    same = answers.get("top1_same")
    return [
        name,
        _timed(calls.get((1, 1))),
        _timed(calls.get((32, 1)), p99=False),
        ", ".join(f"{rate:,.0f}" for rate in rates) or problem,
        _ratio(turns.get(1)),
        f"{1 / turns[128]['ratio']:.3f}" if 128 in turns else "",
        _report.cell(_rounded(answers.get("snr_db"))),
        "" if same is None else f"{same:.0%}",
    ]


def _timed(row, p99=True):
    if row is None:
        return ""
    return f"{row['p50_ms']:.4g}" + (f" ({row['p99_ms']:.4g})" if p99 and row.get("p99_ms") else "")


def _ratio(row):
    return f"{row['ratio']:.3f} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})" if row else ""


def _rounded(value):
    return None if value is None else round(value, 1)
