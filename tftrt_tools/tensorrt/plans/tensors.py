"""`tftrt verify ORIGINAL CONVERTED --tensors=…`: where the answers first depart, tensor by tensor. Both graphs run with tensors that they
share as outputs, in chunks; a plan, and an engine of TF-TRT with tensors inside, is built again for each. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pathlib
import typing
from collections.abc import Sequence

from tftrt_tools.accuracy import thresholds
from tftrt_tools.accuracy.marked import SharedTensor
from tftrt_tools.base import errors, records, results
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.kinds.model import Model
from tftrt_tools.models.savedmodel import engine_op, passport
from tftrt_tools.tensorrt.plans import tensor_ways

if typing.TYPE_CHECKING:
    import numpy.typing as npt

ALL = "all"
# Tensors of one run: more of them change what TensorRT fuses, and take its memory.
CHUNK = 48
# Calls that are compared. Every inner tensor of each is kept for a while.
_MOST_CALLS = 2


@dataclasses.dataclass(frozen=True)
class Inner(records.Record):
    """A tensor that both graphs have. node: "OP NAME" of what computes it in the second; snr_db: of all calls together, -inf with a
    problem; problem: why nothing could be measured, or ""."""

    tensor: str
    node: str
    snr_db: float
    problem: str = ""

    @property
    def level(self) -> str:
        """For people: the level, or the problem."""
        return self.problem or f"{self.snr_db:.1f} dB"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Tensors(passport.Stamped, results.Result):
    """The comparison of two graphs, tensor by tensor."""

    document: typing.ClassVar[str] = "tensors"
    written_too: typing.ClassVar[tuple[str, ...]] = ("passed", "verdict")

    # Absolute paths.
    original: str
    converted: str
    # What ran each.
    runtimes: dict[str, str]
    # dB below which a tensor departs, and the arithmetic whose bound that is.
    bound: float
    arithmetic: str
    # In the order of the second graph.
    inners: tuple[Inner, ...]
    # Tensors of floats that the second graph computes, whether shared or not.
    computed: int
    # Calls, and runs with other outputs.
    calls: int
    chunks: int
    # Engine ops whose native segments ran instead, so that their tensors say nothing of TensorRT.
    fallbacks: tuple[str, ...] = ()
    # Whether all engines ran as native segments, because there is no GPU here.
    unseen: bool = False

    @property
    def verdict(self) -> str:
        """In words, with what it is about where no engine ran."""
        return "FAILED" if not self.passed else "PASSED (the graph; no engine ran)" if self.unseen else "PASSED"

    @property
    def departed(self) -> tuple[Inner, ...]:
        """Those below the bound."""
        return tuple(one for one in self.inners if one.snr_db < self.bound)

    @property
    def passed(self) -> bool:
        """Whether none departs, and no engine fell back."""
        return not self.departed and not self.fallbacks

    def summary(self) -> str:
        """As Result.summary."""
        return f"{self.verdict}: {self.converted} against {self.original}; {self.text()}"

    def text(self) -> str:
        """For people: the first that departs, and the last before it."""
        if not self.departed:
            least = min(self.inners, key=lambda one: one.snr_db)
            if least.snr_db == math.inf:
                return "all tensors are equal bit for bit"
            return f"no tensor departs; the farthest is {least.tensor} ({least.node}) with {least.level}"
        first = self.departed[0]
        before = list(itertools.takewhile(lambda one: one is not first, self.inners))
        behind = f"behind {before[-1].tensor} with {before[-1].level}" if before else "the first that both have"
        return f"first departs: {first.tensor} ({first.node}) with {first.level}, {behind}"


def compare(
    original: str | os.PathLike[str],
    converted: str | os.PathLike[str],
    names: Sequence[str],
    asked: inputs.Asked,
    bounds: str = "",
    batch_size: int = 0,
    log_file: str | None = None,
    signature: str = "",
) -> Tensors:
    """Compare two graphs, tensor by tensor.

    Args: original: an ONNX file or a SavedModel. converted: of an ONNX file a plan directory, or another ONNX file; of a SavedModel
      another one. names: of tensors, or (ALL,). asked: of the inputs. bounds: text of --thresholds, whose bound on snr_db counts.
      batch_size: rows of a call of data, 0 for the declared ones. signature: of SavedModels, "" for the usual one.
    Returns: Tensors. Raises: UsageError, TftrtError.
    """
    way = tensor_ways.of(os.fspath(original), os.fspath(converted), signature)
    with opening.opened(original, converted) as (first, second), scratch.folder("tensors") as folder:
        pair = way(first, second, folder, log_file)
        written = pair.written([] if list(names) == [ALL] else list(names), CHUNK)
        chunks = written.chunks
        calls, origins = _calls(second, pair.signature, asked, batch_size, folder)
        saved = run.save_calls(calls, folder + "/in")
        inners: list[Inner] = []
        runtimes: dict[str, str] = {}
        fallbacks: dict[str, None] = {}
        for number, chunk in enumerate(chunks):
            progress.say("comparing tensors", number, len(chunks))
            place = pathlib.Path(folder) / f"chunk-{number}"
            with inputs.explained(origins):
                mine = run.run(
                    pair.first(chunk.first), saved, place / "first", "the original", exact=pair.exact, log_file=log_file
                )
                theirs = run.run(
                    pair.second(chunk.second, place),
                    saved,
                    place / "second",
                    "the converted model",
                    trace=pair.exact,
                    log_file=log_file,
                )
            inners += (one for told in chunk.tensors if (one := _inner(mine, theirs, told, len(calls))))
            runtimes = {"original": mine.where.text(), "converted": pair.ran(theirs.where)}
            fallbacks.update(
                dict.fromkeys(engine_op.unmarked(name) for one in theirs.traces if one for name in one.fallback)
            )
        if not inners:
            raise errors.TftrtError(
                "each of these tensors has another form in the converted model, behind what a rewrite has changed",
                "compare the answers: leave --tensors out",
            )
        unseen = theirs.mode == "native segments"
        arithmetic, bound = _bound(second, bounds, engines=not unseen)
    return Tensors(
        original=os.path.abspath(original),
        converted=os.path.abspath(converted),
        runtimes=runtimes,
        bound=bound,
        arithmetic=arithmetic,
        inners=tuple(inners),
        computed=written.computed,
        calls=len(calls),
        chunks=len(chunks),
        fallbacks=tuple(fallbacks),
        unseen=unseen,
    )


def _bound(second: Model, text: str, engines: bool) -> tuple[str, float]:
    """(arithmetic, its bound in dB, or that of --thresholds). Args: engines: whether its engines could run."""
    known = second.kind.arithmetic(second.path)
    lowest = known.key if known else str(second.engines[0].precision) if second.engines else "FP32"
    arithmetic = "rewrite" if not engines else "TF32" if second.engines and lowest == "FP32" else lowest
    given = thresholds.parse(text).get("", {}).get("snr_db")
    return arithmetic, thresholds.DEFAULTS[arithmetic]["snr_db"] if given is None else given


def _calls(
    second: Model, signature: str, asked: inputs.Asked, batch_size: int, folder: str
) -> tuple[list[run.Call], dict[str, inputs.Origin]]:
    takes = inputs.Takes.one(signature, second.inputs, manifest=second.document(passport.MANIFEST) or {})
    sizes = inputs.up_to(batch_size) if batch_size else inputs.batch_sizes(takes.known.get(signature, ()))
    chosen = inputs.choose(takes.with_known({}) if asked.shapes else takes, asked, folder, sizes)
    return list(chosen.all[:_MOST_CALLS]), chosen.origins


def _inner(mine: run.Run, theirs: run.Run, told: SharedTensor, calls: int) -> Inner | None:
    """A tensor over all calls, None for one that has another form behind a rewrite."""
    from tftrt_tools.accuracy.metrics.elements import Elements

    measured = Elements()
    for index in range(calls):
        one, other = mine.answer(index)[told.first], theirs.answer(index)[told.second]
        if one.shape != other.shape and told.doubtful:
            return None
        if problem := _incomparable(one, other):
            return Inner(told.tensor, told.node, -math.inf, problem)
        measured.add(one, other)
    return Inner(told.tensor, told.node, float(measured.values()["snr_db"]))


def _incomparable(one: npt.NDArray[typing.Any], other: npt.NDArray[typing.Any]) -> str:
    """Why there is no level, or "": it leaves out infinities and NaN, so these have to be the same in both."""
    import numpy as np

    if one.shape != other.shape:
        return f"shape {list(other.shape)} in place of {list(one.shape)}"
    special = ~(np.isfinite(one) & np.isfinite(other))
    return "" if np.array_equal(one[special], other[special], equal_nan=True) else "infinities or NaN of its own"
