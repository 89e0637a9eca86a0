"""The pages as a site: every link and anchor leads somewhere, and the page of flags is what the commands say."""

import os
import re
import subprocess
import sys

from docs.tools import flags, site, way
from tests.conftest import ROOT
from tests.pages import DEVELOPERS, PAGES
from tftrt_tools.base.version import __version__
from tftrt_tools.command_line import cli


def test_the_site_is_built_with_no_link_that_leads_nowhere(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [site.OUTSIDE.get(page, page.removeprefix("docs/")) for page in (*PAGES, *DEVELOPERS)]
    assert [page for page in pages if not (tmp_path / page).with_suffix(".html").is_file()] == []
    start = (tmp_path / "index.html").read_text()
    assert 'href="inspect.html"' in start and 'href="moving.html#which-one"' in start, "links of README.md into docs/"
    assert f"tftrt-tools {__version__}" in start
    loaded = re.findall(r'<(?:script|link)[^>]* (?:src|href)="([^"]+)"', start)
    assert "tools/iframe-worker.js" in loaded and not [one for one in loaded if "//" in one], "nothing from elsewhere"
    assert (tmp_path / "search/search_index.js").is_file() and (tmp_path / "tools/iframe-worker.js").is_file()
    assert 'href="../index.html"' in (tmp_path / "dev/index.html").read_text()


def test_links_are_turned_to_where_a_page_is_in_the_site():
    def turned(text, here, there):
        return site._LINK.sub(lambda link: site.rewritten(link, here, there), text)

    assert turned("[a](docs/models.md#sample-models)", "README.md", "index.md") == "[a](models.md#sample-models)"
    assert turned("[a](../README.md)", "docs/convert.md", "convert.md") == "[a](index.md)"
    assert (
        turned("[a](../../../BUILD_NOTES.md)", "docs/dev/measured/int8.md", "dev/measured/int8.md")
        == "[a](../index.md)"
    )
    assert turned("see [the file](../serving/Dockerfile).", "docs/serving.md", "serving.md") == "see the file."
    assert turned("[a](docs/gone.md)", "README.md", "index.md") == "[a](docs/gone.md)", (
        "mkdocs has to see it, to name it"
    )
    assert turned("[a](https://x.org/y) [b](#c)", "README.md", "index.md") == "[a](https://x.org/y) [b](#c)"


def test_the_page_of_flags_is_what_the_commands_say():
    assert flags.PAGE.read_text() == flags.text(), "docs/flags.md is stale: run `python -m docs.tools.flags`"


def test_pages_stay_short():
    sizes = {page: (ROOT / page).stat().st_size for page in (*PAGES, *DEVELOPERS)}
    assert sizes["README.md"] <= 10_000 and sizes["BUILD_NOTES.md"] <= 15_000


def test_no_list_hangs_on_a_paragraph():
    """The repository shows it as a list, the site as a part of the paragraph."""
    for page in (*PAGES, *DEVELOPERS):
        text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"^(?![-*\d|#> ]|$).*\n(?:- |1\. ).*$", text, re.MULTILINE) == [], page


def test_the_picture_of_the_way_is_what_its_script_draws():
    assert way.PICTURE.read_text() == way.text(), "docs/way.svg is stale: run `python -m docs.tools.way`"
    commands = {word for step in way.STEPS if step.command for word in step.title.split(", ")}
    assert commands <= set(cli.COMMANDS)
