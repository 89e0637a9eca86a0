"""Both models served by one server process, which is the fair way, or found on one that runs.

One server and not two, because everything beside the models is then the same: one build and one set of flags, one process with one
allocator, one pool of threads and one GPU context, one port, warmed up together. Two servers differ in where their memory and threads
happen to lie by more than a small regression ("Producing wrong data without doing anything obviously wrong", Mytkowicz and others, ASPLOS
2009), and on a GPU the contexts of two processes take turns. The price is that both models are in memory at once, and that one must not
make the other wait: only one is asked at a time. Both names have equally many letters, so that the requests have equally many bytes.
"""

import contextlib
import dataclasses
import pathlib
import socket

from tftrt_tools import environment, progress, scratch
from tftrt_tools.savedmodel import files
from tftrt_tools.serving import flags as server_flags
from tftrt_tools.serving.launch import choose, ending, preflight, process, readiness, serve

NATIVE, CANDIDATE = "model-native", "model-tested"
_GRACE_SECONDS = 10.0
_CONFIG = 'model_config_list {{\n{models}}}\n'
_MODEL = '  config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}\n'


@dataclasses.dataclass(frozen=True)
class Server:
    """A server that has both. address: HOST:PORT; native, candidate: names of the models; backend, reason: what serves and why, "" for one
    that ran before; pid: of the process started here, or 0; problem: function that says why it ended, as a TftrtError, or None while it
    runs."""

    address: str
    native: str
    candidate: str
    backend: str = ""
    reason: str = ""
    pid: int = 0
    problem: object = lambda: None


@contextlib.contextmanager
def served(native, candidate, backend="local", image="", log_file=None, env=None):
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
        # Variables of this process, which is where every backend looks for what it hands on.
        with environment.variables(env or {}):
            command = chosen.command(plan)
            watch = readiness.Watch(command.ready_probe)
            child = process.Child(command, watch.note, log_file)
        try:
            progress.say("starting the server")
            ready = process.until(watch.ask, child)

            def problem():
                return None if child.code() is None else ending.read(child.code(), child.tail, preflight.with_engines(plan.models))

            if not ready:
                raise problem()
            yield Server(ready.grpc, NATIVE, CANDIDATE, chosen.name, reason, child.pid, problem)
        finally:
            watch.close()
            child.end(_GRACE_SECONDS)


def _config(base, models):
    """Base paths with one version each, that lead to the models. Returns: path of the configuration."""
    text = ""
    for name, model in models.items():
        (base / name).mkdir()
        (base / name / "1").symlink_to(pathlib.Path(model).resolve(), target_is_directory=True)
        text += _MODEL.format(name=name, path=base / name)
    path = base / "models.config"
    path.write_text(_CONFIG.format(models=text))
    return str(path)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
