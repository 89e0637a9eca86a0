"""The server that a page starts, with the development server in the place of TensorFlow Serving."""

import contextlib
import json
import os
import subprocess
import sys
import time

from tests.conftest import ROOT

# Of `tftrt regress`: few requests, and a verdict on the answers alone: times of a test say nothing.
QUICK = ("--rounds=16", "--requests=4", "--metrics=p50", "--must_decide=", "--allow_worse")
_PORTS = ("--port=", "--rest_api_port=")


@contextlib.contextmanager
def started(argv, folder, name="server"):
    """`tftrt serve` of a page on a free port, until the end of this. Args: argv: its words. folder: where someone types them; it gets NAME.json
    and NAME.log. Yields: its address."""
    assert argv[:2] == ["tftrt", "serve"], argv
    ready, log = folder / f"{name}.json", folder / f"{name}.log"
    words = [word for word in argv[2:] if not word.startswith(_PORTS)]
    command = [sys.executable, "-m", "tftrt_tools", "serve", *words, "--launch=local", "--port=0", f"--json={ready}"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with open(log, "w") as file:
        process = subprocess.Popen(
            command, cwd=folder, stdout=file, stderr=file, env={**os.environ, "PYTHONPATH": path}
        )
    try:
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield json.loads(ready.read_text())["grpc"]
    finally:
        process.terminate()
        process.wait()
