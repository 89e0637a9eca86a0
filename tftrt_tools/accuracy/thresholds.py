"""How much two answers may differ, by precision and by output.

--thresholds='snr_db>=40'                          every float output
--thresholds='snr_db>=40,max_abs<=0.01'            two bounds
--thresholds='snr_db>=30;serving_default/logits:max_abs<=0.5,top1>=0.99'
                                                   the second group holds for one output; it adds to the defaults, and the same
                                                   metric's bound replaces the default
--thresholds='labels:top1>=0.97'                   what the converted model has to reach against --labels
--thresholds='my_metrics:f1>=0.9'                  a function metric(outputs, labels, reference) -> float of your own
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tftrt_tools.accuracy import goal, kinds, metrics
from tftrt_tools.base import errors, records

if TYPE_CHECKING:
    from tftrt_tools.accuracy.metrics.comparison import Comparison

# What `parse` returns.
Bounds = Mapping[str, Mapping[str, float]]
LABELS = "labels"
# The key under which `parse` keeps the bounds of the user's functions, {"module:function>=": bound}.
FUNCTIONS = "functions"
# FP16 simulated rounds more often than engines do: MobileNetV2 with random weights keeps 32 to 35 dB there, and 41 on a GPU. So it is held
# to INT8's wider bounds, and neither classes nor integers are counted: they change at near ties.
FP16_SIMULATED = "FP16 simulated"
# The bounds for each arithmetic. "rewrite": no engine ran; both sides computed in TensorFlow's float32, and only sums differ in order.
# "TF32": what FP32 engines compute with on Ampere and later; it has FP16's 10 bits of mantissa and so its bounds (MobileNetV2 with
# random weights, a hard case, came out at 41 dB). INT8 is near 30 dB where calibration went well.
DEFAULTS = {
    "rewrite": {"snr_db": 80.0, "cosine": 0.99999},
    "FP32": {"snr_db": 60.0, "cosine": 0.99999},
    "TF32": {"snr_db": 30.0, "cosine": 0.999},
    "FP16": {"snr_db": 30.0, "cosine": 0.999},
    "INT8": {"snr_db": 15.0, "cosine": 0.97},
}
DEFAULT_TOP1 = {"rewrite": 0.999, "FP32": 0.999, "TF32": 0.98, "FP16": 0.98, "INT8": 0.95}
# Bounds of the kinds of outputs that are not judged as numbers. An SNR of 30 dB is an error of 0.03 of the values' size, one of 15 dB of
# 0.18.
KIND_DEFAULTS = {
    kinds.SCORES: {"max_share": {"rewrite": 0.001, "FP32": 0.01, "TF32": 0.05, "FP16": 0.05, "INT8": 0.2}},
    kinds.PROBABILITIES: {"max_abs": {"rewrite": 0.001, "FP32": 0.01, "TF32": 0.05, "FP16": 0.05, "INT8": 0.2}},
    kinds.BOXES: {
        "iou": {"rewrite": 0.999, "FP32": 0.99, "TF32": 0.95, "FP16": 0.95, "INT8": 0.85},
        "max_box": {"rewrite": 0.001, "FP32": 0.01, "TF32": 0.1, "FP16": 0.1, "INT8": 0.4},
    },
    kinds.MASKS: {"mean_iou": {"rewrite": 0.999, "FP32": 0.99, "TF32": 0.95, "FP16": 0.95, "INT8": 0.85}},
    kinds.TEXTS: {"wer": {"rewrite": 0.0, "FP32": 0.001, "TF32": 0.02, "FP16": 0.02, "INT8": 0.05}},
    kinds.IDS: {"mismatches": {key: round(1 - share, 6) for key, share in DEFAULT_TOP1.items()}},
    kinds.DETECTIONS: {
        "matched": {"rewrite": 0.99, "FP32": 0.99, "TF32": 0.95, "FP16": 0.95, "INT8": 0.8},
        "matched_iou": {"rewrite": 0.999, "FP32": 0.99, "TF32": 0.95, "FP16": 0.95, "INT8": 0.85},
        "matched_score": {"rewrite": 0.001, "FP32": 0.01, "TF32": 0.05, "FP16": 0.05, "INT8": 0.2},
    },
}
_ITEM = re.compile(r"\s*(\w+)\s*(<=|>=)\s*([-+0-9.eE]+)\s*$")
_FUNCTION = re.compile(r"\s*([A-Za-z_][\w.]*:[A-Za-z_]\w*)\s*(<=|>=)\s*([-+0-9.eE]+)\s*$")
_EXAMPLE = "write --thresholds='snr_db>=40,max_abs<=0.01;SIGNATURE/OUTPUT:top1>=0.99'"


@dataclasses.dataclass(frozen=True)
class Miss(records.Record):
    """A bound that an output did not keep; output: "labels" if the answers were compared with labels."""

    output: str
    metric: str
    value: float | str
    bound: float

    def text(self) -> str:
        """One line for people."""
        if self.metric == "nonfinite":
            return f"{self.output}: {self.value}"
        sign = metrics.METRICS[self.metric].sign
        return f"{self.output}: {self.metric} is {self.value:.6g}, wanted {sign} {self.bound:g}"


def parse(flag: str) -> dict[str, dict[str, float]]:
    """Parse --thresholds. Returns: {"", "signature/output", LABELS or FUNCTIONS: {metric: bound}}. Raises: UsageError."""
    groups: dict[str, dict[str, float]] = {}
    for group in filter(None, (part.strip() for part in flag.split(";"))):
        items = group.split(",")
        functions = [_FUNCTION.match(item) for item in items]
        # A name that is a metric's is that metric, of an output named without its signature.
        own = [
            function
            for function in functions
            if function and function[1].partition(":")[0] != LABELS and not _is_metric(function[1].partition(":")[2])
        ]
        for own_function in own:
            groups.setdefault(FUNCTIONS, {})[own_function[1] + own_function[2]] = _number(own_function[3])
        rest = ",".join(item for item, function in zip(items, functions, strict=True) if function not in own)
        if not rest:
            continue
        name, colon, bounds = rest.rpartition(":")
        if colon and "/" not in name and name != LABELS:
            raise errors.UsageError(f"--thresholds: {name!r} is not of the form SIGNATURE/OUTPUT", _EXAMPLE)
        for item in bounds.split(","):
            match = _ITEM.match(item)
            metric, sign, value = match.groups() if match else ("", "", "")
            metric = metrics.ALIASES.get(metric, metric)
            if metric not in metrics.METRICS:
                raise _no_bound(item.strip())
            _check_of_labels(name, metric)
            if sign != metrics.METRICS[metric].sign:
                raise errors.UsageError(
                    f"--thresholds: {metric} is bounded by {metrics.METRICS[metric].sign}, not {sign}", _EXAMPLE
                )
            if decided := metrics.METRICS[metric].decided(_number(value)):
                raise errors.UsageError(
                    f"--thresholds: {item.strip()} judges nothing: {decided}",
                    "give a bound that some answers keep and others miss",
                )
            groups.setdefault(name, {})[metric] = _number(value)
    return groups


def _no_bound(item: str) -> errors.UsageError:
    """The error for a bound that cannot be read, or whose metric does not exist."""
    name = re.match(r"\w*", item)
    metric = name[0] if name else ""
    if not _ITEM.match(item) and _is_metric(metric):
        sign = metrics.METRICS[metrics.ALIASES.get(metric, metric)].sign
        return errors.UsageError(f"--thresholds: {item!r} is no bound", f"write {metric}{sign}NUMBER")
    near = errors.nearest(metric, [*metrics.METRICS, *metrics.ALIASES]) if metric else ""
    return errors.UsageError(
        f"--thresholds: {item!r} is no bound",
        near if near.startswith("did") else f"metrics: {', '.join(metrics.METRICS)}; {_EXAMPLE}",
    )


def _is_metric(name: str) -> bool:
    return metrics.ALIASES.get(name, name) in metrics.METRICS


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise errors.UsageError(f"--thresholds: {text!r} is no number", _EXAMPLE) from None


def functions(given: Bounds) -> list[goal.Goal]:
    """The bounds of the user's functions, as Goals. Args: given: what `parse` returned."""
    return [
        goal.Goal(key[:-2], "threshold", bound, key.endswith(">=")) for key, bound in given.get(FUNCTIONS, {}).items()
    ]


def _check_of_labels(name: str, metric: str) -> None:
    metric_names = [definition.name for definition in metrics.METRICS.values() if definition.labels]
    if name == LABELS and metric not in metric_names:
        raise errors.UsageError(
            f"--thresholds: {metric} is no metric of labels", f"those are {', '.join(metric_names)}"
        )
    if name != LABELS and not metrics.METRICS[metric].kinds:
        raise errors.UsageError(
            f"--thresholds: {metric} needs the truth", f"give --labels, and write --thresholds='{LABELS}:{metric}>=…'"
        )


def bounds(comparison: Comparison, arithmetic: str, own_data: bool, given: Bounds) -> dict[str, float]:
    """The bounds of one output. Args: arithmetic: key of DEFAULTS, or FP16_SIMULATED; own_data: inputs are the user's; given: what `parse`
    returned.

    An output that is judged together with others has none, unless the user gave its kind; bounds for every output do not apply to it,
    nor to ids.
    """
    kind, judged = comparison.kind, comparison.said or not comparison.part_of
    chosen = _default(comparison, arithmetic, own_data) if judged and comparison.values else {}
    able = {metric for metric in comparison.values if judged and (kind != kinds.IDS or metric == "mismatches")}
    applicable = {metric: bound for metric, bound in given.get("", {}).items() if metric in able}
    return {**chosen, **applicable, **given.get(comparison.name, {})}


def _default(comparison: Comparison, arithmetic: str, own_data: bool) -> dict[str, float]:
    kind, simulated = comparison.kind, arithmetic == FP16_SIMULATED
    arithmetic = "INT8" if simulated else arithmetic
    if kind == kinds.EXACT:
        return {} if simulated else {"mismatches": 0.0}
    # Top-1 has a bound only on the user's data: on random inputs many rows are near a tie.
    top = ("top1", "top5") if kind == kinds.PROBABILITIES else ("top1",)
    counted = own_data and comparison.classes and not simulated
    ranked = {metric: DEFAULT_TOP1[arithmetic] for metric in top if counted and metric in comparison.values}
    if kind not in KIND_DEFAULTS:
        return DEFAULTS[arithmetic] | ranked
    return {
        metric: by[arithmetic] for metric, by in KIND_DEFAULTS[kind].items() if metric in comparison.values
    } | ranked


def unused(given: Bounds, comparisons: Iterable[Comparison]) -> list[str]:
    """Metrics in the bounds for every output that apply to no output."""
    return [metric for metric in given.get("", {}) if all(one.value(metric) is None for one in comparisons)]


def of_labels(values: Mapping[str, float], given: Bounds) -> list[Miss]:
    """Misses of a model's {metric: value} against labels. Args: given: what `parse` returned. Raises: UsageError."""
    parsed = []
    for metric, bound in given.get(LABELS, {}).items():
        if metric not in values:
            raise errors.UsageError(
                f"--thresholds: {metric} does not apply to these labels", f"they have {', '.join(values)}"
            )
        if not _kept(metric, values[metric], bound):
            parsed.append(Miss(LABELS, metric, values[metric], bound))
    return parsed


def _kept(metric: str, value: float, bound: float) -> bool:
    return value >= bound if metrics.METRICS[metric].higher else value <= bound


def text(wanted: Mapping[str, float]) -> str:
    """{metric: bound} for people: "snr_db >= 30, top1 >= 0.98"."""
    return ", ".join(f"{metric} {metrics.METRICS[metric].sign} {bound:g}" for metric, bound in wanted.items())


def _kind_text(comparison: Comparison) -> str:
    return (
        comparison.dtype
        if comparison.kind in (comparison.dtype, kinds.EXACT)
        else f"{comparison.dtype}, {comparison.kind}"
    )


def misses(comparison: Comparison, wanted: Mapping[str, float], allow_matching_nonfinite: bool = False) -> list[Miss]:
    """The Misses of one Comparison against `wanted` ({metric: bound}). NaN and Inf always miss, unless the original has the same and
    that is allowed."""
    missed = []
    bad = comparison.nonfinite - (comparison.nonfinite_same if allow_matching_nonfinite else 0)
    if bad:
        own = comparison.nonfinite_reference
        also = f" (the original has {own} itself: check the inputs and the weights)" if own else ""
        missed.append(
            Miss(comparison.name, "nonfinite", f"{bad} NaN or Inf of {comparison.elements} elements{also}", 0)
        )
    for metric, bound in wanted.items():
        value = comparison.value(metric)
        if value is None:
            raise errors.UsageError(
                f"--thresholds: {metric} does not apply to {comparison.name} ({_kind_text(comparison)})",
                f"it has {', '.join(comparison.values) or 'none'}; --output_kind says what an output is",
            )
        if not _kept(metric, value, bound):
            missed.append(Miss(comparison.name, metric, value, bound))
    return missed
