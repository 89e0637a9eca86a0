"""The commands as functions, as programs call them: `import tftrt_tools as tftrt`. docs/python.md explains them."""

from tftrt_tools.api.commands import (
    bench,
    build,
    calibrate,
    convert,
    export,
    inspect,
    optimize,
    publish,
    regress,
    tune,
    verify,
)
from tftrt_tools.api.loaded import Model, load
from tftrt_tools.base.errors import CallFailed, CheckFailed, Interrupted, NeedsExtra, TftrtError, Unsure, UsageError

__all__ = [
    "CallFailed",
    "CheckFailed",
    "Interrupted",
    "Model",
    "NeedsExtra",
    "TftrtError",
    "Unsure",
    "UsageError",
    "bench",
    "build",
    "calibrate",
    "convert",
    "export",
    "inspect",
    "load",
    "optimize",
    "publish",
    "regress",
    "tune",
    "verify",
]
