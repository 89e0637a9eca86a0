"""The model.py that Triton's Python backend runs."""

import pathlib

_FILE = "python_model_job.py"


def text() -> str:
    """Its source. It is a module of this project that imports nothing of it, so that it also runs where only ONNX Runtime is."""
    return (pathlib.Path(__file__).parent / _FILE).read_text()
