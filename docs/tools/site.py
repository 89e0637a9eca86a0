"""A hook of mkdocs: pages that lie outside docs/ join the site, and links between all of them lead to where they are there.

A page is written once, with links that work in the repository. A link to a file that the site does not have becomes its text.
"""

from __future__ import annotations

import os
import pathlib
import posixpath
import re
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from tftrt_tools.base.version import __version__

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Path in the repository: path in the site.
OUTSIDE = {
    "README.md": "index.md",
    "BUILD_NOTES.md": "dev/index.md",
    "CONTRIBUTING.md": "dev/contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "serving/README.md": "images.md",
    "tftrt_tools/servers/serving/local/README.md": "dev/development_server.md",
    **{
        str(path.relative_to(ROOT)): f"examples/{path.name}"
        for path in sorted((ROOT / "benchmarks/examples").glob("*.html"))
    },
}
_INSIDE = {there: here for here, there in OUTSIDE.items()}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the version at the foot of each page."""
    config.copyright = f"tftrt-tools {__version__}"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of OUTSIDE."""
    for here, there in OUTSIDE.items():
        files.append(File.generated(config, there, content=(ROOT / here).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page from paths of the repository to paths of the site."""
    here = _INSIDE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return _LINK.sub(lambda link: rewritten(link, here, page.file.src_uri), markdown)


def rewritten(link: re.Match[str], here: str, there: str) -> str:
    """The link of a page that is `here` in the repository and `there` in the site.

    A target that does not exist is left as it is: mkdocs then names it and ends.
    """
    target, mark, anchor = link[3].partition("#")
    if not target or "://" in target:
        return link[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    if not os.path.exists(ROOT / path):
        return link[0]
    if path not in OUTSIDE and not path.startswith("docs/"):
        return link[2]
    place = posixpath.relpath(OUTSIDE.get(path, path.removeprefix("docs/")), posixpath.dirname(there) or ".")
    return f"{link[1]}[{link[2]}]({place}{mark}{anchor})"
