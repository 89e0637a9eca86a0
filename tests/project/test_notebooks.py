"""The notebooks run from the first cell to the last, in a folder of their own, and show what their texts say.

With nbclient and ipykernel they run in Jupyter's kernel. Where these are not installed, their cells run one after the other in a Python that
shows the last value of each as a notebook does.
"""

import ast
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
JUPYTER = all(importlib.util.find_spec(name) for name in ("nbclient", "ipykernel"))
# What runs in the kernel before the first cell: the children of the commands are shared and forked, as those of other tests are.
SHARED = """
import contextlib
from tests import command_here
_shared = contextlib.ExitStack()
_shared.enter_context(command_here.shared())
"""
# {notebook: words that its outputs hold, in this order}.
SHOWN = {
    "digits.ipynb": (
        "not converted yet",
        "written: ",
        "serving_default/probabilities",
        "(INT8 simulated; no engine ran)",
        "snr_db is ",
        "<Verification: FAILED",
        "its engines as native segments",
        "digits_int8: no verdict: there is no GPU here",
    )
}
# Runs the cells of stdin, and writes what each shows: [{"text": …, "html": …}].
PROGRAM = """
import ast, contextlib, io, json, sys

names, shown = {"__name__": "__main__"}, []
for source in json.load(sys.stdin):
    tree, said, html = ast.parse(source), io.StringIO(), None
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(said):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(last, "cell", "eval"), names) if last else None
    if value is not None:
        html = value._repr_html_() if hasattr(value, "_repr_html_") else None
        print(str(value) if hasattr(value, "_repr_pretty_") else repr(value), file=said)
    shown.append({"text": said.getvalue(), "html": html})
print(json.dumps(shown))
"""


def cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}


def run_in_jupyter(path, folder):
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(SHARED))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(folder)}}).execute()
    shown = []
    for cell in notebook.cells[1:]:
        if cell.cell_type == "code":
            parts = [one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.outputs]
            pages = [one.get("data", {}).get("text/html") for one in cell.outputs]
            shown.append({"text": "".join(parts), "html": next(filter(None, pages), None)})
    return shown


def run_in_python(path, folder):
    sources = ["".join(cell["source"]) for cell in cells(path)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_shows_what_it_says(path, tmp_path):
    shown = (run_in_jupyter if JUPYTER else run_in_python)(path, tmp_path)
    rest = "\n".join(one["text"] + (one["html"] or "") for one in shown)
    for words in SHOWN[path.name]:
        assert words in rest, f"{words!r} is not shown, or not behind the ones before it"
        rest = rest.partition(words)[2]
    assert any(one["html"] and one["html"].startswith("<iframe") for one in shown)
    assert "\x1b" not in "".join(one["text"] for one in shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_outputs_and_is_python(path):
    assert path.name in SHOWN
    for cell in cells(path):
        assert cell["outputs"] == [] and cell["execution_count"] is None, "clear the outputs before it is committed"
        ast.parse("".join(cell["source"]))


def test_the_notebooks_are_linked_from_the_page():
    page = (ROOT / "docs/python.md").read_text()
    assert NOTEBOOKS and all(f"(notebooks/{path.name})" in page for path in NOTEBOOKS)
