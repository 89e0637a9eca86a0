"""What TensorRT's parser would read otherwise than an ONNX file says: asked before a plan is built of a file as it was given. An export
mends such nodes, or names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.base import errors

if TYPE_CHECKING:
    import onnx

# Of these releases it is known what the parser reads otherwise (`exporting.job.misread`): of the second one, and later ones, less.
_MAJOR, _NEWER = 8, 10


def check(model: onnx.ModelProto | None, version: str) -> None:
    """Raise TftrtError where the plan would answer otherwise than the file.

    Args: model: as of mixed.read; nothing is known without it. version: of TensorRT.
    """
    major = int(version.partition(".")[0])
    if model is None or (major != _MAJOR and major < _NEWER):
        return
    from tftrt_tools.tensorrt.exporting import parser
    from tftrt_tools.tensorrt.exporting.job import model_file

    found = parser.grouped(
        [(f"{op}: {reason}", name) for name, op, reason in model_file.unread(model, major != _MAJOR)]
    )
    if found:
        raise errors.TftrtError(
            f"TensorRT {version} would read the file otherwise than it is: {'; '.join(found)}",
            "`tftrt export FILE --output=OTHER.onnx` writes these nodes otherwise, or says what it cannot; build the plan of OTHER.onnx",
        )
