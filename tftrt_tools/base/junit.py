"""JUnit XML, the form of results that CI systems read: a suite of test cases. What did not pass is a <failure>, what is open or could not
be done an <error>, so that neither counts as passed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Literal
from xml.etree import ElementTree

# Characters that XML 1.0 cannot carry.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A test case. message: a line. kind: the "type" of what did not pass. details: lines, by default the message."""

    name: str
    verdict: Literal["pass", "failure", "error"]
    message: str
    kind: str = ""
    details: str = ""
    seconds: float = 0.0


def text(
    command: str, title: str, cases: Sequence[Case], created: str, seconds: float, properties: Mapping[str, str]
) -> str:
    """The document. Args: command: of tftrt, without it. title: of the suite, behind the command. created: the time, as ISO 8601 says it.
    seconds: of the whole run. properties: of the suite."""
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(one.verdict == "failure" for one in cases)),
        "errors": str(sum(one.verdict == "error" for one in cases)),
        "time": f"{seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": f"tftrt {command}", **counts})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": _clean(f"tftrt {command} {title}"), **counts, "skipped": "0", "timestamp": created}
    )
    listed = ElementTree.SubElement(suite, "properties")
    for name, value in properties.items():
        ElementTree.SubElement(listed, "property", {"name": name, "value": _clean(value)})
    for one in cases:
        _case(suite, command, one)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, command: str, one: Case) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": f"tftrt.{command}", "name": _clean(one.name), "time": f"{one.seconds:.3f}"}
    )
    message = _clean(one.message)
    if one.verdict == "pass":
        ElementTree.SubElement(case, "system-out").text = message
        return
    found = ElementTree.SubElement(case, one.verdict, {"message": message, "type": _clean(one.kind)})
    found.text = _clean(one.details or one.message)


def _clean(value: str) -> str:
    return _FORBIDDEN.sub("\ufffd", value)
