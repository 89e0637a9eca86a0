"""How much two answers may differ, by precision and by output.

    --thresholds='snr_db>=40'                          every float output
    --thresholds='snr_db>=40,max_abs<=0.01'            two bounds
    --thresholds='snr_db>=30;serving_default/logits:max_abs<=0.5,top1>=0.99'
                                                       the second group holds for one output; it adds to the defaults, and the same
                                                       metric's bound replaces the default
"""

import dataclasses
import re

from tftrt_tools import errors

# metric: direction. Bounds with >= must be reached, those with <= kept.
METRICS = {"max_abs": "<=", "max_rel": "<=", "mean_abs": "<=", "rmse": "<=", "cosine": ">=", "snr_db": ">=", "top1": ">=",
           "mismatches": "<="}
# By the arithmetic that ran. "rewrite": no engine ran, TensorFlow's float32 on both sides, so only the order of sums may differ.
# "TF32": what FP32 engines compute with on Ampere and later; it has FP16's 10 bits of mantissa and so its bounds (MobileNetV2 with
# random weights, a hard case, came out at 41 dB). INT8 is near 30 dB where calibration went well.
DEFAULTS = {
    "rewrite": {"snr_db": 80.0, "cosine": 0.99999},
    "FP32": {"snr_db": 60.0, "cosine": 0.99999},
    "TF32": {"snr_db": 30.0, "cosine": 0.999},
    "FP16": {"snr_db": 30.0, "cosine": 0.999},
    "INT8": {"snr_db": 15.0, "cosine": 0.97},
}
# Top-1 is bounded only on data of the user's own: on random inputs many rows are near a tie.
DEFAULT_TOP1 = {"rewrite": 0.999, "FP32": 0.999, "TF32": 0.98, "FP16": 0.98, "INT8": 0.95}
_ITEM = re.compile(r"\s*(\w+)\s*(<=|>=)\s*([-+0-9.eE]+)\s*$")
_EXAMPLE = "write --thresholds='snr_db>=40,max_abs<=0.01;SIGNATURE/OUTPUT:top1>=0.99'"


@dataclasses.dataclass(frozen=True)
class Miss:
    """A bound that an output did not keep."""

    output: str
    metric: str
    value: object
    bound: object

    def text(self):
        """One line for people."""
        if self.metric == "nonfinite":
            return f"{self.output}: {self.value}"
        sign = METRICS[self.metric]
        return f"{self.output}: {self.metric} is {self.value:.6g}, wanted {sign} {self.bound:g}"

    def to_dict(self):
        return dataclasses.asdict(self)


def parse(flag):
    """Parse --thresholds. Returns: {"" or "signature/output": {metric: bound}}. Raises: UsageError."""
    groups = {}
    for group in filter(None, (part.strip() for part in flag.split(";"))):
        name, colon, bounds = group.rpartition(":")
        if colon and "/" not in name:
            raise errors.UsageError(f"--thresholds: {name!r} is not of the form SIGNATURE/OUTPUT", _EXAMPLE)
        for item in bounds.split(","):
            match = _ITEM.match(item)
            if not match or match.group(1) not in METRICS:
                raise errors.UsageError(f"--thresholds: {item.strip()!r} is no bound", f"metrics: {', '.join(METRICS)}; {_EXAMPLE}")
            metric, sign, value = match.groups()
            if sign != METRICS[metric]:
                raise errors.UsageError(f"--thresholds: {metric} is bounded by {METRICS[metric]}, not {sign}", _EXAMPLE)
            try:
                groups.setdefault(name, {})[metric] = float(value)
            except ValueError:
                raise errors.UsageError(f"--thresholds: {value!r} is no number", _EXAMPLE) from None
    return groups


def bounds(comparison, arithmetic, own_data, given):
    """The bounds of one output. Args: arithmetic: key of DEFAULTS; own_data: inputs are the user's; given: what `parse` returned."""
    if comparison.mismatches is not None:
        chosen = {"mismatches": 0.0}
    else:
        chosen = dict(DEFAULTS[arithmetic])
        if own_data and comparison.classes:
            chosen["top1"] = DEFAULT_TOP1[arithmetic]
    applicable = {metric: bound for metric, bound in given.get("", {}).items() if getattr(comparison, metric) is not None}
    return {**chosen, **applicable, **given.get(comparison.name, {})}


def text(wanted):
    """{metric: bound} for people: "snr_db >= 30, top1 >= 0.98"."""
    return ", ".join(f"{metric} {METRICS[metric]} {bound:g}" for metric, bound in wanted.items())


def misses(comparison, wanted, allow_matching_nonfinite=False):
    """The Misses of one Comparison against `wanted` ({metric: bound}). NaN and Inf always miss unless they match and may."""
    found = []
    bad = comparison.nonfinite - (comparison.nonfinite_same if allow_matching_nonfinite else 0)
    if bad:
        also = f" (the original has {comparison.nonfinite_reference} itself: check the inputs)" if comparison.nonfinite_reference else ""
        found.append(Miss(comparison.name, "nonfinite", f"{bad} NaN or Inf of {comparison.elements} elements{also}", 0))
    for metric, bound in wanted.items():
        value = getattr(comparison, metric)
        if value is None:
            raise errors.UsageError(f"--thresholds: {metric} does not apply to {comparison.name} ({comparison.dtype})",
                                    "integers, booleans and strings have `mismatches` only; top1 needs rows of two or more")
        kept = value <= bound if METRICS[metric] == "<=" else value >= bound
        if not kept:
            found.append(Miss(comparison.name, metric, value, bound))
    return found
