"""Ranks the nodes of plans before any is built, by the simulation of `tftrt sensitivity` of the ONNX file in FP32: it rounds as the exports
do, and its nodes have the names that the exports know. No runtime is imported here."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tftrt_tools.accuracy.harm import SignatureHarm
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.backends.protocol import Ranked
from tftrt_tools.studies.tuning import journal as journal_module
from tftrt_tools.studies.tuning import ranking, space
from tftrt_tools.studies.tuning.plans import Plans
from tftrt_tools.studies.tuning.trial import Task
from tftrt_tools.tensorrt.exporting import sensitivity
from tftrt_tools.tftrt.calibration.methods import AUTO
from tftrt_tools.tftrt.conversion.settings import Settings


class PlanRanking:
    """As ranking.Ranking, for plans."""

    def __init__(self, task: Task, plans: Plans, journal: journal_module.Journal) -> None:
        """Args: task: trial.Task; plans: those that it tries; journal: journal.Journal."""
        self._task, self._plans, self._journal = task, plans, journal

    def __call__(self, settings: Settings) -> Ranked:
        """Raises: TftrtError where nothing can be simulated."""
        found = self._found("plan-ranked", settings, "", lambda harm, _: dataclasses.asdict(_ranked(harm, settings)))
        return Ranked(tuple(found["names"]), found["first"])

    def snr_db(self, settings: Settings) -> float:
        """As Ranking.snr_db, of INT8. One simulation tells of all methods, and which one "auto" takes. Raises: TftrtError."""
        found = self._found(
            "plan-noise",
            dataclasses.replace(settings, calibration_method=AUTO),
            None,
            lambda harm, taken: {"auto": taken, "levels": {one.method: str(one.snr_db) for one in harm.methods}},
        )
        asked = next(
            (one.text for one in settings.candidates if one.name == settings.calibration_method), found["auto"]
        )
        return float(found["levels"][asked])

    def _found(
        self, name: str, settings: Settings, nodes: str | None, read: Callable[[SignatureHarm, str], Any]
    ) -> Any:
        task = self._task
        key = journal_module.key(
            settings=settings.to_dict(),
            engines=[one.to_dict() for one in task.table.engines] if task.table else [],
            calibration=task.data_facts,
            **task.facts,
        )
        return self._journal.fact(name, key, lambda: read(*self._simulated(settings, nodes)))

    def _simulated(self, settings: Settings, nodes: str | None) -> tuple[SignatureHarm, str]:
        """As sensitivity.simulated, on the first rows of the data."""
        plans, given = self._plans, self._plans.asked
        name, twins = next(iter(given.names.items()))
        int8 = settings.precision_mode == "INT8"
        asked = sensitivity.Asked.of(dataclasses.replace(settings, calibration_table=given.table, fp32_nodes=""))
        try:
            file = plans.export(space.with_precision(settings, "FP32"))
            progress.say("simulating the rounding of the exported file")
            return sensitivity.simulated(
                file,
                asked,
                ranking.first_calls(self._task.scoring)[name],
                given.data if int8 else None,
                nodes,
                names=tuple(dict.fromkeys((name, *twins))),
            )
        except errors.UsageError as error:
            # What the export or the simulation refuses is not an error in the command's flags.
            raise errors.TftrtError(error.cause, error.mend) from None


def _ranked(harm: SignatureHarm, settings: Settings) -> Ranked:
    """As ranking.ranked. In INT8 the least harmful node stays: the export of a file with nothing to quantize is refused."""
    found = ranking.ranked([harm])
    most = len(harm.nodes) - (settings.precision_mode == "INT8")
    return dataclasses.replace(found, names=found.names[:most])
