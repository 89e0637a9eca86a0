"""The goals of the candidate, from flags or a TOML file, and whether it keeps them: yes, no, or cannot tell.

    speed_up_at_least = 1.5
    p99_ms_at_most = 20
    accuracy = "top1:max-degradation=0.01"
    no_engine_fallback = true

A goal on a measured value is kept if the whole interval is on its right side, missed if the whole interval is on the wrong side, and
undecided otherwise: chance does not decide about a value near its bound.
"""

import dataclasses
import difflib
import math
import sys
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base import choices, errors, records
from tftrt_tools.servers.serving.smoke import engine_evidence
from tftrt_tools.studies.regression import answers
from tftrt_tools.studies.regression import verdict as verdicts
from tftrt_tools.studies.regression.models import Model

KEPT: choices.GoalVerdict = "kept"
MISSED: choices.GoalVerdict = "missed"
UNDECIDED: choices.GoalVerdict = "cannot tell"
_MIB = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goals:
    """None, "" and False stand for "no such goal"."""

    # The native model's median request time over the candidate's.
    speed_up_at_least: float | None = None
    # Milliseconds of the candidate's requests.
    p50_ms_at_most: float | None = None
    p99_ms_at_most: float | None = None
    # The candidate's answers a second.
    throughput_at_least: float | None = None
    # Goals as accuracy.goal reads them, divided by ";".
    accuracy: str = ""
    # From the candidate's passport: seconds to build its engines, MiB of their files, MiB of GPU memory during the build.
    build_seconds_at_most: float | None = None
    engine_mib_at_most: float | None = None
    gpu_mib_at_most: float | None = None
    # The engines ran, by the evidence of `tftrt smoke`.
    no_engine_fallback: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Written by hand: only the goals that are set."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value not in (None, "", False)}


NAMES = tuple(field.name for field in dataclasses.fields(Goals))
NUMBERS = tuple(field.name for field in dataclasses.fields(Goals) if field.default is None)
# Checks that rounds decide; the others depend on the passport, the answers and the engines.
MEASURED = tuple(
    f"goal/{name}" for name in ("speed_up_at_least", "p50_ms_at_most", "p99_ms_at_most", "throughput_at_least")
)
_EXAMPLE = 'a file of goals has lines such as speed_up_at_least = 1.5, or accuracy = "top1:max-degradation=0.01"'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kept(records.Record):
    """One goal judged."""

    # One of NAMES.
    name: str
    # The goal, and what was found, in words.
    goal: str
    value: str
    verdict: choices.GoalVerdict
    # Why the goal is missed or cannot be decided.
    reason: str = ""


def read(path: str, flags: Mapping[str, Any]) -> Goals:
    """Goals from a TOML file and from flags; flags override the file.

    Args: path: of the file, or "" for none. flags: {name: value}, only given ones.
    Returns: Goals. Raises: UsageError with what is wrong in the file.
    """
    found = _from_file(path) if path else {}
    wanted: dict[str, Any] = {name: _checked(name, value, path) for name, value in found.items()}
    goals = Goals(**wanted | {name: _checked(name, value, "") for name, value in flags.items()})
    answers.parse_goals(goals.accuracy, "--accuracy" if "accuracy" in flags or not path else f"{path}, accuracy")
    return goals


def _from_file(path: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        with open(path, "rb") as file:
            table: dict[str, Any] = tomllib.load(file)
    except OSError as error:
        raise errors.UsageError(f"--goals={path}: {(error.strerror or str(error)).lower()}", _EXAMPLE) from None
    except UnicodeDecodeError:
        raise errors.UsageError(f"--goals={path} is no text in UTF-8", _EXAMPLE) from None
    except tomllib.TOMLDecodeError as error:
        raise errors.UsageError(f"--goals={path} is no TOML: {error}", _EXAMPLE) from None
    if isinstance(table.get("goals"), dict):
        beside = next((name for name in table if name != "goals"), None)
        if beside:
            raise errors.UsageError(
                f"{path}: {beside!r} stands beside [goals]", "put all goals into that table, or leave its line out"
            )
        table = table["goals"]
    for name, value in table.items():
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, 1)
            raise errors.UsageError(
                f"{path}: no goal {name!r}", f"did you mean {near[0]}?" if near else f"goals: {', '.join(NAMES)}"
            )
        if isinstance(value, dict):
            raise errors.UsageError(f"{path}: {name} is a table", _EXAMPLE)
    return table


def _checked(name: str, value: object, path: str) -> str | bool | float:
    where = f"{path}: {name} = {value!r}" if path else f"--{name}={value}"
    if name == "accuracy":
        if not isinstance(value, str):
            raise errors.UsageError(f"{where} is no text", 'write accuracy = "top1:max-degradation=0.01"')
        return value
    if name == "no_engine_fallback":
        if not isinstance(value, bool):
            raise errors.UsageError(f"{where} is neither true nor false", f"write {name} = true")
        return value
    # TOML's booleans become Python's, which are also integers.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise errors.UsageError(f"{where} is no number", f"write {name} = 1.5, without quotes or units")
    if not math.isfinite(value) or value <= 0:
        raise errors.UsageError(f"{where} is no number above 0", f"write {name} = 1.5")
    return float(value)


def judge(
    goals: Goals,
    verdict: verdicts.Verdict,
    candidate: Model,
    accuracy: answers.Judged | None = None,
    engines: engine_evidence.Verdict | None = None,
    not_judged: str = "",
) -> tuple[Kept, ...]:
    """Judge all goals that are set.

    Args: goals: Goals. verdict: verdict.Verdict. candidate: models.Model. accuracy: answers.Judged or None. engines: smoke's
      evidence.Verdict or None. not_judged: why nothing follows from the measured times, "" where it does.
    Returns: (Kept, …).
    """
    found: list[Kept] = []
    if goals.speed_up_at_least is not None:
        found.append(_speed_up(goals.speed_up_at_least, verdict.of("p50")))
    for name, metric in (("p50_ms_at_most", "p50"), ("p99_ms_at_most", "p99"), ("throughput_at_least", "throughput")):
        bound = getattr(goals, name)
        if bound is not None:
            found.append(_measured(name, metric, bound, verdict.of(metric)))
    if not_judged:
        found = [dataclasses.replace(one, verdict=UNDECIDED, reason=not_judged) for one in found]
    for name, what, unit, value in (
        ("build_seconds_at_most", "building the engines", "s", candidate.build_seconds),
        ("engine_mib_at_most", "the engines", "MiB", _mib(candidate.engine_bytes)),
        ("gpu_mib_at_most", "GPU memory while engines were built", "MiB", _mib(candidate.gpu_memory_bytes)),
    ):
        bound = getattr(goals, name)
        if bound is not None:
            found.append(_of_passport(name, what, unit, bound, value))
    if goals.accuracy and accuracy is not None:
        found += [
            Kept(
                name="accuracy",
                goal=one["goal"],
                value=f"{one['candidate']:.6g} (native {one['native']:.6g})",
                verdict=KEPT if one["kept"] else MISSED,
            )
            for one in accuracy.goals
        ]
    if goals.no_engine_fallback:
        found.append(_no_fallback(engines))
    return tuple(found)


def _mib(size: int | None) -> float | None:
    return None if size is None else size / _MIB


def _speed_up(bound: float, one: verdicts.Judgement | None) -> Kept:
    goal = f"at least {bound:g} times as fast"
    if one is None or one.speed_up is None:
        return Kept(
            name="speed_up_at_least",
            goal=goal,
            value="not known",
            verdict=UNDECIDED,
            reason=one.reason if one else "p50 was not measured",
        )
    value, low, high = one.speed_up
    return _by_interval("speed_up_at_least", goal, f"{value:.3f} ({low:.3f} to {high:.3f})", low >= bound, high < bound)


def _measured(name: str, metric: str, bound: float, one: verdicts.Judgement | None) -> Kept:
    at_most = name.endswith("at_most")
    scale, unit = (1e3, " ms") if at_most else (1.0, "/s")
    goal = f"{metric} {'at most' if at_most else 'at least'} {bound:g}{unit}"
    if one is None or one.candidate is None or one.candidate_low is None or one.candidate_high is None:
        return Kept(
            name=name,
            goal=goal,
            value="not known",
            verdict=UNDECIDED,
            reason=one.reason if one else f"{metric} was not measured",
        )
    low, high = scale * one.candidate_low, scale * one.candidate_high
    shown = f"{scale * one.candidate:.4g}{unit} ({low:.4g} to {high:.4g})"
    return _by_interval(name, goal, shown, *((high <= bound, low > bound) if at_most else (low >= bound, high < bound)))


def _by_interval(name: str, goal: str, shown: str, kept: bool, missed: bool) -> Kept:
    if kept or missed:
        return Kept(name=name, goal=goal, value=shown, verdict=KEPT if kept else MISSED)
    return Kept(name=name, goal=goal, value=shown, verdict=UNDECIDED, reason="the bound lies inside the interval")


def _of_passport(name: str, what: str, unit: str, bound: float, value: float | None) -> Kept:
    goal = f"{what}: at most {bound:g} {unit}"
    if value is None:
        return Kept(
            name=name,
            goal=goal,
            value="not known",
            verdict=UNDECIDED,
            reason="the candidate's metadata do not say; `tftrt build` writes it",
        )
    return Kept(name=name, goal=goal, value=f"{value:.4g} {unit}", verdict=KEPT if value <= bound else MISSED)


def _no_fallback(engines: engine_evidence.Verdict | None) -> Kept:
    goal = "no engine fell back to TensorFlow"
    if engines is None:
        return Kept(name="no_engine_fallback", goal=goal, value="not known", verdict=UNDECIDED, reason="nobody looked")
    shown = f"did they run? {engines.answer}" + (f" ({engines.certainty})" if engines.certainty else "")
    if engines.answer == "yes":
        return Kept(name="no_engine_fallback", goal=goal, value=shown, verdict=KEPT)
    if engines.answer in ("no", "partly"):
        return Kept(name="no_engine_fallback", goal=goal, value=shown, verdict=MISSED, reason=engines.reason)
    return Kept(name="no_engine_fallback", goal=goal, value=shown, verdict=UNDECIDED, reason=engines.reason)
