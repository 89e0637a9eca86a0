"""TF-TRT conversion, verification, serving and benchmarking from the command line, and from Python:

    import tftrt_tools as tftrt

    tftrt.convert("resnet", "resnet_fp16", precision="FP16")
    tftrt.verify("resnet", "resnet_fp16", data="images.npz")
    with tftrt.load("resnet_fp16") as model:
        answers = model(image=batch)

Nothing is loaded before it is asked for; TensorFlow never in this process.
"""

import importlib
import typing

from tftrt_tools.base.version import __version__ as __version__

if typing.TYPE_CHECKING:
    from tftrt_tools.api import CallFailed as CallFailed
    from tftrt_tools.api import CheckFailed as CheckFailed
    from tftrt_tools.api import Interrupted as Interrupted
    from tftrt_tools.api import Model as Model
    from tftrt_tools.api import NeedsExtra as NeedsExtra
    from tftrt_tools.api import TftrtError as TftrtError
    from tftrt_tools.api import Unsure as Unsure
    from tftrt_tools.api import UsageError as UsageError
    from tftrt_tools.api import bench as bench
    from tftrt_tools.api import build as build
    from tftrt_tools.api import calibrate as calibrate
    from tftrt_tools.api import convert as convert
    from tftrt_tools.api import export as export
    from tftrt_tools.api import inspect as inspect
    from tftrt_tools.api import load as load
    from tftrt_tools.api import optimize as optimize
    from tftrt_tools.api import publish as publish
    from tftrt_tools.api import regress as regress
    from tftrt_tools.api import tune as tune
    from tftrt_tools.api import verify as verify

# What tftrt_tools.api has.
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


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module("tftrt_tools.api"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
