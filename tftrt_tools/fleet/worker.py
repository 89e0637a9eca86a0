"""What runs in a worker of Ray: look at the stack, unpack, run the job in a child, pack what it made. Plain values come and go, so that a
worker of another version can still answer."""

from __future__ import annotations

import errno
import os
import pathlib
import socket
import time
import traceback
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import child, jobs, progress
from tftrt_tools.fleet import content, stack, store
from tftrt_tools.fleet.task import Given, Where

# Where this variable is set, a GPU may be one that only Ray counts: for trying a fleet without GPUs.
COUNTED = "TFTRT_COUNTED_GPUS"
# Seconds between two messages about a step.
_APART = 0.5


class Board:
    """An actor: where each try runs, and what it does. The driver reads it."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, Any]] = {}

    def say(self, key: str, facts: Mapping[str, Any]) -> None:
        """Note facts about a try."""
        self._said.setdefault(key, {}).update(facts)

    def read(self) -> dict[str, dict[str, Any]]:
        """All facts, {try: facts}."""
        return self._said


def run(asked: Mapping[str, Any], wanted: Mapping[str, Any], sent: store.Sent | None, board: Any) -> dict[str, Any]:
    """Do a task. Args: asked: "key" of the try, "target", "request", "gpus", "seconds", "env", "chunk_bytes" of what it sends; wanted: a
    Stack; sent: its content; board: the actor. Returns: "where", and one of "refused" (a line), "answer" (with "output", as Sent),
    "error", "trouble" of this machine, "died"."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "") if asked["gpus"] else ""
    where = Where(node=node, host=socket.gethostname(), gpus=visible).to_dict()
    here = stack.here(driver=bool(asked["gpus"]))
    line = stack.Stack.from_dict(wanted).refusal(here)
    if not line and asked["gpus"] and not here.driver and not os.environ.get(COUNTED):
        line = "no GPU that NVIDIA's driver finds, though Ray counts one"
    if line:
        return {"where": where, "refused": line}
    board.say.remote(asked["key"], {"where": where})
    # Ray leaves a task without GPUs all of them.
    env = {"CUDA_VISIBLE_DEVICES": visible, **asked["env"]}
    with progress.listening(_Teller(board, asked["key"])):
        done = _done(asked, sent, env)
    return {"where": where, **done}


def _done(asked: Mapping[str, Any], sent: store.Sent | None, env: Mapping[str, Any]) -> dict[str, Any]:
    import ray

    try:
        with scratch.folder("fleet") as folder:
            output, path = pathlib.Path(folder, "output"), ""
            if sent:
                packed = store.taken(ray, sent)
                path = str(content.unpack(packed, pathlib.Path(folder, "content", packed.name)))
            given = Given(request=asked["request"], content=path, output=str(output))
            answer = jobs.named(asked["target"]).run(given, env, timeout=asked["seconds"]).result
            made = store.put(ray, content.pack(output), asked["chunk_bytes"]) if output.exists() else None
            return {"answer": records.plain(answer), "output": made}
    except child.ChildDied as died:
        # What was killed from outside is this machine's trouble; what native code did to itself, it would do anywhere.
        what = "died" if died.signal_name == "SIGKILL" and not asked["seconds"] else "error"
        return {what: died.to_dict()}
    except (content.Broken, ray.exceptions.RayError) as error:
        return {"trouble": errors.TftrtError(f"what travels got lost: {errors.first_line(str(error))}").to_dict()}
    except errors.TftrtError as error:
        full = os.strerror(errno.ENOSPC) in error.cause
        return {"trouble" if full else "error": error.to_dict()}
    except OSError as error:
        return {"trouble": errors.from_os_error(error).to_dict()}
    except child.ChildBug as bug:
        return {"bug": str(bug)}
    except Exception:
        return {"bug": traceback.format_exc()}


class _Teller:
    """Tells the board of the steps, at most two a second."""

    def __init__(self, board: Any, key: str) -> None:
        self._board, self._key, self._last = board, key, 0.0

    def __call__(self, text: str, done: int | None, total: int | None) -> None:
        now = time.monotonic()
        if now - self._last >= _APART:
            self._last = now
            self._board.say.remote(self._key, {"step": f"{text} {done}/{total}" if total else text})
