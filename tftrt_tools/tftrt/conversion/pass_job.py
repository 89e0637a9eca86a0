"""One run of the TF-TRT graph pass, in a process that it may end. The result is thrown away."""

from __future__ import annotations

import pathlib

from tensorflow.core.framework import graph_pb2

from tftrt_tools.base import op_libraries
from tftrt_tools.tftrt.conversion.job import thrown


def job(request: thrown.PassRequest) -> None:
    """Run a pass. Raises: whatever it raises."""
    op_libraries.load()
    graph_def = graph_pb2.GraphDef.FromString(pathlib.Path(request.graph).read_bytes())
    thrown.Pass(
        graph_def=graph_def, preserved=request.preserved, parameters=request.parameters, variables=request.variables
    )(set(request.kept))
