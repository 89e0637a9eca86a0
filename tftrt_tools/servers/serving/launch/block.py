"""A server for as long as a block lasts: SavedModel directories under names, each as version 1."""

import contextlib
import dataclasses
import os
import pathlib
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file, scratch
from tftrt_tools.base.process import environment, progress
from tftrt_tools.models.savedmodel import files
from tftrt_tools.servers.serving import server_flags as server_flags
from tftrt_tools.servers.serving.configuration import generation
from tftrt_tools.servers.serving.launch import (
    choose,
    ending,
    log_follower,
    readiness,
    serve,
    start_preflight,
    watched_process,
)

_GRACE_SECONDS = 10.0
_CONFIG = "model_config_list {{\n{models}}}\n"
_MODEL = '  config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}\n'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Running:
    """A server that was started here and answers."""

    # HOST:PORT of its gRPC port.
    address: str
    # The backend, and why it was chosen.
    backend: str
    reason: str
    # Id of its process.
    pid: int
    # Says why the server ended, or None while it runs.
    problem: Callable[[], errors.TftrtError | None]


@contextlib.contextmanager
def served(
    models: Mapping[str, str | os.PathLike[str]],
    backend: str = "local",
    image: str = "",
    log_file: str | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Iterator[Running]:
    """Serve SavedModel directories.

    Args: models: {name: directory}. backend: as --launch of `tftrt serve`. image: of Docker. log_file: where the server's log is kept,
      None for nowhere. env: variables to set in the server, {name: text}. flags: {name: value} of the server's flags beside those that
      name the models and the port, and the number of its gRPC threads, which is no limit to the load that it is started for.
    Yields: Running. Raises: UsageError; TftrtError where the server does not start.
    """
    for path in models.values():
        files.check(path)
    chosen, reason = choose.choose(backend, image)
    with scratch.folder("served") as folder:
        values = {flag.name: flag.default for flag in server_flags.FLAGS} | dict(flags or {})
        values |= {
            "grpc_max_threads": generation.GRPC_THREADS,
            "max_num_load_retries": 0,
            "model_config_file": _config(pathlib.Path(folder), models),
            "port": 0 if chosen.name == "local" else _free_port(),
        }
        plan = serve.prepare(chosen, values)
        # Set them in this process, because every backend takes the server's variables from here.
        with environment.variables(env or {}):
            command = chosen.command(plan)
            watch, follower = readiness.Watch(command.ready_probe), log_follower.Follower(values)

            def on_line(line: str) -> None:
                watch.note(line)
                follower.note(line)

            child = watched_process.Child(command, on_line, log_file)
        try:
            progress.say("starting the server")

            def ask() -> readiness.Ready | None:
                for one in follower.news() if child.code() is None else ():
                    raise errors.TftrtError(one.cause, one.mend)  # such a server may stay, and never be ready
                return watch.ask()

            ready = watched_process.until(ask, child)

            def problem() -> errors.TftrtError | None:
                code = child.code()
                return (
                    None if code is None else ending.read(code, child.tail, start_preflight.with_engines(plan.models))
                )

            if not ready:
                raise problem() or errors.TftrtError("the server did not start", "look into its log (--log_file)")
            yield Running(address=ready.grpc, backend=chosen.name, reason=reason, pid=child.pid, problem=problem)
        finally:
            watch.close()
            child.end(_GRACE_SECONDS)


def _config(base: pathlib.Path, models: Mapping[str, str | os.PathLike[str]]) -> str:
    """Base paths with one version each, that lead to the models. Returns: path of the configuration."""
    text = ""
    for name, model in models.items():
        (base / name).mkdir()
        (base / name / "1").symlink_to(pathlib.Path(model).resolve(), target_is_directory=True)
        text += _MODEL.format(name=name, path=base / name)
    path = base / "models.config"
    plain_file.write_text(path, _CONFIG.format(models=text))
    return str(path)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        result: int = probe.getsockname()[1]
        return result
