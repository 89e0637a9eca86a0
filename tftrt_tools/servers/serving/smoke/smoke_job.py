"""The child's side of `steps`."""

from __future__ import annotations

from typing import Any


def job(request: Any) -> Any:
    """Args: request: {"step": name, …}. Returns: what that step does."""
    if request["step"] == "read_model":
        from tftrt_tools.servers.serving.smoke import version_on_disk_job

        return version_on_disk_job.read(request["model"])
    if request["step"] == "describe":
        from tftrt_tools.models.savedmodel import describe_job

        return describe_job.job({"models": [request["model"]]})[0]
    from tftrt_tools.models.kinds.savedmodel import runner_job

    return runner_job.job(request["request"])
