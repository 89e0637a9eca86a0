"""Plots as SVG text, to be put into pages. Colours from the Okabe-Ito palette, which the colour-blind can tell apart."""

import io
import math

BLUE, GREEN, GREY, RED = "#0072B2", "#009E73", "#999999", "#D55E00"
_SNR_CEILING_DB = 160.0


def _figure(width, height):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "svg.hashsalt": "tftrt"})
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _svg(figure):
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg"):]


def _bare(axes):
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _beside(axes, x, y, text):
    """A label right of the end of a bar."""
    axes.annotate(text, (x, y), xytext=(4, 0), textcoords="offset points", va="center")


def signal_to_noise(comparisons, bounds):
    """SNR of each float output in dB, with its bound. Equal answers have no noise and are drawn at the right edge.

    Args: comparisons: metrics.Comparison with `snr_db`. bounds: {output: {metric: bound}}.
    Returns: SVG text, or "" without float outputs.
    """
    shown = [one for one in comparisons if one.snr_db is not None]
    if not shown:
        return ""
    figure = _figure(8, 0.9 + 0.34 * len(shown))
    axes = figure.subplots()
    for row, one in enumerate(shown):
        bound = bounds[one.name].get("snr_db")
        value = min(max(one.snr_db, 0.0), _SNR_CEILING_DB)
        kept = bound is None or one.snr_db >= bound
        axes.barh(row, value, color=BLUE if kept else RED, height=0.6)
        label = "equal" if math.isinf(one.snr_db) and one.snr_db > 0 else f"{one.snr_db:.0f} dB"
        inside = value > 0.85 * _SNR_CEILING_DB
        axes.text(value - 1.5 if inside else value + 1.5, row, label, va="center", ha="right" if inside else "left",
                  color="white" if inside else "black")
        if bound is not None:
            axes.plot([bound, bound], [row - 0.42, row + 0.42], color="black", linewidth=1.6)
    axes.set_yticks(range(len(shown)), [one.name for one in shown])
    axes.invert_yaxis()
    axes.set_xlim(0, _SNR_CEILING_DB)
    axes.set_xlabel("signal to noise against the original, dB (black line: the bound)")
    _bare(axes)
    return _svg(figure)


def where_ops_run(signatures):
    """Computing ops of each signature, in TensorRT and in TensorFlow. Args: signatures: manifest entries. Returns: SVG text or ""."""
    shown = [one for one in signatures if one["engines"] or one["native_ops"]]
    if not shown:
        return ""
    figure = _figure(8, 1.1 + 0.34 * len(shown))
    axes = figure.subplots()
    for row, one in enumerate(shown):
        inside, total = ops_of(one)
        axes.barh(row, inside, color=GREEN, height=0.6, label="TensorRT engines" if row == 0 else None)
        axes.barh(row, total - inside, left=inside, color=GREY, height=0.6, label="TensorFlow" if row == 0 else None)
        _beside(axes, total, row, f"{inside} of {total}")
    axes.set_yticks(range(len(shown)), [one["name"] for one in shown])
    axes.invert_yaxis()
    axes.set_xlabel("ops that compute something")
    axes.margins(x=0.12)
    figure.legend(loc="outside upper right", ncol=2, frameon=False)
    _bare(axes)
    return _svg(figure)


def ops_of(signature):
    """(ops in engines, ops in all) of a manifest's signature entry."""
    from tftrt_tools.conversion.result import SignatureResult

    return SignatureResult.from_dict(signature).compute_ops


def latency(rows):
    """Latency of two models side by side. Args: rows: [{"batch", "native_ms", "converted_ms"}]. Returns: SVG text."""
    figure = _figure(8, 0.9 + 0.6 * len(rows))
    axes = figure.subplots()
    for index, row in enumerate(rows):
        axes.barh(index - 0.2, row["native_ms"], color=GREY, height=0.38, label="native TensorFlow" if index == 0 else None)
        axes.barh(index + 0.2, row["converted_ms"], color=BLUE, height=0.38, label="TF-TRT" if index == 0 else None)
        _beside(axes, row["native_ms"], index - 0.2, f"{row['native_ms']:.2f} ms")
        _beside(axes, row["converted_ms"], index + 0.2, f"{row['converted_ms']:.2f} ms")
    axes.set_yticks(range(len(rows)), [f"batch {row['batch']}" for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("median milliseconds a call")
    axes.margins(x=0.12)
    figure.legend(loc="outside upper right", ncol=2, frameon=False)
    _bare(axes)
    return _svg(figure)
