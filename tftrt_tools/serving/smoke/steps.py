"""The steps of a smoke test that need TensorFlow; they run in one child process, without a GPU: the server's is left alone."""

import contextlib

from tftrt_tools import child

_ENV = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "1"}


@contextlib.contextmanager
def worker():
    """Yields: Steps. The child starts with the context and loads TensorFlow with the first step."""
    with child.worker("tftrt_tools.serving.smoke.steps:job", env=_ENV) as one:
        yield Steps(one)


class Steps:
    """The parent's side. All methods raise TftrtError."""

    def __init__(self, worker):
        self._worker = worker

    def read_model(self, path):
        """What model.from_step takes."""
        return self._worker.call({"step": "read_model", "model": str(path)}).result

    def describe(self, path):
        """describe.Description of a SavedModel."""
        from tftrt_tools.savedmodel import describe

        return describe.Description.from_dict(self._worker.call({"step": "describe", "model": str(path)}).result)

    def call(self, request):
        """For run.run(started=…): what execution.runner.job takes and returns, as an Outcome."""
        return self._worker.call({"step": "run", "request": request})


def job(request):
    """Args: request: {"step": name, …}. Returns: what that step does."""
    if request["step"] == "read_model":
        from tftrt_tools.serving.smoke import model

        return model.read(request["model"])
    if request["step"] == "describe":
        from tftrt_tools.savedmodel import describe

        return describe.job({"models": [request["model"]]})[0]
    from tftrt_tools.execution import runner

    return runner.job(request["request"])
