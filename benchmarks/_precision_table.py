"""The Markdown tables of `precision`, from the lines of its journal alone."""

import statistics

_SAID = {
    "native": "native TensorFlow",
    "FP32": "FP32 (TF32)",
    "FP16": "FP16",
    "INT8-tensorrt": "INT8, tensorrt: entropy2",
    "INT8-entropy": "INT8, toolkit: entropy",
    "INT8-percentile": "INT8, toolkit: percentile",
    "INT8-mse": "INT8, toolkit: mse",
    "INT8-max": "INT8, toolkit: max",
    "tuned": "tuned",
}
_MIB = 2**20


def markdown(lines):
    """Tables of a journal's lines (dicts, oldest first): one a model, one of calibration tables, a list of what failed."""
    groups = {}
    for line in lines:
        if line["kind"] != "run":
            groups.setdefault((line["model"], line["key"]), []).append(line)
    parts = [
        _machine(lines),
        *(_model(model, group) for (model, _), group in groups.items()),
        _tables(groups),
        _failures(groups),
    ]
    return "\n\n".join(part for part in parts if part)


def columns(group):
    """{column name: everything that the lines of one model say of it}; a later line wins, a later success takes an error back."""
    found = {}
    for line in group:
        if line["kind"] not in ("built", "calibrated", "measured", "error") or not line["column"]:
            continue
        one = found.setdefault(line["column"], {})
        if line["kind"] == "error":
            one["error"] = f"{line['step']}: {line['error']}"
        else:
            one.pop("error", None)
            one.update({name: value for name, value in line.items() if name not in ("kind", "time", "model", "key")})
    return {name: found[name] for name in _SAID if name in found}


def _machine(lines):
    seen = dict.fromkeys(
        f"{one['machine']['gpu'] or 'no GPU'}; {one['machine']['cpus']} x {one['machine']['processor']}; "
        f"TensorFlow {one['machine']['tensorflow']}, TensorRT {one['machine']['tensorrt']}; {one['machine']['time'][:10]}"
        for one in lines
        if one["kind"] == "run"
    )
    return "\n".join(seen)


def _model(model, group):
    found = columns(group)
    title = next((line["text"] for line in group if line["kind"] == "prepared"), model)
    if not found:
        return ""
    device = next((one["device"] for one in found.values() if one.get("device")), "")
    rows = [[label, *(cell(one) for one in found.values())] for label, cell in _rows(found)]
    rows = [row for row in rows if any(row[1:])]
    note = (
        "\n\n\\* other models were prepared on the CPU meanwhile"
        if any(one.get("disturbed") for one in found.values())
        else ""
    )
    return (
        f"#### {title}{', ' + device if device else ''}\n\n"
        + _table(["", *(_SAID[name] for name in found)], rows)
        + note
    )


def _rows(found):
    """[(label, function of what is known of a column -> text)]."""
    batches = list(dict.fromkeys(batch for one in found.values() for batch in one.get("latency", {})))
    for batch in batches:
        native = [
            one["latency"][batch] for name, one in found.items() if name != "native" and batch in one.get("latency", {})
        ]
        yield (
            f"latency, batch {batch}, ms: median (MAD)",
            lambda one, batch=batch, native=native: _latency(one, batch, native),
        )
    last = next((one["score_batch"] for one in found.values() if one.get("score_batch")), "")
    yield f"images/s, batch {last}, 2 callers", lambda one: _number(one.get("images_s"), "{:,.0f}")
    rows = next((one["rows"] for one in found.values() if one.get("rows")), "")
    yield f"accuracy on {rows} labelled inputs, %", lambda one: _number(one.get("accuracy"), "{:.2f}", 100)
    yield f"top-1 equal to float32, {rows} inputs, %", lambda one: _number(one.get("top1"), "{:.2f}", 100)
    yield (
        "SNR against float32, dB",
        lambda one: "∞" if one.get("snr_db") == "inf" else _number(one.get("snr_db"), "{:.1f}"),
    )
    yield "NaN or Inf in the answers", lambda one: str(one.get("nonfinite") or "")
    yield (
        "ops in engines, % (engine ops)",
        lambda one: f"{100 * one['coverage']:.0f} ({one['engines']})" if one.get("engines") else "",
    )
    yield "calibrated on the GPU in, s", lambda one: _number(one.get("calibrate_seconds"), "{:.1f}")
    yield "calibrated on the CPU meanwhile in, s", lambda one: _number(one.get("cpu_calibrate_seconds"), "{:.1f}")
    yield "engines built in, s", lambda one: _number(one.get("build_seconds") or None, "{:.1f}")
    yield "built before in that process", _before
    yield "engines, MB", lambda one: _number(one.get("engine_bytes") or None, "{:.1f}", 1e-6)
    yield "GPU memory while building, MiB", lambda one: _number(one.get("peak_device_bytes"), "{:,.0f}", 1 / _MIB)
    yield (
        "the same by TensorFlow's allocator, MiB",
        lambda one: _number(one.get("peak_allocated_bytes"), "{:,.0f}", 1 / _MIB),
    )
    yield "failed", lambda one: one.get("error", "").replace("|", "\\|")[:160]


def _before(one):
    """The precisions whose engines TensorRT had timed before."""
    if "built_before" not in one:
        return ""
    return ", ".join(dict.fromkeys(name.split("-")[0] for name in one["built_before"])) or "nothing"


def _latency(one, batch, pairs):
    """A converted model's median with how many times faster it is than the original beside it; the original's: over all such pairs."""
    times = one.get("latency", {}).get(batch)
    if not times:
        return ""
    if one["column"] == "native":
        pairs = pairs or [times]
        median, mad = (statistics.median(pair[name] for pair in pairs) for name in ("native_ms", "native_mad_ms"))
        return f"{median:.3g} ({mad:.2g})"
    mark = r"\*" if one.get("disturbed") else ""
    return f"{times['ms']:.3g} ({times['mad_ms']:.2g}), x {times['native_ms'] / times['ms']:.2f}{mark}"


def _number(value, form, factor=1):
    return "" if value is None else form.format(value * factor)


def _table(heads, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows])


def _tables(groups):
    """How the toolkit's entropy scales compare with TensorRT's own."""
    rows = []
    for (model, _), group in groups.items():
        line = next((one for one in reversed(group) if one["kind"] == "tables"), None)
        if line and line["summary"]:
            found = line["summary"]
            worst = found["worst"]
            rows.append(
                [
                    model,
                    f"{found['tensors']} ({found['equal']})",
                    f"{line['only_tensorrt']} / {line['only_toolkit']}",
                    f"{found['median']:.4f}",
                    f"{found['p5']:.4f} to {found['p95']:.4f}",
                    f"{found['spread']:.4f}",
                    f"`{worst['tensor']}` x {worst['ratio']:.3g}",
                ]
            )
    heads = [
        "model",
        "tensors in both (equal)",
        "only in TensorRT's / toolkit's",
        "median",
        "5th to 95th percentile",
        "standard deviation of log2",
        "farthest",
    ]
    return "#### Scales of the toolkit's entropy method over TensorRT's own\n\n" + _table(heads, rows) if rows else ""


def _failures(groups):
    found = [
        f"- {model}{' ' + name if name else ''}: {one['error']}"
        for (model, _), group in groups.items()
        for name, one in columns(group).items()
        if "error" in one
    ]
    for (model, _), group in groups.items():
        general = [line for line in group if line["kind"] in ("prepared", "error") and not line["column"]]
        last = general[-1] if general else None
        found += [f"- {model}: {last['step']}: {last['error']}"] if last and last["kind"] == "error" else []
    return "Failed:\n\n" + "\n".join(dict.fromkeys(found)) if found else ""
