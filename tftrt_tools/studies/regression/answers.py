"""Do both models answer alike on the timed requests? Judged with the metrics and bounds of `tftrt verify`, or by the user's goals."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from tftrt_tools.accuracy import goal as accuracy_goal
from tftrt_tools.accuracy import labels as label_reader
from tftrt_tools.accuracy import nearness, score
from tftrt_tools.accuracy.judgement import Rules
from tftrt_tools.accuracy.metrics import Comparison
from tftrt_tools.base import errors, records
from tftrt_tools.base.logs import load_failure
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution.run import Call
from tftrt_tools.servers.client import Client, ServingError, TritonClient
from tftrt_tools.servers.serving.smoke import answer_check as comparing
from tftrt_tools.servers.serving.smoke import gate
from tftrt_tools.studies.regression import rounds

# Codes without an answer; with any other code the model refused the request.
_NO_ANSWER = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")


class Refused(errors.CheckFailed):
    """The candidate refuses a request that the native model answers."""


# {output: array} of one request.
Answer = Mapping[str, npt.NDArray[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """The candidate's answers compared with the native model's."""

    # One for each output.
    comparisons: tuple[Comparison, ...]
    # The key of the bounds in thresholds.DEFAULTS, and why.
    arithmetic: tuple[str, str]
    # {output: {metric: bound}}; empty if goals replace them.
    bounds: Mapping[str, Mapping[str, float]]
    # {"goal", "native", "candidate", "bound", "kept"} of each goal on accuracy.
    goals: tuple[Mapping[str, Any], ...]
    # The failures, a line each.
    problems: tuple[str, ...]
    # How many requests were compared.
    requests: int
    # The problems that are about answers that show nothing.
    nothing_shown: tuple[str, ...] = ()
    # Warnings, a line each.
    warnings: tuple[str, ...] = ()
    # Names of the outputs that miss a bound.
    missed: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """How near the answers are: for each measure the worst output."""
        return ", ".join([f"{self.requests} requests compared", *nearness.parts(self.comparisons)])

    def to_dict(self) -> dict[str, Any]:
        """Written by hand: the number of requests comes first, and `missed` is in `problems` already."""
        return {
            "requests": self.requests,
            "arithmetic": list(self.arithmetic),
            "bounds": self.bounds,
            "goals": records.plain(self.goals),
            "problems": list(self.problems),
            "nothing_shown": list(self.nothing_shown),
            "warnings": list(self.warnings),
            "comparisons": [one.to_dict() for one in self.comparisons],
        }


def asked(client: Client | TritonClient, model: str, calls: Sequence[Call], version: int | None = None) -> list[Answer]:
    """[{output: ndarray}] of a model for run.Calls, sent one after the other. Raises: ServingError."""
    found: list[Answer] = []
    for number, call in enumerate(calls):
        progress.say(f"asking {model}", number, len(calls))
        found.append(client.predict(model, call.inputs, call.signature, version))
    return found


def judge(
    calls: Sequence[Call],
    native: Sequence[Answer],
    candidate: Sequence[Answer],
    kind: tuple[str, str],
    own_data: bool,
    rules: Rules,
    goals: Sequence[accuracy_goal.Goal] = (),
    labels: label_reader.Labels | None = None,
    output: str = "",
) -> Judged:
    """Compare the answers.

    Args:
      calls: [run.Call]. native, candidate: [{output: ndarray}] for each. kind: (key of thresholds.DEFAULTS, why). own_data: whether
        the inputs are the user's. rules: judgement.Rules. goals: accuracy.goal.Goals, which replace the bounds of
        `tftrt verify`. labels: labels.Labels, or None. output: SIGNATURE/OUTPUT of the goals, or "".

    Returns: Judged. Raises: UsageError for goals and bounds that fit no output; TftrtError where the forms of the answers differ.
    """
    own = {call.signature for call in calls} if own_data else set()
    compared = comparing.compare(list(zip(calls, native, candidate, strict=True)), kind[0], own, rules)
    if labels is not None:
        # Rows that do not fill a batch are left out.
        label_reader.check_count(labels, sum(call.rows for call in calls), max(call.rows for call in calls) - 1)
    rows = tuple(_scored(one, calls, native, candidate, labels, output, rules.kinds) for one in goals)
    missed = [f"{one['goal']}: the candidate has {one['candidate']:.6g}" for one in rows if not one["kept"]]
    misses = () if goals else tuple(miss.text() for miss in compared.misses)
    return Judged(
        comparisons=compared.comparisons,
        arithmetic=kind,
        bounds={} if goals else compared.bounds,
        goals=rows,
        problems=(*compared.problems, *misses, *missed, *compared.nothing_shown),
        requests=len(calls),
        nothing_shown=compared.nothing_shown,
        warnings=compared.warnings,
        missed=() if goals else tuple(dict.fromkeys(miss.output for miss in compared.misses)),
    )


def _scored(
    goal: accuracy_goal.Goal,
    calls: Sequence[Call],
    native: Sequence[Answer],
    candidate: Sequence[Answer],
    truth: label_reader.Labels | None,
    output: str,
    kinds: Mapping[str, Any],
) -> dict[str, Any]:
    signatures = [call.signature for call in calls]
    both = [score.score(goal, signatures, native, answers, truth, output, kinds) for answers in (native, candidate)]
    before, after = both[0].value, both[1].value
    kept = goal.kept(after, before) and not both[1].nonfinite
    return {
        "goal": goal.text(before),
        "native": before,
        "candidate": after,
        "bound": goal.bound(before),
        "kept": bool(kept),
    }


def parse_goals(text: str, where: str = "--accuracy") -> tuple[accuracy_goal.Goal, ...]:
    """The goals of "top1:max-degradation=0.01;snr_db:threshold=30". Args: where: the text stands, for messages. Raises: UsageError."""
    return tuple(
        accuracy_goal.parse(part, where=where) for part in filter(None, (part.strip() for part in text.split(";")))
    )


def read_failure(error: ServingError, name: str, model: str) -> errors.TftrtError:
    """A TftrtError for a model that refuses a request: Refused for the candidate's."""
    said = errors.first_line(error.message)
    if gate.REFUSAL in error.message:
        return Refused(
            f"no engine of the {name} serves a request, and --no_engine_fallback keeps TensorFlow from it",
            f"`tftrt build --shapes=…` builds engines for the shapes that are sent; the server said: {said}",
        )
    if why := load_failure.no_engine_ops(error.message):
        return Refused(
            f"the {name} model {model} does not run there: {why}",
            "use --launch=local, which runs engine ops as TensorFlow ops, or a machine with a GPU",
        )
    if error.code in _NO_ANSWER:
        return errors.TftrtError(f"the {name} model {model} does not answer a request: {error.cause}", error.mend)
    kind = Refused if name == rounds.CANDIDATE else errors.TftrtError
    return kind(
        f"the {name} model {model} refuses a request: {error.code}: {said}",
        "fix the requests (--shapes, --data, --signature_keys), or the model",
    )
