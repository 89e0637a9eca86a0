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
    """A tensor that both graphs have. node: "OP NAME" of what computes it in the second; snr_db: of all calls together."""

    tensor: str
    node: str
    snr_db: float


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
            return f"no tensor departs; the farthest is {least.tensor} ({least.node}) with {least.snr_db:.1f} dB"
        first = self.departed[0]
        before = list(itertools.takewhile(lambda one: one is not first, self.inners))
        behind = f"behind {before[-1].tensor} with {before[-1].snr_db:.1f} dB" if before else "the first that both have"
        return f"first departs: {first.tensor} ({first.node}) with {first.snr_db:.1f} dB, {behind}"


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
        arithmetic, bound = _bound(second, bounds)
        chunks, computed = _chunks(first, second, names, folder)
        calls = _calls(second, asked, batch_size, folder)
        saved = run.save_calls(calls, folder + "/in")
        levels: dict[str, float] = {}
        runtimes: dict[str, str] = {}
        for number, chunk in enumerate(chunks):
            progress.say("comparing tensors", number, len(chunks))
            place = pathlib.Path(folder) / f"chunk-{number}"
            mine = run.run(run.Placed(chunk["first"], ONNX.runtime), saved, place / "first", "the original", log_file=log_file)
            theirs = run.run(_second(second, chunk["second"], place, log_file), saved, place / "second", "the converted model",
                             log_file=log_file)
            levels |= _levels(mine, theirs, [one["tensor"] for one in chunk["tensors"]], len(calls))
            runtimes = {"original": mine.where.text(), "converted": theirs.where.text()}
    found = (Inner(one["tensor"], one["node"], levels[one["tensor"]]) for chunk in chunks for one in chunk["tensors"])
    return Tensors(original=os.path.abspath(original), converted=os.path.abspath(converted), runtimes=runtimes, bound=bound,
                   arithmetic=arithmetic, inners=tuple(found), computed=computed, calls=len(calls), chunks=len(chunks))


def _bound(second: Model, text: str) -> tuple[str, float]:
    """(arithmetic, its bound in dB, or that of --thresholds)."""
    lowest = second.engines[0].precision if second.engines else "FP32"
    arithmetic = "TF32" if second.engines and lowest == "FP32" else str(lowest)
    given = thresholds.parse(text).get("", {}).get("snr_db")
    return arithmetic, thresholds.DEFAULTS[arithmetic]["snr_db"] if given is None else given


def _onnx(model: Model) -> str:
    return model.path if model.kind is ONNX else str(pathlib.Path(model.path) / document.ONNX)


def _chunks(first: Model, second: Model, names: Sequence[str], folder: str) -> tuple[list[dict[str, typing.Any]], int]:
    """What tensors_job.job answers: ([{"first", "second": files, "tensors"}], computed)."""
    request = {"files": [_onnx(first), _onnx(second)], "names": [] if list(names) == [ALL] else list(names), "folder": folder,
               "chunk": CHUNK}
    answer = child.run("tftrt_tools.plans.tensors_job:job", request).result
    return answer["chunks"], answer["computed"]


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


def _same_special(one: npt.NDArray[typing.Any], other: npt.NDArray[typing.Any]) -> bool:
    """Whether infinities and NaN are the same in both: the level leaves them out."""
    import numpy as np

    special = ~(np.isfinite(one) & np.isfinite(other))
    return bool(np.array_equal(one[special], other[special], equal_nan=True))


def _levels(mine: run.Run, theirs: run.Run, names: Sequence[str], calls: int) -> Mapping[str, float]:
    """{tensor: dB}, over all calls."""
    from tftrt_tools.accuracy.metrics.elements import Elements

    measured = {name: Elements() for name in names}
    wrong: set[str] = set()
    for index in range(calls):
        one, other = mine.answer(index), theirs.answer(index)
        for name in names:
            if one[name].shape != other[name].shape or not _same_special(one[name], other[name]):
                wrong.add(name)
            else:
                measured[name].add(one[name], other[name])
    return {name: -math.inf if name in wrong else float(measured[name].values()["snr_db"]) for name in names}
