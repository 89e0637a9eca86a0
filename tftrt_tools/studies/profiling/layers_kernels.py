"""Which of the GPU's kernels belong to which layer of an engine.

TensorRT opens an NVTX range around each layer's launches; where the trace has them, a kernel belongs to the innermost range in which it was
launched. Without ranges the two sequences are aligned: layers and kernels run in the same order, so each layer has a run of neighbouring
kernels (maybe none), and the runs are chosen whose times fit the layers' best. That is a guess, and is called so.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tftrt_tools.base import records
from tftrt_tools.tftrt.conversion import layer_table

How = Literal["ranges", "aligned"]
# More kernels than this are not given to one layer by alignment; a fused graph has more, but then it is the only large layer.
_LONGEST_RUN = 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernel(records.Record):
    """A kernel or copy of one call."""

    name: str
    # Since the first kernel of the call began, and how long it runs; seconds.
    start: float
    seconds: float
    stream: int
    # Blocks, and threads of a block.
    blocks: int = 0
    threads: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call(records.Record):
    """The kernels of one call, in the order in which they began, each with its layer ("" where none is known)."""

    kernels: tuple[Kernel, ...]
    layers: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds from the first kernel's beginning to the last one's end."""
        return max((kernel.start + kernel.seconds for kernel in self.kernels), default=0.0)

    @property
    def busy(self) -> float:
        """The time in which at least one kernel ran."""
        total, end = 0.0, 0.0
        for kernel in self.kernels:
            total += max(0.0, kernel.start + kernel.seconds - max(end, kernel.start))
            end = max(end, kernel.start + kernel.seconds)
        return total


def calls(trace: Mapping[str, Any], count: int) -> tuple[Call, ...]:
    """The calls of a trace of `plan_cupti`, each with as many kernels.

    Args: count: how many calls were traced. Returns: () where the kernels cannot be told apart by call.
    """
    names = trace["names"]
    listed = sorted(
        [
            (start, end, stream, correlation, names[name], *_sizes(grid, block))
            for name, start, end, stream, correlation, grid, block, *_ in trace["kernels"]
        ]
        + [
            (start, end, stream, correlation, kind, 0, 0)
            for kind, start, end, stream, correlation, _ in trace["copies"]
        ]
    )
    if not listed or len(listed) % count:
        return ()
    ranges = _Ranges(trace)
    each = len(listed) // count
    split = []
    for first in range(0, len(listed), each):
        own = listed[first : first + each]
        zero = own[0][0]
        kernels = tuple(
            Kernel(
                name=name,
                start=(start - zero) * 1e-9,
                seconds=(end - start) * 1e-9,
                stream=stream,
                blocks=blocks,
                threads=threads,
            )
            for start, end, stream, _, name, blocks, threads in own
        )
        split.append(Call(kernels=kernels, layers=tuple(ranges.layer(correlation) for _, _, _, correlation, *_ in own)))
    return tuple(split)


def _sizes(grid: Sequence[int], block: Sequence[int]) -> tuple[int, int]:
    return grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2]


class _Ranges:
    """Finds the innermost range in which a launch lies."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        names = trace["names"]
        self._launched: dict[int, tuple[int, int]] = {}
        for correlation, start, _, thread in trace["launches"]:
            self._launched[correlation] = min(self._launched.get(correlation, (start, thread)), (start, thread))
        by_thread: dict[int, list[tuple[int, int, str]]] = collections.defaultdict(list)
        for name, start, end, thread, domain in trace["ranges"]:
            if names[domain] == "TensorRT":
                by_thread[thread].append((start, end, names[name]))
        self._by_thread = {thread: sorted(listed) for thread, listed in by_thread.items()}

    def layer(self, correlation: int) -> str:
        if correlation not in self._launched:
            return ""
        moment, thread = self._launched[correlation]
        listed = self._by_thread.get(thread, [])
        at = bisect.bisect_right(listed, (moment, float("inf"), ""))
        inside = [(start, name) for start, end, name in listed[max(0, at - 64) : at] if start <= moment <= end]
        return layer_table.without_profile(max(inside)[1])[0] if inside else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfLayer(records.Record):
    """The kernels of a layer, medians over the calls."""

    names: tuple[str, ...]
    seconds: float


def by_layer(
    found: Sequence[Call], layers: Sequence[tuple[str, float]]
) -> tuple[How | None, dict[str, OfLayer], float]:
    """(How it was told, {layer: its kernels}, seconds of kernels that have no layer).

    Args: found: the calls. layers: (name, seconds) by IProfiler, in order.
    """
    layer_names = {name for name, _ in layers}
    if not found:
        return None, {}, 0.0
    if any(name in layer_names for name in found[0].layers):
        return "ranges", *_summed(found, [call.layers for call in found], layer_names)
    chosen = _aligned(
        layers,
        [statistics.median(call.kernels[place].seconds for call in found) for place in range(len(found[0].kernels))],
    )
    return "aligned", *_summed(found, [chosen] * len(found), layer_names)


def _summed(
    found: Sequence[Call], layers: Sequence[Sequence[str]], layer_names: set[str]
) -> tuple[dict[str, OfLayer], float]:
    totals: dict[str, list[float]] = collections.defaultdict(lambda: [0.0] * len(found))
    names: dict[str, list[str]] = collections.defaultdict(list)
    others = 0.0
    for number, (call, chosen) in enumerate(zip(found, layers, strict=True)):
        for kernel, layer in zip(call.kernels, chosen, strict=True):
            if layer in layer_names:
                totals[layer][number] += kernel.seconds
                if number == 0:
                    names[layer].append(kernel.name)
            else:
                others += kernel.seconds / len(found)
    return {
        layer: OfLayer(names=tuple(names[layer]), seconds=statistics.median(seconds))
        for layer, seconds in totals.items()
    }, others


def _aligned(layers: Sequence[tuple[str, float]], kernels: Sequence[float]) -> list[str]:
    """The layer of each kernel: the split into runs with the least sum of squared differences of time.

    IProfiler's time of a layer that launches anything holds, besides its kernels, the gap of one event; a layer without kernels has 0.
    """
    running = sum(seconds > 0 for _, seconds in layers)
    gap = max(0.0, (sum(seconds for _, seconds in layers) - sum(kernels)) / running) if running else 0.0
    sums = [0.0]
    for seconds in kernels:
        sums.append(sums[-1] + seconds)
    best, came = [0.0] + [float("inf")] * len(kernels), []
    for _, seconds in layers:
        row, origin = [cost + seconds**2 for cost in best], list(range(len(kernels) + 1))
        if seconds > 0:
            for end in range(1, len(kernels) + 1):
                for start in range(max(0, end - _LONGEST_RUN), end):
                    cost = best[start] + (seconds - gap - (sums[end] - sums[start])) ** 2
                    if cost < row[end]:
                        row[end], origin[end] = cost, start
        best = row
        came.append(origin)
    chosen, end = [""] * len(kernels), len(kernels)
    for place in range(len(layers) - 1, -1, -1):
        start = came[place][end]
        chosen[start:end] = [layers[place][0]] * (end - start)
        end = start
    return chosen
