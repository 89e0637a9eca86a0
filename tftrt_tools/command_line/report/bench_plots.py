"""The plots of `tftrt bench`. Colours and manners are those of `plots`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tftrt_tools.command_line.report import plots

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from tftrt_tools.studies.bench.measurements import Row

ORANGE, SKY, PURPLE, YELLOW = "#E69F00", "#56B4E9", "#CC79A7", "#F0E442"
_LINES = (plots.BLUE, plots.RED, plots.GREEN, PURPLE, ORANGE, SKY, plots.GREY, "black")
_STYLES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1, 1, 1)))
_TICKS = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
_MOST_LINES = 12
# (target, scenario, batch size) of rows that one line joins.
_Key = tuple[str, str, "int | None"]
_MARKS = {"server": "o", "in process": "D"}


def cdf(rows: Sequence[Row], goal_ms: Iterable[tuple[float, float]] = ()) -> str:
    """Share of the requests that were answered within a time; the axis is the logarithm of the rest (1 - share), so that p99.9 can be
    read. A line ends where there are too few requests.

    Args: rows: measurements.Rows. goal_ms: [(percentile, milliseconds)] of the goal. Returns: SVG text, "" without answers.
    """
    shown = [row for row in rows if len(row.response.cdf) > 1][:_MOST_LINES]
    if not shown:
        return ""
    figure = plots.new_figure(10.5, 4.4)
    axes = figure.subplots()
    lowest = 1e-1
    for number, row in enumerate(shown):
        pairs = [(share, ms) for share, ms in row.response.cdf if share < 1]
        left = [1 - share for share, _ in pairs]
        lowest = min([lowest, *left])
        axes.plot(
            [ms for _, ms in pairs],
            left,
            label=_label(row, rows),
            color=_LINES[number % len(_LINES)],
            linestyle=_STYLES[number // len(_LINES)],
            linewidth=1.6,
        )
    for percentile, limit in goal_ms:
        axes.plot(
            [limit],
            [1 - percentile / 100],
            marker="v",
            color="black",
            markersize=7,
            linestyle="none",
            zorder=4,
            clip_on=False,
        )
        axes.annotate(
            f"goal p{percentile:g}",
            (limit, 1 - percentile / 100),
            xytext=(6, 4),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1.0, 10 ** math.floor(math.log10(lowest)))
    ticks = [1.0] + [1 - share for share in _TICKS if 1 - share >= axes.get_ylim()[1] * 0.99]
    axes.set_yticks(ticks, ["0"] + [f"{100 * (1 - left):.6g} %" for left in ticks[1:]])
    axes.yaxis.set_minor_locator(_nothing())
    _plain_ticks(axes.xaxis)
    axes.grid(True, color="#e5e5e5", linewidth=0.8)
    axes.set_xlabel("response time, ms (logarithmic)")
    axes.set_ylabel("share of requests answered within")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    plots.bare(axes)
    return plots.svg(figure)


def throughput_latency(rows: Sequence[Row], goal_ms: Iterable[tuple[float, float]] = ()) -> str:
    """Answers a second against response times: p50 and p99 of each point, joined along a sweep. Needs two points or more.

    Args: rows: measurements.Rows. goal_ms: [(percentile, milliseconds)]. Returns: SVG text or "".
    """
    families: dict[_Key, list[Row]] = {}
    for row in rows:
        key = (row.target, row.point.scenario, row.point.batch_size)
        families.setdefault(key, []).append(row)
    if sum(len(family) for family in families.values()) < 2:
        return ""
    figure = plots.new_figure(10.5, 4.4)
    axes, drawn = figure.subplots(), False
    for number, (key, family) in enumerate(families.items()):
        color = _LINES[number % len(_LINES)]
        for name, style, filled in (("p50", "-", True), ("p99", (0, (4, 2)), False)):
            # In the order of the sweep, so that the line turns back if a server answers less under too much load.
            points = [
                (row.throughput, value, row)
                for row in sorted(family, key=_load)
                if (value := row.response.percentiles.get(name)) is not None and row.throughput
            ]
            if not points:
                continue
            drawn = True
            axes.plot(
                [x for x, *_ in points],
                [y for _, y, _ in points],
                color=color,
                linestyle=style,
                linewidth=1.4,
                marker=_MARKS[key[0]],
                markersize=5,
                markerfacecolor=color if filled else "white",
                label=f"{_family(key, families)} {name}",
            )
            if name == "p50":
                _annotate(axes, points)
    if not drawn:
        return ""
    for percentile, limit in goal_ms:
        axes.axhline(limit, color="black", linewidth=1, linestyle=(0, (5, 3)))
        axes.annotate(
            f"goal p{percentile:g}",
            (0, limit),
            xycoords=axes.get_yaxis_transform(),
            xytext=(4, 3),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_yscale("log")
    _plain_ticks(axes.yaxis)
    axes.margins(y=0.1)  # the numbers at the lowest marks stand above the axis
    axes.set_xlim(left=0)
    axes.grid(True, color="#e5e5e5", linewidth=0.8)
    axes.set_xlabel("answers a second")
    axes.set_ylabel("response time, ms (logarithmic)")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    plots.bare(axes)
    return plots.svg(figure)


def over_time(row: Row) -> str:
    """One row's answers a second and response times over time. Returns: SVG text, "" where there is less than three intervals."""
    series = row.series
    if len(series.answered) < 3:
        return ""
    figure = plots.new_figure(10.5, 2.3)
    rate, times = figure.subplots(1, 2)
    at = [(index + 0.5) * series.seconds for index in range(len(series.answered))]
    rate.plot(at, series.answered, color=plots.BLUE, linewidth=1.4, label="answered")
    if any(series.failed):
        rate.plot(at, series.failed, color=plots.RED, linewidth=1.4, label="failed")
        _legend_above(rate)
    rate.set_ylim(bottom=0)
    rate.set_ylabel("a second")
    times.plot(
        at,
        [math.nan if one is None else one for one in series.max_ms],
        color=plots.GREY,
        linewidth=1.2,
        label="highest",
    )
    times.plot(
        at, [math.nan if one is None else one for one in series.p50_ms], color=plots.BLUE, linewidth=1.4, label="median"
    )
    times.set_yscale("log")
    _plain_ticks(times.yaxis)
    times.set_ylabel("response time, ms")
    _legend_above(times)
    for axes in (rate, times):
        axes.set_xlabel("seconds")
        axes.set_xlim(0, series.seconds * len(series.answered))
        axes.grid(True, color="#e5e5e5", linewidth=0.8)
        plots.bare(axes)
    return plots.svg(figure)


def _legend_above(axes: Axes) -> None:
    """A legend that no line crosses."""
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0, ncol=2)


def _load(row: Row) -> float:
    return row.point.rate or row.point.concurrency or 0


def _label(row: Row, rows: Iterable[Row]) -> str:
    text = row.point.text()
    return f"{row.target}: {text}" if len({one.target for one in rows}) > 1 else text


def _family(key: _Key, families: Collection[_Key]) -> str:
    target, scenario, batch = key
    parts = [target] if len({one[0] for one in families}) > 1 else []
    parts.append(scenario)
    return ", ".join(parts + ([f"batch {batch}"] if batch is not None else []))


def _annotate(axes: Axes, points: Iterable[tuple[float, float, Row]]) -> None:
    for x, y, row in points:
        text = f"{row.point.rate:g}/s" if row.point.rate is not None else str(row.point.concurrency or "")
        axes.annotate(
            text, (x, y), xytext=(0, -11), textcoords="offset points", ha="center", fontsize=7, color="#555555"
        )


def _plain_ticks(axis: Axis) -> None:
    """1, 2, 5, 10 instead of powers."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def _nothing() -> Any:
    from matplotlib import ticker

    return ticker.NullLocator()
