"""Serves both models in one server process, which is the fair way, or finds them on a running server.

It is one server and not two, because everything besides the models is then the same: one build and one set of flags, one process with one
allocator, one pool of threads and one GPU context, one port, warmed up together. Two servers differ in where their memory and threads
happen to lie by more than a small regression ("Producing wrong data without doing anything obviously wrong", Mytkowicz and others, ASPLOS
2009), and on a GPU the contexts of two processes take turns. The price is that both models are in memory at once, and that one must not
make the other wait: only one gets requests at a time. Both names have equally many letters, so that the requests have equally many
bytes.
"""

import contextlib
import dataclasses
import os
import pathlib
import socket
from collections.abc import Callable, Iterator, Mapping

from tftrt_tools import environment, errors, progress, scratch
from tftrt_tools.savedmodel import files
from tftrt_tools.serving import server_flags as server_flags
from tftrt_tools.serving.launch import choose, ending, readiness, serve, start_preflight, watched_process

NATIVE, CANDIDATE = "model-native", "model-tested"
_GRACE_SECONDS = 10.0
_CONFIG = 'model_config_list {{\n{models}}}\n'
_MODEL = '  config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}\n'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """A server that has both models."""

    # HOST:PORT.
    address: str
    # Names of the models there.
    native: str
    candidate: str
    # The backend, and why it was chosen; "" for a server that ran before.
    backend: str = ""
    reason: str = ""
    # Id of the process started here, or 0.
    pid: int = 0
    # Says why the server ended, or None while it runs.
    problem: Callable[[], errors.TftrtError | None] = lambda: None


@contextlib.contextmanager
def served(native: str | os.PathLike[str], candidate: str | os.PathLike[str], backend: str = "local", image: str = "",
           log_file: str | None = None, env: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Serve two SavedModel directories.

    Args: native, candidate: directories, which may be the same. backend: as --backend of `tftrt serve`. image: of Docker. log_file: where
      the server's log is kept, None for nowhere. env: variables to set in the server, {name: text}.
    Yields: Server. Raises: UsageError; TftrtError where the server does not start.
    """
    for path in (native, candidate):
        files.check(path)
    chosen, reason = choose.choose(backend, image)
    with scratch.folder("regress") as folder:
        base = pathlib.Path(folder)
        values = {flag.name: flag.default for flag in server_flags.FLAGS}
        values |= {"model_config_file": _config(base, {NATIVE: native, CANDIDATE: candidate}), "max_num_load_retries": 0,
                   "port": 0 if chosen.name == "local" else _free_port()}
        plan = serve.prepare(chosen, values)
        # Set them in this process, because every backend takes the server's variables from here.
        with environment.variables(env or {}):
            command = chosen.command(plan)
            watch = readiness.Watch(command.ready_probe)
            child = watched_process.Child(command, watch.note, log_file)
        try:
            progress.say("starting the server")
            ready = watched_process.until(watch.ask, child)

            def problem() -> errors.TftrtError | None:
                code = child.code()
                return None if code is None else ending.read(code, child.tail, start_preflight.with_engines(plan.models))

            if not ready:
                raise problem() or errors.TftrtError("the server did not start", "look into its log (--log_file)")
            yield Server(address=ready.grpc, native=NATIVE, candidate=CANDIDATE, backend=chosen.name, reason=reason, pid=child.pid,
                         problem=problem)
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
    path.write_text(_CONFIG.format(models=text))
    return str(path)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
