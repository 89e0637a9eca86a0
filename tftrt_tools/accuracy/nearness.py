"""How near answers are to those of another model, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tftrt_tools.accuracy import kinds
from tftrt_tools.accuracy.metrics import Comparison


def parts(comparisons: Sequence[Comparison]) -> list[str]:
    """For each measure the worst output: ["SNR 52.1 dB", "top-1 equal in 99.00%"]."""
    # An output that is judged together with others has no figure of its own; ids have no SNR.
    alone = [one for one in comparisons if not one.part_of]
    worst = (
        (_snr, min, [one.snr_db for one in alone if one.kind != kinds.IDS]),
        ("top-1 equal in {:.2%}".format, min, [one.top1 for one in alone if one.classes]),
        ("{:.2%} of the elements differ".format, max, [one.mismatches for one in alone]),
        ("{:.2%} of the detections matched".format, min, [one.value("matched") for one in alone]),
    )
    known = [(form, choose, [value for value in values if value is not None]) for form, choose, values in worst]
    return [form(choose(values)) for form, choose, values in known if values]


def _snr(value: float) -> str:
    return "no float differs" if math.isinf(value) else f"SNR {value:.1f} dB"
