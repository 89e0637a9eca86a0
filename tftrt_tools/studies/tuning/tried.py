"""Trials and their results."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.base import records, results
from tftrt_tools.base.choices import SERVER_TITLES, Precision, Server
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies import backends
from tftrt_tools.studies.tuning import space, table
from tftrt_tools.studies.tuning.latency import Latency, tied
from tftrt_tools.tftrt.conversion.settings import Settings

if TYPE_CHECKING:
    from tftrt_tools.studies.tuning.final import Final

# The number that stands for the original among the trials' numbers.
NATIVE = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured(records.Record):
    """A trial's measurements."""

    # The goal's metric, None where there is no usable model.
    accuracy: float | None = None
    # {call as text: Latency}.
    latencies: Mapping[str, Latency] = dataclasses.field(default_factory=dict)
    # Seconds that all engines took when they were built.
    build_seconds: float = 0.0
    # Engines that came from the engine cache.
    cached: int = 0
    # Bytes of all engines.
    engine_bytes: int = 0
    # Engine ops, and the share of the computing ops in them.
    engines: int = 0
    coverage: float = 0.0
    # Wall time of the whole trial.
    seconds: float = 0.0
    # Why the model is not usable, or "".
    failure: str = ""
    # {arithmetic: seconds of the GPU's kernels}, of a call at each timed shape.
    kernels: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # SNR of the worst float output against the original's on --data, in dB; None where there is none, or it was not measured.
    snr_db: float | None = None
    # Bytes of all files of the model.
    model_bytes: int = 0
    # {call as text: Latency} where calls are launched as CUDA graphs; {} where they are not.
    graphs: Mapping[str, Latency] = dataclasses.field(default_factory=dict)
    # When the trial began, seconds since 1970; None where that is not known. And its machine and GPU, "" for the process of the search.
    began: float | None = None
    where: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One conversion that was tried."""

    # From 1, in the order of the search.
    number: int
    settings: Settings
    # Nodes kept in a higher precision, the most harmful first.
    high: tuple[str, ...]
    measured: Measured
    # Whether it keeps the goal.
    kept: bool
    # The back end that made it; the settings that it has no use for are those of the search.
    backend: str = backends.default().name
    # Whether it was tried for comparison alone: what has to serve the winner does not run it.
    compared: bool = False

    @property
    def may_win(self) -> bool:
        """Whether it keeps the goal, and can be served."""
        return self.kept and not self.compared

    @property
    def text(self) -> str:
        """Its settings, for people."""
        return space.text(self.settings, self.high, self.backend)

    def latency(self, call: str) -> Latency | None:
        """The Latency of a call, or None where it failed."""
        return self.measured.latencies.get(call)

    def ms(self, call: str) -> float:
        """The median time of a call, in milliseconds. Raises: KeyError where it failed."""
        return self.measured.latencies[call].ms

    def to_dict(self) -> dict[str, Any]:
        """Written by hand: the measurements stand beside the settings."""
        return {
            "number": self.number,
            "backend": self.backend,
            "settings": self.settings.to_dict(),
            "high_precision": list(self.high),
            "kept": self.kept,
            **({"compared": True} if self.compared else {}),
            **self.measured.to_dict(),
        }


def plain(trials: Iterable[Trial], precision: Precision) -> Trial | None:
    """The first trial of the default back end in a precision, without nodes in a higher one, or None."""
    mine = (one for one in trials if one.backend == backends.default().name)
    return next((one for one in mine if one.settings.precision_mode == precision and not one.high), None)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Tuning(results.Result):
    """A finished search."""

    document: ClassVar[str] = "tuning"

    # As the user named it.
    model: str
    goal: Goal
    # The goal's metric of the original.
    original: float
    # Texts of the calls whose latency was measured, and the one that counts.
    calls: tuple[str, ...]
    objective: str
    # {call: Latency} of the original.
    native: Mapping[str, Latency]
    trials: tuple[Trial, ...]
    # The trial to take; where none keeps the goal, the one nearest to it.
    winner: Trial | None
    best: Trial | None
    # Why the search ended, and its decisions, in words.
    ended: str
    notes: tuple[str, ...]
    # The machine that measured.
    gpu: str
    tensorrt: str
    # "source", "rows", "dropped", "digest".
    data: Mapping[str, Any]
    # What to know about the data.
    warnings: tuple[str, ...] = ()
    # The commands that make the winner, or the best, once more, a line each.
    recipe: tuple[str, ...] = ()
    # The last comparison, in turns, of the winner, nearly as fast trials and the original; None if there was none.
    final: "Final | None" = None
    # What runs the original, what serves it, and the bytes of its files.
    runtime: str = "TensorFlow"
    model_servers: tuple[Server, ...] = ()
    model_bytes: int = 0
    # What has to serve the winner; "" where the user names nothing.
    server: Server | Literal[""] = ""
    # Rows of the call that counts.
    objective_rows: int = 0

    def summary(self) -> str:
        """As Result.summary."""
        if self.winner:
            ms, factors = self.winner_speed()
            return f"{self.model}: {self.winner.text}, {ms:.3f} ms at {self.objective}, {', '.join(factors)}"
        might = [one for one in self.trials if not one.compared]
        which = f" that {SERVER_TITLES[self.server]} runs" if self.server and self.compares else ""
        return f"{self.model}: none of {len(might)} trials{which} keeps {self.goal_text}"

    @property
    def compares(self) -> bool:
        """Whether anything was tried for comparison alone."""
        return any(one.compared for one in self.trials)

    @property
    def goal_text(self) -> str:
        """For people: "top1 >= 0.975"."""
        return self.goal.text(self.original)

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings for the latencies of each call, without the signature's name if there is only one."""
        return table.headings(self.calls)

    @property
    def table(self) -> tuple[table.Row, ...]:
        """The original, every trial, and its calls as CUDA graphs."""
        return table.rows(self)

    @property
    def hints(self) -> tuple[str, ...]:
        """What would be faster than the winner, and what that takes, a sentence each."""
        return (*self._original_hint(), *self._graph_hint(), *self._compared_hint())

    @property
    def legend(self) -> str:
        """What the words and figures of the table mean."""
        compared = (
            f"; {table.COMPARED}: {SERVER_TITLES[self.server]} does not run it, so that it cannot win"
            if self.server and self.compares
            else ""
        )
        return (
            f"± is the median absolute deviation of single calls; rows/s are those of one caller at {self.objective}; MB are all files of "
            f"a model{compared}"
        )

    def _original_hint(self) -> Iterator[str]:
        winner, native = self.winner, self.native.get(self.objective)
        if not winner or not native:
            return
        if self.final and {NATIVE, winner.number} <= set(self.final.rounds):
            found = self.final.faster(NATIVE, winner.number)
            if found.low <= 1:
                return
            said = found.text("the winner")
        elif not _faster(native, winner.measured.latencies[self.objective]):
            return
        else:
            said = f"{native.ms:.3f} ms at {self.objective}, and the winner {winner.ms(self.objective):.3f} ms, timed alone"
        yield (
            f"the original is faster than the winner, which is only the fastest of what was tried: {said}; leave the model as it is, or "
            "see with `tftrt diagnose` what costs the time"
        )

    def _graph_hint(self) -> Iterator[str]:
        winner = self.winner
        graph = winner.measured.graphs.get(self.objective) if winner else None
        if winner and graph and _faster(graph, winner.measured.latencies[self.objective]):
            yield (
                f"the winner's calls take {graph.ms:.3f} ms as CUDA graphs, and {winner.ms(self.objective):.3f} ms without, "
                "timed one after the other; TFTRT_PLAN_CUDA_GRAPH=1 in the environment of a program, or of Triton's Python backend, "
                "launches them so"
            )

    def _compared_hint(self) -> Iterator[str]:
        kept = [one for one in self.trials if one.kept and one.compared]
        fastest = min(kept, key=lambda one: one.ms(self.objective), default=None)
        if not fastest or not self.server:
            return
        winner, number = self.winner, fastest.number
        if winner and self.final and {number, winner.number} <= set(self.final.rounds):
            found = self.final.faster(number, winner.number)
            if found.low <= 1:
                return
            said = found.text("the winner")
        elif winner and not _faster(
            fastest.measured.latencies[self.objective], winner.measured.latencies[self.objective]
        ):
            return
        else:
            said = f"{fastest.ms(self.objective):.3f} ms at {self.objective}, timed alone"
        others = backends.servers(fastest.backend)
        where = (
            f"{' and '.join(SERVER_TITLES[one] for one in others)} and a program run" if others else "a program runs"
        )
        # `tftrt optimize` has --server, too, and no --backend.
        lets_win = f"--server={others[0]}" if others else f"--backend={fastest.backend} without --server"
        yield (
            f"trial {number} ({fastest.text}) keeps the goal{', too' if winner else ''}, and {SERVER_TITLES[self.server]} does not run it: "
            f"{said}; {where} it: {lets_win}"
        )

    def first(self, precision: Precision) -> Trial | None:
        """The plain trial of a precision, or None."""
        return plain(self.trials, precision)

    def winner_speed(self) -> tuple[float, list[str]]:
        """Returns: (ms at the objective, ["2.31 times as fast as TensorFlow (95 %: 2.28 to 2.35)", and the same of FP16 where that is
        another trial]). It has the intervals if the trials were timed in turns."""
        assert self.winner is not None
        fp16, mine = self.first("FP16"), self.winner.measured.latencies[self.objective]
        others = {self.runtime: (NATIVE, self.native[self.objective])}
        beside = fp16.latency(self.objective) if fp16 and fp16 != self.winner else None
        if fp16 and beside:
            own = self.winner.backend == fp16.backend
            others["FP16" if own else f"{backends.default().makes}'s FP16"] = (fp16.number, beside)
        if not self.final:
            return mine.ms, [
                f"{latency.ms / mine.ms:.2f} times as fast as {name}" for name, (_, latency) in others.items()
            ]
        number = self.winner.number
        return self.final.latencies[number].ms, [
            self.final.faster(number, other).text(name)
            for name, (other, _) in others.items()
            if other in self.final.rounds
        ]

    def to_dict(self) -> dict[str, Any]:
        """Written by hand: the document names trials by their numbers."""
        return {
            "kind": "tuning",
            **passport.stamp(),
            "model": self.model,
            "goal": self.goal.to_dict(),
            "goal_text": self.goal_text,
            "original": records.plain(self.original),
            "calls": list(self.calls),
            "objective": self.objective,
            "native": {call: one.to_dict() for call, one in self.native.items()},
            "native_runtime": self.runtime,
            "server": self.server,
            "table": [one.to_dict() for one in self.table],
            "legend": self.legend,
            "hints": list(self.hints),
            "trials": [one.to_dict() for one in self.trials],
            "winner": self.winner.number if self.winner else None,
            "best": self.best.number if self.best else None,
            "ended": self.ended,
            "notes": list(self.notes),
            "gpu": self.gpu,
            "tensorrt": self.tensorrt,
            "data": self.data,
            "warnings": list(self.warnings),
            "recipe": list(self.recipe),
            "final": self.final.to_dict() if self.final else None,
        }


def nobody(server: Server | Literal[""], compares: bool) -> str:
    """Who keeps no goal where there is no winner, for people. Args: compares: whether trials were made that the server does not run; these
    may keep it."""
    return f"no trial that {SERVER_TITLES[server]} runs" if server and compares else "no trial"


def _faster(one: Latency, other: Latency) -> bool:
    """Whether one is certainly shorter."""
    return one.ms < other.ms and not tied(one, other)
