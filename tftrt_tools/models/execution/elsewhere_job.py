"""Asked of the interpreter of another environment, before a model runs there."""

from __future__ import annotations

import importlib
import platform
from typing import Any

# What this package imports on the way to a runtime, some of it late.
_NEEDED = ("numpy", "ml_dtypes", "cattrs")


def seen(request: dict[str, str]) -> dict[str, Any]:
    """Import what runs a model. Args: request: {"package": of the runtime, "jobs": execution.run.Runtime.jobs}.

    Returns: {"python": its version, "version": of the package, "missing": [module that does not load], "why": the first does not}.
    """
    missing: dict[str, str] = {}
    for name in (*_NEEDED, request["package"], request["jobs"]):
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.setdefault((error.name or name).partition(".")[0], str(error))
    version = "" if missing else str(getattr(importlib.import_module(request["package"]), "__version__", "?"))
    return {
        "python": platform.python_version(),
        "version": version,
        "missing": list(missing),
        "why": next(iter(missing.values()), ""),
    }
