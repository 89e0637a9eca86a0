"""Jobs for test_thrown: a graph pass that ends its process on some nodes, and a job that runs one."""

import os
from collections.abc import Callable

from tftrt_tools.base.process import jobs
from tftrt_tools.tftrt.conversion import pass_apart
from tftrt_tools.tftrt.conversion.job.thrown import PassRequest


@jobs.job
def graph_pass() -> Callable[[PassRequest], None]:
    """As thrown.single_pass, for a pass that ends the process when it is offered a node named "bad…"."""
    return _graph_pass


@jobs.job
def whole() -> Callable[[bool], bool]:
    """A job that runs a pass. Takes: whether it ends elsewhere. Answers: whether it tried the pass in another process first."""
    return _whole


def _graph_pass(request):
    if any(name.startswith("bad") and name not in request.kept for name in request.variables["nodes"].split(",")):
        os.write(2, b"2026-11-25 10:00:00.000000: F tensorflow/core/x.cc:1] Check failed: rank >= 0\n")
        os.abort()


def _whole(elsewhere):
    if elsewhere:
        os.abort()
    with pass_apart.marked():
        if not pass_apart.wanted():
            os.abort()
    return True
