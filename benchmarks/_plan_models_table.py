"""The tables of the benchmark `plans_of_models`: a line for each model as a file, and one for each of its plans."""

from benchmarks import _plan_models, _report

_FILES = [
    ("model", "model"),
    ("kind", "kind"),
    ("file", "as a file"),
    ("nodes", "nodes"),
    *((name, f"{name}, dB") for name in _plan_models.PRECISIONS),
    ("said", "what was said"),
]
_PLANS = [
    ("model", "model"),
    ("precision", "plan"),
    ("build_s", "build s"),
    ("db", "dB"),
    ("score", "score"),
    ("ms", "p50, ms"),
    ("tensorflow", "times as fast as TensorFlow"),
    ("tftrt", "as TF-TRT FP16 (interval)"),
    ("verdict", "against TF-TRT"),
    ("fp16", "as the FP16 plan"),
    ("said", "what was said"),
]


def rows(lines: list[dict]) -> dict[str, list[dict]]:
    """{"files", "plans"} of a journal's lines; a later line of the same step wins. A model of which nothing is known has no row."""
    last = {(line["model"], line["column"]): line for line in lines if line["kind"] in ("step", "cut", "lost")}
    files, plans = [], []
    for model in _plan_models.MODELS:
        mine = {column: line for (name, column), line in last.items() if name == model.name}
        if any(column == "" or column.startswith("export") for column in mine):
            files.append(_file(model, mine))
        plans += [_plan(model, f"plan {one}", mine) for one in ("FP16", "INT8") if f"convert plan {one}" in mine]
    return {"files": files, "plans": plans}


def _file(model, mine):
    exported = mine.get("export FP32", {})
    told: dict[str, list[str]] = {}
    for column, line in mine.items():
        if line["message"] and "plan" not in column:
            told.setdefault(line["message"], []).append(column)
    said = [f"{', '.join(columns)}: {message}" for message, columns in told.items()]
    levels = {
        one: _db(
            mine.get(f"verify {one}") or mine.get(f"export {one}"), failed=mine.get(f"export {one}", {}).get("exit")
        )
        for one in _plan_models.PRECISIONS
    }
    good = exported.get("exit") == 0 and mine.get("verify FP32", {}).get("exit") == 0
    return {
        "model": model.name,
        "kind": model.kind,
        "file": "yes" if good else "no",
        "nodes": exported.get("nodes") if good else None,
        **levels,
        "said": "; ".join([*said, *dict.fromkeys(exported.get("doubtful", ()))]),
    }


def _db(line, failed=None):
    """Of the worst output, as text: "same" where all are equal bit for bit; "" where nothing was compared."""
    if not line or line.get("snr_db") is None and line["exit"]:
        return ""
    level = float("inf") if line.get("snr_db") is None else float(line["snr_db"])
    return ("same" if level == float("inf") else f"{level:.1f}") + (f", exit {failed}" if failed else "")


def _plan(model, column, mine):
    built, verified = mine[f"convert {column}"], mine.get(f"verify {column}")
    made = {"model": model.name, "precision": column.removeprefix("plan "), "build_s": built.get("build_seconds")}
    made |= {"db": _db(verified, (verified or {}).get("exit")), "score": _score(verified)}
    variant = f"{model.name}-{made['precision']}"
    timed = [(mine.get(f"bench batch {batch}") or {}).get("benched") or {} for batch in model.batches]
    if any(variant in one for one in timed):
        made["ms"] = ", ".join(_number(one.get(variant, {}).get("p50_ms")) for one in timed)
        for key, other in (
            ("tensorflow", model.name),
            ("tftrt", f"{model.name}-TF-TRT"),
            ("fp16", f"{model.name}-FP16"),
        ):
            if other != variant and any(other in one for one in timed):
                made[key] = ", ".join(_faster(one.get(other, {}), one.get(variant, {})) for one in timed)
        if "tftrt" in made:
            made["verdict"] = ", ".join(one.get(variant, {}).get("verdict") or "-" for one in timed)
    said = [f"{name}: {line['message']}" for name, line in mine.items() if column in name and line["message"]]
    return made | {"said": "; ".join(said)}


def _number(value):
    return "-" if value is None else f"{value:.3g}"


def _faster(other, mine):
    """How many times as fast, by the medians; with the interval where the other one is the first of the comparison."""
    if not other.get("p50_ms") or not mine.get("p50_ms"):
        return "-"
    told = f"{other['p50_ms'] / mine['p50_ms']:.2f}"
    interval = mine.get("low") and mine.get("high") and other.get("ratio") is None
    return told + (f" ({1 / mine['high']:.2f} to {1 / mine['low']:.2f})" if interval else "")


def _score(verified):
    known = [one for one in (verified or {}).get("score") or () if one is not None]
    return ", ".join(f"{one:.3f}" for one in known)


def text(made: dict[str, list[dict]]) -> str:
    """For a terminal."""
    return "\n\n".join(_report.table(head, made[name]) for name, head in _both() if made[name]) + _sum(made)


def markdown(made: dict[str, list[dict]]) -> str:
    """For docs/dev/measured."""
    return "\n\n".join(_markdown(head, made[name]) for name, head in _both() if made[name]) + _sum(made)


def _both():
    return ("files", _FILES), ("plans", _PLANS)


def _sum(made):
    """How many of each kind became files that pass, and plans that pass."""
    told = []
    for kind in (_plan_models.CORPUS, _plan_models.FILE, _plan_models.TORCH):
        files = [row for row in made["files"] if row["kind"] == kind]
        good = sum(row["file"] == "yes" for row in files)
        told += [f"{good} of {len(files)} of kind {kind} are files that pass in FP32"] if files else []
    return "\n\n" + "; ".join(told) if told else ""


def _markdown(head, made):
    body = [[title for _, title in head], ["---"] * len(head)]
    body += [[_report.cell(row.get(key)).replace("|", "\\|") for key, _ in head] for row in made]
    return "\n".join("| " + " | ".join(line) + " |" for line in body)
