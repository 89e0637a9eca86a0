"""A command with its costs: wall and processor time, and memory of the whole process tree."""

import os
import pathlib
import subprocess
import threading
import time

_EVERY_SECONDS = 0.02


def run(command, cwd, env):
    """Run `command` (list) to its end.

    Returns: {"wall_s", "cpu_s" (user and system, all processes), "largest_mb" (peak resident memory of the largest process, as the
      kernel counts it), "tree_mb" (peak sum over the processes, sampled every 20 ms; shared pages count twice), "output"}.

    Raises: RuntimeError where it fails.
    """
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    peak, ended = [0], threading.Event()
    sampler = threading.Thread(target=_sample, args=(process.pid, peak, ended), daemon=True)
    sampler.start()
    output = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for here, not by subprocess
    ended.set()
    sampler.join()
    if process.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {process.returncode}:\n" + "\n".join(output.splitlines()[-15:])
        )
    return {
        "wall_s": wall,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "largest_mb": usage.ru_maxrss / 1024,
        "tree_mb": peak[0] / 2**20,
        "output": output,
    }


def _sample(root, peak, ended):
    while not ended.wait(_EVERY_SECONDS):
        peak[0] = max(peak[0], sum(map(_resident, _tree(root))))


def _tree(root):
    """A process and its descendants."""
    waiting, found = [root], []
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                waiting += map(int, children.read_text().split())
            except OSError:
                continue  # that thread has ended meanwhile
    return found


def _resident(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
