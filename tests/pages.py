"""The pages of the project as examples: their fenced blocks, and whether an output holds what a block quotes of it."""

import dataclasses
import fnmatch
import re
import shlex

from tests.conftest import ROOT

# Whole ways, each with models and files of its own: tests/project/test_walks.py runs them.
WALKS = ("docs/walk_photos.md", "docs/walk_text.md", "docs/walk_server.md")
# In the order in which someone reads them: an example may use what an earlier one made.
DOCS = WALKS + tuple(
    f"docs/{name}.md"
    for name in (
        "models",
        "optimize",
        "inspect",
        "convert",
        "rewrites",
        "engines",
        "fleet",
        "data",
        "int8",
        "accuracy",
        "judging",
        "export",
        "export_rewrites",
        "export_onnx",
        "plans",
        "leaving",
        "moving",
        "sensitivity",
        "tune",
        "profile",
        "diagnose",
        "pictures",
        "serving",
        "running",
        "bench",
        "regress",
        "new_version",
        "python",
        "client",
        "triton",
        "log",
        "troubleshooting",
        "glossary",
    )
)
PAGES = ("README.md", *DOCS, "serving/README.md")
# They have no examples.
DEVELOPERS = (
    "BUILD_NOTES.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/dev").rglob("*.md")),
)
# First lines of blocks whose commands are checked and not run.
ONLY_READ = (
    "needs a GPU",
    "needs PyTorch",
    "needs Transformers",
    "needs a running server",
    "stays until Ctrl-C",
    "takes a while",
    "after some runs",
    "needs a folder of pictures",
    "needs an ONNX file",
    "needs such a model",
)
TEXTS = {page: (ROOT / page).read_text() for page in PAGES + DEVELOPERS}


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block. follows: the block that it stands directly behind, or None."""

    page: str
    language: str
    text: str
    follows: object

    def commands(self):
        """[(argv, exit code, line)]; a line that ends in a backslash goes on in the next."""
        lines = self.text.replace("\\\n", " ").splitlines()
        lines = [line for line in lines if line.strip() and not line.startswith("#")]
        code = re.compile(r"# exits with (\d)$")
        return [
            (shlex.split(line, comments=True), int(found[1]) if (found := code.search(line)) else 0, line)
            for line in lines
        ]

    @property
    def only_read(self):
        return self.text.startswith(tuple(f"# {mark}\n" for mark in ONLY_READ))


def blocks(page):
    found, end = [], None
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", TEXTS[page], re.MULTILINE | re.DOTALL):
        before = found[-1] if end is not None and not TEXTS[page][end : match.start()].strip() else None
        found.append(Block(page, match[1], match[2], before))
        end = match.end()
    return found


def unprinted(block, output):
    """The lines of a ```text block that are nowhere in `output`."""
    said = [words(line) for line in output.splitlines()]
    return [line for line in block.text.splitlines() if not any(in_order(words(line), other) for other in said)]


def quoted(command):
    """The one ```text block that stands behind a command beginning with `command`."""
    (found,) = (
        block
        for page in PAGES
        for block in blocks(page)
        if block.language == "text"
        and block.follows
        and any(line.startswith(command) for _, _, line in block.follows.commands())
    )
    return found


def words(line):
    """The words of a line; all numbers are one, rules of tables and "…" alone are none. A version of this project between two tags, or of a
    checkout that is not installed, is as one of a release."""
    line = re.sub(r"\d[\w.]*\+(g[0-9a-f]+(\.d\d+)?|unknown)", "0.1.0", line)
    line = re.sub(r"_[0-9a-f]{10}_", "_#_", line)
    return [re.sub(r"\d+(\.\d+)?(e[-+]\d+)?|\binf\b", "#", word) for word in line.split() if word.strip("─…")]


def in_order(wanted, there):
    """Whether `wanted` is `there` with some words left out."""
    rest = iter(there)
    return all(
        any(fnmatch.fnmatchcase(word, re.sub(r"([\[*?])", r"[\1]", one).replace("…", "*")) for word in rest)
        for one in wanted
    )
