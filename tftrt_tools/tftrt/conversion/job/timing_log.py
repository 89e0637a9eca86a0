"""How far TensorRT is with an engine, from its verbose log.

A build times each layer of the fused network with every kernel and in every format, once for each profile. The lines that tell it
(TensorRT 8.5; the words are in libnvinfer.so.8 of 8.5.3, their order is that of verbose logs of 8.5.2):

    After concat removal: 58 layers                        the last such line before the timing has the layers of the fused network
    Constructing optimization profile number 0 [1/2].
    =============== Computing reformatting costs           for each tensor
    =============== Computing costs for                    for each layer, without its name
    --------------- Timing Runner: conv1 + relu (Cask…)    the name, for each kind of kernel
    Formats and tactics selection completed in 17.4 seconds.

Layers with nothing to time have no such line, so the number of layers is an upper bound, and what is left an estimate.
"""

from __future__ import annotations

import datetime
import re

from tftrt_tools.base.logs import builder_lines

_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+")
# Fewer layers, or less time, say nothing of the others.
_LEAST_LAYERS, _LEAST_SECONDS = 5, 10.0
_LONGEST = 60


class TimingLog:
    """Reads the log of one build after the other, in pieces as it grows."""

    def __init__(self) -> None:
        self._rest = ""
        self._layers: int | None = None
        self._at = 0
        self._begin(0, 1)

    def _begin(self, profile: int, profiles: int) -> None:
        """A profile's timing begins. Args: profile: its number, from 0."""
        if profile == 0:
            # Layers that earlier profiles have timed, and the times of the first and of the last layer's begin, in seconds.
            self._before, self._first, self._last = 0, 0.0, 0.0
        else:
            self._before += self._at
        self._profile, self._profiles, self._at = profile, profiles, 0
        self._phase, self._runner = "", ""

    def feed(self, text: str) -> None:
        """The next piece of the log; a line may be cut anywhere."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._line(line)

    def _line(self, line: str) -> None:
        if match := builder_lines.RUNNER.search(line):
            self._runner = f"{match['layer'][-_LONGEST:]}, {match['kind']}"
        elif builder_lines.COSTS in line:
            self._phase, self._at = "layers", self._at + 1
            self._last = _seconds(line) or self._last
            self._first = self._first or self._last
        elif builder_lines.REFORMATS in line:
            self._phase = "formats"
        elif match := builder_lines.PROFILE.search(line):
            self._begin(int(match["number"]), int(match["of"]))
        elif builder_lines.SELECTED in line:
            self._phase, self._runner = "chosen", ""
        elif (match := builder_lines.LAYERS.search(line)) and match["when"] != builder_lines.REFORMATTED:
            self._layers = int(match["count"])

    def text(self) -> str:
        """Where the build is, for people; "" if the log does not tell."""
        if not self._phase:
            return f"times {self._runner}" if self._runner else ""
        place = f"profile {self._profile + 1} of {self._profiles}, " if self._profiles > 1 else ""
        if self._phase == "chosen":
            return f"{place}all layers timed"
        if self._phase == "formats":
            return f"{place}times changes of format" + (f" ({self._runner})" if self._runner else "")
        of = f" of at most {self._layers}" if self._layers and self._at <= self._layers else ""
        left = self.left
        estimate = (
            f"; about {_duration(left)} left for this engine, if the other layers take as long"
            if left is not None
            else ""
        )
        return f"{place}times layer {self._at}{of}" + (f" ({self._runner})" if self._runner else "") + estimate

    @property
    def left(self) -> float | None:
        """Seconds that the timing of this engine still takes, if the layers that follow take as long as those before; None where nothing
        can be said."""
        done = self._before + self._at - 1
        if self._phase != "layers" or not self._layers or done < _LEAST_LAYERS or self._at > self._layers:
            return None
        spent = self._last - self._first
        return (
            None
            if spent < _LEAST_SECONDS
            else spent / done * (self._layers * (self._profiles - self._profile) - self._at + 1)
        )


def _seconds(line: str) -> float:
    """The time of a line, in seconds; 0 if it has none."""
    match = _STAMP.search(line)
    return datetime.datetime.fromisoformat(match[0]).timestamp() if match else 0.0


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
