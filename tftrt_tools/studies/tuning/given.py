"""What `tftrt tune` takes as a model: what TF-TRT converts, and for plans alone also an ONNX file, or the one that a plan directory holds.
No runtime is imported here."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tftrt_tools.base import errors
from tftrt_tools.base.choices import SERVERS, Server
from tftrt_tools.base.process import child
from tftrt_tools.base.stack import bindings
from tftrt_tools.models.kinds import opening, table
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.onnx.kind import ONNX, PRECISION, rounding
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.sources.source import Source, of
from tftrt_tools.studies import backends as backends_room
from tftrt_tools.tensorrt.exporting import exporters, sensitivity
from tftrt_tools.tensorrt.plans import building

_HALVES = ("float16", "bfloat16")


def check_kind(named: str | os.PathLike[str] | Source, backends: Sequence[str]) -> None:
    """Refuse a model of a kind that these backends do not take; nothing is opened. Raises: UsageError."""
    source = of(named)
    kind = table.kind(source.path)
    if exporters.exports(kind) and not kind.of_tensorflow:
        raise errors.UsageError(
            f"{source} cannot be tuned as it is: it is a {kind.name}",
            "`tftrt export` makes an ONNX file of it, and `tftrt tune FILE --backend=tensorrt` takes that",
        )
    if not kind.onnx(source.path):
        opening.check_converted(source)
    elif backends_room.default().name in backends:
        raise errors.UsageError(
            f"--backend={','.join(backends)} cannot tune {source}: it is {table.noun(source.path)}, and TF-TRT takes TensorFlow models",
            "--backend=tensorrt searches among plans of TensorRT itself",
        )


def model(named: str | os.PathLike[str] | Source, backends: Sequence[str]) -> Source:
    """The model that is tuned, for the path that the user named: of a plan directory its ONNX file. Raises: UsageError, TftrtError."""
    source = of(named)
    check_kind(source, backends)
    kind = table.kind(source.path)
    if kind.alone:
        document.read(source.path)
    return opening.check(source if kind.of_tensorflow else _onnx(source, kind.onnx(source.path)))


def note(named: str | os.PathLike[str] | Source) -> str:
    """What is to be known of a path: that a plan is not read; "" for nothing."""
    source = of(named)
    if not table.kind(source.path).alone:
        return ""
    return f"{source} is a plan: its plan is not read, and what is tuned is {document.ONNX}, from which it was built"


def gpu() -> dict[str, str]:
    """{"gpu", "compute_capability", "driver", "tensorrt"}, asked of the driver and of TensorRT. Raises: TftrtError where no plan can be
    built."""
    if not bindings.installed():
        raise bindings.missing("tune measures speed, and plans cannot be built here")
    try:
        found = building.check.run(None).result
    except child.ChildDied:
        raise
    except errors.TftrtError as error:
        raise errors.TftrtError(
            f"tune measures speed, and plans cannot be built here: {error.cause}",
            "run it on the machine that the model is for; `tftrt doctor` says what is missing",
        ) from None
    return {
        "gpu": found.name,
        "compute_capability": found.compute_capability,
        "driver": found.driver,
        "tensorrt": found.tensorrt,
    }


def runtime(package: str) -> str:
    """What runs the original, for people. Args: package: of its Runtime."""
    return "ONNX Runtime on the CPU" if package == ONNX.runtime.package else "TensorFlow"


def servers(package: str) -> tuple[Server, ...]:
    """What serves the original. Args: package: of its Runtime."""
    return ("triton",) if package == ONNX.runtime.package else SERVERS


def _onnx(source: Source, path: str) -> Source:
    for flag, value in {
        "inputs": source.inputs,
        "outputs": source.outputs,
        "custom_objects": source.custom_objects,
    }.items():
        if value:
            raise errors.UsageError(
                f"--{flag} has no effect: {source} is tuned as an ONNX file, which has no signatures", "leave it out"
            )
    seen = onnx_file.overview(path)
    rounded = rounding(seen.ops)
    halves = [dtype for dtype in seen.weights if dtype in _HALVES]
    exported = seen.facts.get(PRECISION, "")
    if rounded or halves or exported:
        what = f"{rounded[0]} nodes" if rounded else f"{halves[0]} constants" if halves else exported
        raise errors.UsageError(
            f"{path} has a precision written in already ({what}), and tune writes each precision itself",
            f"tune what it was made from{_made_from(source.path)}",
        )
    return Source(path=path)


def _made_from(path: str) -> str:
    """ ": PATH" of the model that an ONNX file or a plan was exported from, "" where that is not known."""
    found = sensitivity.source(path)
    held = (path, os.path.join(path, document.ONNX))
    return "" if os.path.realpath(found) in map(os.path.realpath, held) else f": {found}"
