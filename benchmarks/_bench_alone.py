"""`tftrt bench`, whose rounds begin when no other such process has rounds under way on this GPU: python -m benchmarks._bench_alone bench …

Models are loaded meanwhile, which takes longer than the rounds.
"""

import fcntl
import functools
import os
import pathlib
import sys
import tempfile

from tftrt_tools.command_line import cli
from tftrt_tools.studies.regression import rounds

NEEDS_GPU = True


@functools.cache
def lock() -> int:
    """Wait for the GPU, and hold it until this process ends. Returns: the descriptor of the lock."""
    name = f"tftrt-bench-alone-{os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}.lock"
    held = os.open(pathlib.Path(tempfile.gettempdir()) / name, os.O_CREAT | os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    return held


def main() -> int:
    """Run the command of the command line. Returns: its exit code."""
    warm_up = rounds.Turns.warm_up

    def alone(turns):
        lock()
        return warm_up(turns)

    rounds.Turns.warm_up = alone
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
