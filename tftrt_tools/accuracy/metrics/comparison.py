"""Two answers compared, output by output, over calls."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy import kinds
from tftrt_tools.accuracy.metrics import detections, registry
from tftrt_tools.base import records

if TYPE_CHECKING:
    from tftrt_tools.accuracy.metrics.metric import Measure
    from tftrt_tools.models.execution.constancy import Watch
    from tftrt_tools.models.execution.run import Call

    # A call, {output: array} of the reference, {output: array} of the answer.
    Pair = tuple[Call, Mapping[str, npt.NDArray[Any]], Mapping[str, npt.NDArray[Any]]]

_CLASS_NAME = re.compile(r"logit|prob|softmax|class|predictions|tag|label", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(records.Record):
    """One output compared, or the outputs of a detector together."""

    signature: str
    output: str
    # The dtype of the output; "detections" for a detector's.
    dtype: str
    # Elements of the output; for a detector, detections of the reference.
    elements: int
    # The kind, of accuracy.kinds.
    kind: str
    # {metric: value}, of the metrics that apply.
    values: Mapping[str, float]
    # NaN or Inf in the answer, in the reference, and of the answer's those equal to the reference.
    nonfinite: int = 0
    nonfinite_reference: int = 0
    nonfinite_same: int = 0
    # Whether the last dimension holds classes.
    classes: bool = False
    # Whether the user said the kind.
    said: bool = False
    # Name of the comparison that judges this output together with others, or "".
    part_of: str = ""
    # Why the reference shows nothing, (constancy.Variation), or "".
    constant: str = ""

    @property
    def name(self) -> str:
        """signature/output."""
        return f"{self.signature}/{self.output}"

    def value(self, metric: str) -> float | None:
        """The value of a metric; None where it does not apply."""
        return self.values.get(metric)

    def shown(self, metric: str) -> str:
        """The value for people, "" if there is none to show."""
        value = self.value(metric)
        metric_type = registry.METRICS[metric]
        # Without classes such a metric would only be about the largest entry of some vector.
        return "" if value is None or metric_type.of_classes and not self.classes else metric_type.show(value)

    snr_db = property(lambda self: self.value("snr_db"))
    cosine = property(lambda self: self.value("cosine"))
    max_abs = property(lambda self: self.value("max_abs"))
    max_rel = property(lambda self: self.value("max_rel"))
    mean_abs = property(lambda self: self.value("mean_abs"))
    rmse = property(lambda self: self.value("rmse"))
    top1 = property(lambda self: self.value("top1"))
    mismatches = property(lambda self: self.value("mismatches"))

    def to_dict(self) -> dict[str, Any]:
        """The document: the metrics stand beside the fields; those that readers rely on are there even where they do not apply."""
        plain = super().to_dict()
        values = plain.pop("values")
        result: dict[str, Any] = (
            plain
            | dict.fromkeys(definition.name for definition in registry.METRICS.values() if definition.written)
            | values
        )
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """From what `to_dict` wrote."""
        values = {name: value for name, value in data.items() if name in registry.METRICS and value is not None}
        return super().from_dict({**data, "values": values})


class Accumulator:
    """Compares one output over several calls."""

    def __init__(
        self,
        signature: str,
        output: str,
        epsilon: float = 1e-3,
        kind: str = "",
        part_of: str = "",
        said: bool = True,
        wanted: Iterable[str] = (),
    ) -> None:
        """Args: epsilon: floor of the divisor of max_rel, in the output's own unit. kind: of the output, "" if it is not known; said:
        whether the user gave it. part_of: as of Comparison. wanted: the requested metrics, () for all."""
        self.signature, self.output, self._epsilon = signature, output, epsilon
        self._kind, self._part_of, self._said = kind, part_of, said and bool(kind)
        self._wanted = frozenset(wanted)
        self._ids, self._dtype, self._elements, self._floats = kinds.Ids(output), "", 0, False
        self._measures: list[Measure[npt.NDArray[Any]]] | None = None
        self._nonfinite = np.zeros(3, np.int64)  # in the answer, in the reference, the same in both
        self._rows, self._probabilities = False, True

    def add(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        """Compare one call's arrays. Raises: ValueError where shapes or kinds differ; UsageError where they do not fit the kind that the
        user gave."""
        reference, answer = np.asarray(reference), np.asarray(answer)
        if reference.shape != answer.shape:
            raise ValueError(f"shape {answer.shape} where the original has {reference.shape}")
        if reference.dtype != answer.dtype:
            raise ValueError(f"dtype {answer.dtype} where the original has {reference.dtype}")
        self._elements += reference.size
        if self._measures is None:
            self._begin(reference)
        if self._floats:
            self._look(reference, answer)
        for measure in self._measures or ():
            measure.add(reference, answer)

    def _begin(self, reference: npt.NDArray[Any]) -> None:
        self._dtype = "string" if reference.dtype.kind in "OSU" else reference.dtype.name
        self._floats = reference.dtype.kind in "fc" or reference.dtype.name == "bfloat16"
        if self._kind and self._said:
            kinds.check_fits(self._kind, f"{self.signature}/{self.output}", reference)
        unknown = {kinds.VALUES, kinds.IDS} if reference.dtype.kind != "c" else {kinds.VALUES}
        possible = {self._kind} if self._kind else unknown if self._floats else {kinds.EXACT}
        self._measures = [
            measure(self._epsilon)
            for measure, given in registry.of_kinds(_exact_if(not self._floats, possible)).items()
            if not self._wanted or self._wanted & {function.name for function in given}
        ]

    def _look(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        """Learn from the values what the output holds: no numbers, probabilities, or ids."""
        wide = np.complex128 if reference.dtype.kind == "c" else np.float64
        reference, answer = reference.astype(wide), answer.astype(wide)
        if not self._kind and wide == np.float64 and self._ids.possible:
            self._ids.add(reference, answer)
            if not self._ids.possible:
                self._measures = [
                    measure for measure in self._measures or () if type(measure) not in registry.of_ids_alone()
                ]
        finite_reference, finite = np.isfinite(reference), np.isfinite(answer)
        same = ~finite & ~finite_reference & ((reference == answer) | (np.isnan(reference) & np.isnan(answer)))
        self._nonfinite += [int(np.sum(~finite)), int(np.sum(~finite_reference)), int(np.sum(same))]
        if wide == np.float64 and reference.ndim > 1 and reference.shape[-1] > 1 and reference.size:
            self._rows = True
            self._probabilities &= bool(np.all(reference >= 0) and np.allclose(reference.sum(-1), 1.0, atol=1e-3))

    def result(self) -> Comparison:
        """The Comparison of everything added."""
        kind = self._kind or (kinds.EXACT if not self._floats else kinds.IDS if self._ids.found else kinds.VALUES)
        allowed = _exact_if(not self._floats, {kind})
        values = {
            name: value
            for measure in self._measures or ()
            for name, value in measure.values().items()
            if registry.METRICS[name].kinds & allowed
        }
        classes = self._rows and (
            kind in (kinds.PROBABILITIES, kinds.MASKS)
            or kind == kinds.VALUES
            and (self._probabilities or bool(_CLASS_NAME.search(self.output)))
        )
        nonfinite, of_reference, same = map(int, self._nonfinite)
        return Comparison(
            signature=self.signature,
            output=self.output,
            dtype=self._dtype,
            elements=self._elements,
            kind=kind,
            values=values,
            nonfinite=nonfinite,
            nonfinite_reference=of_reference,
            nonfinite_same=same,
            classes=classes,
            said=self._said,
            part_of=self._part_of,
        )


def _exact_if(not_floats: bool, possible: set[str]) -> set[str]:
    """Integers that are ids have no distances, like all integers."""
    return {kinds.EXACT} if not_floats and possible == {kinds.IDS} else possible


class _Together:
    """Compares the outputs of a detector over several calls."""

    def __init__(self, signature: str, group: detections.Group) -> None:
        self.group, self._signature, self._count = group, signature, 0
        self._measures = [measure() for measure in registry.of_kinds({kinds.DETECTIONS})]

    def add(self, reference: Mapping[str, npt.NDArray[Any]], answer: Mapping[str, npt.NDArray[Any]]) -> None:
        wanted, given = self.group.images(reference), self.group.images(answer)
        self._count += sum(len(one.boxes) for one in wanted)
        for measure in self._measures:
            measure.add(wanted, given)

    def result(self) -> Comparison:
        values = {name: value for measure in self._measures for name, value in measure.values().items()}
        return Comparison(
            signature=self._signature,
            output=self.group.name,
            dtype=kinds.DETECTIONS,
            elements=self._count,
            kind=kinds.DETECTIONS,
            values=values,
            constant="" if self._count else "nothing found",
        )


class Comparing:
    """Compares all outputs of a model over several calls."""

    def __init__(self, epsilon: float = 1e-3, said: Mapping[str, str] | None = None) -> None:
        """Args: epsilon: as of Accumulator. said: what kinds.parse returned."""
        self._epsilon, self._said = epsilon, said or {}
        self._groups: dict[str, _Together | None] = {}
        self._found: dict[tuple[str, str], Accumulator] = {}
        self.problems: dict[str, None] = {}

    def add(
        self,
        signature: str,
        reference: Mapping[str, npt.NDArray[Any]],
        answer: Mapping[str, npt.NDArray[Any]],
        where: str = "",
    ) -> None:
        """Compare one call; outputs that only the reference has are skipped. Args: where: the call in words, for problems."""
        if signature not in self._groups:
            told = {output: kinds.said(self._said, signature, output) for output in reference}
            group = detections.find(reference, told)
            self._groups[signature] = _Together(signature, group) if group else None
        together, broken = self._groups[signature], False
        for output in (name for name in reference if name in answer):
            entry = self._found.get((signature, output)) or self._entry(signature, output, together)
            try:
                entry.add(reference[output], answer[output])
            except ValueError as error:
                broken = True
                self.problems[f"{signature}/{output}: {error}" + (f", in {where}" if where else "")] = None
        if together and not broken and all(output in answer for output in together.group.members):
            together.add(reference, answer)

    def _entry(self, signature: str, output: str, together: _Together | None) -> Accumulator:
        kind = kinds.said(self._said, signature, output)
        group = together.group if together is not None and output in together.group.members else None
        entry = Accumulator(
            signature,
            output,
            self._epsilon,
            kind or (group.kind_of(output) if group else ""),
            group.name if group else "",
            bool(kind),
        )
        return self._found.setdefault((signature, output), entry)

    def group(self, signature: str) -> detections.Group | None:
        """The detector's outputs of a signature, or None."""
        together = self._groups.get(signature)
        return together.group if together else None

    def results(self) -> list[Comparison]:
        """One for each output, then one for each detector. Raises: UsageError for kinds of outputs that are not there."""
        kinds.check(self._said, self._found)
        return [entry.result() for entry in self._found.values()] + [
            accumulated.result() for accumulated in self._groups.values() if accumulated
        ]


def compare(
    pairs: Iterable[Pair], epsilon: float = 1e-3, watch: Watch | None = None, said: Mapping[str, str] | None = None
) -> tuple[list[Comparison], list[str]]:
    """Compare answers, output by output; outputs that only the reference has are skipped.

    Args: pairs: iterable of (run.Call, {output: reference}, {output: answer}). epsilon: as of Accumulator. watch: constancy.Watch, which
      also gets the answers and says which outputs show nothing; None if nobody asks. said: what kinds.parse returned.
    Returns: ([Comparison], [problem in words, each once]). Raises: UsageError.
    """
    comparing = Comparing(epsilon, said)
    for call, reference, answer in pairs:
        if watch is not None:
            watch.add(call, reference)
        comparing.add(call.signature, reference, answer, call.text())
    results = comparing.results()
    if watch is not None:
        results = [
            result
            if result.kind == kinds.DETECTIONS
            else dataclasses.replace(result, constant=watch.constant(result.signature, result.output))
            for result in results
        ]
    return results, list(comparing.problems)
