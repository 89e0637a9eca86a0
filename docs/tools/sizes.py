"""Writes docs/dev/measured/pages.md: how long each page is.

Run from the repository's root: python -m docs.tools.sizes
"""

from __future__ import annotations

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/dev/measured/pages.md"
_HEAD = """# The pages

How long each page is. `python -m docs.tools.sizes` writes this page. Until 2026-11-23 there were two pages, README.md with 106,373 bytes
and BUILD_NOTES.md with 106,560; the commands now write `docs/flags.md`.

| page | bytes |
|---|---|"""


def text() -> str:
    """The page; it has no line for itself."""
    pages = [
        ROOT / "README.md",
        ROOT / "BUILD_NOTES.md",
        ROOT / "serving/README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    rows = [f"| {path.relative_to(ROOT)} | {path.stat().st_size:,} |" for path in pages if path != PAGE]
    return "\n".join([_HEAD, *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
