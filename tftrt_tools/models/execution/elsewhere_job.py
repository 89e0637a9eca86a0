"""Asks the interpreter of another environment what it has, before a model runs there."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Mapping

# What this package imports on the way to a runtime, some of it late.
_NEEDED = ("numpy", "ml_dtypes", "cattrs")


def seen(request: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The answer of elsewhere.seen."""
    missing: dict[str, str] = {}
    for name in (*_NEEDED, request["package"], request["jobs"]):
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.setdefault((error.name or name).partition(".")[0], str(error))
    versions = {"python": platform.python_version()}
    if not missing:
        versions["version"] = str(getattr(importlib.import_module(request["package"]), "__version__", "?"))
    return {"missing": missing, "found": versions}
