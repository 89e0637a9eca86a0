"""A result as JUnit XML, the form that CI systems read: a test case for each check. What failed is a <failure>; what nobody can tell, and a
run that ended early, is an <error>, so that neither counts as passed."""

import re
from xml.etree import ElementTree

from tftrt_tools.regression import result

# Characters that XML 1.0 cannot carry.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text(done):
    """The document of a result.Regression, as text."""
    checks = list(done.checks)
    if done.ended:
        checks.append(result.Check("complete", "the run came to its end", done.ended, result.ENDED, "there is no verdict"))
    failures = sum(one.verdict == result.FAIL for one in checks)
    unsure = sum(one.verdict in (result.UNSURE, result.ENDED) for one in checks)
    counts = {"tests": str(len(checks)), "failures": str(failures), "errors": str(unsure), "time": f"{done.seconds:.3f}"}
    root = ElementTree.Element("testsuites", {"name": "tftrt regress", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(f"tftrt regress {done.candidate.title}"), **counts, "skipped": "0",
                                                       "timestamp": done.stamp["created"]})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("native", done.native.title), ("candidate", done.candidate.title), ("machine", done.fingerprint.text()),
                        ("outcome", done.outcome), ("tool", done.stamp["tool"])):
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for one in checks:
        _case(suite, one)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite, one):
    case = ElementTree.SubElement(suite, "testcase", {"classname": "tftrt.regress", "name": _clean(one.name), "time": "0"})
    message = _clean(f"{one.what}: {one.found}")
    if one.verdict == result.PASS:
        ElementTree.SubElement(case, "system-out").text = message
        return
    tag = "failure" if one.verdict == result.FAIL else "error"
    ElementTree.SubElement(case, tag, {"message": message, "type": one.verdict}).text = _clean(one.reason or message)


def _clean(value):
    return _FORBIDDEN.sub("�", str(value))
