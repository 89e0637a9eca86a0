"""How rounding nodes to INT8 or FP16 changes a model's outputs, as data. No TensorFlow here.

With reference r and answer a over all elements of an output, its noise is sum (a - r)^2 / sum r^2, a ratio of powers, and
snr_db = -10 log10(noise). NaN or infinity that the reference does not have is infinite noise.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tftrt_tools.accuracy import thresholds
from tftrt_tools.base import records
from tftrt_tools.base.choices import Precision
from tftrt_tools.models.savedmodel import passport, signatures
from tftrt_tools.tftrt.calibration import methods
from tftrt_tools.tftrt.conversion.settings import KEEPS_HIGH

if TYPE_CHECKING:
    from tftrt_tools.accuracy.metrics.comparison import Comparison

# The metrics that make an Effect, and the bounds of verify that judge it.
METRICS = ("snr_db", "top1", "cosine")
# A node is worth a higher precision if that raises the SNR by this much, which halves the error.
WORTH_DB = 6.0
# With everything rounded, answers of so many dB that keep verify's bounds need no node in a higher precision: an error of 1 %.
ENOUGH_DB = 40.0
# Another calibration method is worth it if it promises a fifth less noise.
PROMISE_DB = 1.0
# The least and the greatest number of nodes to try in a higher precision.
_TRIED, _MOST_TRIED = 8, 32
# Beyond this all SNRs are equally good: no noise at all, or nothing but noise.
_LIMIT_DB = 200.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effect(records.Record):
    """What rounding did to one output."""

    written_too: ClassVar[tuple[str, ...]] = ("snr_db",)
    written_first: ClassVar[tuple[str, ...]] = ("output", "snr_db")

    output: str
    # Sum (a - r)^2 / sum r^2, 0 to inf.
    noise: float
    # Share of rows with the same class, 0 to 1; None where the output holds no classes.
    top1: float | None
    # The number of NaN or Inf that the reference does not have.
    nonfinite: int
    # The default bounds of `tftrt verify` that it misses, in words; () where it keeps them or they were not checked.
    missed: tuple[str, ...] = ()

    @classmethod
    def of(cls, compared: Comparison, precision: Precision | None = None) -> Effect:
        """From a metrics.Comparison of floats. Args: precision: the one whose bounds are checked, None to check none."""
        broken = max(compared.nonfinite - compared.nonfinite_reference, 0)
        noise = math.inf if broken else 10 ** (-compared.snr_db / 10)
        missed: tuple[str, ...] = ()
        if precision:
            key_metrics = {
                metric: bound
                for metric, bound in thresholds.bounds(compared, precision, True, {}).items()
                if metric in METRICS
            }
            missed = tuple(
                miss.text() for miss in thresholds.misses(compared, key_metrics, allow_matching_nonfinite=True)
            )
        return cls(
            output=compared.output,
            noise=noise,
            top1=compared.top1 if compared.classes else None,
            nonfinite=broken,
            missed=missed,
        )

    @property
    def snr_db(self) -> float:
        """inf without noise."""
        return math.inf if self.noise == 0 else -10 * math.log10(self.noise) if math.isfinite(self.noise) else -math.inf


def effects(compared: Iterable[Comparison], precision: Precision) -> tuple[Effect, ...]:
    """The Effects of metrics.Comparisons of float outputs, by the bounds of a precision."""
    return tuple(Effect.of(one, precision) for one in compared)


def not_finite(compared: Iterable[Comparison]) -> tuple[str, ...]:
    """The outputs that have NaN or Inf without any rounding, in words. Args: compared: as of `effects`."""
    return tuple(
        f"{comparison.name} has {comparison.nonfinite_reference} NaN or Inf of {comparison.elements} elements without any rounding"
        for comparison in compared
        if comparison.nonfinite_reference
    )


def worst(effects: Iterable[Effect]) -> Effect:
    """The Effect on the output that has the most noise."""
    return max(effects, key=lambda one: one.noise)


def holds(effects: Iterable[Effect]) -> bool:
    """Whether all outputs keep verify's bounds."""
    return not any(one.missed for one in effects)


@dataclasses.dataclass(frozen=True)
class Measured(records.Record):
    """A model built with one node out of INT8 (or FP16) and run on a GPU. gain_db, gain_top1: the gain over everything rounded, on the
    output of `effect`; None where `problem` says why nothing was measured."""

    effect: Effect | None
    gain_db: float | None
    gain_top1: float | None
    problem: str = ""

    @classmethod
    def of(cls, effects: Iterable[Effect], baseline: Iterable[Effect]) -> Measured:
        """Args: effects, baseline: Effects with and without the exclusion of the node, of the same outputs."""
        before = worst(baseline)
        after = next(candidate for candidate in effects if candidate.output == before.output)
        top1 = None if after.top1 is None or before.top1 is None else after.top1 - before.top1
        equal = after.noise == before.noise
        return cls(after, 0.0 if equal else after.snr_db - before.snr_db, top1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node(records.Record):
    """A node and its harm."""

    written_too: ClassVar[tuple[str, ...]] = ("snr_db",)
    written_first: ClassVar[tuple[str, ...]] = ("name", "op", "engine", "snr_db")

    # The node's name in the original model.
    name: str
    op: str
    # TF-TRT's name of the engine it would be in.
    engine: str
    # Its share of the noise of all nodes rounded alone, on its worst output, 0 to 1.
    share: float = 0.0
    # The effects of rounding only this node.
    effects: tuple[Effect, ...]
    # The measurement on a GPU, None if there is none.
    measured: Measured | None = None

    @property
    def worst(self) -> Effect:
        """The Effect on its worst output."""
        return worst(self.effects)

    @property
    def snr_db(self) -> float:
        """The SNR in dB of the worst output."""
        return self.worst.snr_db


@dataclasses.dataclass(frozen=True)
class Kept(records.Record):
    """All nodes rounded except the worst ones. nodes: how many of them."""

    written_too: ClassVar[tuple[str, ...]] = ("snr_db",)
    written_first: ClassVar[tuple[str, ...]] = ("nodes", "snr_db")

    nodes: int
    effects: tuple[Effect, ...]

    @property
    def holds(self) -> bool:
        """Whether all outputs keep verify's bounds."""
        return holds(self.effects)

    @property
    def snr_db(self) -> float:
        """The SNR in dB of the worst output."""
        return worst(self.effects).snr_db


@dataclasses.dataclass(frozen=True)
class ByMethod(records.Record):
    """All nodes rounded, with the ranges of another calibration method. method: as methods.Method.text gives it."""

    written_too: ClassVar[tuple[str, ...]] = ("snr_db",)
    written_first: ClassVar[tuple[str, ...]] = ("method", "snr_db")

    method: str
    effects: tuple[Effect, ...]

    @property
    def snr_db(self) -> float:
        """The SNR in dB of the worst output."""
        return worst(self.effects).snr_db


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignatureHarm(records.Record):
    """What rounding does to one signature."""

    written_too: ClassVar[tuple[str, ...]] = ("snr_db", "suggested_nodes")
    written_first: ClassVar[tuple[str, ...]] = ("name", "rows", "snr_db", "total", "nodes", "kept", "suggested_nodes")

    name: str
    # The number of rows that were scored.
    rows: int
    # The effects of rounding everything.
    total: tuple[Effect, ...]
    # The nodes, the worst first.
    nodes: tuple[Node, ...]
    # The results with 1, 2, … nodes kept; where those miss verify's bounds, also with some larger numbers.
    kept: tuple[Kept, ...]
    # Names of nodes without ranges, which stay in a higher precision.
    unrounded: tuple[str, ...]
    # The number of nodes that were rounded only together with the rest, and not alone.
    other_nodes: int
    # SNR of the simulation with nothing rounded against the model.
    fidelity_db: float
    # The effects of everything rounded, measured on a GPU; () if not measured.
    measured: tuple[Effect, ...] = ()
    # The method of INT8's ranges, "" if not known.
    method: str = ""
    # All calibration methods that were compared.
    methods: tuple[ByMethod, ...] = ()
    # Further names of the same function.
    twins: tuple[str, ...] = ()
    # Outputs with NaN or Inf without any rounding, in words.
    not_finite: tuple[str, ...] = ()
    # Why no float output shows anything of rounding, in words; "" if one does.
    nothing_shown: str = ""

    @property
    def snr_db(self) -> float:
        """The SNR in dB of the worst output, with everything rounded."""
        return worst(self.total).snr_db

    @property
    def label(self) -> str:
        """The names of the signature, for tables."""
        return signatures.label(self.name, self.twins)

    @property
    def suggested(self) -> Kept | None:
        """The Kept to suggest: the last one whose gain is worth it; if that misses verify's bounds, the fewest nodes beyond it that keep
        them. None if nothing is worth it, if nothing keeps the bounds, or if the answers are good enough as they are."""
        fitting = self._worth_it
        if self.enough:
            return None
        if fitting and fitting.holds or not fitting and holds(self.total):
            return fitting
        beyond = [choice for choice in self.kept if choice.holds and choice.nodes > (fitting.nodes if fitting else 0)]
        return min(beyond, key=lambda choice: choice.nodes, default=None)

    @property
    def enough(self) -> bool:
        """Whether everything rounded keeps verify's bounds, and ENOUGH_DB."""
        return holds(self.total) and self.snr_db >= ENOUGH_DB

    @property
    def nearest(self) -> Kept | None:
        """The Kept with the least noise on its worst output, None where none was tried."""
        return min(self.kept, key=lambda one: worst(one.effects).noise, default=None)

    @property
    def _worth_it(self) -> Kept | None:
        """The last Kept that gains at least half as much over the one before as the largest such gain; None where no node gains
        WORTH_DB."""
        each = [choice for number, choice in enumerate(self.kept, 1) if choice.nodes == number]
        levels = [_level(effects) for effects in (self.total, *(choice.effects for choice in each))]
        gains = [after - before for before, after in zip(levels, levels[1:], strict=False)]
        if not gains or max(gains) < WORTH_DB:
            return None
        return next(choice for choice, gain in reversed(list(zip(each, gains, strict=True))) if gain >= max(gains) / 2)

    @property
    def suggested_nodes(self) -> tuple[str, ...]:
        """Names of the nodes that `suggested` keeps."""
        return tuple(node.name for node in self.nodes[: self.suggested.nodes]) if self.suggested else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sensitivity(passport.Stamped):
    """A finished study."""

    document: ClassVar[str] = "sensitivity"
    written_too: ClassVar[tuple[str, ...]] = ("flag", "better_method", "missed", "not_finite", "nothing_shown")

    # Its path, and its digest.
    model: str
    model_digest: str
    # INT8 or FP16.
    precision: Precision
    # As Settings.to_dict wrote them.
    settings: dict[str, Any]
    # Path, glob or module:function of the inputs that were scored.
    data: str
    # Where INT8's ranges come from, in words; "" for FP16.
    ranges: str
    signatures: tuple[SignatureHarm, ...]
    # The GPU, by execution.job.gpu.seen.
    gpu: dict[str, str] | None
    # Time of the study.
    seconds: float = records.field(digits=2)
    # Why nothing was measured on the GPU, or "".
    measured_problem: str = ""
    # Whether an ONNX file was studied: then the flags are those of `tftrt export`.
    of_onnx: bool = False

    @property
    def missed(self) -> tuple[str, ...]:
        """The bounds of verify that the suggestion misses, as far as it was simulated; () where none is."""
        method = self.better_method
        if method:
            left = (
                method_effects.effects
                for signature in self.signatures
                for method_effects in signature.methods
                if method_effects.method == method
            )
        else:
            left = (
                signature.suggested.effects if signature.suggested else signature.total for signature in self.signatures
            )
        return tuple(text for effects in left for effect in effects for text in effect.missed)

    @property
    def not_finite(self) -> tuple[str, ...]:
        """The outputs that have NaN or Inf without any rounding, in words."""
        return tuple(text for one in self.signatures for text in one.not_finite)

    @property
    def nothing_shown(self) -> tuple[str, ...]:
        """The signatures whose answers show nothing of rounding, a line each."""
        return tuple(f"{one.label}: {one.nothing_shown}" for one in self.signatures if one.nothing_shown)

    @property
    def better_method(self) -> str:
        """The calibration method that gives at least PROMISE_DB more than the present one, and more than the suggested nodes would; or
        ""."""
        if len(self.nothing_shown) == len(self.signatures):
            return ""
        levels_of = [
            {method.method: _level(method.effects) for method in signature.methods} for signature in self.signatures
        ]
        shared = [
            method
            for method in (levels_of[0] if levels_of else ())
            if all(method in of_signature for of_signature in levels_of)
        ]
        levels = {method: min(of_signature[method] for of_signature in levels_of) for method in shared}
        best = max(levels, key=lambda method: levels[method], default="")
        if not best or levels[best] < min(_level(signature.total) for signature in self.signatures) + PROMISE_DB:
            return ""
        nodes = min(
            _level(signature.suggested.effects if signature.suggested else signature.total)
            for signature in self.signatures
        )
        return best if levels[best] > nodes else ""

    @property
    def flag(self) -> str:
        """The suggested flags of `tftrt convert`, or of `tftrt export` for an ONNX file: a better calibration method, else the nodes to
        keep in a higher precision; or ""."""
        if self.better_method:
            name, _, percentile = self.better_method.partition(" ")
            given = percentile and float(percentile) != methods.PERCENTILE
            return f"--calibration_method={name}" + (f" --calibration_percentile={percentile}" if given else "")
        names = list(
            dict.fromkeys(
                name
                for signature in self.signatures
                if not signature.nothing_shown
                for name in signature.suggested_nodes
            )
        )
        if self.of_onnx:
            # The flag takes expressions with commas between them.
            return f"--fp32_nodes='{'|'.join(re.escape(name).replace(',', '.') for name in names)}'" if names else ""
        return f"--{KEEPS_HIGH[self.precision]}='{'|'.join(map(re.escape, names))}'" if names else ""


def _level(effects: Iterable[Effect]) -> float:
    """dB of the worst output, within _LIMIT_DB."""
    return _limited(worst(effects).snr_db)


def _limited(snr_db: float) -> float:
    return max(min(snr_db, _LIMIT_DB), -_LIMIT_DB)


def ranked(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The Nodes with their shares, the worst first; equals stay in order."""
    totals: dict[str, float] = {}
    for node in nodes:
        for effect in node.effects:
            totals[effect.output] = totals.get(effect.output, 0.0) + effect.noise
    shared = [dataclasses.replace(node, share=_share(node.worst.noise, totals[node.worst.output])) for node in nodes]
    return tuple(sorted(shared, key=lambda node: -node.worst.noise))


def tried(nodes: Sequence[Node]) -> int:
    """How many of the ranked Nodes to try in a higher precision: 8, or all before the widest gap in the ranking (at least WORTH_DB,
    among the first 32) if that comes later. The noises of nodes add up: to leave out one of many equally harmful nodes gains little."""
    levels = [_limited(node.worst.snr_db) for node in nodes[: _MOST_TRIED + 1]]
    gaps = [(after - before, number) for number, (before, after) in enumerate(zip(levels, levels[1:], strict=False), 1)]
    gap, number = max(gaps, default=(0.0, 0))
    return max(_TRIED, number) if gap >= WORTH_DB else _TRIED


def _share(noise: float, total: float) -> float:
    if math.isinf(total):
        return 1.0 if math.isinf(noise) else 0.0
    return noise / total if total else 0.0
