"""Whether a conversion can be worth it, in words: the share in TensorRT limits the gain."""

from __future__ import annotations

from tftrt_tools.base import terminal
from tftrt_tools.models.savedmodel import flops
from tftrt_tools.tftrt.conversion import advice
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

# If the share allows less than this many times the speed, a conversion is hardly worth it.
_WORTH = 1.25


def little(signatures: tuple[SignatureResult, ...], coverage: float) -> str:
    """A sentence on a share that is small; "" where it allows twice the speed. Args: coverage: share of the computing ops, 0 to 1.

    With the share p in TensorRT, however fast, a model is at most 1 / (1 - p) times as fast as before (Amdahl's law). The share is that
    of the FLOPs if known, else of the ops; neither gives the share of the time exactly.
    """
    counted = flops.together([one.flops for one in signatures if one.converted or one.native_ops])
    share = counted.share if counted else None
    share, what = (coverage, "ops") if share is None else (share, "FLOPs")
    if share >= 0.5:
        return ""
    most = 1 / (1 - share)
    verdict = ": hardly worth a conversion" if most < _WORTH else ""
    return (
        f"with {share:.0%} of the {what} in TensorRT the model gets {most:.2f} times as fast at most, as far as time goes by {what}"
        f"{verdict}"
    )


def other_mode(one: SignatureResult) -> str:
    """The coverage of the other batch mode; "" if it was not tried."""
    other = one.other_mode
    if other is None:
        return ""
    flag = advice.flag_of_mode(other.dynamic)
    if other.coverage < one.coverage + advice.NEARLY:
        return f"{flag} would not take more ({other.coverage:.0%})"
    engines = terminal.counted(other.engines, "engine")
    return f"{flag} would take {other.coverage:.0%} in {engines} instead of {one.coverage:.0%} in {len(one.engines)}"


def accepted(one: SignatureResult, most: int = 5) -> list[str]:
    """What --allow_quantization_changes accepted in a signature, a sentence each, the first `most`."""
    problems = one.quantization.problems if one.quantization else ()
    said = [f"accepted: {problem.name} ({problem.op}) {problem.text}" for problem in problems[:most]]
    return said + (
        [f"accepted: {len(problems) - most} more; `tftrt inspect` lists all"] if len(problems) > most else []
    )
