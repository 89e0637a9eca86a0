"""What INT8 and FP16 engines would answer, where no engine runs: their rounding simulated in TensorFlow, by the tables that the model
carries. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from tftrt_tools.accuracy import thresholds
from tftrt_tools.base import records, terminal
from tftrt_tools.base.choices import Precision
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution import run
from tftrt_tools.models.savedmodel import engine_op, passport
from tftrt_tools.tftrt.calibration.file import Calibration

if TYPE_CHECKING:
    from tftrt_tools.models.execution.run import Call, Names, Run
    from tftrt_tools.models.kinds.model import Model

NO_DATA = "its inputs are random, and say nothing about rounding: give --data with real rows"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundedCall(run.NamedCall):
    """A call to answer with rounding. native: the .npz of its answer without."""

    native: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundRequest(records.Record):
    """A converted model, and its calls."""

    # The SavedModel directory.
    model: str
    calls: tuple[RoundedCall, ...]
    # The calibration of the model, None if it has none.
    calibration: Calibration | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundedSignature(records.Record):
    """The result of a signature. The answers of a signature with a problem, or in FP32, are not written."""

    # The lowest of its engines; None where its graph could not be read.
    precision: Precision | None
    # The number of nodes that were rounded.
    nodes: int
    # Why it was not simulated, or "".
    problem: str


@jobs.job
def answer_rounded() -> Callable[[RoundRequest], Mapping[str, RoundedSignature]]:
    """Answer calls with the rounding of the engines. Answers {signature: what became of it}."""
    from tftrt_tools.accuracy import rounded_answers_job

    return rounded_answers_job.job


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simulation(records.Record):
    """What was simulated."""

    written_too: ClassVar[tuple[str, ...]] = ("rows",)

    # {signature: the lowest precision of its engines} of those that were simulated, and how many rows of each.
    simulated: dict[str, Precision] = dataclasses.field(default_factory=dict)
    rows_of: dict[str, int] = dataclasses.field(default_factory=dict)
    # {signature: how many of its nodes were rounded}.
    nodes: dict[str, int] = dataclasses.field(default_factory=dict)
    # {signature: why its rounding was not simulated}.
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
    # Of all left-out signatures, "" if there is none.
    left_out_precision: Precision | str = ""
    # Wall time.
    seconds: float = records.field(digits=2, default=0.0)

    @property
    def rows(self) -> int:
        """The rows of all calls."""
        return sum(self.rows_of.values())

    @property
    def whole(self) -> bool:
        """Whether each signature whose engines round was simulated, one at least."""
        return bool(self.simulated) and not self.left_out

    @property
    def precision(self) -> Precision | str:
        """The lowest that was simulated, "" for none."""
        return engine_op.lowest_precision(self.simulated.values())

    @property
    def arithmetic(self) -> dict[str, str]:
        """{signature: the key of its bounds in thresholds.DEFAULTS}."""
        return {name: thresholds.FP16_SIMULATED if one == "FP16" else one for name, one in self.simulated.items()}

    @property
    def lowest(self) -> str:
        """The key of the lowest precision's bounds, "" where nothing was simulated."""
        return thresholds.FP16_SIMULATED if self.precision == "FP16" else self.precision

    @property
    def words(self) -> str:
        """The simulation in words, such as "INT8 simulated"; "" where nothing was simulated."""
        return (
            f"{' and '.join(dict.fromkeys(sorted(self.simulated.values(), reverse=True)))} simulated"
            if self.simulated
            else ""
        )

    def text(self) -> str:
        """A line on what was simulated; "" where nothing was."""
        if not self.simulated:
            return ""
        nodes = sum(self.nodes.values())
        rows = terminal.counted(self.rows, "row")
        return (
            f"{self.words} on {rows}: {terminal.counted(nodes, 'node')} rounded in TensorFlow by the model's own engine ops "
            f"({self.seconds:.1f} s)"
        )

    def warnings(self) -> tuple[str, ...]:
        """What was not simulated, a line each."""
        return tuple(
            f"{self.left_out_precision} was not simulated for {name}, and no engine ran: {reason}"
            for name, reason in self.left_out.items()
        )


def simulated(
    model: Model,
    calls: Sequence[Call],
    native: Run,
    own: Collection[str],
    names: Mapping[str, Names],
    saved: Sequence[tuple[str, str]],
    folder: str,
) -> tuple[Simulation, Run]:
    """Simulate the rounding of a converted SavedModel's engines.

    Args: model: the converted model. calls: what it was asked, saved: the same as saved. native: its answers without engines.
      own: signatures whose inputs are the user's. names: as of run.run. folder: for the answers.
    Returns: (Simulation, `native` with the simulated answers in the place of its own).
    """
    lowest = engine_op.lowest_precision(engine.precision for engine in model.engines)
    if native.mode != "native segments" or lowest not in ("INT8", "FP16"):
        return Simulation(), native
    start = time.monotonic()
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    requested = [
        RoundedCall(
            signature=call.signature,
            inputs=call.inputs,
            renamed=call.renamed,
            output=str(place / f"{number}.npz"),
            native=native.answers[number],
        )
        for number, call in enumerate(run.named(saved, names))
    ]
    numbers = [number for number, call in enumerate(calls) if call.signature in own]
    built = passport.signatures(model.document(passport.MANIFEST))
    drawn = {
        name: NO_DATA
        for name in dict.fromkeys(call.signature for call in calls)
        if name not in own and built.get(name, {}).get("engines", True)
    }
    if not numbers:
        return Simulation(left_out=drawn, left_out_precision=lowest), native
    there = {calls[number].signature: requested[number].signature for number in numbers}
    tables = model.document(passport.CALIBRATION)
    with passport.understood(model.path, passport.CALIBRATION):
        calibration = Calibration.from_dict(tables) if tables else None
    request = RoundRequest(
        model=str(model.path), calls=tuple(requested[number] for number in numbers), calibration=calibration
    )
    answer = answer_rounded.run(request).result
    by_name = {name: answer[rounded] for name, rounded in there.items()}
    done = {
        name: signature.precision
        for name, signature in by_name.items()
        if signature.precision and not signature.problem and signature.nodes
    }
    rows = {name: sum(call.rows for call in calls if call.signature == name) for name in done}
    simulation = Simulation(
        simulated=done,
        rows_of=rows,
        nodes={name: by_name[name].nodes for name in done},
        left_out={**{name: signature.problem for name, signature in by_name.items() if signature.problem}, **drawn},
        left_out_precision=lowest,
        seconds=time.monotonic() - start,
    )
    answers = tuple(
        requested[number].output if call.signature in done else native.answers[number]
        for number, call in enumerate(calls)
    )
    return simulation, dataclasses.replace(native, answers=answers)
