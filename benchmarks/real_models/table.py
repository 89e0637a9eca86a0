"""The table of a journal's lines, as text and as Markdown: rows of models and precisions, then what went wrong and why."""

from benchmarks import _report

_NOTHING = 1.05  # times as fast, from which on a model gains
_COLUMNS = (
    ("model", "model"),
    ("precision", "precision"),
    ("share", "ops %"),
    ("flops", "FLOPs %"),
    ("engines", "engines"),
    ("build", "build s"),
    ("snr", "SNR dB"),
    ("score", "score"),
    ("small", "x, small batch"),
    ("large", "x, large batch"),
    ("result", "result"),
)
_EXPORTS = (
    ("model", "model"),
    ("onnx", "as an ONNX file"),
    ("nodes", "nodes"),
    ("snr", "SNR dB"),
    ("rewritten", "nodes rewritten by"),
)


def rows(lines: list[dict]) -> list[dict]:
    """One for each model and column, in the order of the journal; a later line of the same step wins. Equal columns share a row."""
    found = {}
    for line in lines:
        if line["kind"] in ("step", "cut"):
            kind, _, column = line["column"].partition(" ")
            column, _, batch = column.partition(" batch ")
            if column:
                found.setdefault((line["model"], column), {}).setdefault(kind, {})[batch] = line
    return _together([_row(model, column, kinds) for (model, column), kinds in found.items() if "convert" in kinds])


def _together(made):
    """Precisions of a model that differ in nothing share a row."""
    found = {}
    for row in made:
        found.setdefault(tuple(value for key, value in row.items() if key != "precision"), []).append(row)
    return [{**same[0], "precision": ", ".join(row["precision"] for row in same)} for same in found.values()]


def _row(model, column, kinds):
    converted, verified = kinds["convert"][""], kinds.get("verify", {}).get("", {})
    timed = [kinds.get("regress", {})[batch] for batch in sorted(kinds.get("regress", {}), key=int)]
    speeds = [line.get("times_as_fast") for line in timed] + [None, None]
    return {
        "model": model,
        "precision": column,
        "share": _percent(converted.get("share")),
        "flops": _percent(converted.get("flops_share")),
        "engines": converted.get("engines"),
        "build": converted.get("build_seconds"),
        "snr": _number(verified.get("snr_db")),
        "score": _score(verified),
        "small": speeds[0],
        "large": speeds[1] if len(timed) > 1 else None,
        "result": _result([converted, *([verified] if verified else []), *timed]),
    }


def methods(lines: list[dict]) -> list[dict]:
    """The calibration methods that were compared, one row a model: dB of the worst output in INT8, simulated."""
    found = {
        line["model"]: {"model": line["model"], "taken": line["method"], **line["methods"]}
        for line in lines
        if line.get("methods")
    }
    return list(found.values())


def exports(lines: list[dict]) -> list[dict]:
    """Models as ONNX files, one row a model."""
    last = {line["model"]: line for line in lines if line["kind"] == "step" and line["column"] == "export ONNX"}
    return [
        {
            "model": model,
            "onnx": "no" if line["exit"] else "yes",
            "nodes": line.get("nodes"),
            "snr": _number(line.get("snr_db")),
            "rewritten": ", ".join(f"{count} {name}" for name, count in (line.get("rewritten") or {}).items()),
        }
        for model, line in last.items()
    ]


def text(lines: list[dict]) -> str:
    """For a terminal."""
    compared, exported = methods(lines), exports(lines)
    return "\n\n".join(
        filter(
            None,
            [
                _report.table(_COLUMNS, rows(lines)),
                compared and _report.table(_heads(compared), compared),
                exported and _report.table(_EXPORTS, exported),
                *_notes(lines),
            ],
        )
    )


def markdown(lines: list[dict]) -> str:
    """For docs/dev/measured/real_models.md."""
    made = rows(lines)
    shown = [(key, head) for key, head in _COLUMNS if any(row[key] not in (None, "") for row in made)]
    compared, exported = methods(lines), exports(lines)
    return "\n\n".join(
        filter(
            None,
            [
                _markdown(shown, made),
                compared and _markdown(_heads(compared), compared),
                exported and _markdown(_EXPORTS, exported),
                *_notes(lines),
            ],
        )
    )


def _heads(compared):
    """Columns of `methods`: the model, the method that was taken, and each method."""
    return [(key, key) for key in dict.fromkeys(key for row in compared for key in row)]


def _markdown(columns, made):
    body = [
        [head for _, head in columns],
        ["---"] * len(columns),
        *([_report.cell(row.get(key)) for key, _ in columns] for row in made),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in body)


def _notes(lines):
    last = {(line["model"], line["column"]): line for line in lines if line["kind"] in ("step", "cut")}
    failed = [
        f"- {model}, {column}: exit {line['exit']}: {line['message']}"
        for (model, column), line in last.items()
        if line["exit"]
    ]
    bugs = [f"- {model}, {column}: a traceback" for (model, column), line in last.items() if line.get("traceback")]
    inspected = {model: line for (model, column), line in last.items() if column == "inspect"}
    idle = [
        f"- {model}: {_why(inspected[model])}"
        for model in dict.fromkeys(_gains_nothing(rows(lines)))
        if model in inspected
    ]
    return [
        "\n".join([title, "", *found])
        for title, found in (
            ("What ended with another code than 0:", failed),
            ("Bugs:", bugs),
            ("What gains nothing, and what stays in TensorFlow:", idle),
        )
        if found
    ]


def _gains_nothing(made):
    """Models that no precision makes faster; without timings those of which less than half goes into TensorRT, by FLOPs where known."""
    for model in dict.fromkeys(row["model"] for row in made):
        mine = [row for row in made if row["model"] == model]
        speeds = [speed for row in mine for speed in (row["small"], row["large"]) if speed]
        shares = [
            share
            for row in mine
            for share in [row["share"] if row["flops"] is None else row["flops"]]
            if share is not None
        ]
        if (max(speeds) < _NOTHING) if speeds else (shares and max(shares) < 50):
            yield model


def _why(line):
    share = "" if line.get("share") is None else f"{100 * line['share']:.0f} % of the ops in TensorRT; "
    return share + ("; ".join(line.get("outside") or line.get("problems") or ()) or "nothing stays outside")


def _result(lines):
    bad = [f"{line['column'].split()[0]} {line['exit']}" for line in lines if line["exit"]]
    return ", ".join(dict.fromkeys(bad)) or "ok"


def _percent(share):
    return None if share is None else round(100 * share)


def _number(value):
    return float(value) if value is not None else None


def _score(verified):
    """Of the original and of the converted model, with the metric."""
    known = [value for value in verified.get("score") or () if value is not None]
    return f"{verified.get('metric', '')} {' to '.join(f'{value:.3f}' for value in known)}".strip() if known else ""
