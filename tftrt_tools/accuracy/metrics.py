"""How far two answers are apart, output by output, accumulated over calls in float64.

With reference r and answer a over all elements, d = a - r:
  max_abs  = max|d|                       mean_abs = mean|d|              rmse = sqrt(mean d^2)
  max_rel  = max |d| / max(|r|, epsilon)
  cosine   = r.a / (|r| |a|)              snr_db   = 10 log10(sum r^2 / sum d^2); inf where d = 0
  top1     = share of rows (last axis) in which r and a have their maximum at the same place
"""

import dataclasses
import math
import re

import numpy as np

_CLASS_NAME = re.compile(r"logit|prob|softmax|class|predictions|tag|label", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One output compared. Metrics that do not apply are None: floats have no `mismatches`, others only that.

    mismatches: share of elements that differ (integers, booleans, strings); nonfinite: NaN or Inf in the answer;
    nonfinite_reference: in the reference; nonfinite_same: of the answer's, those equal to the reference; classes: `top1` speaks of
    classes, not of some vector's largest entry; constant: why the reference shows nothing, as constancy.Variation says, or "".
    """

    signature: str
    output: str
    dtype: str
    elements: int
    max_abs: float | None
    max_rel: float | None
    mean_abs: float | None
    rmse: float | None
    cosine: float | None
    snr_db: float | None
    top1: float | None
    mismatches: float | None
    nonfinite: int
    nonfinite_reference: int
    nonfinite_same: int
    classes: bool
    constant: str = ""

    @property
    def name(self):
        """signature/output."""
        return f"{self.signature}/{self.output}"

    def to_dict(self):
        """JSON has no infinity: an infinite SNR (no difference at all) is written as the string "inf"."""
        plain = dataclasses.asdict(self)
        return {key: "inf" if isinstance(value, float) and math.isinf(value) else value for key, value in plain.items()}


class Accumulator:
    """Compares one output over several calls."""

    def __init__(self, signature, output, epsilon=1e-3):
        """Args: epsilon: floor of the divisor of max_rel, in the output's own unit."""
        self.signature, self.output, self.epsilon = signature, output, epsilon
        self.dtype = ""
        self.elements = self.differing = self.nonfinite = self.nonfinite_reference = self.nonfinite_same = 0
        self.max_abs = self.max_rel = self.sum_abs = self.sum_squares = self.dot = self.reference_squares = self.answer_squares = 0.0
        self.compared = self.rows = self.agreeing = 0
        self.floats = self.probabilities = True

    def add(self, reference, answer):
        """Compare one call's arrays. Raises: ValueError where shapes or kinds differ."""
        reference, answer = np.asarray(reference), np.asarray(answer)
        if reference.shape != answer.shape:
            raise ValueError(f"shape {answer.shape} where the original has {reference.shape}")
        if reference.dtype != answer.dtype:
            raise ValueError(f"dtype {answer.dtype} where the original has {reference.dtype}")
        self.dtype = "string" if reference.dtype.kind in "OSU" else reference.dtype.name
        self.elements += reference.size
        self.floats = reference.dtype.kind in "fc" or reference.dtype.name == "bfloat16"
        if not self.floats:
            self.differing += int(np.sum(reference != answer))
            return
        wide = np.complex128 if reference.dtype.kind == "c" else np.float64
        self._add_floats(reference.astype(wide), answer.astype(wide))
        self._add_rows(reference, answer)

    def _add_floats(self, reference, answer):
        finite_reference, finite = np.isfinite(reference), np.isfinite(answer)
        self.nonfinite += int(np.sum(~finite))
        self.nonfinite_reference += int(np.sum(~finite_reference))
        same = ~finite & ~finite_reference & ((reference == answer) | (np.isnan(reference) & np.isnan(answer)))
        self.nonfinite_same += int(np.sum(same))
        both = finite & finite_reference
        reference, answer = reference[both], answer[both]
        if not reference.size:
            return
        gap = np.abs(answer - reference)
        size = np.abs(reference)
        self.compared += reference.size
        self.max_abs = max(self.max_abs, float(gap.max()))
        self.max_rel = max(self.max_rel, float((gap / np.maximum(size, self.epsilon)).max()))
        self.sum_abs += float(gap.sum())
        self.sum_squares += float(np.square(gap).sum())
        self.dot += float(np.real(np.vdot(reference, answer)))
        self.reference_squares += float(np.square(size).sum())
        self.answer_squares += float(np.square(np.abs(answer)).sum())

    def _add_rows(self, reference, answer):
        if reference.ndim < 2 or reference.shape[-1] < 2 or reference.dtype.kind == "c" or not reference.size:
            return
        flat = reference.reshape(-1, reference.shape[-1]).astype(np.float64)
        self.rows += len(flat)
        self.agreeing += int(np.sum(flat.argmax(-1) == answer.reshape(flat.shape).astype(np.float64).argmax(-1)))
        self.probabilities &= bool(np.all(flat >= 0) and np.allclose(flat.sum(-1), 1.0, atol=1e-3))

    def result(self):
        """The Comparison of everything added."""
        metrics = self._float_metrics() if self.floats else dict.fromkeys(("max_abs", "max_rel", "mean_abs", "rmse", "cosine", "snr_db"))
        mismatches = None if self.floats else self.differing / max(self.elements, 1)
        top1 = self.agreeing / self.rows if self.rows else None
        classes = bool(self.rows) and (self.probabilities or bool(_CLASS_NAME.search(self.output)))
        return Comparison(self.signature, self.output, self.dtype, self.elements, **metrics, top1=top1, mismatches=mismatches,
                          nonfinite=self.nonfinite, nonfinite_reference=self.nonfinite_reference, nonfinite_same=self.nonfinite_same,
                          classes=classes)

    def _float_metrics(self):
        count = max(self.compared, 1)
        norms = math.sqrt(self.reference_squares) * math.sqrt(self.answer_squares)
        both_zero = self.reference_squares == 0 and self.answer_squares == 0
        cosine = self.dot / norms if norms else (1.0 if both_zero else 0.0)
        if self.sum_squares == 0:
            snr = math.inf
        else:
            snr = 10 * math.log10(self.reference_squares / self.sum_squares) if self.reference_squares else -math.inf
        return {"max_abs": self.max_abs, "max_rel": self.max_rel, "mean_abs": self.sum_abs / count,
                "rmse": math.sqrt(self.sum_squares / count), "cosine": cosine, "snr_db": snr}


def accuracy(labels, answers):
    """Share of rows whose maximum is at the label. Args: labels: int (N,); answers: (N, classes)."""
    return float(np.mean(np.asarray(answers).argmax(-1).reshape(-1) == np.asarray(labels).reshape(-1)))


def compare(pairs, epsilon=1e-3, watch=None):
    """Compare answers, output by output; outputs that only the reference has are passed over.

    Args: pairs: iterable of (run.Call, {output: reference}, {output: answer}). epsilon: as of Accumulator. watch: constancy.Watch, which
      sees them too and says which outputs show nothing; None where nobody asks.
    Returns: ([what Accumulator.result gives, one for each output], [problem in words, each once]).
    """
    found, problems = {}, []
    for call, reference, answer in pairs:
        if watch is not None:
            watch.add(call, reference)
        for output in (one for one in reference if one in answer):
            key = (call.signature, output)
            try:
                found.setdefault(key, Accumulator(*key, epsilon)).add(reference[output], answer[output])
            except ValueError as error:
                problems.append(f"{call.signature}/{output}: {error}, in {call.text()}")
    results = [entry.result() for entry in found.values()]
    if watch is not None:
        results = [dataclasses.replace(one, constant=watch.constant(one.signature, one.output)) for one in results]
    return results, list(dict.fromkeys(problems))
