"""`tftrt verify ORIGINAL.onnx CONVERTED --tensors=…`: where the answers first depart, tensor by tensor. Both graphs run with tensors that
they share as outputs, in chunks; a plan is built again for each chunk. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pathlib
import typing
from collections.abc import Mapping, Sequence

from tftrt_tools import child, errors, progress, records, scratch
from tftrt_tools.accuracy import thresholds
from tftrt_tools.execution import run
from tftrt_tools.inputs import calls as inputs
from tftrt_tools.models import opening, table
from tftrt_tools.models.model import Model
from tftrt_tools.models.onnx.kind import ONNX
from tftrt_tools.models.plan import document
from tftrt_tools.models.plan import kind as plan_kind
from tftrt_tools.plans import convert, shaping
from tftrt_tools.plans.settings import Settings
from tftrt_tools.savedmodel import passport
from tftrt_tools.savedmodel.signatures import DEFAULT

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensors(passport.Stamped):
    """The comparison of two graphs, tensor by tensor."""

    document: typing.ClassVar[str] = "tensors"
    written_too: typing.ClassVar[tuple[str, ...]] = ("passed",)

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

    @property
    def departed(self) -> tuple[Inner, ...]:
        """Those below the bound."""
        return tuple(one for one in self.inners if one.snr_db < self.bound)

    @property
    def passed(self) -> bool:
        """Whether none departs."""
        return not self.departed

    def text(self) -> str:
        """For people: the first that departs, and the last before it."""
        if self.passed:
            least = min(self.inners, key=lambda one: one.snr_db)
            if least.snr_db == math.inf:
                return "all tensors are equal bit for bit"
            return f"no tensor departs; the farthest is {least.tensor} ({least.node}) with {least.level}"
        first = self.departed[0]
        before = list(itertools.takewhile(lambda one: one is not first, self.inners))
        behind = f"behind {before[-1].tensor} with {before[-1].level}" if before else "the first that both have"
        return f"first departs: {first.tensor} ({first.node}) with {first.level}, {behind}"


def compare(original: str | os.PathLike[str], converted: str | os.PathLike[str], names: Sequence[str], asked: inputs.Asked,
            bounds: str = "", batch_size: int = 0, log_file: str | None = None) -> Tensors:
    """Compare two graphs, tensor by tensor.

    Args: original: an ONNX file. converted: a plan directory, or another ONNX file. names: of tensors, or (ALL,). asked: of the inputs.
      bounds: text of --thresholds, whose bound on snr_db counts. batch_size: rows of a call of data, 0 for the declared ones.
    Returns: Tensors. Raises: UsageError, TftrtError.
    """
    for given, kinds in ((original, (ONNX,)), (converted, (ONNX, plan_kind.PLAN))):
        if table.kind(os.fspath(given)) not in kinds:
            raise errors.UsageError(f"--tensors compares graphs by the names of their tensors, and {given} has none",
                                    "give an ONNX file (`tftrt export`), and a plan directory or another ONNX file")
    with opening.opened(original, converted) as (first, second), scratch.folder("tensors") as folder:
        written = _written(first, second, names, folder)
        arithmetic, bound = _bound(second, bounds)
        chunks = written["chunks"]
        calls = _calls(second, asked, batch_size, folder)
        saved = run.save_calls(calls, folder + "/in")
        inners: list[Inner] = []
        runtimes: dict[str, str] = {}
        for number, chunk in enumerate(chunks):
            progress.say("comparing tensors", number, len(chunks))
            place = pathlib.Path(folder) / f"chunk-{number}"
            mine = run.run(run.Placed(chunk["first"], ONNX.runtime), saved, place / "first", "the original", log_file=log_file)
            theirs = run.run(_second(second, chunk["second"], place, log_file), saved, place / "second", "the converted model",
                             log_file=log_file)
            inners += (_inner(mine, theirs, one, len(calls)) for one in chunk["tensors"])
            runtimes = {"original": mine.where.text(), "converted": theirs.where.text()}
    return Tensors(original=os.path.abspath(original), converted=os.path.abspath(converted), runtimes=runtimes, bound=bound,
                   arithmetic=arithmetic, inners=tuple(inners), computed=written["computed"], calls=len(calls), chunks=len(chunks))


def _bound(second: Model, text: str) -> tuple[str, float]:
    """(arithmetic, its bound in dB, or that of --thresholds)."""
    known = second.kind.arithmetic(second.path)
    lowest = known.key if known else str(second.engines[0].precision) if second.engines else "FP32"
    arithmetic = "TF32" if second.engines and lowest == "FP32" else lowest
    given = thresholds.parse(text).get("", {}).get("snr_db")
    return arithmetic, thresholds.DEFAULTS[arithmetic]["snr_db"] if given is None else given


def _onnx(model: Model) -> str:
    return model.path if model.kind is ONNX else str(pathlib.Path(model.path) / document.ONNX)


def _written(first: Model, second: Model, names: Sequence[str], folder: str) -> dict[str, typing.Any]:
    """What tensors_job.job answers."""
    request = {"files": [_onnx(first), _onnx(second)], "names": [] if list(names) == [ALL] else list(names), "folder": folder,
               "chunk": CHUNK}
    answer: dict[str, typing.Any] = child.run("tftrt_tools.plans.tensors_job:job", request).result
    return answer


def _calls(second: Model, asked: inputs.Asked, batch_size: int, folder: str) -> list[run.Call]:
    manifest = second.document(passport.MANIFEST) or {}
    takes = inputs.Takes.of(second.inputs, manifest=manifest)
    sizes = inputs.up_to(batch_size) if batch_size else inputs.batch_sizes(takes.known.get(DEFAULT, ()))
    return list(inputs.choose(takes.with_known({}) if asked.shapes else takes, asked, folder, sizes).all[:_MOST_CALLS])


def _second(second: Model, file: str, folder: pathlib.Path, log_file: str | None) -> run.Placed:
    """What runs the second graph with further outputs: ONNX Runtime, or a plan that is built like the one that is compared."""
    if second.kind is ONNX:
        return run.Placed(file, ONNX.runtime)
    made = second.document(passport.MANIFEST) or {}
    with passport.understood(second.path, passport.MANIFEST):
        settings = Settings.from_dict(made["settings"])
    kept = tuple(str(pathlib.Path(second.path) / one.file) for one in document.read(second.path).plugins)
    target = folder / "plan"
    folder.mkdir(parents=True, exist_ok=True)
    shapes = shaping.without_signature(settings.shapes, [settings.signature])
    convert.convert(file, target, dataclasses.replace(settings, plugins=kept, signature="", shapes=shapes), log_file=log_file)
    return plan_kind.at(str(target))


def _inner(mine: run.Run, theirs: run.Run, told: Mapping[str, str], calls: int) -> Inner:
    """A tensor over all calls. Args: told: of tensors_job.job."""
    from tftrt_tools.accuracy.metrics.elements import Elements

    measured = Elements()
    for index in range(calls):
        one, other = mine.answer(index)[told["first"]], theirs.answer(index)[told["second"]]
        if problem := _incomparable(one, other):
            return Inner(told["tensor"], told["node"], -math.inf, problem)
        measured.add(one, other)
    return Inner(told["tensor"], told["node"], float(measured.values()["snr_db"]))


def _incomparable(one: npt.NDArray[typing.Any], other: npt.NDArray[typing.Any]) -> str:
    """Why there is no level, or "": it leaves out infinities and NaN, so these have to be the same in both."""
    import numpy as np

    if one.shape != other.shape:
        return f"shape {list(other.shape)} in place of {list(one.shape)}"
    special = ~(np.isfinite(one) & np.isfinite(other))
    return "" if np.array_equal(one[special], other[special], equal_nan=True) else "infinities or NaN of its own"
