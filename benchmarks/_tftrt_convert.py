"""`tftrt convert` with a clock: python -m benchmarks._tftrt_convert SOURCE OUTPUT PRECISION [--start_up]

It is the same command, in the same processes; each thing that it says of its progress is noted with its time. With --start_up
both processes start and import all that the command imports, and end.
"""

import json
import sys
import time


def convert(source, output, precision):
    """Run the command. Returns: [(what begins, seconds since the start)]."""
    from tftrt_tools.base.process import progress
    from tftrt_tools.command_line import cli

    said, start = [("start", 0.0)], time.perf_counter()
    with progress.listening(lambda text, *_: said.append((text, time.perf_counter() - start))):
        code = cli.main(["convert", f"--model={source}", f"--output={output}", f"--precision={precision}"])
    if code:
        sys.exit(code)
    return [*said, ("end", time.perf_counter() - start)]


def start_up():
    """What the command imports, in parent and child, and nothing else."""
    from tftrt_tools.base.process import child  # noqa: F401
    from tftrt_tools.command_line import cli  # noqa: F401
    from tftrt_tools.command_line.commands import _flags, _output, convert  # noqa: F401
    from tftrt_tools.tftrt.conversion import pass_log, pipeline  # noqa: F401

    child.run(
        "benchmarks._tftrt_convert:child_job",
        None,
        env={"TF_CPP_VMODULE": pass_log.VMODULE, "TF_CPP_MIN_LOG_LEVEL": "0"},
    )


def child_job(_):
    """Imports what the command's child imports."""
    import tftrt_tools.tftrt.conversion.convert_job  # noqa: F401


if __name__ == "__main__":
    steps = start_up() if "--start_up" in sys.argv else convert(*sys.argv[1:4])
    print("STEPS " + json.dumps(steps), flush=True)
