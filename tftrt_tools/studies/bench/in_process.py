"""The functions that put load on a model in process, by the kind of the model."""

from __future__ import annotations

from tftrt_tools.models.kinds.model import Kind

# A SavedModel runs here as TensorFlow Serving runs it, because the two are compared.
_AS_SERVED = {"SavedModel": "tftrt_tools.studies.bench.in_process_job:make"}


def maker(kind: Kind) -> str:
    """ "module:make" for load.function_load, in the child. Its request: JSON value of an execution.run.LoadRequest. It returns (function of
    a call's index, number of calls), and raises TftrtError where the model cannot be loaded or does not answer."""
    return _AS_SERVED.get(kind.name, f"{kind.runtime.jobs}:make")
