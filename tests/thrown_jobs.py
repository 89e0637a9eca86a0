"""Jobs for test_thrown: a graph pass that ends its process on some nodes, and a job that runs one."""

import os

from tftrt_tools.tftrt.conversion import pass_apart


def graph_pass(request):
    """As conversion.pass_job.job, for a pass that ends the process when it is offered a node named "bad…"."""
    if any(name.startswith("bad") and name not in request["kept"] for name in request["variables"]["nodes"].split(",")):
        os.write(2, b"2026-11-25 10:00:00.000000: F tensorflow/core/x.cc:1] Check failed: rank >= 0\n")
        os.abort()


def whole(request):
    """As a job that runs a pass. Returns: whether it tried the pass in another process first."""
    if request["elsewhere"]:
        os.abort()
    with pass_apart.marked():
        if not pass_apart.wanted():
            os.abort()
    return True
