"""The steps of publishing that need TensorFlow, in one child process; the child's side of `publish`."""

from collections.abc import Callable, Mapping
from typing import Any

from tftrt_tools.base.process import progress


def job(request: Mapping[str, Any]) -> Any:
    """One step. Args: request: {"step": name, …}. Returns: what that step returns. Raises: TftrtError and its kinds."""
    return _STEPS[request["step"]](request)


def _read_model(request: Mapping[str, Any]) -> dict[str, Any]:
    """{"model"} -> Facts.to_dict()."""
    from tftrt_tools.servers.serving.publishing import model_facts_job

    progress.say("reading the model")
    return model_facts_job.read(request["model"]).to_dict()


def _write_warmup(request: Mapping[str, Any]) -> int:
    """{"path", "model_name", "calls": [(signature, .npz)]} -> bytes written."""
    from tftrt_tools.servers.serving.warmup import warmup_file_job

    progress.say("writing the warm-up")
    return warmup_file_job.write(request["path"], request["model_name"], request["calls"])


def _read_warmup(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    """{"path", "model", "folder"} -> [(signature, .npz)]."""
    from tftrt_tools.servers.serving.warmup import warmup_file_job

    progress.say("reading the warm-up back")
    return warmup_file_job.read(request["path"], request["model"], request["folder"])


def _covered(request: Mapping[str, Any]) -> dict[str, Any]:
    """{"model"} -> engine_batch_sizes.Covered.to_dict()."""
    from tftrt_tools.servers.serving.configuration import engine_batch_sizes_job

    return engine_batch_sizes_job.job({"models": [request["model"]]})[0]


_STEPS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "read_model": _read_model,
    "covered": _covered,
    "write_warmup": _write_warmup,
    "read_warmup": _read_warmup,
}
