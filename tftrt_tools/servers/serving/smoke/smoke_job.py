"""The child's side of `steps`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tftrt_tools.models.savedmodel.describe import Description


def describe(path: str) -> Description:
    """The Description of a SavedModel."""
    from tftrt_tools.models.savedmodel import describe_job

    return Description.from_dict(describe_job.job({"models": [path]})[0])


def run(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run a SavedModel. As execution.run_job.answer."""
    from tftrt_tools.models.kinds.savedmodel import runner_job

    return runner_job.job(dict(request))
