"""The names in releases of TensorRT's Python package, as recorded.

tests/data/tensorrt_names.json has those of the classes that the package uses, by the releases that have them: told by dir() of the installed
wheel of 8.5.3.1, and of the modules in tensorrt-bindings 8.6.1 and tensorrt-cu12-bindings 10.8.0.43, imported over libraries of empty
functions. A class that is used for the first time has to be recorded there.
"""

import json

from tests.conftest import ROOT

RELEASES = ("8.5.3.1", "8.6.1", "10.8.0.43")
# {class, "" for the package: {releases that have the names: the names}}.
RECORDED = json.loads((ROOT / "tests/data/tensorrt_names.json").read_text())


def of(release, kind=""):
    """The names that a release has in a class."""
    return {name for held, names in RECORDED[kind].items() if release in held.split() for name in names.split()}


def everywhere(kind=""):
    """The names that a class has in every release."""
    return set.intersection(*(of(release, kind) for release in RELEASES))
