"""What the commands of `tftrt optimize` gave, in words: a sentence each, from the JSON that the command wrote."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.accuracy import metrics
from tftrt_tools.base import terminal
from tftrt_tools.base.stack.diagnosis import Diagnosis as Machine
from tftrt_tools.models.savedmodel import flops
from tftrt_tools.studies import backends
from tftrt_tools.studies.diagnosis.finding import Diagnosis, Trial
from tftrt_tools.studies.optimizing.known import Known
from tftrt_tools.studies.profiling import rows
from tftrt_tools.studies.profiling.profile import Profile
from tftrt_tools.studies.tuning.repeats import Repeats
from tftrt_tools.studies.tuning.tried import nobody
from tftrt_tools.tftrt.calibration.comparison import LIMIT_DB, Comparison
from tftrt_tools.tftrt.conversion.plan import Plan
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult
from tftrt_tools.tftrt.conversion.signature_result import coverage as coverage_of

Document = Mapping[str, Any]


def doctor(known: Known, document: Document) -> str:
    """The machine."""
    found = Machine.from_dict(document)
    build = found.can("build")
    stack = f"TensorFlow {found.tensorflow}, TensorRT {found.tensorrt_loaded or found.tensorrt_linked}"
    return (
        f"{stack}, {found.gpus[0].name}"
        if build.can and found.gpus
        else f"{stack}; engines cannot be built here: {build.cause}"
    )


def inspect(known: Known, document: Document) -> str:
    """The share in TensorRT, and the advice."""
    words = known.mend_words
    return _coverage(Plan.from_dict(document)) + (f"; advised: {' '.join(words)}" if words else "; no flag is advised")


def inspect_again(known: Known, document: Document) -> str:
    """The share with the mends, beside that without."""
    before, after = known.first_plan, Plan.from_dict(document)
    gained = after.use_dynamic_shape and not before.use_dynamic_shape and "--use_dynamic_shape" not in known.mend_words
    mode = "with profiles" if gained else ""
    flags = " ".join(filter(None, (*known.mend_words, mode)))
    return f"{flags or 'the same flags'}: {_coverage(after)}; before: {_coverage(before)}"


def _coverage(plan: Plan) -> str:
    usable = [one for one in plan.signatures if not one.problem]
    inside, ops = sum(one.ops_in_tensorrt for one in usable), sum(one.ops for one in usable)
    counted = flops.together([one.flops for one in usable])
    share = f", {counted.text()} FLOPs" if counted and counted.share is not None else ""
    return f"{inside} of {ops} ops in TensorRT{share}, {terminal.counted(sum(len(one.segments) for one in usable), 'engine')}"


def data(known: Known, document: Document) -> str:
    """How many rows went where."""
    both = document["in_both"]
    out = f"; {terminal.counted(both, 'row')} equal to one that is scored: left out" if both else ""
    calibrating = terminal.counted(document["calibration_rows"], "other row")
    return f"{terminal.counted(document['rows'], 'row')} to score, {calibrating} to calibrate on{out}"


def calibrate(known: Known, document: Document) -> str:
    """What INT8 keeps in simulation."""
    found = known.comparison
    if found is None:
        return f"ranges by {document['method']}; {_why_not(document)}"
    level = found.worst(found.taken)
    verdict = "less than the" if level < known.wanted_db else "more than the"
    has_to = "that it has to keep" if known.goal_in_db else "that `tftrt verify` asks of INT8"
    return (
        f"simulated on {terminal.counted(known.simulated_rows, 'row')} that calibrate, INT8 keeps {_db(level)} in the worst output, with "
        f"ranges by {found.taken}: {verdict} {known.wanted_db:g} dB {has_to}"
    )


def _why_not(document: Document) -> str:
    """Why the calibration data tells nothing of INT8."""
    compared = Comparison.from_dict(document["comparison"]) if document.get("comparison") else None
    return compared.nothing_shown[0] if compared and compared.nothing_shown else "nothing could be simulated"


def simulated(known: Known, document: Document) -> str:
    """The model in INT8, or what its verification simulated."""
    if document.get("kind") == "conversion":
        return convert(known, document)
    if not (document.get("simulation") or {}).get("simulated"):
        left = (document.get("simulation") or {}).get("left_out") or {}
        return f"INT8 was not simulated: {next(iter(left.values()), 'no engine of it is INT8')}"
    seen = known.int8_seen
    return (
        f"{'the goal is kept' if seen.kept else seen.miss}; {verify(known, document)}"
        if seen
        else verify(known, document)
    )


def sensitivity(known: Known, document: Document) -> str:
    """What would help INT8."""
    if document["flag"]:
        return f"simulated, this helps: {document['flag']}" + (
            f"; still {document['missed'][0]}" if document["missed"] else ""
        )
    missed = [*document["missed"], *document.get("not_finite", ())]
    return "no few nodes stand out" + (f": {missed[0]}" if missed else "")


def tune(known: Known, document: Document) -> str:
    """The winner, or the trial that came nearest."""
    trials = {one["number"]: one for one in document["trials"]}
    number = document["winner"] or document["best"]
    beside = f"of {terminal.counted(len(trials), 'trial')}; the search ended: {document['ended']}"
    no_trial = nobody(document.get("server", ""), any(one.get("compared") for one in document["trials"]))
    if number is None:
        return f"{no_trial} gave a model, {beside}"
    one, call = trials[number], document["objective"]
    ms, native = one["latencies"][call]["ms"], document["native"][call]["ms"]
    by = backends.named(one.get("backend", backends.default().name)).title
    title = f"{by}, " if by else ""
    what = (
        f"{title}{one['settings']['precision_mode']}, trial {number}: {ms:.3f} ms at {call}, TensorFlow {native:.3f} ms"
    )
    also = "".join(f"; {one}" for one in document.get("hints", ()))
    return (
        f"{what}, {beside}{also}"
        if document["winner"]
        else f"{no_trial} keeps {document['goal_text']}; nearest is {what}, {beside}"
    )


def convert(known: Known, document: Document) -> str:
    """The model that was made."""
    by = backends.of_manifest(document)
    if by != backends.default().name:
        made = "taken from the engine cache" if document.get("cached") else "built"
        return f"{document['settings']['precision_mode']}, {backends.named(by).title}, {made}"
    found = list(map(SignatureResult.from_dict, document["signatures"]))
    engines, built = sum(len(one.engines) for one in found), sum(len(one.built) for one in found)
    seconds = sum(one.build_seconds or 0.0 for one in found)
    made = (
        f"{terminal.counted(built, 'engine')} built in {seconds:.0f} s"
        if built
        else "no engines saved: a target builds its own"
    )
    left = [one for signature in found for one in signature.unbuilt]
    late = f"; {terminal.counted(len(left), 'engine op')} without an engine: {left[0].reason}" if left else ""
    refused = [one.node for signature in found for one in signature.refused_nodes]
    if refused:
        late += f"; TensorRT refuses {terminal.counted(len(refused), 'node')}, which TensorFlow computes: {refused[0]}"
    precision = document["settings"]["precision_mode"]
    return f"{precision}, {terminal.counted(engines, 'engine op')}, {coverage_of(found):.0%} of the ops; {made}{late}"


def build(known: Known, document: Document) -> str:
    """The build that is kept, and its lead."""
    return Repeats.from_dict(document["repeats"]).text()


def verify(known: Known, document: Document) -> str:
    """How alike the answers are, and what that shows."""
    worst = _worst_db(document["comparisons"])
    alike = (
        f"the worst output keeps {_db(worst)}"
        if worst is not None
        else f"{terminal.counted(len(document['comparisons']), 'output')} compared"
    )
    accuracy = document["accuracy"]
    scored = f"; {_accuracy(accuracy)}" if accuracy else ""
    problem = f"; {document['problems'][0]}" if document["problems"] else ""
    return f"{'passed' if document['passed'] else 'FAILED'}: {alike}{scored}{problem}; evidence: {document['evidence']}"


def _worst_db(comparisons: Sequence[Document]) -> float | None:
    """Of the outputs that are numbers throughout, as far as that is known; None where there are none."""
    finite = [one for one in comparisons if not one.get("nonfinite")]
    return min((float(one["snr_db"]) for one in finite if one.get("snr_db") is not None), default=None)


def _accuracy(accuracy: Document) -> str:
    name = accuracy.get("metric", "top1")
    both = (accuracy.get("metrics") or {}).get(name, accuracy)
    original, converted = (metrics.METRICS[name].show(both[which]) for which in ("original", "converted"))
    return f"{'accuracy' if name == 'top1' else name} on {accuracy['labels']} labels: original {original}, converted {converted}"


def regress(known: Known, document: Document) -> str:
    """The verdict with its certainty."""
    return str(document["headline"])


def profile(known: Known, document: Document) -> str:
    """What a call takes, and its largest part."""
    found = Profile.from_dict(document)
    said = []
    for call in found.model.calls:
        other = rows.matching(found.original, call)
        beside = f", before {1e3 * other.latency.p50:.3f} ms" if other else ""
        largest = max(call.parts, key=lambda part: part.seconds, default=None)
        part = f", {largest.seconds / call.latency.p50:.0%} of it: {largest.name}" if largest else ""
        said.append(f"{call.text()} takes {1e3 * call.latency.p50:.3f} ms{beside}{part}")
    return "; ".join(said)


def diagnose(known: Known, document: Document) -> str:
    """The finding that is worth most."""
    found = Diagnosis.from_dict(document)
    if not found.findings:
        return "nothing is wrong that the profile shows"
    first = found.findings[0]
    how = "at most" if first.basis == "ceiling" else "about"
    worth = "" if first.worth is None else f", worth {how} {1e3 * first.worth:.3f} ms of {first.call}"
    return f"{terminal.counted(len(found.findings), 'finding')}, the first: {first.title}{worth}"


def tried(known: Known, document: Document) -> str:
    """What the mends gave."""
    trials = [one.trial for one in Diagnosis.from_dict(document).findings if one.trial and one.trial.gained is not None]
    if not trials:
        return "no fix could be tried"
    best = max((one for one in trials if one.better), key=lambda one: one.gained or 0.0, default=None)
    count = f"{len(trials)} {'fix' if len(trials) == 1 else 'fixes'} tried"
    if best is None:
        most = max(trials, key=lambda one: (one.alike is True, one.gained or 0.0))
        return f"{count}; none is shown to be faster with answers like the model's: {gain(most)}"
    return f"{count}; the best: {gain(best)}"


def gain(trial: Trial) -> str:
    """What a mend gave: seconds of a call, with the interval, and how its answers compare."""
    gained = trial.gained or 0.0
    interval = (
        "" if trial.low is None or trial.high is None else f" (95 %: {1e3 * trial.low:.3f} to {1e3 * trial.high:.3f})"
    )
    saves = f"tftrt {shlex.join(trial.command)} {'saves' if gained >= 0 else 'costs'} {1e3 * abs(gained):.3f} ms of a call{interval}"
    return f"{saves}, {'but' if trial.alike is False else 'and'} its answers are {trial.answered}"


def bench(known: Known, document: Document) -> str:
    """The highest rate that keeps the promise."""
    best = next((one for one in document["trials"] if one["number"] == document["winner"]), None)
    if best is None:
        return f"no rate was shown to keep {document['goal']}; the search ended: {document['ended']}"
    return f"{best['rate']:.4g} requests a second keep {document['goal']}; the search ended: {document['ended']}"


def publish(known: Known, document: Document) -> str:
    """The version."""
    return str(document["path"])


def _db(value: float) -> str:
    return "every bit" if value >= LIMIT_DB else f"{value:.1f} dB"
