"""Do both models answer alike on the requests that are timed? With the metrics and bounds of `tftrt verify`, or by goals of the user's."""

import dataclasses
import math

from tftrt_tools import errors, progress
from tftrt_tools.accuracy import kinds
from tftrt_tools.accuracy import labels as label_reader
from tftrt_tools.regression import rounds
from tftrt_tools.serving.smoke import answers as comparing
from tftrt_tools.serving.smoke import gate
from tftrt_tools.tuning import goal as accuracy_goal
from tftrt_tools.tuning import score

# Nobody answered; whatever else a server says is the model's answer to the request.
_NO_ANSWER = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")


class Refused(errors.CheckFailed):
    """The candidate refuses a request that the native model answers."""


@dataclasses.dataclass(frozen=True)
class Judged:
    """comparisons: metrics.Comparisons of the candidate's answers with the native model's, one for each output. arithmetic: (whose bounds,
    why). bounds: {output: {metric: bound}}. goals: ({"goal", "native", "candidate", "bound", "kept"}, …). problems: what does not hold, a
    line each. requests: how many were compared. nothing_shown: of the problems, that the answers show nothing. warnings: lines.
    missed: names of the outputs that miss a bound."""

    comparisons: tuple
    arithmetic: tuple
    bounds: dict
    goals: tuple
    problems: tuple
    requests: int
    nothing_shown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()

    @property
    def text(self):
        """How near the answers are: of each measure the output where it is worst."""
        # What is judged together with others says nothing by itself; ids have no SNR.
        alone = [one for one in self.comparisons if not one.part_of]
        worst = ((_snr, min, [one.snr_db for one in alone if one.kind != kinds.IDS]),
                 ("top-1 equal in {:.2%}".format, min, [one.top1 for one in alone if one.classes]),
                 ("{:.2%} of the elements differ".format, max, [one.mismatches for one in alone]),
                 ("{:.2%} of the detections matched".format, min, [one.value("matched") for one in alone]))
        known = [(form, choose, [value for value in values if value is not None]) for form, choose, values in worst]
        return ", ".join([f"{self.requests} requests compared", *(form(choose(values)) for form, choose, values in known if values)])

    def to_dict(self):
        return {"requests": self.requests, "arithmetic": list(self.arithmetic), "bounds": self.bounds,
                "goals": [_without_infinity(one) for one in self.goals], "problems": list(self.problems),
                "nothing_shown": list(self.nothing_shown), "warnings": list(self.warnings),
                "comparisons": [one.to_dict() for one in self.comparisons]}


def _snr(value):
    return "no float differs" if math.isinf(value) else f"SNR {value:.1f} dB"


def _without_infinity(goal):
    # JSON has none.
    return {name: str(value) if isinstance(value, float) and math.isinf(value) else value for name, value in goal.items()}


def asked(client, model, signature, calls, version=None):
    """[{output: ndarray}] of a model for run.Calls, sent one after the other. Raises: ServingError."""
    found = []
    for number, call in enumerate(calls):
        progress.say(f"asking {model}", number, len(calls))
        found.append(client.predict(model, call.inputs, signature, version))
    return found


def judge(calls, native, candidate, kind, own_data, rules, goals=(), labels=None, output=""):
    """Compare the answers.

    Args:
      calls: [run.Call]. native, candidate: [{output: ndarray}] for each. kind: (key of thresholds.DEFAULTS, why). own_data: whether
        the inputs are the user's. rules: judgement.Rules. goals: tuning.goal.Goals, which replace the bounds of
        `tftrt verify`. labels: labels.Labels, or None. output: SIGNATURE/OUTPUT that the goals speak of, or "".

    Returns: Judged. Raises: UsageError for goals and bounds that fit no output; TftrtError where the forms of the answers differ.
    """
    own = {call.signature for call in calls} if own_data else set()
    compared = comparing.compare(list(zip(calls, native, candidate, strict=True)), kind[0], own, rules)
    if labels is not None:
        # What fills no batch is left out.
        label_reader.check_count(labels, sum(call.rows for call in calls), max(call.rows for call in calls) - 1)
    rows = tuple(_scored(one, calls, native, candidate, labels, output, rules.kinds) for one in goals)
    missed = [f"{one['goal']}: the candidate has {one['candidate']:.6g}" for one in rows if not one["kept"]]
    misses = () if goals else tuple(miss.text() for miss in compared.misses)
    return Judged(compared.comparisons, kind, {} if goals else compared.bounds, rows,
                  (*compared.problems, *misses, *missed, *compared.nothing_shown), len(calls), compared.nothing_shown, compared.warnings,
                  () if goals else tuple(dict.fromkeys(miss.output for miss in compared.misses)))


def _scored(goal, calls, native, candidate, truth, output, kinds):
    signatures = [call.signature for call in calls]
    both = [score.score(goal, signatures, native, answers, truth, output, kinds) for answers in (native, candidate)]
    before, after = both[0].value, both[1].value
    kept = goal.kept(after, before) and not both[1].nonfinite
    return {"goal": goal.text(before), "native": before, "candidate": after, "bound": goal.bound(before), "kept": bool(kept)}


def parse_goals(text, where="--accuracy"):
    """The goals of "top1:max-degradation=0.01;snr_db:threshold=30". Args: where: the text stands, for messages. Raises: UsageError."""
    return tuple(accuracy_goal.parse(part, where=where) for part in filter(None, (part.strip() for part in text.split(";"))))


def read_failure(error, name, model):
    """A TftrtError for a model that refuses a request: Refused for the candidate's. Args: error: client.ServingError."""
    said = errors.first_line(error.message)
    if gate.REFUSAL in error.message:
        return Refused(f"no engine of the {name} serves a request, and --no_engine_fallback keeps TensorFlow from it",
                       f"`tftrt build --shapes=…` builds engines for the shapes that are sent; the server said: {said}")
    kind = Refused if name == rounds.CANDIDATE and error.code not in _NO_ANSWER else errors.TftrtError
    return kind(f"the {name} model {model} refuses a request: {error.code}: {said}",
                "mend the requests (--shapes, --data, --signature_keys), or the model")
