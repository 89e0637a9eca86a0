"""What TensorRT's parser would read otherwise than an ONNX file says: asked before a plan is built of a file as it was given. An export
mends such nodes, or names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.base import errors

if TYPE_CHECKING:
    import onnx

# Of this release it is known what the parser does not read (`exporting.job.model_file`).
_MAJOR = "8"


def check(model: onnx.ModelProto | None, version: str) -> None:
    """Raise TftrtError where the plan would answer otherwise than the file.

    Args: model: as of mixed.read; nothing is known without it. version: of TensorRT.
    """
    if model is None or version.partition(".")[0] != _MAJOR:
        return
    from tftrt_tools.tensorrt.exporting import parser
    from tftrt_tools.tensorrt.exporting.job import model_file

    found = parser.grouped([(f"{op}: {reason}", name) for name, op, reason in model_file.unread(model)])
    if found:
        raise errors.TftrtError(
            f"TensorRT {version} would read the file otherwise than it is: {'; '.join(found)}",
            "`tftrt export FILE --output=OTHER.onnx` writes these nodes otherwise, or says what it cannot; build the plan of OTHER.onnx",
        )
