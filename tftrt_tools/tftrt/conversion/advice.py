"""Advice on --minimum_segment_size and the batch mode, from what each would give. Pure functions; no TensorFlow here.

TF-TRT has no cost model: every segment that is large enough becomes an engine. Each engine costs copies and a launch at its border,
so an engine of a few ops seldom repays itself. The rules below are this package's own and say only where to look; a benchmark decides.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import terminal
from tftrt_tools.tftrt.conversion.plan import Advice
from tftrt_tools.tftrt.conversion.settings import Settings

if TYPE_CHECKING:
    from tftrt_tools.tftrt.conversion.pass_log import LeftOut
    from tftrt_tools.tftrt.conversion.plan import Outcome, SizeResult

# An engine with fewer computing ops is assumed to lose more by the copies at its border than it gains.
SMALL_ENGINE_OPS = 5
# Fewer engines may cost this share of the ops; the other batch mode is suggested if it covers this much more.
NEARLY = 0.05
# TF-TRT's message about a type of numbers that it does not support.
_TYPE = re.compile(
    r"(?:Unsupported\s+tensorflow data type|Data type) (double|bfloat16|complex64|complex128|u?int(?:8|16|64)|uint32)\b"
)
_NAMES = {"double": "float64"}
_DEFAULT = Settings().minimum_segment_size
# One of these is in each loop.
_LOOPS = ("LoopCond", "While", "StatelessWhile")


def advise(
    sizes: Sequence[SizeResult],
    settings: Settings,
    coverage: float,
    engines: int,
    other: Outcome | None,
    left_out: Sequence[LeftOut],
    open_sizes: Container[str] = (),
) -> Advice:
    """Args: sizes: SizeResults, upwards. settings: those tried. coverage, engines: what they gave. other: of the other batch mode, None
    where that was not tried. left_out: LeftOut nodes. open_sizes: as of Preparation. Returns: Advice."""
    best = recommended(sizes)
    reasons = [
        _about_size(sizes, best, settings.minimum_segment_size) if engines or best.engines else _nothing(left_out)
    ]
    if not engines and (text := missing_type(left_out)):
        reasons.append(f"{text}.")
    better = other if _clearly_better(other, coverage, engines) else None
    if better:
        instead = f" instead of {coverage:.0%} in {engines}" if engines else ""
        reasons.append(
            f"{flag_of_mode(better.dynamic)} would cover {better.coverage:.0%} in {_engines(better.engines)}{instead}."
        )
    if limited := limited_by_number(engines, settings):
        reasons.append(limited)
    reasons += [told for told in (loops(left_out), of_open_sizes(left_out, open_sizes)) if told]
    return Advice(_size_of(best), better.dynamic if better else None, tuple(reasons))


def flag_of_mode(dynamic: bool) -> str:
    """The flag that asks for a batch mode. Args: dynamic: explicit batch mode."""
    return "--use_dynamic_shape (or --shapes, which implies it)" if dynamic else "--nouse_dynamic_shape"


def limited_by_number(engines: int, settings: Settings) -> str:
    """A sentence if a signature has as many engines as allowed, else ""."""
    if not settings.max_engines or engines < settings.max_engines:
        return ""
    return f"--max_engines={settings.max_engines} is reached: the smallest segments beyond it stay in TensorFlow."


def loops(left_out: Iterable[LeftOut]) -> str:
    """A sentence on loops, which TF-TRT never takes, "" where there are none."""
    count = sum(node.op in _LOOPS for node in left_out)
    if not count:
        return ""
    counted = terminal.counted(count, "loop")
    return (
        f"{counted} (an LSTM, a GRU, tf.while_loop) cannot run in TF-TRT's engines; a plan can have them as layers: "
        "`tftrt export` tells without a GPU, `tftrt convert --backend=tensorrt` builds it."
    )


def before_the_wait(signature: str, left_out: Iterable[LeftOut], coverage: float) -> str:
    """A line on loops for who waits for engines that will not hold them, "" where there are none. Args: coverage: of the pass."""
    told = loops(left_out)
    return f"note: {signature}: {coverage:.0%} of its ops go into engines; {told}" if told else ""


def of_open_sizes(left_out: Iterable[LeftOut], open_sizes: Container[str]) -> str:
    """A sentence on nodes that are written otherwise where their sizes are known, "" where there are none."""
    found = [node.op for node in left_out if node.node in open_sizes]
    if not found:
        return ""
    ops = ", ".join(sorted(set(found)))
    counted, whose = terminal.counted(len(found), "node"), "its" if len(found) == 1 else "their"
    return (
        f"{counted} ({ops}) would be in engines if {whose} sizes were known: --fix_sizes gives inputs one size; "
        "for several, convert once for each."
    )


def recommended(sizes: Sequence[SizeResult]) -> SizeResult:
    """The largest size, from TF-TRT's default upwards, that drops only small engines and little coverage."""
    best = base = _holding(sizes, _DEFAULT)
    for row in sizes[sizes.index(base) + 1 :]:
        dropped = base.engines - row.engines
        fewer = 0 < row.engines < best.engines
        if fewer and row.coverage >= base.coverage - NEARLY and base.inside - row.inside < SMALL_ENGINE_OPS * dropped:
            best = row
    return best


def _size_of(row: SizeResult) -> int:
    return max(row.low, _DEFAULT) if row.high is None or row.high >= _DEFAULT else row.low


def _engines(count: int) -> str:
    return terminal.counted(count, "engine")


def _about_size(sizes: Sequence[SizeResult], best: SizeResult, current: int) -> str:
    size, base = _size_of(best), _holding(sizes, _DEFAULT)
    if best is not base and best.inside >= base.inside:
        return f"--minimum_segment_size={size} covers as much as {_DEFAULT} in {best.engines} instead of {_engines(base.engines)}."
    if best is not base:
        return (
            f"--minimum_segment_size={size} keeps {best.coverage:.0%} of the {base.coverage:.0%} that {_DEFAULT} covers, in "
            f"{best.engines} instead of {_engines(base.engines)}: {_dropped(base, best)}."
        )
    row = _holding(sizes, current)
    if not best.engines:
        return (
            f"--minimum_segment_size={current} gives {_engines(row.engines)} of {row.inside / row.engines:.1f} ops on average, which "
            f"seldom pay for their copies; {_DEFAULT}, TF-TRT's default, gives none."
        )
    if row is not best:
        return f"--minimum_segment_size={size} covers {best.coverage:.0%} in {_engines(best.engines)}; {current} covers {row.coverage:.0%}."
    following = sizes[sizes.index(best) + 1] if best is not sizes[-1] else None
    if following and following.engines and f"{best.coverage - following.coverage:.0%}" == "0%":
        return f"--minimum_segment_size={current} is right."
    if following is None or not following.engines:
        upper = f": every size up to {best.high} gives the same" if best.high and best.high > current else ""
        return f"--minimum_segment_size={current} is right{upper}."
    return (
        f"--minimum_segment_size={current} is right: from {following.low} on, {best.coverage - following.coverage:.0%} less would be "
        f"covered, in {_engines(following.engines)} instead of {best.engines}."
    )


def _holding(sizes: Sequence[SizeResult], size: int) -> SizeResult:
    return next((row for row in sizes if row.holds(size)), sizes[-1])


def _dropped(base: SizeResult, best: SizeResult) -> str:
    engines, ops = base.engines - best.engines, base.inside - best.inside
    if engines == 1:
        return f"the one dropped holds {ops} ops, which seldom pay for its copies"
    return f"those dropped hold {ops / engines:.1f} ops on average, which seldom pay for their copies"


def _nothing(left_out: Iterable[LeftOut]) -> str:
    counts = collections.Counter(node.reason for node in left_out)
    top = "; ".join(f"{count}x {reason.rstrip('.')}" for reason, count in counts.most_common(3))
    return "Nothing would run in TensorRT" + (
        f"; the reasons met most: {top}." if top else ": no node computes anything."
    )


def missing_type(left_out: Iterable[LeftOut]) -> str:
    """A sentence on a type of numbers that keeps most of the nodes out, "" if none does."""
    listed = list(left_out)
    types = collections.Counter(match[1] for node in listed if (match := _TYPE.search(node.reason)))
    name, count = next(iter(types.most_common(1)), ("", 0))
    if 2 * count <= len(listed):
        return ""
    return (
        f"TensorRT has no {_NAMES.get(name, name)} here: cast the inputs to float32 in the model (tf.cast), keep its weights in "
        "float32, and export it again"
    )


def _clearly_better(other: Outcome | None, coverage: float, engines: int) -> bool:
    if other is None or not other.engines:
        return False
    much_more = other.coverage >= coverage + NEARLY
    as_much_in_fewer = other.coverage >= coverage and 2 * other.engines <= engines
    return much_more or as_much_in_fewer
