"""A result as JUnit XML, the form that CI systems read: a test case for each check. A failed check is a <failure>; an undecided check,
and a run that ended early, is an <error>, so that neither counts as passed."""

import re
from xml.etree import ElementTree

from tftrt_tools.studies.regression import comparison

# Characters that XML 1.0 cannot carry.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text(done: comparison.Regression) -> str:
    """The document of a comparison.Regression, as text."""
    checks = list(done.checks)
    if done.ended:
        checks.append(
            comparison.Check(
                name="complete",
                what="the run came to its end",
                found=done.ended,
                verdict=comparison.ENDED,
                reason="there is no verdict",
            )
        )
    failures = sum(one.verdict == comparison.FAIL for one in checks)
    unsure = sum(one.verdict in (comparison.UNSURE, comparison.ENDED) for one in checks)
    counts = {
        "tests": str(len(checks)),
        "failures": str(failures),
        "errors": str(unsure),
        "time": f"{done.seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "tftrt regress", **counts})
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": _clean(f"tftrt regress {done.candidate.title}"),
            **counts,
            "skipped": "0",
            "timestamp": done.stamp["created"],
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (
        ("native", done.native.title),
        ("candidate", done.candidate.title),
        ("machine", done.fingerprint.text()),
        ("outcome", done.outcome),
        ("tool", done.stamp["tool"]),
    ):
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for one in checks:
        _case(suite, one)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, one: comparison.Check) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": "tftrt.regress", "name": _clean(one.name), "time": "0"}
    )
    message = _clean(one.text)
    if one.verdict == comparison.PASS:
        ElementTree.SubElement(case, "system-out").text = message
        return
    tag = "failure" if one.verdict == comparison.FAIL else "error"
    ElementTree.SubElement(case, tag, {"message": message, "type": one.verdict}).text = _clean(one.reason or message)


def _clean(value: str) -> str:
    return _FORBIDDEN.sub("�", value)
