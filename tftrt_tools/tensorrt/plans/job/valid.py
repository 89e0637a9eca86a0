"""An ONNX file that nothing has opened yet: what reads it may stumble over nodes that are no valid ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tftrt_tools.base import errors


@contextlib.contextmanager
def told(path: str) -> Iterator[None]:
    """Say of an exception inside the block what is wrong with the file. Raises: TftrtError; the exception where nothing is."""
    try:
        yield
    except errors.TftrtError:
        raise
    except Exception as error:  # onnx raises whatever its parts do
        problem = _problem(path)
        if not problem:
            raise
        raise errors.TftrtError(
            f"the ONNX file is not valid: {problem}",
            "export the model again; onnx.checker.check_model(FILE) says what it finds",
        ) from error


def _problem(path: str) -> str:
    """What onnx finds wrong with a file, "" for nothing."""
    import onnx

    try:
        onnx.checker.check_model(path)
    except Exception as error:  # as above
        return errors.first_line(str(error)) or type(error).__name__
    return ""
