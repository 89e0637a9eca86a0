"""Ranks nodes before anything is built, by the simulation of `tftrt sensitivity`: which nodes do the most harm alone, and so get a
higher precision first; and how much noise all of them make together."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tftrt_tools.accuracy import harm, simulating
from tftrt_tools.accuracy.simulating import SimulateRequest
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.backends.protocol import Ranked
from tftrt_tools.studies.tuning import journal as journal_module
from tftrt_tools.studies.tuning.measuring import Scoring
from tftrt_tools.studies.tuning.trial import ENV, Task, Trials
from tftrt_tools.tftrt.conversion.converting import TablesFrom
from tftrt_tools.tftrt.conversion.settings import Settings

# The simulation runs all rows once for each node; the first rows are enough to rank the nodes.
ROWS = 256


class Ranking:
    """A function Settings -> search.Ranked, and what else is simulated; what it found is kept in the journal's folder."""

    def __init__(self, task: Task, journal: journal_module.Journal, trials: Trials) -> None:
        """Args: task: trial.Task; journal: journal.Journal; trials: trial.Trials, which has the INT8 tables."""
        self._task, self._journal, self._trials = task, journal, trials

    def __call__(self, settings: Settings) -> Ranked:
        """Raises: TftrtError where nothing can be simulated."""
        found = self._found("ranked", settings, "", lambda signatures: dataclasses.asdict(ranked(signatures)))
        return Ranked(tuple(found["names"]), found["first"])

    def snr_db(self, settings: Settings) -> float:
        """SNR in dB of the worst output with everything rounded, before any node gets a higher precision. Raises: TftrtError."""
        return float(
            self._found(
                "noise", settings, None, lambda signatures: str(min(harm.worst(one.total).snr_db for one in signatures))
            )
        )

    def _found(
        self, name: str, settings: Settings, nodes: str | None, read: Callable[[list[harm.SignatureHarm]], Any]
    ) -> Any:
        table = self._trials.calibration(settings)
        request = SimulateRequest(
            model=self._task.model,
            settings=settings,
            calls={name: tuple(paths) for name, paths in first_calls(self._task.scoring).items()},
            nodes=nodes,
            int8=TablesFrom(given=table),
        )
        key = journal_module.key(
            settings=settings.to_dict(),
            engines=[one.to_dict() for one in table.engines] if table else [],
            **self._task.facts,
        )
        return self._journal.fact(name, key, lambda: read(_simulated(request)))


def first_calls(scoring: Scoring) -> dict[str, list[str]]:
    """{signature: .npz paths} of the first rows of the data."""
    found: dict[str, list[str]] = {}
    rows: dict[str, int] = {}
    for one in scoring.calls:
        if rows.setdefault(one.signature, 0) < ROWS:
            found.setdefault(one.signature, []).append(one.inputs)
            rows[one.signature] += one.rows
    return found


def _simulated(request: SimulateRequest) -> list[harm.SignatureHarm]:
    progress.say("simulating the rounding")
    try:
        return list(simulating.simulate.run(request, env=ENV).result.signatures)
    except errors.UsageError as error:
        # What the simulation refuses is not an error in the command's flags.
        raise errors.TftrtError(error.cause, error.mend) from None


def ranked(signatures: Sequence[harm.SignatureHarm]) -> Ranked:
    """Ranked nodes of several harm.SignatureHarm: those that do any harm; `first` is the number of nodes that the study suggests."""
    nodes = sorted(
        (node for one in signatures for node in one.nodes if node.worst.noise > 0), key=lambda node: -node.worst.noise
    )
    suggested = {name for one in signatures for name in one.suggested_nodes}
    return Ranked(tuple(dict.fromkeys(node.name for node in nodes)), max(1, len(suggested)))
