"""A build for several kinds of GPU as JUnit XML: a test case for each kind. One that was tried and is not whole is a failure; one that no
machine could try, or whose machine went, is an error."""

from __future__ import annotations

from tftrt_tools.base import junit
from tftrt_tools.studies.fleet_builds.building import FleetBuild, KindBuilt


def text(done: FleetBuild) -> str:
    """The document."""
    properties = {
        "model": done.model,
        "content": done.content_digest,
        "shapes": done.shapes,
        "on": done.on,
        "tool": done.tool,
    }
    cases = [_case(one) for one in done.kinds]
    return junit.text("build", done.output, cases, done.created, done.seconds, properties)


def _case(one: KindBuilt) -> junit.Case:
    where = f" on {one.where.text()}" if one.where else ""
    if one.complete:
        built = "taken over, built" if one.taken_over else "built"
        return junit.Case(
            name=one.gpu_type, verdict="pass", message=f"{built}{where}: {one.output}", seconds=one.seconds
        )
    lines = (one.cause or "not all engines are there", one.mend, *(one.built.text if one.built else ()))
    return junit.Case(
        name=one.gpu_type,
        verdict="failure" if one.status in ("done", "failed") else "error",
        message=lines[0],
        kind=one.status,
        details="\n".join(filter(None, lines)) + where,
        seconds=one.seconds,
    )
