"""Each warning and error that the development server writes is known to `tftrt log`."""

import ast
import re

import pytest

from tests.conftest import ROOT
from tftrt_tools.base.logs import index

SERVER = ROOT / "tftrt_tools" / "servers" / "serving" / "local"
LEVELS = {"warning": "W", "error": "E", "exception": "E"}
# What stands for a value of a format.
VALUE = {"%d": "3", "%s": "{name: m version: 1}"}


def written():
    """(place, level, the text with a value at each place) of each call of a logger."""
    found = []
    for path in sorted(SERVER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and ast.unparse(node.func.value).lower().endswith(("log", "logging"))
            ):
                text = re.sub("%[ds]", lambda place: VALUE[place[0]], ast.literal_eval(node.args[0]))
                found.append((f"{path.name}:{node.lineno}", LEVELS[node.func.attr], text))
    return found


def test_there_are_such_calls():
    assert len(written()) >= 10


@pytest.mark.parametrize(("place", "level", "text"), written(), ids=[place for place, *_ in written()])
def test_what_the_development_server_warns_of_is_known(place, level, text):
    assert index.find(text, level), text
