"""`python -m tftrt_tools.servers.serving.local`: the development server, with the flags of tensorflow_model_server and --host."""

from __future__ import annotations

from tftrt_tools.base.process import starting

if __name__ == "__main__":
    # Before anything is imported that a file in the current folder could stand for.
    starting.settle()

import logging
import os
import signal
import sys
import threading
import types
from collections.abc import Sequence

from tftrt_tools.base import errors
from tftrt_tools.base.process import collection, lean_import
from tftrt_tools.servers.serving import server_flags
from tftrt_tools.servers.serving.local import failure

_OWN = (server_flags.Flag("host", server_flags.STRING, "127.0.0.1", "address to listen on"),)
_FAILED = 255
_LOOK_SECONDS = 0.2
_STOP_SECONDS = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns: the exit code: 0 after a signal, 255 where the start failed, as the real server."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03d: %(levelname).1s %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )
    options = server_flags.parse(
        sys.argv[1:] if argv is None else argv, _OWN, "python -m tftrt_tools.servers.serving.local"
    )
    # A development server shares its GPU; the real one takes all of its memory.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    if options.version:
        from tftrt_tools.base.stack import installed
        from tftrt_tools.base.version import __version__

        runs = installed.tensorflow()
        with_what = f" with {runs.name}" if runs else ""
        print(f"tftrt-tools development server {__version__}{with_what}: answers as TensorFlow ModelServer 2.14.1")
        return 0
    return _serve(options)


def _serve(options: types.SimpleNamespace) -> int:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    logging.info("development server of tftrt-tools, not for production")
    with collection.paused(), lean_import.tensorflow():
        from tftrt_tools.servers.serving.local.server import Server

    server, outcome = Server(options), []
    lost: list[str] = []

    def failed(said: threading.ExceptHookArgs) -> None:
        logging.error("a fault of the development server: a thread failed", exc_info=said.exc_value)
        lost.append(f"{said.exc_type.__name__}: {said.exc_value}")
        ended.set()

    threading.excepthook = failed

    def start() -> None:
        try:
            server.start()
        except failure.Failure as error:
            outcome.append(error.to_text())
        except errors.TftrtError as error:
            outcome.append(f"{error.cause}; {error.mend}")
        except BaseException:
            logging.exception("a fault of the development server: the start failed")
            outcome.append("a bug of the development server")
        if outcome:
            ended.set()

    # In a thread of its own, so that a signal can end a start that waits for a model.
    starting = threading.Thread(target=start, name="start")
    starting.start()
    # Python handles signals in this thread. A signal that another thread received does not wake it, so it polls.
    while not ended.wait(_LOOK_SECONDS):
        pass
    stopping = threading.Thread(target=server.stop, name="stop", daemon=True)
    stopping.start()
    stopping.join(_STOP_SECONDS)
    if stopping.is_alive():
        logging.warning("requests or loads still run, they end with the process")
    else:
        starting.join()
    if lost:
        print(f"A thread of the server failed, so it has ended: {lost[0]}", file=sys.stderr)
        return _FAILED
    # The start failed because a signal ended it.
    if outcome and not outcome[0].startswith("CANCELLED"):
        print(f"Failed to start server. Error: {outcome[0]}", file=sys.stderr)
        return _FAILED
    return 0


if __name__ == "__main__":
    code = main()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # A request without a deadline may run for ever, and the interpreter would wait for its thread; the real server does not wait.
    os._exit(code)
