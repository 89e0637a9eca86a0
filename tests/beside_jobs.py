"""What stands for a helper of a conversion: what its CUDA_VISIBLE_DEVICES names is what becomes of an engine."""

import os
import pathlib
import time
from collections.abc import Callable

from tests.engine_files import engine_file
from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs
from tftrt_tools.tftrt.conversion.job.beside import Answer, Request
from tftrt_tools.tftrt.conversion.signature_result import BuiltEngine


def done(request):
    asked, what = request.asked, os.environ["CUDA_VISIBLE_DEVICES"]
    assert pathlib.Path(request.graph).stat().st_size and asked.feeds and asked.what.startswith("engine ")
    if what == "dies":
        os.abort()
    if what == "hangs":
        pathlib.Path(asked.path).with_name("begun").write_text(str(os.getpid()))
        time.sleep(600)
    if what == "refuses":
        return Answer(refused="4: [network.cpp] Error Code 4: no")
    if what == "cannot":
        raise errors.TftrtError("out of GPU memory")
    engine_file(asked.path, (1, 8), engine=b"beside " + request.node.encode())
    built = BuiltEngine(name=request.node, shapes=((1, 8),), bytes=1, seconds=1.5, peak_memory_bytes=7, cached=False)
    return Answer(built=(built,))


@jobs.job
def build() -> Callable[[Request], Answer]:
    """Stands in for beside.build."""
    return done
