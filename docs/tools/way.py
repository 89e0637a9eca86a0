"""Draws docs/way.svg: the way of a model through the commands, from an export to numbers. It is light or dark, as the reader's system is.

Run from the repository's root: python -m docs.tools.way
"""

from __future__ import annotations

import dataclasses
import pathlib
from xml.sax import saxutils

PICTURE = pathlib.Path(__file__).resolve().parents[1] / "way.svg"


@dataclasses.dataclass(frozen=True)
class Step:
    """command: of tftrt, "" for what the user brings. lines: what it is for."""

    title: str
    lines: tuple[str, ...]
    command: bool = True


STEPS = (
    Step("your model", ("SavedModel, Keras,", "ONNX, PyTorch"), command=False),
    Step("inspect", ("what runs in", "TensorRT, and why", "the rest does not")),
    Step("convert", ("engines of TF-TRT,", "or a plan of", "TensorRT")),
    Step("verify", ("is it right, and did", "the engines run?")),
    Step("publish", ("for TensorFlow", "Serving or Triton")),
    Step("serve", ("the server, checked", "by smoke")),
    Step("bench, regress", ("faster, by how much,", "how sure?")),
)
_WIDTH, _HEIGHT, _GAP, _EDGE = 132, 92, 24, 16
_WHOLE = "optimize goes this way by itself, from a goal"
_STYLE = """
  svg { font-family: -apple-system, "Segoe UI", "DejaVu Sans", Helvetica, Arial, sans-serif }
  .page { fill: #ffffff } .box { fill: #e6f4f1; stroke: #00796b } .given { fill: #f3f4f6; stroke: #6b7280 }
  .title { fill: #134e4a; font-size: 14px; font-weight: 600 } .line { fill: #374151; font-size: 11.5px }
  .arrow { stroke: #6b7280; fill: none; stroke-width: 1.6 } .head { fill: #6b7280 } .whole { fill: #00796b; font-size: 12px }
  .brace { stroke: #00796b; fill: none; stroke-width: 1.2 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #161b22 } .box { fill: #12312e; stroke: #4db6ac } .given { fill: #21262d; stroke: #8b949e }
    .title { fill: #b2dfdb } .line { fill: #c9d1d9 } .arrow { stroke: #8b949e } .head { fill: #8b949e } .whole { fill: #4db6ac }
    .brace { stroke: #4db6ac }
  }
"""


def text() -> str:
    """The picture as SVG."""
    width = 2 * _EDGE + len(STEPS) * _WIDTH + (len(STEPS) - 1) * _GAP
    height = 2 * _EDGE + _HEIGHT + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{' → '.join(step.title for step in STEPS)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
    ]
    for number, step in enumerate(STEPS):
        left = _EDGE + number * (_WIDTH + _GAP)
        parts += _box(step, left)
        if number:
            parts += _arrow(left - _GAP, left)
    first, last, below = _EDGE + _WIDTH + _GAP, width - _EDGE, _EDGE + _HEIGHT
    parts.append(f'<path class="brace" d="M{first} {below + 8} v6 h{last - first} v-6"/>')
    parts.append(_words("whole", (first + last) / 2, below + 30, _WHOLE))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _box(step: Step, left: int) -> list[str]:
    kind, middle = "box" if step.command else "given", left + _WIDTH / 2
    found = [
        f'<rect class="{kind}" x="{left}" y="{_EDGE}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>',
        _words("title", middle, _EDGE + 24, step.title),
    ]
    return found + [_words("line", middle, _EDGE + 44 + 15 * at, line) for at, line in enumerate(step.lines)]


def _arrow(start: int, end: int) -> list[str]:
    y = _EDGE + _HEIGHT / 2
    return [
        f'<path class="arrow" d="M{start + 3} {y} H{end - 7}"/>',
        f'<path class="head" d="M{end - 2} {y} l-7 -4 v8 z"/>',
    ]


def _words(kind: str, x: float, y: float, words: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="middle">{saxutils.escape(words)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(text())
