"""A command on a machine whose two GPUs are counted and are none.

python -m tests.counted_gpus COMMAND … [--flags]
"""

import contextlib
import sys
from unittest import mock

from tests import beside_faults
from tftrt_tools.base.stack import fingerprint, local_gpus
from tftrt_tools.command_line import cli
from tftrt_tools.studies.profiling import spread
from tftrt_tools.studies.regression import sizes

if __name__ == "__main__":
    with contextlib.ExitStack() as stack:
        for one in (
            mock.patch.object(local_gpus, "alike", lambda: ("0", "1")),
            mock.patch.object(fingerprint, "gpu_here", lambda: True),
            mock.patch.object(sizes, "compare", beside_faults.compare),
            mock.patch.object(spread, "shape", beside_faults.shape),
        ):
            stack.enter_context(one)
        sys.exit(cli.main(sys.argv[1:]))
